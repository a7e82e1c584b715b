"""Verdict on one run: from what the programs and their orchestrator wrote down, and beside it what the group said.

Whether a record was in time is taken from the programs' journals alone. What the group's status said of it at the end
of the judged time stands beside the truth for the same minute.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from loadtrim.observer.group import WINDOW_SECONDS, GroupObserver
from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.telemetry_records import DecisionRecord

from .cells import Cell

__all__ = ["Done", "Life", "Played", "Sent", "StatusMinute", "Verdict", "judge"]

REASONS_MAX = 12
"""Reasons of scalings that are kept. Chosen."""


class Sent(NamedTuple):
    """One record that is in the topic. Times are seconds since the load began."""

    at: float
    """The record's timestamp."""
    partition: int
    offset: int


class Done(NamedTuple):
    """One time that a program was through with a record."""

    at: float
    partition: int
    offset: int


class Life(NamedTuple):
    """One replica."""

    asked_at: float
    ended_at: float
    """Infinite: it runs on."""


class Played(NamedTuple):
    """Everything that was written down in a run. Times are seconds since the load began."""

    sent: Sequence[Sent]
    done: Sequence[Done]
    lives: Sequence[Life]
    control: Sequence[tuple[float, Record]]
    """The group's control topic: (time of append, record)."""
    group: str


class StatusMinute(msgspec.Struct, frozen=True, kw_only=True):
    """One minute as the group's status told it, and as it was."""

    share: float | None
    """Of the records done in time; None: not known."""
    share_true: float | None
    latency_p99: float | None
    """Upper bound of the bucket that holds it; None: not known."""
    latency_p99_true: float | None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a cell in numbers."""

    records: int
    """In the judged time."""
    late: int
    """Of these; what was never done counts."""
    whole_records: int
    whole_late: int
    lost: int
    repeated: int
    """Records that programs were through with more than once."""
    replica_minutes: float
    """From being asked for until gone, while the load lasted."""
    wanted: tuple[tuple[float, int], ...]
    """(second, replicas): each change of what was asked for."""
    wanted_min: int | None
    """Fewest that were asked for in the judged time; None: nothing was decided."""
    wanted_max: int | None
    scalings: int
    """Changes in the judged time."""
    scalings_whole: int
    told: StatusMinute
    reasons: tuple[str, ...]
    """Reasons of the scalings in the judged time."""

    @property
    def share(self) -> float:
        """Return the share in time of the judged records."""
        return 1.0 if not self.records else 1.0 - self.late / self.records

    @property
    def whole_share(self) -> float:
        return 1.0 if not self.whole_records else 1.0 - self.whole_late / self.whole_records

    def holds(self, share: float) -> bool:
        """Return whether the judged records were in time to that share, and none was lost."""
        return self.share >= share and not self.lost

    def problems(self, cell: Cell, fewest: int | None) -> tuple[str, ...]:
        """Return what is off, beside the fewest replicas that hold the objective (None: that is not known)."""
        found = []
        if not self.share >= cell.objective_share:
            found.append("late")
        if fewest is not None and self.wanted_max is not None and self.wanted_min is not None:
            found += ["too many"] if self.wanted_max > fewest + 1 else []
            found += ["too few"] if self.wanted_min < fewest - 1 else []
        if cell.scalings_max is not None:
            judged_whole = cell.replica_minutes_max is not None
            scalings = self.scalings_whole if judged_whole else self.scalings
            found += ["scalings"] if scalings > cell.scalings_max else []
        if cell.replica_minutes_max is not None and self.replica_minutes > cell.replica_minutes_max:
            found.append("replica-minutes")
        found += ["lost"] if self.lost else []
        found += ["repeated"] if self.repeated else []
        return tuple(found)


def judge(cell: Cell, played: Played) -> Verdict:
    """Sum up a run. O(n log n) in records.

    Args:
        cell: what was played.
        played: what was written down.
    """
    first, times = _first_done(played.done)
    judged = [sent for sent in played.sent if _within(sent.at, cell)]
    decisions = [(at, record) for at, record in played.control if isinstance(record, DecisionRecord) and at >= 0]
    wanted = _changes(decisions)
    last = cell.windows[-1]
    steady = [record.replicas_wanted for at, record in decisions if last[0] <= at < last[1]]
    changed = [(at, record) for at, record in wanted[1:] if _within(at, cell)]
    return Verdict(
        records=len(judged),
        late=_late(judged, first, cell),
        whole_records=len(played.sent),
        whole_late=_late(played.sent, first, cell),
        lost=sum((sent.partition, sent.offset) not in first for sent in played.sent),
        repeated=sum(count > 1 for count in times.values()),
        replica_minutes=sum(
            max(0.0, min(life.ended_at, cell.seconds) - max(life.asked_at, 0.0)) for life in played.lives
        )
        / 60,
        wanted=tuple((round(at, 1), record.replicas_wanted) for at, record in wanted),
        wanted_min=min(steady, default=None),
        wanted_max=max(steady, default=None),
        scalings=len(changed),
        scalings_whole=max(0, len(wanted) - 1),
        told=_told(cell, played, first),
        reasons=tuple(f"{at:.0f} s: {record.reason}" for at, record in changed[:REASONS_MAX]),
    )


def _first_done(done: Iterable[Done]) -> tuple[dict[tuple[int, int], float], Counter[tuple[int, int]]]:
    first: dict[tuple[int, int], float] = {}
    times: Counter[tuple[int, int]] = Counter()
    for each in done:
        key = (each.partition, each.offset)
        times[key] += 1
        first[key] = min(each.at, first.get(key, math.inf))
    return first, times


def _within(at: float, cell: Cell) -> bool:
    return any(begin <= at < end for begin, end in cell.windows)


def _late(sent: Iterable[Sent], first: dict[tuple[int, int], float], cell: Cell) -> int:
    latencies = (first.get((each.partition, each.offset), math.inf) - each.at for each in sent)
    return sum(latency > cell.objective_seconds for latency in latencies)


def _changes(decisions: Sequence[tuple[float, DecisionRecord]]) -> list[tuple[float, DecisionRecord]]:
    """Return the first decision, and each that asks for another number than the one before."""
    changed = [
        (at, after)
        for (_, before), (at, after) in pairwise(decisions)
        if before.replicas_wanted != after.replicas_wanted
    ]
    return [*decisions[:1], *changed]


def _told(cell: Cell, played: Played, first: dict[tuple[int, int], float]) -> StatusMinute:
    """Compare the status at the end of the judged time with the records that were done in its window."""
    end = cell.windows[-1][1]
    observer = GroupObserver(played.group)
    for at, record in played.control:
        if at <= end:
            observer.apply(record, at)
    state = observer.state(end)
    sent_at = {(each.partition, each.offset): each.at for each in played.sent}
    latencies = sorted(
        at - sent_at[key] for key, at in first.items() if key in sent_at and end - WINDOW_SECONDS <= at < end
    )
    in_time = sum(latency <= cell.objective_seconds for latency in latencies)
    return StatusMinute(
        share=state.in_time_share,
        share_true=in_time / len(latencies) if latencies else None,
        latency_p99=state.latency_p99,
        latency_p99_true=latencies[math.ceil(0.99 * len(latencies)) - 1] if latencies else None,
    )
