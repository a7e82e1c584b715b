"""Streams come again for user code, whatever becomes of the tasks that wait for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from loadtrim.coming_again import ComingAgain


class Slow(ComingAgain):
    """Each time what is committed is asked for until the test says so."""

    def __init__(self) -> None:
        self.buffer = SimpleNamespace(closing=False)
        self.positions = SimpleNamespace(gone={"stream"})
        self.asked = 0
        self.answered = asyncio.Event()
        super().__init__(SimpleNamespace(buffer=self.buffer), self.positions)  # type: ignore[arg-type]

    async def _set_back(self, left: list[Any]) -> None:
        assert left == ["stream"]
        self.asked += 1
        await self.answered.wait()


@pytest.mark.looptime
@pytest.mark.parametrize("ends", [False, True], ids=["the program goes on", "it stops"])
async def test_whoever_cancels_all_tasks_leaves_nothing_aside_for_ever(*, ends: bool) -> None:
    """What was put aside stayed so, for all partitions, and neither paused() nor resume() knew of it."""
    again, come = Slow(), asyncio.Event()
    waiting = asyncio.create_task(again.come(["stream"], come.set))  # type: ignore[list-item]
    await asyncio.sleep(0.01)
    again.buffer.closing = ends
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.2)
    assert waiting.cancelled()
    assert (again.asked, come.is_set()) == ((1, True) if ends else (2, False))
    assert ends or again.positions.gone == {"stream"}
    again.answered.set()
    await asyncio.sleep(0.01)
    assert come.is_set()
    assert again.positions.gone == set()
