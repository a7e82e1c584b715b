"""Exactly-once: offsets in a producer's transaction, fenced by the group's generation and by ownership (KIP-447)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import CommitFailedError, ConsumerStoppedError, IllegalOperation, IllegalStateError

from integration.harness import WAIT_SECONDS, committed_offsets, eventually
from integration.harness_consumers import Recorder, generation, make, new_group, send, started, take
from loadtrim import Consumer
from loadtrim.testing import Cluster
from loadtrim.transactions import FencedGroup, send_offsets
from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.transactions import Fence
from loadtrim_agent.protocol.events import HeartbeatAnsweredEvent, MoveWantedEvent
from loadtrim_agent.protocol.group_config import Code

pytestmark = pytest.mark.kafka


def values(messages: list[Any]) -> list[str]:
    return [message.value.decode() for message in messages]


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


@asynccontextmanager
async def transactional(kafka: Cluster, name: str) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=name)
    await asyncio.wait_for(producer.start(), WAIT_SECONDS)
    try:
        yield producer
    finally:
        if producer._txn_manager.is_in_transaction():
            await producer.abort_transaction()
        await producer.stop()


def move(source: Consumer, target: Consumer, at: TopicPartition) -> None:
    """As the leader's plan would ask."""
    assert source._client.link.agent is not None
    assert target._client.link.agent is not None
    owner = target._client.link.agent.snapshot().member
    event = MoveWantedEvent(now=boot_time(), partition=Partition(*at), target=owner)
    source._client.link.post(source._client.link.agent.feed, event)


async def consumed_until_moved(source: Consumer, target: Consumer) -> bool:
    await source.getmany(timeout_ms=0)
    return bool(target.assignment())


async def both_in_one_generation(one: Consumer, two: Consumer) -> None:
    await eventually(
        lambda: generation(one) == generation(two) and one._client.link.agent.snapshot().stable,  # type: ignore[union-attr]
        "both are in one generation",
    )


async def test_offsets_are_committed_with_the_transaction_or_not_at_all(quick_kafka: Cluster) -> None:
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, numbers(6))
    at = TopicPartition(topic, 0)
    async with (
        transactional(quick_kafka, group) as producer,
        started(quick_kafka, topic, group=group, enable_auto_commit=False) as consumer,
    ):
        with pytest.raises(IllegalOperation):
            await consumer.send_offsets_to_transaction(producer, {at: 1})
        await take(consumer, 3)
        async with producer.transaction():
            await consumer.send_offsets_to_transaction(producer, {at: 3})
        await eventually(lambda: has_committed(consumer, at, 3), "the transaction's offset is committed")
        await producer.begin_transaction()
        await consumer.send_offsets_to_transaction(producer, {at: (5, "with a note")})
        with pytest.raises(IllegalStateError, match="not assigned"):
            await consumer.send_offsets_to_transaction(producer, {TopicPartition(topic, 7): 1})
        with pytest.raises(ValueError):
            await consumer.send_offsets_to_transaction(producer, {})
        await producer.abort_transaction()
        assert await consumer.committed(at) == 3
        # The producer's own call goes on as it was.
        async with producer.transaction():
            await producer.send_offsets_to_transaction({at: 4}, group)
        await eventually(lambda: has_committed(consumer, at, 4), "so is this")
    assert await committed_offsets(quick_kafka.bootstrap, group) == {(topic, 0): 4}


async def test_auto_commit_would_undo_it(quick_kafka: Cluster) -> None:
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    async with (
        transactional(quick_kafka, group) as producer,
        started(quick_kafka, topic, group=group) as consumer,
        producer.transaction(),
    ):
        with pytest.raises(IllegalStateError, match="enable_auto_commit=False"):
            await consumer.send_offsets_to_transaction(producer, {TopicPartition(topic, 0): 0})


async def test_a_consumer_that_has_ended_commits_nothing(quick_kafka: Cluster) -> None:
    """The producer of its transaction is not lost for that: abort, and go on."""
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, numbers(3))
    at = TopicPartition(topic, 0)
    async with transactional(quick_kafka, group) as producer:
        async with started(quick_kafka, topic, group=group, enable_auto_commit=False) as consumer:
            await take(consumer, 3)
            fence = consumer._client.link.need_agent().transactions
            acquisitions = await consumer._client.link.run(fence.begin([Partition(*at)]))
            consumer._client.link.post(fence.end, acquisitions)
        late = FencedGroup(group, lambda refused: consumer._client.link.run(fence.fence(acquisitions, refused)))
        await producer.begin_transaction()
        with pytest.raises(ConsumerStoppedError):
            await send_offsets(producer, {at: 3}, late, lambda: None)
        await producer.abort_transaction()
        async with producer.transaction():
            pass
    assert await committed_offsets(quick_kafka.bootstrap, group) == {(topic, 0): 0}


