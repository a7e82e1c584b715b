"""Experiments that play a load in the simulator: jobs for other processes, what is kept of a run, and their rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from loadtrim.simulate import Load, Options, PlanConfig, percentile, simulate
from papers.bench import Context
from papers.sheet import Spread

__all__ = ["Job", "Result", "draw_runs", "looks", "play", "spread_of"]

SAMPLE_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    load: Load
    config: PlanConfig
    options: Options


@dataclass(frozen=True, slots=True)
class Result:
    """What is kept of a run."""

    share_in_time: float
    replica_minutes: float
    ups: int
    downs: int
    latency_mean: float
    latency_max: float
    replicas: tuple[int, ...]
    """Per second."""
    latency_by_second: tuple[float, ...]
    """Longest of what was done in it."""
    records: int

    @property
    def replicas_mean(self) -> float:
        """Over the load."""
        return fmean(self.replicas) if self.replicas else 0.0

    @property
    def scalings(self) -> int:
        """Changes between samples that lie 15 s apart, as Koper'22 counts."""
        samples = self.replicas[::SAMPLE_SECONDS]
        return sum(before != now for before, now in itertools.pairwise(samples))


def _played(job: Job) -> Result:
    outcome = simulate(job.load, job.config, job.options)
    ups, downs = outcome.scaled()
    end = job.load.seconds
    return Result(
        share_in_time=outcome.share_in_time,
        replica_minutes=outcome.replica_minutes,
        ups=ups,
        downs=downs,
        latency_mean=fmean(outcome.latencies) if outcome.latencies else 0.0,
        latency_max=percentile(outcome.latencies, 1.0),
        replicas=outcome.curves.replicas[:end],
        latency_by_second=outcome.curves.latency_max[:end],
        records=outcome.arrived,
    )


def play(given: Context, jobs: Mapping[str, Iterable[Job]]) -> dict[str, list[Result]]:
    """Play all jobs, spread over the processes; name -> results in the order of its jobs."""
    flat = [(name, job) for name, listed in jobs.items() for job in listed]
    results = given.map(_played, [job for _, job in flat])
    found: dict[str, list[Result]] = {name: [] for name in jobs}
    for (name, _), result in zip(flat, results, strict=True):
        found[name].append(result)
    return found


def looks(job: Job, after_burst_seconds: Sequence[float]) -> list[Job]:
    """The same run with members that report so long after a burst; each look has its own seed.

    A member reports up to 0.15 s later than the first one does, so that a look of 0.02 s means 0.02 to 0.17 s.
    """
    return [
        replace(job, options=replace(job.options, seed=at, phase_seconds=(1.0 - after) % 1.0))
        for at, after in enumerate(after_burst_seconds, 1)
    ]


def spread_of(results: Sequence[Result], value: Callable[[Result], float]) -> Spread:
    """A figure over several runs."""
    return Spread.of(value(result) for result in results)


def draw_runs(figure: Any, load: Sequence[float], runs: Mapping[str, Result], objective_seconds: float) -> None:
    """Load, replicas and longest latency, second by second, of some runs by title; dashed: the objective."""
    above, replicas, latency = figure.subplots(3, 1, sharex=True)
    above.fill_between(range(len(load)), load, color="0.85")
    above.set_ylabel("records/s")
    for title, run in runs.items():
        for axes, drawn in ((replicas, run.replicas), (latency, run.latency_by_second)):
            axes.step(range(len(drawn)), drawn, where="post", linewidth=0.9, label=title)
    replicas.set_ylabel("replicas")
    latency.set_ylabel("longest latency, s")
    latency.axhline(objective_seconds, color="0.4", linestyle="--", linewidth=0.8)
    latency.set_xlabel("seconds")
    replicas.legend()
