"""The limits of what is guaranteed, one test each: docs/guarantees.md names them."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, ConsumerStoppedError, IllegalStateError

from integration.harness import WAIT_SECONDS, committed_offsets, eventually
from integration.harness_consumers import PLAN_SEQUENCE, consumers, drain, new_group, plan, send, started
from loadtrim import Consumer, Settings
from loadtrim.testing import Cluster
from loadtrim_agent.common.clock import wall_time
from loadtrim_agent.protocol.commands import CountCommand
from loadtrim_agent.protocol.counters import ProtocolCount
from loadtrim_agent.protocol.events import LogReadEvent
from loadtrim_agent.runtime.agent import Agent
from loadtrim_agent.wire.ownership_records import PlanRecord, ReleaseRecord

pytestmark = pytest.mark.kafka

PARTITIONS = 2
HURRIED = Settings(http="off", drain_seconds=0.5)
"""User code has half a second for what it has in hand."""


def agent_of(consumer: Consumer) -> Agent:
    agent = consumer._client.link.agent  # type: ignore[union-attr]
    assert agent is not None
    return agent


def counted(consumer: Consumer) -> Counter[ProtocolCount]:
    return Counter(command.what for _, command in agent_of(consumer).trace() if isinstance(command, CountCommand))


def whole(topic: str) -> set[TopicPartition]:
    return {TopicPartition(topic, index) for index in range(PARTITIONS)}


def generations(*those: Consumer) -> list[int]:
    return [agent_of(consumer).snapshot().generation for consumer in those]


def plans_read(consumer: Consumer) -> int:
    """How many of this test's plans a member has read."""
    read = [event.record for _, event in agent_of(consumer).trace() if isinstance(event, LogReadEvent)]
    return sum(isinstance(record, PlanRecord) and record.sequence >= PLAN_SEQUENCE for record in read)


async def shared(topic: str, one: Consumer, two: Consumer) -> tuple[TopicPartition, TopicPartition]:
    """Wait until each has one partition; whose is which."""
    await eventually(lambda: [len(c.assignment()) for c in (one, two)] == [1, 1], "each has one")
    await consumers(one, two, parts=[whole(topic)])
    return next(iter(one.assignment())), next(iter(two.assignment()))


async def move(at: TopicPartition, source: Consumer, target: Consumer, number: int = 0) -> None:
    """Have a partition moved, and wait until it is."""
    await plan(source, at, source, target, number)
    await eventually(lambda: at in target.assignment() and at not in source.assignment(), f"{at} is moved")


# -- the drain time is exceeded ----------------------------------------------------------------------------------


async def test_a_move_that_user_code_holds_up_for_longer_than_the_drain_time_is_off(quick_kafka: Cluster) -> None:
    """The partition stays; nobody else is handed the record in hand, and nothing is repeated."""
    topic, group = quick_kafka.create_topic(partitions=PARTITIONS), new_group()
    async with (
        started(quick_kafka, topic, group=group, settings=HURRIED) as one,
        started(quick_kafka, topic, group=group, settings=HURRIED) as two,
    ):
        at, _ = await shared(topic, one, two)
        await send(quick_kafka, topic, ["0", "1"], partition=at.partition)
        assert (await asyncio.wait_for(one.getone(), WAIT_SECONDS)).value == b"0"
        await plan(one, at, one, two, 0)
        await eventually(lambda: counted(one)[ProtocolCount.MOVE_TIMED_OUT], "the move has taken too long")
        assert at in one.assignment()
        assert at not in two.assignment()
        assert (await asyncio.wait_for(one.getone(), WAIT_SECONDS)).value == b"1"
        assert two.assignment().isdisjoint({at}), "it was handed nothing of it"


