"""The user's rebalance listener, called from the agent's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.listener import IncrementalRebalanceListener, Listener

ONE, TWO, THREE = (Partition("orders", index) for index in range(3))
WAIT_SECONDS = 5.0


class Counted:
    def __init__(self) -> None:
        self.errors: list[str] = []
        self.held_up: list[bool] = []

    def error(self, where: str) -> None:
        self.errors.append(where)

    def hold_up(self, held_up: bool) -> None:
        self.held_up.append(held_up)


class Workers(IncrementalRebalanceListener):
    """A worker per partition, cancelled and awaited without a guard, as user code often does."""

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        await self._end()

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await self._end()

    async def _end(self) -> None:
        worker = asyncio.create_task(asyncio.sleep(60.0))
        await asyncio.sleep(0)
        worker.cancel()
        await worker


def listener_of(target: ConsumerRebalanceListener, counted: Counted | None = None) -> tuple[Listener, Counted]:
    counted = counted or Counted()
    listener = Listener(asyncio.get_running_loop(), ErrorBoundary(counted), counted)
    listener.target = target
    return listener, counted


async def test_one_that_ends_with_a_cancellation_counts_as_one_that_raised() -> None:
    """Its partitions were never opened, or never released, and nothing was said."""
    listener, counted = listener_of(Workers())
    async with asyncio.timeout(WAIT_SECONDS):
        await listener.assigned([ONE])
        await listener.revoked([ONE])
    assert counted.errors == ["listener"] * 2


async def test_the_agents_own_end_cancels_the_call() -> None:
    begun = asyncio.Event()

    class Slow(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            begun.set()
            await asyncio.sleep(60.0)

        async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None: ...

    listener, counted = listener_of(Slow())
    call = asyncio.create_task(listener.assigned([ONE]))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, WAIT_SECONDS)
    assert counted.errors == []


class Calls:
    """What a listener was called with: indexes of partitions."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[int]]] = []
        self.returns = asyncio.Event()
        """Set while a call may return."""
        self.returns.set()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.calls.append(("assigned", {partition.partition for partition in assigned}))
        await self.returns.wait()

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.calls.append(("revoked", {partition.partition for partition in revoked}))
        await self.returns.wait()


class OfAiokafka(Calls, ConsumerRebalanceListener):  # type: ignore[misc]
    """Counts on aiokafka's calls."""


class Incremental(Calls, IncrementalRebalanceListener):
    """Counts on what comes and goes."""


async def come_and_go(listener: Listener) -> None:
    await listener.assigned([ONE, TWO])
    await listener.assigned([THREE])
    await listener.revoked([ONE])


async def test_one_of_aiokafka_is_called_as_aiokafka_calls_it() -> None:
    target = OfAiokafka()
    listener, gate = listener_of(target)
    await come_and_go(listener)
    assert gate.held_up == [True, False] * 3, "nothing is handed out between the two calls"
    assert target.calls == [
        ("revoked", set()),
        ("assigned", {0, 1}),
        ("revoked", {0, 1}),
        ("assigned", {0, 1, 2}),
        ("revoked", {0, 1, 2}),
        ("assigned", {1, 2}),
    ]


async def test_an_incremental_one_hears_of_what_comes_and_goes() -> None:
    target = Incremental()
    listener, gate = listener_of(target)
    await come_and_go(listener)
    assert gate.held_up == [], "what stays goes on"
    assert target.calls == [("assigned", {0, 1}), ("assigned", {2}), ("revoked", {0})]


