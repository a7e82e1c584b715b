"""ICCBDC'22: packing with load-aware assignment, beside the same scaling with Kafka's assignment.

``python -m benchmarks.papers.iccbdc22``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from msgspec import structs

from benchmarks.papers.bench import Experiment, ExperimentContext, main
from benchmarks.papers.own_policy import own_part, own_runs
from benchmarks.papers.runner import (
    Part,
    SimulatedJob,
    SimulatedResult,
    draw_runs,
    looks,
    needed,
    play,
    scaled_alike,
    spread_of,
    tables,
)
from benchmarks.papers.table import AS_PUBLISHED, AS_RUN, FigureRow, FigureTable, PaperTables
from benchmarks.papers.traces import by_partition, three_humps
from loadtrim.simulate import Costs, Load, Options, PlanConfig, protocol_of

__all__ = ["EXPERIMENT", "first_workload", "run", "second_workload"]

OBJECTIVE_SECONDS = 5.0
STARTUP_SECONDS = 2.0
COOLDOWN_SECONDS = 30.0
HEAVY_SHARE, PARTITIONS = 0.27, 5
LOOKS_SECONDS = (0.02, 0.3, 0.6)
SLOW_DELAYS_SECONDS = (0, 5, 15)
"""Where decisions are 30 s apart: so long after one of them the load begins, beside each look."""
ORDERS, ORDERS_QUICK = 12, 2
"""Of the partitions, in which Kafka's assignment is played."""
QUICK_FIRST, QUICK_SECOND = slice(100, 200), slice(90, 190)
"""Seconds of the two workloads that a quick run plays."""


@dataclass(frozen=True, slots=True)
class IccbdcForm:
    """The set-up as the text or as the code and data have it."""

    name: str
    cost_seconds: float
    policy: str
    packer: str
    arrivals: str


PUBLISHED = IccbdcForm(AS_PUBLISHED, 0.01, "iccbdc22:mu=100", "iccbdc22", "even")
RUN = IccbdcForm(AS_RUN, 1.0 / 95.0, "iccbdc22_as_run:mu=95", "iccbdc22_as_run", "burst")
FORMS = (PUBLISHED, RUN)
REPORTED_MINUTES = {"experiment 1": 18.0, "experiment 2": 26.1}
REPORTED_KAFKA = {"experiment 1": 44.0, "experiment 2": 77.0}
"""% in time with the cooperative sticky assignor; the load-aware one has 100 in both."""


def first_workload() -> list[list[float]]:
    """Experiment 1: records/s of each partition in every second of 10 minutes."""
    return [[_rising(second, begin) for begin in (120, 120, 240, 360, None)] for second in range(600)]


def _rising(second: int, begin: int | None) -> float:
    """15/s; from ``begin`` on one more each second up to 60/s; 15/s again from second 480 on."""
    if begin is None or not begin <= second < 480:
        return 15.0
    return min(60.0, 15.0 + (second - begin))


def second_workload() -> tuple[list[list[float]], str]:
    """Experiment 2: the 10-minute trace, 27 % of it to each of two partitions."""
    rates, origin = three_humps()
    light = (1.0 - 2.0 * HEAVY_SHARE) / (PARTITIONS - 2)
    shares = (HEAVY_SHARE, HEAVY_SHARE, light, light, light)
    return [[rate * share for share in shares] for rate in rates], origin


def job(form: IccbdcForm, load: Load, *, aware: bool = True, cooldown: float = 0.0, every: float = 1.0) -> SimulatedJob:
    """One run; ``aware`` False: the same policy, partitions by count and sticky under cooperative rebalancing."""
    config = PlanConfig(
        group="papers",
        sla_seconds=OBJECTIVE_SECONDS,
        policy=f"{form.policy},cooldown_seconds={cooldown:g}",
        packer=form.packer if aware else "sticky",
        startup_seconds=STARTUP_SECONDS,
        decision_seconds=every,
    )
    options = Options(
        costs=Costs(mean_seconds=form.cost_seconds),
        startup_seconds=STARTUP_SECONDS,
        protocol=protocol_of("eager" if aware else "cooperative"),
    )
    return SimulatedJob(load, config, options)


def _reordered(load: Load, order: Sequence[int]) -> Load:
    """The same with its partitions under each other's numbers."""
    return replace(load, shares=tuple(tuple(shares[at] for at in order) for shares in load.shares))


def _orders(count: int) -> list[list[int]]:
    """The partitions as they are, and shuffled: who counts only deals them out by their numbers."""
    rng = Random("iccbdc22")
    plain = list(range(PARTITIONS))
    return [plain, *(rng.sample(plain, PARTITIONS) for _ in range(count - 1))]


