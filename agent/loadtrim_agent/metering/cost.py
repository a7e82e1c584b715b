"""Busy seconds: what a record costs (mean and variance, recent records first), and how busy the member is.

Measured per record, never as 1 / throughput, so it is right for members that are never saturated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

__all__ = [
    "ALONE",
    "BUSY_SECONDS",
    "HALF_LIFE_SECONDS",
    "MEMORY_RECORDS",
    "PRIOR_RECORDS",
    "TOPICS_MAX",
    "BusyRing",
    "Cost",
    "CostEstimate",
    "Together",
    "TopicCosts",
]

HALF_LIFE_SECONDS = 30.0
"""A record counts half as much after this time ..."""
MEMORY_RECORDS = 100.0
"""... but the past together never less than this many records (all of it, where there were fewer), so that a partition
with one record an hour is not judged by that record alone."""
MEAN_ERROR = 0.2
"""Where a few records cost far more than the others, more are remembered: the standard error of their mean is to be
this share of it. Chosen: as rates are known to a fifth."""
LONGEST_HALF_LIFE_SECONDS = 300.0
"""The half-life is no longer than this for it. Chosen."""
PRIOR_RECORDS = 10.0
"""A partition's own records are blended with this many of its topic's, because the first ones are often cold starts."""
TOPICS_MAX = 256
"""Topics whose cost is remembered though nothing of them is owned."""
BUSY_SECONDS = 10
"""Utilization is told over this time."""


class Cost(NamedTuple):
    """Busy seconds per record."""

    mean: float
    variance: float


class Together(NamedTuple):
    """Records that user code works on at once count here once for each other one of their batch.

    What a batch takes longer is shared out among its n records, and all of them take longer by the same. The square of
    a sum has n * n such terms where it has n of records that vary by themselves.
    """

    pairs: float
    seconds: float
    """Sum of their busy seconds."""
    squares: float
    """Sum of the squares of these."""

    def add(self, other: Together, kept: float = 1.0) -> Together:
        """Return this, of which so much is kept, and the other."""
        if self is ALONE:
            return other
        return Together(
            kept * self.pairs + other.pairs, kept * self.seconds + other.seconds, kept * self.squares + other.squares
        )

    def revise(self, factor: float) -> Together:
        """Return what they are where each record costs so many times as much."""
        if self is ALONE:
            return self
        return Together(self.pairs, self.seconds * factor, self.squares * factor * factor)

    def deviations(self, mean: float) -> float:
        """Return the sum of squared deviations from a mean, >= 0."""
        return max(0.0, self.squares - 2.0 * mean * self.seconds + mean * mean * self.pairs)


ALONE = Together(0.0, 0.0, 0.0)


class CostEstimate:
    """Weighted mean and variance of busy seconds. O(1) per batch; independent of how the records are cut into batches.

    Batches of one second are summed up and then folded into the estimate. The variance is that of the sum of many
    records, per record: those that are worked on at once vary together (:class:`Together`).

    Source: Chan, Golub & LeVeque (1983), pairwise update of mean and squared deviations, with weights that fade.
    """

    __slots__ = (
        "_blended",
        "_count",
        "_folded",
        "_folded_at",
        "_folded_together",
        "_known",
        "_prior",
        "_second",
        "_squares",
        "_together",
        "_total",
    )

    def __init__(self) -> None:
        self._folded = (0.0, 0.0, 0.0)
        """Weight, mean, sum of squared deviations: up to the second that is being filled."""
        self._folded_at = 0
        self._folded_together = self._together = ALONE
        self._second = 0
        self._count = 0
        self._total = 0.0
        self._squares = 0.0
        self._known: tuple[float, Cost | None] | None = (0.0, None)
        """Weight and value; None after a batch, until somebody asks."""
        self._prior: Cost | None = None
        """What was blended last, while nothing was added since: asked several times per report."""
        self._blended: Cost | None = None

    def add(self, now: float, count: int, total: float, total_of_squares: float, together: Together = ALONE) -> None:
        """Take in a batch of ``count`` >= 1 records: the sum of their busy seconds, and of the squares of those."""
        second = int(now)
        if second > self._second:
            if self._count:
                self._folded, self._folded_together = self._merged()
                self._folded_at = self._second
                self._count, self._total, self._squares, self._together = 0, 0.0, 0.0, ALONE
            self._second = second
        self._count += count
        self._total += total
        self._squares += total_of_squares
        self._together = self._together.add(together)
        self._known = self._prior = None

    def revise(self, factor: float) -> None:
        """Take what all records so far cost times ``factor``: it was charged with less knowledge."""
        weight, mean, squares = self._folded
        self._folded = weight, mean * factor, squares * factor * factor
        self._total *= factor
        self._squares *= factor * factor
        self._together, self._folded_together = self._together.revise(factor), self._folded_together.revise(factor)
        self._known = self._prior = None

    def _merged(self) -> tuple[tuple[float, float, float], Together]:
        weight, mean, squares = self._folded
        if not self._count:
            return self._folded, self._folded_together
        share = 1.0
        if weight > 0.0:
            seconds = self._second - self._folded_at
            kept = max(
                weight * 0.5 ** (seconds / HALF_LIFE_SECONDS),
                min(weight, MEMORY_RECORDS),
                min(weight * 0.5 ** (seconds / LONGEST_HALF_LIFE_SECONDS), self._telling()),
            )
            share = kept / weight
            squares *= share
            weight = kept
        new = self._total / self._count
        within = max(0.0, self._squares - self._total * new)
        both = weight + self._count
        difference = new - mean
        merged = (
            both,
            mean + difference * self._count / both,
            squares + within + difference * difference * weight * self._count / both,
        )
        return merged, self._folded_together.add(self._together, share)

    def _telling(self) -> float:
        """Return how many records like those that are folded tell their mean to :data:`MEAN_ERROR`."""
        weight, mean, squares = self._folded
        squares += self._folded_together.deviations(mean)
        allowed = weight * (MEAN_ERROR * mean) ** 2
        return squares / allowed if allowed > 0.0 else 0.0

    def _now(self) -> tuple[float, Cost | None]:
        known = self._known
        if known is None:
            (weight, mean, squares), together = self._merged()
            squares += together.deviations(mean)
            self._known = known = weight, Cost(mean, squares / weight) if weight > 0.0 else None
        return known

    @property
    def weight(self) -> float:
        """Records that the estimate rests on, faded ones in part. 0: nothing known."""
        return self._now()[0]

    def value(self) -> Cost | None:
        """What is known by now; None before the first record. The same object while nothing is added."""
        return self._now()[1]

    def blended(self, prior: Cost | None) -> Cost | None:
        """The estimate with ``prior`` counted as :data:`PRIOR_RECORDS` records; the prior while nothing is known.

        Source: the mean of a normal with a conjugate prior of that weight; the variances are averaged, without the
        term for the distance of the means, so that a partition that differs from its topic does not look noisy.
        """
        if prior is self._prior and prior is not None:
            return self._blended
        weight, own = self._now()
        if own is None or prior is None:
            return own if prior is None else prior
        share = weight / (weight + PRIOR_RECORDS)
        rest = 1 - share
        self._prior = prior
        self._blended = Cost(own[0] * share + prior[0] * rest, own[1] * share + prior[1] * rest)
        return self._blended


class TopicCosts:
    """Costs by topic, for partitions and topics that have none of their own yet."""

    def __init__(self) -> None:
        self._topics: dict[str, CostEstimate] = {}
        self.provisional = False
        """Nothing is known of them yet, though some records are done."""
        self.batch_seconds = 0.0
        """A batch takes so long however few its records are."""

    def add(
        self, topic: str, now: float, count: int, total: float, total_of_squares: float, together: Together = ALONE
    ) -> None:
        """Take in a batch; see :meth:`CostEstimate.add`."""
        estimate = self._topics.get(topic)
        if estimate is None:
            estimate = self._topics[topic] = CostEstimate()
        estimate.add(now, count, total, total_of_squares, together)

    def revise(self, factor: float, partitions: Iterable[CostEstimate]) -> None:
        """Take what all records so far cost, of topics and of partitions, times ``factor``."""
        for estimate in (*self._topics.values(), *partitions):
            estimate.revise(factor)

    def of(self, topic: str) -> Cost | None:
        """Of a topic; None before its first record."""
        estimate = self._topics.get(topic)
        return None if estimate is None else estimate.value()

    def blended(self, own: CostEstimate, prior: Cost | None) -> Cost | None:
        """Return a partition's own estimate with a prior; see :meth:`CostEstimate.blended`. None while provisional."""
        return None if self.provisional else own.blended(prior)

    def roughly(self, topic: str) -> Cost | None:
        """Of a topic; of all the member's records while it has none: a rough figure where one is better than none."""
        if self.provisional:
            return None
        own = self.of(topic)
        return own if own is not None else self._of_all()

    def mean_seconds(self) -> float:
        """The mean over all the member's records; 0 before the first."""
        cost = self._of_all()
        return 0.0 if cost is None else cost.mean

    def _of_all(self) -> Cost | None:
        """Return the cost of all the member's records; None before the first."""
        known = [(estimate.weight, cost) for estimate in self._topics.values() if (cost := estimate.value())]
        weight = sum(weight for weight, _ in known)
        if weight <= 0.0:
            return None
        return Cost(
            sum(weight * cost.mean for weight, cost in known) / weight,
            sum(weight * cost.variance for weight, cost in known) / weight,
        )

    def dearest_seconds(self) -> float:
        """The largest mean of all topics; 0 before the first record."""
        return max((cost.mean for estimate in self._topics.values() if (cost := estimate.value())), default=0.0)

    def forget(self, owned: set[str]) -> None:
        """Beyond :data:`TOPICS_MAX` topics those of which nothing is owned are dropped."""
        if len(self._topics) > TOPICS_MAX:
            self._topics = {topic: estimate for topic, estimate in self._topics.items() if topic in owned}


