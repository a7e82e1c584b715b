"""Giving away what nobody claims: complete, allowed, even, and the same whatever the order of its input."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtrim_agent.common.assignors.spread import spread
from loadtrim_agent.common.partition import Partition

P = [Partition("t", number) for number in range(12)]
BOTH = frozenset({"t", "u"})


def test_equal_partitions_are_spread_by_count() -> None:
    members = {"b": frozenset({"t"}), "a": frozenset({"t"})}
    assert spread(P[:5], members, {}) == {P[0]: "a", P[1]: "b", P[2]: "a", P[3]: "b", P[4]: "a"}


def test_what_members_keep_counts() -> None:
    members = {"a": frozenset({"t"}), "b": frozenset({"t"})}
    owned = {P[0]: "a", P[1]: "a", P[2]: "gone"}
    assert spread(P[3:6], members, owned) == {P[3]: "b", P[4]: "b", P[5]: "a"}


def test_the_heaviest_go_first_and_alone() -> None:
    members = {"a": frozenset({"t"}), "b": frozenset({"t"})}
    weights = {P[0]: 1.0, P[1]: 1.0, P[2]: 1.0, P[3]: 3.0}
    assert spread(P[:4], members, {}, weights) == {P[0]: "b", P[1]: "b", P[2]: "b", P[3]: "a"}


def test_partitions_that_few_may_own_come_first() -> None:
    """The one member of ``u`` is kept free of ``t`` although ``t`` is the heavier."""
    members = {"a": frozenset({"t"}), "b": BOTH}
    u = Partition("u", 0)
    assert spread([P[0], u], members, {}, {P[0]: 2.0, u: 1.0}) == {P[0]: "a", u: "b"}


def test_what_nobody_subscribes_stays_without_an_owner() -> None:
    lonely = Partition("lonely", 0)
    assert spread([lonely, P[0]], {"a": frozenset({"t"})}, {}) == {P[0]: "a"}
    assert spread([P[0]], {}, {}) == {}


def test_a_load_that_another_topic_put_there_is_seen() -> None:
    """Members of several topics are in several queues; each must see what the others gave."""
    members = {"a": BOTH, "b": BOTH, "c": frozenset({"u"})}
    unclaimed = [Partition("t", 0), Partition("t", 1), Partition("u", 0), Partition("u", 1)]
    weights = dict.fromkeys(unclaimed, 1.0) | {Partition("u", 0): 3.0}
    assert spread(unclaimed, members, {}, weights) == {
        Partition("t", 0): "a",
        Partition("t", 1): "b",
        Partition("u", 0): "c",
        Partition("u", 1): "a",
    }


@pytest.mark.slow
@given(
    weights=st.lists(st.integers(0, 9), min_size=1, max_size=7),
    count=st.integers(1, 3),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=80, deadline=None)
def test_within_four_thirds_of_the_best_possible(weights: list[int], count: int, order: object) -> None:
    """Graham's bound, against all placements tried out; and the order of the input changes nothing."""
    partitions = P[: len(weights)]
    by_partition = {partition: float(weight) for partition, weight in zip(partitions, weights, strict=True)}
    members = {f"m{number}": frozenset({"t"}) for number in range(count)}
    result = spread(partitions, members, {}, by_partition)
    assert result.keys() == set(partitions)

    def largest(placed: tuple[int, ...]) -> float:
        loads = [0.0] * count
        for weight, index in zip(weights, placed, strict=True):
            loads[index] += weight
        return max(loads)

    best = min(largest(placed) for placed in product(range(count), repeat=len(weights)))
    got = largest(tuple(int(result[partition][1:]) for partition in partitions))
    assert got <= best * (4 / 3 - 1 / (3 * count)) + 1e-9
    mixed = list(partitions)
    order.shuffle(mixed)  # type: ignore[attr-defined]
    assert list(spread(mixed, dict(reversed(members.items())), {}, by_partition).items()) == list(result.items())
