"""Measures how closely policies follow what a load takes: ``python -m benchmarks.compare.elasticity tuning|verdict``.

Theodolite's demand curve says what a load takes (Henning and Hasselbring, EMSE 2022). For some rates between the least
and the most of the load it has the fewest fixed replicas that keep the share when they last. A second of the load takes
what the next higher of these rates takes. Its rate is the mean of the ten seconds around it.

The measures are those of the SPEC Research Group for elasticity (Herbst, Kounev, Reussner, ICAC 2013), as Bauer et al.
(TPDS 2019) normalise them:

- How many replicas are missing, and how many are above, on average over the time and relative to what is taken.
- For what part of the time there are too few, and too many.
- In what part of the time supply and demand do not change in the same direction.

Changed: what happens in the first minute does not count. None of them knows of the objective as a buffer. With W of a
minute a group with too few replicas for some seconds keeps it.

A ratchet tells what is kept by following the curve alone (:data:`RATCHET`). It asks in each second for the most that
any second has taken so far, and gives nothing back. It has no room for what waits during a start-up, so it is no bound.

Exit codes: as of :mod:`.held_out`.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from statistics import fmean

import msgspec

from benchmarks.behaviour import shape
from benchmarks.compare.families import Drawn
from benchmarks.compare.held_out import (
    OUT,
    SETTLING_SECONDS,
    add_arguments,
    drawn_of,
    fixed_choice,
    keeps,
    loads_of,
    outcome_of,
    run_code,
)
from benchmarks.compare.runs import choice_of
from benchmarks.run_cache import kept_results, play_each
from loadtrim.simulate import Outcome

__all__ = [
    "DemandPoint",
    "Elasticity",
    "LoadElasticity",
    "demand_by_second",
    "demand_curve",
    "elasticity",
    "means",
    "ratchet",
    "rates_around",
]

LEVELS = 8
"""Rates of the demand curve. Chosen: eight tell a load of five members' capacity to 0.7 of a member."""
RATCHET = "ratchet"
CHOICES = ("objective", "iccbdc22", "closer24", "linear (mu x W)", "keda", "hpa_cpu", RATCHET)
AROUND_SECONDS = 10
DEMAND_SECONDS, DEMAND_OBJECTIVES = 120, 2.0
"""A rate lasts so long after the settling time, and so many objectives more."""


class DemandPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a demand curve."""

    rate: float
    """Records/s."""
    replicas: int
    """The fewest that keep the share; a replica for each partition where even these do not."""


class Elasticity(msgspec.Struct, frozen=True, kw_only=True):
    """The measures of one run, all but the first in percent."""

    kept: float
    """1: the share is kept, 0: it is not; of several runs the part that is kept."""
    too_few: float
    """Replicas that are missing, of those that are taken, mean over the time (accuracy, under-provisioning)."""
    too_many: float
    """Likewise those above (accuracy, over-provisioning)."""
    time_too_few: float
    """Of the time (timeshare, under-provisioning)."""
    time_too_many: float
    unstable: float
    """Of the time: supply changes otherwise than demand (instability)."""


class LoadElasticity(msgspec.Struct, frozen=True, kw_only=True):
    """One load with all policies that were asked for."""

    name: str
    seed: int
    code: str
    demand: tuple[DemandPoint, ...]
    by_choice: Mapping[str, Elasticity]


@dataclass(frozen=True, slots=True)
class ElasticityJob:
    """One load with some policies."""

    name: str
    seed: int
    choices: tuple[str, ...]


def rates_around(per_second: Sequence[float]) -> list[float]:
    """Return the mean rate of the ten seconds around each second, of fewer at the ends."""
    half = AROUND_SECONDS // 2
    return [fmean(per_second[max(0, at - half) : at + half]) for at in range(len(per_second))]


def demand_curve(drawn: Drawn, seed: int) -> tuple[DemandPoint, ...]:
    """Find the demand at :data:`LEVELS` rates, from the least to the most. What a higher rate takes is never less."""
    rates = rates_around(drawn.scenario.load.per_second)
    least, most = min(rates), max(rates)
    levels = dict.fromkeys(least + (most - least) * at / (LEVELS - 1) for at in range(LEVELS))
    points: list[DemandPoint] = []
    for rate in levels:
        before = points[-1].replicas if points else 1
        points.append(DemandPoint(rate=rate, replicas=_demand(drawn, seed, rate, before)))
    return tuple(points)


def _demand(drawn: Drawn, seed: int, rate: float, before: int) -> int:
    most = len(drawn.scenario.load.partitions)
    replicas = min(most, max(before, math.ceil(rate * drawn.scenario.cost_seconds)))
    lasting = _lasting(drawn, rate)
    while replicas < most and not _kept(lasting, seed, replicas):
        replicas += 1
    return replicas


def _kept(drawn: Drawn, seed: int, replicas: int) -> bool:
    outcome = outcome_of(drawn, fixed_choice(f"fixed:replicas={replicas}"), seed, replicas)
    return keeps(outcome.share_in_time_from(SETTLING_SECONDS), drawn.share)


def _lasting(drawn: Drawn, rate: float) -> Drawn:
    """The same load at one rate, each partition with its mean share."""
    load = drawn.scenario.load
    seconds = math.ceil(SETTLING_SECONDS + DEMAND_SECONDS + DEMAND_OBJECTIVES * drawn.scenario.objective_seconds)
    shares = tuple(fmean(column) for column in zip(*load.shares, strict=True))
    lasting = replace(load, per_second=(rate,) * seconds, shares=(shares,))
    return replace(drawn, scenario=replace(drawn.scenario, load=lasting))


def demand_by_second(rates: Sequence[float], curve: Sequence[DemandPoint]) -> list[int]:
    """Return what each second takes: as much as the next higher rate of the curve; above its last as much as that."""
    return [next((point.replicas for point in curve if point.rate >= rate), curve[-1].replicas) for rate in rates]


def elasticity(demand: Sequence[int], supply: Sequence[int], *, kept: bool) -> Elasticity:
    """Return the measures of a run.

    Args:
        kept: whether it keeps its share.
        demand: replicas that each second takes, at least 1.
        supply: replicas that are there, of as many seconds.
    """
    pairs = list(zip(demand, supply, strict=True))
    changes = [(_sign(b[0] - a[0]), _sign(b[1] - a[1])) for a, b in pairwise(pairs)]
    return Elasticity(
        kept=float(kept),
        too_few=100.0 * fmean(max(0, taken - there) / taken for taken, there in pairs),
        too_many=100.0 * fmean(max(0, there - taken) / taken for taken, there in pairs),
        time_too_few=100.0 * fmean(there < taken for taken, there in pairs),
        time_too_many=100.0 * fmean(there > taken for taken, there in pairs),
        unstable=100.0 * fmean(taken != there for taken, there in changes) if changes else 0.0,
    )


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)


def play(job: ElasticityJob) -> LoadElasticity:
    """Find a load's demand curve, and play it with each policy as it comes."""
    drawn = drawn_of(job.name)
    curve = demand_curve(drawn, job.seed)
    per_second = drawn.scenario.load.per_second
    demand = demand_by_second(rates_around(per_second), curve)
    found = {}
    for choice in job.choices:
        outcome = _outcome(drawn, choice, job.seed, curve)
        kept = keeps(outcome.share_in_time_from(SETTLING_SECONDS), drawn.share)
        supply = outcome.curves.replicas[SETTLING_SECONDS : len(per_second)]
        found[choice] = elasticity(demand[SETTLING_SECONDS:], supply, kept=kept)
    return LoadElasticity(name=job.name, seed=job.seed, code=_code(job), demand=curve, by_choice=found)


def _outcome(drawn: Drawn, choice: str, seed: int, curve: Sequence[DemandPoint]) -> Outcome:
    if choice != RATCHET:
        return outcome_of(drawn, choice_of(choice), seed)
    wanted = ratchet(demand_by_second(drawn.scenario.load.per_second, curve))
    return outcome_of(drawn, fixed_choice(), seed, replicas=wanted[0][1], replicas_at=wanted)


