"""The control topic: the coordination log (partition 0) and telemetry (partition 1)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from aiokafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError, UnsupportedCodecError

from loadtrim_agent.common.clock import boot_time, wall_time
from loadtrim_agent.common.tasks import Spawner
from loadtrim_agent.protocol.commands import AppendCommand, ReadAssignmentCommand
from loadtrim_agent.protocol.events import (
    AppendedEvent,
    AssignmentFoundEvent,
    LogFailedEvent,
    LogGapEvent,
    LogPositionEvent,
    LogReadEvent,
)
from loadtrim_agent.wire.codec import Record, decode, encode
from loadtrim_agent.wire.envelope import COORDINATION, TELEMETRY, UnreadableRecord
from loadtrim_agent.wire.ownership_records import LoadRecord

from .connections import UNREACHABLE, Backoff, Channel, Connections, connecting
from .control_topic import PROBE_SECONDS, TOPIC_SECONDS, ControlTopic, ControlTopicUnusable
from .lookback import Lookback
from .partition_log import ANSWER_SECONDS, Appended, Fetched, PartitionLog
from .pool import ConnectionPool
from .ports import ControlLogReader

__all__ = [
    "ControlLog",
    "TelemetryEntry",
    "TelemetryTail",
    "telemetry_key",
]

log = logging.getLogger("loadtrim")

POLL_SECONDS = 1.0
"""The broker answers a read as soon as there is a record; with none, after this long."""
BURST_SECONDS = 0.5
"""Chosen: reads of this time may come together."""
SILENT_SECONDS = 3.0
"""No answer to the tail's fetches, or to an append, for this long: the log has failed. Above :data:`POLL_SECONDS`."""
KEY_SEPARATOR = "\x00"
_NO_MESSAGE = SimpleNamespace(value=None)
"""In place of a batch that cannot be unpacked."""


class TelemetryEntry(NamedTuple):
    """One record of the telemetry partition."""

    record: Record
    received_at: float
    """When it was appended, by the broker's stamp on this machine's clock, seconds since the epoch. Where the topic
    keeps the writers' times: now, and the writer's time of what was there before the first look."""
    replayed: bool
    """True when the record was there before the first look."""
    logged_at: float | None = None
    """When it was appended by the broker's own clock, seconds since the epoch; None: the topic keeps writers' times."""


class _Pace:
    """The pace of reads that nobody waits for: a mean rate, and bursts within it."""

    def __init__(self) -> None:
        self._due_at = float("-inf")
        """Time at which the next read is due at the mean rate; behind by :data:`BURST_SECONDS` at most."""

    def after_read(self, now: float, seconds: float) -> float:
        """Count a read, one in ``seconds``, and return the pause after it; none where that is not above zero."""
        self._due_at = min(max(self._due_at, now - BURST_SECONDS), now) + seconds
        return self._due_at - now


class _Writes:
    """The appends under way, and the outcome of the last one: whether the log can be written.

    A member appends its load each second, so that both are news of a second.
    """

    def __init__(self) -> None:
        self._since: dict[object, float] = {}
        """Append under way -> time of its beginning, oldest first."""
        self._failure: BaseException | None = None

    @contextlib.contextmanager
    def one(self, now: float) -> Iterator[None]:
        """Begin an append; the block ends with its outcome."""
        mine = object()
        self._since[mine] = now
        try:
            yield
        except MessageSizeTooLargeError:
            raise  # this one does not fit; others do
        except UNREACHABLE as error:
            self._failure = error
            raise
        else:
            self._failure = None
        finally:
            del self._since[mine]

    def failure(self, now: float) -> str | None:
        """Return why the log cannot be written; None: it can."""
        if self._failure is not None:
            return f"cannot be written ({self._failure!r})"
        oldest = next(iter(self._since.values()), now)
        return "cannot be written (no answer in time)" if now - oldest > SILENT_SECONDS else None


