"""The planner takes turns at the interpreter's lock: it gives it away before it is asked to.

A thread that wants the lock asks for it after ``sys.getswitchinterval()``, 5 ms. Until then user code that waits for a
socket or a timer does not go on, each time it has waited for something. A pause of a moment lets it in. To sleep for no
time would not: the lock is free then, but what waits for it takes longer to wake up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from loadtrim_agent.common.pauses import call_at_pauses

__all__ = ["taking_turns"]

HOLD_SECONDS = 0.0015
"""Longest time between two pauses, as far as planning passes a point of them. Chosen: well below what the lock is asked
for after."""
PAUSE_SECONDS = 0.0001
"""Chosen: a thread that waits for the lock wakes up within 50 to 100 us."""


class _Turn(threading.local):
    since: float | None = None
    """Time since which this thread has not paused; None: it takes no turns."""


_turn = _Turn()


def _give() -> None:
    """Give the lock away, if this thread takes turns and held it for long enough."""
    if _turn.since is not None and time.perf_counter() - _turn.since >= HOLD_SECONDS:
        time.sleep(PAUSE_SECONDS)
        _turn.since = time.perf_counter()


call_at_pauses(_give)


@contextmanager
def taking_turns() -> Iterator[None]:
    """Pause now and then in this thread, until the end of the block."""
    _turn.since = time.perf_counter()
    try:
        yield
    finally:
        _turn.since = None
