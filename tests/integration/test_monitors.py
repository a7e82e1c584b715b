"""Monitors against a real broker: what they say arrives is what was sent."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from integration.harness import eventually, group_of_processes
from loadtrim.testing import Cluster
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.offsets import OffsetQueries
from loadtrim_agent.kafka.rate_sources import LogSizeRates, OffsetTimeRates
from loadtrim_agent.planning.published.rate_sources import DELAY_SECONDS
from loadtrim_agent.planning.values import Rates, RateUnit

pytestmark = pytest.mark.kafka


@asynccontextmanager
async def queries_of(cluster: Cluster, timeout_ms: int = 20_000) -> AsyncIterator[OffsetQueries]:
    client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap)
    await client.bootstrap()
    try:
        yield OffsetQueries(client, isolation_level=0, timeout_ms=timeout_ms, retry_backoff=0.1)
    finally:
        await client.close()


@asynccontextmanager
async def sender(cluster: Cluster) -> AsyncIterator[AIOKafkaProducer]:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap) as producer:
        yield producer


async def test_bytes_on_disk_grow_by_what_is_written(quick_kafka: Cluster) -> None:
    """1,000 bytes to one partition, five times as many to another, nothing to a third; time is told."""
    topic = await asyncio.to_thread(quick_kafka.create_topic, 3)
    partitions = [Partition(topic, index) for index in range(3)]
    async with queries_of(quick_kafka) as queries, sender(quick_kafka) as producer:
        monitor = LogSizeRates(queries)
        assert await monitor.rates(partitions, 1_000.0) is None
        for index, count in ((0, 1), (1, 5)):
            for _ in range(count):
                await producer.send_and_wait(topic, b"x" * 1_000, partition=index)
        rates = await monitor.rates(partitions, 1_010.0)
    assert rates is not None
    assert rates.unit is RateUnit.BYTES
    first, second, third = (rates.per_second[partition] for partition in partitions)
    # A batch of one record has some 70 bytes of its own.
    assert 100.0 <= first <= 110.0
    assert second == pytest.approx(5 * first)
    assert third == 0.0


async def test_records_are_counted_by_their_time_stamps(quick_kafka: Cluster) -> None:
    """40 records stamped in the interval that ended 1.5 s ago, others before and after it."""
    topic = await asyncio.to_thread(quick_kafka.create_topic, 2)
    partitions = [Partition(topic, index) for index in range(2)]
    now = time.time()
    async with queries_of(quick_kafka) as queries, sender(quick_kafka) as producer:

        async def send(index: int, count: int, ago: float) -> None:
            for _ in range(count):
                stamp = int((now - ago) * 1000)
                await producer.send_and_wait(topic, b"x", partition=index, timestamp_ms=stamp)

        for index, count in ((0, 40), (1, 10)):
            await send(index, 5, DELAY_SECONDS + 3.0)
            await send(index, count, DELAY_SECONDS + 1.0)
        await send(0, 7, DELAY_SECONDS - 0.5)
        rates = await OffsetTimeRates(queries, interval_seconds=2.0).rates(partitions, now)
    assert rates == Rates(at=now, unit=RateUnit.RECORDS, per_second={partitions[0]: 20.0, partitions[1]: 5.0})


@pytest.mark.parametrize("monitor", ["landau24", "iccbdc22"])
async def test_a_group_goes_by_its_monitor(quick_kafka: Cluster, tmp_path: Path, monitor: str) -> None:
    """Its leader's decisions hold until the monitor has told, and then give the rate that is really sent."""
    env = {"LOADTRIM_MONITOR": monitor, "LOADTRIM_POLICY": "linear", "LOADTRIM_PACKER": "sticky"}
    async with group_of_processes(quick_kafka, tmp_path) as group:
        await group.start_all("a", env=env)
        await group.until_stable("a", members=1)

        async def told() -> Any:
            _, status = await group.leader()
            decision = status["last_decision"] or {}
            return decision.get("outcome") not in (None, "hold") and decision.get("rate", 0) > 0 and decision

        decision: dict[str, Any] = await eventually(told, "a decision by the monitor's rates")
        assert (decision["monitor"], decision["policy"]) == (monitor, "linear")
        verdict = await group.finish()
    assert verdict.spotless, str(verdict)


async def test_a_partition_that_nobody_leads_is_an_error_and_no_rate(quick_kafka: Cluster) -> None:
    async with queries_of(quick_kafka, timeout_ms=1_000) as queries:
        with pytest.raises(KafkaError):
            await LogSizeRates(queries).rates([Partition(f"nowhere-{uuid.uuid4().hex[:6]}", 0)], 1.0)
