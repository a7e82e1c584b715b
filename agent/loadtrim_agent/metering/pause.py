"""Pauses of partitions by user code: is what comes meanwhile load, or does it wait for something else?

User code that has enough in hand pauses all it has until it has less: *back pressure*. What comes then is load as any
other. Code that waits for a service, or tries one partition's record again while others go on, is stopped by something
else than load. More replicas would not help it.

A pause says neither by its length. So what counts is for how long a partition was paused since the last report. Time in
which all were paused does not count where the member was busy in it, or did something between. What is paused for half
of the time or more is kept out of sizing.
"""

from __future__ import annotations

import math

from loadtrim_agent.common.partition import Partition

from .cost import BusyRing

__all__ = ["BUSY_ENOUGH", "Pauses"]

BUSY_ENOUGH = 0.8
"""A member that worked this share of the time was busy: what waited, waited because of load."""
PAUSED_ENOUGH = 0.5
"""Share of the time between two reports. Chosen: what is paused for less is handed out most of the time."""


class Pauses:
    """The pauses of one member's partitions. Times are of the log's clock.

    ``busy``: of the member.
    """

    def __init__(self, busy: BusyRing) -> None:
        self.kept_out: frozenset[Partition] = frozenset()
        """By the last report."""
        self._busy = busy
        self._settled_at = math.inf
        """Time of the last report, at first of the first partition; infinite: there was neither."""
        self._since: dict[Partition, float] = {}
        """Of those that are paused."""
        self._seconds: dict[Partition, float] = {}
        """Of pauses that ended since the last report."""
        self._all_since: float | None = None
        """Since when all that is owned is paused; None: it is not."""
        self._busy_before = 0.0
        self._all_seconds = self._all_busy = 0.0
        """Since the last report: how long all was paused, and what the member worked in that."""
        self._advanced = False
        """Since the last report: something was done."""

    def paused(self, partition: Partition, now: float, owned: int) -> None:
        """User code pauses one of so many; a word that it has said before changes nothing."""
        self._since.setdefault(partition, now)
        self.owned(now, owned)

    def resumed(self, partition: Partition, now: float, owned: int) -> bool:
        """User code resumes it, with so many owned. Returns whether it was paused."""
        since = self._since.pop(partition, None)
        self.owned(now, owned)
        if since is None:
            return False
        self._count(partition, since, now)
        return True

    def lost(self, partition: Partition, now: float, owned: int) -> None:
        """Forget one that is not owned any more; so many are."""
        self._since.pop(partition, None)
        self._seconds.pop(partition, None)
        self.owned(now, owned)

    def owned(self, now: float, owned: int) -> None:
        """Take in that so many partitions are owned, or that others of them are paused."""
        self._settled_at = min(self._settled_at, now)
        if len(self._since) < owned or not owned:
            self._end_all(now)
        elif self._all_since is None:
            self._all_since, self._busy_before = now, self._busy.accrued

    def done(self) -> None:
        """Tell that records were done, of whichever partition."""
        self._advanced = True

    def settle(self, now: float) -> None:
        """A report is made: judge the time since the last one."""
        begun = self._all_since is not None
        self._end_all(now)
        if begun:
            self._all_since, self._busy_before = now, self._busy.accrued
        for partition, since in self._since.items():
            self._count(partition, since, now)
        pressed = self._advanced or self._all_busy >= BUSY_ENOUGH * self._busy.capacity * self._all_seconds
        enough = PAUSED_ENOUGH * (now - self._settled_at) + (self._all_seconds if pressed else 0.0)
        self.kept_out = frozenset(partition for partition, paused in self._seconds.items() if paused > enough)
        self._seconds, self._all_seconds, self._all_busy, self._settled_at = {}, 0.0, 0.0, now
        self._advanced = False

    def shift(self, seconds: float) -> None:
        """The log clock turned out to be ``seconds`` ahead of what was thought."""
        self._settled_at += seconds
        self._since = {partition: since + seconds for partition, since in self._since.items()}
        if self._all_since is not None:
            self._all_since += seconds

    def _count(self, partition: Partition, since: float, now: float) -> None:
        self._seconds[partition] = self._seconds.get(partition, 0.0) + now - max(since, self._settled_at)

    def _end_all(self, now: float) -> None:
        if self._all_since is None:
            return
        self._all_seconds += now - self._all_since
        self._all_busy += self._busy.accrued - self._busy_before
        self._all_since = None
