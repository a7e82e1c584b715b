"""Koper'22: six autoscalers with three values of a parameter each, on three Nexmark queries: latency against replicas.

``python -m benchmarks.papers.koper22``. The thesis ran Flink; here a group of
consumers stands for
the job, and every rescaling stops all of it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

from benchmarks.papers.bench import Experiment, ExperimentContext, main
from benchmarks.papers.koper22_reported import REPORTED, KoperReported
from benchmarks.papers.own_policy import own_part, own_runs
from benchmarks.papers.runner import Part, SimulatedJob, SimulatedResult, needed, play, tables
from benchmarks.papers.table import AS_PUBLISHED, AS_RUN, FigureRow, FigureTable, PaperTables, Spread
from loadtrim.simulate import Costs, Load, Options, PlanConfig, protocol_of
from nexmark.load import LOADS, MINUTES, RECORD_SCALE, REPLICAS, REPLICAS_MAX, QueryLoad, query_load

__all__ = ["EXPERIMENT", "run"]

MINUTES_QUICK = 15
LATENCY, MEMBERS, SCALINGS = "latency", "replicas", "scaling operations"
STARTUP_SECONDS = 10.0
HPA_METRIC_SECONDS = 60
"""CPU is the mean of so long; over 15 s every stop ends in a peak by which HPA scales up again (guess)."""
INTERVAL_SECONDS, GATHER_SECONDS = 5.0, 2.5
LAG_THRESHOLD = 50_000
WINDOW_SECONDS = 15
"""Of the courses: the longest latency in each, so that a second in which nothing was finished is no gap."""


LAG = f"lag_threshold_records={LAG_THRESHOLD / RECORD_SCALE:g}"
PER_REPLICA, BY_SHARE, FROM_CHANGE = ",threshold_per_replica=1", ",down_lag_share=0.2", ",cooldown_from_change=1"
"""What the thesis' code does and its text does not say."""
DECISION_SECONDS = {"dhalion_adapted": 10.0, "ds2_modern": 20.0, "ds2_modern_adapted": 20.0}
"""The thesis' programs decide so often. The others are Kubernetes' autoscaler, which has its own rhythm."""
CODE_ONLY = (PER_REPLICA, BY_SHARE, FROM_CHANGE)
POLICIES: Mapping[str, str] = {
    **{
        f"HPA {value}": f"hpa_cpu:target_utilization=0.{value // 10},metric_seconds={HPA_METRIC_SECONDS}"
        for value in (50, 70, 90)
    },
    **{
        f"Varga v1 {value}": f"varga_v1:target_utilization=0.{value // 10},{LAG}{PER_REPLICA}" for value in (30, 50, 70)
    },
    **{
        f"Varga v2 {value}": f"varga_v2:target_utilization=0.{value // 10},{LAG}{PER_REPLICA}" for value in (30, 50, 70)
    },
    **{
        f"Dhalion {value}": f"dhalion_adapted:lag_threshold_seconds={value}{BY_SHARE}{FROM_CHANGE}"
        for value in (1, 5, 10)
    },
    **{f"DS2 {value}": f"ds2_modern:overprovisioning=0.{value:02}{FROM_CHANGE}" for value in (0, 33, 66)},
    **{
        f"DS2-adapted {value}": f"ds2_modern_adapted:overprovisioning=0.{value:02}{FROM_CHANGE}"
        for value in (0, 33, 66)
    },
}
PUBLISHED: Mapping[str, str] = {
    name: text
    for name, choice in POLICIES.items()
    if (text := reduce(lambda left, part: left.replace(part, ""), CODE_ONLY, choice)) != choice
}
"""By the text, where the code does otherwise."""
BEST = {"q1": ("HPA 70", 6.18), "q3": ("Dhalion 5", 7.45), "q11": ("DS2-adapted 33", 7.13)}
"""The thesis' least sum of seconds of latency and replicas, as its tables print it."""
COURSES = (
    "q11/HPA 70",
    "q1/Varga v1 50",
    "q1/Varga v2 50",
    "q1/Dhalion 5",
    "q11/Dhalion 1",
    "q1/DS2 66",
)
"""What figures 5.7 to 5.12 show."""


