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

__all__ = ["BENCHMARK"]

PARTITIONS = 9
RATE_PER_PARTITION = 100.0
MEMBERS = ("one", "two", "three")
MOVES, MOVES_QUICK = 400, 60
WARM_MOVES = 150
"""Not counted: the broker compiles its code meanwhile."""
NO_LINGER = {"group.coordinator.append.linger.ms": "0"}
GAP_P50_SECONDS, GAP_P99_SECONDS = 0.006, 0.020
EARLIER = "earlier target 10 / 40 ms"
PEER = "joins and leaves elsewhere: librdkafka cooperative 2.2 to 3.0 s, KIP-848 0.4 to 3.8 s"


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
    """What one group was handed."""

    def __init__(self, stamps: list[Stamp], sent: list[Stamp], begun_ns: int) -> None:
        self.stamps = stamps
        self.sent = sent
        steady: list[float] = []
        moves: list[float] = []
        for handed in by_partition(stamps).values():
            for before, after in pairwise(stamp for stamp in handed if stamp.at_ns >= begun_ns):
                (steady if before.who == after.who else moves).append((after.at_ns - before.at_ns) / 1e9)
        self.normal = statistics.median(steady)
        self.gaps = [max(0.0, gap - self.normal) for gap in moves]
        self.beyond = [max(0.0, gap - self.normal) for gap in steady]


def _judge(moved: Moved, unlingering: Moved, planned: int) -> Finding:
    stamps, sent, normal, gaps, beyond = moved.stamps, moved.sent, moved.normal, moved.gaps, moved.beyond
    counts: dict[tuple[int, int], int] = {}
    for stamp in stamps:
        counts[stamp.partition, stamp.offset] = counts.get((stamp.partition, stamp.offset), 0) + 1
    lost = sum((s.partition, s.offset) not in counts for s in sent)
    repeated = sum(count - 1 for count in counts.values())
    details: dict[str, Any] = {
        "moves_planned": planned,
        "moves_seen": len(gaps),
        "normal_seconds": normal,
        "gap_seconds": {f"p{share * 100:g}": percentile(gaps, share) for share in (0.5, 0.9, 0.99, 1.0)},
        "unmoved_seconds": {f"p{share * 100:g}": percentile(beyond, share) for share in (0.5, 0.9, 0.99, 0.999, 1.0)},
        "records": len(sent),
        "gap_seconds_without_linger": {
            f"p{share * 100:g}": percentile(unlingering.gaps, share) for share in (0.5, 0.9, 0.99, 1.0)
        },
    }
    calm = f"without a move {percentile(beyond, 0.5) * 1e3:.1f} ms"
    calm99 = f"without a move {percentile(beyond, 0.99) * 1e3:.1f} ms"
    return Finding(
        setting=(
            f"{PARTITIONS} partitions x {RATE_PER_PARTITION:g} records/s, {len(MEMBERS)} members in processes of their "
            f"own, one move at a time, asked for by plan records on the control topic at random moments. Gap: time "
            f"between the last record handed out by the old and the first by the new owner, less the median time "
            f"between two records of a partition ({normal * 1e3:.1f} ms)."
        ),
        figures=(
            Figure(name="moves", value=len(gaps), at_least=min(300, planned * 9 // 10)),
            Figure(
                name="gap p50",
                value=percentile(gaps, 0.5),
                unit="ms",
                at_most=GAP_P50_SECONDS,
                peer=f"{calm}; {EARLIER}",
            ),
            Figure(
                name="gap p99",
                value=percentile(gaps, 0.99),
                unit="ms",
                at_most=GAP_P99_SECONDS,
                peer=f"{calm99}; {PEER}",
            ),
            Figure(
                name="gap p50, `group.coordinator.append.linger.ms=0`",
                value=percentile(unlingering.gaps, 0.5),
                unit="ms",
            ),
            Figure(
                name="gap p99, `group.coordinator.append.linger.ms=0`",
                value=percentile(unlingering.gaps, 0.99),
                unit="ms",
            ),
            Figure(name="gap, longest", value=max(gaps, default=float("nan")), unit="ms"),
            Figure(name="records lost", value=lost, at_most=0),
            Figure(name="records repeated", value=repeated, at_most=0),
        ),
        details=details,
    )


BENCHMARK = Benchmark(name="move", title="A planned move", run=run, seconds=230, quick_seconds=90)
