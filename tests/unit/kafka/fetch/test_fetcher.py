"""The fetcher against a broker whose answers the test gives one by one, in orders that real ones seldom choose."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import (
    KafkaConnectionError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
)
from aiokafka.protocol.fetch import FetchResponse_v10
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.channels import FETCH_GROUP_PARTITIONS, PAUSE_BYTES_MAX, FetchChannel, FetchConnection
from loadtrim_agent.kafka.fetch.chunk import Chunk
from loadtrim_agent.kafka.fetch.fetcher import ANSWERS_BYTES_MAX, KafkaFetcher
from loadtrim_agent.kafka.fetch.request import SessionFetchRequest
from loadtrim_agent.kafka.fetch.state import FetchPosition, Route

from .batches import batch

ONE = Partition("topic", 0)
WAIT_SECONDS = 10.0
THROTTLE_MS = 10
LOG_END = 150
CUT_OFF = struct.pack(">qi", 100, 1 << 20) + bytes(100)
SPOILT = struct.pack(">qi", 100, 1) + bytes(100)


class Asked:
    """A request, open until the test answers it."""

    def __init__(self, connection: FetchConnection, request: SessionFetchRequest) -> None:
        self.connection = connection
        self.channel = connection.channel
        self.wants = request._limits[1:3]
        """Bytes, at least and at most."""
        self.fetch = list(request._fetch)
        self.session = request._session
        self.limits = dict(request._partition_max_bytes)
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def fail(self) -> None:
        self.answer.set_exception(KafkaConnectionError("gone"))

    def throttle(self) -> None:
        """As a broker does whose quota is used up: without a word about any partition."""
        self.answer.set_result(FetchResponse_v10(THROTTLE_MS, 0, 0, []))

    def begin_session(self, number: int) -> None:
        """The broker has one from now on; it has nothing to say."""
        self.answer.set_result(FetchResponse_v10(0, 0, number, []))

    def refuse(self, code: int) -> None:
        """Of the request as a whole."""
        self.answer.set_result(FetchResponse_v10(0, code, 0, []))

    def tell(self, code: int = 0, data: bytes = b"", partition: int = 0) -> None:
        """Of one partition."""
        end = LOG_END if not code else -1
        self.answer.set_result(FetchResponse_v10(0, 0, 0, [("topic", [(partition, code, end, end, 0, None, data)])]))


class Broker:
    """What the fetcher uses of a client: one broker that leads everything."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[Asked] = asyncio.Queue()
        self.cluster = SimpleNamespace(
            leader_for_partition=lambda _: 1, broker_metadata=lambda _: None, add_listener=lambda _: None
        )

    async def bootstrap(self) -> None: ...

    async def close(self) -> None: ...

    async def ready(self, node: int, group: FetchConnection) -> bool:
        return True

    async def send(self, node: int, request: SessionFetchRequest, group: FetchConnection) -> Any:
        asked = Asked(group, request)
        self.asked.put_nowait(asked)
        return await asked.answer

    async def next(self) -> Asked:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.asked.get()


class Ends:
    """Every log ends at the same offset."""

    async def offset_once(self, partition: TopicPartition, timestamp: int) -> int:
        return LOG_END


