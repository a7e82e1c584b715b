"""A control topic that goes while its group runs, on brokers that make topics by themselves, as Kafka's default is."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from integration.harness import WAIT_SECONDS, eventually
from integration.harness_consumers import drain, make, new_group, send
from loadtrim.testing import Cluster, LocalKafka
from loadtrim_agent.kafka.control_topic import topic_configs
from loadtrim_agent.wire.topic_names import control_topic

pytestmark = pytest.mark.kafka

BROKER = {"auto.create.topics.enable": "true", "num.partitions": "1", "group.min.session.timeout.ms": "500"}


class Topic:
    """A topic, as an administrator handles it."""

    def __init__(self, kafka: Cluster, name: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        self.name = name

    def partitions(self) -> int:
        """Return how many it has; 0: it is not there."""
        with contextlib.suppress(KafkaException):  # asking for one topic by name would make it
            found = self._admin.list_topics(timeout=WAIT_SECONDS).topics.get(self.name)
            return 0 if found is None else len(found.partitions)
        return 0

    def configs(self) -> dict[str, str]:
        """Return its settings."""
        resource = ConfigResource(ResourceType.TOPIC, self.name)
        found = self._admin.describe_configs([resource])[resource].result(WAIT_SECONDS)
        return {name: entry.value for name, entry in found.items()}

    async def delete(self) -> None:
        """Delete it, and wait for that."""
        self._admin.delete_topics([self.name], operation_timeout=WAIT_SECONDS)[self.name].result(WAIT_SECONDS)
        await eventually(lambda: self.partitions() == 0, "it is gone")

    async def replace(self, partitions: int) -> None:
        """Delete it, and create it as a broker does, before a member creates it."""
        while True:
            await self.delete()
            with contextlib.suppress(KafkaException):
                self._admin.create_topics([NewTopic(self.name, partitions, 1)])[self.name].result(WAIT_SECONDS)
                return


@contextlib.asynccontextmanager
async def running_group() -> AsyncIterator[tuple[Topic, list[bool]]]:
    """A group of two that reads all the while; its control topic, and whether the last reports got through."""
    with LocalKafka(properties=BROKER, short_run=True) as kafka:
        topic, group = kafka.create_topic(partitions=4), new_group()
        one, two = make(kafka, topic, group=group), make(kafka, topic, group=group)
        async with one, two, drain(one, two) as counts:
            await eventually(lambda: len(one.assignment()) == len(two.assignment()) == 2, "both take part")
            log = one._client.link.need_agent().log
            assert log is not None
            published: list[bool] = []
            publish = log._telemetry.append

            async def watched(*given: object) -> object:
                written = await publish(*given)  # type: ignore[arg-type]
                published.append(True)
                return written

            log._telemetry.append = watched  # type: ignore[method-assign,assignment]
            await eventually(lambda: published, "reports arrive")
            yield Topic(kafka, control_topic(group)), published
            await send(kafka, topic, [f"{n}" for n in range(40)], partition=None)
            await eventually(lambda: len(counts) == 40, "all is read")


async def test_a_control_topic_that_is_deleted_is_made_again_by_the_members() -> None:
    """A broker made it, as members asked about it: with one partition, so that no report found a place ever again."""
    async with running_group() as (control, published):
        await control.delete()
        published.clear()
        await eventually(lambda: control.partitions() == 2, "it is there again")
        assert topic_configs().items() <= control.configs().items(), "by a member, not by a broker"
        await eventually(lambda: published, "reports arrive again")


async def test_a_control_topic_that_comes_back_with_one_partition_is_given_the_second() -> None:
    """So any other program's question makes it. Members that started later made the whole group a mixed one."""
    async with running_group() as (control, published):
        await control.replace(1)
        published.clear()
        await eventually(lambda: control.partitions() == 2, "it has its second partition")
        await eventually(lambda: published, "reports arrive again")
