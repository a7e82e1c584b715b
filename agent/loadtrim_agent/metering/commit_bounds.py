"""Commits of user code tell when its records were done, where it works on them beyond the next call.

Theory of operation. A commit above a record is the program's word to Kafka that the record is done. So it was done
between its hand-out and the first call of ``commit()`` above it that came after that. This holds for a program of any
shape, and what follows from it is certain:

- in time, where that call came within the objective;
- late, where the record was handed out after its time had run out.

Nothing follows for all others. A record that a commit leaves out need not be late. It may be done, and wait for the
records before it, or for the rest of its batch. Or the program commits once a minute. So what has no commit above it
when its time runs out is *unknown*, and nothing is remembered of it.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

__all__ = ["RUNS_MAX", "CommitBounds", "Decided"]

RUNS_MAX = 1024
"""At most so many runs, and commits, are remembered for each partition. Chosen."""
COARSER = 4
"""Where there are more runs, those are joined that have together no more than so many times the mean's records. Any two
neighbours that stay apart have more, so no more than half of the runs stay. Chosen."""
SPAN_SHARE = 0.01
"""Of the objective: records of one run are due within so long of each other, and are judged as the first. Chosen."""


class Decided(NamedTuple):
    """Records that were handed out in time are decided."""

    latencies: list[float]
    """Seconds from the timestamp to the commit, of those that were in time for certain: the most that they took."""
    unknown: int


class _Run:
    """Records with rising offsets that wait for a commit above them. There may be gaps between these."""

    __slots__ = ("due_at", "end", "first", "records")

    def __init__(self, first: int, due_at: float) -> None:
        self.first = first
        """No record is below."""
        self.end = first + 1
        """The offset after the last."""
        self.records = 1
        self.due_at = due_at
        """Time at which that of the one runs out that is due first."""

    def below(self, offset: int) -> int:
        """Return how many of the records are below an offset for certain: the others have one each from there on."""
        return max(0, self.records - max(0, self.end - offset))

    def join(self, other: _Run) -> None:
        """Take in the records of one that begins no lower than this ends."""
        self.end = other.end
        self.records += other.records
        self.due_at = min(self.due_at, other.due_at)


class CommitBounds:
    """The records of one partition that were handed out in time. All times are of one clock.

    Cost: O(1) for each record and each commit, on average.
    """

    __slots__ = ("_commits", "_latencies", "_runs", "_unknown", "latency_max_seconds")

    def __init__(self, latency_max_seconds: float) -> None:
        self.latency_max_seconds = latency_max_seconds
        """The largest latency that is in time."""
        self._runs: deque[_Run] = deque()
        """Waiting records, in the order of their hand-out."""
        self._commits: deque[tuple[int, float]] = deque(maxlen=RUNS_MAX)
        """Offset and time of commits above records that are not handed on yet, oldest first."""
        self._latencies: list[float] = []
        self._unknown = 0

    def __bool__(self) -> bool:
        """Return whether records wait for a commit."""
        return bool(self._runs)

    def committed(self, offset: int, at: float) -> None:
        """Take in that user code says that everything below an offset, all of it handed out, is done. Oldest first."""
        self._commits.append((offset, at))
        while self._runs and self._runs[0].first < offset:
            run = self._runs[0]
            covered = run.below(offset)
            self._decide(covered, self.latency_max_seconds - (run.due_at - at), in_time=at <= run.due_at)
            run.first = offset
            run.records -= covered
            if not run.records:
                self._runs.popleft()

    def handed_on(self, offset: int, taken_at: float, age: float) -> None:
        """Take in that user code has asked for the next record. Call it in the order of the hand-out.

        Args:
            offset: of the record.
            taken_at: when it was handed out.
            age: of the record then, seconds. Nothing is done where it was late already.
        """
        age = max(0.0, age)  # The producer's clock may be ahead.
        left = self.latency_max_seconds - age
        if left < 0.0:
            return
        commits, due_at = self._commits, taken_at + left
        while commits and (commits[0][0] <= offset or commits[0][1] < taken_at):
            commits.popleft()
        if commits:
            at = commits[0][1]
            self._decide(1, age + at - taken_at, in_time=at <= due_at)
        else:
            self._wait(offset, due_at)

    def _wait(self, offset: int, due_at: float) -> None:
        runs = self._runs
        span_seconds = SPAN_SHARE * self.latency_max_seconds
        if runs and runs[-1].end == offset and 0.0 <= due_at - runs[-1].due_at <= span_seconds:
            runs[-1].end += 1
            runs[-1].records += 1
            return
        if len(runs) >= RUNS_MAX:
            self._coarsen()
        self._runs.append(_Run(offset, due_at))

    def _coarsen(self) -> None:
        """Join runs until half of them are left, and forget the first ones where it went back and forth in the log.

        What is joined is judged by the record that is due first. So fewer may be known to be in time, and never more.
        """
        records_max = COARSER * sum(run.records for run in self._runs) / len(self._runs)
        joined: deque[_Run] = deque()
        for run in self._runs:
            if joined and joined[-1].end <= run.first and joined[-1].records + run.records <= records_max:
                joined[-1].join(run)
            else:
                joined.append(run)
        self._runs = joined
        while len(self._runs) > RUNS_MAX // 2:
            self._forget_first()

    def expire(self, now: float) -> None:
        """Forget the records whose time has run out. Every commit up to ``now`` is to be told before."""
        while self._runs and self._runs[0].due_at < now:
            self._forget_first()

    def close(self) -> None:
        """Forget everything: the partition is not this member's any more."""
        while self._runs:
            self._forget_first()

    def take(self) -> Decided:
        """Return what was decided since this was asked last."""
        decided = Decided(self._latencies, self._unknown)
        self._latencies, self._unknown = [], 0
        return decided

    def _forget_first(self) -> None:
        run = self._runs.popleft()
        self._unknown += run.records

    def _decide(self, records: int, latency: float, *, in_time: bool) -> None:
        if in_time:
            self._latencies += [latency] * records
        else:
            self._unknown += records