def _delayed(load: Load, seconds: int) -> Load:
    """The same, so much later."""
    return replace(
        load,
        per_second=(0.0,) * seconds + load.per_second,
        shares=load.shares[:1] * (seconds if len(load.shares) > 1 else 0) + load.shares,
    )


def _aware(
    given: ExperimentContext, times: Sequence[float]
) -> tuple[dict[str, list[SimulatedJob]], dict[str, list[SimulatedJob]]]:
    """(load-aware and over-provisioned runs, load-aware groups with Kafka's assignment, not scaled yet), by name."""
    first, rows = first_workload(), second_workload()[0]
    if given.quick:
        first, rows = first[QUICK_FIRST], rows[QUICK_SECOND]
    orders = _orders(ORDERS_QUICK if given.quick else ORDERS)
    aware: dict[str, list[SimulatedJob]] = {}
    kafka: dict[str, list[SimulatedJob]] = {}
    for form in FORMS:
        one, two = by_partition(first, form.arrivals), by_partition(rows, form.arrivals)
        # The text has no cool-down in its first experiment; the code has it in both.
        for name, load, calm in (
            ("1", one, COOLDOWN_SECONDS if form is RUN else 0.0),
            ("2", two, COOLDOWN_SECONDS),
        ):
            aware[f"{name}/{form.name}/aware"] = looks(job(form, load, cooldown=calm), times)
            kafka[f"{name}/{form.name}/kafka"] = [
                replace(each, load=_reordered(load, order))
                for order in orders
                for each in looks(job(form, load, aware=False, cooldown=calm), times[:1])
            ]
        slow = looks(job(form, two, cooldown=COOLDOWN_SECONDS, every=30.0), times)
        delays = SLOW_DELAYS_SECONDS[: len(slow)]
        aware[f"2/{form.name}/slow"] = [
            replace(each, load=_delayed(two, seconds)) for each, seconds in zip(slow, delays, strict=True)
        ]
    over = job(PUBLISHED, by_partition(rows, PUBLISHED.arrivals), aware=False)
    over = replace(
        over,
        config=structs.replace(over.config, policy=f"fixed:replicas={PARTITIONS}"),
        options=replace(over.options, replicas=PARTITIONS),
    )
    aware["2/over-provisioned"] = looks(over, times[:1])
    for number, name in (("1", "experiment 1"), ("2", "experiment 2")):
        aware |= own_runs(name, aware[f"{number}/{RUN.name}/aware"][:1])
    return aware, kafka


def run(given: ExperimentContext) -> PaperTables:
    """Both experiments."""
    times = LOOKS_SECONDS[:1] if given.quick else LOOKS_SECONDS
    _, origin = second_workload()
    parts = [
        Part("Experiment 1: partitions that rise one after the other", ("1/",), _first),
        Part("Experiment 2: the skewed 10-minute trace", ("2/",), _second),
        own_part(),
    ]
    aware, kafka = (needed(given, parts, jobs) for jobs in _aware(given, times))
    results = play(given, aware)
    # Kafka's assignment is given as many replicas, at the same moments, as the load-aware run asked for.
    alike = {
        name: [scaled_alike(each, results[name.replace("kafka", "aware")][0]) for each in jobs]
        for name, jobs in kafka.items()
    }
    results |= play(given, alike)
    if not given.only:
        _draw(given, aware, results)
    seeds = ", ".join(str(seed) for seed in range(1, len(times) + 1))
    return PaperTables(
        name="iccbdc22",
        title="ICCBDC'22: load-aware assignment",
        source="Ezzeddine, Migliorini, Baude, Huet: *Cost-Efficient and Latency-Aware Event Consuming in "
        "Workload-Skewed Distributed Event Queues*, sections 4.1 and 4.2.",
        setting=(
            (
                f"Experiment 1: generated by the paper's rule. Experiment 2: {origin}, 27 % of it to each of two "
                "partitions."
            ),
            (
                "W = 5 s, 5 partitions. As published: 10 ms a record, arrivals spread evenly, `iccbdc22:mu=100`. "
                "As run: 95 records/s, one burst a second, `iccbdc22_as_run:mu=95` with 30 s cool-down; "
                f"looks {', '.join(f'{look:g}' for look in times)} s after the burst "
                f"(seed{'s' if len(times) > 1 else ''} {seeds}). Not as run: its rates are those that members report, "
                "where its code asked for the offsets of the interval that ended 1.5 s before."
            ),
            (
                "Load-aware: Kafka's eager protocol. Cooperative sticky: `sticky` under cooperative rebalancing, given "
                "as many replicas at the same moments as the load-aware run (look "
                f"{times[0]:g} s, seed 1) asked for, as the paper did it; with the partitions in "
                f"{ORDERS_QUICK if given.quick else ORDERS} orders (seed iccbdc22), for it deals them out by their "
                f"numbers. Heartbeats of 3 s; a replica is there, and counts, {STARTUP_SECONDS:g} s after it was asked "
                "for (guess)."
            ),
        ),
        tables=tables(given, parts, results, comparable=not given.quick),
    )


