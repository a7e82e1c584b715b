"""What is said of a control topic that cannot be used; all else needs a broker (``tests/integration``)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import (
    InvalidPartitionsError,
    KafkaConnectionError,
    KafkaError,
    LeaderNotAvailableError,
    MessageSizeTooLargeError,
    NodeNotReadyError,
    NotEnoughReplicasError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedCodecError,
)
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from loadtrim_agent.kafka.connections import RECONNECT_SECONDS_MAX, Connections
from loadtrim_agent.kafka.control_log import POLL_SECONDS, SILENT_SECONDS, ControlLog, TelemetryEntry, TelemetryTail
from loadtrim_agent.kafka.control_topic import KEEP_SECONDS, KEEP_SECONDS_MAX, LOOK_SECONDS_MAX, ControlTopicUnusable
from loadtrim_agent.kafka.partition_log import Appended, Fetched, leader_epochs
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.wire.codec import encode
from loadtrim_agent.wire.ownership_records import AssignmentRecord, LoadRecord, ManualOverrideRecord
from loadtrim_agent.wire.telemetry_records import ReportRecord
from partition_logs import SharedLog

NO_READER: Any = SimpleNamespace(
    feed=lambda *_: None, spawn=lambda work, _: work.close(), unreadable=lambda: None, clock=lambda *_: None
)


def make_log() -> ControlLog:
    return ControlLog(
        {"bootstrap_servers": "localhost:1"},
        "__loadtrim.payments",
        NO_READER,
        NO_READER,
    )


async def test_a_broker_that_does_not_answer_is_said_to_be_the_reason() -> None:
    """A time-out has no text of its own: the line said that the topic cannot be used, and nothing why."""
    log = make_log()
    said = log._control_topic.advice(TimeoutError())
    await log.close()
    assert "cannot be used (no answer in time)" in said
    assert "cannot be used (asyncio is closed)" in log._control_topic.advice(
        asyncio.InvalidStateError("asyncio is closed")
    )


async def test_a_control_topic_of_one_partition_is_not_to_be_created() -> None:
    """Its line said to create the topic, which fails, for it is there."""
    log = make_log()
    said = log._control_topic.advice("it has fewer than 2 partitions")
    await log.close()
    assert "`kafka-topics.sh --alter --topic __loadtrim.payments --partitions 2`" in said


async def test_a_broker_that_does_not_know_its_controller_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """aiokafka's admin client raises AttributeError then, which ended the user's start()."""
    asked: list[str] = []

    class Admin:
        def __init__(self, **_: object) -> None:
            self._client = SimpleNamespace(
                cluster=SimpleNamespace(controller=object() if asked else None), force_metadata_update=self._update
            )

        async def _update(self) -> bool:
            asked.append("metadata")
            return False

        async def start(self) -> None: ...

        async def close(self) -> None: ...

        async def create_topics(self, topics: list[object]) -> object:
            assert self._client.cluster.controller is not None
            asked.append("created")
            return SimpleNamespace(topic_errors=[("topic", 0)])

    monkeypatch.setattr("aiokafka.admin.AIOKafkaAdminClient", Admin)
    log = make_log()
    counts = iter([None, 2])

    async def count() -> int | None:
        return next(counts)

    monkeypatch.setattr(log._control_topic, "_count_partitions", count)
    await asyncio.wait_for(log._control_topic.ensure(), 10.0)
    assert asked == ["metadata", "created"]


class Brokers:
    """A cluster in which the control topic has so many partitions; None: it is not there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: ControlLog) -> None:
        self.partitions: int | None = None
        self.refusal: KafkaError | None = None
        self.asked: list[str] = []
        self._client = self
        self.cluster = SimpleNamespace(controller=object(), partitions_for_topic=lambda topic: self._there())
        monkeypatch.setattr("aiokafka.admin.AIOKafkaAdminClient", lambda **_: self)
        monkeypatch.setattr(log._connections, "client", self)
        monkeypatch.setattr(log._control_topic, "_count_partitions", self._count)
        self._seen: int | None = None

    def _there(self) -> set[int] | None:
        return None if self._seen is None else set(range(self._seen))

    async def _count(self) -> int | None:
        return self.partitions

    async def force_metadata_update(self) -> None:
        self._seen = self.partitions

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def create_topics(self, topics: list[Any]) -> object:
        return self._answer("created", topics[0].num_partitions)

    async def create_partitions(self, topics: dict[str, Any]) -> object:
        [new] = topics.values()
        return self._answer("enlarged", new.total_count)

    def _answer(self, what: str, partitions: int) -> object:
        self.asked.append(what)
        if self.refusal is not None:
            raise self.refusal
        self.partitions = partitions
        return SimpleNamespace(topic_errors=[("topic", 0)])