async def all_told(*calls: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        await asyncio.gather(*calls)


async def test_what_changes_together_is_told_together() -> None:
    for target in (OfAiokafka(), Incremental()):
        listener, _ = listener_of(target)
        await listener.assigned([ONE, TWO])
        target.calls.clear()
        await all_told(listener.revoked([ONE]), listener.revoked([TWO]), listener.assigned([THREE]))
        assert target.calls == [("revoked", {0, 1}), ("assigned", {2})]


async def test_what_changes_during_a_call_is_told_by_the_next_one() -> None:
    target = Incremental()
    listener, _ = listener_of(target)
    target.returns.clear()
    first = asyncio.create_task(listener.assigned([ONE]))
    while not target.calls:  # noqa: ASYNC110 - what is waited for happens in the code under test
        await asyncio.sleep(0)
    rest = [asyncio.create_task(listener.assigned([partition])) for partition in (TWO, THREE)]
    await asyncio.sleep(0)
    target.returns.set()
    async with asyncio.timeout(WAIT_SECONDS):
        await asyncio.gather(first, *rest)
    assert target.calls == [("assigned", {0}), ("assigned", {1, 2})]


async def test_one_partition_that_goes_and_comes_back_is_told_in_that_order() -> None:
    target = Incremental()
    listener, _ = listener_of(target)
    await listener.assigned([ONE])
    target.calls.clear()
    await all_told(listener.revoked([ONE]), listener.assigned([ONE]))
    assert target.calls == [("revoked", {0}), ("assigned", {0})]


@pytest.mark.parametrize("kind", [OfAiokafka, Incremental])
async def test_what_is_as_new_is_told_to_go_and_to_come_but_not_at_a_leave(kind: type[Calls]) -> None:
    """At a leave it is held until nothing of it is in hand, and goes then."""
    target = kind()
    listener, _ = listener_of(target)  # type: ignore[arg-type]
    await listener.assigned([ONE, TWO])
    target.calls.clear()
    await listener.assigned_anew([ONE])
    told = {0} if kind is Incremental else {0, 1}
    assert target.calls == [("revoked", told), ("assigned", told)]
    target.calls.clear()
    listener.leaving = True
    telling = asyncio.create_task(listener.assigned_anew([ONE]))
    if kind is Incremental:
        await telling
    assert target.calls == []
    await all_told(listener.revoked([ONE, TWO]))
    await telling
    assert target.calls == [("revoked", {0, 1})]


async def test_what_is_over_before_user_code_hears_of_it_is_not_told() -> None:
    target = OfAiokafka()
    listener, _ = listener_of(target)
    await listener.assigned([ONE])
    target.calls.clear()
    await all_told(listener.assigned([TWO]), listener.revoked([TWO]))
    assert target.calls == []


@pytest.mark.parametrize("kind", [OfAiokafka, Incremental])
async def test_a_leave_is_one_call_with_all(kind: type[Calls]) -> None:
    """It was one for each partition: 24 calls of 0.3 s are 7 s."""
    target = kind()
    listener, _ = listener_of(target)  # type: ignore[arg-type]
    await listener.assigned([ONE, TWO, THREE])
    target.calls.clear()
    listener.leaving = True
    await all_told(*[listener.revoked([partition]) for partition in (ONE, TWO, THREE)])
    assert target.calls == [("revoked", {0, 1, 2})]


async def leaves_with_a_record_in_hand(target: Calls) -> None:
    listener, _ = listener_of(target)  # type: ignore[arg-type]
    await listener.assigned([ONE, TWO, THREE])
    target.calls.clear()
    listener.leaving = True
    idle = [asyncio.create_task(listener.revoked([partition])) for partition in (ONE, TWO)]
    await asyncio.sleep(1.0)
    target.calls.append(("done", {2}))
    await all_told(listener.revoked([THREE]))
    await asyncio.wait_for(asyncio.gather(*idle), WAIT_SECONDS)


@pytest.mark.looptime
async def test_a_leave_waits_for_the_record_in_hand() -> None:
    """A listener commits what is done, or saves what it is part of: what was in hand then was handed out twice."""
    target = OfAiokafka()
    await leaves_with_a_record_in_hand(target)
    assert target.calls == [("done", {2}), ("revoked", {0, 1, 2})]


@pytest.mark.looptime
async def test_an_incremental_one_hears_at_once_of_what_is_not_in_hand() -> None:
    target = Incremental()
    await leaves_with_a_record_in_hand(target)
    assert target.calls == [("revoked", {0, 1}), ("done", {2}), ("revoked", {2})]


async def test_a_leave_between_two_calls_is_not_told_again() -> None:
    target = OfAiokafka()
    listener, _ = listener_of(target)
    await listener.assigned([ONE])
    target.calls.clear()
    target.returns.clear()
    change = asyncio.create_task(listener.assigned([TWO]))
    async with asyncio.timeout(WAIT_SECONDS):
        while not target.calls:  # noqa: ASYNC110 - what is waited for happens in the code under test
            await asyncio.sleep(0)
    listener.leaving = True
    target.returns.set()
    await all_told(listener.revoked([ONE]), listener.revoked([TWO]))
    await asyncio.wait_for(change, WAIT_SECONDS)
    assert target.calls == [("revoked", {0})]


class Shown(ConsumerRebalanceListener):  # type: ignore[misc]
    """Notes what is shown as held in each call."""

    def __init__(self) -> None:
        self.listener: Listener
        self.shown: list[tuple[str, frozenset[Partition] | None]] = []

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.shown.append(("revoked", self.listener.shown))

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.shown.append(("assigned", self.listener.shown))


async def test_what_is_shown_as_held_is_what_the_call_tells() -> None:
    """State of what goes was kept where the listener asked ``assignment()``, and overwrote the new owner's."""
    target = Shown()
    target.listener, _ = listener_of(target)
    await target.listener.assigned([ONE, TWO])
    await target.listener.revoked([ONE])
    none, both, two = frozenset[Partition](), frozenset((ONE, TWO)), frozenset((TWO,))
    assert target.shown == [("revoked", none), ("assigned", both), ("revoked", both), ("assigned", two)]
    assert target.listener.shown is None


async def test_between_its_calls_a_plain_listener_sees_no_more_than_it_was_told() -> None:
    """Of a partition that it was told to have lost it paused what came back, and never resumed it."""
    plain, _ = listener_of(OfAiokafka())
    incremental, _ = listener_of(Incremental())
    for listener in (plain, incremental):
        await listener.assigned([ONE, TWO])
        await listener.revoked([ONE])
    assert list(plain.reported_of((ONE, TWO, THREE))) == [TWO]
    assert list(plain.reported_of((THREE,))) == []
    assert list(incremental.reported_of((ONE, TWO, THREE))) == [ONE, TWO, THREE]


async def test_a_task_that_a_listener_returns_is_not_waited_for() -> None:
    """aiokafka awaits coroutines only: a method that begins to consume, and returns the task, hung for ever."""

    class Consuming(Calls, ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> asyncio.Task[None]:  # type: ignore[override]
            self.task = asyncio.create_task(asyncio.sleep(60.0))
            return self.task

    target = Consuming()
    listener, _ = listener_of(target)
    await asyncio.wait_for(listener.assigned([ONE]), WAIT_SECONDS)
    target.task.cancel()


@pytest.mark.looptime
async def test_a_call_that_takes_long_is_told(caplog: pytest.LogCaptureFixture) -> None:
    target = Calls()
    target.returns.clear()
    listener, _ = listener_of(target)  # type: ignore[arg-type]
    change = asyncio.create_task(listener.assigned([ONE]))
    await asyncio.sleep(9.9)
    assert caplog.messages == []
    await asyncio.sleep(100.0)
    assert [text[:51] for text in caplog.messages] == ["on_partitions_revoked has not returned for 10 s. Wh"]
    target.returns.set()
    await change


async def test_what_it_was_never_told_of_does_not_go() -> None:
    target = OfAiokafka()
    listener, _ = listener_of(target)
    await listener.revoked([ONE])
    assert target.calls == []


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("kind", [OfAiokafka, Incremental])
async def test_what_ran_already_when_it_was_subscribed_is_told_to_go(kind: type[Calls], *, leaves: bool) -> None:
    """It goes before its turn to be told. User code had records of it, and another member was handed them too."""
    target = kind()
    listener, _ = listener_of(target)  # type: ignore[arg-type]
    listener.leaving = leaves
    await all_told(listener.introduce([ONE]), listener.revoked([ONE]))
    assert target.calls[0] == ("revoked", {0})
    assert ("assigned", {0}) not in target.calls
    target.calls.clear()
    await listener.revoked([ONE])
    assert target.calls == [], "once"


async def test_a_leave_waits_for_what_a_new_one_was_not_told_of_yet() -> None:
    """It was called for what was idle, while a record of another partition was in hand."""
    target = OfAiokafka()
    listener, _ = listener_of(target)
    introducing = asyncio.create_task(listener.introduce([ONE, TWO]))
    listener.leaving = True
    going = asyncio.create_task(listener.revoked([ONE]))
    for _ in range(10):
        await asyncio.sleep(0)
    assert target.calls == []
    await all_told(listener.revoked([TWO]), going, introducing)
    assert target.calls == [("revoked", {0, 1})]


async def test_a_new_one_holds_nothing_yet() -> None:
    first, second = Incremental(), Incremental()
    listener, _ = listener_of(first)
    await listener.assigned([ONE])
    listener.target = second
    await listener.assigned([ONE])
    assert second.calls == [("assigned", {0})]


async def test_a_listener_that_is_given_up_is_called_no_more() -> None:
    """User code subscribes without one while a change waits for its call."""
    target = OfAiokafka()
    listener, counted = listener_of(target)
    change = asyncio.create_task(listener.assigned([ONE]))
    await asyncio.sleep(0)
    listener.target = None
    await asyncio.wait_for(change, WAIT_SECONDS)
    assert (target.calls, counted.errors) == ([], [])


async def test_both_calls_are_of_one_listener() -> None:
    first, second = OfAiokafka(), OfAiokafka()
    listener, _ = listener_of(first)
    first.returns.clear()
    change = asyncio.create_task(listener.assigned([ONE]))
    async with asyncio.timeout(WAIT_SECONDS):
        while not first.calls:  # noqa: ASYNC110 - what is waited for happens in the code under test
            await asyncio.sleep(0)
    listener.target = second
    first.returns.set()
    await asyncio.wait_for(change, WAIT_SECONDS)
    assert (first.calls, second.calls) == ([("revoked", set()), ("assigned", {0})], [])


class Slow(Calls, ConsumerRebalanceListener):  # type: ignore[misc]
    """Each of its calls takes half a second."""

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await asyncio.sleep(0.5)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        await asyncio.sleep(0.5)


class Clocked(Counted):
    """A gate that notes how long it was closed."""

    closed_seconds = 0.0
    _closed_at = 0.0

    def hold_up(self, held_up: bool) -> None:
        now = asyncio.get_running_loop().time()
        if held_up:
            self._closed_at = now
        else:
            self.closed_seconds += now - self._closed_at


@pytest.mark.looptime
async def test_calls_without_end_hold_records_up_for_half_of_the_time() -> None:
    """Partitions that come and go one after the other had left no time for the records of those that stay."""
    gate, loop = Clocked(), asyncio.get_running_loop()
    listener, _ = listener_of(Slow(), gate)
    began = loop.time()
    for _ in range(5):
        await listener.assigned([ONE])
        await listener.revoked([ONE])
    assert gate.closed_seconds == pytest.approx(10.0)
    assert loop.time() - began == pytest.approx(19.0)


@pytest.mark.looptime
async def test_a_call_of_a_process_that_was_stopped_delays_the_next_one_for_a_moment_only() -> None:
    """It had taken as long as the process stood still, and what came after that waited as long again."""

    class Stopped(Slow):
        async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            await asyncio.sleep(60.0)

    gate, loop = Clocked(), asyncio.get_running_loop()
    listener, _ = listener_of(Stopped(), gate)
    await listener.assigned([ONE])
    began = loop.time()
    listener.target = Incremental()
    await listener.assigned([TWO])
    assert loop.time() - began == pytest.approx(2.0)


@pytest.mark.looptime
async def test_a_leave_does_not_wait_for_records_to_be_handed_out() -> None:
    gate, loop = Clocked(), asyncio.get_running_loop()
    listener, _ = listener_of(Slow(), gate)
    await listener.assigned([ONE])
    release = asyncio.create_task(listener.revoked([ONE]))
    await asyncio.sleep(0.2)
    assert gate.closed_seconds == pytest.approx(1.0)
    listener.leaving = True
    began = loop.time()
    await release
    assert loop.time() - began == pytest.approx(0.5)


async def test_a_leave_does_not_wait_for_what_has_come_and_was_not_told() -> None:
    """It could not go before user code had heard of it, and that call waited until all had gone: the drain time."""
    told: list[tuple[str, int]] = []

    class Slow(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            told.append(("assigned", len(assigned)))
            await asyncio.sleep(0.05)

        async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            told.append(("revoked", len(revoked)))

    listener, _ = listener_of(Slow())
    async with asyncio.timeout(WAIT_SECONDS):
        await listener.assigned([ONE])
        coming = asyncio.create_task(listener.assigned([TWO]))  # between two calls records are handed out first
        await asyncio.sleep(0)
        listener.leaving = True
        going = asyncio.create_task(listener.revoked([ONE]))
        await coming
        await listener.revoked([TWO])
        await going
    assert told == [("revoked", 0), ("assigned", 1), ("revoked", 1)]
