"""Replicas are instances: what the orchestrator starts and ends, whatever number of consumers each of them has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from loadtrim_agent.planning.planner import scale_request
from loadtrim_agent.planning.registry import make_planner
from loadtrim_agent.planning.values import GroupState, MemberState, PlanConfig, units_of
from loadtrim_agent.wire.ownership_records import ManualOverrideRecord
from loadtrim_agent.wire.telemetry_records import DecisionRecord
from unit.planning.virtual_group import TOPIC, Fleet, T, even, partition, steps

CONFIG = PlanConfig(group="g", sla_seconds=0.5, can_scale=True)
TOPICS = frozenset({TOPIC})


def decided(**fields: object) -> DecisionRecord:
    told = {"outcome": "down", "reason": "Less.", "replicas_actual": 2, "replicas_wanted": 1, **fields}
    return DecisionRecord(group="g", member="a", at=T, generation=1, sequence=1, **told)  # type: ignore[arg-type]


def group(owners: dict[int, str | None], **instances: str | None) -> GroupState:
    """Members by name with their instances, and the owners of the partitions by number."""
    return GroupState(
        generation=1,
        leader=min(instances),
        members={name: MemberState(instance=instance, topics=TOPICS) for name, instance in instances.items()},
        owners={partition(index): owner for index, owner in owners.items()},
    )


def test_two_consumers_in_each_process_are_scaled_up_and_down() -> None:
    """A load of three members' capacity is one of two instances, and whole instances go."""
    fleet = Fleet(CONFIG, steps(8, (0, 100.0), (20, 600.0), (60, 100.0)), members=0, consumers=2)
    fleet.start()
    fleet.owners = dict.fromkeys(fleet.partitions, "m01")
    fleet.run_scaled(60)
    assert {decision.replicas_wanted for decision in fleet.history[-20:]} == {2}
    assert [len(unit.members) for unit in units_of(fleet.state())] == [2, 2]
    fleet.run_scaled(60)
    assert [len(unit.members) for unit in units_of(fleet.state())] == [2]
    assert set(fleet.owners.values()) == set(fleet.members)


def test_an_instance_goes_only_when_all_of_its_members_are_drained() -> None:
    state = group({0: "a", 1: "d"}, a="one", b="one", c="two", d="two")
    draining = scale_request(decided(victims=("c", "d")), state, CONFIG)
    assert (draining.replicas, draining.victims) == (2, ())
    drained = scale_request(decided(victims=("c", "d")), replace(state, owners={partition(0): "a"}), CONFIG)
    assert (drained.replicas, drained.victims) == (1, ("two",))
    in_part = scale_request(decided(victims=("c",)), replace(state, owners={partition(0): "a"}), CONFIG)
    assert in_part.victims == (), "one of its consumers goes on"


def test_a_member_that_has_not_told_its_instance_is_none() -> None:
    state = group({0: "a"}, a="one", b="one", c=None)
    assert [(unit.instance, unit.members) for unit in units_of(state)] == [("one", ("a", "b"))]
    assert state.unknown == ("c",)


def test_nothing_known_of_a_member_names_no_victim_and_asks_for_no_fewer() -> None:
    """It may be a consumer of the victim, or one more instance. Seen: a victim that no orchestrator knew."""
    state = group({0: "a"}, a="one", b="two", c="three", d=None)
    request = scale_request(decided(victims=("c",), replicas_wanted=2, replicas_actual=3), state, CONFIG)
    assert (request.ask, request.victims) == (False, ())
    up = structs.replace(CONFIG, max_replicas=9)
    assert not scale_request(decided(outcome="up", replicas_wanted=4), state, up).ask, "it may be the fourth"
    assert scale_request(decided(outcome="up", replicas_wanted=5), state, up).ask


def test_a_member_that_has_not_told_its_instance_is_never_a_victim() -> None:
    fleet = Fleet(CONFIG, even(4, 60.0), members=3)
    stranger = fleet.join()
    fleet.members[stranger] = replace(fleet.members[stranger], instance=None)
    fleet.run(60)
    assert all(stranger not in decision.victims for decision in fleet.history)
    last = fleet.history[-1]
    assert (last.replicas_actual, last.replicas_wanted) == (3, 1)
    assert "1 member has not told the instance yet" in last.reason


