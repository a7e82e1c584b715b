"""The agent as the thread of user code knows it, and the way to call its thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any, TypeVar

from aiokafka.errors import ConsumerStoppedError, IllegalStateError
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.partition_stream import Stream
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.kafka.subscription import Subscription
from loadtrim_agent.runtime.agent import LEAVE_SECONDS, Agent
from loadtrim_agent.runtime.thread import AgentEndedError, AgentThread

__all__ = ["AgentLink"]

T = TypeVar("T")


class AgentLink:
    """The agent, its thread and its record buffer; all are None until the consumer is started."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        """The newest subscription of user code. The agent may not have read it yet."""
        self.thread: AgentThread | None = None
        self.agent: Agent | None = None
        self.buffer: RecordBuffer | None = None
        """Invariant: the agent's own; not None exactly when ``agent`` is not None."""
        self._giving_up: asyncio.Task[None] | None = None
        """Ends the agent of a start that failed."""

    @property
    def thread_alive(self) -> bool:
        """Return whether the agent's loop still turns."""
        return self.thread is not None and self.thread.alive

    @property
    def streams(self) -> dict[Partition, Stream]:
        """The streams of the assigned partitions."""
        return self.buffer.streams if self.buffer is not None else {}

    @property
    def held(self) -> Collection[Partition]:
        """Return what user code sees as held: what a plain listener was told, else all that is assigned."""
        streams = self.streams
        return streams if self.agent is None else self.agent.listener.reported_of(streams)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the agent's loop and return its result.

        Raises:
            ConsumerStoppedError: the consumer is not started, or it has stopped, also meanwhile.
        """
        if self.thread is None:
            work.close()
            raise ConsumerStoppedError()
        try:
            return await self.thread.run(work)
        except AgentEndedError:
            raise ConsumerStoppedError() from None

    def post(self, call: Callable[..., object], *args: object) -> None:
        """Call a function in the agent's loop soon; do nothing before the start."""
        if self.thread is not None:
            self.thread.post(call, *args)

    def need_agent(self) -> Agent:
        """Return the agent.

        Raises:
            IllegalStateError: the consumer is not started.
        """
        if self.agent is None:
            raise IllegalStateError("The consumer is not started")
        return self.agent

    def stream(self, partition: Partition) -> Stream:
        """Return the stream of an assigned partition.

        Raises:
            IllegalStateError: the partition is not assigned to this member, or its topic not subscribed any more.
        """
        stream = self.streams.get(partition)
        if stream is None or not self.is_assigned(stream):
            raise _not_assigned(partition)
        return stream

    def is_assigned(self, stream: Stream) -> bool:
        """Return whether a stream is the present one of its partition, and its topic is subscribed."""
        topic = stream.partition.topic
        return self.streams.get(stream.partition) is stream and topic in self.subscription.matches({topic})

    def stream_unless_gone(self, partition: Partition) -> Stream | None:
        """Return the stream of a partition; None: it was given away.

        That may be between two statements of user code, as in ``pause(*assignment())``. A pause ends there anyway.

        Raises:
            IllegalStateError: the partition has never been assigned to this member.
        """
        stream, buffer = self.streams.get(partition), self.buffer
        if stream is None and (buffer is None or partition not in buffer.hand.went):
            return self.stream(partition)
        return stream

    @property
    def subscribed(self) -> bool:
        """Return whether user code subscribes anything."""
        return bool(self.subscription.topics) or self.subscription.pattern is not None

    def must_subscribe(self) -> None:
        """Check that something is subscribed.

        Raises:
            IllegalStateError: nothing is.
        """
        if not self.subscribed:
            raise IllegalStateError("Not subscribed to any topics")

    def must_own(self, partitions: Iterable[Partition]) -> None:
        """Check that user code may commit offsets of ``partitions``, also of what it does not subscribe any more.

        Raises:
            IllegalStateError: nothing is subscribed, or this member has given one of them away.
        """
        self.must_subscribe()
        if not self.streams:
            raise IllegalStateError("No partitions assigned")
        for partition in partitions:
            if partition not in self.streams:
                raise _not_assigned(partition)

    def refuse_in_listener(self, caller: asyncio.Task[Any] | None, why: str, instead: str) -> None:
        """Refuse what would wait for the listener's call that it is made in, for ever.

        Raises:
            IllegalStateError: ``caller`` is the task of that call; the text says why, and what to do ``instead``.
        """
        if self.agent is not None and caller is not None and caller is self.agent.listener.calls.task:
            raise IllegalStateError(
                f"This would wait for ever within on_partitions_assigned or on_partitions_revoked: {why}. "
                f"Return from the call first, and {instead}."
            )

    async def end(self, drain_seconds: float, *, release: bool) -> None:
        """End the agent, if its loop still turns, and its thread in any case.

        A cancellation does not keep the member from leaving, and is raised when it has left: ``asyncio.run`` cancels
        every task when the program's own is over, that of a signal's handler among them, which stops the consumer.

        Args:
            drain_seconds: user code has so long to finish what it has in hand.
            release: whether partitions are handed over.
        """
        await self.until_given_up()
        await self._end(drain_seconds, release=release)

    async def give_up(self) -> None:
        """End the agent of a start that failed, and forget its thread.

        The group may know the member already, and would wait for it until its session ends. So it ends in a task of its
        own: a caller that is cancelled again and again, as by anyio, leaves the wait and not the member in the group.
        """
        self._giving_up = asyncio.ensure_future(self._give_up())
        await self.until_given_up()

    async def until_given_up(self) -> None:
        """Wait until the agent of a start that failed has ended."""
        if self._giving_up is not None and not self._giving_up.done():  # else its loop may be closed
            await asyncio.wait([self._giving_up])

    async def _give_up(self) -> None:
        try:
            with contextlib.suppress(Exception):
                await self._end(0.0, release=False)
        finally:
            self.thread = None

    async def _end(self, drain_seconds: float, *, release: bool) -> None:
        try:
            if self.agent is not None and self.thread_alive and self.thread is not None:
                stopping = self.thread.submit(self.agent.stop(drain_seconds, release=release))
                await _see_through(asyncio.wrap_future(stopping), drain_seconds + LEAVE_SECONDS)
        except AgentEndedError:  # It has ended just now.
            pass
        finally:
            if self.thread is not None:
                await self.thread.stop()


async def _see_through(stopping: asyncio.Future[None], seconds: float) -> None:
    """Wait for a stop; after a first cancellation for so many more ``seconds``, after a second one no longer."""
    try:
        await asyncio.wait([stopping])
    except asyncio.CancelledError:
        await asyncio.wait([stopping], timeout=seconds)
        raise
    if not stopping.cancelled():  # The agent's loop cancels what is left when it ends.
        stopping.result()


def _not_assigned(partition: Partition) -> IllegalStateError:
    return IllegalStateError(f"Partition {TopicPartition(*partition)} is not assigned")
