"""CLOSER'24: least-loaded packing with the lag of rebalances, beside linear, optimal and over-provisioned.

``python -m papers.closer24`` (with ``PYTHONPATH=examples``).
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from loadtrim.simulate import Costs, Load, Options, PlanConfig, protocol_of
from loadtrim.simulate.simulation import REPORTS_SPREAD
from loadtrim_agent.core.plan.packers.least_loaded import BinSize, least_loaded
from loadtrim_agent.core.plan.packers.problem import Item
from papers.bench import Context, Experiment, main
from papers.playing import (
    Job,
    Part,
    Result,
    draw_latencies,
    draw_runs,
    looks,
    needed,
    play,
    spread_of,
    tables,
)
from papers.sheet import AS_PUBLISHED, AS_RUN, Row, Sheet, Spread, Table
from papers.traces import loaded, taxi, three_humps

__all__ = ["EXPERIMENT", "optimal", "run"]

OBJECTIVE_SECONDS = 0.5
PARTITIONS = 5
STARTUP_SECONDS = 2.0
LOOKS_SECONDS = (0.02, 0.1, 0.2, 0.3)
LATE_LOOK_SECONDS = 0.5
"""As members on a real Kafka may have it by chance."""
QUICK_W1, QUICK_W2 = slice(90, 270), slice(0, 300)
"""Seconds of the two workloads that a quick run plays."""
GATHER_SECONDS = 0.5
LIMIT_PUBLISHED, LIMIT_AS_RUN = 100.0, 85.0
"""Records of a burst that one replica does within the objective: mu x W, and at the 5.9 ms that were measured."""


@dataclass(frozen=True, slots=True)
class Form:
    """The set-up as the text or as the code and data have it."""

    name: str
    cost_seconds: float
    arrivals: str
    policy: str
    limit: float


PUBLISHED = Form(AS_PUBLISHED, 0.005, "even", "closer24:mu=200", LIMIT_PUBLISHED)
RUN = Form(AS_RUN, 0.0059, "burst", "closer24_as_run:mu=200,sampled_lag=1", LIMIT_AS_RUN)
FORMS = (PUBLISHED, RUN)
DRIFTING = "closer24_as_run:mu=200"
"""Goes up by the lag after a burst and down by the least there was: as one ends up whose looks drift."""
LINEAR = "linear:mu=200"
LINEAR_IN_W = "linear:mu=100"
"""What a replica does within W, instead of what it does in a second."""
OVERPROVISIONED = f"fixed:replicas={PARTITIONS}"


@dataclass(frozen=True, slots=True)
class Reported:
    """What the paper's tables say of a run."""

    in_time: float
    replica_minutes: float
    ups: int | None = None
    downs: int | None = None


W1 = {"Alg. 2": Reported(97.4, 30.21, 6, 6), "linear": Reported(94.7, 25.5, 6, 6)}
W1_SKEWED = {"Alg. 2": Reported(98.9, 29.8), "linear": Reported(84.7, 25.5)}
W2 = {"Alg. 2": Reported(98.9, 402.9, 20, 16), "linear": Reported(95.4, 325.7, 23, 20)}
OPTIMAL = {"W1": Reported(100.0, 32.7, 6, 6), "W2": Reported(100.0, 414.11, 20, 16)}
OVER = {"W1": Reported(100.0, 50.0), "W2": Reported(100.0, 600.0)}
W2_SKEWED = {"Alg. 2": Reported(99.08, 392.15), "linear": Reported(85.9, 329.7)}
IMPOSED = {
    ("Alg. 1", 0.5): Reported(90.1, 33.85),
    ("Alg. 2", 0.5): Reported(98.2, 34.61),
    ("Alg. 1", 2.0): Reported(85.4, 34.16),
    ("Alg. 2", 2.0): Reported(99.4, 44.7),
}

HEARTBEATS = {("W1", 0.5): (98.1, 1.0), ("W1", 3.0): (97.4, 3.0), ("W2", 0.5): (99.07, 1.0), ("W2", 3.0): (98.9, 3.0)}
"""(% in time, longest latency in s: "less than 1", "around 3")."""

