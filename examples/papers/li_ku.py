"""Li & Ku: a queueing model and the length of the buffer, beside FLAS and KEDA.

``python -m papers.li_ku`` (with ``PYTHONPATH=examples``).
"""

from __future__ import annotations

import csv
import gzip
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from random import Random
from statistics import fmean
from typing import Any

from loadtrim.simulate import Costs, Options, PlanConfig, protocol_of
from papers.bench import Context, Experiment, data_file, main
from papers.playing import Job, Result, play, spread_of
from papers.sheet import AS_PUBLISHED, Row, Sheet, Table
from papers.traces import loaded

__all__ = ["EXPERIMENT", "run", "slices"]

OBJECTIVE_SECONDS, SERVICE_RATE, PARTITIONS = 0.5, 58.0, 10
SECONDS, RATE_MAX, RUNS, RUNS_QUICK = 210, 500.0, 20, 2
STARTUP_SECONDS = 10.25
"""What the paper measured for a scale-up under eager rebalancing."""
WORLD_CUP_NAME = "worldcup98_per_minute.csv.gz"
BUSY_MINUTES = 2000
"""Requests per minute that a slice has at its peak at least; the site slept at night."""

Figures = tuple[float, float, float, float, float]
REPORTED: Mapping[str, Figures] = {
    "proposed, eager": (3.35, 4.05, 14.53, 317.5, 780.55),
    "FLAS": (3.29, 0.47, 12.01, 316.25, 1380.38),
    "KEDA": (1.75, 0.75, 17.22, 470.99, 783.08),
    "proposed, cooperative": (math.nan, math.nan, 18.11, 358.0, 710.85),
}
"""Name -> replicas added, removed, % over W, mean latency in ms, consumer-seconds; not a number: not reported."""
POLICIES = {
    "proposed, eager": ("li_ku:mu=58", "eager"),
    "FLAS": ("flas", "eager"),
    "KEDA": ("keda:lag_threshold_records=290,polling_seconds=5", "eager"),
    "proposed, cooperative": ("li_ku:mu=58,up_notes=4", "cooperative"),
}
MEASURES: tuple[tuple[str, str, int, Callable[[Result], float]], ...] = (
    ("replicas added", "", 2, lambda r: r.ups),
    ("replicas removed", "", 2, lambda r: r.downs),
    ("over W", "%", 2, lambda r: 100.0 * (1.0 - r.share_in_time)),
    ("mean time in system", "ms", 1, lambda r: 1000.0 * r.latency_mean),
    ("consumer-seconds", "", 1, lambda r: 60.0 * r.replica_minutes),
)
WHY = "guess: the stand-in's slices rise and fall otherwise than the paper's seconds"


def slices(count: int) -> tuple[list[list[float]], str]:
    """Random slices of 210 values, the largest of each 500 records/s; and what they are."""
    path = data_file(WORLD_CUP_NAME)
    rng = Random("li_ku")
    if path is not None:
        with gzip.open(path, "rt", newline="") as file:
            minutes = [float(row["count"]) for row in csv.DictReader(file)]
        origin = f"210 minutes of World Cup 98 ({WORLD_CUP_NAME}), a minute played as a second"
    else:
        minutes = [
            4000.0
            * (1.0 + 0.8 * math.sin(at / 229.0))
            * (1.0 + 0.3 * math.sin(at / 23.0))
            * (1.0 + 0.05 * rng.gauss(0, 1))
            for at in range(20_000)
        ]
        origin = "sums of sines"
    made = []
    while len(made) < count:
        begin = rng.randrange(len(minutes) - SECONDS)
        part = minutes[begin : begin + SECONDS]
        if max(part) >= BUSY_MINUTES:
            made.append([max(0.0, value) * RATE_MAX / max(part) for value in part])
    return made, f"STAND-IN for a slice of the per-second log, which is not here: {origin}"


def job(rates: list[float], policy: str, protocol: str, seed: int) -> Job:
    """One run of one slice."""
    config = PlanConfig(
        group="papers",
        objective_seconds=OBJECTIVE_SECONDS,
        policy=policy,
        packer="roundrobin",
        startup_seconds=STARTUP_SECONDS,
    )
    options = Options(
        seed=seed,
        costs=Costs(mean_seconds=1.0 / SERVICE_RATE, kind="exponential"),
        startup_seconds=STARTUP_SECONDS,
        replicas=max(1, math.ceil(1.3 * fmean(rates[:5]) / SERVICE_RATE)),
        protocol=protocol_of(protocol),
    )
    return Job(loaded(rates, partitions=PARTITIONS, arrivals="poisson"), config, options)


def run(given: Context) -> Sheet:
    """The comparison, and eager against cooperative rebalancing."""
    cut, origin = slices(RUNS_QUICK if given.quick else RUNS)
    jobs: dict[str, list[Job]] = {}
    for name, (policy, protocol) in POLICIES.items():
        jobs[name] = [job(rates, policy, protocol, seed) for seed, rates in enumerate(cut, 1)]
    results = play(given, jobs)
    _draw(given, results)
    return Sheet(
        name="li_ku",
        title="Li & Ku: a queueing model and the buffer",
        source="Li and Ku: *Cost-Effective Autoscaler under Event-Driven Architecture*.",
        setting=(
            f"{origin}; {len(cut)} slices (seed li_ku), each scaled to at most 500 records/s, Poisson arrivals.",
            (
                "W = 0.5 s, 58 records/s per consumer (exponential), 10 partitions, round-robin. A replica is there "
                f"after {STARTUP_SECONDS:g} s, what the paper measured. At first as many as 1.3 times "
                "the first rate needs (guess)."
            ),
        ),
        tables=(_table(results),),
    )


def _table(results: Mapping[str, Sequence[Result]]) -> Table:
    rows = []
    for name, reported in REPORTED.items():
        for (what, unit, digits, value), paper in zip(MEASURES, reported, strict=True):
            rows.append(
                Row(
                    what=f"{name}: {what}",
                    form=AS_PUBLISHED,
                    unit=unit,
                    digits=digits,
                    paper=None if math.isnan(paper) else paper,
                    ours=spread_of(results[name], value),
                    why=WHY if what == "over W" else "",
                )
            )
    return Table(
        title="Means over slices",
        rows=tuple(rows),
        note="Neither trace nor code was published: compare the order of the scalers, not the figures.",
    )


def _draw(given: Context, results: Mapping[str, Sequence[Result]]) -> None:
    def points(figure: Any) -> None:
        axes = figure.subplots()
        for name, found in results.items():
            x, y = fmean(60.0 * r.replica_minutes for r in found), fmean(100.0 * (1.0 - r.share_in_time) for r in found)
            (dot,) = axes.plot(x, y, "o", label=f"{name}, ours")
            axes.plot(REPORTED[name][4], REPORTED[name][2], "x", color=dot.get_color(), label=f"{name}, paper")
        axes.set(xlabel="consumer-seconds", ylabel="over W, %")
        axes.legend()

    given.draw("li_ku-cost.png", "Cost against records over W: ours (dots), the paper's (crosses).", points)


EXPERIMENT = Experiment("li_ku", run)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
