"""Tasks that live as long as their owner: all of one agent, and those of its fetcher, each in one task group.

Theory of operation. A task group cancels all of its tasks when one of them raises. The agent's tasks are to end
otherwise: what membership's tasks raise is the user's to hear, and what an observer's tasks raise is nobody's but the
log's. So no error ever reaches the group. Each coroutine runs inside a wrapper that takes what it raises to where it
belongs:

- :meth:`OwnedTasks.spawn`: to the :class:`FailureSink`, which raises it in user code;
- :meth:`AgentTasks.spawn_contained`: to the :class:`~.error_boundary.ErrorBoundary`, which logs and counts it; the task
  is off from then on, and the consumer goes on.

Cancellation goes through the wrapper, so that closing the group cancels every task and waits for its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from .error_boundary import ErrorBoundary

__all__ = ["AgentTasks", "FailureSink", "OwnedTasks", "Spawner", "is_being_cancelled"]

log = logging.getLogger("loadtrim")

PREFIX = "loadtrim-"
"""The names of all tasks begin with this."""


def is_being_cancelled() -> bool:
    """Return whether the task that runs is being cancelled.

    If not, a CancelledError that reaches it is of something it waited for: user code in another loop, say.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class FailureSink(Protocol):
    """The sink takes errors that end the agent."""

    def raise_to_user(self, error: BaseException) -> None:
        """The user's next call raises it."""


class Spawner(Protocol):
    """The spawner starts tasks that the agent owns."""

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> object:
        """Start a task that is cancelled at the agent's end; what it raises is the agent's failure."""


class OwnedTasks:
    """The owner of tasks; see the module's text.

    Args:
        failures: takes what a task of :meth:`spawn` raises.
    """

    def __init__(self, failures: FailureSink) -> None:
        self._failures = failures
        self._group: asyncio.TaskGroup | None = None
        """None: before :meth:`open`, and after :meth:`close`."""
        self._owner: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Tasks can be started from now on."""
        opened = asyncio.Event()
        self._owner = asyncio.create_task(self._own(opened), name=f"{PREFIX}owner")
        await opened.wait()

    async def _own(self, opened: asyncio.Event) -> None:
        # The group must be entered and left by one task, which none of the agent's callers is.
        async with asyncio.TaskGroup() as group:
            self._group = group
            opened.set()
            await asyncio.get_running_loop().create_future()

    @property
    def closed(self) -> bool:
        """No task is started any more, and those that run are to end.

        Loops ask beside being cancelled, because ``asyncio.wait_for`` may swallow that when its answer comes just then.
        """
        return self._group is None

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None] | None:
        """See :meth:`Spawner.spawn`. Return the task; None: the owner has ended."""
        return self._start(self._failing(work, name), work, name)

    def _start(
        self, wrapped: Coroutine[Any, Any, None], work: Coroutine[Any, Any, None], name: str
    ) -> asyncio.Task[None] | None:
        if self._group is None:
            log.debug("The owner of the tasks has ended: %s is not started any more", name)
            wrapped.close()
            work.close()
            return None
        task = self._group.create_task(wrapped, name=PREFIX + name)
        # A task that is cancelled before its first step never awaits it.
        task.add_done_callback(lambda _: work.close())
        return task

    async def _failing(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await _ended_by_itself(work, name)
        except Exception as error:
            log.error("The agent's task %s failed", PREFIX + name, exc_info=error)
            self._failures.raise_to_user(error)

    async def close(self) -> None:
        """Cancel every task and wait until all have ended. Nothing is started any more."""
        self._group = None
        if self._owner is not None:
            self._owner.cancel()
            await asyncio.gather(self._owner, return_exceptions=True)


class AgentTasks(OwnedTasks):
    """The owner of an agent's tasks, among them those that nothing depends on.

    Args:
        failures: takes what a task of :meth:`spawn` raises.
        boundary: counts what a task of :meth:`spawn_contained` raises.
    """

    def __init__(self, failures: FailureSink, boundary: ErrorBoundary) -> None:
        super().__init__(failures)
        self._boundary = boundary

    def spawn_contained(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None] | None:
        """Start a task whose failure is logged and counted under ``name``, and goes no further (I8).

        Returns:
            The task, for a caller that ends it before the agent ends; None: the agent has ended.
        """
        return self._start(self._contained(work, name), work, name)

    async def _contained(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await _ended_by_itself(work, name)
        except Exception as error:
            log.error("%s broke and is off from now on; the consumer goes on.", PREFIX + name, exc_info=error)
            self._boundary.broke(name)


async def _ended_by_itself(work: Coroutine[Any, Any, None], name: str) -> None:
    """Await a task's work; a cancellation that is not the task's own is an error: it would end in silence."""
    try:
        await work
    except asyncio.CancelledError as error:
        if is_being_cancelled():
            raise
        raise RuntimeError(f"What the agent's task {PREFIX}{name} waited for was cancelled") from error
