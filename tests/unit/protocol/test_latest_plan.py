"""The latest plan of a generation, and its moves that wait."""

from __future__ import annotations

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol.assigned_partition import AssignedPartition, AssignedState
from loadtrim_agent.protocol.latest_plan import LatestPlan
from loadtrim_agent.wire.ownership_records import MovePlan, PlanRecord

P0, P1 = Partition("orders", 0), Partition("orders", 1)


def test_a_plan_that_is_not_there_advises_nothing() -> None:
    assert LatestPlan().moves == ()


def held(state: AssignedState, *partitions: Partition) -> dict[Partition, AssignedPartition]:
    return {p: AssignedPartition(partition=p, acquisition_id=1, state=state) for p in partitions}


def test_moves_wait_until_their_partition_is_opened_and_begin_once() -> None:
    latest = LatestPlan()
    latest.unopened |= {P1: "m2", P0: "m3"}
    opening = held(AssignedState.OPENING, P1)
    assert latest.opened(opening | held(AssignedState.INITIAL_COMMIT, P0)) == []
    assert latest.opened(opening | held(AssignedState.RUNNING, P0)) == [(P0, "m3")]
    assert latest.opened({}) == [(P1, "m2")], "what is not held any more need not wait"
    assert latest.opened({}) == []


def test_moves_that_wait_are_kept_but_for_what_the_next_plan_moves() -> None:
    move = MovePlan(topic="orders", partition=0, source="m1", target="m3")
    latest = LatestPlan(PlanRecord(group="g", member="m1", at=0.0, generation=1, sequence=2, moves=(move,)))
    latest.keep({P0: "m2", P1: "m2"})
    assert latest.unopened == {P1: "m2"}
