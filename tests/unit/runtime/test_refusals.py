"""What the coordinator refuses is told: in user code where its rights are missing, else once in the log."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError, UnknownError
from aiokafka.protocol import commit, group
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.protocol import partitions
from loadtrim_agent.protocol.counters import ProtocolCount
from loadtrim_agent.protocol.events import CoordinatorFoundEvent
from loadtrim_agent.runtime.refusals import _TEXTS, Refusals
from walks.broker import MemoryBroker
from walks.scenes import GROUP, TOPIC, consumer, stage, until

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, HEARTBEAT = 8, 9, 10, 12
TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED = 29, 30
UNKNOWN_SERVER_ERROR = -1
FIRST, SECOND = Partition("a", 0), Partition("a", 1)
WAIT_SECONDS = 10.0


@pytest.mark.parametrize("what", sorted(_TEXTS, key=lambda what: what.label))
async def test_each_is_told_once_per_topic_and_code(what: ProtocolCount, caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals(RecordBuffer(asyncio.get_running_loop(), asyncio.get_running_loop()))
    with caplog.at_level(logging.WARNING, "loadtrim"):
        for partition in (FIRST, SECOND, FIRST):
            refusals.counted(what, 7, partition)
        assert len(caplog.messages) == 1
        assert "RequestTimedOutError" in caplog.text
        refusals.counted(what, TOPIC_AUTHORIZATION_FAILED, FIRST)
        refusals.counted(what, 7, Partition("b", 0))
    assert len(caplog.messages) == 3


async def test_a_count_that_is_no_refusal_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    buffer = RecordBuffer(asyncio.get_running_loop(), asyncio.get_running_loop())
    Refusals(buffer).counted(ProtocolCount.MOVE_REFUSED, 0, FIRST)
    assert (caplog.messages, buffer.errors.concern(())) == ([], False)


def refuse_offsets(broker: MemoryBroker) -> list[bool]:
    """Refuse the offsets of partition 1 until the list is empty."""
    refusing = [True]

    def answer(request: Any) -> Any:
        if not refusing:
            return None
        topics = [
            (t, [(i, -1 if i else 0, "", TOPIC_AUTHORIZATION_FAILED if i else 0) for i in indexes])
            for t, indexes in request.topics
        ]
        return commit.OffsetFetchResponse_v3(throttle_time_ms=0, topics=topics, error_code=0)

    broker.play(OFFSET_FETCH, answer)
    return refusing


async def test_a_partition_whose_offset_is_refused_raises_once_and_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partitions, "REFUSED_SECONDS", 0.05)
    async with stage(partitions=2) as broker:
        await broker.send(TOPIC, 0, b"0", b"1")
        refusing = refuse_offsets(broker)
        async with consumer(broker) as one:
            with pytest.raises(TopicAuthorizationFailedError, match=f"{TOPIC}-1 cannot be read"):
                await asyncio.wait_for(one.getone(), WAIT_SECONDS)
            assert (await asyncio.wait_for(one.getone(), WAIT_SECONDS)).value == b"0"
            with pytest.raises(TopicAuthorizationFailedError):
                await one.committed(TopicPartition(TOPIC, 1))
            assert await one.committed(TopicPartition(TOPIC, 0)) == 0
            refusing.clear()
            await broker.send(TOPIC, 1, b"2")
            values = {(await asyncio.wait_for(one.getone(), WAIT_SECONDS)).value for _ in range(2)}
            assert values == {b"1", b"2"}, "asked for again until the right is granted"


def refused_commits(request: Any) -> Any:
    topics = [(t, [(i, TOPIC_AUTHORIZATION_FAILED) for i, *_ in entries]) for t, entries in request.topics]
    return commit.OffsetCommitResponse_v2(topics=topics)


async def test_a_start_that_cannot_be_committed_raises() -> None:
    async with stage() as broker:
        broker.play(OFFSET_COMMIT, refused_commits)
        async with consumer(broker) as one:
            with pytest.raises(TopicAuthorizationFailedError, match="cannot be committed"):
                await asyncio.wait_for(one.getone(), WAIT_SECONDS)


async def test_an_auto_commit_that_is_refused_is_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async with stage() as broker, consumer(broker) as one:
        await until(lambda: broker.committed(GROUP, TOPIC, 0) == 0)
        broker.play(OFFSET_COMMIT, refused_commits)
        await broker.send(TOPIC, 0, b"0", b"1")
        for _ in range(2):
            await asyncio.wait_for(one.getone(), WAIT_SECONDS)
        agent: Any = one._client.link.need_agent()  # type: ignore[union-attr]
        agent.commits.commit_done()
        services: Any = one._client.services  # type: ignore[union-attr]
        await until(lambda: services._errors["commit_refused"] == 1)
        assert "cannot be committed (TopicAuthorizationFailedError)" in caplog.text
        agent.buffer.abandon()


async def test_a_heartbeat_that_is_refused_for_good_raises_in_user_code() -> None:
    async with stage() as broker, consumer(broker) as one:
        broker.play(HEARTBEAT, lambda request: group.HeartbeatResponse_v0(error_code=GROUP_AUTHORIZATION_FAILED))
        agent: Any = one._client.link.need_agent()  # type: ignore[union-attr]
        agent.feed(CoordinatorFoundEvent(now=boot_time()))  # a heartbeat follows at once
        with pytest.raises(GroupAuthorizationFailedError, match="allow it READ"):
            await asyncio.wait_for(one.getone(), WAIT_SECONDS)


async def test_heartbeats_that_are_refused_otherwise_raise_in_user_code_when_the_lease_is_over() -> None:
    async with stage() as broker, consumer(broker) as one:
        broker.play(HEARTBEAT, lambda request: group.HeartbeatResponse_v0(error_code=UNKNOWN_SERVER_ERROR))
        agent: Any = one._client.link.need_agent()  # type: ignore[union-attr]
        agent.driver.machine._lease.revoke()  # time passes
        agent.feed(CoordinatorFoundEvent(now=boot_time()))  # a heartbeat follows at once
        with pytest.raises(UnknownError, match="start it again"):
            await asyncio.wait_for(one.getone(), WAIT_SECONDS)


async def test_committed_offsets_are_asked_for_where_the_coordinator_went_also_out_of_the_group() -> None:
    """Nobody else looks for it then: the call waited for ever."""
    async with stage() as broker, consumer(broker) as one:
        await until(lambda: broker.committed(GROUP, TOPIC, 0) == 0)
        agent: Any = one._client.link.need_agent()  # type: ignore[union-attr]
        agent.leave(0.0, release=False)
        await until(agent.condition.left.is_set)
        looked: list[int] = []

        def find(request: Any) -> None:
            looked.append(1)

        def moved(request: Any) -> Any:
            topics = [(t, [(i, -1, "", 0) for i in indexes]) for t, indexes in request.topics]
            moved = commit.OffsetFetchResponse_v3(throttle_time_ms=0, topics=topics, error_code=16)
            return None if looked else moved

        broker.play(FIND_COORDINATOR, find)
        broker.play(OFFSET_FETCH, moved)
        assert await asyncio.wait_for(one.committed(TopicPartition(TOPIC, 0)), WAIT_SECONDS) == 0


async def test_committed_offsets_are_asked_for_again_while_the_coordinator_moves() -> None:
    """It raised at once, that the member took no part in its group any more."""
    async with stage() as broker, consumer(broker) as one:
        await until(lambda: broker.committed(GROUP, TOPIC, 0) == 0)
        codes = [16, 14, 15]

        def answer(request: Any) -> Any:
            if not codes:
                return None
            topics = [(t, [(i, -1, "", 0) for i in indexes]) for t, indexes in request.topics]
            return commit.OffsetFetchResponse_v3(throttle_time_ms=0, topics=topics, error_code=codes.pop(0))

        broker.play(OFFSET_FETCH, answer)
        assert await asyncio.wait_for(one.committed(TopicPartition(TOPIC, 0)), WAIT_SECONDS) == 0
        assert not codes