def job(query: QueryLoad, policy: str, load: Load) -> SimulatedJob:
    """One run."""
    config = PlanConfig(
        group="papers",
        sla_seconds=5.0,
        policy=policy,
        packer="roundrobin",
        max_replicas=REPLICAS_MAX,
        startup_seconds=STARTUP_SECONDS,
        decision_seconds=DECISION_SECONDS.get(policy.partition(":")[0], INTERVAL_SECONDS),
        report_seconds=INTERVAL_SECONDS,
    )
    options = Options(
        costs=Costs(mean_seconds=RECORD_SCALE / query.capacity),
        startup_seconds=STARTUP_SECONDS,
        replicas=REPLICAS,
        gather_seconds=GATHER_SECONDS,
        protocol=replace(protocol_of("eager"), heartbeat_seconds=1.0, sync_seconds=query.stop_seconds),
    )
    return SimulatedJob(load, config, options)


def run(given: ExperimentContext) -> PaperTables:
    """All autoscalers on all queries."""
    loads = {query: query_load(query) for query in LOADS}
    if given.quick:
        loads = {query: (load.part(0, 60 * MINUTES_QUICK), origin) for query, (load, origin) in loads.items()}
    jobs = {
        f"{query.name}/{name}": [job(query, policy, load)]
        for query, (load, _) in loads.items()
        for name, policy in POLICIES.items()
    }
    jobs |= {
        f"{query.name}/published/{name}": [job(query, policy, load)]
        for query, (load, _) in loads.items()
        for name, policy in PUBLISHED.items()
    }
    for query in loads:
        jobs |= own_runs(f"query {query.name[1:]}", jobs[f"{query.name}/HPA 70"], seeds=(1,))
    parts = [Part(f"Query {query.name[1:]}", (f"{query.name}/",), partial(_table, query)) for query in LOADS]
    parts.append(own_part())
    results = play(given, needed(given, parts, jobs))
    if not given.only:
        first = {name: found[0] for name, found in results.items()}
        _draw(given, first)
        _draw_courses(given, first)
    return PaperTables(
        name="koper22",
        title="Koper'22: six autoscalers",
        source="Koper: *A Comparison of Auto-scaling Techniques for Distributed Stream Processing*, tables 5.1 to 5.3.",
        setting=(
            (
                f"Loads: {'; '.join(origin for _, origin in loads.values())}. 24 partitions, one burst a second, 8 "
                f"replicas at first, 1 to 16; {RECORD_SCALE:,.0f} records of theirs are one here; seed 1."
            ),
            (
                "As run: Varga's threshold counts for each replica; Dhalion goes down where less than 0.2 s of records "
                "waits in the fullest partition of a member, the mean over the members; cool-downs of Dhalion and DS2 "
                "count from when replicas have come or gone. As published: by the text, without these. Dhalion "
                "decides every 10 s, DS2 every 20 s."
            ),
            (
                "A replica can do, and every rescaling stops everything for: "
                + ", ".join(f"{each.name} {each.capacity:,.0f} records/s, {each.stop_seconds:g} s" for each in LOADS)
                + ". Both are set by a row of each table (Dhalion-adapted's replicas at 5 s, Varga v1's latency at 30 "
                "%); all others follow."
            ),
            (
                f"Replicas are there {STARTUP_SECONDS:g} s after they were asked for, and HPA's CPU is the mean of "
                f"{HPA_METRIC_SECONDS} s (guesses). Flink's backpressure between operators, what its replicas' CPUs do "
                "beside the operators' work, and garbage collection are not played."
            ),
        ),
        tables=tables(given, parts, results, comparable=not given.quick),
    )


def _table(query: QueryLoad, found: Mapping[str, Sequence[SimulatedResult]]) -> FigureTable:
    results = {name.removeprefix(f"{query.name}/"): first for name, (first, *_) in found.items()}
    rows: list[FigureRow] = []
    for name in POLICIES:
        reported = REPORTED[query.name][name]
        rows += [_row(name, what, reported, results[name], AS_RUN) for what in (LATENCY, MEMBERS, SCALINGS)]
        if name in PUBLISHED:
            text = results[f"published/{name}"]
            rows += [_row(name, what, reported, text, AS_PUBLISHED) for what in (LATENCY, MEMBERS)]
    theirs, least = BEST[query.name]
    best = min(POLICIES, key=lambda name: _sum(results[name]))
    rows += [
        FigureRow(what=f"{name}, {whose}: seconds of latency + replicas", form=AS_RUN, digits=2, paper=paper, ours=ours)
        for name, whose, paper, ours in (
            (theirs, "the thesis' best", least, Spread.one(_sum(results[theirs]))),
            (best, "the best here", None, Spread.one(_sum(results[best]))),
        )
    ]
    return FigureTable(title="", rows=tuple(rows))


