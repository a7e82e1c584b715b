"""Streams come again for user code, whatever becomes of the tasks that wait for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from loadtrim.aside import Gone
from loadtrim.coming_again import ComingAgain
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.partition_stream import Stream


class Slow(ComingAgain):
    """Each time what is committed is asked for until the test says so."""

    def __init__(self, gone: Gone) -> None:
        self.buffer = SimpleNamespace(closing=False)
        self.positions = SimpleNamespace(gone=gone)
        self.asked = 0
        self.answered = asyncio.Event()
        super().__init__(SimpleNamespace(buffer=self.buffer), self.positions)  # type: ignore[arg-type]

    async def _set_back(self, left: list[Any]) -> None:
        self.asked += 1
        await self.answered.wait()


@pytest.mark.looptime
@pytest.mark.parametrize("ends", [False, True], ids=["the program goes on", "it stops"])
async def test_whoever_cancels_all_tasks_leaves_nothing_aside_for_ever(*, ends: bool) -> None:
    """What was put aside stayed so, for all partitions, and neither paused() nor resume() knew of it."""
    stream, gone = Stream(Partition("t", 0), 1, 0, by_hand=True), Gone()
    gone.add([stream])
    again, come = Slow(gone), asyncio.Event()
    waiting = asyncio.create_task(again.come([stream], come.set))
    await asyncio.sleep(0.01)
    again.buffer.closing = ends
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.2)
    assert waiting.cancelled()
    assert (again.asked, come.is_set()) == ((1, True) if ends else (2, False))
    assert ends or stream in gone
    again.answered.set()
    await asyncio.sleep(0.01)
    assert come.is_set()
    assert stream not in gone


async def test_what_goes_anew_before_it_has_come_is_gone_still() -> None:
    """It was handed out behind what user code had forgotten: the end of the wait of before counted for it too."""
    stream, gone = Stream(Partition("t", 0), 1, 0, by_hand=True), Gone()
    gone.add([stream])
    before, anew = Slow(gone), Slow(gone)
    waiting = before.begin([stream], list)
    gone.discard(stream)  # it is set back, and others are waited for
    gone.add([stream])
    waiting_anew = anew.begin([stream], list)
    before.answered.set()
    await waiting
    assert stream in gone
    anew.answered.set()
    await waiting_anew
    assert stream not in gone
