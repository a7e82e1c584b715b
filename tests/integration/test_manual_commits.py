"""Tasks of user code that commit by hand: their commits tell what was in time, and never that a record was late."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError
from prometheus_client import CollectorRegistry

from integration.harness import WAIT_SECONDS, eventually
from integration.harness_consumers import make, new_group, send
from loadtrim import Consumer, Settings
from loadtrim.testing import Cluster
from loadtrim_agent.wire.telemetry_records import Untold

pytestmark = pytest.mark.kafka

SLA_SECONDS = 2.0
WORK_SECONDS = 0.3
"""More than the tenth of the objective for which a record may be kept without a word."""
RECORDS_PER_SECOND = 40
RECORDS = 150
AT_ONCE = 50
SELDOM_SECONDS = 2 * SLA_SECONDS


class Program:
    """A task for each record, a few at once; it commits itself, up to the first record that is not done.

    Args:
        consumer: hands the records out.
        registry: of its metrics.
        promptly: commit whenever that goes further. False: every few seconds.
    """

    def __init__(self, consumer: Consumer, registry: CollectorRegistry, *, promptly: bool) -> None:
        self._consumer = consumer
        self._registry = registry
        self._promptly = promptly
        self._free = asyncio.Semaphore(AT_ONCE)
        self._working: dict[TopicPartition, list[int]] = {}
        self._taken: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            seldom = tasks.create_task(self._commit_seldom())
            async for message in self._consumer:
                await self._free.acquire()
                at = TopicPartition(message.topic, message.partition)
                self._working.setdefault(at, []).append(message.offset)
                self._taken[at] = message.offset + 1
                tasks.create_task(self._handle(at, message))
            seldom.cancel()

    async def _handle(self, at: TopicPartition, message: Any) -> None:
        await asyncio.sleep(WORK_SECONDS)
        working = self._working[at]
        first = working[0] == message.offset
        working.remove(message.offset)
        self._free.release()
        if first and self._promptly:
            await self._commit(at)

    async def _commit_seldom(self) -> None:
        while not self._promptly:
            await asyncio.sleep(SELDOM_SECONDS)
            for at in tuple(self._working):
                await self._commit(at)

    async def _commit(self, at: TopicPartition) -> None:
        working = self._working[at]
        with contextlib.suppress(CommitFailedError, IllegalStateError):  # it is not this member's any more
            await self._consumer.commit({at: working[0] if working else self._taken[at]})

    def counted(self, name: str) -> float:
        found = [each for family in self._registry.collect() for each in family.samples if each.name == name]
        return sum(each.value for each in found)

    @property
    def known(self) -> float:
        return self.counted("loadtrim_record_latency_seconds_count")

    @property
    def unknown(self) -> float:
        return self.counted("loadtrim_records_latency_unknown_total")

    @property
    def late(self) -> float:
        return self.counted("loadtrim_records_late_total")

    @property
    def untold(self) -> Untold:
        return self._consumer._client.services.metering.snapshot.untold  # type: ignore[union-attr]


@asynccontextmanager
async def running(kafka: Cluster, *, promptly: bool) -> AsyncIterator[Program]:
    topic, registry = kafka.create_topic(partitions=2), CollectorRegistry()
    consumer = make(
        kafka,
        topic,
        group=new_group(),
        registry=registry,
        settings=Settings(sla_seconds=SLA_SECONDS, http="off"),
        enable_auto_commit=False,
    )
    program = Program(consumer, registry, promptly=promptly)

    async def write() -> None:
        for number in itertools.count():
            await send(kafka, topic, [str(number)], partition=None)
            await asyncio.sleep(1 / RECORDS_PER_SECOND)

    async with asyncio.timeout(WAIT_SECONDS), consumer:
        consuming, writing = asyncio.create_task(program.run()), asyncio.create_task(write())
        try:
            yield program
        finally:
            writing.cancel()
            await consumer.stop()
            await consuming


async def test_latency_is_known_where_tasks_commit_what_is_done(quick_kafka: Cluster) -> None:
    """All of it was unknown, though the program said to Kafka what was done."""
    async with running(quick_kafka, promptly=True) as program:
        await eventually(lambda: program.untold is Untold.COMMITTED and program.known > RECORDS, "latency is known")
        assert program.unknown <= 0.05 * program.known
        assert program.late <= 0.05 * program.known


async def test_records_that_are_committed_seldom_are_not_called_late(
    quick_kafka: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(quick_kafka, promptly=False) as program:
        await eventually(lambda: program.unknown > RECORDS, "most of their latencies are unknown")
        assert program.untold is Untold.KEPT
        assert program.late <= 0.05 * program.unknown
        told = [record.message for record in caplog.records if "that are not committed in time" in record.message]
        assert len(told) == 1
