"""A call of the user's rebalance listener runs in the user's loop, and is waited for in the agent's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from aiokafka.structs import TopicPartition

from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.tasks import is_being_cancelled

__all__ = ["ListenerCalls", "call_listener"]

LONG_SECONDS = 10.0
"""A call that takes longer is told in the log, once. Chosen: longer than what loads or saves state of a partition."""

log = logging.getLogger("loadtrim")


async def call_listener(method: Callable[[set[TopicPartition]], Any], partitions: set[TopicPartition]) -> None:
    """Call a listener's method, and wait for its end where it is a coroutine function."""
    result = method(partitions)
    if asyncio.iscoroutine(result):  # no future: aiokafka does not wait for a task that a listener returns
        await result


class ListenerCalls:
    """One consumer's listener is called here. What it raises is logged and goes no further, as in aiokafka.

    Args:
        user_loop: the loop that user code runs in.
        boundary: counts what the listener raises.
    """

    def __init__(self, user_loop: asyncio.AbstractEventLoop, boundary: ErrorBoundary) -> None:
        self._user_loop = user_loop
        self._boundary = boundary
        self.begun = asyncio.Event()
        """Agent: set as soon as the listener has been called."""
        self.task: asyncio.Task[Any] | None = None
        """User: the task that a call runs in. None: no call is under way."""

    async def run(self, method: Callable[[set[TopicPartition]], Any], partitions: Iterable[Partition]) -> float:
        """Call, and wait for the end.

        Returns:
            The seconds that the call took. User code may have kept its loop busy with records until it began.
        """
        those = {TopicPartition(*p) for p in partitions}
        timed = _Timed(self)
        future = asyncio.run_coroutine_threadsafe(timed.run(method, those), self._user_loop)
        self.begun.set()
        call = asyncio.wrap_future(future)
        try:
            done, _ = await asyncio.wait((call,), timeout=LONG_SECONDS)
            if not done:
                log.warning(
                    "%s has not returned for %.0f s. What comes or goes waits for it, and with a plain listener all "
                    "records do. Return sooner; what takes longer belongs into a task of its own.",
                    method.__name__,
                    LONG_SECONDS,
                )
            await call
        except (Exception, asyncio.CancelledError) as error:
            # User code that awaits a task of its own that was cancelled ends with a cancellation too.
            if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
                future.cancel()
                raise
            self._boundary.broke("listener")
            log.exception("%s raised; the group goes on as if it had returned", method.__name__)
        return timed.seconds


class _Timed:
    """A timed call runs in the user's loop, and notes how long it took there.

    Args:
        calls: told which task it runs in.
    """

    def __init__(self, calls: ListenerCalls) -> None:
        self._calls = calls
        self.seconds = 0.0

    async def run(self, method: Callable[[set[TopicPartition]], Any], partitions: set[TopicPartition]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._calls.task = asyncio.current_task()
        try:
            await call_listener(method, partitions)
        finally:
            self._calls.task = None
            self.seconds = loop.time() - began
