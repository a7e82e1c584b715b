"""The shell's side of held partitions, on a loop of its own, with a fetcher that fetches nothing."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

import pytest
from aiokafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NoOffsetForPartitionError,
    TopicAuthorizationFailedError,
    UnknownError,
)
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.gate import DeliveryGate
from loadtrim_agent.delivery.listener import IncrementalRebalanceListener, Listener
from loadtrim_agent.delivery.partition_stream import Stream
from loadtrim_agent.delivery.partitions import DeliveryParts, Partitions
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.kafka.fetch.chunk import Chunk, frame
from loadtrim_agent.kafka.fetch.state import FetchPosition, Reset
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.runtime.observer import AgentObserver

FIRST, SECOND, THIRD = (Partition("orders", index) for index in range(3))


class QuietFetcher:
    """What :class:`Partitions` asks of a fetcher. Offsets are looked up when the test says so."""

    def __init__(self, changed: asyncio.Event) -> None:
        self._changed = changed
        self.looked_up: dict[Partition, asyncio.Future[int]] = {}
        self.taken: dict[Partition, int] = {}
        self.positions: dict[Partition, int] = {}
        self.resets: dict[Partition, Reset] = {}
        self.resets_to_none = False
        """``auto_offset_reset=none``."""

    def take(self, partition: Partition, offset: int) -> None:
        self.taken[partition] = offset

    def take_ahead(self, partition: Partition, offset: int) -> None:
        self.take(partition, offset)

    def keep(self, partition: Partition) -> None: ...

    def drop(self, partition: Partition) -> None: ...

    def position(self, partition: Partition) -> FetchPosition | None:
        if partition not in self.positions:
            return None
        return FetchPosition(self.positions[partition], self.resets.get(partition))

    def end_offset(self, partition: Partition) -> int | None:
        return None

    async def reset_offset(self, partition: Partition) -> int:
        if self.resets_to_none:
            raise NoOffsetForPartitionError(TopicPartition(*partition))
        self.looked_up[partition] = asyncio.get_running_loop().create_future()
        self._changed.set()
        return await self.looked_up[partition]


class Calls(IncrementalRebalanceListener):
    def __init__(self, changed: asyncio.Event) -> None:
        self.changed = changed
        self.assigned: list[set[TopicPartition]] = []
        self.revoked: list[set[TopicPartition]] = []
        self.seek: Callable[[], None] = lambda: None
        """What user code does meanwhile."""
        self.returns = asyncio.Event()
        """Set while a call may return."""
        self.returns.set()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.assigned.append(assigned)
        self.seek()
        self.changed.set()
        await self.returns.wait()

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.revoked.append(revoked)
        self.changed.set()
        await self.returns.wait()


class Measuring(AgentObserver):
    """What is measured, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def acquired(self, stream: Stream, seconds: float | None) -> None:
        self.told.append("acquired")

    def fetched(self, stream: Stream, chunk: Chunk, end_offset: int | None) -> None:
        self.told.append("fetched")


