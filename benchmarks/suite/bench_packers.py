"""Packers: what a plan costs, how near it comes to the fewest bins, and what it moves on Landau'24's stream."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from benchmarks.papers import landau24
from benchmarks.papers.bench import measured
from loadtrim_agent.planning.placement.problem import Problem
from loadtrim_agent.planning.registry import PACKERS, make_packer

from .bench_planner import problem_of
from .optimum import fewest_bins
from .packing import FAMILIES, HARD, PackedStream, drifted, instance, play, small
from .results import Figure
from .suite import PLANNING, Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK", "GRID", "gap_figures", "rscore_figures"]

SEEDS, SEEDS_QUICK = 10, 2
SMALL_SEEDS, SMALL_SEEDS_QUICK = 40, 8
ROUNDS, ROUNDS_QUICK = 15, 3
GRID_SECONDS_MAX = 300.0
GAP_MAX = 1.0
"""Percent, over all families."""
RSCORE_MAX = 0.5
"""Of what MWF moves, for `trim` as it is by default."""
GRID_PROCESSES = 2


@dataclass(frozen=True, slots=True)
class PackerCase:
    """What ``trim`` is timed with."""

    name: str
    problem: Problem
    at_most: float | None
    peer: str


def cases() -> list[PackerCase]:
    """Groups in steady state, with loads that rose, and from cold."""
    trim, listed = make_packer("trim").pack, []
    for members, partitions, targets in ((100, 1000, True), (1000, 10_000, False)):
        group = problem_of(members, partitions)
        size = f"{partitions:,} partitions, {members:,} members"
        for what, every, times, at_most in (
            ("steady state (repair)", 100, 5.0, 0.010 if targets else None),
            ("every 20th load trebled", 20, 3.0, None),
        ):
            changed = drifted(group, every=every, times=times)
            placed = trim(changed)
            over = sum(1 for pressure in trim(replace(changed, may_move=False)).pressures.values() if pressure > 1.0)
            assert over > 0, "nothing to repair: this would measure looking on"
            peer = f"{over} members over, {len(placed.moves)} moves, {len(placed.misfits)} stay over"
            listed.append(PackerCase(f"trim, {what}, {size}", changed, at_most, peer))
        cold = replace(group, items=tuple(structs.replace(item, owner=None) for item in group.items))
        peer = f"{len(trim(cold).misfits)} stay over"
        listed.append(PackerCase(f"trim, cold, {size}", cold, 0.100 if targets else None, peer))
    return listed


def costs(rounds: int) -> list[Figure]:
    """CPU time of ``trim`` in a group, the median of some rounds through all cases; the least beside it.

    Where another guest of the host uses the same core, the same instructions take up to twice the time, for seconds on
    end. So the repeats of a case lie apart, and the least tells what is the packer's own.
    """
    trim, listed = make_packer("trim").pack, cases()
    times: list[list[float]] = [[] for _ in listed]
    for _ in range(rounds):
        for case, seconds in zip(listed, times, strict=True):
            begun = time.process_time()
            trim(case.problem)
            seconds.append(time.process_time() - begun)
    return [
        Figure(
            name=case.name,
            value=statistics.median(seconds),
            unit="ms",
            at_most=case.at_most,
            peer=f"least {min(seconds) * 1e3:.1f} ms; {case.peer}",
        )
        for case, seconds in zip(listed, times, strict=True)
    ]


def gaps(seeds: int, details: dict[str, Any]) -> list[Figure]:
    """How far above the lower bound ``trim`` and first-fit decreasing are where 100 bins or more are needed."""
    trim, first_fit = make_packer("trim").pack, make_packer("ffd").pack
    by_family: dict[str, tuple[float, float]] = {}
    for name in (*FAMILIES, *HARD):
        ours, theirs = [], []
        for seed in range(seeds):
            problem = instance(name, seed)
            placed, plain = trim(problem), first_fit(problem)
            assert placed.bound >= 100, (name, seed, placed.bound)
            assert placed.opened <= plain.opened, (name, seed)
            ours.append(100.0 * placed.gap / placed.bound)
            theirs.append(100.0 * plain.gap / plain.bound)
        by_family[name] = (statistics.mean(ours), statistics.mean(theirs))
    details["gap in percent: trim, ffd"] = {name: [round(gap, 2) for gap in pair] for name, pair in by_family.items()}
    return gap_figures(by_family)


def gap_figures(by_family: Mapping[str, tuple[float, float]]) -> list[Figure]:
    """Judge the mean over all families; those of the two kinds stand beside it without a verdict.

    Args:
        by_family: mean gaps in percent: ``trim``, first-fit decreasing.
    """

    def means(names: Iterable[str]) -> tuple[float, ...]:
        return tuple(map(statistics.mean, zip(*(by_family[name] for name in names), strict=True)))

    (mean, peer), (hard, hard_peer), every = means(FAMILIES), means(HARD), means(by_family)
    worst = max(by_family, key=lambda name: by_family[name][0])
    return [
        Figure(
            name=f"trim, mean gap to the lower bound over all {len(by_family)} families",
            value=every[0],
            unit="%",
            at_most=GAP_MAX,
            peer=f"ffd {every[1]:.2f}%",
        ),
        Figure(name="the same, worst family", value=by_family[worst][0], unit="%", peer=worst),
        Figure(
            name=f"the same over the {len(FAMILIES)} with small partitions",
            value=mean,
            unit="%",
            peer=f"ffd {peer:.2f}%",
        ),
        Figure(
            name=f"the same over the other {len(HARD)}: nothing small fills their bins, and the bound is loose",
            value=hard,
            unit="%",
            peer=f"ffd {hard_peer:.2f}%",
        ),
    ]


def optima(seeds: int, details: dict[str, Any]) -> list[Figure]:
    """How many bins above the proven optimum, on small instances."""
    trim, first_fit = make_packer("trim").pack, make_packer("ffd").pack
    ours, theirs, bounds = [], [], []
    for seed in range(seeds):
        problem = small(seed)
        fewest = fewest_bins(problem).opened
        placed = trim(problem)
        ours.append(placed.opened - fewest)
        theirs.append(first_fit(problem).opened - fewest)
        bounds.append(fewest - placed.bound)
    details["bins above the optimum: trim, ffd; optimum above the bound"] = [ours, theirs, bounds]
    return [
        Figure(
            name=f"trim, most bins above the optimum, {seeds} small instances",
            value=float(max(ours)),
            at_most=1.0,
            peer=f"optimal in {ours.count(0)}; ffd {max(theirs)}, optimal in {theirs.count(0)}",
        )
    ]


def rscores(details: dict[str, Any]) -> tuple[list[Figure], str]:
    """What is moved on Landau'24's stream, everybody with the number of bins that MWF opens."""
    stream, origin = landau24.published_stream()
    mwf = play("mwf", stream)
    calm, spread = play("trim:spread=0", stream, mwf.opened), play("trim", stream, mwf.opened)
    for name in sorted(PACKERS):
        one = play(name, stream)
        details[f"stream: {name}"] = {
            "bins": round(statistics.mean(one.opened), 2),
            "rscore": round(one.rscore, 3),
            "moves": one.moves,
            "misfits": one.misfits,
        }
    fewest = play("trim", stream, fewest=True)
    details["stream: trim, fewest"] = {"bins": round(statistics.mean(fewest.opened), 2), "rscore": fewest.rscore}
    assert calm.misfits == 0
    return [
        *rscore_figures(mwf, default=spread, calm=calm),
        Figure(
            name="trim with as few bins as it can, mean over the stream",
            value=statistics.mean(fewest.opened),
            peer=f"lower bound {statistics.mean(fewest.bound):.2f}; mwf {statistics.mean(mwf.opened):.2f}",
        ),
    ], origin


def rscore_figures(mwf: PackedStream, *, default: PackedStream, calm: PackedStream) -> list[Figure]:
    """Judge ``trim`` as it is by default; the form that moves less stands beside it without a verdict."""
    peer = f"mwf {mwf.rscore:.3f} with {statistics.mean(mwf.opened):.2f} consumers"
    return [
        Figure(
            name="Rscore at MWF's bin count over MWF's, `trim` (spreads onto new members)",
            value=default.rscore / mwf.rscore,
            at_most=RSCORE_MAX,
            peer=peer,
        ),
        Figure(name="the same, `trim:spread=0`", value=calm.rscore / mwf.rscore, peer=peer),
    ]


def measure_all(quick: bool) -> Finding:
    """All figures."""
    details: dict[str, Any] = {}
    rounds = ROUNDS_QUICK if quick else ROUNDS
    figures = costs(rounds)
    figures += gaps(SEEDS_QUICK if quick else SEEDS, details)
    figures += optima(SMALL_SEEDS_QUICK if quick else SMALL_SEEDS, details)
    moved, origin = rscores(details)
    return Finding(
        setting=f"Packers alone, in one thread; CPU time, medians of {rounds} rounds. Repair: the group filled to "
        "75 %, every load up to 10 % off what it was placed by, every 100th five times that. "
        f"Rscore: {origin}; 32 partitions, 100 measurements.",
        figures=tuple(figures + moved),
        details=details,
    )


async def run(context: BenchmarkContext) -> Finding:
    """Pure CPU: no broker, no processes."""
    return await asyncio.to_thread(measure_all, context.quick)


def _grid(quick: bool) -> tuple[float, float]:
    """Seconds by the clock and of CPU."""
    begun = time.monotonic()
    sheet = measured(landau24.EXPERIMENT, quick, GRID_PROCESSES, None, f"={landau24.SCORES}")
    return time.monotonic() - begun, sheet.seconds


async def grid(context: BenchmarkContext) -> Finding:
    """Landau'24's whole grid, as its page is made."""
    seconds, busy = await asyncio.to_thread(_grid, context.quick)
    return Finding(
        setting=f"4 beginnings x 6 deltas x 12 packers, 500 measurements of 200 partitions, in {GRID_PROCESSES} "
        "processes; besides, `trim` on the uniform beginning and two of the streams as published. Quick: 60 "
        "measurements of 60 partitions.",
        figures=(
            Figure(
                name="Landau'24's grid, by the clock",
                value=seconds,
                unit="s",
                at_most=None if context.quick else GRID_SECONDS_MAX,
                peer=f"{busy:.0f} s of CPU",
            ),
        ),
    )


BENCHMARK = Benchmark(
    name="packers",
    title="Packers",
    run=run,
    seconds=90,
    quick_seconds=25,
    needs_kafka=False,
    measures=(*PLANNING, "benchmarks/suite/packing.py"),
)
GRID = Benchmark(
    name="landau-grid",
    title="Landau'24's grid",
    run=grid,
    seconds=250,
    quick_seconds=5,
    needs_kafka=False,
    measures=(*PLANNING, "benchmarks/papers/landau24.py"),
)
