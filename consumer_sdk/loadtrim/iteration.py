"""``async for`` over the records of a consumer, and ``anext`` with a time limit."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiokafka.errors import ConsumerStoppedError, RecordTooLargeError
from aiokafka.structs import ConsumerRecord

from loadtrim_agent.delivery.record_buffer import RecordBuffer

__all__ = ["Records", "Source", "has_own", "next_of", "source_of"]


class Source(Protocol):
    """Has records to iterate over."""

    @property
    def buffer(self) -> RecordBuffer | None:
        """The agent's; None: there is no agent."""

    async def getone(self) -> ConsumerRecord[Any, Any]:
        """Return the next record."""


class _Subclass:
    """Ask a subclass that has a ``getone`` of its own for each record."""

    buffer = None

    def __init__(self, consumer: Source) -> None:
        self._consumer = consumer

    async def getone(self) -> ConsumerRecord[Any, Any]:
        return await self._consumer.getone()


def source_of(consumer: Any, base: type, client: Source) -> Source:
    """Return what an iteration asks for records.

    Args:
        consumer: that is iterated over: asked itself, where its class has a ``getone`` of its own.
        base: the class that has ours.
        client: has the records.
    """
    return client if not has_own(consumer, base, "getone") else _Subclass(consumer)


def has_own(consumer: Any, base: type, name: str) -> bool:
    """Return whether a consumer, or its class, has a method of this name that is not the base class's."""
    # As it stands in the class: what wraps it there (instrumentation) is another object at each access.
    own, ours = (inspect.getattr_static(kind, name) for kind in (type(consumer), base))
    return own is not ours or name in getattr(consumer, "__dict__", {})


class Records:
    """An iteration over the records of a consumer.

    Each record is asked for by a coroutine of its own, as in aiokafka. So an iteration goes on after an error of one
    call and after a time limit, as of ``wait_for(anext(records), 1.0)``, and several tasks may share it.

    Args:
        source: has them.
        begun_by: the task that works on the records, also where it has the next one asked for by another:
            ``wait_for(anext(records), ...)`` does so before Python 3.12.
        ended: set when the consumer has stopped.
    """

    __slots__ = ("__weakref__", "_begun_by", "_buffer", "_ended", "_source")

    def __init__(self, source: Source, begun_by: asyncio.Task[Any] | None, ended: asyncio.Event) -> None:
        self._source = source
        self._begun_by = begun_by
        self._ended = ended
        self._buffer: RecordBuffer | None = None
        """Records are taken from it without a call. None: each is asked for by a call. That is so without an agent, and
        as long as user code may begin to say itself what is done."""

    def __aiter__(self) -> Records:
        return self

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        # The hot path: it talks to the record buffer itself, and awaits only where that has nothing.
        buffer = self._buffer
        if buffer is not None and (errors := buffer.errors).general is None and not errors.of_partitions:
            record = buffer.take_one()
            if record is not None:
                return record
        return await self._ask()

    async def _ask(self) -> ConsumerRecord[Any, Any]:
        source = self._source
        try:
            record = await next_of(source.getone(), source.getone)
        except ConsumerStoppedError:
            self._ended.set()
            raise StopAsyncIteration from None
        buffer = source.buffer
        if buffer is not None:
            buffer.hand.iterated_by(self._begun_by)
            self._buffer = None if buffer.hand.telling.undecided else buffer
        return record


async def next_of(
    asked: Awaitable[ConsumerRecord[Any, Any]], getone: Callable[[], Awaitable[ConsumerRecord[Any, Any]]]
) -> ConsumerRecord[Any, Any]:
    """Return the next record of an iteration. One that is too large is in the log, and passed over as in aiokafka.

    Args:
        asked: for it, by the task that works on the records.
        getone: asks once more.
    """
    while True:
        try:
            return await asked
        except RecordTooLargeError:
            asked = getone()
