"""FastStream's subscribers with a group of loadtrim, on a broker in this process: moves, ends, commits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf
from typing import Any
from unittest.mock import MagicMock

import pytest
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import TopicAuthorizationFailedError, UnknownMemberIdError
from aiokafka.protocol.group import HeartbeatRequest_v0, HeartbeatResponse_v0
from aiokafka.structs import ConsumerRecord, TopicPartition
from faststream import AckPolicy
from faststream.exceptions import StopConsume

from loadtrim import IncrementalRebalanceListener, assigned_anew
from loadtrim.integrations.faststream import FrameworkConsumer, KafkaBroker
from loadtrim.work import Work
from walks.broker import MemoryBroker, memory_broker
from walks.scenes import until

TOPIC, GROUP = "orders", "walk"
BATCHES = {"batch": True, "max_records": 10, "batch_timeout_ms": 50}


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADTRIM_HTTP", "off")
    monkeypatch.setenv("LOADTRIM_DRAIN_SECONDS", "5")
    monkeypatch.setenv("LOADTRIM_MODE", "shadow")  # Partitions are shared by number.


@asynccontextmanager
async def kafka(partitions: int = 1) -> AsyncIterator[MemoryBroker]:
    async with memory_broker({TOPIC: partitions, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        yield broker


@asynccontextmanager
async def running(broker: MemoryBroker, handle: Callable[[Any], Any], **options: Any) -> AsyncIterator[KafkaBroker]:
    """A broker of FastStream with one subscriber."""
    given = {name: options.pop(name) for name in ("logger",) if name in options}
    made = KafkaBroker(f"127.0.0.1:{broker.port}", consumer_only=True, **given)

    @made.subscriber(TOPIC, group_id=GROUP, auto_offset_reset="earliest", **options)
    async def handler(body: Any) -> None:
        await handle(body)

    await made.start()
    try:
        yield made
    finally:
        await made.stop()


def consumer_of(broker: KafkaBroker) -> FrameworkConsumer:
    (subscriber,) = broker.subscribers
    consumer: FrameworkConsumer = subscriber.consumer  # type: ignore[attr-defined]
    return consumer


def stopping(broker: KafkaBroker) -> Callable[[], bool]:
    """Return whether a stop of the broker has begun."""
    (subscriber,) = broker.subscribers
    return lambda: not subscriber.running


async def send_numbers(broker: MemoryBroker, count: int, partition: int = 0) -> None:
    await broker.send(TOPIC, partition, *(b"%d" % number for number in range(count)))


@pytest.mark.parametrize("enabled", ["true", "false"])
async def test_a_batch_that_was_handled_when_it_stops_is_committed_and_no_more(
    enabled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A further call took a record of plain aiokafka, which committed it: nobody ever handled that."""
    monkeypatch.setenv("LOADTRIM_ENABLED", enabled)
    handled, free = list[int](), asyncio.Event()

    async def handle(bodies: list[int]) -> None:
        handled.extend(bodies)
        if len(handled) >= 20:
            await free.wait()

    async with kafka() as broker, running(broker, handle, **BATCHES) as one:
        await send_numbers(broker, 50)
        await until(lambda: len(handled) == 20, what="the second batch is in hand")
        stop = asyncio.create_task(one.stop())
        await until(stopping(one))
        free.set()
        await stop
        assert len(handled) == 20
        assert broker.committed(GROUP, TOPIC, 0) == 20


async def test_a_batch_is_committed_and_the_group_left_where_an_error_waits_to_be_told() -> None:
    """The error was raised before the member had left, which stayed in the group with all of its partitions."""
    handled, free = list[int](), asyncio.Event()

    async def handle(bodies: list[int]) -> None:
        handled.extend(bodies)
        await free.wait()

    async with kafka() as broker, running(broker, handle, **BATCHES) as one:
        await send_numbers(broker, 10)
        await until(lambda: len(handled) == 10)
        buffer = consumer_of(one).consumer._client.buffer
        assert buffer is not None
        buffer.fail(TopicAuthorizationFailedError(TOPIC))
        stop = asyncio.create_task(one.stop())
        await until(stopping(one))
        free.set()
        await stop
        assert not broker.groups[GROUP].members
        assert broker.committed(GROUP, TOPIC, 0) == 10


@pytest.mark.parametrize("options", [{}, BATCHES], ids=["one by one", "in batches"])
async def test_a_handler_that_stops_its_subscriber_leaves_the_group(options: dict[str, Any]) -> None:
    """FastStream cancels the task that stops, and the member stayed in the group if that waited before it left."""

    async def handle(body: Any) -> None:
        raise StopConsume

    async with kafka() as broker, running(broker, handle, **options):
        await send_numbers(broker, 10)
        await until(lambda: bool(broker.groups[GROUP].members))
        await until(lambda: not broker.groups[GROUP].members, what="the member leaves")


