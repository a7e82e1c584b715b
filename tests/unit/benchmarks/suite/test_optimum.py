"""The proven optimum against trying all placements."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from benchmarks.suite.optimum import NoPlacementError, NotProvenError, fewest_bins
from msgspec import structs
from msgspec.structs import replace

from loadtrim_agent.planning.placement.problem import Problem
from unit.planning.placement.packing import packing


def tried_out(given: Problem) -> int:
    """The fewest bins of all placements that fit."""
    best = len(given.bins) + 1
    for placed in product(range(len(given.bins)), repeat=len(given.items)):
        loads = [0.0] * len(given.bins)
        for item, index in zip(given.items, placed, strict=True):
            loads[index] += item.work if given.bins[index].may_own(item.partition) else float("inf")
        if all(load <= entry.capacity + 1e-9 for load, entry in zip(loads, given.bins, strict=True)):
            best = min(best, len(set(placed)))
    return best


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_fewest_of_all_placements(seed: int) -> None:
    random = Random(seed)
    given = packing([random.randint(1, 9) for _ in range(6)], bins=5)
    bins = tuple(structs.replace(b, capacity=random.choice([6.0, 10.0, 14.0])) for b in given.bins)
    unlike = replace(given, bins=bins)
    for one in (given, unlike):
        exact = fewest_bins(one)
        assert exact.opened == tried_out(one)
        assert len(exact.owners) == 6


def test_bins_that_are_filled_to_the_brim_count() -> None:
    """Found by a benchmark: thirds that add up to 100.00000000000001 were kept apart: the optimum was one too many."""
    thirds = [198, 190, 174, 174, 166, 160, 140, 122, 98, 68, 66, 64, 52, 42]
    assert fewest_bins(packing([size / 3 for size in thirds], capacity=100.0)).opened == 6


@pytest.mark.parametrize("large", [1e12, 1e15, 1e300])
def test_bins_and_items_of_very_unlike_sizes(large: float) -> None:
    """The solver refuses numbers from 1e15 on and below 1e-9; as shares of a bin none is."""
    given = packing([6, 6, 6], bins=2)
    small, other = given.bins
    assert fewest_bins(replace(given, bins=(small, structs.replace(other, capacity=large)))).opened == 1
    tiny = packing([6, 6, 6 / large], bins=2)
    assert fewest_bins(tiny).opened == 2
    assert len(fewest_bins(tiny).owners) == 3


def test_only_where_a_member_may_own_it() -> None:
    given = packing([4, 4], bins=2)
    apart = replace(given, bins=(structs.replace(given.bins[0], topics=frozenset({"u"})), given.bins[1]))
    assert set(fewest_bins(apart).owners.values()) == {"c1"}


def test_what_cannot_fit_is_said() -> None:
    with pytest.raises(NoPlacementError, match=r"t-0 \(25\) fits no bin"):
        fewest_bins(packing([25, 1]))
    with pytest.raises(NoPlacementError, match="too small"):
        fewest_bins(packing([9, 9, 9], bins=2))
    assert fewest_bins(packing([])).opened == 0


def test_bursts_open_no_members() -> None:
    """The solver is not given the bound that counts the windows, or a bin would be opened that holds nothing."""
    even = packing([2, 2, 2])
    burst = replace(even, items=tuple(structs.replace(item, mean=(12.0,) * len(item.mean)) for item in even.items))
    assert fewest_bins(burst).opened == 1


def test_what_may_not_move_stays_and_what_nobody_may_own_is_said() -> None:
    given = packing([6, 4], ["c1", "c0"])
    fixed = replace(given, items=(given.items[0], structs.replace(given.items[1], movable=False)))
    assert fewest_bins(fixed).owners == {item.partition: "c0" for item in given.items}
    nobody = replace(given, bins=tuple(structs.replace(one, topics=frozenset({"u"})) for one in given.bins))
    with pytest.raises(NoPlacementError, match="fits no bin"):
        fewest_bins(nobody)


def test_what_is_not_proven_in_time_is_said() -> None:
    """A limit of no time at all: there are 40 partitions that best fit decreasing does not place in the fewest."""
    random = Random(3)
    with pytest.raises(NotProvenError, match="no optimum was proven within 1e-09 s"):
        fewest_bins(packing([random.uniform(2.0, 6.0) for _ in range(40)]), seconds=1e-9)