PHASE = "the phase of the looks: what waits is in the packing, and a look just after a burst sees it, a later one less"
FEWER = "by the formula with mu = 200 two replicas do for 350/s; the paper's shares are those of mu x W (as run, below)"
KEEPS = "f_down = 0.4 keeps a replica for longer than the paper's minutes and scalings speak for"
IN_W = "linear, mu x W"
SPREAD_OUT = "the text says nothing of bursts and gives 200 records/s: evenly spread, fewer replicas do for them"
EARLY = "a look so early sees nearly all of the burst every time, and asks for more"
LATER = "a look so late sees little of the burst, and asks for fewer"
DRIFTS = "guess: how soon the paper's looks met a burst again, once they had drifted past it"
STAND_IN = "guess: the stand-in rises and falls otherwise than the trips did"
LEARNT = "guess: the longest is that of one scale-down, and depends on when its members' heartbeats came"
GAINED = "guess: what is gained is gained at the scale-downs, and how many there are depends on the look"
MEMBERS = "within 0.15 s, as loadtrim's members report, much of a burst is done: less of it is seen"


def job(
    form: Form,
    policy: str,
    packer: str,
    load: Load,
    *,
    heartbeat: float = 3.0,
    rebalance: float = 0.05,
    replicas: int = 1,
) -> Job:
    """One run in a form of the set-up: Kafka's eager protocol."""
    protocol = replace(protocol_of("eager"), heartbeat_seconds=heartbeat, sync_seconds=rebalance)
    config = PlanConfig(
        group="papers",
        objective_seconds=OBJECTIVE_SECONDS,
        policy=policy,
        packer=packer,
        startup_seconds=STARTUP_SECONDS,
    )
    options = Options(
        costs=Costs(mean_seconds=form.cost_seconds),
        startup_seconds=STARTUP_SECONDS,
        protocol=protocol,
        replicas=replicas,
        gather_seconds=GATHER_SECONDS,
    )
    return Job(load, config, options)


@dataclass(frozen=True, slots=True)
class Optimal:
    """The scaler that provisions at once and for nothing, by least-loaded packing of each second's records."""

    replicas: tuple[int, ...]
    """Per second."""
    share_in_time: float
    """Of the records: what is above a bin's limit is late."""

    @property
    def minutes(self) -> float:
        return sum(self.replicas) / 60.0

    @property
    def scaled(self) -> tuple[int, int]:
        """(replicas added, given back)."""
        pairs = list(itertools.pairwise(self.replicas))
        return sum(max(0, b - a) for a, b in pairs), sum(max(0, a - b) for a, b in pairs)


def optimal(load: Load, limit: float) -> Optimal:
    """What it would do; a replica does ``limit`` records of a second in time."""
    size = BinSize(limit, float("inf"))
    counts, in_time = [], 0.0
    for second in range(load.seconds):
        rates = load.rates(second)
        items = [Item(partition=p, owner=None, rate=rate) for p, rate in rates.items()]
        packed = least_loaded(items, size)
        counts.append(len(packed))
        in_time += sum(min(limit, sum(rates[p] for p in each)) for each in packed)
    return Optimal(tuple(counts), in_time / load.records)


def run(given: Context) -> Sheet:
    """Both workloads, their skewed forms, heartbeats and imposed rebalance times."""
    humps, humps_origin = three_humps()
    taxis, taxi_origin = taxi()
    if given.quick:
        humps, taxis = humps[QUICK_W1], taxis[QUICK_W2]
    parts = _parts(humps, taxis)
    results = play(given, needed(given, parts, _jobs(given, humps, taxis)))
    if not given.only:
        _draw(given, humps, taxis, results)
    return Sheet(
        name="closer24",
        title="CLOSER'24: tail-latency-aware bin packing",
        source="Ezzeddine, Baude, Huet: *Tail-Latency Aware and Resource-Efficient Bin Pack Autoscaling for "
        "Distributed Event Queues*, tables 2 to 6.",
        setting=(
            f"W1: {humps_origin}. W2: {taxi_origin}.",
            (
                "W = 0.5 s, decisions each second, 5 partitions (skewed: 9, half the load on 2), (f_up, f_down) = "
                "(0.9, 0.4), t_r = 50 ms, Kafka's eager protocol with heartbeats of 3 s."
            ),
            (
                "As published: 5 ms a record, arrivals spread evenly, `closer24:mu=200`. As run: 5.9 ms a "
                "record (what 5 ms of sleep took), one burst a second, `closer24_as_run:mu=200,sampled_lag=1`; looks "
                f"at everybody's lag {', '.join(f'{look:g}' for look in _looks_of(given))} s after the burst, each "
                f"with a seed of its own ({', '.join(str(at) for at, _ in enumerate(_looks_of(given), 1))})."
            ),
            (
                f"A replica is there {STARTUP_SECONDS:g} s after it was asked for, and counts from then on "
                "(guess: the papers do not say how long pods took)."
            ),
        ),
        tables=tables(given, parts, results, comparable=not given.quick),
    )


