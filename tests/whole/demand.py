"""``python -m whole.demand PROGRAM LOAD [SECONDS]``: the replicas that a group asks for, and is given, on virtual time.

The whole product runs; an orchestrator that is played here starts and ends members as the leader asks for them. LOAD is
in members' capacity, arrivals are at random, and a record takes half a second of waiting (a call over the network).
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiokafka.errors import ConsumerStoppedError

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.telemetry_records import DecisionRecord

from .broker import Cluster
from .kernel import Clock, Kernel, Process
from .member import SimConsumer, threads_in_charge
from .network import Network
from .world import TOPIC

__all__ = ["PROGRAMS", "Demand", "Outcome"]

PARTITIONS = 12
RECORD_SECONDS = 0.5
OBJECTIVE_SECONDS = 3.0
START_SECONDS = 2.0
"""From a request until a new member begins."""
AT_ONCE = 10
BATCH = 20
STEP_SECONDS = 0.5
FIRST_GENERATION_SECONDS = 1.0

Work = Callable[[Any], Awaitable[None]]


async def one_by_one(consumer: Any, work: Work) -> None:
    """``async for``."""
    async for record in consumer:
        await work(record)


async def semaphore(consumer: Any, work: Work) -> None:
    """A task for each record, ten at once, that says when it is done."""
    free, tasks = asyncio.Semaphore(AT_ONCE), set()

    async def handle(record: Any) -> None:
        async with consumer.work(record):
            await work(record)
        free.release()

    async for record in consumer:
        task = asyncio.create_task(handle(record))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        await free.acquire()
    await asyncio.gather(*tasks)


async def gather(consumer: Any, work: Work) -> None:
    """``getmany`` and ``gather``."""
    while True:
        try:
            batches = await consumer.getmany(timeout_ms=200, max_records=BATCH)
        except ConsumerStoppedError:
            return
        await asyncio.gather(*(work(record) for batch in batches.values() for record in batch))


async def workers(consumer: Any, work: Work) -> None:
    """Ten tasks that ask one consumer, and say when they are done."""

    async def run() -> None:
        while True:
            try:
                record = await consumer.getone()
            except ConsumerStoppedError:
                return
            async with consumer.work(record):
                await work(record)

    await asyncio.gather(*(run() for _ in range(AT_ONCE)))


PROGRAMS: dict[str, tuple[Callable[[Any, Work], Awaitable[None]], float]] = {
    "one-by-one": (one_by_one, 1 / RECORD_SECONDS),
    "semaphore": (semaphore, AT_ONCE / RECORD_SECONDS),
    "gather": (gather, BATCH / (1.4 * RECORD_SECONDS)),
    "workers": (workers, AT_ONCE / RECORD_SECONDS),
}
"""Name -> program, and the records per second that one member can do: of a batch the slowest record counts."""


@dataclass(slots=True)
class Outcome:
    """One run came to this."""

    done: int = 0
    late: int = 0
    late_second_half: int = 0
    done_second_half: int = 0
    replica_minutes: float = 0.0
    wanted: list[tuple[float, int]] = field(default_factory=list)
    """(seconds since the load began, replicas): each change of what the leader asks for."""


class _Member:
    def __init__(self, demand: Demand, name: str) -> None:
        self._demand = demand
        self.name = name
        self.leaving = False
        self.consumer: SimConsumer | None = None
        self.process = Process(demand.kernel, name, Clock())
        self.task = self.process.run(self._main())

    async def _main(self) -> None:
        self.consumer = SimConsumer(
            self._demand.kernel, self.name, TOPIC, settings={"sla_seconds": OBJECTIVE_SECONDS},
            auto_offset_reset="earliest", auto_commit_interval_ms=1000,
        )  # fmt: skip
        await self.consumer.start()
        await self._demand.program(self.consumer, self._demand.work)
        await self.consumer.stop()

    def decision(self) -> DecisionRecord | None:
        """Return the last decision, where this member leads."""
        agent = self.consumer.agent if self.consumer is not None and not self.leaving else None
        if agent is None or not agent.snapshot().is_leader:
            return None
        last = self.consumer._client.services._leader.last  # type: ignore[union-attr]
        return last if isinstance(last, DecisionRecord) else None

    def end(self) -> None:
        self.leaving = True
        assert self.consumer is not None
        self.consumer._client.end_iteration(False)


class Demand:
    """One run.

    Args:
        program: of :data:`PROGRAMS`.
        load: in members' capacity.
        seed: of arrivals and records.
    """

    def __init__(self, program: str, load: float, seed: int = 5) -> None:
        self.program, capacity = PROGRAMS[program]
        self.kernel = Kernel(seed)
        self._cluster = Cluster(self.kernel)
        Network(self.kernel, self._cluster)
        self._cluster.create(TOPIC, PARTITIONS)
        self._rate = load * capacity
        self._rng = random.Random(seed)
        self._written: dict[tuple[int, int], float] = {}
        self._members: list[_Member] = []
        self._starting = 0
        self._half_at = 0.0
        self.outcome = Outcome()

    def run(self, seconds: float) -> Outcome:
        """Play so many seconds of the load, from one member on."""
        with self.kernel.in_charge(), threads_in_charge():
            self._join()
            self.kernel.run(FIRST_GENERATION_SECONDS)
            began = self.kernel.now
            self._half_at = began + seconds / 2
            self._write()
            while self.kernel.now < began + seconds:
                self.kernel.run(STEP_SECONDS)
                there = sum(not member.task.done() for member in self._members)
                self.outcome.replica_minutes += there * STEP_SECONDS / 60
                self._orchestrate(self.kernel.now - began)
        return self.outcome

    async def work(self, record: Any) -> None:
        await asyncio.sleep(self._rng.uniform(0.6, 1.4) * RECORD_SECONDS)
        late = self.kernel.now - self._written[record.partition, record.offset] > OBJECTIVE_SECONDS
        second = self.kernel.now >= self._half_at
        self.outcome.done += 1
        self.outcome.late += late
        self.outcome.done_second_half += second
        self.outcome.late_second_half += late and second

    def _write(self) -> None:
        index = self._rng.randrange(PARTITIONS)
        self._written[index, self._cluster.put(Partition(TOPIC, index), b"x")] = self.kernel.now
        self.kernel.scheduler.after(self._rng.expovariate(self._rate), self._write)

    def _join(self) -> None:
        self._members.append(_Member(self, f"m{len(self._members) + 1}"))

    def _started(self) -> None:
        self._starting -= 1
        self._join()

    def _orchestrate(self, at: float) -> None:
        decision = next((found for member in self._members if (found := member.decision()) is not None), None)
        if decision is None:
            return
        wanted, there = decision.replicas_wanted, [member for member in self._members if not member.leaving]
        if not self.outcome.wanted or self.outcome.wanted[-1][1] != wanted:
            self.outcome.wanted.append((round(at, 1), wanted))
        for _ in range(wanted - len(there) - self._starting):
            self._starting += 1
            self.kernel.scheduler.after(START_SECONDS, self._started)
        if wanted < len(there) and not self._starting:
            last = sorted(there, key=lambda member: member.name not in decision.victims)
            for member in last[: len(there) - wanted]:
                member.end()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m whole.demand", description=__doc__)
    parser.add_argument("program", choices=sorted(PROGRAMS))
    parser.add_argument("load", type=float, help="members' capacity")
    parser.add_argument("seconds", type=float, nargs="?", default=120.0)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    outcome = Demand(options.program, options.load).run(options.seconds)
    in_time = 100 - 100 * outcome.late / max(1, outcome.done)
    later = 100 - 100 * outcome.late_second_half / max(1, outcome.done_second_half)
    print(
        f"{options.program} at {options.load:g} members' load: {outcome.replica_minutes:.1f} replica-minutes, "
        f"{in_time:.2f} % in time, {later:.2f} % in the second half; asked for {outcome.wanted}"
    )


if __name__ == "__main__":
    main()
