"""The hand-out while the agent goes on feeding."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pytest
from aiokafka.errors import KafkaError
from prometheus_client import CollectorRegistry

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.deserializer import RecordDeserializer
from loadtrim_agent.delivery.metering_task import MeteringTask
from loadtrim_agent.delivery.partition_stream import Stream
from loadtrim_agent.delivery.record_buffer import BATCH_RECORDS, RecordBuffer
from loadtrim_agent.delivery.stretches import STRETCHES_MAX, Finished, Stretches
from loadtrim_agent.kafka.fetch.chunk import Chunk, frame
from loadtrim_agent.metering.meter import MeterConfig
from loadtrim_agent.observability.metrics import Metrics
from unit.kafka.fetch.batches import batch

ONE, TWO, THREE = Partition("topic", 0), Partition("topic", 1), Partition("topic", 2)


class FixedFetcher:
    """A fetcher that knows of no ends."""

    def end_offset(self, partition: Partition) -> None:
        return None

    def end_offset_at(self, partition: Partition) -> None:
        return None


def chunk(partition: Partition, first: int, count: int = 3, stamp: int = 1_000) -> Chunk:
    data = batch(first, [(n, stamp, str(n).encode()) for n in range(first, first + count)])
    framed = frame(partition, first, data, (), committed_only=False, check_crcs=True)
    assert framed is not None
    return framed


def handout_of(*partitions: Partition, value_deserializer: Any = None, by_hand: bool = False) -> RecordBuffer:
    buffer = RecordBuffer(
        asyncio.get_running_loop(),
        asyncio.get_running_loop(),
        RecordDeserializer({"value_deserializer": value_deserializer}),
    )
    buffer.lease_until = boot_time() + 1_000.0
    for number, partition in enumerate(partitions):
        stream = Stream(partition, number, 0, by_hand=by_hand)
        stream.running = True
        buffer.put(stream)
        buffer.feed(stream, chunk(partition, 0))
    return buffer


async def test_what_is_fetched_during_getmany_replaces_nothing() -> None:
    """A partition whose turn comes round again in one call was given twice, and the first batch was lost."""
    fed: list[int] = []

    def deserialize(value: bytes) -> bytes:
        if not fed and buffer.streams[THREE].exhausted:
            fed.append(1)
            buffer.feed(buffer.streams[THREE], chunk(THREE, 3))
        return value

    # The newest comes first: THREE, TWO, and with nothing in ONE THREE again, in one call.
    buffer = handout_of(ONE, TWO, THREE, value_deserializer=deserialize)
    buffer.streams[ONE].chunks.clear()
    seen: dict[Partition, list[int]] = {TWO: [], THREE: []}
    for _ in range(3):
        for partition, records in buffer.take_many((), None).items():
            seen[partition] += [record.offset for record in records]
    assert fed
    assert seen == {TWO: [0, 1, 2], THREE: [0, 1, 2, 3, 4, 5]}


async def test_limits_of_getmany_split_what_is_unpacked() -> None:
    buffer = handout_of(ONE)
    taken = [record.offset for _ in range(3) for record in buffer.take_many((), 2).get(ONE, [])]
    assert taken == [0, 1, 2]
    buffer.take_many((), 2)
    assert buffer.streams[ONE].done == 3


async def test_getmany_without_a_limit_returns_as_much_of_each_partition_in_turn() -> None:
    buffer = handout_of(ONE, TWO)
    for partition in (ONE, TWO):
        buffer.feed(buffer.streams[partition], chunk(partition, 3, 3 * BATCH_RECORDS))
    taken = [buffer.take_many((), None) for _ in range(4)]
    assert [list(batch) for batch in taken] == [[TWO], [ONE], [TWO], [ONE]]
    assert {len(records) for batch in taken for records in batch.values()} == {BATCH_RECORDS}


async def test_one_by_one_and_stopped_in_between() -> None:
    """Stopped after a record was handed out: it stays in hand, nothing more comes, and its end is told."""
    buffer = handout_of(ONE)
    stream = buffer.streams[ONE]
    first, second = buffer.take_one(), buffer.take_one()
    assert (first.offset, second.offset, stream.done, stream.in_hand) == (0, 1, 1, 1)
    stream.running = False
    stream.listening = True
    assert buffer.take_one() is None
    assert (stream.done, stream.in_hand, stream.position) == (2, None, 2)
    assert [list(finished.stamps) for finished in stream.take_finished()] == [[1_000, 1_000]]


async def test_to_ask_for_one_partition_ends_nothing_of_another() -> None:
    """Its record would be committed while user code works on it."""
    buffer = handout_of(ONE, TWO)
    first = buffer.take_one((TWO,))
    second = buffer.take_one((ONE,))
    assert (first.partition, second.partition) == (1, 0)
    one, two = buffer.streams[ONE], buffer.streams[TWO]
    assert (two.in_hand, two.done) == (0, None)
    assert list(buffer.take_many((ONE,), 1)) == [ONE]
    assert (one.done, two.in_hand, two.done) == (1, 0, None)
    buffer.take_one()
    assert (one.done, two.done) == (2, 1), "to ask for all ends all"


async def test_what_user_code_gave_up_with_is_not_done() -> None:
    buffer = handout_of(ONE)
    stream = buffer.streams[ONE]
    told: list[Stream] = []
    buffer.agent.drained = told.append  # type: ignore[method-assign]
    buffer.take_one()
    buffer.take_one()
    told.clear()
    buffer.abandon()
    assert (stream.done, stream.in_hand, stream.position, told) == (1, None, 2, [stream])


class WatchedStream(Stream):
    """A stream that notes what was in hand whenever somebody looked whether it runs."""

    __slots__ = ("looks", "runs")

    def __init__(self, partition: Partition) -> None:
        self.looks: list[int | None] = []
        super().__init__(partition, 1, 0)

    @property
    def running(self) -> bool:  # type: ignore[override]
        self.looks.append(getattr(self, "in_hand", None))
        return self.runs

    @running.setter
    def running(self, runs: bool) -> None:
        self.runs = runs


@pytest.mark.parametrize("way", ["the first record", "the next record", "a batch"])
async def test_user_code_says_what_it_takes_before_it_looks_whether_it_may(way: str) -> None:
    """The agent stops a partition and then looks what is in hand: in the other order neither would see the other."""
    buffer = handout_of()
    stream = WatchedStream(ONE)
    stream.running = True
    buffer.put(stream)
    buffer.feed(stream, chunk(ONE, 0))
    if way == "the next record":
        buffer.take_one()
    stream.looks.clear()
    taken = buffer.take_many((), 2)[ONE][0] if way == "a batch" else buffer.take_one()
    assert stream.looks[-1] == taken.offset


@pytest.mark.parametrize("way", ["the first record", "the next record", "a batch"])
@pytest.mark.parametrize("late", [-0.001, 0.0], ids=["before", "at"])
async def test_nothing_is_delivered_at_the_end_of_the_lease(
    way: str, late: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From that moment on another member may be given the partition."""
    buffer = handout_of(ONE)
    if way == "the next record":
        assert buffer.take_one() is not None
    now = buffer.lease_until + late
    monkeypatch.setattr("loadtrim_agent.delivery.record_buffer.boot_time", lambda: now)
    taken = buffer.take_many((), 1) if way == "a batch" else buffer.take_one()
    assert bool(taken) == (late < 0.0)


