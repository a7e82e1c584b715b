"""What may break without harm breaks without harm: it is logged, counted, and goes no further."""

from __future__ import annotations

import asyncio
import logging

import pytest

from loadtrim_agent.common.error_boundary import ErrorBoundary


class Counted:
    """Counts, or breaks while it does."""

    def __init__(self, *, breaks: bool = False) -> None:
        self.errors: list[str] = []
        self._breaks = breaks

    def error(self, where: str) -> None:
        self.errors.append(where)
        if self._breaks:
            raise ZeroDivisionError


def broken(*args: object) -> None:
    raise ZeroDivisionError


async def broken_later() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("breaks", [False, True], ids=["counted", "and counting breaks too"])
async def test_a_call_that_raises_is_told_once_and_counted_each_time(
    breaks: bool, caplog: pytest.LogCaptureFixture
) -> None:
    counted = Counted(breaks=breaks)
    boundary = ErrorBoundary(counted)
    with caplog.at_level(logging.ERROR, "loadtrim"):
        for _ in range(3):
            boundary.call("metrics", broken, 1)
        boundary.call("http", broken)
    assert counted.errors == ["metrics", "metrics", "metrics", "http"]
    assert [message.partition(" broke")[0] for message in caplog.messages] == [
        "The agent's metrics",
        "The agent's http",
    ]


async def test_what_is_awaited_and_raises_is_counted() -> None:
    counted = Counted()
    await ErrorBoundary(counted).wait("stop", broken_later())
    assert counted.errors == ["stop"]


def test_an_error_is_told_with_its_trace_where_it_is_the_first_of_its_kind(caplog: pytest.LogCaptureFixture) -> None:
    """Another class, or another place, is another fault. Of a group it is the first error that counts."""
    boundary = ErrorBoundary(counted := Counted())
    with caplog.at_level(logging.DEBUG, "loadtrim"):
        for number in range(6):
            try:
                if number % 2:
                    broken()
                else:
                    raise ExceptionGroup("of a task group", [KeyError(number)])
            except Exception as error:
                boundary.contain("planning", error, "Broke at %d.", number)
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 2 + ["DEBUG"] * 4
    assert all(record.exc_info for record in caplog.records)
    assert counted.errors == ["planning"] * 6


async def test_a_cancellation_is_contained_by_nobody() -> None:
    counted = Counted()
    waiting = asyncio.create_task(ErrorBoundary(counted).wait("stop", asyncio.sleep(60.0)))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert counted.errors == []


def test_what_does_not_raise_is_called_with_its_arguments() -> None:
    counted, seen = Counted(), []
    ErrorBoundary(counted).call("metrics", seen.append, 7)
    assert (seen, counted.errors) == ([7], [])
