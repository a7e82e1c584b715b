"""Columns hold items the quick way round: one sequence per number.

A decision looks at every partition in a dozen ways. A loop of the interpreter over objects takes ten times as long as
one inside a built-in function over a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from operator import le, sub
from typing import TYPE_CHECKING

from msgspec import structs

from loadtrim_agent.common.pauses import may_pause

from ..values import TAUS_SECONDS

if TYPE_CHECKING:
    from .problem import Item, Limits

__all__ = ["Asks", "Columns"]

SAMPLES = 48
"""Items by which most windows are seen to bind before all are looked at. Chosen."""


class Columns:
    """Hold the numbers of some items, each in the order of the items, drawn up when they are asked for."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = tuple(items)
        self._varied: dict[tuple[int, float], list[float]] = {}

    @cached_property
    def partitions(self) -> list[tuple[str, int]]:
        return [item.partition for item in self.items]

    @cached_property
    def work(self) -> list[float]:
        return [item.work for item in self.items]

    @cached_property
    def total(self) -> float:
        """Return the work of all items."""
        return sum(self.work)

    @cached_property
    def unsplittable(self) -> tuple[Item, ...]:
        """Return the items that are too large for one member."""
        return tuple([item for item in self.items if item.unsplittable])

    @cached_property
    def backlog(self) -> list[float]:
        """Return the persistent ones."""
        return [item.persistent_backlog for item in self.items]

    @cached_property
    def splittable(self) -> list[float]:
        """Return the work of items that more members can help; 0 for the others."""
        return [0.0 if item.unsplittable else item.work for item in self.items]

    @cached_property
    def means(self) -> list[tuple[float, ...]]:
        """Return a column per window."""
        may_pause()
        return list(zip(*[item.mean for item in self.items], strict=True))

    @cached_property
    def deviations(self) -> list[tuple[float, ...]]:
        """Return a column per window."""
        may_pause()
        return list(zip(*[item.stddev for item in self.items], strict=True))

    @cached_property
    def burst(self) -> float:
        """Return the most that comes for any item in a window beyond the mean work in it."""
        may_pause()
        most = 0.0
        for means, tau in zip(self.means, TAUS_SECONDS, strict=False):
            most = max(most, *map(sub, means, [work * tau for work in self.work]))
        return most

    def varied(self, index: int, window: float) -> list[float]:
        """Return the standard deviations of a window, per second that there is for it."""
        found = self._varied.get((index, window))
        if found is None:
            may_pause()
            found = self._varied[index, window] = [stddev / window for stddev in self.deviations[index]]
        return found

    @cached_property
    def by_partition(self) -> list[int]:
        """Return the indices of the items, sorted by partition."""
        indices = list(range(len(self.items)))
        if all(left < right for left, right in pairwise(self.partitions)):
            return indices
        return sorted(indices, key=self.partitions.__getitem__)

    def asked(self, index: int, factor: float) -> list[float]:
        """Return what waits and what comes in a window, at so many times the load."""
        may_pause()
        if not self.waits:
            return [mean * factor for mean in self.means[index]]
        return [waits + mean * factor for waits, mean in zip(self.backlog, self.means[index], strict=True)]

    @cached_property
    def waits(self) -> bool:
        """Return whether anything waits."""
        return any(self.backlog)

    def asks(self, limits: Limits) -> Asks:
        """Return what each item asks for under some limits."""
        return Asks(self, limits)


class Asks:
    """Tell what some items ask for in each window, per second that there is for it."""

    def __init__(self, columns: Columns, limits: Limits) -> None:
        self._columns = columns
        self._limits = limits
        self._means: dict[int, list[float]] = {}

    def binding(self) -> Limits:
        """Return the limits without windows in which every item asks for no more than in another one."""
        limits, columns = self._limits, self._columns
        among = self
        if not columns.items or not all(columns.means[-1]):
            live = [item for item in columns.items if item.mean[-1] > 0 or item.persistent_backlog > 0]
            if not live:
                return structs.replace(limits, kept=(len(limits.windows) - 1,))
            among = Asks(Columns(live), limits)
        items = among._columns.items
        # Of most windows a few items show that they bind.
        looks = (Asks(Columns(items[:: max(1, len(items) // SAMPLES)]), limits), among)
        kept = list(range(len(limits.windows)))
        for index in range(len(limits.windows)):
            for other in kept:
                if other != index and all(asks._no_more(index, other) for asks in looks):
                    kept.remove(index)
                    break
        return structs.replace(limits, kept=tuple(kept))

    def _no_more(self, index: int, other: int) -> bool:
        """Return whether no item asks for more in a window than in another one."""
        varied, windows = self._columns.varied, self._limits.windows
        return all(map(le, varied(index, windows[index]), varied(other, windows[other]))) and all(
            map(le, self._mean(index), self._mean(other))
        )

    def _mean(self, index: int) -> list[float]:
        found = self._means.get(index)
        if found is None:
            may_pause()
            columns, factor, window = self._columns, self._limits.load_factor, self._limits.windows[index]
            if columns.waits:
                pairs = zip(columns.backlog, columns.means[index], strict=True)
                found = [(waits + mean * factor) / window for waits, mean in pairs]
            else:
                found = [mean * factor / window for mean in columns.means[index]]
            self._means[index] = found
        return found

    def sizes(self, kept: Sequence[int]) -> list[float]:
        """Return the capacity that each item alone asks for, by its mean load: a scalar to sort and to select by."""
        columns, factor = self._columns, self._limits.load_factor
        work = [each * factor for each in columns.work]
        return list(map(max, work, *map(self._mean, kept))) if columns.items and kept else work
