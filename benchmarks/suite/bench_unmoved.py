"""What partitions that stay where they are notice of members that come and go."""

from __future__ import annotations

import asyncio
import statistics
from itertools import pairwise

from payments.service import clock_ns

from .group import Group, running_group
from .results import Figure, percentile
from .stamps import Stamp, by_partition
from .suite import Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK"]

PARTITIONS = 9
RATE_PER_PARTITION = 40.0
"""With 100 the harness itself (a request per record, at the broker and at every client) takes three quarters of two
cores, and the wait for a core is all that is left to be seen."""
STAYING = ("one", "two")
GUESTS = ("three", "four")
PAIRS, PAIRS_QUICK = 5, 2
CHANGES, CHANGES_QUICK = 12, 4
"""Joins and leaves of one run, together."""
STAY_SECONDS = 1.2


async def run(context: BenchmarkContext) -> Finding:
    """In turns, after a first pair that is thrown away: the group under joins and leaves; bare aiokafka, without a
    group, beside the same joins and leaves.

    The bare consumers' machine has the same processes coming and going (they join a group of their own), so what is
    left as difference is what membership costs those who stay.
    """
    changes = CHANGES_QUICK if context.quick else CHANGES
    shares: list[float] = []
    bare_shares: list[float] = []
    limits: list[float] = []
    moved = 0
    longest: list[float] = []
    for number in range(1 + (PAIRS_QUICK if context.quick else PAIRS)):
        if number % 2:
            ours, moves = await _ours(context, changes)
            bare = await _bare(context, changes)
        else:
            bare = await _bare(context, changes)
            ours, moves = await _ours(context, changes)
        if number == 0:  # the broker's code is compiled meanwhile, which takes most of a core
            continue
        limit = percentile(bare, 0.999)
        limits.append(limit)
        shares.append(sum(gap > limit for gap in ours) / len(ours))
        bare_shares.append(sum(gap > limit for gap in bare) / len(bare))
        longest.append(max(ours))
        moved += moves
    return Finding(
        setting=(
            f"{PARTITIONS} partitions x {RATE_PER_PARTITION:g} records/s on {len(STAYING)} members; "
            f"{changes} joins and graceful leaves of {len(GUESTS)} more in each of {len(shares)} runs, beside a run of "
            "bare aiokafka consumers with fixed partitions and the same processes coming and going. Counted: times "
            "between two records of a partition that the same process was handed. Thrown away: a first pair of runs, "
            "in which the broker's code is compiled."
        ),
        figures=(
            Figure(
                name="share of gaps above bare aiokafka's p99.9, mean of the pairs",
                value=statistics.mean(shares) * 100,
                unit="%",
                at_most=0.2,
                peer=f"bare: {statistics.mean(bare_shares) * 100:.2g} % (p99.9 {statistics.mean(limits) * 1e3:.0f} ms)",
            ),
            Figure(name="the same, worst pair", value=max(shares) * 100, unit="%"),
            Figure(name="longest of these gaps, median of the runs", value=statistics.median(longest), unit="ms"),
            Figure(name="moves meanwhile", value=moved),
        ),
        details={"shares": shares, "bare_p999_seconds": limits, "longest_seconds": longest},
    )


async def _ours(context: BenchmarkContext, changes: int) -> tuple[list[float], int]:
    async with running_group(
        context.cluster(),
        context.scratch,
        STAYING,
        partitions=PARTITIONS,
        rate=PARTITIONS * RATE_PER_PARTITION,
        env={"LOADTRIM_MODE": "shadow"},  # a sticky plan that balances counts: every change moves something
    ) as group:
        await group.spawn(*GUESTS)
        await asyncio.sleep(2.0)
        return await _watched(group, changes)


async def _bare(context: BenchmarkContext, changes: int) -> list[float]:
    async with Group(context.cluster(), context.scratch, partitions=PARTITIONS) as group:
        for index, name in enumerate(STAYING):
            mine = list(range(PARTITIONS))[index :: len(STAYING)]
            await group.spawn(name, client="assigned", assigned=mine)
        guests_topic = group.kafka.create_topic(partitions=PARTITIONS)
        await group.spawn(*GUESTS, topic=guests_topic)
        await group.start_feed(PARTITIONS * RATE_PER_PARTITION)
        for name in STAYING:
            await group.workers[name].ask("start")
        await asyncio.sleep(2.0)
        gaps, _ = await _watched(group, changes)
        return gaps


async def _watched(group: Group, changes: int) -> tuple[list[float], int]:
    """Gaps and moves while guests come and go: neither before, when processes start, nor after."""
    begun_ns = clock_ns()
    await _come_and_go(group, changes)
    ended_ns = clock_ns()
    assert group.feed is not None
    await group.feed.ask("stop")
    await asyncio.sleep(0.5)
    return _gaps([stamp for stamp in await group.stamps() if begun_ns <= stamp.at_ns < ended_ns])


async def _come_and_go(group: Group, changes: int) -> None:
    """Guests join and leave in turns, at moments unrelated to anything's second."""
    there: list[str] = []
    for _ in range(changes):
        name = group.random.choice(GUESTS)
        if name in there:
            there.remove(name)
            await group.workers[name].ask("stop")
        else:
            there.append(name)
            await group.workers[name].ask("start")
        await asyncio.sleep(STAY_SECONDS + group.random.uniform(0.0, 1.0))
    for name in there:
        await group.workers[name].ask("stop")


def _gaps(stamps: list[Stamp]) -> tuple[list[float], int]:
    """Seconds between records that the same process was handed; and the number of moves."""
    gaps: list[float] = []
    moves = 0
    for handed in by_partition(stamps).values():
        for before, after in pairwise(handed):
            if before.who == after.who:
                gaps.append((after.at_ns - before.at_ns) / 1e9)
            else:
                moves += 1
    return gaps, moves


BENCHMARK = Benchmark(name="unmoved", title="Partitions that do not move", run=run, seconds=420, quick_seconds=100)
