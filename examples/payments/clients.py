"""The clients that the service can run on: loadtrim's, and the reference assignors as real consumers beside it.

* ``loadtrim``;
* ``aiokafka``, ``aiokafka-sticky``: aiokafka's eager consumer, round-robin or sticky;
* ``librdkafka-cooperative``, ``librdkafka-kip848``: confluent-kafka (extra ``experiments``), cooperative-sticky
  in the classic protocol, or the broker's own assignment (KIP-848).

All of them end their iteration on SIGTERM, between two records, and commit what is done.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Self, cast

__all__ = ["CLIENTS", "KIP_848", "consumer_of", "described"]

KIP_848 = "librdkafka-kip848"
CLIENTS = ("loadtrim", "aiokafka", "aiokafka-sticky", "librdkafka-cooperative", KIP_848)
POLL_SECONDS = 0.1
ADMIN_SECONDS = 10.0


def consumer_of(client: str, topics: tuple[str, ...], keywords: dict[str, Any]) -> Any:
    """A consumer to be entered (``async with``) and iterated over (``async for``) until SIGTERM.

    Args:
        client: one of :data:`CLIENTS`.
        topics: to subscribe to.
        keywords: as aiokafka takes them; librdkafka's clients understand ``bootstrap_servers``, ``group_id``,
            ``auto_offset_reset``, ``fetch_max_wait_ms`` and the session's and heartbeat's times.
    """
    if client == "loadtrim":
        from loadtrim import Consumer

        return Consumer(*topics, **keywords)
    return (_AioKafka if client.startswith("aiokafka") else _LibRdKafka)(client, topics, keywords)


class _AioKafka:
    """aiokafka's consumer, ending as loadtrim's does by itself."""

    def __init__(self, client: str, topics: tuple[str, ...], keywords: dict[str, Any]) -> None:
        from aiokafka import AIOKafkaConsumer
        from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        if client == "aiokafka-sticky":
            keywords = keywords | {"partition_assignment_strategy": [StickyPartitionAssignor]}
        self._consumer = AIOKafkaConsumer(*topics, **keywords)

    async def __aenter__(self) -> Self:
        await self._consumer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def __aiter__(self) -> AsyncIterator[Any]:
        stop = _sigterm()
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                following = asyncio.ensure_future(self._consumer.getone())
                await asyncio.wait({following, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    following.cancel()
                    await asyncio.wait({following})
                if not following.cancelled():
                    # Also when SIGTERM came in the same turn of the loop: the position is past it, so it must be done.
                    yield following.result()
        finally:
            stopping.cancel()


def _sigterm() -> asyncio.Event:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    return stop


@dataclass(frozen=True, slots=True)
class _Message:
    """What the service reads of a record, under aiokafka's names."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes


class _LibRdKafka:
    """confluent-kafka's consumer: what is done is stored, and committed by librdkafka's own timer and at rebalances."""

    def __init__(self, client: str, topics: tuple[str, ...], keywords: dict[str, Any]) -> None:
        from confluent_kafka import Consumer

        self._consumer = Consumer(_options(client, keywords))
        self._topics = list(topics)
        self._owned: set[tuple[str, int]] = set()

    async def __aenter__(self) -> Self:
        # Rebalances are served inside poll, so what was lost is known before what was done of it would be stored.
        self._consumer.subscribe(self._topics, on_assign=self._came, on_revoke=self._went, on_lost=self._went)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._consumer.close)

    def _came(self, _: object, partitions: list[Any]) -> None:
        self._owned.update((each.topic, each.partition) for each in partitions)

    def _went(self, _: object, partitions: list[Any]) -> None:
        self._owned.difference_update((each.topic, each.partition) for each in partitions)

    async def __aiter__(self) -> AsyncIterator[Any]:
        from confluent_kafka import KafkaException

        stop = _sigterm()
        while not stop.is_set():
            # What is there is taken without a thread's detour; a wait is not left to the loop's thread.
            found = self._consumer.poll(0) or await asyncio.to_thread(self._consumer.poll, POLL_SECONDS)
            if found is None:
                continue
            if (error := found.error()) is not None:
                if error.fatal():
                    raise KafkaException(error)
                continue  # librdkafka tries again by itself
            # Only errors have none of these.
            topic, partition, offset = cast("tuple[str, int, int]", (found.topic(), found.partition(), found.offset()))
            message = _Message(topic, partition, offset, found.timestamp()[1], found.key(), found.value() or b"")
            yield message
            if (message.topic, message.partition) in self._owned:
                self._consumer.store_offsets(message=found)


def _options(client: str, keywords: dict[str, Any]) -> dict[str, Any]:
    """aiokafka's names in librdkafka's words."""
    options: dict[str, Any] = {
        "bootstrap.servers": keywords["bootstrap_servers"],
        "group.id": keywords["group_id"],
        "auto.offset.reset": keywords.get("auto_offset_reset", "latest"),
        "enable.auto.offset.store": False,
        "fetch.wait.max.ms": keywords.get("fetch_max_wait_ms", 500),
    }
    if client == KIP_848:
        return options | {"group.protocol": "consumer"}
    return options | {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": keywords.get("session_timeout_ms", 10_000),
        "heartbeat.interval.ms": keywords.get("heartbeat_interval_ms", 3_000),
    }


def described(bootstrap: str, group: str) -> tuple[str, int]:
    """(state, members) of a group of the protocol of KIP-848, which aiokafka's admin client cannot describe."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})  # dropped before it has answered it never does
    try:
        answer = admin.describe_consumer_groups([group], request_timeout=ADMIN_SECONDS)[group]
        found = answer.result(timeout=2 * ADMIN_SECONDS)
    except KafkaException:
        return "", 0  # there is none yet
    return found.state.name.capitalize(), len(found.members)