class SlowEnds:
    """Nobody has told yet where a log ends."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[asyncio.Future[int]] = asyncio.Queue()

    async def offset_once(self, partition: TopicPartition, timestamp: int) -> int:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.asked.put_nowait(answer)
        return await answer


@contextlib.asynccontextmanager
async def fetching(
    reset: str = "latest",
    on_chunk: Callable[[Chunk], object] = lambda chunk: None,
    expected: tuple[type[Exception], ...] = (),
    **settings: Any,
) -> AsyncIterator[tuple[KafkaFetcher, Broker]]:
    """A fetcher at work; ``expected``: the errors that user code is told of."""
    given = {"bootstrap_servers": "localhost:1", "retry_backoff_ms": 20, "auto_offset_reset": reset}
    fetcher = KafkaFetcher(given | settings)
    broker = Broker()
    fetcher._client, fetcher._queries = broker, Ends()  # type: ignore[assignment]
    errors: list[Exception] = []
    await fetcher.start()
    running = asyncio.create_task(
        fetcher.run(SimpleNamespace(chunk=on_chunk, failed=lambda error, for_good: errors.append(error)))
    )
    try:
        yield fetcher, broker
        assert tuple(type(error) for error in errors) == expected
    finally:
        running.cancel()
        await fetcher.close()


async def in_both_channels(fetcher: KafkaFetcher, broker: Broker) -> tuple[Asked, Asked]:
    """The only partition was sought elsewhere while a poll was out: the poll is about the old offset."""
    fetcher.take(ONE, 0)
    poll = await broker.next()
    fetcher.take(ONE, 5)
    express = await broker.next()
    assert (poll.channel, poll.fetch, express.channel, express.fetch) == (
        FetchChannel.POLL,
        [(ONE, 0)],
        FetchChannel.EXPRESS,
        [(ONE, 5)],
    )
    return poll, express


async def idle(fetcher: KafkaFetcher, channel: FetchChannel, number: int = 0) -> None:
    """Wait until a channel of a fetch group has found nothing to ask for."""
    broker = fetcher._fetch_groups[Route(1, number)]
    async with asyncio.timeout(WAIT_SECONDS):
        while not broker.wakes[channel]._waiters:  # noqa: ASYNC110
            await asyncio.sleep(0)


def one_record(size_bytes: int = 10) -> bytes:
    return batch(0, [(0, 1_000, bytes(size_bytes))])


async def until_paused(fetcher: KafkaFetcher, route: Route) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while fetcher._fetch_groups[route]._pause is None:  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.mark.parametrize("how", ["fail", "throttle"])
async def test_what_only_the_express_was_about_is_asked_for_again_when_that_brings_nothing(how: str) -> None:
    # A broker that hangs: the poll is given up first, as it was sent first, and leaves the partition to the express.
    async with fetching() as (fetcher, broker):
        poll, express = await in_both_channels(fetcher, broker)
        poll.fail()
        await idle(fetcher, FetchChannel.POLL)
        getattr(express, how)()
        again = await broker.next()
        assert again.fetch == [(ONE, 5)]


@pytest.mark.parametrize(
    ("reset", "told"),
    [
        ("latest", {"code": OffsetOutOfRangeError.errno}),
        ("none", {"code": OffsetOutOfRangeError.errno}),
        ("latest", {"code": TopicAuthorizationFailedError.errno}),
        ("latest", {"data": CUT_OFF}),
        ("latest", {"data": SPOILT}),
    ],
    ids=["its offset was deleted", "deleted, without reset", "not allowed", "too large a record", "a spoilt header"],
)
async def test_what_is_fetched_ahead_is_moved_nowhere_and_user_code_hears_nothing_of_it(
    reset: str, told: dict[str, Any]
) -> None:
    """It is not ours: where it is skipped to would be where it begins when it is, past what nobody has done."""
    async with fetching(reset) as (fetcher, broker):
        fetcher.take_ahead(ONE, 100)
        (await broker.next()).tell(**told)
        again = await broker.next()
        assert again.fetch == [(ONE, 100)]
        assert fetcher.position(ONE) == FetchPosition(100)


async def test_what_was_fetched_ahead_and_is_ours_goes_where_the_reset_says() -> None:
    async with fetching() as (fetcher, broker):
        fetcher.take_ahead(ONE, 100)
        (await broker.next()).tell(code=OffsetOutOfRangeError.errno)
        again = await broker.next()
        fetcher.keep(ONE)
        again.tell(code=OffsetOutOfRangeError.errno)
        assert (await broker.next()).fetch == [(ONE, LOG_END)]


async def test_what_both_channels_say_to_be_out_of_range_is_reset_once() -> None:
    """The second look-up took back what was fetched since: it came again, and with `latest` more was passed over."""
    other, ends = Partition("topic", 1), SlowEnds()
    async with fetching() as (fetcher, broker):
        fetcher._queries = ends  # type: ignore[assignment]
        fetcher.take(other, 0)
        poll = await broker.next()
        fetcher.take(ONE, 100)
        (await broker.next()).tell()  # nothing there yet: the next one waits at the broker, and a poll takes it over
        express = await broker.next()
        poll.tell(data=one_record(), partition=1)
        poll = await broker.next()
        assert dict(express.fetch)[ONE] == dict(poll.fetch)[ONE] == 100
        for asked in (express, poll):
            asked.tell(code=OffsetOutOfRangeError.errno)
        assert (await broker.next()).fetch == [(other, 1)], "the poll goes on"
        await idle(fetcher, FetchChannel.EXPRESS)
        assert ends.asked.qsize() == 1


@pytest.mark.parametrize("gone", [False, True], ids=["held", "gone meanwhile"])
async def test_a_reset_that_is_refused_is_told_of_what_is_held(monkeypatch: pytest.MonkeyPatch, *, gone: bool) -> None:
    """The error stayed, and was raised about a partition that this member had not any more."""
    refused, ends = TopicAuthorizationFailedError("topic"), SlowEnds()
    async with fetching(expected=() if gone else (TopicAuthorizationFailedError,)) as (fetcher, broker):
        fetcher._queries = ends  # type: ignore[assignment]
        fetcher.take(ONE, 100)
        (await broker.next()).tell(code=OffsetOutOfRangeError.errno)
        answer = await ends.asked.get()
        if gone:
            fetcher.drop(ONE)
        answer.set_exception(refused)
        for _ in range(3):
            await asyncio.sleep(0)


async def test_a_record_above_the_limit_is_told_once_and_skipped() -> None:
    async with fetching(expected=(RecordTooLargeError,)) as (fetcher, broker):
        fetcher.take(ONE, 100)
        (await broker.next()).tell(data=CUT_OFF)
        assert (await broker.next()).fetch == [(ONE, 101)]
        assert fetcher.position(ONE) == FetchPosition(101)


@pytest.mark.parametrize(("code", "named"), [(70, 0), (71, 7)], ids=["unknown", "another epoch"])
async def test_a_session_that_is_lost_begins_anew(code: int, named: int) -> None:
    """One whose epoch is another is closed by being named; one that the broker does not know is not named again."""
    async with fetching() as (fetcher, broker):
        fetcher.take(ONE, 100)
        first = await broker.next()
        assert first.session == (0, 0)
        first.begin_session(7)
        second = await broker.next()
        assert (second.session, second.fetch) == ((7, 1), [])
        second.refuse(code)
        third = await broker.next()
        assert (third.session, third.fetch) == ((named, 0), [(ONE, 100)])


async def polls(broker: Broker, count: int) -> list[Asked]:
    """So many requests, all of them polls."""
    asked = [await broker.next() for _ in range(count)]
    assert all(each.channel is FetchChannel.POLL for each in asked)
    return asked


async def test_many_partitions_of_a_broker_are_polled_in_bundles_and_none_waits_for_another() -> None:
    """A poll of a thousand keeps a broker busy for milliseconds, in which all of them wait for the next."""
    partitions = [Partition("topic", index) for index in range(2 * FETCH_GROUP_PARTITIONS + 5)]
    async with fetching() as (fetcher, broker):
        for partition in partitions:
            fetcher.take(partition, 0)
        fetch_groups = await polls(broker, 3)
        assert [len(each.fetch) for each in fetch_groups] == [FETCH_GROUP_PARTITIONS, FETCH_GROUP_PARTITIONS, 5]
        assert sorted(partition for each in fetch_groups for partition, _ in each.fetch) == partitions
        assert len({each.connection for each in fetch_groups}) == 3, "one connection each"
        assert sum(each.wants[1] for each in fetch_groups) * len(FetchChannel) <= ANSWERS_BYTES_MAX
        fetch_groups[1].throttle()
        again = await broker.next()
        assert again.connection == fetch_groups[1].connection

        fetcher.take(partitions[0], 7)
        fetcher.take(partitions[FETCH_GROUP_PARTITIONS], 8)
        express = [await broker.next(), await broker.next()]
        assert [each.connection for each in express] == [FetchConnection(FetchChannel.EXPRESS, 0)] * 2, (
            "over one connection"
        )
        assert [each.fetch for each in express] == [[(partitions[0], 7)], [(partitions[FETCH_GROUP_PARTITIONS], 8)]]


async def test_a_broker_that_goes_and_comes_is_spoken_of_once(caplog: pytest.LogCaptureFixture) -> None:
    partitions = [Partition("topic", index) for index in range(FETCH_GROUP_PARTITIONS + 1)]
    caplog.set_level("INFO")
    async with fetching() as (fetcher, broker):
        for partition in partitions:
            fetcher.take(partition, 0)
        for asked in await polls(broker, 2):
            asked.fail()
        for asked in await polls(broker, 2):
            asked.throttle()
        await polls(broker, 2)
    assert [record.message.partition(",")[0] for record in caplog.records if "roker" in record.message] == [
        "Fetching from broker 1 failed",
        "Broker 1 answers fetches again",
    ]


async def test_who_waits_for_more_bytes_of_a_broker_waits_for_those_of_all_its_partitions() -> None:
    async with fetching(fetch_min_bytes=1000) as (fetcher, broker):
        for index in range(2 * FETCH_GROUP_PARTITIONS):
            fetcher.take(Partition("topic", index), 0)
        (poll,) = await polls(broker, 1)
        assert (len(poll.fetch), poll.wants[0]) == (2 * FETCH_GROUP_PARTITIONS, 1000)


async def test_a_bundle_pauses_while_little_comes_and_not_for_what_is_to_be_had_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A poll for nearly every record costs the client more than the records do."""
    monkeypatch.setattr("loadtrim_agent.kafka.fetch.fetch_group.PAUSE_SECONDS", 3600.0)
    fresh = Partition("topic", FETCH_GROUP_PARTITIONS + 1)
    async with fetching() as (fetcher, broker):
        for index in range(FETCH_GROUP_PARTITIONS + 1):
            fetcher.take(Partition("topic", index), 0)
        first, second = await polls(broker, 2)
        second.tell(data=one_record(), partition=FETCH_GROUP_PARTITIONS)
        await until_paused(fetcher, Route(1, 1))
        first.tell(data=one_record(PAUSE_BYTES_MAX))
        again = await broker.next()
        assert (again.channel, dict(again.fetch)[ONE]) == (FetchChannel.POLL, 1), "there may be more"

        fetcher.take(fresh, 0)
        hurried = await broker.next()
        assert hurried.connection == second.connection
        assert dict(hurried.fetch)[fresh] == 0
        again.tell()
        assert (await broker.next()).channel is FetchChannel.POLL, "nothing came: it has waited already"


