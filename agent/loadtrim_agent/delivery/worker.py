"""The task that works on what user code was handed."""

from __future__ import annotations

import asyncio
from typing import Any

from loadtrim_agent.common.waiting_tasks import waiting_for

__all__ = ["Worker"]


class Worker:
    """The task that asked for a record, or the one that it asked for: a helper ends as soon as the record is there.

    ``await wait_for(fetch(), 10)``, where ``fetch`` asks for a record, runs it in a task of its own before Python 3.12.
    The one that waits for it gets the record, and works on it.

    Args:
        task: that asked; None: no task did.
        alone: it has asked before, so it is no helper, and what waits for its end works on nothing.
    """

    __slots__ = ("_alone", "_waiting", "iterating", "task")

    def __init__(self, task: asyncio.Task[Any] | None, *, alone: bool = False) -> None:
        self.task = task
        self._alone = alone
        self._waiting = () if alone else tuple(waiting_for(task))
        self.iterating: asyncio.Task[Any] | None = None
        """The task that began the iteration in which it was asked; None: it was asked for otherwise."""

    @property
    def helps(self) -> bool:
        """Return whether others wait for the task that asked."""
        return bool(self._waiting)

    def at_work(self) -> asyncio.Task[Any] | None:
        """Return the task that works on the record now, or the one that did; None: no task. Any thread."""
        task = self.task
        if task is None or not task.done():
            return task
        if _ended_well(task):
            for waiting in self._waiting:
                if not waiting.done():
                    return waiting
        return self.iterating or task

    def is_over(self) -> bool:
        """Return whether the task that works on it is known to have ended. Any thread.

        Of one that asked once, and was waited for by no task, that is not known: a thread may have the record.
        """
        task = self.at_work()
        if task is None or not task.done():
            return False
        return task is not self.task or self._alone or bool(self._waiting) or not _ended_well(task)


def _ended_well(task: asyncio.Task[Any]) -> bool:
    # Not `exception()`, after which asyncio would not tell of one that nobody has seen.
    return not task.cancelled() and getattr(task, "_exception", None) is None
