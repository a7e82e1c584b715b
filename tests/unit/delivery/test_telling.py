"""User code says itself which records are done: in whatever order, what lies below the first pending one is."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.metering_task import unpack
from loadtrim_agent.delivery.telling import UNDECIDED_CALLS

from .test_record_buffer import ONE, TWO, chunk, handout_of


class Owner:
    """Hears what the agent would."""

    def __init__(self) -> None:
        self.drains: list[Partition] = []

    def drained(self, stream: Any) -> None:
        self.drains.append(stream.partition)

    def refill(self, stream: Any) -> None: ...

    def refetch(self, stream: Any, offset: int) -> None: ...


async def test_what_is_below_the_first_pending_record_is_done() -> None:
    buffer = handout_of(ONE)
    stream, told = buffer.streams[ONE], buffer.hand.telling
    first = buffer.take_one()
    assert told.work_on(first)
    second, third = buffer.take_one(), buffer.take_one()
    assert (stream.done, stream.in_hand) == (0, 2)
    assert told.done(second)
    assert (stream.done, stream.in_hand) == (0, 2), "the first is still worked on"
    assert told.done(first)
    assert (stream.done, stream.in_hand) == (2, 2)
    assert told.done(third)
    assert (stream.done, stream.in_hand) == (3, None)
    assert buffer.take_one() is None


async def test_the_first_calls_let_a_task_begin_that_was_made_of_a_record() -> None:
    """A loop that makes a task of each record asks for several before the first task begins."""
    buffer = handout_of(ONE)
    stream, told = buffer.streams[ONE], buffer.hand.telling

    async def handle(record: Any) -> None:
        assert told.work_on(record)
        await asyncio.sleep(0.01)
        assert told.done(record)

    tasks = []
    for _ in range(3):
        await told.let_begin()
        tasks.append(asyncio.create_task(handle(buffer.take_one())))
    await told.let_begin()
    assert buffer.take_one() is None
    assert (stream.done, stream.in_hand) == (0, 2)
    await asyncio.gather(*tasks)
    assert (stream.done, stream.in_hand) == (3, None)


async def test_after_many_calls_without_a_word_nobody_waits_for_one() -> None:
    told = handout_of(ONE).hand.telling
    for _ in range(UNDECIDED_CALLS):
        assert told.undecided
        await told.let_begin()
    assert not told.undecided


async def test_a_batch_before_the_first_word_is_in_hand_until_the_next_call() -> None:
    """Its records are worked on one after the other: those that are not begun are not done."""
    buffer = handout_of(ONE)
    stream, told = buffer.streams[ONE], buffer.hand.telling
    records = buffer.take_many((), None)[ONE]
    for record in records[:2]:
        assert told.work_on(record)
        assert told.done(record)
        assert (stream.done, stream.in_hand) == (None, 2)
    assert told.work_on(records[2])
    buffer.take_many((), None)
    assert (stream.done, stream.in_hand) == (2, 2)
    assert told.done(records[2])
    assert (stream.done, stream.in_hand) == (3, None)


async def test_told_twice_or_never_handed_out_is_no_news() -> None:
    buffer = handout_of(ONE)
    told = buffer.hand.telling
    first, second = buffer.take_one(), buffer.take_one()
    assert told.done(second), "the last is in hand"
    assert not told.done(second)
    assert not told.work_on(second)
    assert not told.done(first), "by the rule of the next call"
    third = buffer.take_one()
    assert third.offset == 2
    foreign = next(iter(_records(chunk(ONE, 7))))
    for tell in (told.done, told.work_on, told.give_up):
        assert not tell(foreign)
    assert buffer.streams[ONE].done == 2


def _records(of: Any) -> list[Any]:
    from loadtrim_agent.kafka.fetch.chunk import Reader

    return list(Reader(of).read(10))


async def test_a_record_that_is_given_up_is_not_done_and_not_in_hand() -> None:
    """The end does not wait for it, nothing from it on is committed, and it may be tried again."""
    buffer = handout_of(ONE)
    stream, told = buffer.streams[ONE], buffer.hand.telling
    first = buffer.take_one()
    told.work_on(first)
    second = buffer.take_one()
    assert told.give_up(first)
    assert (stream.done, stream.in_hand) == (0, 1)
    assert told.done(second)
    assert (stream.done, stream.in_hand, stream.position) == (0, None, 2)
    assert told.work_on(first)
    assert (stream.done, stream.in_hand) == (0, 0)
    assert told.done(first)
    assert (stream.done, stream.in_hand) == (2, None)


async def test_the_agent_hears_when_nothing_is_pending_any_more() -> None:
    buffer = handout_of(ONE, TWO)
    owner = Owner()
    buffer.agent.owner = owner
    told = buffer.hand.telling
    records = [record for rows in buffer.take_many((), 6).values() for record in rows]
    for record in records:
        told.work_on(record)
    assert buffer.take_many((), None) == {}
    for stream in buffer.streams.values():
        stream.running, stream.listening = False, True
    for record in records[:-1]:
        told.done(record)
    await asyncio.sleep(0)
    assert set(owner.drains) == {TWO}, "of the other one the last is worked on"
    told.done(records[-1])
    await asyncio.sleep(0)
    assert set(owner.drains) == {ONE, TWO}
    assert buffer.hand.streams == []


async def test_a_lost_partition_is_in_hand_until_its_records_are_told() -> None:
    buffer = handout_of(ONE)
    stream, told = buffer.streams[ONE], buffer.hand.telling
    told.work_on(first := buffer.take_one())
    stream.running = False
    buffer.remove(ONE)
    assert stream.in_hand == 0
    assert not told.done(first), "it is another member's"
    assert stream.in_hand is None
    assert not told.done(first)


async def test_a_seek_forgets_what_is_pending() -> None:
    buffer = handout_of(ONE)
    stream, told = buffer.streams[ONE], buffer.hand.telling
    told.work_on(first := buffer.take_one())
    buffer.seek(stream, 1)
    assert (stream.done, stream.in_hand) == (1, None)
    assert not told.done(first)
    assert stream.done == 1


async def test_stop_leaves_to_tasks_what_they_work_on() -> None:
    buffer = handout_of(ONE)
    stream, told = buffer.streams[ONE], buffer.hand.telling
    told.work_on(first := buffer.take_one())
    buffer.abandon()
    assert stream.in_hand == 0
    told.done(first)
    assert (stream.done, stream.in_hand) == (1, None)


async def test_time_in_hand_is_measured_for_each_record() -> None:
    buffer = handout_of(ONE)
    stream, told = buffer.streams[ONE], buffer.hand.telling
    told.done(buffer.take_one())
    second, third = buffer.take_one(), buffer.take_one()
    assert told.done(third)
    assert told.done(second)
    assert not stream.gathered
    entries = stream.take_told()
    assert [entry.stamp for entry in entries] == [1_000] * 3
    latencies, busies, timed = unpack((), 10.0, entries)
    assert latencies == timed == [entry.done_at + 10.0 - 1.0 for entry in entries]
    assert busies == [entry.done_at - entry.taken_at for entry in entries]
    assert stream.gathered


async def test_whatever_the_order_nothing_is_done_ahead() -> None:
    """Against a model: done is what lies below the lowest offset that is not told."""
    for seed in range(200):
        rng = random.Random(seed)
        buffer = handout_of(ONE)
        stream = buffer.streams[ONE]
        buffer.feed(stream, chunk(ONE, 3, 30))
        pending: dict[int, Any] = {}
        handed_out = 0
        told: set[int] = set()
        for _ in range(100):
            if rng.random() < 0.5 and (record := buffer.take_one()) is not None:
                pending[record.offset], handed_out = record, record.offset + 1
                buffer.hand.telling.work_on(record)
            elif pending:
                offset = rng.choice(sorted(pending))
                assert buffer.hand.telling.done(pending.pop(offset))
                told.add(offset)
            if handed_out and buffer.hand.telling.begun and not stream.stretching:
                expected = next(offset for offset in range(handed_out + 1) if offset not in told)
                assert stream.done == min(expected, handed_out), f"seed {seed}"
                assert (stream.in_hand is None) == (not pending), f"seed {seed}"


async def test_time_in_hand_is_known_while_it_lasts() -> None:
    """A record of minutes was counted when it was done: nothing for a while, then 400 %."""
    buffer = handout_of(ONE)
    stream, told = buffer.streams[ONE], buffer.hand.telling
    assert stream.open_work(0.0) == (0, 0.0)
    first = buffer.take_one()
    began = stream.times[-1]
    assert stream.open_work(began + 2.0) == (1, pytest.approx(2.0))
    told.work_on(first)
    second = buffer.take_one()
    records, seconds = stream.open_work(began + 5.0)
    assert (records, seconds) == (2, pytest.approx(10.0, abs=0.5))
    told.give_up(first)
    assert stream.open_work(began + 5.0)[0] == 1
    told.work_on(first)
    told.done(first)
    told.done(second)
    assert stream.open_work(began + 5.0) == (0, pytest.approx(0.0, abs=1e-6))
