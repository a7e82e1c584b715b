"""Tell how long replicas take until they are there, from the request on, as the leader sees it.

A process tells how long it took from its own beginning. What came before that it does not see: a scaler that looks
every 15 s, a machine that is added, an image that is fetched. Yet this is the time that replicas come late by.
"""

from __future__ import annotations

from collections import deque

from .estimate import quantile
from .settling import TAKING_SECONDS
from .values import GroupState, PlanConfig, units_of

__all__ = ["Startups"]

NO_ROOM_SECONDS = 180.0
"""A replica that took longer had no room, or was not started: that says nothing of the next one. Chosen: a machine that
is added takes less. What is believed for long keeps a group from giving replicas back."""
SAMPLES = 10
"""Of the last ones the median counts, the lower of two: one that waited says little of the others. Chosen."""
WAITING_MAX = 10_000
"""Requested replicas that are kept in mind."""


class Startups:
    """Remember since when replicas are waited for. Not thread-safe; needs no clock.

    Only what is asked for beyond the last request is waited for. One that is lost and comes back, or is replaced, was
    not asked for, however long it was away.
    """

    def __init__(self) -> None:
        self._asked_at: dict[int, float] = {}
        """Number of a replica that is not there yet -> when it was asked for. The fifth is there when five are."""
        self._requested: int | None = None
        """What the orchestrator had been asked for at the last look; None: for nothing yet."""
        self._seen: deque[float] = deque(maxlen=SAMPLES)
        """Seconds that the last ones took."""

    def remember(self, seconds: float | None) -> None:
        """Take over the start-up time that an earlier leader went by, until one is seen."""
        if seconds is not None and 0.0 <= seconds <= NO_ROOM_SECONDS:
            self._seen.clear()
            self._seen.append(seconds)

    def look(self, now: float, group: GroupState) -> None:
        """Take in the group as it is.

        Args:
            now: seconds since the epoch, by the leader's clock.
            group: with what the orchestrator was asked for last.

        Cost: O(instances).
        """
        there, requested = len(units_of(group)), min(WAITING_MAX, group.replicas_requested or 0)
        came = [now - at for number, at in self._asked_at.items() if number <= there]
        self._seen.extend(seconds for seconds in came if 0.0 <= seconds <= NO_ROOM_SECONDS)
        self._asked_at = {
            number: min(at, now)
            for number, at in self._asked_at.items()
            if there < number <= requested and now - at <= NO_ROOM_SECONDS
        }
        before = there if self._requested is None else self._requested
        for number in range(max(there, before) + 1, requested + 1):
            self._asked_at[number] = now
        if group.replicas_requested is not None:
            self._requested = requested

    def seconds(self, told_seconds: float, config: PlanConfig) -> float:
        """Return the start-up time as the leader sees it, where that is longer than what is told.

        A replica is seen up to two intervals after it is there, so what is only as much longer counts for nothing.

        Args:
            told_seconds: by the processes.
            config: for the intervals.
        """
        unseen = config.decision_seconds + config.report_seconds + TAKING_SECONDS
        seen = quantile(self._seen, 0.5) or 0.0
        return seen if seen > told_seconds + unseen else told_seconds
