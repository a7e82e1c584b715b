"""What is remembered of the work, and for how long."""

from __future__ import annotations

import math

import pytest

from loadtrim_agent.planning.sizing.marginal_benefit import HISTORY_SECONDS, BenefitHistory, least_benefit
from unit.planning.sizing.test_policy import entry, view


def test_work_of_the_past_fades() -> None:
    given = view((entry(0, 100.0), entry(1, 100.0)), 2)
    level = given.forecast.level
    first, _ = least_benefit(given, BenefitHistory(), None)
    assert (first.at, first.work) == (given.now, pytest.approx(level)), "nothing is remembered at first"
    earlier = BenefitHistory(at=given.now - HISTORY_SECONDS, work=50.0)
    assert least_benefit(given, earlier, None)[0].work == pytest.approx(50.0 * math.exp(-1.0) + level, abs=1e-3)
