"""A stream with a bound is delivered before all others and not beyond it: one by one, in batches, in the quick way."""

from __future__ import annotations

import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.partition_stream import SLICE_RECORDS, Stream
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.kafka.fetch.chunk import Chunk, frame
from unit.kafka.fetch.batches import batch

from .test_record_buffer import ONE, TWO, chunk, handout_of


def bind(buffer: RecordBuffer, partition: Partition, until: int) -> Stream:
    stream = buffer.streams[partition]
    buffer.turns.bounds.bind(stream, until)
    stream.listening = True
    buffer.look_again()
    return stream


def told_of(buffer: RecordBuffer) -> list[Stream]:
    """Streams that the agent is told of, because nothing of them is in hand."""
    told: list[Stream] = []
    buffer.agent.drained = told.append  # type: ignore[method-assign]
    return told


def next_ones(buffer: RecordBuffer, count: int) -> list[tuple[int, int]]:
    records = [buffer.take_one() for _ in range(count)]
    return [(record.partition, record.offset) for record in records if record is not None]


def with_gap(partition: Partition) -> Chunk:
    """Offsets 3, 7 and 8: what lay between was compacted away."""
    data = batch(3, [(n, 1_000, b"") for n in (3, 7, 8)])
    framed = frame(partition, 3, data, (), committed_only=False, check_crcs=True)
    assert framed is not None
    return framed


async def test_it_is_delivered_first_and_up_to_its_bound() -> None:
    buffer = handout_of(ONE, TWO)
    assert next_ones(buffer, 1) == [(1, 0)], "the newest is first"
    bind(buffer, ONE, 2)
    assert next_ones(buffer, 5) == [(0, 0), (0, 1), (1, 1), (1, 2)]


async def test_a_run_that_goes_on_ends_for_it() -> None:
    """The quick way to the next record looks at no bound: it is left."""
    buffer = handout_of(ONE, TWO)
    buffer.feed(buffer.streams[TWO], chunk(TWO, 3, SLICE_RECORDS))
    next_ones(buffer, 3)
    bind(buffer, ONE, 1)
    assert next_ones(buffer, 2) == [(0, 0), (1, 3)]


async def test_a_run_of_its_own_ends_at_it() -> None:
    buffer = handout_of(ONE)
    buffer.feed(buffer.streams[ONE], chunk(ONE, 3, SLICE_RECORDS))
    next_ones(buffer, 4)
    bind(buffer, ONE, 9)
    assert next_ones(buffer, 9) == [(0, n) for n in range(4, 9)]


async def test_of_two_the_first_is_first() -> None:
    buffer = handout_of(ONE, TWO)
    bind(buffer, ONE, 2)
    bind(buffer, TWO, 1)
    assert next_ones(buffer, 4) == [(0, 0), (0, 1), (1, 0)]


async def test_while_nothing_of_it_is_there_others_have_their_turn() -> None:
    buffer = handout_of(ONE, TWO)
    buffer.streams[ONE].chunks.clear()
    bind(buffer, ONE, 9)
    assert next_ones(buffer, 1) == [(1, 0)]
    buffer.feed(buffer.streams[ONE], chunk(ONE, 0))
    assert next_ones(buffer, 4) == [(0, 0), (0, 1), (0, 2), (1, 1)]


@pytest.mark.parametrize("why", ["stopped", "paused"])
async def test_what_may_not_be_delivered_is_not_first(why: str) -> None:
    buffer = handout_of(ONE, TWO)
    stream = bind(buffer, ONE, 2)
    stream.running, stream.paused = why != "stopped", why == "paused"
    assert next_ones(buffer, 2) == [(1, 0), (1, 1)]


async def test_while_user_code_seeks_in_it_others_have_their_turn() -> None:
    """Nothing was delivered until the agent had carried the seek out, and user code did not sleep meanwhile."""
    buffer = handout_of(ONE, TWO)
    stream = bind(buffer, ONE, 2)
    buffer.seek(stream, 0)
    assert buffer._ready(())
    assert next_ones(buffer, 4) == [(1, 0), (1, 1), (1, 2)]


