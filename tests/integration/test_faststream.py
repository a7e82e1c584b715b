"""FastStream's programs with a group of loadtrim: shapes, acknowledgement, listeners, moves, ends."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from fastapi import FastAPI
from faststream import AckPolicy
from faststream.kafka import KafkaMessage, TestKafkaBroker
from faststream.kafka.annotations import Consumer as InjectedConsumer
from faststream.kafka.fastapi import KafkaRouter

from integration.harness import WAIT_SECONDS, committed_offsets, eventually
from integration.harness_consumers import new_group, send
from loadtrim import Consumer
from loadtrim.integrations.faststream import FrameworkConsumer, HandlerOutcome, KafkaBroker
from loadtrim.testing import Cluster

pytestmark = pytest.mark.kafka

PARTITIONS = 4
RECORDS = 200
QUICK = {"auto_offset_reset": "earliest", "session_timeout_ms": 30_000, "heartbeat_interval_ms": 500}

Handle = Callable[[int], Awaitable[None]]
Subscribe = Callable[[KafkaBroker, str, str, Handle], None]
"""Adds a subscriber to a broker: of a topic, in a group."""


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADTRIM_HTTP", "off")
    monkeypatch.setenv("LOADTRIM_DRAIN_SECONDS", "5")
    monkeypatch.setenv("LOADTRIM_MODE", "shadow")  # Partitions are shared by number, so that they move in every run.


def one_by_one(**options: Any) -> Subscribe:
    def subscribe(broker: KafkaBroker, topic: str, group: str, handle: Handle) -> None:
        @broker.subscriber(topic, group_id=group, **QUICK, **options)
        async def handler(body: int) -> None:
            await handle(body)

    return subscribe


def in_batches(**options: Any) -> Subscribe:
    def subscribe(broker: KafkaBroker, topic: str, group: str, handle: Handle) -> None:
        @broker.subscriber(topic, group_id=group, batch=True, batch_timeout_ms=50, max_records=10, **QUICK, **options)
        async def handler(bodies: list[int]) -> None:
            for body in bodies:
                await handle(body)

    return subscribe


def of_a_pattern(broker: KafkaBroker, topic: str, group: str, handle: Handle) -> None:
    @broker.subscriber(pattern=re.escape(topic[:-1]) + ".", group_id=group, **QUICK)
    async def handler(body: int) -> None:
        await handle(body)


def acknowledged_by_hand(broker: KafkaBroker, topic: str, group: str, handle: Handle) -> None:
    @broker.subscriber(topic, group_id=group, ack_policy=AckPolicy.MANUAL, **QUICK)
    async def handler(body: int, message: KafkaMessage) -> None:
        await handle(body)
        await message.ack()


SHAPES: dict[str, Subscribe] = {
    "one by one": one_by_one(),
    "in batches": in_batches(),
    "of a pattern": of_a_pattern,
    "acknowledged": one_by_one(ack_policy=AckPolicy.ACK),
    "acknowledged in batches": in_batches(ack_policy=AckPolicy.ACK),
    "acknowledged by hand": acknowledged_by_hand,
    "workers": one_by_one(max_workers=4),
    "workers that acknowledge": one_by_one(max_workers=2, ack_policy=AckPolicy.ACK),
}


@asynccontextmanager
async def running(kafka: Cluster, subscribe: Subscribe, *where: Any) -> AsyncIterator[KafkaBroker]:
    broker = KafkaBroker(kafka.bootstrap, log_level=logging.DEBUG)
    subscribe(broker, *where)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def consumers_of(broker: KafkaBroker) -> list[FrameworkConsumer]:
    (subscriber,) = broker.subscribers
    return getattr(subscriber, "consumer_subgroup", None) or [subscriber.consumer]  # type: ignore[attr-defined]


def held(broker: KafkaBroker) -> int:
    return sum(len(consumer.assignment()) for consumer in consumers_of(broker))


async def write(kafka: Cluster, topic: str) -> None:
    for at in range(0, RECORDS, 10):
        await send(kafka, topic, [str(number) for number in range(at, at + 10)], partition=None)


EACH_ONCE = Counter(range(RECORDS))


@pytest.mark.parametrize("shape", SHAPES)
async def test_each_record_once_while_members_come_and_go(quick_kafka: Cluster, shape: str) -> None:
    topic, group = quick_kafka.create_topic(partitions=PARTITIONS), new_group()
    done: Counter[int] = Counter()

    async def handle(body: int) -> None:
        await asyncio.sleep(0.005)
        done[body] += 1

    where = (SHAPES[shape], topic, group, handle)
    async with asyncio.timeout(WAIT_SECONDS):
        async with running(quick_kafka, *where) as first:
            writing = asyncio.create_task(write(quick_kafka, topic))
            for _ in range(2):
                async with running(quick_kafka, *where) as second:
                    await eventually(lambda: held(first) == held(second) == 2, "both have their share")
                await eventually(lambda: held(first) == PARTITIONS, "the first has everything again")
            await writing
            await eventually(lambda: done.total() >= RECORDS, "all is handled")
    # Nothing is left for a next one: what was handled last is committed too.
    offsets = await committed_offsets(quick_kafka.bootstrap, group)
    assert sum(offsets.values()) == RECORDS, offsets
    assert done == EACH_ONCE


async def test_what_a_handler_failed_with_comes_again(quick_kafka: Cluster) -> None:
    topic, group = quick_kafka.create_topic(partitions=PARTITIONS), new_group()
    tried: Counter[int] = Counter()
    done: Counter[int] = Counter()

    async def handle(body: int) -> None:
        tried[body] += 1
        if body % 10 == 0 and tried[body] == 1:
            raise ValueError(body)
        done[body] += 1

    where = (one_by_one(ack_policy=AckPolicy.NACK_ON_ERROR), topic, group, handle)
    async with asyncio.timeout(WAIT_SECONDS), running(quick_kafka, *where) as first:
        writing = asyncio.create_task(write(quick_kafka, topic))
        async with running(quick_kafka, *where) as second:
            await eventually(lambda: held(first) == held(second) == 2, "both have their share")
        await writing
        await eventually(lambda: done.total() >= RECORDS, "all is handled")
    assert done == EACH_ONCE
    assert sum((await committed_offsets(quick_kafka.bootstrap, group)).values()) == RECORDS


async def test_nothing_is_committed_ahead_of_what_workers_have_done(quick_kafka: Cluster) -> None:
    """Kafka commits a record as soon as the next one is asked for, if nobody says when it is done."""
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    begun: set[int] = set()
    free = asyncio.Event()

    async def handle(body: int) -> None:
        begun.add(body)
        if body == 1:
            await free.wait()

    subscribe = one_by_one(max_workers=4, auto_commit_interval_ms=50)
    async with asyncio.timeout(WAIT_SECONDS), running(quick_kafka, subscribe, topic, group, handle) as broker:
        await send(quick_kafka, topic, [str(number) for number in range(20)])
        await eventually(lambda: len(begun) == 20, "all others are done")
        (consumer,) = consumers_of(broker)
        await consumer.commit()
        assert await committed_offsets(quick_kafka.bootstrap, group) == {(topic, 0): 1}
        free.set()
        await eventually(lambda: offsets_are(quick_kafka, group, {(topic, 0): 20}), "all is committed")


async def offsets_are(kafka: Cluster, group: str, offsets: dict[tuple[str, int], int]) -> bool:
    return await committed_offsets(kafka.bootstrap, group) == offsets


@pytest.mark.parametrize("policy", [AckPolicy.ACK_FIRST, AckPolicy.ACK])
async def test_workers_that_are_cut_short_leave_their_records_to_the_next_owner(
    quick_kafka: Cluster, policy: AckPolicy
) -> None:
    topic, group = quick_kafka.create_topic(partitions=2), new_group()
    await send(quick_kafka, topic, [str(number) for number in range(20)], partition=None)
    begun: set[int] = set()
    done: Counter[int] = Counter()

    async def never(body: int) -> None:
        begun.add(body)
        if body >= 4:
            await asyncio.Event().wait()
        done[body] += 1

    async def handle(body: int) -> None:
        done[body] += 1

    subscribe = one_by_one(max_workers=2, ack_policy=policy)
    broker = KafkaBroker(quick_kafka.bootstrap, graceful_timeout=0.1, log_level=logging.DEBUG)
    subscribe(broker, topic, group, never)
    async with asyncio.timeout(WAIT_SECONDS):
        await broker.start()
        await eventually(lambda: len([body for body in begun if body >= 4]) == 2, "both wait for ever")
        began = time.monotonic()
        await broker.stop()
        # With acknowledgement FastStream cancels workers after their consumers have stopped.
        assert policy is AckPolicy.ACK or time.monotonic() - began < 4.0, "nobody works on these records any more"
        async with running(quick_kafka, subscribe, topic, group, handle):
            await eventually(lambda: len(done) == 20, "all is handled")
    assert done == Counter(range(20))


async def test_a_batch_that_was_handled_is_done_where_the_next_call_is_cut_short(quick_kafka: Cluster) -> None:
    """The first calls of a consumer let others begin before they look. Cut there, the batch was handled twice."""
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, ["0", "1"])
    consumer = FrameworkConsumer(
        Consumer(topic, bootstrap_servers=quick_kafka.bootstrap, group_id=group, **QUICK), told=True
    )
    await consumer.start()
    async with asyncio.timeout(WAIT_SECONDS):
        while not await consumer.getmany(timeout_ms=1_000):
            pass
        consumer.end_batch()
        asking = asyncio.create_task(consumer.getmany(timeout_ms=1_000))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        await consumer.stop()
    assert await committed_offsets(quick_kafka.bootstrap, group) == {(topic, 0): 2}


class Recorded(ConsumerRebalanceListener):
    """Begins with the third record of each partition."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.consumer: Consumer | None = None

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.calls.append("revoked")

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.calls.append("assigned")
        assert self.consumer is not None
        for at in assigned:
            self.consumer.seek(at, 2)


