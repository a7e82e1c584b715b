"""The plain consumer, as SIGTERM ends it; aiokafka's own side needs a broker."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import ConsumerStoppedError

from loadtrim.plain import PlainConsumer

WAIT_SECONDS = 10.0


class Calls:
    """Calls of aiokafka that are under way until they are let go."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.begun.set()
        await self.go_on.wait()


@pytest.mark.parametrize("call", ["start", "getone", "getmany"])
async def test_what_waits_ends_in_its_own_loop_whichever_thread_asks(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    calls = Calls()
    monkeypatch.setattr(AIOKafkaConsumer, call, calls)
    consumer = PlainConsumer("orders", group_id="g")
    waiting = asyncio.create_task(getattr(consumer, call)())
    await calls.begun.wait()
    thread = threading.Thread(target=consumer.end_iteration, args=(False,))
    thread.start()
    await asyncio.to_thread(thread.join)
    with pytest.raises(ConsumerStoppedError):
        await asyncio.wait_for(waiting, WAIT_SECONDS)
    await consumer.stop()


async def test_it_has_not_left_while_its_stop_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group's coordinator may still wait for a listener, or for the answer to a commit."""
    consumer = PlainConsumer("orders", group_id="g")
    closing = Calls()
    monkeypatch.setattr(consumer._client, "close", closing)
    stopping = asyncio.create_task(consumer.stop())
    await closing.begun.wait()
    assert not consumer.left
    closing.go_on.set()
    await asyncio.wait_for(stopping, WAIT_SECONDS)


def test_nothing_is_left_to_end_where_the_loop_is_closed() -> None:
    async def make() -> PlainConsumer:
        consumer = PlainConsumer("orders", group_id="g")
        await consumer.stop()
        return consumer

    consumer = asyncio.run(make())
    consumer.end_iteration(False)
    assert consumer.left
