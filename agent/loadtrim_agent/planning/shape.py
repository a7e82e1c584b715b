"""This goes from what a member measured of a partition's windows to its work curve.

A member measures at lengths of its own, and in whole buckets. So the edge of a bucket may cut a burst of a partition in
two; in the group's curve none does (:func:`.estimate.unit_curve`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate

from .values import TAUS_SECONDS

__all__ = ["UNCUT", "cut_of", "shape_of", "uncut"]

UNCUT = (1.0, 1.0)
"""Nothing is missing in the window of no length, nor in the shortest."""
PART_MIN = 1e-12
"""A smaller part of the work is none: what is divided by it would be no finite number. Chosen."""


def shape_of(windows: Iterable[tuple[float, float]]) -> tuple[float, ...]:
    """Return measured windows at the lengths of every curve; the window of no length extends the two shortest to 0.

    Args:
        windows: (seconds, seconds' worth of work that arrive in a window so long), of one length at least.
    """
    points = sorted(windows)
    works = [work for _, work in points]
    twice, shortest, *longer = [
        works[at] + (works[at + 1] - works[at]) * beyond / width if width else works[at] + beyond - less
        for at, beyond, width, less in _between(tuple([seconds for seconds, _ in points]))
    ]
    return (min(max(2.0 * shortest - twice, 0.0), shortest), shortest, *longer)


def cut_of(shapes: Iterable[tuple[float, Sequence[float]]], group: Sequence[float]) -> tuple[float, float]:
    """Return how many times as much the group has in the window of no length, and in the shortest, as its partitions.

    Never less than 1. What several partitions have in a window together is at most what each of them has, by its part
    of the work: :math:`\\sum_{pq} x_p K x_q \\le (\\sum_p \\sqrt{x_p K x_p})^2` (Cauchy and Schwarz). So what they have
    less was cut away by the edge of a bucket.

    Args:
        shapes: of each partition its part of the work, and its windows.
        group: windows that no edge cuts.

    Cost: O(p).
    """
    works = instant = shortest = 0.0
    for work, shape in shapes:
        works += work
        instant += work * shape[0]
        shortest += work * shape[1]
    if min(instant, shortest) <= PART_MIN * works:
        return UNCUT
    return max(1.0, works * group[0] / instant), max(1.0, works * group[1] / shortest)


def uncut(shape: Sequence[float], cut: tuple[float, float]) -> tuple[float, ...]:
    """Return a partition's windows with what the edge of a bucket cut away: none has less than a shorter one."""
    return tuple(accumulate((shape[0] * cut[0], shape[1] * cut[1], *shape[2:]), max))


@lru_cache(maxsize=16)  # members measure at the same lengths in every report
def _between(seconds: tuple[float, ...]) -> tuple[tuple[int, float, float, float], ...]:
    """Return where lengths of a curve lie between measured ones: twice the shortest, then all but that of no length.

    Of each: the measured one before it, how far it is beyond, the distance to the next one, and what to take away.
    No distance: it is no longer than the shortest measured one, or longer than the longest, beyond which work flows on.
    """
    found = []
    for tau in (2.0 * TAUS_SECONDS[1], *TAUS_SECONDS[1:]):
        right = bisect_left(seconds, tau)
        if right == 0:
            found.append((0, 0.0, 0.0, 0.0))
        elif right == len(seconds):
            found.append((right - 1, tau, 0.0, seconds[-1]))
        else:
            found.append((right - 1, tau - seconds[right - 1], seconds[right] - seconds[right - 1], 0.0))
    return tuple(found)
