"""The records that a member has fetched and not done, per partition, and why records were done late.

Theory of operation: fetched records wait in *runs*: consecutive records whose time stamps lie in the same grid slot, so
a burst of 1 000 records is one run. User code gets records in the order of the log, so the first n records of the runs
are the next n that are done.

Beside them runs a *server of its own*: when would this record have been done if the member had nothing but this
partition? (Lindley's recursion: it starts when it has arrived and the one before it is done.) A record that would have
been late even there is late because its partition is too large for one member, and no replica can help.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat

import msgspec

from .windows import EDGE, BucketGrid

__all__ = [
    "LATE_SPAN_SECONDS",
    "MARGIN_SECONDS",
    "RUNS_MAX",
    "Judge",
    "LateCause",
    "Mark",
    "NotLate",
    "RecordQueue",
    "Run",
    "runs_of",
]

RUNS_MAX = 4096
"""Runs kept per partition; beyond it a run is merged into the one before it, and its records look that much older."""
LATE_SPAN_SECONDS = 1.0
"""Records that are late already wait in runs of this length: a backlog is not worth more."""
MARGIN_SECONDS = 0.015
"""What a member needs beside user code (handing out, a handoff) and may not count on: the least overhead that sizing
keeps free."""
_OLD_SECONDS = 10.0


class LateCause(enum.StrEnum):
    """Why a record was done later than the objective, as far as a member can tell. The first that holds counts."""

    ALREADY_LATE = "already_late"
    """It was older than the objective before this member could have seen it: late at its previous owner or producer, or
    not to be had from the broker."""
    BLOCKED = "blocked"
    """Its partition was paused by the user, or did not advance for reasons other than load, while it waited."""
    SERIAL = "serial"
    """Its partition alone, on this member alone, would have been too much."""
    QUEUED = "queued"
    """It waited for other partitions' records. The leader tells why nobody else had them: replica on its way,
    forecast or placement."""


class Mark(enum.IntEnum):
    """What is known of a run when it is fetched."""

    FRESH = 0
    LATE = 1
    """Older than the objective when it could first be seen."""
    UNTIMED = 2
    """Without time stamps: never judged."""


class NotLate(enum.Enum):
    """Records that were not late when they were judged count as one of these."""

    IN_TIME = enum.auto()
    """The records are done."""
    UNKNOWN = enum.auto()
    """User code may work on them still."""
    UNDECIDED = enum.auto()
    """User code may work on them still, and its commits may tell: they count when that is decided."""


class Run:
    """Consecutive records of the log with time stamps in one grid slot."""

    __slots__ = ("count", "mark", "timestamp")

    def __init__(self, count: int, timestamp: float, mark: Mark = Mark.FRESH) -> None:
        self.count = count
        self.timestamp = timestamp
        """Of its first record, seconds since the epoch; where there are none, when it was fetched (log clock)."""
        self.mark = mark


def runs_of(
    timestamps: Sequence[float], grid: BucketGrid, now: float, counts: Sequence[int] | None = None
) -> list[tuple[float, int]]:
    """Cut a batch into (first time stamp, records) per run; a negative time stamp is none, and is told as -1.

    ``counts``: how many records each time stamp stands for; None: one each. An old backlog, where nothing depends on
    it, is cut by whole seconds. About 30 ns per time stamp where the batch lies in one run, 80 ns otherwise.
    """
    if not timestamps:
        return []
    low, high = min(timestamps), max(timestamps)
    total = len(timestamps) if counts is None else sum(counts)
    if high < 0.0:
        return [(-1.0, total)]
    inverse = grid.inverse if high > now - _OLD_SECONDS else 1.0
    if low >= 0.0 and int(low * inverse + EDGE) == int(high * inverse + EDGE):
        return [(timestamps[0], total)]
    runs: list[tuple[float, int]] = []
    slot, first, since, before = -2, 0.0, 0, 0
    for timestamp, records in zip(timestamps, counts if counts is not None else repeat(1), strict=False):
        found = int(timestamp * inverse + EDGE) if timestamp >= 0.0 else -1
        if found != slot:
            if before:
                runs.append((first, before - since))
            slot, first, since = found, timestamp if timestamp >= 0.0 else -1.0, before
        before += records
    runs.append((first, before - since))
    return runs


class Judge(msgspec.Struct):
    """Counts of one member, by outcome. Every record done is in exactly one of them, or is not decided yet."""

    objective_seconds: float
    concurrency: float
    offset_seconds: float = 0.0
    """Own clock minus the log's: by so much measured latencies are too large."""
    in_time: int = 0
    untimed: int = 0
    """Records without a time stamp: neither in time nor late."""
    unknown: int = 0
    """Records that were in time when they were handed out, and nobody knows when they were done."""
    not_late: NotLate = NotLate.IN_TIME
    """Records that are judged now and not late count as this."""
    late: dict[LateCause, int] = msgspec.field(default_factory=dict)
    latency_seconds: float = 0.0
    """Time stamp to done by the log's clock, summed over the records of ``in_time`` and ``late``; never negative."""
    came: int = 0
    """Records that were fetched as they came, and in time."""
    came_seconds: float = 0.0
    """Time stamp to the fetch, summed over them."""

    def add_came(self, runs: Iterable[tuple[float, int]], at: float) -> None:
        """Count records, as (first time stamp, records) per run, that were fetched as they came.

        What was late then says nothing of what the others take: its producer's clock may be off.
        """
        for timestamp, records in runs:
            if timestamp >= 0.0 and at - timestamp <= self.objective_seconds:
                self.came += records
                self.came_seconds += records * max(0.0, at - timestamp)

    def add_in_time(self, records: int) -> None:
        """Count records that were in time as far as is known."""
        if self.not_late is NotLate.IN_TIME:
            self.in_time += records
        elif self.not_late is NotLate.UNKNOWN:
            self.unknown += records

    def decided(self, latencies: Sequence[float], unknown: int) -> None:
        """Count records that were not decided: those in time, with their latencies, and so many that are unknown."""
        self.in_time += len(latencies)
        self._add_latencies(latencies)
        self.unknown += unknown

    def add_latencies(self, latencies: Sequence[float]) -> None:
        """Records with time stamps were done; what is no finite number is left out."""
        if self.not_late is not NotLate.IN_TIME:
            latencies = [latency for latency in latencies if latency > self.latency_max_seconds]
        self._add_latencies(latencies)

    def _add_latencies(self, latencies: Sequence[float]) -> None:
        total = sum(latencies) - len(latencies) * self.offset_seconds
        if 0.0 < total < math.inf:
            self.latency_seconds += total

    @property
    def latency_max_seconds(self) -> float:
        """The largest latency, as measured by the own clock, that is in time."""
        return self.objective_seconds + self.offset_seconds


