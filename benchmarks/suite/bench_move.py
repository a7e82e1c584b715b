"""A planned move: what a partition's records wait for when it goes from one process to another."""

from __future__ import annotations

import asyncio
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any

from loadtrim.testing import Cluster, LocalKafka
from payments.service import clock_ns

from .group import Group, moving, running_group
from .results import Figure, percentile
from .stamps import Stamp, by_partition
from .suite import Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK", "Moved", "gap_figures"]

PARTITIONS = 9
RATE_PER_PARTITION = 100.0
MEMBERS = ("one", "two", "three")
MOVES, MOVES_QUICK = 400, 60
WARM_MOVES = 150
"""Not counted: the broker compiles its code meanwhile."""
NO_LINGER = {"group.coordinator.append.linger.ms": "0"}
INTERVAL_SECONDS = 1 / RATE_PER_PARTITION
"""Between two records of a partition, as they are sent: so long the whole time lasts if a move takes none."""
GAP_P50_SECONDS, GAP_P99_SECONDS = INTERVAL_SECONDS + 0.006, INTERVAL_SECONDS + 0.020
PEER = (
    "another operation, measured elsewhere: joins and leaves, librdkafka cooperative 2.2 to 3.0 s, KIP-848 0.4 to 3.8 s"
)


async def run(context: BenchmarkContext) -> Finding:
    """Moves one partition at a time, as the leader's plan would ask, at random moments."""
    wanted = MOVES_QUICK if context.quick else MOVES
    moved = await _measure(context.cluster(), context.scratch / "default", wanted)
    with LocalKafka(heap_mb=1024, properties=NO_LINGER) as kafka:
        unlingering = await _measure(kafka, context.scratch / "unlingering", wanted)
    return _judge(moved, unlingering, wanted)


async def _measure(kafka: Cluster, directory: Path, wanted: int) -> Moved:
    await asyncio.to_thread(directory.mkdir)
    async with running_group(
        kafka,
        directory,
        MEMBERS,
        partitions=PARTITIONS,
        rate=PARTITIONS * RATE_PER_PARTITION,
    ) as group:
        begun_ns = await _move(group, wanted)
        await group.drain()
        return Moved(await group.stamps(), group.sent(), begun_ns)


async def _move(group: Group, wanted: int) -> int:
    """Returns when (clock ns) the moves that count began."""
    begun_ns = 0
    async with moving(group, *MEMBERS) as mover:
        for number in range(WARM_MOVES + wanted):
            if number == WARM_MOVES:
                begun_ns = clock_ns()
            partition = group.random.randrange(PARTITIONS)
            source = mover.owner(partition)
            await mover.move(partition, group.random.choice([name for name in MEMBERS if name != source]))
            await asyncio.sleep(group.random.uniform(0.05, 0.15))
    return begun_ns


class Moved:
    """The records that one group was handed.

    Attributes:
        normal: median seconds between two records of a partition that does not move.
        whole: seconds from the last record of the old owner to the first of the new one, per move.
        gaps: these less ``normal``, never below 0.
        stayed: seconds between two records of the same owner.
    """

    def __init__(self, stamps: list[Stamp], sent: list[Stamp], begun_ns: int) -> None:
        self.stamps = stamps
        self.sent = sent
        steady: list[float] = []
        moves: list[float] = []
        for handed in by_partition(stamps).values():
            for before, after in pairwise(stamp for stamp in handed if stamp.at_ns >= begun_ns):
                (steady if before.who == after.who else moves).append((after.at_ns - before.at_ns) / 1e9)
        self.normal = statistics.median(steady)
        self.whole = moves
        self.stayed = steady
        self.gaps = [max(0.0, gap - self.normal) for gap in moves]


def _judge(moved: Moved, unlingering: Moved, planned: int) -> Finding:
    counts: dict[tuple[int, int], int] = {}
    for stamp in moved.stamps:
        counts[stamp.partition, stamp.offset] = counts.get((stamp.partition, stamp.offset), 0) + 1
    lost = sum((s.partition, s.offset) not in counts for s in moved.sent)
    repeated = sum(count - 1 for count in counts.values())
    details: dict[str, Any] = {
        "moves_planned": planned,
        "moves_seen": len(moved.whole),
        "normal_seconds": moved.normal,
        "whole_seconds": _shares(moved.whole),
        "gap_seconds": _shares(moved.gaps),
        "unmoved_seconds": _shares(moved.stayed),
        "records": len(moved.sent),
        "whole_seconds_without_linger": _shares(unlingering.whole),
        "gap_seconds_without_linger": _shares(unlingering.gaps),
    }
    return Finding(
        setting=(
            f"{PARTITIONS} partitions x {RATE_PER_PARTITION:g} records/s, {len(MEMBERS)} members in processes of their "
            f"own, one move at a time, asked for by plan records on the control topic at random moments. Whole time: "
            f"between the last record handed out by the old and the first by the new owner, of which one interval of "
            f"the load, {INTERVAL_SECONDS * 1e3:g} ms, would pass without a move too. Net: less the median time "
            f"between two records of a partition ({moved.normal * 1e3:.1f} ms), never below 0. Thrown away: the first "
            f"{WARM_MOVES} moves of each group, in which the broker compiles its code."
        ),
        figures=(
            Figure(name="moves", value=len(moved.whole), at_least=min(300, planned * 9 // 10)),
            *gap_figures(moved),
            Figure(
                name="whole time p50, `group.coordinator.append.linger.ms=0`",
                value=percentile(unlingering.whole, 0.5),
                unit="ms",
                peer=f"net {percentile(unlingering.gaps, 0.5) * 1e3:.1f} ms",
            ),
            Figure(
                name="whole time p99, `group.coordinator.append.linger.ms=0`",
                value=percentile(unlingering.whole, 0.99),
                unit="ms",
                peer=f"net {percentile(unlingering.gaps, 0.99) * 1e3:.1f} ms",
            ),
            Figure(name="whole time, longest", value=max(moved.whole, default=float("nan")), unit="ms"),
            Figure(name="records lost", value=lost, at_most=0),
            Figure(name="records repeated", value=repeated, at_most=0),
        ),
        details=details,
    )


def gap_figures(moved: Moved) -> list[Figure]:
    """Judge the whole time between the two records; the net time stands beside it without a verdict."""
    figures = []
    for share, at_most, peer in ((0.5, GAP_P50_SECONDS, ""), (0.99, GAP_P99_SECONDS, f"; {PEER}")):
        calm = f"without a move {percentile(moved.stayed, share) * 1e3:.1f} ms"
        figures += [
            Figure(
                name=f"whole time between the two records, p{share * 100:g}",
                value=percentile(moved.whole, share),
                unit="ms",
                at_most=at_most,
                peer=f"{calm}{peer}",
            ),
            Figure(name=f"net, p{share * 100:g}", value=percentile(moved.gaps, share), unit="ms"),
        ]
    return figures


def _shares(seconds: list[float]) -> dict[str, float]:
    return {f"p{share * 100:g}": percentile(seconds, share) for share in (0.5, 0.9, 0.99, 0.999, 1.0)}


BENCHMARK = Benchmark(name="move", title="A planned move", run=run, seconds=230, quick_seconds=90)
