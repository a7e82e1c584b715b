"""What is said of a control topic that cannot be used; all else needs a broker (``tests/integration``)."""

from __future__ import annotations

import asyncio

from loadtrim_agent.kafka.controllog import ControlLog


async def test_a_broker_that_does_not_answer_is_said_to_be_the_reason() -> None:
    """A time-out has no text of its own: the line said that the topic cannot be used, and nothing why."""
    log = ControlLog(
        {"bootstrap_servers": "localhost:1"},
        "__loadtrim.payments",
        feed=lambda *_: None,
        spawn=lambda *_: None,
        on_unreadable=lambda: None,
        on_clock=lambda *_: None,
    )
    said = log._advice(TimeoutError())
    await log.close()
    assert "cannot be used (no answer in time)" in said
    assert "cannot be used (asyncio is closed)" in log._advice(asyncio.InvalidStateError("asyncio is closed"))
