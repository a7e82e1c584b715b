"""What user code does with its time, and how long a partition that it does not work at waits meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aiokafka import AIOKafkaProducer

from loadtrim_agent.clock import boot_time
from loadtrim_agent.core.records import MovePlan

from .group import Control, Group, until
from .results import Figure, percentile
from .suite import Benchmark, Context, Finding

__all__ = ["BENCHMARK"]

PARTITIONS = 9
QUIET = PARTITIONS - 1
"""The partition that goes to and fro. Nothing is in it: what its release waits for is the agent alone."""
MOVES, MOVES_QUICK = 25, 5
BACKLOG_RECORDS = 4_000
"""Per other partition; more than is done while it is measured."""


@dataclass(frozen=True, slots=True)
class Style:
    """One way to spend time. ``work``: as the worker calls it."""

    work: str
    seconds: float
    words: str


STYLES = (
    Style("waits", 0.005, "waits 5 ms per record (`await asyncio.sleep`)"),
    Style("computes", 0.005, "computes 5 ms per record in Python and never yields"),
    Style("blocks", 0.2, "blocks its loop for 200 ms per record (`time.sleep`)"),
    Style("holds", 0.02, "keeps the interpreter's lock for 20 ms per record (a C call)"),
)


async def run(context: Context) -> Finding:
    """Each style in a group of its own."""
    moves = MOVES_QUICK if context.quick else MOVES
    figures: list[Figure] = []
    details = {}
    for style in STYLES:
        waits, generations = await _releases(context, style, moves)
        details[style.work] = waits
        figures += (
            Figure(name=f"{style.words}: plan until release, p50", value=percentile(waits, 0.5), unit="ms"),
            Figure(name="the same, longest", value=max(waits), unit="ms"),
            Figure(name="the same, rebalances meanwhile", value=generations, at_most=0),
        )
    return Finding(
        setting=(
            f"Two members; user code of one always has a record in hand. A partition without records, which it owns "
            f"too, is given to the other by plan records, {moves} times. From the broker's answer to the plan until "
            "the release is read, by a third party: the agent's thread has to read the plan, commit and write."
        ),
        figures=tuple(figures),
        details={"seconds": details},
    )


async def _releases(context: Context, style: Style, moves: int) -> tuple[list[float], int]:
    """Seconds from plan to release; and how many generations came meanwhile."""
    async with Group(context.cluster(), context.scratch, partitions=PARTITIONS) as group:
        async with AIOKafkaProducer(bootstrap_servers=group.kafka.bootstrap, linger_ms=20) as producer:
            for partition in range(QUIET):
                for _ in range(BACKLOG_RECORDS):
                    await producer.send(group.topic, b"x" * 100, partition=partition)
        await group.spawn("hard", work=style.work, busy_seconds=style.seconds)
        await group.spawn("other")
        for worker in group.workers.values():
            await worker.ask("start")
        await group.until_settled("hard", "other")
        async with Control(group.kafka.bootstrap, group.group) as control:
            await control.hold()
            await asyncio.sleep(3.0)
            states = await group.until_settled("hard", "other")
            control.owners = {p: state["member"] for state in states.values() for p in state["owned"]}
            members = {name: state["member"] for name, state in states.items()}
            leader, generation = states["hard"]["leader"], states["hard"]["generation"]
            waits = []
            for _ in range(moves):
                await _move(control, group.topic, leader, generation, members["hard"])
                waits.append(await _move(control, group.topic, leader, generation, members["other"]))
        after = await group.until_settled("hard", "other")
        return waits, after["hard"]["generation"] - generation


async def _move(control: Control, topic: str, leader: str, generation: int, target: str) -> float:
    """Seconds that it took; 0 where it is there already."""
    source = control.owners[QUIET]
    if source == target:
        return 0.0
    await control.plan(leader, generation, (MovePlan(topic=topic, partition=QUIET, source=source, target=target),))
    planned_at = boot_time()

    async def moved() -> bool:
        return control.owners[QUIET] == target

    await until(moved, f"{source} gives partition {QUIET} away")
    return control.released_at[QUIET] - planned_at


BENCHMARK = Benchmark(
    name="user-code", title="What user code does with its time", run=run, seconds=60, quick_seconds=45
)
