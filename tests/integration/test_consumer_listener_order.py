"""The order of the listener's calls when the group changes its mind while user code is still being called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, cast

import pytest
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.gate import DeliveryGate
from loadtrim_agent.delivery.listener import IncrementalRebalanceListener, Listener
from loadtrim_agent.delivery.partition_stream import Stream
from loadtrim_agent.delivery.partitions import DeliveryParts, Partitions
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.kafka.fetch.port import Fetcher
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.runtime.observer import AgentObserver

AT = Partition("topic", 0)


class FixedFetcher:
    """Fetches nothing; remembers what is taken."""

    def __init__(self) -> None:
        self.taken: set[Partition] = set()
        self.offset: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def take(self, partition: Partition, offset: int) -> None:
        self.taken.add(partition)

    def drop(self, partition: Partition) -> None:
        self.taken.discard(partition)

    def position(self, partition: Partition) -> None:
        return None

    async def reset_offset(self, partition: Partition) -> int:
        return await self.offset


class World(IncrementalRebalanceListener):
    """Partitions with a listener whose calls wait until they are let go."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.calls: list[str] = []
        self.events: list[e.Event] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.ran_at: list[str] = []
        """The call before which a record could have been delivered."""
        self.go = asyncio.Event()
        self.fetcher = FixedFetcher()
        boundary = ErrorBoundary(AgentObserver())
        self.buffer = RecordBuffer(loop, loop)
        gate = DeliveryGate(self.buffer)
        listener = Listener(loop, boundary, gate)
        listener.target = self
        self.partitions = Partitions(
            DeliveryParts(
                buffer=self.buffer,
                gate=gate,
                fetcher=cast(Fetcher, self.fetcher),
                listener=listener,
                observer=AgentObserver(),
                boundary=boundary,
                agent=self,
                tasks=self,
                offsets=self,
                retry_backoff=0.1,
            )
        )

    def feed(self, event: e.Event) -> None:
        self.events.append(event)

    def raise_to_user(self, error: BaseException) -> None: ...

    def waits_for_user(self) -> None: ...

    async def committed_or_none(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        return {}

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        await self._call("assigned")

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await self._call("revoked")

    async def _call(self, name: str) -> None:
        await self.go.wait()
        self.calls.append(name)
        stream = self.buffer.streams.get(AT)
        if stream is not None and stream.running:
            self.ran_at.append(name)

    async def settle(self) -> None:
        self.go.set()
        while waiting := [task for task in self.tasks if not task.done()]:
            await asyncio.wait(waiting)

    async def until_called(self) -> None:
        """Let tasks run until each waits for something: the listener was called, and waits to be let go."""
        for _ in range(10):
            await asyncio.sleep(0)

    async def until_told(self, name: str) -> None:
        async with asyncio.timeout(5.0):
            while name not in self.calls:  # noqa: ASYNC110 - what is waited for happens in the code under test
                await asyncio.sleep(0)

    async def running(self) -> Stream:
        """One partition is opened and handed out."""
        self.partitions.open([c.OpenCommand(partition=AT, acquisition_id=1, offset=5)])
        await self.settle()
        self.partitions.run(c.RunCommand(partition=AT, acquisition_id=1))
        self.go.clear()
        self.calls.clear()
        self.events.clear()
        return self.buffer.streams[AT]


def stop(world: World) -> None:
    world.partitions.stop(c.StopCommand(partition=AT, acquisition_id=1))


def resume(world: World) -> None:
    world.partitions.resume(c.ResumeCommand(partition=AT, acquisition_id=1))


def drop(world: World) -> None:
    world.partitions.drop(c.DropCommand(partition=AT, acquisition_id=1))


@pytest.mark.parametrize(
    ("steps", "calls", "runs"),
    [
        ((stop, resume), ["revoked", "assigned"], True),
        ((stop, drop), ["revoked"], False),
        ((stop, resume, drop), ["revoked"], False),
        # The second stop finds nothing in hand and tells the machine so: nothing may be handed out after that.
        ((stop, resume, stop), ["revoked"], False),
        ((stop, resume, stop, resume), ["revoked", "assigned"], True),
        # A member that does not speak loadtrim came back: stopped, and then stopped to be given up. One loss, one call.
        ((stop, stop), ["revoked"], False),
        ((stop, stop, drop), ["revoked"], False),
        ((drop,), ["revoked"], False),
    ],
)
@pytest.mark.parametrize("called", [True, False], ids=["while it is called", "before it is called"])
async def test_group_changes_its_mind(
    steps: tuple[Callable[[World], None], ...], calls: list[str], runs: bool, called: bool
) -> None:
    world = World()
    stream = await world.running()
    for step in steps:
        step(world)
        if called:
            await world.until_called()
    await world.settle()
    if not called and resume in steps:
        calls = [] if runs else ["revoked"]  # what is over before user code hears of it is not told
    assert world.calls == calls
    assert world.ran_at == []
    assert stream.running is runs
    drained = [event for event in world.events if isinstance(event, e.DrainedEvent)]
    assert bool(drained) == (not runs and drop not in steps)


async def test_a_stop_behind_a_slow_listener_runs_nothing_and_drains_nothing_too_early() -> None:
    """Resumed while it was told to go, stopped while it is told to come: it is told to go before it is drained."""
    world = World()
    stream = await world.running()
    stop(world)
    await world.until_called()
    resume(world)
    world.go.set()
    await world.until_told("revoked")
    world.go.clear()
    await world.until_called()
    stop(world)
    assert world.events == []
    await world.settle()
    assert world.calls == ["revoked", "assigned", "revoked"]
    assert (world.ran_at, stream.running, len(world.events)) == ([], False, 1)


async def test_lost_before_it_was_opened() -> None:
    """Its start was still being looked up: it is not opened any more, and nobody is told of it."""
    world = World()
    world.partitions.open([c.OpenCommand(partition=AT, acquisition_id=1, offset=None)])
    await asyncio.sleep(0)
    drop(world)
    world.fetcher.offset.set_result(3)
    await world.settle()
    assert world.buffer.streams == {}
    assert world.fetcher.taken == set()
    assert world.calls == []
    assert world.events == []