def _parts(humps: list[float], taxis: list[float]) -> list[Part]:
    """The tables, and what each takes."""
    return [
        Part(
            "W1, 10 minutes (table 2)",
            ("W1/as", "W1/over"),
            lambda results: _runs(results, "W1", W1, loaded(humps)),
        ),
        Part(
            "W1, Algorithm 2 by the phase of its looks",
            ("W1/as run/Alg. 2", "phases/"),
            _phases,
        ),
        Part("W1 skewed", ("W1 skewed/",), lambda results: _runs(results, "W1 skewed", W1_SKEWED)),
        Part(
            "Heartbeats of 0.5 s instead of 3 s",
            ("W1/heartbeat", "W1/as run/Alg. 2", "W2/heartbeat", "W2/as run/Alg. 2"),
            _heartbeats,
        ),
        Part("W1 with imposed rebalance times", ("Alg. 1/", "Alg. 2/"), _imposed),
        Part(
            "W2, taxi trips (stand-in; table 3)",
            ("W2/as", "W2/over"),
            lambda results: _runs(results, "W2", W2, loaded(taxis)),
        ),
        Part("W2 skewed (stand-in)", ("W2 skewed/",), lambda results: _runs(results, "W2 skewed", W2_SKEWED)),
    ]


def _looks_of(given: Context) -> tuple[float, ...]:
    return LOOKS_SECONDS[::2] if given.quick else LOOKS_SECONDS


def _jobs(given: Context, humps: list[float], taxis: list[float]) -> dict[str, list[Job]]:
    jobs: dict[str, list[Job]] = {}
    times = _looks_of(given)
    for name, rates, looked in (("W1", humps, times), ("W2", taxis, (times[0], times[-1]))):
        # Two hours take long, and what depends on the phase is Algorithm 2 under bursts.
        once = looked if name == "W1" else looked[:1]
        for form in FORMS:
            plain = loaded(rates, arrivals=form.arrivals)
            skewed = loaded(rates, partitions=9, skewed=True, arrivals=form.arrivals)
            for title, load in ((name, plain), (f"{name} skewed", skewed)):
                if title == "W2 skewed" and form is PUBLISHED:
                    continue
                at = looked if form is RUN else once
                jobs[f"{title}/{form.name}/Alg. 2"] = looks(job(form, form.policy, "closer24", load), at)
                jobs[f"{title}/{form.name}/linear"] = looks(job(form, LINEAR, "sticky", load), once)
                if form is RUN:
                    jobs[f"{title}/{form.name}/{IN_W}"] = looks(job(form, LINEAR_IN_W, "sticky", load), once)
        load = loaded(rates, arrivals=RUN.arrivals)
        jobs[f"{name}/heartbeat"] = looks(job(RUN, RUN.policy, "closer24", load, heartbeat=0.5), once)
        over = job(RUN, OVERPROVISIONED, "sticky", load, replicas=PARTITIONS)
        jobs[f"{name}/over-provisioned"] = looks(over, once[:1])
    load = loaded(humps, arrivals=RUN.arrivals)
    jobs["phases/members"] = looks(
        job(RUN, RUN.policy, "closer24", load), (*times, LATE_LOOK_SECONDS), spread=REPORTS_SPREAD
    )
    jobs["phases/drifting"] = looks(job(RUN, DRIFTING, "closer24", load), times)
    for seconds in (0.5, 2.0):
        first = "closer24_algorithm_1:mu=200,sampled_lag=1,cooldown_seconds=10,warmup_seconds=15"
        second = f"{RUN.policy},rebalance_seconds={seconds}"
        jobs[f"Alg. 1/{seconds}"] = looks(job(RUN, first, "closer24", load, rebalance=seconds), times)
        jobs[f"Alg. 2/{seconds}"] = looks(job(RUN, second, "closer24", load, rebalance=seconds), times)
    return jobs