async def test_the_listener_of_the_application_is_called_and_may_seek(
    quick_kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, group = quick_kafka.create_topic(partitions=2), new_group()
    await send(quick_kafka, topic, [str(number) for number in range(10)], partition=None)
    listener, done = Recorded(), Counter[int]()

    async def handle(body: int) -> None:
        done[body] += 1

    broker = KafkaBroker(quick_kafka.bootstrap)
    one_by_one(listener=listener)(broker, topic, group, handle)
    subscribe = Consumer.subscribe

    def subscribed(consumer: Consumer, *arguments: Any, **options: Any) -> None:
        listener.consumer = consumer
        subscribe(consumer, *arguments, **options)

    monkeypatch.setattr(Consumer, "subscribe", subscribed)
    async with asyncio.timeout(WAIT_SECONDS):
        await broker.start()
        await eventually(lambda: len(done) == 6, "what is not skipped is handled")
        await broker.stop()
    assert done == Counter(range(4, 10))
    assert listener.calls == ["revoked", "assigned", "revoked"]


async def test_records_that_the_application_asks_for_itself(quick_kafka: Cluster) -> None:
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, ["0", "1", "2"])
    broker = KafkaBroker(quick_kafka.bootstrap)
    subscriber = broker.subscriber(topic, group_id=group, **QUICK)
    async with asyncio.timeout(WAIT_SECONDS):
        await broker.start()
        for number in range(2):
            message = await subscriber.get_one()
            assert message is not None
            assert await message.decode() == number
        async for message in subscriber:
            assert await message.decode() == 2
            break
        await broker.stop()
    # The one in hand is not done: nothing was asked for after it.
    assert await committed_offsets(quick_kafka.bootstrap, group) == {(topic, 0): 2}


