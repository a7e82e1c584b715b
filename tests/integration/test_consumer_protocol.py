"""Groups with a member of the consumer protocol (KIP-848): all is consumed, by somebody, without joining for ever."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from confluent_kafka import Consumer as BrokerAssignedConsumer

from integration.harness import eventually
from integration.harness_consumers import drain, new_group, send, started
from loadtrim import Consumer
from loadtrim.testing import Cluster, LocalKafka
from loadtrim.testing.local_kafka import kafka_version
from loadtrim_agent.kafka.group_requests import GroupRequests
from loadtrim_agent.protocol.commands import SendJoinCommand

pytestmark = pytest.mark.kafka

PARTITIONS = 4
POLL_SECONDS = 0.1
JOINS_MAX = 25
"""JoinGroups of one member in one test: two for its start, and some for each member that comes or goes. One that joins
again at each answer sends some hundred a second."""


HURRIED = {
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
"""Members of the consumer protocol hear of a new assignment within half a second."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[Cluster]:
    yield from broker({})


@pytest.fixture
def upgrading_kafka() -> Iterator[Cluster]:
    """A broker that makes a group of the consumer protocol none of the classic one again."""
    yield from broker({"group.consumer.migration.policy": "upgrade"})


@pytest.fixture
def own_kafka() -> Iterator[LocalKafka]:
    """A broker that nobody else uses."""
    yield from broker({})


def broker(properties: dict[str, str]) -> Iterator[LocalKafka]:
    if kafka_version().startswith("3."):
        pytest.skip("KIP-848 is a preview in Kafka 3.9, where librdkafka is given nothing")
    with LocalKafka(properties=HURRIED | properties, short_run=True) as started_broker:
        yield started_broker


class BrokerAssigned:
    """A member of the consumer protocol, in a thread of its own."""

    def __init__(self, kafka: Cluster, topic: str, group: str) -> None:
        self.counts: Counter[str] = Counter()
        self.assigned = 0
        self.errors: list[str] = []
        self._consumer = BrokerAssignedConsumer(
            {
                "bootstrap.servers": kafka.bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 100,
            }
        )
        self._consumer.subscribe([topic])
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def _poll(self) -> None:
        while not self._end.is_set():
            message = self._consumer.poll(POLL_SECONDS)
            self.assigned = len(self._consumer.assignment())
            if message is not None and message.error() is not None:
                self.errors.append(str(message.error()))
            elif message is not None:
                self.counts[message.value().decode()] += 1
        self._consumer.close()

    @classmethod
    @contextlib.asynccontextmanager
    async def started(cls, kafka: Cluster, topic: str, group: str) -> AsyncIterator[BrokerAssigned]:
        """One that polls until the end of the block, and then leaves."""
        member = cls(kafka, topic, group)
        member._thread.start()
        try:
            yield member
        finally:
            await member.leave()

    async def leave(self) -> None:
        self._end.set()
        await asyncio.to_thread(self._thread.join)


@contextlib.asynccontextmanager
async def plain(kafka: Cluster, topic: str, group: str) -> AsyncIterator[tuple[AIOKafkaConsumer, Counter[str]]]:
    """A member without the agent, which counts what it consumes."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=kafka.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=3_000,
        heartbeat_interval_ms=300,
        auto_commit_interval_ms=100,
    )
    async with consumer, drain(consumer) as counts:
        yield consumer, counts


async def enlarge(kafka: Cluster, topic: str, partitions: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    try:
        await admin.create_partitions({topic: NewPartitions(partitions)})
    finally:
        await admin.close()


def numbers(begin: int, end: int) -> list[str]:
    return [str(number) for number in range(begin, end)]


@pytest.fixture
def joins(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many JoinGroups each member has sent, by the address of what sends them."""
    counts: Counter[str] = Counter()
    join = GroupRequests.join

    def counted(self: GroupRequests, command: SendJoinCommand) -> None:
        counts[hex(id(self))] += 1
        join(self, command)

    monkeypatch.setattr(GroupRequests, "join", counted)
    return counts


def speaks_loadtrim(consumer: Consumer) -> bool:
    agent = consumer._client.link.agent
    return agent is not None and agent.snapshot().speaks_loadtrim


async def test_members_join_a_group_whose_partitions_the_broker_assigns(
    kafka: Cluster, joins: Counter[str], caplog: pytest.LogCaptureFixture
) -> None:
    """``start()`` did not return, and half of the partitions were read by nobody for as long as the process lived."""
    topic, group = kafka.create_topic(partitions=PARTITIONS), new_group()
    caplog.set_level(logging.WARNING, logger="loadtrim")
    async with BrokerAssigned.started(kafka, topic, group) as theirs:
        await eventually(lambda: theirs.assigned == PARTITIONS, "it has all of them")
        async with (
            started(kafka, topic, group=group) as first,
            started(kafka, topic, group=group) as second,
            drain(first, second) as ours,
        ):
            members = (first, second)
            await eventually(
                lambda: sorted([theirs.assigned, *(len(m.assignment()) for m in members)]) == [1, 1, 2],
                "each has a share",
            )
            await send(kafka, topic, numbers(0, 40), partition=None)
            await eventually(lambda: len(ours | theirs.counts) == 40, "everything is consumed")
            assert len(ours) in (20, 30), "of the partitions that are ours"
            await theirs.leave()
            await eventually(lambda: all(map(speaks_loadtrim, members)), "the group is ours when it is gone")
            await eventually(lambda: [len(m.assignment()) for m in members] == [2, 2], "with all partitions")
            await send(kafka, topic, numbers(40, 80), partition=None)
            await eventually(lambda: set(numbers(40, 80)) <= set(ours), "everything is consumed")
            assert max(joins.values()) <= JOINS_MAX, joins
    said = [r.getMessage() for r in caplog.records if "KIP-848" in r.getMessage()]
    assert len(said) == 2, "once by each member"
    assert group in said[0]


