"""The sleep of user code for want of records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from loadtrim_agent.common.clock import boot_time

__all__ = ["UserSleep"]


class UserSleep:
    """The sleepers of one consumer, in the user's loop; any thread wakes them all.

    Args:
        loop: the loop that user code runs in.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sleepers: dict[asyncio.Future[None], None] = {}
        """In the order in which they came. User: nearly always one at most, for one task asks for records."""
        self._asleep_since = 0.0
        self._slept_seconds = 0.0
        self._waking = False
        """Any thread sets it, the user's loop clears it. Invariant: while set, that loop is about to wake all."""

    @property
    def asleep(self) -> bool:
        """Return whether user code sleeps: that time does not count as user code being busy."""
        return bool(self._sleepers)

    def seconds(self, now: float) -> float:
        """Return for how long user code has slept since the start (boot clock). Any thread."""
        since = self._asleep_since  # first this: a sleep that ends meanwhile is counted once at least
        return self._slept_seconds + (max(0.0, now - since) if self._sleepers else 0.0)

    def wake(self) -> None:
        """Wake the sleepers; costs nothing when there is none. Any thread."""
        if self._sleepers and not self._waking:
            self._waking = True
            self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        self._waking = False  # first this: what is fed from now on wakes anew
        for sleeper in self._sleepers:
            if not sleeper.done():
                sleeper.set_result(None)

    async def until(self, ready: Callable[[], bool], timeout: float | None) -> None:
        """Sleep until it is woken, or ``timeout`` seconds have passed; not at all when it is ``ready``."""
        if ready():
            return
        sleeper: asyncio.Future[None] = self._loop.create_future()
        if not self._sleepers:
            self._asleep_since = boot_time()
        self._sleepers[sleeper] = None
        try:
            if not ready():  # the agent may have fed between the check and the announcement
                await asyncio.wait((sleeper,), timeout=timeout)
        finally:
            self._sleepers.pop(sleeper, None)
            if not self._sleepers:
                self._slept_seconds += boot_time() - self._asleep_since
