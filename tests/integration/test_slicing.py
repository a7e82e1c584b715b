"""Members give work away by their own decision: to one that is idle, in order, nothing lost and nothing twice."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from aiokafka import AIOKafkaProducer

from integration.harness import eventually
from integration.harness_consumers import new_group, started
from loadtrim import Consumer, Settings
from loadtrim.testing import Cluster
from loadtrim_agent.common.clock import wall_time
from loadtrim_agent.delivery.slicing_task import SlicingTask
from loadtrim_agent.planning.slicing import SlicingOff
from loadtrim_agent.wire.ownership_records import ManualOverrideRecord

pytestmark = pytest.mark.kafka

COST_SECONDS = 0.006
OBJECTIVE_SECONDS = 0.5
BURST = 60
"""Records per partition: two of them take a member 0.72 s, and two members 0.36 s."""
BURSTS = 10
MOVE_SECONDS_MAX = 0.2
"""From the last record here to the first one there; longer ones are of partitions of which nothing waited. Chosen: ten
times what a handoff takes on a quiet machine."""
SETTINGS = Settings(http="off", drain_seconds=5.0, sla_seconds=OBJECTIVE_SECONDS, slicing="auto")


class Journal:
    """The journal of all that was handed out and done."""

    def __init__(self) -> None:
        self.sent = 0
        self.done: Counter[str] = Counter()
        self.handed: dict[int, list[tuple[int, int, float, float]]] = {}
        """Partition -> (offset, member, handed out at, done at), in the order of delivery."""

    async def work(self, consumer: Consumer, member: int) -> None:
        async for record in consumer:
            handed_at = time.monotonic()
            await asyncio.sleep(COST_SECONDS)
            self.done[record.value.decode()] += 1
            entry = record.offset, member, handed_at, time.monotonic()
            self.handed.setdefault(record.partition, []).append(entry)

    def moves(self) -> list[float]:
        """Seconds from the last record that one member has done until the next one gets its first, by partition."""
        return [
            after[2] - before[3]
            for entries in self.handed.values()
            for before, after in pairwise(entries)
            if before[1] != after[1]
        ]


@contextlib.asynccontextmanager
async def working(*consumers: Consumer) -> AsyncIterator[Journal]:
    journal = Journal()
    tasks = [asyncio.create_task(journal.work(consumer, number)) for number, consumer in enumerate(consumers)]
    try:
        yield journal
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def slicing_of(consumer: Consumer) -> SlicingTask:
    services = consumer._client.link.agent.observer  # type: ignore[union-attr]
    return services.slicing  # type: ignore[no-any-return]


async def hold_plans(consumer: Consumer, group: str) -> None:
    """Have the leader make no plan: what moves then, members move."""
    log = consumer._client.link.agent.log  # type: ignore[union-attr]
    assert log is not None
    order = ManualOverrideRecord(group=group, member="cli", at=wall_time(), action="hold")
    assert await consumer._client.link.run(log.write(order))  # type: ignore[union-attr]


async def burst(producer: AIOKafkaProducer, topic: str, partitions: list[int], count: int, journal: Journal) -> None:
    """Send so many records to each of these partitions, and wait until they are done."""
    for _ in range(count):
        for partition in partitions:
            journal.sent += 1
            await producer.send(topic, b"%d" % journal.sent, partition=partition)
    await producer.flush()
    await eventually(lambda: sum(journal.done.values()) >= journal.sent, "the burst is done")


async def test_what_one_member_will_not_do_in_time_goes_to_one_that_is_idle(kafka: Cluster) -> None:
    topic, group = kafka.create_topic(partitions=4), new_group()
    async with (
        started(kafka, topic, group=group, settings=SETTINGS, session_timeout_ms=10_000) as one,
        started(kafka, topic, group=group, settings=SETTINGS, session_timeout_ms=10_000) as two,
        AIOKafkaProducer(bootstrap_servers=kafka.bootstrap) as producer,
        working(one, two) as journal,
    ):
        await eventually(lambda: len(one.assignment()) == len(two.assignment()) == 2, "both own two")
        assert [slicing_of(each).off() for each in (one, two)] == [SlicingOff.NOTHING] * 2
        await hold_plans(one, group)
        await burst(producer, topic, [0, 1, 2, 3], 10, journal)
        await asyncio.sleep(2.5)  # costs are known from the next report on, and loads are told
        for _ in range(BURSTS):
            busier = max((one, two), key=lambda each: len(each.assignment()))
            await burst(producer, topic, sorted(at.partition for at in busier.assignment())[:2], BURST, journal)
            await asyncio.sleep(1.0)
    assert set(journal.done.values()) == {1}, "nothing twice"
    assert len(journal.done) == journal.sent, "nothing lost"
    for entries in journal.handed.values():
        assert [entry[0] for entry in entries] == sorted(entry[0] for entry in entries), "in order, over both members"
    assert len([seconds for seconds in journal.moves() if seconds < MOVE_SECONDS_MAX]) >= BURSTS / 2
