"""Costs of policies at the same share: ``python -m benchmarks.compare.equal_share tuning|verdict``.

A policy that keeps less than is asked is cheap, and one that keeps more is dear. So costs of policies as they come say
little. Here each policy's own parameter is searched for the cheapest run that keeps the share on a load. That is
hindsight: a user would have to tune it for this load and no other. What differs then is when and where a policy has its
replicas, and not how much it keeps free. For ``keda`` the parameter is the threshold, fitted to W. For ``linear`` it is
mu, and for ``clairvoyant`` the share of a replica that it counts on.

The zero line of a load is the cheapest run that any of them was found with, whole partitions only. Among them are the
fewest fixed replicas and ``clairvoyant``, with two packers. That one knows the moment and the partition of every
record, and asks for replicas a start-up time ahead. It cannot know the costs of single records, and need not be the
cheapest. Each replica that it asks for ahead of a peak is paid for while it starts. The same with partitions that may
be cut stands beside them.

Exit codes: as of :mod:`.held_out`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import Protocol, TypeVar

import msgspec

from benchmarks.behaviour import shape
from benchmarks.compare.families import Drawn
from benchmarks.compare.held_out import (
    FIXED,
    OUT,
    HeldOutResult,
    add_arguments,
    drawn_of,
    fixed_choice,
    jobs_of,
    play,
    play_policy,
    run_code,
)
from benchmarks.compare.runs import Choice
from benchmarks.run_cache import kept_results, play_each

__all__ = [
    "KNOBS",
    "EqualShareRow",
    "EqualShareRun",
    "Knob",
    "cheapest",
    "judged",
    "play_equal",
    "rows_of",
    "zero_line",
]

FACTORS = (0.125, 8.0)
"""The least and the largest factor that a parameter is tried with, about that of the replicas asked for. Chosen."""
STEP, HALVINGS = 1.5, 3
"""Steps go on until the share is on the other side, and are then halved so often by their logarithm. The last factor is
known to 1.5 ^ (1/8), 5 %. Chosen."""
UTILIZATION = 0.7
"""The target of ``hpa_cpu`` as it comes."""
KNOWING = "clairvoyant"


class Run(Protocol):
    """A run as far as the search looks at it."""

    @property
    def kept(self) -> bool: ...

    @property
    def replica_minutes(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """A policy, and the parameter by which it is made to keep more or less."""

    name: str
    packer: str
    policy: str
    """Name and parameter: ``{mu}``, ``{worth}``, ``{utilization}`` and ``{counted}`` become smaller with the factor."""
    asks: bool = False
    """True: the parameter is the share that the policy is asked for."""
    slicing: bool = False

    def choice(self, drawn: Drawn, factor: float) -> Choice:
        """Return the policy with a parameter that makes it ask for about so many times the replicas."""
        policy = self.policy.format(
            mu=repr(1.0 / drawn.scenario.cost_seconds / factor),
            worth=repr(drawn.scenario.worth / factor),
            utilization=repr(min(0.99, UTILIZATION / factor)),
            counted=repr(1.0 / factor),
        )
        return Choice(name=self.name, policy=policy, packer=self.packer, slicing=self.slicing)

    def share(self, drawn: Drawn, factor: float) -> float:
        """Return the share that the policy is told to keep; within what the setting takes."""
        if not self.asks:
            return drawn.share
        return min(0.99999, max(0.5, 1.0 - (1.0 - drawn.share) / factor**4))


KNOBS = (
    Knob(name="objective", packer="trim", policy="objective", asks=True),
    Knob(name="iccbdc22", packer="iccbdc22", policy="iccbdc22:mu={mu}"),
    Knob(name="closer24", packer="closer24", policy="closer24:mu={mu}"),
    Knob(name="linear", packer="sticky", policy="linear:mu={mu}"),
    Knob(name="keda", packer="sticky", policy="keda:lag_threshold_records={worth}"),
    Knob(name="hpa_cpu", packer="sticky", policy="hpa_cpu:target_utilization={utilization}"),
    Knob(name=KNOWING, packer="trim", policy="clairvoyant:counted={counted}"),
    Knob(name=f"{KNOWING}, dealt anew", packer="closer24", policy="clairvoyant:counted={counted}"),
    Knob(name=f"{KNOWING}, slicing", packer="trim", policy="clairvoyant:counted={counted},sliced=1", slicing=True),
)


class EqualShareRun(msgspec.Struct, frozen=True, kw_only=True):
    """The cheapest run of a policy that keeps the share of a load."""

    name: str
    choice: str
    seed: int
    code: str
    factor: float
    """The parameter's; 0: no parameter kept the share, and ``best`` is the run that kept most."""
    default: HeldOutResult
    """The run of the policy as it comes."""
    best: HeldOutResult
    tried: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualShareRow:
    """The outcome of one policy on one family, or on all."""

    choice: str
    family: str
    kept: int
    """Loads on which it keeps the share with some parameter."""
    loads: int
    """Loads that some policy keeps."""
    cost: float
    """Replica-minutes over those of the zero line, median over the loads that are kept; NaN: none is."""
    cost_worst: float
    factors: tuple[float, float]
    """The least and the largest that was the cheapest: so differently the parameter has to be set."""
    scalings: float
    """A load, median."""


