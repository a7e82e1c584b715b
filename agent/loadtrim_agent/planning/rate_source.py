"""Arrival rates that do not come from the members' reports: a paper's own way of measuring, by name.

* ``reports``   the members' reports (the default; nothing of this module).
* ``landau24``  Landau'24: bytes of each partition on its leader's disk, newest less oldest sample of a sliding window
  of 30 s over the time between them.
* ``iccbdc22``  ICCBDC'22: records whose time stamps lie in the interval that ended 1.5 s ago, by the offsets at its
  ends.

What is replaced is the rate of each partition, and with it its work and its curve, and the group's past: what was told
at each decision of late is what policies and the forecast look back at. Lag, costs and the shape of the load within a
second stay the reports'. Bytes become work by what the group measured: all partitions together carry the work that the
members reported over the window, and each its share of the bytes, so a byte costs the same everywhere, as the paper
has it.

Source: Landau'24, section V-A; ICCBDC'22 as run.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

import msgspec

from loadtrim_agent.common.naming import chosen
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.records import DecisionRecord

from .estimate import SERIES_SECONDS_MAX
from .values import Estimate, Outcome, PartitionEstimate, Rates, RateUnit

__all__ = ["BYTES_SECONDS", "DELAY_SECONDS", "Growth", "MonitorName", "Told", "monitor_of", "monitored"]

BYTES_SECONDS = 30.0
"""Landau'24: length of the sliding window."""
DELAY_SECONDS = 1.5
"""ICCBDC'22: the interval ends that long ago, so that what was stamped in it has been appended."""
SILENCE_SECONDS = 10.0
"""What was told before a longer silence is left out: nobody knows what came meanwhile."""
SILENCE_DECISIONS = 3.0
"""The same in decisions, where these are rarer."""


class MonitorName(enum.StrEnum):
    """What ``LOADTRIM_MONITOR`` may say."""

    REPORTS = "reports"
    LANDAU24 = "landau24"
    ICCBDC22 = "iccbdc22"


def monitor_of(name: str) -> MonitorName:
    """The monitor with this name.

    Raises:
        UnknownNameError: there is none; the message lists them and the nearest.
    """
    return chosen("monitor", name, {monitor.value: monitor for monitor in MonitorName})


class Growth:
    """Sizes sampled over a sliding window, and how fast they grow."""

    def __init__(self, seconds: float = BYTES_SECONDS) -> None:
        """``seconds``: length of the window."""
        self._seconds = seconds
        self._samples: deque[tuple[float, Mapping[Partition, int]]] = deque()

    def add(self, at: float, sizes: Mapping[Partition, int]) -> None:
        """One sample. Bounded: those that are older than the window go, but for two."""
        self._samples.append((at, sizes))
        while len(self._samples) > 2 and at - self._samples[0][0] > self._seconds:
            self._samples.popleft()

    def per_second(self) -> dict[Partition, float] | None:
        """(newest - oldest) / time between, of each partition in the newest sample; None: nothing to compare with yet.

        A partition that shrank counts as 0: the broker deleted a segment, and what came meanwhile cannot be told.
        """
        if len(self._samples) < 2:
            return None
        newest_at, newest = self._samples[-1]
        rates = {}
        for partition in sorted(newest):
            oldest_at, oldest = next((at, sizes) for at, sizes in self._samples if partition in sizes)
            grown = max(0, newest[partition] - oldest[partition])
            rates[partition] = grown / (newest_at - oldest_at) if newest_at > oldest_at else 0.0
        return rates


class Told:
    """What a monitor told of the group at each decision of late, for all that looks back. Bounded; deterministic."""

    def __init__(self, monitor: str, decision_seconds: float) -> None:
        """
        Args:
            monitor: its name (:class:`MonitorName`).
            decision_seconds: between two decisions.
        """
        self._monitor = monitor
        self._silence = max(SILENCE_SECONDS, SILENCE_DECISIONS * decision_seconds)
        self._rates: deque[tuple[float, float]] = deque()
        """(time of the decision, records/s of the group), oldest first."""

    def remember(self, decision: DecisionRecord) -> None:
        """What an earlier leader was told. One that held may not have been told anything."""
        if decision.monitor == self._monitor and decision.outcome != Outcome.HOLD:
            self.add(decision.at, decision.rate)

    def add(self, at: float, rate: float) -> None:
        """Records/s of the group, as told for the decision at this time; not before the last one."""
        if self._rates and at - self._rates[-1][0] > self._silence:
            self._rates.clear()
        self._rates.append((at, rate))
        while self._rates[0][0] <= at - SERIES_SECONDS_MAX:
            self._rates.popleft()

    def per_second(self) -> tuple[float, ...]:
        """Records/s in each second until the newest, oldest first; one without a decision is as the one before."""
        result: list[float] = []
        for at, rate in self._rates:
            second = round(at - self._rates[0][0])
            result += result[-1:] * (second - len(result))
            result[second:] = [rate]
        return tuple(result)


def monitored(seen: Estimate, rates: Rates, told: Told) -> Estimate:
    """The estimate with the monitor's rates in place of the reports'; a partition that it leaves out gets nothing.

    Args:
        seen: by the reports.
        rates: what the monitor says now.
        told: what it said before; this is added.
    """
    sized = {partition: entry for partition, entry in seen.partitions.items() if entry.sized}
    if rates.unit is RateUnit.BYTES:
        total = sum(rates.per_second.get(partition, 0.0) for partition in sized)
        level = fmean(seen.series[-round(BYTES_SECONDS) :])
        work = {p: level * rates.per_second.get(p, 0.0) / total if total > 0 else 0.0 for p in sized}
        records = {p: work[p] / entry.cost if entry.cost > 0 else 0.0 for p, entry in sized.items()}
    else:
        records = {p: rates.per_second.get(p, 0.0) for p in sized}
        work = {p: records[p] * entry.cost for p, entry in sized.items()}
    loads = {p: _with_load(entry, records[p], work[p], seen) for p, entry in sized.items()}
    rate = sum(records.values())
    cost = sum(work.values()) / rate if rate > 0 else seen.cost
    told.add(seen.at, rate)
    series = tuple([before * cost for before in told.per_second()])
    # What members know of the second that has begun is no part of what the monitor tells.
    return replace(seen, partitions={**seen.partitions, **loads}, rate=rate, cost=cost, series=series, opening=0.0)


def _with_load(entry: PartitionEstimate, rate: float, work: float, seen: Estimate) -> PartitionEstimate:
    curve = entry.curve.scaled(work / entry.work) if entry.work > 0 else seen.curve.scaled(work)
    return msgspec.structs.replace(entry, rate=rate, work=work, curve=curve)
