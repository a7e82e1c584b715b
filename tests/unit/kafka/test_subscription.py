"""What a member watches of the cluster's topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

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