class House:
    """Partitions with everything around them."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.tasks: list[asyncio.Task[None]] = []
        self.events: list[e.Event] = []
        self.failures: list[BaseException] = []
        self.changed = asyncio.Event()
        self.fetcher = QuietFetcher(self.changed)
        self.calls = Calls(self.changed)
        self.observer = observer = Measuring()
        boundary = ErrorBoundary(observer)
        self.buffer = RecordBuffer(loop, loop)
        gate = DeliveryGate(self.buffer)
        listener = Listener(loop, boundary, gate)
        listener.target = self.calls
        self.buffer.lease_until = float("inf")
        self.partitions = Partitions(
            DeliveryParts(
                buffer=self.buffer,
                gate=gate,
                fetcher=self.fetcher,  # type: ignore[arg-type]
                listener=listener,
                observer=observer,
                boundary=boundary,
                agent=self,
                tasks=self,
                offsets=self,
                retry_backoff=0.1,
            )
        )

    def raise_to_user(self, error: BaseException) -> None:
        self.failures.append(error)

    def waits_for_user(self) -> None: ...

    async def committed_or_none(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        return {}

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def feed(self, event: e.Event) -> None:
        self.events.append(event)
        self.changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(5.0):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    async def until_opened(self, *partitions: Partition) -> None:
        await self.until(lambda: set(partitions) <= {x.partition for x in self.events if isinstance(x, e.OpenedEvent)})

    async def until_looked_up(self, *partitions: Partition) -> None:
        await self.until(lambda: set(partitions) <= set(self.fetcher.looked_up))

    def lulls(self) -> list[tuple[int | None, bool]]:
        return [(event.done, event.busy) for event in self.events if isinstance(event, e.IdlePointEvent)]

    async def until_lulls(self, count: int) -> None:
        await self.until(lambda: len(self.lulls()) >= count)

    async def with_a_record_in_hand(self, partition: Partition) -> None:
        self.partitions.open([_open(partition, acquisition_id=1, offset=0)])
        await self.until_opened(partition)
        self.partitions.run(c.RunCommand(partition=partition, acquisition_id=1))
        self.buffer.feed(self.buffer.streams[partition], _one_record(partition))
        assert self.buffer.take_one() is not None
        self.events.clear()
        self.calls.assigned.clear()


def _one_record(partition: Partition, offset: int = 0) -> Chunk:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1000,
    )
    builder.append(0, timestamp=0, key=None, value=b"", headers=[])
    data = offset.to_bytes(8) + bytes(builder.build())[8:]
    chunk = frame(partition, offset, data, None, committed_only=False, check_crcs=True)
    assert chunk is not None
    return chunk


def _open(partition: Partition, *, acquisition_id: int, offset: int | None) -> c.OpenCommand:
    return c.OpenCommand(partition=partition, acquisition_id=acquisition_id, offset=offset)


async def test_a_partition_waits_for_its_own_record_in_user_code_and_delays_no_other() -> None:
    house = House()
    await house.with_a_record_in_hand(FIRST)
    house.partitions.drop(c.DropCommand(partition=FIRST, acquisition_id=1))
    house.partitions.open(
        [
            _open(FIRST, acquisition_id=2, offset=7),
            _open(SECOND, acquisition_id=3, offset=0),
            _open(THIRD, acquisition_id=4, offset=0),
        ]
    )

    await house.until_opened(SECOND, THIRD)

    assert house.calls.assigned == [{TopicPartition(*SECOND), TopicPartition(*THIRD)}]
    assert FIRST not in house.buffer.streams
    house.buffer.take_one()  # the record in hand is done
    await house.until_opened(FIRST)
    assert house.calls.assigned[1:] == [{TopicPartition(*FIRST)}]
    assert house.buffer.streams[FIRST].position == 7


async def test_a_start_that_cannot_be_looked_up_delays_no_other_partition() -> None:
    house = House()
    house.partitions.open([_open(FIRST, acquisition_id=1, offset=None), _open(SECOND, acquisition_id=2, offset=3)])

    await house.until_opened(SECOND)

    assert house.calls.assigned == [{TopicPartition(*SECOND)}]
    await house.until_looked_up(FIRST)
    house.fetcher.looked_up[FIRST].set_result(5)
    await house.until_opened(FIRST)
    assert house.buffer.streams[FIRST].position == 5


async def test_starts_that_are_found_together_share_a_call_of_the_listener() -> None:
    house = House()
    house.partitions.open(
        [_open(p, acquisition_id=index, offset=None) for index, p in enumerate((FIRST, SECOND, THIRD))]
    )
    await house.until_looked_up(FIRST, SECOND, THIRD)
    for future in house.fetcher.looked_up.values():
        future.set_result(0)

    await house.until_opened(FIRST, SECOND, THIRD)

    assert house.calls.assigned == [{TopicPartition(*p) for p in (FIRST, SECOND, THIRD)}]


async def test_a_partition_lost_while_its_start_is_looked_up_is_not_opened() -> None:
    house = House()
    house.partitions.open([_open(FIRST, acquisition_id=1, offset=None), _open(SECOND, acquisition_id=2, offset=None)])
    await house.until_looked_up(FIRST, SECOND)
    house.partitions.drop(c.DropCommand(partition=FIRST, acquisition_id=1))
    for future in house.fetcher.looked_up.values():
        future.set_result(0)

    await asyncio.gather(*house.tasks)

    assert house.calls.assigned == [{TopicPartition(*SECOND)}]
    assert FIRST not in house.buffer.streams


async def test_a_look_up_for_an_acquisition_that_was_lost_does_not_open_the_next_one() -> None:
    """The next one starts where its own release says."""
    house = House()
    house.partitions.open([_open(FIRST, acquisition_id=1, offset=None)])
    await house.until_looked_up(FIRST)
    house.partitions.drop(c.DropCommand(partition=FIRST, acquisition_id=1))
    earlier = house.fetcher.looked_up.pop(FIRST)
    house.partitions.open([_open(FIRST, acquisition_id=2, offset=None)])
    await house.until_looked_up(FIRST)
    earlier.set_result(3)
    await asyncio.gather(*house.tasks[:1])
    assert (house.calls.assigned, house.buffer.streams) == ([], {})
    house.fetcher.looked_up[FIRST].set_result(7)
    await house.until_opened(FIRST)
    assert [(event.acquisition_id, event.position) for event in house.events if isinstance(event, e.OpenedEvent)] == [
        (2, 7)
    ]


def drained(house: House) -> list[int | None]:
    return [event.done for event in house.events if isinstance(event, e.DrainedEvent)]


async def test_a_stopped_partition_is_drained_when_the_listener_has_returned_and_runs_when_it_was_told() -> None:
    """User code may write down what it did, and read it again: both belong inside these calls."""
    house = House()
    await house.with_a_record_in_hand(FIRST)
    stream = house.buffer.streams[FIRST]
    house.partitions.stop(c.StopCommand(partition=FIRST, acquisition_id=1))
    assert (stream.running, house.calls.revoked) == (False, []), "a record is in hand"
    house.calls.returns.clear()
    assert house.buffer.take_one() is None
    await house.until(lambda: bool(house.calls.revoked))
    assert drained(house) == [], "the listener has not returned"
    house.calls.returns.set()
    await asyncio.gather(*house.tasks)
    assert drained(house) == [1]

    house.calls.returns.clear()
    house.partitions.resume(c.ResumeCommand(partition=FIRST, acquisition_id=1))
    await house.until(lambda: bool(house.calls.assigned))
    assert not stream.running, "the listener has not returned"
    house.calls.returns.set()
    await asyncio.gather(*house.tasks)
    assert stream.running
    assert drained(house) == [1]


async def test_what_user_code_has_paused_stays_so_where_a_stop_ends_before_the_listener_was_told() -> None:
    """The agent resumed it, and the listener never heard that it had gone: both calls together tell nothing."""
    house = House()
    await house.with_a_record_in_hand(FIRST)
    stream = house.buffer.streams[FIRST]
    house.buffer.take_one()
    stream.paused = True
    house.partitions.stop(c.StopCommand(partition=FIRST, acquisition_id=1))
    house.partitions.drained(stream)
    await asyncio.sleep(0)
    assert not house.calls.revoked, "it is about to be told"
    house.partitions.resume(c.ResumeCommand(partition=FIRST, acquisition_id=1))
    await asyncio.gather(*house.tasks)
    assert (stream.running, stream.paused) == (True, True)


async def test_a_thread_that_is_about_to_take_a_record_of_a_lost_partition_gets_none() -> None:
    """The buffer was looked at before the loss: only the stream itself can still say that it is over."""
    house = House()
    await house.with_a_record_in_hand(FIRST)
    stream = house.buffer.streams[FIRST]
    house.buffer.take_one()
    house.partitions.drop(c.DropCommand(partition=FIRST, acquisition_id=1))
    assert not house.buffer._announce(stream, 1)
    assert stream.in_hand is None


async def test_what_comes_while_user_code_seeks_is_neither_kept_nor_measured() -> None:
    house = House()
    await house.with_a_record_in_hand(FIRST)
    stream = house.buffer.streams[FIRST]
    house.observer.told.clear()
    house.buffer.seek(stream, 10)
    house.partitions.intake.chunk(_one_record(FIRST, 1))
    assert (list(stream.chunks), house.observer.told) == ([], [])


async def test_only_behind_what_is_done_may_be_committed_what_holds_no_records() -> None:
    """Behind the last record lie a transaction's markers, or records that were compacted away."""
    house = House()
    await house.with_a_record_in_hand(FIRST)
    stream, positions = house.buffer.streams[FIRST], house.partitions.positions
    house.fetcher.positions[FIRST] = 9
    house.buffer.feed(stream, _one_record(FIRST, 1))
    house.buffer.take_one()
    assert positions.done_offset(stream) == 1, "the second one is in hand"
    house.buffer.abandon()
    assert positions.done_offset(stream) == 1, "and is not done where user code gave up with it"
    house.buffer.seek(stream, 1)
    house.partitions.seek(stream, 1)
    house.buffer.feed(stream, _one_record(FIRST, 1))
    house.buffer.take_one()
    assert house.buffer.take_one() is None
    assert positions.done_offset(stream) == 9