async def test_a_topic_that_a_broker_made_with_one_partition_is_given_the_second(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each member that started shared the group as a plain consumer, and the whole group did."""
    log = make_log()
    brokers = Brokers(monkeypatch, log)
    brokers.partitions = 1
    await log._control_topic.ensure()
    assert (brokers.asked, brokers.partitions) == (["enlarged"], 2)
    assert "auto.create.topics.enable" in caplog.text


async def test_a_topic_that_another_member_has_just_given_its_second_partition_is_as_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = make_log()
    brokers = Brokers(monkeypatch, log)
    counts = iter([1, 1, 2])

    async def count() -> int:
        return next(counts)

    monkeypatch.setattr(log._control_topic, "_count_partitions", count)
    brokers.refusal = InvalidPartitionsError()
    await asyncio.wait_for(log._control_topic.ensure(), 10.0)
    assert brokers.asked == ["enlarged"]


async def test_a_topic_that_may_not_be_given_its_second_partition_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = make_log()
    brokers = Brokers(monkeypatch, log)
    brokers.partitions, brokers.refusal = 1, TopicAuthorizationFailedError("no rights")
    with pytest.raises(ControlTopicUnusable, match="fewer than 2 partitions.*no rights.*--alter"):
        await log._control_topic.ensure()


async def test_a_topic_under_a_name_of_the_users_is_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be somebody else's, and a topic never loses a partition again."""
    log = ControlLog({"bootstrap_servers": "localhost:1"}, "orders", NO_READER, NO_READER)
    brokers = Brokers(monkeypatch, log)
    brokers.partitions = 1
    with pytest.raises(ControlTopicUnusable, match="fewer than 2 partitions"):
        await log._control_topic.ensure()
    assert brokers.asked == []


@pytest.mark.looptime
@pytest.mark.parametrize(("partitions", "asked"), [(2, []), (1, ["enlarged"]), (None, ["created"])])
async def test_a_topic_that_is_used_is_mended(
    monkeypatch: pytest.MonkeyPatch, partitions: int | None, asked: list[str]
) -> None:
    """Deleted, it was nobody's to make; made by a broker with one partition, it had no place for a report."""
    log = make_log()
    brokers = Brokers(monkeypatch, log)
    brokers.partitions = brokers._seen = partitions
    keeping = asyncio.create_task(log._control_topic.keep())
    await asyncio.sleep(10 * KEEP_SECONDS)
    assert (brokers.asked, brokers.partitions) == (asked, 2), "once"
    keeping.cancel()


@pytest.mark.looptime
async def test_what_keeps_a_topic_from_being_mended_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each member told the whole of it six times in the first five minutes."""

    def told() -> int:
        return sum("no rights" in record.getMessage() for record in caplog.records if record.levelname == "WARNING")

    log = make_log()
    brokers = Brokers(monkeypatch, log)
    brokers.refusal = TopicAuthorizationFailedError("no rights")
    caplog.set_level(logging.DEBUG, "loadtrim")
    keeping = asyncio.create_task(log._control_topic.keep())
    await asyncio.sleep(600.0)
    assert told() == 1
    assert 10 <= caplog.text.count("no rights") <= 14
    brokers.refusal = None
    await asyncio.sleep(KEEP_SECONDS_MAX + 2 * KEEP_SECONDS)
    assert brokers.partitions == 2, "it goes on trying"
    brokers.partitions = brokers._seen = None
    brokers.refusal = TopicAuthorizationFailedError("no rights")
    await asyncio.sleep(10 * KEEP_SECONDS)
    assert told() == 2, "it was well in between"
    keeping.cancel()


async def test_no_broker_makes_the_control_topic_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """It made it with one partition, as the members asked who leads what of a topic that was deleted."""
    allowed: list[bool] = []

    async def ask(cluster: object, request: Any) -> bool:
        allowed.append(request.prepare({3: (5, 5)}).allow_auto_topic_creation)
        return True

    for connections in (Connections({"bootstrap_servers": "localhost:1"}), make_log()._connections):
        monkeypatch.setattr(connections.client, "_ask_for_metadata", ask)
        await connections.client._metadata_update(connections.client.cluster, {"topic"})
    assert allowed == [True, False]


async def test_a_broker_that_goes_just_now_is_no_reason_to_do_without_the_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any broker is asked first. One that was going made a member share the group as a plain consumer."""
    log = make_log()
    answers: Iterator[Exception | int] = iter(
        [NodeNotReadyError("Node 2 does not take connections"), KafkaConnectionError("closed"), 2]
    )

    async def count() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(log._control_topic, "_count_partitions", count)
    await asyncio.wait_for(log._control_topic.ensure(), 10.0)
    assert list(answers) == []
    await log.close()


async def test_what_a_token_provider_raises_is_a_topic_that_cannot_be_used_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised as it was, it ended the task that tries the topic again, and with it the consumer."""
    log = make_log()

    async def fail() -> None:
        raise LookupError("503 from the identity provider")

    monkeypatch.setattr(log._connections, "start", fail)
    with pytest.raises(ControlTopicUnusable, match="503 from the identity provider"):
        await log.start()


async def test_the_probe_is_tried_again_where_its_broker_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log()
    left = [NodeNotReadyError(), KafkaConnectionError()]

    async def nothing(*_: object) -> int:
        return 0

    async def probe() -> None:
        if left:
            raise left.pop()

    monkeypatch.setattr(log._connections, "start", nothing)
    monkeypatch.setattr(log._connections.client, "set_topics", nothing)
    monkeypatch.setattr(log._control_topic, "ensure", nothing)
    monkeypatch.setattr(log._coordination, "end", nothing)
    monkeypatch.setattr(log, "_probe", probe)
    await asyncio.wait_for(log.start(), 10.0)
    assert left == []
    await log.close()


async def test_a_topic_that_is_being_created_is_looked_for_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is busy with another topic takes seconds; at the end start() slept through one of them."""
    waits: list[float] = []
    sleep = asyncio.sleep

    async def wait(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0)

    log = make_log()
    monkeypatch.setattr("loadtrim_agent.kafka.control_log.asyncio.sleep", wait)

    async def look() -> int:
        if len(waits) < 20:
            raise LeaderNotAvailableError
        return 2

    assert await log._control_topic.patiently(look) == 2
    await log.close()
    assert max(waits) <= LOOK_SECONDS_MAX
    assert sum(waits) > 1.0, "and the broker is left alone meanwhile"


class Telemetry:
    """A telemetry partition: offset -> (the broker's stamp, ms; value)."""

    def __init__(self, count: int) -> None:
        self.records = [SimpleNamespace(offset=n, timestamp=1_000_000 + n, value=report(n)) for n in range(count)]
        self.first_offset, self.reads = 0, 0

    async def end(self) -> int:
        return len(self.records)

    async def offset_at(self, timestamp_ms: int) -> int:
        return next((record.offset for record in self.records if record.timestamp >= timestamp_ms), -1)

    async def read(self, position: int, *, wait_seconds: float, timeout: float) -> Fetched:
        assert wait_seconds == 0.0
        self.reads += 1
        if position < self.first_offset:
            raise OffsetOutOfRangeError
        some = self.records[position : position + 2]
        return Fetched(list(some), position + len(some), len(self.records))


def report(sequence: int) -> bytes:
    return encode(ReportRecord(group="payments", member="m", at=1.0, sequence=sequence, generation=1))


async def test_telemetry_is_heard_once_with_the_moment_it_was_appended_on_this_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1_000.5]
    monkeypatch.setattr("loadtrim_agent.kafka.control_log.wall_time", lambda: now[0])
    log, there = make_log(), Telemetry(5)
    partition: Any = there
    tail = TelemetryTail(partition, 1_000.001, log._entry)
    heard: list[TelemetryEntry] = []
    await tail.read(heard.append)
    assert [(entry.record.sequence, entry.replayed) for entry in heard] == [(n, True) for n in range(1, 5)]  # type: ignore[union-attr]
    assert heard[0].received_at == 1_000.001, "nothing is known of the clocks yet, and it was there before"

    there.records += Telemetry(7).records[5:]
    heard.clear()
    there.reads = 0
    log._clock_ahead = 0.25
    await tail.read(heard.append)
    assert [(entry.received_at, entry.replayed) for entry in heard] == [(1_000.255, False), (1_000.256, False)]
    assert there.reads == 1, "the answer says that there is no more"
    await tail.read(heard.append)
    assert len(heard) == 2

    log._clock_ahead = None
    there.records += Telemetry(9).records[7:]
    there.records[7].value = b"{"
    there.first_offset = 8  # retention
    await tail.read(heard.append)
    there.records += Telemetry(10).records[9:]
    await tail.read(heard.append)
    assert [(entry.record.sequence, entry.received_at) for entry in heard[2:]] == [(9, now[0])]  # type: ignore[union-attr]
    await log.close()


