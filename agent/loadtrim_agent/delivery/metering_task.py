"""The measuring shell: gathers from the streams what was handed out and done, and reports it.

Gathering is per batch and every 0.2 s, never per record in the agent's loop; user code's thread only appends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import sub
from typing import NamedTuple

from msgspec import structs

from loadtrim_agent.common.clock import boot_time, seconds_to_beat, wall_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.chunk import Chunk
from loadtrim_agent.kafka.fetch.port import Fetcher
from loadtrim_agent.metering.batch_cost import BatchCost
from loadtrim_agent.metering.commit_bounds import CommitBounds
from loadtrim_agent.metering.cost import ALONE, Together
from loadtrim_agent.metering.lateness import NotLate
from loadtrim_agent.metering.meter import Meter, MeterConfig, MeterSnapshot, split_report
from loadtrim_agent.metering.readings import GATHER_SECONDS, REPORTS_SPREAD, Working
from loadtrim_agent.observability.histogram import LATENCY_BOUNDS
from loadtrim_agent.observability.metrics import Metrics

from .doubt import Doubt
from .partition_stream import Stream
from .pending import ReportedDone
from .ports import ReportTarget
from .record_buffer import RecordBuffer
from .stretches import Finished

__all__ = ["MeteringTask", "process_started_at"]

FRESH_SECONDS = 1.0
PAUSES_SECONDS = 0.01
"""Pauses that are no further apart happen at one time. Chosen."""
TOLERANCE_SHARE = 0.1
"""Of the objective: a record that is kept for no longer beyond the next call counts as done at it. Chosen."""


def process_started_at() -> float:
    """When this process was started, seconds since the epoch; where that cannot be read, now."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return wall_time() - (boot_time() - ticks / os.sysconf("SC_CLK_TCK"))
    return wall_time()


