"""What is told of records by wrong callers, at wrong times and in wrong threads changes nothing, and says so."""

from __future__ import annotations

import asyncio
import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from loadtrim.work import Untold, Work, Worked
from unit.delivery.test_record_buffer import ONE, TWO, handout_of


def worked_of(buffer: Any, *, alive: bool = True) -> Worked:
    link: Any = SimpleNamespace(buffer=buffer, thread_alive=alive)
    return Worked(link, asyncio.get_running_loop())


@pytest.mark.parametrize("what", [b"value", None, 7, ("topic", 0, 1)])
async def test_only_records_can_be_told_of(what: Any) -> None:
    for target in (worked_of(handout_of(ONE)), Untold()):
        for tell in (target.work_on, target.enter, target.leave, target.done, target.give_up):
            with pytest.raises(TypeError, match="is no record"):
                tell(what)


async def test_a_copy_of_a_record_will_do() -> None:
    """A pool of processes returns one."""
    buffer = handout_of(ONE)
    record = pickle.loads(pickle.dumps(buffer.take_one()))
    assert worked_of(buffer).done(record)
    assert (buffer.streams[ONE].done, buffer.streams[ONE].in_hand) == (1, None)


async def test_before_the_start_nothing_is_known() -> None:
    record = handout_of(ONE).take_one()
    assert not worked_of(None).done(record)


async def test_a_record_of_another_partition_or_topic_is_none_of_this_consumer() -> None:
    buffer, other = handout_of(ONE), handout_of(TWO)
    record, foreign = buffer.take_one(), other.take_one()
    worked = worked_of(buffer)
    assert not worked.done(foreign)
    stream = buffer.streams[ONE]
    assert not buffer.hand.telling.begun, "a program that never told of its own would commit nothing any more"
    assert (stream.done, stream.in_hand) == (None, 0)
    assert worked.done(record)
    assert (stream.done, stream.in_hand) == (1, None)


async def test_after_the_stop_nothing_is_taken() -> None:
    """It returned True, and nobody committed it."""
    buffer = handout_of(ONE)
    record = buffer.take_one()
    assert not worked_of(buffer, alive=False).done(record)


async def test_with_the_agent_off_blocks_do_nothing() -> None:
    record = handout_of(ONE).take_one()
    async with Work(Untold(), record) as same:
        assert same is record
    assert not Untold().done(record)


async def test_a_task_that_is_cancelled_in_its_block_leaves_the_record_undone() -> None:
    buffer = handout_of(ONE)
    worked, stream = worked_of(buffer), buffer.streams[ONE]
    first = buffer.take_one()

    async def handle() -> None:
        async with Work(worked, first):
            await asyncio.Event().wait()

    task = asyncio.create_task(handle())
    await asyncio.sleep(0)
    second = buffer.take_one()
    assert worked.done(second)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (stream.done, stream.in_hand) == (0, None), "nothing from it on is committed, and nobody waits for it"


async def test_blocks_within_and_after_each_other_count_once() -> None:
    buffer = handout_of(ONE)
    worked, stream = worked_of(buffer), buffer.streams[ONE]
    record = buffer.take_one()
    work = Work(worked, record)
    async with work, Work(worked, record):
        ...
    async with work:
        ...
    assert (stream.done, stream.in_hand) == (1, None)
    assert not worked.done(record)


async def test_a_record_that_several_blocks_are_around_is_done_when_the_last_has_ended() -> None:
    """Two tasks worked on one record: the end of the first one's block committed it under the other."""
    buffer = handout_of(ONE)
    worked, stream = worked_of(buffer), buffer.streams[ONE]
    record = buffer.take_one()
    async with Work(worked, record):
        async with Work(worked, record):
            ...
        assert (stream.done, stream.in_hand) == (0, 0)
        with pytest.raises(ValueError, match="cannot"):
            async with Work(worked, record):
                raise ValueError("cannot")
        assert (stream.done, stream.in_hand) == (0, 0), "a leave waits for the block that goes on"
    assert (stream.done, stream.in_hand) == (1, None)


async def test_of_several_blocks_around_a_record_the_end_of_the_last_counts() -> None:
    buffer = handout_of(ONE)
    worked, stream = worked_of(buffer), buffer.streams[ONE]
    record = buffer.take_one()

    async def fail() -> None:
        async with Work(worked, record):
            async with Work(worked, record):
                ...
            raise ValueError("cannot")

    with pytest.raises(ValueError, match="cannot"):
        await fail()
    assert (stream.done, stream.in_hand) == (0, None)
    async with Work(worked, record):
        ...
    assert (stream.done, stream.in_hand) == (1, None), "of blocks that have ended nothing is kept"


async def test_to_say_that_a_record_is_done_counts_within_its_blocks_too() -> None:
    buffer = handout_of(ONE)
    worked, stream = worked_of(buffer), buffer.streams[ONE]
    record = buffer.take_one()
    async with Work(worked, record), Work(worked, record):
        assert worked.done(record)
        assert (stream.done, stream.in_hand) == (1, None)
    assert (stream.done, stream.in_hand) == (1, None)


async def test_another_thread_tells_in_the_loop() -> None:
    buffer = handout_of(ONE)
    worked, stream = worked_of(buffer), buffer.streams[ONE]
    record = buffer.take_one()
    assert await asyncio.to_thread(worked.done, record)
    await asyncio.sleep(0)
    assert (stream.done, stream.in_hand) == (1, None)


def test_when_the_loop_is_closed_nothing_is_taken() -> None:
    """A pool's thread that ended after the program's loop raised RuntimeError."""

    async def begin() -> tuple[Worked, Any]:
        buffer = handout_of(ONE)
        return worked_of(buffer), buffer.take_one()

    worked, record = asyncio.run(begin())
    assert not worked.done(record)
