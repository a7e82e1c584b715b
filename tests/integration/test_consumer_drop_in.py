"""Where code written for ``AIOKafkaConsumer`` must not notice the difference: what its own tests ask, in our words."""

from __future__ import annotations

import asyncio
import gc
import traceback
import warnings
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalStateError, NoOffsetForPartitionError, OffsetOutOfRangeError

from integration.harness import WAIT_SECONDS, committed_offsets, eventually
from integration.harness_consumers import Recorder, make, new_group, send, started, take
from loadtrim import Consumer, Settings
from loadtrim.testing import Cluster

pytestmark = pytest.mark.kafka


def values(messages: list[Any]) -> list[str]:
    return [message.value.decode() for message in messages]


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


async def test_started_without_a_subscription_and_subscribed_later(quick_kafka: Cluster) -> None:
    topic = quick_kafka.create_topic(partitions=2)
    await send(quick_kafka, topic, numbers(3))
    at = TopicPartition(topic, 0)
    async with started(quick_kafka, group=new_group()) as consumer:
        assert consumer.subscription() == frozenset()
        assert consumer.assignment() == set()
        assert await consumer.getmany(timeout_ms=0) == {}
        with pytest.raises(IllegalStateError, match="Not subscribed"):
            await consumer.commit({at: 1})
        waiting = asyncio.create_task(take(consumer, 3))
        consumer.subscribe([topic])
        assert values(await waiting) == numbers(3)
        await consumer.commit({at: 3})
        with pytest.raises(IllegalStateError, match="not assigned"):
            await consumer.commit({TopicPartition(topic, 9): 1})
        consumer.unsubscribe()
        with pytest.raises(IllegalStateError, match="Not subscribed"):
            await consumer.commit({at: 1})


async def test_a_pattern_subscribed_after_the_start(quick_kafka: Cluster) -> None:
    topic = quick_kafka.create_topic(partitions=1)
    await send(quick_kafka, topic, numbers(1))
    async with started(quick_kafka, group=new_group()) as consumer:
        consumer.subscribe(pattern=f"^{topic}$")
        assert values(await take(consumer, 1)) == ["0"]
        assert consumer.subscription() == {topic}


@pytest.mark.parametrize("enabled", [True, False])
async def test_what_programs_read_of_the_client_is_there(quick_kafka: Cluster, enabled: bool) -> None:
    """``consumer._client.cluster`` is private in aiokafka, and used all the same."""
    topic = quick_kafka.create_topic(partitions=2)
    async with started(quick_kafka, topic, group=new_group(), settings=Settings(enabled=enabled)) as consumer:
        assert consumer._loop is asyncio.get_running_loop()
        assert await consumer._client.force_metadata_update()
        assert consumer._client.cluster.partitions_for_topic(topic) == {0, 1}
        assert consumer._client.cluster.brokers()


async def test_unsubscribed_before_anything_came_of_it(quick_kafka: Cluster) -> None:
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    async with started(quick_kafka, group=group) as consumer:
        consumer.subscribe([topic])
        consumer.unsubscribe()
        await eventually(lambda: consumer.subscription() == frozenset(), "nothing is subscribed")
    assert consumer.assignment() == set()


async def test_a_listener_given_later_is_told_what_is_held(quick_kafka: Cluster) -> None:
    topic = quick_kafka.create_topic(partitions=2)
    held = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    listener = Recorder()
    async with started(quick_kafka, topic, group=new_group()) as consumer:
        assert consumer.assignment() == held
        consumer.subscribe([topic], listener=listener)
        await eventually(lambda: listener.held() == held, "it was told")
        consumer.subscribe([topic], listener=listener)
        consumer.unsubscribe()
        await eventually(lambda: listener.held() == set(), "it was told that all went, and nothing twice")


async def test_what_a_listener_may_ask(quick_kafka: Cluster) -> None:
    """Positions, commits and seeks within ``on_partitions_assigned``, awaited in a task of its own: nothing waits for
    itself, and the records handed out are those of the seek."""
    topic = quick_kafka.create_topic(partitions=1)
    await send(quick_kafka, topic, numbers(3))
    at = TopicPartition(topic, 0)
    told: list[Any] = []

    async def look(_: set[TopicPartition]) -> None:
        async def ask() -> None:
            told.append(await consumer.committed(at))
            told.append(await consumer.position(at))
            await consumer.seek_to_end(at)
            told.append(await consumer.position(at))

        await asyncio.create_task(ask())

    consumer = make(quick_kafka, group=new_group())
    consumer.subscribe([topic], listener=Recorder(assigned=look))
    await asyncio.wait_for(consumer.start(), WAIT_SECONDS)
    try:
        assert told == [None, 0, 3]
        await send(quick_kafka, topic, ["new"])
        assert values(await take(consumer, 1)) == ["new"]
    finally:
        await consumer.stop()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_positions_pass_what_holds_no_records(quick_kafka: Cluster, isolation: str) -> None:
    """A transaction's end is an offset without a record: positions and commits go past it, so no lag is left."""
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    at = TopicPartition(topic, 0)
    async with AIOKafkaProducer(bootstrap_servers=quick_kafka.bootstrap, transactional_id=group) as producer:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"first", partition=0)
        async with started(quick_kafka, topic, group=group, isolation_level=isolation) as consumer:
            assert values(await take(consumer, 1)) == ["first"]
            assert await consumer.getmany(timeout_ms=0) == {}
            await eventually(lambda: at_end(consumer, at, 2), "past the end of the transaction")
            async with producer.transaction():
                await producer.send_and_wait(topic, b"second", partition=0)
            (second,) = await take(consumer, 1)
            assert (second.offset, second.value) == (2, b"second")
            assert await consumer.getmany(timeout_ms=0) == {}
            await eventually(lambda: at_end(consumer, at, 4), "past the end of the other")
    assert await committed_offsets(quick_kafka.bootstrap, group) == {(topic, 0): 4}