class BusyRing:
    """Busy seconds since the start, and of the last :data:`BUSY_SECONDS` by whole seconds. Times: own clock."""

    def __init__(self, concurrency: float) -> None:
        self.total = 0.0
        """Of what is done."""
        self.capacity = concurrency
        """Busy seconds per second that can be given."""
        self._open = False
        self._accrued = 0.0
        self._buckets = [0.0] * BUSY_SECONDS
        self._second: int | None = None
        self._since = 0.0
        self.longest_seconds = 0.0
        """The longest stretch of work lately that was told as done at once, over the concurrency."""
        self._stretch = 0.0
        self._told_at = -math.inf

    def _roll(self, now: float) -> int:
        """Empty the buckets of seconds that have begun since; the present second."""
        second = int(now)
        if self._second is None:
            self._second, self._since = second, now
        elif second < self._second - 1:
            # The clock was set back: what there is counts as done lately.
            self._second, self._since = second, min(self._since, now - BUSY_SECONDS)
        for begun in range(max(self._second + 1, second - BUSY_SECONDS + 1), second + 1):
            self._buckets[begun % BUSY_SECONDS] = 0.0
        self._second = max(self._second, second)
        return self._second

    def add(self, now: float, busy: float) -> None:
        """Work that ended now; what cannot have been done in this second was done in those before."""
        self.total += busy
        if now != self._told_at:  # lower, where the clock was set back
            self.longest_seconds *= 0.5 ** (max(0.0, now - self._told_at) / HALF_LIFE_SECONDS)
            self._stretch, self._told_at = 0.0, now
        self._stretch += busy / self.capacity
        self.longest_seconds = max(self.longest_seconds, self._stretch)
        if not self._open:
            self._accrue(now, self.total)

    def working(self, now: float, open_seconds: float) -> None:
        """Work goes on now that has taken so long up to now: it counts while it is done, not when it is."""
        self._open = True
        self._accrue(now, self.total + open_seconds)

    @property
    def accrued(self) -> float:
        """Return the busy seconds since the start, those of what is in hand included."""
        return self._accrued

    def _accrue(self, now: float, total: float) -> None:
        second = self._roll(now)
        busy, self._accrued = max(0.0, total - self._accrued), max(self._accrued, total)
        for back in range(BUSY_SECONDS):
            index = (second - back) % BUSY_SECONDS
            taken = min(max(0.0, self.capacity - self._buckets[index]), busy)
            self._buckets[index] += taken
            busy -= taken
            if busy <= 0.0:
                return

    def share(self, now: float) -> float:
        """Busy share of the concurrency, 0 .. 1."""
        self._roll(now)
        seconds = min(BUSY_SECONDS - 1 + now - int(now), now - self._since)
        return min(1.0, sum(self._buckets) / (max(seconds, 1.0) * self.capacity))
