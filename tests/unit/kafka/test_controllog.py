"""What is said of a control topic that cannot be used; all else needs a broker (``tests/integration``)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka.errors import LeaderNotAvailableError

from loadtrim_agent.kafka.controllog import LOOK_SECONDS_MAX, ControlLog


def make_log() -> ControlLog:
    return ControlLog(
        {"bootstrap_servers": "localhost:1"},
        "__loadtrim.payments",
        feed=lambda *_: None,
        spawn=lambda *_: None,
        on_unreadable=lambda: None,
        on_clock=lambda *_: None,
    )


async def test_a_broker_that_does_not_answer_is_said_to_be_the_reason() -> None:
    """A time-out has no text of its own: the line said that the topic cannot be used, and nothing why."""
    log = make_log()
    said = log._advice(TimeoutError())
    await log.close()
    assert "cannot be used (no answer in time)" in said
    assert "cannot be used (asyncio is closed)" in log._advice(asyncio.InvalidStateError("asyncio is closed"))


async def test_a_broker_that_does_not_know_its_controller_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """aiokafka's admin client raises AttributeError then, which ended the user's start()."""
    asked: list[str] = []

    class Admin:
        def __init__(self, **_: object) -> None:
            self._client = SimpleNamespace(
                cluster=SimpleNamespace(controller=object() if asked else None), force_metadata_update=self._update
            )

        async def _update(self) -> bool:
            asked.append("metadata")
            return False

        async def start(self) -> None: ...

        async def close(self) -> None: ...

        async def create_topics(self, topics: list[object]) -> object:
            assert self._client.cluster.controller is not None
            asked.append("created")
            return SimpleNamespace(topic_errors=[("topic", 0)])

    monkeypatch.setattr("aiokafka.admin.AIOKafkaAdminClient", Admin)
    log = make_log()
    counts = iter([None, 2])

    async def count() -> int | None:
        return next(counts)

    monkeypatch.setattr(log, "_count_partitions", count)
    await asyncio.wait_for(log._ensure_topic(), 10.0)
    assert asked == ["metadata", "created"]


async def test_a_topic_that_is_being_created_is_looked_for_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is busy with another topic takes seconds; at the end start() slept through one of them."""
    waits: list[float] = []
    sleep = asyncio.sleep

    async def wait(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0)

    log = make_log()
    monkeypatch.setattr("loadtrim_agent.kafka.controllog.asyncio.sleep", wait)

    async def look() -> int:
        if len(waits) < 20:
            raise LeaderNotAvailableError
        return 2

    assert await log._patiently(look) == 2
    await log.close()
    assert max(waits) <= LOOK_SECONDS_MAX
    assert sum(waits) > 1.0, "and the broker is left alone meanwhile"