async def test_what_is_fetched_ahead_is_kept_whatever_stream_there_is() -> None:
    """It went to a stream that should not have been there any more, and the next acquisition began behind it."""
    house = House()
    await house.with_a_record_in_hand(FIRST)
    intake = house.partitions.intake
    intake.prefetching.begin_at({FIRST: 20})
    intake.chunk(_one_record(FIRST, 20))
    house.fetcher.positions[FIRST] = 21
    assert house.buffer.streams[FIRST].exhausted
    (kept,) = intake.prefetching.adopt(FIRST, 20) or ()
    assert not kept.done


async def test_a_lull_comes_when_user_code_is_done_with_all_there_is() -> None:
    house = House()
    await house.with_a_record_in_hand(FIRST)
    stream = house.buffer.streams[FIRST]
    house.partitions.await_idle_point(c.AwaitIdlePointCommand(partition=FIRST, acquisition_id=1, committed=0))
    assert house.lulls() == []
    house.buffer.feed(stream, _one_record(FIRST, 1))
    assert house.buffer.take_one() is not None
    await asyncio.sleep(0)
    assert house.lulls() == [], "the next one is in hand"
    assert house.buffer.take_one() is None
    await asyncio.sleep(0)
    assert house.lulls() == [(2, False)]
    assert stream.running
    house.buffer.feed(stream, _one_record(FIRST, 2))
    assert house.buffer.take_one() is not None
    assert house.buffer.take_one() is None
    await asyncio.sleep(0)
    assert house.lulls() == [(2, False)], "once"


