"""Which topics there are and how many partitions they have, kept up to date by aiokafka's metadata."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Iterable
from typing import Any

import msgspec
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from loadtrim_agent.wire.topic_names import is_internal

from .missing_topics import MISSING, quiet_about
from .ports import TopicObserver

__all__ = ["Subscription", "TopicWatch"]

log = logging.getLogger("loadtrim")

SAID_AFTER_SECONDS = 1.0
"""A topic that the broker makes for the asking is there by then. Chosen."""
SILENT_AFTER_SECONDS = 5.0
"""No broker has told of the topics by then: that is said. Chosen."""


class Subscription(msgspec.Struct, frozen=True):
    """Topics by name, or a pattern that matches names. Never both."""

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    exclude_internal: bool = True
    own: tuple[str, ...] = ()
    """Control and baseline topics under names of the user's."""

    def matches(self, existing: Iterable[str]) -> tuple[str, ...]:
        """The topics subscribed, of those that exist; sorted. A pattern never matches control and baseline topics."""
        if self.pattern is None:
            return tuple(sorted(self.topics))
        foreign = (topic for topic in existing if not is_internal(topic, self.own))
        return tuple(sorted(topic for topic in foreign if self.pattern.match(topic)))


class _Wait:
    """The wait for one topic, and what is said of it meanwhile.

    Args:
        topic: its name.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._lacked_at: float | None = None
        """Time of the loop at which a broker first told of the topics without it; None: none has."""
        self.said = False
        """True once it was told that the topic is not there."""

    def answered(self, cluster: ClusterMetadata) -> None:
        """A broker has told of the topics."""
        if cluster.partitions_for_topic(self._topic) is not None:
            return
        now = asyncio.get_running_loop().time()
        if self._lacked_at is None:
            self._lacked_at = now
        if now - self._lacked_at >= SAID_AFTER_SECONDS and not self.said:
            self.said = True
            log.warning(MISSING, self._topic, self._topic)

    def say_silence(self) -> None:
        """Say it where no broker has told of the topics."""
        if self._lacked_at is None:
            log.warning(
                "No broker has answered yet whether topic %s is there, and nothing of it is consumed until one has. "
                "They are asked again.",
                self._topic,
            )

    @property
    def failure(self) -> str:
        """Return why the wait was given up, and what to do."""
        if self._lacked_at is None:
            return (
                f"No broker has answered whether topic {self._topic} is there. Are they up, and can they be reached "
                "from here? Start again."
            )
        return (
            f"Topic {self._topic} is not there, and nobody has made it meanwhile. Is the name right? Create it, and "
            "start again."
        )


class TopicWatch:
    """Watches the topics of this member, and as leader those of all members.

    Args:
        client: its metadata is refreshed every ``metadata_max_age_ms`` and whenever a connection breaks.
        observer: told of each change.
    """

    def __init__(
        self,
        client: AIOKafkaClient,
        subscription: Subscription,
        observer: TopicObserver,
    ) -> None:
        self._client = client
        self._observer = observer
        self._extra: set[str] = set()
        self._last: tuple[tuple[str, ...], dict[str, int]] | None = None
        self.subscription = subscription
        """From the next question to a broker on."""

    async def start(self) -> None:
        """Wait for the subscribed topics as aiokafka does; :attr:`seen` is what there is.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist (and is not created by asking).
        """
        topics = self.subscription.topics
        with quiet_about(topics):
            await self._ask()
            for topic in topics:
                await self._await_topic(topic)
        self._last = self._seen()
        self._client.cluster.add_listener(self._updated)

    async def subscribe(self, subscription: Subscription) -> None:
        """Watch something else from now on."""
        self._extra |= set(self.seen[0])  # as leader the member goes on to go by what it knows of them
        self.subscription = subscription
        with quiet_about(subscription.topics):
            await self._ask()
            self._updated(self._client.cluster)
            for topic in subscription.topics:
                if self._count(topic) == 0 and subscription is self.subscription:
                    # Asking may make it; and only asking again says when it is there.
                    with contextlib.suppress(KafkaError):
                        await self._await_topic(topic)
                    self._updated(self._client.cluster)

    async def _await_topic(self, topic: str) -> None:
        """Wait until the topic is there; where that takes longer than a moment, say why once."""
        wait, cluster = _Wait(topic), self._client.cluster
        silence = asyncio.get_running_loop().call_later(SILENT_AFTER_SECONDS, wait.say_silence)
        cluster.add_listener(wait.answered)
        try:
            await self._client._wait_on_metadata(topic)
        except UnknownTopicOrPartitionError:
            raise UnknownTopicOrPartitionError(wait.failure) from None
        finally:
            silence.cancel()
            cluster.remove_listener(wait.answered)
        if wait.said:
            log.info("Topic %s is there now.", topic)

    @property
    def seen(self) -> tuple[tuple[str, ...], dict[str, int]]:
        """The topics subscribed and partitions per watched topic, as they were told last; none before the start."""
        return self._last if self._last is not None else ((), {})

    @property
    def cluster(self) -> ClusterMetadata:
        """Return what the client knows of the cluster. Any thread may read it: an update replaces what is there."""
        return self._client.cluster

    async def refresh(self) -> bool:
        """Ask a broker now; return whether one answered."""
        return bool(await self._client.force_metadata_update())

    async def counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Partitions per topic, 0 where there is none; these topics are watched from now on."""
        topics = sorted(topics)
        self._extra |= set(topics)
        await self._ask()
        return {topic: self._count(topic) for topic in topics}

    async def _ask(self) -> None:
        if self.subscription.pattern is not None:
            await self._client.set_topics([])  # all topics
        else:
            self._client.set_topics([*self.subscription.topics, *sorted(self._extra)])
            await self._client.force_metadata_update()

    def _updated(self, cluster: Any) -> None:
        seen = self._seen()
        if seen != self._last:
            self._last = seen
            self._observer.topics_changed(*seen)

    def _seen(self) -> tuple[tuple[str, ...], dict[str, int]]:
        topics = self.subscription.matches(self._client.cluster.topics(self.subscription.exclude_internal))
        return topics, {topic: self._count(topic) for topic in sorted({*topics, *self._extra})}

    def _count(self, topic: str) -> int:
        return len(self._client.cluster.partitions_for_topic(topic) or ())
