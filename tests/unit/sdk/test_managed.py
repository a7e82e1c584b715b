"""The managed consumer with an agent that the test plays: what its calls mean while it stops."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import (
    ConsumerStoppedError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    NoOffsetForPartitionError,
)
from aiokafka.structs import ConsumerRecord, TopicPartition
from prometheus_client import CollectorRegistry

from loadtrim import Consumer, Settings, managed, signals, watch
from loadtrim.agent_link import AgentLink
from loadtrim.managed import ManagedConsumer
from loadtrim.settings import SettingsError
from loadtrim.watch import AgentWatch
from loadtrim_agent.delivery.partition_stream import Stream
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.delivery.user_sleep import UserSleep
from loadtrim_agent.kafka.subscription import Subscription
from loadtrim_agent.runtime.agent import Agent
from loadtrim_agent.runtime.thread import AgentThread
from unit.delivery.test_record_buffer import ONE, TWO, chunk, handout_of
from unit.sdk.test_consumer import make
from unit.sdk.test_signals import Told
from walks.scenes import TOPIC, made, stage


class PlayedAgent:
    """Drains as the agent does: it leaves when nothing is in hand any more."""

    def __init__(self, buffer: RecordBuffer) -> None:
        self.buffer = buffer
        self.partitions = SimpleNamespace(without_offset=frozenset())
        self.listener = SimpleNamespace(calls=SimpleNamespace(task=None), reported_of=lambda partitions: partitions)
        self.left = asyncio.Event()
        self.asked: list[tuple[float, bool]] = []
        """Seconds, and whether partitions are to be given away."""
        self._drained = asyncio.Event()
        buffer.agent.owner = self  # type: ignore[assignment]
        for stream in buffer.streams.values():
            stream.listening = True

    def drained(self, stream: Any) -> None:
        self._drained.set()

    def leave(self, drain_seconds: float, release: bool) -> None:
        self.asked.append((drain_seconds, release))

    async def stop(self, drain_seconds: float, *, release: bool) -> None:
        while any(stream.in_hand is not None for stream in self.buffer.streams.values()):
            self._drained.clear()
            await self._drained.wait()
        self.left.set()


class SameThread:
    """The agent's thread, which is the test's own here."""

    alive = True
    ident: int | None = None

    async def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await work

    def submit(self, work: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, asyncio.get_running_loop())

    def post(self, call: Callable[..., object], *args: object) -> None:
        call(*args)

    async def stop(self) -> None: ...


def managed_of(consumer: Consumer) -> ManagedConsumer:
    assert isinstance(consumer._client, ManagedConsumer)
    return consumer._client


def started(consumer: Consumer | None = None) -> tuple[ManagedConsumer, PlayedAgent]:
    client = managed_of(consumer or make())
    agent: Any = PlayedAgent(handout_of(ONE))
    thread: Any = SameThread()
    client.link.agent, client.link.buffer, client.link.thread = agent, agent.buffer, thread
    client._watch = AgentWatch(agent, thread)
    return client, agent


@pytest.mark.parametrize("call", ["getone", "getmany"])
async def test_a_stop_waits_for_the_record_of_another_task_until_its_next_call(call: str) -> None:
    client, agent = started()
    taken, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        assert await (client.getone() if call == "getone" else client.getmany(max_records=1))
        taken.set()
        await go_on.wait()
        with pytest.raises(ConsumerStoppedError):
            await getattr(client, call)()

    working = asyncio.create_task(work())
    await taken.wait()
    stopping = asyncio.create_task(client.stop(at_once=False))
    for _ in range(3):
        await asyncio.sleep(0)
    assert client.closed
    assert not agent.left.is_set()
    go_on.set()
    await asyncio.gather(working, stopping)
    assert agent.buffer.streams[ONE].done == 1


@pytest.mark.parametrize("turns", [1, 2, 3])
@pytest.mark.parametrize("call", ["getone", "getmany"])
async def test_a_next_call_that_is_cancelled_at_once_makes_the_record_done(call: str, turns: int) -> None:
    """The first calls let others begin before they look: cut there, a record that was handled was handed out again."""
    client, agent = started()
    records = agent.buffer.streams[ONE]

    async def ask() -> Any:
        return await (client.getone() if call == "getone" else client.getmany(timeout_ms=1_000))

    while not records.exhausted:
        await ask()
    asking = asyncio.create_task(ask())
    for _ in range(turns):
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    assert (records.done, records.in_hand) == (3, None)


@pytest.mark.parametrize("call", ["getone", "getmany"])
@pytest.mark.parametrize("error", [KafkaError("for now"), None], ids=["error", "no offset"])
async def test_a_next_call_that_raises_makes_the_record_done(call: str, error: KafkaError | None) -> None:
    client, agent = started()
    records = agent.buffer.streams[ONE]
    while not records.exhausted:
        await client.getone()
    if error is not None:
        agent.buffer.fail(error)
    else:
        agent.partitions.without_offset = frozenset({ONE})
    with pytest.raises(KafkaError):
        await getattr(client, call)()
    assert (records.done, records.in_hand) == (3, None)


@pytest.mark.parametrize("by_done", [False, True])
async def test_a_stop_does_not_wait_for_a_record_whose_task_never_began(*, by_done: bool) -> None:
    """One task of a group fails, and another one is cancelled before its first step: the stop took all of its time."""
    consumer = make()
    client, agent = started(consumer)
    records, began, go_on = agent.buffer.streams[ONE], asyncio.Event(), asyncio.Event()

    async def handle(message: Any) -> None:
        async with consumer.work(message):
            began.set()
            await go_on.wait()

    first = await consumer.getone()
    working = asyncio.create_task(handle(first))
    await began.wait()
    if by_done:
        consumer.done(first)
    second = asyncio.create_task(handle(await consumer.getone()))
    second.cancel()
    third = asyncio.create_task(handle(await consumer.getone()))

    async def release() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        go_on.set()

    releasing = asyncio.create_task(release())
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(client.stop(at_once=False), 1.0 if by_done else 10.0)
    assert third.done(), "what begins in the same turn is waited for"
    assert agent.left.is_set() != by_done, "of a program that uses done() others may lie in a queue"
    assert records.done == 1
    await asyncio.gather(working, releasing)


async def test_a_stop_waits_for_the_rest_of_a_batch_that_is_worked_on_in_turn() -> None:
    """Of several tasks that work through a batch each, one has ended: the records of the others have no block yet."""
    consumer = make()
    _, agent = started(consumer)
    records = agent.buffer.streams[ONE]
    async with consumer.work(await consumer.getone()):
        pass
    (batch,) = (await consumer.getmany()).values()
    async with consumer.work(batch[0]):
        agent.buffer.abandon()
        for _ in range(5):
            await asyncio.sleep(0)
    assert (records.done, records.in_hand) == (2, 2), "it is worked on next"


async def test_a_call_under_way_when_the_agents_thread_ends_is_told_that_the_consumer_has_stopped() -> None:
    """Its loop cancels what is left. A task group took the caller for cancelled, and said nothing."""
    link = make()._client.link  # type: ignore[union-attr]
    link.thread = AgentThread("ends")
    link.thread.start()
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def never() -> None:
        loop.call_soon_threadsafe(began.set)
        await asyncio.Event().wait()

    calls = [asyncio.create_task(link.run(never())) for _ in range(2)]
    await began.wait()
    calls[1].cancel()
    await asyncio.sleep(0)
    await link.thread.stop()
    with pytest.raises(ConsumerStoppedError):
        await calls[0]
    with pytest.raises(asyncio.CancelledError):
        await calls[1]
    with pytest.raises(ConsumerStoppedError):
        await link.run(never())


class Leaving:
    """An agent in a thread of its own that leaves when it is let."""

    def __init__(self, link: AgentLink) -> None:
        self.stopping, self.left, self._go = threading.Event(), False, asyncio.Event()
        agent: Any = PlayedAgent(handout_of(ONE))
        agent.stop = self._stop
        link.agent, link.buffer, link.thread = agent, agent.buffer, AgentThread("leaves")
        link.thread.start()
        self._thread = link.thread

    async def _stop(self, drain_seconds: float, *, release: bool) -> None:
        self.stopping.set()
        await self._go.wait()
        self.left = True

    def go(self) -> None:
        self._thread.post(self._go.set)


async def test_a_member_leaves_though_all_tasks_are_cancelled() -> None:
    """The leave was lost: others waited for the session, and the next ``stop()`` was cancelled by nobody."""
    client = managed_of(make())
    leaving = Leaving(client.link)
    stop = asyncio.create_task(client.stop(at_once=False))
    await asyncio.to_thread(leaving.stopping.wait)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.wait([stop])
    assert stop.cancelled()
    leaving.go()
    for _ in range(2):
        await client.stop(at_once=False)
    assert leaving.left


def test_a_program_that_is_over_ends_when_its_consumer_has_left() -> None:
    """What handles a signal stops the consumer in a task; the iteration ends, and ``main`` with it."""

    async def main() -> Leaving:
        client = managed_of(make())
        leaving = Leaving(client.link)
        stops.append(asyncio.create_task(client.stop(at_once=False)))
        await asyncio.to_thread(leaving.stopping.wait)
        asyncio.get_running_loop().call_later(0.05, leaving.go)
        return leaving

    stops: list[asyncio.Task[None]] = []
    assert asyncio.run(main()).left


async def test_a_second_cancellation_ends_the_wait_for_a_leave() -> None:
    link = managed_of(make()).link
    leaving = Leaving(link)
    ending = asyncio.create_task(link.end(0.0, release=True))
    await asyncio.to_thread(leaving.stopping.wait)
    for _ in range(2):
        assert ending.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([ending], timeout=5.0)
    left = leaving.left
    leaving.go()
    assert (ending.done(), left, link.thread_alive) == (True, False, False)


async def test_a_second_stop_by_the_task_that_has_the_record_ends_the_wait() -> None:
    """Its ``async with`` ends while a shutdown hook already stops the consumer."""
    client, agent = started()
    stopping: list[asyncio.Task[None]] = []

    async def work() -> None:
        await client.getone()
        stopping.append(asyncio.create_task(client.stop(at_once=False)))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not agent.left.is_set()
        await client.stop(at_once=False)

    await asyncio.wait_for(asyncio.create_task(work()), 5.0)
    await asyncio.wait_for(stopping[0], 5.0)
    assert agent.buffer.streams[ONE].done is None


async def test_a_first_signal_gives_partitions_away_and_a_second_one_does_not() -> None:
    client, agent = started()
    for at_once in (False, True):
        client.end_iteration(at_once)
    assert [release for _, release in agent.asked] == [True, False]
    with pytest.raises(ConsumerStoppedError):
        await client.getone()


async def test_a_signal_ends_the_iteration_though_the_users_loop_is_closed() -> None:
    client, agent = started()
    loop = asyncio.new_event_loop()
    agent.buffer.sleep = UserSleep(loop)
    agent.buffer.sleep._sleepers[loop.create_future()] = None
    loop.close()
    client.end_iteration(False)
    assert [release for _, release in agent.asked] == [True]


def test_a_start_in_another_loop_is_refused() -> None:
    """It hung, or ended for good with a loop that is closed."""

    async def made() -> Consumer:
        return make()

    consumer = asyncio.run(made())
    with pytest.raises(IllegalStateError, match="another event loop than the consumer was made for"):
        asyncio.run(consumer.start())


class NoThread(SameThread):
    """A thread that starts at once."""

    def __init__(self, name: str) -> None: ...

    def start(self) -> None: ...


class StartingAgent(PlayedAgent):
    """Joins a group in which a rebalance takes its time; the start returns when the member has left."""

    def __init__(self) -> None:
        super().__init__(handout_of(ONE))
        self.listener = SimpleNamespace(target=None, calls=SimpleNamespace(task=None))
        self.condition = SimpleNamespace(over=False)
        self.topics = SimpleNamespace(subscription=None)
        self.joined = asyncio.Event()
        self.stopped = False

    def leave(self, drain_seconds: float, release: bool) -> None:
        super().leave(drain_seconds, release)
        self.condition.over = True
        self.left.set()

    async def start(self) -> None:
        self.joined.set()
        await self.left.wait()

    async def stop(self, drain_seconds: float, *, release: bool) -> None:
        self.stopped = True


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No agent has a thread of its own, and SIGTERM is this test's."""
    monkeypatch.setattr(managed, "AgentThread", NoThread)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    process = signals.ProcessSignals(Told())
    monkeypatch.setattr(signals, "PROCESS", process)
    yield
    process.forget()
    signal.signal(signal.SIGTERM, before)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def starting(
    agent: StartingAgent,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[], None] = lambda: None,
    topic: str = "orders",
) -> Consumer:
    consumer = Consumer(topic, group_id="g", registry=CollectorRegistry(), settings=Settings(exit_seconds=3600.0))

    async def make_agent() -> Any:
        meanwhile()
        return agent

    monkeypatch.setattr(consumer._client, "_make_agent", make_agent)
    return consumer