class Coordination:
    """The coordination log behind a gap: it was truncated, and what is asked for does not exist."""

    def __init__(self) -> None:
        self.end_failures = 0
        self.ends_asked = 0
        self.begin = 10

    async def read(self, position: int, *, wait_seconds: float, timeout: float) -> Fetched:
        if position < self.begin:
            raise OffsetOutOfRangeError
        await asyncio.sleep(0)
        return Fetched([], position, position)

    async def end(self) -> int:
        self.ends_asked += 1
        if self.end_failures:
            self.end_failures -= 1
            raise LeaderNotAvailableError
        return self.begin


async def test_a_gap_is_told_when_the_end_behind_it_is_known() -> None:
    """A release between the JoinGroup that a gap causes and an end asked for later was read by nobody."""
    log, there = make_log(), Coordination()
    told: list[tuple[e.Event, int, int]] = []
    partition: Any = there
    log._coordination = partition
    log._reader = SimpleNamespace(feed=lambda event: told.append((event, there.ends_asked, log._position)))  # type: ignore[assignment]
    await log._read_on()
    ((event, ends_asked, position),) = told
    assert isinstance(event, e.LogGapEvent)
    assert (ends_asked, position) == (1, 10), "whatever the machine does about it comes after the end"
    await log.close()


async def test_a_gap_is_told_once_however_often_the_end_must_be_asked_for() -> None:
    """Each time it is told is a rebalance of the whole group."""
    log, there = make_log(), Coordination()
    there.end_failures = 3
    told: list[e.Event] = []
    partition: Any = there
    log._coordination = partition
    log._reader = SimpleNamespace(feed=told.append)  # type: ignore[assignment]
    for _ in range(3):
        with pytest.raises(LeaderNotAvailableError):
            await log._read_on()
    assert told == []
    await log._read_on()
    assert [type(event) for event in told] == [e.LogGapEvent]
    await log._read_on()
    assert len(told) == 1
    await log.close()


