"""Who is compared, and one run of it: played by some processes at once, kept line by line, resumed where it ended.

A result is kept with a digest of how the code behaves and of what the run was made of. A run that is started again
plays only what is missing or was made otherwise.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random

import msgspec

from benchmarks.behaviour import behaviour, shape
from benchmarks.compare.scenarios import Scenario, scenario_of
from benchmarks.run_cache import kept_results, play_each
from loadtrim.simulate import Costs, Load, Options, PlanConfig, percentile, simulate
from loadtrim.simulate.model.work import FETCH_SECONDS

__all__ = [
    "CHOICES",
    "FIRST_SEED",
    "STARTUPS",
    "Choice",
    "ComparisonJob",
    "ComparisonResult",
    "choice_of",
    "config_of",
    "digest",
    "grouped",
    "late_alone",
    "load_kept",
    "play",
    "play_all",
]

STARTUPS = (0.0, 1.0, 10.0, 60.0)
FIRST_SEED = 1
"""The tables' own; what else was played with others stands beside it."""
FIRST_SECONDS = 60.0
"""Scalings after this are counted apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One row: a policy, with the packer of its paper; ``sticky`` for those that know nothing of partitions."""

    name: str
    policy: str
    packer: str = "sticky"
    slicing: bool = False
    knows: bool = False
    """It is told what will come, so nobody competes with it."""

    @property
    def told(self) -> bool:
        """Is it told the load's mean or its peak beforehand?"""
        return any(f"{{{name}}}" in self.policy for name in ("mean", "most", "peak"))

    @property
    def apart(self) -> bool:
        """Does it neither compete nor stand in anybody's way?"""
        return self.knows or self.slicing

    def policy_for(self, scene: Scenario) -> str:
        """With what it is told of the load."""
        mean, peak = scene.load.records / scene.load.seconds, max(scene.load.per_second)
        partitions = len(scene.load.partitions)
        return self.policy.format(
            mean=min(math.ceil(mean / scene.worth), partitions),
            most=min(math.ceil(peak / scene.worth), partitions),
            peak=peak,
            worth=scene.worth,
        )


CHOICES: tuple[Choice, ...] = (
    Choice(name="objective", policy="objective", packer="trim"),
    Choice(name="objective, slicing", policy="objective", packer="trim", slicing=True),
    Choice(name="iccbdc22", policy="iccbdc22", packer="iccbdc22"),
    Choice(name="iccbdc22_as_run", policy="iccbdc22_as_run", packer="iccbdc22_as_run"),
    Choice(name="closer24", policy="closer24", packer="closer24"),
    Choice(name="closer24_algorithm_1", policy="closer24_algorithm_1", packer="closer24"),
    Choice(name="closer24_as_run", policy="closer24_as_run", packer="closer24_as_run"),
    Choice(name="linear", policy="linear"),
    # What CLOSER'24's own figures are scaled by, where its text has mu.
    Choice(name="linear (mu x W)", policy="linear:mu={worth}"),
    Choice(name="landau24", policy="landau24", packer="mwf"),
    Choice(name="landau24_as_run", policy="landau24_as_run", packer="mwf"),
    Choice(name="li_ku", policy="li_ku"),
    Choice(name="hpa_cpu", policy="hpa_cpu"),
    Choice(name="varga_v1", policy="varga_v1"),
    Choice(name="varga_v2", policy="varga_v2"),
    Choice(name="dhalion_adapted", policy="dhalion_adapted"),
    Choice(name="ds2_modern", policy="ds2_modern"),
    Choice(name="ds2_modern_adapted", policy="ds2_modern_adapted"),
    Choice(name="keda", policy="keda"),
    Choice(name="flas", policy="flas"),
    Choice(name="fixed (mean)", policy="fixed:replicas={mean}"),
    Choice(name="fixed (peak)", policy="fixed:replicas={most}"),
    Choice(name="overprovisioned", policy="overprovisioned:peak_records_per_second={peak}"),
    Choice(name="clairvoyant", policy="clairvoyant", packer="trim", knows=True),
    Choice(name="clairvoyant, slicing", policy="clairvoyant:sliced=1", packer="trim", slicing=True, knows=True),
    Choice(name="clairvoyant, no start-up", policy="clairvoyant:with_startup=0", packer="trim", knows=True),
    Choice(
        name="clairvoyant, no start-up, slicing",
        policy="clairvoyant:with_startup=0,sliced=1",
        packer="trim",
        slicing=True,
        knows=True,
    ),
)