async def has_committed(consumer: Consumer, at: TopicPartition, offset: int) -> bool:
    return await consumer.committed(at) == offset


async def test_an_acquisition_waits_for_the_transaction_that_is_open(
    quick_kafka: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A member that starts where another's transaction is open begins behind it; what else it owns runs meanwhile."""
    topic, group = quick_kafka.create_topic(partitions=2), new_group()
    await send(quick_kafka, topic, numbers(6), partition=0)
    await send(quick_kafka, topic, ["other"], partition=1)
    at, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with transactional(quick_kafka, group) as producer:
        async with started(quick_kafka, topic, group=group, enable_auto_commit=False) as consumer:
            await producer.begin_transaction()
            await consumer.send_offsets_to_transaction(producer, {at: 4})
            # As if it had died: the group is left, the transaction stays.
            consumer._client.end_iteration(True)
        with caplog.at_level(logging.WARNING, "loadtrim"):
            async with started(quick_kafka, topic, group=group, enable_auto_commit=False) as consumer:
                assert values(await take(consumer, 1)) == ["other"]
                assert consumer.assignment() == {other}
                assert "part of a transaction that is still open" in caplog.text
                await producer.commit_transaction()
                assert values(await take(consumer, 2)) == ["4", "5"]


async def test_a_move_waits_for_the_transaction_and_starts_behind_it(quick_kafka: Cluster) -> None:
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, numbers(6))
    at = TopicPartition(topic, 0)
    listener = Recorder()
    async with (
        transactional(quick_kafka, group) as producer,
        started(quick_kafka, topic, group=group, enable_auto_commit=False) as one,
        started(quick_kafka, topic, group=group, enable_auto_commit=False) as two,
    ):
        await both_in_one_generation(one, two)
        one.subscribe([topic], listener=listener)
        await eventually(lambda: listener.held() == {at}, "the listener knows")
        await take(one, 3)
        await producer.begin_transaction()
        await one.send_offsets_to_transaction(producer, {at: 3})
        assert await one.getmany(at, timeout_ms=0, max_records=1) != {}
        move(one, two, at)
        one._client.link.need_agent().buffer.abandon()  # the fourth, in hand, will not be done here
        await eventually(lambda: listener.held() == set(), "it was put down")
        assert two.assignment() == set()
        await producer.commit_transaction()
        assert values(await take(two, 3)) == ["3", "4", "5"]
        assert generation(one) == generation(two), "no barrier was needed"


async def test_what_was_given_away_is_refused(quick_kafka: Cluster) -> None:
    """Within a generation the broker would take it from anybody: nobody but the owner knows."""
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, numbers(6))
    at = TopicPartition(topic, 0)
    async with (
        transactional(quick_kafka, group) as producer,
        started(quick_kafka, topic, group=group, enable_auto_commit=False) as one,
        started(quick_kafka, topic, group=group, enable_auto_commit=False) as two,
    ):
        await both_in_one_generation(one, two)
        await take(one, 3)
        await one.commit({at: 1})
        await producer.begin_transaction()
        fence = one._client.link.need_agent().transactions
        acquisitions = await one._client.link.run(fence.begin([Partition(*at)]))
        one._client.link.post(fence.end, acquisitions)
        move(one, two, at)
        await eventually(lambda: consumed_until_moved(one, two), "it has moved")
        assert values(await take(two, 1)) == ["1"]
        late = FencedGroup(group, lambda refused: one._client.link.run(fence.fence(acquisitions, refused)))
        with pytest.raises(CommitFailedError, match="given to another member"):
            await send_offsets(producer, {at: 3}, late, lambda: None)
        await producer.abort_transaction()
        with pytest.raises(IllegalStateError):
            await one.send_offsets_to_transaction(producer, {at: 3})
        # The producer is none the worse for it.
        async with producer.transaction():
            await two.send_offsets_to_transaction(producer, {at: 2})
        await eventually(lambda: has_committed(two, at, 2), "the owner's are taken")


