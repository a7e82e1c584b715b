"""Tell how long replicas take until they are there, from the request on, as the leader sees it.

A process tells how long it took from its own beginning. What came before that it does not see: a scaler that looks
every 15 s, a machine that is added, an image that is fetched. Yet this is the time that replicas come late by.
"""

from __future__ import annotations

from collections import deque

from .estimate import STARTUP_SAMPLES, quantile
from .settling import TAKING_SECONDS
from .values import GroupState, PlanConfig, units_of

__all__ = ["Startups"]

NO_ROOM_SECONDS = 600.0
"""A replica that took longer had no room, or was not started: that says nothing of the next one. Chosen."""
WAITING_MAX = 10_000
"""Requested replicas that are kept in mind."""


class Startups:
    """Remember since when replicas are waited for. Not thread-safe; needs no clock."""

    def __init__(self) -> None:
        self._asked_at: list[float] = []
        """When each replica was asked for that is not there yet, in order."""
        self._there: frozenset[str] | None = None
        """Instances at the last look; None: there was none."""
        self._seen: deque[float] = deque(maxlen=STARTUP_SAMPLES)
        """Seconds that the last ones took."""

    def look(self, now: float, group: GroupState) -> None:
        """Take in the group as it is. Of several replicas that are waited for, the one asked for first comes first.

        Args:
            now: seconds since the epoch, by the leader's clock.
            group: with what the orchestrator was asked for last.

        Cost: O(instances).
        """
        there = frozenset(unit.instance for unit in units_of(group))
        came = len(there - self._there) if self._there is not None else 0
        self._seen.extend(now - at for at in self._asked_at[:came] if 0.0 <= now - at <= NO_ROOM_SECONDS)
        missing = min(WAITING_MAX, max(0, (group.replicas_requested or 0) - len(there)))
        waiting = [min(at, now) for at in self._asked_at[came:][:missing]]
        self._asked_at = waiting + [now] * (missing - len(waiting))
        self._there = there

    def seconds(self, told_seconds: float, config: PlanConfig) -> float:
        """Return the start-up time as the leader sees it, where that is longer than what is told.

        A replica is seen up to two intervals after it is there, so what is only as much longer counts for nothing.

        Args:
            told_seconds: by the processes.
            config: for the intervals.
        """
        unseen = config.decision_seconds + config.report_seconds + TAKING_SECONDS
        seen = quantile(self._seen, 0.9) or 0.0
        return seen if seen > told_seconds + unseen else told_seconds
