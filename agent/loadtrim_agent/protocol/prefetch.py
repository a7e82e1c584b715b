"""Partitions that a plan is about to bring are fetched early, so that their first records wait for nothing.

A plan is advice and a prefetch a guess: neither owns anything, claims anything or hands anything out. A prefetch that
comes to nothing is closed by the next plan, a barrier, a release to somebody else, or its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from loadtrim_agent.common.partition import Partition

from .commands import Command, CountCommand, DropPrefetchCommand, PrefetchCommand
from .counters import ProtocolCount

__all__ = ["PREFETCHES_MAX", "PREFETCH_SECONDS", "Prefetches"]

NEVER = float("inf")
PREFETCH_SECONDS = 2.0
"""Chosen: the time for which a release is waited for, some twenty moves. A slower owner is not worth more."""
PREFETCHES_MAX = 100
"""At once. What a plan has beyond is fetched when it is there."""


class Prefetches:
    """The partitions being prefetched; changed by :class:`~.machine.Machine` only."""

    def __init__(self, emit: Callable[[Command], None]) -> None:
        self._emit = emit
        self._deadlines: dict[Partition, float] = {}

    def wakeup(self) -> float:
        """Return the time at which :meth:`tick` wants to be called at the latest."""
        return min(self._deadlines.values(), default=NEVER)

    def advised(self, now: float, coming: Iterable[Partition]) -> None:
        """A new plan: these come, and nothing else."""
        wanted = sorted(set(coming))
        if len(wanted) > PREFETCHES_MAX:
            self._emit(CountCommand(what=ProtocolCount.PREFETCHES_LEFT_OUT))
            wanted = wanted[:PREFETCHES_MAX]
        self._drop(p for p in self._deadlines if p not in wanted)
        fresh = tuple(p for p in wanted if p not in self._deadlines)
        self._deadlines.update(dict.fromkeys(wanted, now + PREFETCH_SECONDS))
        if fresh:
            self._emit(PrefetchCommand(partitions=fresh))

    def moved(self, partition: Partition, *, here: bool) -> None:
        """A release of it counted. ``here``: it was opened, and what is fetched of it goes on there."""
        if here:
            self._deadlines.pop(partition, None)
        elif partition in self._deadlines:
            self._drop((partition,))

    def tick(self, now: float) -> None:
        """Close what takes too long."""
        if now >= self.wakeup():
            self._drop(p for p, deadline in self._deadlines.items() if now >= deadline)

    def drop_all(self) -> None:
        self._drop(self._deadlines)

    def _drop(self, partitions: Iterable[Partition]) -> None:
        dropped = tuple(sorted(partitions))
        for partition in dropped:
            del self._deadlines[partition]
        if dropped:
            self._emit(DropPrefetchCommand(partitions=dropped))
