"""An iteration goes on where aiokafka's would: after a time limit, and after an error of one call."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import pytest
from aiokafka.errors import KafkaError, RecordTooLargeError
from aiokafka.structs import TopicPartition
from prometheus_client import CollectorRegistry

from loadtrim import Consumer, Settings, managed
from loadtrim.managed import ManagedConsumer
from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.delivery import record_buffer, user_sleep
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from unit.delivery.test_record_buffer import ONE, chunk
from unit.sdk.test_consumer import make
from unit.sdk.test_managed import StartingAgent, process, started, starting

__all__ = ["process"]


def consuming() -> tuple[Consumer, RecordBuffer]:
    """Return a consumer with three records, and what they lie in."""
    consumer = make()
    _, agent = started(consumer)
    assert isinstance(consumer._client, ManagedConsumer)
    return consumer, agent.buffer


async def values_of(records: AsyncIterator[Any], count: int) -> list[bytes]:
    return [(await asyncio.wait_for(anext(records), 5.0)).value for _ in range(count)]


@pytest.mark.parametrize("undecided", [True, False])
async def test_after_a_time_limit_the_next_records_come(*, undecided: bool) -> None:
    """A loop that does something else whenever nothing has come for a while ended with the first time limit."""
    consumer, buffer = consuming()
    records = aiter(consumer)
    buffer.hand.telling._calls = 0 if undecided else 10**6
    for first in (0, 3, 6):
        assert await values_of(records, 3) == [b"%d" % number for number in range(first, first + 3)]
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(records), 0.01)
        assert buffer.streams[ONE].done == first + 3, "the next one was asked for"
        buffer.feed(buffer.streams[ONE], chunk(ONE, first + 3))


async def test_an_error_of_one_call_is_told_once_and_the_next_records_come() -> None:
    consumer, buffer = consuming()
    records = aiter(consumer)
    assert await values_of(records, 1) == [b"0"]
    buffer.fail(KafkaError("for now"))
    with pytest.raises(KafkaError, match="for now"):
        await values_of(records, 1)
    assert await values_of(records, 2) == [b"1", b"2"]


@pytest.mark.parametrize("step", [aiter, lambda consumer: consumer], ids=["async for", "anext"])
async def test_a_record_that_is_too_large_is_passed_over(step: Callable[[Any], Any]) -> None:
    """It ended the loop of a program that aiokafka lets go on."""
    consumer, buffer = consuming()
    records = step(consumer)
    assert await values_of(records, 1) == [b"0"]
    buffer.fail(RecordTooLargeError("too large"), ONE)
    assert await values_of(records, 2) == [b"1", b"2"]


async def test_it_ends_for_good_when_the_consumer_stops() -> None:
    consumer, _ = consuming()
    records = aiter(consumer)
    await values_of(records, 3)
    asked = asyncio.ensure_future(anext(records))
    await asyncio.sleep(0)
    await consumer.stop()
    for ended in (asked, anext(records), anext(records)):
        with pytest.raises(StopAsyncIteration):
            await ended


async def test_a_loop_that_is_left_lets_go_of_its_iteration_at_once() -> None:
    """Without the garbage collector."""
    consumer, _ = consuming()
    records = aiter(consumer)
    await anext(records)
    iteration = weakref.ref(records)
    del records
    assert iteration() is None


@pytest.mark.parametrize("undecided", [True, False])
async def test_several_tasks_share_an_iteration(*, undecided: bool) -> None:
    """All but the first that waited died: "asynchronous generator is already running"."""
    consumer, buffer = consuming()
    buffer.hand.telling._calls = 0 if undecided else 10**6
    records, seen = aiter(consumer), list[int]()

    async def work() -> None:
        async for record in records:
            seen.append(record.offset)

    working = [asyncio.create_task(work()) for _ in range(3)]
    for end in (3, 6, 9):
        while buffer.streams[ONE].position < end:  # noqa: ASYNC110 - what is waited for happens in the code under test
            await asyncio.sleep(0)
        if end < 9:
            buffer.feed(buffer.streams[ONE], chunk(ONE, end))
    await asyncio.wait_for(consumer.stop(), 5.0)
    await asyncio.gather(*working)
    assert sorted(seen) == list(range(9))


class Counting(Consumer):
    """Counts its records, as a subclass of aiokafka's consumer would."""

    counted = 0

    async def getone(self, *partitions: TopicPartition) -> Any:
        record = await super().getone(*partitions)
        self.counted += 1
        return record


