"""The runs of ``loadtrim simulate`` beyond the policies: what would help, and what a fixed group would cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from loadtrim.simulate.study.advice import Advice, advise, share_text
from loadtrim.simulate.study.fixed_group import FixedGroup, fixed_group, replicas_most
from loadtrim.simulate.study.price import MONTH_HOURS, Price

from .simulate_task import PolicyResult, Task

__all__ = ["Study", "cost_of", "price_of", "study_lines", "study_of"]


@dataclass(frozen=True, slots=True)
class Study:
    """The answers of the runs that were played beyond the policies."""

    advice: Advice | None = None
    """The changes that would help; None: the share is held, or nobody asked."""
    advised: str = ""
    """The policy that the advice is about: the best of those that miss the share."""
    fixed: FixedGroup | None = None
    """The fewest replicas that hold the share all the time; None: there are none, or nobody asked."""


def study_of(
    task: Task, runs: Sequence[PolicyResult], *, advice: bool, progress: Callable[[str], None] | None
) -> Study:
    """Play what would help where no policy holds the share, and a fixed group where a price was given."""
    study = Study()
    if advice and task.load.records > 0.0 and not any(run.holds for run in runs):
        best = max(runs, key=lambda run: run.summary.share_in_time)
        options = replace(task.options, seed=best.worst_seed)
        found = advise(task.load, best.config, options, best.worst, progress)
        study = replace(study, advice=found, advised=best.name)
    if task.price is not None:
        seeds = runs[0].summary.seeds
        study = replace(study, fixed=fixed_group(task.load, task.configs[0], task.options, seeds, progress))
    return study


def study_lines(task: Task, runs: Sequence[PolicyResult], study: Study) -> list[str]:
    """Return the answers in words, and what it costs in a table."""
    lines = []
    if study.advice is not None:
        best = next(run for run in runs if run.name == study.advised)
        share = share_text(best.config)
        got = f"{best.summary.share_in_time * 100:.2f} %"
        lines.append(f"advice: {best.name} has {got} in time where {share} are asked for; {study.advice.text}")
    if task.price is not None:
        lines += [*([""] if lines else []), *_money(task, task.price, runs, study.fixed)]
    return lines


def _money(task: Task, price: Price, runs: Sequence[PolicyResult], fixed: FixedGroup | None) -> list[str]:
    asked = share_text(task.configs[0])
    seconds = task.load.seconds
    rows = [("cost", "this load", "a month of it", "in time")]
    rows += [_row(run.name, price, run.summary.replica_minutes, seconds, run.summary.share_in_time) for run in runs]
    if fixed is not None:
        name = f"{fixed.replicas} replicas all the time" if fixed.replicas > 1 else "1 replica all the time"
        rows.append(_row(name, price, fixed.replica_minutes, seconds, fixed.share_in_time))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(text.rjust(size) for text, size in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
    if fixed is None:
        return [*lines, f"no fixed group of up to {replicas_most(task.load, task.configs[0])} replicas holds {asked}"]
    return [*lines, f"{rows[-1][0]}: the fewest that hold {asked} without being scaled", *_saved(runs, fixed)]


def _row(name: str, price: Price, replica_minutes: float, seconds: int, share: float) -> tuple[str, str, str, str]:
    month = price.text(price.per_month(replica_minutes, seconds))
    return name, price.text(price.of(replica_minutes)), month, f"{share * 100:.2f} %"


def _saved(runs: Sequence[PolicyResult], fixed: FixedGroup) -> list[str]:
    """Return what each policy that holds the share costs beside the fixed group; others save nothing that is wanted."""
    lines = []
    for run in runs:
        saved = 1.0 - run.summary.replica_minutes / fixed.replica_minutes
        if run.holds:
            lines.append(f"{run.name} costs {_beside(saved)} these")
    return lines


def _beside(saved: float) -> str:
    if f"{abs(saved):.1%}" == "0.0%":
        return "as much as"
    return f"{abs(saved) * 100:.1f} % {'less' if saved > 0.0 else 'more'} than"


def price_of(task: Task, study: Study) -> dict[str, Any] | None:
    """Return the price and the fixed group, for JSON output; None: nobody asked for money."""
    price, fixed = task.price, study.fixed
    if price is None:
        return None
    told = {
        "per_replica_hour": price.per_replica_hour,
        "currency": price.before or price.behind,
        "month_hours": MONTH_HOURS,
    }
    group = None if fixed is None else asdict(fixed) | _costs(task, price, fixed.replica_minutes)
    return told | {"fixed": group}


def cost_of(task: Task, run: PolicyResult) -> dict[str, Any]:
    """Return what a policy costs, for JSON output; nothing where nobody asked for money."""
    return {} if task.price is None else _costs(task, task.price, run.summary.replica_minutes)


def _costs(task: Task, price: Price, replica_minutes: float) -> dict[str, float]:
    return {
        "cost": price.of(replica_minutes),
        "cost_per_month": price.per_month(replica_minutes, task.load.seconds),
    }
