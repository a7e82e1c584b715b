"""Experiments that play a load in the simulator: jobs for other processes, what is kept of a run, and their rows."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean
from typing import Any

import msgspec

from benchmarks.behaviour import behaviour, shape
from benchmarks.papers.bench import PROJECT, ExperimentContext
from benchmarks.papers.table import FigureTable, Spread
from benchmarks.run_cache import appending, read_results
from loadtrim.simulate import Load, Options, Outcome, PlanConfig, Simulation, percentile
from loadtrim.simulate.model.world import World

__all__ = [
    "Part",
    "SimulatedJob",
    "SimulatedResult",
    "draw_latencies",
    "draw_runs",
    "looks",
    "needed",
    "play",
    "scaled_alike",
    "spread_of",
    "tables",
]

SAMPLE_SECONDS = 15
WATCH_SECONDS = 0.05
QUANTILES = 200
RUN_CACHE = PROJECT / "out" / "papers" / "runs.jsonl"


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """One run."""

    load: Load
    config: PlanConfig
    options: Options
    timed: bool = False
    """Is it kept how long replicas take to come and to go?"""


@dataclass(frozen=True, slots=True)
class SimulatedResult:
    """What is kept of a run."""

    share_in_time: float
    replica_minutes: float
    """From being there until being gone, as the papers count from log files; the start-up is not in it."""
    ups: int
    """Replicas added."""
    downs: int
    """Replicas given back."""
    up_actions: int
    """Scalings up, of however many replicas."""
    down_actions: int
    latency_mean: float
    """As all latencies here: of all that arrived; what was not done counts with what it had waited."""
    latency_max: float
    replicas: tuple[int, ...]
    """Per second."""
    latency_by_second: tuple[float, ...]
    """Longest of what was done in it."""
    records: int
    waiting: tuple[int, ...] = ()
    """Records not done, at the end of each second."""
    latencies: tuple[float, ...] = ()
    """What 0 to 100 % of the records do not exceed, in steps of 1 / :data:`QUANTILES`."""
    cpu_seconds: float = 0.0
    """It took."""
    wanted: tuple[tuple[float, int], ...] = ()
    """(seconds of the load, replicas wanted from then on): enough to have another group scaled alike."""
    up_seconds: tuple[float, ...] = ()
    """Of each replica that came, from the request for it until it has partitions; where the job is timed."""
    down_seconds: tuple[float, ...] = ()
    """Of each that went, from then until others have its partitions."""

    @property
    def replicas_mean(self) -> float:
        """Over the load."""
        return fmean(self.replicas) if self.replicas else 0.0

    @property
    def scalings(self) -> int:
        """Changes between samples that lie 15 s apart, as Koper'22 counts."""
        samples = self.replicas[::SAMPLE_SECONDS]
        return sum(before != now for before, now in itertools.pairwise(samples))


def _played(job: SimulatedJob) -> SimulatedResult:
    began = time.process_time()
    simulation = Simulation(job.load, job.config, job.options)
    watch = _ScalingWatch(simulation.world, job.load.seconds) if job.timed else None
    outcome = simulation.run()
    ups, downs = outcome.scaled()
    up_actions, down_actions = outcome.actions()
    end = job.load.seconds
    latencies = outcome.latencies_least()
    return SimulatedResult(
        share_in_time=outcome.share_in_time,
        replica_minutes=sum(outcome.curves.replicas[:end]) / 60.0,
        ups=ups,
        downs=downs,
        up_actions=up_actions,
        down_actions=down_actions,
        latency_mean=fmean(latencies) if latencies else 0.0,
        latency_max=percentile(latencies, 1.0),
        replicas=outcome.curves.replicas[:end],
        latency_by_second=outcome.curves.latency_max[:end],
        records=outcome.arrived,
        waiting=outcome.curves.waiting[:end],
        latencies=tuple(percentile(latencies, at / QUANTILES) for at in range(QUANTILES + 1)),
        cpu_seconds=time.process_time() - began,
        wanted=_changes(outcome),
        up_seconds=tuple(watch.ups.values()) if watch else (),
        down_seconds=tuple(watch.downs.values()) if watch else (),
    )


class _ScalingWatch:
    """Looks every :data:`WATCH_SECONDS` of a load who has come and who has gone; it changes nothing."""

    def __init__(self, world: World, seconds: int) -> None:
        self.ups: dict[str, float] = {}
        self.downs: dict[str, float] = {}
        self._world = world
        self._end = world.begin + seconds
        self._goes_since: dict[str, float] = {}
        world.agenda.at(world.begin, self._look)

    def _look(self) -> None:
        now = self._world.now
        for member in self._world.members.values():
            if member.worker.owned and member.requested_at >= self._world.begin:
                self.ups.setdefault(member.name, now - member.requested_at)
            if member.leaving:
                since = self._goes_since.setdefault(member.name, now)
                if member.left:
                    self.downs.setdefault(member.name, now - since)
        if now < self._end:
            self._world.agenda.at(now + WATCH_SECONDS, self._look)


def _changes(outcome: Outcome) -> tuple[tuple[float, int], ...]:
    changes: list[tuple[float, int]] = []
    for at, decision in outcome.decisions:
        if not changes or changes[-1][1] != decision.replicas_wanted:
            changes.append((at, decision.replicas_wanted))
    return tuple(changes)


