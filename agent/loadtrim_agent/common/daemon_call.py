"""A blocking call runs in a daemon thread, and an event loop awaits its outcome.

The threads of an executor are joined when their loop is closed, and again at the interpreter's exit. A call that hangs
would hold both up: a plan, a server that is silent, a name look-up. A daemon thread is joined by nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

__all__ = ["DaemonCall", "call_in_daemon"]

T = TypeVar("T")
PREFIX: Final = "loadtrim-"
"""The names of all threads begin with this."""


class DaemonCall(Generic[T]):
    """One call, and its outcome in the loop that made it.

    Args:
        function: what is called in the thread.
        name: of the thread.
    """

    def __init__(self, function: Callable[[], T], name: str) -> None:
        self._function = function
        self.outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        """The value or the error of the function. Cancelled, or given up, it stays so whatever the function does."""
        self._thread = threading.Thread(target=self._run, name=PREFIX + name, daemon=True)

    def start(self) -> None:
        """Begin the call.

        Raises:
            RuntimeError: the system gives no more threads.
        """
        self._thread.start()

    @property
    def runs(self) -> bool:
        """The thread has not ended; the outcome may have been given up long ago."""
        return self._thread.is_alive()

    def give_up(self, error: Exception) -> None:
        """Have the outcome raise this, if there is none yet. The thread goes on, for nothing can end it."""
        if not self.outcome.done():
            self.outcome.set_exception(error)
            # Marked as seen: asyncio would report it where nobody waits any more.
            self.outcome.exception()

    def _run(self) -> None:
        made: T | Exception
        try:
            made = self._function()
        except Exception as error:
            made = error
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits.
            self.outcome.get_loop().call_soon_threadsafe(self._settle, made)

    def _settle(self, made: T | Exception) -> None:
        if self.outcome.done():
            return
        if isinstance(made, Exception):
            self.outcome.set_exception(made)
        else:
            self.outcome.set_result(made)


async def call_in_daemon(function: Callable[[], T], name: str) -> T:
    """Call a function in a daemon thread and return what it returns.

    Cancelled, the wait ends at once, and what the function still does counts for nothing.
    """
    call = DaemonCall(function, name)
    call.start()
    return await call.outcome
