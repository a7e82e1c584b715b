"""Telemetry as members write it, and a topic that holds it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaProducer

from loadtrim.testing import Cluster
from loadtrim_agent.wire.codec import encode
from loadtrim_agent.wire.telemetry_records import DecisionRecord, PartitionReport, ReportRecord
from loadtrim_agent.wire.topic_names import control_topic

DAY = 86_400
MONDAY = 1_763_942_400
"""2025-11-24 00:00 UTC: past, as brokers refuse records from the future."""


def report(sequence: int, at: float, group: str = "g", member: str = "m", **fields: Any) -> ReportRecord:
    fields.setdefault("partitions", (PartitionReport(topic="t", partition=0, arrived=5, done=5, cost_mean=0.01),))
    return ReportRecord(group=group, member=member, at=at, sequence=sequence, generation=1, **fields)


def decision(sequence: int, at: float, group: str = "g") -> DecisionRecord:
    return DecisionRecord(
        group=group, member="m", at=at, sequence=sequence, generation=1, outcome="none", reason="All fits.",
        members={"m": 0.5}, rate=5.0,
    )  # fmt: skip


def make_control_topic(kafka: Cluster, group: str) -> None:
    """With the records' own times, which retention must not look at."""
    kafka.create_topic(2, control_topic(group), {"retention.ms": "-1"})


def produce(bootstrap: str, group: str, messages: Sequence[tuple[float, bytes | None]], partition: int = 1) -> None:
    """Write values with their times to a group's control topic."""

    async def send() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=20)
        await producer.start()
        try:
            sent = [
                await producer.send(control_topic(group), value, b"k", partition, timestamp_ms=int(at * 1000))
                for at, value in messages
            ]
            await asyncio.gather(*sent)
        finally:
            await producer.stop()

    asyncio.run(send())


def messages(*records: ReportRecord | DecisionRecord) -> list[tuple[float, bytes | None]]:
    return [(record.at, encode(record)) for record in records]


def as_json(value: str) -> Any:
    return json.loads(value)