def test_a_group_of_which_no_instance_is_known_holds() -> None:
    state = group({0: "a"}, a=None, b=None)
    decision = make_planner(CONFIG).decide(T, state)
    assert (decision.outcome, decision.reason_code) == ("hold", "not_ready")
    assert "no member has told its instance yet" in decision.reason
    assert not scale_request(decision, state, CONFIG).ask


def test_a_hold_says_how_many_are_there() -> None:
    """It said "Hold at 1 replica" with two members."""
    fleet = Fleet(structs.replace(CONFIG, can_scale=False), even(4, 60.0), members=2)
    assert fleet.run(60).replicas_wanted == 1
    fleet.silent = {"m01", "m02"}
    assert fleet.run(5).reason.startswith("Hold at 1 replica (2 there): no report from ")


@pytest.mark.parametrize(
    ("asked", "forced", "bounds", "replicas", "words"),
    [
        (3, False, {}, 3, "resumed"),
        (99, False, {}, 4, "99 were asked for, and there are 4 partitions"),
        (99, False, {"max_replicas": 2}, 2, "99 were asked for, LOADTRIM_MAX_REPLICAS is 2"),
        (3, True, {"max_replicas": 2}, 3, "resumed"),
        (9, True, {}, 9, "resumed"),
        (2, False, {"min_replicas": 3}, 3, "2 were asked for, LOADTRIM_MIN_REPLICAS is 3"),
    ],
)
def test_a_number_from_the_command_line_keeps_to_the_bounds_unless_forced(
    asked: int, forced: bool, bounds: dict[str, int], replicas: int, words: str
) -> None:
    config = structs.replace(CONFIG, **bounds)
    override = ManualOverrideRecord(group="g", member="cli", at=T, action="scale", replicas=asked, forced=forced)
    state = replace(group(dict.fromkeys(range(4), "a"), a="one"), manual_override=override)
    decision = make_planner(config).decide(T, state)
    assert (decision.replicas_wanted, scale_request(decision, state, config).replicas) == (replicas, replicas)
    assert f"{words}" in decision.reason


def test_a_decision_tells_what_bounds_it() -> None:
    state = group(dict.fromkeys(range(4), "a"), a="one")
    decision = make_planner(structs.replace(CONFIG, max_replicas=2)).decide(T, state)
    assert (decision.partition_count, decision.replicas_max) == (4, 2)
    assert make_planner(CONFIG).decide(T, state).replicas_max is None


@given(
    consumers=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    unknown=st.sets(st.integers(0, 14), max_size=3),
    load=st.floats(10.0, 900.0),
)
def test_whatever_the_numbers_of_consumers(consumers: list[int], unknown: set[int], load: float) -> None:
    """Victims are whole instances that own nothing, and no fewer are asked for than are left."""
    fleet = Fleet(CONFIG, steps(6, (0, load), (6, 10.0)), members=0)
    for number, count in enumerate(consumers):
        for _ in range(count):
            fleet.join(f"i{number}")
    names = sorted(fleet.members)
    for index in unknown & set(range(len(names))):
        fleet.members[names[index]] = replace(fleet.members[names[index]], instance=None)
    fleet.owners = {entry: names[number % len(names)] for number, entry in enumerate(fleet.partitions)}
    known = {unit.instance: unit.members for unit in units_of(fleet.state())}
    for _ in range(30):
        decision = fleet.step()
        request = scale_request(decision, fleet.state(), CONFIG)
        assert decision.replicas_actual == len(known)
        assert set(request.victims) <= known.keys()
        owning = set(fleet.owners.values())
        assert all(owning.isdisjoint(known[victim]) for victim in request.victims)
        if fleet.state().unknown:
            assert not request.victims
            assert not request.ask or request.replicas > len(known)
        else:
            assert request.replicas >= len(known) - len(request.victims) or request.replicas >= decision.replicas_wanted