class ComparisonJob(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    scene: str
    choice: str
    startup_seconds: float
    seed: int = FIRST_SEED
    share: float = 0.999
    quick: bool = False

    @property
    def key(self) -> str:
        return msgspec.json.encode(self).decode()


class ComparisonResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. Times in seconds."""

    job: ComparisonJob
    code: str
    """What it was made by, see :func:`digest`."""
    records: int
    left: int
    share: float
    share_after: float
    """Of what was done after the first minute."""
    replica_minutes: float
    replicas_mean: float
    replicas_max: int
    moves: int
    slices: int
    scalings: int
    scalings_after: int
    """After the first minute, until the load's end."""
    p99: float
    """Of all that arrived; what was not done counts with what it had waited."""
    longest: float
    alone: int
    """Records that are late even if every partition has a replica to itself all the time."""
    cpu_seconds: float


def choice_of(name: str) -> Choice:
    return next(choice for choice in CHOICES if choice.name == name)


@cache
def _measure() -> str:
    return f"{FIRST_SECONDS!r} {shape(play, late_alone)}"


def digest(job: ComparisonJob) -> str:
    """Return the digest of all that a run depends on: how the code behaves, the load by second, and its settings."""
    scene = scenario_of(job.scene, job.quick)
    config = config_of(job, scene)
    behaves = behaviour(config.policy, config.packer, choice_of(job.choice).slicing)
    load = replace(scene.load, source="", notes=())
    played = f"{behaves} {_measure()} {load!r} {config!r} {options_of(job, scene)!r}"
    return hashlib.sha256(played.encode()).hexdigest()[:12]


def late_alone(load: Load, cost_seconds: float, objective_seconds: float, seed: int) -> int:
    """Records that no number of replicas could have saved: late with a replica to each partition from the start.

    Lindley's recursion for every partition on the same arrivals as are played. O(records).
    """
    free, late = [0.0] * len(load.partitions), 0
    for second, batches in enumerate(load.batches(Random(f"load:{seed}"))):
        for batch in batches:
            stamp = second + batch.offset_seconds
            for index, count in batch.counts:
                begin = max(free[index], stamp + FETCH_SECONDS)
                free[index] = begin + count * cost_seconds
                in_time = math.floor((stamp + objective_seconds - begin) / cost_seconds + 1e-9)
                late += count - min(count, max(0, in_time))
    return late


def config_of(job: ComparisonJob, scene: Scenario) -> PlanConfig:
    choice = choice_of(job.choice)
    return PlanConfig(
        group="compared",
        sla_seconds=scene.objective_seconds,
        sla_share=job.share,
        policy=choice.policy_for(scene),
        packer=choice.packer,
        startup_seconds=job.startup_seconds,
    )


def options_of(job: ComparisonJob, scene: Scenario) -> Options:
    return Options(
        seed=job.seed,
        costs=Costs(mean_seconds=scene.cost_seconds),
        startup_seconds=job.startup_seconds,
        replicas=scene.replicas,
        slicing=choice_of(job.choice).slicing,
    )


def play(job: ComparisonJob) -> ComparisonResult:
    """Play one run. Deterministic but for ``cpu_seconds``."""
    code, scene, began = digest(job), scenario_of(job.scene, job.quick), time.process_time()
    outcome = simulate(scene.load, config_of(job, scene), options_of(job, scene))
    wanted = [decision.replicas_wanted for at, decision in outcome.decisions if FIRST_SECONDS <= at < outcome.seconds]
    late = outcome.curves.late[int(FIRST_SECONDS) :]
    latencies = outcome.latencies_least()
    after = sum(outcome.curves.arrived[int(FIRST_SECONDS) :])
    return ComparisonResult(
        job=job,
        code=code,
        records=outcome.arrived,
        left=outcome.left,
        share=outcome.share_in_time,
        share_after=max(0.0, 1.0 - (sum(late) + outcome.left) / after) if after else 1.0,
        replica_minutes=outcome.replica_minutes,
        replicas_mean=outcome.replica_minutes * 60.0 / outcome.seconds,
        replicas_max=outcome.replicas_max,
        moves=outcome.moves,
        slices=outcome.slices,
        scalings=outcome.scalings(),
        scalings_after=sum(before != now for before, now in pairwise(wanted)),
        p99=percentile(latencies, 0.99),
        longest=percentile(latencies, 1.0),
        alone=late_alone(scene.load, scene.cost_seconds, scene.objective_seconds, job.seed),
        cpu_seconds=time.process_time() - began,
    )


def load_kept(path: Path, jobs: Sequence[ComparisonJob]) -> dict[str, ComparisonResult]:
    """Those jobs' results that were made as they would be made now, by job; a line that was cut off is left out."""
    codes = {job.key: digest(job) for job in jobs}
    return kept_results(path, ComparisonResult, codes, lambda result: result.job.key, codes.__getitem__)


def play_all(
    jobs: Sequence[ComparisonJob],
    path: Path,
    processes: int,
    seconds: float = math.inf,
    tell: Callable[[str], None] = print,
) -> dict[str, ComparisonResult]:
    """Play what is not kept yet.

    Args:
        jobs: in the order in which they are to be played.
        path: where results are kept, a line each.
        processes: so many at once.
        seconds: nothing new is begun after so long; what is missing then is missing in the answer.
        tell: progress.

    Returns:
        Results by the jobs' keys.
    """
    found = load_kept(path, jobs)
    missing, total = [job for job in jobs if job.key not in found], len(jobs)
    tell(f"{len(found)} of {total} runs are kept in {path}, {len(missing)} are missing")
    for result, took in play_each(play, missing, path, processes, seconds):
        found[result.job.key] = result
        tell(_line(len(found), total, took, result))
    return found


def _line(number: int, total: int, seconds: float, result: ComparisonResult) -> str:
    job = result.job
    return (
        f"{number}/{total} {seconds:5.0f} s  {job.scene}, {job.choice}, start-up {job.startup_seconds:g} s, "
        f"seed {job.seed}: {result.share:.2%} at {result.replica_minutes:.2f} ({result.cpu_seconds:.1f} s of CPU)"
    )


def grouped(results: Mapping[str, ComparisonResult]) -> dict[tuple[str, float], list[ComparisonResult]]:
    """Those of the first seed by (scene, start-up time), each in the order of :data:`CHOICES`."""
    order = {choice.name: place for place, choice in enumerate(CHOICES)}
    groups: dict[tuple[str, float], list[ComparisonResult]] = {}
    first = (each for each in results.values() if each.job.seed == FIRST_SEED)
    for result in sorted(first, key=lambda each: order[each.job.choice]):
        groups.setdefault((result.job.scene, result.job.startup_seconds), []).append(result)
    return groups