# -- tables


def _pair(what: str, form: str, reported: Reported, results: Sequence[Result], why: str = "") -> list[Row]:
    """Share in time and replica-minutes; numbers of scalings where the paper gives them.

    ``why``: of any difference; none: what can be said by whose figures they are.
    """
    cost = why or _why_cost(what, form, reported, results)
    rows = [
        Row(
            what=f"{what}, in time",
            form=form,
            unit="%",
            paper=reported.in_time,
            ours=spread_of(results, _share),
            why=why or _why_late(what, form, reported, results),
        ),
        Row(
            what=f"{what}, replica-minutes",
            form=form,
            paper=reported.replica_minutes,
            ours=spread_of(results, _minutes),
            why=cost,
        ),
    ]
    if reported.ups is not None and reported.downs is not None:
        ups, downs = spread_of(results, lambda r: r.ups), spread_of(results, lambda r: r.downs)
        rows.append(Row(what=f"{what}, replicas added", form=form, digits=0, paper=reported.ups, ours=ups, why=cost))
        rows.append(
            Row(what=f"{what}, replicas removed", form=form, digits=0, paper=reported.downs, ours=downs, why=cost)
        )
    return rows


def _why_late(what: str, form: str, reported: Reported, results: Sequence[Result]) -> str:
    ours = spread_of(results, _share)
    match what:
        case "linear":
            return SPREAD_OUT if ours.mean > reported.in_time else FEWER
        case _ if what == IN_W:
            return STAND_IN if reported in (W2["linear"], W2_SKEWED["linear"]) else ""
        case _ if form == AS_PUBLISHED:
            return SPREAD_OUT
    return PHASE if ours.low <= reported.in_time <= ours.high else f"{PHASE}; {_best(reported, results)}"


def _why_cost(what: str, form: str, reported: Reported, results: Sequence[Result]) -> str:
    match what:
        case "linear":
            return FEWER
        case _ if what == IN_W:
            return KEEPS
        case _ if form == AS_PUBLISHED:
            return SPREAD_OUT
    ours, paper = spread_of(results, _minutes), reported.replica_minutes
    if ours.low <= paper <= ours.high:
        return PHASE
    return f"{PHASE}; guess: the paper's scaler met {'more' if paper > ours.high else 'fewer'} of the bursts"


def _best(reported: Reported, results: Sequence[Result]) -> str:
    """Of a share that none of the looks comes to, or that all of them surpass."""
    best = max(results, key=_share)
    if _share(best) > reported.in_time:
        return f"every look is better than the paper's: {min(map(_share, results)):.1f} % at least"
    return (
        f"the best look here: {_share(best):.1f} % with {_minutes(best):.1f} replica-minutes (the paper's "
        f"{reported.replica_minutes:g}); guess: its scaler met more of the bursts"
    )


def _runs(
    results: Mapping[str, Sequence[Result]],
    name: str,
    reported: Mapping[str, Reported],
    load: Load | None = None,
) -> Table:
    """``load``: also what is optimal and over-provisioned on it."""
    rows: list[Row] = []
    for form in FORMS:
        for what, figures in reported.items():
            found = results.get(f"{name}/{form.name}/{what}")
            if found is None:
                continue
            rows += _pair(what, form.name, figures, found)
            if what == "linear" and (in_w := results.get(f"{name}/{form.name}/{IN_W}")):
                rows += _pair(IN_W, form.name, figures, in_w)
        if load is not None:
            rows += _optimal(name, form, load)
    if load is not None:
        rows += _overprovisioned(name, load, results.get(f"{name}/over-provisioned"))
    return Table(title="", rows=tuple(rows))


