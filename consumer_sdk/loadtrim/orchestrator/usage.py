"""The number of running instances over time, and its cost: replica-seconds from being asked for until the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["InstanceUsage", "ReplicaCount", "Span"]

ENTRIES_MAX = 100_000
"""Bound of history and of spans: the oldest half is dropped when it is reached (days of crashing every second)."""


class ReplicaCount(NamedTuple):
    """From ``at`` (seconds) on, ``running`` instances had a process."""

    at: float
    running: int


@dataclass(slots=True)
class Span:
    """The time that one instance is paid for. A restart after a crash is a new span."""

    name: str
    asked_at: float
    started_at: float | None = None
    ended_at: float | None = None


@dataclass(slots=True)
class InstanceUsage:
    """The running times of all instances. Times are seconds on one clock, handed in in order."""

    history: list[ReplicaCount] = field(default_factory=list)
    """One entry per change, oldest first."""
    spans: list[Span] = field(default_factory=list)
    """By the time of being asked for."""
    _open: dict[str, Span] = field(default_factory=dict)
    _running: int = 0

    @property
    def running(self) -> int:
        """Instances that have a process."""
        return self._running

    def asked(self, name: str, at: float) -> None:
        """An instance was asked for: its clock runs. Asking again for an open one changes nothing."""
        if name in self._open:
            return
        self._open[name] = span = Span(name, at)
        self.spans.append(span)
        _halve_when_full(self.spans)

    def started(self, name: str, at: float) -> None:
        """Note that its process is there."""
        self._open[name].started_at = at
        self._count(at, +1)

    def ended(self, name: str, at: float) -> None:
        """Note that its process is gone, or it will not be started: its clock stops."""
        span = self._open.pop(name)
        span.ended_at = at
        if span.started_at is not None:
            self._count(at, -1)

    def replica_seconds(self, until: float, since: float | None = None) -> float:
        """The sum over all instances of the time from being asked for until the end.

        Args:
            until: the end of the window, seconds; what still runs counts until then.
            since: the beginning; None: all there was.
        """
        start = since if since is not None else float("-inf")
        return sum(
            max(0.0, min(span.ended_at if span.ended_at is not None else until, until) - max(span.asked_at, start))
            for span in self.spans
        )

    def _count(self, at: float, change: int) -> None:
        self._running += change
        self.history.append(ReplicaCount(at, self._running))
        _halve_when_full(self.history)


def _halve_when_full(entries: list[ReplicaCount] | list[Span]) -> None:
    if len(entries) >= ENTRIES_MAX:
        del entries[: ENTRIES_MAX // 2]
