"""Calling the user's ``ConsumerRebalanceListener`` in the user's loop, one call at a time and in order."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from aiokafka.structs import TopicPartition

from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.tasks import is_being_cancelled

__all__ = ["Listener", "RebalanceListener"]

log = logging.getLogger("loadtrim")


class RebalanceListener(Protocol):
    """What aiokafka's ``ConsumerRebalanceListener`` offers; each may be a coroutine function or a plain one."""

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Awaitable[None] | None: ...

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Awaitable[None] | None: ...


class Listener:
    """The agent's side of the listener. Calls wait for each other, so user code never sees them overlap.

    What the listener raises is logged and goes no further, as aiokafka does.
    """

    def __init__(self, user_loop: asyncio.AbstractEventLoop, boundary: ErrorBoundary) -> None:
        self._user_loop = user_loop
        self._boundary = boundary
        self._turn = asyncio.Lock()
        self.target: RebalanceListener | None = None

    async def assigned(self, partitions: Iterable[Partition]) -> None:
        """Call ``on_partitions_assigned`` and wait for its end."""
        await self._call("on_partitions_assigned", partitions)

    async def revoked(self, partitions: Iterable[Partition]) -> None:
        """Call ``on_partitions_revoked`` and wait for its end."""
        await self._call("on_partitions_revoked", partitions)

    async def _call(self, name: str, partitions: Iterable[Partition]) -> None:
        if self.target is None:
            return
        those = {TopicPartition(*p) for p in partitions}
        async with self._turn:
            call = asyncio.run_coroutine_threadsafe(_run(getattr(self.target, name), those), self._user_loop)
            try:
                await asyncio.wrap_future(call)
            except (Exception, asyncio.CancelledError) as error:
                # User code that awaits a task of its own that was cancelled ends with a cancellation too.
                if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
                    raise
                self._boundary.broke("listener")
                log.exception("%s raised; the group goes on as if it had returned", name)


async def _run(method: Callable[[set[TopicPartition]], Any], partitions: set[TopicPartition]) -> None:
    result = method(partitions)
    if inspect.isawaitable(result):
        await result