async def test_nothing_behind_a_pause_a_lease_or_an_end_is_handed_out() -> None:
    """Also where the next record is unpacked and its partition's turn lasts."""
    buffer = handout_of(ONE)
    stream = buffer.streams[ONE]
    assert buffer.take_one() is not None
    stream.paused = True
    assert buffer.take_one() is None
    stream.paused = False
    assert buffer.take_one().offset == 1
    lease, buffer.lease_until = buffer.lease_until, 0.0
    assert buffer.take_one() is None
    buffer.lease_until = lease
    assert buffer.take_one().offset == 2
    buffer.feed(stream, chunk(ONE, 3))
    buffer.closing = True
    assert buffer.take_one() is None
    assert (stream.done, stream.in_hand, stream.position) == (3, None, 3)


@pytest.mark.parametrize("why", ["no lease", "it ends"])
async def test_getmany_gives_nothing_without_a_lease_or_at_an_end(why: str) -> None:
    """And what it gave before is done, for the call could have returned more."""
    buffer = handout_of(ONE)
    stream = buffer.streams[ONE]
    assert [record.offset for record in buffer.take_many((), 2)[ONE]] == [0, 1]
    lease = buffer.lease_until
    if why == "no lease":
        buffer.lease_until = boot_time()
    else:
        buffer.closing = True
    assert buffer.take_many((), None) == {}
    assert (stream.done, stream.in_hand, stream.position) == (2, None, 2)
    if why == "no lease":
        buffer.lease_until = lease
        assert [record.offset for record in buffer.take_many((), None)[ONE]] == [2]


