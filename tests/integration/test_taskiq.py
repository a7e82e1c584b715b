"""Taskiq's workers with a group of loadtrim: moves under load, acknowledgement, ends."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from taskiq import AcknowledgeType, AsyncTaskiqDecoratedTask, TaskiqMessage, TaskiqMiddleware
from taskiq.receiver import Receiver

from integration.harness import WAIT_SECONDS, committed_offsets, eventually
from integration.harness_consumers import new_group
from loadtrim import Consumer
from loadtrim.integrations.taskiq import AioKafkaBroker
from loadtrim.testing import Cluster

pytestmark = pytest.mark.kafka

PARTITIONS = 4
TASKS = 200


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADTRIM_HTTP", "off")
    monkeypatch.setenv("LOADTRIM_DRAIN_SECONDS", "5")
    monkeypatch.setenv("LOADTRIM_MODE", "shadow")  # Partitions are shared by number, so that they move in every run.


class Workers:
    """Workers of one group, with one task.

    Args:
        kafka: has the topic.
        partitions: of the topic.
        task: what is executed, with a number.
    """

    def __init__(self, kafka: Cluster, task: Any, *, partitions: int = PARTITIONS) -> None:
        self.group = new_group()
        self.topic = kafka.create_topic(partitions=partitions)
        self._kafka = kafka
        self._task = task

    def broker(self, *middlewares: TaskiqMiddleware) -> tuple[AioKafkaBroker, AsyncTaskiqDecoratedTask[..., Any]]:
        broker = AioKafkaBroker(self._kafka.bootstrap, kafka_topic=self.topic)
        broker.configure_consumer(
            group_id=self.group, auto_offset_reset="earliest", session_timeout_ms=3_000, heartbeat_interval_ms=500,
            auto_commit_interval_ms=100,
        )  # fmt: skip
        # Tasks have no key. They are to be in all partitions.
        turn = itertools.count()
        broker.configure_producer(partitioner=lambda key, every, available: every[next(turn) % len(every)])
        return broker.with_middlewares(*middlewares), broker.task(task_name="work")(self._task)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[AsyncTaskiqDecoratedTask[..., Any]]:
        broker, task = self.broker()
        await broker.startup()
        try:
            yield task
        finally:
            await broker.shutdown()

    @asynccontextmanager
    async def worker(self, *middlewares: TaskiqMiddleware, **options: Any) -> AsyncIterator[Consumer]:
        broker, _ = self.broker(*middlewares)
        broker.is_worker_process = True
        await broker.startup()
        finish = asyncio.Event()
        receiver = Receiver(broker, run_startup=False, **{"max_async_tasks": 10, "max_prefetch": 5, **options})
        listening = asyncio.create_task(receiver.listen(finish))
        try:
            yield broker._aiokafka_consumer
        finally:
            finish.set()
            await listening
            await broker.shutdown()

    async def committed(self) -> int:
        return sum((await committed_offsets(self._kafka.bootstrap, self.group)).values())


async def test_each_task_once_while_workers_come_and_go(quick_kafka: Cluster) -> None:
    done: Counter[int] = Counter()

    async def work(number: int) -> None:
        await asyncio.sleep(0.02)
        done[number] += 1

    workers = Workers(quick_kafka, work)
    async with asyncio.timeout(WAIT_SECONDS), workers.client() as task:

        async def kick() -> None:
            for number in range(TASKS):
                await task.kiq(number)
                await asyncio.sleep(0.005)

        async with workers.worker() as first:
            kicking = asyncio.create_task(kick())
            for _ in range(2):
                async with workers.worker() as second:
                    await eventually(lambda: len(first.assignment()) == len(second.assignment()) == 2, "a share each")
                await eventually(lambda: len(first.assignment()) == PARTITIONS, "the first has everything again")
            await kicking
            await eventually(lambda: done.total() >= TASKS, "all is done")
    assert done == Counter(range(TASKS))
    assert await workers.committed() == TASKS


@pytest.mark.parametrize("ack", [AcknowledgeType.WHEN_SAVED, AcknowledgeType.WHEN_RECEIVED])
async def test_a_task_is_committed_when_it_is_acknowledged(quick_kafka: Cluster, ack: AcknowledgeType) -> None:
    begun, free = set[int](), asyncio.Event()

    async def work(number: int) -> None:
        begun.add(number)
        if number == 0:
            await free.wait()

    workers = Workers(quick_kafka, work, partitions=1)
    async with asyncio.timeout(WAIT_SECONDS), workers.client() as task, workers.worker(ack_type=ack) as consumer:
        for number in range(5):
            await task.kiq(number)
        await eventually(lambda: len(begun) == 5, "all have begun")
        await consumer.commit()
        assert await workers.committed() == (0 if ack is AcknowledgeType.WHEN_SAVED else 5)
        free.set()

        async def all_committed() -> bool:
            return await workers.committed() == 5

        await eventually(all_committed, "all is committed")


class FailsOnce(TaskiqMiddleware):
    """Fails before the task with number 2 is executed, the first time."""

    failed = False

    def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        if message.args == [2] and not self.failed:
            self.failed = True
            raise RuntimeError("the middleware fails")
        return message


async def test_a_task_that_taskiq_forgets_is_executed_after_the_next_start(
    quick_kafka: Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pytest keeps what is logged, and with the error of a task all that its frames hold.
    monkeypatch.setattr(logging.getLogger("asyncio"), "disabled", True)
    done: Counter[int] = Counter()

    async def work(number: int) -> None:
        done[number] += 1

    workers = Workers(quick_kafka, work, partitions=1)
    async with asyncio.timeout(WAIT_SECONDS), workers.client() as task:
        async with workers.worker(FailsOnce()):
            for number in range(5):
                await task.kiq(number)
            await eventually(lambda: len(done) == 4, "all others are done")
            await eventually(lambda: "never acknowledged" in caplog.text, "it is told")
        assert await workers.committed() == 2
        async with workers.worker():
            # What was done behind it comes again: nothing is committed ahead.
            await eventually(lambda: done.total() == 7, "it is executed, and what came after it")
    assert done == Counter({0: 1, 1: 1, 2: 1, 3: 2, 4: 2})


async def test_tasks_that_outlive_their_worker_go_to_the_next_one(
    quick_kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOADTRIM_DRAIN_SECONDS", "0.5")
    done: Counter[int] = Counter()
    stuck = True

    async def work(number: int) -> None:
        if stuck and number >= 3:
            await asyncio.Event().wait()
        done[number] += 1

    workers = Workers(quick_kafka, work, partitions=1)
    async with asyncio.timeout(WAIT_SECONDS), workers.client() as task:
        async with workers.worker(wait_tasks_timeout=0.2):
            for number in range(5):
                await task.kiq(number)
            await eventually(lambda: len(done) == 3, "two wait for ever")
        assert await workers.committed() == 3
        stuck = False
        async with workers.worker():
            await eventually(lambda: len(done) == 5, "all is done")
    assert done == Counter(range(5))


async def test_a_worker_without_a_group_is_refused(quick_kafka: Cluster) -> None:
    broker = AioKafkaBroker(quick_kafka.bootstrap, kafka_topic=quick_kafka.create_topic(partitions=1))
    broker.is_worker_process = True
    with pytest.raises(ValueError, match=r"configure_consumer\(group_id"):
        await broker.startup()
    await broker._aiokafka_producer.stop()
