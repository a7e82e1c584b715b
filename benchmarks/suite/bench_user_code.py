"""What user code does with its time, and how long a partition that it does not work at waits meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from .child import Child
from .group import Group, moving, until
from .results import Figure, percentile
from .suite import Benchmark, BenchmarkContext, Finding

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


async def run(context: BenchmarkContext) -> Finding:
    """Each style in a group of its own."""
    moves = MOVES_QUICK if context.quick else MOVES
    figures: list[Figure] = []
    details = {}
    for style in STYLES:
        waits, generations = await _releases(context, style, moves)
        details[style.work] = waits
        figures += (
            Figure(name=f"{style.words}: plan until release, p50", value=percentile(waits, 0.5), unit="ms"),
            Figure(name=f"{style.work}: plan until release, longest", value=max(waits), unit="ms"),
            Figure(name=f"{style.work}: rebalances meanwhile", value=generations, at_most=0),
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


async def _releases(context: BenchmarkContext, style: Style, moves: int) -> tuple[list[float], int]:
    """Seconds from plan to release; and how many generations came meanwhile."""
    async with Group(context.cluster(), context.scratch, partitions=PARTITIONS) as group:
        await group.preload(range(QUIET), BACKLOG_RECORDS)
        await group.spawn("hard", work=style.work, busy_seconds=style.seconds)
        await group.spawn("other")
        for worker in group.workers.values():
            await worker.ask("start")
        await group.until_settled("hard", "other")
        async with moving(group, "hard", "other") as mover:
            await mover.bring(QUIET, "other")
            waits = []
            for _ in range(moves):
                await mover.move(QUIET, "hard")
                waits.append(await mover.move(QUIET, "other"))
        await _until_further(group.workers["hard"])
        after = await group.until_settled("hard", "other")
        return waits, after["hard"]["generation"] - mover.generation


async def _until_further(worker: Child) -> None:
    """Its user code is still handed records: all the while it had one in hand."""
    before = (await worker.ask("count"))["count"]

    async def further() -> bool:
        return bool((await worker.ask("count"))["count"] > before)

    await until(further, f"{worker.name} is handed another record: its backlog was too short for what is measured")


BENCHMARK = Benchmark(
    name="user-code", title="What user code does with its time", run=run, seconds=60, quick_seconds=45
)
