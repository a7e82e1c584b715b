"""Landau'24's consumer cycle: when a batch is complete, and what becomes of it when partitions go, in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError, ConsumerStoppedError, KafkaTimeoutError

from batches.__main__ import main
from batches.gathering import BatchLimits, Complete, Gathering
from batches.service import Cycle, WrittenRow, processed

pytestmark = pytest.mark.looptime

A, B = TopicPartition("payments", 0), TopicPartition("payments", 1)


@dataclass(frozen=True)
class Message:
    """What the service reads of a record. ``padding`` makes it as large as a test wants it."""

    at: TopicPartition
    offset: int
    padding: int = 0
    key: bytes | None = None

    @property
    def topic(self) -> str:
        return self.at.topic

    @property
    def value(self) -> bytes:
        return msgspec.json.encode({"id": f"{self.at.partition}-{self.offset}", "amount_cents": 1234})

    @property
    def serialized_key_size(self) -> int:
        return -1

    @property
    def serialized_value_size(self) -> int:
        return self.padding


def messages(at: TopicPartition, *offsets: int, size: int = 100) -> dict[TopicPartition, list[Message]]:
    return {at: [Message(at, offset, size) for offset in offsets]}


class TestGathering:
    limits = BatchLimits(batch_bytes=1000, wait_seconds=2.0)

    def begun(self, now: float = 50.0) -> Gathering:
        gathering = Gathering(self.limits)
        gathering.begin(now)
        return gathering

    def test_enough_bytes_of_all_partitions_together(self) -> None:
        gathering = self.begun()
        gathering.add(messages(A, *range(5)))
        gathering.add(messages(B, *range(4)))
        assert gathering.complete(50.0) is None
        gathering.add(messages(A, 5, size=99))
        assert gathering.complete(50.0) is None
        gathering.add(messages(A, 6, size=1))
        assert gathering.complete(50.0) is Complete.BYTES

    def test_the_time_counts_from_the_beginning_of_the_cycle(self) -> None:
        gathering = self.begun()
        assert gathering.left_seconds(50.5) == 1.5
        gathering.add(messages(A, 0))
        assert gathering.complete(51.99) is None
        assert gathering.complete(52.0) is Complete.TIME
        assert gathering.left_seconds(53.0) == 0.0
        gathering.begin(60.0)
        assert gathering.complete(61.0) is None

    def test_what_was_taken_counts_no_more(self) -> None:
        gathering = self.begun()
        gathering.add(messages(A, 0, 1, size=600))
        gathering.add(messages(B, 7, size=400))
        assert gathering.take([A, TopicPartition("other", 0)]) == messages(A, 0, 1, size=600)
        assert (gathering.bytes, gathering.complete(50.0)) == (400, None)
        gathering.add(messages(B, 8, size=1))
        assert [message.offset for message in gathering.take()[B]] == [7, 8]
        assert (gathering.bytes, gathering.take()) == (0, {})

    @pytest.mark.parametrize(
        "wrong",
        [{"batch_bytes": 0}, {"wait_seconds": 0.0}, {"wait_seconds": float("nan")}, {"wait_seconds": float("inf")}],
    )
    def test_limits_that_cannot_be_used(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="give"):
            BatchLimits(**wrong)


UNREADABLE = [
    None,
    b"",
    b"\xff",
    b'{"id": "\xff"}',
    b'{"id": 1}',
    b"[1]",
    b'{"id": "a", "amount_cents": 1%b}' % (b"0" * 400),
]


class TestProcessed:
    def test_a_payment_becomes_a_row(self) -> None:
        topic, value = processed(Message(A, 3))
        assert topic == "payments-rows"
        assert msgspec.json.decode(value or b"", type=WrittenRow) == WrittenRow("0-3", "12.34", "EUR")

    @pytest.mark.parametrize("value", UNREADABLE)
    def test_what_cannot_be_read_is_put_aside_as_it_came(self, value: bytes | None) -> None:
        @dataclass(frozen=True)
        class Broken:
            topic: str
            value: bytes | None

        assert processed(Broken("payments", value)) == ("payments-rejected", value)


# -- the cycle


class Consumer:
    """Arrivals at given times; nothing of a partition that is not held."""

    def __init__(self, *arrivals: tuple[float, dict[TopicPartition, list[Message]]]) -> None:
        self.arrivals = list(arrivals)
        self.held = {A, B}
        self.committed: dict[TopicPartition, int] = {}
        self.refuses = False
        self.stopped = asyncio.Event()

    def assignment(self) -> set[TopicPartition]:
        return set(self.held)

    async def getmany(self, *, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Message]]:
        if self.stopped.is_set():
            raise ConsumerStoppedError
        now = asyncio.get_running_loop().time()
        due = min((at for at, _ in self.arrivals), default=float("inf"))
        with suppress(TimeoutError):
            async with asyncio.timeout_at(min(now + timeout_ms / 1000, max(now, due))):
                await self.stopped.wait()
        if self.arrivals and asyncio.get_running_loop().time() >= due:
            return self.arrivals.pop(0)[1]
        return {}

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        if self.refuses:
            raise CommitFailedError("given away")
        assert offsets.keys() <= self.held
        self.committed |= offsets


@dataclass
class Producer:
    """Acknowledges when it is let."""

    sent: list[tuple[float, str]] = field(default_factory=list)
    acknowledges: asyncio.Event = field(default_factory=asyncio.Event)
    error: Exception | None = None

    def __post_init__(self) -> None:
        self.acknowledges.set()

    async def send(self, topic: str, value: bytes, *, key: bytes | None) -> asyncio.Future[None]:
        row = msgspec.json.decode(value, type=WrittenRow)
        self.sent.append((asyncio.get_running_loop().time(), row.id))
        return asyncio.ensure_future(self._acknowledged())

    async def _acknowledged(self) -> None:
        await self.acknowledges.wait()
        if self.error is not None:
            raise self.error

    @property
    def ids(self) -> list[str]:
        return [id for _, id in self.sent]


class World:
    """One cycle with its fakes; batches of 1,000 bytes or 2 s."""

    def __init__(self, *arrivals: tuple[float, dict[TopicPartition, list[Message]]]) -> None:
        self.consumer, self.producer = Consumer(*arrivals), Producer()
        limits = BatchLimits(batch_bytes=1000, wait_seconds=2.0)
        self.cycle = Cycle(self.consumer, self.producer, limits)  # type: ignore[arg-type]
        self.running = asyncio.ensure_future(self.cycle.run())

    async def end(self) -> None:
        self.consumer.stopped.set()
        await self.running


async def test_a_batch_goes_out_when_it_has_its_bytes() -> None:
    world = World((0.25, messages(A, 0, 1, size=400)), (0.5, messages(B, 0, size=200)), (0.75, messages(B, 1)))
    await asyncio.sleep(1.0)
    assert world.producer.sent == [(0.5, "0-0"), (0.5, "0-1"), (0.5, "1-0")]
    assert world.consumer.committed == {A: 2, B: 1}
    await world.end()


async def test_a_batch_goes_out_when_its_time_is_over() -> None:
    world = World((0.25, messages(A, 0)), (1.75, messages(A, 1)), (2.5, messages(B, 0)))
    await asyncio.sleep(5.0)
    assert world.producer.sent == [(2.0, "0-0"), (2.0, "0-1"), (4.0, "1-0")]
    assert world.consumer.committed == {A: 2, B: 1}
    await world.end()


async def test_what_is_gathered_of_a_partition_that_goes_is_committed_before_it_goes() -> None:
    world = World((0.25, messages(A, 0)), (0.5, messages(B, 0)))
    await asyncio.sleep(1.0)
    await world.cycle.on_partitions_revoked({A})
    assert (world.producer.ids, world.consumer.committed) == (["0-0"], {A: 1})
    world.consumer.held.remove(A)
    await asyncio.sleep(1.5)
    assert (world.producer.ids, world.consumer.committed) == (["0-0", "1-0"], {A: 1, B: 1})
    await world.end()


async def test_a_partition_that_goes_waits_for_the_batch_on_its_way() -> None:
    world = World((0.0, messages(A, 0, size=1000)))
    world.producer.acknowledges.clear()
    await asyncio.sleep(1.0)
    going = asyncio.ensure_future(world.cycle.on_partitions_revoked({A}))
    await asyncio.sleep(1.0)
    assert not going.done()
    assert world.consumer.committed == {}
    world.producer.acknowledges.set()
    await going
    assert (world.producer.ids, world.consumer.committed) == (["0-0"], {A: 1})
    await world.end()


async def test_what_was_lost_is_neither_sent_nor_committed() -> None:
    world = World((0.25, messages(A, 0)), (0.5, messages(B, 0)))
    await asyncio.sleep(1.0)
    world.consumer.held.remove(A)
    await world.cycle.on_partitions_revoked({A})
    await asyncio.sleep(1.5)
    assert (world.producer.ids, world.consumer.committed) == (["1-0"], {B: 1})
    await world.end()


async def test_what_was_lost_on_its_way_out_and_came_again_is_not_committed() -> None:
    """Somebody else may have committed more of it meanwhile."""
    world = World((0.0, messages(A, 0) | messages(B, 0, size=900)))
    world.producer.acknowledges.clear()
    await asyncio.sleep(1.0)
    world.consumer.held.remove(A)
    lost = asyncio.ensure_future(world.cycle.on_partitions_revoked({A}))
    await asyncio.sleep(0)
    world.consumer.held.add(A)
    world.producer.acknowledges.set()
    await lost
    assert world.consumer.committed == {B: 1}
    await world.end()


async def test_a_refused_commit_is_told_and_the_cycle_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    world = World((0.0, messages(A, 0)), (3.0, messages(A, 1)))
    world.consumer.refuses = True
    await asyncio.sleep(2.5)
    assert "may see them twice" in caplog.text
    world.consumer.refuses = False
    await asyncio.sleep(2.0)
    assert world.consumer.committed == {A: 2}
    await world.end()


async def test_behind_a_batch_that_was_not_sent_nothing_is_committed() -> None:
    """Partitions are still asked for when the cycle has ended: a commit of later records would skip the failed ones."""
    world = World((0.0, messages(A, 0, size=1000)), (0.0, messages(A, 1)))
    world.producer.acknowledges.clear()
    world.producer.error = KafkaTimeoutError("no answer")
    await asyncio.sleep(1.0)
    world.cycle.gathering.add(messages(A, 1))
    going = asyncio.ensure_future(world.cycle.on_partitions_revoked({A}))
    await asyncio.sleep(1.0)
    world.producer.acknowledges.set()
    with pytest.raises(KafkaTimeoutError):
        await world.running
    with pytest.raises(KafkaTimeoutError):
        await going
    await world.cycle.on_partitions_revoked({B})
    assert (world.producer.ids, world.consumer.committed) == (["0-0"], {})


async def test_a_batch_that_fails_as_a_partition_goes_ends_the_cycle() -> None:
    world = World((0.0, messages(A, 0)), (1.5, messages(A, 1)))
    world.producer.error = KafkaTimeoutError("no answer")
    await asyncio.sleep(1.0)
    with pytest.raises(KafkaTimeoutError):
        await world.cycle.on_partitions_revoked({A})
    with pytest.raises(KafkaTimeoutError):
        await world.running
    assert (world.producer.ids, world.consumer.committed) == (["0-0"], {})


async def test_what_is_gathered_when_it_is_stopped_goes_out() -> None:
    world = World((0.25, messages(A, 0)))
    await asyncio.sleep(1.0)
    await world.end()
    assert (world.producer.sent, world.consumer.committed) == ([(1.0, "0-0")], {A: 1})


# -- the command line


@pytest.mark.parametrize("words", [["--batch-bytes", "0"], ["--wait-seconds", "nan"], ["--wait-seconds", "soon"]])
def test_wrong_use_is_told(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert words[1] in capsys.readouterr().err