def ratchet(demand: Sequence[int]) -> tuple[tuple[float, int], ...]:
    """Return the seconds at which more is taken than ever before, each with how much."""
    highest = list(accumulate(demand, max))
    return tuple((float(at), most) for at, most in enumerate(highest) if at == 0 or most > highest[at - 1])


@lru_cache(maxsize=1024)
def _code(job: ElasticityJob) -> str:
    choices = (fixed_choice(), *(choice_of(each) for each in job.choices if each != RATCHET))
    runs = " ".join(run_code(job.name, each) for each in choices)
    made = shape(play, _outcome, ratchet, demand_curve, _demand, _lasting, demand_by_second, elasticity, rates_around)
    chosen = f"{job!r} {LEVELS} {AROUND_SECONDS} {DEMAND_SECONDS} {DEMAND_OBJECTIVES}"
    return hashlib.sha256(f"{runs} {made} {chosen}".encode()).hexdigest()[:24]


def _job_of(found: LoadElasticity) -> ElasticityJob:
    return ElasticityJob(found.name, found.seed, tuple(found.by_choice))


def means(found: Iterable[LoadElasticity]) -> dict[str, Elasticity]:
    """Return each policy's measures, means over the loads."""
    by: dict[str, list[Elasticity]] = {}
    for each in found:
        for choice, measured in each.by_choice.items():
            by.setdefault(choice, []).append(measured)
    fields = Elasticity.__struct_fields__
    return {
        choice: Elasticity(**{name: fmean(getattr(one, name) for one in listed) for name in fields})
        for choice, listed in by.items()
    }


def table(rows: Mapping[str, Elasticity]) -> str:
    """Return the rows for people."""
    head = "policy            kept   too few, %  too many, %  time too few, %  time too many, %  unstable, %"
    return "\n".join([head, *(_line(choice, row) for choice, row in rows.items())])


def _line(choice: str, row: Elasticity) -> str:
    return (
        f"{choice:16}  {row.kept:4.2f}  {row.too_few:10.1f}  {row.too_many:11.1f}  {row.time_too_few:15.1f}"
        f"  {row.time_too_many:16.1f}  {row.unstable:11.1f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Play and tell."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare.elasticity", description="How closely policies follow what a load takes."
    )
    add_arguments(parser, CHOICES)
    parser.add_argument("--json", action="store_true", help="print the results as JSON, one array")
    parser.add_argument("--each", action="store_true", help="tell each load and its demand curve, too")
    given = parser.parse_args(arguments)
    choices = tuple(name for name in given.policies.split(";") if name)
    jobs = [ElasticityJob(name, seed, choices) for name, seed in loads_of(given)]
    path = OUT / f"elasticity-{given.set}.jsonl"
    kept = kept_results(path, LoadElasticity, jobs, _job_of, _code)
    print(f"{len(kept)} of {len(jobs)} loads are kept in {path}", file=sys.stderr)
    missing = [job for job in jobs if job not in kept]
    for result, took in play_each(play, missing, path, given.processes, given.seconds):
        kept[_job_of(result)] = result
        print(f"{len(kept)}/{len(jobs)} {took:5.0f} s  {_curve(result)}", file=sys.stderr, flush=True)
    if given.json:
        print(msgspec.json.encode(list(kept.values())).decode())
        return 0 if len(kept) == len(jobs) else 1
    for each in kept.values() if given.each else ():
        print(f"{_curve(each)}\n{table(each.by_choice)}\n")
    print(table(means(kept.values())))
    return 0 if len(kept) == len(jobs) else 1


def _curve(found: LoadElasticity) -> str:
    points = ", ".join(f"{point.rate:.3g}/s {point.replicas}" for point in found.demand)
    return f"{found.name}, seed {found.seed}: replicas by rate: {points}"


if __name__ == "__main__":
    sys.exit(main())