async def test_what_is_taken_over_comes_next() -> None:
    buffer = handout_of(ONE)
    assert buffer.take_one().partition == 0
    stream = Stream(TWO, 7, 0)
    stream.running = True
    buffer.put(stream)
    buffer.feed(stream, chunk(TWO, 0))
    assert buffer.take_one().partition == 1


async def test_a_seek_with_a_record_in_hand_throws_away_what_is_unpacked() -> None:
    buffer = handout_of(ONE)
    stream = buffer.streams[ONE]
    assert buffer.take_one().offset == 0
    buffer.seek(stream, 7)
    assert buffer.take_one() is None
    assert (stream.done, stream.position) == (7, 7)
    stream.clear()
    stream.seeks_answered += 1
    buffer.feed(stream, chunk(ONE, 7))
    assert buffer.take_one().offset == 7


async def test_what_cannot_be_deserialized_is_raised_each_time_and_is_not_in_hand() -> None:
    def deserialize(value: bytes) -> bytes:
        if value == b"1":
            raise ValueError("no")
        return value

    buffer = handout_of(ONE, value_deserializer=deserialize)
    stream = buffer.streams[ONE]
    assert buffer.take_one().offset == 0
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            buffer.take_one()
        assert (stream.done, stream.in_hand, stream.position) == (1, None, 1)
    with pytest.raises(ValueError, match="no"):
        buffer.take_many((), None)
    buffer.seek(stream, 0)
    stream.clear()
    stream.seeks_answered += 1
    buffer.feed(stream, chunk(ONE, 0))
    assert [record.offset for record in buffer.take_many((), None)[ONE]] == [0]


async def test_a_chunk_that_is_being_opened_counts_as_not_handed_out() -> None:
    """The agent would commit behind everything fetched otherwise, and its records be lost."""
    buffer = handout_of(ONE)
    stream = buffer.streams[ONE]
    seen: list[bool] = []

    class Watched(deque[Chunk]):
        def popleft(self) -> Chunk:
            popped = super().popleft()
            seen.append(stream.exhausted)
            return popped

    stream.chunks = Watched(stream.chunks)
    buffer.take_one()
    assert seen == [False]


async def test_what_is_done_while_it_is_gathered_is_told_the_next_time() -> None:
    """A position ahead of what was gathered told the meter that nothing of what is fetched was left."""

    class Busy(Stream):
        def take_finished(self) -> list[Finished]:
            found = super().take_finished()
            buffer.take_one()  # user code goes on in its own thread
            return found

    buffer = handout_of()
    stream = Busy(ONE, 1, 0)
    stream.running = True
    buffer.put(stream)
    buffer.feed(stream, chunk(ONE, 0, 10))
    metering = MeteringTask(
        MeterConfig(group="group", sla_seconds=1.0),
        Metrics(CollectorRegistry(), "group", "client", 1.0),
    )
    metering.attach(buffer, FixedFetcher())  # type: ignore[arg-type]
    metering.acquired(stream, None)
    metering.fetched(stream, stream.chunks[0], 10)
    told = []
    for _ in range(3):
        buffer.take_one()
        metering.gather()
        metering.show()
        told.append(metering.snapshot.partitions[0].position)
    assert (told, stream.done) == ([0, 2, 4], 5)


async def test_the_first_records_of_what_was_taken_over_are_next_whenever_they_come() -> None:
    buffer = handout_of(ONE, TWO)
    fresh = Stream(THREE, 7, 0)
    fresh.running = True
    buffer.put(fresh)
    first = buffer.take_one()
    assert first is not None, "the turns are made, and what was taken over has nothing yet"
    buffer.feed(fresh, chunk(THREE, 0))
    taken = [buffer.take_one() for _ in range(5)]
    partitions = [record.partition for record in taken if record is not None]
    slice_left = partitions.index(THREE.partition)
    assert partitions[:slice_left] == [first.partition] * slice_left, "only the slice that had begun comes before"
    buffer.feed(fresh, chunk(THREE, 3))
    assert not buffer.turns._leading, "once"


