"""Measure what slices cost a consumer that reads as fast as it can: with them beside without, in pairs.

A difference of 2 % is less than what two rounds of the throughput's own differ by. So there are many pairs, each of two
readings right after each other, and the one that goes first changes.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Sequence
from typing import Any

from .bench_throughput import CASES, PARTITIONS, Told, drain, preload, spawn
from .drain import WAYS
from .results import Figure
from .suite import READER, Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK", "figures_of", "interval"]

PAIRS, PAIRS_QUICK = 24, 4
SLICING_AT_LEAST = 0.98
"""Target: records a second with slices, relative to without."""
DEVIATIONS = 1.96
"""Of the interval that a median is in with 95 %."""

Pair = tuple[Told, Told]
"""A consumer with slices, and one without."""


async def run(context: BenchmarkContext) -> Finding:
    """Two consumers, one with slices and one without, read the same records in turns; a first pair is thrown away."""
    kafka, pairs = context.cluster(), PAIRS_QUICK if context.quick else PAIRS
    cases = [case for case in CASES if case.codec == "none"][: 1 if context.quick else None]
    told: dict[tuple[str, str], list[Pair]] = {}
    async with contextlib.AsyncExitStack() as stack:
        clients = {slicing: await spawn(context, "loadtrim", stack, slicing) for slicing in ("auto", "off")}
        for case in cases:
            records = case.records_quick if context.quick else case.records
            topic = kafka.create_topic(partitions=PARTITIONS)
            preload(kafka.bootstrap, topic, case, records)
            for way in WAYS["loadtrim"]:
                pair: dict[str, Told] = {}
                for turn in range(pairs + 1):
                    for slicing in ("auto", "off") if turn % 2 else ("off", "auto"):
                        pair[slicing] = await drain(clients[slicing], topic, way, records, 0)
                    if turn:
                        told.setdefault((case.name, way), []).append((pair["auto"], pair["off"]))
    return Finding(
        setting=(
            f"One consumer, which is alone in its group, reads from {PARTITIONS} partitions what is there already. In "
            f"each of {pairs} pairs one with `LOADTRIM_SLICING=auto` and one without read the same records, and the "
            "one that goes first changes. Medians of the ratios within a pair, and where the median is with 95 %."
        ),
        figures=tuple(figure for (case, way), pairs_ in told.items() for figure in figures_of(case, way, pairs_)),
        details={f"{case}, {way}": _details(pairs_) for (case, way), pairs_ in told.items()},
    )


def figures_of(case: str, way: str, pairs: Sequence[Pair]) -> list[Figure]:
    """Return records a second, and processor time for each, relative to a consumer without slices."""
    rates = [auto.records_per_second / off.records_per_second for auto, off in pairs]
    costs = [auto.cpu_microseconds / off.cpu_microseconds for auto, off in pairs]
    return [
        Figure(
            name=f"{case}: `{way}`, records a second with slices, relative to without",
            value=statistics.median(rates),
            unit="x",
            at_least=SLICING_AT_LEAST,
            peer=_between(rates),
        ),
        Figure(
            name=f"{case}: `{way}`, CPU a record with slices, relative to without",
            value=statistics.median(costs),
            unit="x",
            peer=_between(costs),
        ),
    ]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return between what values the median is with 95 %, by order: of 24 the seventh and the eighteenth.

    As many values as half of them, less 1.96 standard deviations of a fair coin's count, are outside on either side.
    """
    ordered = sorted(values)
    outside = max(0, math.floor(0.5 * (len(ordered) - DEVIATIONS * math.sqrt(len(ordered)))))
    return ordered[outside], ordered[-1 - outside]


def _between(values: Sequence[float]) -> str:
    least, most = interval(values)
    return f"95 %: {least:.3f} to {most:.3f}"


def _details(pairs: Sequence[Pair]) -> dict[str, Any]:
    return {
        slicing: {
            "records_per_second": [round(pair[which].records_per_second) for pair in pairs],
            "cpu_microseconds_per_record": [round(pair[which].cpu_microseconds, 3) for pair in pairs],
        }
        for which, slicing in enumerate(("with", "without"))
    }


BENCHMARK = Benchmark(
    name="slices-cost",
    title="What slices cost a consumer that is alone",
    run=run,
    seconds=600,
    quick_seconds=40,
    measures=(*READER, "benchmarks/suite/drain.py"),
)