class Unpacked:
    """A log whose offsets 11 and 12 are of a batch that cannot be unpacked, with a record before and behind them."""

    def __init__(self) -> None:
        self.asked = 0

    async def append(self, value: bytes) -> Appended:
        return Appended(12, None)

    async def read(self, position: int, *, wait_seconds: float, timeout: float) -> Fetched:
        self.asked += 1
        value = encode(LoadRecord(group="g", member="m", at=1.0, generation=1))
        records = [SimpleNamespace(offset=offset, value=value) for offset in (10, 13)]
        return Fetched(records, 14, 14, None, (range(11, 13),))


async def test_what_cannot_be_unpacked_is_counted_and_a_gap() -> None:
    """Another member may have read a release in it, so that the members would go by different owners."""
    log, there = make_log(), Unpacked()
    told: list[e.Event] = []
    counted: list[int] = []
    partition: Any = there
    log._coordination, log._position = partition, 10
    log._reader = SimpleNamespace(feed=told.append, unreadable=lambda: counted.append(1))  # type: ignore[assignment]
    assert await log._read_on() == (range(11, 13),)
    assert [type(event) for event in told] == [e.LogReadEvent, e.LogReadEvent, e.LogPositionEvent, e.LogGapEvent]
    assert (log._position, told[2], len(counted)) == (14, e.LogPositionEvent(now=told[2].now, position=14), 1)
    await log.close()


async def test_a_member_that_cannot_unpack_what_it_wrote_does_not_use_the_topic() -> None:
    """The broker may compress all that the topic holds (``compression.type``)."""
    log, there = make_log(), Unpacked()
    partition: Any = there
    log._coordination, log._position = partition, 10
    log._reader = NO_READER
    with pytest.raises(UnsupportedCodecError, match=r"compression\.type to producer"):
        await log._probe()
    await log.close()


async def test_telemetry_that_cannot_be_unpacked_is_counted() -> None:
    class Bomb(Telemetry):
        async def read(self, position: int, *, wait_seconds: float, timeout: float) -> Fetched:
            return (await super().read(position, wait_seconds=0.0, timeout=1.0))._replace(unreadable=(range(2, 9),))

    log, counted, heard = make_log(), list[int](), list[TelemetryEntry]()
    log._reader = SimpleNamespace(unreadable=lambda: counted.append(1))  # type: ignore[assignment]
    there = Bomb(3)
    partition: Any = there
    await TelemetryTail(partition, 0.0, log._entry).read(heard.append)
    assert (len(counted), len(heard)) == (there.reads, 3)
    await log.close()


