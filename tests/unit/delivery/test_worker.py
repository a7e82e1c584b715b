"""Which task works on a record, and whether it is known to have ended."""

from __future__ import annotations

import asyncio

import pytest

from loadtrim_agent.common.waiting_tasks import waiting_for
from loadtrim_agent.delivery.worker import Worker


async def asked_by(*, fails: bool = False) -> Worker:
    """Return the worker of a task that has asked once and ended, and that no task waits for."""

    async def ask() -> None:
        made.append(Worker(asyncio.current_task()))
        if fails:
            raise ZeroDivisionError

    made: list[Worker] = []
    task = asyncio.create_task(ask())
    await asyncio.sleep(0)
    assert fails == (task.exception() is not None)
    return made[0]


async def test_of_a_task_that_asked_once_for_a_thread_nobody_knows_whether_it_has_ended() -> None:
    """``run_coroutine_threadsafe(consumer.getone(), loop)``: its record was handed out again beside the thread."""
    assert not (await asked_by()).is_over()


async def test_a_task_that_failed_works_on_nothing() -> None:
    assert (await asked_by(fails=True)).is_over()


async def test_a_task_that_has_asked_before_works_on_nothing_after_its_end() -> None:
    async def ask() -> Worker:
        return Worker(asyncio.current_task(), alone=True)

    worker = await asyncio.create_task(ask())
    assert worker.is_over()
    assert worker.at_work() is worker.task


@pytest.mark.parametrize("ours", [True, False], ids=["a task group's", "user code's"])
async def test_what_a_callback_of_user_code_holds_says_nothing(*, ours: bool) -> None:
    """A pool of workers whose end somebody waits for: each record was given up while it was worked on."""

    class Pool:
        def __init__(self) -> None:
            self.closed = asyncio.get_running_loop().create_future()

        def gone(self, task: object) -> None: ...

    pool, go_on = Pool(), asyncio.Event()
    waiting = asyncio.create_task(asyncio.wait_for(pool.closed, 5.0))
    task = asyncio.create_task(go_on.wait())
    if ours:
        Pool.gone.__module__ = "asyncio.taskgroups"
    task.add_done_callback(pool.gone)
    await asyncio.sleep(0)
    assert list(waiting_for(task)) == ([waiting] if ours else [])
    go_on.set()
    pool.closed.set_result(None)
    await asyncio.gather(waiting, task)