async def test_a_group_of_ours_keeps_such_a_member_out(kafka: Cluster, joins: Counter[str]) -> None:
    topic, group = kafka.create_topic(partitions=PARTITIONS), new_group()
    async with started(kafka, topic, group=group) as first, started(kafka, topic, group=group) as second:
        await eventually(lambda: [len(m.assignment()) for m in (first, second)] == [2, 2], "each has a share")
        before = joins.total()
        async with BrokerAssigned.started(kafka, topic, group) as theirs, drain(first, second) as ours:
            await eventually(lambda: theirs.errors, "it is told")
            await send(kafka, topic, numbers(0, 40), partition=None)
            await eventually(lambda: len(ours) == 40, "everything is consumed")
            assert (theirs.assigned, theirs.counts.total()) == (0, 0)
        assert joins.total() == before, "and nobody was disturbed"


async def test_such_a_member_joins_in_the_middle_of_a_migration(kafka: Cluster, joins: Counter[str]) -> None:
    """The broker converts a mixed group. Our members had nothing from then on, and a third of the records nobody."""
    topic, group = kafka.create_topic(partitions=PARTITIONS), new_group()
    async with (
        started(kafka, topic, group=group) as member,
        drain(member) as ours,
    ):
        async with plain(kafka, topic, group) as (other, others):
            await eventually(lambda: [len(m.assignment()) for m in (member, other)] == [2, 2], "each has a share")
            async with BrokerAssigned.started(kafka, topic, group) as theirs:
                await eventually(
                    lambda: sorted([theirs.assigned, len(member.assignment()), len(other.assignment())]) == [1, 1, 2],
                    "each has a share",
                )
                await send(kafka, topic, numbers(0, 60), partition=None)
                await eventually(lambda: len(ours | others | theirs.counts) == 60, "everything is consumed")
                assert ours
            await eventually(lambda: [len(m.assignment()) for m in (member, other)] == [2, 2], "each has a share")
        await eventually(lambda: speaks_loadtrim(member), "the group is ours when they are gone")
        await send(kafka, topic, numbers(60, 100), partition=None)
        await eventually(lambda: set(numbers(60, 100)) <= set(ours), "everything is consumed")
        assert max(joins.values()) <= JOINS_MAX, joins


async def test_a_broker_that_does_not_convert_groups_back_assigns_until_all_have_left(upgrading_kafka: Cluster) -> None:
    """``group.consumer.migration.policy`` of ``disabled`` or ``upgrade``; the default converts both ways."""
    kafka = upgrading_kafka
    topic, group = kafka.create_topic(partitions=PARTITIONS), new_group()
    async with BrokerAssigned.started(kafka, topic, group) as theirs:
        await eventually(lambda: theirs.assigned == PARTITIONS, "it has all of them")
        async with (
            started(kafka, topic, group=group) as first,
            started(kafka, topic, group=group) as second,
            drain(first, second) as ours,
        ):
            await eventually(lambda: first.assignment() and second.assignment(), "each has a share")
            await theirs.leave()
            await eventually(lambda: [len(m.assignment()) for m in (first, second)] == [2, 2], "with all partitions")
            await send(kafka, topic, numbers(0, 40), partition=None)
            await eventually(lambda: len(ours) == 40, "everything is consumed")
            assert not speaks_loadtrim(first)
            assert not speaks_loadtrim(second)
            await enlarge(kafka, topic, PARTITIONS + 2)
            await eventually(lambda: [len(m.assignment()) for m in (first, second)] == [3, 3], "new ones too")
    async with started(kafka, topic, group=group) as alone:
        await eventually(lambda: speaks_loadtrim(alone), "the group is ours when it was empty")
        await eventually(lambda: len(alone.assignment()) == PARTITIONS + 2, "with all partitions")


async def test_a_coordinator_that_fails_before_it_has_told_members_to_join_is_told(own_kafka: LocalKafka) -> None:
    """It has stored a stable group in which what the last such member had is nobody's. It stayed so."""
    kafka = own_kafka
    topic, group = kafka.create_topic(partitions=PARTITIONS), new_group()
    async with BrokerAssigned.started(kafka, topic, group) as theirs:
        await eventually(lambda: theirs.assigned == PARTITIONS, "it has all of them")
        async with started(kafka, topic, group=group, session_timeout_ms=30_000) as member:
            await eventually(lambda: (theirs.assigned, len(member.assignment())) == (2, 2), "each has a share")
            await theirs.leave()
            await asyncio.to_thread(kafka.brokers[0].kill)
            await asyncio.to_thread(kafka.brokers[0].start)
            await eventually(lambda: len(member.assignment()) == PARTITIONS, "with all partitions")
            await eventually(lambda: speaks_loadtrim(member), "the group is ours")
