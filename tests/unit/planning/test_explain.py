"""Decisions and late records in words."""

from __future__ import annotations

import pytest
from msgspec import structs
from msgspec.structs import replace

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.explain import attribute, explain, format_list
from loadtrim_agent.planning.values import GroupState, MemberState, Moving, Placement, PlanConfig, Reason, Sizing
from loadtrim_agent.wire.ownership_records import MovePlan
from unit.planning.sizing.test_policy import entry, view

NOWHERE = Placement(owners={}, moves=())
ESTIMATE = view((entry(0, 10.0),), 1).estimate
CONFIG = PlanConfig(group="g")


def group(*members: str) -> GroupState:
    return GroupState(
        generation=1, leader="a", members={name: MemberState(instance=f"pod-{name}") for name in members}, owners={}
    )


def sizing(replicas: int, text: str = "so much arrives") -> Sizing:
    return Sizing(replicas=replicas, reason=Reason.FITS, text=text)


def move(number: int, reason: str) -> MovePlan:
    return MovePlan(topic="t", partition=number, source="a", target="b", reason=reason)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c"], "a, b and c"),
        (["a", "b", "c", "d"], "a, b, c and 1 other"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 others"),
    ],
)
def test_names_in_a_sentence(names: list[str], words: str) -> None:
    assert format_list(names) == words


def test_nothing_to_do() -> None:
    assert explain(sizing(1), NOWHERE, (), group("a"), CONFIG) == "1 replica: so much arrives."


def test_moves_and_victims() -> None:
    going = replace(NOWHERE, victims=("b",))
    text = explain(sizing(1), going, (move(0, "its owner goes"), move(1, "its owner goes")), group("a", "b"), CONFIG)
    assert text == "1 replica (2 there): so much arrives; pod-b to go; 2 partitions to move (its owner goes)."
    one = explain(sizing(2), NOWHERE, (move(0, ""),), group("a", "b"), CONFIG)
    assert one == "2 replicas: so much arrives; 1 partition to move."
    mixed = explain(sizing(2), NOWHERE, (move(0, "x"), move(1, "y")), group("a", "b"), CONFIG)
    assert "(" not in mixed


def test_who_is_not_scaled_is_told() -> None:
    assert "shadow" in explain(sizing(3), NOWHERE, (), group("a"), structs.replace(CONFIG, mode="shadow"))
    assert "advice" in explain(sizing(3), NOWHERE, (), group("a"), structs.replace(CONFIG, can_scale=False))
    assert "advice" not in explain(sizing(1), NOWHERE, (), group("a"), structs.replace(CONFIG, can_scale=False))


def test_how_few_could_do_is_said_where_it_adds_something() -> None:
    three, members = replace(NOWHERE, opened=4, bound=3), ("a", "b", "c", "d")
    said = "no fewer than 3 could do"
    assert explain(sizing(3), three, (), group("a", "b", "c"), CONFIG) == f"3 replicas: so much arrives; {said}."
    assert said in explain(sizing(4), three, (), group(*members), CONFIG)
    assert said in explain(replace(sizing(2), reason=Reason.AT_MAX), three, (), group("a", "b"), CONFIG)
    assert said not in explain(sizing(2), three, (), group("a", "b"), CONFIG), "a group left as it is, a little fuller"
    assert said not in explain(replace(sizing(4), reason=Reason.STABILIZING), three, (), group(*members), CONFIG)
    assert said not in explain(
        sizing(3), three, (), group("a", "b", "c"), CONFIG, moving=Moving(in_hand_seconds=0.0, slicing=True)
    )
    one = replace(NOWHERE, opened=1, bound=1)
    assert "fewer" not in explain(sizing(1), one, (), group("a"), CONFIG)


def test_how_few_could_do_counts_replicas_where_instances_have_several_members() -> None:
    pairs = replace(group("a"), members={name: MemberState(instance=f"pod-{name[0]}") for name in ("a1", "a2", "b1")})
    assert "no fewer than 2 could do" in explain(sizing(2), replace(NOWHERE, opened=3, bound=3), (), pairs, CONFIG)


def test_late_records_by_cause() -> None:
    seen = replace(ESTIMATE, late_records={"queued": 5, "blocked": 2, "handoff": 1})
    assert attribute(seen, NOWHERE, 2, 3) == {"startup": 5, "blocked": 2, "handoff": 1}
    assert attribute(seen, NOWHERE, 2, 3, asks=False) == {"unasked": 5, "blocked": 2, "handoff": 1}
    misfits = replace(NOWHERE, owners={Partition("t", 0): "a"}, misfits=("a",))
    assert attribute(seen, misfits, 2, 2)["placement"] == 5
    assert attribute(seen, NOWHERE, 2, 2)["forecast"] == 5
    both = replace(ESTIMATE, late_records={"queued": 5, "startup": 2})
    assert attribute(both, NOWHERE, 2, 3) == {"startup": 7}
