"""What policies and packers are given of a group."""

from __future__ import annotations

import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.inputs import most_replicas
from loadtrim_agent.planning.values import GroupState, MemberState, PlanConfig


@pytest.mark.parametrize(
    ("partitions", "members", "most", "expected"),
    [
        (6, ["a"], None, 6),
        (6, ["a"], 4, 4),
        (6, ["a"], 60, 6),
        (0, ["a"], None, 1),
        (6, ["a", "a", "b", "b"], None, 3),
        (6, ["a", "a", "b", "b"], 2, 2),
        (6, [], 9, 6),
    ],
)
def test_no_more_replicas_are_asked_for_than_are_allowed_and_could_own_something(
    partitions: int, members: list[str], most: int | None, expected: int
) -> None:
    group = GroupState(
        generation=1,
        leader="m0",
        members={f"m{number}": MemberState(instance=instance) for number, instance in enumerate(members)},
        owners={Partition("orders", number): None for number in range(partitions)},
    )
    assert most_replicas(group, PlanConfig(group="g", max_replicas=most)) == expected
