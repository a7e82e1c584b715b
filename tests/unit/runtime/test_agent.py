"""The agent's end, against a broker in this process: whatever it fails of, the group is told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka.errors import CommitFailedError, KafkaError, TopicAuthorizationFailedError
from aiokafka.protocol import group, offset
from msgspec.structs import replace

from loadtrim import Consumer, Settings
from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.errors import InvariantError
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol import leave
from loadtrim_agent.protocol.commands import LeaseCommand
from loadtrim_agent.protocol.events import LeaveWantedEvent, TickEvent
from loadtrim_agent.protocol.machine import Machine
from loadtrim_agent.runtime.agent import ASLEEP_SECONDS_MAX
from loadtrim_agent.runtime.control_access import ControlAccess
from loadtrim_agent.runtime.membership import LATE_COMMIT_SECONDS
from walks.broker import MemoryBroker
from walks.scenes import GROUP, TOPIC, consumer, made, stage, until, user_code

LIST_OFFSETS, OFFSET_COMMIT, JOIN_GROUP, LEAVE_GROUP = 2, 8, 11, 13
TOPIC_AUTHORIZATION_FAILED = 29
WAIT_SECONDS = 10.0


@contextlib.asynccontextmanager
async def working() -> AsyncIterator[tuple[MemoryBroker, Consumer]]:
    """A consumer that has done one record, not committed yet."""
    async with stage() as broker:
        await broker.send(TOPIC, 0, b"walk")
        async with consumer(broker) as one:
            await user_code(one)
            yield broker, one


def agent_of(one: Consumer) -> Any:
    return one._client.link.need_agent()  # type: ignore[union-attr]


def has_left(broker: MemoryBroker) -> bool:
    return not broker.groups[GROUP].members


async def test_a_failure_for_good_commits_leaves_and_is_raised_at_each_call() -> None:
    """It went on heartbeating and held its partitions, which no member consumed."""
    async with working() as (broker, one):
        agent_of(one).raise_to_user(KafkaError("broken"))
        await until(lambda: has_left(broker))
        assert broker.committed(GROUP, TOPIC, 0) == 1
        assert agent_of(one).buffer.lease_until == 0.0
        for _ in range(2):
            with pytest.raises(KafkaError, match="broken"):
                await one.getone()
        assert one.assignment() == set()


async def test_a_failure_for_good_takes_no_lease_any_more() -> None:
    """A heartbeat that was on its way is answered while the member leaves."""
    async with working() as (_, one):
        agent = agent_of(one)
        agent.raise_to_user(KafkaError("broken"))
        agent.driver.sink.carry_out(LeaseCommand(until=boot_time() + 100.0))
        assert agent.buffer.lease_until == 0.0


async def test_an_error_of_the_machine_leaves_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with working() as (broker, one):
        handle, breaks = Machine.handle, iter([True])

        def once(self: Machine, event: Any) -> Any:
            if next(breaks, False):
                raise KeyError("machine")
            return handle(self, event)

        monkeypatch.setattr(Machine, "handle", once)
        agent_of(one).feed(TickEvent(now=boot_time()))
        await until(lambda: has_left(broker))
        assert broker.committed(GROUP, TOPIC, 0) == 1
        with pytest.raises(KeyError, match="machine"):
            await one.getone()


async def test_a_machine_that_cannot_even_leave_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with working() as (broker, one):

        def handle(self: Machine, event: Any) -> Any:
            raise KeyError("machine")

        monkeypatch.setattr(Machine, "handle", handle)
        agent_of(one).feed(TickEvent(now=boot_time()))
        await until(lambda: has_left(broker))
        with pytest.raises(KeyError, match="machine"):
            await one.getone()
        await asyncio.wait_for(one.stop(), WAIT_SECONDS)
    assert [r.message for r in caplog.records if r.levelno >= logging.ERROR and "membership broke" in r.message] == [
        "The agent's membership broke; the next call of user code raises this."
    ]


async def test_a_machine_that_contradicts_itself_goes_on_consuming(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is owned is safe to deliver; only moves rest on what the machine believes."""
    async with working() as (broker, one):
        handle, breaks = Machine.handle, iter([True, True])

        def twice(self: Machine, event: Any) -> Any:
            if next(breaks, False):
                raise InvariantError("made up")
            return handle(self, event)

        monkeypatch.setattr(Machine, "handle", twice)
        for _ in range(2):
            agent_of(one).feed(TickEvent(now=boot_time()))
        await broker.send(TOPIC, 0, b"next")
        assert (await asyncio.wait_for(one.getone(), WAIT_SECONDS)).value == b"next"
        assert agent_of(one).options.observer._errors["invariant"] == 2
        assert not has_left(broker)
    assert len([r for r in caplog.records if "contradicts itself" in r.message]) == 1, "said once"


