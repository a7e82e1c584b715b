"""Whether user code still works on a record that it has asked for the next one of is seen of a few records."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from loadtrim_agent.delivery import doubt, hand, record_buffer, samples
from loadtrim_agent.delivery.doubt import Doubt
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.wire.telemetry_records import Untold

from .test_record_buffer import ONE, chunk, handout_of

RECORDS = 200
TOLERANCE_SECONDS = 0.1


class ManualClock:
    """Time that a test turns."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    manual = ManualClock()
    for module in (hand, samples, record_buffer):
        monkeypatch.setattr(module, "boot_time", manual)
    return manual


def why_untold(buffer: RecordBuffer) -> Untold:
    doubting = Doubt()
    doubting.look(buffer.hand)
    return doubting.untold


def buffer_at(clock: ManualClock) -> RecordBuffer:
    buffer = handout_of(ONE)
    buffer.lease_until = clock.now + 1e6
    buffer.hand.samples.tolerance_seconds = TOLERANCE_SECONDS
    buffer.feed(buffer.streams[ONE], chunk(ONE, 3, RECORDS))
    return buffer


class Kept:
    """What user code keeps beyond the call that asks for the next record."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.things: list[Any] = []
        self.last: Any = None
        self.history: deque[Any] = deque(maxlen=20)
        self.release = asyncio.Event()

    async def end(self) -> None:
        self.release.set()
        await asyncio.gather(*(each for each in self.things if isinstance(each, asyncio.Task)))

    async def task(self, record: Any) -> None:
        self.things.append(asyncio.create_task(self._wait(record)))

    async def task_of_the_value(self, record: Any) -> None:
        self.things.append(asyncio.create_task(self._wait(record.value)))

    async def task_of_a_copy(self, record: Any) -> None:
        self.things.append(asyncio.create_task(self._wait(record.value.decode())))

    async def collected(self, record: Any) -> None:
        self.things.append(record)

    async def value_queued(self, record: Any) -> None:
        self.things.append(record.value)

    async def nothing(self, record: Any) -> None: ...

    async def awaited(self, record: Any) -> None:
        await asyncio.create_task(asyncio.sleep(0))

    async def awaited_with_a_time_limit(self, record: Any) -> None:
        """A timer that has been cancelled keeps its context until it would have been due."""
        async with asyncio.timeout(30):
            await asyncio.sleep(0)

    async def awaited_and_remembered(self, record: Any) -> None:
        self.history.append(record)
        await asyncio.sleep(0)

    async def the_last_remembered(self, record: Any) -> None:
        self.last = record

    async def _wait(self, what: Any) -> None:
        await self.release.wait()
        del what


async def iterate(buffer: RecordBuffer, clock: ManualClock, body: Callable[[Any], Awaitable[None]]) -> None:
    """Hand out record by record; user code asks for the next in no time, and waits a little for it now and then."""
    for number in range(RECORDS):
        record = buffer.take_one()
        await body(record)
        del record
        if number % 4 == 3:
            buffer.hand.samples.asked(clock.now)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        clock.now += 0.05


@pytest.mark.parametrize("shape", ["task", "task_of_the_value", "task_of_a_copy", "collected", "value_queued"])
async def test_records_that_are_kept_are_seen(clock: ManualClock, shape: str) -> None:
    """ReportedDone "in time 100 %, half within 10 ms" while records were 18 s late."""
    buffer, kept = buffer_at(clock), Kept(clock)
    await iterate(buffer, clock, getattr(kept, shape))
    assert buffer.hand.samples.kept
    assert why_untold(buffer) is Untold.KEPT
    await kept.end()


@pytest.mark.parametrize(
    "shape",
    ["nothing", "awaited", "awaited_with_a_time_limit", "awaited_and_remembered", "the_last_remembered",
    ],
)  # fmt: skip
async def test_what_is_done_before_the_next_call_is_not_taken_for_kept(clock: ManualClock, shape: str) -> None:
    buffer, kept = buffer_at(clock), Kept(clock)
    await iterate(buffer, clock, getattr(kept, shape))
    assert not buffer.hand.samples.beyond
    assert why_untold(buffer) is Untold.NOTHING
    await kept.end()


async def test_a_pool_that_one_record_opens_is_not_taken_for_kept(clock: ManualClock) -> None:
    buffer, kept = buffer_at(clock), Kept(clock)

    async def body(record: Any) -> None:
        if buffer.hand.samples.waiting and not kept.things:
            await kept.task(None)

    await iterate(buffer, clock, body)
    assert kept.things
    assert not buffer.hand.samples.beyond
    await kept.end()


async def test_what_is_kept_for_less_than_the_tolerance_is_known_well_enough(clock: ManualClock) -> None:
    buffer, kept = buffer_at(clock), Kept(clock)

    async def body(record: Any) -> None:
        tasks = [asyncio.create_task(asyncio.sleep(0))]
        buffer.hand.samples.asked(clock.now)
        clock.now += TOLERANCE_SECONDS / 2
        for _ in range(5):
            await asyncio.sleep(0)
        assert tasks.pop().done()

    await iterate(buffer, clock, body)
    assert buffer.hand.samples.beyond
    assert not buffer.hand.samples.kept
    assert why_untold(buffer) is Untold.BRIEFLY
    await kept.end()


async def test_a_program_that_stops_keeping_records_is_believed_again(clock: ManualClock) -> None:
    buffer, kept = buffer_at(clock), Kept(clock)
    await iterate(buffer, clock, kept.collected)
    assert buffer.hand.samples.kept
    for first in range(3 + RECORDS, 3 + 9 * RECORDS, RECORDS):
        buffer.feed(buffer.streams[ONE], chunk(ONE, first, RECORDS))
        await iterate(buffer, clock, kept.nothing)
    assert not buffer.hand.samples.beyond


async def test_batches_are_looked_at_too(clock: ManualClock) -> None:
    for keep in (True, False):
        buffer, held = buffer_at(clock), []
        for _ in range(RECORDS):
            batch = buffer.take_many((), 1)
            if keep:
                held.append(batch)
            clock.now += 0.05
        assert buffer.hand.samples.kept == keep


async def test_a_program_that_says_what_is_done_is_not_looked_at(clock: ManualClock) -> None:
    buffer, kept = buffer_at(clock), Kept(clock)
    await iterate(buffer, clock, kept.collected)
    buffer.feed(buffer.streams[ONE], chunk(ONE, 3 + RECORDS, RECORDS))
    assert buffer.hand.telling.work_on(kept.things[-1])
    assert why_untold(buffer) is Untold.NOTHING


async def test_several_tasks_that_ask_one_consumer_are_seen(clock: ManualClock) -> None:
    """The call of one makes done what another one works on."""
    buffer = buffer_at(clock)

    async def asks() -> None:
        for _ in range(5):
            buffer.hand.asked(asyncio.current_task())
            assert buffer.take_one() is not None
            buffer.hand.taken(asyncio.current_task())
            clock.now += 0.05
            await asyncio.sleep(0)

    await asks()
    assert why_untold(buffer) is Untold.NOTHING
    await asyncio.gather(asks(), asks())
    assert why_untold(buffer) is Untold.TASKS
    clock.now += samples.SEVERAL_TASKS_SECONDS
    assert why_untold(buffer) is Untold.NOTHING


async def test_a_task_that_takes_over_from_one_that_has_ended_asks_alone(clock: ManualClock) -> None:
    buffer = buffer_at(clock)

    async def asks() -> None:
        buffer.hand.asked(asyncio.current_task())
        assert buffer.take_one() is not None
        buffer.hand.taken(asyncio.current_task())

    for _ in range(10):
        await asyncio.create_task(asks())
    assert why_untold(buffer) is Untold.NOTHING


async def test_latency_is_known_where_commits_by_hand_come_in_time(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(doubt, "boot_time", clock)
    buffer, doubting = buffer_at(clock), Doubt()
    doubting.by_hand = buffer.hand.samples.kept = True

    def look() -> Untold:
        doubting.look(buffer.hand)
        return doubting.untold

    assert look() is Untold.COMMITTED
    doubting.uncommitted(0)
    assert look() is Untold.COMMITTED
    doubting.uncommitted(1)
    assert look() is Untold.KEPT
    clock.now += doubt.COMMITS_TELL_SECONDS - 1.0
    assert look() is Untold.KEPT
    clock.now += 1.0
    assert look() is Untold.COMMITTED
    doubting.uncommitted(3)
    assert look() is Untold.KEPT
    assert [record.message[:67] for record in caplog.records] == [
        "The latency of records that are not committed in time is unknown: t"
    ]


def test_what_is_known_of_what_is_kept() -> None:
    assert [why for why in Untold if why.latency_known] == [Untold.NOTHING, Untold.BRIEFLY, Untold.COMMITTED]
    assert [why for why in Untold if why.at_next_call] == [Untold.NOTHING, Untold.BRIEFLY]
