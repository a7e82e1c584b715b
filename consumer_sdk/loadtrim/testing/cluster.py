"""The calls that every Kafka cluster of a test has, ours or one that was there before."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
import uuid
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import for_code

__all__ = ["Cluster", "ExternalKafka", "create_topic", "exercise"]

REPLICATION_MAX = 3
TOPIC_SECONDS = 30.0
POLL_SECONDS = 0.01

T = TypeVar("T")


async def create_topic(
    bootstrap: str,
    name: str | None = None,
    partitions: int = 1,
    *,
    replication_factor: int | None = None,
    config: Mapping[str, str] | None = None,
) -> str:
    """Create a topic and return its name once every partition has a leader.

    Args:
        bootstrap: "host:port,...", reached in plain text.
        name: by default a new one that no other test has, "test-" and 12 hexadecimal digits.
        partitions: at least 1.
        replication_factor: by default 3, or as many as there are brokers when those are fewer.
        config: the topic's configuration, such as ``{"retention.ms": "60000"}``.

    Raises:
        aiokafka.errors.KafkaError: what the broker refuses it with (``TopicAlreadyExistsError``, ...).
        TimeoutError: its partitions have no leaders after 30 s.
    """
    name = name or f"test-{uuid.uuid4().hex[:12]}"
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        if replication_factor is None:
            brokers = (await admin.describe_cluster())["brokers"]
            replication_factor = min(REPLICATION_MAX, len(brokers))
        topic = NewTopic(name, partitions, replication_factor, topic_configs=dict(config or {}))
        _raise_refusal(await admin.create_topics([topic]))
        await _wait_for_leaders(admin, name, partitions)
    finally:
        await admin.close()
    return name


class Cluster:
    """A Kafka cluster that tests use: an address, and topics of one's own."""

    @property
    def bootstrap(self) -> str:
        """The brokers as ``bootstrap_servers`` takes them, "host:port,..."."""
        raise NotImplementedError

    def create_topic(
        self,
        partitions: int = 1,
        name: str | None = None,
        config: Mapping[str, str] | None = None,
        *,
        replication_factor: int | None = None,
    ) -> str:
        """Create a topic and return its name, see :func:`create_topic`.

        May be called where an event loop runs, which it then blocks for some 50 ms: it works in a thread of its own.
        """
        work = create_topic(self.bootstrap, name, partitions, replication_factor=replication_factor, config=config)
        return _run_aside(work)


class ExternalKafka(Cluster):
    """A cluster that was there before the tests (``KAFKA_BOOTSTRAP``), and stays."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @property
    def bootstrap(self) -> str:
        """The cluster that ``KAFKA_BOOTSTRAP`` names."""
        return self._bootstrap


def exercise(bootstrap: str) -> None:
    """Send one record and read it back as a group: afterwards a broker has done everything once."""
    _run_aside(_exercise(bootstrap))


def _run_aside(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop and thread of its own and wait for it, whether or not a loop runs here."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


async def _exercise(bootstrap: str) -> None:
    topic = await create_topic(bootstrap)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest")
    async with producer, consumer, asyncio.timeout(TOPIC_SECONDS):
        await producer.send_and_wait(topic, b"")
        await consumer.getone()


def _raise_refusal(response: Any) -> None:
    for topic, code, *message in response.topic_errors:
        if code:
            raise for_code(code)(f"{topic}: {message[0] if message else ''}")


async def _wait_for_leaders(admin: AIOKafkaAdminClient, name: str, partitions: int) -> None:
    deadline = time.monotonic() + TOPIC_SECONDS
    while True:
        (topic,) = await admin.describe_topics([name])
        led = [partition for partition in topic["partitions"] if partition["leader"] >= 0]
        if topic["error_code"] == 0 and len(led) == partitions:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"{len(led)} of {partitions} partitions of {name} have a leader after {TOPIC_SECONDS:.0f} s: "
                "are enough brokers running for the replication factor?"
            )
        await asyncio.sleep(POLL_SECONDS)
