"""The leader of members that slice: whether all do, what the group is sized by, and what is left to the plan."""

from __future__ import annotations

import pytest
from msgspec import structs
from msgspec.structs import replace

from loadtrim_agent.planning.sliced_group import slicing_of
from loadtrim_agent.planning.values import PlanConfig
from loadtrim_agent.wire.telemetry_records import DecisionRecord
from unit.planning.virtual_group import COST, Fleet, even

CONFIG = PlanConfig(group="g", sla_seconds=0.5, startup_seconds=1.0)


@pytest.fixture
def three() -> Fleet:
    fleet = Fleet(CONFIG, even(6, 200.0), members=3)
    fleet.tick()
    return fleet


def told(fleet: Fleet, silent: str = "", **why: str | None) -> tuple[bool, dict[str, str]]:
    """Let members say so in their last reports; those that are not named slice."""
    group = fleet.state()
    observation = fleet.planner.history.observation(fleet.now, group)
    members = {member: replace(known, slicing_off=why.get(member, "")) for member, known in observation.members.items()}
    return slicing_of(replace(observation, members=members, silent=frozenset({silent} - {""})), group)


def test_a_group_slices_while_all_of_it_does(three: Fleet) -> None:
    assert told(three) == (True, {})
    assert told(three, m02="listener") == (False, {"m02": "listener"})
    assert told(three, m02=None) == (False, {"m02": "version"}), "an older member tells nothing"


def test_where_nobody_slices_there_is_nobody_to_be_named(three: Fleet) -> None:
    assert told(three, m01="setting", m02="setting", m03=None) == (False, {})


def test_newcomers_leavers_and_silent_members_are_taken_to_do_as_the_others(three: Fleet) -> None:
    three.join()
    assert told(three) == (True, {}), "it has not told yet"
    assert told(three, silent="m02", m02="setting") == (True, {})
    three.leaving("m03")
    assert told(three, m03="setting") == (True, {})


def test_where_all_are_silent_they_stand_by_what_they_told(three: Fleet) -> None:
    """Telemetry that could not be read for three seconds had a group that slices ask for two more replicas."""
    group = three.state()
    seen = three.planner.history.observation(three.now, group)
    members = {member: replace(known, slicing_off="") for member, known in seen.members.items()}
    assert slicing_of(replace(seen, members=members, silent=frozenset(members)), group) == (True, {})


def test_members_of_unlike_topics_are_no_pool(three: Fleet) -> None:
    three.members["m02"] = replace(three.members["m02"], topics=frozenset({"other"}))
    assert told(three) == (False, {})


def bulky(slicing_off: str) -> Fleet:
    """Three partitions of more than half a member each: work for two members, which only three can own."""
    fleet = Fleet(CONFIG, even(3, 1.65 / COST), members=3)
    fleet.reported["slicing_off"] = slicing_off
    return fleet


def first_down(fleet: Fleet) -> DecisionRecord | None:
    decisions = (fleet.step() for _ in range(60))
    return next((decision for decision in decisions if decision.outcome == "down"), None)


def test_a_group_that_slices_is_sized_by_its_work_alone() -> None:
    assert first_down(bulky("setting")) is None
    down = first_down(bulky(""))
    assert down is not None
    assert (down.replicas_wanted, down.slicing, down.unsliced) == (2, True, {})
    assert {move.source for move in down.moves} == set(down.victims), "members divide the rest among themselves"
    assert "divide badly" not in down.reason


def test_one_member_that_does_not_slice_has_the_group_sized_for_whole_partitions() -> None:
    fleet = bulky("")
    down = first_down(fleet)
    assert down is not None
    fleet.reported["slicing_off"] = "listener"
    back = fleet.step()
    assert (back.replicas_wanted, back.slicing) == (3, False)


def test_why_the_group_is_not_sized_by_its_work_alone_is_told() -> None:
    fleet = bulky("")
    fleet.run(10)
    sequence = fleet.sequence
    fleet.tick()
    own = structs.replace(fleet.reports[-1][0], sequence=sequence + 1, slicing_off="manual_commits")
    fleet.planner.observe(own, fleet.now)
    decision = fleet.decide()
    assert decision.unsliced == {"m03": "manual_commits"}
    assert "sized for whole partitions, for not all pass them on: not pod-03 (manual_commits)" in decision.reason


def moved_to(slicing_off: str) -> set[str]:
    """Members that a plan gives something: the first owns nearly all and keeps up, the third owns nothing."""
    fleet = Fleet(structs.replace(CONFIG, min_replicas=3), even(6, 0.9 / COST), members=3)
    fleet.reported["slicing_off"] = slicing_off
    fleet.run(8)
    fleet.owners = {entry: "m01" if number < 5 else "m02" for number, entry in enumerate(fleet.partitions)}
    return {move.target for move in fleet.step().moves}


def test_a_plan_fills_who_owns_nothing_and_balances_nothing_else() -> None:
    assert moved_to("setting") == {"m02", "m03"}
    assert moved_to("") == {"m03"}
