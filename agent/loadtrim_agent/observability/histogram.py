"""A histogram that is fed whole batches of values.

``prometheus_client.Histogram.observe`` takes a lock, walks the bounds and adds to a float per call: about 1
us per record and histogram, more than handing a record out costs. Here a batch is bucketed at once: sorted,
then cut at the bounds, so its cost per value falls with the size of the batch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import inf, isfinite
from typing import NamedTuple

from prometheus_client.utils import floatToGoString

__all__ = ["BUSY_BOUNDS", "HANDOFF_BOUNDS", "LATENCY_BOUNDS", "PLAN_BOUNDS", "Histogram", "Tally", "tally"]

LATENCY_BOUNDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
)  # fmt: skip
"""Seconds from a record's timestamp until it is done; the objective W is added to them."""
BUSY_BOUNDS = (1e-5, 1e-4, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0)
"""Busy seconds of one record."""
HANDOFF_BOUNDS = (0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.1, 0.25, 1.0, 5.0, 20.0)
"""Seconds of one side of a handoff; up to the default drain time."""
PLAN_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)
"""Seconds that making one decision takes."""

_SORTED_FROM = 16
"""Batches from this size on are cheaper to sort and cut than to look up value by value (measured: 12 to
16).
"""


class Tally(NamedTuple):
    """A batch, bucketed."""

    counts: dict[int, int]
    """Values per bucket that got some, not cumulative; bucket ``len(bounds)`` is above all bounds."""
    total: float
    """Sum of the values."""


def tally(bounds: Sequence[float], values: Sequence[float]) -> Tally:
    """Bucket a batch of values; a value equal to a bound belongs to that bound's bucket.

    Values below 0 (a producer's clock that is ahead) count as 0, because the sum of a Prometheus histogram
    must never fall. Values that are no finite numbers are left out: one of them would spoil the sum for ever.

    Args:
        bounds: Upper bounds, ascending, finite.
        values: Seconds, in any order.

    Cost: 0.04 us per value in batches of 64 and more, 0.13 us in small ones.
    """
    total = float(sum(values))
    if not isfinite(total):
        values = [value for value in values if isfinite(value)]
        total = float(sum(values))
    counts: dict[int, int] = {}
    if not values:
        return Tally(counts, 0.0)
    least = min(values)
    if least < 0.0:
        values = [max(0.0, value) for value in values]
        total, least = float(sum(values)), 0.0
    first = bisect_left(bounds, least)
    if first == len(bounds) or max(values) <= bounds[first]:
        return Tally({first: len(values)}, total)
    if len(values) < _SORTED_FROM:
        for value in values:
            index = bisect_left(bounds, value)
            counts[index] = counts.get(index, 0) + 1
        return Tally(counts, total)
    ordered = sorted(values)
    below = 0
    for index in range(first, len(bounds)):
        end = bisect_right(ordered, bounds[index], below)
        if end > below:
            counts[index] = end - below
            below = end
        if below == len(ordered):
            return Tally(counts, total)
    counts[len(bounds)] = len(ordered) - below
    return Tally(counts, total)


class Histogram:
    """Counts per bucket and the sum of all values. Not thread-safe: its owner holds the lock.

    Args:
        bounds: Upper bounds in any order; doubles are dropped.
    """

    __slots__ = ("bounds", "counts", "labels", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds: tuple[float, ...] = tuple(sorted(set(bounds)))
        self.labels = _labels(self.bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, batch: Tally) -> None:
        """Add a batch that was bucketed with this histogram's ``bounds``. About 1 us."""
        for index, more in batch.counts.items():
            self.counts[index] += more
        self.total += batch.total

    def add_bound(self, bound: float) -> None:
        """Count exactly up to one more bound from now on.

        What was counted before in the bucket that it cuts is taken to be above it: never flattering.
        """
        if bound in self.bounds:
            return
        index = bisect_left(self.bounds, bound)
        self.bounds = (*self.bounds[:index], bound, *self.bounds[index:])
        self.labels = _labels(self.bounds)
        self.counts = [*self.counts[:index], 0, *self.counts[index:]]

    def copy(self) -> Histogram:
        """An independent copy."""
        twin = Histogram.__new__(Histogram)
        twin.bounds, twin.labels = self.bounds, self.labels
        twin.counts, twin.total = list(self.counts), self.total
        return twin

    def buckets(self) -> list[tuple[str, float]]:
        """``(le, cumulative count)`` in ascending order, ``+Inf`` included: what Prometheus wants."""
        return list(zip(self.labels, accumulate(self.counts), strict=True))


def _labels(bounds: Sequence[float]) -> tuple[str, ...]:
    return tuple(str(floatToGoString(bound)) for bound in (*bounds, inf))  # type: ignore[no-untyped-call]