async def test_a_partition_whose_start_is_refused_for_good_fails_the_start_and_leaves() -> None:
    async with stage(partitions=2) as broker:

        def refuse(request: Any) -> Any:
            topics = [
                (topic, [(i, TOPIC_AUTHORIZATION_FAILED if i else 0, -1, 0) for i, _ in entries])
                for topic, entries in request.topics
            ]
            return offset.OffsetResponse_v1(topics=topics) if topics[0][0] == TOPIC else None

        broker.play(LIST_OFFSETS, refuse)
        one = made(broker, Settings(http="off"))
        with pytest.raises(TopicAuthorizationFailedError):
            await asyncio.wait_for(one.start(), WAIT_SECONDS)
        assert has_left(broker)


async def test_a_second_leave_takes_no_time_from_the_first() -> None:
    """SIGTERM promised the orchestrator a time; a stop() behind it must not move it out."""
    async with working() as (_, one):
        agent, wishes = agent_of(one), list[LeaveWantedEvent]()
        agent.feed = lambda event: wishes.append(event)
        begun = boot_time()
        for drain_seconds in (5.0, 60.0, 2.0):
            agent.leave(drain_seconds)
        first, second, third = (event.deadline for event in wishes)
        del agent.feed
        agent.condition.leave_by = float("inf")
    assert begun + 5.0 <= first < begun + 10.0
    assert second == first
    assert third < first


async def test_a_start_that_waits_for_a_topic_ends_when_the_member_is_told_to_leave() -> None:
    """It went on waiting, for 40 s, so that a process was ended by force after SIGTERM."""
    async with stage() as broker:
        del broker.topics[TOPIC]
        one = made(broker, Settings(http="off"))
        starting = asyncio.create_task(one.start())
        await until(lambda: one._client.link.agent is not None and agent_of(one).topics.cluster.brokers())  # type: ignore[union-attr]
        one._client.end_iteration(False)
        await asyncio.wait_for(starting, WAIT_SECONDS)
        assert agent_of(one).condition.left.is_set()
        assert GROUP not in broker.groups or has_left(broker)
        await one.stop()


async def test_a_start_that_is_cancelled_leaves() -> None:
    """Its JoinGroup had been answered: the group waited for it for a session."""
    joined, left = asyncio.Event(), asyncio.Event()
    async with stage() as broker:

        def refuse(request: Any) -> Any:
            joined.set()
            return offset.OffsetResponse_v1(topics=[(t, [(i, 5, -1, 0) for i, _ in e]) for t, e in request.topics])

        broker.play(LIST_OFFSETS, lambda request: refuse(request) if request.topics[0][0] == TOPIC else None)
        broker.play(LEAVE_GROUP, lambda request: left.set())
        one = made(broker, Settings(http="off"))
        starting = asyncio.create_task(one.start())
        await asyncio.wait_for(joined.wait(), WAIT_SECONDS)
        assert not has_left(broker)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(starting, WAIT_SECONDS)
        assert left.is_set()
        assert has_left(broker)


