"""The control topic: the coordination log (partition 0) and telemetry (partition 1)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, OffsetOutOfRangeError, for_code
from aiokafka.structs import TopicPartition

from loadtrim_agent.clock import boot_time, wall_time
from loadtrim_agent.core.group.commands import AppendCommand, ReadBaseCommand
from loadtrim_agent.core.group.events import (
    AppendedEvent,
    BaseFoundEvent,
    Event,
    LogFailedEvent,
    LogGapEvent,
    LogPositionEvent,
    LogReadEvent,
)
from loadtrim_agent.core.records import (
    COORDINATION,
    TELEMETRY,
    BaseRecord,
    LoadRecord,
    Record,
    UnreadableRecord,
    decode,
    encode,
)

from .connections import CONNECTION_SETTINGS

__all__ = ["ControlLog", "ControlTopicUnusable", "TelemetryEntry"]

log = logging.getLogger("loadtrim")

RETENTION_MS = 7 * 24 * 3600 * 1000
RETENTION_BYTES = 1 << 30
SEGMENT_BYTES = 64 << 20
TOPIC_ALREADY_EXISTS = 36
SILENT_SECONDS = 3.0
"""No answer to the tail's fetches for this long: the log has failed."""
PROBE_SECONDS = 5.0
BASE_CHUNK_RECORDS = 2_000
KEY_SEPARATOR = "\x00"


class ControlTopicUnusable(Exception):
    """The control topic cannot be created, read or written. The message says what to do.

    Caught by the agent: the member offers the standard protocols only (mixed group), and says so.
    """


class TelemetryEntry(NamedTuple):
    """One record of the telemetry partition, as the broker stamped it."""

    record: Record
    offset: int
    appended_at: float
    """By the broker's clock, seconds since the epoch."""


