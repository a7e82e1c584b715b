"""What policies and packers are given of a group."""

from __future__ import annotations

import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.inputs import DecisionInput, most_replicas
from loadtrim_agent.planning.values import GroupState, MemberState, PlanConfig
from unit.planning.test_estimate import CONFIG, made, ran
from unit.planning.virtual_group import Fleet, even


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


def unsplittable(fleet: Fleet, times: float = 1.0) -> list[bool]:
    """Return whether each partition is too large for one member, where so many times what came lately comes."""
    estimate = made(ran(fleet))
    level = times * sum(entry.work for entry in estimate.partitions.values())
    return [item.unsplittable for item in DecisionInput.of(estimate, fleet.state(), CONFIG, level).items]


def test_a_partition_that_one_member_cannot_do_is_unsplittable() -> None:
    assert unsplittable(Fleet(CONFIG, lambda second: [300.0, 20.0, 20.0], members=3)) == [True, False, False]
    assert unsplittable(Fleet(CONFIG, even(3, 30.0))) == [False] * 3


def test_bursts_make_a_partition_unsplittable_that_the_rate_would_not() -> None:
    """0.75 busy seconds at once are too much for W = 0.5 s, though 0.75 busy seconds/s are not."""
    assert unsplittable(Fleet(CONFIG, lambda second: [150.0, 10.0], bursts=True)) == [True, False]
    assert unsplittable(Fleet(CONFIG, lambda second: [150.0, 10.0])) == [False, False]


def test_a_partition_is_too_large_by_the_load_that_is_sized_for() -> None:
    """What it got in the last two seconds, of few records, is by chance several times what it gets."""
    assert unsplittable(Fleet(CONFIG, lambda second: [150.0, 10.0], bursts=True), 0.5) == [False, False]
    assert unsplittable(Fleet(CONFIG, lambda second: [190.0, 10.0])) == [False, False]
    assert unsplittable(Fleet(CONFIG, lambda second: [190.0, 10.0]), 1.2) == [True, False]
