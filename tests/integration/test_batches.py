"""The consumer that works in batches (``examples/batches``), on a real Kafka, while partitions move."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from batches.gathering import BatchLimits
from batches.service import Cycle, WrittenRow, rejected_of, rows_of
from integration.harness import committed_offsets, eventually
from integration.harness_consumers import make, new_group
from integration.test_exactly_once import both_in_one_generation, move
from loadtrim import Settings
from loadtrim.testing import Cluster

pytestmark = pytest.mark.kafka

PARTITIONS = 4
MOVES = 12
SESSION_MS = 30_000


class Member:
    """The service in this process; ends as at SIGTERM."""

    def __init__(self, kafka: Cluster, topic: str, group: str, limits: BatchLimits) -> None:
        # In shadow mode nobody is scaled, and with such a session nobody is taken for dead.
        self.consumer = make(
            kafka,
            group=group,
            settings=Settings(http="off", mode="shadow"),
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
        )
        self.producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, enable_idempotence=True)
        self.cycle = Cycle(self.consumer, self.producer, limits)
        self.consumer.subscribe([topic], listener=self.cycle)

    async def run(self) -> None:
        async with self.producer, self.consumer:
            await self.cycle.run()


@contextlib.asynccontextmanager
async def two_members(kafka: Cluster, topic: str, group: str, limits: BatchLimits) -> AsyncIterator[list[Member]]:
    members = [Member(kafka, topic, group, limits) for _ in range(2)]
    async with asyncio.TaskGroup() as running:
        for member in members:
            running.create_task(member.run())
        one, two = (member.consumer for member in members)
        places = {TopicPartition(topic, index) for index in range(PARTITIONS)}
        await eventually(lambda: one._client.link.agent and two._client.link.agent, "both have begun")
        await both_in_one_generation(one, two)
        await eventually(lambda: one.assignment() | two.assignment() == places, "every partition is owned")
        yield members
        for member in members:
            member.consumer._client.end_iteration(False)


async def moved(members: list[Member], at: TopicPartition) -> None:
    """Have it given to the one that does not have it."""
    one, two = (member.consumer for member in members)
    source, target = (one, two) if at in one.assignment() else (two, one)

    def there() -> bool:
        if at not in target.assignment():
            move(source, target, at)  # again, where it was not possible yet
        return at in target.assignment()

    await eventually(there, f"{at} has moved")


async def send(producer: AIOKafkaProducer, topic: str, numbers: range) -> None:
    """One record to each partition for every number: ``partition-number``."""
    for number in numbers:
        sent = [
            await producer.send(topic, msgspec.json.encode({"id": f"{index}-{number}"}), partition=index)
            for index in range(PARTITIONS)
        ]
        await asyncio.gather(*sent)


async def rows(kafka: Cluster, topic: str) -> list[str]:
    """Ids of all rows there are."""
    at = TopicPartition(rows_of(topic), 0)
    reader = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap, group_id=None, auto_offset_reset="earliest")
    found: list[str] = []
    async with reader:
        reader.assign([at])
        end = (await reader.end_offsets([at]))[at]
        while len(found) < end:
            taken = (await reader.getmany(at, timeout_ms=200)).get(at, ())
            found += [msgspec.json.decode(message.value, type=WrittenRow).id for message in taken]
    return found


def of(index: int, ids: list[str]) -> list[str]:
    """Those of one partition."""
    return [each for each in ids if each.startswith(f"{index}-")]


def numbered(index: int, count: int) -> list[str]:
    return [f"{index}-{number}" for number in range(count)]


async def assert_all_once(kafka: Cluster, topic: str, group: str, count: int) -> None:
    """Each record became a row once, in its partition's order, and all of them are committed."""
    found = await rows(kafka, topic)
    for index in range(PARTITIONS):
        assert of(index, found) == numbered(index, count)
    assert set((await committed_offsets(kafka.bootstrap, group)).values()) == {count}


def make_topics(kafka: Cluster) -> str:
    topic = kafka.create_topic(partitions=PARTITIONS)
    kafka.create_topic(1, rows_of(topic))
    kafka.create_topic(1, rejected_of(topic))
    return topic


async def test_a_partition_that_moves_takes_nothing_gathered_along(kafka: Cluster) -> None:
    """Its part of the batch is out and committed before its next owner begins, long before the batch is complete."""
    topic, group = make_topics(kafka), new_group()
    at = TopicPartition(topic, 0)
    async with (
        AIOKafkaProducer(bootstrap_servers=kafka.bootstrap) as producer,
        two_members(kafka, topic, group, BatchLimits(wait_seconds=300.0)) as members,
    ):
        await send(producer, topic, range(10))
        size = sum(len(msgspec.json.encode({"id": f"{i}-{n}"})) for i in range(PARTITIONS) for n in range(10))

        async def gathered_or_out() -> bool:
            """Has nothing been left behind? What a plan moves meanwhile is out already."""
            out = sum(len(msgspec.json.encode({"id": each})) for each in await rows(kafka, topic))
            return sum(member.cycle.gathering.bytes for member in members) + out == size

        await eventually(gathered_or_out, "all is gathered")
        await moved(members, at)
        assert of(0, await rows(kafka, topic)) == numbered(0, 10)
        assert (await committed_offsets(kafka.bootstrap, group))[topic, 0] == 10
    await assert_all_once(kafka, topic, group, 10)


async def test_nothing_is_lost_or_repeated_while_partitions_move(kafka: Cluster) -> None:
    """Small batches, so that moves meet every phase of the cycle."""
    topic, group = make_topics(kafka), new_group()
    limits = BatchLimits(batch_bytes=500, wait_seconds=0.05)
    count = 0
    async with (
        AIOKafkaProducer(bootstrap_servers=kafka.bootstrap) as producer,
        two_members(kafka, topic, group, limits) as members,
    ):
        moves = asyncio.ensure_future(move_about(members, topic))
        while not moves.done():
            await send(producer, topic, range(count, count := count + 1))
        await moves

        async def all_out() -> bool:
            return len(await rows(kafka, topic)) >= PARTITIONS * count

        await eventually(all_out, "all of them are out")
    await assert_all_once(kafka, topic, group, count)


async def move_about(members: list[Member], topic: str) -> None:
    for index in itertools.islice(itertools.cycle(range(PARTITIONS)), MOVES):
        await moved(members, TopicPartition(topic, index))
