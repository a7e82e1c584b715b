"""FastStream's subscribers with a group of loadtrim, on a broker in this process: moves, ends, commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.errors import TopicAuthorizationFailedError
from faststream.exceptions import StopConsume

from loadtrim.integrations.faststream import FrameworkConsumer, KafkaBroker
from walks.broker import MemoryBroker, memory_broker
from walks.scenes import until

TOPIC, GROUP = "orders", "walk"
BATCHES = {"batch": True, "max_records": 10, "batch_timeout_ms": 50}


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADTRIM_HTTP", "off")
    monkeypatch.setenv("LOADTRIM_DRAIN_SECONDS", "5")
    monkeypatch.setenv("LOADTRIM_MODE", "shadow")  # Partitions are shared by number.


@asynccontextmanager
async def kafka(partitions: int = 1) -> AsyncIterator[MemoryBroker]:
    async with memory_broker({TOPIC: partitions, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        yield broker


@asynccontextmanager
async def running(broker: MemoryBroker, handle: Callable[[Any], Any], **options: Any) -> AsyncIterator[KafkaBroker]:
    """A broker of FastStream with one subscriber."""
    made = KafkaBroker(f"127.0.0.1:{broker.port}", consumer_only=True)

    @made.subscriber(TOPIC, group_id=GROUP, auto_offset_reset="earliest", **options)
    async def handler(body: Any) -> None:
        await handle(body)

    await made.start()
    try:
        yield made
    finally:
        await made.stop()


def consumer_of(broker: KafkaBroker) -> FrameworkConsumer:
    (subscriber,) = broker.subscribers
    consumer: FrameworkConsumer = subscriber.consumer  # type: ignore[attr-defined]
    return consumer


def stopping(broker: KafkaBroker) -> Callable[[], bool]:
    """Return whether a stop of the broker has begun."""
    (subscriber,) = broker.subscribers
    return lambda: not subscriber.running


async def send_numbers(broker: MemoryBroker, count: int, partition: int = 0) -> None:
    await broker.send(TOPIC, partition, *(b"%d" % number for number in range(count)))


@pytest.mark.parametrize("enabled", ["true", "false"])
async def test_a_batch_that_was_handled_when_it_stops_is_committed_and_no_more(
    enabled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A further call took a record of plain aiokafka, which committed it: nobody ever handled that."""
    monkeypatch.setenv("LOADTRIM_ENABLED", enabled)
    handled, free = list[int](), asyncio.Event()

    async def handle(bodies: list[int]) -> None:
        handled.extend(bodies)
        if len(handled) >= 20:
            await free.wait()

    async with kafka() as broker, running(broker, handle, **BATCHES) as one:
        await send_numbers(broker, 50)
        await until(lambda: len(handled) == 20, what="the second batch is in hand")
        stop = asyncio.create_task(one.stop())
        await until(stopping(one))
        free.set()
        await stop
        assert len(handled) == 20
        assert broker.committed(GROUP, TOPIC, 0) == 20


async def test_a_batch_is_committed_and_the_group_left_where_an_error_waits_to_be_told() -> None:
    """The error was raised before the member had left, which stayed in the group with all of its partitions."""
    handled, free = list[int](), asyncio.Event()

    async def handle(bodies: list[int]) -> None:
        handled.extend(bodies)
        await free.wait()

    async with kafka() as broker, running(broker, handle, **BATCHES) as one:
        await send_numbers(broker, 10)
        await until(lambda: len(handled) == 10)
        buffer = consumer_of(one).consumer._client.buffer
        assert buffer is not None
        buffer.fail(TopicAuthorizationFailedError(TOPIC))
        stop = asyncio.create_task(one.stop())
        await until(stopping(one))
        free.set()
        await stop
        assert not broker.groups[GROUP].members
        assert broker.committed(GROUP, TOPIC, 0) == 10


@pytest.mark.parametrize("options", [{}, BATCHES], ids=["one by one", "in batches"])
async def test_a_handler_that_stops_its_subscriber_leaves_the_group(options: dict[str, Any]) -> None:
    """FastStream cancels the task that stops, and the member stayed in the group if that waited before it left."""

    async def handle(body: Any) -> None:
        raise StopConsume

    async with kafka() as broker, running(broker, handle, **options):
        await send_numbers(broker, 10)
        await until(lambda: bool(broker.groups[GROUP].members))
        await until(lambda: not broker.groups[GROUP].members, what="the member leaves")
