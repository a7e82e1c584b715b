"""A call in a daemon thread: its outcome reaches the loop, and one that hangs holds up nobody."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from loadtrim_agent.common.daemon_call import DaemonCall, call_in_daemon

WAIT_SECONDS = 10.0


async def ended(call: DaemonCall[bool]) -> None:
    """Wait until its thread is over, and what it told the loop has been heard."""
    await asyncio.to_thread(call._thread.join, WAIT_SECONDS)
    assert not call.runs
    await asyncio.sleep(0)


async def test_what_it_returns_and_raises_is_the_outcome() -> None:
    assert await call_in_daemon(lambda: 7, "seven") == 7

    def break_down() -> int:
        raise ZeroDivisionError("by zero")

    with pytest.raises(ZeroDivisionError, match="by zero"):
        await call_in_daemon(break_down, "zero")


async def test_it_runs_in_a_thread_of_its_name_that_nobody_joins() -> None:
    thread = await call_in_daemon(threading.current_thread, "look")
    assert (thread.name, thread.daemon) == ("loadtrim-look", True)


async def test_the_loop_goes_on_meanwhile() -> None:
    released = threading.Event()
    call = asyncio.create_task(call_in_daemon(lambda: released.wait(WAIT_SECONDS), "wait"))
    await asyncio.sleep(0.01)
    assert not call.done()
    released.set()
    assert await call is True


async def test_a_wait_that_is_cancelled_ends_at_once_and_hears_no_more_of_it() -> None:
    released = threading.Event()
    call: DaemonCall[bool] = DaemonCall(lambda: released.wait(WAIT_SECONDS), "wait")
    call.start()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await call.outcome
    assert call.runs
    released.set()
    await ended(call)
    assert call.outcome.cancelled()


async def test_one_that_was_given_up_stays_so() -> None:
    released = threading.Event()
    call: DaemonCall[bool] = DaemonCall(lambda: released.wait(WAIT_SECONDS), "wait")
    call.start()
    call.give_up(ConnectionAbortedError("enough"))
    call.give_up(ValueError("again"))
    released.set()
    await ended(call)
    with pytest.raises(ConnectionAbortedError, match="enough"):
        await call.outcome


def test_the_end_of_its_loop_does_not_wait_for_it() -> None:
    """An executor's thread would be joined here."""
    released = threading.Event()

    async def main() -> None:
        call: DaemonCall[bool] = DaemonCall(lambda: released.wait(WAIT_SECONDS), "wait")
        call.start()

    began = time.monotonic()
    asyncio.run(main())
    took = time.monotonic() - began
    released.set()
    assert took < WAIT_SECONDS / 4


def test_the_end_of_the_process_does_not_wait_for_it() -> None:
    program = """
import asyncio, time
from loadtrim_agent.common.daemon_call import DaemonCall
async def main():
    DaemonCall(lambda: time.sleep(300), "sleep").start()
asyncio.run(main())
print("done")
"""
    ended = subprocess.run([sys.executable, "-c", program], check=True, timeout=WAIT_SECONDS, capture_output=True)
    assert ended.stdout == b"done\n"
