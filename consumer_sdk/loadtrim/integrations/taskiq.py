"""Taskiq's broker for Kafka, whose group of workers is loadtrim's.

    from loadtrim.integrations.taskiq import AioKafkaBroker    # was: from taskiq_aio_kafka import AioKafkaBroker

A ``group_id`` is needed: ``broker.configure_consumer(group_id="workers")``. Needs ``loadtrim[taskiq]``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from math import inf
from types import FunctionType
from typing import Any, TypeAlias, TypeVar

import taskiq_aio_kafka
from aiokafka.structs import ConsumerRecord
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from taskiq import AckableMessage

from loadtrim.consumer import Consumer

__all__ = ["AioKafkaBroker"]

log = logging.getLogger("loadtrim")

Record: TypeAlias = ConsumerRecord[Any, Any]
Function = TypeVar("Function", bound=Callable[..., Any])


def consumer_of(*topics: str, partition_assignment_strategy: Any = None, **options: Any) -> Consumer:
    """Make the consumer of a worker, in the place of ``AIOKafkaConsumer``.

    Raises:
        ValueError: an argument that a group of loadtrim cannot honour; the message says what to do instead.
    """
    if not options.get("group_id"):
        raise ValueError(
            "The broker has no group_id, so each worker would be given every task. Call "
            'broker.configure_consumer(group_id="...") before it starts, or import the broker from taskiq_aio_kafka.'
        )
    # The broker's default, of another library than aiokafka.
    if partition_assignment_strategy not in (None, (RoundRobinPartitionAssignor,)):
        options["partition_assignment_strategy"] = partition_assignment_strategy
    return Consumer(*topics, **options)


def _with_names(function: Function, **names: Any) -> Function:
    """Return a function like this one, that reads these names elsewhere than in its module, which stays as it is."""
    own: Any = function
    made: Any = FunctionType(
        own.__code__, {**own.__globals__, **names}, own.__name__, own.__defaults__, own.__closure__
    )
    made.__kwdefaults__ = own.__kwdefaults__
    made.__doc__ = own.__doc__
    return made  # type: ignore[no-any-return]


class AioKafkaBroker(taskiq_aio_kafka.AioKafkaBroker):  # type: ignore[misc]
    """``taskiq_aio_kafka.AioKafkaBroker`` with a :class:`loadtrim.Consumer` in each worker.

    A worker takes tasks before it executes them, and executes several at once. Each is done when taskiq acknowledges
    it, by default when its result is saved (``--ack-type``). What a worker leaves behind, another one executes.
    """

    # The method makes the consumer that it starts, and asks nobody which one.
    startup = _with_names(taskiq_aio_kafka.AioKafkaBroker.startup, AIOKafkaConsumer=consumer_of)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yield tasks, each with the call that acknowledges it."""
        if not self._is_consumer_started:
            raise ValueError("Please run startup before listening.")
        consumer: Consumer = self._aiokafka_consumer
        try:
            with suppress(StopAsyncIteration):
                while True:
                    record = await asked_for_apart(consumer)
                    # Unchecked: taskiq acknowledges what is no task. An error here would end each worker in turn.
                    yield AckableMessage.model_construct(data=record.value, ack=Delivery(consumer, record))
        finally:
            # Taskiq waits for its tasks before it stops the consumer, and takes no further one meanwhile. What is idle
            # goes now, the rest as tasks end; the drain time begins with `shutdown`.
            if consumer._client.buffer is not None:
                consumer._client.end_iteration(at_once=False, drain_seconds=inf)


async def asked_for_apart(consumer: Consumer) -> Record:
    """Return the next record, which a task of its own asks for.

    The consumer keeps the task that asked for what is in hand, and a task keeps what it returns. Taskiq's own returns
    the delivery, of which it would never be known that taskiq has forgotten it.

    Raises:
        StopAsyncIteration: the consumer has stopped.
    """

    async def ask() -> Record:
        return await anext(consumer)

    asking = asyncio.create_task(ask())
    try:
        await _end_of(asking)
    except asyncio.CancelledError:
        asking.cancel()
        await asyncio.wait([asking])
        if asking.cancelled() or asking.exception() is not None:
            raise
    return asking.result()  # Also where it came as the call was cancelled: taskiq executes that.


async def _end_of(task: asyncio.Task[Any]) -> None:
    """Wait for the end of a task in a way that does not look like waiting for what it returns."""
    ended = asyncio.Event()
    task.add_done_callback(lambda _: ended.set())
    await ended.wait()


class Delivery:
    """A task that a worker has in hand. A call of it acknowledges the task.

    Taskiq forgets it without a call where the worker ends before the task begins, and where a middleware fails. The
    record is not done then, and nobody works on it.

    Args:
        consumer: that handed the record out.
        record: the task.
    """

    def __init__(self, consumer: Consumer, record: Record) -> None:
        self._consumer = consumer
        self._record = record
        self._work = consumer.work(record)
        self._acknowledged = False

    def __call__(self) -> None:
        self._acknowledged = True
        self._consumer.done(self._record)

    def __del__(self) -> None:
        if self._acknowledged or self._consumer._client.buffer is None:  # Plain aiokafka has committed it.
            return
        record = self._record
        log.warning(
            "The task at offset %d of %s-%d was taken and never acknowledged. Nothing of the partition from there on "
            "is committed, and each new owner executes all of that again, until one acknowledges this task.",
            record.offset,
            record.topic,
            record.partition,
        )
        with suppress(StopIteration, RuntimeError):  # The end of a block awaits nothing. The loop may be closed.
            self._work.__aexit__(LookupError, None, None).send(None)
