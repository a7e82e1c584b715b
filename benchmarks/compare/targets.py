"""What ``objective`` is to reach, and whether it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.compare.runs import CHOICES, FIRST_SEED, STARTUPS, ComparisonJob, ComparisonResult, grouped
from benchmarks.compare.scenarios import LEVELS, constant_name, scenario_of

__all__ = ["OURS", "RANGED", "RANGE_SEEDS", "SEEDS", "TargetVerdict", "extra_jobs", "on_front", "rivals", "verdicts"]

OURS = "objective"
SLICED = "objective, slicing"
SEEDS = range(1, 11)
RANGED = ("trace", "trace-skewed")
"""The loads on which `objective`, with and without slicing, is played with further seeds: its rows are ranges."""
RANGE_SEEDS = range(FIRST_SEED, FIRST_SEED + 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetVerdict:
    """One target."""

    target: str
    measured: str
    met: bool | None
    """None: not everything that it takes was played."""
    miss: str = ""
    """By how much it is missed."""


def on_front(result: ComparisonResult, others: Sequence[ComparisonResult]) -> bool:
    """Is nobody at least as good in both share and replica-minutes, and better in one?"""
    mine = (result.share, -result.replica_minutes)
    return not any(
        other.share >= mine[0] and -other.replica_minutes >= mine[1] and (other.share, -other.replica_minutes) != mine
        for other in others
    )


def rivals(results: Sequence[ComparisonResult]) -> list[ComparisonResult]:
    """Whom a result competes with: those who neither know the future nor slice."""
    by_name = {choice.name: choice for choice in CHOICES}
    return [each for each in results if not by_name[each.job.choice].apart]


def extra_jobs(quick: bool) -> list[ComparisonJob]:
    """Runs beside the tables."""
    seeds = SEEDS if not quick else range(1, 2)
    constant = [
        ComparisonJob(scene=constant_name(level, seed), choice=OURS, startup_seconds=1.0, seed=seed, quick=quick)
        for level in LEVELS
        for seed in seeds
    ]
    further = [
        ComparisonJob(scene=scene, choice=choice, startup_seconds=startup, seed=seed, quick=quick)
        for scene in RANGED
        for choice in (OURS, SLICED)
        for startup in STARTUPS
        for seed in RANGE_SEEDS[1:]
    ]
    return [
        *constant,
        *further,
        ComparisonJob(scene="iccbdc22", choice=OURS, startup_seconds=1.0, quick=quick),
        ComparisonJob(scene="iccbdc22", choice=SLICED, startup_seconds=1.0, quick=quick),
        ComparisonJob(scene="landau-100", choice=SLICED, startup_seconds=1.0, quick=quick),
    ]


def verdicts(
    results: Mapping[str, ComparisonResult], scenes: Sequence[str], quick: bool = False
) -> list[TargetVerdict]:
    """Every target beside what came of it."""

    def of(scene: str, choice: str = SLICED) -> ComparisonResult | None:
        return results.get(ComparisonJob(scene=scene, choice=choice, startup_seconds=1.0, quick=quick).key)

    def within(
        target: str,
        result: ComparisonResult | None,
        miss: Callable[[ComparisonResult], str],
        words: Callable[[ComparisonResult], str],
    ) -> TargetVerdict:
        if result is None:
            return TargetVerdict(target=target, measured="not played", met=None)
        missed = miss(result)
        return TargetVerdict(target=target, measured=words(result), met=not missed, miss=missed)

    return [
        *_fronts(results, scenes),
        _quiet(results, quick),
        within(
            "slicing, 10-minute trace, 5 partitions: at least 99.9 % at no more than 28.6 replica-minutes",
            of("trace"),
            lambda each: _short(each, 0.999, 28.6),
            _cost,
        ),
        within(
            "slicing, the same with half the load on 2 of 9 partitions: at least 99.85 % at no more than 28.5",
            of("trace-skewed"),
            lambda each: _short(each, 0.9985, 28.5),
            _cost,
        ),
        within(
            "slicing, ICCBDC'22's experiment 1: 100 % at no more than 20.0 (the paper: 100 % at 18)",
            of("iccbdc22"),
            lambda each: _short(each, 1.0, 20.0),
            lambda each: f"{_cost(each)}{_whole(of('iccbdc22', OURS))}",
        ),
        within(
            "slicing, Landau's stream of 32 partitions (asked for W = 0.2 s): p99 at most 0.1 s with at most 13.5 "
            "consumers on average",
            of("landau-100"),
            lambda each: _above(("p99", each.p99, 0.1), ("consumers", each.replicas_mean, 13.5)),
            lambda each: (
                f"p99 {each.p99:.3f} s with {each.replicas_mean:.2f} consumers, on the "
                f"{'published stream' if scenario_of('landau-100', quick).recorded else 'STAND-IN, a generated stream'}"
            ),
        ),
    ]


def _cost(result: ComparisonResult) -> str:
    return f"{result.share:.3%} at {result.replica_minutes:.2f}"


def _short(result: ComparisonResult, share: float, minutes: float) -> str:
    """By how much a share and a cost are missed; empty: they are not."""
    late = share - round(result.share, 5)
    parts = (
        f"by {late * 100.0:.3f} points of share" if late > 0.0 else "",
        _above(("replica-minutes", result.replica_minutes, minutes)),
    )
    return ", ".join(filter(None, parts))


def _above(*measures: tuple[str, float, float]) -> str:
    """By how much each of (name, value, most) is too large; empty: none is."""
    return ", ".join(f"{name} by {value / most - 1.0:.1%}" for name, value, most in measures if value > most)


def _whole(result: ComparisonResult | None) -> str:
    return f" (whole partitions: {_cost(result)})" if result is not None else ""


def _fronts(results: Mapping[str, ComparisonResult], scenes: Sequence[str]) -> list[TargetVerdict]:
    """One verdict for every load: is ``objective`` on the front at every start-up time?"""
    groups, told = grouped(results), []
    complete = sum(not choice.apart for choice in CHOICES)
    for scene in scenes:
        target = f"`objective` on the front of (share, replica-minutes): {scene}"
        known = {startup: rivals(groups.get((scene, startup), [])) for startup in STARTUPS}
        if any(len(entries) < complete for entries in known.values()):
            told.append(TargetVerdict(target=target, measured="not all of it was played", met=None))
            continue
        off = []
        for startup, entries in known.items():
            ours = next(each for each in entries if each.job.choice == OURS)
            better = [each for each in entries if not on_front(ours, [each])]
            if better:
                off.append(f"not at {startup:g} s: {', '.join(_better(ours, each) for each in better)}")
        told.append(
            TargetVerdict(
                target=target,
                measured="; ".join(off) or "at every start-up time",
                met=not off,
                miss=f"at {len(off)} of {len(STARTUPS)} start-up times" if off else "",
            )
        )
    return told


def _better(ours: ComparisonResult, other: ComparisonResult) -> str:
    """By how much somebody beats ours."""
    points, minutes = 100.0 * (other.share - ours.share), other.replica_minutes - ours.replica_minutes
    return f"`{other.job.choice}` ({points:+.2f} points of share, {minutes:+.2f} replica-minutes)"


def _quiet(results: Mapping[str, ComparisonResult], quick: bool) -> TargetVerdict:
    target = (
        f"no scaling after the first minute of a constant load with +-10 % noise, {len(SEEDS)} seeds, "
        f"{', '.join(f'{level:g}' for level in LEVELS)} replicas' worth"
    )
    jobs = [job for job in extra_jobs(quick) if job.scene.startswith("constant-")]
    played = [results[job.key] for job in jobs if job.key in results]
    if not played:
        return TargetVerdict(target=target, measured="not played", met=None)
    by_level: dict[str, list[int]] = {}
    for each in played:
        by_level.setdefault(each.job.scene.split("-")[1], []).append(each.scalings_after)
    loud = {level: counts for level, counts in by_level.items() if any(counts)}
    words = "; ".join(f"{level}: {', '.join(map(str, counts))}" for level, counts in loud.items())
    count = sum(each.scalings_after > 0 for each in played)
    measured = f"{count} of {len(played)} runs scale"
    measured += f" (scalings by seed at {words})" if loud else ""
    return TargetVerdict(
        target=target,
        measured=measured,
        met=(not loud) if len(played) == len(jobs) else None,
        miss=f"by {count} runs" if loud else "",
    )
