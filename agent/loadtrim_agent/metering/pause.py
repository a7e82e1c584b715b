"""A partition that user code has paused: is what comes meanwhile load, or waiting for something else?"""

from __future__ import annotations

from .cost import BusyRing

__all__ = ["BUSY_ENOUGH", "Pause"]

BUSY_ENOUGH = 0.8
"""A member that worked this share of the time on other partitions was busy: what waited, waited because of load."""


class Pause:
    """One pause of one partition.

    Args:
        busy: of the member, to tell what waits for others.
        since: log clock.
        settle_seconds: least age at which a slot is closed: no slot misses what comes in so short a pause.
    """

    __slots__ = ("_busy", "_busy_before", "_settle_seconds", "since")

    def __init__(self, busy: BusyRing, since: float, settle_seconds: float) -> None:
        self.since = since
        self._busy = busy
        self._busy_before = busy.accrued
        self._settle_seconds = settle_seconds

    def is_back_pressure(self, now: float, patience_seconds: float) -> bool:
        """Return whether it is short so far, or the member is busy in it and it is no longer than one record may take.

        User code that has enough in hand pauses until it has less: what comes then is load as any other. Code that
        waits for a service or a time is idle meanwhile, and more replicas would not help it.
        """
        paused = now - self.since
        if paused > patience_seconds:
            return False
        busy = self._busy.accrued - self._busy_before
        return paused <= self._settle_seconds or busy >= BUSY_ENOUGH * paused * self._busy.capacity
