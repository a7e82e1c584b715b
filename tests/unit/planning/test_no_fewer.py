"""What comes for partitions that are paused or blocked is no load, and no ground for fewer replicas."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from loadtrim_agent.planning.registry import make_planner
from loadtrim_agent.planning.values import PlanConfig
from unit.planning.virtual_group import Fleet, even, partition, steps

CONFIG = PlanConfig(group="g", sla_seconds=1.0, startup_seconds=5.0, max_replicas=8)


def counts(group: Fleet, since: int) -> set[int]:
    return {decision.replicas_wanted for decision in group.history[since:]}


@pytest.mark.parametrize("state", ["paused", "blocked"])
def test_a_dependency_that_is_away_takes_no_replicas(state: str) -> None:
    """User code pauses everything while a database is away, or a call to it hangs in every member."""
    group = Fleet(CONFIG, even(12, 600.0), members=4)
    group.run(40)
    group.states = dict.fromkeys(group.partitions, state)
    group.run(60)
    assert counts(group, 40) == {4}
    last = group.history[-1]
    assert (last.outcome, last.reason_code) == ("none", "kept_out")
    assert (
        "but records come for 12 partitions that are paused or blocked, so it will not be fewer than 4" in last.reason
    )
    blind = group.history[40:]
    assert not any("fit_since" in decision.state for decision in blind), "what was not seen is no quiet time"
    group.states = {}
    assert min(counts(group, len(group.history) - 1)) == 4
    assert group.run(2).replicas_wanted > 4, "what waits is worked off"


def test_what_waits_in_paused_partitions_that_get_nothing_keeps_no_replicas() -> None:
    group = Fleet(CONFIG, steps(12, (0, 600.0), (60, 0.0)), members=4)
    group.run(40)
    group.states = dict.fromkeys(group.partitions, "paused")
    group.run(200)
    assert sum(group.lag.values()) == pytest.approx(12_000)
    assert group.history[-1].replicas_wanted == 1


def test_one_partition_that_is_blocked_for_good_keeps_no_group_large() -> None:
    """It keeps getting what it got by day; by night the others get a twelfth of that."""
    group = Fleet(CONFIG, lambda second: [50.0, *[50.0 if second < 40 else 4.0] * 11], members=4)
    group.run(40)
    group.states = {partition(0): "blocked"}
    group.run(60)
    assert group.history[-1].replicas_wanted == 1


def test_as_many_stay_as_could_do_what_comes_and_work_off_what_waits() -> None:
    """Three quarters of a busy second per second come for partitions that stand still, and as much for the others."""
    group = Fleet(CONFIG, lambda second: [50.0] * 3 + [100.0 if second < 40 else 50.0 / 3.0] * 9, members=8)
    group.run(40)
    assert group.history[-1].replicas_wanted > 3
    group.states = {partition(number): "paused" for number in range(3)}
    group.run(60)
    assert group.history[-1].replicas_wanted == 3
    assert "for 3 partitions that are paused or blocked, so it will not be fewer than 3" in group.history[-1].reason


def test_a_maximum_that_is_lower_now_holds_for_what_is_kept_too() -> None:
    """A rollout lowered it while a database was away: the group stayed above it for as long as that took."""
    group = Fleet(CONFIG, even(12, 1200.0), members=8)
    group.run(40)
    group.states = dict.fromkeys(group.partitions, "paused")
    group.run(5)
    group.config = replace(CONFIG, max_replicas=4)
    group.planner = make_planner(group.config)
    group.planner.remember(group.history[-1])
    for report, at in group.reports:
        group.planner.observe(report, at)
    group.run(20)
    assert group.history[-1].replicas_wanted == 4