async def test_an_iteration_asks_a_subclass_for_its_records() -> None:
    """It talked to the buffer itself: what a subclass does with each record was left out."""
    consumer = Counting("topic", group_id="g", settings=Settings(http="off"), registry=CollectorRegistry())
    _, agent = started(consumer)
    records = aiter(consumer)
    assert await values_of(records, 2) == [b"0", b"1"]
    assert (await consumer.__anext__()).value == b"2"
    assert consumer.counted == 3
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(records), 0.01)
    agent.buffer.feed(agent.buffer.streams[ONE], chunk(ONE, 3))
    assert await values_of(records, 1) == [b"3"]


class Clock:
    """Virtual seconds, which only a handler that computes lets go by."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = boot_time()
        for module in (record_buffer, user_sleep, managed):
            monkeypatch.setattr(module, "boot_time", lambda: self.now)


class RunningAgent(StartingAgent):
    """Has its generation at once, and 100 records."""

    async def start(self) -> None:
        self.buffer.feed(self.buffer.streams[ONE], chunk(ONE, 3, 97))


async def one_after_the_other(consumer: Consumer) -> AsyncIterator[int]:
    async for _ in consumer:
        yield 1


async def one_by_one(consumer: Consumer) -> AsyncIterator[int]:
    while True:
        await consumer.getone()
        yield 1


async def in_batches(consumer: Consumer) -> AsyncIterator[int]:
    while True:
        batches = await consumer.getmany(max_records=2)
        yield sum(map(len, batches.values()))


@pytest.mark.usefixtures("process")
@pytest.mark.parametrize("waits", [False, True], ids=["computes", "waits"])
@pytest.mark.parametrize("records_of", [one_after_the_other, one_by_one, in_batches])
async def test_a_handler_that_never_waits_lets_the_loop_turn(
    records_of: Callable[[Consumer], AsyncIterator[int]], monkeypatch: pytest.MonkeyPatch, *, waits: bool
) -> None:
    """On a backlog the loop never turned: no timer, no task and no handler of a signal ran until all was done."""
    clock, loop = Clock(monkeypatch), asyncio.get_running_loop()
    agent = RunningAgent()
    consumer = starting(agent, monkeypatch, topic="topic")
    await consumer.start()
    agent.buffer.hand.telling._calls = 10**6  # the first calls let it turn for another reason
    turned_at: list[float] = []

    def turned() -> None:
        turned_at.append(clock.now)
        loop.call_soon(turned)

    loop.call_soon(turned)
    began, handled, waited = clock.now, 0, 0
    async for count in records_of(consumer):
        handled += count
        clock.now += 0.02 * count
        if waits:
            await asyncio.sleep(0)
            waited += 1
        if handled == 100:
            break
    turns = [at for at in turned_at if began < at < began + 2.0]
    longest = max(later - earlier for earlier, later in pairwise([began, *turns, began + 2.0]))
    assert longest < 2.5 * user_sleep.TURN_SECONDS
    turns_max = user_sleep.TURN_ITERATIONS * (2.0 / user_sleep.TURN_SECONDS + 1)
    assert len(turns) <= (waited if waits else turns_max), "no turn for nothing"
    agent.left.set()
    await consumer.stop()


@pytest.mark.parametrize("call", ["getone", "getmany"])
async def test_a_call_that_is_cancelled_while_the_loop_turns_loses_no_record(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    consumer, buffer = consuming()
    buffer.hand.telling._calls = 10**6
    buffer.sleep.turn_due = 0.0
    options = {"max_records": 1} if call == "getmany" else {}
    await getattr(consumer, call)(**options)
    await asyncio.sleep(0)
    clock.now += 10.0
    buffer.sleep._turned = False  # The task below begins with a turn, which is to come after the call.
    asking = asyncio.ensure_future(getattr(consumer, call)(**options))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    assert (buffer.streams[ONE].done, buffer.streams[ONE].position, buffer.streams[ONE].in_hand) == (1, 1, None)
    assert (await consumer.getone()).offset == 1
