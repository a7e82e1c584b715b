"""Baselines on a real Kafka: who leads reads them, and asks for replicas before the rise."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from contract.webhook_receiver import Receiver
from integration.harness import eventually, group_of_processes
from loadtrim.testing import Cluster
from loadtrim_agent.kafka import baselines as reading
from loadtrim_agent.kafka.baselines import BaselineReader
from loadtrim_agent.kafka.batches import UNPACKED_BYTES_MAX
from loadtrim_agent.wire.baseline_records import WEEK_SECONDS, Baselines
from unit.planning.baseline_feed import MONDAY, data, key, utc_slots, value

pytestmark = pytest.mark.kafka

MINUTE = 60


async def publish(
    cluster: Cluster, topic: str, *records: tuple[bytes | None, bytes | None], partition: int | None = None
) -> None:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap) as producer:
        for name, told in records:
            await producer.send_and_wait(topic, told, key=name, partition=partition)


def rising_at(moment: float, times: float) -> Callable[[int], float]:
    """Level of the second of the week: ``times`` as much in the hour from ``moment`` on."""
    begin = (moment - MONDAY) % WEEK_SECONDS
    return lambda second: times if (second - begin) % WEEK_SECONDS < 3600 else 1.0


@pytest.mark.slow
async def test_the_leader_asks_for_replicas_before_the_rise(quick_kafka: Cluster, tmp_path: Path) -> None:
    """A fifth of a member's work arrives; the history says twelve times as much from a minute's beginning on."""
    topic = await asyncio.to_thread(quick_kafka.create_topic, 1)
    rate, cost = 50.0, 0.004
    async with group_of_processes(quick_kafka, tmp_path, rate=rate, busy_seconds=cost) as group:
        with Receiver() as receiver:
            now = time.time()
            rise = (now + 60) // MINUTE * MINUTE + MINUTE
            about = {"topic": group.topic, "group": group.group}
            told = value(rising_at(rise, 12.0), bucket_seconds=MINUTE, rate=rate, at=now, to=now, **about)
            await publish(quick_kafka, topic, (key(**about), data(told)))
            env = {
                "LOADTRIM_BASELINE_TOPIC": topic,
                "LOADTRIM_SCALER": "webhook",
                "LOADTRIM_SCALER_URL": receiver.url,
                "LOADTRIM_MIN_REPLICAS": "2",
            }
            await group.start_all("a", "b", env=env)
            await group.until_stable("a", "b", members=2)

            def asked() -> Any:
                more = [request.json for request in receiver.requests if request.json["replicas"] > 2]
                return more and more[0]

            first: dict[str, Any] = await eventually(asked, "more replicas are asked for", 180.0)
            at = time.time()
            assert rise - 30.0 < at < rise, f"{rise - at:.1f} s before the rise"
            assert "by the baseline" in first["reason"]
            name, status = await group.leader()
            use = status["last_decision"]["baseline"]
            assert use["used"]
            assert use["scale"] == pytest.approx(1.0, abs=0.2)
            follower = next(member for each, member in group.members.items() if each != name)
            assert "aselines of 1 topics are read" in group.members[name].log
            assert "aseline" not in follower.log, "only who leads reads them"
            verdict = await group.finish()
    assert verdict.spotless, str(verdict)


@asynccontextmanager
async def reader_of(cluster: Cluster, topic: str, known: Baselines, broke: list[str]) -> AsyncIterator[None]:
    caught_up = asyncio.Event()
    reader = BaselineReader({"bootstrap_servers": cluster.bootstrap}, topic, known, SimpleNamespace(broke=broke.append))  # type: ignore[arg-type]
    task = asyncio.create_task(reader.run(caught_up))
    try:
        async with asyncio.timeout(20.0):
            await caught_up.wait()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def rates(known: Baselines) -> dict[str, float]:
    return {topic: curve.rates[0] for topic, curve in known.curves(MONDAY).items()}


async def test_the_topic_is_read_from_its_beginning_and_then_followed(
    quick_kafka: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reading, "LOOK_SECONDS", 0.05)
    topic = await asyncio.to_thread(quick_kafka.create_topic, 2)
    await publish(
        quick_kafka,
        topic,
        (key("a"), data(value(topic="a", rate=1.0))),
        (key("a"), data(value(topic="a", rate=2.0))),
        (key("a", 0), data(value(topic="a", partition=0))),
        (key("a", group="h"), data(value(topic="a", group="h", rate=9.0))),
        (key("gone"), data(value(topic="gone"))),
        (key("gone"), None),
        (key("broken"), b"{"),
        (None, b"no key"),
        partition=0,
    )
    await publish(quick_kafka, topic, (key("b"), data(value(topic="b", rate=3.0))), partition=1)
    packing = AIOKafkaProducer(
        bootstrap_servers=quick_kafka.bootstrap, compression_type="gzip", max_request_size=2 * UNPACKED_BYTES_MAX
    )
    async with packing as producer:
        await producer.send_and_wait(topic, bytes(UNPACKED_BYTES_MAX), key=key("bomb"), partition=1)
    known, broke = Baselines("g", utc_slots), list[str]()
    with caplog.at_level(logging.INFO, "loadtrim"):
        async with reader_of(quick_kafka, topic, known, broke):
            assert rates(known) == {"a": 2.0, "b": 3.0}
            assert broke == ["baseline_record"] * 2
            await publish(quick_kafka, topic, (key("b"), None), partition=1)
            await eventually(lambda: rates(known) == {"a": 2.0}, "the second record is withdrawn")
            await publish(quick_kafka, topic, (key("a"), data(value(topic="a", rate=5.0))), partition=0)
            await eventually(lambda: rates(known) == {"a": 5.0}, "the first one changes")
    assert [message for message in caplog.messages if "cannot be read" in message] != []
    assert sum("broken" in message for message in caplog.messages) == 1, "said once"


async def test_a_topic_that_is_not_there_is_no_news(
    quick_kafka: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reading, "LOOK_SECONDS", 0.05)
    topic = f"baselines-{uuid.uuid4().hex[:6]}"
    known, broke = Baselines("g", utc_slots), list[str]()
    with caplog.at_level(logging.DEBUG, "loadtrim"):
        async with reader_of(quick_kafka, topic, known, broke):
            await asyncio.to_thread(quick_kafka.create_topic, 1, name=topic)
            await publish(quick_kafka, topic, (key("a"), data(value(topic="a"))))
            await eventually(lambda: len(known) == 1, "the topic is there now, and read")
    levels = {record.levelno for record in caplog.records if "There is no baseline topic" in record.getMessage()}
    assert levels == {logging.DEBUG}
    assert broke == []


async def test_a_broker_that_does_not_answer_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    known, broke = Baselines("g", utc_slots), list[str]()
    nobody: Any = type("Nobody", (), {"bootstrap": "127.0.0.1:1"})
    with caplog.at_level(logging.INFO, "loadtrim"):
        async with reader_of(nobody, "anything", known, broke):
            assert broke == ["baselines"]
    assert any("cannot be read" in message for message in caplog.messages)
