"""What measuring costs a member: the figures of :mod:`.bench_meter` as one of the suite."""

from __future__ import annotations

import asyncio

from .bench_meter import cases
from .bench_meter import run as run_case
from .results import Figure
from .suite import Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK"]

RATE = 200_000.0
SECONDS, SECONDS_QUICK = 4.0, 1.1


async def run(context: BenchmarkContext) -> Finding:
    """Pure CPU: no broker, no processes."""
    seconds = SECONDS_QUICK if context.quick else SECONDS
    results = [await asyncio.to_thread(run_case, case, seconds) for case in cases(RATE)]
    busy = [result for result in results if result.name.startswith(("busy", "backlog"))]
    worst = max(busy, key=lambda result: result.microseconds_per_record)
    figures = [
        Figure(
            name="measuring, per record at 200,000 records/s, worst case",
            value=worst.microseconds_per_record,
            unit="us",
            peer=worst.name,
        )
    ]
    figures += [
        Figure(name=f"of a core: {result.name}", value=result.share_of_core * 100, unit="%") for result in results
    ]
    return Finding(
        setting="The meter alone, fed as the agent does, with a report a second; CPU time of its thread, medians.",
        figures=tuple(figures),
    )


BENCHMARK = Benchmark(
    name="measuring",
    title="What measuring costs",
    run=run,
    seconds=6,
    quick_seconds=2,
    needs_kafka=False,
    measures=("agent/loadtrim_agent/metering", "benchmarks/suite/bench_meter.py"),
)
