"""Reading a group's control topic, and writing its manual override."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    TopicAuthorizationFailedError,
)
from aiokafka.structs import TopicPartition

from loadtrim.errors import CommandError, UsageError
from loadtrim_agent.common.errors import LoadtrimError
from loadtrim_agent.wire.codec import Record, decode, encode
from loadtrim_agent.wire.envelope import COORDINATION, TELEMETRY, UnreadableRecord
from loadtrim_agent.wire.ownership_records import AssignmentRecord, ManualOverrideRecord
from loadtrim_agent.wire.telemetry_records import DecisionRecord
from loadtrim_agent.wire.topic_names import control_topic, group_of

from ..start_errors import AUTHENTICATION_ERRORS
from .connection import CLIENT_LOG, Connection

__all__ = ["ControlTopic", "Entry", "Recent", "groups_of", "outside_errors", "refused_settings", "topic_of"]

AUTHORIZATION_ERRORS = (
    TopicAuthorizationFailedError,
    GroupAuthorizationFailedError,
    ClusterAuthorizationFailedError,
)
TOPIC_VARIABLE = "LOADTRIM_CONTROL_TOPIC"
RECENT_SECONDS = 60.0
"""The part of the coordination log and of the telemetry tells what goes on now."""
CHUNK_RECORDS = 5_000
"""First step back in a partition; each further one is four times as long."""
CHUNK_RECORDS_MAX = 400_000
SCAN_SECONDS = 15.0
"""So long is looked back in the log for the newest map: 150 000 to 500 000 records a second. A group of 10 members that
has kept its generation for a day has written some 2 million."""
READ_SECONDS = 60.0
LOAD_MARK = b'{"kind":"load"'
"""The first bytes of a ``load`` record. There are many, and old ones tell nothing, so they are not even decoded."""


class Entry(NamedTuple):
    """One record of the control topic."""

    record: Record
    at: float
    """When the broker appended it, seconds since the epoch."""


@dataclass(slots=True)
class Recent:
    """The recent records of both partitions, each in its own order."""

    coordination: list[Entry] = field(default_factory=list)
    telemetry: list[Entry] = field(default_factory=list)
    unreadable: int = 0
    positions: dict[int, int] = field(default_factory=dict)
    """Per partition, the offset after the last record read."""


def topic_of(group: str) -> str:
    """The group's control topic: by ``LOADTRIM_CONTROL_TOPIC``, else by the group's name.

    Raises:
        UsageError: no group can have this id.
    """
    try:
        by_name = control_topic(group)
    except LoadtrimError as error:
        raise UsageError(
            f"The group {group!r} cannot be looked for: {error}.", "Nothing was done.", "Give the group's id."
        ) from error
    return os.environ.get(TOPIC_VARIABLE) or by_name


async def groups_of(connection: Connection) -> list[str]:
    """Return the groups of a cluster that have a control topic of the default name, sorted.

    Raises:
        CommandError: the cluster cannot be reached.
    """
    with outside_errors(connection, "listing the topics"):
        async with _admin(connection) as admin:
            return _known(await admin.list_topics())


class ControlTopic:
    """A group's control topic, open for reading and writing. An async context manager.

    Raises on entering:
        CommandError: the cluster cannot be reached, or there is no such topic.
    """

    def __init__(self, connection: Connection, group: str) -> None:
        self.connection = connection
        self.group = group
        self.topic = topic_of(group)
        self.unreadable = 0
        """Records that were no record of this version."""

    async def __aenter__(self) -> Self:
        with outside_errors(self.connection, f"reading the control topic {self.topic}"):
            await self._check_topic()
            self._reader = AIOKafkaConsumer(
                **self.connection.client_options(),
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                fetch_max_wait_ms=200,
            )
            try:
                await self._reader.start()
            except BaseException:
                await self._reader.stop()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._reader.stop()

    async def recent(self, seconds: float = RECENT_SECONDS, scan_seconds: float | None = None) -> Recent:
        """The records that tell how the group is now.

        Args:
            seconds: how far back in the telemetry.
            scan_seconds: how long to look back in the coordination log; None: 15 s, 0: only its last 5000 records.

        Returns:
            Telemetry of the last ``seconds``; of the coordination log the newest ``base`` with all that follows
            it, or where none is found in time what was read.
        """
        scan_seconds = SCAN_SECONDS if scan_seconds is None else scan_seconds
        with outside_errors(self.connection, f"reading the control topic {self.topic}"):
            async with self._in_time():
                coordination, end = await self._back_to(COORDINATION, self._has_map, scan_seconds)
                start = await self._offset_at(TELEMETRY, time.time() - seconds)
                telemetry_end = await self._end(TELEMETRY)
                telemetry = await self._range(TELEMETRY, start, telemetry_end)
        positions = {COORDINATION: end, TELEMETRY: telemetry_end}
        return Recent(coordination, telemetry, self.unreadable, positions)

    @contextlib.asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        """Bound a read.

        Raises:
            CommandError: it took too long.
        """
        limit = asyncio.timeout(READ_SECONDS)
        try:
            async with limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise  # of a connection
            raise CommandError(
                f"Reading the control topic {self.topic} took longer than {READ_SECONDS:.0f} s.",
                "There is more in it than can be read in this time, or the broker of one of its partitions does not "
                "answer. Nothing was done.",
                "Ask for less of it (simulate: a shorter --past; explain: a smaller --last), and look whether all "
                "brokers are there.",
            ) from error

    async def decisions(self, last: int) -> list[DecisionRecord]:
        """The group's last decisions, oldest first; fewer where there were not so many."""

        def enough(entries: list[Entry]) -> bool:
            return len(self._decisions_in(entries)) >= last

        with outside_errors(self.connection, f"reading the control topic {self.topic}"):
            async with self._in_time():
                entries, _ = await self._back_to(TELEMETRY, enough, SCAN_SECONDS)
        return self._decisions_in(entries)[-last:]

    async def follow(self, positions: dict[int, int]) -> AsyncGenerator[list[Entry], None]:
        """Every record from these offsets on, in batches, for ever; an empty batch where nothing is new."""
        with outside_errors(self.connection, f"reading the control topic {self.topic}"):
            self._reader.assign([TopicPartition(self.topic, index) for index in sorted(positions)])
            for index, offset in sorted(positions.items()):
                self._reader.seek(TopicPartition(self.topic, index), offset)
            while True:
                batches = await self._reader.getmany(timeout_ms=500)
                yield [entry for _, batch in sorted(batches.items()) for entry in self._decoded(batch)]

    async def write_manual_override(self, manual_override: ManualOverrideRecord) -> None:
        """Append to the coordination log and wait until all replicas have it.

        Raises:
            CommandError: it could not be written, or it is not known whether it was.
        """
        with outside_errors(self.connection, f"writing to the control topic {self.topic}"):
            producer = AIOKafkaProducer(**self.connection.client_options(), acks="all")
            await producer.start()
            try:
                await producer.send_and_wait(self.topic, encode(manual_override), partition=COORDINATION)
            finally:
                await producer.stop()

    async def _check_topic(self) -> None:
        """Look through all topics: asking for one by name may create it."""
        async with _admin(self.connection) as admin:
            topics = await admin.list_topics()
            if self.topic not in topics:
                raise self._no_topic(topics, self.group in await _groups(admin))

    def _no_topic(self, topics: list[str], group_exists: bool) -> CommandError:
        known = _known(topics)
        happened = f"The group {self.group!r} has no control topic ({self.topic}) on {self.connection.bootstrap}."
        if group_exists:
            return CommandError(
                happened,
                "The group exists, but no loadtrim member ever used it: its members are plain consumers, "
                "may not create the topic, or use another one.",
                "Look for 'control topic' in the members' logs: they say how to create it. "
                f"A topic of another name: ${TOPIC_VARIABLE}.",
            )
        near = difflib.get_close_matches(self.group, known, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        groups = f"Groups with loadtrim here: {', '.join(known[:10])}." if known else "No group here uses loadtrim."
        return CommandError(
            happened,
            "No loadtrim member of such a group has run on this cluster (or you may not DESCRIBE the topic).",
            f"{hint}{groups} Another cluster: --bootstrap.",
        )

    def _has_map(self, entries: list[Entry]) -> bool:
        return any(isinstance(e.record, AssignmentRecord) and e.record.group == self.group for e in entries)

    def _decisions_in(self, entries: list[Entry]) -> list[DecisionRecord]:
        return [e.record for e in entries if isinstance(e.record, DecisionRecord) and e.record.group == self.group]

    async def _back_to(
        self, partition: int, enough: Callable[[list[Entry]], bool], scan_seconds: float
    ) -> tuple[list[Entry], int]:
        """Read backwards from the end in growing chunks until there is enough, or the time is over.

        Returns:
            Entries in the order of the log, and the log's end.
        """
        deadline = time.monotonic() + scan_seconds
        begin, end = await self._begin(partition), await self._end(partition)
        entries: list[Entry] = []
        upper, chunk = end, CHUNK_RECORDS
        while upper > begin and (upper == end or time.monotonic() < deadline):
            lower = max(begin, upper - chunk)
            older = await self._range(partition, lower, upper, with_loads=upper == end)
            entries = older + entries
            if enough(entries):
                break
            upper, chunk = lower, min(chunk * 4, CHUNK_RECORDS_MAX)
        return entries, end

    async def _range(self, partition: int, start: int, end: int, with_loads: bool = True) -> list[Entry]:
        """Every readable record from ``start`` up to, not including, ``end``."""
        entries: list[Entry] = []
        if start >= end:
            return entries
        at = TopicPartition(self.topic, partition)
        self._reader.assign([at])
        self._reader.seek(at, start)
        while await self._reader.position(at) < end:
            for batch in (await self._reader.getmany(timeout_ms=500, max_records=5_000)).values():
                wanted = [m for m in batch if m.offset < end and (with_loads or not _is_load(m.value))]
                entries += self._decoded(wanted)
        return entries

    def _decoded(self, messages: list[Any]) -> list[Entry]:
        entries = []
        for message in messages:
            try:
                entries.append(Entry(decode(message.value or b""), message.timestamp / 1000))
            except UnreadableRecord:
                self.unreadable += 1
        return entries

    async def _begin(self, partition: int) -> int:
        at = TopicPartition(self.topic, partition)
        return int((await self._reader.beginning_offsets([at]))[at])

    async def _end(self, partition: int) -> int:
        at = TopicPartition(self.topic, partition)
        return int((await self._reader.end_offsets([at]))[at])

    async def _offset_at(self, partition: int, at_seconds: float) -> int:
        at = TopicPartition(self.topic, partition)
        found = (await self._reader.offsets_for_times({at: int(at_seconds * 1000)}))[at]
        return int(found.offset) if found is not None else await self._end(partition)


class outside_errors:
    """Turns what Kafka's client raises into a :class:`CommandError` that says what to do. A context manager.

    Args:
        connection: what was tried.
        doing: what it was needed for, to go into the sentence.
    """

    def __init__(self, connection: Connection, doing: str) -> None:
        self._connection = connection
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KafkaError | OSError | TimeoutError):
            raise self._explained(error) from error

    def _explained(self, error: BaseException) -> CommandError:
        where = f"{self._connection.bootstrap} (from {self._connection.given_by})"
        if isinstance(error, AUTHENTICATION_ERRORS):
            return CommandError(
                f"The cluster at {where} refused the user: {error}.",
                f"Nothing was done; it was wanted for {self._doing}.",
                "Check sasl.mechanism, sasl.username and sasl.password in the file of --config.",
            )
        if isinstance(error, AUTHORIZATION_ERRORS):
            return CommandError(
                f"The cluster at {where} does not allow {self._doing}: {error}.",
                "Nothing was done.",
                "The user needs READ and DESCRIBE on the control topic, and WRITE for hold, resume and scale.",
            )
        if isinstance(error, KafkaConnectionError | OSError | TimeoutError):
            return CommandError(
                f"No broker can be talked to at {where}{_said()}.",
                "It is down, the address is wrong, or it wants TLS or SASL in another way.",
                "Check the address (--bootstrap), and the settings for TLS and SASL (--config).",
            )
        return CommandError(
            f"The cluster at {where} failed: {error!r}.",
            f"It happened while {self._doing}; it may or may not have been done.",
            "Try again; if it fails again, look at the broker's log.",
        )


