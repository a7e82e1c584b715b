"""``Consumer``: an ``AIOKafkaConsumer`` whose group keeps its latency promise by itself."""

from __future__ import annotations

import asyncio
import logging
import warnings
import weakref
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeAlias

from aiokafka import AIOKafkaProducer
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import ConsumerStoppedError
from aiokafka.structs import ConsumerRecord, OffsetAndTimestamp, TopicPartition

from .arguments import Arguments, loop_of
from .internals import CoordinatorView, SubscriptionView
from .iteration import Records, Source, has_own, next_of, source_of
from .last_record import coroutine_function
from .managed import Batches, ManagedConsumer
from .plain import PlainConsumer
from .settings import Settings
from .signals import StopSignals
from .work import Work

__all__ = ["Consumer"]

log = logging.getLogger("loadtrim")

Implementation: TypeAlias = ManagedConsumer | PlainConsumer
"""The port: both have every method that :class:`Consumer` calls, with its meaning
(`tests/unit/sdk/test_consumer.py` holds them against each other)."""


class Consumer:
    """Drop-in for ``aiokafka.AIOKafkaConsumer`` in a consumer group.

    Args:
        topics: names to subscribe (or call :meth:`subscribe`).
        settings: None: from the environment (``LOADTRIM_*``).
        handle_signals: on SIGTERM, when on the main thread and nobody else handles it, end the iteration after the
            record in hand, hand partitions over and leave; a second SIGTERM at once. All consumers of a process do so
            side by side. A program that goes on for ``LOADTRIM_EXIT_SECONDS`` after that is ended.
        registry: Prometheus registry of the metrics; None: the default one.
        kwargs: those of ``AIOKafkaConsumer``, with their meaning and defaults. Different: ``rebalance_timeout_ms``
            (default and least: twice the session timeout), ``heartbeat_interval_ms`` (an upper bound),
            ``max_poll_interval_ms`` (when exceeded the member says so, counts it and leaves).

    Raises:
        ValueError, TypeError: an argument that a self-managed group cannot honour; the message says what to do instead.
        SettingsError: a ``LOADTRIM_*`` variable cannot be used.

    A record (or a batch of :meth:`getmany`) is *done* when the next call is made that could return records of its
    partition; auto-commit commits what is done, no more. Handing records to tasks of your own makes them done too
    early, and so does asking for records in several tasks: say with :meth:`work` when each is done, await them before
    asking for the next record, or commit yourself with ``enable_auto_commit=False``.
    """

    def __init__(
        self,
        *topics: str,
        settings: Settings | None = None,
        handle_signals: bool = True,
        registry: Any = None,
        **kwargs: Any,
    ) -> None:
        if settings is None:
            settings = Settings.from_env()
        arguments = Arguments.read(topics, kwargs, enabled=settings.enabled)
        user_loop = loop_of(kwargs)
        self._client: Implementation = (
            ManagedConsumer(arguments, settings, topics, user_loop=user_loop, registry=registry)
            if settings.enabled
            else PlainConsumer(*topics, **kwargs)
        )
        self._signals = StopSignals(
            self._client,
            enabled=handle_signals,
            drain_seconds=settings.drain_seconds,
            exit_seconds=settings.exit_seconds,
            hurries=settings.enabled,
        )
        self._ended = asyncio.Event()
        """Set when an iteration came to its end: there is nothing more to iterate over."""
        self._positions = self._client.positions
        self._queries = self._client.queries
        self._arguments = arguments
        # Names of aiokafka's that frameworks and programs read; two more are the implementation's own.
        self._loop = user_loop
        self._group_id = arguments.group_id
        self._coordinator = CoordinatorView(self._client)
        self._subscription = SubscriptionView(self._client)
        self._unclosed = weakref.finalize(self, _warn_if_unclosed, self._client, arguments.group_id)
        self._unclosed.atexit = False

    # -- life cycle ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect and join the group, with or without a subscription; returns when the member has its generation.

        Raises:
            ConsumerStoppedError: SIGTERM has told this process to end, before or meanwhile. The member has left.
            aiokafka.errors.KafkaError: as ``AIOKafkaConsumer.start`` does.
        """
        self._signals.check()
        with self._signals.starting():
            try:
                await self._client.start()
                self._signals.check()
            except ConsumerStoppedError:
                await self._client.stop(at_once=self._signals.at_once)
                raise

    async def stop(self) -> None:
        """Hand partitions over, commit what is done, leave the group: within ``LOADTRIM_DRAIN_SECONDS``."""
        try:
            await self._client.stop(at_once=self._signals.at_once)
            self._unclosed.detach()  # It holds the client, and the client's listener may know this consumer.
        finally:
            self._signals.remove()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # -- records -------------------------------------------------------------------------------------------------

    @coroutine_function
    def getone(self, *partitions: TopicPartition) -> Coroutine[Any, Any, ConsumerRecord[Any, Any]]:
        """The next record, of any partition held or of those given; waits for one.

        Raises:
            ConsumerStoppedError: the consumer is stopping. TypeError: what is given is no ``TopicPartition``.
        """
        return self._client.getone(*partitions)

    @coroutine_function
    def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> Coroutine[Any, Any, Batches]:
        """Records that are there, 1,024 where no limit is given; waits ``timeout_ms`` for the first, or until stopped.

        Raises:
            ConsumerStoppedError: the consumer was stopping already. ValueError: ``max_records`` is not positive.
            TypeError: what is given is no ``TopicPartition``.
        """
        return self._client.getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records)

    def work(self, message: ConsumerRecord[Any, Any]) -> Work:
        """Say that a record is worked on: ``async with consumer.work(message):`` around what is done with it.

        It is done at the end of the block, in whatever order records end, for tasks of your own. From the first call
        on every record is done only when you say so, those too that you skip. Auto-commit commits what lies below the
        first that is not done.

        An exception in the block leaves the record undone. Nothing from it on is committed until a later block around
        it ends well, or :meth:`done` is called. A record that went to another member is theirs: nothing is told.
        Of several blocks that are open around one record the end of the last one counts.

        Args:
            message: as it was handed out. Enter the block before anything is awaited.

        Raises:
            TypeError: it is no record.
        """
        return self._client.work(message)

    def done(self, message: ConsumerRecord[Any, Any]) -> bool:
        """Say that a record is done; see :meth:`work`. May be called in any thread.

        A record is known by its topic, partition and offset: a copy will do, and so would that of another consumer of
        the same log. With ``LOADTRIM_ENABLED=false`` nothing can be told, and this returns False.

        Returns:
            False: it was done already, it was never handed out here, it went to another member, or the consumer has
            stopped. In another thread than the loop's True, unless the consumer has stopped.

        Raises:
            TypeError: it is no record.
        """
        return self._client.done(message)

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[Any, Any]]:
        """Iterate over records until the consumer stops, by :meth:`stop` or SIGTERM.

        Raises:
            ConsumerStoppedError: it has stopped, and an iteration has ended for that already.
        """
        if self._client.closed or self._ended.is_set():
            raise ConsumerStoppedError(
                "The consumer has stopped (stop() or SIGTERM), and its records have ended before. Leave the "
                "loop around async for."
            )
        if has_own(self, Consumer, "__anext__"):
            return self  # as aiokafka's iterates: a subclass may do more with each record
        return Records(source_of(self, Consumer, self._client), asyncio.current_task(), self._ended)

    @coroutine_function
    def __anext__(self) -> Coroutine[Any, Any, ConsumerRecord[Any, Any]]:
        source = source_of(self, Consumer, self._client)
        return _next(source.getone(), source)

    # -- subscriptions -------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribe topics, or a pattern; replaces what was subscribed. See ``AIOKafkaConsumer.subscribe``."""
        self._client.subscribe(topics=topics, pattern=pattern, listener=listener)

    def unsubscribe(self) -> None:
        """Give everything up; the member stays in the group with nothing to own until it subscribes again.

        A partition with a record in hand goes when that is done: at the next call, which returns no more of it.
        """
        self._client.unsubscribe()

    def subscription(self) -> frozenset[str]:
        """Topics subscribed now."""
        return frozenset(self._client.subscription())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Refused: partitions are the group's to give. With ``LOADTRIM_ENABLED=false``: as in aiokafka."""
        self._client.assign(list(partitions))

    def assignment(self) -> set[TopicPartition]:
        """Partitions held now."""
        return set(self._client.assignment())

    # -- positions and commits -----------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        """Commit, and wait for the broker's answer. Without arguments: the positions of all partitions held.

        A position does not lie beyond a record of which :meth:`work` says that it is not done.

        Raises:
            CommitFailedError: a partition went to another member meanwhile. IllegalStateError: it is not held.
            ValueError: ``offsets`` cannot be read. KafkaError: the broker refused.
        """
        await self._positions.commit(offsets)

    async def send_offsets_to_transaction(self, producer: AIOKafkaProducer, offsets: Mapping[Any, Any]) -> None:
        """Commit ``offsets`` as part of the producer's open transaction: exactly-once (KIP-447).

        Like ``producer.send_offsets_to_transaction(offsets, group_id)``, and refused where this member does not hold
        the partitions any more: the broker checks the group's generation, and no handoff overtakes the transaction.

        Args:
            producer: within a transaction.
            offsets: as for :meth:`commit`; of partitions held.

        Raises:
            CommitFailedError: a partition went to another member meanwhile: abort the transaction.
            IllegalStateError: a partition is not held, or auto-commit is on. IllegalOperation: no transaction is open.
            ValueError: ``offsets`` cannot be read. KafkaError: the broker refused.
        """
        await self._positions.send_offsets_to_transaction(producer, offsets)

    async def committed(self, partition: TopicPartition) -> int | None:
        """The group's committed offset; None where there is none."""
        return await self._positions.committed(partition)

    async def position(self, partition: TopicPartition) -> int:
        """The offset handed out next."""
        return await self._positions.position(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Hand out from ``offset`` on. What is in hand counts as done only by the next commit."""
        self._positions.seek(partition, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Hand out from the first record on, of these partitions or of all held."""
        return bool(await self._positions.seek_to_beginning(*partitions))

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Hand out only what comes from now on, of these partitions or of all held."""
        return bool(await self._positions.seek_to_end(*partitions))

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Hand out from the committed offsets on; returns them."""
        return dict(await self._positions.seek_to_committed(*partitions))

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand nothing out of these until :meth:`resume`. They stay owned, and are kept out of sizing.

        Of a partition that was given away meanwhile nothing is paused, as a pause ends there.

        Raises:
            IllegalStateError: a partition has never been assigned to this member.
        """
        self._positions.pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Hand records out again; see :meth:`pause`."""
        self._positions.resume(*partitions)

    def paused(self) -> set[TopicPartition]:
        """Partitions paused now."""
        return set(self._positions.paused())

    # -- what the cluster knows ----------------------------------------------------------------------------------

    async def topics(self) -> set[str]:
        """All topics that this user may see."""
        return set(await self._queries.topics())

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Partition numbers of a topic; None where its metadata is not known."""
        return self._queries.partitions_for_topic(topic)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """See ``AIOKafkaConsumer.offsets_for_times``; timestamps in milliseconds."""
        return dict(await self._queries.offsets_for_times(dict(timestamps)))

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each."""
        return dict(await self._queries.beginning_offsets(list(partitions)))

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each."""
        return dict(await self._queries.end_offsets(list(partitions)))

    def highwater(self, partition: TopicPartition) -> int | None:
        """End of the log as the last fetch told it; None before the first."""
        return self._queries.highwater(partition)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """See ``AIOKafkaConsumer.last_stable_offset``."""
        return self._queries.last_stable_offset(partition)

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """When :meth:`highwater` was updated last, milliseconds."""
        return self._queries.last_poll_timestamp(partition)


def _warn_if_unclosed(client: Implementation, group: str) -> None:
    """Warn of a consumer that is gone, though nobody has stopped it."""
    if client.unclosed:
        log.warning(
            "A consumer of group %s was dropped without stop(): its member stays in the group and keeps its "
            "partitions, of which nothing is consumed, until max_poll_interval_ms has passed or the process ends. Use "
            "`async with`, or call stop() in a `finally`.",
            group,
        )
        # In aiokafka's words, so that filters of warnings that a program has for it go on to work.
        warnings.warn(
            f"Unclosed AIOKafkaConsumer, which is a loadtrim.Consumer of {client!r}: call stop(), or use `async with`",
            ResourceWarning,
            source=client,
            stacklevel=2,
        )


async def _next(asked: Awaitable[ConsumerRecord[Any, Any]], source: Source) -> ConsumerRecord[Any, Any]:
    """Await a record of an iteration, which ends where the consumer stops."""
    try:
        return await next_of(asked, source.getone)
    except ConsumerStoppedError:
        raise StopAsyncIteration from None
