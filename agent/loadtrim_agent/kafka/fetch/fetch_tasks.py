"""The tasks of a fetcher, and what they tell."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from aiokafka.errors import KafkaError

from .port import FetchSink

__all__ = ["FetchTasks"]

log = logging.getLogger("loadtrim")


class FetchTasks:
    """The owner of a fetcher's tasks: an error that none of them expects ends fetching for good, in user code.

    They begin before the fetcher runs, so that no task group of its run could own them.
    """

    def __init__(self) -> None:
        self.sink: FetchSink | None = None
        """Where chunks and errors go; None: the fetcher does not run yet."""
        self.closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._broken: KafkaError | None = None
        """An error from before the fetcher ran, which ended fetching."""

    def serve(self, sink: FetchSink) -> None:
        """Give chunks and errors to ``sink`` from now on."""
        self.sink = sink
        if self._broken is not None:
            sink.failed(self._broken, for_good=True)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task."""
        task = asyncio.get_running_loop().create_task(work, name=f"loadtrim-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s broke", task.get_name(), exc_info=error)
            ended = KafkaError(f"Unexpected error during data retrieval: {error!r}")
            if self.sink is not None:
                self.sink.failed(ended, for_good=True)
            else:
                self._broken = ended

    def tell_error(self, error: Exception) -> None:
        """Raise an error in user code; fetching goes on."""
        if self.sink is not None:
            self.sink.failed(error, for_good=False)

    async def close(self) -> None:
        """Cancel every task and wait until all have ended."""
        # Said beside the cancelling, because asyncio.wait_for may swallow that when its answer comes just then.
        self.closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
