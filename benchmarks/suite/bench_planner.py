"""What planning costs: milliseconds of CPU per report, per decision and per repair. No broker.

Feeds a planner reports as members write them, a second of simulated time after the other, and lets it decide.
``repair``: the packer alone, after the load of every tenth partition has trebled; ``eviction``: after a tenth
of the members is gone. Medians; the first, cold run is told apart. Large groups follow what is decided, under the loads
of :mod:`.planned_group`.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
import tracemalloc
from dataclasses import asdict, dataclass

from msgspec import structs

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.placement.incremental import Trim
from loadtrim_agent.planning.placement.problem import Bin, Item, Limits, Problem
from loadtrim_agent.planning.registry import make_planner
from loadtrim_agent.planning.values import TAUS_SECONDS, GroupState, MemberState, PlanConfig
from loadtrim_agent.wire.telemetry_records import PartitionReport, ReportRecord, WorkWindow

from .packing import loaded
from .planned_group import KINDS, PlannedGroup
from .planned_group import START as GROUP_START
from .results import Figure
from .suite import PLANNING, Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK"]

START = 1_700_000_000.0
COST_SECONDS = 0.004
WINDOWS_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
SIZES = ((3, 9), (10, 90), (100, 1000))
"""(members, partitions)."""
SECONDS = 40
"""Of simulated time, above 4."""
REPEAT = 20
"""Runs of the packer, above 1: the first, cold one is told apart."""
FILLED = 0.75
"""Share of the group's capacity that arrives."""


LARGE = (*((kind, 100, 1_000, 0.020) for kind in KINDS), ("steady", 1_000, 10_000, 0.300))
"""(load, members, partitions, seconds of CPU that a decision may take)."""
LARGE_SECONDS = {1_000: 45, 10_000: 12}
"""Seconds of simulated time by number of partitions."""


@dataclass(frozen=True, slots=True)
class PlannerResult:
    members: int
    partitions: int
    milliseconds_per_report: float
    milliseconds_per_decision: float
    milliseconds_per_decision_worst: float
    milliseconds_per_repair: float
    milliseconds_per_repair_cold: float
    repair_moves: int
    milliseconds_per_eviction: float
    eviction_moves: int


def rates_of(count: int, members: int, rng: random.Random) -> dict[Partition, float]:
    """Records/s per partition, skewed, so that the group is filled as wanted."""
    weights = [rng.paretovariate(2.5) for _ in range(count)]
    scale = FILLED * members / COST_SECONDS / sum(weights)
    return {Partition("bench", index): weight * scale for index, weight in enumerate(weights)}


def dealt(rates: dict[Partition, float], members: int) -> dict[Partition, str]:
    """Largest first onto the least loaded: where a group that has run for a while stands."""
    load = {f"member-{index:03}": 0.0 for index in range(members)}
    owners = {}
    for partition in sorted(rates, key=lambda p: (-rates[p], p)):
        member = min(load, key=lambda name: (load[name], name))
        load[member] += rates[partition]
        owners[partition] = member
    return owners


def report_of(
    member: str, second: int, owned: list[Partition], rates: dict[Partition, float], rng: random.Random
) -> ReportRecord:
    """What one member of a smooth load tells in one second."""
    arrived = {partition: max(0, round(rng.gauss(rates[partition], rates[partition] ** 0.5))) for partition in owned}
    work = sum(arrived.values()) * COST_SECONDS
    return ReportRecord(
        group="bench",
        member=member,
        at=START + second,
        sequence=second,
        generation=1,
        instance=member,
        busy_seconds=min(work, 1.0),
        slots_start=START + second - 1,
        slots=tuple(work / 10 for _ in range(10)),
        partitions=tuple(
            PartitionReport(
                topic=partition.topic,
                partition=partition.partition,
                arrived=arrived[partition],
                done=arrived[partition],
                lag=1,
                lag_min=0,
                cost_mean=COST_SECONDS,
                cost_variance=0.0,
                work_windows=tuple(
                    WorkWindow(seconds=s, mean=rates[partition] * COST_SECONDS * s, variance=0.0, largest=0.0)
                    for s in WINDOWS_SECONDS
                ),
            )
            for partition in owned
        ),
    )