async def test_the_agent_is_told_at_the_bound_and_not_of_each_record() -> None:
    buffer = handout_of(ONE, TWO)
    stream, told = bind(buffer, ONE, 2), told_of(buffer)
    buffer.take_one((ONE,))
    buffer.take_one((ONE,))
    assert told == []
    assert buffer.take_one((ONE,)) is None
    assert told == [stream]
    assert (stream.in_hand, stream.done) == (None, 2)
    assert buffer.turns.bounds.reached(stream)


async def test_a_stop_meanwhile_is_told_at_once() -> None:
    buffer = handout_of(ONE, TWO)
    stream, told = bind(buffer, ONE, 3), told_of(buffer)
    buffer.take_one()
    buffer.turns.bounds.lift(stream)
    stream.running = False
    assert next_ones(buffer, 1) == [(1, 0)]
    assert told == [stream]


async def test_a_gap_at_the_bound_is_passed_over() -> None:
    """The record behind the gap lies beyond the bound; that it is the next one is known when it is unpacked."""
    buffer = handout_of(ONE)
    buffer.feed(buffer.streams[ONE], with_gap(ONE))
    stream, told = bind(buffer, ONE, 6), told_of(buffer)
    assert next_ones(buffer, 6) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert told[-1] is stream
    assert buffer.turns.bounds.reached(stream)
    buffer.turns.bounds.lift(stream)
    assert next_ones(buffer, 3) == [(0, 7), (0, 8)]


@pytest.mark.parametrize("gap", [False, True])
async def test_a_batch_ends_at_the_bound(gap: bool) -> None:
    """What is in hand with it would be waited for: nothing else is in the batch either."""
    buffer = handout_of(ONE, TWO)
    buffer.feed(buffer.streams[ONE], with_gap(ONE) if gap else chunk(ONE, 3, 5))
    bind(buffer, ONE, 6)
    batches = [buffer.take_many((), 100) for _ in range(3)]
    first = [record.offset for record in batches[0][ONE]]
    more = [record.offset for record in batches[1].get(ONE, [])]
    assert first + more == ([0, 1, 2, 3] if gap else [0, 1, 2, 3, 4, 5])
    assert TWO not in batches[0]
    assert TWO in {**batches[1], **batches[2]}


async def test_nobody_waits_in_vain_at_a_bound() -> None:
    """User code that asks for records sleeps where nothing may be delivered: it would spin."""
    buffer = handout_of(ONE)
    bind(buffer, ONE, 1)
    assert next_ones(buffer, 2) == [(0, 0)]
    assert not buffer._ready(())
    buffer.turns.bounds.lift(buffer.streams[ONE])
    assert buffer._ready(())


async def test_a_bound_behind_is_reached_at_once() -> None:
    buffer = handout_of(ONE)
    next_ones(buffer, 2)
    stream = bind(buffer, ONE, 0)
    assert buffer.turns.bounds.reached(stream)
    assert next_ones(buffer, 1) == []
    assert stream.done == 2


async def test_without_bounds_nothing_is_asked_for_them() -> None:
    """The way of nearly all records: a mapping that is empty."""
    buffer = handout_of(ONE, TWO)
    bounds = buffer.turns.bounds
    assert not bounds.until
    stream = bind(buffer, ONE, 2)
    assert bounds.holds(stream)
    bounds.lift(stream)
    bounds.lift(stream)
    assert not bounds.until
    assert not bounds.reached(stream)
    assert bounds.below(stream, 7) == 7


async def test_a_bound_set_before_a_batch_that_was_announced_leaves_nothing_in_hand() -> None:
    """The agent's thread bound it at its next record, between the announcement and the batch."""
    buffer = handout_of(ONE)
    stream, announce = buffer.streams[ONE], buffer._announce

    def racing(stream: Stream, offset: int) -> bool:
        announced = announce(stream, offset)
        bind(buffer, ONE, stream.position)
        return announced

    buffer._announce = racing  # type: ignore[method-assign]
    told = told_of(buffer)
    assert buffer.take_many((), None) == {}
    assert stream.in_hand is None
    assert stream in told
    buffer._announce = announce  # type: ignore[method-assign]
    buffer.turns.bounds.lift(stream)
    buffer.look_again()
    assert [record.offset for record in buffer.take_many((), None)[ONE]] == [0, 1, 2]