class MeteringTask:
    """Feeds one :class:`Meter` and the metrics from one consumer's streams.

    Args:
        config: of the meter.
        metrics: where what was done is counted.
    """

    def __init__(self, config: MeterConfig, metrics: Metrics) -> None:
        self.meter = Meter(config)
        self._metrics = metrics
        self._config = config
        spread = REPORTS_SPREAD * config.report_seconds
        self._report_phase = zlib.crc32(config.instance.encode()) / (1 << 32) * spread
        self._buffer: RecordBuffer | None = None
        self._fetcher: Fetcher | None = None
        self._fetched = asyncio.Event()
        """Set while records are there that are not done."""
        self._watched: dict[Partition, Stream] = {}
        """Those of which something could become done, so that nobody looks at those that are quiet."""
        self._gathered_at = 0.0
        self._batches = BatchCost()
        self._doubt = Doubt()
        self._sequence = 0
        self._latency_bounds = tuple(sorted({*LATENCY_BOUNDS, config.sla_seconds}))
        self._latencies: dict[int, int] = {}
        """Records done since the last report, by the bucket of their latency."""
        self.snapshot: MeterSnapshot = self.meter.snapshot(wall_time())

    def attach(self, buffer: RecordBuffer, fetcher: Fetcher) -> None:
        """From now on these streams are measured."""
        self._buffer = buffer
        self._fetcher = fetcher
        buffer.hand.samples.tolerance_seconds = TOLERANCE_SHARE * self._config.sla_seconds

    # -- what the agent tells ------------------------------------------------------------------------------------

    def acquired(self, stream: Stream, seconds: float | None, work_rate: float | None = None) -> None:
        now = wall_time()
        self._watched[stream.partition] = stream
        self._doubt.by_hand = stream.commits.by_hand
        end = self._fresh_end(stream.partition, now)
        self.meter.acquired(stream.partition, now, stream.position, end, seconds, work_rate)
        if seconds is not None:
            self._metrics.handoff("acquire", seconds)

    def _fresh_end(self, partition: Partition, now: float) -> int | None:
        """End of the log, unless it was told in an earlier ownership: then backlog would count as arrivals."""
        told_at = self._fetcher.end_offset_at(partition) if self._fetcher is not None else None
        fresh = told_at is not None and now - told_at < FRESH_SECONDS
        return self._fetcher.end_offset(partition) if self._fetcher is not None and fresh else None

    def lost(self, stream: Stream) -> None:
        self._gather(stream, wall_time(), wall_time() - boot_time())
        if (bounds := stream.reported.bounds) is not None:
            bounds.close()
            self._decide(stream, bounds)
        self._watched.pop(stream.partition, None)
        self.meter.lost(stream.partition, wall_time())
        self._metrics.dropped_partition(*stream.partition)

    def fetched(self, stream: Stream, chunk: Chunk, end_offset: int | None) -> None:
        stamps, counts = chunk.stamps()
        self._watched[stream.partition] = stream
        self._fetched.set()
        self.meter.fetched(
            stream.partition,
            wall_time(),
            stamps,
            counts,
            next_offset=chunk.end,
            end_offset=end_offset,
            answered_at=self._fetcher.end_offset_at(stream.partition) if self._fetcher is not None else None,
        )

    def sought(self, stream: Stream, offset: int) -> None:
        self._watched[stream.partition] = stream
        self.meter.sought(stream.partition, wall_time(), offset)

    def paused(self, stream: Stream, paused: bool) -> None:
        # A pause is judged by what was worked in it. Of many partitions that are paused at once the first gathers.
        if wall_time() - self._gathered_at > PAUSES_SECONDS:
            self.gather()
        self.meter.paused(stream.partition, wall_time(), paused)

    def committed(self, offsets: Mapping[Partition, int]) -> None:
        for partition, offset in offsets.items():
            self.meter.committed(partition, offset)

    # -- gathering -----------------------------------------------------------------------------------------------

    def gather(self) -> None:
        """Take what was done since the last time. O(partitions of which something is to be done)."""
        self._gathered_at = now = wall_time()
        wall_offset = now - boot_time()
        if self._buffer is not None:
            self._doubt.look(self._buffer.hand)
        for stream in tuple(self._watched.values()):
            self._gather(stream, now, wall_offset)
            if _emptied(stream):
                del self._watched[stream.partition]
        self._work_on(now, now - wall_offset)

    def _work_on(self, now: float, boot_now: float) -> None:
        """Tell what is in hand now."""
        if self._buffer is None:
            return
        work = [stream.open_work(boot_now) for stream in self._watched.values()]
        hand = Working(
            records=sum(records for records, _ in work),
            open_seconds=sum(seconds for _, seconds in work),
            asleep_seconds=self._buffer.sleep.seconds(boot_now),
            batches_filled=self._batches.filled,
            costs_provisional=self._batches.is_provisional(boot_now),
            batch_seconds=self._batches.own_seconds(boot_now) if self._doubt.untold.at_next_call else 0.0,
            tells=self._buffer.hand.telling.begun,
            untold=self._doubt.untold,
        )
        self.meter.working(now, hand)
        taken = [stream.taken_at() for stream in self._watched.values()]
        self._metrics.in_hand(min((at for at in taken if at is not None), default=None))

    def _gather(self, stream: Stream, now: float, wall_offset: float) -> None:
        size_bytes = stream.size_bytes
        if size_bytes != stream.reported.size_bytes:
            self.meter.unpacked(stream.partition, size_bytes - stream.reported.size_bytes)
            stream.reported.size_bytes = size_bytes
        # First this, then what was done: a position ahead of it would tell that nothing of what is fetched is left.
        position = stream.done
        finished, told = stream.take_finished(), stream.take_reported_done()
        at_next_call = self._doubt.untold.at_next_call
        if stream.commits.by_hand:
            self._bound(stream, () if at_next_call else finished, wall_offset, now - wall_offset)
        if not finished and not told and position == stream.reported.done:
            return
        stream.reported.done = position
        position = position if position is not None else stream.position
        if at_next_call:
            self._done(stream, now, position, unpack(finished, wall_offset, told, self._batches))
            return
        self._done_perhaps(stream, now, position, finished, wall_offset)
        if told:
            self._done(stream, now, position, unpack((), wall_offset, told))

    def _done(self, stream: Stream, now: float, position: int, measured: Measured) -> None:
        """Count what is done for certain."""
        latencies, busies, timed, together = measured
        revision = self._batches.revision()
        self.meter.done(stream.partition, now, latencies, busies, position, revision=revision, together=together)
        self._show_done(stream, len(busies), timed, busies)

    def _done_perhaps(
        self, stream: Stream, now: float, position: int, finished: Sequence[Finished], wall_offset: float
    ) -> None:
        """Count what was handed on, and may be worked on still. It may as well have been done at once."""
        _, busies, _, together = unpack(finished, wall_offset, (), self._batches)
        ages = [each.age(wall_offset) for each in handed_on(finished)]
        not_late = NotLate.UNDECIDED if stream.commits.by_hand else NotLate.UNKNOWN
        revision = self._batches.revision()
        self.meter.done(
            stream.partition, now, ages, busies, position, not_late=not_late, revision=revision, together=together
        )
        late = [age for age in ages if age > self.meter.judge.latency_max_seconds]
        self._show_done(stream, len(busies), late, [])

    def _bound(self, stream: Stream, finished: Sequence[Finished], wall_offset: float, boot_now: float) -> None:
        """Take in what user code has committed, and what of this batch a commit is to tell of."""
        calls = stream.commits.take()
        bounds = stream.reported.bounds
        if bounds is None and not finished:
            return
        if bounds is None:
            bounds = stream.reported.bounds = CommitBounds(self.meter.judge.latency_max_seconds)
        bounds.latency_max_seconds = self.meter.judge.latency_max_seconds
        for offset, at in calls:
            bounds.committed(offset, at)
        for each in handed_on(finished):
            if each.stamp >= 0:
                bounds.handed_on(each.offset, each.taken_at, each.age(wall_offset))
        bounds.expire(boot_now)
        self._decide(stream, bounds)

    def _decide(self, stream: Stream, bounds: CommitBounds) -> None:
        """Count what was decided."""
        latencies, unknown = bounds.take()
        self.meter.judge.decided(latencies, unknown)
        self._doubt.uncommitted(unknown)
        self._show_done(stream, 0, latencies, [])

    def _show_done(self, stream: Stream, count: int, latencies: Sequence[float], busies: Sequence[float]) -> None:
        by_bound = self._metrics.records_done(*stream.partition, count, latencies, busies)
        for bound, count in by_bound.items():
            # Another consumer with the same labels may have bounds there that are none of ours.
            bucket = bisect_left(self._latency_bounds, bound)
            self._latencies[bucket] = self._latencies.get(bucket, 0) + count

    async def run_gathering(self) -> None:
        """Gather for ever; asleep while there is nothing that could become done."""
        while True:
            await self._fetched.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self.gather()
            if not self._watched:
                self._fetched.clear()

    # -- telling -------------------------------------------------------------------------------------------------

    async def run_reports(self, target: ReportTarget) -> None:
        """Report for ever, soon after each multiple of the report interval by the wall clock.

        All members do, so that the leader knows the whole group up to a moment that is hardly past when it decides; a
        clock that is off costs that, and nothing else. They are spread over a part of the interval by their names.

        A report that cannot be written is tried for a while. Until then nothing else is told, and the next report tells
        of all that time. Metrics and ``/status`` go on: they are looked at just then.
        """
        async with asyncio.TaskGroup() as tasks:
            telling: asyncio.Task[None] | None = None
            while True:
                await asyncio.sleep(seconds_to_beat(wall_time(), self._config.report_seconds, self._report_phase))
                self.committed(target.committed())
                if telling is None or telling.done():
                    telling = tasks.create_task(self.report(*target.member(), target), name="loadtrim-report")
                else:
                    self._look()
                    self.show()

    async def report(self, member: str, generation: int, target: ReportTarget) -> None:
        """Report what happened since the last time."""
        self._look()
        report = self.meter.report(wall_time(), member, generation, self._sequence + 1, boot_time())
        report = structs.replace(
            report,
            latency_counts=self._latency_counts(),
            unready=target.unready(),
            slicing_off=target.slicing_off(),
        )
        self.show()
        parts = split_report(report)
        self._sequence = parts[-1].sequence  # before anything is waited for: the last report may come in between
        for part in parts:
            await target.publish(part, part.sequence)

    def _latency_counts(self) -> tuple[tuple[float, int], ...]:
        """Latencies since the last report, by bucket."""
        counts, self._latencies = self._latencies, {}
        bounds = self._latency_bounds
        return tuple((bounds[index], count) for index, count in sorted(counts.items()) if index < len(bounds))

    def _look(self) -> None:
        """Take in what was done, and, for idle partitions, what the last fetch said of the log's end: no request."""
        self.gather()
        if self._buffer is None or self._fetcher is None:
            return
        for partition in self._buffer.streams:
            end, at = self._fetcher.end_offset(partition), self._fetcher.end_offset_at(partition)
            if end is not None and at is not None:
                self.meter.observed(partition, at, end)

    def show(self) -> None:
        """Bring gauges and the snapshot for ``/status`` up to date."""
        self.snapshot = seen = self.meter.snapshot(wall_time())
        self._metrics.utilization(seen.utilization, seen.capacity.at(seen.speed))
        self._metrics.owned(len(seen.partitions))
        self._metrics.records_late(seen.late, seen.unknown)
        for p in seen.partitions:
            self._metrics.partition(*p.partition, p.lag_records, p.lag_seconds, p.arrival_rate)


