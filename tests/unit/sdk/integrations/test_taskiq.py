"""Taskiq's workers with a group of loadtrim, on a broker in this process: ends, and tasks that nobody acknowledges."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from taskiq import TaskiqMessage, TaskiqMiddleware
from taskiq.receiver import Receiver

from loadtrim import Consumer, Settings
from loadtrim.integrations.taskiq import AioKafkaBroker, Delivery, asked_for_apart
from walks.broker import MemoryBroker, memory_broker
from walks.scenes import until

TOPIC, GROUP = "tasks", "walk"

Execute = Callable[[int], Awaitable[None]]


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADTRIM_HTTP", "off")
    monkeypatch.setenv("LOADTRIM_DRAIN_SECONDS", "5")
    monkeypatch.setenv("LOADTRIM_MODE", "shadow")  # Partitions are shared by number.


@asynccontextmanager
async def kafka(partitions: int = 1) -> AsyncIterator[MemoryBroker]:
    async with memory_broker({TOPIC: partitions, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        yield broker


@dataclass
class Worker:
    """A worker of taskiq, which SIGTERM would end as :meth:`stop` does."""

    broker: AioKafkaBroker
    finish: asyncio.Event
    listening: asyncio.Task[None]

    @property
    def consumer(self) -> Consumer:
        consumer: Consumer = self.broker._aiokafka_consumer
        return consumer

    @property
    def held(self) -> int:
        return len(self.consumer.assignment())

    async def stop(self) -> None:
        self.finish.set()
        await self.listening
        await self.broker.shutdown()


@asynccontextmanager
async def working(broker: MemoryBroker, execute: Execute, *middlewares: TaskiqMiddleware) -> AsyncIterator[Worker]:
    """A worker that has one task, with a number."""
    admin = SimpleNamespace(list_topics=lambda: [TOPIC], close=lambda: None)
    made = AioKafkaBroker(f"127.0.0.1:{broker.port}", kafka_topic=TOPIC, kafka_admin_client=admin)
    made.configure_consumer(group_id=GROUP, auto_offset_reset="earliest", auto_commit_interval_ms=50)
    made = made.with_middlewares(*middlewares)
    made.task(task_name="work")(execute)
    made.is_worker_process = True
    await made.startup()
    receiver = Receiver(made, run_startup=False, max_async_tasks=10, max_prefetch=5)
    finish = asyncio.Event()
    worker = Worker(made, finish, asyncio.create_task(receiver.listen(finish)))
    try:
        yield worker
    finally:
        if not finish.is_set():
            await worker.stop()


async def kick(broker: MemoryBroker, worker: Worker, number: int, partition: int = 0) -> None:
    task = TaskiqMessage(task_id=str(number), task_name="work", labels={}, args=[number], kwargs={})
    await broker.send(TOPIC, partition, worker.broker.formatter.dumps(task).message)


async def test_what_is_idle_goes_at_a_stop_before_the_tasks_at_work_have_ended() -> None:
    """Taskiq waits for its tasks first, and nobody executed those of the member's other partitions meanwhile."""
    begun, free, done = asyncio.Event(), asyncio.Event(), Counter[int]()

    async def execute(number: int) -> None:
        if number == 0:
            begun.set()
            await free.wait()
        done[number] += 1

    async with kafka(partitions=4) as broker, working(broker, execute) as other, working(broker, execute) as one:
        await until(lambda: one.held == other.held == 2, what="both have their share")
        works, idle = sorted(at.partition for at in one.consumer.assignment())
        await kick(broker, one, 0, works)
        await begun.wait()
        agent = one.consumer._client.link.agent  # type: ignore[union-attr]
        assert agent is not None
        stop = asyncio.create_task(one.stop())
        await until(lambda: other.held == 3, what="the other one has what is idle")
        assert agent.condition.leave_by == inf, "what is worked on is waited for as long as taskiq does"
        await kick(broker, other, 1, idle)
        await until(lambda: done == {1: 1})
        assert not stop.done()
        free.set()
        await stop
        await until(lambda: other.held == 4)
        await kick(broker, other, 2, works)
        await until(lambda: len(done) == 3)
    assert done == {0: 1, 1: 1, 2: 1}
    assert [broker.committed(GROUP, TOPIC, partition) for partition in (works, idle)] == [2, 1]


