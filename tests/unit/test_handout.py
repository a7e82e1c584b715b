"""The hand-out while the agent goes on feeding."""

from __future__ import annotations

import asyncio
from typing import Any

from loadtrim_agent.clock import boot_time
from loadtrim_agent.core.model import Partition
from loadtrim_agent.handout import Handout, Stream
from loadtrim_agent.kafka.fetch.chunk import Chunk, frame

from .kafka.fetch.batches import batch

ONE, TWO, THREE = Partition("topic", 0), Partition("topic", 1), Partition("topic", 2)


def chunk(partition: Partition, first: int, count: int = 3) -> Chunk:
    data = batch(first, [(n, 1_000, str(n).encode()) for n in range(first, first + count)])
    framed = frame(partition, first, data, (), committed_only=False, check_crcs=True)
    assert framed is not None
    return framed


def handout_of(*partitions: Partition, value_deserializer: Any = None) -> Handout:
    handout = Handout(
        asyncio.get_running_loop(),
        lambda call, *args: call(*args),
        refill=lambda stream: None,
        refetch=lambda stream, offset: None,
        drained=lambda stream: None,
        value_deserializer=value_deserializer,
    )
    handout.lease_until = boot_time() + 1_000.0
    for number, partition in enumerate(partitions):
        stream = Stream(partition, number, 0)
        stream.running = True
        handout.put(stream)
        handout.feed(stream, chunk(partition, 0))
    return handout


async def test_what_is_fetched_during_getmany_replaces_nothing() -> None:
    """A partition whose turn comes round again in one call was given twice, and the first batch was lost."""
    fed: list[int] = []

    def deserialize(value: bytes) -> bytes:
        if not fed and handout.streams[THREE].exhausted:
            fed.append(1)
            handout.feed(handout.streams[THREE], chunk(THREE, 3))
        return value

    # The newest comes first: THREE, TWO, and with nothing in ONE THREE again, in one call.
    handout = handout_of(ONE, TWO, THREE, value_deserializer=deserialize)
    handout.streams[ONE].chunks.clear()
    seen: dict[Partition, list[int]] = {TWO: [], THREE: []}
    for _ in range(3):
        for partition, records in handout.take_many((), None).items():
            seen[partition] += [record.offset for record in records]
    assert fed
    assert seen == {TWO: [0, 1, 2], THREE: [0, 1, 2, 3, 4, 5]}


async def test_limits_of_getmany_split_what_is_unpacked() -> None:
    handout = handout_of(ONE)
    taken = [record.offset for _ in range(3) for record in handout.take_many((), 2).get(ONE, [])]
    assert taken == [0, 1, 2]
    handout.take_many((), 2)
    assert handout.streams[ONE].done == 3


async def test_one_by_one_and_stopped_in_between() -> None:
    """Stopped after a record was handed out: it stays in hand, nothing more comes, and its end is told."""
    handout = handout_of(ONE)
    stream = handout.streams[ONE]
    first, second = handout.take_one(), handout.take_one()
    assert (first.offset, second.offset, stream.done, stream.in_hand) == (0, 1, 1, 1)
    stream.running = False
    stream.listening = True
    assert handout.take_one() is None
    assert (stream.done, stream.in_hand, stream.position) == (2, None, 2)
    assert [entry[0] for entry in stream.finished] == [1_000, 1_000]


async def test_the_first_records_of_what_was_taken_over_are_next_whenever_they_come() -> None:
    handout = handout_of(ONE, TWO)
    fresh = Stream(THREE, 7, 0)
    fresh.running = True
    handout.put(fresh)
    first = handout.take_one()
    assert first is not None, "the turns are made, and what was taken over has nothing yet"
    handout.feed(fresh, chunk(THREE, 0))
    taken = [handout.take_one() for _ in range(5)]
    partitions = [record.partition for record in taken if record is not None]
    slice_left = partitions.index(THREE.partition)
    assert partitions[:slice_left] == [first.partition] * slice_left, "only the slice that had begun comes before"
    handout.feed(fresh, chunk(THREE, 3))
    assert not handout._leading, "once"


async def test_what_is_fetched_before_it_may_be_handed_out_is_next_when_it_may() -> None:
    handout = handout_of(ONE, TWO)
    early = Stream(THREE, 7, 0)
    handout.put(early)
    handout.feed(early, chunk(THREE, 0))
    first = handout.take_one()
    assert first is not None
    assert first.partition != THREE.partition
    early.running = True
    handout.lead(early)
    partitions = [record.partition for record in (handout.take_one() for _ in range(6)) if record is not None]
    slice_left = partitions.index(THREE.partition)
    assert partitions[:slice_left] == [first.partition] * slice_left