async def test_with_nothing_done_since_the_lull_is_now_and_with_records_waiting_there_is_none() -> None:
    house = House()
    await house.with_a_record_in_hand(FIRST)
    house.buffer.take_one()
    house.partitions.await_idle_point(c.AwaitIdlePointCommand(partition=FIRST, acquisition_id=1, committed=1))
    assert house.lulls() == [(1, False)]
    house.partitions.await_idle_point(
        c.AwaitIdlePointCommand(partition=FIRST, acquisition_id=1, committed=0, begun=True)
    )
    assert house.lulls() == [(1, False)] * 2, "one that has begun will do"
    house.events.clear()
    house.buffer.feed(house.buffer.streams[FIRST], _one_record(FIRST, 1))
    house.partitions.await_idle_point(c.AwaitIdlePointCommand(partition=FIRST, acquisition_id=1, committed=0))
    assert house.lulls() == [], "they may be a burst"
    await house.until_lulls(1)
    assert house.lulls() == [(1, True)]
    house.partitions.await_idle_point(c.AwaitIdlePointCommand(partition=FIRST, acquisition_id=7, committed=0))
    assert len(house.lulls()) == 1, "another acquisition"


async def test_a_stop_ends_the_waiting_for_a_lull() -> None:
    house = House()
    await house.with_a_record_in_hand(FIRST)
    house.partitions.await_idle_point(c.AwaitIdlePointCommand(partition=FIRST, acquisition_id=1, committed=0))
    house.partitions.stop(c.StopCommand(partition=FIRST, acquisition_id=1))
    house.buffer.take_one()
    await asyncio.gather(*house.tasks)
    await asyncio.sleep(0)
    await asyncio.gather(*house.tasks)
    assert house.lulls() == []
    assert [event.done for event in house.events if isinstance(event, e.DrainedEvent)] == [1]


async def test_what_is_fetched_before_it_is_handed_out_is_measured_from_then_on() -> None:
    house = House()
    house.partitions.open([_open(FIRST, acquisition_id=1, offset=0)])
    await house.until_opened(FIRST)
    house.partitions.intake.chunk(_one_record(FIRST))
    assert house.observer.told == []
    house.partitions.run(c.RunCommand(partition=FIRST, acquisition_id=1))
    assert house.observer.told == ["acquired", "fetched"]
    house.partitions.intake.chunk(_one_record(FIRST, 1))
    assert house.observer.told == ["acquired", "fetched", "fetched"]
    assert house.buffer.take_one() is not None


async def test_a_seek_behind_a_seek_is_not_answered_by_the_first() -> None:
    """User code would be handed what was fetched for the first, and go on from there."""
    house = House()
    await house.with_a_record_in_hand(FIRST)
    stream = house.buffer.streams[FIRST]
    house.buffer.seek(stream, 10)
    house.buffer.seek(stream, 20)

    house.partitions.seek(stream, 10)
    house.partitions.intake.chunk(_one_record(FIRST, 10))

    assert house.buffer.take_one() is None
    house.partitions.seek(stream, 20)
    house.partitions.intake.chunk(_one_record(FIRST, 20))
    record = house.buffer.take_one()
    assert record is not None
    assert record.offset == 20


@pytest.mark.parametrize("late", [False, True], ids=["before it is opened", "while it is opened"])
async def test_where_only_user_code_can_say_the_start_its_last_seek_counts(late: bool) -> None:
    """``auto_offset_reset=none``: of two seeks in a row in the listener the second was lost."""
    house = House()
    house.fetcher.resets_to_none = True

    def seek(offset: int) -> Callable[[], None]:
        stream = house.buffer.streams[FIRST]
        house.buffer.seek(stream, offset)
        return lambda: house.partitions.seek(stream, offset)  # which the agent hears of a moment later

    heard: list[Callable[[], None]] = []
    house.calls.seek = lambda: heard.extend((seek(10), seek(20)))
    house.partitions.open([_open(FIRST, acquisition_id=1, offset=None)])
    await house.until(lambda: len(heard) == 2)
    heard[0]()
    if late:
        await house.until_opened(FIRST)
    heard[1]()
    await house.until_opened(FIRST)
    assert house.fetcher.taken == {FIRST: 20}
    house.partitions.run(c.RunCommand(partition=FIRST, acquisition_id=1))
    house.partitions.intake.chunk(_one_record(FIRST, 20))
    assert house.buffer.take_one().offset == 20
    assert house.partitions.without_offset == frozenset()


