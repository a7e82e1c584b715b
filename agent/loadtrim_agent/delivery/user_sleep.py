"""The sleep of user code for want of records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["UserSleep"]


class UserSleep:
    """One sleeper at a time, in the user's loop; any thread wakes it.

    Args:
        loop: the loop that user code runs in.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sleeper: asyncio.Future[None] | None = None
        self.asleep = False
        """User: that time does not count as user code being busy."""

    def wake(self) -> None:
        """Wake the sleeper; costs nothing when there is none. Any thread."""
        sleeper = self._sleeper
        if sleeper is not None:
            self._sleeper = None
            self._loop.call_soon_threadsafe(_wake, sleeper)

    async def until(self, ready: Callable[[], bool], timeout: float | None) -> None:
        """Sleep until it is woken, or ``timeout`` seconds have passed; not at all when it is ``ready``."""
        if ready():
            return
        sleeper: asyncio.Future[None] = self._loop.create_future()
        self._sleeper = sleeper
        self.asleep = True
        try:
            if not ready():  # the agent may have fed between the check and the announcement
                await asyncio.wait((sleeper,), timeout=timeout)
        finally:
            self.asleep = False
            if self._sleeper is sleeper:
                self._sleeper = None


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
