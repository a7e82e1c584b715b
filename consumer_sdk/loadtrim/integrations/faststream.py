"""FastStream's broker for Kafka, whose groups are loadtrim's.

    from loadtrim.integrations.faststream import KafkaBroker    # was: from faststream.kafka import KafkaBroker

All else stays as it is: subscribers, acknowledgement, batches, patterns, workers, listeners, tests. Needs
``loadtrim[faststream]``.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from math import inf
from types import TracebackType
from typing import Any, TypeAlias

import faststream.kafka
from aiokafka import AIOKafkaConsumer
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.structs import ConsumerRecord, TopicPartition
from faststream import BaseMiddleware

from loadtrim.consumer import Consumer
from loadtrim.managed import Batches
from loadtrim.work import Work
from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.delivery.listener import IncrementalRebalanceListener

__all__ = ["KafkaBroker"]

Record: TypeAlias = ConsumerRecord[Any, Any]


class KafkaBroker(faststream.kafka.KafkaBroker):
    """``faststream.kafka.KafkaBroker`` with a :class:`loadtrim.Consumer` for each subscriber with a ``group_id``.

    A subscriber without a group keeps aiokafka's consumer: there is nothing to share. ``LOADTRIM_*`` variables
    configure all others.
    """

    async def _connect(self) -> Callable[..., Any]:
        await super()._connect()
        if HandlerOutcome not in self.config.broker_middlewares:
            self.insert_middleware(HandlerOutcome)  # The outermost: what the application's own do is work too.
        config: Any = self.config.broker_config
        config.builder = partial(consumer_of, **config.builder.keywords)
        return config.builder  # type: ignore[no-any-return]

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Stop all subscribers. Their members leave side by side with the handlers at work."""
        # A subscriber waits for its handlers before it stops its consumer, and takes no further record meanwhile.
        for subscriber in self.subscribers:
            for consumer in consumers_of(subscriber):
                subscriber.running = False  # As its own stop does first: no handler begins with what is given up here.
                await consumer.begin_to_leave()
        await super().stop(exc_type, exc_val, exc_tb)


def consumer_of(group_id: str | None = None, **options: Any) -> FrameworkConsumer | AIOKafkaConsumer:
    """Make the consumer of a subscriber."""
    if group_id is None:
        return AIOKafkaConsumer(**options)
    consumer = Consumer(group_id=group_id, **options)
    return FrameworkConsumer(consumer, told=options.get("enable_auto_commit", True))


def consumers_of(subscriber: Any) -> list[FrameworkConsumer]:
    """Return the consumers of a subscriber that has started, those of loadtrim."""
    consumers = getattr(subscriber, "consumer_subgroup", None) or [getattr(subscriber, "consumer", None)]
    return [consumer for consumer in consumers if isinstance(consumer, FrameworkConsumer)]


