"""Partitions that a plan or a promise is about to bring are fetched early: their first records wait for nothing.

A plan is advice and a prefetch a guess: neither owns anything, claims anything or hands anything out. A prefetch that
comes to nothing is closed by a rebalance, a release to another member, or its time. What a plan advised is closed by
the next plan as well, and what was promised when it is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from loadtrim_agent.common.partition import Partition

from .commands import Command, CountCommand, DropPrefetchCommand, PrefetchCommand
from .counters import ProtocolCount

__all__ = ["PREFETCHES_MAX", "PREFETCH_SECONDS", "Prefetches"]

NEVER = float("inf")
PREFETCH_SECONDS = 2.0
"""Chosen: the time for which a release is waited for, some twenty moves. A slower owner is not worth more."""
PREFETCHES_MAX = 100
"""At once. What a plan has beyond is fetched when it is there."""
EXPECTED_SECONDS_MAX = 5.0
"""Chosen: a promise that is to be kept later is not fetched for longer, for what it brings takes memory."""


class Prefetches:
    """The partitions being prefetched; changed by :class:`~.machine.Machine` only."""

    def __init__(self, emit: Callable[[Command], None]) -> None:
        self._emit = emit
        self._deadlines: dict[Partition, float] = {}
        """Of what the latest plan advised."""
        self._promised: dict[Partition, float] = {}
        """Deadlines of what owners have promised. A partition may be in both."""

    def wakeup(self) -> float:
        """Return the time at which :meth:`tick` wants to be called at the latest."""
        return min(chain(self._deadlines.values(), self._promised.values()), default=NEVER)

    def advised(self, now: float, coming: Iterable[Partition]) -> None:
        """A new plan: these come, and nothing else."""
        wanted = sorted(set(coming))
        if len(wanted) > PREFETCHES_MAX:
            self._emit(CountCommand(what=ProtocolCount.PREFETCHES_LEFT_OUT))
            wanted = wanted[:PREFETCHES_MAX]
        before = self._fetched()
        self._deadlines = dict.fromkeys(wanted, now + PREFETCH_SECONDS)
        self._drop(before)
        fresh = tuple(p for p in wanted if p not in before)
        if fresh:
            self._emit(PrefetchCommand(partitions=fresh))

    def promised(self, now: float, partition: Partition, start: int, seconds: float) -> None:
        """The owner has promised a partition: it comes in so many seconds, and begins at ``start``."""
        before = self._fetched()
        if partition not in before and len(before) >= PREFETCHES_MAX:
            self._emit(CountCommand(what=ProtocolCount.PREFETCHES_LEFT_OUT))
            return
        self._promised[partition] = now + min(seconds, EXPECTED_SECONDS_MAX) + PREFETCH_SECONDS
        if partition not in before:
            self._emit(PrefetchCommand(partitions=(partition,), starts={partition: start}))

    def taken_back(self, partition: Partition) -> None:
        """The owner keeps a partition that it has promised."""
        before = self._fetched()
        self._promised.pop(partition, None)
        self._drop(before)

    def moved(self, partition: Partition, *, here: bool) -> None:
        """A release of it counted. ``here``: it was opened, and what is fetched of it goes on there."""
        before = self._fetched()
        self._deadlines.pop(partition, None)
        self._promised.pop(partition, None)
        if not here:
            self._drop(before)

    def tick(self, now: float) -> None:
        """Close what takes too long."""
        if now >= self.wakeup():
            before = self._fetched()
            self._deadlines = {p: deadline for p, deadline in self._deadlines.items() if now < deadline}
            self._promised = {p: deadline for p, deadline in self._promised.items() if now < deadline}
            self._drop(before)

    def drop_all(self) -> None:
        before = self._fetched()
        self._deadlines.clear()
        self._promised.clear()
        self._drop(before)

    def _fetched(self) -> set[Partition]:
        return {*self._deadlines, *self._promised}

    def _drop(self, before: Iterable[Partition]) -> None:
        """Fetch no more of what was fetched before and is in neither table now."""
        dropped = tuple(sorted(p for p in before if p not in self._deadlines and p not in self._promised))
        if dropped:
            self._emit(DropPrefetchCommand(partitions=dropped))
