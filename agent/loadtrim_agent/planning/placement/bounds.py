"""How few bins can do: lower bounds, quick enough to stand beside every plan.

Each dimension of the load (the mean rate, and what arrives in every window) is bounded apart and the largest bound
counts: any placement that fits has to fit in each of them. What varies counts with the part that adds up whatever the
partitions do together, so that a bound is never too high.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, compress

from loadtrim_agent.common.pauses import may_pause

from .problem import Problem

__all__ = ["bound_of", "fractional_bound", "l2_bound", "lower_bound"]

ROUNDING = 1e-9


def lower_bound(problem: Problem, fill: float = 1.0, dimensions: Sequence[Sequence[float]] | None = None) -> int:
    """Bins that any placement which fits has to open; 0 where nothing is to be placed.

    Args:
        problem: items and bins.
        fill: share of every bin that may be filled.
        dimensions: per dimension what each item asks for at least, in the problem's order; None: worked out here.

    An item that is larger than every bin takes one for itself, and one that no bin may have takes none. Which bin may
    own what of the others is left out of account, so it stays a bound where not every member may own everything. Items
    without load count for nothing but that one bin must hold them.

    Cost: ``O(d p log p)`` for d dimensions: 2 ms for 1,000 partitions.
    """
    capacities = sorted((entry.capacity * fill for entry in problem.bins if not entry.leaving), reverse=True)
    able = problem.ownable()
    if not capacities or not any(able):
        return 0
    asked = _dimensions(problem) if dimensions is None else dimensions
    return max(1, *(bound_of(list(compress(sizes, able)), capacities) for sizes in asked))


def bound_of(sizes: Sequence[float], capacities: Sequence[float]) -> int:
    """The better of the two bounds for these bins, which descend; items above the largest bin take one each."""
    may_pause()
    largest = capacities[0]
    alone = sum(1 for size in sizes if size > largest * (1.0 + ROUNDING))
    rest = [size for size in sizes if 0.0 < size <= largest * (1.0 + ROUNDING)]
    uniform = capacities[-1] >= largest * (1.0 - ROUNDING)
    return alone + max(l2_bound(rest, largest), 0 if uniform else fractional_bound(rest, capacities))


def fractional_bound(sizes: Sequence[float], capacities: Sequence[float]) -> int:
    """The optimum of the linear relaxation: items may be cut, the largest bins are opened first.

    More than all bins hold: one more than there are.
    """
    needed = sum(sizes) * (1.0 - ROUNDING)
    if needed <= 0.0:
        return 0
    held = list(accumulate(sorted(capacities, reverse=True)))
    return bisect_left(held, needed) + 1


def l2_bound(sizes: Sequence[float], capacity: float) -> int:
    """Martello and Toth's L2 for bins of one size; no item may be larger than the bin.

    For every k up to half a bin: items above ``capacity - k`` stand alone, each other one above half a bin has a bin
    of its own too, and what of the items from k up does not fit beside those needs more.

    Cost: ``O(n log n)``.

    Source: S. Martello, P. Toth, *Lower bounds and reduction procedures for the bin packing problem*, 1990.
    """
    capacity *= 1.0 + ROUNDING
    ascending = sorted(sizes)
    count = len(ascending)
    if not count:
        return 0
    sums = [0.0, *accumulate(ascending)]
    half = capacity / 2.0
    first_large = bisect_right(ascending, half)
    best = math.ceil(sums[-1] / capacity)
    if first_large == count:
        return best  # without a large item no k asks for more than their sum
    for k in _steps(ascending, first_large, capacity):
        alone_from = bisect_right(ascending, capacity - k)
        counted_from = bisect_left(ascending, k, 0, first_large)
        large = alone_from - first_large
        room = large * capacity - (sums[alone_from] - sums[first_large])
        over = sums[first_large] - sums[counted_from] - room
        bound = count - first_large + (math.ceil(over / capacity) if over > 0.0 else 0)
        if bound > best:
            best = bound
    return best


def _steps(ascending: Sequence[float], first_large: int, capacity: float) -> set[float]:
    """Return every k that can ask for the most.

    Only at an item's own size, and at the k where a large item begins to stand alone, does anything change. Among
    those with the same items alone the smallest k counts most items: the first one after a large item stands alone.
    """
    steps = {0.0, *ascending[: min(1, first_large)]}
    for size in ascending[first_large:]:
        begins = capacity - size
        after = bisect_right(ascending, begins, 0, first_large)
        # Two, for the difference is rounded.
        steps.update((begins, *ascending[after : min(after + 2, first_large)]))
    return steps


def _dimensions(problem: Problem) -> list[list[float]]:
    """Per dimension the capacity that each item asks for at least, whatever lies beside it."""
    limits = problem.limits
    factor = limits.load_factor
    items = problem.items
    together = limits.z * math.sqrt(limits.correlation)
    result = [[item.work * factor for item in items]]
    kept = problem.columns.asks(limits).binding().kept
    for index in kept:
        window = limits.windows[index]
        asked = [
            (item.persistent_backlog + (item.mean[index] + together * item.stddev[index]) * factor) / window
            for item in items
        ]
        if any(ask > work for ask, work in zip(asked, result[0], strict=True)):
            result.append(asked)
    return result
