"""This tells what is late with whole partitions: on one member, on all together, dealt out over any number.

This is asked for some numbers of members and some levels of the load in every decision, so sums are taken of columns
(:mod:`.columns`), and what is surely in time is not worked out.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import compress
from operator import mul

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.pauses import AT_ONCE, in_turns, may_pause

from ..queueing import share_late
from ..values import TAUS_SECONDS
from .columns import Columns
from .problem import RATE_LIMIT, Item, Limits

__all__ = ["Load", "LongestFirst", "Whole"]

SPREAD_SDS = 2.0
"""Standard deviations of what comes for one member by chance. Chosen."""
RATE_SECONDS = 20.0
"""Time over which a partition's rate is known at least (:data:`..observation.SLOW_SECONDS`)."""
UNBIASED_MAX = 0.1
"""Share of a load that its error takes from what is expected late, at most. Chosen."""
NEGLIGIBLE = 1e-6
"""A share that is late by chance and no more than this is none. Chosen."""
SCORE_NONE = 4.0
"""Number of standard deviations below a limit at which nothing is above it: less than one in 30,000 is."""
ROUNDING = 1e-9
"""Bounds keep so much away from what they bound, or their own rounding would count."""


class Load:
    """Sum up the items on one member. Mutable: packers add and take away."""

    __slots__ = ("_limits", "_sums", "count")

    def __init__(self, limits: Limits, items: Iterable[Item] = ()) -> None:
        self._limits = limits
        self._sums = [0.0] * (1 + 3 * len(limits.kept))
        """Work, and per kept window mean, standard deviation, variance, summed up."""
        self.count = 0
        for item in items:
            self.add(item)

    @property
    def work(self) -> float:
        """Return their work per second."""
        return self._sums[0]

    def add(self, item: Item, sign: int = 1, extra: float = 0.0) -> None:
        """Put an item on the member, or with ``sign=-1`` take it off; ``extra``: work that comes with it."""
        factor = self._limits.load_factor
        self.count += sign
        sums = self._sums
        sums[0] += sign * item.work * factor
        if not self._limits.dispersion_apart:
            extra += item.persistent_backlog
        at = 1
        for index in self._limits.kept:
            stddev = item.stddev[index] * factor
            sums[at] += sign * (item.mean[index] * factor + extra)
            sums[at + 1] += sign * stddev
            sums[at + 2] += sign * stddev * stddev
            at += 3

    def pressure(self, capacity: float) -> float:
        """Return the needed capacity over the capacity: above 1 it does not fit."""
        if self.count == 0:
            return 0.0
        sums, limits = self._sums, self._limits
        needed = sums[0] / RATE_LIMIT
        for at, index in zip(range(1, len(sums), 3), limits.kept, strict=True):
            needs = sums[at] + limits.z * _deviation(sums[at + 1], sums[at + 2], limits.correlation)
            needed = max(needed, needs / limits.windows[index])
        return needed / capacity

    def late(self, capacity: float) -> float:
        """Return the work per second that is to be expected late on a member of this capacity."""
        return _late(self._limits, self._sums, capacity) if self.count else 0.0


def _error(limits: Limits, work: float) -> float:
    """Return what the error of a rate makes it seem too large by, where the tail of a queue is looked at.

    A rate is known over so long, so it is off by chance as well. The mean of the tail over that error is many times
    the tail at the mean. This takes it out, for an error of the variance that makes the queue. What is more than
    two deviations above a capacity is no error.
    """
    deviation = math.sqrt(work * limits.by_chance / RATE_SECONDS)
    return min(work * min(limits.windows[0] / RATE_SECONDS, UNBIASED_MAX), SPREAD_SDS * deviation)


