"""Li & Ku: a queueing model and the length of the buffer, beside FLAS and KEDA.

``python -m papers.li_ku`` (with ``PYTHONPATH=examples``).
"""

from __future__ import annotations

import csv
import gzip
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from statistics import fmean
from typing import Any

from loadtrim.simulate import Costs, Options, PlanConfig, protocol_of
from papers.bench import Context, Experiment, main
from papers.playing import Job, Result, play, spread_of
from papers.sheet import AS_PUBLISHED, Row, Sheet, Table
from papers.traces import loaded
from recorded import data_file

__all__ = ["EXPERIMENT", "run", "slices"]

OBJECTIVE_SECONDS, SERVICE_RATE, PARTITIONS = 0.5, 58.0, 10
SECONDS, RATE_MAX, RUNS, RUNS_QUICK = 210, 500.0, 20, 2
RATE_MEAN, RATE_MEAN_OFF = 99.45, 0.05
"""Table 3's throughput, "the average consuming rate per second of the system": what arrives, for none of it is lost.
A slice whose mean is further off is not taken."""
CLUMPING = 1.25
"""Shape of the gamma distribution of seconds around their minute: with it the largest of 210 is some 5 times the mean,
as 500 is of 99.45."""
STARTUP_SECONDS = 4.5
"""A container takes 2 to 4 s to start, the consumer in it 1 to 2 s more."""
SYNC_SECONDS = {"eager": 4.25, "cooperative": 1.4}
"""So that start-up, a heartbeat (1.5 s on average; cooperative: another one, 3 s) and this, cooperative twice, make the
10.25 and 11.80 s that a scale-up took there: a member finishes the up to 500 records it has polled before it joins."""
WORLD_CUP_NAME = "worldcup98_per_minute.csv.gz"
MINUTES = SECONDS // 60 + 2

Figures = tuple[float, float, float, float, float]
REPORTED: Mapping[str, Figures] = {
    "proposed, eager": (3.35, 4.05, 14.53, 317.5, 780.55),
    "FLAS": (3.29, 0.47, 12.01, 316.25, 1380.38),
    "KEDA": (1.75, 0.75, 17.22, 470.99, 783.08),
    "proposed, cooperative": (2.05, 2.50, 18.11, 358.04, 710.85),
}
"""Name -> scalings up, down, % over W, mean latency in ms, consumer-seconds: tables 2 and 3."""
THROUGHPUT = {"proposed, eager": 99.45, "proposed, cooperative": 99.50}
"""Records/s, table 3."""
POLICIES = {
    "proposed, eager": ("li_ku:mu=58", "eager"),
    "FLAS": ("flas:lower_seconds=0.02", "eager"),
    "KEDA": ("keda:lag_threshold_records=290,polling_seconds=5", "eager"),
    "proposed, cooperative": ("li_ku:mu=58,up_notes=4", "cooperative"),
}
MEASURES: tuple[tuple[str, str, int, Callable[[Result], float]], ...] = (
    ("scalings up", "", 2, lambda r: r.up_actions),
    ("scalings down", "", 2, lambda r: r.down_actions),
    ("over W", "%", 2, lambda r: 100.0 * (1.0 - r.share_in_time)),
    ("mean time in system", "ms", 1, lambda r: 1000.0 * r.latency_mean),
    ("consumer-seconds", "", 1, lambda r: 60.0 * r.replica_minutes),
)
WHY = "guess: the stand-in's seconds rise and fall otherwise than the paper's"


def slices(count: int) -> tuple[list[list[float]], str]:
    """Slices of 210 s with the maximum and the mean of the paper's; and what they are."""
    path = data_file(WORLD_CUP_NAME)
    rng = Random("li_ku")
    if path is not None:
        with gzip.open(path, "rt", newline="") as file:
            minutes = [float(row["count"]) for row in csv.DictReader(file)]
        origin = f"minutes of World Cup 98 ({WORLD_CUP_NAME})"
    else:
        minutes = [
            4000.0
            * (1.0 + 0.8 * math.sin(at / 229.0))
            * (1.0 + 0.3 * math.sin(at / 23.0))
            * (1.0 + 0.05 * rng.gauss(0, 1))
            for at in range(20_000)
        ]
        origin = "sums of sines"
    made: list[list[float]] = []
    while len(made) < count:
        begin = rng.randrange(len(minutes) - MINUTES)
        part = _seconds(minutes[begin : begin + MINUTES], rng)
        if abs(fmean(part) / RATE_MEAN - 1.0) <= RATE_MEAN_OFF:
            made.append(part)
    return made, f"STAND-IN for a slice of the per-second log, which is not here: {origin}, seconds in them by chance"