async def test_what_is_fetched_before_it_may_be_handed_out_is_next_when_it_may() -> None:
    buffer = handout_of(ONE, TWO)
    early = Stream(THREE, 7, 0)
    buffer.put(early)
    buffer.feed(early, chunk(THREE, 0))
    first = buffer.take_one()
    assert first is not None
    assert first.partition != THREE.partition
    early.running = True
    buffer.turns.lead(early)
    partitions = [record.partition for record in (buffer.take_one() for _ in range(6)) if record is not None]
    slice_left = partitions.index(THREE.partition)
    assert partitions[:slice_left] == [first.partition] * slice_left


@pytest.mark.parametrize("runs_first", [False, True])
async def test_the_first_records_of_what_was_taken_over_end_a_run_of_another_partition(runs_first: bool) -> None:
    """They waited for up to 64 records of it: 0.4 s, where a record takes 6 ms."""
    buffer = handout_of(TWO)
    buffer.feed(buffer.streams[TWO], chunk(TWO, 3, 60))
    stream = Stream(ONE, 9, 0)
    stream.running = runs_first
    buffer.put(stream)
    assert [buffer.take_one().partition for _ in range(4)] == [1] * 4
    assert buffer._run is buffer.streams[TWO], "a run goes on"
    buffer.feed(stream, chunk(ONE, 0))
    if not runs_first:
        assert buffer.take_one().partition == 1
        stream.running = True
        assert buffer.turns.lead(stream)
        buffer.look_again()
    assert [buffer.take_one().partition for _ in range(4)] == [0, 0, 0, 1]


async def test_quiet_partitions_are_not_looked_at() -> None:
    """With 1,000 of them each record cost a look at all."""
    looks: list[Partition] = []

    class Counted(Stream):
        def has_more(self) -> bool:
            looks.append(self.partition)
            return super().has_more()

        def take_finished(self) -> list[Finished]:
            looks.append(self.partition)
            return super().take_finished()

    buffer = handout_of()
    metering = MeteringTask(
        MeterConfig(group="group", sla_seconds=1.0),
        Metrics(CollectorRegistry(), "group", "client", 1.0),
    )
    metering.attach(buffer, FixedFetcher())  # type: ignore[arg-type]
    streams = [Counted(Partition("topic", number), number, 0) for number in range(100)]
    for stream in streams:
        stream.running = True
        buffer.put(stream)
        metering.acquired(stream, None)
    assert buffer.take_one() is None
    metering.gather()
    looks.clear()
    for first in (0, 3):
        buffer.feed(streams[50], chunk(streams[50].partition, first))
        metering.fetched(streams[50], streams[50].chunks[0], first + 3)
        assert [buffer.take_one().offset for _ in range(3)] == [first, first + 1, first + 2]
        assert buffer.take_one() is None
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await buffer.wait()
        metering.gather()
    metering.show()
    assert metering.snapshot.partitions[50].position == 6
    assert set(looks) == {streams[50].partition}


@pytest.mark.parametrize("way", ["one by one", "many"])
async def test_what_was_handed_out_is_not_kept(way: str) -> None:
    """Nor is more unpacked than the turn hands out: each of many partitions held a slice that no limit saw."""
    buffer = handout_of(ONE, TWO, THREE)
    for first in range(3, 300, 33):
        for stream in buffer.streams.values():
            buffer.feed(stream, chunk(stream.partition, first, 33))
    for _ in range(400):
        if way == "many":
            buffer.take_many((), 50)
        else:
            buffer.take_one()
        busy = [s for s in buffer.streams.values() if s.in_hand is not None]
        assert all(len(s.records) == 0 for s in buffer.streams.values() if s not in busy)


