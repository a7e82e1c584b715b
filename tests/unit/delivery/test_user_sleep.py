"""User code that waits for records: it sleeps, and is woken."""

from __future__ import annotations

import asyncio

import pytest

from loadtrim_agent.delivery import record_buffer
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.delivery.user_sleep import UserSleep
from unit.delivery.test_record_buffer import ONE, chunk, handout_of

pytestmark = pytest.mark.looptime
TIMEOUT_SECONDS = 1.0


def quiet() -> RecordBuffer:
    """Nothing to deliver."""
    buffer = handout_of(ONE)
    while buffer.take_one() is not None:
        pass
    return buffer


async def slept(buffer: RecordBuffer) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await buffer.wait(TIMEOUT_SECONDS)
    return loop.time() - began


async def test_all_that_sleep_are_woken() -> None:
    """With two tasks that iterate one consumer one of them slept on, for up to a second."""
    buffer = quiet()
    sleepers = [asyncio.create_task(slept(buffer)) for _ in range(2)]
    await asyncio.sleep(0.25)
    assert buffer.sleep.asleep
    buffer.feed(buffer.streams[ONE], chunk(ONE, 3))
    assert await asyncio.gather(*sleepers) == [0.25, 0.25]
    assert not buffer.sleep.asleep


async def test_one_that_wakes_by_its_time_leaves_the_other_asleep() -> None:
    sleep = UserSleep(asyncio.get_running_loop())
    short, long = (asyncio.create_task(sleep.until(lambda: False, seconds)) for seconds in (0.1, 5.0))
    await short
    assert sleep.asleep
    sleep.wake()
    await long
    assert asyncio.get_running_loop().time() == 0.1


async def test_records_that_wait_are_slept_for_while_there_is_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the call would look for records again and again at once, and get none."""
    buffer = handout_of(ONE)
    assert await slept(buffer) == 0.0
    monkeypatch.setattr(record_buffer, "boot_time", lambda: buffer.lease_until)
    assert await slept(buffer) == TIMEOUT_SECONDS