async def at_end(consumer: Consumer, at: TopicPartition, offset: int) -> bool:
    position = await consumer.position(at)
    assert position <= offset
    return position == offset


async def test_auto_offset_reset_none_raises_until_user_code_seeks(quick_kafka: Cluster) -> None:
    """Where there is no commit every call says so; a seek says where to begin, and what has a commit is not touched."""
    topic, group = quick_kafka.create_topic(partitions=2), new_group()
    await send(quick_kafka, topic, numbers(3))
    without, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with started(quick_kafka, topic, group=group, auto_offset_reset="none") as consumer:
        assert consumer.assignment() == {without, other}
        for _ in range(2):
            with pytest.raises(NoOffsetForPartitionError):
                await take(consumer, 1)
            with pytest.raises(NoOffsetForPartitionError):
                await consumer.getmany(timeout_ms=1_000)
            with pytest.raises(NoOffsetForPartitionError):
                await consumer.position(without)
        await consumer.commit()
        assert await committed_offsets(quick_kafka.bootstrap, group) == {}
        consumer.seek(without, 1)
        assert values(await take(consumer, 2, without)) == ["1", "2"]
        with pytest.raises(NoOffsetForPartitionError):
            await take(consumer, 1)
        consumer.seek(without, 1_000)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError):
                await take(consumer, 1, without)
    assert (topic, 1) not in await committed_offsets(quick_kafka.bootstrap, group)


async def test_auto_offset_reset_none_and_a_listener_that_seeks(quick_kafka: Cluster) -> None:
    topic = quick_kafka.create_topic(partitions=1)
    await send(quick_kafka, topic, numbers(3))
    consumer = make(quick_kafka, group=new_group(), auto_offset_reset="none")
    seeking = Recorder(assigned=lambda partitions: [consumer.seek(at, 2) for at in partitions] and None)
    consumer.subscribe([topic], listener=seeking)
    await asyncio.wait_for(consumer.start(), WAIT_SECONDS)
    try:
        assert values(await take(consumer, 1)) == ["2"]
        assert seeking.held() == consumer.assignment()
    finally:
        await consumer.stop()


async def test_an_error_that_was_raised_to_user_code_may_be_cleared(quick_kafka: Cluster) -> None:
    """``unittest`` clears the frames of what it caught; those of the agent go on."""
    topic = quick_kafka.create_topic(partitions=1)
    await send(quick_kafka, topic, numbers(3))
    at = TopicPartition(topic, 0)
    async with started(quick_kafka, topic, group=new_group(), auto_offset_reset="none") as consumer:
        consumer.seek(at, 1_000)
        for _ in range(2):
            try:
                await take(consumer, 1)
            except OffsetOutOfRangeError as error:
                traceback.clear_frames(error.__traceback__)
            else:
                raise AssertionError("nothing was raised")
        consumer.seek(at, 0)
        assert values(await take(consumer, 3)) == numbers(3)


async def test_arguments_that_cannot_be_are_refused_at_once(quick_kafka: Cluster) -> None:
    def refused(match: str, **arguments: Any) -> None:
        with pytest.raises(ValueError, match=match):
            make(quick_kafka, "topic", group=new_group(), **arguments)

    refused("security_protocol", security_protocol="SOME")
    refused("ssl_context", security_protocol="SSL")
    refused("sasl_plain_username", security_protocol="SASL_PLAINTEXT")
    refused("isolation level", isolation_level="serializable")


def test_a_loop_given_as_an_argument(quick_kafka: Cluster) -> None:
    """Made outside any running loop, with the deprecated argument, and driven call by call."""
    topic = quick_kafka.create_topic(partitions=1)
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(send(quick_kafka, topic, numbers(3)))
        with pytest.warns(DeprecationWarning, match="loop"):
            consumer = make(quick_kafka, topic, group=new_group(), loop=loop)
        loop.run_until_complete(consumer.start())
        try:
            assert values([loop.run_until_complete(consumer.getone()) for _ in range(3)]) == numbers(3)
        finally:
            loop.run_until_complete(consumer.stop())
    finally:
        loop.close()


async def test_a_consumer_that_was_forgotten_says_so(quick_kafka: Cluster) -> None:
    """Its SIGTERM handler does not keep it alive."""
    topic = quick_kafka.create_topic(partitions=1)
    consumer = make(quick_kafka, topic, group=new_group(), handle_signals=True)
    await asyncio.wait_for(consumer.start(), WAIT_SECONDS)
    signals, agent, thread = consumer._signals, consumer._client.link.agent, consumer._client.link.thread
    assert agent is not None
    assert thread is not None
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        del consumer
        gc.collect()
    assert any(issubclass(w.category, ResourceWarning) and "Unclosed AIOKafkaConsumer" in str(w.message) for w in seen)
    signals.remove()
    await thread.run(agent.stop(1.0))
    await thread.stop()