async def test_a_subscriber_without_a_group_keeps_the_consumer_of_aiokafka(quick_kafka: Cluster) -> None:
    topic, handled = quick_kafka.create_topic(partitions=1), asyncio.Event()
    await send(quick_kafka, topic, ["0"])
    broker = KafkaBroker(quick_kafka.bootstrap)

    @broker.subscriber(topic, auto_offset_reset="earliest")
    async def handler(body: int) -> None:
        handled.set()

    async with asyncio.timeout(WAIT_SECONDS):
        await broker.start()
        (subscriber,) = broker.subscribers
        assert type(subscriber.consumer) is AIOKafkaConsumer  # type: ignore[attr-defined]
        await handled.wait()
        await broker.stop()


async def test_the_consumer_is_injected_and_a_broker_starts_again(quick_kafka: Cluster) -> None:
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    seen: list[type] = []
    broker = KafkaBroker(quick_kafka.bootstrap)

    @broker.subscriber(topic, group_id=group, **QUICK)
    async def handler(body: int, consumer: InjectedConsumer) -> None:
        seen.append(type(consumer))

    async with asyncio.timeout(WAIT_SECONDS):
        for times in range(1, 3):
            await broker.start()
            await broker.publish(times, topic)
            await eventually(lambda times=times: len(seen) == times, "it is handled")
            await broker.stop()
    assert seen == [FrameworkConsumer] * 2
    assert list(broker.middlewares).count(HandlerOutcome) == 1


async def test_the_double_of_faststream_needs_no_kafka() -> None:
    broker, seen = KafkaBroker(), []

    @broker.subscriber("numbers", group_id="doubled", max_workers=2)
    async def handler(body: int) -> None:
        seen.append(body)

    async with TestKafkaBroker(broker) as double:
        await double.publish(7, "numbers")
    assert seen == [7]


async def test_the_router_of_fastapi(quick_kafka: Cluster) -> None:
    topic, handled = quick_kafka.create_topic(partitions=1), asyncio.Event()

    class Router(KafkaRouter):
        broker_class = KafkaBroker

    router = Router(quick_kafka.bootstrap)

    @router.subscriber(topic, group_id=new_group(), **QUICK)
    async def handler(body: int) -> None:
        handled.set()

    application = FastAPI(lifespan=router.lifespan_context)
    application.include_router(router)
    async with asyncio.timeout(WAIT_SECONDS), application.router.lifespan_context(application):
        await router.broker.publish(1, topic)
        await handled.wait()
        (subscriber,) = router.broker.subscribers
        assert type(subscriber.consumer) is FrameworkConsumer