@contextlib.asynccontextmanager
async def _admin(connection: Connection) -> AsyncIterator[AIOKafkaAdminClient]:
    """Open a client, the first of each command: settings that it accepts are accepted by the others.

    Raises:
        CommandError: it refuses them.
    """
    with refused_settings(connection):
        admin = AIOKafkaAdminClient(**connection.client_options())
        try:
            await admin.start()
        except BaseException:
            await admin.close()
            raise
    try:
        yield admin
    finally:
        await admin.close()


@contextlib.contextmanager
def refused_settings(connection: Connection) -> Iterator[None]:
    """Turn what aiokafka refuses settings by into a :class:`CommandError`: a library that is not installed, say.

    Raises:
        CommandError: that is so.
    """
    try:
        yield
    except (ValueError, AssertionError, ImportError) as error:
        raise CommandError(
            f"The settings of {connection.settings_by} cannot be used: {error}.",
            "No connection can be made with them, so nothing was done.",
            "Check the address (--bootstrap) and the settings for TLS and SASL (--config); for Kerberos install "
            "loadtrim[gssapi].",
        ) from error


def _known(topics: Iterable[str]) -> list[str]:
    return sorted(group for topic in topics if (group := group_of(topic)) is not None)


async def _groups(admin: Any) -> set[str]:
    try:
        return {name for name, *_ in await admin.list_consumer_groups()}
    except KafkaError:
        return set()  # Not allowed to list them: the message says a little less.


def _said() -> str:
    """The line that Kafka's client wrote to its log only: it raises one error for every trouble with a connection."""
    return f" ({CLIENT_LOG.last})" if CLIENT_LOG.last else ""


def _is_load(value: bytes | None) -> bool:
    return value is not None and value.startswith(LOAD_MARK)
