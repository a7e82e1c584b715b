"""Tasks of user code say themselves when a record is done: nothing is lost, and nothing is committed ahead."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka import TopicPartition
from prometheus_client import CollectorRegistry

from integration.harness import WAIT_SECONDS, eventually
from integration.harness_consumers import make, new_group, send
from loadtrim import Consumer, Settings
from loadtrim.testing import Cluster

pytestmark = pytest.mark.kafka

PARTITIONS = 4
RECORDS = 400
SEED = 7


class Handler:
    """Works on several records at once, each in a task; records end in any order.

    Args:
        consumer: hands them out.
        done: counts what is done, of all members.
    """

    def __init__(self, consumer: Consumer, done: Counter[bytes]) -> None:
        self._consumer = consumer
        self._done = done
        self._rng = random.Random(SEED)
        self._free = asyncio.Semaphore(10)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            async for message in self._consumer:
                tasks.create_task(self._handle(message))
                await self._free.acquire()

    async def _handle(self, message: object) -> None:
        async with self._consumer.work(message) as record:  # type: ignore[arg-type]
            await asyncio.sleep(self._rng.uniform(0.0, 0.05))
            self._done[record.value] += 1
        self._free.release()


@asynccontextmanager
async def handling(kafka: Cluster, topic: str, group: str, done: Counter[bytes]) -> AsyncIterator[Consumer]:
    consumer = make(kafka, topic, group=group, auto_commit_interval_ms=100)
    await consumer.start()
    task = asyncio.create_task(Handler(consumer, done).run())
    try:
        yield consumer
    finally:
        await consumer.stop()
        await asyncio.wait_for(task, WAIT_SECONDS)


async def test_tasks_do_each_record_once_while_members_come_and_go(quick_kafka: Cluster) -> None:
    topic, group = quick_kafka.create_topic(partitions=PARTITIONS), new_group()
    done: Counter[bytes] = Counter()
    written = [str(number) for number in range(RECORDS)]

    async def write() -> None:
        for at in range(0, RECORDS, 10):
            await send(quick_kafka, topic, written[at : at + 10], partition=None)

    async with asyncio.timeout(WAIT_SECONDS), handling(quick_kafka, topic, group, done) as first:
        writing = asyncio.create_task(write())
        async with handling(quick_kafka, topic, group, done) as second:
            await eventually(lambda: len(first.assignment()) == len(second.assignment()) == 2, "both have their share")
        await writing
        await eventually(lambda: len(done) == RECORDS, "all is done")
        ends = await first.end_offsets([TopicPartition(topic, index) for index in range(PARTITIONS)])

        async def all_committed() -> bool:
            return {at: await first.committed(at) for at in ends} == ends

        await eventually(all_committed, "all is committed")
    assert done == Counter(value.encode() for value in written)


async def test_what_is_behind_a_record_that_is_worked_on_is_not_committed(quick_kafka: Cluster) -> None:
    """The rule of the next call committed a record as soon as the one behind it was asked for."""
    topic, group = quick_kafka.create_topic(), new_group()
    at, written = TopicPartition(topic, 0), ["0", "1", "2"]
    await send(quick_kafka, topic, written)
    consumer = make(quick_kafka, topic, group=group, auto_commit_interval_ms=50)
    async with asyncio.timeout(WAIT_SECONDS):
        await consumer.start()
        first = await consumer.getone()
        work = consumer.work(first)
        second, third = await consumer.getone(), await consumer.getone()
        assert consumer.done(third)
        async with work:
            assert consumer.done(second)
            assert not consumer.done(second)
            await consumer.commit()
            assert await consumer.committed(at) in (None, 0)
        await consumer.commit()
        assert await consumer.committed(at) == 3
        await consumer.stop()


async def test_a_record_that_failed_is_handed_out_again_to_the_next_owner(quick_kafka: Cluster) -> None:
    topic, group = quick_kafka.create_topic(), new_group()
    await send(quick_kafka, topic, ["0", "1"])
    async with asyncio.timeout(WAIT_SECONDS):
        async with make(quick_kafka, topic, group=group) as consumer:
            with pytest.raises(ValueError, match="cannot"):
                async with consumer.work(await consumer.getone()):
                    raise ValueError("cannot")
            async with consumer.work(await consumer.getone()):
                ...
        async with make(quick_kafka, topic, group=group) as consumer:
            assert [(await consumer.getone()).value for _ in range(2)] == [b"0", b"1"]


async def test_stop_waits_for_what_tasks_work_on(quick_kafka: Cluster) -> None:
    topic, group = quick_kafka.create_topic(), new_group()
    await send(quick_kafka, topic, ["0"])
    ended: list[bytes] = []
    async with asyncio.timeout(WAIT_SECONDS):
        consumer = make(quick_kafka, topic, group=group)
        await consumer.start()
        message = await consumer.getone()

        async def handle() -> None:
            async with consumer.work(message) as record:
                await asyncio.sleep(0.3)
                ended.append(record.value)

        task = asyncio.create_task(handle())
        await asyncio.sleep(0)
        await consumer.stop()
        assert ended == [b"0"]
        await task
        async with make(quick_kafka, topic, group=group) as other:
            assert await other.committed(TopicPartition(topic, 0)) == 1


async def test_a_thread_may_tell(quick_kafka: Cluster) -> None:
    topic, group = quick_kafka.create_topic(), new_group()
    at = TopicPartition(topic, 0)
    await send(quick_kafka, topic, ["0"])
    async with asyncio.timeout(WAIT_SECONDS), make(quick_kafka, topic, group=group) as consumer:
        message = await consumer.getone()
        assert await asyncio.to_thread(consumer.done, message)
        await consumer.commit()
        assert await consumer.committed(at) == 1


@pytest.mark.parametrize("in_hand", [False, True])
async def test_a_consumer_whose_loop_is_closed_is_stopped_in_another(quick_kafka: Cluster, in_hand: bool) -> None:
    """Nobody goes on with the record in hand, so the stop does not wait for it, and the next owner is handed it."""
    topic, group = quick_kafka.create_topic(), new_group()
    await send(quick_kafka, topic, ["0"])

    async def begin() -> tuple[Consumer, object]:
        consumer = make(quick_kafka, topic, group=group, settings=Settings(http="off", drain_seconds=2 * WAIT_SECONDS))
        await consumer.start()
        return consumer, await consumer.getone() if in_hand else None

    def consume() -> None:
        consumer, message = asyncio.run(begin())
        if in_hand:
            assert not consumer.done(message)  # type: ignore[arg-type]
        asyncio.run(asyncio.wait_for(consumer.stop(), WAIT_SECONDS))
        assert consumer.assignment() == set()

    await asyncio.to_thread(consume)
    async with asyncio.timeout(WAIT_SECONDS), make(quick_kafka, topic, group=group) as other:
        assert (await other.getone()).value == b"0"


async def test_only_records_can_be_told_of(quick_kafka: Cluster) -> None:
    async with make(quick_kafka, quick_kafka.create_topic(), group=new_group()) as consumer:
        with pytest.raises(TypeError, match="is no record"):
            consumer.done(b"value")  # type: ignore[arg-type]


@pytest.mark.parametrize("tells", [False, True])
async def test_latency_is_unknown_where_tasks_do_not_say_what_is_done(
    quick_kafka: Cluster, tells: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Told "in time 100 %, half within 10 ms" while records were 18 s late."""
    topic, registry, done = quick_kafka.create_topic(), CollectorRegistry(), asyncio.Event()
    consumer = make(
        quick_kafka, topic, group=new_group(), registry=registry, settings=Settings(sla_seconds=0.5, http="off")
    )

    async def handle(message: object) -> None:
        if not tells:
            await done.wait()
            return
        async with consumer.work(message):  # type: ignore[arg-type]
            await asyncio.sleep(0.01)

    def counted(name: str) -> float:
        found = [each for family in registry.collect() for each in family.samples if each.name == name]
        return sum(each.value for each in found)

    async def consume() -> None:
        async with asyncio.TaskGroup() as tasks:
            async for message in consumer:
                tasks.create_task(handle(message))

    async def write() -> None:
        for number in itertools.count():
            await send(quick_kafka, topic, [str(number)])
            await asyncio.sleep(0.005 if tells else 0.02)

    async with asyncio.timeout(WAIT_SECONDS), consumer:
        consuming, writing = asyncio.create_task(consume()), asyncio.create_task(write())
        unknown = "loadtrim_records_latency_unknown_total"
        if tells:
            await eventually(lambda: counted("loadtrim_record_latency_seconds_count") > 300, "many are done")
            assert counted(unknown) == 0
        else:
            await eventually(lambda: counted(unknown) > 50, "their latency is unknown")
            told = [record for record in caplog.records if "latency of records is unknown" in record.message]
            assert len(told) == 1
            assert "consumer.work(message)" in told[0].message
        writing.cancel()
        done.set()
        await consumer.stop()
        await consuming
