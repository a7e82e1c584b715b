"""Plays policies on loads drawn by seed: ``python -m benchmarks.compare.held_out tuning|verdict``.

The set ``tuning`` is there to choose by. The set ``verdict`` judges what was chosen, so it is played when everything is
chosen, and what comes of it changes no constant. A load is *kept* where as many records are done in time as are asked
for, but for 0.05 points. Loads count where some fixed number of replicas keeps them, which a search finds. A minute is
left to settle in.

Exit codes: 0 everything was played, 1 the run was cut off by ``--seconds``, 2 wrong use.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean, median

import msgspec

from benchmarks.behaviour import behaviour, shape
from benchmarks.compare import tuning_set, verdict_set
from benchmarks.compare.families import Drawn, draw
from benchmarks.compare.runs import Choice, choice_of
from benchmarks.run_cache import kept_results, play_each
from loadtrim.simulate import Options, Outcome, PlanConfig, simulate

__all__ = [
    "FIXED",
    "OUT",
    "SETS",
    "SETTLING_SECONDS",
    "HeldOutResult",
    "PolicyRow",
    "add_arguments",
    "drawn_of",
    "fixed_choice",
    "jobs_of",
    "keeps",
    "loads_of",
    "names_of",
    "outcome_of",
    "play",
    "play_policy",
    "rows_of",
    "run_code",
]

OUT = Path(__file__).resolve().parents[2] / "out" / "held-out"
SETS = {"tuning": tuning_set, "verdict": verdict_set}
SETTLING_SECONDS = 60
MISSED_POINTS = 0.0005
"""A share that is missed by no more than this is kept: 0.05 points."""
ROOM = 1.2
"""A group begins with so many times the capacity that its first seconds take."""
FIRST_SECONDS = 5
CHOICES = ("objective", "iccbdc22", "closer24", "linear (mu x W)", "keda")
FIXED = "fixed"


class HeldOutResult(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Times in seconds."""

    name: str
    choice: str
    seed: int
    share: float
    """Of the records that arrived after the settling time."""
    asked: float
    work_minutes: float
    """Busy minutes that arrived: the cost of a group without any idle time."""
    replica_minutes: float
    scalings: int
    """After the settling time."""
    moves: int
    cpu_seconds: float
    code: str = ""
    """The digest of the code that made it, see :func:`run_code`."""
    replicas: int = 0
    """Of ``fixed``: the fewest that keep the share; 0: not even a replica for each partition does."""

    @property
    def kept(self) -> bool:
        return keeps(self.share, self.asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """The outcome of one policy on one family, or on all."""

    choice: str
    family: str
    kept: int
    loads: int
    missed_points: float
    """By how many points the share is missed at the worst."""
    late_allowed: float
    """Late records over those that the share permits, mean over the loads."""
    cost: float
    """Replica-minutes over busy minutes, median over the loads."""
    over_fixed: float
    """Replica-minutes over those of the fewest fixed replicas that keep the share, mean over the loads."""
    scalings: float
    """A load, mean."""


def names_of(which: str, families: Sequence[str] = (), seeds: int | None = None) -> list[str]:
    """Return the names of a set's loads, those of one seed after each other.

    Args:
        which: ``tuning`` or ``verdict``.
        families: only these; none: all.
        seeds: of each family only so many.
    """
    chosen = SETS[which]
    return [f"{which}/{family}/{seed}" for seed in chosen.SEEDS[:seeds] for family in families or chosen.FAMILIES]


@lru_cache(maxsize=8)
def drawn_of(name: str) -> Drawn:
    """Return a load of either set by its name."""
    return draw(name, SETS[name.split("/")[0]].FAMILIES)


def play(name: str, choice: str, seed: int) -> HeldOutResult:
    """Play one load with one policy, or with the fewest fixed replicas that keep its share."""
    code = _code(name, choice)
    if choice != FIXED:
        return msgspec.structs.replace(play_policy(name, choice_of(choice), seed), code=code)
    most = len(drawn_of(name).scenario.load.partitions)
    replicas = min(most, max(1, math.ceil(_work_minutes(drawn_of(name)) * 60.0 / drawn_of(name).scenario.load.seconds)))
    while not (result := _with_fixed(name, replicas, seed)).kept and replicas < most:
        replicas = min(most, replicas + max(1, replicas // 8))
    return msgspec.structs.replace(result, replicas=replicas if result.kept else 0, code=code)


def _with_fixed(name: str, replicas: int, seed: int) -> HeldOutResult:
    return play_policy(name, fixed_choice(f"{FIXED}:replicas={replicas}"), seed, replicas)


def fixed_choice(policy: str = FIXED) -> Choice:
    """Return the row of the fewest fixed replicas, by its policy with or without their number."""
    return Choice(name=FIXED, policy=policy, packer="trim")


def _work_minutes(drawn: Drawn) -> float:
    return drawn.scenario.load.records * drawn.scenario.cost_seconds / 60.0


def play_policy(
    name: str, choice: Choice, seed: int, replicas: int | None = None, share: float | None = None
) -> HeldOutResult:
    """Play one load with one policy.

    Args:
        name: of the load.
        choice: the policy with its packer.
        seed: of the run.
        replicas: at the start; None: what the first seconds take, with some room.
        share: what the policy is told to keep; None: what the run is judged by.
    """
    drawn, began = drawn_of(name), time.process_time()
    outcome = outcome_of(drawn, choice, seed, replicas, share)
    return HeldOutResult(
        name=name,
        choice=choice.name,
        seed=seed,
        share=outcome.share_in_time_from(SETTLING_SECONDS),
        asked=drawn.share,
        work_minutes=_work_minutes(drawn),
        replica_minutes=outcome.replica_minutes,
        scalings=outcome.scalings(SETTLING_SECONDS),
        moves=outcome.moves,
        cpu_seconds=time.process_time() - began,
    )


def outcome_of(
    drawn: Drawn,
    choice: Choice,
    seed: int,
    replicas: int | None = None,
    share: float | None = None,
    replicas_at: tuple[tuple[float, int], ...] = (),
) -> Outcome:
    """Play a load that was drawn with one policy; arguments as of :func:`play_policy` and the simulator's options."""
    scenario, load = drawn.scenario, drawn.scenario.load
    first = fmean(load.per_second[:FIRST_SECONDS]) * scenario.cost_seconds
    options = Options(
        seed=seed,
        costs=drawn.costs,
        startup_seconds=drawn.startup_seconds,
        slicing=choice.slicing,
        replicas=replicas or min(len(load.partitions), max(1, math.ceil(ROOM * first))),
        replicas_at=replicas_at,
    )
    config = PlanConfig(
        group="held-out",
        sla_seconds=scenario.objective_seconds,
        sla_share=drawn.share if share is None else share,
        policy=choice.policy_for(scenario),
        packer=choice.packer,
        startup_seconds=drawn.startup_seconds,
    )
    return simulate(load, config, options)


def keeps(share: float, asked: float) -> bool:
    """Return whether a share is kept, but for 0.05 points."""
    return share >= asked - MISSED_POINTS


def _code(name: str, choice: str) -> str:
    return run_code(name, choice_of(choice) if choice != FIXED else fixed_choice())


@lru_cache(maxsize=256)
def run_code(name: str, choice: Choice) -> str:
    """Return the digest of what a run depends on."""
    drawn = f"{drawn_of(name)!r} {shape(play_policy, play, outcome_of)}"
    behaves = behaviour(choice.policy_for(drawn_of(name).scenario), choice.packer, choice.slicing)
    return f"{behaves}-{hashlib.sha256(drawn.encode()).hexdigest()[:12]}"


def rows_of(results: Iterable[HeldOutResult], choices: Sequence[str]) -> list[PolicyRow]:
    """Return a row for each family and policy, and one over all families for each policy."""
    by: dict[tuple[str, int], dict[str, HeldOutResult]] = {}
    for each in results:
        by.setdefault((each.name, each.seed), {})[each.choice] = each
    full = {key: runs for key, runs in by.items() if FIXED in runs and runs[FIXED].replicas}
    families = sorted({name.split("/")[1] for name, _ in full})
    rows = []
    for family in [*families, "all"]:
        for choice in choices:
            pairs = [
                (runs[choice], runs[FIXED])
                for (name, _), runs in full.items()
                if choice in runs and family in (name.split("/")[1], "all")
            ]
            if pairs:
                rows.append(_row(choice, family, pairs))
    return rows


def _row(choice: str, family: str, pairs: Sequence[tuple[HeldOutResult, HeldOutResult]]) -> PolicyRow:
    runs = [run for run, _ in pairs]
    return PolicyRow(
        choice=choice,
        family=family,
        kept=sum(run.kept for run in runs),
        loads=len(runs),
        missed_points=100.0 * max(0.0, max(run.asked - run.share for run in runs)),
        late_allowed=fmean((1.0 - run.share) / (1.0 - run.asked) for run in runs),
        cost=median(run.replica_minutes / run.work_minutes for run in runs),
        over_fixed=fmean(run.replica_minutes / fixed.replica_minutes for run, fixed in pairs),
        scalings=fmean(run.scalings for run in runs),
    )


def play_all(
    jobs: Sequence[tuple[str, str, int]],
    path: Path,
    processes: int,
    seconds: float,
    tell: Callable[[str], None],
) -> Mapping[tuple[str, str, int], HeldOutResult]:
    """Play what is not kept yet; nothing new is begun after so many seconds."""
    kept = kept_results(
        path,
        HeldOutResult,
        jobs,
        lambda each: (each.name, each.choice, each.seed),
        lambda job: _code(job[0], job[1]),
    )
    missing = [job for job in jobs if job not in kept]
    tell(f"{len(kept)} of {len(jobs)} runs are kept in {path}")
    for result, took in play_each(_play_job, missing, path, processes, seconds):
        kept[(result.name, result.choice, result.seed)] = result
        tell(
            f"{len(kept)}/{len(jobs)} {took:5.0f} s  {result.name}, {result.choice}, seed "
            f"{result.seed}: {result.share:.2%} of {result.asked:.1%} at {result.replica_minutes:.2f}, "
            f"{result.scalings} scalings ({result.cpu_seconds:.1f} s of CPU)"
        )
    return kept


def _play_job(job: tuple[str, str, int]) -> HeldOutResult:
    return play(*job)


def table(rows: Sequence[PolicyRow]) -> str:
    """Return the rows for people."""
    head = "family     policy            kept   missed by  late/allowed  cost/work  cost/fixed  scalings"
    return "\n".join([head, *map(_line, rows)])


def _line(row: PolicyRow) -> str:
    kept = f"{row.kept:3}/{row.loads:<3} {row.missed_points:8.2f}  {row.late_allowed:12.2f}"
    return f"{row.family:10} {row.choice:16} {kept}  {row.cost:9.2f}  {row.over_fixed:10.2f}  {row.scalings:8.1f}"


def add_arguments(parser: argparse.ArgumentParser, choices: Sequence[str]) -> None:
    """Add what loads are played, with what, and for how long; ``choices``: policies of the default."""
    parser.add_argument("set", choices=sorted(SETS), help="the loads to choose by, or those that judge")
    parser.add_argument("--policies", default=";".join(choices), metavar="A;B", help="only these (%(default)s)")
    parser.add_argument("--families", default="", metavar="A,B", help="only these (all)")
    parser.add_argument("--seeds", type=int, metavar="N", help="of each family only so many loads (all)")
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="each load with so many seeds (%(default)s)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="at once (all cores)")
    parser.add_argument("--seconds", type=float, default=math.inf, metavar="S", help="begin nothing new after this")


def loads_of(given: argparse.Namespace) -> list[tuple[str, int]]:
    """Return (load, seed) of all that is played, from what :func:`add_arguments` has added."""
    names = names_of(given.set, [name for name in given.families.split(",") if name], given.seeds)
    return [(name, seed) for name in names for seed in range(1, given.runs + 1)]


def jobs_of(given: argparse.Namespace, choices: Sequence[str]) -> list[tuple[str, str, int]]:
    """Return (load, policy, seed) of each run, likewise."""
    return [(name, choice, seed) for name, seed in loads_of(given) for choice in choices]


def main(arguments: Sequence[str] | None = None) -> int:
    """Play and tell."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare.held_out", description="Policies on loads that are drawn by seed."
    )
    add_arguments(parser, CHOICES)
    parser.add_argument("--json", action="store_true", help="print the results as JSON, one array")
    parser.add_argument("--each", action="store_true", help="tell of each load, too")
    given = parser.parse_args(arguments)
    choices = [name for name in given.policies.split(";") if name]
    jobs = jobs_of(given, (FIXED, *choices))
    results = play_all(jobs, OUT / f"{given.set}.jsonl", given.processes, given.seconds, _say)
    if given.json:
        print(msgspec.json.encode(list(results.values())).decode())
        return 0 if len(results) == len(jobs) else 1
    if given.each:
        print(_each(results.values(), choices))
    print(table(rows_of(results.values(), choices)))
    return 0 if len(results) == len(jobs) else 1


def _each(results: Iterable[HeldOutResult], choices: Sequence[str]) -> str:
    lines = []
    ordered = sorted(results, key=lambda each: (each.name, each.seed))
    for each in ordered:
        if each.choice == FIXED:
            lines.append(drawn_of(each.name).scenario.title + f", start-up {drawn_of(each.name).startup_seconds:.3g} s")
        mark = "" if each.kept else " missed"
        lines.append(
            f"    {each.choice:16} seed {each.seed}: {each.share:8.3%} of {each.asked:.1%} at "
            f"{each.replica_minutes:7.2f} (work {each.work_minutes:.2f}), {each.scalings} scalings{mark}"
        )
    return "\n".join(lines)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
