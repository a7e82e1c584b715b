"""How partitions divide over as many replicas as are there, by what their packer makes of it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from loadtrim_agent.common.partition import Partition

from ..placement.lateness import LongestFirst
from ..placement.problem import Item, Problem, limits_of
from .policy import View

__all__ = ["PresentPlacement", "load_factor"]


class PresentPlacement:
    """How partitions divide over as many replicas as are there, by what their packer makes of it.

    Dealing them out (:class:`..placement.lateness.LongestFirst`) is quick and shows how whole partitions divide over
    any number of members. Over those that are there the packer has had the time to find better: no more is late than
    as they lie now, or as it would repair that at once. So nobody is asked for a replica where a move will do.

    Cost: O(p log p) per load factor at which dealing makes something late, and at most one packing.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._bins = {entry.member: entry for entry in view.supply if entry.member in view.estimate.members}
        owners = {item.partition: item.owner for item in view.items if item.owner in self._bins}
        self._lying = owners if len(owners) == len(view.items) else None
        self._packed: Mapping[Partition, str | None] | None = None
        self._late: dict[float, float] = {}

    def late(self, replicas: int, factor: float) -> float:
        """As :attr:`.policy.View.late`."""
        dealt = self._view.late(replicas, factor)
        if dealt <= 0.0 or replicas != self._view.replicas or self._lying is None:
            return dealt
        if factor not in self._late:
            self._late[factor] = self._least(self._lying, factor)
        return min(dealt, self._late[factor])

    def _least(self, lying: Mapping[Partition, str | None], factor: float) -> float:
        longest_first = self._view.longest_first(factor)
        late = self._as(longest_first, lying)
        if late <= 0.0 or (repaired := self._repaired()) == lying:
            return late
        return min(late, self._as(longest_first, repaired))

    def _repaired(self) -> Mapping[Partition, str | None]:
        """Where the packer would put them at the load that this decision is made for, whatever is asked first."""
        if self._packed is None:
            view = self._view
            limits = limits_of(view.estimate, view.config, load_factor(view))
            problem = Problem(items=view.items, bins=tuple(self._bins.values()), limits=limits, drawn_up=view.columns)
            self._packed = view.packer.pack(problem).owners
        return self._packed

    def _as(self, longest_first: LongestFirst, owners: Mapping[Partition, str | None]) -> float:
        """Late where they lie so; what is late with nobody owning a part of it is not to be said."""
        held: dict[str, list[Item]] = {member: [] for member in self._bins}
        for item in self._view.items:
            owner = owners.get(item.partition)
            if owner is None:
                return math.inf
            held[owner].append(item)
        return longest_first.late_as((items, self._bins[member].capacity) for member, items in held.items())


def load_factor(view: View) -> float:
    """So many times the present load is planned for."""
    total = view.columns.total
    factor = view.forecast.peak / total if total > 0 else 1.0
    return min(max(factor, 0.5), 4.0)