def _first(results: Mapping[str, Sequence[SimulatedResult]]) -> FigureTable:
    rows: list[FigureRow] = []
    for form in FORMS:
        aware, kafka = results[f"1/{form.name}/aware"], results[f"1/{form.name}/kafka"]
        rows += [
            _share("load-aware", form, 100.0, aware),
            _minutes("load-aware", form, "experiment 1", aware),
            _waiting("load-aware", form, None, aware),
            _share("cooperative sticky", form, REPORTED_KAFKA["experiment 1"], kafka),
            _minutes("cooperative sticky", form, "experiment 1", kafka),
            _waiting("cooperative sticky", form, 6000.0, kafka),
        ]
    return FigureTable(
        title="",
        rows=tuple(rows),
        note='The paper has the load-aware backlog "in the region of few tens".',
    )


def _second(results: Mapping[str, Sequence[SimulatedResult]]) -> FigureTable:
    rows: list[FigureRow] = []
    for form in FORMS:
        aware, kafka, slow = (results[f"2/{form.name}/{kind}"] for kind in ("aware", "kafka", "slow"))
        rows += [
            _share("load-aware", form, 100.0, aware),
            _minutes("load-aware", form, "experiment 2", aware),
            _waiting("load-aware", form, None, aware),
            _share("cooperative sticky", form, REPORTED_KAFKA["experiment 2"], kafka),
            _waiting("cooperative sticky", form, None, kafka),
            _share("decisions every 30 s", form, 86.0, slow),
        ]
    over = results["2/over-provisioned"]
    minutes = spread_of(over, lambda r: r.replica_minutes)
    rows.append(FigureRow(what="over-provisioned, replica-minutes", form=AS_PUBLISHED, paper=50.0, ours=minutes))
    rows.append(_share("over-provisioned", PUBLISHED, None, over))
    return FigureTable(title="", rows=tuple(rows))


def _share(what: str, form: IccbdcForm, paper: float | None, results: Sequence[SimulatedResult]) -> FigureRow:
    ours = spread_of(results, lambda r: 100.0 * r.share_in_time)
    return FigureRow(what=f"{what}, in time", form=form.name, unit="%", paper=paper, ours=ours)


def _minutes(what: str, form: IccbdcForm, experiment: str, results: Sequence[SimulatedResult]) -> FigureRow:
    ours, paper = spread_of(results, lambda r: r.replica_minutes), REPORTED_MINUTES[experiment]
    return FigureRow(what=f"{what}, replica-minutes", form=form.name, paper=paper, ours=ours)


def _waiting(what: str, form: IccbdcForm, paper: float | None, results: Sequence[SimulatedResult]) -> FigureRow:
    ours = spread_of(results, lambda r: max(r.waiting, default=0))
    return FigureRow(what=f"{what}, most records waiting", form=form.name, digits=0, paper=paper, ours=ours)


def _draw(
    given: ExperimentContext,
    jobs: Mapping[str, Sequence[SimulatedJob]],
    results: Mapping[str, Sequence[SimulatedResult]],
) -> None:
    titles = {"aware": "load-aware", "kafka": "cooperative sticky", "slow": "load-aware, decisions every 30 s"}
    for number, kinds, figures in (("1", ("aware", "kafka"), "4 and 5"), ("2", ("aware", "kafka", "slow"), "6 to 10")):
        load = jobs[f"{number}/as run/aware"][0].load.per_second
        runs = {titles[kind]: results[f"{number}/as run/{kind}"][0] for kind in kinds}
        given.draw(
            f"iccbdc22-experiment{number}.png",
            f"Experiment {number} as run (seed 1): load, replicas, records waiting, longest latency (figures {figures} "
            "again). Dashed: W.",
            partial(draw_runs, load=load, runs=runs, objective_seconds=OBJECTIVE_SECONDS),
            (8, 7),
        )


EXPERIMENT = Experiment(
    "iccbdc22",
    run,
    f"seconds {QUICK_FIRST.start} to {QUICK_FIRST.stop} of experiment 1 and {QUICK_SECOND.start} to "
    f"{QUICK_SECOND.stop} of experiment 2, with one look. The paper's figures are of all 600 s, so no difference from "
    "them is given.",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
