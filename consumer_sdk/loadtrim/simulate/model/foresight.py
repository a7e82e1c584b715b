"""The fewest replicas that have each second's records in time, for a policy that knows the load to the moment.

Seconds are gone through in order, each with what is left of the one before. Partitions are dealt out over so many
replicas, the largest first onto the one with the least. Each replica works record by record (Lindley's recursion).
A second needs the fewest with which no more records are late than with the most. Where partitions may be cut, all
replicas work on one queue.

Nobody can foresee what a single record costs (all take the mean), and what handoffs take.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial

from ..loads.load import Batch, Load

__all__ = ["Foresight"]


class Foresight:
    """A load, and the replicas that it needs.

    Args:
        load: what arrives.
        seconds: its records, as they are played.
        cost_seconds: busy time of a record on a typical replica.
        objective_seconds: W.
        most: replicas at most.
    """

    def __init__(
        self,
        load: Load,
        seconds: Iterable[Sequence[Batch]],
        cost_seconds: float,
        objective_seconds: float,
        most: int,
    ) -> None:
        self._partitions = len(load.partitions)
        self._seconds = [_moments(batches) for batches in seconds]
        self._cost, self._objective = cost_seconds, objective_seconds
        self._most = min(most, self._partitions)
        self.needed = lru_cache(maxsize=None)(self._needed)

    def _needed(self, sliced: bool, counted: float) -> tuple[int, ...]:
        """Return the replicas that each second needs.

        Args:
            sliced: partitions may be cut.
            counted: share of a replica's capacity that is counted on, above 0; above 1 some records may be late.

        Cost: ``O(records log replicas)``, 1 to 2 us a record.
        """
        found, replicas = [], 1
        left = [0] * self._partitions
        for moments in self._seconds:
            played = lru_cache(maxsize=None)(partial(self._played, moments, left, self._cost / counted, sliced))
            replicas = self._fewest(played, replicas)
            found.append(replicas)
            left = played(replicas)[1]
        return tuple(found)

    def _fewest(self, played: Callable[[int], tuple[int, list[int]]], before: int) -> int:
        """Return the fewest replicas with which no more is late than with the most, mostly as many as before."""
        if not played(before)[0] and (before == 1 or played(before - 1)[0]):
            return before
        least, most = (1, before) if not played(before)[0] else (before, self._most)
        late = played(most)[0]
        while least < most:
            middle = (least + most) // 2
            if played(middle)[0] <= late:
                most = middle
            else:
                least = middle + 1
        return most

    def _played(
        self, moments: Sequence[tuple[float, int]], left: Sequence[int], cost: float, sliced: bool, replicas: int
    ) -> tuple[int, list[int]]:
        """Return the late records of a second, and what is left of each partition after it."""
        counts = list(left)
        for _, index in moments:
            counts[index] += 1
        if sliced:
            late, seconds = self._pooled(moments, sum(left), replicas, cost)
            return late, _rest(counts, [seconds] * len(counts), [0] * len(counts), cost)
        owners = _dealt(counts, replicas)
        free, late = [0.0] * replicas, 0
        for index, owner in enumerate(owners):
            free[owner] += left[index] * cost
        for offset, index in moments:
            owner = owners[index]
            free[owner] = done = max(free[owner], offset) + cost
            late += done > offset + self._objective
        return late, _rest(counts, [max(0.0, free[owner] - 1.0) for owner in owners], owners, cost)

    def _pooled(self, moments: Sequence[tuple[float, int]], left: int, replicas: int, cost: float) -> tuple[int, float]:
        """Return the late records, and the work that is left, where all replicas work on one queue."""
        free, late = [left * cost / replicas] * replicas, 0
        for offset, _ in moments:
            done = max(free[0], offset) + cost
            heapq.heapreplace(free, done)
            late += done > offset + self._objective
        return late, sum(max(0.0, each - 1.0) for each in free)


def _moments(batches: Sequence[Batch]) -> list[tuple[float, int]]:
    return [(batch.offset_seconds, index) for batch in batches for index, count in batch.counts for _ in range(count)]


def _dealt(counts: Sequence[int], replicas: int) -> list[int]:
    """Return each partition's replica: the largest first onto the one with the least."""
    owners = [0] * len(counts)
    room = [(0, replica) for replica in range(replicas)]
    for index in sorted(range(len(counts)), key=lambda index: -counts[index]):
        have, replica = room[0]
        owners[index] = replica
        heapq.heapreplace(room, (have + counts[index], replica))
    return owners


def _rest(counts: Sequence[int], busy: Sequence[float], owners: Sequence[int], cost: float) -> list[int]:
    """Return the records of each partition that its replica has not done: the same share of all its partitions.

    Args:
        counts: records of each partition.
        busy: seconds for which each partition's replica goes on after the second.
        owners: each partition's replica.
        cost: of a record.
    """
    total: dict[int, int] = {}
    for owner, count in zip(owners, counts, strict=True):
        total[owner] = total.get(owner, 0) + count
    return [
        min(count, round(seconds / cost * count / total[owner])) if count and seconds > 0 else 0
        for count, seconds, owner in zip(counts, busy, owners, strict=True)
    ]
