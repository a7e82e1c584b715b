"""The data plane against a broker whose answers the test gives one by one, in orders that real ones seldom choose."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.fetch import FetchResponse_v10

from loadtrim_agent.core.model import Partition
from loadtrim_agent.kafka.fetch.lanes import Lane
from loadtrim_agent.kafka.fetch.plane import FetchPlane
from loadtrim_agent.kafka.fetch.request import SessionFetchRequest

ONE = Partition("topic", 0)
WAIT_SECONDS = 10.0
THROTTLE_MS = 10


class Asked:
    """A request, open until the test answers it."""

    def __init__(self, lane: Lane, request: SessionFetchRequest) -> None:
        self.lane = lane
        self.fetch = list(request._fetch)
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def fail(self) -> None:
        self.answer.set_exception(KafkaConnectionError("gone"))

    def throttle(self) -> None:
        """As a broker does whose quota is used up: without a word about any partition."""
        self.answer.set_result(FetchResponse_v10(THROTTLE_MS, 0, 0, []))


class Broker:
    """What the plane uses of a client: one broker that leads everything."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[Asked] = asyncio.Queue()
        self.cluster = SimpleNamespace(
            leader_for_partition=lambda _: 1, broker_metadata=lambda _: None, add_listener=lambda _: None
        )

    async def bootstrap(self) -> None: ...

    async def close(self) -> None: ...

    async def ready(self, node: int, group: Lane) -> bool:
        return True

    async def send(self, node: int, request: SessionFetchRequest, group: Lane) -> Any:
        asked = Asked(group, request)
        self.asked.put_nowait(asked)
        return await asked.answer

    async def next(self) -> Asked:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.asked.get()


@contextlib.asynccontextmanager
async def fetching() -> AsyncIterator[tuple[FetchPlane, Broker]]:
    plane = FetchPlane({"bootstrap_servers": "localhost:1", "retry_backoff_ms": 20})
    broker = Broker()
    plane._client = broker
    await plane.start()
    running = asyncio.create_task(plane.run(lambda chunk: None, lambda error, for_good: None))
    try:
        yield plane, broker
    finally:
        running.cancel()
        await plane.close()


async def in_both_lanes(plane: FetchPlane, broker: Broker) -> tuple[Asked, Asked]:
    """The only partition was sought elsewhere while a poll was out: the poll is about the old offset."""
    plane.take(ONE, 0)
    poll = await broker.next()
    plane.take(ONE, 5)
    express = await broker.next()
    assert (poll.lane, poll.fetch, express.lane, express.fetch) == (Lane.POLL, [(ONE, 0)], Lane.EXPRESS, [(ONE, 5)])
    return poll, express


async def idle(plane: FetchPlane, lane: Lane) -> None:
    """Wait until a lane has found nothing to ask for."""
    broker = plane._brokers[1]
    async with asyncio.timeout(WAIT_SECONDS):
        while not broker.wake[lane]._waiters:  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.mark.parametrize("how", ["fail", "throttle"])
async def test_what_only_the_express_was_about_is_asked_for_again_when_that_brings_nothing(how: str) -> None:
    # A broker that hangs: the poll is given up first, as it was sent first, and leaves the partition to the express.
    async with fetching() as (plane, broker):
        poll, express = await in_both_lanes(plane, broker)
        poll.fail()
        await idle(plane, Lane.POLL)
        getattr(express, how)()
        again = await broker.next()
        assert again.fetch == [(ONE, 5)]
