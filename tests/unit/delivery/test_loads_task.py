"""When a member tells what waits: twice in a while where something changed, and at once where much came."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry

from loadtrim_agent.delivery.loads_task import SOON_SHARE, LoadsTask
from loadtrim_agent.delivery.metering_task import MeteringTask
from loadtrim_agent.metering.meter import MeterConfig
from loadtrim_agent.observability.metrics import Metrics
from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.ownership_records import LoadRecord


class Bench:
    """A member that tells, and what it told."""

    def __init__(self, load_seconds: float) -> None:
        self.metering = MeteringTask(MeterConfig(group="g"), Metrics(CollectorRegistry(), "g", "c", 0.5))
        self.task = LoadsTask(self.metering)
        self.told: list[LoadRecord] = []
        self.heard = asyncio.Event()
        self.gathered = 0
        self.metering.gather = self.gather  # type: ignore[method-assign]
        target: Any = SimpleNamespace(
            write=self.write, member=lambda: ("m", 1), pod="p/1", load_seconds=lambda: load_seconds
        )
        self.running = asyncio.create_task(self.task.run(target))

    def gather(self) -> None:
        self.gathered += 1

    async def write(self, record: Record) -> bool:
        assert isinstance(record, LoadRecord)
        self.told.append(record)
        self.heard.set()
        return True

    async def next(self) -> LoadRecord:
        await asyncio.wait_for(self.heard.wait(), 5.0)
        self.heard.clear()
        return self.told[-1]


async def test_a_load_is_told_at_once_where_much_came_and_not_twice_in_a_moment() -> None:
    bench = Bench(load_seconds=1_000.0)
    assert bench.task.tell_soon()
    await bench.next()
    assert not bench.task.tell_soon(), "that was a moment ago"
    bench.task._told_at -= 1_000.0 * SOON_SHARE
    assert bench.task.tell_soon()
    await bench.next()
    assert len(bench.told) == 2, "though nothing changed: it was asked for"
    bench.running.cancel()


async def test_what_was_done_is_gathered_before_it_is_told() -> None:
    """What was done since the last gathering still waited in the record: up to a fifth of a second of work."""
    bench = Bench(load_seconds=0.02)
    told = await bench.next()
    assert (told.member, told.generation, told.pod) == ("m", 1, "p/1")
    assert bench.gathered >= 1
    bench.running.cancel()
