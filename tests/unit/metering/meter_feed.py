"""One partition's log and a member that reads it, for the tests of the meter."""

from __future__ import annotations

import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.metering.meter import Meter, MeterConfig, PartitionSnapshot
from loadtrim_agent.wire.codec import decode, encode
from loadtrim_agent.wire.telemetry_records import PartitionReport, ReportRecord

T = 1_700_000_000.0
W = 0.5
P = Partition("orders", 0)
Q = Partition("orders", 1)
OTHER = Partition("payments", 0)
CONFIG = MeterConfig(group="g", sla_seconds=W, instance="pod-1", instance_type="small")


class Feed:
    """One partition's log, and a member that reads it. Times are the log's; the meter is told the member's own."""

    def __init__(self, meter: Meter, partition: Partition = P, own_clock_ahead: float = 0.0) -> None:
        self.meter = meter
        self.partition = partition
        self.ahead = own_clock_ahead
        self.stamps: list[float] = []
        self.fetched = 0
        self.done = 0

    def append(self, *stamps: float) -> None:
        self.stamps.extend(stamps)

    def acquire(self, at: float, known: bool = True, handoff_seconds: float | None = None) -> None:
        end = len(self.stamps) if known else None
        self.meter.acquired(self.partition, at + self.ahead, self.done, end, handoff_seconds)
        self.fetched = self.done

    def fetch(self, at: float, most: int = 10_000) -> None:
        batch = self.stamps[self.fetched : self.fetched + most]
        self.fetched += len(batch)
        self.meter.fetched(
            self.partition,
            at + self.ahead,
            batch,
            next_offset=self.fetched,
            end_offset=len(self.stamps),
            size_bytes=100 * len(batch),
        )

    def observe(self, at: float) -> None:
        self.meter.observed(self.partition, at + self.ahead, len(self.stamps))

    def finish(self, at: float, count: int, busy: float) -> None:
        """``count`` records, one after the other, ending at ``at``."""
        ends = [at - busy * (count - 1 - number) for number in range(count)]
        latencies = [end + self.ahead - self.stamps[self.done + number] for number, end in enumerate(ends)]
        self.done += count
        self.meter.done(self.partition, at + self.ahead, latencies, [busy] * count, self.done)

    def report(self, at: float, sequence: int = 0) -> ReportRecord:
        report = self.meter.report(at + self.ahead, "m1", 7, sequence)
        assert decode(encode(report)) == report, "whatever was measured, others can read it"
        return report


def time_of(at: float) -> object:
    """Equal to within 0.1 ms (a relative tolerance would be half an hour)."""
    return pytest.approx(at, abs=1e-4, rel=0.0)


def entry_of(report: ReportRecord, partition: Partition = P) -> PartitionReport:
    found = [entry for entry in report.partitions if (entry.topic, entry.partition) == partition]
    assert len(found) == 1
    return found[0]


def snapshot_of(meter: Meter, now: float, partition: Partition = P) -> PartitionSnapshot:
    return next(entry for entry in meter.snapshot(now).partitions if entry.partition == partition)


def bursts(feed: Feed, seconds: int, records: int, cost: float, start: float = T) -> list[ReportRecord]:
    """A burst at the start of every second, read in small fetches and done at once; one report a second."""
    reports = []
    for second in range(seconds):
        begin = start + second
        feed.append(*[begin + 0.00001 * number for number in range(records)])
        for number in range(4):
            feed.fetch(begin + 0.003 + 0.001 * number, records // 4)
        feed.finish(begin + min(0.9, records * cost), records, cost)
        feed.observe(begin + 0.95)
        reports.append(feed.report(begin + 0.999, second))
    return reports