def _optimal(name: str, form: Form, load: Load) -> list[Row]:
    found, paper = optimal(load, form.limit), OPTIMAL[name]
    why = "" if form is RUN else "by its text a replica takes mu x W = 100; its authors' code has 85"
    ups, downs = found.scaled
    both = "whole records in every second go up and down by one; the paper's count leaves that out (guess)"
    return [
        Row(
            what="optimal, in time",
            form=form.name,
            unit="%",
            paper=paper.in_time,
            ours=_one(100.0 * found.share_in_time),
        ),
        Row(
            what="optimal, replica-minutes",
            form=form.name,
            paper=paper.replica_minutes,
            ours=_one(found.minutes),
            why=why,
        ),
        Row(what="optimal, replicas added", form=form.name, digits=0, paper=paper.ups, ours=_one(ups), why=both),
        Row(what="optimal, replicas removed", form=form.name, digits=0, paper=paper.downs, ours=_one(downs), why=both),
    ]


def _overprovisioned(name: str, load: Load, results: Sequence[Result] | None) -> list[Row]:
    """``results``: of one replica per partition, where that was played."""
    paper = OVER[name]
    peak = replace(load, per_second=(max(load.per_second),))
    packed = optimal(peak, 0.9 * 200.0).replicas[0] * load.seconds / 60.0
    fewest = "the paper has one replica per partition; packing its peak by 0.9 x 200 records/s needs fewer"
    return [
        Row(
            what="over-provisioned, replica-minutes",
            form=AS_PUBLISHED,
            paper=paper.replica_minutes,
            ours=_one(packed),
            why="" if packed == paper.replica_minutes else fewest,
        ),
        Row(
            what="over-provisioned, replica-minutes",
            form=AS_RUN,
            paper=paper.replica_minutes,
            ours=_one(PARTITIONS * load.seconds / 60.0),
        ),
        *(
            Row(
                what="over-provisioned, in time",
                form=AS_RUN,
                unit="%",
                paper=paper.in_time,
                ours=spread_of(found, _share),
            )
            for found in ([results] if results else [])
        ),
    ]


def _phases(results: Mapping[str, Sequence[Result]]) -> Table:
    """Each look alone: the range that the means hide."""
    alone = results["W1/as run/Alg. 2"]
    whole = len(alone) == len(LOOKS_SECONDS)
    times = LOOKS_SECONDS if whole else LOOKS_SECONDS[::2]
    rows: list[Row] = []
    for look, result in zip(times, alone, strict=True):
        rows += _look(f"look {look:g} s after the burst", result, LATER)
    for look, result in zip((*times, LATE_LOOK_SECONDS), results["phases/members"], strict=True):
        rows += _look(f"look {look:g} to {look + REPORTS_SPREAD:g} s", result, MEMBERS)
    drifting = results["phases/drifting"]
    rows += _pair("up by the burst, down by the least", AS_RUN, _plain(W1["Alg. 2"]), drifting, DRIFTS)
    return Table(title="", rows=tuple(rows), note=_drift_told(alone) if whole else "")


def _drift_told(alone: Sequence[Result]) -> str:
    """What the paper's figures say beside the mean of all looks."""
    shares, minutes = spread_of(alone, _share), spread_of(alone, _minutes)
    return (
        "The paper's scaler asked the broker for everybody's lag at one moment, which drifted through all phases. "
        f"Its figures are no mean of these looks ({shares.mean:.1f} %, {minutes.mean:.1f} replica-minutes): whoever "
        "drifts goes up by a burst that it meets sooner or later, and down when it meets none. The last two rows do "
        f"that at every look (`{DRIFTING}`)."
    )


def _look(what: str, result: Result, why_less: str) -> list[Row]:
    rows = _pair(what, AS_RUN, _plain(W1["Alg. 2"]), [result], why_less)
    return [msgspec.structs.replace(row, why=EARLY) if (row.difference or 0.0) > 0.0 else row for row in rows]


def _plain(reported: Reported) -> Reported:
    """Without the numbers of scalings."""
    return replace(reported, ups=None, downs=None)