async def test_fetching_that_has_ended_ends_the_member_and_other_errors_are_raised_once() -> None:
    """A member that fetched no more stayed in the group, and held its partitions."""
    house = House()
    once, ended = KafkaError("once"), KafkaError("ended")
    house.partitions.intake.failed(once, FIRST)
    errors = house.buffer.errors
    assert (house.failures, errors.of_partitions, errors.for_good) == ([], {FIRST: once}, False)
    house.partitions.intake.failed(ended, None)
    assert house.failures == [ended]


async def test_an_error_of_before_a_seek_is_not_raised_behind_it() -> None:
    """User code sought where an offset was out of range, and the same error came once more."""
    house = House()
    await house.with_a_record_in_hand(FIRST)
    house.buffer.seek(house.buffer.streams[FIRST], 7)
    house.partitions.intake.failed(KafkaError("of the offset before"), FIRST)
    assert not house.buffer.errors.concern(())


async def house_past_an_aborted_transaction() -> tuple[House, Stream]:
    """What is done lies behind record 0, and the fetcher behind offsets 1 to 16, which hold no records."""
    house = House()
    await house.with_a_record_in_hand(FIRST)
    stream = house.buffer.streams[FIRST]
    assert house.buffer.take_one() is None
    house.fetcher.positions[FIRST] = 17
    assert house.partitions.positions.done_offset(stream) == 17
    return house, stream


async def test_what_was_passed_is_forgotten_with_its_acquisition() -> None:
    house, stream = await house_past_an_aborted_transaction()
    positions = house.partitions.positions
    assert len(positions._passed) == 1
    house.partitions.drop(c.DropCommand(partition=FIRST, acquisition_id=stream.acquisition_id))
    await asyncio.sleep(0)
    assert house.buffer.take_one() is None, "the next call sees that it has gone"
    house.buffer._run_streams = {}  # as the next run of records would
    del stream
    gc.collect()
    assert len(positions._passed) == 0, "nor are its records"


async def test_what_may_be_committed_does_not_go_back_when_the_next_records_come() -> None:
    """Behind the last record done lay an aborted transaction: its end was committed, and then the record's."""
    house, stream = await house_past_an_aborted_transaction()
    positions = house.partitions.positions
    house.buffer.feed(stream, _one_record(FIRST, 17))
    assert positions.done_offset(stream) == 17, "it waits"
    assert house.buffer.take_one() is not None
    assert positions.done_offset(stream) == 17, "it is in hand"
    assert house.buffer.take_one() is None
    assert positions.done_offset(stream) == 18


async def test_what_user_code_commits_does_not_go_back_when_the_next_records_come() -> None:
    """Behind an aborted transaction its end was committed, and then the end of what had been handed out before it."""
    house, stream = await house_past_an_aborted_transaction()
    positions = house.partitions.positions
    assert positions.behind(stream, 1) == 17
    house.buffer.feed(stream, _one_record(FIRST, 17))
    assert positions.behind(stream, 1) == 17, "it waits"
    assert house.buffer.take_one() is not None
    assert positions.behind(stream, 18) == 18
    house.buffer.seek(stream, 1)
    assert positions.behind(stream, 1) == 1, "user code sought"


async def test_a_record_that_is_taken_while_user_code_commits_is_not_passed() -> None:
    """One task commits what was handed out, and another one takes the next record just then."""
    house, _ = await house_past_an_aborted_transaction()
    house.fetcher.positions[FIRST] = 18

    class TakenMeanwhile:
        partition, chunks, seeking, exhausted = FIRST, (), False, False

        @property
        def position(self) -> int:
            self.exhausted = True
            return 17

    meanwhile: Any = TakenMeanwhile()
    house.buffer.streams[FIRST] = meanwhile
    assert house.partitions.positions.behind(meanwhile, 17) == 17


@pytest.mark.parametrize("behind", [0, 200], ids=["the log was made anew", "its beginning has expired"])
async def test_where_the_log_goes_on_may_be_committed_though_nothing_came(behind: int) -> None:
    """The offset that was out of range stayed, and what came until the next start was passed over."""
    house = House()
    await house.with_a_record_in_hand(FIRST)
    stream, positions = house.buffer.streams[FIRST], house.partitions.positions
    house.fetcher.positions[FIRST], house.fetcher.resets[FIRST] = behind, Reset(first=False)
    assert positions.done_offset(stream) is None, "it is in hand"
    assert house.buffer.take_one() is None
    assert (positions.position(stream), positions.done_offset(stream)) == (behind, behind)