R = TypeVar("R", bound=Run)


def cheapest(play_with: Callable[[float], R]) -> dict[float, R]:
    """Search for the cheapest run that keeps its share; return all runs by their factor.

    Args:
        play_with: plays with a factor; the larger, the more replicas.
    """
    tried = {1.0: play_with(1.0)}
    kept_at_first = tried[1.0].kept
    step = 1.0 / STEP if kept_at_first else STEP
    factor = 1.0
    while FACTORS[0] < factor < FACTORS[1] and tried[factor].kept == kept_at_first:
        before, factor = factor, min(FACTORS[1], max(FACTORS[0], factor * step))
        tried[factor] = play_with(factor)
    if tried[factor].kept == kept_at_first:
        return tried
    missed, kept = (factor, before) if kept_at_first else (before, factor)
    for _ in range(HALVINGS):
        middle = math.sqrt(missed * kept)
        tried[middle] = play_with(middle)
        if tried[middle].kept:
            kept = middle
        else:
            missed = middle
    return tried


def play_equal(job: tuple[str, str, int]) -> EqualShareRun:
    """Play a load with a policy as often as the search asks. ``job``: load, policy, seed."""
    name, choice, seed = job
    if choice == FIXED:
        runs = {1.0: play(name, FIXED, seed)}
    else:
        drawn, knob = drawn_of(name), knob_of(choice)
        runs = cheapest(
            lambda factor: play_policy(name, knob.choice(drawn, factor), seed, share=knob.share(drawn, factor))
        )
    kept = {factor: run for factor, run in runs.items() if run.kept}
    factor = min(kept, key=lambda at: kept[at].replica_minutes, default=0.0)
    best = kept[factor] if kept else max(runs.values(), key=lambda run: run.share)
    return EqualShareRun(
        name=name,
        choice=choice,
        seed=seed,
        code=_code(name, choice),
        factor=factor,
        default=runs[1.0],
        best=best,
        tried=len(runs),
    )


def knob_of(name: str) -> Knob:
    return next(knob for knob in KNOBS if knob.name == name)


@lru_cache(maxsize=1024)
def _code(name: str, choice: str) -> str:
    of = fixed_choice() if choice == FIXED else knob_of(choice).choice(drawn_of(name), 1.0)
    return f"{run_code(name, of)}-{shape(play_equal, cheapest, Knob)}-{FACTORS}/{STEP}/{HALVINGS}"


def rows_of(runs: Iterable[EqualShareRun]) -> list[EqualShareRow]:
    """Return a row for each policy over all families, then one for each family and policy."""
    full = judged(runs)
    families = sorted({zero.name.split("/")[1] for _, zero in full})
    rows = []
    for family in ["all", *families]:
        there = [(played, zero) for played, zero in full if family in ("all", zero.name.split("/")[1])]
        for choice in (FIXED, *(knob.name for knob in KNOBS)):
            pairs = [(played[choice], zero) for played, zero in there if choice in played]
            if pairs:
                rows.append(_row(choice, family, pairs))
    return rows


