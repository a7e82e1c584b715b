"""How a group is read and followed where this machine's clock is not the brokers'; in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from typing import Any, Self

import pytest

from loadtrim.observer import follow
from loadtrim.observer.control_topic import COORDINATION, TELEMETRY, Entry, Recent
from loadtrim.observer.follow import LISTEN_SECONDS, GroupFollower, read_group
from loadtrim_agent.wire.ownership_records import HelloRecord, LoadRecord

pytestmark = [pytest.mark.looptime, pytest.mark.asyncio]
BROKER = 1_000_000.0


def broker_now() -> float:
    return BROKER + asyncio.get_running_loop().time()


class Topic:
    """A control topic of a group whose member ``a`` said hello half a minute ago; it speaks each second, or no more."""

    group = "pay"
    unreadable = 0
    speaks = True

    def __init__(self, *_: object) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def recent(self, seconds: float = 60.0, scan_seconds: float | None = None) -> Recent:
        now = broker_now()
        hello = HelloRecord(group="pay", member="a", at=now - 30.0, instance="pay-1")
        telemetry = [self._word(now - 0.5)] if self.speaks else []
        return Recent([(hello, now - 30.0)], telemetry, 0, {COORDINATION: 1, TELEMETRY: 1})

    async def follow(self, positions: dict[int, int]) -> AsyncGenerator[list[Entry], None]:
        while True:
            await asyncio.sleep(0.5)
            yield []
            await asyncio.sleep(0.5)
            yield [self._word(broker_now())] if self.speaks else []

    @staticmethod
    def _word(at: float) -> Entry:
        return LoadRecord(group="pay", member="a", at=at, generation=1), at


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> type[Topic]:
    monkeypatch.setattr(follow, "ControlTopic", Topic)
    monkeypatch.setattr(Topic, "speaks", True)
    return Topic


def set_clock(monkeypatch: pytest.MonkeyPatch, ahead_seconds: float) -> None:
    monkeypatch.setattr(follow.time, "time", lambda: broker_now() + ahead_seconds)


async def read(topic: type[Topic]) -> tuple[bool, float]:
    """Read the group; return whether anybody is there, and the seconds that took."""
    began = asyncio.get_running_loop().time()
    view, now = await read_group(topic())  # type: ignore[arg-type]
    assert abs(now - broker_now()) < 1.0 or not topic.speaks
    return view.heard_lately(now), asyncio.get_running_loop().time() - began


async def test_a_group_that_speaks_is_read_at_once(topic: type[Topic], monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, 0.2)
    assert await read(topic) == (True, 0.0)


@pytest.mark.parametrize("ahead_seconds", [5.0, 3600.0])
async def test_a_clock_that_is_ahead_makes_nobody_silent(
    topic: type[Topic], monkeypatch: pytest.MonkeyPatch, ahead_seconds: float
) -> None:
    """A laptop that slept: the clock of the broker in its virtual machine stood still. All were told as gone."""
    set_clock(monkeypatch, ahead_seconds)
    assert await read(topic) == (True, 1.0)


async def test_a_group_that_is_gone_is_so_after_a_while(topic: type[Topic], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic, "speaks", False)
    set_clock(monkeypatch, 0.0)
    assert await read(topic) == (False, LISTEN_SECONDS)


async def test_a_group_is_followed_by_the_brokers_clock(topic: type[Topic], monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, 3600.0)
    follower: Any = GroupFollower(None, "pay")  # type: ignore[arg-type]
    task = asyncio.create_task(follower.run())
    await asyncio.sleep(10.2)
    assert follower.state().alive
    assert abs(follower.state().at - broker_now()) < 0.5
    monkeypatch.setattr(topic, "speaks", False)
    await asyncio.sleep(10.0)
    assert not follower.state().alive
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_view_that_goes_on_breaking_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was a trace each second."""
    follower = GroupFollower(None, "pay")  # type: ignore[arg-type]

    async def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(follower, "_follow", broken)
    with caplog.at_level(logging.ERROR, "loadtrim"):
        task = asyncio.create_task(follower.run())
        await asyncio.sleep(10.5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert len(caplog.records) == 1
    assert "the view failed" in follower.trouble
