"""The control topic itself: created where it is missing, now or later, with what an error about it means.

Brokers make topics by themselves where they may (``auto.create.topics.enable``), with one partition most often. Any
tool that asks about a control topic that was deleted brings it back so. Then its log works, telemetry has no place, and
nothing is planned. So the topic is looked at for as long as it is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

from aiokafka.errors import (
    InvalidPartitionsError,
    KafkaError,
    LeaderNotAvailableError,
    NotControllerError,
    for_code,
)

from loadtrim_agent.wire.topic_names import CONTROL_PREFIX

from .connections import CONNECTION_SETTINGS, UNREACHABLE, Backoff, Channel, Connections, connecting

__all__ = ["PROBE_SECONDS", "TOPIC_SECONDS", "ControlTopic", "ControlTopicUnusable", "topic_configs"]

log = logging.getLogger("loadtrim")

T = TypeVar("T")

RETENTION_MS = 7 * 24 * 3600 * 1000
RETENTION_BYTES = 1 << 30
SEGMENT_BYTES = 64 << 20
PARTITIONS = 2
"""The coordination log and telemetry."""
TOPIC_ALREADY_EXISTS = 36
TOPIC_SECONDS = 30.0
"""How long a topic that is created may take until it has leaders."""
KEEP_SECONDS = 5.0
KEEP_SECONDS_MAX = 60.0
"""A topic in use is looked at so often, and tried to be mended at least so often. Chosen."""
PROBE_SECONDS = 5.0
"""A record written to the topic is read back within this time. Chosen."""
TOO_FEW = "it has fewer than 2 partitions"
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
        """Create the topic where it is missing, and give it its second partition where a broker made it with one.

        A broker that does not answer now is asked again, or another one is. A topic under a name of the user's is
        created and never changed: it may be somebody else's.

        Raises:
            ControlTopicUnusable: it cannot be created, or has too few partitions.
        """
        partitions = await self.patiently(self._count_partitions)
        if partitions is None:
            await self.patiently(self._create)
            partitions = await self.patiently(self._created_partitions)
        if partitions < PARTITIONS and self._name.startswith(CONTROL_PREFIX):
            await self.patiently(self._enlarge)
            partitions = await self.patiently(self._enlarged_partitions)
        if partitions < PARTITIONS:
            raise ControlTopicUnusable(self.advice(TOO_FEW))

    async def keep(self) -> None:
        """Look at the topic for ever, and mend it as :meth:`ensure` does where it has gone or lacks a partition.

        The client's metadata tells that, which is updated whenever a partition that is needed has no leader. What keeps
        it from being mended is said once, until the topic is as it should be.
        """
        said: set[str] = set()
        backoff, wait = Backoff(KEEP_SECONDS, KEEP_SECONDS_MAX), KEEP_SECONDS
        while True:
            await asyncio.sleep(wait)
            wait = KEEP_SECONDS
            client = self._connections.client
            if len(client.cluster.partitions_for_topic(self._name) or ()) >= PARTITIONS:
                backoff.succeeded()
                said.clear()
                continue
            try:
                async with asyncio.timeout(TOPIC_SECONDS):
                    await self.ensure()
                    await client.force_metadata_update()
            except (ControlTopicUnusable, *UNREACHABLE) as error:
                advice = str(error) if isinstance(error, ControlTopicUnusable) else self.advice(error)
                log.log(logging.DEBUG if advice in said else logging.WARNING, "%s", advice)
                said.add(advice)
                wait = backoff.failed()

    async def _count_partitions(self) -> int | None:
        """None: the topic does not exist, or this principal may not see it."""
        code, partitions = await self._connections.partitions_of(self._name, Channel.APPEND, timeout=PROBE_SECONDS)
        return len(partitions) if code == 0 else None

    async def _created_partitions(self) -> int:
        partitions = await self._count_partitions()
        if partitions is None:
            raise LeaderNotAvailableError(self._name)
        return partitions

    async def _enlarged_partitions(self) -> int:
        partitions = await self._created_partitions()
        if partitions < PARTITIONS:
            raise LeaderNotAvailableError(self._name)
        return partitions

    async def _create(self) -> None:
        from aiokafka.admin import NewTopic

        new = NewTopic(self._name, PARTITIONS, 1, topic_configs=topic_configs())
        new.replication_factor = -1  # the broker's default (KIP-464); the constructor does not take it
        async with self._admin() as admin:
            answer = await admin.create_topics([new])
        code = answer.topic_errors[0][1]
        if code not in (0, TOPIC_ALREADY_EXISTS):
            raise ControlTopicUnusable(self.advice(for_code(code).__name__))
        if code == 0:
            log.info("The control topic %s was not there. It has been created.", self._name)

    async def _enlarge(self) -> None:
        from aiokafka.admin import NewPartitions

        try:
            async with self._admin() as admin:
                await admin.create_partitions({self._name: NewPartitions(PARTITIONS)})
        except InvalidPartitionsError:
            return  # another member was faster
        except KafkaError as error:
            if error.retriable:
                raise
            raise ControlTopicUnusable(self.advice(f"{TOO_FEW}; giving it the second failed: {error}")) from error
        log.warning(
            "The control topic %s had 1 partition, as brokers make topics by themselves (auto.create.topics.enable). "
            "It has been given the second, for telemetry. Its settings are the brokers': `loadtrim doctor` names what "
            "to change.",
            self._name,
        )

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
            f"The control topic {self._name} cannot be used ({why}). Without it there are no handoffs, no planning and "
            "no scaling, and a member that starts shares the group as a plain consumer would: the whole group becomes "
            "a mixed one. "
            f"Where it is missing, create it with `kafka-topics.sh --create --topic {self._name} --partitions 2 "
            f"{configs}`, or allow this principal CREATE on it. Where it has 1 partition, give it the second with "
            f"`kafka-topics.sh --alter --topic {self._name} --partitions 2`. Allow READ, WRITE and "
            f"DESCRIBE on topic {self._name}. This member tries again, about once a minute, and goes on with "
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
