"""Members that pass partitions on by themselves, on real processes: share in time and replica-minutes, load by load.

Whole partitions divide badly over few members. Keys fall on partitions by chance here, as real ones do: a load that is
dealt out evenly flatters. Every part is a run of its own, and `--parts` names some of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

from demo.load import LoadRates
from demo.report import RunSummary
from demo.run import RunOptions
from demo.run import run as run_demo
from loadtrim.simulate import Load, parse_generator

from ..papers.iccbdc22 import first_workload
from ..papers.traces import by_partition, loaded, three_humps
from .results import Figure
from .suite import Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK", "PARTS", "SlicedPart"]

SEED = 24
"""Of the keys, where none is given."""
SHARE = 0.999
"""``LOADTRIM_SLA_SHARE``."""
QUICK_SECONDS = 40


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
        replicas=3,
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


async def _play(context: BenchmarkContext, name: str, part: SlicedPart, slicing: str) -> RunSummary:
    load = part.load()
    load = load.part(0, QUICK_SECONDS) if context.quick else load
    kafka = context.cluster()
    seed = SEED if context.seed is None else context.seed
    rates = LoadRates(load.per_second, load.source, tuple(drawn(load, part.keys, seed)))
    report = await run_demo(
        RunOptions(
            bootstrap=kafka.bootstrap,
            topic=kafka.create_topic(partitions=len(load.partitions)),
            group=f"sliced-{name}",
            rates=rates,
            shares=tuple(load.row(0)),
            directory=context.scratch / f"{name}-{slicing}",
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
    return report.summary


def _figures(name: str, part: SlicedPart, summary: RunSummary, *, judged: bool) -> Iterator[Figure]:
    yield Figure(
        name=f"{name}: share of records in time",
        value=summary.share_in_time * 100,
        unit="%",
        at_least=part.share_asked if judged else None,
    )
    yield Figure(
        name=f"{name}: replica-minutes",
        value=summary.replica_minutes,
        at_most=part.minutes_asked if judged else None,
        peer=f"an ideal pool {summary.replica_minutes_least:.1f}",
    )
    yield Figure(
        name=f"{name}: scalings",
        value=summary.scale_ups + summary.scale_downs,
        at_most=part.scalings_max if judged else None,
    )
    yield Figure(
        name=f"{name}: moves a second",
        value=summary.moves / summary.load_seconds,
        at_most=part.slices_per_second_max if judged else None,
    )
    handoffs = [f"{(value or math.nan) * 1e3:.1f}" for value in (summary.handoff_p50, summary.handoff_p99)]
    yield Figure(
        name=f"{name}: latency p99",
        value=summary.latency.p99,
        unit="ms",
        peer=f"longest {summary.latency.max:.2f} s; handoffs p50 {handoffs[0]}, p99 {handoffs[1]} ms",
    )
    yield Figure(name=f"{name}: records lost", value=summary.lost + summary.left_over, at_most=0)
    yield Figure(name=f"{name}: records repeated", value=summary.repeated, at_most=0)
    yield Figure(name=f"{name}: partitions with two owners", value=summary.double_owners, at_most=0)


async def run(context: BenchmarkContext) -> Finding:
    """Play each part with slices; a name with ``/off`` behind it plays the part without."""
    names = context.parts or (("trace",) if context.quick else tuple(PARTS))
    if unknown := [name for name in names if name.removesuffix("/off") not in PARTS]:
        raise ValueError(f"unknown parts {', '.join(unknown)}; give some of {', '.join(PARTS)}, or with /off behind")
    figures: list[Figure] = []
    details = {}
    for name in names:
        part = PARTS[name.removesuffix("/off")]
        slicing = "off" if name.endswith("/off") else "auto"
        summary = await _play(context, name.replace("/", "-"), part, slicing)
        figures += _figures(name, part, summary, judged=slicing == "auto" and not context.quick)
        details[name] = {"late_by_cause": summary.late_by_cause, "records": summary.records}
    return Finding(
        setting=(
            f"Policy `objective`, packer `trim`, LOADTRIM_SLA_SHARE={SHARE:g}, LOADTRIM_SLICING=auto (`/off`: off), "
            "real processes that take their real time to start. Keys fall on partitions by chance, but for "
            "`skewed` and `iccbdc22`; one burst a second, but for `-even`. `trace`: the recorded 10-minute trace, 5 "
            "partitions, 5.9 ms a record, W = 0.5 s; `skewed`: half of it on 2 of 9; `iccbdc22`: experiment 1, 10 ms, "
            "W = 5 s; `day`: 200 to 400 records/s within half an hour, 9 partitions, 10 s more for each start; "
            "`constant`: 222 records/s with 10 % noise on 3 members of 9 partitions."
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
)
