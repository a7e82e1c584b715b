"""The agent's thread: an event loop that user code cannot block."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from loadtrim_agent.common.daemon_call import DaemonCall
from loadtrim_agent.common.tasks import is_being_cancelled

__all__ = ["AgentEndedError", "AgentThread"]

log = logging.getLogger("loadtrim")

JOIN_SECONDS_MAX = 5.0
"""The thread's end is waited for no longer. Chosen: it takes milliseconds once its loop has stopped."""
T = TypeVar("T")


class AgentEndedError(RuntimeError):
    """The agent's loop has ended, so that a call of it has no answer."""


class AgentThread:
    """A daemon thread that runs one event loop."""

    def __init__(self, name: str) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name=f"loadtrim-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def _main(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._loop.call_soon(self._ready.set)
            self._loop.run_forever()

    @property
    def ident(self) -> int | None:
        """Return the thread's number, which log records have; None before its start."""
        return self._thread.ident

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def where(self) -> str:
        """What the thread is doing right now, as a stack: for the log when it does not answer."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame is not None else "(it has ended)"

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine in the agent's loop, whatever becomes of the caller.

        Raises:
            AgentEndedError: the loop has ended. Where it ends meanwhile, the future is cancelled.
        """
        if self._loop is None or self._loop.is_closed():
            work.close()
            raise AgentEndedError("The agent has ended.")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the agent's loop and wait for it in this one. Cancelling the wait cancels it.

        Raises:
            AgentEndedError: the loop has ended, before or meanwhile.
        """
        try:
            return await asyncio.wrap_future(self.submit(work))
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            # The loop cancels what is left at its end. Nobody has cancelled the caller.
            raise AgentEndedError("The agent has ended meanwhile.") from None

    def post(self, call: Callable[..., object], *args: object) -> None:
        """Call a function in the agent's loop, soon. Nothing happens when it has ended."""
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            log.debug("the agent has ended")

    async def stop(self) -> None:
        """End the loop and wait for the thread."""
        loop = self._loop
        if loop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # It is closed already, by an earlier call.
                loop.call_soon_threadsafe(loop.stop)
        # Not in the loop's executor: user code may have filled it, and then this would wait for user code.
        joining: DaemonCall[None] = DaemonCall(lambda: self._thread.join(JOIN_SECONDS_MAX), "join")
        joining.start()
        await joining.outcome