def held(broker: KafkaBroker) -> int:
    return len(consumer_of(broker).assignment())


async def ignore(body: Any) -> None: ...


async def test_a_move_repeats_nothing_of_what_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """FastStream's listener, which logs, was told that all goes, and what was in hand for long was handled again."""
    monkeypatch.setattr(assigned_anew, "IN_HAND_SECONDS_MAX", 0.0)
    begun, free, handled = asyncio.Event(), asyncio.Event(), Counter[bytes]()

    async def handle(body: bytes) -> None:
        begun.set()
        await free.wait()
        handled[body] += 1

    async with kafka(partitions=4) as broker, running(broker, handle, ack_policy=AckPolicy.ACK) as one:
        await broker.send(TOPIC, 0, b"in hand")
        await begun.wait()
        async with running(broker, handle, ack_policy=AckPolicy.ACK) as other:
            await until(lambda: held(one) == held(other) == 2, what="both have their share")
            free.set()
            for partition in range(4):
                await broker.send(TOPIC, partition, b"behind it in %d" % partition)
            await until(lambda: len(handled) == 5)
    assert set(handled.values()) == {1}, handled


class Heard:
    """Calls of a listener: what it was told, and of which partitions."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[int]]] = []

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.calls.append(("revoked", {at.partition for at in revoked}))

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.calls.append(("assigned", {at.partition for at in assigned}))


class HeardPlain(Heard, ConsumerRebalanceListener): ...  # type: ignore[misc]


class HeardIncremental(Heard, IncrementalRebalanceListener): ...


@pytest.mark.parametrize("options", [{}, {"logger": None}], ids=["logs", "has no logger"])
@pytest.mark.parametrize("kind", [HeardPlain, HeardIncremental])
async def test_the_listener_of_the_application_is_told_what_its_kind_is_told(
    kind: type[HeardPlain | HeardIncremental], options: dict[str, Any]
) -> None:
    """An incremental one was told at each move that all goes and that what is left comes."""
    listener = kind()
    async with kafka(partitions=2) as broker, running(broker, ignore, listener=listener, **options) as one:
        await until(lambda: held(one) == 2)
        async with running(broker, ignore) as other:
            await until(lambda: held(one) == held(other) == 1, what="both have their share")
            await until(lambda: len(listener.calls) == (2 if kind is HeardIncremental else 4))
            stays = {at.partition for at in consumer_of(one).assignment()}
    assert listener.calls[:2] == (
        [("assigned", {0, 1}), ("revoked", {0, 1} - stays)]
        if kind is HeardIncremental
        else [("revoked", set()), ("assigned", {0, 1})]
    )
    assert kind is HeardIncremental or listener.calls[2:4] == [("revoked", {0, 1}), ("assigned", stays)]


async def test_two_records_of_one_offset_are_two_pieces_of_work() -> None:
    records = [record_at(offset=7), record_at(offset=7)]
    target = MagicMock()
    asked = iter(records)

    async def getone() -> Any:
        return next(asked)

    consumer = FrameworkConsumer(MagicMock(getone=getone, work=lambda record: Work(target, record)), told=True)
    works = []
    for record in [await consumer.getone(), await consumer.getone()]:
        work = consumer.begin(record)
        assert work is not None
        works.append(work)
    for work, record in zip(works, records, strict=True):
        assert await work.__aenter__() is record


def record_at(offset: int) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord(TOPIC, 0, offset, 0, 0, None, b"7", None, 0, 1, ())


async def test_a_record_that_comes_again_while_it_waits_for_a_worker_keeps_no_partition_from_commits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both were known by one offset: the end of one was told of the other, and nothing behind it was committed."""
    monkeypatch.setenv("LOADTRIM_DRAIN_SECONDS", "0.2")
    begun, free = Counter[bytes](), asyncio.Event()
    evicts = False

    async def handle(body: bytes) -> None:
        begun[body] += 1
        await free.wait()

    async with kafka(partitions=3) as broker:

        def answer(request: Any) -> Any:
            nonlocal evicts
            if not evicts:
                return None
            evicts = False
            broker.groups[GROUP].leave(request.member_id)
            return HeartbeatResponse_v0(error_code=UnknownMemberIdError.errno)

        broker.play(HeartbeatRequest_v0.API_KEY, answer)
        async with running(broker, handle, max_workers=2, auto_commit_interval_ms=50) as one:
            for partition in range(3):
                await until(lambda before=partition: len(begun) == before)
                await broker.send(TOPIC, partition, b"first of %d" % partition)
            consumer = consumer_of(one)
            await until(lambda: bool(consumer._waiting), what="the last one waits for a worker")
            buffer = consumer.consumer._client.buffer
            assert buffer is not None
            before, evicts = set(buffer.streams.values()), True
            await until(lambda: not before & set(buffer.streams.values()))
            await until(lambda: [s.has_more() for s in buffer.streams.values()] == [True] * 3, what="all come again")
            at_work = [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
            consumer.pause(*at_work)  # The one that waits is the next to be handed out again.
            free.set()
            await until(lambda: max(begun.values()) == 2, what="it has come again")
            consumer.resume(*at_work)
            for partition in range(3):
                await broker.send(TOPIC, partition, b"second of %d" % partition)
            await until(lambda: [broker.committed(GROUP, TOPIC, partition) for partition in range(3)] == [2, 2, 2])


IN_HAND = b"in hand"


@pytest.mark.parametrize(
    "options",
    [{}, {"ack_policy": AckPolicy.ACK}, {"max_workers": 2}, BATCHES, {"ack_policy": AckPolicy.ACK, **BATCHES}],
    ids=["one by one", "acknowledged", "workers", "in batches", "acknowledged in batches"],
)
async def test_what_is_idle_goes_at_a_stop_before_the_handler_at_work_has_ended(options: dict[str, Any]) -> None:
    """FastStream waits for its handlers first, and nobody consumed the member's other partitions meanwhile."""
    free, handled = asyncio.Event(), Counter[bytes]()

    async def handle(body: bytes | list[bytes]) -> None:
        bodies = body if isinstance(body, list) else [body]
        if IN_HAND in bodies:
            begun.set()
            await free.wait()
        handled.update(bodies)

    begun = asyncio.Event()
    async with (
        kafka(partitions=4) as broker,
        running(broker, handle, **options) as other,
        running(broker, handle, **options) as one,
    ):
        await until(lambda: held(one) == held(other) == 2, what="both have their share")
        works, idle = sorted(at.partition for at in consumer_of(one).assignment())
        await broker.send(TOPIC, works, IN_HAND)
        await begun.wait()
        agent = consumer_of(one).consumer._client.link.agent  # type: ignore[union-attr]
        assert agent is not None
        stop = asyncio.create_task(one.stop())
        await until(lambda: held(other) == 3, what="the other one has what is idle")
        leaves_by = agent.condition.leave_by
        await broker.send(TOPIC, idle, b"soon")
        await until(lambda: bool(handled))
        assert not stop.done()
        assert leaves_by == inf, "what a handler works on is waited for as long as FastStream does"
        free.set()
        await stop
        await until(lambda: held(other) == 4)
        await broker.send(TOPIC, works, b"behind it")
        await until(lambda: len(handled) == 3)
    assert handled == {IN_HAND: 1, b"soon": 1, b"behind it": 1}
    assert [broker.committed(GROUP, TOPIC, partition) for partition in (works, idle)] == [2, 1]


async def test_what_waits_for_a_worker_at_a_stop_is_handled_by_the_next_owner_at_once() -> None:
    """It was in hand until the last handler had ended, though FastStream does not begin with it any more."""
    free, begun, handled = asyncio.Event(), Counter[bytes](), Counter[bytes]()

    async def handle(body: bytes) -> None:
        begun[body] += 1
        await free.wait()
        handled[body] += 1

    async def handle_at_once(body: bytes) -> None:
        handled[body] += 1

    async with (
        kafka(partitions=4) as broker,
        running(broker, handle_at_once) as other,
        running(broker, handle, max_workers=2) as one,
    ):
        await until(lambda: held(one) == held(other) == 2, what="both have their share")
        works, waits = sorted(at.partition for at in consumer_of(one).assignment())
        for count, (partition, body) in enumerate([(works, b"first"), (works, b"second"), (waits, b"waits")]):
            await until(lambda before=count: len(begun) == before)  # type: ignore[misc]
            await broker.send(TOPIC, partition, body)
        await until(lambda: bool(consumer_of(one)._waiting), what="the last one waits for a worker")
        stop = asyncio.create_task(one.stop())
        await until(lambda: handled == {b"waits": 1}, what="the other member has handled it")
        assert not stop.done()
        free.set()
        await stop
    assert handled == {b"first": 1, b"second": 1, b"waits": 1}
