"""A placement in the making: who has what, and what each member is asked for, kept up to date move by move.

Everything an item asks for is one row of numbers (mean work per second, then per window that can bind its mean, its
standard deviation and its variance), so that a member is the sum of its rows and trying a change costs microseconds.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.pauses import AT_ONCE, in_turns, may_pause

from .columns import Columns
from .problem import RATE_LIMIT, Bin, Item, Limits, Problem
from .result import FULL

__all__ = ["PlacementState"]

Row = tuple[float, ...]


class PlacementState:
    """Mutable. Members are those it was given, items those of the problem."""

    def __init__(self, problem: Problem, receivers: Sequence[Bin]) -> None:
        """Cost: ``O(p w)`` for w windows that bind: 3 ms for 1,000 partitions."""
        self.problem = problem
        self.bins = {entry.member: entry for entry in receivers}
        columns = problem.columns
        limits = columns.asks(problem.limits).binding()
        self._z = limits.z
        self._apart, self._together = 1.0 - limits.correlation, limits.correlation
        self._handoff = limits.handoff_seconds
        self._windows = [limits.windows[index] for index in limits.kept]
        self._columns = _rows_of(columns, limits)
        self.flat = self._is_flat(limits)
        """Only the mean rates can bind."""
        if self.flat:
            self._windows, self._columns = [], self._columns[:1]
        may_pause()
        partitions = [item.partition for item in problem.items]
        self.rows: dict[Partition, Row] = dict(zip(partitions, zip(*self._columns, strict=True), strict=True))
        may_pause()
        self.sizes: dict[Partition, float] = dict(zip(partitions, self._sizes(), strict=True))
        """Capacity that an item alone asks for, by its mean load: a scalar to sort and to pre-select by."""
        self.items: dict[str, dict[Partition, Item]] = {entry.member: {} for entry in receivers}
        self.filled = dict.fromkeys(self.bins, 0.0)
        self.owners: dict[Partition, str] = {}
        self.reasons: dict[Partition, str] = {}
        self._empty: list[float] = [0.0] * (1 + 3 * len(self._windows))
        self.sums: dict[str, list[float]] = dict.fromkeys(self.bins, self._empty)
        self._pressures: dict[str, float] = dict.fromkeys(self.bins, 0.0)
        self._ranked: list[tuple[float, int, str]] | None = None
        """Members by how full they are, once somebody asked."""
        self.tried = 0
        """Changes that were looked at: what searches measure their effort by."""

    def _is_flat(self, limits: Limits) -> bool:
        """Does no item ask for more in any window than by its rate? Then nor does any sum of them."""
        work, z = self._columns[0], self._z
        burden = self._handoff / limits.load_factor if limits.load_factor > 0 else 0.0
        for at, window in enumerate(self._windows if work else ()):
            within = window * (1.0 + 1e-12) - burden
            for rate, mean, stddev in zip(work, self._columns[3 * at + 1], self._columns[3 * at + 2], strict=True):
                if mean + z * stddev > rate * within:
                    return False
        return True

    def _sizes(self) -> Iterable[float]:
        if not self._windows:
            return self._columns[0]
        means = zip(self._windows, self._columns[1::3], strict=True)
        return map(max, self._columns[0], *([ask / window for ask in column] for window, column in means))

    # -- changes

    def seat(self, items: Iterable[Item]) -> list[Item]:
        """Put every item on its owner where that is here and may have it; the others are returned. Once, at first."""
        left = []
        rows: dict[str, list[Row]] = {}
        self._ranked = None
        for item in in_turns(items, 4 * AT_ONCE):
            owner = item.owner
            entry = self.bins.get(owner) if owner is not None else None
            if entry is None or not entry.may_have(item):
                left.append(item)
                continue
            self.items[entry.member][item.partition] = item
            self.owners[item.partition] = entry.member
            rows.setdefault(entry.member, []).append(self.rows[item.partition])
        for member, listed in in_turns(rows.items()):
            self.sums[member] = [sum(column) for column in zip(*listed, strict=True)]
            self.filled[member] = sum(self.sizes[partition] for partition in self.items[member])
            self.filled[member] /= self.bins[member].capacity
            self._pressures[member] = self._pressure(self.sums[member], self.bins[member].capacity)
        return left

    def put(self, item: Item, member: str, reason: str = "") -> None:
        """Give an item to a member, taking it from the one that has it on this board."""
        may_pause()
        partition = item.partition
        old = self.owners.get(partition)
        if old == member:
            return
        if old is not None:
            self.take(item)
        self._unrank(member)
        self._set(member, self._more(self.sums[member], item, member))
        self.filled[member] += self.sizes[partition] / self.bins[member].capacity
        self.items[member][partition] = item
        self._rank(member)
        self.owners[partition] = member
        if reason:
            self.reasons[partition] = reason

    def take(self, item: Item) -> None:
        """Take an item off the member that has it."""
        member = self.owners.pop(item.partition)
        self._unrank(member)
        del self.items[member][item.partition]
        self._set(member, self._less(self.sums[member], item, member) if self.items[member] else self._empty)
        self.filled[member] -= self.sizes[item.partition] / self.bins[member].capacity
        self._rank(member)

    def _unrank(self, member: str) -> None:
        if self._ranked is not None:
            del self._ranked[bisect_left(self._ranked, (self.filled[member], len(self.items[member]), member))]

    def _rank(self, member: str) -> None:
        if self._ranked is not None:
            insort(self._ranked, (self.filled[member], len(self.items[member]), member))

    def _set(self, member: str, sums: list[float]) -> None:
        self.sums[member] = sums
        self._pressures[member] = self._pressure(sums, self.bins[member].capacity)

    def forget_handoffs(self) -> None:
        """From now on only the steady state counts, not the work that piles up while partitions are on their way.

        That work is there once and for milliseconds: a placement that has been carried out has none. Whether to go
        there at all is decided with it, how good it is there without. Cost: ``O(p)``.
        """
        self._handoff = 0.0
        for member, items in in_turns(self.items.items()):
            if any(item.owner != member for item in items.values()):
                rows = (self.rows[partition] for partition in items)
                self._set(member, [sum(column) for column in zip(*rows, strict=True)])

    # -- sums

    def _more(self, sums: Sequence[float], item: Item, member: str) -> list[float]:
        """With an item, and with the work that piles up during its handoff where it moves there."""
        row = self.rows[item.partition]
        result = [a + b for a, b in zip(sums, row, strict=True)]
        if item.owner != member and item.work:
            burden = item.work * self._handoff
            for at in range(1, len(result), 3):
                result[at] += burden
        return result

    def _less(self, sums: Sequence[float], item: Item, member: str) -> list[float]:
        row = self.rows[item.partition]
        result = [a - b for a, b in zip(sums, row, strict=True)]
        if item.owner != member and item.work:
            burden = item.work * self._handoff
            for at in range(1, len(result), 3):
                result[at] -= burden
        return result

    def _pressure(self, sums: Sequence[float], capacity: float) -> float:
        needed = sums[0] / RATE_LIMIT
        at = 1
        for window in self._windows:
            needs = sums[at]
            if (stddev := sums[at + 1]) > 0.0:
                # Partitions vary partly together: between independent and equal-phased ones.
                varied = self._apart * sums[at + 2] + self._together * stddev * stddev
                needs += self._z * math.sqrt(varied) if varied > 0.0 else 0.0
            if needs > needed * window:
                needed = needs / window
            at += 3
        return needed / capacity

    # -- questions

    def pressure(self, member: str) -> float:
        """Needed capacity over capacity: above 1 it does not fit."""
        return self._pressures[member]

    def pressure_with(self, member: str, add: Sequence[Item], take: Sequence[Item]) -> float:
        """Pressure of a member after a change that is not made."""
        self.tried += 1
        if len(take) == len(self.items[member]) and not add:
            return 0.0
        if self.flat:
            return self._flat_pressure(member, add, take)
        sums = self.sums[member]
        for item in take:
            sums = self._less(sums, item, member)
        for item in add:
            sums = self._more(sums, item, member)
        return self._pressure(sums, self.bins[member].capacity)

    def _flat_pressure(self, member: str, add: Sequence[Item], take: Sequence[Item]) -> float:
        rows, needed = self.rows, self.sums[member][0]
        for item in take:
            needed -= rows[item.partition][0]
        for item in add:
            needed += rows[item.partition][0]
        return needed / RATE_LIMIT / self.bins[member].capacity

    def excess_with(self, member: str, add: Sequence[Item], take: Sequence[Item]) -> float:
        """How far above 1 that is; rounding does not count."""
        pressure = self.pressure_with(member, add, take)
        return pressure - 1.0 if pressure > FULL else 0.0

    def excess(self, member: str) -> float:
        """How far above 1 a member's pressure is."""
        pressure = self._pressures[member]
        return pressure - 1.0 if pressure > FULL else 0.0

    def over(self) -> list[str]:
        """Members that do not fit."""
        return [member for member, pressure in self._pressures.items() if pressure > FULL]

    def may(self, member: str, item: Item) -> bool:
        """May the member own the item?"""
        return self.bins[member].may_have(item)

    def receivers(self, topic: str, here: str | None, count: int) -> list[str]:
        """Members that may be given partitions of a topic, ``here`` left out, the least filled first."""
        if self._ranked is None:
            self._ranked = sorted((self.filled[m], len(self.items[m]), m) for m in self.bins)
        found: list[str] = []
        for _, _, member in self._ranked:
            if member != here and self.bins[member].takes(topic):
                found.append(member)
                if len(found) == count:
                    break
        return found

    def receivers_of(self, member: str, count: int) -> dict[str, list[str]]:
        """The same for every topic of which a member has something."""
        topics = sorted({partition.topic for partition in self.items[member]})
        return {topic: self.receivers(topic, member, count) for topic in topics}

    def movable(self, member: str) -> list[Item]:
        """What a member may give away, sorted."""
        return [item for _, item in sorted(self.items[member].items()) if item.movable]

    def pressures(self) -> dict[str, float]:
        """Of every member."""
        return dict(self._pressures)

    def dimensions(self) -> list[list[float]]:
        """Per dimension what each item asks for at least, whatever lies beside it: see :mod:`.bounds`."""
        add = self._z * math.sqrt(self._together)
        columns = self._columns
        result = [columns[0]]
        for at, window in enumerate(self._windows):
            may_pause()
            asked = zip(columns[3 * at + 1], columns[3 * at + 2], strict=True)
            result.append([(mean + add * stddev) / window for mean, stddev in asked])
        return result

    def largest_first(self, items: Iterable[Item]) -> list[Item]:
        """By size, ties by partition."""
        return sorted(items, key=lambda item: (-self.sizes[item.partition], item.partition))


def _rows_of(columns: Columns, limits: Limits) -> list[list[float]]:
    """Return per number of a row what every item has."""
    factor = limits.load_factor
    result = [[work * factor for work in columns.work]]
    for index in limits.kept if columns.items else ():
        may_pause()
        stddev = [ask * factor for ask in columns.deviations[index]]
        result += [columns.asked(index, factor), stddev, [one * one for one in stddev]]
    return result