class ControlLog:
    """Reads and appends; decides nothing.

    Args:
        settings: the user's connection settings.
        topic: name of the control topic.
        reader: takes what is read, as events of the machine.
        tasks: owns the tasks that append and read.
        pool: where the connections come from; None: a pool of its own.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        reader: ControlLogReader,
        tasks: Spawner,
        pool: ConnectionPool | None = None,
    ) -> None:
        self.topic = topic
        self._reader = reader
        self._tasks = tasks
        # A broker that makes topics by itself makes them with its own settings and number of partitions.
        self._connections = Connections(settings, pool, creates_topics=False)
        self._control_topic = ControlTopic(self._connections, settings, topic)
        self._coordination = self._partition(COORDINATION, Channel.TAIL, Channel.APPEND)
        self._telemetry = self._partition(TELEMETRY, Channel.TELEMETRY, Channel.REPORT, compressed=True)
        self._position = 0
        """Of the tail: offset read next."""
        self._epoch: int | None = None
        """Of the tail: leader epoch of the batch read last; None: not known."""
        self._last: bytes | None = None
        """Of the tail: the record before the position; None: there is none, or it was not read."""
        self._doubtful = False
        """Of the tail: a read has failed since; the topic may have been deleted meanwhile, and made again."""
        self._answered_at = boot_time()
        self._writes = _Writes()
        self._failed = False
        self._clock_ahead: float | None = None
        """Own wall clock - broker's clock, seconds."""

    def _partition(self, partition: int, read: Channel, append: Channel, *, compressed: bool = False) -> PartitionLog:
        return PartitionLog(self._connections, self.topic, partition, read=read, append=append, compressed=compressed)

    # -- life cycle ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Create the topic where it is missing, find the log's end, and prove that it can be written and read.

        Raises:
            ControlTopicUnusable: one of these is not possible.
        """
        try:
            with connecting():
                await self._connections.start()
            async with asyncio.timeout(TOPIC_SECONDS):
                await self._control_topic.ensure()
                await self._connections.client.set_topics([self.topic])
                self._position = await self._control_topic.patiently(self._coordination.end)
            async with asyncio.timeout(PROBE_SECONDS):
                await self._control_topic.patiently(self._probe)
            self._tasks.spawn(self._control_topic.keep(), "keep-topic")
        except BaseException as error:
            await self.close()
            if isinstance(error, UNREACHABLE):
                raise ControlTopicUnusable(self._control_topic.advice(error)) from error
            raise

    async def close(self) -> None:
        await self._connections.close()

    async def _probe(self) -> None:
        """Write a record that means nothing and read it back."""
        sent_at = wall_time()
        probe = LoadRecord(group="", member="", at=sent_at, generation=-1)
        written = await self._coordination.append(encode(probe))
        self._tell_clock(sent_at, written)
        while self._position <= written.offset:
            if any(written.offset in offsets for offsets in await self._read_on()):
                raise UnsupportedCodecError(
                    f"{self.topic} compresses records in a way that cannot be unpacked here; set its compression.type "
                    "to producer, or install the library of its codec"
                )

    # -- the coordination log ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Tail the log for ever."""
        backoff, pace = Backoff(self._connections.retry_backoff), _Pace()
        while True:
            try:
                await self._read_on()
            except UNREACHABLE as error:
                log.debug("The coordination log %s cannot be read now (%r); trying again.", self.topic, error)
                self._doubtful = True
                self._watch_silence()
                await asyncio.sleep(backoff.failed())
            else:
                self._answered_at = boot_time()
                self._watch_silence()
                backoff.succeeded()
                pause = pace.after_read(asyncio.get_running_loop().time(), self._reader.log_read_seconds)
                if pause > 0:
                    await asyncio.sleep(pause)

    async def _read_on(self) -> tuple[range, ...]:
        """Read the tail once, and return the offsets of what cannot be unpacked."""
        try:
            if self._doubtful and not await self._compare_last():
                return ()
            fetched = await self._coordination.read(self._position, wait_seconds=POLL_SECONDS, timeout=SILENT_SECONDS)
            await self._compare(fetched)
        except OffsetOutOfRangeError:
            # Rule 9: the end comes before the JoinGroup that the gap causes, so that no release after it is missed.
            self._position = await self._coordination.end()
            self._epoch = self._last = None
            self._doubtful = False
            self._reader.feed(LogGapEvent(now=boot_time()))
            return ()
        now, position = boot_time(), self._position
        before = position
        for message in fetched.records:
            if message.offset != position and not fetched.unreadable:
                self._reader.feed(LogGapEvent(now=now))
            position = message.offset + 1
            record = self._decode(message.value)
            if record is not None:
                self._reader.feed(LogReadEvent(now=now, offset=message.offset, record=record))
        self._position = fetched.following
        last = fetched.records[-1] if fetched.records else None
        if last is not None and last.offset + 1 == fetched.following:
            self._last = last.value
        elif fetched.following != before:
            self._last = None
        if fetched.unreadable:
            position = fetched.following
        if position > before:
            self._reader.feed(LogPositionEvent(now=now, position=position))
        for offsets in fetched.unreadable:
            self._reader.unreadable()
            log.debug("%s of %s cannot be unpacked and is skipped.", offsets, self.topic)
        if fetched.unreadable:
            # Rule 10, for another member may have been able to read it. Told once: each time is a rebalance.
            self._reader.feed(LogGapEvent(now=now))
        return fetched.unreadable

    async def _compare_last(self) -> bool:
        """Look whether the record read last is still there, after a read that failed.

        A topic that was deleted and made again may have grown past the position, with epochs that begin anew.

        Returns:
            Whether that is known. A new leader shows nothing above its high watermark, of which it heard last as a
            follower: for a moment it may not show a record that it has (KIP-207).

        Raises:
            OffsetOutOfRangeError: it is not.
        """
        if self._last is not None:
            before = self._position - 1
            there = await self._coordination.read(before, wait_seconds=POLL_SECONDS, timeout=SILENT_SECONDS)
            if there.following == before:
                return False
            if not there.records or there.records[0].value != self._last:
                raise OffsetOutOfRangeError(f"{self.topic} has another record below {self._position}")
        self._doubtful = False
        return True

    async def _compare(self, fetched: Fetched) -> None:
        """Look whether the log still has what was read of it.

        A new leader may not have all that the one before had: the log is cut, and it may have grown past the position
        again before anybody asks. Then the record read last is another leader's.

        Raises:
            OffsetOutOfRangeError: it has not, or that cannot be told.
        """
        if fetched.epochs is None:
            return
        first, last = fetched.epochs
        if self._epoch not in (None, first):
            there = await self._coordination.read(self._position - 1, wait_seconds=0.0, timeout=ANSWER_SECONDS)
            if there.epochs is None or there.epochs[0] != self._epoch:
                raise OffsetOutOfRangeError(f"{self.topic} was cut below {self._position} and has grown again")
        self._epoch = last

    def _watch_silence(self) -> None:
        now = boot_time()
        why = "does not answer" if now - self._answered_at > SILENT_SECONDS else self._writes.failure(now)
        failed = why is not None
        if failed != self._failed:
            self._failed = failed
            self._reader.feed(LogFailedEvent(now=now, failed=failed))
            if failed:
                log.warning("The coordination log %s %s. Nothing moves meanwhile; all else goes on.", self.topic, why)
            else:
                log.info("The coordination log %s can be read and written again.", self.topic)

    def _tell_clock(self, sent_at: float, written: Appended) -> None:
        """The broker stamped the record somewhere between our sending it and its answer."""
        if written.appended_at is not None:
            answered_at = wall_time()
            self._clock_ahead = (sent_at + answered_at) / 2 - written.appended_at
            self._reader.clock(self._clock_ahead, answered_at - sent_at)

    def _decode(self, value: bytes | None) -> Record | None:
        try:
            return decode(value or b"")
        except UnreadableRecord as error:
            self._reader.unreadable()
            log.debug("A record of %s cannot be read and is skipped: %s", self.topic, error)
            return None

    def append(self, command: AppendCommand) -> None:
        """Append a record of the machine's; its fate is told as an AppendedEvent."""
        self._tasks.spawn(self._append(command), f"append-{command.append}")

    async def _append(self, command: AppendCommand) -> None:
        offset = await self._write(command.record)
        self._reader.feed(AppendedEvent(now=boot_time(), append=command.append, offset=offset))

    async def write(self, record: Record) -> bool:
        """Append a record of the agent's own (load, plan). False: it did not get through."""
        return await self._write(record) is not None

    async def _write(self, record: Record) -> int | None:
        sent_at = wall_time()
        try:
            with self._writes.one(boot_time()):
                written = await self._coordination.append(encode(record))
        except UNREACHABLE as error:
            log.debug("An append to %s failed: %r", self.topic, error)
            return None
        self._tell_clock(sent_at, written)
        return written.offset

    def read_assignment(self, command: ReadAssignmentCommand) -> None:
        """Look for the newest map in the log."""
        self._tasks.spawn(self._read_assignment(command), "read-base")

    async def _read_assignment(self, command: ReadAssignmentCommand) -> None:
        # On a channel of its own: what is asked on the tail's waits for its long poll.
        coordination, telemetry = (self._partition(p, Channel.LOOK, Channel.LOOK) for p in (COORDINATION, TELEMETRY))
        found = Lookback(command.group, coordination, telemetry, self._decoded)
        try:
            async with asyncio.timeout(command.timeout):
                await found.run(override_only=command.override_only)
        except UNREACHABLE as error:
            log.info("No earlier map was found in %s (%r): going by the claims.", self.topic, error)
        self._reader.feed(
            AssignmentFoundEvent(
                now=boot_time(),
                assignment=found.assignment,
                manual_override=found.manual_override,
                complete=found.complete,
            )
        )

    def _decoded(self, messages: Iterable[Any]) -> list[Record]:
        return [record for message in messages if (record := self._decode(message.value)) is not None]

    # -- telemetry -----------------------------------------------------------------------------------------------

    async def publish(self, record: Record, *, sequence: int) -> bool:
        """Write a report or a decision to the telemetry partition."""
        key = telemetry_key(record.group, record.member, sequence)
        try:
            await self._telemetry.append(encode(record), key)
        except UNREACHABLE as error:
            log.debug("A record of the telemetry did not get through: %r", error)
            return False
        return True

    def telemetry(self, since: float) -> TelemetryTail:
        """The telemetry partition from ``since`` (epoch seconds) on."""
        return TelemetryTail(self._telemetry, since, self._entry)

    def _entry(self, message: Any, replayed: bool) -> TelemetryEntry | None:
        record = self._decode(message.value)
        if record is None:
            return None
        stamp, now = message.timestamp / 1000, wall_time()
        if self._clock_ahead is not None:
            at = min(now, stamp + self._clock_ahead)
        else:
            at = stamp if replayed else now
        logged_at = stamp if self._clock_ahead is not None else None
        return TelemetryEntry(record=record, received_at=at, replayed=replayed, logged_at=logged_at)


