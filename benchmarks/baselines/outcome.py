"""What the history was worth: the lead, late records and replica-minutes, with it and without."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from benchmarks.baselines.schedule import Schedule, clock
from demo.report import CONTROL_FILE, Report, RunSummary, Setting
from demo.telemetry import OwnerChange, fold, load_entries

__all__ = ["GroupsOutcome", "Side", "held_from", "judged", "owning", "reason_at", "render"]


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the groups. Seconds before the rise; negative: after it; None: not in the first half of the high level."""

    name: str
    asked_before_seconds: float | None
    """When its leader wanted the replicas of the rise, never to want fewer."""
    there_before_seconds: float | None
    """When so many owned partitions."""
    reason: str
    """What the leader said when it asked."""
    late: int
    """Records that were not done within W, or never."""
    summary: RunSummary


class GroupsOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Both groups, under one load."""

    rise_at: int
    """T, seconds since the epoch."""
    low_seconds: int
    high_seconds: int
    startup_seconds: float
    """Added to every start of a replica."""
    replicas: int
    """Of the rise: the fewest that can do a second of the high level within W, whoever owns what."""
    learnt: Side
    """Whose history was learnt."""
    plain: Side
    """Without one."""
    weeks: int
    reports: int
    """Of the weeks before."""
    written_seconds: float
    ingest_seconds: float
    baselines_seconds: float

    @property
    def faults(self) -> tuple[str, ...]:
        """What is not as it must be; empty: all is well."""
        found = [
            f"{side.name}: records were lost or left over, or a partition had two owners"
            for side in (self.learnt, self.plain)
            if not side.summary.ok
        ]
        asked = self.learnt.asked_before_seconds
        if asked is None or asked <= 0:
            found.append(f"{self.learnt.name}: its leader did not want the replicas of the rise before it began")
        return tuple(found)

    def as_json(self) -> bytes:
        told = {"faults": self.faults, **msgspec.to_builtins(self)}
        return msgspec.json.format(msgspec.json.encode(told), indent=1)


def held_from(steps: Iterable[tuple[float, int]], least: int, until: float) -> float | None:
    """Since when a count that changes in steps has been at ``least`` without a break, at the time ``until``.

    Args:
        steps: (time, count from then on) in the order of time.
        least: the count.
        until: a time.

    Returns:
        None: it is not at that time.
    """
    since: float | None = None
    for at, count in steps:
        if at > until:
            break
        if count < least:
            since = None
        elif since is None:
            since = at
    return since


def owning(changes: Sequence[OwnerChange]) -> list[tuple[float, int]]:
    """(time, instances that owned a partition from then on) in the order of time."""
    owners: dict[object, str] = {}
    found = []
    for change in sorted(changes, key=lambda change: change.at):
        if change.instance is None:
            owners.pop(change.partition, None)
        else:
            owners[change.partition] = change.instance
        found.append((change.at, len(set(owners.values()))))
    return found


def reason_at(directory: Path, at: float) -> str:
    """What the leader of a run said in its decision of that time."""
    decisions = fold(load_entries(directory / CONTROL_FILE)).decisions
    return next((decision.reason for decision in decisions if decision.at >= at), "")


def judged(
    reports: tuple[Report, Report], names: tuple[str, str], directories: tuple[Path, Path], schedule: Schedule
) -> tuple[int, Side, Side]:
    """The replicas of the rise, and both groups.

    What was asked for counts where it is still wanted halfway through the high level.
    """
    replicas = _needed(reports[0].setting, schedule)
    middle = schedule.rise_at + (len(reports[0].setting.per_second) - schedule.low_seconds) / 2
    sides = []
    for report, name, directory in zip(reports, names, directories, strict=True):
        asked = held_from(report.wanted, replicas, middle)
        there = held_from(owning(report.owner_changes), replicas, middle)
        sides.append(
            Side(
                name=name,
                asked_before_seconds=None if asked is None else schedule.rise_at - asked,
                there_before_seconds=None if there is None else schedule.rise_at - there,
                reason="" if asked is None else reason_at(directory, asked),
                late=sum(second.late for second in report.seconds),
                summary=report.summary,
            )
        )
    return replicas, sides[0], sides[1]


def _needed(setting: Setting, schedule: Schedule) -> int:
    """The fewest replicas that can do the high level's usual burst of a second within W."""
    burst = statistics.median(setting.per_second[schedule.low_seconds :])
    return max(1, math.ceil(burst * setting.busy_seconds / min(1.0, setting.objective_seconds)))


def render(outcome: GroupsOutcome) -> str:
    """The outcome as a readable table."""
    sides = (outcome.learnt, outcome.plain)
    summaries = [side.summary for side in sides]
    number = outcome.replicas
    rows = [
        ("", [side.name for side in sides]),
        (f"{number} replicas asked for", [_lead(side.asked_before_seconds) for side in sides]),
        (f"{number} replicas own partitions", [_lead(side.there_before_seconds) for side in sides]),
        ("late records", [f"{side.late:,} of {side.summary.records:,}" for side in sides]),
        ("in time", [f"{s.share_in_time:.2%}" for s in summaries]),
        ("latency p99, max", [f"{s.latency.p99:.2f} s, {s.latency.max:.2f} s" for s in summaries]),
        ("replica-minutes", [f"{s.replica_minutes:.2f} (at most {s.replicas_max})" for s in summaries]),
        ("lost, repeated, double owners", [f"{s.lost}, {s.repeated}, {s.double_owners}" for s in summaries]),
        ("records sent late, at most", [f"{s.behind_max * 1e3:.0f} ms" for s in summaries]),
    ]
    widths = [max(len(row[0]) for row in rows), *(max(len(row[1][side]) for row in rows) for side in (0, 1))]
    lines = ["  ".join(text.ljust(width) for text, width in zip([name, *cells], widths, strict=True)).rstrip()
             for name, cells in rows]  # fmt: skip
    s = summaries[0]
    head = (
        f"The load rose at {clock(outcome.rise_at)} UTC from {outcome.low_seconds} s of a low level to "
        f"{outcome.high_seconds} s of a high one, up to {s.rate_max:.0f} records/s. A replica takes "
        f"{outcome.startup_seconds:g} s to start; {s.objective_share:.1%} of the records are to be done within "
        f"{s.objective_seconds:g} s."
    )
    why = [f"{side.name}, when it asked: {side.reason}" for side in sides if side.reason]
    learnt = (
        f"Learnt from {outcome.weeks} weeks of telemetry, {outcome.reports:,} reports: written in "
        f"{outcome.written_seconds:.0f} s, read (ingest) in {outcome.ingest_seconds:.0f} s, learnt from (baselines) in "
        f"{outcome.baselines_seconds:.0f} s."
    )
    return "\n".join([head, "", *lines, "", *why, learnt])


def _lead(seconds: float | None) -> str:
    if seconds is None:
        return "not in time to tell"
    return f"{abs(seconds):.1f} s {'before' if seconds > 0 else 'after'} the rise"
