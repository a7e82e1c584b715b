"""While the agent wants it, each turn is that of the partition whose next record is oldest."""

from __future__ import annotations

import pytest

from loadtrim_agent.common.clock import wall_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.oldest_first import OldestFirst
from loadtrim_agent.delivery.partition_stream import SLICE_RECORDS, Stream
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.kafka.fetch.chunk import Chunk, frame
from unit.kafka.fetch.batches import batch

from .test_record_buffer import ONE, THREE, TWO, handout_of

SECONDS = 10.0


def aged(partition: Partition, *ages: float, first: int = 0) -> Chunk:
    """Records that were written so many seconds ago."""
    now = wall_time()
    stamped = [(first + number, int((now - age) * 1000), b"") for number, age in enumerate(ages)]
    framed = frame(partition, first, batch(first, stamped), (), committed_only=False, check_crcs=True)
    assert framed is not None
    return framed


def buffer_of(ages: dict[Partition, tuple[float, ...]], records: int = 1, **fields: float) -> RecordBuffer:
    """A buffer with records of these ages that delivers the oldest first; round by round the last one is first."""
    buffer = handout_of(*reversed(ages))
    for partition, theirs in ages.items():
        buffer.streams[partition].chunks.clear()
        buffer.feed(buffer.streams[partition], aged(partition, *theirs))
    buffer.turns._leading.clear()
    buffer.turns.oldest_first = OldestFirst(records, SECONDS, **fields)
    return buffer


def partitions(buffer: RecordBuffer, count: int) -> list[int]:
    return [record.partition for record in (buffer.take_one() for _ in range(count)) if record is not None]


async def test_the_oldest_head_is_next() -> None:
    buffer = buffer_of({ONE: (5.0, 3.0, 1.0), TWO: (4.0, 2.0)})
    assert partitions(buffer, 6) == [0, 1, 0, 1, 0]


async def test_without_it_a_turn_is_a_slice() -> None:
    buffer = buffer_of({ONE: (5.0, 3.0, 1.0), TWO: (4.0, 2.0)})
    buffer.turns.oldest_first = None
    assert partitions(buffer, 6) == [1, 1, 0, 0, 0]


async def test_a_turn_has_so_many_records() -> None:
    buffer = buffer_of({ONE: (5.0, 3.0, 2.0, 1.0), TWO: (4.0, 3.5)}, records=2)
    assert partitions(buffer, 7) == [0, 0, 1, 1, 0, 0]


async def test_what_comes_meanwhile_is_in_the_order_too() -> None:
    buffer = buffer_of({ONE: (2.0, 1.0), TWO: (3.0,)})
    assert partitions(buffer, 1) == [1]
    buffer.feed(buffer.streams[TWO], aged(TWO, 1.5, first=1))
    assert partitions(buffer, 4) == [0, 1, 0]


async def test_a_turn_that_has_begun_round_by_round_ends_at_once() -> None:
    """It might be as long as the objective."""
    buffer = buffer_of({ONE: (4.0, 1.0), TWO: (5.0, 2.0, 1.5)})
    wish, buffer.turns.oldest_first = buffer.turns.oldest_first, None
    assert partitions(buffer, 1) == [1]
    assert buffer.turns.go_by_heads(wish)
    assert not buffer.turns.go_by_heads(wish)
    buffer.look_again()
    assert partitions(buffer, 5) == [1, 0, 1, 0], "one more of it, which is the new length of a turn"


@pytest.mark.parametrize("strange", [3_600.0, -3_600.0, 1e9], ids=["behind", "ahead", "none"])
async def test_a_producer_with_another_clock_keeps_nobody_from_being_delivered(strange: float) -> None:
    """Its records count as just so old as the limit: the others' are first when they are as old, and take turns."""
    buffer = buffer_of({ONE: (strange,) * 4, TWO: (SECONDS + 1.0, SECONDS + 1.0, 1.0)})
    assert partitions(buffer, 8) == [1, 0, 1, 0, 0, 0, 1]


async def test_what_is_late_already_makes_nothing_else_late() -> None:
    """A backlog of one partition came before all that was in time, until that was late as well."""
    buffer = buffer_of({ONE: (3.0 * SECONDS,) * 3, TWO: (0.8 * SECONDS, 0.3 * SECONDS)})
    assert partitions(buffer, 5) == [1, 0, 0, 0, 1]


async def test_own_clocks_that_are_off_are_set_right() -> None:
    """By 20 s behind the brokers, this host would take every record for one of the future, and all for equally old."""
    buffer = buffer_of({ONE: (-18.0, -19.0), TWO: (-17.0, -18.5)}, clock_offset_seconds=-20.0)
    assert partitions(buffer, 4) == [1, 0, 1, 0]


@pytest.mark.parametrize("why", ["stopped", "paused", "seeking", "elsewhere"])
async def test_what_may_not_be_delivered_keeps_nothing_back(why: str) -> None:
    buffer = buffer_of({ONE: (5.0,), TWO: (4.0, 3.0)})
    stream, wanted = buffer.streams[ONE], ()
    match why:
        case "stopped":
            stream.running = False
        case "paused":
            stream.paused = True
        case "seeking":
            stream.seeks += 1
        case _:
            wanted = (TWO,)
    assert [buffer.take_one(wanted) is not None for _ in range(3)] == [True, True, False]


async def test_bounds_come_before() -> None:
    buffer = buffer_of({ONE: (5.0, 4.0), TWO: (1.0, 1.0)})
    buffer.turns.bounds.bind(buffer.streams[TWO], 1)
    assert partitions(buffer, 2) == [1, 0]
    buffer.turns.bounds.lift(buffer.streams[TWO])
    assert partitions(buffer, 3) == [0, 1]


async def test_batches_begin_with_the_oldest() -> None:
    buffer = buffer_of({ONE: (5.0, 4.0), TWO: (2.0, 1.0), THREE: (6.0, 3.0)})
    taken = buffer.take_many((), 3)
    assert [(partition, len(records)) for partition, records in taken.items()] == [(THREE, 2), (ONE, 1)]
    taken = buffer.take_many((), 10)
    assert [(partition, len(records)) for partition, records in taken.items()] == [(ONE, 1), (TWO, 2)]


async def test_what_is_not_unpacked_yet_is_as_old_as_its_batch() -> None:
    """So many are unpacked at a time that this is seldom asked."""
    ages = [9.0 - number / 100 for number in range(SLICE_RECORDS + 6)]
    buffer = buffer_of({ONE: tuple(ages), TWO: (8.695, 1.0)})
    stream = buffer.streams[ONE]
    assert stream.head_stamp() == pytest.approx((wall_time() - 9.0) * 1000, abs=200)
    assert partitions(buffer, SLICE_RECORDS + 1) == [0] * 31 + [1] + [0] * 33
    assert stream.head_stamp() == pytest.approx((wall_time() - 9.0) * 1000, abs=200), "of its batch"
    assert partitions(buffer, 8) == [0] * 6 + [1]
    assert stream.head_stamp() == -1


async def test_a_new_acquisition_leads_with_one_turn() -> None:
    buffer = buffer_of({ONE: (5.0, 4.0)}, records=2)
    stream = Stream(TWO, 7, 0)
    stream.running = True
    buffer.put(stream)
    buffer.feed(stream, aged(TWO, 3.0, 2.0, 1.0))
    assert partitions(buffer, 6) == [1, 1, 0, 0, 1]
