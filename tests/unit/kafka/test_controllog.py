"""What is said of a control topic that cannot be used; all else needs a broker (``tests/integration``)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from loadtrim_agent.kafka.controllog import ControlLog


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
