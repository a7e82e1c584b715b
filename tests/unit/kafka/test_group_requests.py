"""What the coordinator is sent: units, connections and time limits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from loadtrim_agent.kafka.connections import Channel
from loadtrim_agent.kafka.consumer_protocol import encode_answer
from loadtrim_agent.kafka.group_requests import GroupRequests
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.events import GroupAnswer
from loadtrim_agent.protocol.group_config import Code, GroupConfig

CONFIG = GroupConfig(group="g", topics=("orders",), session_timeout=8.0, rebalance_timeout=20.0)


class SilentCoordinator:
    """A coordinator that notes what it is asked, and answers nothing."""

    def __init__(self) -> None:
        self.asked: list[tuple[Channel, Any, float]] = []
        self.closed: list[Channel] = []
        self.taken_over = False

    async def ask(self, channel: Channel, request: Any, *, timeout: float) -> Any:
        self.asked.append((channel, request, timeout))
        raise TimeoutError

    def cut(self, channel: Channel) -> None:
        self.closed.append(channel)

    async def find(self) -> bool:
        return self.taken_over


class Office:
    def __init__(self) -> None:
        self.coordinator = SilentCoordinator()
        self.fed: list[Any] = []
        self.spawned: list[Coroutine[Any, Any, None]] = []
        events, tasks = SimpleNamespace(feed=self.fed.append), SimpleNamespace(spawn=self._spawn)
        self.requests = GroupRequests(CONFIG, self.coordinator, events, tasks)  # type: ignore[arg-type]

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.spawned.append(work)

    async def asked(self) -> tuple[Channel, Any, float]:
        """Run what was spawned; return the one request."""
        await asyncio.gather(*self.spawned)
        [asked] = self.coordinator.asked
        return asked


def join(*, fresh: bool = False) -> c.SendJoinCommand:
    return c.SendJoinCommand(attempt=3, member="m1", protocols=("loadtrim",), topics=("orders",), owned=(), fresh=fresh)


async def test_a_join_names_both_timeouts_in_milliseconds_and_may_be_parked_for_a_rebalance() -> None:
    office = Office()
    office.requests.join(join())
    channel, request, timeout = await office.asked()
    assert (channel, request._session_timeout, request._rebalance_timeout) == (Channel.JOIN, 8_000, 20_000)
    assert timeout > CONFIG.rebalance_timeout, "the machine decides about its time-out"
    [event] = office.fed
    assert isinstance(event, e.JoinAnsweredEvent)
    assert (event.attempt, event.code) == (3, Code.DISCONNECTED)


@pytest.mark.parametrize("taken_over", [False, True])
async def test_a_coordinator_found_for_user_code_is_told_where_it_is_another(*, taken_over: bool) -> None:
    """`committed()` found it, and the agent's own lookup saw no other than before."""
    office = Office()
    office.coordinator.taken_over = taken_over
    await office.requests.connect()
    assert [event.taken_over for event in office.fed] == [True] * taken_over


@pytest.mark.parametrize("taken_over", [False, True])
async def test_a_lookup_says_whether_the_coordinator_is_another(*, taken_over: bool) -> None:
    office = Office()
    office.coordinator.taken_over = taken_over
    office.requests.find_coordinator(c.FindCoordinatorCommand())
    await asyncio.gather(*office.spawned)
    [event] = office.fed
    assert isinstance(event, e.CoordinatorFoundEvent)
    assert event.taken_over == taken_over


@pytest.mark.parametrize("fresh", [False, True])
async def test_a_join_takes_a_new_connection_where_the_one_in_use_may_be_dead(fresh: bool) -> None:
    office = Office()
    office.requests.join(join(fresh=fresh))
    await office.asked()
    assert office.coordinator.closed == ([Channel.JOIN] if fresh else [])


async def test_a_sync_waits_for_the_leader() -> None:
    """The leader may assign for seconds: a SyncGroup that is given up begins the rebalance again."""
    office = Office()
    office.requests.sync(c.SendSyncCommand(attempt=3, member="m1", generation=2, answers={"m1": GroupAnswer()}))
    channel, request, timeout = await office.asked()
    assert (channel, request._generation_id, timeout) == (Channel.JOIN, 2, CONFIG.rebalance_timeout)


async def test_a_map_that_stays_unreadable_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """It was a warning every second or so, for as long as its leader led."""
    office = Office()
    cut = encode_answer(GroupAnswer(), "loadtrim")[:1]
    maps = [cut, cut, encode_answer(GroupAnswer(), "loadtrim"), cut]

    async def ask(*_: object, **__: object) -> Any:
        return SimpleNamespace(error_code=0, member_assignment=maps.pop(0))

    office.coordinator.ask = ask  # type: ignore[method-assign]
    with caplog.at_level(logging.DEBUG, "loadtrim"):
        for generation in range(4):
            command = c.SendSyncCommand(attempt=1, member="m", generation=generation, answers={})
            await office.requests._sync(command, "loadtrim")
    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG", "WARNING"]


async def test_several_heartbeats_may_be_lost_within_a_session() -> None:
    office = Office()
    office.requests.heartbeat(c.SendHeartbeatCommand(member="m1", generation=2))
    channel, _, timeout = await office.asked()
    assert channel is Channel.HEARTBEAT
    assert 3 * timeout < CONFIG.session_timeout
    [event] = office.fed
    assert (event.code, event.generation) == (Code.DISCONNECTED, 2)
    assert event.sent_at <= event.now


async def test_a_commit_without_an_answer_is_of_unknown_outcome() -> None:
    """To call it made would lose records, to call it refused would do them twice."""
    office = Office()
    office.requests.commit(c.SendCommitCommand(commit=5, member="m1", generation=2, offsets={}))
    channel, request, _ = await office.asked()
    assert (channel, request._consumer_group_generation_id) == (Channel.COMMIT, 2)
    [event] = office.fed
    assert (event.commit, event.codes) == (5, {})