def _sum(result: SimulatedResult) -> float:
    return result.latency_mean + result.replicas_mean


def _row(name: str, what: str, reported: KoperReported, result: SimulatedResult, form: str) -> FigureRow:
    theirs, ours = {
        LATENCY: (reported.latency, result.latency_mean),
        MEMBERS: (reported.replicas, result.replicas_mean),
        SCALINGS: (float(reported.scalings), float(result.scalings)),
    }[what]
    return FigureRow(
        what=f"{name}: {what}",
        form=form,
        unit="s" if what == LATENCY else "",
        digits=0 if what == SCALINGS else 2,
        paper=theirs,
        ours=Spread.one(ours),
    )


def _draw(given: ExperimentContext, results: Mapping[str, SimulatedResult]) -> None:
    def scatter(figure: Any) -> None:
        for axes, query in zip(figure.subplots(1, len(LOADS)), LOADS, strict=True):
            for at, family in enumerate(("HPA", "Varga v1", "Varga v2", "Dhalion", "DS2", "DS2-adapted")):
                names = [name for name in POLICIES if name.rpartition(" ")[0] == family]
                ours: Sequence[SimulatedResult] = [results[f"{query.name}/{name}"] for name in names]
                theirs = [REPORTED[query.name][name] for name in names]
                axes.plot(
                    [r.replicas_mean for r in ours], [r.latency_mean for r in ours], "o", color=f"C{at}", label=family
                )
                axes.plot([r.replicas for r in theirs], [r.latency for r in theirs], "x", color=f"C{at}")
            axes.set(xlabel="replicas", yscale="log", title=f"query {query.name[1:]}")
        figure.axes[0].set_ylabel("mean latency, s")
        figure.axes[-1].legend(fontsize=6)

    given.draw(
        "koper22-scatter.png",
        "Figures 5.1, 5.3 and 5.5 again: mean latency against mean replicas; ours (dots), the thesis' (crosses).",
        scatter,
        (11, 4),
    )


def _draw_courses(given: ExperimentContext, results: Mapping[str, SimulatedResult]) -> None:
    """Replicas and latency over time, of the runs that the thesis shows."""

    def courses(figure: Any) -> None:
        for axes, name in zip(figure.subplots(3, 2, sharex=True).flat, COURSES, strict=True):
            run = results[name]
            minutes = [at / 60.0 for at in range(len(run.replicas))]
            axes.step(minutes, run.replicas, where="post", color="C0", linewidth=0.9)
            axes.set_ylabel("replicas", color="C0")
            axes.set_ylim(0, REPLICAS_MAX + 1)
            late = axes.twinx()
            longest = [
                max(run.latency_by_second[at : at + WINDOW_SECONDS])
                for at in range(0, len(run.latency_by_second), WINDOW_SECONDS)
            ]
            late.step(
                minutes[::WINDOW_SECONDS],
                [max(value, 0.1) if value else math.nan for value in longest],
                "C1",
                linewidth=0.8,
                where="post",
            )
            late.set(yscale="log", ylim=(0.1, 2000))
            late.set_ylabel("longest latency, s", color="C1")
            late.grid(visible=False)
            query, _, policy = name.partition("/")
            axes.set_title(f"{policy}, query {query[1:]}", fontsize=9)
        for axes in figure.axes[4:6]:
            axes.set_xlabel("minutes")

    given.draw(
        "koper22-courses.png",
        "Figures 5.7 to 5.12 again: replicas (blue) and longest latency (orange), in the thesis' order.",
        courses,
        (11, 7),
    )


EXPERIMENT = Experiment(
    "koper22",
    run,
    f"the first {MINUTES_QUICK} of {MINUTES} minutes. The thesis' figures are of all of them, so no difference from "
    "them is given.",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
