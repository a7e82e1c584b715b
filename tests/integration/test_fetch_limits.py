"""Limits, against a real broker: quotas, requests without a session, large records, what is asked for at once."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from integration.harness import eventually
from integration.harness_brokers import limit_reading
from integration.harness_fetch import Reads, produce, producing, reading, some
from loadtrim.testing import Cluster, LocalKafka
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.channels import FetchChannel, FetchConnection
from loadtrim_agent.kafka.fetch.fetcher import ANSWERS_BYTES_MAX

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def sessionless() -> Iterator[LocalKafka]:
    """A broker without a slot for a fetch session."""
    with LocalKafka(properties={"max.incremental.fetch.session.cache.slots": "0"}, short_run=True) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def quotas() -> Iterator[LocalKafka]:
    """A broker that judges by the last second, not by the last ten."""
    with LocalKafka(properties={"quota.window.num": "2"}, short_run=True) as kafka:
        yield kafka


class Asked:
    """Every fetch of a fetcher: when it was sent and answered, and what it said."""

    def __init__(self, reads: Reads) -> None:
        self.fetches: list[tuple[FetchConnection, float, float, Any]] = []
        """(connection, sent, answered, answer)."""
        self.limits: list[int] = []
        self._send = reads.fetcher._client.send
        reads.fetcher._client.send = self._recorded

    async def _recorded(self, node: int, request: Any, *, group: Any = None) -> Any:
        if not isinstance(group, FetchConnection):
            return await self._send(node, request)
        sent = time.monotonic()
        self.limits.append(request._limits[2])
        answer = await self._send(node, request, group=group)
        self.fetches.append((group, sent, time.monotonic(), answer))
        return answer


async def test_a_throttled_reader_waits_as_it_is_told(quotas: LocalKafka) -> None:
    """A quota: nothing is asked of the broker before its time is over, everything comes, nobody else is slower."""
    topic, client = quotas.create_topic(partitions=2), f"slow-{uuid.uuid4().hex[:6]}"
    await limit_reading(quotas, client, 100_000)
    settings = {"client_id": client, "max_partition_fetch_bytes": 50_000, "fetch_max_wait_ms": 100}
    await produce(quotas, topic, [b"x" * 10_000] * 30, 0)
    await produce(quotas, topic, [b"x" * 10_000] * 30, 1)
    async with reading(quotas, topic, 2, **settings) as slow, reading(quotas, topic, 2) as free:
        asked = Asked(slow)
        began = time.monotonic()
        for partition in range(2):
            slow.fetcher.take(Partition(topic, partition), 0)
            free.fetcher.take(Partition(topic, partition), 0)
        await eventually(lambda: len(free.records) == 60, "the other gets all")
        assert len(slow.records) < 60
        await eventually(lambda: len(slow.records) == 60, "all came at last")
        taken = time.monotonic() - began
        assert slow.offsets(0) == slow.offsets(1) == list(range(30))
        assert slow.errors == []
    throttled = [fetch for fetch in asked.fetches if fetch[3].throttle_time_ms > 0]
    assert throttled
    for connection, _, answered, answer in throttled:
        later = [sent for other, sent, _, _ in asked.fetches if other == connection and sent > answered]
        if later:
            assert min(later) - answered >= answer.throttle_time_ms / 1000 - 0.01
    # 600 kB at 100 kB/s, less what the first second lets pass.
    assert taken > 2.0
    assert len(asked.fetches) < 200, "it waits, it does not ask again and again"


async def test_what_is_said_under_a_throttle_is_not_taken_for_news(quotas: LocalKafka) -> None:
    """The end of the log is as old as the last answer that told it."""
    topic, client = quotas.create_topic(partitions=1), f"slow-{uuid.uuid4().hex[:6]}"
    at = Partition(topic, 0)
    async with reading(quotas, topic, client_id=client, fetch_max_wait_ms=50) as reads:
        asked = Asked(reads)
        reads.fetcher.take(at, 0)
        await eventually(lambda: reads.fetcher.end_offset(at) == 0, "told that it is empty")
        await limit_reading(quotas, client, 20_000)
        await produce(quotas, topic, [b"x" * 5_000] * 12, 0)

        def silent() -> list[float]:
            return [
                answered for _, _, answered, answer in asked.fetches if answer.throttle_time_ms and not answer.topics
            ]

        await eventually(silent, "an answer that throttles and says nothing")
        told = reads.fetcher.end_offset_at(at)
        before = len(silent())
        await eventually(lambda: len(silent()) > before or len(reads.records) == 12, "the next answer")
        if len(reads.records) < 12:
            assert reads.fetcher.end_offset_at(at) == told
        await eventually(lambda: len(reads.records) == 12, "all came")


async def test_small_records_wait_for_more_as_long_as_they_may(kafka: Cluster) -> None:
    """``fetch_min_bytes`` and ``fetch_max_wait_ms``: the broker waits with its answer; what is taken over does not."""
    topic = kafka.create_topic(partitions=2)
    one, two = Partition(topic, 0), Partition(topic, 1)
    await produce(kafka, topic, some(1), 1)
    async with reading(kafka, topic, 2, fetch_min_bytes=1 << 20, fetch_max_wait_ms=1_500) as reads:
        asked = Asked(reads)
        reads.fetcher.take(one, 0)
        await eventually(lambda: reads.fetcher.end_offset(one) == 0, "told that it is empty")
        began = time.monotonic()
        reads.fetcher.take(two, 0)
        await eventually(lambda: reads.offsets(1) == [0], "what is taken comes by the other channel")
        at_once = time.monotonic() - began
        await produce(kafka, topic, some(1), 0)
        await eventually(lambda: reads.offsets(0) == [0], "the broker has waited for more")
        polls = [
            (sent, answered)
            for connection, sent, answered, _ in asked.fetches
            if connection.channel is FetchChannel.POLL
        ]
        assert min(answered - sent for sent, answered in polls[1:]) >= 1.4
        assert at_once < 1.4


async def test_a_broker_without_sessions_gives_everybody_a_turn(sessionless: LocalKafka) -> None:
    """Records above every limit in each partition: only the first of a request is given one (KIP-74)."""
    topic = sessionless.create_topic(partitions=4)
    async with producing(sessionless, max_request_size=1 << 20) as producer:
        for number in range(20):
            for partition in range(4):
                await producer.send_and_wait(topic, b"%d" % number + b"x" * 30_000, partition=partition)
    limits = {"max_partition_fetch_bytes": 1_000, "fetch_max_bytes": 1_000}
    async with reading(sessionless, topic, 4, **limits) as reads:
        for partition in range(4):
            reads.fetcher.take(Partition(topic, partition), 0)
        await eventually(lambda: len(reads.records) == 80, "all came")
        assert all(reads.offsets(partition) == list(range(20)) for partition in range(4))
        sessions = {broker.channels.session.session for broker in reads.fetcher._fetch_groups.values()}
        assert sessions == {0}
    order = [record.partition for record in reads.records]
    # Nobody waits until another has come to its end.
    firsts = [order.index(partition) for partition in range(4)]
    assert max(firsts) <= 12, order


async def test_large_records_in_every_partition(kafka: Cluster) -> None:
    """The same with a session."""
    topic = kafka.create_topic(partitions=4)
    async with producing(kafka, max_request_size=1 << 20) as producer:
        for _ in range(10):
            for partition in range(4):
                await producer.send_and_wait(topic, b"x" * 30_000, partition=partition)
    async with reading(kafka, topic, 4, max_partition_fetch_bytes=1_000, fetch_max_bytes=1_000) as reads:
        for partition in range(4):
            reads.fetcher.take(Partition(topic, partition), 0)
        await eventually(lambda: len(reads.records) == 40, "all came")
        assert all(reads.offsets(partition) == list(range(10)) for partition in range(4))
        assert reads.errors == []


async def test_what_is_asked_for_at_once_is_bounded_over_all_brokers() -> None:
    """However many brokers there are, answers on their way hold no more than ANSWERS_BYTES_MAX."""
    with LocalKafka(brokers=3, short_run=True, heap_mb=256) as kafka:
        topic = kafka.create_topic(partitions=6)
        await asyncio.gather(*(produce(kafka, topic, some(3), partition) for partition in range(6)))
        async with reading(kafka, topic, 6) as reads:
            for partition in range(6):
                reads.fetcher.take(Partition(topic, partition), 0)
            await eventually(lambda: len(reads.records) == 18, "all came")
            asked = Asked(reads)
            await eventually(lambda: len(asked.limits) >= 6, "all are asked again")
        assert max(asked.limits) * 3 * len(FetchChannel) <= ANSWERS_BYTES_MAX
