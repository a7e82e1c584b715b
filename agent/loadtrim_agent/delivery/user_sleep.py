"""The sleep of user code for want of records, and the turns of its loop while there are enough."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextvars import Context

from loadtrim_agent.common.clock import boot_time

__all__ = ["UserSleep"]

TURN_SECONDS = 0.05
"""User code that never waits lets its loop turn after so long. Chosen: timers and signals of a program come in time,
and 20 turns a second cost nothing that can be measured."""


TURN_ITERATIONS = 4
"""A turn is so many iterations of the loop. A timer takes three of them until its callback has woken a task."""


class UserSleep:
    """The sleepers of one consumer, in the user's loop; any thread wakes them all.

    User code that works through a backlog and never waits has no sleep, so its event loop would not turn. The call for
    the next record lets it, where it has not turned for :data:`TURN_SECONDS`. A mark in the loop's queue tells whether
    it has, so that a handler that waits by itself is not slowed down.

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
        self.turn_due = math.inf
        """User: from then on it is to be seen whether the loop has turned. Boot clock; infinite before the start."""
        self._turned = True
        """User: the loop has turned since this was looked at last."""

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

    async def let_turn(self) -> None:
        """Let the loop turn, unless it has by itself since the last look; the next look is due in a while."""
        if not self._turned:
            for _ in range(TURN_ITERATIONS):
                await asyncio.sleep(0)
        self._turned = False
        self._loop.call_soon(self._note_turn, context=_NO_CONTEXT)
        self.turn_due = boot_time() + TURN_SECONDS

    def _note_turn(self) -> None:
        self._turned = True


_NO_CONTEXT = Context()
"""The mark keeps nothing alive that user code has in its own context."""
