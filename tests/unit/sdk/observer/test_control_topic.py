"""What breaks while a control topic is read is told as what it is."""

from __future__ import annotations

import asyncio

import pytest

from loadtrim.errors import CommandError
from loadtrim.observer import control_topic
from loadtrim.observer.connection import Connection
from loadtrim.observer.control_topic import ControlTopic, outside_errors


@pytest.mark.parametrize("fault", [AssertionError("no such state"), ValueError("not a number"), ImportError("gone")])
def test_a_fault_of_ours_is_not_told_as_settings_that_cannot_be_used(fault: Exception) -> None:
    """A reader that broke told the user to check TLS and SASL, without a trace."""
    with pytest.raises(type(fault)) as raised, outside_errors(Connection("localhost:9092", "--bootstrap"), "reading"):
        raise fault
    assert raised.value is fault


@pytest.mark.looptime
async def test_a_read_that_takes_too_long_blames_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """It said that no broker could be talked to. A connection that gave up is another matter."""
    monkeypatch.setattr(control_topic, "READ_SECONDS", 60.0)
    topic = ControlTopic(Connection("nowhere:1", "--bootstrap"), "g")
    with pytest.raises(CommandError, match="took longer than 60 s") as raised:
        async with topic._in_time():
            await asyncio.Event().wait()
    assert "No broker" not in str(raised.value)
    with pytest.raises(TimeoutError, match="connect"):
        async with topic._in_time():
            raise TimeoutError("connect")