class CompactedLog:
    """A coordination log that lacks the records between some of its offsets."""

    def __init__(self, *offsets: int) -> None:
        self.offsets = offsets

    async def read(self, position: int, *, wait_seconds: float, timeout: float) -> Fetched:
        value = encode(LoadRecord(group="ours", member="m", at=0.0, generation=1))
        there = [SimpleNamespace(offset=n, value=value) for n in self.offsets if n >= position]
        return Fetched(there, self.offsets[-1] + 1, self.offsets[-1] + 1)


async def test_records_that_are_missing_are_told_before_those_behind_them() -> None:
    """What was missed may be a release: the member that reads on without it is not of the others' opinion any more."""
    log, told = make_log(), list[e.Event]()
    partition: Any = CompactedLog(0, 1, 4, 5)
    log._coordination = partition
    log._reader = SimpleNamespace(feed=told.append)  # type: ignore[assignment]
    await log._read_on()
    await log.close()
    told_of = [getattr(event, "offset", getattr(event, "position", None)) for event in told]
    assert told_of == [0, 1, None, 4, 5, 6]
    assert [type(event) for event in told if not isinstance(event, e.LogReadEvent)] == [
        e.LogGapEvent,
        e.LogPositionEvent,
    ], "one gap, and then the position behind all that was read"


class UnreadableLog(SharedLog):
    async def end(self) -> int:
        raise LeaderNotAvailableError


