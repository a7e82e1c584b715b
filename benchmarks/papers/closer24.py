"""CLOSER'24: least-loaded packing with the lag of rebalances, beside linear, optimal and over-provisioned.

``python -m benchmarks.papers.closer24``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
from msgspec import structs

from benchmarks.papers.bench import Experiment, ExperimentContext, main
from benchmarks.papers.closer24_optimal import optimal
from benchmarks.papers.own_policy import own_part, own_runs
from benchmarks.papers.runner import (
    Part,
    SimulatedJob,
    SimulatedResult,
    draw_latencies,
    draw_runs,
    looks,
    needed,
    play,
    spread_of,
    tables,
)
from benchmarks.papers.table import AS_PUBLISHED, AS_RUN, FigureRow, FigureTable, PaperTables, Spread
from benchmarks.papers.traces import loaded, taxi, three_humps
from loadtrim.simulate import Costs, Load, Options, PlanConfig, protocol_of
from loadtrim_agent.metering.readings import REPORTS_SPREAD

__all__ = ["EXPERIMENT", "run"]

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
class CloserForm:
    """The set-up as the text or as the code and data have it."""

    name: str
    cost_seconds: float
    arrivals: str
    policy: str
    first: str
    """Algorithm 1; the policy is Algorithm 2."""
    limit: float


PUBLISHED = CloserForm(AS_PUBLISHED, 0.005, "even", "closer24:mu=200", "closer24_algorithm_1:mu=200", LIMIT_PUBLISHED)
RUN = CloserForm(
    AS_RUN,
    0.0059,
    "burst",
    "closer24_as_run:mu=200",
    "closer24_algorithm_1:mu=200,sampled_lag=1,cooldown_seconds=10,warmup_seconds=15",
    LIMIT_AS_RUN,
)
FORMS = (PUBLISHED, RUN)
DRIFTING = "closer24_as_run:mu=200,sampled_lag=0"
"""Goes up by the lag after a burst and down by the least there was: as one ends up whose looks drift."""
LINEAR = "linear:mu=200"
LINEAR_IN_W = "linear:mu=100"
"""What a replica does within W, instead of what it does in a second."""


@dataclass(frozen=True, slots=True)
class CloserReported:
    """What the paper's tables say of a run."""

    in_time: float
    replica_minutes: float
    ups: int | None = None
    downs: int | None = None


W1 = {"Alg. 2": CloserReported(97.4, 30.21, 6, 6), "linear": CloserReported(94.7, 25.5, 6, 6)}
W1_SKEWED = {"Alg. 2": CloserReported(98.9, 29.8), "linear": CloserReported(84.7, 25.5)}
W2 = {"Alg. 2": CloserReported(98.9, 402.9, 20, 16), "linear": CloserReported(95.4, 325.7, 23, 20)}
OPTIMAL = {"W1": CloserReported(100.0, 32.7, 6, 6), "W2": CloserReported(100.0, 414.11, 20, 16)}
OVER = {"W1": CloserReported(100.0, 50.0), "W2": CloserReported(100.0, 600.0)}
W2_SKEWED = {"Alg. 2": CloserReported(99.08, 392.15), "linear": CloserReported(85.9, 329.7)}
IMPOSED = {
    ("Alg. 1", 0.5): CloserReported(90.1, 33.85),
    ("Alg. 2", 0.5): CloserReported(98.2, 34.61),
    ("Alg. 1", 2.0): CloserReported(85.4, 34.16),
    ("Alg. 2", 2.0): CloserReported(99.4, 44.7),
}

HEARTBEATS = {("W1", 0.5): (98.1, 1.0), ("W1", 3.0): (97.4, 3.0), ("W2", 0.5): (99.07, 1.0), ("W2", 3.0): (98.9, 3.0)}
"""(% in time, longest latency in s: "less than 1", "around 3")."""

TEXT_SAYS = {"W1": "Of the linear scaler the paper's table has 94.7 %, its text 93.9 %."}
IN_W = "linear, mu x W"
OPTIMAL_LOOK_SECONDS = 0.71
"""Then decisions come 0.01 s after each burst: for the second that has just begun."""


