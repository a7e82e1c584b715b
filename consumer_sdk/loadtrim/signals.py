"""SIGTERM: hand over and leave; a second one: at once."""

from __future__ import annotations

import asyncio
import signal
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from aiokafka.errors import ConsumerStoppedError

__all__ = ["EndableWait", "StopSignals"]

T = TypeVar("T")


class StopSignals:
    """Handles SIGTERM while installed, if on the main thread and nobody else handles it.

    Args:
        asked: a method, called in the user's loop with whether to leave at once; its object is not kept alive by it.
        enabled: False: leaves signals alone.
    """

    def __init__(self, asked: Callable[[bool], None], *, enabled: bool) -> None:
        self._asked = weakref.WeakMethod(asked)
        self._enabled = enabled
        self._loop: asyncio.AbstractEventLoop | None = None
        self.at_once = False
        """A second SIGTERM came."""
        self._times = 0

    def install(self) -> None:
        on_main = threading.current_thread() is threading.main_thread()
        if not self._enabled or not on_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        loop = asyncio.get_running_loop()
        try:
            loop.add_signal_handler(signal.SIGTERM, self._signalled)
        except (NotImplementedError, RuntimeError):  # pragma: no cover - no signals on this loop
            return
        self._loop = loop

    def remove(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_signal_handler(signal.SIGTERM)
        self._loop = None

    def _signalled(self) -> None:
        self._times += 1
        self.at_once = self._times > 1
        asked = self._asked()
        if asked is not None:
            asked(self.at_once)


class EndableWait:
    """Lets a plain ``AIOKafkaConsumer`` be told to end between two records, which it has no call for."""

    def __init__(self) -> None:
        self._ended = False
        self._waiting: asyncio.Task[Any] | None = None

    def end(self) -> None:
        """From now on no wait begins, and the one that goes on ends. Called in the user's loop."""
        self._ended = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def until_ended(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a record; nothing is taken by a wait that is ended.

        Raises:
            ConsumerStoppedError: :meth:`end` was called.
        """
        if self._ended:
            work.close()
            raise ConsumerStoppedError()
        self._waiting = task = asyncio.current_task()
        try:
            return await work
        except asyncio.CancelledError:
            # Somebody else may have cancelled the task too: theirs is passed on.
            if self._ended and task is not None and task.uncancel() == 0:
                raise ConsumerStoppedError() from None
            raise
        finally:
            self._waiting = None