async def test_a_look_back_tells_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the order of the command line beside the assignment; and where it cannot read, that there is nothing."""
    order = ManualOverrideRecord(group="ours", member="cli", at=0.0, action="hold")
    newest = AssignmentRecord(group="ours", member="m", at=0.0, generation=4, members={})
    log, told = make_log(), list[e.Event]()
    partitions: Any = {0: SharedLog(newest, order), 1: SharedLog()}
    monkeypatch.setattr(log, "_partition", lambda partition, *_, **__: partitions[partition])
    monkeypatch.setattr(log, "_reader", SimpleNamespace(feed=told.append))
    await log._read_assignment(c.ReadAssignmentCommand(group="ours", timeout=1.0))
    partitions[0] = UnreadableLog()
    await log._read_assignment(c.ReadAssignmentCommand(group="ours", timeout=1.0))
    await log.close()
    first, second = told
    assert isinstance(first, e.AssignmentFoundEvent)
    assert (first.assignment, first.manual_override) == (newest, order)
    assert isinstance(second, e.AssignmentFoundEvent)
    assert (second.assignment, second.manual_override, second.complete) == (None, None, False)


class ProvedLog(SharedLog):
    """A log that takes what is appended; a read gives one record at most."""

    def __init__(self) -> None:
        super().__init__()
        self.positions: list[int] = []

    async def append(self, value: bytes) -> Appended:
        self.values.append(value)
        return Appended(len(self.values) - 1, None)

    async def read(self, position: int, *, wait_seconds: float, timeout: float) -> Fetched:
        self.positions.append(position)
        messages = [SimpleNamespace(offset=position, value=self.values[position])]
        return Fetched(messages, position + 1, len(self.values))


async def test_the_probe_is_read_back_with_all_that_was_written_before_it() -> None:
    """A log that can be written and not read would have members give partitions away that nobody takes."""
    log, there = make_log(), ProvedLog()
    there.values = [b"not a record", b"nor this"]
    partition: Any = there
    log._coordination = partition
    await log._probe()
    assert there.positions == [0, 1, 2], "and what cannot be read ends nothing"
    assert log._position == 3
    await log.close()


class SharedLogThatRefuses(SharedLog):
    async def append(self, value: bytes) -> Appended:
        raise LeaderNotAvailableError


async def test_an_append_that_does_not_get_through_has_no_offset() -> None:
    """Any offset would do as a promise that the release is in the log."""
    log, told = make_log(), list[e.Event]()
    partition: Any = SharedLogThatRefuses()
    log._coordination = partition
    log._reader = SimpleNamespace(feed=told.append)  # type: ignore[assignment]
    record = LoadRecord(group="ours", member="m", at=0.0, generation=1)
    await log._append(c.AppendCommand(append=7, record=record))
    assert not await log.write(record)
    await log.close()
    assert [(event.append, event.offset) for event in told if isinstance(event, e.AppendedEvent)] == [(7, None)]


class BusyLog:
    """A coordination log in a group so large that a record always waits."""

    def __init__(self) -> None:
        self.reads = 0

    async def read(self, position: int, *, wait_seconds: float, timeout: float) -> Fetched:
        self.reads += 1
        await asyncio.sleep(0.001)
        value = encode(LoadRecord(group="ours", member="m", at=0.0, generation=1))
        return Fetched([SimpleNamespace(offset=position, value=value)], position + 1, position + 1)


@pytest.mark.parametrize(("seconds", "least", "most"), [(0.02, 120, 128), (0.1, 22, 26), (0.0, 1_900, 2_001)])
@pytest.mark.looptime
async def test_a_log_on_which_nothing_is_awaited_is_read_no_more_often_than_the_group_allows(
    looptime: object, seconds: float, least: int, most: int
) -> None:
    """A request for each record of each other member makes some ten thousand a second at one broker."""
    log, there = make_log(), BusyLog()
    partition: Any = there
    log._coordination = partition
    log._reader = SimpleNamespace(feed=lambda event: None, log_read_seconds=seconds)  # type: ignore[assignment]
    running = asyncio.create_task(log.run())
    await asyncio.sleep(2.0)
    assert least <= there.reads <= most, "a burst at first"
    # A time in which records were awaited is followed by no long pause.
    log._reader.log_read_seconds = 0.02  # type: ignore[misc]
    before = there.reads
    await asyncio.sleep(2.0)
    assert 98 <= there.reads - before <= 128
    running.cancel()
    await log.close()


@pytest.mark.looptime
async def test_records_of_a_small_group_are_followed_by_no_pause(looptime: object) -> None:
    log, there = make_log(), BusyLog()
    partition: Any = there
    log._coordination = partition
    read = there.read

    async def seldom(position: int, *, wait_seconds: float, timeout: float) -> Fetched:
        await asyncio.sleep(0.001 if there.reads % 2 else 0.05)
        return await read(position, wait_seconds=wait_seconds, timeout=timeout)

    there.read = seldom  # type: ignore[method-assign]
    log._reader = SimpleNamespace(feed=lambda event: None, log_read_seconds=0.02)  # type: ignore[assignment]
    running = asyncio.create_task(log.run())
    await asyncio.sleep(1.06)
    running.cancel()
    assert there.reads == 40, "two each 53 ms"


class SilentLog:
    """A log that answers when it is told to."""

    def __init__(self) -> None:
        self.answers = False

    async def read(self, position: int, *, wait_seconds: float, timeout: float) -> Fetched:
        await asyncio.sleep(wait_seconds if self.answers else timeout)
        if not self.answers:
            raise TimeoutError
        return Fetched([], position, position)


@pytest.mark.looptime
async def test_a_silent_log_has_failed_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it has, nothing may move: a release could be read late, or never."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr("loadtrim_agent.kafka.control_log.boot_time", loop.time)
    log, there = make_log(), SilentLog()
    told: list[tuple[bool, float]] = []
    partition: Any = there
    log._coordination, log._answered_at = partition, loop.time()
    log._reader = SimpleNamespace(feed=lambda event: told.append((event.failed, event.now)), log_read_seconds=0.02)  # type: ignore[assignment]
    running = asyncio.create_task(log.run())
    await asyncio.sleep(20.0)
    ((failed, at),) = told
    assert failed
    assert SILENT_SECONDS < at <= 2 * SILENT_SECONDS + RECONNECT_SECONDS_MAX
    there.answers = True
    await asyncio.sleep(SILENT_SECONDS + RECONNECT_SECONDS_MAX + 2 * POLL_SECONDS)
    assert [failed for failed, _ in told] == [True, False]
    running.cancel()
    await log.close()


class ReadOnlyLog:
    """A log that can be read, and written as far as ``error`` allows; ``seconds`` is how long a write takes."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.seconds = 0.0

    async def read(self, position: int, *, wait_seconds: float, timeout: float) -> Fetched:
        await asyncio.sleep(wait_seconds)
        return Fetched([], position, position)

    async def append(self, value: bytes, key: bytes | None = None) -> Appended:
        await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return Appended(0, None)


