"""The user's rebalance listener, called from the agent's loop."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.listener import Listener

ONE = Partition("orders", 0)
WAIT_SECONDS = 5.0


class Counted:
    def __init__(self) -> None:
        self.errors: list[str] = []

    def error(self, where: str) -> None:
        self.errors.append(where)


class Workers(ConsumerRebalanceListener):  # type: ignore[misc]
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


def listener_of(target: ConsumerRebalanceListener) -> tuple[Listener, Counted]:
    counted = Counted()
    listener = Listener(asyncio.get_running_loop(), ErrorBoundary(counted))
    listener.target = target
    return listener, counted


@pytest.mark.parametrize("name", ["assigned", "revoked"])
async def test_one_that_ends_with_a_cancellation_counts_as_one_that_raised(name: str) -> None:
    """Its partitions were never opened, or never released, and nothing was said."""
    listener, counted = listener_of(Workers())
    async with asyncio.timeout(WAIT_SECONDS):
        await getattr(listener, name)([ONE])
    assert counted.errors == ["listener"]


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
