"""Stopping a consumer with a record in hand: whose it is decides whether it is waited for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from loadtrim.last_record import abandon_unless_worked_on
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from unit.delivery.test_record_buffer import ONE, TWO, handout_of

Stop = Callable[[], Awaitable[None]]


def stop_of(buffer: RecordBuffer) -> Stop:
    async def stop() -> None:
        abandon_unless_worked_on(buffer, asyncio.current_task())

    return stop


async def in_a_task(stop: Stop) -> None:
    await asyncio.create_task(stop())  # type: ignore[arg-type]


async def with_a_limit(stop: Stop) -> None:
    await asyncio.wait_for(stop(), 5.0)


async def gathered(stop: Stop) -> None:
    await asyncio.gather(stop(), asyncio.sleep(0))


async def shielded(stop: Stop) -> None:
    await asyncio.shield(stop())


async def waited_for(stop: Stop) -> None:
    await asyncio.wait([asyncio.create_task(stop())])  # type: ignore[arg-type]


async def in_a_group(stop: Stop) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(stop())  # type: ignore[arg-type]


async def gathered_with_a_limit(stop: Stop) -> None:
    async def shut_down() -> None:
        await asyncio.gather(stop(), asyncio.sleep(0))

    await asyncio.wait_for(shut_down(), 5.0)


async def shielded_with_a_limit(stop: Stop) -> None:
    await asyncio.wait_for(asyncio.shield(stop()), 5.0)


async def in_a_task_of_a_task(stop: Stop) -> None:
    await asyncio.create_task(in_a_task(stop))


async def as_completed(stop: Stop) -> None:
    for each in asyncio.as_completed([stop(), asyncio.sleep(0)]):
        await each


async def in_a_group_of_anyio(stop: Stop) -> None:
    """As Starlette and FastAPI end."""
    anyio = pytest.importorskip("anyio")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)


@pytest.mark.parametrize(
    "way",
    [
        lambda stop: stop(),
        in_a_task,
        with_a_limit,
        gathered,
        shielded,
        waited_for,
        in_a_group,
        gathered_with_a_limit,
        shielded_with_a_limit,
        in_a_task_of_a_task,
        as_completed,
        in_a_group_of_anyio,
    ],
)
async def test_the_task_that_took_it_stops_the_consumer(way: Any) -> None:
    """It waits for the stop, so it will not go on with the record: waiting for it would last until the limit."""
    buffer = handout_of(ONE)
    assert buffer.take_one() is not None
    await way(stop_of(buffer))
    assert (buffer.streams[ONE].in_hand, buffer.streams[ONE].done) == (None, None)


@pytest.mark.parametrize("way", ["take_one", "take_many"])
async def test_a_task_that_works_on_it_keeps_it_until_its_next_call(way: str) -> None:
    buffer = handout_of(ONE)
    taken, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        assert buffer.take_one() if way == "take_one" else buffer.take_many((), 1)
        taken.set()
        await go_on.wait()
        buffer.closing = True
        assert buffer.take_one() is None

    task = asyncio.create_task(work())
    await taken.wait()
    await stop_of(buffer)()
    assert buffer.streams[ONE].in_hand == 0
    go_on.set()
    await task
    assert (buffer.streams[ONE].in_hand, buffer.streams[ONE].done) == (None, 1)


@pytest.mark.parametrize("end", ["returns", "raises", "is cancelled", "ended before"])
async def test_a_task_that_ends_gives_it_up(end: str) -> None:
    buffer = handout_of(ONE)
    taken, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        assert buffer.take_one() is not None
        taken.set()
        await go_on.wait()
        if end == "raises":
            raise ZeroDivisionError

    task = asyncio.create_task(work())
    await taken.wait()
    if end != "ended before":
        await stop_of(buffer)()
        assert buffer.streams[ONE].in_hand == 0
    if end == "is cancelled":
        task.cancel()
    go_on.set()
    with contextlib.suppress(ZeroDivisionError, asyncio.CancelledError):
        await task
    if end == "ended before":
        await stop_of(buffer)()
    await asyncio.sleep(0)
    assert (buffer.streams[ONE].in_hand, buffer.streams[ONE].done) == (None, None)


async def test_a_stop_in_a_task_of_its_own_waits_while_the_other_goes_on() -> None:
    """The iteration begins the stop and goes on with its record: nobody else is to be handed that meanwhile."""
    buffer = handout_of(ONE)
    assert buffer.take_one() is not None
    stopping = asyncio.create_task(stop_of(buffer)())  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert stopping.done()
    assert buffer.streams[ONE].in_hand == 0


async def test_what_another_task_has_of_another_partition_is_not_given_up_with_it() -> None:
    """A task for each partition: the last one to take ended, and what the others worked on went to another member."""
    buffer = handout_of(ONE, TWO)
    taken, go_on = asyncio.Event(), asyncio.Event()

    async def work(partition: Partition, ends: asyncio.Event) -> None:
        assert buffer.take_one((partition,))
        buffer.hand.taken(asyncio.current_task())
        if all(stream.in_hand == 0 for stream in buffer.streams.values()):
            taken.set()
        await ends.wait()

    soon = asyncio.Event()
    long, short = (asyncio.create_task(work(*each)) for each in ((ONE, go_on), (TWO, soon)))
    await taken.wait()
    await stop_of(buffer)()
    assert [buffer.streams[each].in_hand for each in (ONE, TWO)] == [0, 0]
    soon.set()
    await short
    await asyncio.sleep(0)
    assert [buffer.streams[each].in_hand for each in (ONE, TWO)] == [0, None]
    go_on.set()
    await long
    await asyncio.sleep(0)
    assert buffer.streams[ONE].in_hand is None