def _heartbeats(results: Mapping[str, Sequence[Result]]) -> Table:
    rows: list[Row] = []
    reported = {"W1": W1["Alg. 2"], "W2": W2["Alg. 2"]}
    for (name, seconds), (in_time, longest) in HEARTBEATS.items():
        found = results[f"{name}/heartbeat" if seconds < 1.0 else f"{name}/as run/Alg. 2"]
        what = f"{name}, heartbeat {seconds:g} s"
        told = "under 1 s" if seconds < 1.0 else "around 3 s"
        rows += [
            Row(
                what=f"{what}, in time",
                form=AS_RUN,
                unit="%",
                digits=2,
                paper=in_time,
                ours=spread_of(found, _share),
                why=_why_late("Alg. 2", AS_RUN, replace(reported[name], in_time=in_time), found),
            ),
            Row(
                what=f"{what}, longest latency (the paper: {told})",
                form=AS_RUN,
                unit="s",
                paper=longest,
                ours=spread_of(found, _longest),
                why=LEARNT,
            ),
        ]
    for name in ("W1", "W2"):
        pairs = zip(results[f"{name}/heartbeat"], results[f"{name}/as run/Alg. 2"], strict=False)
        rows.append(
            Row(
                what=f"{name}, gained by 0.5 s, points",
                form=AS_RUN,
                digits=2,
                paper=HEARTBEATS[name, 0.5][0] - HEARTBEATS[name, 3.0][0],
                ours=Spread.of(_share(a) - _share(b) for a, b in pairs),
                why=GAINED,
            )
        )
    return Table(title="", rows=tuple(rows))


def _imposed(results: Mapping[str, Sequence[Result]]) -> Table:
    rows: list[Row] = []
    for (name, seconds), reported in IMPOSED.items():
        rows += _pair(f"{name}, t_r = {seconds:g} s", AS_RUN, reported, results[f"{name}/{seconds}"])
    return Table(title="", rows=tuple(rows))


def _share(result: Result) -> float:
    return 100.0 * result.share_in_time


def _minutes(result: Result) -> float:
    return result.replica_minutes


def _longest(result: Result) -> float:
    return result.latency_max


def _one(value: float) -> Spread:
    return Spread.of([value])


def _draw(
    given: Context, humps: Sequence[float], taxis: Sequence[float], results: Mapping[str, Sequence[Result]]
) -> None:
    first = {name: found[0] for name, found in results.items()}
    look = f"looks {LOOKS_SECONDS[0]:g} s after the burst (seed 1)"
    for name, load, figures in (("W1", humps, "2, 4 and 5"), ("W2", taxis, "3 and 6")):
        runs = {title: first[f"{name}/as run/{title}"] for title in ("Alg. 2", "linear")}
        given.draw(
            f"closer24-{name.lower()}.png",
            f"{name} as run, {look}: load, replicas, records waiting, longest latency (figures {figures} again). "
            "Dashed: W.",
            partial(draw_runs, load=load, runs=runs, objective_seconds=OBJECTIVE_SECONDS),
            (8, 7),
        )

    def distributions(figure: Any) -> None:
        panels = figure.subplots(2, 2)
        shown = {
            "W1 skewed (figure 7)": {t: first[f"W1 skewed/as run/{t}"] for t in ("Alg. 2", "linear")},
            "W1, heartbeats (figure 9)": {
                "3 s": first["W1/as run/Alg. 2"],
                "0.5 s": first["W1/heartbeat"],
            },
            "W1, t_r = 0.5 s (figures 10, 11)": {t: first[f"{t}/0.5"] for t in ("Alg. 1", "Alg. 2")},
            "W1, t_r = 2 s (figures 10, 12)": {t: first[f"{t}/2.0"] for t in ("Alg. 1", "Alg. 2")},
        }
        for axes, (title, runs) in zip(panels.flat, shown.items(), strict=True):
            draw_latencies(axes, runs, OBJECTIVE_SECONDS)
            axes.set_title(title, fontsize=9)

    given.draw(
        "closer24-latencies.png",
        f"Distributions of the latencies as run, {look} (figures 7 and 9 to 12 again). Dashed: W.",
        distributions,
        (8, 6),
    )


EXPERIMENT = Experiment(
    "closer24",
    run,
    f"seconds {QUICK_W1.start} to {QUICK_W1.stop} of W1 and {QUICK_W2.start} to {QUICK_W2.stop} of W2, with fewer "
    "looks. The paper's figures are of 10 minutes and of two hours, so no difference from them is given.",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