@pytest.mark.usefixtures("process")
async def test_a_signal_while_it_starts_makes_it_leave_and_the_start_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = StartingAgent()
    consumer = starting(agent, monkeypatch)
    start = asyncio.create_task(consumer.start())
    await agent.joined.wait()
    assert not consumer._client.left  # type: ignore[union-attr]
    terminate()
    with pytest.raises(ConsumerStoppedError, match="SIGTERM"):
        await asyncio.wait_for(start, 5.0)
    assert agent.stopped
    assert consumer._signals.gone


@pytest.mark.usefixtures("process")
async def test_a_signal_before_it_has_an_agent_lets_none_join(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = StartingAgent()
    consumer = starting(agent, monkeypatch, meanwhile=terminate)
    with pytest.raises(ConsumerStoppedError):
        await asyncio.wait_for(consumer.start(), 5.0)
    assert not agent.joined.is_set()
    assert agent.stopped


class SlowlyLeaving(StartingAgent):
    """Leaves when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.may_leave = asyncio.Event()

    async def stop(self, drain_seconds: float, *, release: bool) -> None:
        await self.may_leave.wait()
        self.stopped = True


@pytest.mark.usefixtures("process")
@pytest.mark.parametrize("then", ["stop", "start"])
async def test_a_start_that_is_cancelled_twice_leaves_no_member_behind(
    then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As anyio cancels, again and again: the member stayed in the group, and a later ``stop()`` raised."""
    agent = SlowlyLeaving()
    consumer = starting(agent, monkeypatch)
    start = asyncio.create_task(consumer.start())
    await agent.joined.wait()
    for _ in range(2):
        start.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
    assert start.cancelled(), "nobody waits who is cancelled twice"
    later = asyncio.create_task(getattr(consumer, then)())
    await asyncio.sleep(0)
    assert not later.done()
    assert not agent.stopped
    agent.left.set()
    agent.may_leave.set()
    await asyncio.wait_for(later, 5.0)
    assert agent.stopped
    await consumer.stop()


async def asked(consumer: Consumer) -> None:
    await consumer.getone()


async def with_a_limit(consumer: Consumer) -> None:
    await asyncio.wait_for(consumer.getone(), 5.0)


async def a_batch_with_a_limit(consumer: Consumer) -> None:
    await asyncio.wait_for(consumer.getmany(max_records=1), 5.0)


async def the_next_with_a_limit(consumer: Consumer) -> None:
    await asyncio.wait_for(consumer.__anext__(), 5.0)


async def the_next_of_an_iteration_with_a_limit(consumer: Consumer) -> None:
    await asyncio.wait_for(anext(aiter(consumer)), 5.0)


async def the_next_of_an_iteration_in_a_task(consumer: Consumer) -> None:
    """As ``wait_for`` has it before Python 3.12."""
    await asyncio.ensure_future(anext(aiter(consumer)))


async def the_next_of_an_iteration_while_it_does_something_else(consumer: Consumer) -> None:
    asking, done = asyncio.ensure_future(anext(aiter(consumer))), asyncio.Event()
    asking.add_done_callback(lambda _: done.set())
    await done.wait()


async def beside_a_signal(consumer: Consumer) -> None:
    getting, stopped = asyncio.create_task(consumer.getone()), asyncio.create_task(asyncio.Event().wait())
    await asyncio.wait([getting, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()


async def fetched(consumer: Consumer) -> None:
    await consumer.getone()


async def by_a_wrapper_with_a_limit(consumer: Consumer) -> None:
    await asyncio.wait_for(fetched(consumer), 5.0)


async def by_a_wrapper_in_a_task(consumer: Consumer) -> None:
    await asyncio.wait([asyncio.create_task(fetched(consumer))])


async def by_a_wrapper_in_a_group(consumer: Consumer) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(fetched(consumer))


async def by_a_generator_with_a_limit(consumer: Consumer) -> None:
    async def generator() -> AsyncIterator[Any]:
        async for record in consumer:
            yield record

    records = generator()
    try:
        await asyncio.wait_for(anext(records), 5.0)  # type: ignore[arg-type]
    finally:
        GENERATORS.append(records)


GENERATORS: list[AsyncIterator[Any]] = []
"""One that is dropped is closed, which ends its record."""


@pytest.mark.parametrize("own", [True, False], ids=["its own stop", "another's stop"])
@pytest.mark.parametrize(
    "ask",
    [
        asked,
        by_a_wrapper_with_a_limit,
        by_a_wrapper_in_a_task,
        by_a_wrapper_in_a_group,
        by_a_generator_with_a_limit,
        with_a_limit,
        a_batch_with_a_limit,
        the_next_with_a_limit,
        the_next_of_an_iteration_with_a_limit,
        the_next_of_an_iteration_in_a_task,
        the_next_of_an_iteration_while_it_does_something_else,
        beside_a_signal,
    ],
)
async def test_the_task_that_asked_has_the_record_whatever_ran_the_call(ask: Any, own: bool) -> None:
    """``wait_for`` and its like run the call in a task of its own, which has ended when the record is there."""
    consumer = make()
    client, agent = started(consumer)
    taken, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        for _ in range(2):
            await ask(consumer)
        taken.set()
        await go_on.wait()
        if own:
            await asyncio.wait_for(client.stop(at_once=False), 5.0)

    working = asyncio.create_task(work())
    await taken.wait()
    if not own:
        stopping = asyncio.create_task(client.stop(at_once=False))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not agent.left.is_set()
        assert {worker.at_work() for worker in agent.buffer.hand.workers.values()} == {working}
        go_on.set()  # it ends, and gives the record up
        await asyncio.wait_for(stopping, 5.0)
    go_on.set()
    await working
    assert agent.left.is_set()


@pytest.mark.parametrize("call", ["getone", "getmany"])
async def test_a_stop_waits_for_a_record_that_was_asked_for_with_a_time_limit(call: str) -> None:
    client, agent = started()
    taken, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        assert await asyncio.create_task(getattr(client, call)())  # as `wait_for` does before Python 3.12
        taken.set()
        await go_on.wait()
        with pytest.raises(ConsumerStoppedError):
            await getattr(client, call)()

    working = asyncio.create_task(work())
    await taken.wait()
    stopping = asyncio.create_task(client.stop(at_once=False))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not agent.left.is_set()
    go_on.set()
    await asyncio.gather(working, stopping)


async def test_a_consumer_that_is_dropped_while_it_runs_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Python hides the warning of a forgotten ``stop()`` unless it is asked to show it."""
    consumer = make()
    _, agent = started(consumer)
    consumers = [consumer]
    del consumer
    with caplog.at_level("WARNING", "loadtrim"), pytest.warns(ResourceWarning, match="Unclosed"):
        consumers.clear()  # the last reference
    assert "A consumer of group g was dropped without stop()" in caplog.text
    assert not agent.left.is_set()


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "dropped"])
async def test_a_consumer_that_was_never_started_leaves_no_series(*, stopped: bool) -> None:
    """A program that makes consumers and does not start them had ever more of them."""
    registry = CollectorRegistry()
    consumer: Consumer | None = Consumer("topic", group_id="g", settings=Settings(http="off"), registry=registry)
    assert list(registry.collect())
    if stopped and consumer is not None:
        await consumer.stop()
    else:
        consumer = None
    gc.collect()
    assert not [family.samples for family in registry.collect() if family.samples]
    assert not list(registry.collect())


async def test_garbage_is_collected_on_a_thread_that_holds_the_lock_of_the_metrics() -> None:
    """A consumer that was never started, in a cycle, is collected wherever memory is asked for: in a scrape, say."""
    registry = CollectorRegistry()
    consumer = Consumer("topic", group_id="g", settings=Settings(http="off"), registry=registry)
    series = consumer._client.services.metrics._series
    consumers = [consumer]
    del consumer
    with series.page.lock:
        consumers.clear()
    assert not series.closed
    assert not [family.samples for family in registry.collect() if family.samples]
    assert series.closed


async def test_a_stop_after_a_start_that_failed_in_another_loop_ends_nothing() -> None:
    consumer = Consumer("topic", group_id="g", settings=Settings(http="off"), registry=CollectorRegistry())
    link, other = consumer._client.link, asyncio.new_event_loop()
    link._giving_up = other.create_task(asyncio.sleep(0))
    await asyncio.to_thread(other.run_until_complete, link._giving_up)
    other.close()
    await consumer.stop()


@pytest.mark.parametrize("call", ["pause", "resume"])
async def test_what_goes_between_two_statements_is_not_paused_and_raises_nothing(call: str) -> None:
    """``pause(*assignment())`` raised now and then: the agent's thread gives partitions away at any time."""
    consumer = Consumer("topic", group_id="g", settings=Settings(http="off"), registry=CollectorRegistry())
    _, agent = started(consumer)
    agent.partitions.paused = lambda stream, paused: None
    agent.buffer.put(Stream(TWO, 1, 0))
    held = consumer.assignment()
    assert held == {TopicPartition(*ONE), TopicPartition(*TWO)}
    agent.buffer.remove(ONE)
    getattr(consumer, call)(*held)
    assert consumer.paused() == ({TopicPartition(*TWO)} if call == "pause" else set())
    with pytest.raises(IllegalStateError, match="is not assigned"):
        getattr(consumer, call)(TopicPartition("topic", 7))


async def test_the_agent_is_told_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arguments are aiokafka's, in milliseconds."""
    monkeypatch.setattr("loadtrim.managed.Agent", lambda options: options)
    consumer = Consumer(
        "t",
        group_id="g",
        settings=Settings(http="off"),
        handle_signals=False,
        registry=CollectorRegistry(),
        auto_commit_interval_ms=2_500,
        max_poll_interval_ms=60_000,
    )
    options: Any = await consumer._client._make_agent()  # type: ignore[union-attr]
    assert (options.auto_commit_seconds, options.max_poll_seconds) == (2.5, 60.0)


@pytest.mark.parametrize("call", ["getone", "getmany", "stop"])
async def test_what_waits_for_a_listeners_call_is_refused_in_it(call: str) -> None:
    """It waited for ever, and the group for the listener."""
    client, agent = started()
    agent.listener.calls.task = asyncio.current_task()
    with pytest.raises(IllegalStateError, match="Return from the call first"):
        await (client.stop(at_once=False) if call == "stop" else getattr(client, call)())
    assert not client.closed
    agent.listener.calls.task = None


async def test_in_a_listeners_call_the_assignment_is_what_it_tells() -> None:
    client, agent = started()
    client.link.subscription = Subscription(topics=(ONE.topic,))
    held = client.assignment()
    agent.listener.reported_of = lambda partitions: ()
    assert client.assignment() == set()
    agent.listener.reported_of = lambda partitions: partitions
    assert client.assignment() == held != set()
    client.link.subscription = Subscription()
    assert client.assignment() == set(), "what is not subscribed any more is no part of it, as long as it stays"


@pytest.mark.parametrize("call", ["getone", "getmany"])
async def test_to_wait_for_one_partition_lets_the_loop_turn(call: str) -> None:
    """While another partition had records the call looked again and again, and nothing else of the loop ran."""
    client, agent = started()
    client.link.buffer = agent.buffer = buffer = handout_of(ONE, TWO)
    buffer.streams[ONE].chunks.clear()
    at = TopicPartition(*ONE)
    asked = client.getone(at) if call == "getone" else client.getmany(at, timeout_ms=60_000)
    asking = asyncio.create_task(asked)
    for _ in range(5):
        await asyncio.sleep(0)
    assert buffer.sleep.asleep
    buffer.feed(buffer.streams[ONE], chunk(ONE, 3))
    answer = await asyncio.wait_for(asking, 5.0)
    assert (answer.offset if isinstance(answer, ConsumerRecord) else [r.offset for r in answer[at]]) in (3, [3, 4, 5])


@pytest.mark.parametrize("where", ["agent", "start"])
async def test_a_start_that_failed_may_be_tried_again(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """A program that waits for Kafka at its start does so, as with aiokafka."""
    name = "_make_agent" if where == "agent" else "start"
    kind: Any = ManagedConsumer if where == "agent" else Agent
    real, left = getattr(kind, name), [KafkaConnectionError("nobody is there"), KafkaConnectionError("nor now")]

    async def first_fails(self: Any) -> Any:
        if left:
            raise left.pop()
        return await real(self)

    async with stage() as broker:
        await broker.send(TOPIC, 0, b"0")
        monkeypatch.setattr(kind, name, first_fails)
        one = made(broker, Settings(http="off"), registry=CollectorRegistry())
        for _ in range(2):
            with pytest.raises(KafkaConnectionError):
                await one.start()
            with pytest.raises(ConsumerStoppedError):
                await one.getone()
        await one.start()
        assert (await asyncio.wait_for(one.getone(), 10.0)).value == b"0"
        with pytest.raises(IllegalStateError, match="called twice"):
            await one.start()
        await one.stop()
        with pytest.raises(IllegalStateError, match="called twice"):
            await one.start()


@pytest.mark.parametrize("call", ["getone", "getmany"])
async def test_what_has_no_offset_holds_up_no_other_partition_and_no_other_task(call: str) -> None:
    """Every call raised before it looked at the others; and one that raised let no other task run."""
    client, agent = started()
    agent.partitions.without_offset = frozenset({TWO})
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    raised = 0
    records: list[Any] = []
    while len(records) < 3:
        try:
            found = await (client.getone() if call == "getone" else client.getmany(max_records=1))
            records += [found] if call == "getone" else [r for batch in found.values() for r in batch]
        except NoOffsetForPartitionError:
            raised += 1
    assert raised >= 1, "it is said"
    assert others >= raised
    running.cancel()


async def test_what_has_no_offset_holds_up_no_other_partition_of_a_program_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where user code waited for longer than that is told again, no call came to the others."""
    clock = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr(watch, "boot_time", lambda: clock.now)
    client, agent = started()
    agent.buffer.agent_seen_at = float("inf")
    agent.partitions.without_offset = frozenset({TWO})
    told: list[str] = []
    for _ in range(6):
        clock.now += 10.0
        try:
            told.append(str((await client.getone()).offset))
        except NoOffsetForPartitionError:
            told.append("none")
    assert told == ["none", "0", "none", "1", "none", "2"]


def test_an_agent_that_stays_silent_is_complained_about_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was an error every 5 s, with where the agent hangs, for as long as it did."""
    clock = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr(watch, "boot_time", lambda: clock.now)
    agent: Any = SimpleNamespace(
        buffer=SimpleNamespace(agent_seen_at=clock.now, expired=False, errors=SimpleNamespace(take=lambda _: None)),
        partitions=SimpleNamespace(without_offset=()),
    )
    thread: Any = SimpleNamespace(alive=True, where=lambda: "in a library")
    told = AgentWatch(agent, thread)
    with caplog.at_level(logging.ERROR, "loadtrim"):
        for _ in range(590):
            clock.now += 1.0
            told.raise_error(())
    assert len(caplog.records) == 10


async def test_a_loop_that_passes_over_an_error_of_every_call_lets_other_tasks_run() -> None:
    client, agent = started()
    agent.buffer.fail(KafkaError("for good"), for_good=True)
    turned = asyncio.Event()
    asyncio.get_running_loop().call_soon(turned.set)
    for _ in range(3):
        with contextlib.suppress(KafkaError):
            await client.getmany()
    assert turned.is_set()


async def test_what_comes_after_the_subscription_has_gone_is_not_handed_out() -> None:
    """A partition that was opened while the agent asked for the new topics was: its records were committed."""
    client, agent = started()
    agent.buffer.turns.on_change = client._put_aside.look
    client.link.subscription = Subscription(topics=(ONE.topic,))
    assert (await client.getone()).topic == ONE.topic
    client.link.subscription = Subscription(topics=("another",))
    client._put_aside.subscribed(client.link.subscription)
    late = Stream(TWO, 7, 0)
    late.running = True
    agent.buffer.put(late)
    agent.buffer.feed(late, chunk(TWO, 0))
    assert await client.getmany() == {}
    assert late.done is None
    client.link.subscription = Subscription(topics=(ONE.topic,))
    client._put_aside.subscribed(client.link.subscription)
    taken = {record.partition for batch in (await client.getmany()).values() for record in batch}
    assert taken == {ONE.partition, TWO.partition}, "it is handed out when it is subscribed again"


@pytest.mark.parametrize(("topic", "settings"), [("orders", {"control_topic": "orders"}), ("__loadtrim.g", {})])
async def test_the_control_topic_is_no_topic_of_the_program(topic: str, settings: dict[str, Any]) -> None:
    """The program was handed the agent's records, and found them in its topic for good."""
    with pytest.raises(SettingsError, match=f"LOADTRIM_CONTROL_TOPIC={topic} cannot be used: the consumer subscribes"):
        Consumer(topic, bootstrap_servers="127.0.0.1:1", group_id="g", settings=Settings(**settings))
    consumer = Consumer("other", bootstrap_servers="127.0.0.1:1", group_id="g", settings=Settings(**settings))
    with pytest.raises(SettingsError):
        consumer.subscribe(["other", topic])
    assert consumer.subscription() == frozenset({"other"})


async def test_the_end_of_the_thread_waits_for_no_work_of_user_code() -> None:
    """User code that fills the loop's executor kept ``stop()`` from returning, for as long as its work took."""
    loop, release = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(1))
    working = asyncio.create_task(asyncio.to_thread(release.wait, 30.0))
    thread = AgentThread("test")
    thread.start()
    await asyncio.sleep(0)
    await asyncio.wait_for(thread.stop(), 10.0)
    assert not thread.alive
    release.set()
    await working


async def test_a_thread_can_be_stopped_twice() -> None:
    """Its loop may be closed already while it still ends: the second call raised."""
    thread = AgentThread("test")
    thread.start()
    await thread.stop()
    ending: Any = SimpleNamespace(is_alive=lambda: True, join=lambda seconds: None)
    thread._thread = ending
    await thread.stop()
