"""What a member watches of the cluster's topics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import UnknownTopicOrPartitionError

from loadtrim_agent.kafka.subscription import Subscription, TopicWatch


class Client:
    """A client whose metadata shows what the cluster has of the topics asked for."""

    def __init__(self, **partitions: int) -> None:
        self.cluster = self
        self.there = partitions
        self.asked: tuple[str, ...] = ()
        self.listeners: list[Any] = []

    def topics(self, exclude_internal: bool = True) -> set[str]:
        return {topic for topic in self.there if topic in self.asked}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self.there[topic])) if topic in self.topics() else None

    def add_listener(self, listener: Any) -> None:
        self.listeners.append(listener)

    def remove_listener(self, listener: Any) -> None:
        self.listeners.remove(listener)

    def set_topics(self, topics: Iterable[str]) -> None:
        self.asked = tuple(topics)

    async def force_metadata_update(self) -> None:
        for listener in self.listeners:
            listener(self)

    async def _wait_on_metadata(self, topic: str) -> set[int] | None:
        return self.partitions_for_topic(topic)


class Observer:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[tuple[str, ...], dict[str, int]]] = []

    def topics_changed(self, topics: tuple[str, ...], partitions: dict[str, int]) -> None:
        self.told.append((topics, partitions))


@pytest.fixture
def client() -> Client:
    return Client(orders=4, refunds=2)


def watch(client: Any, observer: Observer, *topics: str) -> TopicWatch:
    return TopicWatch(client, Subscription(topics=topics), observer)


async def test_what_is_there_at_the_start_is_seen_and_not_told(client: Client) -> None:
    observer = Observer()
    watched = watch(client, observer, "orders")
    assert watched.seen == ((), {})
    await watched.start()
    assert watched.seen == (("orders",), {"orders": 4})
    assert observer.told == []


async def test_a_topic_that_grows_is_told_and_seen(client: Client) -> None:
    observer = Observer()
    watched = watch(client, observer, "orders")
    await watched.start()
    client.there["orders"] = 5
    await client.force_metadata_update()
    await client.force_metadata_update()
    assert observer.told == [(("orders",), {"orders": 5})], "once"
    assert watched.seen == (("orders",), {"orders": 5})


async def test_a_topic_that_is_subscribed_no_more_is_watched_on(client: Client) -> None:
    """As leader the member goes by its count: new partitions of other members' topic were nobody's while it led."""
    observer = Observer()
    watched = watch(client, observer, "orders", "refunds")
    await watched.start()
    await watched.subscribe(Subscription(topics=("orders",)))
    client.there["refunds"] = 6
    await client.force_metadata_update()
    topics, partitions = observer.told[-1]
    assert topics == ("orders",)
    assert partitions["refunds"] == 6


async def test_topics_of_other_members_are_watched_once_they_were_asked_for(client: Client) -> None:
    observer = Observer()
    watched = watch(client, observer, "orders")
    await watched.start()
    assert await watched.counts(("refunds", "unknown")) == {"refunds": 2, "unknown": 0}
    client.there["refunds"] = 3
    await client.force_metadata_update()
    assert observer.told[-1][1]["refunds"] == 3


class Slow(AIOKafkaClient):  # type: ignore[misc]
    """aiokafka's client with a cluster that has no topic, or from some time on; no broker answers before another."""

    def __init__(self, there_at: float, request_timeout_ms: int = 5_000, *, answers_at: float = 0.0) -> None:
        super().__init__(retry_backoff_ms=100, request_timeout_ms=request_timeout_ms)
        self.there_at = there_at
        self.answers_at = answers_at
        self.looked = 0

    async def force_metadata_update(self) -> bool:
        self.looked += 1
        if asyncio.get_running_loop().time() < self.answers_at:
            return False
        there = asyncio.get_running_loop().time() >= self.there_at
        partitions = [(0, 0, 1, [1], [1])] if there else []
        topics = [(0 if there else 3, topic, False, partitions) for topic in self._topics]
        brokers = [(1, "broker", 9092, None)]
        self.cluster.update_metadata(SimpleNamespace(API_VERSION=1, brokers=brokers, topics=topics, controller_id=1))
        return True

    def set_topics(self, topics: Iterable[str]) -> None:
        self._topics = set(topics)

    def add_topic(self, topic: str) -> None:
        self._topics.add(topic)


@pytest.mark.looptime
async def test_a_topic_that_is_not_there_is_told_once_by_us(caplog: pytest.LogCaptureFixture) -> None:
    """aiokafka said so ten times a second, for ever, and we nothing."""
    client = Slow(there_at=asyncio.get_running_loop().time() + 3.0)
    with caplog.at_level(logging.INFO):
        await watch(client, Observer(), "payments").start()
    assert client.looked > 20
    said = [f"{record.name}: {record.getMessage()}" for record in caplog.records]
    assert [line[:41] for line in said] == [
        "loadtrim: Topic payments is not there. It",
        "loadtrim: Topic payments is there now.",
    ]
    assert "kafka-topics.sh" in said[0]


@pytest.mark.looptime
async def test_a_topic_that_the_broker_makes_for_the_asking_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await watch(Slow(there_at=asyncio.get_running_loop().time() + 0.5), Observer(), "payments").start()
    assert caplog.messages == []


@pytest.mark.looptime
async def test_a_topic_that_nobody_makes_fails_the_start_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="Topic payments is not there.*Create it"):
        # aiokafka goes by the monotonic clock there, which virtual time does not move.
        await watch(Slow(there_at=1e9, request_timeout_ms=50), Observer(), "payments").start()
    logging.getLogger("aiokafka.cluster").error("Topic %s not found in cluster metadata", "payments")
    assert caplog.messages[-1] == "Topic payments not found in cluster metadata", "afterwards it may say so again"


@pytest.mark.looptime
async def test_a_topic_that_no_broker_has_told_of_is_not_told_to_be_missing(caplog: pytest.LogCaptureFixture) -> None:
    """Brokers that were away at the start had people look for a wrong name."""
    client = Slow(there_at=0.0, answers_at=asyncio.get_running_loop().time() + 8.0)
    with caplog.at_level(logging.INFO):
        await watch(client, Observer(), "payments").start()
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("No broker has answered yet")


@pytest.mark.looptime
async def test_a_topic_that_no_broker_tells_of_fails_the_start_by_that() -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="No broker has answered"):
        await watch(Slow(there_at=1e9, request_timeout_ms=50, answers_at=1e9), Observer(), "payments").start()