def decisions(members: int, count: int, seconds: int) -> tuple[list[float], list[float]]:
    """CPU seconds of each report and of each decision, the group in balance."""
    rng = random.Random(1)
    rates = rates_of(count, members, rng)
    owners = dealt(rates, members)
    owned: dict[str, list[Partition]] = {}
    for partition, member in owners.items():
        owned.setdefault(member, []).append(partition)
    planner = make_planner(PlanConfig(group="bench"))
    topics = frozenset({"bench"})
    group = GroupState(
        generation=1,
        leader="member-000",
        members={member: MemberState(instance=member, topics=topics, joined_at=START) for member in sorted(owned)},
        owners=dict(owners),
    )
    reports: list[float] = []
    decided: list[float] = []
    for second in range(1, seconds + 1):
        for member in sorted(owned):
            report = report_of(member, second, sorted(owned[member]), rates, rng)
            began = time.process_time()
            planner.observe(report, START + second)
            reports.append(time.process_time() - began)
        began = time.process_time()
        decision = planner.decide(START + second + 0.1, group)
        decided.append(time.process_time() - began)
        assert second < 4 or decision.outcome != "hold", decision.reason
    return reports, decided[4:]


def followed(kind: str, members: int, count: int, seconds: int) -> tuple[list[float], list[float]]:
    """Return CPU seconds of each second's reports, and of each decision of a group that does what is decided."""
    group, planner = PlannedGroup(members, count, kind), make_planner(PlanConfig(group="bench"))
    reports, decided = [], []
    for _ in range(seconds):
        told = group.reports()
        began = time.process_time()
        for report in told:
            planner.observe(report, GROUP_START + group.second)
        reports.append(time.process_time() - began)
        state = group.state()
        began = time.process_time()
        decision = planner.decide(GROUP_START + group.second + 0.1, state)
        decided.append(time.process_time() - began)
        group.follow(decision)
    return reports, decided[4:]


def held_bytes(members: int, count: int, seconds: int) -> int:
    """Return the bytes that a planner holds after so many seconds of reports and decisions."""
    group = PlannedGroup(members, count, "steady")
    tracemalloc.start()
    try:
        planner = make_planner(PlanConfig(group="bench"))
        for _ in range(seconds):
            for report in group.reports():
                planner.observe(report, GROUP_START + group.second)
            planner.decide(GROUP_START + group.second + 0.1, group.state())
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def problem_of(members: int, count: int) -> Problem:
    """A group in balance, as a packer sees it."""
    rates = rates_of(count, members, random.Random(1))
    owners = dealt(rates, members)
    return Problem(
        items=tuple(
            Item(
                partition=partition,
                owner=owners[partition],
                work=rates[partition] * COST_SECONDS,
                mean=tuple(rates[partition] * COST_SECONDS * tau for tau in TAUS_SECONDS),
                stddev=tuple((rates[partition] * tau) ** 0.5 * COST_SECONDS for tau in TAUS_SECONDS),
            )
            for partition in sorted(rates)
        ),
        bins=tuple(
            Bin(member=m, unit=m, capacity=1.0, topics=frozenset({"bench"})) for m in sorted(set(owners.values()))
        ),
        limits=Limits(objective_seconds=1.0, overhead_seconds=0.015, correlation=0.1),
    )


def repaired(problem: Problem, repeat: int) -> tuple[list[float], int]:
    """CPU seconds of each run of the packer, and how many partitions it moves."""
    times = []
    for _ in range(repeat):
        began = time.process_time()
        placement = Trim().pack(problem)
        times.append(time.process_time() - began)
    return times, len(placement.moves)


