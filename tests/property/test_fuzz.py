"""A few thousand of the records that ``make fuzz`` throws by the million."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz.__main__ import Leader, Outcome, table, throw
from loadtrim_agent.planning.planner import Planner

RECORDS = 1_000

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_no_record_crashes_starves_or_passes_uncounted(seed: int) -> None:
    outcome = throw(RECORDS, seed)
    assert not outcome.crashes, "\n".join(outcome.crashes)
    assert not outcome.others["planner broke"]
    read, refused = outcome.accepted.total(), outcome.refused.total()
    assert read + refused == RECORDS
    assert min(read, refused) > RECORDS / 4, "neither would tell much alone"
    assert outcome.others["planner"]["decided"] > 5, "the group goes on being planned for"
    assert outcome.wanted_max <= Leader.MAX_REPLICAS
    assert outcome.generations < RECORDS / 10, "the member is not kept joining"
    assert "| crashes | 0 |" in table(outcome, 1.0)


async def test_the_same_seed_makes_the_same_records() -> None:
    one, other = throw(200, 7), throw(200, 7)
    assert (one.refused, one.accepted, one.others) == (other.refused, other.accepted, other.others)


async def test_a_planner_that_breaks_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    observe = Planner.observe

    def fragile(self: Planner, report: Any, *rest: Any) -> None:
        assert report.instance != "payments-1", "the golden report's"
        observe(self, report, *rest)

    monkeypatch.setattr(Planner, "observe", fragile)
    outcome: Outcome = throw(300, 1)
    assert any(told.startswith("observe: AssertionError at test_fuzz.py") for told in outcome.others["planner broke"])
