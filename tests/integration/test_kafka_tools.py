"""What Kafka's own tools show of a group: true of the assignment's moment, of offsets and of the state; not of moves.

``kafka-consumer-groups.sh`` and every admin client ask the same requests: DescribeGroups and OffsetFetch.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

from integration.harness import committed_offsets, eventually
from integration.harness_consumers import consumers, drain, new_group, send, started
from integration.test_guarantees import agent_of, move, shared, whole
from loadtrim import Consumer
from loadtrim.testing import Cluster

pytestmark = pytest.mark.kafka


def described(kafka: Cluster, group: str) -> ConsumerGroupDescription:
    """As ``kafka-consumer-groups.sh --describe`` is told it."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    (answer,) = admin.describe_consumer_groups([group]).values()
    return answer.result(10.0)


def shown(description: ConsumerGroupDescription) -> dict[int, str]:
    """Partition -> client id of the member that the broker shows as its owner."""
    return {
        at.partition: member.client_id for member in description.members for at in member.assignment.topic_partitions
    }


def true_owners(**owners: Consumer) -> dict[int, str]:
    return {at.partition: name for name, consumer in owners.items() for at in consumer.assignment()}


async def settled(kafka: Cluster, group: str) -> ConsumerGroupDescription:
    """Wait until the broker calls the group stable."""

    async def stable() -> Any:
        found = await asyncio.to_thread(described, kafka, group)
        return found if found.state.name == "STABLE" else None

    found: ConsumerGroupDescription = await eventually(stable, "the broker calls the group stable")
    return found


async def test_owners_are_shown_as_of_the_generations_beginning(quick_kafka: Cluster) -> None:
    """A move within a generation is between members: no request tells the broker of it."""
    topic, group = quick_kafka.create_topic(partitions=2), new_group()
    async with (
        started(quick_kafka, topic, group=group, client_id="one") as one,
        started(quick_kafka, topic, group=group, client_id="two") as two,
    ):
        at, _ = await shared(topic, one, two)
        before = await settled(quick_kafka, group)
        assert (before.partition_assignor, before.type.name, len(before.members)) == ("loadtrim", "CLASSIC", 2)
        await move(at, one, two)
        after = await settled(quick_kafka, group)
        assert true_owners(one=one, two=two) == {0: "two", 1: "two"}
        assert shown(after) == shown(before), "what was moved is not shown"
        assert {member.member_id for member in after.members} == {
            agent_of(consumer).snapshot().member for consumer in (one, two)
        }


async def test_offsets_and_lag_are_true_after_a_move(quick_kafka: Cluster) -> None:
    topic, group = quick_kafka.create_topic(partitions=2), new_group()
    async with (
        started(quick_kafka, topic, group=group, client_id="one") as one,
        started(quick_kafka, topic, group=group, client_id="two") as two,
        drain(one, two) as counts,
    ):
        at, _ = await shared(topic, one, two)
        await move(at, one, two)
        await send(quick_kafka, topic, [str(number) for number in range(5)], partition=at.partition)
        await eventually(lambda: len(counts) == 5, "its new owner consumes")

        async def committed() -> bool:
            return (await committed_offsets(quick_kafka.bootstrap, group))[topic, at.partition] == 5

        await eventually(committed, "and commits, though the broker shows another owner")


async def test_a_group_with_members_is_neither_reset_nor_deleted(quick_kafka: Cluster) -> None:
    """As for any group: stop its members first. ``kafka-consumer-groups.sh`` refuses by the state that it is told."""
    topic, group = quick_kafka.create_topic(partitions=2), new_group()
    admin = AdminClient({"bootstrap.servers": quick_kafka.bootstrap})
    async with started(quick_kafka, topic, group=group) as one:
        await consumers(one, parts=[whole(topic)])
        (deletion,) = admin.delete_consumer_groups([group]).values()
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP|not empty"):
            deletion.result(10.0)
    assert (await asyncio.to_thread(described, quick_kafka, group)).state.name == "EMPTY"
    (deletion,) = admin.delete_consumer_groups([group]).values()
    deletion.result(10.0)


async def test_in_a_mixed_group_what_is_shown_is_true(quick_kafka: Cluster) -> None:
    topic, group = quick_kafka.create_topic(partitions=2), new_group()
    async with (
        started(quick_kafka, topic, group=group, client_id="one") as one,
        AIOKafkaConsumer(
            topic,
            bootstrap_servers=quick_kafka.bootstrap,
            group_id=group,
            client_id="plain",
            session_timeout_ms=3_000,
            heartbeat_interval_ms=300,
        ) as plain,
    ):
        await eventually(lambda: [len(c.assignment()) for c in (one, plain)] == [1, 1], "each has one")
        found = await settled(quick_kafka, group)
        assert found.partition_assignor in ("range", "roundrobin")
        assert shown(found) == true_owners(one=one, plain=plain)


ESTABLISHED = "01"
MEMBER_CONNECTIONS_MAX = 8
"""Of a member on a cluster of one broker. docs/operations.md has 5; on a busy machine more requests overlap."""


def connections(kafka: Cluster) -> int:
    """How many connections lead to the broker, of whatever process of this machine."""
    port = int(kafka.bootstrap.rsplit(":", 1)[1])
    found = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, _, remote, state, *_ = line.split()
            found += state == ESTABLISHED and int(remote.rsplit(":", 1)[1], 16) == port
    return found


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="counts what Linux tells of connections")
async def test_connections_of_a_member_are_as_many_as_the_page_says(quick_kafka: Cluster) -> None:
    topic, group = quick_kafka.create_topic(partitions=2), new_group()
    await send(quick_kafka, topic, ["0"])
    before = connections(quick_kafka)
    async with (
        started(quick_kafka, topic, group=group) as one,
        started(quick_kafka, topic, group=group) as two,
        drain(one, two) as counts,
    ):
        await shared(topic, one, two)
        await send(quick_kafka, topic, [str(number) for number in range(1, 9)], partition=None)
        await eventually(lambda: len(counts) == 9, "both consume")
        leads = [agent_of(consumer).snapshot().is_leader for consumer in (one, two)]
        assert sorted(leads) == [False, True]
        both = connections(quick_kafka) - before
        print("CONNECTIONS of two members:", both)
        assert 2 <= both <= 2 * MEMBER_CONNECTIONS_MAX
    await eventually(lambda: connections(quick_kafka) <= before, "members that have ended leave no connection open")