@pytest.mark.parametrize("told", [True, False], ids=["an id on its way", "no answer"])
async def test_a_start_that_is_cancelled_while_its_id_is_on_its_way_gives_the_id_back(
    told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker waits for whom it gave an id as for a member: each rebalance lasted until the session's end."""
    monkeypatch.setattr(leave, "LAST_COMMIT_SECONDS", 0.5 if told else 0.05)
    asked, answer = asyncio.Event(), asyncio.Event()
    left: list[str] = []
    async with stage() as broker:

        async def give_an_id(request: Any) -> Any:
            asked.set()
            await answer.wait()
            return group.JoinGroupResponse_v2(
                throttle_time_ms=0,
                error_code=79,
                generation_id=-1,
                group_protocol="",
                leader_id="",
                member_id="given",
                members=[],
            )

        broker.play(JOIN_GROUP, give_an_id)
        broker.play(LEAVE_GROUP, lambda request: left.append(request.member_id))
        one = made(broker, Settings(http="off"))
        starting = asyncio.create_task(one.start())
        await asyncio.wait_for(asked.wait(), WAIT_SECONDS)
        starting.cancel()
        if told:
            await until(lambda: agent_of(one).condition.leave_by < float("inf"))
            answer.set()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(starting, WAIT_SECONDS)
        assert left == (["given"] if told else [])


async def test_a_join_refused_for_good_ends_the_start_at_once() -> None:
    async with stage() as broker:
        broker.play(
            JOIN_GROUP,
            lambda request: group.JoinGroupResponse_v2(
                throttle_time_ms=0,
                error_code=26,
                generation_id=-1,
                group_protocol="",
                leader_id="",
                member_id="",
                members=[],
            ),
        )
        one = made(broker, Settings(http="off"))
        with pytest.raises(KafkaError, match="session_timeout_ms"):
            await asyncio.wait_for(one.start(), WAIT_SECONDS)


async def test_a_task_of_membership_that_fails_is_raised_at_each_call_and_leaves() -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    async with working() as (broker, one):
        agent_of(one).tasks.spawn(broken(), "broken")
        await until(lambda: has_left(broker))
        for call in (one.getone, one.getmany):
            with pytest.raises(ZeroDivisionError):
                await call()
        assert agent_of(one).options.observer._errors["broken"] == 0, "it is not contained"


async def test_user_code_that_waits_for_a_record_is_not_taken_for_stuck() -> None:
    """On a quiet topic it waits for hours; the time counts from when it has a record."""
    async with stage() as broker, consumer(broker) as one:
        agent = agent_of(one)
        agent.options = replace(agent.options, max_poll_seconds=0.04)
        waiting = asyncio.create_task(one.getone())
        await until(lambda: agent.buffer.sleep.asleep)
        watching = asyncio.create_task(agent._watch_user())
        await until(lambda: agent.buffer.agent_seen_at - agent.buffer.last_call > 0.3)
        assert not agent.buffer.expired
        await broker.send(TOPIC, 0, b"late")
        assert (await asyncio.wait_for(waiting, WAIT_SECONDS)).value == b"late"
        await until(lambda: agent.buffer.expired)
        watching.cancel()


async def test_a_loop_that_turns_no_more_while_a_task_waits_in_it_is_taken_for_stuck() -> None:
    """Its partitions were nobody's until the process ended: the call that waits was never called late."""
    async with stage() as broker, consumer(broker) as one:
        agent = agent_of(one)
        agent.options = replace(agent.options, max_poll_seconds=0.04)
        waiting = asyncio.create_task(one.getone())
        await until(lambda: agent.buffer.sleep.asleep)
        agent.buffer.last_call -= ASLEEP_SECONDS_MAX
        watching = asyncio.create_task(agent._watch_user())
        await until(lambda: agent.buffer.expired)
        watching.cancel()
        waiting.cancel()


async def test_a_request_may_take_as_long_as_a_rebalance() -> None:
    """A JoinGroup is answered when the last member has joined: aiokafka would end it at request_timeout_ms."""
    async with stage() as broker:
        one = made(broker, Settings(http="off"), session_timeout_ms=40_000, request_timeout_ms=1_000)
        await one.start()
        milliseconds = agent_of(one).connections.client._request_timeout_ms
        await one.stop()
    assert milliseconds > 80_000 + 5_000


@pytest.mark.slow
@pytest.mark.parametrize("under_way", [True, False], ids=["while it leaves", "when it has left"])
async def test_user_code_that_asks_for_nothing_leaves_and_comes_back_at_its_next_call(
    under_way: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-62: what it has in hand is given to another member, for nobody knows whether it will ever be done."""
    # The call comes within this time or after it, however slow the machine is.
    monkeypatch.setattr(leave, "LAST_COMMIT_SECONDS", WAIT_SECONDS if under_way else 0.05)
    async with stage() as broker:
        await broker.send(TOPIC, 0, b"0", b"1")
        one = made(broker, Settings(http="off"))
        await one.start()
        try:
            assert (await asyncio.wait_for(one.getone(), WAIT_SECONDS)).value == b"0"
            # A machine that stands still for a tenth of a second before that has it leave and come back already.
            errors, names = agent_of(one).options.observer._errors, broker.groups[GROUP].names
            before = errors["max_poll_interval"]
            condition = agent_of(one).condition
            agent_of(one).buffer.last_call -= 3_600.0  # on a busy machine a start takes longer than any short limit
            await until(lambda: agent_of(one).buffer.expired if under_way else condition.left.is_set())
            assert condition.left.is_set() != under_way
            assert errors["max_poll_interval"] == before + 1
            assert broker.committed(GROUP, TOPIC, 0) == 0
            if not under_way:
                with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):  # it returned as if all were well
                    await one.commit()
            # While the member leaves the call still makes the record done, and the last commit has it.
            record = await asyncio.wait_for(one.getone(), WAIT_SECONDS)
            assert record.value == (b"1" if under_way else b"0")
            assert broker.groups[GROUP].names == names + 1, "with a new id"
            assert not has_left(broker)
        finally:
            await one.stop()


async def test_a_commit_without_an_answer_is_made_once_more_when_it_may_have_arrived_late() -> None:
    """It may reach the broker after a later one. A quiet partition stayed set back until its next record was done."""
    async with working() as (broker, one):
        cut, commits = [True], 0

        def commit(request: Any) -> None:
            nonlocal commits
            commits += 1
            if cut:
                cut.clear()
                raise ConnectionResetError  # the connection ends without an answer

        broker.play(OFFSET_COMMIT, commit)
        agent = agent_of(one)
        agent.commits.commit_done()
        await until(lambda: agent.snapshot().assigned[Partition(TOPIC, 0)].committed == 1)
        assert commits == 2, "sent again as it had no answer"
        agent.commits.commit_done()
        assert list(agent.requests.unanswered_commits) == [Partition(TOPIC, 0)], "not yet"
        broker.groups[GROUP].committed[TOPIC, 0] = 0  # the first of the two arrives
        agent.requests.unanswered_commits[Partition(TOPIC, 0)] -= LATE_COMMIT_SECONDS  # time passes
        agent.commits.commit_done()
        await until(lambda: broker.committed(GROUP, TOPIC, 0) == 1)
        assert agent.requests.unanswered_commits == {}
        assert commits == 3


async def test_what_metadata_shows_while_the_agent_starts_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control topic may take seconds; a new partition of meanwhile was forgotten for the first look."""
    start = ControlAccess.start
    async with stage() as broker:
        one = made(broker, Settings(http="off"))

        async def slowly(self: ControlAccess) -> None:
            await start(self)
            broker.topics[TOPIC] += 1
            await one._client.link.agent.topics._client.force_metadata_update()  # type: ignore[attr-defined]

        monkeypatch.setattr(ControlAccess, "start", slowly)
        await one.start()
        try:
            agent = one._client.link.agent  # type: ignore[attr-defined]
            assert agent.driver.snapshot().partition_counts[TOPIC] == broker.topics[TOPIC]
        finally:
            await one.stop()