def overloaded(problem: Problem) -> Problem:
    """Every tenth partition gets three times the load."""
    items = tuple(item if index % 10 else loaded(item, 3.0) for index, item in enumerate(problem.items))
    return structs.replace(problem, items=items)


def evicted(problem: Problem) -> Problem:
    """Every tenth member is gone."""
    return structs.replace(problem, bins=tuple(entry for index, entry in enumerate(problem.bins) if index % 10))


def measure(members: int, count: int, seconds: int, repeat: int) -> PlannerResult:
    """All figures for one size of group."""
    problem = problem_of(members, count)
    repair, repair_moves = repaired(overloaded(problem), repeat)
    eviction, eviction_moves = repaired(evicted(problem), repeat)
    reports, decided = decisions(members, count, seconds)

    def milliseconds(values: list[float]) -> float:
        return round(1e3 * statistics.median(values), 3)

    return PlannerResult(
        members=members,
        partitions=count,
        milliseconds_per_report=milliseconds(reports),
        milliseconds_per_decision=milliseconds(decided),
        milliseconds_per_decision_worst=round(1e3 * max(decided), 3),
        milliseconds_per_repair=milliseconds(repair[1:]),
        milliseconds_per_repair_cold=round(1e3 * repair[0], 3),
        repair_moves=repair_moves,
        milliseconds_per_eviction=milliseconds(eviction),
        eviction_moves=eviction_moves,
    )


async def run(context: BenchmarkContext) -> Finding:
    """Pure CPU, in a thread of its own."""
    seconds, repeat = (10, 3) if context.quick else (SECONDS, REPEAT)
    results = [await asyncio.to_thread(measure, *size, seconds, repeat) for size in SIZES]
    figures = []
    for result in results:
        of = f"{result.partitions} partitions on {result.members} members"
        figures += [
            Figure(
                name=f"a decision, {of}",
                value=result.milliseconds_per_decision / 1e3,
                unit="ms",
                peer=f"worst {result.milliseconds_per_decision_worst:.1f} ms",
            ),
            Figure(
                name=f"the packer after every tenth partition trebled, {of}",
                value=result.milliseconds_per_repair / 1e3,
                unit="ms",
                peer=f"{result.repair_moves} moves; cold {result.milliseconds_per_repair_cold:.1f} ms",
            ),
        ]
    figures += await asyncio.to_thread(_large, context.quick)
    return Finding(
        setting=(
            "The planner alone: skewed partitions, members filled to three quarters, a report a second from each; CPU "
            "time of one decision and of one plan of the packer, medians. The first plan of the packer is "
            "thrown away; it stands beside them as `cold`. Groups that follow what is decided: unlike partitions, some "
            "with bursts, by seed. `uneven`: 2 % of the partitions change each second. `scaling`: the load rises and "
            "falls by a quarter in 40 s. Their first 4 decisions are thrown away."
        ),
        figures=tuple(figures),
        details={"results": [asdict(result) for result in results]},
    )


def _large(quick: bool) -> list[Figure]:
    figures = []
    for kind, members, count, at_most in LARGE:
        if quick and count > 1_000:
            continue
        reports, decided = followed(kind, members, count, 10 if quick else LARGE_SECONDS[count])
        figures.append(
            Figure(
                name=f"a decision, {count} partitions on {members} members, {kind}",
                value=statistics.median(decided),
                unit="ms",
                at_most=at_most,
                peer=f"worst {1e3 * max(decided):.0f} ms; a second's reports {1e3 * statistics.median(reports):.0f} ms",
            )
        )
    held = held_bytes(100, 1_000, 5 if quick else 30)
    figures.append(Figure(name="memory that a planner of 1000 partitions holds", value=held / 1e6, unit="MB"))
    return figures


BENCHMARK = Benchmark(
    name="planner",
    title="What planning costs",
    run=run,
    seconds=120,
    quick_seconds=25,
    needs_kafka=False,
    measures=PLANNING,
)