class ControlLog:
    """Reads and appends; decides nothing.

    Args:
        settings: the user's connection settings.
        topic: name of the control topic.
        feed: takes the machine's events, in the agent's loop.
        spawn: starts a task that the agent owns.
        on_unreadable: called for every record that is no record of ours.
        on_clock: called with (own wall clock - broker's clock, round trip), seconds, for each own append.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        *,
        feed: Callable[[Event], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
        on_unreadable: Callable[[], None],
        on_clock: Callable[[float, float], None],
    ) -> None:
        self.topic = topic
        self._settings = {name: settings[name] for name in CONNECTION_SETTINGS if name in settings}
        self._feed = feed
        self._spawn = spawn
        self._on_unreadable = on_unreadable
        self._on_clock = on_clock
        self._tail: AIOKafkaConsumer | None = None
        self._producer: AIOKafkaProducer | None = None
        self._telemetry: AIOKafkaProducer | None = None
        self._failed = False

    # -- life cycle ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Create the topic where it is missing, find the log's end, and prove that it can be written and read.

        Raises:
            ControlTopicUnusable: one of these is not possible.
        """
        try:
            await self._ensure_topic()
            self._producer = AIOKafkaProducer(**self._settings, acks="all", linger_ms=0)
            self._telemetry = AIOKafkaProducer(**self._settings, acks="all", compression_type="gzip", linger_ms=5)
            await self._producer.start()
            await self._telemetry.start()
            self._tail = await self._reader(COORDINATION)
            end = await self._seek_to_end(self._tail, COORDINATION)
            async with asyncio.timeout(PROBE_SECONDS):
                await self._probe(end)
        except ControlTopicUnusable:
            await self.close()
            raise
        except (KafkaError, OSError, TimeoutError) as error:
            await self.close()
            raise ControlTopicUnusable(self._advice(error)) from error

    async def close(self) -> None:
        for client in (self._tail, self._producer, self._telemetry):
            if client is not None:
                with contextlib.suppress(KafkaError, OSError, asyncio.TimeoutError):
                    await client.stop()
        self._tail = self._producer = self._telemetry = None

    async def _reader(self, partition: int) -> AIOKafkaConsumer:
        reader = AIOKafkaConsumer(
            **self._settings, group_id=None, enable_auto_commit=False, auto_offset_reset="none", fetch_max_wait_ms=500
        )
        try:
            await reader.start()
        except BaseException:
            await reader.stop()
            raise
        reader.assign([TopicPartition(self.topic, partition)])
        return reader

    async def _seek_to_end(self, reader: AIOKafkaConsumer, partition: int) -> int:
        at = TopicPartition(self.topic, partition)
        end = int((await reader.end_offsets([at]))[at])
        reader.seek(at, end)
        return end

    async def _probe(self, end: int) -> None:
        """Write a record that means nothing and read it back."""
        assert self._producer is not None
        assert self._tail is not None
        sent_at = wall_time()
        probe = LoadRecord(group="", member="", at=sent_at, generation=-1)
        written = await self._producer.send_and_wait(self.topic, encode(probe), partition=COORDINATION)
        self._tell_clock(sent_at, written)
        at = TopicPartition(self.topic, COORDINATION)
        while (position := await self._tail.position(at)) <= written.offset:
            await self._deliver(await self._tail.getmany(timeout_ms=200), position)

    # -- creating ------------------------------------------------------------------------------------------------

    async def _ensure_topic(self) -> None:
        admin = AIOKafkaAdminClient(**self._settings)
        await admin.start()
        try:
            described = await admin.describe_topics([self.topic])
            if described and described[0]["error_code"] == 0:
                if len(described[0]["partitions"]) < 2:
                    raise ControlTopicUnusable(self._advice("it has fewer than 2 partitions"))
                return
            new = NewTopic(self.topic, 2, 1, topic_configs=_topic_configs())
            new.replication_factor = -1  # the broker's default (KIP-464); the constructor does not take it
            answer = await admin.create_topics([new])
            code = answer.topic_errors[0][1]
            if code not in (0, TOPIC_ALREADY_EXISTS):
                raise ControlTopicUnusable(self._advice(for_code(code).__name__))
        finally:
            await admin.close()

    def _advice(self, error: object) -> str:
        configs = " ".join(f"--config {name}={value}" for name, value in _topic_configs().items())
        return (
            f"The control topic {self.topic} cannot be used ({error!s}). Without it this member shares the group as a "
            "plain consumer would: no handoffs, no planning, no scaling, and the whole group becomes a mixed one. "
            f"Create it with `kafka-topics.sh --create --topic {self.topic} --partitions 2 {configs}`, or allow this "
            f"principal CREATE on it; and allow READ, WRITE and DESCRIBE on topic {self.topic}. Then restart this "
            "member."
        )

    # -- the coordination log ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Tail the log for ever."""
        assert self._tail is not None
        at = TopicPartition(self.topic, COORDINATION)
        while True:
            position = await self._tail.position(at)
            try:
                batches = await self._tail.getmany(timeout_ms=1000)
            except OffsetOutOfRangeError:
                self._feed(LogGapEvent(now=boot_time()))
                await self._seek_to_end(self._tail, COORDINATION)
                continue
            except KafkaError as error:
                log.warning("The coordination log %s cannot be read now (%r); trying again.", self.topic, error)
                await asyncio.sleep(0.2)
                continue
            await self._deliver(batches, position)
            self._watch_silence(self._tail.last_poll_timestamp(at))

    async def _deliver(self, batches: Mapping[Any, list[Any]], position: int) -> None:
        assert self._tail is not None
        now = boot_time()
        for messages in batches.values():
            for message in messages:
                if message.offset != position:
                    self._feed(LogGapEvent(now=now))
                position = message.offset + 1
                record = self._decode(message.value)
                if record is not None:
                    self._feed(LogReadEvent(now=now, offset=message.offset, record=record))
        if batches:
            self._feed(LogPositionEvent(now=now, position=position))

    def _watch_silence(self, answered_at_ms: int | None) -> None:
        failed = answered_at_ms is not None and wall_time() - answered_at_ms / 1000 > SILENT_SECONDS
        if failed != self._failed:
            self._failed = failed
            self._feed(LogFailedEvent(now=boot_time(), failed=failed))
            if failed:
                log.warning("The coordination log %s does not answer: nothing moves until it does.", self.topic)

    def _tell_clock(self, sent_at: float, written: Any) -> None:
        """The broker stamped the record somewhere between our sending it and its answer."""
        if written.timestamp_type == 1:
            answered_at = wall_time()
            self._on_clock((sent_at + answered_at) / 2 - written.timestamp / 1000, answered_at - sent_at)

    def _decode(self, value: bytes | None) -> Record | None:
        try:
            return decode(value or b"")
        except UnreadableRecord as error:
            self._on_unreadable()
            log.debug("A record of %s cannot be read and is skipped: %s", self.topic, error)
            return None

    def append(self, command: AppendCommand) -> None:
        """Append a record of the machine's; its fate is told as an AppendedEvent."""
        self._spawn(self._append(command), f"append-{command.append}")

    async def _append(self, command: AppendCommand) -> None:
        offset = await self._write(command.record)
        self._feed(AppendedEvent(now=boot_time(), append=command.append, offset=offset))

    async def write(self, record: Record) -> bool:
        """Append a record of the agent's own (load, plan). False: it did not get through."""
        return await self._write(record) is not None

    async def _write(self, record: Record) -> int | None:
        if self._producer is None:
            return None
        sent_at = wall_time()
        try:
            written = await self._producer.send_and_wait(self.topic, encode(record), partition=COORDINATION)
        except (TimeoutError, KafkaError, OSError) as error:
            log.debug("An append to %s failed: %r", self.topic, error)
            return None
        self._tell_clock(sent_at, written)
        return int(written.offset)

    def read_base(self, command: ReadBaseCommand) -> None:
        """Look for the newest map in the log."""
        self._spawn(self._read_base(command.timeout), "read-base")

    async def _read_base(self, timeout: float) -> None:
        found: BaseRecord | None = None
        try:
            async with asyncio.timeout(timeout):
                found = await self._newest_base()
        except (KafkaError, OSError, TimeoutError) as error:
            log.info("No earlier map was found in %s (%r): going by the claims.", self.topic, error)
        self._feed(BaseFoundEvent(now=boot_time(), base=found))

    async def _newest_base(self) -> BaseRecord | None:
        reader = await self._reader(COORDINATION)
        at = TopicPartition(self.topic, COORDINATION)
        try:
            end = int((await reader.end_offsets([at]))[at])
            begin = int((await reader.beginning_offsets([at]))[at])
            while end > begin:
                start = max(begin, end - BASE_CHUNK_RECORDS)
                reader.seek(at, start)
                newest: BaseRecord | None = None
                while await reader.position(at) < end:
                    for messages in (await reader.getmany(timeout_ms=100)).values():
                        for message in messages:
                            record = self._decode(message.value) if message.offset < end else None
                            newest = record if isinstance(record, BaseRecord) else newest
                if newest is not None:
                    return newest
                end = start
            return None
        finally:
            await reader.stop()

    # -- telemetry -----------------------------------------------------------------------------------------------

    async def publish(self, record: Record, *, sequence: int) -> bool:
        """Write a report or a decision to the telemetry partition."""
        if self._telemetry is None:
            return False
        key = KEY_SEPARATOR.join((record.group, record.member, str(sequence))).encode()
        try:
            await self._telemetry.send_and_wait(self.topic, encode(record), key=key, partition=TELEMETRY)
        except (TimeoutError, KafkaError, OSError) as error:
            log.debug("A record of the telemetry did not get through: %r", error)
            return False
        return True

    async def telemetry(self, since: float) -> AsyncIterator[tuple[list[TelemetryEntry], bool]]:
        """Records of the telemetry partition from ``since`` (epoch seconds) on, in batches, for ever.

        Yields:
            A batch, empty at least every second while nothing is new, and whether all that was there at the start has
            been read.
        """
        reader = await self._reader(TELEMETRY)
        at = TopicPartition(self.topic, TELEMETRY)
        try:
            found = (await reader.offsets_for_times({at: int(since * 1000)}))[at]
            end = await self._seek_to_end(reader, TELEMETRY)
            if found is not None:
                reader.seek(at, found.offset)
            while True:
                try:
                    batches = await reader.getmany(timeout_ms=1000, max_records=2_000)
                except OffsetOutOfRangeError:
                    await self._seek_to_end(reader, TELEMETRY)
                    continue
                yield self._entries(batches), await reader.position(at) >= end
        finally:
            await reader.stop()

    def _entries(self, batches: Mapping[Any, list[Any]]) -> list[TelemetryEntry]:
        entries = []
        for messages in batches.values():
            for message in messages:
                record = self._decode(message.value)
                if record is not None:
                    entries.append(TelemetryEntry(record, message.offset, message.timestamp / 1000))
        return entries


def _topic_configs() -> dict[str, str]:
    return {
        "cleanup.policy": "delete",
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": str(RETENTION_MS),
        "retention.bytes": str(RETENTION_BYTES),
        "segment.bytes": str(SEGMENT_BYTES),
    }