async def test_a_stream_that_is_stopped_within_a_run_is_let_go() -> None:
    """Each acquisition that ended so was kept, with its records, for the consumer's life."""
    buffer = handout_of()
    for acquisition in range(3):
        stream = Stream(ONE, acquisition, 0)
        stream.running = True
        buffer.put(stream)
        buffer.feed(stream, chunk(ONE, 0, 60))
        assert buffer.take_one() is not None
        assert buffer.take_one() is not None
        stream.running = False
        assert buffer.take_one() is None
        assert stream.in_hand is None
        buffer.remove(ONE)
        assert not buffer.hand.workers


async def test_an_error_is_raised_for_its_partition_and_until_a_seek_answers_it() -> None:
    """One that had been answered came once more; and the task of another partition was told of it."""
    buffer = handout_of(ONE, TWO)
    for forget in (lambda: buffer.seek(buffer.streams[ONE], 0), lambda: buffer.remove(ONE)):
        buffer.fail(KafkaError("of one"), ONE)
        assert buffer.errors.concern(()), "who asks for all is told"
        assert buffer.errors.concern((ONE, TWO))
        assert not buffer.errors.concern((TWO,))
        forget()
        assert not buffer.errors.concern(())
    buffer.fail(KafkaError("of all"))
    buffer.seek(buffer.streams[TWO], 0)
    assert buffer.errors.concern((TWO,))


async def test_errors_of_two_partitions_are_both_raised() -> None:
    """The later one took the place of the other."""
    buffer = handout_of(ONE, TWO)
    buffer.fail(KafkaError("of ONE"), ONE)
    buffer.fail(KafkaError("of TWO"), TWO)
    buffer.fail(KafkaError("of all"))
    raised = [buffer.errors.take(wanted) for wanted in ((TWO,), (TWO,), (TWO,), (), ())]
    assert [error and str(error) for error in raised] == [
        "KafkaError: of all",
        "KafkaError: of TWO",
        None,
        "KafkaError: of ONE",
        None,
    ]
    assert not buffer.errors.concern(())


async def test_a_seek_lets_commits_of_lower_offsets_count_again() -> None:
    buffer = handout_of(ONE, by_hand=True)
    stream = buffer.streams[ONE]
    buffer.take_many((), None)
    stream.commits.called(3, stream.position, 1.0)
    buffer.seek(stream, 0)
    stream.commits.called(0, stream.position, 2.0)
    stream.commits.called(1, 1, 3.0)
    assert stream.commits.take() == [(3, 1.0), (1, 3.0)]


@pytest.mark.parametrize("at_once", [False, True])
async def test_offsets_are_noted_where_user_code_commits_itself(at_once: bool) -> None:
    """The log may have gaps."""
    buffer = handout_of(by_hand=True)
    stream = Stream(ONE, 1, 0, by_hand=True)
    stream.running = True
    buffer.put(stream)
    framed = frame(ONE, 0, batch(0, [(n, 1_000, b"") for n in (0, 1, 3, 4)]), (), committed_only=False, check_crcs=True)
    assert framed is not None
    buffer.feed(stream, framed)
    offsets: list[int] = []
    while buffer.take_many((), 3) if at_once else buffer.take_one():
        offsets += [offset for entry in stream.take_finished() for offset in entry.offsets]
    offsets += [offset for entry in stream.take_finished() for offset in entry.offsets]
    assert offsets == [0, 1, 3, 4]


async def test_offsets_are_not_noted_where_they_are_of_no_use() -> None:
    buffer = handout_of(ONE)
    while buffer.take_one():
        ...
    assert [entry.offsets for entry in buffer.streams[ONE].take_finished()] == [()]


def refusing(*values: bytes, error: type[BaseException] = ValueError) -> Any:
    def deserialize(value: bytes) -> bytes:
        if value in values:
            raise error("poison")
        return value

    return deserialize


@pytest.mark.parametrize(("poison", "well"), [(b"0", TWO), (b"10", ONE)])
async def test_what_one_partition_raises_takes_no_record_of_another(poison: bytes, well: Partition) -> None:
    """What had been taken of the first one was thrown away, and done with the next call."""
    buffer = handout_of(ONE, value_deserializer=refusing(poison))
    buffer.put(two := Stream(TWO, 1, 10))
    two.running = True
    buffer.feed(two, chunk(TWO, 10))
    found, raised = [], 0
    for _ in range(4):
        try:
            found += [len(records) for records in buffer.take_many((), 100).values()]
        except ValueError:
            raised += 1
    assert found == [3]
    assert raised >= 2
    (ill,) = {ONE, TWO} - {well}
    assert buffer.streams[well].done == buffer.streams[well].position
    assert (buffer.streams[ill].done, buffer.streams[ill].in_hand) == (None, None)


