"""What is remembered of the work, and for how long."""

from __future__ import annotations

import math

import pytest
from msgspec import structs

from loadtrim_agent.planning.sizing.marginal_benefit import BENEFITS, HISTORY_SECONDS, BenefitHistory, least_benefit
from unit.planning.sizing.test_policy import entry, view


def test_work_of_the_past_fades() -> None:
    given = view((entry(0, 100.0), entry(1, 100.0)), 2)
    level = given.forecast.level
    first, _ = least_benefit(given, BenefitHistory(), None)
    assert (first.at, first.work) == (given.now, pytest.approx(level)), "nothing is remembered at first"
    earlier = BenefitHistory(at=given.now - HISTORY_SECONDS, work=50.0)
    assert least_benefit(given, earlier, None)[0].work == pytest.approx(50.0 * math.exp(-1.0) + level, abs=1e-3)


def test_what_a_smaller_benefit_has_as_well_is_not_written_twice() -> None:
    given = view((entry(0, 100.0), entry(1, 100.0)), 2)
    smallest, largest = BENEFITS[-1], BENEFITS[0]
    short = BenefitHistory(at=given.now - 1.0, work=50.0, overdue={smallest: 0.5, 0.1: 2.0, largest: 0.0})
    all_told = {benefit: 0.5 if benefit < 0.1 else 2.0 for benefit in BENEFITS} | {largest: 0.0}
    after, chosen = least_benefit(given, short, None)
    assert (after, chosen) == least_benefit(given, structs.replace(short, overdue=all_told), None)
    assert list(after.overdue) == [smallest, 0.1, largest]