async def test_where_the_log_goes_on_may_be_committed_though_nothing_ever_came() -> None:
    house = House()
    await house.with_a_record_in_hand(FIRST)
    stream, positions = house.buffer.streams[FIRST], house.partitions.positions
    stream.forget_hand()  # given up
    house.fetcher.positions[FIRST] = 200
    assert positions.done_offset(stream) is None
    house.fetcher.resets[FIRST] = Reset(first=False)
    assert positions.done_offset(stream) is None, "a record that was given up is handed out again"
    house.fetcher.resets[FIRST] = Reset(first=True)
    assert positions.done_offset(stream) == 200, "nothing was given since it was fetched from there"


@pytest.mark.parametrize("offset", [0, 1])
async def test_a_seek_back_before_what_holds_no_records_counts(offset: int) -> None:
    house, stream = await house_past_an_aborted_transaction()
    positions = house.partitions.positions
    house.buffer.seek(stream, offset)
    assert positions.done_offset(stream) == offset


async def test_commands_for_an_acquisition_that_was_lost_leave_the_present_one_alone() -> None:
    house = House()
    await house.with_a_record_in_hand(FIRST)
    stream = house.buffer.streams[FIRST]
    house.partitions.stop(c.StopCommand(partition=FIRST, acquisition_id=9))
    assert stream.running
    house.partitions.drop(c.DropCommand(partition=FIRST, acquisition_id=9))
    assert house.buffer.streams == {FIRST: stream}


def reached(house: House) -> list[int | None]:
    return [event.done for event in house.events if isinstance(event, e.BoundReachedEvent)]


async def with_three(house: House) -> Stream:
    """Record 0 of FIRST is in hand, 1 and 2 wait."""
    await house.with_a_record_in_hand(FIRST)
    stream = house.buffer.streams[FIRST]
    for offset in (1, 2):
        house.buffer.feed(stream, _one_record(FIRST, offset))
    return stream


async def test_a_bound_is_told_when_all_below_it_is_done() -> None:
    house = House()
    await with_three(house)
    house.partitions.bind(c.BoundCommand(partition=FIRST, acquisition_id=1, until=2))
    assert house.buffer.take_one().offset == 1
    await asyncio.sleep(0)
    assert reached(house) == []
    assert house.buffer.take_one() is None, "record 2 is the receiver's"
    await house.until(lambda: bool(reached(house)))
    assert reached(house) == [2]
    house.partitions.stop(c.StopCommand(partition=FIRST, acquisition_id=1))
    await asyncio.gather(*house.tasks)
    assert drained(house) == [2]


async def test_a_bound_that_lies_behind_is_told_when_the_record_in_hand_is_done() -> None:
    house = House()
    await with_three(house)
    house.partitions.bind(c.BoundCommand(partition=FIRST, acquisition_id=1, until=0))
    assert reached(house) == []
    assert house.buffer.take_one() is None
    await house.until(lambda: bool(reached(house)))
    house.events.clear()
    house.partitions.bind(c.BoundCommand(partition=FIRST, acquisition_id=1, until=0))
    assert reached(house) == [1], "at once, with nothing in hand"


async def test_a_stop_below_a_bound_is_drained() -> None:
    """The agent is told of records only at the bound; a stop is told of the next one."""
    house = House()
    stream = await with_three(house)
    house.partitions.bind(c.BoundCommand(partition=FIRST, acquisition_id=1, until=9))
    house.partitions.stop(c.StopCommand(partition=FIRST, acquisition_id=1))
    assert not house.buffer.turns.bounds.holds(stream)
    assert house.buffer.take_one() is None
    await house.until(lambda: bool(drained(house)))
    assert (drained(house), reached(house)) == ([1], [])


async def test_a_bound_that_is_lifted_is_no_bound() -> None:
    house = House()
    await with_three(house)
    house.partitions.bind(c.BoundCommand(partition=FIRST, acquisition_id=1, until=1))
    assert house.buffer.take_one() is None
    house.partitions.unbind(c.UnboundCommand(partition=FIRST, acquisition_id=2))
    assert house.buffer.take_one() is None, "another acquisition's"
    house.partitions.unbind(c.UnboundCommand(partition=FIRST, acquisition_id=1))
    assert [house.buffer.take_one().offset for _ in range(2)] == [1, 2]
    await asyncio.sleep(0)
    assert len(reached(house)) <= 1
    assert not house.buffer.streams[FIRST].listening


