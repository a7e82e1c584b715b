"""User code says itself which records are done: in whatever order, what lies below the first pending one is."""

from __future__ import annotations

import asyncio
import copy
import random
from typing import Any

import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.metering_task import unpack
from loadtrim_agent.delivery.partition_stream import Stream
from loadtrim_agent.delivery.record_buffer import RecordBuffer
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


async def test_a_first_call_that_is_cut_short_makes_done_what_a_longer_one_would() -> None:
    """Of the partitions that it asks for, and nothing that a task has begun to work on meanwhile."""
    buffer = handout_of(ONE, TWO)
    told = buffer.hand.telling
    batches = buffer.take_many((), None)
    calls = [asyncio.create_task(told.let_begin({ONE}))]
    await asyncio.sleep(0)
    calls[0].cancel()
    await asyncio.wait(calls)
    assert [(s.done, s.in_hand) for s in (buffer.streams[ONE], buffer.streams[TWO])] == [(3, None), (None, 2)]

    async def handle() -> None:
        assert told.work_on(batches[TWO][1])

    calls.append(asyncio.create_task(told.let_begin()))
    working = asyncio.create_task(handle())
    await asyncio.sleep(0)
    calls[1].cancel()
    await asyncio.wait([calls[1], working])
    assert (buffer.streams[TWO].done, buffer.streams[TWO].in_hand) == (0, 2)


async def test_after_many_calls_without_a_word_nobody_waits_for_one() -> None:
    told = handout_of(ONE).hand.telling
    for _ in range(UNDECIDED_CALLS):
        assert told.undecided
        await told.let_begin()
    assert not told.undecided


async def test_the_first_word_is_of_the_whole_batch_in_hand() -> None:
    """``done()`` returned True and nothing was committed before the next call; that made done what nobody told of."""
    buffer = handout_of(ONE, TWO)
    stream, other, told = buffer.streams[ONE], buffer.streams[TWO], buffer.hand.telling
    records = buffer.take_many((), None)[ONE]
    assert told.done(records[1])
    assert (stream.done, stream.in_hand) == (0, 2), "the first is not told of"
    assert (other.done, other.in_hand) == (0, 2), "nor anything of the other partition's"
    assert told.done(records[0])
    assert (stream.done, stream.in_hand) == (2, 2)
    assert not told.done(records[0])
    buffer.take_many((), None)
    assert (stream.done, stream.in_hand) == (2, 2), "the next call does not say it any more"
    assert told.work_on(records[2])
    assert told.done(records[2])
    assert (stream.done, stream.in_hand) == (3, None)
    assert (stream.take_finished(), len(stream.take_reported_done())) == ([], 3)


@pytest.mark.parametrize("at_once", [False, True])
async def test_the_first_word_after_a_seek_is_not_of_what_was_in_hand(at_once: bool) -> None:
    """It let the offset of the record in hand be committed, ahead of where user code had sought to."""
    buffer = handout_of(ONE)
    stream, told = buffer.streams[ONE], buffer.hand.telling
    record = buffer.take_many((), 2)[ONE][1] if at_once else [buffer.take_one(), buffer.take_one()][1]
    buffer.seek(stream, 0)
    assert not told.work_on(record)
    assert (stream.done, stream.in_hand) == (0, 1)
    stream.seeks_answered = stream.seeks
    stream.clear()
    buffer.feed(stream, chunk(ONE, 0))
    first = buffer.take_one()
    assert (first.offset, stream.done, stream.in_hand) == (0, 0, 0)
    assert told.done(first)
    assert (stream.done, stream.in_hand) == (1, None)


@pytest.mark.parametrize("at_once", [False, True])
async def test_the_first_word_after_a_run_or_a_batch_is_given_up_is_not_of_it(at_once: bool) -> None:
    buffer = handout_of(ONE)
    stream, told = buffer.streams[ONE], buffer.hand.telling
    record = buffer.take_many((), 2)[ONE][1] if at_once else [buffer.take_one(), buffer.take_one()][1]
    buffer.abandon()
    assert not told.done(record)
    assert stream.in_hand is None


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


