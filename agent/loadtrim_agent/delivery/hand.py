"""The streams that user code has something of in hand, and the task that took it."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Iterable, Mapping

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.waiting_tasks import waiting_for

from .partition_stream import Stream
from .samples import RecordSamples
from .telling import Telling
from .worker import Worker

__all__ = ["Hand"]


class Hand:
    """Streams with a record, or a batch, that was delivered and is not done. All methods run in the user's thread.

    Args:
        loop: the loop that user code runs in.
        telling: what user code says itself of the records.
        samples: of records, that tell whether they are done when the next one is asked for.
    """

    __slots__ = (
        "_asked",
        "_emptied",
        "_holder",
        "_iterating",
        "_loop",
        "_worker",
        "samples",
        "streams",
        "telling",
        "unsent",
        "went",
        "workers",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, telling: Telling, samples: RecordSamples) -> None:
        self._loop = loop
        self.telling = telling
        self.samples = samples
        self._holder: asyncio.Task[object] | None = None
        """The task that was handed a record by its last call, and has not asked for another one since."""
        self._worker = Worker(None)
        """The one that asked last."""
        self._asked: weakref.WeakSet[asyncio.Task[object]] = weakref.WeakSet()
        """Tasks that have asked."""
        self._iterating: asyncio.Task[object] | None = None
        """The task that began the iteration in which a record was asked for last; None: it was asked for otherwise."""
        self.streams: list[Stream] = []
        """Streams with something in hand, those given up meanwhile included."""
        self.workers: dict[Stream, Worker] = {}
        """Of what is in hand, as soon as it was noted."""
        self.unsent: dict[Partition, None] = {}
        """Partitions that went with records of them in user code's transaction, perhaps. Agent adds, user takes out."""
        self.went: set[Partition] = set()
        """Agent adds: partitions that have gone, also where they came again. User code may not know of it yet."""
        self._emptied: asyncio.Event | None = None
        """Set when nothing is in hand any more; None: nobody waits for that."""

    def tell_when_empty(self) -> None:
        """Tell the one that waits for it when nothing is in hand any more."""
        if self._emptied is not None and not self.streams:
            self._emptied.set()

    async def until_empty(self, timeout_seconds: float) -> None:
        """Wait until nothing is in hand, and no longer than ``timeout_seconds``. One call at a time."""
        if self.streams:
            self._emptied = asyncio.Event()
            try:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._emptied.wait(), timeout_seconds)
            finally:
                self._emptied = None

    def taken(self, task: asyncio.Task[object] | None = None) -> None:
        """Note the task that works on what was handed out.

        Args:
            task: the one that asked for it; None: the task that runs.
        """
        self._holder = task if self.streams else None
        if task is not None:
            self._iterating = None
        asked = task or asyncio.current_task(self._loop)
        if asked is not self._worker.task or self._worker.helps:
            alone = asked is None or asked in self._asked
            self._worker = Worker(asked, alone=alone)
            if asked is not None and not alone:
                self._asked.add(asked)
        self._worker.iterating = self._iterating
        for stream in self.streams:
            self.workers.setdefault(stream, self._worker)

    def asked(self, task: asyncio.Task[object] | None) -> None:
        """Note a task that asks for records of any partition, which makes done what is in hand."""
        holder, self._holder = self._holder, None
        if holder is not None and holder is not task and task is not None and not holder.done():
            self.samples.asked_by_another(boot_time())

    def take_unsent(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Take out those that went with records that were not sent. Whatever is answered, they are sent no more."""
        return [partition for partition in partitions if self.unsent.pop(partition, self) is not self]

    def iterated_by(self, task: asyncio.Task[object] | None) -> None:
        """Note that records are asked for in the iteration that this task began."""
        self._iterating = task
        if self._worker.task is asyncio.current_task(self._loop):
            self._worker.iterating = task

    def has_lost(self, stream: Stream, streams: Mapping[Partition, Stream]) -> bool:
        """Return whether a call for other partitions makes done what is in hand of a stream: it was lost.

        The task that asks now will not name it any more, and of a task that has ended nobody hears.

        Args:
            stream: that has something in hand.
            streams: those that are held.
        """
        return streams.get(stream.partition) is not stream and (self._asks_that_has(stream) or self.is_left(stream))

    def _asks_that_has(self, stream: Stream) -> bool:
        """Return whether the task that asks now is the one that works on what is in hand of a stream.

        The task is noted at a call and where a run of records of one partition begins, not for each record: with two
        tasks that iterate one consumer it may be the other one.
        """
        worker = self.workers.get(stream)
        if worker is None or (task := worker.at_work()) is None:
            return False
        asks = asyncio.current_task(self._loop)
        return task is asks or any(task is waiting for waiting in waiting_for(asks))

    def is_left(self, stream: Stream) -> bool:
        """Return whether the task that worked on what is in hand of a stream has ended. Any thread."""
        worker = self.workers.get(stream)
        return worker is not None and worker.is_over()