def _seconds(minutes: Sequence[float], rng: Random) -> list[float]:
    """210 s along some minutes, clumped as requests for pages are; the largest 500."""
    made = []
    for second in range(SECONDS):
        place, part = divmod(second / 60.0, 1.0)
        level = minutes[int(place)] * (1.0 - part) + minutes[int(place) + 1] * part
        made.append(level * rng.gammavariate(CLUMPING, 1.0))
    largest = max(made)
    return [value * RATE_MAX / largest for value in made] if largest > 0 else made


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
        protocol=replace(protocol_of(protocol), sync_seconds=SYNC_SECONDS[protocol]),
    )
    return Job(loaded(rates, partitions=PARTITIONS, arrivals="poisson"), config, options)


def run(given: Context) -> Sheet:
    """The comparison, and eager against cooperative rebalancing."""
    cut, origin = slices(RUNS_QUICK if given.quick else RUNS)
    jobs: dict[str, list[Job]] = {}
    for name, (policy, protocol) in POLICIES.items():
        jobs[name] = [job(rates, policy, protocol, seed) for seed, rates in enumerate(cut, 1)]
    results = play(given, jobs)
    _draw(given, cut[0], results)
    return Sheet(
        name="li_ku",
        title="Li & Ku: a queueing model and the buffer",
        source="Li and Ku: *Cost-Effective Autoscaler under Event-Driven Architecture*, tables 2 and 3.",
        setting=(
            (
                f"{origin}; {len(cut)} slices of {SECONDS} s (seed li_ku) instead of 20 runs of one, each with the "
                f"paper's maximum of {RATE_MAX:g} records/s and, within {RATE_MEAN_OFF:.0%}, its mean: the "
                f"{RATE_MEAN:g} records/s of table 3. Poisson arrivals."
            ),
            (
                "W = 0.5 s, 58 records/s per consumer (exponential), 10 partitions, round-robin, one consumer at first "
                f"(guess: FLAS' 1,380 consumer-seconds with 8 of them from second 60 on leave 3 before). A replica "
                f"starts in {STARTUP_SECONDS:g} s and rebalances take as much longer as makes the scale-ups of the "
                "paper (10.25 s eager, 11.80 s cooperative): a member first does the records it has polled."
            ),
            (
                "FLAS' lower threshold, of which the paper says that it is too hard to meet, is 20 ms (guess); KEDA "
                "with Kubernetes' windows."
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
                    paper=paper,
                    ours=spread_of(results[name], value),
                    why=WHY,
                )
            )
    for name, paper in THROUGHPUT.items():
        ours = spread_of(results[name], lambda r: r.records / SECONDS)
        rows.append(Row(what=f"{name}: throughput", form=AS_PUBLISHED, unit="/s", digits=2, paper=paper, ours=ours))
    return Table(
        title="Means over slices",
        rows=tuple(rows),
        note=(
            "Neither trace nor code was published. With the seconds of the stand-in, which clump, every scaler is late "
            "far more often than in the paper, and their order is another one."
        ),
    )


def _draw(given: Context, first: Sequence[float], results: Mapping[str, Sequence[Result]]) -> None:
    def points(figure: Any) -> None:
        axes = figure.subplots()
        for name, found in results.items():
            x, y = fmean(60.0 * r.replica_minutes for r in found), fmean(100.0 * (1.0 - r.share_in_time) for r in found)
            (dot,) = axes.plot(x, y, "o", label=f"{name}, ours")
            axes.plot(REPORTED[name][4], REPORTED[name][2], "x", color=dot.get_color(), label=f"{name}, paper")
        axes.set(xlabel="consumer-seconds", ylabel="over W, %")
        axes.legend()

    def curves(figure: Any) -> None:
        above, below = figure.subplots(2, 1, sharex=True)
        above.fill_between(range(len(first)), first, color="0.85", step="post")
        above.set_ylabel("records/s")
        for name, found in results.items():
            means = [fmean(column) for column in zip(*(r.replicas for r in found), strict=True)]
            below.step(range(len(means)), means, where="post", label=name)
        below.set(xlabel="seconds", ylabel="consumers")
        below.legend()

    given.draw("li_ku-cost.png", "Cost against records over W: ours (dots), the paper's (crosses).", points)
    given.draw(
        "li_ku-consumers.png",
        "The first slice (figure 6 again), and consumers on average over all of them (figure 7 again).",
        curves,
        (8, 5),
    )


EXPERIMENT = Experiment("li_ku", run)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
