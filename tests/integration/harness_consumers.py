"""Consumers in this process against a real Kafka: what the SDK's tests share."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from prometheus_client import CollectorRegistry

from integration.harness import WAIT_SECONDS, eventually
from loadtrim import Consumer, IncrementalRebalanceListener, Settings
from loadtrim.testing import Cluster
from loadtrim_agent.common.clock import wall_time
from loadtrim_agent.wire.ownership_records import MovePlan, PlanRecord

__all__ = [
    "PLAN_SEQUENCE",
    "Recorder",
    "consumers",
    "drain",
    "generation",
    "new_group",
    "plan",
    "send",
    "started",
    "take",
]

SESSION_MS = 3_000
PLAN_SEQUENCE = 1_000_000
"""Far above the leader's own, so that these plans are heeded and not its."""


def new_group() -> str:
    return f"sdk-{uuid.uuid4().hex[:8]}"


async def send(
    kafka: Cluster, topic: str, values: Iterable[str], *, partition: int | None = 0, timestamp_ms: int | None = None
) -> None:
    """Write values to one partition, in order; ``partition`` None: to partition 0, 1, 2, ... in turn."""
    values = list(values)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap) as producer:
        count = len(await producer.partitions_for(topic))
        for number, value in enumerate(values):
            at = number % count if partition is None else partition
            await producer.send(topic, value.encode(), partition=at, timestamp_ms=timestamp_ms)


def make(
    kafka: Cluster,
    *topics: str,
    group: str,
    settings: Settings | None = None,
    handle_signals: bool = False,
    registry: CollectorRegistry | None = None,
    **options: Any,
) -> Consumer:
    """A consumer that is not started: earliest, short sessions, its own registry, no HTTP."""
    return Consumer(
        *topics,
        group_id=group,
        settings=settings or Settings(http="off", drain_seconds=5.0),
        registry=registry or CollectorRegistry(),
        handle_signals=handle_signals,
        **{
            "bootstrap_servers": kafka.bootstrap,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": 500,
            "metadata_max_age_ms": 500,
            **options,
        },
    )


def generation(consumer: Consumer) -> int:
    """The generation that its agent has entered last."""
    assert consumer._client.link.agent is not None
    return consumer._client.link.agent.snapshot().generation


@contextlib.asynccontextmanager
async def started(kafka: Cluster, *topics: str, group: str, **options: Any) -> AsyncIterator[Consumer]:
    """The same, started; stopped at the end if it was not."""
    consumer = make(kafka, *topics, group=group, **options)
    await asyncio.wait_for(consumer.start(), WAIT_SECONDS)
    try:
        yield consumer
    finally:
        await asyncio.wait_for(consumer.stop(), WAIT_SECONDS)


async def take(consumer: Consumer, count: int, *partitions: TopicPartition) -> list[Any]:
    """The next ``count`` records."""
    async with asyncio.timeout(WAIT_SECONDS):
        return [await consumer.getone(*partitions) for _ in range(count)]


class Recorder(IncrementalRebalanceListener):
    """Writes down every call, and does what it is told to."""

    def __init__(
        self,
        *,
        assigned: Callable[[set[TopicPartition]], Awaitable[None] | None] | None = None,
        revoked: Callable[[set[TopicPartition]], Awaitable[None] | None] | None = None,
    ) -> None:
        self.calls: list[tuple[str, frozenset[TopicPartition]]] = []
        self._assigned = assigned
        self._revoked = revoked

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.calls.append(("assigned", frozenset(assigned)))
        if self._assigned is not None and (doing := self._assigned(assigned)) is not None:
            await doing

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.calls.append(("revoked", frozenset(revoked)))
        if self._revoked is not None and (doing := self._revoked(revoked)) is not None:
            await doing

    def held(self) -> set[TopicPartition]:
        """What the calls add up to.

        Raises:
            AssertionError: something came that was there, or went that was not.
        """
        held: set[TopicPartition] = set()
        for name, partitions in self.calls:
            if name == "assigned":
                assert not held & partitions, f"{held & partitions} came twice: {self.calls}"
                held |= partitions
            else:
                assert partitions <= held, f"{partitions - held} went and was not there: {self.calls}"
                held -= partitions
        return held


@contextlib.asynccontextmanager
async def drain(*consumers: Consumer, handed: list[tuple[float, int]] | None = None) -> AsyncIterator[Counter[str]]:
    """Consume with all of these in the background; yields how often each value was handed out. ``handed`` takes when
    and of which partition."""
    counts: Counter[str] = Counter()

    async def consume(consumer: Consumer) -> None:
        async for message in consumer:
            counts[message.value.decode()] += 1
            if handed is not None:
                handed.append((time.monotonic(), message.partition))

    tasks = [asyncio.create_task(consume(consumer)) for consumer in consumers]
    try:
        yield counts
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


async def consumers(*held: Consumer, parts: Sequence[set[TopicPartition]]) -> None:
    """Wait until these consumers hold exactly these partitions together, each one once."""
    wanted = Counter(p for part in parts for p in part)
    await eventually(
        lambda: Counter(p for consumer in held for p in consumer.assignment()) == wanted,
        f"{[c.assignment() for c in held]} is {dict(wanted)}",
    )


async def plan(writer: Consumer, at: TopicPartition, source: Consumer, target: Consumer, number: int) -> None:
    """Advise a move as the leader would; ``number`` is to grow from plan to plan."""
    assert writer._client.link.agent is not None
    assert source._client.link.agent is not None
    assert target._client.link.agent is not None
    membership, log = writer._client.link.agent.snapshot(), writer._client.link.agent.log
    assert log is not None
    record = PlanRecord(
        group=writer._client.link.agent.options.config.group,
        member=membership.leader,
        at=wall_time(),
        generation=membership.generation,
        sequence=PLAN_SEQUENCE + number,
        moves=(
            MovePlan(
                topic=at.topic,
                partition=at.partition,
                source=source._client.link.agent.snapshot().member,
                target=target._client.link.agent.snapshot().member,
            ),
        ),
    )
    await writer._client.link.run(log.write(record))
