"""Members that pass partitions on by themselves, on real processes: share in time and replica-minutes, load by load.

Whole partitions divide badly over few members. Keys fall on partitions by chance here, as real ones do: a load that is
dealt out evenly flatters. Every part is a run of its own, or several (`--runs`), and `--parts` names some of them.

Each run is played by the simulator too: the same records in the same seconds. It is told what the real group had:
start-up, handoffs, the time on a record, and its age when it is fetched.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from demo.load import LoadRates
from demo.report import Report, RunSummary
from demo.run import RunOptions
from demo.run import run as run_demo
from loadtrim.simulate import PROTOCOLS, Costs, Load, Machines, Options, Outcome, PlanConfig, parse_generator, simulate
from loadtrim.simulate.model.simulation import JOIN_SECONDS

from ..papers.iccbdc22 import first_workload
from ..papers.traces import by_partition, loaded, three_humps
from .believed import differences
from .results import Figure
from .suite import PRODUCT, Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK", "PARTS", "SlicedPart"]

SEED = 24
"""Of the keys, where none is given."""
SHARE = 0.999
"""``LOADTRIM_SLA_SHARE``."""
QUICK_SECONDS = 40
BELIEVABLE_RUNS = 3
"""The fewest runs whose medians are judged beside the simulator's."""
BELIEVABLE_POINTS = 0.1
BELIEVABLE_PERCENT = 3.0
"""The most by which shares (points) and replica-minutes may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicedPart:
    """A load with what is asked of it."""

    load: Callable[[], Load]
    cost_seconds: float = 0.0059
    """Of a record."""
    objective_seconds: float = 0.5
    share_asked: float | None = None
    """Percent of the records in time."""
    minutes_asked: float | None = None
    """Replica-minutes."""
    even: bool = False
    """Records spread evenly in each second, instead of one burst a second."""
    keys: str = "random"
    startup_delay_seconds: float = 0.0
    """Imposed on top of the real start."""
    replicas: int = 1
    """At the start."""
    scalings_max: int | None = None
    slices_per_second_max: float | None = None


def _trace(*, partitions: int, skewed: bool) -> Callable[[], Load]:
    return lambda: loaded(three_humps()[0], partitions=partitions, skewed=skewed)


TRACE = SlicedPart(load=_trace(partitions=5, skewed=False), share_asked=99.95, minutes_asked=28.6)
SKEWED = SlicedPart(load=_trace(partitions=9, skewed=True), share_asked=99.85, minutes_asked=28.5, keys="fixed")
PARTS: dict[str, SlicedPart] = {
    "trace": TRACE,
    "skewed": SKEWED,
    "trace-even": replace(TRACE, share_asked=None, minutes_asked=None, even=True),
    "skewed-even": replace(SKEWED, share_asked=None, minutes_asked=None, even=True),
    "iccbdc22": SlicedPart(
        load=lambda: by_partition(first_workload()),
        cost_seconds=0.01,
        objective_seconds=5.0,
        share_asked=100.0,
        minutes_asked=20.0,
        keys="fixed",
    ),
    "day": SlicedPart(
        load=lambda: parse_generator("cosine:mean=300,amplitude=100,period=1800,seconds=1800", 9),
        share_asked=99.8,
        startup_delay_seconds=10.0,
        # The shape begins at its most: 400 records a second within 0.5 s take 4.7 members.
        replicas=5,
    ),
    "constant": SlicedPart(
        load=lambda: parse_generator("constant:rate=222,noise=0.1,seconds=300", 9),
        replicas=3,
        scalings_max=0,
        slices_per_second_max=2.0,
    ),
}
"""By name. The rate of `constant` is 0.9 of what three members do of a burst in W = 0.5 s, at 5.9 ms a record."""


def drawn(load: Load, keys: str, seed: int) -> Iterator[tuple[float, ...]]:
    """Return each second's shares of the partitions, of as many records as the second has.

    Args:
        load: what arrives.
        keys: ``random``: each record falls on a partition by chance; ``fixed``: partitions have their shares.
        seed: of chance.
    """
    random = Random(f"keys:{seed}")
    for second, rate in enumerate(load.per_second):
        row, records = load.row(second), math.ceil(rate)
        if keys == "fixed" or not records:
            yield tuple(row)
            continue
        chosen = random.choices(range(len(row)), row, k=records)
        yield tuple(chosen.count(index) / records for index in range(len(row)))


@dataclass(frozen=True, slots=True)
class _Played:
    """A run of a part, as a real group played it and as the simulator did."""

    real: RunSummary
    simulated: Outcome
    possible: float
    """As :attr:`Report.share_possible_as_played`."""


async def _play(context: BenchmarkContext, name: str, part: SlicedPart, slicing: str, seed: int) -> _Played:
    load = part.load()
    load = load.part(0, QUICK_SECONDS) if context.quick else load
    kafka = context.cluster()
    rows = tuple(drawn(load, part.keys, seed))
    report = await run_demo(
        RunOptions(
            bootstrap=kafka.bootstrap,
            topic=kafka.create_topic(partitions=len(load.partitions)),
            group=f"sliced-{name}-{seed}",
            rates=LoadRates(load.per_second, load.source, rows),
            shares=tuple(load.row(0)),
            directory=context.scratch / f"{name}-{slicing}-{seed}",
            even=part.even,
            objective_seconds=part.objective_seconds,
            objective_share=SHARE,
            busy_seconds=part.cost_seconds,
            policy="objective",
            replicas=part.replicas,
            startup_delay_seconds=part.startup_delay_seconds,
            env={"LOADTRIM_PACKER": "trim", "LOADTRIM_SLICING": slicing},
        )
    )
    simulated = await asyncio.to_thread(_simulated, part, replace(load, shares=rows), report, slicing, seed)
    return _Played(report.summary, simulated, report.share_possible_as_played or 0.0)


def _simulated(part: SlicedPart, load: Load, report: Report, slicing: str, seed: int) -> Outcome:
    real, delay = report.summary, report.arrival_delay_mean
    load = replace(
        load,
        per_second=tuple(float(math.ceil(rate)) for rate in load.per_second),
        arrivals="even" if part.even else "burst",
        keys="fixed",
    )
    config = PlanConfig(
        group="bench", sla_seconds=part.objective_seconds, sla_share=SHARE, policy="objective", packer="trim"
    )
    handoff = real.handoff_p50
    protocol = PROTOCOLS["loadtrim"]
    if handoff is not None:
        protocol = replace(protocol, handoff_seconds=(0.5 * handoff, 1.5 * handoff))
    options = Options(
        seed=seed,
        costs=Costs(mean_seconds=real.spent_seconds_mean or part.cost_seconds),
        startup_seconds=max(0.0, (real.startup_p50 or 1.0) - JOIN_SECONDS),
        machines=Machines() if delay is None else Machines(fetch_seconds=delay),
        replicas=part.replicas,
        protocol=protocol,
        slicing=slicing == "auto",
    )
    return simulate(load, config, options)


def _worst(values: Sequence[float], worst: float, unit: str = "") -> str:
    return f"; worst of {len(values)} {worst:.2f}{unit}" if len(values) > 1 else ""


def _figures(name: str, part: SlicedPart, played: Sequence[_Played], *, judged: bool) -> Iterator[Figure]:
    runs = [each.real for each in played]
    share, minutes = [run.share_in_time * 100 for run in runs], [run.replica_minutes for run in runs]
    scalings = [run.scale_ups + run.scale_downs for run in runs]
    yield Figure(
        name=f"{name}: share of records in time",
        value=statistics.median(share),
        unit="%",
        at_least=part.share_asked if judged else None,
        peer=f"possible {_possible(played)}{_worst(share, min(share), ' %')}",
    )
    yield Figure(
        name=f"{name}: replica-minutes",
        value=statistics.median(minutes),
        at_most=part.minutes_asked if judged else None,
        peer=f"an ideal pool {runs[0].replica_minutes_least:.1f}{_worst(minutes, max(minutes))}",
    )
    yield Figure(
        name=f"{name}: scalings",
        value=statistics.median(scalings),
        at_most=part.scalings_max if judged else None,
        peer=_worst(scalings, max(scalings)).removeprefix("; "),
    )
    yield Figure(
        name=f"{name}: moves a second",
        value=statistics.median(run.moves / run.load_seconds for run in runs),
        at_most=part.slices_per_second_max if judged else None,
    )
    longest = max(run.latency.max for run in runs)
    yield Figure(
        name=f"{name}: latency p99",
        value=statistics.median(run.latency.p99 for run in runs),
        unit="ms",
        peer=f"longest {longest:.2f} s; {_handoffs(runs)}",
    )
    believed = judged and len(played) >= BELIEVABLE_RUNS
    yield from differences(
        runs,
        [each.simulated for each in played],
        points_at_most=BELIEVABLE_POINTS if believed else None,
        percent_at_most=BELIEVABLE_PERCENT if believed else None,
        of=f"{name}: ",
    )
    yield Figure(name=f"{name}: records lost", value=sum(run.lost + run.left_over for run in runs), at_most=0)
    yield Figure(name=f"{name}: records repeated", value=sum(run.repeated for run in runs), at_most=0)
    yield Figure(name=f"{name}: partitions with two owners", value=sum(run.double_owners for run in runs), at_most=0)


def _possible(played: Sequence[_Played]) -> str:
    """Return what no placement exceeds: on paper, and with records as late and as long as they were."""
    paper = statistics.median(each.real.share_possible for each in played) * 100
    return f"{paper:.2f}, as played {statistics.median(each.possible for each in played) * 100:.2f}"


def _handoffs(runs: Sequence[RunSummary]) -> str:
    pairs = [(run.handoff_p50, run.handoff_p99) for run in runs]
    half, most = ([value for value in values if value is not None] for values in zip(*pairs, strict=True))
    if not half or not most:
        return "no handoffs"
    return f"handoffs p50 {statistics.median(half) * 1e3:.1f}, p99 {statistics.median(most) * 1e3:.1f} ms"


async def run(context: BenchmarkContext) -> Finding:
    """Play each part with slices; a name with ``/off`` behind it plays the part without."""
    names = context.parts or (("trace",) if context.quick else tuple(PARTS))
    if unknown := [name for name in names if name.removesuffix("/off") not in PARTS]:
        raise ValueError(f"unknown parts {', '.join(unknown)}; give some of {', '.join(PARTS)}, or with /off behind")
    figures: list[Figure] = []
    details = {}
    seed = SEED if context.seed is None else context.seed
    for name in names:
        part = PARTS[name.removesuffix("/off")]
        slicing = "off" if name.endswith("/off") else "auto"
        seeds = range(seed, seed + (1 if context.quick else context.runs))
        played = [await _play(context, name.replace("/", "-"), part, slicing, each) for each in seeds]
        figures += _figures(name, part, played, judged=slicing == "auto" and not context.quick)
        details[name] = [
            {
                "seed": each,
                "late_by_cause": run.real.late_by_cause,
                "records": run.real.records,
                "share": run.real.share_in_time,
                "minutes": run.real.replica_minutes,
                "simulated_share": run.simulated.share_in_time,
                "simulated_minutes": run.simulated.replica_minutes,
            }
            for each, run in zip(seeds, played, strict=True)
        ]
    return Finding(
        setting=(
            f"Policy `objective`, packer `trim`, LOADTRIM_SLA_SHARE={SHARE:g}, LOADTRIM_SLICING=auto (`/off`: off), "
            "real processes that take their real time to start. Keys fall on partitions by chance, but for "
            "`skewed` and `iccbdc22`; one burst a second, but for `-even`. `trace`: the recorded 10-minute trace, 5 "
            "partitions, 5.9 ms a record, W = 0.5 s; `skewed`: half of it on 2 of 9; `iccbdc22`: experiment 1, 10 ms, "
            "W = 5 s; `day`: 200 to 400 records/s within half an hour, 9 partitions, 5 members at first, 10 s more for "
            "each start; `constant`: 222 records/s with 10 % noise on 3 members of 9 partitions. "
            f"Medians of {context.runs} runs each, from seed {seed} on."
        ),
        figures=tuple(figures),
        details=details,
    )


BENCHMARK = Benchmark(
    name="sliced",
    title="Members that pass partitions on by themselves",
    run=run,
    seconds=5400,
    quick_seconds=60,
    by_name_only=True,
    measures=PRODUCT,
)
