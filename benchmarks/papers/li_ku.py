"""Li & Ku: a queueing model and the length of the buffer, beside FLAS and KEDA.

``python -m benchmarks.papers.li_ku``.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from statistics import fmean
from typing import Any

from benchmarks.papers.bench import Experiment, ExperimentContext, main
from benchmarks.papers.own_policy import own_part, own_runs
from benchmarks.papers.runner import Part, SimulatedJob, SimulatedResult, needed, play, spread_of, tables
from benchmarks.papers.table import AS_PUBLISHED, FigureRow, FigureTable, PaperTables, Spread
from benchmarks.papers.traces import loaded
from demo.datasets import WORLD_CUP_NAME, data_file, not_here
from loadtrim.simulate import Costs, Options, PlanConfig, protocol_of

__all__ = ["EXPERIMENT", "LoadCase", "StandIn", "cases", "clumped", "largest_step", "run", "smooth"]

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
SYNC_SECONDS = {"eager": 0.8, "cooperative": 0.5}
"""Where everybody is stopped: by the runs' own scale-ups, which are to take the 10.25 and 11.80 s of the paper. A
member finishes the up to 500 records it has polled before it joins, and who comes during a rebalance waits for the
next."""
WORKING_SYNC_SECONDS = {"eager": 4.25, "cooperative": 2.4}
"""Where nobody is: added to the start-up, so that with a heartbeat, cooperative with two, scale-ups take the same."""
MINUTES, DAY_MINUTES = SECONDS // 60 + 2, 1440
STEP_MAX = 150.0
"""Records/s from one second to the next that are smooth yet: a day with more of it has a gap in its record."""
FLOOR = 50.0
"""Records/s beside the hump, where no recorded day is there to say it."""

DOWN_WINDOW_SECONDS, DOWN_WINDOW_GUESS = 300, 120
"""Kubernetes' own, and one with which KEDA goes down about as often as the paper's did."""
SHORTER = f"KEDA, down window {DOWN_WINDOW_GUESS} s"

Figures = tuple[float, float, float, float, float]
KEDA_REPORTED: Figures = (1.75, 0.75, 17.22, 470.99, 783.08)
REPORTED: Mapping[str, Figures] = {
    "proposed, eager": (3.35, 4.05, 14.53, 317.5, 780.55),
    "FLAS": (3.29, 0.47, 12.01, 316.25, 1380.38),
    "KEDA": KEDA_REPORTED,
    SHORTER: KEDA_REPORTED,
    "proposed, cooperative": (2.05, 2.50, 18.11, 358.04, 710.85),
}
"""Name -> scalings up, down, % over W, mean latency in ms, consumer-seconds: tables 2 and 3."""
THROUGHPUT = {"proposed, eager": 99.45, "proposed, cooperative": 99.50}
"""Records/s, table 3."""
INTERVALS = {"proposed, eager": (10.25, 10.80), "proposed, cooperative": (11.80, 12.10)}
"""Seconds that scaling up and down took, table 3: request, start of the container and of the consumer, rebalance."""
KEDA = "keda:lag_threshold_records=290,polling_seconds=5"
POLICIES = {
    "proposed, eager": ("li_ku:mu=58", "eager"),
    "FLAS": ("flas:lower_seconds=0.02", "eager"),
    "KEDA": (KEDA, "eager"),
    SHORTER: (f"{KEDA},down_window_seconds={DOWN_WINDOW_GUESS}", "eager"),
    "proposed, cooperative": ("li_ku:mu=58,up_notes=4", "cooperative"),
}
MEASURES: tuple[tuple[str, str, int, Callable[[SimulatedResult], float]], ...] = (
    ("scalings up", "", 2, lambda r: r.up_actions),
    ("scalings down", "", 2, lambda r: r.down_actions),
    ("over W", "%", 2, lambda r: 100.0 * (1.0 - r.share_in_time)),
    ("mean time in system", "ms", 1, lambda r: 1000.0 * r.latency_mean),
    ("consumer-seconds", "", 1, lambda r: 60.0 * r.replica_minutes),
)


@dataclass(frozen=True, slots=True)
class StandIn:
    """Slices in place of the paper's, which was not published."""

    name: str
    what: str
    """A sentence about where its seconds come from."""
    slices: tuple[list[float], ...]