@pytest.mark.parametrize("had_more", [False, True], ids=["ever", "any more"])
async def test_where_a_broker_has_one_bundle_nothing_pauses(monkeypatch: pytest.MonkeyPatch, *, had_more: bool) -> None:
    monkeypatch.setattr("loadtrim_agent.kafka.fetch.fetch_group.PAUSE_SECONDS", 3600.0)
    async with fetching() as (fetcher, broker):
        if had_more:
            partitions = [Partition("topic", index) for index in range(FETCH_GROUP_PARTITIONS + 1)]
            for partition in partitions:
                fetcher.take(partition, 0)
            first, second = await polls(broker, 2)
            for partition in partitions:
                fetcher.drop(partition)
            second.tell(partition=FETCH_GROUP_PARTITIONS)
            first.tell()
            for number in range(2):
                await idle(fetcher, FetchChannel.POLL, number)
        fetcher.take(ONE, 0)
        (await broker.next()).tell(data=one_record())
        assert (await broker.next()).fetch == [(ONE, 1)]


async def test_brokers_that_are_gone_have_no_share_of_what_may_be_on_its_way() -> None:
    """After each rolling replacement of a cluster requests asked for less, for the rest of the process's life."""
    async with fetching() as (fetcher, broker):
        wanted = []
        for node in range(1, 5):
            broker.cluster.leader_for_partition = lambda _, node=node: node
            fetcher._metadata_changed(broker.cluster)
            fetcher.take(ONE, 0)
            wanted.append((await broker.next()).wants[1])
        assert wanted == [wanted[0]] * 4