@pytest.mark.parametrize("enabled", [True, False], ids=["with an agent", "without"])
async def test_a_task_that_is_forgotten_is_told_where_it_comes_again(
    enabled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """With plain aiokafka, which has committed it, it was told to be executed again."""
    async with kafka() as broker:
        await broker.send(TOPIC, 0, b"a task")
        async with Consumer(
            TOPIC,
            bootstrap_servers=f"127.0.0.1:{broker.port}",
            group_id=GROUP,
            auto_offset_reset="earliest",
            settings=Settings(http="off", enabled=enabled),
        ) as consumer:
            delivery = Delivery(consumer, await consumer.getone())
            del delivery
        assert broker.committed(GROUP, TOPIC, 0) == (0 if enabled else 1)
    assert ("never acknowledged" in caplog.text) is enabled


class Fails(TaskiqMiddleware):
    """Fails before the task with number 0."""

    def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        if message.args == [0]:
            raise RuntimeError("the middleware fails")
        return message


async def test_the_first_task_of_a_worker_that_is_forgotten_is_told_and_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The task of the loop that had asked for it kept it: nothing was told, and a stop took all of the drain time."""
    # Pytest keeps what is logged, and with the error of a task all that its frames hold.
    monkeypatch.setattr(logging.getLogger("asyncio"), "disabled", True)
    done = Counter[int]()

    async def execute(number: int) -> None:
        done[number] += 1

    def told() -> bool:
        gc.collect()
        return "never acknowledged" in caplog.text

    async with kafka() as broker, working(broker, execute, Fails()) as worker:
        buffer = worker.consumer._client.buffer
        assert buffer is not None
        await kick(broker, worker, 0)
        await kick(broker, worker, 1)  # Taskiq itself keeps a task until the next one comes.
        await until(told)
        await until(lambda: not buffer.hand.streams, what="nobody works on anything")
    assert done == {1: 1}


class Comes:
    """Has one record, which comes when it is let."""

    def __init__(self, before: Callable[[], object], free: asyncio.Event) -> None:
        self.record = object()
        self.cancelled = False
        self._before = before
        self._free = free

    async def __anext__(self) -> Any:
        try:
            await self._free.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        self._before()
        return self.record


async def test_a_task_that_comes_as_the_call_is_cancelled_is_returned() -> None:
    """Taskiq cancels the call that asks when the worker ends, and executes what that has got already."""
    free = asyncio.Event()
    consumer: Any = Comes(lambda: asking.cancel(), free)
    asking = asyncio.create_task(asked_for_apart(consumer))
    free.set()
    assert await asking is consumer.record


async def test_a_call_that_is_cancelled_asks_no_more() -> None:
    consumer: Any = Comes(lambda: None, asyncio.Event())
    asking = asyncio.create_task(asked_for_apart(consumer))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # It has begun to ask.
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert consumer.cancelled


async def test_what_is_no_task_of_the_worker_keeps_nothing_from_commits() -> None:
    """Taskiq acknowledges it from 0.13 on. Before that nothing of its partition was committed any more, by no owner.

    A record without a value ended the worker, and each one that was given it after that.
    """
    done = Counter[int]()

    async def execute(number: int) -> None:
        done[number] += 1

    async with kafka() as broker, working(broker, execute) as worker:
        unknown = TaskiqMessage(task_id="1", task_name="renamed", labels={}, args=[], kwargs={})
        await broker.send(TOPIC, 0, worker.broker.formatter.dumps(unknown).message)
        await broker.send(TOPIC, 0, b"no task at all", None)
        await kick(broker, worker, 7)
        await until(lambda: broker.committed(GROUP, TOPIC, 0) == 4)
    assert done == {7: 1}