def _late(limits: Limits, sums: Sequence[float], capacity: float) -> float:
    """Return the work per second that is to be expected late on a member of this capacity.

    A rate above capacity makes everything late in the end; a window that holds too much makes late what exceeds:
    the mean of what is above the limit, for a normal distribution. Where the variation by chance is known, the
    queue that it makes counts beside, and for it no backlog: such a queue is what stands at a moment.

    Args:
        limits: of the windows that count.
        sums: work, and per kept window mean, standard deviation, variance.
        capacity: work per second.
    """
    each = iter(sums)
    if (asked := next(each)) <= 0:
        return 0.0
    apart, seconds = limits.by_chance, limits.windows[0]
    work = asked - _error(limits, asked) if apart else asked
    if work > RATE_LIMIT * capacity:
        return asked
    share = beside = 0.0
    for index, mean, stddev, variance in zip(limits.kept, each, each, each, strict=True):
        if mean <= 0:
            continue
        over = mean - capacity * limits.windows[index]
        # What flows evenly varies by chance, and makes a queue. What comes on top comes together.
        together = max(0.0, mean - asked * TAUS_SECONDS[index]) if apart else mean
        beside = max(beside, together) if apart else 0.0
        if over > 0.0 or together > 0.0:
            deviation = _deviation(stddev, variance, limits.correlation)
            if apart:
                deviation *= math.sqrt(together / mean)
            share = max(share, _overshoot(over, deviation) / mean)
    if apart and (chance := share_late(work, apart, capacity, seconds, beside)) > NEGLIGIBLE:
        share += (1.0 - min(share, 1.0)) * chance
    return min(share, 1.0) * asked


def _deviation(stddev: float, variance: float, correlation: float) -> float:
    """Return that of a sum, from the sums of the standard deviations and of the variances.

    Partitions vary partly together (``correlation``): between independent and equal-phased ones.
    """
    together = (1.0 - correlation) * variance + correlation * stddev * stddev
    return math.sqrt(together) if together > 0 else 0.0


def _overshoot(off: float, stddev: float) -> float:
    """Return the mean of max(0, X) for normal X with mean ``off`` and standard deviation ``stddev``."""
    if stddev <= 0:
        return max(0.0, off)
    score = off / stddev
    if score < -SCORE_NONE:
        return 0.0
    density = math.exp(-0.5 * score * score) / math.sqrt(2.0 * math.pi)
    return stddev * density + off * 0.5 * (1.0 + math.erf(score / math.sqrt(2.0)))


