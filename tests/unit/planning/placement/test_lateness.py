"""What is worked out by columns and bounds is what a plain loop over members and items makes of it."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from itertools import accumulate
from math import ceil
from random import Random

import pytest
from msgspec import structs

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.placement.bounds import l2_bound
from loadtrim_agent.planning.placement.columns import Columns
from loadtrim_agent.planning.placement.lateness import Load, LongestFirst
from loadtrim_agent.planning.placement.problem import Item, Limits
from loadtrim_agent.planning.values import TAUS_SECONDS


def drawn(rng: Random, count: int) -> list[Item]:
    """Uneven items, some in bursts, some with a backlog, a few too large for one member."""
    items = []
    for index in range(count):
        work = rng.paretovariate(1.5) * 0.03
        burst = rng.choice((0.0, 0.0, rng.uniform(0.0, 0.5)))
        items.append(
            Item(
                partition=Partition("t", index),
                owner=None,
                work=work,
                mean=tuple(work * (tau + burst) for tau in TAUS_SECONDS),
                stddev=tuple(work * (0.1 * tau) ** 0.5 for tau in TAUS_SECONDS),
                persistent_backlog=rng.choice((0.0, 0.0, rng.uniform(0.0, 0.2))),
                unsplittable=work > 0.9,
            )
        )
    return items


def limits_drawn(rng: Random) -> Limits:
    return Limits(
        objective_seconds=rng.choice((0.2, 1.0, 5.0)),
        overhead_seconds=0.01,
        correlation=rng.random(),
        load_factor=rng.uniform(0.7, 1.4),
        dispersion=rng.choice((0.0, 0.01)),
        dispersion_apart=rng.choice((0.0, 0.01, 0.1)),
    )


def plainly_late(items: list[Item], limits: Limits, capacities: list[float]) -> float:
    """Deal items out and look at every member, and at every item alone."""
    windows = [(index, limits.windows[index]) for index in limits.kept]
    factor = limits.load_factor
    sizes = {
        item.partition: max(
            [item.work * factor, *((item.persistent_backlog + item.mean[i] * factor) / window for i, window in windows)]
        )
        for item in items
    }
    dealt: list[list[Item]] = [[] for _ in capacities]
    queue = [(0.0, index) for index in range(len(capacities))]
    for item in sorted(items, key=lambda item: (-sizes[item.partition], item.partition)):
        filled, index = heapq.heappop(queue)
        dealt[index].append(item)
        heapq.heappush(queue, (filled + sizes[item.partition] / capacities[index], index))
    late = 0.0
    for mine, capacity in zip(dealt, capacities, strict=True):
        alone = sum(Load(limits, [item]).late(capacity) for item in mine)
        late += max(0.0, Load(limits, mine).late(capacity) - alone)
    together = Load(limits, [item for item in items if not item.unsplittable])
    return max(0.0, late - together.late(sum(capacities)))


@pytest.mark.parametrize("seed", range(60))
def test_dealt_out_as_much_is_late_as_member_by_member(seed: int) -> None:
    rng = Random(seed)
    items, limits = drawn(rng, rng.randint(1, 60)), limits_drawn(rng)
    dealing = LongestFirst(items, limits)
    capacities = [rng.choice((1.0, 1.0, 0.5)) for _ in range(rng.randint(1, 12))]
    expected = plainly_late(items, Columns(items).asks(limits).binding(), capacities)
    assert dealing.late(capacities) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_what_is_drawn_is_late_at_times_and_at_times_not() -> None:
    """Else the comparison above would look at zeros only."""
    found = []
    for seed in range(60):
        rng = Random(seed)
        items, limits = drawn(rng, rng.randint(1, 60)), limits_drawn(rng)
        found.append(plainly_late(items, limits, [1.0] * rng.randint(1, 12)) > 0.0)
    assert 10 < sum(found) < 50


@pytest.mark.parametrize("seed", range(30))
def test_windows_that_bind_are_those_that_a_look_at_every_item_leaves(seed: int) -> None:
    """A sample of the items may only end the search for a window sooner."""
    rng = Random(seed)
    items, limits = drawn(rng, 200), limits_drawn(rng)
    if seed % 2:
        items = [structs.replace(item, mean=tuple(item.work * tau for tau in TAUS_SECONDS)) for item in items]
        items[rng.randrange(200)] = drawn(rng, 1)[0]  # what one item alone asks for counts
    kept = list(range(len(TAUS_SECONDS)))

    def asks(item: Item, index: int) -> tuple[float, float]:
        mean = item.persistent_backlog + item.mean[index] * limits.load_factor
        return mean / limits.windows[index], item.stddev[index] / limits.windows[index]

    for index in range(len(TAUS_SECONDS)):
        for other in kept:
            pairs = [(asks(item, index), asks(item, other)) for item in items]
            if other != index and all(low[0] <= high[0] and low[1] <= high[1] for low, high in pairs):
                kept.remove(index)
                break
    assert Columns(items).asks(limits).binding().kept == tuple(kept)


def every_k(sizes: list[float], capacity: float) -> int:
    """Return the bound L2 by a look at every item's size."""
    capacity *= 1.0 + 1e-9
    ascending = sorted(sizes)
    sums = [0.0, *accumulate(ascending)]
    first_large, count = bisect_right(ascending, capacity / 2.0), len(ascending)
    best = ceil(sums[-1] / capacity)
    for k in {0.0, *ascending[:first_large], *(capacity - size for size in ascending[first_large:])}:
        alone, counted = bisect_right(ascending, capacity - k), bisect_left(ascending, k, 0, first_large)
        room = (alone - first_large) * capacity - (sums[alone] - sums[first_large])
        over = sums[first_large] - sums[counted] - room
        best = max(best, count - first_large + (ceil(over / capacity) if over > 0.0 else 0))
    return best


@pytest.mark.parametrize("seed", range(60))
def test_the_bound_needs_no_look_at_every_size(seed: int) -> None:
    rng = Random(seed)
    draw = (
        lambda: rng.uniform(0.0, 1.0),
        lambda: rng.choice((0.2, 0.3, 0.5, 0.7, 0.8)),
        lambda: rng.randint(1, 20) / 20,
    )
    sizes = [draw[seed % 3]() for _ in range(rng.randint(1, 80))]
    assert l2_bound(sizes, 1.0) == every_k(sizes, 1.0)