def large(offset: int, size_bytes: int) -> bytes:
    return batch(offset, [(offset, 1_000, b"x" * size_bytes)])


async def test_what_is_read_has_a_successor() -> None:
    """Asked for while user code still reads what came before: once, not more."""
    chunks: list[Chunk] = []
    async with fetching(on_chunk=chunks.append) as (fetcher, broker):
        fetcher.take(ONE, 0)
        (await broker.next()).tell(data=large(0, 900_000))
        again = await broker.next()
        assert (again.fetch, [chunk.done for chunk in chunks]) == ([(ONE, 1)], [False])
        again.tell(data=large(1, 900_000))
        for channel in FetchChannel:
            await idle(fetcher, channel)
        assert broker.asked.empty()
        chunks[0].done = True
        assert [chunk.refill for chunk in chunks] == [True, False]
        fetcher.refill(ONE)
        assert (await broker.next()).fetch == [(ONE, 2)]


async def test_of_large_batches_as_much_is_asked_for_as_one_of_them() -> None:
    """Above its limit the broker gives none, but for the first partition of an answer: one batch per answer then."""
    async with fetching(on_chunk=lambda chunk: setattr(chunk, "done", True)) as (fetcher, broker):
        fetcher._budget.limit_bytes = 1 << 16
        fetcher.take(ONE, 0)
        asked = await broker.next()
        assert asked.limits == {ONE: 1 << 15}
        data = large(0, 100_000)
        asked.tell(data=data)
        asked = await broker.next()
        assert asked.limits == {ONE: len(data)}
        asked.tell(data=large(1, 100))
        assert (await broker.next()).limits == {ONE: 1 << 15}