@pytest.mark.parametrize("what", ["pause", "resume", "seek"])
async def test_user_code_that_pauses_or_seeks_is_given_no_bound(what: str) -> None:
    house = House()
    stream = await with_three(house)
    house.partitions.bind(c.BoundCommand(partition=FIRST, acquisition_id=1, until=2))
    if what == "seek":
        house.buffer.seek(stream, 0)
        house.partitions.seek(stream, 0)
    else:
        house.partitions.paused(stream, what == "pause")
    dropped = [event for event in house.events if isinstance(event, e.SliceDroppedEvent)]
    assert [(event.partition, event.acquisition_id) for event in dropped] == [(FIRST, 1)] * (what != "resume")


async def test_a_bound_takes_the_place_of_an_idle_point_that_nobody_waits_for_any_more() -> None:
    """A rebalance dropped a planned move, and the partition is sliced: it stood still at its bound until its time."""
    house = House()
    await house.with_a_record_in_hand(FIRST)
    house.partitions.await_idle_point(c.AwaitIdlePointCommand(partition=FIRST, acquisition_id=1, committed=0))
    for offset in (1, 2):
        house.buffer.feed(house.buffer.streams[FIRST], _one_record(FIRST, offset))
    house.partitions.bind(c.BoundCommand(partition=FIRST, acquisition_id=1, until=2))
    assert house.buffer.take_one().offset == 1
    assert house.buffer.take_one() is None
    await house.until(lambda: bool(reached(house)))
    assert reached(house) == [2]
    assert house.lulls() == []


async def test_an_idle_point_that_is_waited_for_after_a_bound_is_told() -> None:
    """A plan moves a partition that was promised: its bound ends, then its idle point is waited for."""
    house = House()
    await house.with_a_record_in_hand(FIRST)
    house.partitions.bind(c.BoundCommand(partition=FIRST, acquisition_id=1, until=9))
    house.partitions.unbind(c.UnboundCommand(partition=FIRST, acquisition_id=1))
    house.partitions.await_idle_point(c.AwaitIdlePointCommand(partition=FIRST, acquisition_id=1, committed=0))
    assert house.buffer.take_one() is None
    await house.until_lulls(1)


async def test_a_record_that_is_done_while_its_idle_point_is_asked_for_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """User code's thread looks whether it is to tell, and the agent's whether something is in hand."""
    house = House()
    await house.with_a_record_in_hand(FIRST)
    done_offset = house.partitions.positions.done_offset

    def meanwhile(stream: Stream) -> int | None:
        house.buffer.take_one()
        return done_offset(stream)

    monkeypatch.setattr(house.partitions.positions, "done_offset", meanwhile)
    house.partitions.await_idle_point(c.AwaitIdlePointCommand(partition=FIRST, acquisition_id=1, committed=0))
    await house.until_lulls(1)
    assert house.lulls() == [(1, False)]


async def test_what_is_lost_has_no_bound() -> None:
    house = House()
    await with_three(house)
    house.partitions.bind(c.BoundCommand(partition=FIRST, acquisition_id=1, until=9))
    house.partitions.drop(c.DropCommand(partition=FIRST, acquisition_id=1))
    assert not house.buffer.turns.bounds.until


def _answers(house: House, *answers: int | Exception) -> None:
    """The brokers answer so, one after the other, where a partition begins."""
    left = list(answers)

    async def reset_offset(partition: Partition) -> int:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    house.fetcher.reset_offset = reset_offset  # type: ignore[method-assign]


@pytest.mark.looptime
async def test_a_leader_that_is_away_for_long_holds_up_its_partition_only() -> None:
    """No answer within ``request_timeout_ms`` ended the whole consumer, for good."""
    house = House()
    _answers(house, KafkaTimeoutError("no answer in 40 s"), LeaderNotAvailableError(), 7)
    house.partitions.open([_open(FIRST, acquisition_id=1, offset=None)])
    await house.until_opened(FIRST)
    assert (house.failures, house.fetcher.taken) == ([], {FIRST: 7})
    assert not house.buffer.errors.concern(()), "it passes, and nobody is troubled"


@pytest.mark.looptime
async def test_a_start_that_a_broker_cannot_tell_is_raised_and_asked_for_again() -> None:
    house = House()
    _answers(house, UnknownError("the broker's log says why"), 7)
    house.partitions.open([_open(FIRST, acquisition_id=1, offset=None)])
    await house.until_opened(FIRST)
    assert (house.failures, house.fetcher.taken) == ([], {FIRST: 7})
    assert isinstance(house.buffer.errors.take((FIRST,)), UnknownError)


