"""Is the simulator to be believed, and how fast is it?

The same two minutes are played by a real group on a real Kafka and by the simulator; the medians of several runs of
each are compared. The simulator is told the start-up time that the real group had, and nothing else of what came of it.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from dataclasses import replace

from demo.load import LoadRates, shares_even, trace
from demo.report import RunSummary
from demo.run import RunOptions
from demo.run import run as run_demo
from loadtrim.simulate import Costs, Load, Options, Outcome, PlanConfig, Simulation, parse_generator
from loadtrim.simulate.model.simulation import JOIN_SECONDS
from loadtrim_agent.common.partition import Partition

from .believed import differences
from .results import Figure
from .suite import PRODUCT, SIMULATOR, Benchmark, BenchmarkContext, Finding

__all__ = ["BELIEVABLE", "SPEED"]

PARTITIONS = 5
BUSY_SECONDS = 0.0059
OBJECTIVE_SECONDS = 0.5
RUNS = 5
SHARE_POINTS_MAX = 2.0
MINUTES_PERCENT_MAX = 5.0
SPEED_PARTITIONS = 9
SPEED_SECONDS = 7200
SPEED_SECONDS_MAX = 5.0


async def _real(context: BenchmarkContext, rates: LoadRates, number: int) -> RunSummary:
    kafka = context.cluster()
    report = await run_demo(
        RunOptions(
            bootstrap=kafka.bootstrap,
            topic=kafka.create_topic(partitions=PARTITIONS),
            group=f"bench-simulator-{number}",
            rates=rates,
            shares=shares_even(PARTITIONS),
            directory=context.scratch / f"run-{number}",
            objective_seconds=OBJECTIVE_SECONDS,
            busy_seconds=BUSY_SECONDS,
        )
    )
    return report.summary


def _simulated(rates: LoadRates, startup_seconds: float, seed: int) -> Outcome:
    load = Load(
        per_second=tuple(float(math.ceil(rate)) for rate in rates.per_second),
        partitions=tuple(Partition("payments", index) for index in range(PARTITIONS)),
        shares=(shares_even(PARTITIONS),),
        arrivals="burst",
        keys="fixed",
        source=rates.source,
    )
    config = PlanConfig(group="bench", sla_seconds=OBJECTIVE_SECONDS)
    options = Options(seed=seed, costs=Costs(mean_seconds=BUSY_SECONDS), startup_seconds=startup_seconds)
    return Simulation(load, config, options).run()


async def believable(context: BenchmarkContext) -> Finding:
    """The same load, played both ways.

    Both count a replica from the request on; the simulator to the load's end, and a real run until its last record is
    done, which is in the last second unless that record is late.
    """
    rates = trace(every=25 if context.quick else 5)
    runs = 1 if context.quick else RUNS
    real = [await _real(context, rates, number) for number in range(runs)]
    startups = [each.startup_p50 for each in real if each.startup_p50 is not None]
    startup = max(0.0, statistics.median(startups) - JOIN_SECONDS) if startups else 1.0
    simulated = [await asyncio.to_thread(_simulated, rates, startup, seed + 1) for seed in range(runs)]
    judged = not context.quick
    return Finding(
        setting=(
            f"{rates.source}, {PARTITIONS} partitions with even shares, one burst a second, "
            f"{BUSY_SECONDS * 1e3:g} ms a record, W = {OBJECTIVE_SECONDS:g} s, policy `objective`; medians of {runs} "
            f"runs each; the simulator was told a start-up time of {startup:.2f} s."
        ),
        figures=tuple(
            differences(
                real,
                simulated,
                points_at_most=SHARE_POINTS_MAX if judged else None,
                percent_at_most=MINUTES_PERCENT_MAX if judged else None,
            )
        ),
        details={
            "real_share": [each.share_in_time for each in real],
            "simulated_share": [each.share_in_time for each in simulated],
            "real_minutes": [each.replica_minutes for each in real],
            "simulated_minutes": [each.replica_minutes for each in simulated],
            "real_p99_seconds": [each.latency.p99 for each in real],
            "startup_seconds": startup,
            "sent_behind_seconds_max": max(each.behind_max for each in real),
        },
    )


def _timed(policy: str, packer: str, seconds: int) -> tuple[float, Outcome]:
    """CPU seconds of one run."""
    text = f"cosine:mean=150,amplitude=50,period=600,seconds={seconds},noise=0.1,seed=1"
    load = replace(parse_generator(text, SPEED_PARTITIONS), arrivals="burst")
    config = PlanConfig(group="bench", sla_seconds=OBJECTIVE_SECONDS, policy=policy, packer=packer)
    simulation = Simulation(load, config, Options(costs=Costs(mean_seconds=BUSY_SECONDS)))
    began = time.process_time()
    outcome = simulation.run()
    return time.process_time() - began, outcome


async def speed(context: BenchmarkContext) -> Finding:
    """CPU time of two hours."""
    seconds = 600 if context.quick else SPEED_SECONDS
    figures = []
    for policy, packer in (("fixed:replicas=3", "sticky"), ("closer24:mu=200", "least_loaded"), ("objective", "trim")):
        took, outcome = await asyncio.to_thread(_timed, policy, packer, seconds)
        figures.append(
            Figure(
                name=f"{seconds / 3600:g} h with {policy.partition(':')[0]}",
                value=took,
                unit="s",
                at_most=None if context.quick else SPEED_SECONDS_MAX,
                peer=f"{outcome.arrived} records",
            )
        )
    return Finding(
        setting=(
            f"A cosine of 100 to 200 records/s with noise on {SPEED_PARTITIONS} partitions in one-second bursts, "
            f"{BUSY_SECONDS * 1e3:g} ms a record, a decision every second; CPU time of one run."
        ),
        figures=tuple(figures),
    )


BELIEVABLE = Benchmark(
    name="simulator",
    title="The simulator beside a real group",
    run=believable,
    seconds=760,
    quick_seconds=60,
    measures=(*PRODUCT, "examples/demo"),
)
SPEED = Benchmark(
    name="simulator-speed",
    title="How fast the simulator is",
    run=speed,
    seconds=120,
    quick_seconds=12,
    needs_kafka=False,
    measures=SIMULATOR,
)