def judged(runs: Iterable[EqualShareRun]) -> list[tuple[dict[str, EqualShareRun], EqualShareRun]]:
    """Return the searches of each load by policy, with its zero line; not of loads that nobody keeps."""
    by: dict[tuple[str, int], dict[str, EqualShareRun]] = {}
    for run in runs:
        by.setdefault((run.name, run.seed), {})[run.choice] = run
    return [(by[load], zero) for load in sorted(by) if (zero := zero_line(by[load])) is not None]


def zero_line(played: Mapping[str, EqualShareRun]) -> EqualShareRun | None:
    """Return the cheapest search that keeps a load's share with whole partitions; None: none does."""
    sliced = {knob.name for knob in KNOBS if knob.slicing}
    there = [run for name, run in played.items() if run.factor and name not in sliced]
    return min(there, key=lambda run: run.best.replica_minutes, default=None)


def _row(choice: str, family: str, pairs: Sequence[tuple[EqualShareRun, EqualShareRun]]) -> EqualShareRow:
    kept = [(run, zero) for run, zero in pairs if run.factor]
    costs = [run.best.replica_minutes / zero.best.replica_minutes for run, zero in kept]
    return EqualShareRow(
        choice=choice,
        family=family,
        kept=len(kept),
        loads=len(pairs),
        cost=median(costs) if costs else math.nan,
        cost_worst=max(costs, default=math.nan),
        factors=(min((run.factor for run, _ in kept), default=0.0), max((run.factor for run, _ in kept), default=0.0)),
        scalings=median(run.best.scalings for run, _ in kept) if kept else math.nan,
    )


def table(rows: Sequence[EqualShareRow]) -> str:
    """Return the rows for people."""
    head = (
        "family     policy                   kept     cost, of the least (worst)      scalings  parameter from default"
    )
    return "\n".join([head, *map(_line, rows)])


def _line(row: EqualShareRow) -> str:
    least, most = row.factors
    return (
        f"{row.family:10} {row.choice:23} {row.kept:3}/{row.loads:<3}  {row.cost:10.2f} ({row.cost_worst:.2f})"
        f"{'':16}{row.scalings:6.1f}    {least:.2g} to {most:.2g}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Play and tell."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare.equal_share", description="What policies cost where each keeps the share."
    )
    known = (FIXED, *(knob.name for knob in KNOBS))
    add_arguments(parser, known)
    parser.add_argument("--json", action="store_true", help="print the runs as JSON, one array")
    given = parser.parse_args(arguments)
    choices = [name for name in given.policies.split(";") if name]
    for name in choices:
        if name not in known:
            parser.error(f"there is no policy {name!r} here, so nothing was played; choose from: {'; '.join(known)}")
    jobs, path = jobs_of(given, choices), OUT / f"equal-{given.set}.jsonl"
    kept = kept_results(
        path,
        EqualShareRun,
        jobs,
        lambda run: (run.name, run.choice, run.seed),
        lambda job: _code(job[0], job[1]),
    )
    print(f"{len(kept)} of {len(jobs)} searches are kept in {path}", file=sys.stderr)
    missing = [job for job in jobs if job not in kept]
    for run, took in play_each(play_equal, missing, path, given.processes, given.seconds):
        kept[run.name, run.choice, run.seed] = run
        print(f"{len(kept)}/{len(jobs)} {took:5.0f} s  {_said(run)}", file=sys.stderr, flush=True)
    if given.json:
        print(msgspec.json.encode(list(kept.values())).decode())
    else:
        print(table(rows_of(kept.values())))
    return 0 if len(kept) == len(jobs) else 1


def _said(run: EqualShareRun) -> str:
    found = f"factor {run.factor:.2g}" if run.factor else "kept with no parameter"
    return (
        f"{run.name}, {run.choice}, seed {run.seed}: {found}, {run.best.share:.2%} of {run.best.asked:.1%} at "
        f"{run.best.replica_minutes:.2f} ({run.tried} tried; by default {run.default.share:.2%} at "
        f"{run.default.replica_minutes:.2f})"
    )


if __name__ == "__main__":
    sys.exit(main())