def _emptied(stream: Stream) -> bool:
    """Everything fetched was handed out, is done, and was gathered. In this order: user code goes on meanwhile."""
    if not (stream.exhausted and stream.in_hand is None and stream.gathered and stream.done == stream.reported.done):
        return False
    return not stream.reported.bounds


class HandedOn(NamedTuple):
    """A record that was handed out, before user code asked for the next one."""

    stamp: int
    """The timestamp, ms; -1: none."""
    taken_at: float
    """Time of the hand-out, boot clock."""
    offset: int
    """Offset; -1 where nobody asks for it."""

    def age(self, wall_offset: float) -> float:
        """Return the age at the hand-out, seconds; 0 where it has no timestamp."""
        return 0.0 if self.stamp < 0 else self.taken_at + wall_offset - self.stamp / 1000


def handed_on(finished: Iterable[Finished]) -> Iterator[HandedOn]:
    """Yield the records of such batches, in the order in which they were handed out."""
    for entry in finished:
        taken = repeat(entry.times[0]) if entry.at_once else entry.times
        for stamp, taken_at, offset in zip(entry.stamps, taken, entry.offsets or repeat(-1), strict=False):
            yield HandedOn(stamp, taken_at, offset)


class Measured(NamedTuple):
    """Records that were done have these."""

    latencies: list[float]
    busies: list[float]
    timed: list[float]
    """Latencies of those that have a timestamp."""
    together: Together


