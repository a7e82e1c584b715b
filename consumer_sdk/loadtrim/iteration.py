"""``async for`` over the records of a consumer, and ``anext`` with a time limit."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
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

    Theory of operation. A generator costs less per record than a coroutine of ``__anext__`` each. But an exception ends
    it: an error of one call, or a time limit, as of ``wait_for(anext(records), 1.0)``. An iterator of aiokafka goes on
    after that. So each generator that an exception ends is followed by another one. ``__anext__`` is a slot that holds
    the present one's: a call of it runs no Python beside the generator's own.

    Args:
        source: has them.
        begun_by: the task that works on the records, also where it has the next one asked for by another:
            ``wait_for(anext(records), ...)`` does so before Python 3.12.
        ended: set when the consumer has stopped.
    """

    __slots__ = ("__anext__", "__weakref__", "_begun_by", "_ended", "_source")

    __anext__: Callable[[], Awaitable[ConsumerRecord[Any, Any]]]

    def __init__(self, source: Source, begun_by: asyncio.Task[Any] | None, ended: asyncio.Event) -> None:
        self._source = source
        self._begun_by = begun_by
        self._ended = ended
        self.begin()

    def __aiter__(self) -> Records:
        return self

    def begin(self) -> None:
        """Let records come from a new generator."""
        # No cycle: a loop that is left lets go of its generator at once.
        successor = weakref.WeakMethod(self.begin)
        self.__anext__ = _records(self._source, self._begun_by, self._ended, successor).__anext__


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


async def _records(
    source: Source,
    begun_by: asyncio.Task[Any] | None,
    ended: asyncio.Event,
    successor: weakref.WeakMethod[Callable[[], None]],
) -> AsyncGenerator[ConsumerRecord[Any, Any]]:
    # The hot path: it talks to the record buffer itself, and awaits only where that has nothing.
    buffer, getone = source.buffer, source.getone
    undecided = buffer is not None and buffer.hand.telling.undecided
    if buffer is not None:
        buffer.hand.iterated_by(begun_by)
    try:
        while True:
            while buffer is not None and not undecided:
                if (errors := buffer.errors).general is not None or errors.of_partitions:
                    break
                record = buffer.take_one()
                if record is None:
                    break
                yield record
            record = await next_of(getone(), getone)
            if buffer is not None:
                buffer.hand.iterated_by(begun_by)
                undecided = buffer.hand.telling.undecided
            yield record
    except ConsumerStoppedError:
        ended.set()
    except GeneratorExit:
        raise
    except BaseException:
        if (begin := successor()) is not None:
            begin()
        raise