def smooth(count: int) -> StandIn:
    """Days with the maximum and the mean of the paper's slice, played in 210 s: they rise and fall as people come."""
    rng = Random("li_ku/smooth")
    minutes = _recorded()
    if minutes is None:
        what = f"one hump made of a squared cosine (guess), for {not_here(WORLD_CUP_NAME)}"
        return StandIn("smooth", what, tuple(_hump(rng) for _ in range(count)))
    sums = list(itertools.accumulate(minutes, initial=0.0))
    made: list[list[float]] = []
    while len(made) < count:
        begin = rng.randrange(len(minutes) - DAY_MINUTES)
        marks = [begin + second * DAY_MINUTES // SECONDS for second in range(SECONDS + 1)]
        day = [(sums[end] - sums[start]) / (end - start) for start, end in itertools.pairwise(marks)]
        made += [part for part in [_to_maximum(day)] if _mean_fits(part) and largest_step(part) <= STEP_MAX]
    return StandIn("smooth", f"24 hours of World Cup 98 ({WORLD_CUP_NAME}) in 210 s", tuple(made))


def clumped(count: int) -> StandIn:
    """Minutes at their own speed, and seconds in them that clump until the largest is the paper's maximum."""
    rng = Random("li_ku")
    minutes = _recorded()
    origin = f"3.5 minutes of World Cup 98 ({WORLD_CUP_NAME})"
    if minutes is None:
        minutes, origin = _sines(rng), f"minutes made of sines, for {not_here(WORLD_CUP_NAME)},"
    made: list[list[float]] = []
    while len(made) < count:
        begin = rng.randrange(len(minutes) - MINUTES)
        made += [part for part in [_seconds(minutes[begin : begin + MINUTES], rng)] if _mean_fits(part)]
    what = f"{origin} at their own speed, seconds in them by chance (a gamma distribution of shape {CLUMPING:g})"
    return StandIn("clumped", what, tuple(made))


def _recorded() -> list[float] | None:
    path = data_file(WORLD_CUP_NAME)
    if path is None:
        return None
    with gzip.open(path, "rt", newline="") as file:
        return [float(row["count"]) for row in csv.DictReader(file)]


def _sines(rng: Random) -> list[float]:
    return [
        4000.0 * (1.0 + 0.8 * math.sin(at / 229.0)) * (1.0 + 0.3 * math.sin(at / 23.0)) * (1.0 + 0.05 * rng.gauss(0, 1))
        for at in range(20_000)
    ]


def _hump(rng: Random) -> list[float]:
    """A squared cosine on an even floor, as wide as the mean asks for."""
    width = 2.0 * SECONDS * (RATE_MEAN - FLOOR) / (RATE_MAX - FLOOR)
    top = rng.randrange(round(width / 2), SECONDS - round(width / 2))
    off = (min(abs(second - top) / width, 0.5) for second in range(SECONDS))
    return [FLOOR + (RATE_MAX - FLOOR) * math.cos(math.pi * part) ** 2 for part in off]


def _to_maximum(rates: Sequence[float]) -> list[float]:
    largest = max(rates)
    return [rate * RATE_MAX / largest for rate in rates] if largest > 0 else list(rates)


def largest_step(rates: Sequence[float]) -> float:
    """From one second to the next, up or down."""
    return max(abs(now - before) for before, now in itertools.pairwise(rates))


def _mean_fits(rates: Sequence[float]) -> bool:
    return abs(fmean(rates) / RATE_MEAN - 1.0) <= RATE_MEAN_OFF


def _seconds(minutes: Sequence[float], rng: Random) -> list[float]:
    """210 s along some minutes, clumped as requests for pages are; the largest 500."""
    made = []
    for second in range(SECONDS):
        place, part = divmod(second / 60.0, 1.0)
        level = minutes[int(place)] * (1.0 - part) + minutes[int(place) + 1] * part
        made.append(level * rng.gammavariate(CLUMPING, 1.0))
    return _to_maximum(made)


@dataclass(frozen=True, slots=True)
class LoadCase:
    """A stand-in, and what a rebalance is taken to stop: neither is in the paper."""

    name: str
    title: str
    stand_in: StandIn
    stopped: bool = True
    """Everybody stands until the last member has done what it had polled; False: all go on with what they have polled,
    and a new one merely comes later."""


def cases(count: int) -> tuple[LoadCase, ...]:
    """All that are played."""
    hump = smooth(count)
    return (
        LoadCase("smooth", "Smooth stand-in: a day in 210 seconds; rebalances stop everybody", hump),
        LoadCase("working", "Smooth stand-in; members go on with what they have polled", hump, stopped=False),
        LoadCase(
            "clumped", "Clumped stand-in: 210 seconds at their own speed; rebalances stop everybody", clumped(count)
        ),
    )


def job(rates: list[float], policy: str, protocol: str, seed: int, *, stopped: bool = True) -> SimulatedJob:
    """One run of one slice; ``stopped``: see :class:`LoadCase`."""
    plain, sync = protocol_of(protocol), SYNC_SECONDS[protocol]
    startup = STARTUP_SECONDS if stopped else STARTUP_SECONDS + WORKING_SYNC_SECONDS[protocol]
    config = PlanConfig(
        group="papers",
        sla_seconds=OBJECTIVE_SECONDS,
        policy=policy,
        packer="roundrobin",
        startup_seconds=startup,
    )
    options = Options(
        seed=seed,
        costs=Costs(mean_seconds=1.0 / SERVICE_RATE, kind="exponential"),
        startup_seconds=startup,
        protocol=replace(plain, sync_seconds=sync) if stopped else plain,
    )
    return SimulatedJob(loaded(rates, partitions=PARTITIONS, arrivals="poisson"), config, options, timed=True)


def run(given: ExperimentContext) -> PaperTables:
    """The comparison, and eager against cooperative rebalancing, in all cases."""
    played = cases(RUNS_QUICK if given.quick else RUNS)
    jobs = {
        f"{case.name}/{name}": [
            job(rates, policy, protocol, seed, stopped=case.stopped)
            for seed, rates in enumerate(case.stand_in.slices, start=1)
        ]
        for case in played
        for name, (policy, protocol) in POLICIES.items()
    }
    for case in (played[0], played[-1]):
        jobs |= own_runs(f"{case.name} stand-in", jobs[f"{case.name}/proposed, eager"], seeds=(1,))
    parts = [Part(case.title, (f"{case.name}/",), partial(_table, case.name)) for case in played]
    parts.append(own_part())
    results = play(given, needed(given, parts, jobs))
    if not given.only:
        for case in played:
            _draw(given, case, {name: results[f"{case.name}/{name}"] for name in POLICIES if name != SHORTER})
    return PaperTables(
        name="li_ku",
        title="Li & Ku: a queueing model and the buffer",
        source="Li and Ku: *Cost-Effective Autoscaler under Event-Driven Architecture*, tables 2 and 3.",
        setting=(
            _load_told([played[0].stand_in, played[-1].stand_in]),
            *_SETTING,
            f"Its slices are played with the simulator's seeds 1 to {len(played[0].stand_in.slices)}, one each.",
        ),
        tables=tables(given, parts, results),
    )


_SETTING = (
    (
        "W = 0.5 s, 58 records/s per consumer (exponential), 10 partitions, round-robin, one consumer at first "
        "(guess: FLAS' 1,380 consumer-seconds with 8 of them from second 60 on leave 3 before). A replica starts in "
        f"{STARTUP_SECONDS:g} s, and rebalances are so long that scale-ups take what they took in the paper (10.25 s "
        "eager, 11.80 s cooperative), as far as one length for all can do that: a member first does what it has "
        "polled, and who comes during a rebalance waits for the next. How long scaling took in the runs is in each "
        "table (the intervals: from the request until partitions have changed hands). Whether the others work "
        "meanwhile the paper does not say: both are shown."
    ),
    (
        "FLAS' lower threshold, of which the paper says that it is too hard to meet, is 20 ms (guess). The paper says "
        f"nothing of KEDA's windows: with Kubernetes' own, {DOWN_WINDOW_SECONDS} s on the way down, nothing goes down "
        f"in {SECONDS} s; {DOWN_WINDOW_GUESS} s are a guess by its {REPORTED['KEDA'][1]:g} scalings down."
    ),
    "As published only: no code and no data were published.",
)


def _load_told(stand_ins: Sequence[StandIn]) -> str:
    listed = "; ".join(f"{each.name}: {each.what}" for each in stand_ins)
    return (
        "STAND-INS, for the per-second log is not here. All that the paper says of its load: a slice of World Cup 98 "
        f"drawn at random, 210 s, per second, scaled to a maximum of {RATE_MAX:g} records/s; and by table 3 "
        f"{RATE_MEAN:g}/s were done. No 4 minutes of the record have a maximum of 5 times their mean, so either its "
        "seconds clump, or its minutes were played faster than they came: both are shown; the smooth was chosen before "
        f"it was played. {listed}. Of each {len(stand_ins[0].slices)} slices (seeds li_ku/smooth and li_ku) instead of "
        f"20 runs of one, with the paper's maximum and, within {RATE_MEAN_OFF:.0%}, its mean; Poisson arrivals within "
        "the second."
    )


def _table(case: str, results: Mapping[str, Sequence[SimulatedResult]]) -> FigureTable:
    rows = []
    for name, reported in REPORTED.items():
        found = results[f"{case}/{name}"]
        for (what, unit, digits, value), paper in zip(MEASURES, reported, strict=True):
            ours = spread_of(found, value)
            row = FigureRow(
                what=f"{name}: {what}",
                form=AS_PUBLISHED,
                unit=unit,
                digits=digits,
                paper=paper,
                ours=ours,
            )
            rows.append(row)
    for name, intervals in INTERVALS.items():
        rows += _intervals(name, intervals, results[f"{case}/{name}"])
    for name, paper in THROUGHPUT.items():
        ours = spread_of(results[f"{case}/{name}"], lambda r: r.records / SECONDS)
        rows.append(
            FigureRow(what=f"{name}: throughput", form=AS_PUBLISHED, unit="/s", digits=2, paper=paper, ours=ours)
        )
    return FigureTable(title="", rows=tuple(rows), note=_told_by_scalings(results[f"{case}/proposed, eager"]))


def _intervals(name: str, reported: tuple[float, float], found: Sequence[SimulatedResult]) -> list[FigureRow]:
    """How long scaling took, of the runs in which anything was scaled."""
    rows = []
    for way, paper, each in (
        ("up", reported[0], [r.up_seconds for r in found]),
        ("down", reported[1], [r.down_seconds for r in found]),
    ):
        if any(each):
            ours = Spread.of(fmean(seconds) for seconds in each if seconds)
            what = f"{name}: scale-{way} interval"
            rows.append(FigureRow(what=what, form=AS_PUBLISHED, unit="s", digits=2, paper=paper, ours=ours))
    return rows


def _told_by_scalings(found: Sequence[SimulatedResult]) -> str:
    """What the paper's own figures say of its stops."""
    ups, downs, late, *_ = REPORTED["proposed, eager"]
    each = _their_late_by_scaling("proposed, eager")
    return (
        f"{late} % of {SECONDS} s are {each:.1f} s for each of the {ups + downs:.1f} scalings of the paper's proposal "
        f"(eager). Here it is {_late_by_scaling(found):.1f} s for "
        f"each of {fmean(map(_scalings, found)):.1f}."
    )


def _scalings(result: SimulatedResult) -> float:
    return result.up_actions + result.down_actions


def _late_by_scaling(found: Sequence[SimulatedResult]) -> float:
    """Seconds of the load that are late, for each scaling."""
    return fmean(1.0 - r.share_in_time for r in found) * SECONDS / max(1.0, fmean(map(_scalings, found)))


def _their_late_by_scaling(name: str) -> float:
    """The same by the paper's figures."""
    ups, downs, late, *_ = REPORTED[name]
    return late / 100.0 * SECONDS / (ups + downs)


def _draw(given: ExperimentContext, case: LoadCase, results: Mapping[str, Sequence[SimulatedResult]]) -> None:
    first = case.stand_in.slices[0]

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

    given.draw(
        f"li_ku-cost-{case.name}.png",
        f"{case.title}. Cost against records over W: ours (dots), the paper's (crosses).",
        points,
    )
    given.draw(
        f"li_ku-consumers-{case.name}.png",
        f"{case.title}. The first slice (figure 6 again), and consumers on average over all of them (figure 7 again).",
        curves,
        (8, 5),
    )


EXPERIMENT = Experiment(
    "li_ku",
    run,
    f"{RUNS_QUICK} of {RUNS} slices, each of them whole: differences from the paper are given, but go by these few.",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