class TelemetryTail:
    """Reads a telemetry partition when it is asked to, and nothing in between: reports are many, and what is made of
    them is made once a second.

    Args:
        log: of the partition.
        since: where to begin, seconds since the epoch.
        entry: makes an entry of a record, or nothing of one that cannot be read.
    """

    def __init__(self, log: PartitionLog, since: float, entry: Callable[[Any, bool], TelemetryEntry | None]) -> None:
        self._log = log
        self._since_ms = int(since * 1000)
        self._entry = entry
        self._position = -1
        self._replay_end = -1
        """What was there at the first call ends here."""

    async def read(self, hear: Callable[[TelemetryEntry], None]) -> None:
        """Hear everything that came since the last time. Cancelled in between, the next call goes on there.

        Raises:
            KafkaError, OSError, TimeoutError: it cannot be read now.
        """
        if self._position < 0:
            end = await self._log.end()
            found = await self._log.offset_at(self._since_ms)
            self._replay_end, self._position = end, found if found >= 0 else end
        end = self._position + 1
        while self._position < end:
            try:
                fetched = await self._log.read(self._position, wait_seconds=0.0, timeout=ANSWER_SECONDS)
            except OffsetOutOfRangeError:
                self._position = end = await self._log.end()
                continue
            for _ in fetched.unreadable:
                self._entry(_NO_MESSAGE, False)  # counts it
            for message in fetched.records:
                entry = self._entry(message, message.offset < self._replay_end)
                if entry is not None:
                    hear(entry)
            self._position, end = fetched.following, fetched.end


def telemetry_key(group: str, member: str, sequence: int) -> bytes:
    """Key of a report or a decision."""
    return KEY_SEPARATOR.join((group, member, str(sequence))).encode()
