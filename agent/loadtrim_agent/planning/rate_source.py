"""Arrival rates that a rate source measures at the broker take the place of those that the members report.

The rate of each partition is replaced, and with it its work and its curve. The group's history is replaced, too:
policies and the forecast look back at what was reported at each decision of late. Lag, costs and the shape of the load
within a second stay the members'.

Bytes become work by what the group measured. All partitions together carry the work that the members reported over the
window, and each its share of the bytes: a byte costs the same everywhere, as Landau'24 has it.

The sources, by name: :mod:`.published.rate_sources`.
"""

from __future__ import annotations

from collections import deque
from statistics import fmean

from msgspec import structs

from loadtrim_agent.wire.telemetry_records import DecisionRecord

from .estimate import SERIES_SECONDS_MAX
from .values import Estimate, Outcome, PartitionEstimate, Rates, RateUnit

__all__ = ["BYTES_WINDOW_SECONDS", "REPORTS", "RateHistory", "with_rates"]

REPORTS = "reports"
"""The rate source that is the members' reports: the estimate stays as it is."""
BYTES_WINDOW_SECONDS = 30.0
"""Length of the sliding window in which bytes are counted. Source: Landau'24."""
SILENCE_SECONDS = 10.0
"""What was reported before a longer silence is left out: it is not known what came meanwhile. Chosen."""
SILENCE_DECISIONS = 3.0
"""The same in decisions, where these are rarer."""


class RateHistory:
    """What a rate source reported of the group at each decision of late. Bounded; deterministic."""

    def __init__(self, source: str, decision_seconds: float) -> None:
        """
        Args:
            source: name of the rate source.
            decision_seconds: between two decisions.
        """
        self._source = source
        self._silence = max(SILENCE_SECONDS, SILENCE_DECISIONS * decision_seconds)
        self._rates: deque[tuple[float, float]] = deque()
        """(time of the decision, records/s of the group), oldest first."""

    def remember(self, decision: DecisionRecord) -> None:
        """Add what was reported to an earlier leader. A decision that held may rest on no report."""
        if decision.monitor == self._source and decision.outcome != Outcome.HOLD:
            self.add(decision.at, decision.rate)

    def add(self, at: float, rate: float) -> None:
        """Add the group's records/s as reported for the decision at this time, which is not before the last one."""
        if self._rates and at - self._rates[-1][0] > self._silence:
            self._rates.clear()
        self._rates.append((at, rate))
        while self._rates[0][0] <= at - SERIES_SECONDS_MAX:
            self._rates.popleft()

    def per_second(self) -> tuple[float, ...]:
        """Return records/s in each second until the newest, oldest first.

        A second without a decision is as the one before.
        """
        result: list[float] = []
        for at, rate in self._rates:
            second = round(at - self._rates[0][0])
            result += result[-1:] * (second - len(result))
            result[second:] = [rate]
        return tuple(result)


def with_rates(estimate: Estimate, rates: Rates, history: RateHistory) -> Estimate:
    """Return the estimate with a rate source's rates; a partition that the source leaves out gets nothing.

    Args:
        estimate: the estimate by the members' reports.
        rates: what the rate source reports now.
        history: what it reported before; these rates are added.
    """
    sized = {partition: entry for partition, entry in estimate.partitions.items() if entry.sized}
    if rates.unit is RateUnit.BYTES:
        total = sum(rates.per_second.get(partition, 0.0) for partition in sized)
        level = fmean(estimate.series[-round(BYTES_WINDOW_SECONDS) :])
        work = {p: level * rates.per_second.get(p, 0.0) / total if total > 0 else 0.0 for p in sized}
        records = {p: work[p] / entry.cost if entry.cost > 0 else 0.0 for p, entry in sized.items()}
    else:
        records = {p: rates.per_second.get(p, 0.0) for p in sized}
        work = {p: records[p] * entry.cost for p, entry in sized.items()}
    loads = {p: _with_load(entry, records[p], work[p], estimate) for p, entry in sized.items()}
    rate = sum(records.values())
    cost = sum(work.values()) / rate if rate > 0 else estimate.cost
    history.add(estimate.at, rate)
    series = tuple([before * cost for before in history.per_second()])
    # What members know of the second that has begun is no part of what the rate source reports.
    return structs.replace(
        estimate, partitions={**estimate.partitions, **loads}, rate=rate, cost=cost, series=series, opening=0.0
    )


def _with_load(entry: PartitionEstimate, rate: float, work: float, estimate: Estimate) -> PartitionEstimate:
    curve = entry.curve.scaled(work / entry.work) if entry.work > 0 else estimate.curve.scaled(work)
    return structs.replace(entry, rate=rate, work=work, curve=curve)