class Whole:
    """Put everything on one member: more than any member will ever have."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    @cached_property
    def _windows(self) -> list[tuple[float, float, float]]:
        """Return mean, standard deviation, variance of each window, summed up. O(p), once for all load factors."""
        columns = zip(self._columns.means, self._columns.deviations, strict=True)
        return [(sum(means), sum(deviations), sum(map(mul, deviations, deviations))) for means, deviations in columns]

    def in_time(self, limits: Limits, capacity: float) -> bool:
        """Return whether nothing is late with all of it on a member of this capacity: nor is it with a part. O(1).

        A part asks for no more in any window and varies no more.
        """
        factor, share = limits.load_factor, limits.correlation
        work = self._columns.total * factor
        if work > RATE_LIMIT * capacity:
            return False
        together = (mean * factor - work * tau for (mean, _, _), tau in zip(self._windows, TAUS_SECONDS, strict=False))
        beside = max([0.0, *together])
        seconds = limits.windows[0] - beside / capacity
        if limits.by_chance and share_late(work, limits.by_chance, capacity, seconds) > NEGLIGIBLE:
            return False
        standing = sum(self._columns.backlog)
        return not any(
            _overshoot(standing + mean * factor - capacity * window, _deviation(stddev, variance, share) * factor)
            for (mean, stddev, variance), window in zip(self._windows, limits.windows, strict=False)
        )


class LongestFirst:
    """Deal whole partitions out over any number of members: largest first onto the least loaded."""

    def __init__(self, items: Sequence[Item], limits: Limits, columns: Columns | None = None) -> None:
        """Cost: ``O(p log p)``, once for all numbers of members.

        Args:
            items: partitions with their load.
            limits: of each member.
            columns: of the items, where they are drawn up already.
        """
        columns = columns or Columns(items)
        self._items = items
        self._columns = columns
        asks = columns.asks(limits)
        self._limits = limits = asks.binding()
        sizes = asks.sizes(limits.kept)
        self._order = sorted(columns.by_partition, key=[-size for size in sizes].__getitem__)
        """Indices of the items: the largest first, ties by partition."""
        may_pause()
        self._sizes = [sizes[index] for index in self._order]
        summed = self._summed(columns)
        self._rows = list(map(list(zip(*summed, strict=True)).__getitem__, self._order))
        """Numbers that each one adds to the sums of its member."""
        may_pause()
        self._deviations = [max(column, default=0.0) for column in summed[2::3]]
        splittable = [not item.unsplittable for item in items]
        if not all(splittable):
            summed = [list(compress(column, splittable)) for column in summed]
        self._together = list(map(sum, summed))
        self._alone: dict[float, _Alone] = {}
        """Capacity of a member -> what would be late of each item if the member had nothing else."""

    def _summed(self, columns: Columns) -> list[list[float]]:
        limits, factor = self._limits, self._limits.load_factor
        summed = [[work * factor for work in columns.work]]
        for index in limits.kept:
            may_pause()
            varied = columns.deviations[index] if self._items else ()
            if limits.dispersion_apart or not any(columns.backlog):
                summed.append([mean * factor for mean in columns.means[index]] if self._items else [])
            else:
                asked = zip(columns.means[index], columns.backlog, strict=True)
                summed.append([mean * factor + waits for mean, waits in asked])
            summed.append([stddev * factor for stddev in varied])
            summed.append([stddev * stddev for stddev in summed[-1]])
        return summed

    def late(self, capacities: Sequence[float]) -> float:
        """How much more work per second would be late with members of these capacities than with one of them all.

        That is what whole partitions cost. What one member of the whole capacity could not do in time either is the
        sizing's affair, and what is late in a partition that has a member to itself nobody's: no number helps it.

        Cost: ``O(p log n + n)``: 1 ms for 1,000 partitions.
        """
        return self._late_of(list(zip(self._dealt(capacities), capacities, strict=True)))

    def _dealt(self, capacities: Sequence[float]) -> list[list[int]]:
        """Return the places in the order that each member gets."""
        sizes, count = self._sizes, len(capacities)
        first = 0
        while first < min(count, len(sizes)) and sizes[first] > 0.0:
            first += 1  # each of the first is alone on the next empty member
        dealt = [[place] if place < first else [] for place in range(count)]
        queue = [(sizes[place] / capacities[place] if place < first else 0.0, place) for place in range(count)]
        heapq.heapify(queue)
        replace_least = heapq.heapreplace
        for place in in_turns(range(first, len(sizes)), 4 * AT_ONCE):
            filled, index = queue[0]
            dealt[index].append(place)
            replace_least(queue, (filled + sizes[place] / capacities[index], index))
        return dealt

    def late_as(self, placed: Iterable[tuple[Sequence[Item], float]]) -> float:
        """The same for items that lie otherwise than dealt out. O(p).

        Args:
            placed: every member's items and its capacity, work per second.
        """
        places = self._places
        return self._late_of([([places[item.partition] for item in items], capacity) for items, capacity in placed])

    @cached_property
    def _places(self) -> dict[Partition, int]:
        """Return the place of each partition in the order."""
        may_pause()
        return {self._items[index].partition: place for place, index in enumerate(self._order)}

    def _late_of(self, placed: Sequence[tuple[Sequence[int], float]]) -> float:
        late = whole = 0.0
        limits, row_of = self._limits, self._rows.__getitem__
        for places, capacity in in_turns(placed):
            whole += capacity
            if not places:
                continue
            sums = list(map(sum, zip(*map(row_of, places), strict=True)))
            if (here := _late(limits, sums, capacity)) > 0.0:
                late += max(0.0, here - self._alone_on(capacity).late(places))
        late = max(0.0, late - _late(limits, self._together, whole))
        if late > 0.0 and limits.windows[0] > limits.reaction_seconds:
            return min(late, self._late_by_chance(placed))
        return late

    def _alone_on(self, capacity: float) -> _Alone:
        found = self._alone.get(capacity)
        if found is None:
            burst = self._columns.burst
            found = _Alone(self._limits, capacity, self._rows, self._sizes, self._deviations, burst)
            self._alone[capacity] = found
        return found

    def _late_by_chance(self, placed: Sequence[tuple[Sequence[int], float]]) -> float:
        """Return the same where a member can be helped before what waits on it is late: by chance.

        Either each member's queue is in time by itself, or that of all is. Infinite where more comes for a member than
        it can do: that is no chance.
        """
        limits, splittable, late = self._limits, self._columns.splittable, 0.0
        for places, capacity in placed:
            work = limits.load_factor * sum([splittable[self._order[place]] for place in places])
            variance = work * limits.dispersion_apart
            if work - capacity > SPREAD_SDS * math.sqrt(variance / RATE_SECONDS):
                return math.inf
            late += work * share_late(work, limits.dispersion_apart, capacity, limits.windows[0])
        return min(late, self._late_moved(sum(capacity for _, capacity in placed), len(placed)))

    def _late_moved(self, capacity: float, members: int) -> float:
        """Return the same where partitions follow the members that have time: of one queue, a reaction later.

        Until then what comes on one member stays there, and is more than on others by chance.
        """
        limits, work = self._limits, self._together[0]
        uneven = SPREAD_SDS * math.sqrt(work * limits.dispersion_apart * members * limits.reaction_seconds)
        seconds = limits.windows[0] - limits.reaction_seconds - uneven / capacity
        return work * share_late(work, limits.dispersion, capacity, seconds)


class _Alone:
    """Tell what would be late of each item if a member had nothing else. Of most items nothing would.

    Args:
        limits: of each member.
        capacity: of this one.
        rows: what each item adds to the sums, the largest item first.
        sizes: of the items, the largest first.
        deviations: the largest of each kept window, of any item.
        burst: the most that comes together for any item, at the present load.
    """

    def __init__(
        self,
        limits: Limits,
        capacity: float,
        rows: Sequence[Sequence[float]],
        sizes: Sequence[float],
        deviations: Sequence[float],
        burst: float,
    ) -> None:
        self._limits = limits
        self._capacity = capacity
        self._rows = rows
        self._deviations = deviations
        self._burst = burst * limits.load_factor * (1.0 + ROUNDING)
        self._late: dict[int, float] = {}
        low, high = 0, len(sizes)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._is_small(sizes[middle]) else (middle + 1, high)
        self._large = low
        """Number of items, the largest, that are worked out one by one."""

    def _is_small(self, size: float) -> bool:
        """Return whether nothing is late of any item that asks for no more than this, by its mean load."""
        limits, capacity = self._limits, self._capacity
        if size >= RATE_LIMIT * capacity * (1.0 - ROUNDING):
            return False
        for index, stddev in zip(limits.kept, self._deviations, strict=True):
            if size + SCORE_NONE * stddev / limits.windows[index] >= capacity * (1.0 - ROUNDING):
                return False
        seconds = limits.windows[0] - self._burst / capacity
        chance = share_late(size, limits.by_chance, capacity, seconds) if limits.by_chance else 0.0
        return chance * (1.0 + 1e3 * ROUNDING) <= NEGLIGIBLE

    def late(self, places: Sequence[int]) -> float:
        """Return the sum of what would be late of the items at these places."""
        return sum([self._one(place) for place in places if place < self._large])

    def _one(self, place: int) -> float:
        found = self._late.get(place)
        if found is None:
            found = self._late[place] = _late(self._limits, self._rows[place], self._capacity)
        return found
