"""CLOSER'24's optimal scaler, computed as the paper did it: with a simulator of its own in which nothing takes time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from loadtrim.simulate import Load
from loadtrim_agent.planning.placement.problem import Item
from loadtrim_agent.planning.published.packers.least_loaded import BinSize, least_loaded

__all__ = ["Optimal", "optimal"]


@dataclass(frozen=True, slots=True)
class Optimal:
    """The scaler that provisions at once and for nothing, by least-loaded packing of each second's records."""

    replicas: tuple[int, ...]
    """Per second."""
    share_in_time: float
    """Of the records: what is above a bin's limit is late."""

    @property
    def minutes(self) -> float:
        return sum(self.replicas) / 60.0

    @property
    def scaled(self) -> tuple[int, int]:
        """(replicas added, given back)."""
        pairs = list(itertools.pairwise(self.replicas))
        return sum(max(0, b - a) for a, b in pairs), sum(max(0, a - b) for a, b in pairs)


def optimal(load: Load, limit: float) -> Optimal:
    """What it would do; a replica does ``limit`` records of a second in time."""
    size = BinSize(limit, float("inf"))
    counts, in_time = [], 0.0
    for second in range(load.seconds):
        rates = load.rates(second)
        items = [Item(partition=p, owner=None, rate=rate) for p, rate in rates.items()]
        packed = least_loaded(items, size)
        counts.append(len(packed))
        in_time += sum(min(limit, sum(rates[p] for p in each)) for each in packed)
    return Optimal(tuple(counts), in_time / load.records)
