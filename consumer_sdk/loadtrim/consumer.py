"""``Consumer``: an ``AIOKafkaConsumer`` whose group keeps its latency promise by itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import ConsumerStoppedError, IllegalStateError
from aiokafka.structs import ConsumerRecord, OffsetAndTimestamp, TopicPartition
from aiokafka.util import commit_structure_validate

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.partition_stream import Stream
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.kafka.connections import check_settings
from loadtrim_agent.kafka.fetch.fetcher import KafkaFetcher
from loadtrim_agent.kafka.fetch.offsets import OffsetQueries
from loadtrim_agent.kafka.subscription import Subscription
from loadtrim_agent.runtime.agent import Agent, AgentOptions
from loadtrim_agent.runtime.services import Services
from loadtrim_agent.runtime.thread import AgentThread
from loadtrim_agent.wire.topic_names import control_topic

from .arguments import Arguments, check_subscription, compiled, loop_of
from .settings import Settings
from .signals import EndableWait, StopSignals
from .transactions import FencedGroup, send_offsets
from .watch import AgentWatch

__all__ = ["Consumer"]

log = logging.getLogger("loadtrim")
T = TypeVar("T")

NO_RECORDS_WAIT_SECONDS = 1.0
"""How long user code sleeps at most before it looks again: for a lease that came back without a record."""


class Consumer:
    """Drop-in for ``aiokafka.AIOKafkaConsumer`` in a consumer group.

    Args:
        topics: names to subscribe (or call :meth:`subscribe`).
        settings: None: from the environment (``LOADTRIM_*``).
        handle_signals: on SIGTERM, when on the main thread and nobody else handles it, end the iteration after the
            record in hand, hand partitions over and leave; a second SIGTERM at once.
        registry: Prometheus registry of the metrics; None: the default one.
        kwargs: those of ``AIOKafkaConsumer``, with their meaning and defaults. Different: ``rebalance_timeout_ms``
            (default and least: twice the session timeout), ``heartbeat_interval_ms`` (an upper bound),
            ``max_poll_interval_ms`` (when exceeded the member says so, counts it and leaves).

    Raises:
        ValueError, TypeError: an argument that a self-managed group cannot honour; the message says what to do instead.
        SettingsError: a ``LOADTRIM_*`` variable cannot be used.

    A record (or a batch of :meth:`getmany`) is *done* when the next call is made that could return records of its
    partition; auto-commit commits what is done, no more. Handing records to tasks of your own makes them done too
    early: await them before asking for the next record, or commit yourself with ``enable_auto_commit=False``.
    """

    def __init__(
        self,
        *topics: str,
        settings: Settings | None = None,
        handle_signals: bool = True,
        registry: Any = None,
        **kwargs: Any,
    ) -> None:
        self._settings = settings if settings is not None else Settings.from_env()
        self._arguments = Arguments.read(topics, kwargs, enabled=self._settings.enabled)
        self._user_loop = loop_of(kwargs)
        self._subscription = Subscription(
            topics=tuple(sorted(topics)),
            exclude_internal=self._arguments.exclude_internal_topics,
        )
        self._listener: ConsumerRebalanceListener | None = None
        self._signals = StopSignals(self._stop_asked, enabled=handle_signals)
        self._plain: AIOKafkaConsumer | None = None
        self._plain_wait = EndableWait()
        if self._settings.enabled:
            check_settings(self._arguments.kafka, self._user_loop)
            self._services = Services(
                self._settings,
                group=self._arguments.group_id,
                client_id=self._arguments.client_id,
                registry=registry,
            )
        else:
            self._plain = AIOKafkaConsumer(*topics, **kwargs)
        self._thread: AgentThread | None = None
        self._agent: Agent | None = None
        self._buffer: RecordBuffer | None = None
        self._put_aside: dict[Partition, Stream] = {}
        """Not subscribed any more, and not yet given up."""
        self._watch: AgentWatch | None = None
        self._closed = False
        self._stopping: asyncio.Task[None] | None = None

    # -- life cycle ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect and join the group, with or without a subscription; returns when the member has its generation.

        Raises:
            aiokafka.errors.KafkaError: as ``AIOKafkaConsumer.start`` does.
        """
        if self._plain is not None:
            await self._plain.start()
            self._signals.install()
            return
        if self._agent is not None:
            raise IllegalStateError("start() was called twice")
        self._thread = AgentThread(self._arguments.client_id)
        self._thread.start()
        try:
            self._agent = await self._in_agent(self._make_agent())
            self._buffer = self._agent.buffer
            self._watch = AgentWatch(self._agent, self._thread)
            self._agent.listener.target = self._listener
            await self._in_agent(self._agent.start())
        except BaseException:
            await self._abort_start()
            raise
        self._signals.install()

    async def _abort_start(self) -> None:
        self._closed = True
        with contextlib.suppress(Exception):
            if self._agent is not None:
                await self._in_agent(self._agent.close())
        if self._thread is not None:
            await self._thread.stop()

    async def _make_agent(self) -> Agent:
        """Runs in the agent's loop."""
        arguments, settings = self._arguments, self._settings
        topic = settings.control_topic or control_topic(arguments.group_id)
        return Agent(
            AgentOptions(
                config=arguments.group_config(self._subscription.topics, settings),
                subscription=self._subscription,
                settings=arguments.kafka,
                control_topic=topic,
                fetcher=lambda: KafkaFetcher(arguments.fetcher),
                user_loop=self._user_loop,
                observer=self._services,
                auto_commit_seconds=arguments.auto_commit_interval_ms / 1000,
                max_poll_seconds=arguments.max_poll_interval_ms / 1000,
            )
        )

    async def stop(self) -> None:
        """Hand partitions over, commit what is done, leave the group: within ``LOADTRIM_DRAIN_SECONDS``."""
        if self._plain is not None:
            self._signals.remove()
            await self._plain.stop()
            return
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        self._closed = True
        self._signals.remove()
        if self._buffer is not None:
            self._buffer.abandon()  # the record in hand, if any, is not done
            self._buffer.closing = True
            self._buffer.wake()
        if self._agent is not None and self._thread is not None and self._thread.alive:
            await self._in_agent(self._agent.stop(self._settings.drain_seconds, release=not self._signals.at_once))
        if self._thread is not None:
            await self._thread.stop()

    def _stop_asked(self, at_once: bool) -> None:
        """SIGTERM: the iteration ends after the record in hand; whoever iterates then calls :meth:`stop`."""
        log.info("SIGTERM: %s", "leaving at once" if at_once else "handing over and leaving")
        if self._plain is not None:
            self._signals.remove()  # a second one is the system's: at once
            self._plain_wait.end()
        if self._buffer is not None and not self._closed:
            self._buffer.closing = True
            self._buffer.wake()
            if self._agent is not None and self._thread is not None:
                self._thread.post(self._agent.leave, self._settings.drain_seconds, not at_once)

    async def __aenter__(self) -> Consumer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __del__(self) -> None:
        if getattr(self, "_agent", None) is not None and not self._closed:
            warnings.warn(
                f"Unclosed Consumer {self!r}: call stop(), or use `async with`",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    # -- records -------------------------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[Any, Any]:
        """The next record, of any partition held or of those given; waits for one.

        Raises:
            ConsumerStoppedError: the consumer is stopping.
        """
        if self._plain is not None:
            return await self._plain_wait.until_ended(self._plain.getone(*partitions))
        buffer, watch = self._open()
        wanted = frozenset(Partition(*p) for p in partitions)
        while True:
            watch.raise_error(wanted)
            record = buffer.take_one(wanted)
            if record is not None:
                return record
            if buffer.closing:
                raise ConsumerStoppedError()
            await buffer.wait(NO_RECORDS_WAIT_SECONDS)
            watch.raise_if_died()

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Records that are there, 1,024 where no limit is given; waits ``timeout_ms`` for the first, or until stopped.

        Raises:
            ConsumerStoppedError: the consumer was stopping already. ValueError: ``max_records`` is not positive.
        """
        if self._plain is not None:
            taking = self._plain.getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records)
            return dict(await self._plain_wait.until_ended(taking))
        if max_records is not None and (not isinstance(max_records, int) or max_records < 1):
            raise ValueError("`max_records` must be a positive Integer")
        buffer, watch = self._open()
        wanted = frozenset(Partition(*p) for p in partitions)
        limit = max_records or self._arguments.max_poll_records
        deadline = self._user_loop.time() + timeout_ms / 1000
        ending = buffer.closing
        while True:
            watch.raise_error(wanted)
            taken = buffer.take_many(wanted, limit)
            if ending:
                raise ConsumerStoppedError()
            left = deadline - self._user_loop.time()
            if taken or left <= 0 or buffer.closing:
                return {TopicPartition(*p): records for p, records in taken.items()}
            await buffer.wait(min(left, NO_RECORDS_WAIT_SECONDS))
            watch.raise_if_died()

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[Any, Any]]:
        if self._closed:
            raise ConsumerStoppedError()
        return self._records()

    async def _records(self) -> AsyncIterator[ConsumerRecord[Any, Any]]:
        """What ``async for`` goes over: a generator costs less per record than a coroutine of ``__anext__`` each."""
        while True:
            buffer = self._buffer
            while buffer is not None and buffer.error is None:
                record = buffer.take_one()
                if record is None:
                    break
                yield record
            try:
                record = await self.getone()
            except ConsumerStoppedError:
                return
            yield record

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        buffer = self._buffer
        if buffer is not None and buffer.error is None:
            record = buffer.take_one()
            if record is not None:
                return record
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    def _open(self) -> tuple[RecordBuffer, AgentWatch]:
        if self._closed or self._buffer is None or self._watch is None:
            raise ConsumerStoppedError()
        return self._buffer, self._watch

    # -- subscriptions -------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribe topics, or a pattern; replaces what was subscribed. See ``AIOKafkaConsumer.subscribe``."""
        if self._plain is not None:
            self._plain.subscribe(topics=topics, pattern=pattern, listener=listener)
            return
        check_subscription(topics, pattern, listener)
        self._subscription = Subscription(
            topics=tuple(sorted(set(topics))),
            pattern=compiled(pattern),
            exclude_internal=self._arguments.exclude_internal_topics,
            own=(self._settings.control_topic, self._settings.baseline_topic),
        )
        self._listener = listener
        self._subscribed()

    def unsubscribe(self) -> None:
        """Give everything up; the member stays in the group with nothing to own until it subscribes again.

        A partition with a record in hand goes when that is done: at the next call, which returns no more of it.
        """
        if self._plain is not None:
            self._plain.unsubscribe()
            return
        self._subscription = Subscription()
        self._subscribed()

    def _subscribed(self) -> None:
        """Nothing of what is not subscribed any more is handed out from here on, whenever the agent hears of it."""
        streams, before = self._streams(), self._put_aside
        ended = {p: s for p, s in streams.items() if p.topic not in self._subscription.matches([p.topic])}
        self._put_aside = {p: s for p, s in ended.items() if not s.paused or before.get(p) is s}
        for stream in self._put_aside.values():
            stream.paused = True
        for partition, stream in before.items():
            if partition not in ended and streams.get(partition) is stream:
                stream.paused = False
        if self._agent is not None:
            self._post(self._agent.subscribe, self._subscription, self._listener)

    def subscription(self) -> frozenset[str]:
        """Topics subscribed now."""
        if self._plain is not None:
            return frozenset(self._plain.subscription())
        if self._agent is not None:
            return frozenset(self._agent.machine.departure.topics)
        return frozenset(self._subscription.topics)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Refused: partitions are the group's to give. With ``LOADTRIM_ENABLED=false``: as in aiokafka."""
        if self._plain is not None:
            self._plain.assign(list(partitions))
            return
        raise IllegalStateError(
            "assign() is refused: in a loadtrim group the members decide who owns what. Use subscribe(), or "
            "AIOKafkaConsumer without group_id for partitions of your own choice."
        )

    def assignment(self) -> set[TopicPartition]:
        """Partitions held now."""
        if self._plain is not None:
            return set(self._plain.assignment())
        return {TopicPartition(*p) for p in self._streams()}

    # -- positions and commits -----------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        """Commit, and wait for the broker's answer. Without arguments: the positions of all partitions held.

        Raises:
            CommitFailedError: a partition went to another member meanwhile. IllegalStateError: it is not held.
            ValueError: ``offsets`` cannot be read. KafkaError: the broker refused.
        """
        if self._plain is not None:
            await self._plain.commit(offsets)
            return
        if offsets is None:
            # With auto-commit a partition that is being handed over is committed by the handoff, once it is drained.
            manual, held = not self._arguments.enable_auto_commit, self._streams().items()
            unknown = self._need_agent().partitions.without_offset if held else ()
            wanted = {
                p: (s.position, "")
                for p, s in held
                if p not in unknown and (s.running or s.in_hand is not None or manual)
            }
        else:
            checked = commit_structure_validate(offsets)
            wanted = {Partition(*p): (o.offset, o.metadata) for p, o in checked.items()}
            self._must_hold(wanted)
        if self._agent is not None:
            await self._in_agent(self._agent.commit(wanted, named=offsets is not None))

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
        if self._plain is not None:
            await producer.send_offsets_to_transaction(offsets, self._arguments.group_id)
            return
        wanted = [Partition(*p) for p in commit_structure_validate(offsets)]
        self._must_hold(wanted)
        of_agent = self._need_agent().transactions
        takes = await self._in_agent(of_agent.begin(wanted))
        group = FencedGroup(self._arguments.group_id, lambda refused: self._in_agent(of_agent.fence(takes, refused)))
        await send_offsets(producer, offsets, group, lambda: self._post(of_agent.end, takes))

    async def committed(self, partition: TopicPartition) -> int | None:
        """The group's committed offset; None where there is none."""
        if self._plain is not None:
            return await self._plain.committed(partition)  # type: ignore[no-any-return]
        return await self._in_agent(self._need_agent().committed(Partition(*partition)))

    async def position(self, partition: TopicPartition) -> int:
        """The offset handed out next."""
        if self._plain is not None:
            return await self._plain.position(partition)  # type: ignore[no-any-return]
        self._stream(Partition(*partition))
        return await self._in_agent(self._need_agent().position(Partition(*partition)))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Hand out from ``offset`` on. What is in hand counts as done only by the next commit."""
        if self._plain is not None:
            self._plain.seek(partition, offset)
            return
        if not isinstance(offset, int) or offset < 0:
            raise ValueError("Offset must be a positive integer")
        stream = self._stream(Partition(*partition))
        self._need_agent().buffer.seek(stream, offset)
        self._post(self._need_agent().partitions.seek, stream, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Hand out from the first record on, of these partitions or of all held."""
        if self._plain is not None:
            return bool(await self._plain.seek_to_beginning(*partitions))
        for partition, offset in (await self.beginning_offsets(self._chosen(partitions))).items():
            self.seek(partition, offset)
        return True

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Hand out only what comes from now on, of these partitions or of all held."""
        if self._plain is not None:
            return bool(await self._plain.seek_to_end(*partitions))
        for partition, offset in (await self.end_offsets(self._chosen(partitions))).items():
            self.seek(partition, offset)
        return True

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Hand out from the committed offsets on; returns them."""
        if self._plain is not None:
            return dict(await self._plain.seek_to_committed(*partitions))
        committed: dict[TopicPartition, int | None] = {}
        for partition in self._chosen(partitions):
            committed[partition] = offset = await self.committed(partition)
            if offset is not None:
                self.seek(partition, offset)
        return committed

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand nothing out of these until :meth:`resume`. They stay owned, and are kept out of sizing."""
        self._set_paused(partitions, paused=True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Hand records out again."""
        self._set_paused(partitions, paused=False)

    def paused(self) -> set[TopicPartition]:
        """Partitions paused now."""
        if self._plain is not None:
            return set(self._plain.paused())
        return {TopicPartition(*p) for p, s in self._streams().items() if s.paused}

    def _set_paused(self, partitions: tuple[TopicPartition, ...], *, paused: bool) -> None:
        if not all(isinstance(p, TopicPartition) for p in partitions):
            raise TypeError("partitions must be TopicPartition namedtuples")
        if self._plain is not None:
            (self._plain.pause if paused else self._plain.resume)(*partitions)
            return
        for partition in partitions:
            stream = self._stream(Partition(*partition))
            stream.paused = paused
            self._post(self._need_agent().partitions.paused, stream, paused)
        self._need_agent().buffer.wake()

    # -- what the cluster knows ----------------------------------------------------------------------------------

    async def topics(self) -> set[str]:
        """All topics that this user may see."""
        return set(await self._query(lambda queries: queries.topics()))

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Partition numbers of a topic; None where its metadata is not known."""
        queries = self._plain or self._queries()
        return queries.partitions_for_topic(topic) if queries is not None else None

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """See ``AIOKafkaConsumer.offsets_for_times``; timestamps in milliseconds."""
        return dict(await self._query(lambda queries: queries.offsets_for_times(dict(timestamps))))

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each."""
        wanted = list(partitions)
        return dict(await self._query(lambda queries: queries.beginning_offsets(wanted)))

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each."""
        wanted = list(partitions)
        return dict(await self._query(lambda queries: queries.end_offsets(wanted)))

    def highwater(self, partition: TopicPartition) -> int | None:
        """End of the log as the last fetch told it; None before the first."""
        if self._plain is not None:
            return self._plain.highwater(partition)  # type: ignore[no-any-return]
        self._stream(Partition(*partition))
        return self._need_agent().fetcher.high_watermark(Partition(*partition))

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """See ``AIOKafkaConsumer.last_stable_offset``."""
        if self._plain is not None:
            return self._plain.last_stable_offset(partition)  # type: ignore[no-any-return]
        self._stream(Partition(*partition))
        return self._need_agent().fetcher.last_stable_offset(Partition(*partition))

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """When :meth:`highwater` was updated last, milliseconds."""
        if self._plain is not None:
            return self._plain.last_poll_timestamp(partition)  # type: ignore[no-any-return]
        told_at = self._need_agent().fetcher.end_offset_at(self._stream(Partition(*partition)).partition)
        return int(told_at * 1000) if told_at is not None else None

    # -- the two threads -----------------------------------------------------------------------------------------

    async def _in_agent(self, work: Coroutine[Any, Any, T]) -> T:
        if self._thread is None:
            work.close()
            raise ConsumerStoppedError()
        return await self._thread.run(work)

    def _post(self, call: Callable[..., object], *args: object) -> None:
        if self._thread is not None:
            self._thread.post(call, *args)

    async def _query(self, call: Callable[[AIOKafkaConsumer | OffsetQueries], Coroutine[Any, Any, T]]) -> T:
        if self._plain is not None:
            return await call(self._plain)
        queries = self._queries()
        if queries is None:
            raise ConsumerStoppedError()

        async def there() -> T:
            return await call(queries)

        return await self._in_agent(there())

    def _queries(self) -> OffsetQueries | None:
        return self._agent.fetcher.queries if self._agent is not None else None

    def _must_hold(self, partitions: Iterable[Partition]) -> None:
        if not self._subscription.topics and self._subscription.pattern is None:
            raise IllegalStateError("Not subscribed to any topics")
        if not self._streams():
            raise IllegalStateError("No partitions assigned")
        for partition in partitions:
            self._stream(partition)

    def _streams(self) -> dict[Partition, Stream]:
        return self._buffer.streams if self._buffer is not None else {}

    def _stream(self, partition: Partition) -> Stream:
        stream = self._streams().get(partition)
        if stream is None:
            raise IllegalStateError(f"Partition {TopicPartition(*partition)} is not assigned")
        return stream

    def _chosen(self, partitions: tuple[TopicPartition, ...]) -> list[TopicPartition]:
        if not all(isinstance(p, TopicPartition) for p in partitions):
            raise TypeError("partitions must be TopicPartition instances")
        for partition in partitions:
            self._stream(Partition(*partition))
        return sorted(partitions or self.assignment())

    def _need_agent(self) -> Agent:
        if self._agent is None:
            raise IllegalStateError("The consumer is not started")
        return self._agent