async def test_what_was_given_up_is_not_in_hand_where_the_next_record_cannot_be_handed_out() -> None:
    """A rebalance with a plain listener waited for it as long as it may."""
    buffer = handout_of(ONE, value_deserializer=lambda value: 1 // (value == b"0"))
    stream, told = buffer.streams[ONE], buffer.hand.telling
    first = buffer.take_one()
    told.work_on(first)
    told.give_up(first)
    with pytest.raises(ZeroDivisionError):
        buffer.take_one()
    assert (stream.in_hand, buffer.hand.streams) == (None, [])


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


def comes_again(buffer: RecordBuffer) -> tuple[Stream, Stream]:
    """The partition is lost, and comes back at its second record. Returns the stream of before, and that of now."""
    lost = buffer.streams[ONE]
    lost.running = False
    buffer.remove(ONE)
    again = Stream(ONE, lost.acquisition_id + 1, 1)
    again.running = True
    buffer.put(again)
    buffer.feed(again, chunk(ONE, 1))
    return lost, again


@pytest.mark.parametrize("ends_first", ["lost", "again"])
async def test_a_record_that_comes_again_while_it_is_in_hand_is_told_by_its_object(ends_first: str) -> None:
    """The block around the new one counted for the old one, so the new one stayed pending: for good nothing above it
    was committed."""
    buffer = handout_of(ONE)
    told = buffer.hand.telling
    told.done(buffer.take_one())
    assert told.enter(before := buffer.take_one())
    lost, again = comes_again(buffer)
    assert told.enter(now := buffer.take_one())
    assert before.offset == now.offset
    if ends_first == "again":
        assert told.leave(now)
        assert (lost.in_hand, again.done, again.in_hand) == (1, 2, None)
        assert not told.leave(before), "it is another member's"
    else:
        assert not told.leave(before)
        assert (lost.in_hand, again.done, again.in_hand) == (None, 1, 1)
        assert told.leave(now)
    assert (lost.in_hand, again.done, again.in_hand) == (None, 2, None)


async def test_what_is_told_of_a_copy_is_of_both_hands_that_it_may_be_in() -> None:
    buffer = handout_of(ONE)
    told = buffer.hand.telling
    told.done(buffer.take_one())
    assert told.enter(copy.copy(before := buffer.take_one()))
    lost, again = comes_again(buffer)
    assert told.enter(copy.copy(now := buffer.take_one()))
    assert told.leave(copy.copy(now))
    assert (lost.in_hand, again.done, again.in_hand) == (1, 2, None)
    assert not told.leave(copy.copy(before))
    assert (lost.in_hand, again.done, again.in_hand) == (None, 2, None)
    assert not told.done(copy.copy(now))


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
    entries = stream.take_reported_done()
    assert [entry.stamp for entry in entries] == [1_000] * 3
    latencies, busies, timed, _ = unpack((), 10.0, entries)
    assert latencies == timed == [entry.done_at + 10.0 - 1.0 for entry in entries]
    assert busies == [entry.done_at - entry.taken_at for entry in entries]
    assert stream.gathered


async def test_whatever_the_order_nothing_is_done_ahead() -> None:
    """Against a model: done is what lies below the lowest offset that is not told. Before the first word it is what
    was handed out before the last call."""
    for seed in range(300):
        rng = random.Random(seed)
        buffer = handout_of(ONE)
        stream, telling = buffer.streams[ONE], buffer.hand.telling
        buffer.feed(stream, chunk(ONE, 3, 60))
        pending: dict[int, Any] = {}
        handed_out, begin = 0, rng.randint(0, 10)
        for step in range(100):
            if rng.random() < 0.5:
                records = buffer.take_many((), rng.randint(1, 5)).get(ONE, []) if rng.random() < 0.5 else []
                records = records or [record for record in (buffer.take_one(),) if record is not None]
                if not telling.begun:
                    pending.clear()
                pending |= {record.offset: record for record in records}
                handed_out = stream.position
            elif pending and step >= begin:
                record = pending[rng.choice(sorted(pending))]
                if rng.random() < 0.3:
                    assert telling.work_on(record), f"seed {seed}"
                else:
                    assert telling.done(record), f"seed {seed}"
                    del pending[record.offset]
            if telling.begun:
                assert stream.done == min(pending, default=handed_out), f"seed {seed}"
                assert stream.in_hand == max(pending, default=None), f"seed {seed}"


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