@pytest.mark.parametrize(
    ("error", "seconds", "fails"),
    [
        (TopicAuthorizationFailedError("no WRITE any more"), 0.0, True),
        (NotEnoughReplicasError("given up"), 40.0, True),
        (None, SILENT_SECONDS + 3.0, True),
        (None, SILENT_SECONDS - 1.0, False),
        (MessageSizeTooLargeError("this one"), 0.0, False),
    ],
)
@pytest.mark.looptime
async def test_a_log_that_cannot_be_written_has_failed_until_it_can(
    error: Exception | None, seconds: float, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each move ended in doubt: its partition stood still for a second, and the whole group rebalanced."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr("loadtrim_agent.kafka.control_log.boot_time", loop.time)
    log, there = make_log(), ReadOnlyLog()
    told: list[bool] = []
    partition: Any = there
    log._coordination, log._answered_at = partition, loop.time()
    log._reader = SimpleNamespace(feed=lambda event: told.append(event.failed), log_read_seconds=0.02)  # type: ignore[assignment]
    running = asyncio.create_task(log.run())
    there.error, there.seconds = error, seconds
    load = LoadRecord(group="ours", member="m", at=0.0, generation=1)
    writing = asyncio.create_task(log.write(load))
    await asyncio.sleep(SILENT_SECONDS + 2 * POLL_SECONDS)
    assert told == ([True] if fails else [])
    await writing
    there.error, there.seconds = None, 0.0
    assert await log.write(load)
    await asyncio.sleep(2 * POLL_SECONDS)
    assert told == ([True, False] if fails else [])
    running.cancel()
    await log.close()


class Replaced:
    """A coordination log that was cut and has grown again while nobody read: offset -> leader epoch."""

    def __init__(self, *epochs: int) -> None:
        self.epochs = list(epochs)
        self.reads: list[int] = []
        self.first_offset = 0

    async def end(self) -> int:
        return len(self.epochs)

    async def read(self, position: int, *, wait_seconds: float, timeout: float) -> Fetched:
        self.reads.append(position)
        if position > len(self.epochs) or position < self.first_offset:
            raise OffsetOutOfRangeError
        if position == len(self.epochs):
            return Fetched([], position, position)
        records = [SimpleNamespace(offset=n, value=self._value(n)) for n in range(position, len(self.epochs))]
        return Fetched(records, len(self.epochs), len(self.epochs), (self.epochs[position], self.epochs[-1]))

    def _value(self, offset: int) -> bytes:
        return encode(LoadRecord(group="ours", member="m", at=float(offset), generation=self.epochs[offset]))


def following(there: Replaced) -> tuple[ControlLog, list[e.Event]]:
    log, told = make_log(), list[e.Event]()
    partition: Any = there
    log._coordination = partition
    log._reader = SimpleNamespace(feed=told.append, log_read_seconds=0.02)  # type: ignore[assignment]
    return log, told


async def test_a_log_that_was_cut_and_has_grown_past_the_position_has_a_gap() -> None:
    """Members that had read what was cut folded another history: a release in it made two owners, or none."""
    there = Replaced(5, 5, 5, 5)
    log, told = following(there)
    await log._read_on()
    told.clear()
    there.epochs = [5, 5, 6, 6, 6, 6]  # a leader that had not copied the last two records
    await log._read_on()
    assert [type(event) for event in told] == [e.LogGapEvent]
    assert log._position == 6
    there.epochs.append(6)
    await log._read_on()
    assert [type(event) for event in told] == [e.LogGapEvent, e.LogReadEvent, e.LogPositionEvent]
    await log.close()


async def test_behind_a_gap_nothing_of_before_it_is_looked_for() -> None:
    """It is gone, which was told: to find it gone once more is one more rebalance of the whole group."""
    there = Replaced(5, 5)
    log, told = following(there)
    await log._read_on()
    told.clear()
    there.epochs, there.first_offset = [5, 5, 5, 6, 6], 3
    await log._read_on()
    assert [type(event) for event in told] == [e.LogGapEvent]
    log._doubtful = True  # there was no answer for a while
    there.epochs.append(6)
    await log._read_on()
    assert [type(event) for event in told] == [e.LogGapEvent, e.LogReadEvent, e.LogPositionEvent]
    await log.close()


async def test_a_new_leader_that_has_all_records_is_no_gap() -> None:
    there = Replaced(5, 5, 5, 5)
    log, told = following(there)
    await log._read_on()
    told.clear()
    there.epochs += [6, 7]
    await log._read_on()
    assert [type(event) for event in told] == [e.LogReadEvent, e.LogReadEvent, e.LogPositionEvent]
    there.reads.clear()
    there.epochs += [7, 7]
    await log._read_on()
    assert there.reads == [6], "nothing is looked up while the leader stays"
    await log.close()


async def test_a_record_that_is_not_there_to_be_compared_any_more_is_a_gap() -> None:
    there = Replaced(5, 5)
    log, told = following(there)
    await log._read_on()
    told.clear()
    there.epochs += [6]
    there.first_offset = 2  # retention
    await log._read_on()
    assert [type(event) for event in told] == [e.LogGapEvent]
    await log.close()


class Recreated:
    """A coordination log that is deleted and made again, with epochs that begin anew: offset -> value."""

    def __init__(self, count: int) -> None:
        self.there = True
        self.reads: list[int] = []
        self.made(count, at=1.0)

    def made(self, count: int, at: float) -> None:
        self.values = [encode(LoadRecord(group="ours", member="m", at=at + n, generation=1)) for n in range(count)]

    def made_more(self) -> None:
        self.values.append(encode(LoadRecord(group="ours", member="m", at=100.0, generation=1)))

    async def end(self) -> int:
        return len(self.values)

    async def read(self, position: int, *, wait_seconds: float, timeout: float) -> Fetched:
        self.reads.append(position)
        if position == len(self.values):
            await asyncio.sleep(wait_seconds)
        if not self.there:
            raise UnknownTopicOrPartitionError
        if position > len(self.values):
            raise OffsetOutOfRangeError
        records = [SimpleNamespace(offset=n, value=value) for n, value in enumerate(self.values)][position:]
        return Fetched(records, len(self.values), len(self.values), (0, 0) if records else None)


@asynccontextmanager
async def cut_off(there: Recreated) -> AsyncIterator[tuple[ControlLog, list[e.Event]]]:
    """Tail a log that was read and then could not be read for a while; tells what is fed from then on."""
    partition: Any = there
    log, told = following(partition)
    running = asyncio.create_task(log.run())
    await asyncio.sleep(POLL_SECONDS / 2)
    told.clear()
    there.there = False
    await asyncio.sleep(2 * POLL_SECONDS)
    yield log, told
    running.cancel()
    await log.close()


@pytest.mark.parametrize("again", [True, False], ids=["made again", "only not served"])
@pytest.mark.looptime
async def test_a_topic_that_was_made_again_and_has_grown_past_the_position_has_a_gap(
    looptime: object, again: bool
) -> None:
    """Its epochs begin at the same number, so that they tell nothing: what was read last is compared."""
    there = Recreated(3)
    async with cut_off(there) as (log, told):
        if again:
            there.made(5, at=1_000.0)
        there.there = True
        await asyncio.sleep(2 * POLL_SECONDS + RECONNECT_SECONDS_MAX)
        assert [type(event) for event in told] == ([e.LogGapEvent] if again else [])
        assert log._position == (5 if again else 3)
        there.reads.clear()
        await asyncio.sleep(3 * POLL_SECONDS)
        assert set(there.reads) == {log._position}, "compared once"


@pytest.mark.looptime
async def test_a_new_leader_that_does_not_show_the_last_record_yet_has_no_gap(looptime: object) -> None:
    """It shows what lies below its high watermark, of which it heard last as a follower."""
    there = Recreated(3)
    async with cut_off(there) as (log, told):
        record = there.values.pop()
        there.there = True
        await asyncio.sleep(2 * POLL_SECONDS + RECONNECT_SECONDS_MAX)
        assert told == []
        there.values.append(record)
        there.made_more()
        await asyncio.sleep(3 * POLL_SECONDS)
        assert [type(event) for event in told] == [e.LogReadEvent, e.LogPositionEvent]
        assert log._position == 4


def test_leader_epochs_are_read_from_the_batches() -> None:
    def batch(offset: int, epoch: int) -> bytes:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1 << 16)
        builder.append(0, None, None, b"value", [])
        data = bytearray(builder.build())
        data[0:8], data[12:16] = offset.to_bytes(8, "big"), epoch.to_bytes(4, "big", signed=True)
        return bytes(data)

    assert leader_epochs(batch(7, 3)) == (3, 3)
    three = batch(7, 3) + batch(8, 4) + batch(9, 9)
    assert leader_epochs(three) == (3, 9)
    assert leader_epochs(three[:-1]) == (3, 4), "the last one is not whole"
    assert leader_epochs(b"") is None
    assert leader_epochs(batch(7, -1)) is None, "not known"