def scaled_alike(job: SimulatedJob, other: SimulatedResult) -> SimulatedJob:
    """The same run with as many replicas, at the same moments, as another one asked for."""
    return replace(job, options=replace(job.options, replicas_at=other.wanted))


def play(given: ExperimentContext, jobs: Mapping[str, Iterable[SimulatedJob]]) -> dict[str, list[SimulatedResult]]:
    """Play all jobs, spread over the processes; name -> results in the order of its jobs.

    What was played before by the same code is taken from :data:`RUN_CACHE`, so that hours of it can be cut off.
    """
    flat = [(name, job) for name, listed in jobs.items() for job in listed]
    keys = [_key(job) for _, job in flat]
    known = dict(read_results(RUN_CACHE, tuple[str, SimulatedResult]))
    missing = {key: job for key, (_, job) in zip(keys, flat, strict=True) if key not in known}
    given.spent.extend(known[key].cpu_seconds for key in dict.fromkeys(keys) if key in known)
    with appending(RUN_CACHE) as append:
        for (key, _), result in zip(missing.items(), given.each(_played, missing.values()), strict=True):
            known[key] = result
            append((key, result))
    found: dict[str, list[SimulatedResult]] = {name: [] for name in jobs}
    for key, (name, _) in zip(keys, flat, strict=True):
        found[name].append(known[key])
    return found


def _key(job: SimulatedJob) -> str:
    config = job.config
    behaves = behaviour(config.policy, config.packer, job.options.slicing)
    return hashlib.sha256(f"{behaves}/{_result_shape()}/{job!r}".encode()).hexdigest()[:24]


@cache
def _result_shape() -> str:
    return shape(_played, _ScalingWatch, _changes)


@dataclass(frozen=True, slots=True)
class Part:
    """A table, and the runs that it takes."""

    title: str
    needs: tuple[str, ...]
    """Beginnings of the names of its jobs."""
    make: Callable[[Mapping[str, Sequence[SimulatedResult]]], FigureTable]


def needed(
    given: ExperimentContext, parts: Iterable[Part], jobs: Mapping[str, list[SimulatedJob]]
) -> dict[str, list[SimulatedJob]]:
    """Those of the jobs that the wanted tables take."""
    begins = tuple(begin for part in parts if given.wants(part.title) for begin in part.needs)
    return {name: listed for name, listed in jobs.items() if name.startswith(begins)}


def tables(
    given: ExperimentContext,
    parts: Iterable[Part],
    results: Mapping[str, Sequence[SimulatedResult]],
    *,
    comparable: bool = True,
) -> tuple[FigureTable, ...]:
    """Those that are wanted, each of what it needs; ``comparable`` False: without differences from the paper (see
    :meth:`FigureTable.apart`)."""
    made = (
        (part, part.make({name: found for name, found in results.items() if name.startswith(part.needs)}))
        for part in parts
        if given.wants(part.title)
    )
    titled = (msgspec.structs.replace(table, title=part.title) for part, table in made)
    return tuple(table if comparable else table.apart() for table in titled)


def looks(job: SimulatedJob, after_burst_seconds: Sequence[float], spread: float = 0.0) -> list[SimulatedJob]:
    """The same run with members that report so long after a burst; each look has its own seed.

    All of them at once: the papers' scalers stood outside the group and asked the broker for everybody's lag. Members
    of loadtrim report within 0.15 s (``spread``), and what one of them does in that time is much of a burst.
    """
    return [
        replace(
            job,
            options=replace(job.options, seed=at, phase_seconds=(1.0 - after) % 1.0, reports_spread=spread),
        )
        for at, after in enumerate(after_burst_seconds, 1)
    ]


def spread_of(results: Sequence[SimulatedResult], value: Callable[[SimulatedResult], float]) -> Spread:
    """A figure over several runs."""
    return Spread.of(value(result) for result in results)


def draw_runs(
    figure: Any, load: Sequence[float], runs: Mapping[str, SimulatedResult], objective_seconds: float
) -> None:
    """Load, replicas, what waits and longest latency of some runs by title, over the seconds; dashed: the objective."""
    above, *panels = figure.subplots(4, 1, sharex=True)
    above.fill_between(range(len(load)), load, color="0.85")
    above.set_ylabel("records/s")
    for title, run in runs.items():
        for axes, drawn in zip(panels, (run.replicas, run.waiting, run.latency_by_second), strict=True):
            axes.step(range(len(drawn)), drawn, where="post", linewidth=0.9, label=title)
    replicas, waiting, latency = panels
    replicas.set_ylabel("replicas")
    waiting.set_ylabel("records waiting")
    latency.set_ylabel("longest latency, s")
    latency.axhline(objective_seconds, color="0.4", linestyle="--", linewidth=0.8)
    latency.set_xlabel("seconds")
    replicas.legend()


def draw_latencies(axes: Any, runs: Mapping[str, SimulatedResult], objective_seconds: float) -> None:
    """Cumulative distribution of the latencies of some runs by title; dashed: the objective."""
    for title, run in runs.items():
        axes.plot(run.latencies, [100.0 * at / QUANTILES for at in range(len(run.latencies))], label=title)
    axes.axvline(objective_seconds, color="0.4", linestyle="--", linewidth=0.8)
    axes.set(xlabel="latency, s", ylabel="records, %", ylim=(50, 100.5))
    axes.legend(loc="lower right")
