"""What measuring costs: seconds of CPU per record, per batch and per report, as JSON.

    python benchmarks/suite/bench_meter.py [--seconds 2] [--rate 200000]

Feeds a meter the way the agent does (batches fetched, batches done, reports every second of simulated time) as fast as
it goes; no broker, no user code. Medians over the batches and the reports; ``share_of_core`` is what measuring takes of
one core at the simulated rate with a report a second.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from dataclasses import asdict, dataclass

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.metering.meter import Meter, MeterConfig
from loadtrim_agent.wire.codec import encode

START = 1_700_000_000.0
COST_SECONDS = 4e-6


@dataclass(frozen=True, slots=True)
class MeterCase:
    """One shape of load on one member."""

    name: str
    partitions: int
    batch_records: int
    rate: float
    """Records/s of the member."""
    backlog_seconds: float = 0.0
    """Age of the backlog that is read, all of it; 0: records are read as they come."""


@dataclass(frozen=True, slots=True)
class MeterResult:
    name: str
    batches: int
    microseconds_per_record: float
    microseconds_per_batch: float
    milliseconds_per_report: float
    report_bytes: int
    share_of_core: float


def run(case: MeterCase, seconds: float) -> MeterResult:
    """Simulate ``seconds`` of the load and measure the meter's own CPU time."""
    meter = Meter(MeterConfig(group="bench", sla_seconds=1.0))
    partitions = [Partition("bench", index) for index in range(case.partitions)]
    size = case.batch_records
    step = size / case.rate
    batches = max(1, round(seconds / step))
    backlog = batches * size if case.backlog_seconds else 0
    for partition in partitions:
        meter.acquired(partition, START, 0, backlog)
    offsets = dict.fromkeys(partitions, 0)
    spacing = case.backlog_seconds / (backlog / case.partitions + size) if backlog else step / size
    busies = [COST_SECONDS] * size
    latencies = [case.backlog_seconds + 0.002] * size
    feeds: list[float] = []
    asks: list[float] = []
    size_bytes = 0
    next_report = START + 1.0
    now = START
    for number in range(batches):
        now += step
        partition = partitions[number % case.partitions]
        newest = START - case.backlog_seconds + spacing * (offsets[partition] + size) if backlog else now - 0.002
        timestamps = [newest - spacing * (size - index) for index in range(size)]
        offsets[partition] += size
        end = offsets[partition]
        log_end = max(end, backlog)
        begun = time.thread_time()
        meter.fetched(partition, now, timestamps, next_offset=end, end_offset=log_end, size_bytes=100 * size)
        meter.done(partition, now, latencies, busies, end)
        feeds.append(time.thread_time() - begun)
        if now >= next_report:
            next_report += 1.0
            begun = time.thread_time()
            for partition in partitions:
                meter.observed(partition, now, max(offsets[partition], backlog))
            record = meter.report(now, "member", 1, len(asks))
            asks.append(time.thread_time() - begun)
            size_bytes = len(encode(record))
    feed, report = statistics.median(feeds), statistics.median(asks)
    return MeterResult(
        name=case.name,
        batches=batches,
        microseconds_per_record=round(feed / size * 1e6, 3),
        microseconds_per_batch=round(feed * 1e6, 2),
        milliseconds_per_report=round(report * 1e3, 3),
        report_bytes=size_bytes,
        share_of_core=round(feed / step + report, 4),
    )


def cases(rate: float) -> list[MeterCase]:
    return [
        MeterCase("busy: 9 partitions, batches of 500", 9, 500, rate),
        MeterCase("busy: 9 partitions, batches of 64", 9, 64, rate),
        MeterCase("backlog of an hour, batches of 500", 9, 500, rate, backlog_seconds=3600.0),
        MeterCase("backlog of a minute, batches of 500", 9, 500, rate, backlog_seconds=60.0),
        MeterCase("calm: 9 partitions, single records", 9, 1, 900.0),
        MeterCase("many: 900 partitions, single records", 900, 1, 270.0),
        MeterCase("many and busy: 90 partitions, batches of 10", 90, 10, 20_000.0),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="simulated seconds per case (default 2)")
    parser.add_argument("--rate", type=float, default=200_000.0, help="records/s of the busy cases (default 200000)")
    options = parser.parse_args()
    results = [asdict(run(case, max(options.seconds, 1.1))) for case in cases(options.rate)]
    told = {"python": platform.python_version(), "limit_microseconds_per_record": 0.5, "cases": results}
    print(json.dumps(told, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
