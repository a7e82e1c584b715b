"""What the group did in each of the last seconds, for policies that look at averages and trends rather than at work.

Filled from the members' reports alone, so that a new leader, which reads the telemetry of the last minutes, knows what
the old one knew. A member's report counts in the second in which it was heard; members report once per interval, so
sums over a few seconds are right where a single second may hold two reports of one member and none of another.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = [
    "KEEP_SECONDS",
    "RecentSeconds",
    "Second",
    "busy_behind",
    "lag_slope",
    "latency_seconds",
    "throughput",
    "utilization",
]

KEEP_SECONDS = 180
"""How far back it goes."""
SLOPE_SECONDS_MIN = 3
"""Seconds with a report that a slope needs."""


class Second(msgspec.Struct, frozen=True, kw_only=True):
    """One second of the leader's clock, summed over the members that reported in it."""

    at: int
    """Its beginning, seconds since the epoch."""
    done: int
    """Records."""
    busy_seconds: float
    given_seconds: float
    """What the members could have been busy: concurrency x interval."""
    latency_seconds: float
    """From time stamp to done, summed over the records that have one; see ``judged``."""
    judged: int
    """Records that count in ``latency_seconds``."""
    lag: int
    """Records that waited in the group at its end."""


class _Sums:
    __slots__ = ("busy_seconds", "done", "given_seconds", "judged", "lag", "latency_seconds")

    def __init__(self) -> None:
        self.done = self.judged = self.lag = 0
        self.busy_seconds = self.given_seconds = self.latency_seconds = 0.0


class RecentSeconds:
    """The last :data:`KEEP_SECONDS` seconds. Bounded; deterministic."""

    def __init__(self) -> None:
        self._seconds: dict[int, _Sums] = {}
        self._told: dict[int, Second] = {}
        """As asked last, without those that were added to since: of three minutes one or two seconds are new."""

    def add(
        self,
        received_at: float,
        *,
        done: int,
        busy_seconds: float,
        given_seconds: float,
        latency_seconds: float | None,
        judged: int,
        lag: int,
    ) -> None:
        """One report (or a part of one).

        Args:
            received_at: seconds since the epoch.
            done: records.
            busy_seconds: of user code.
            given_seconds: concurrency x interval; 0 in the further parts of a split report.
            latency_seconds: summed over the ``judged`` records; None: an older member that does not say.
            judged: records done that have a time stamp.
            lag: of the whole group, as known after this report.
        """
        second = int(received_at)
        sums = self._seconds.get(second)
        if sums is None and second <= max(self._seconds, default=second) - KEEP_SECONDS:
            return  # stamped long ago: it would be kept for as long as nothing newer comes
        if sums is None:
            sums = self._seconds[second] = _Sums()
            for old in [at for at in self._seconds if at <= second - KEEP_SECONDS]:
                del self._seconds[old]
                self._told.pop(old, None)
        self._told.pop(second, None)
        sums.done += done
        sums.busy_seconds += busy_seconds
        sums.given_seconds += given_seconds
        sums.lag = max(0, lag)
        if latency_seconds is not None:
            sums.latency_seconds += latency_seconds
            sums.judged += judged

    def seconds(self) -> tuple[Second, ...]:
        """Oldest first; seconds without a report are absent."""
        told = self._told
        for at, sums in self._seconds.items():
            if at not in told:
                told[at] = Second(
                    at=at,
                    done=sums.done,
                    busy_seconds=sums.busy_seconds,
                    given_seconds=sums.given_seconds,
                    latency_seconds=sums.latency_seconds,
                    judged=sums.judged,
                    lag=sums.lag,
                )
        return tuple([told[at] for at in sorted(told)])


def _last(past: Sequence[Second], seconds: float) -> Sequence[Second]:
    """Those of the newest ``seconds``."""
    return [entry for entry in past if entry.at > past[-1].at - seconds] if past else ()


def utilization(past: Sequence[Second], seconds: float) -> float | None:
    """Busy share of the members over the newest seconds, 0 .. 1 and a little above; None: no report."""
    newest = _last(past, seconds)
    given = sum(entry.given_seconds for entry in newest)
    return sum(entry.busy_seconds for entry in newest) / given if given > 0 else None


def latency_seconds(past: Sequence[Second], seconds: float) -> float | None:
    """Mean time from a record's time stamp until it was done; None: nothing with a time stamp was done."""
    newest = _last(past, seconds)
    judged = sum(entry.judged for entry in newest)
    return sum(entry.latency_seconds for entry in newest) / judged if judged else None


def throughput(past: Sequence[Second], seconds: float) -> float | None:
    """Records done per second over the newest seconds; None: no report."""
    newest = _last(past, seconds)
    return sum(entry.done for entry in newest) / (newest[-1].at - newest[0].at + 1) if newest else None


def busy_behind(past: Sequence[Second], seconds: float) -> float:
    """Return the busy seconds per second that members gave over the newest seconds, where more came than they did; 0:
    they kept up."""
    newest = _last(past, seconds + 1.0)  # at the end of the first one the time begins
    if len(newest) < 2 or newest[-1].lag <= newest[0].lag:
        return 0.0
    return sum(entry.busy_seconds for entry in newest[1:]) / (newest[-1].at - newest[0].at)


def lag_slope(past: Sequence[Second], seconds: float) -> float | None:
    """How fast the group's lag grows, records/s: the least-squares slope, as ``deriv()`` of Prometheus.

    None: fewer than 3 seconds with a report.
    """
    newest = _last(past, seconds)
    if len(newest) < SLOPE_SECONDS_MIN:
        return None
    middle = sum(entry.at - newest[0].at for entry in newest) / len(newest)
    spread = covariance = 0.0
    for entry in newest:
        off = entry.at - newest[0].at - middle
        spread += off * off
        covariance += off * entry.lag
    return covariance / spread