def unpack(
    finished: Iterable[Finished],
    wall_offset: float,
    told: Iterable[ReportedDone] = (),
    batches: BatchCost | None = None,
) -> Measured:
    """Return latencies and busy seconds of what was done.

    A batch's time is shared out evenly among its records, of all partitions, as if it were a full one (``batches``).
    All of them are done when it is. What user code has told to be done was in its hands from the hand-out until then.
    """
    latencies: list[float] = []
    busies: list[float] = []
    timeless: list[int] = []
    together = ALONE
    for stamps, times, at_once, records, limit, _ in finished:
        begin = len(latencies)
        if at_once:
            at = times[1] + wall_offset
            latencies += [at - stamp / 1000 for stamp in stamps]
            records, factor = records or len(stamps), 1.0
            if batches is not None:
                batches.add(records, times[1] - times[0], limit, len(stamps), times[1])
                factor = batches.factor(records, limit)
            each, pairs = factor * (times[1] - times[0]) / records, (records - 1) * len(stamps)
            busies += [each] * len(stamps)
            if pairs:
                together = together.add(Together(pairs, pairs * each, pairs * each * each))
        else:
            ends = times[1:]
            latencies += [end + wall_offset - stamp / 1000 for end, stamp in zip(ends, stamps, strict=True)]
            busies += map(sub, ends, times)
        if min(stamps) < 0:
            timeless += [index for index, stamp in enumerate(stamps, begin) if stamp < 0]
    for stamp, taken_at, done_at in told:
        if stamp < 0:
            timeless.append(len(latencies))
        latencies.append(done_at + wall_offset - stamp / 1000)
        busies.append(done_at - taken_at)
    if not timeless:
        return Measured(latencies, busies, latencies, together)
    for index in timeless:
        latencies[index] = 0.0
    without = set(timeless)
    timed = [latency for index, latency in enumerate(latencies) if index not in without]
    return Measured(latencies, busies, timed, together)