async def test_a_record_that_outlives_a_stop_is_handed_out_elsewhere_and_its_commit_refused(
    quick_kafka: Cluster,
) -> None:
    """From the end of the drain time on two work on it: the one who stopped commits nothing of it any more."""
    topic, group = quick_kafka.create_topic(partitions=PARTITIONS), new_group()
    working, go_on = asyncio.Event(), asyncio.Event()
    async with (
        started(quick_kafka, topic, group=group, settings=HURRIED) as one,
        started(quick_kafka, topic, group=group, settings=HURRIED) as two,
    ):
        at, _ = await shared(topic, one, two)
        await send(quick_kafka, topic, ["0", "1"], partition=at.partition)

        async def work() -> None:
            assert (await one.getone()).value == b"0"
            working.set()
            await go_on.wait()
            with pytest.raises((CommitFailedError, IllegalStateError, ConsumerStoppedError)):
                await one.commit({at: 1})
            with pytest.raises(ConsumerStoppedError):
                await one.getone()

        task = asyncio.create_task(work())
        await asyncio.wait_for(working.wait(), WAIT_SECONDS)
        await asyncio.wait_for(one.stop(), WAIT_SECONDS)
        assert (await asyncio.wait_for(two.getone(), WAIT_SECONDS)).value == b"0", "while the first still works on it"
        go_on.set()
        await asyncio.wait_for(task, WAIT_SECONDS)
        assert (await committed_offsets(quick_kafka.bootstrap, group))[topic, at.partition] == 0


# -- manual commits ----------------------------------------------------------------------------------------------


async def test_with_manual_commits_each_move_repeats_what_was_not_committed(quick_kafka: Cluster) -> None:
    topic, group = quick_kafka.create_topic(partitions=PARTITIONS), new_group()
    async with (
        started(quick_kafka, topic, group=group, enable_auto_commit=False) as one,
        started(quick_kafka, topic, group=group, enable_auto_commit=False) as two,
    ):
        at, _ = await shared(topic, one, two)
        await send(quick_kafka, topic, ["0", "1", "2"], partition=at.partition)
        for number in range(3):
            assert (await asyncio.wait_for(one.getone(), WAIT_SECONDS)).value == b"%d" % number
            if number == 0:
                await one.commit({at: 1})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(one.getone(), 0.05)  # nothing is in hand any more
        await move(at, one, two)
        for number in (1, 2):
            assert (await asyncio.wait_for(two.getone(), WAIT_SECONDS)).value == b"%d" % number, "handed out again"
        assert (await committed_offsets(quick_kafka.bootstrap, group))[topic, at.partition] == 1


# -- pauses ------------------------------------------------------------------------------------------------------


async def test_a_paused_partition_that_moves_runs_at_its_new_owner(quick_kafka: Cluster) -> None:
    """A pause is the consumer's own, and ends with its hold, as at any rebalance."""
    topic, group = quick_kafka.create_topic(partitions=PARTITIONS), new_group()
    async with (
        started(quick_kafka, topic, group=group) as one,
        started(quick_kafka, topic, group=group) as two,
    ):
        at, _ = await shared(topic, one, two)
        one.pause(at)
        await send(quick_kafka, topic, ["0"], partition=at.partition)
        await move(at, one, two)
        assert (await asyncio.wait_for(two.getone(), WAIT_SECONDS)).value == b"0"
        assert two.paused() == set()


# -- mixed groups ------------------------------------------------------------------------------------------------