async def test_what_was_lost_and_came_again_is_refused(quick_kafka: Cluster) -> None:
    """Offsets of records that an earlier acquisition handed out: somebody else may have done them meanwhile."""
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, numbers(6))
    at = TopicPartition(topic, 0)
    async with (
        transactional(quick_kafka, group) as producer,
        started(quick_kafka, topic, group=group, enable_auto_commit=False) as consumer,
    ):
        await take(consumer, 3)
        agent, before = consumer._client.link.need_agent(), generation(consumer)
        membership = agent.snapshot()
        told = HeartbeatAnsweredEvent(
            now=boot_time(),
            sent_at=boot_time(),
            member=membership.member,
            generation=before,
            code=Code.UNKNOWN_MEMBER_ID,
        )
        consumer._client.link.post(agent.feed, told)
        await eventually(
            lambda: generation(consumer) > before and Partition(*at) in agent.snapshot().assigned, "it came again"
        )
        await producer.begin_transaction()
        with pytest.raises((CommitFailedError, IllegalStateError)):
            await consumer.send_offsets_to_transaction(producer, {at: 3})
        await producer.abort_transaction()
        assert values(await take(consumer, 1)) == ["0"]


async def test_offsets_of_a_generation_that_has_passed(quick_kafka: Cluster) -> None:
    """The broker refuses them; what is still held is sent again in the generation that is."""
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, numbers(3))
    at = TopicPartition(topic, 0)
    async with (
        transactional(quick_kafka, group) as producer,
        started(quick_kafka, topic, group=group, enable_auto_commit=False) as consumer,
    ):
        await take(consumer, 3)
        asked: list[int | None] = []

        async def fence(refused: int | None) -> Fence:
            asked.append(refused)
            now = await consumer._client.link.run(
                consumer._client.link.need_agent().transactions.fence(acquisitions, None)
            )
            return Fence(now.member, now.generation - 1) if refused is None else now

        acquisitions = await consumer._client.link.run(
            consumer._client.link.need_agent().transactions.begin([Partition(*at)])
        )
        async with producer.transaction():
            await send_offsets(producer, {at: 3}, FencedGroup(group, fence), lambda: None)
        assert asked == [None, generation(consumer) - 1]
        await eventually(lambda: has_committed(consumer, at, 3), "committed in the end")


async def test_a_member_that_was_shut_out_cannot_commit(quick_kafka: Cluster) -> None:
    """Whoever was left behind by its group gets its offsets refused by the broker, whatever it believes itself.

    What it had put out in that transaction is never seen, whatever the same producer commits afterwards.
    """
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    sink = quick_kafka.create_topic(partitions=1)
    await send(quick_kafka, topic, numbers(3))
    at = TopicPartition(topic, 0)
    async with (
        transactional(quick_kafka, group) as producer,
        started(quick_kafka, topic, group=group, enable_auto_commit=False) as consumer,
    ):
        await take(consumer, 3)

        async def fence(refused: int | None) -> Fence:
            if refused is not None:
                raise CommitFailedError("it was refused")
            return Fence("somebody-else", generation(consumer))

        await producer.begin_transaction()
        await producer.send_and_wait(sink, b"refused", partition=0)
        with pytest.raises(CommitFailedError, match="it was refused"):
            await send_offsets(producer, {at: 3}, FencedGroup(group, fence), lambda: None)
        with pytest.raises(CommitFailedError, match="it was refused"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        assert await consumer.committed(at) == 0
        async with producer.transaction():
            await producer.send_and_wait(sink, b"seen", partition=0)
        async with started(quick_kafka, sink, group=new_group(), isolation_level="read_committed") as reader:
            assert values(await take(reader, 1)) == ["seen"]


async def test_a_barrier_in_the_middle_of_a_transaction(quick_kafka: Cluster) -> None:
    """What does not move is sent in the generation that is, whenever the transaction began."""
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, numbers(3))
    at = TopicPartition(topic, 0)
    async with (
        transactional(quick_kafka, group) as producer,
        started(quick_kafka, topic, group=group, enable_auto_commit=False) as one,
    ):
        await take(one, 3)
        await producer.begin_transaction()
        before = generation(one)
        two = make(quick_kafka, topic, group=group, enable_auto_commit=False)
        starting = asyncio.ensure_future(two.start())
        while not starting.done():
            await one.send_offsets_to_transaction(producer, {at: 3})
        await starting
        await one.send_offsets_to_transaction(producer, {at: 3})
        assert generation(one) > before
        await producer.commit_transaction()
        await eventually(lambda: has_committed(one, at, 3), "committed")
        await two.stop()