def job(
    form: CloserForm,
    policy: str,
    packer: str,
    load: Load,
    *,
    heartbeat: float = 3.0,
    rebalance: float = 0.05,
    replicas: int = 1,
) -> SimulatedJob:
    """One run in a form of the set-up: Kafka's eager protocol."""
    protocol = replace(protocol_of("eager"), heartbeat_seconds=heartbeat, sync_seconds=rebalance)
    config = PlanConfig(
        group="papers",
        sla_seconds=OBJECTIVE_SECONDS,
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
    return SimulatedJob(load, config, options)


def run(given: ExperimentContext) -> PaperTables:
    """Both workloads, their skewed forms, heartbeats and imposed rebalance times."""
    humps, humps_origin = three_humps()
    taxis, taxi_origin = taxi()
    if given.quick:
        humps, taxis = humps[QUICK_W1], taxis[QUICK_W2]
    parts = _parts(given, humps, taxis)
    results = play(given, needed(given, parts, _jobs(given, humps, taxis)))
    if not given.only:
        _draw(given, humps, taxis, results)
    return PaperTables(
        name="closer24",
        title="CLOSER'24: tail-latency-aware bin packing",
        source="Ezzeddine, Baude, Huet: *Tail-Latency Aware and Resource-Efficient Bin Pack Autoscaling for "
        "Distributed Event Queues*, tables 2 and 3, and the figures of its section 5.1.",
        setting=(
            f"W1: {humps_origin}. W2: {taxi_origin}.",
            (
                "W = 0.5 s, decisions each second, 5 partitions (skewed: 9, half the load on 2), (f_up, f_down) = "
                "(0.9, 0.4), t_r = 50 ms, Kafka's eager protocol with heartbeats of 3 s."
            ),
            (
                "As published: 5 ms a record, arrivals spread evenly, `closer24:mu=200`. As run: 5.9 ms a "
                "record (what 5 ms of sleep took), one burst a second, `closer24_as_run:mu=200`; looks "
                f"at everybody's lag {', '.join(f'{look:g}' for look in _looks_of(given))} s after the burst, each "
                f"with a seed of its own ({', '.join(str(at) for at, _ in enumerate(_looks_of(given), 1))}). Not as "
                "run: the rates are those that members report, where the paper's came from the producer."
            ),
            _w2_looks(given),
            (
                f"What is optimal looks {OPTIMAL_LOOK_SECONDS:g} s after the burst, so that it decides 0.01 s after "
                "the next one, for the second that has just begun; replicas are there at once and nobody stands."
            ),
            (
                f"A replica is there {STARTUP_SECONDS:g} s after it was asked for, and counts from then on "
                "(guess: the papers do not say how long pods took)."
            ),
        ),
        tables=tables(given, parts, results, comparable=not given.quick),
    )


def _parts(given: ExperimentContext, humps: list[float], taxis: list[float]) -> list[Part]:
    """The tables, and what each takes."""
    one, two = Workload("W1", loaded(humps)), Workload("W2", loaded(taxis), _w2_looks(given))
    longer = (f"{name}/{form.name}/Alg. 2" for name in ("W1", "W2") for form in FORMS)
    return [
        Part("W1, 10 minutes (table 2)", ("W1/",), partial(_whole, one, W1)),
        Part(
            "W1, Algorithm 2 by the phase of its looks",
            ("W1/as run/Alg. 2", "phases/"),
            partial(_phases, _looks_of(given)),
        ),
        Part("W1 skewed", ("W1 skewed/",), partial(_runs, replace(one, name="W1 skewed"), W1_SKEWED)),
        Part("Heartbeats of 0.5 s instead of 3 s", ("heartbeat/", *longer), partial(_heartbeats, two.note)),
        Part("W1 with imposed rebalance times", ("imposed/",), _imposed),
        Part("W2, taxi trips (stand-in; table 3)", ("W2/",), partial(_whole, two, W2)),
        Part("W2 skewed (stand-in)", ("W2 skewed/",), partial(_runs, replace(two, name="W2 skewed"), W2_SKEWED)),
        own_part(),
    ]


def _looks_of(given: ExperimentContext) -> tuple[float, ...]:
    return LOOKS_SECONDS[::2] if given.quick else LOOKS_SECONDS


def _w2_looks(given: ExperimentContext) -> str:
    times = _looks_of(given)
    return (
        f"W2 has fewer looks, for two hours take long: Alg. 2 as run, with both heartbeats, {times[0]:g} and "
        f"{times[-1]:g} s after the burst (seeds 1 and 2); as published, linear and over-provisioned {times[0]:g} s "
        "(seed 1)."
    )


def _jobs(given: ExperimentContext, humps: list[float], taxis: list[float]) -> dict[str, list[SimulatedJob]]:
    times = _looks_of(given)
    jobs: dict[str, list[SimulatedJob]] = {}
    for form in FORMS:
        jobs |= _workload_jobs("W1", form, humps, times, times)
        # Two hours take long, and what depends on the phase is Algorithm 2 under bursts.
        jobs |= _workload_jobs("W2", form, taxis, (times[0], times[-1]) if form is RUN else times[:1], times[:1])
        jobs |= _imposed_jobs(form, loaded(humps, arrivals=form.arrivals), times)
    load = loaded(humps, arrivals=RUN.arrivals)
    jobs["phases/members"] = looks(
        job(RUN, RUN.policy, "closer24", load), (*times, LATE_LOOK_SECONDS), spread=REPORTS_SPREAD
    )
    jobs["phases/drifting"] = looks(job(RUN, DRIFTING, "closer24", load), times)
    for name in ("W1", "W1 skewed"):
        jobs |= own_runs(name, jobs[f"{name}/{RUN.name}/Alg. 2"][:1])
    # Two hours take long.
    return jobs | own_runs("W2", jobs[f"W2/{RUN.name}/Alg. 2"][:1], seeds=(1,))


def _workload_jobs(
    name: str, form: CloserForm, rates: list[float], times: Sequence[float], linear_times: Sequence[float]
) -> dict[str, list[SimulatedJob]]:
    """Of a workload in one form; ``times``: when Algorithm 2 looks."""
    plain = loaded(rates, arrivals=form.arrivals)
    skewed = loaded(rates, partitions=9, skewed=True, arrivals=form.arrivals)
    jobs: dict[str, list[SimulatedJob]] = {}
    for title, load in ((f"{name}/{form.name}", plain), (f"{name} skewed/{form.name}", skewed)):
        jobs[f"{title}/Alg. 2"] = looks(job(form, form.policy, "closer24", load), times)
        jobs[f"{title}/linear"] = looks(job(form, LINEAR, "sticky", load), linear_times)
        if form is RUN:
            jobs[f"{title}/{IN_W}"] = looks(job(form, LINEAR_IN_W, "sticky", load), linear_times)
    title = f"{name}/{form.name}"
    jobs[f"heartbeat/{title}"] = looks(job(form, form.policy, "closer24", plain, heartbeat=0.5), times)
    jobs[f"{title}/optimal"] = looks(_optimal_job(form, plain), (OPTIMAL_LOOK_SECONDS,))
    policy, replicas = f"fixed:replicas={PARTITIONS}", PARTITIONS
    if form is PUBLISHED:
        peak = max(rates)
        replicas = optimal(replace(plain, per_second=(peak,)), 0.9 * 200.0).replicas[0]
        policy = f"overprovisioned:peak_records_per_second={peak:g},mu=200"
    jobs[f"{title}/over-provisioned"] = looks(job(form, policy, "sticky", plain, replicas=replicas), times[:1])
    return jobs


def _optimal_job(form: CloserForm, load: Load) -> SimulatedJob:
    """Replicas are there as soon as they are asked for, and nobody stands while partitions change hands."""
    policy = f"clairvoyant:with_startup=0,limit_records_per_second={form.limit:g}"
    plain = job(form, policy, "closer24", load)
    return replace(
        plain,
        config=structs.replace(plain.config, startup_seconds=0.0),
        options=replace(plain.options, startup_seconds=0.0, protocol=protocol_of("loadtrim")),
    )


def _imposed_jobs(form: CloserForm, load: Load, times: Sequence[float]) -> dict[str, list[SimulatedJob]]:
    jobs = {}
    for seconds in (0.5, 2.0):
        for name, policy in (("Alg. 1", form.first), ("Alg. 2", f"{form.policy},rebalance_seconds={seconds}")):
            each = job(form, policy, "closer24", load, rebalance=seconds)
            jobs[f"imposed/{form.name}/{name}/{seconds}"] = looks(each, times)
    return jobs


# -- tables


def _pair(what: str, form: str, reported: CloserReported, results: Sequence[SimulatedResult]) -> list[FigureRow]:
    """Return share in time and replica-minutes; also numbers of scalings where the paper gives them."""
    minutes = spread_of(results, _minutes)
    rows = [
        _in_time(what, form, reported.in_time, results),
        FigureRow(what=f"{what}, replica-minutes", form=form, paper=reported.replica_minutes, ours=minutes),
    ]
    if reported.ups is not None and reported.downs is not None:
        ups, downs = spread_of(results, lambda r: r.ups), spread_of(results, lambda r: r.downs)
        rows.append(FigureRow(what=f"{what}, replicas added", form=form, digits=0, paper=reported.ups, ours=ups))
        rows.append(FigureRow(what=f"{what}, replicas removed", form=form, digits=0, paper=reported.downs, ours=downs))
    return rows


def _in_time(what: str, form: str, paper: float, results: Sequence[SimulatedResult], digits: int = 1) -> FigureRow:
    ours = spread_of(results, _share)
    return FigureRow(what=f"{what}, in time", form=form, unit="%", digits=digits, paper=paper, ours=ours)


@dataclass(frozen=True, slots=True)
class Workload:
    """What a table is about."""

    name: str
    load: Load
    note: str = ""


def _whole(
    workload: Workload, reported: Mapping[str, CloserReported], results: Mapping[str, Sequence[SimulatedResult]]
) -> FigureTable:
    """Also what is optimal and over-provisioned."""
    table = _runs(workload, reported, results)
    rows = [*table.rows]
    for form in FORMS:
        rows += _optimal(workload, form, results[f"{workload.name}/{form.name}/optimal"])
    for form in FORMS:
        rows += _overprovisioned(workload, form, results[f"{workload.name}/{form.name}/over-provisioned"])
    note = " ".join(part for part in (workload.note, TEXT_SAYS.get(workload.name, "")) if part)
    return msgspec.structs.replace(table, rows=tuple(rows), note=note)


def _runs(
    workload: Workload, reported: Mapping[str, CloserReported], results: Mapping[str, Sequence[SimulatedResult]]
) -> FigureTable:
    rows: list[FigureRow] = []
    for form in FORMS:
        title = f"{workload.name}/{form.name}"
        rows += _pair("Alg. 2", form.name, reported["Alg. 2"], results[f"{title}/Alg. 2"])
        rows += _pair("linear", form.name, reported["linear"], results[f"{title}/linear"])
        if form is RUN:
            rows += _pair(IN_W, form.name, reported["linear"], results[f"{title}/{IN_W}"])
    return FigureTable(title="", rows=tuple(rows), note=workload.note)


def _optimal(workload: Workload, form: CloserForm, played: Sequence[SimulatedResult]) -> list[FigureRow]:
    """Played, and computed as the paper did it (with a simulator of its own)."""
    found, paper = optimal(workload.load, form.limit), OPTIMAL[workload.name]
    ups, downs = found.scaled
    counted = (
        ("replica-minutes", 1, paper.replica_minutes, found.minutes),
        ("replicas added", 0, paper.ups, ups),
        ("replicas removed", 0, paper.downs, downs),
    )
    return [
        *_pair("optimal, played", form.name, _plain(paper), played),
        *(
            FigureRow(
                what=f"optimal, computed: {what}",
                form=form.name,
                digits=digits,
                paper=theirs,
                ours=Spread.one(ours),
            )
            for what, digits, theirs, ours in counted
        ),
    ]


def _overprovisioned(workload: Workload, form: CloserForm, results: Sequence[SimulatedResult]) -> list[FigureRow]:
    return _pair("over-provisioned", form.name, OVER[workload.name], results)


def _phases(times: Sequence[float], results: Mapping[str, Sequence[SimulatedResult]]) -> FigureTable:
    """Return the figures of each look alone: the range that the means hide."""
    alone, reported = results["W1/as run/Alg. 2"], _plain(W1["Alg. 2"])
    rows: list[FigureRow] = []
    for look, result in zip(times, alone, strict=True):
        rows += _pair(f"look {look:g} s after the burst", AS_RUN, reported, [result])
    for look, result in zip((*times, LATE_LOOK_SECONDS), results["phases/members"], strict=True):
        last = look + REPORTS_SPREAD
        rows += _pair(f"look {look:g} to {last:g} s", AS_RUN, reported, [result])
    rows += _pair("up by the burst, down by the least", AS_RUN, reported, results["phases/drifting"])
    return FigureTable(title="", rows=tuple(rows), note=f"The last two rows: `{DRIFTING}`.")


def _plain(reported: CloserReported) -> CloserReported:
    """Without the numbers of scalings."""
    return replace(reported, ups=None, downs=None)


def _heartbeats(note: str, results: Mapping[str, Sequence[SimulatedResult]]) -> FigureTable:
    rows: list[FigureRow] = []
    for form in FORMS:
        for name in ("W1", "W2"):
            title = f"{name}/{form.name}"
            short, plain = results[f"heartbeat/{title}"], results[f"{title}/Alg. 2"]
            for seconds, found in ((0.5, short), (3.0, plain)):
                in_time, longest = HEARTBEATS[name, seconds]
                rows.append(_in_time(f"{name}, heartbeat {seconds:g} s", form.name, in_time, found, digits=2))
                told = "under 1 s" if seconds < 1.0 else "around 3 s"
                rows.append(
                    FigureRow(
                        what=f"{name}, heartbeat {seconds:g} s, longest latency (the paper: {told})",
                        form=form.name,
                        unit="s",
                        paper=longest,
                        ours=spread_of(found, _longest),
                    )
                )
            rows.append(
                FigureRow(
                    what=f"{name}, gained by 0.5 s, points",
                    form=form.name,
                    digits=2,
                    paper=HEARTBEATS[name, 0.5][0] - HEARTBEATS[name, 3.0][0],
                    ours=Spread.of(_share(a) - _share(b) for a, b in zip(short, plain, strict=True)),
                )
            )
    return FigureTable(title="", rows=tuple(rows), note=note)


def _imposed(results: Mapping[str, Sequence[SimulatedResult]]) -> FigureTable:
    rows: list[FigureRow] = []
    for form in FORMS:
        for (name, seconds), reported in IMPOSED.items():
            found = results[f"imposed/{form.name}/{name}/{seconds}"]
            rows += _pair(f"{name}, t_r = {seconds:g} s", form.name, reported, found)
    return FigureTable(
        title="",
        rows=tuple(rows),
        note="Of Alg. 1 at t_r = 2 s the paper has 85.4 % where it imposes these times, and 85.6 % where it compares.",
    )


def _share(result: SimulatedResult) -> float:
    return 100.0 * result.share_in_time


def _minutes(result: SimulatedResult) -> float:
    return result.replica_minutes


def _longest(result: SimulatedResult) -> float:
    return result.latency_max


def _draw(
    given: ExperimentContext,
    humps: Sequence[float],
    taxis: Sequence[float],
    results: Mapping[str, Sequence[SimulatedResult]],
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
                "0.5 s": first["heartbeat/W1/as run"],
            },
            "W1, t_r = 0.5 s (figures 10, 11)": {t: first[f"imposed/as run/{t}/0.5"] for t in ("Alg. 1", "Alg. 2")},
            "W1, t_r = 2 s (figures 10, 12)": {t: first[f"imposed/as run/{t}/2.0"] for t in ("Alg. 1", "Alg. 2")},
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