async def test_in_a_mixed_group_no_plan_moves_anything(quick_kafka: Cluster) -> None:
    topic, group = quick_kafka.create_topic(partitions=3), new_group()
    options = {"bootstrap_servers": quick_kafka.bootstrap, "group_id": group, "auto_offset_reset": "earliest"}
    async with (
        started(quick_kafka, topic, group=group) as one,
        started(quick_kafka, topic, group=group) as two,
        drain(one, two) as counts,
    ):
        async with AIOKafkaConsumer(topic, session_timeout_ms=3_000, heartbeat_interval_ms=300, **options) as other:
            three = (one, two, other)
            await eventually(lambda: [len(c.assignment()) for c in three] == [1, 1, 1], "each has one")
            snapshot = agent_of(one).snapshot()
            assert not snapshot.speaks_loadtrim
            (at,) = one.assignment()
            await plan(one, at, one, two, 0)
            await plan(one, at, one, two, 1)
            await send(quick_kafka, topic, ["0"], partition=at.partition)
            await eventually(lambda: counts["0"], "it is consumed")
            await eventually(lambda: plans_read(one) == 2, "the plans are read")
            assert one.assignment() == {at}
            assert agent_of(one).snapshot().generation == snapshot.generation
        await eventually(lambda: agent_of(one).snapshot().speaks_loadtrim, "the group is ours when it is gone")
        await eventually(lambda: len(one.assignment() | two.assignment()) == 3, "with all partitions")
        (first, *_) = one.assignment()
        await move(first, one, two, 2)


# -- WRITE on the control topic ----------------------------------------------------------------------------------


async def test_a_forged_release_is_noticed_by_its_giver_and_may_skip_records(quick_kafka: Cluster) -> None:
    """Whoever may write to the control topic is a member as far as the others can tell: two owners for a moment."""
    topic, group = quick_kafka.create_topic(partitions=PARTITIONS), new_group()
    async with (
        started(quick_kafka, topic, group=group) as one,
        started(quick_kafka, topic, group=group) as two,
    ):
        at, _ = await shared(topic, one, two)
        await send(quick_kafka, topic, [str(number) for number in range(4)], partition=at.partition)
        assert (await asyncio.wait_for(one.getone(), WAIT_SECONDS)).value == b"0"
        giver, taker = (agent_of(consumer).snapshot() for consumer in (one, two))
        forged = ReleaseRecord(
            group=group,
            member=giver.member,
            at=wall_time(),
            generation=giver.generation,
            topic=topic,
            partition=at.partition,
            version=0,
            source=giver.member,
            target=taker.member,
            offset=3,
            seconds=0.0,
        )
        log = agent_of(one).log
        assert log is not None
        await one._client.link.run(log.write(forged))  # type: ignore[union-attr]
        assert (await asyncio.wait_for(two.getone(), WAIT_SECONDS)).value == b"3", "begun where the release says"
        await eventually(lambda: counted(one)[ProtocolCount.FOREIGN_RELEASE], "its giver notices")
        async with drain(one, two) as counts:
            await eventually(lambda: min(generations(one, two)) > giver.generation, "they join again")
            await consumers(one, two, parts=[whole(topic)])
            await send(quick_kafka, topic, ["last"], partition=at.partition)
            await eventually(lambda: counts["last"], "the group goes on")
        assert counts["last"] == 1, "by one of them"


# -- an administrator --------------------------------------------------------------------------------------------


async def test_a_member_that_is_removed_by_hand_comes_back_with_a_new_id(quick_kafka: Cluster) -> None:
    """Until its next heartbeat it delivers what the others may have been given already."""
    topic, group = quick_kafka.create_topic(partitions=PARTITIONS), new_group()
    async with (
        started(quick_kafka, topic, group=group) as one,
        started(quick_kafka, topic, group=group) as two,
        drain(one, two) as counts,
    ):
        await shared(topic, one, two)
        removed = agent_of(one).snapshot().member
        # What `Admin.removeMembersFromConsumerGroup` sends.
        await two._client.link.run(agent_of(two).requests.leave_group(removed))  # type: ignore[union-attr]
        await eventually(lambda: counted(one)[ProtocolCount.FORGOTTEN], "its next heartbeat tells")
        await eventually(lambda: agent_of(one).snapshot().member not in ("", removed), "it has a new id")
        await consumers(one, two, parts=[whole(topic)])
        await send(quick_kafka, topic, ["0", "1"], partition=None)
        await eventually(lambda: counts == {"0": 1, "1": 1}, "each record once")