async def test_what_cannot_be_deserialized_keeps_no_other_partition_waiting() -> None:
    buffer = handout_of(ONE, TWO, value_deserializer=refusing(b"0", b"1"))
    buffer.seek(two := buffer.streams[TWO], 2)
    two.clear()
    two.seeks_answered = two.seeks
    buffer.feed(two, chunk(TWO, 2, 3))
    found, raised = [], 0
    for _ in range(10):
        try:
            record = buffer.take_one()
            found += [record.offset] if record is not None else []
        except ValueError:
            raised += 1
    assert found == [2, 3, 4]
    assert raised >= 2, "each time it is asked"


async def test_an_interrupt_in_a_deserializer_goes_through() -> None:
    buffer = handout_of(ONE, value_deserializer=refusing(b"1", error=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        buffer.take_many((), 100)
    assert buffer.streams[ONE].done is None


@pytest.mark.parametrize("by", ["the same task", "another task", "another task, after its end"])
async def test_what_a_task_had_of_a_lost_partition_is_done_when_it_asks_for_another_one(by: str) -> None:
    """Nobody names a partition that is gone, so that it stood still for ever when it came back."""
    buffer = handout_of(ONE, TWO)
    go_on = asyncio.Event()

    async def take() -> None:
        assert buffer.take_one((ONE,))
        buffer.hand.taken(asyncio.current_task())
        await go_on.wait()

    lost = buffer.streams[ONE]
    if by == "the same task":
        assert buffer.take_one((ONE,))
        buffer.hand.taken(asyncio.current_task())
    else:
        task = asyncio.create_task(take())
        await asyncio.sleep(0)
    buffer.take_one((TWO,))
    assert lost.in_hand == 0, "as long as it is there its own call makes it done"
    buffer.remove(ONE)
    if by == "another task, after its end":
        task.cancel()
        await asyncio.wait([task])
    buffer.take_one((TWO,))
    assert (lost.in_hand is None) == (by != "another task")
    go_on.set()


async def test_a_call_for_another_partition_says_nothing_of_a_sampled_record() -> None:
    """A task for each partition, each right by itself: all were told to keep their records."""
    buffer = handout_of(ONE, TWO)
    buffer.hand.samples._due_at = 0.0
    assert buffer.take_one((ONE,))
    assert buffer.hand.samples.waiting
    assert buffer.take_one((TWO,))
    assert buffer.hand.samples.waiting
    buffer.take_one((ONE,))
    assert not buffer.hand.samples.waiting


async def test_a_task_that_has_records_of_two_partitions_has_not_done_one_when_the_consumer_stops() -> None:
    """It may do them together: taken for done, the first would have been committed and lost."""
    buffer = handout_of(ONE, TWO)
    assert buffer.take_one((ONE,))
    buffer.hand.taken(asyncio.current_task())
    buffer.closing = True
    assert buffer.take_one((TWO,)) is None
    assert (buffer.streams[ONE].in_hand, buffer.streams[ONE].done) == (0, None)


async def test_a_sampled_record_of_a_partition_that_has_gone_is_forgotten() -> None:
    """Nobody named its partition any more, and no other was looked at for the rest of the program."""
    buffer = handout_of(ONE, TWO)
    buffer.hand.samples._due_at = 0.0
    assert buffer.take_one((ONE,))
    buffer.streams[ONE].running = False
    buffer.remove(ONE)
    assert buffer.take_one((TWO,))
    assert not buffer.hand.samples.waiting
    assert buffer.hand.samples._open is None


async def test_where_nobody_takes_the_times_they_do_not_pile_up() -> None:
    """Measuring had broken and was off for good: 80 bytes stayed of each record until the process ended."""
    stretches = Stretches()
    stretches.unpacked((1_000,), ())
    for second in range(STRETCHES_MAX + 100):
        stretches.begin(float(second), 0).append(second + 0.5)
    found = stretches.take_finished()
    assert len(found) == STRETCHES_MAX
    assert found[0].times == [100.0, 100.5], "the oldest are left out"
