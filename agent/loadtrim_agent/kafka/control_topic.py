"""The control topic itself: created where it is missing, with what an error about it means."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

from aiokafka.errors import KafkaError, LeaderNotAvailableError, NotControllerError, for_code

from .connections import CONNECTION_SETTINGS, Backoff, Channel, Connections, connecting

__all__ = ["PROBE_SECONDS", "ControlTopic", "ControlTopicUnusable", "topic_configs"]

T = TypeVar("T")

RETENTION_MS = 7 * 24 * 3600 * 1000
RETENTION_BYTES = 1 << 30
SEGMENT_BYTES = 64 << 20
TOPIC_ALREADY_EXISTS = 36
PROBE_SECONDS = 5.0
"""A record written to the topic is read back within this time. Chosen."""
LOOK_SECONDS_MAX = 0.2
"""Between two looks whether a new topic has leaders: the user's start() waits for it, once in a group's life."""


class ControlTopicUnusable(Exception):
    """The control topic cannot be created, read or written. The message says what to do.

    Caught by the agent: the member offers the standard protocols only (mixed group), and says so.
    """


class ControlTopic:
    """One group's control topic, before it is used.

    Args:
        connections: started before the first request.
        settings: the user's connection settings.
        name: of the topic.
    """

    def __init__(self, connections: Connections, settings: Mapping[str, Any], name: str) -> None:
        self._connections = connections
        self._settings = {name: settings[name] for name in CONNECTION_SETTINGS if name in settings}
        self._name = name

    async def patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer.

        A topic that was just created has no leader for a moment, and neither has one whose broker goes or comes.
        """
        backoff = Backoff(self._connections.retry_backoff, LOOK_SECONDS_MAX)
        while True:
            try:
                return await ask()
            except KafkaError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(backoff.failed())

    async def ensure(self) -> None:
        """Create the topic where it is missing. A broker that does not answer now is asked again, or another one is.

        Raises:
            ControlTopicUnusable: it cannot be created, or has too few partitions.
        """
        partitions = await self.patiently(self._count_partitions)
        if partitions is None:
            await self.patiently(self._create)
            partitions = await self.patiently(self._created_partitions)
        if partitions < 2:
            raise ControlTopicUnusable(self.advice("it has fewer than 2 partitions"))

    async def _count_partitions(self) -> int | None:
        """None: the topic does not exist, or this principal may not see it."""
        code, partitions = await self._connections.partitions_of(self._name, Channel.APPEND, timeout=PROBE_SECONDS)
        return len(partitions) if code == 0 else None

    async def _created_partitions(self) -> int:
        partitions = await self._count_partitions()
        if partitions is None:
            raise LeaderNotAvailableError(self._name)
        return partitions

    async def _create(self) -> None:
        from aiokafka.admin import NewTopic

        new = NewTopic(self._name, 2, 1, topic_configs=topic_configs())
        new.replication_factor = -1  # the broker's default (KIP-464); the constructor does not take it
        async with self._admin() as admin:
            answer = await admin.create_topics([new])
        code = answer.topic_errors[0][1]
        if code not in (0, TOPIC_ALREADY_EXISTS):
            raise ControlTopicUnusable(self.advice(for_code(code).__name__))

    @contextlib.asynccontextmanager
    async def _admin(self) -> AsyncIterator[Any]:
        from aiokafka.admin import AIOKafkaAdminClient  # once in a group's life, and slow to import

        admin = AIOKafkaAdminClient(**self._settings)
        with connecting():
            await admin.start()
            try:
                # aiokafka's own request breaks where the controller is not known: a broker that has just started.
                if admin._client.cluster.controller is None:
                    await admin._client.force_metadata_update()
                if admin._client.cluster.controller is None:
                    raise NotControllerError("the brokers do not say yet which of them creates topics")
                yield admin
            finally:
                await admin.close()

    def advice(self, error: object) -> str:
        """Return what an error means for the group, and what to do about it."""
        configs = " ".join(f"--config {name}={value}" for name, value in topic_configs().items())
        why = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        return (
            f"The control topic {self._name} cannot be used ({why}). Without it this member shares the group as a "
            "plain consumer would: no handoffs, no planning, no scaling, and the whole group becomes a mixed one. "
            f"Where it is missing, create it with `kafka-topics.sh --create --topic {self._name} --partitions 2 "
            f"{configs}`, or allow this principal CREATE on it. Where it has 1 partition, give it the second with "
            f"`kafka-topics.sh --alter --topic {self._name} --partitions 2`. Allow READ, WRITE and "
            f"DESCRIBE on topic {self._name}. This member tries again, at least once a minute, and comes back to "
            "loadtrim by itself."
        )


def topic_configs() -> dict[str, str]:
    """What a control topic is created with."""
    return {
        "cleanup.policy": "delete",
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": str(RETENTION_MS),
        "retention.bytes": str(RETENTION_BYTES),
        "segment.bytes": str(SEGMENT_BYTES),
    }