class RecordQueue:
    """One partition's records in hand or buffered, oldest first, and its server of its own. O(1) per run."""

    __slots__ = ("_untimed", "drained_at", "free_at", "records", "runs", "stalled_until")

    def __init__(self, at: float) -> None:
        """``at``: when the partition was acquired, log clock."""
        self.runs: deque[Run] = deque()
        self.records = 0
        self.free_at = at
        """When the partition's own server has done everything up to now."""
        self.drained_at = at
        """Since when nothing was left, the last time that this was so."""
        self.stalled_until = at - 1e9
        """End of the last time that the partition was paused or blocked."""
        self._untimed = 0

    def add(self, count: int, timestamp: float, mark: Mark) -> None:
        """Append a run."""
        last = self.runs[-1] if self.runs else None
        if (
            last is not None
            and mark is Mark.LATE is last.mark
            and 0.0 <= timestamp - last.timestamp < LATE_SPAN_SECONDS
        ):
            last.count += count
        elif len(self.runs) >= RUNS_MAX:
            mark = self.runs[-1].mark
            self.runs[-1].count += count
        else:
            self.runs.append(Run(count, timestamp, mark))
        self.records += count
        if mark is Mark.UNTIMED:
            self._untimed += count

    def clear(self, at: float) -> None:
        """The buffered records were dropped (a seek)."""
        self.runs.clear()
        self.records = self._untimed = 0
        self.free_at = self.drained_at = at

    def shift(self, seconds: float) -> None:
        """The log clock turned out to be that much ahead of what was thought."""
        self.free_at += seconds
        self.drained_at += seconds
        self.stalled_until += seconds

    def oldest(self) -> float | None:
        """Time stamp of the oldest record that is not done; None: nothing is fetched."""
        return self.runs[0].timestamp if self.runs else None

    def finish(
        self, latencies: Sequence[float], busies: Sequence[float], total: float, judge: Judge, now: float
    ) -> None:
        """The next ``len(latencies)`` records are done.

        Args:
            latencies: from time stamp to done by the own clock, seconds; whatever for records without a time stamp.
            busies: what user code took, as many.
            total: their sum.
            judge: counts them.
            now: log clock.
        """
        if self._untimed or max(latencies) > judge.latency_max_seconds or self.records < len(latencies):
            self._judge(latencies, busies, judge, now)
        else:
            judge.add_in_time(len(latencies))
            judge.add_latencies(latencies)
            self._advance(busies, total, judge.concurrency, now)
        if not self.runs:
            self.drained_at = now

    def _advance(self, busies: Sequence[float], total: float, concurrency: float, now: float) -> None:
        """All in time: only the own server goes on, run by run."""
        at, left = 0, len(busies)
        while left:
            run = self.runs[0]
            taken = left if left < run.count else run.count
            busy = total if taken == len(busies) else sum(busies[at : at + taken])
            self.free_at = self._begin(run, now) + busy / concurrency
            self._take(run, taken)
            at += taken
            left -= taken

    def _take(self, run: Run, count: int) -> None:
        run.count -= count
        self.records -= count
        if run.mark is Mark.UNTIMED:
            self._untimed -= count
        if not run.count:
            self.runs.popleft()

    def _judge(self, latencies: Sequence[float], busies: Sequence[float], judge: Judge, now: float) -> None:
        """At least one record is late or has no time stamp: run by run, record by record only where a run is mixed."""
        at = 0
        while at < len(busies):
            if self.runs:
                run = self.runs[0]
                end = at + min(run.count, len(busies) - at)
            else:
                # Fetched before the meter looked on, or dropped by a seek in between.
                run = Run(1, now + judge.offset_seconds - latencies[at])
                end = at + 1
            self._judge_run(run, latencies[at:end], busies[at:end], judge, now)
            if self.runs:
                self._take(run, end - at)
            at = end

    def _begin(self, run: Run, now: float) -> float:
        """Return when the own server could begin with a run. One of the future keeps those behind it from nothing."""
        return max(self.free_at, min(run.timestamp, now))

    def _judge_run(
        self, run: Run, latencies: Sequence[float], busies: Sequence[float], judge: Judge, now: float
    ) -> None:
        count, latency_max = len(busies), judge.latency_max_seconds
        begin = self._begin(run, now)
        self.free_at = begin + sum(busies) / judge.concurrency
        if run.mark is Mark.UNTIMED:
            judge.untimed += count
            return
        judge.add_latencies(latencies)
        late = count if min(latencies) > latency_max else sum(map(latency_max.__lt__, latencies))
        judge.add_in_time(count - late)
        if not late:
            return
        first = self._cause(run, begin + busies[0] / judge.concurrency, judge)
        last = self._cause(run, self.free_at, judge)
        if first is last:
            judge.late[first] = judge.late.get(first, 0) + late
            return
        free_at = begin
        for latency, busy in zip(latencies, busies, strict=True):
            free_at += busy / judge.concurrency
            if latency > latency_max:
                cause = self._cause(run, free_at, judge)
                judge.late[cause] = judge.late.get(cause, 0) + 1

    def _cause(self, run: Run, free_at: float, judge: Judge) -> LateCause:
        if run.mark is Mark.LATE:
            return LateCause.ALREADY_LATE
        if run.timestamp < self.stalled_until:
            return LateCause.BLOCKED
        if free_at - run.timestamp > judge.objective_seconds - MARGIN_SECONDS:
            return LateCause.SERIAL
        return LateCause.QUEUED
