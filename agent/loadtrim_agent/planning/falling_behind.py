"""A member that falls behind shows what it can do, whatever its capacity is taken to be.

Theory of operation. Arrivals and what is done are both measured. More comes for a member than it does, by more than
chance. More waits there than it does within the objective. Then it is doing all that it can. If that is clearly less
than its capacity, the capacity is wrong: a setting, a program that works otherwise than it looks, a neighbour that
takes the machine. What was seen counts from then on, until the member does more.

What is in hand and not done is behind as well: arrivals less what is done are looked at, not queues. A partition that
does not advance for other reasons (paused, blocked, gone) is not counted.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from loadtrim_agent.wire.telemetry_records import ReportRecord

from .observed import Given

__all__ = ["ADVANCING", "CONTRADICTED_SHARE", "GONE", "Flow", "MemberFlow", "flow_of", "mean_cost"]

ADVANCING = frozenset({"running", "idle"})
"""States of partitions that are counted."""
GONE = "gone"
"""State of an entry about a partition that the reporter lost in the interval."""
GROWTH_SDS = 4.0
"""Growth counts by so many standard deviations of arrivals by chance, whose variance is their number. Chosen: looked
at every second, chance alone reaches it once in hours."""
CONTRADICTED_SHARE = 0.8
"""A member that falls behind while it gives less than this share of its capacity does not have it. Chosen: user code
that waits between its records takes some of a whole one."""
SECONDS_MIN = 4.0
"""Shortest time that is looked at, or the objective where that is longer: a load that jumps fills a member's hands for
about as long. All that is remembered is enough, however long the objective is. Chosen."""
RECENT = 4
"""Reports in which more may have been done. Chosen: about as long."""
FLOWS_MAX = 256
"""Reports that are remembered, four minutes of them: a new leader reads five."""


class Flow(NamedTuple):
    """Arrivals of one member and what it did in the interval of a report."""

    seconds: float
    """Above 0."""
    arrived: int
    done: int
    standing: int
    """Fewest records that were not done at any moment of it."""
    cost: float | None
    """Busy seconds per record; None: not known."""
    gave_away: bool = False
    """Part of it is of partitions that another member has now."""

    def joined(self, other: Flow) -> Flow:
        """Return this part of an interval and another one of the same interval together."""
        return Flow(
            seconds=self.seconds,
            arrived=self.arrived + other.arrived,
            done=self.done + other.done,
            standing=self.standing + other.standing,
            cost=mean_cost((flow.cost, flow.arrived + flow.done) for flow in (self, other)),
            gave_away=self.gave_away or other.gave_away,
        )


def mean_cost(costs: Iterable[tuple[float | None, int]]) -> float | None:
    """Return the mean of (cost, records), weighted by records; None: none is known that has records."""
    known = [(cost, records) for cost, records in costs if cost is not None]
    weight = sum(records for _, records in known)
    return sum(cost * records for cost, records in known) / weight if weight else None


def flow_of(report: ReportRecord, interval: float) -> Flow:
    """Return what came for a member and what it did, in the partitions that advance or wait for records."""
    counted = [entry for entry in report.partitions if entry.state in ADVANCING]
    return Flow(
        seconds=interval,
        arrived=sum(entry.arrived for entry in counted),
        done=sum(entry.done for entry in counted),
        standing=sum(entry.lag if entry.lag_min is None else entry.lag_min for entry in counted),
        cost=mean_cost((entry.cost_mean, entry.arrived + entry.done) for entry in counted),
        gave_away=any(entry.state == GONE for entry in report.partitions),
    )


class MemberFlow:
    """Arrivals of one member and what it did, by its reports. Deterministic; bounded.

    Args:
        objective_seconds: W.
    """

    def __init__(self, objective_seconds: float) -> None:
        self._objective_seconds = objective_seconds
        self._flows: deque[Flow] = deque(maxlen=FLOWS_MAX)
        """Reports since more stands than is done within the objective."""
        self._cost = 0.0
        self._recent: tuple[Flow, ...] = ()
        self.given: Given | None = None
        """While it fell behind, and the most since then; None: it never did."""

    @property
    def busy_seconds(self) -> float | None:
        """Busy seconds per second of what was given; None: it never fell behind."""
        return None if self.given is None else self.given.busy_seconds

    def add(self, flow: Flow) -> None:
        """Take in what came and what was done in one interval. O(reports remembered) where it falls behind."""
        if flow.gave_away:
            self._flows.clear()  # what came in what it gave away is done by another member
        self._cost = self._cost if flow.cost is None else flow.cost
        self._flows.append(flow._replace(cost=self._cost))
        self._recent = (*self._recent, self._flows[-1])[-RECENT:]
        if self.given is not None:
            given = sum(recent.done * (recent.cost or 0.0) for recent in self._recent)
            done = sum(recent.done for recent in self._recent)
            elapsed = max(SECONDS_MIN, sum(recent.seconds for recent in self._recent))
            self.given = max(self.given, Given(given / elapsed, done / elapsed))
        # A burst that has just come is not behind: what counts is what stood all the time.
        if flow.standing <= self._objective_seconds * flow.done / flow.seconds:
            self._flows.clear()
        elif (gives := self._behind()) is not None and self._is_news(gives):
            self.given = gives

    def _is_news(self, gives: Given) -> bool:
        return self.given is None or gives.busy_seconds < CONTRADICTED_SHARE * self.given.busy_seconds

    def _behind(self) -> Given | None:
        """Return what it gives, where more comes; None: no more than by chance."""
        arrived, done, given, seconds = 0, 0, 0.0, 0.0
        for number, flow in enumerate(reversed(self._flows), 1):
            arrived, done, seconds = arrived + flow.arrived, done + flow.done, seconds + flow.seconds
            given += flow.done * (flow.cost or 0.0)
            short = seconds < max(SECONDS_MIN, self._objective_seconds) and number < FLOWS_MAX
            if short or arrived - done <= GROWTH_SDS * math.sqrt(arrived):
                continue  # slow growth shows in longer times
            return Given(given / seconds, done / seconds) if given else None
        return None