class FrameworkConsumer:
    """The consumer as FastStream has it, which hears from :class:`HandlerOutcome` what became of its records.

    With ``AckPolicy.ACK_FIRST``, the default, the consumer commits by itself, and FastStream says nothing of a record.
    Such a consumer is told here of each single record, for a subscriber with ``max_workers`` works on several. A batch
    is done by the next call. With all other policies a commit tells.

    Args:
        consumer: has everything that is not here.
        told: it commits by itself.
    """

    def __init__(self, consumer: Consumer, *, told: bool) -> None:
        self.consumer = consumer
        self._told = told
        self._waiting: dict[int, Work] = {}
        """By identity, records that no handler has begun with: of one that was lost and comes again there are two.

        Invariant: empty where commits tell.
        """
        self._batch_handled = False
        """A handler has ended with the last batch, and nothing was asked for since."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.consumer, name)

    def __aiter__(self) -> AsyncIterator[Record]:
        return aiter(self.consumer)

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribe topics, or a pattern, as ``Consumer.subscribe`` does."""
        if listener is not None and needs_moves_only(listener):
            listener = ToldWhatMoves(listener)
        self.consumer.subscribe(topics=topics, pattern=pattern, listener=listener)

    async def getone(self, *partitions: TopicPartition) -> Record:
        """Return the next record, as ``Consumer.getone`` does."""
        record = await self.consumer.getone(*partitions)
        if self._told:
            self._waiting[id(record)] = self.consumer.work(record)
        return record

    async def getmany(self, *partitions: TopicPartition, **options: Any) -> Batches:
        """Return the next records, as ``Consumer.getmany`` does."""
        batches = await self.consumer.getmany(*partitions, **options)
        self._batch_handled = False  # Not before: a call that is cancelled may not have told of the last batch.
        return batches

    async def begin_to_leave(self) -> None:
        """Give away what no handler works on, and the rest as handlers end. The drain time begins with :meth:`stop`."""
        if self.consumer._client.buffer is not None:  # aiokafka's own gives nothing away before it leaves.
            await self._give_up_waiting()
            self.consumer._client.end_iteration(at_once=False, drain_seconds=inf)

    async def _give_up_waiting(self) -> None:
        """Give up what no handler has begun with. FastStream drops it: the next owner works on it."""
        for work in self._waiting.values():
            await work.__aexit__(CancelledError, None, None)
        self._waiting.clear()

    async def stop(self) -> None:
        """Leave the group, with all that handlers have ended with done."""
        await self._give_up_waiting()
        buffer = self.consumer._client.buffer
        if self._batch_handled and buffer is not None:
            # As a further call would make the batch done. That could raise, or be cancelled where the handler itself
            # stops the subscriber. Without an agent it would take a record, and aiokafka commits what it handed out.
            buffer.asked(boot_time(), ())
        await self.consumer.stop()

    def begin(self, record: Record) -> Work | None:
        """Return the work on a record that a handler begins with; None where a call or a commit tells of it."""
        return self._waiting.pop(id(record), None)

    def end_batch(self) -> None:
        """Note that a handler has ended with the last batch."""
        self._batch_handled = self._told


def needs_moves_only(listener: ConsumerRebalanceListener) -> bool:
    """Return whether a listener is FastStream's own, and the application's behind it is incremental, or there is none.

    Each subscriber has one that writes to the log, and keeps nothing with a partition.
    """
    if not type(listener).__module__.startswith("faststream."):
        return False
    of_application = getattr(listener, "listener", None)
    return of_application is None or isinstance(of_application, IncrementalRebalanceListener)


class ToldWhatMoves(IncrementalRebalanceListener):
    """The listener passes on what comes and what goes to another one, which takes that for what is held and lost.

    A plain listener would be told at each move that all goes and comes anew. What is in hand for long would be handed
    out again.

    Args:
        listener: that is told.
    """

    def __init__(self, listener: ConsumerRebalanceListener) -> None:
        self._listener = listener

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Awaitable[None] | None:
        told: Awaitable[None] | None = self._listener.on_partitions_revoked(revoked)
        return told

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Awaitable[None] | None:
        told: Awaitable[None] | None = self._listener.on_partitions_assigned(assigned)
        return told


class HandlerOutcome(BaseMiddleware[Any, Any]):
    """The middleware tells the consumer when a handler ends with a record.

    An error of the handler ends the work too, as FastStream counts it with ``ACK_FIRST``. A handler that was cancelled
    has not done its work.
    """

    async def on_receive(self) -> None:
        # Not set where the application asks for the record by itself (`get_one()`): its next call tells.
        subscriber = self.context.get_local("handler_")
        consumer = getattr(subscriber, "consumer", None)
        self._consumer = consumer if isinstance(consumer, FrameworkConsumer) else None
        single = self._consumer is not None and not isinstance(self.msg, tuple)
        self._work = self._consumer.begin(self.msg) if self._consumer is not None and single else None
        if self._work is not None:
            await self._work.__aenter__()

    async def after_processed(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> bool | None:
        cut_short = exc_type is not None and not issubclass(exc_type, Exception)
        if self._work is not None:
            await self._work.__aexit__(exc_type if cut_short else None, exc_val, exc_tb)
        elif self._consumer is not None and isinstance(self.msg, tuple) and not cut_short:
            self._consumer.end_batch()
        return False