@pytest.mark.looptime
async def test_the_start_of_what_is_lost_meanwhile_is_not_asked_for_again() -> None:
    house = House()
    asked: list[Partition] = []

    async def reset_offset(partition: Partition) -> int:
        asked.append(partition)
        house.changed.set()
        raise UnknownError("for ever")

    house.fetcher.reset_offset = reset_offset  # type: ignore[method-assign]
    house.partitions.open([_open(FIRST, acquisition_id=1, offset=None)])
    await house.until(lambda: bool(asked))
    house.partitions.drop(c.DropCommand(partition=FIRST, acquisition_id=1))
    before = len(asked)
    await asyncio.sleep(10.0)
    assert len(asked) == before
    assert not house.buffer.errors.concern(()), "its errors are nobody's any more"
    assert all(task.done() for task in house.tasks)


@pytest.mark.looptime
@pytest.mark.parametrize("error", [UnknownError("of a broker"), TopicAuthorizationFailedError("topic")])
async def test_a_start_that_is_refused_after_the_loss_is_nobodys_error(error: Exception) -> None:
    """It was raised for a partition that another member had, and one that is refused for good ended the consumer."""
    house = House()

    async def reset_offset(partition: Partition) -> int:
        house.partitions.drop(c.DropCommand(partition=FIRST, acquisition_id=1))
        house.changed.set()
        raise error

    house.fetcher.reset_offset = reset_offset  # type: ignore[method-assign]
    house.partitions.open([_open(FIRST, acquisition_id=1, offset=None)])
    await asyncio.sleep(1.0)
    assert all(task.done() for task in house.tasks)
    assert (house.failures, house.buffer.errors.concern(())) == ([], False)


async def test_what_runs_again_when_its_listener_has_gone_is_told_to_the_next_one() -> None:
    """It counted as told to go, so that the next listener never heard of it."""
    house = House()
    await house.with_a_record_in_hand(FIRST)
    stream = house.buffer.streams[FIRST]
    house.calls.returns.clear()
    assert house.buffer.take_one() is None
    house.partitions.stop(c.StopCommand(partition=FIRST, acquisition_id=1))
    await house.until(lambda: bool(house.calls.revoked))
    house.partitions.listener.target = None
    house.calls.returns.set()
    await house.until(lambda: any(isinstance(event, e.DrainedEvent) for event in house.events))
    house.partitions.resume(c.ResumeCommand(partition=FIRST, acquisition_id=1))
    assert (stream.running, stream.revoked) == (True, False)


async def _take_in_a_task(house: House, go_on: asyncio.Event) -> asyncio.Task[None]:
    """A task takes the first record of a partition, which is lost then and comes again."""
    taken = asyncio.Event()

    async def take() -> None:
        assert house.buffer.take_one()
        house.buffer.hand.taken(asyncio.current_task())
        taken.set()
        await go_on.wait()

    house.partitions.open([_open(FIRST, acquisition_id=1, offset=0)])
    await house.until_opened(FIRST)
    house.partitions.run(c.RunCommand(partition=FIRST, acquisition_id=1))
    house.buffer.feed(house.buffer.streams[FIRST], _one_record(FIRST, 0))
    task = asyncio.create_task(take())
    await taken.wait()
    house.partitions.drop(c.DropCommand(partition=FIRST, acquisition_id=1))
    house.events.clear()
    house.partitions.open([_open(FIRST, acquisition_id=2, offset=0)])
    return task


@pytest.mark.looptime
async def test_a_partition_comes_back_when_the_task_ends_that_had_a_record_of_it() -> None:
    """A task for each partition, cancelled when it is lost: nobody ever asked again, and it stood still for good."""
    house, go_on = House(), asyncio.Event()
    task = await _take_in_a_task(house, go_on)
    await asyncio.sleep(5.0)
    assert house.events == []
    task.cancel()
    await house.until_opened(FIRST)
    assert asyncio.get_running_loop().time() < 6.0


@pytest.mark.looptime
async def test_a_partition_comes_back_after_the_drain_time_at_the_latest(caplog: pytest.LogCaptureFixture) -> None:
    """One record that hangs kept a partition from everybody, with the member that was given it anew."""
    house, go_on = House(), asyncio.Event()
    task = await _take_in_a_task(house, go_on)
    await asyncio.sleep(19.0)
    assert house.events == []
    await asyncio.sleep(2.0)
    await house.until_opened(FIRST)
    assert "user code has had a record of it in hand for another 20 s" in caplog.text
    go_on.set()
    await task
    house.buffer.asked(0.0, ())
    assert house.buffer.hand.streams == []
    house.partitions.drop(c.DropCommand(partition=FIRST, acquisition_id=2))
    house.events.clear()
    house.partitions.open([_open(FIRST, acquisition_id=3, offset=0)])
    await house.until_opened(FIRST)
