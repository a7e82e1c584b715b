"""What a member measures of one partition it owns. All times here are of the log's clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.telemetry_records import PartitionReport, WorkWindow

from .arrivals import ASSUMED_SECONDS_MAX, Arrivals
from .cost import BusyRing, Cost, CostEstimate
from .lateness import Judge, Mark, RecordQueue
from .pause import BUSY_ENOUGH
from .readings import Flows, MeterConfig, PartitionState
from .windows import Moments, SlidingWindows

__all__ = ["IDLE_SECONDS", "POLL_SECONDS", "RATE_SECONDS", "REFRESH_SECONDS", "CostOf", "PartitionMeter", "work_window"]

RATE_SECONDS = 10.0
"""The arrival rate is told over this time: a whole number of seconds, so that one-second bursts do not beat with it."""
POLL_SECONDS = 1.0
"""The broker answers a fetch at least this often (``fetch_max_wait_ms`` is 500). A partition that has nothing in hand
and was observed within it has had nothing since: it would have been answered at once."""
IDLE_SECONDS = 10.0
"""A partition without lag and without an arrival for this long is idle."""
REFRESH_SECONDS = 60.0
"""A partition that does not change is told again after this time, so that a new leader hears of it."""


def short(value: float) -> float:
    """Four significant digits: enough for planning, half the telemetry."""
    return float(f"{value:.4g}")


def work_window(seconds: float, records: Moments, cost: Cost) -> WorkWindow:
    """Work in a window from the number of records in it.

    Source: mean and variance of a sum of a random number of independent costs (Wald's equation and the law of total
    variance). Where records are worked on at once, that is too much for windows that hold less than a batch.
    """
    return WorkWindow(
        seconds=seconds,
        mean=short(records.mean * cost.mean),
        variance=short(records.variance * cost.mean**2 + records.mean * cost.variance),
        largest=short(records.largest * cost.mean),
    )


CostOf = Callable[["PartitionMeter"], Cost | None]
"""What a record of a partition costs, or is taken to cost."""


class PartitionMeter:
    """One acquisition of one partition."""

    __slots__ = (
        "_ahead_since",
        "_busy",
        "_busy_before_wait",
        "_bytes",
        "_config",
        "_done",
        "_grid",
        "_kept_out",
        "_lag_min",
        "_rate",
        "_told",
        "_told_at",
        "_told_flows",
        "_told_observed",
        "acquired_at",
        "arrivals",
        "committed",
        "cost",
        "fetched_offset",
        "partition",
        "paused",
        "position",
        "queue",
        "waiting_since",
        "windows",
    )

    def __init__(
        self,
        partition: Partition,
        config: MeterConfig,
        busy: BusyRing,
        position: int,
        arrivals: Arrivals,
        rate_before: float | None = None,
    ) -> None:
        """``busy``: of the member, to tell what waits for others from what is stuck. ``rate_before``: of arrivals,
        records/s, as the last owner told it; None: it did not.
        """
        at = arrivals.seen_at
        grid = config.grid
        self.partition = partition
        self.arrivals = arrivals
        self.windows = SlidingWindows(grid, RATE_SECONDS, rate_before)
        self.cost = CostEstimate()
        self.queue = RecordQueue(at)
        self.position = position
        """Next offset after the last record done."""
        self.fetched_offset = position
        """Next offset to be fetched."""
        self.committed: int | None = None
        self.paused = False
        """By user code, for most of the time before the last report; see :mod:`.pause`."""
        self.acquired_at = at
        self.waiting_since = at
        """Since when something is there to be done and nothing was."""
        self._busy = busy
        self._busy_before_wait = busy.total
        self._grid = grid
        self._config = config
        self._ahead_since = at
        self._kept_out = False
        self._lag_min = self.lag
        self._rate: float | None = None
        """As asked last, while no slot was closed since."""
        self._bytes = 0
        self._done = 0
        self._told: tuple[object, ...] = ()
        self._told_at = at
        self._told_flows = Flows()
        self._told_observed = at

    # -- what is known

    @property
    def lag(self) -> int:
        """Records not done; of what is not fetched, where the log has gaps, estimated by their share lately.

        Those that user code has told behind one that is not done are done. 0 while the end of the log is not known.
        """
        end, fetched = self.arrivals.end_offset, self.fetched_offset
        records = self.queue.records
        if end is None:
            return records
        # Of a batch that begins before the position, or that was aborted in part, not all records are handed out.
        records = min(records, max(0, fetched - self.position))
        ahead = end - max(fetched, self.position)
        return records + math.ceil(ahead * self.arrivals.density) if ahead > 0 else records

    @property
    def lag_least(self) -> int:
        """Return the fewest records that were not done at any moment since the last report."""
        return min(self._lag_min, self.lag)

    def lag_seconds(self, now: float) -> float:
        """Age of the oldest record not done, 0 without lag. A record that is not fetched yet is as old as known."""
        if not self.lag:
            return 0.0
        oldest = self.queue.oldest()
        return max(0.0, now - (oldest if oldest is not None else self._ahead_since))

    def observed_until(self, now: float) -> float:
        """Until when it is known what arrived."""
        seen_at = self.arrivals.seen_at
        return now if not self.queue.records and now - seen_at <= POLL_SECONDS else min(now, seen_at)

    def arrival_rate(self) -> float:
        """Records/s over the last closed slots, up to :data:`RATE_SECONDS` of them.

        For those before this member owned the partition its last owner's rate stands, where that was told.
        """
        if self._rate is None:
            records, slots = self.windows.recent(round(RATE_SECONDS * self._grid.inverse))
            self._rate = records / max(slots, self._grid.inverse) * self._grid.inverse if slots else 0.0
        return self._rate

    def state(self, now: float, patience_seconds: float) -> PartitionState:
        """What it does; ``patience_seconds``: how long user code may take for one record before it counts as stuck."""
        if self.paused:
            return PartitionState.PAUSED
        if self.lag:
            waited = now - self.waiting_since
            if waited > patience_seconds:
                busy_with_others = self._busy.total - self._busy_before_wait
                if busy_with_others < BUSY_ENOUGH * waited * self._config.concurrency:
                    return PartitionState.BLOCKED
        elif now - max(self.arrivals.last_at, self.acquired_at) > IDLE_SECONDS:
            return PartitionState.IDLE
        return PartitionState.RUNNING

    # -- what happens

    def fetched(
        self,
        now: float,
        runs: Sequence[tuple[float, int]],
        next_offset: int,
        end_offset: int | None,
        size_bytes: int,
    ) -> bool:
        """A batch came, cut into runs; see :meth:`Meter.fetched`. Returns whether it was fetched as it came."""
        lagged, known_end = self.lag, self.arrivals.end_offset is not None
        seen_at, held_back = self.arrivals.seen_at, self.queue.records > 0
        count = sum(records for _, records in runs)
        start = min(self.fetched_offset, max(0, next_offset - count))
        fresh = self.arrivals.fetched(now, runs, start, next_offset, end_offset)
        known = count - fresh
        for timestamp, records in runs:
            if timestamp < 0.0:
                self.queue.add(records, now, Mark.UNTIMED)
            elif now - timestamp <= self._config.sla_seconds:
                self.queue.add(records, timestamp, Mark.FRESH)
            else:
                mark = self._mark(timestamp, now, held_back, seen_at if known <= 0 else self.acquired_at)
                self.queue.add(records, timestamp, mark)
            known -= records
        self.fetched_offset = next_offset
        self._bytes += size_bytes
        self._grew(now, lagged, known_end)
        return known_end and not lagged

    def unpacked(self, size_bytes: int) -> None:
        """Records turned out to be so large; see :meth:`Meter.unpacked`."""
        self._bytes += size_bytes

    def _mark(self, timestamp: float, now: float, held_back: bool, since: float) -> Mark:
        """Was a record that is too old when it is fetched too old when it could have been fetched first?

        While records are in hand the buffer may be full, and so fetching may be put off because of the member's own
        load, or the partition is paused: what came then counts from ``since``, when the member could have asked for it.
        """
        held_back = held_back or timestamp < max(self.queue.drained_at, self.queue.stalled_until)
        first_seen = since if held_back else now
        return Mark.LATE if first_seen - timestamp > self._config.sla_seconds else Mark.FRESH

    def observed(self, at: float, end_offset: int) -> None:
        """The end of the log was seen at ``at``."""
        lagged, known_end = self.lag, self.arrivals.end_offset is not None
        if at < self.acquired_at or end_offset < max(self.position, self.fetched_offset):
            return  # older than the acquisition, or than what was fetched since
        self.arrivals.observed(at, end_offset)
        self._grew(at, lagged, known_end)

    def _grew(self, now: float, lagged: int, known: bool) -> None:
        """The end may have moved on; what the lag was before, and whether the end was known."""
        if not lagged and self.lag:
            self._wait_from(now)
        if not known:
            self._lag_min = self.lag
        if (self.arrivals.end_offset or 0) <= self.fetched_offset:
            self._ahead_since = now

    def _wait_from(self, now: float) -> None:
        self.waiting_since = now
        self._busy_before_wait = self._busy.total

    def finished(
        self, latencies: Sequence[float], busies: Sequence[float], total: float, judge: Judge, now: float
    ) -> None:
        """Records were done; see :meth:`Meter.done`."""
        self.queue.finish(latencies, busies, total, judge, now)
        self._done += len(busies)

    def moved(self, now: float, position: int) -> None:
        """Everything before ``position`` is done, or skipped."""
        if position < self.position:
            self.sought(now, position)
        elif position >= self.fetched_offset:
            if self.queue.records:
                self.queue.clear(now)
            if position > self.fetched_offset:
                self.arrivals.skipped(position)
            self.fetched_offset = position
        self.position = position
        self._wait_from(now)
        self._lag_min = min(self._lag_min, self.lag)

    def sought(self, now: float, position: int) -> None:
        """The user moved the position; what was buffered is dropped."""
        self.queue.clear(now)
        self.arrivals.skipped(position)
        self.position = self.fetched_offset = position
        self._ahead_since = now
        self._wait_from(now)
        self._lag_min = min(self._lag_min, self.lag)

    def resumed(self, now: float, *, load: bool = False) -> None:
        """It was paused or blocked until now: what came in that time is late because of that.

        ``load``: it counts in sizing all the same.
        """
        self.queue.stalled_until = now
        self.queue.free_at = max(self.queue.free_at, now)
        self._wait_from(now)
        if not load:
            self.arrivals.set_aside(now)
            self._kept_out = True

    def shift(self, grid_slots: int, seconds: float) -> None:
        """The log clock turned out to be ``seconds`` ahead of what was thought."""
        self.arrivals.shift(grid_slots, seconds)
        self.queue.shift(seconds)
        self.acquired_at += seconds
        self.waiting_since += seconds
        self._ahead_since += seconds
        self._told_at += seconds
        self._told_observed += seconds

    # -- what is told

    def close(self, now: float, upto: int, slots_max: int, sized: bool) -> list[float]:
        """Close the grid slots before ``upto``: the records of the last ones, none while it is kept out of sizing."""
        if not sized:
            self.arrivals.set_aside(now)
            self.arrivals.close(upto, slots_max, 0.0, now)
            self._kept_out = True
            return []
        if self._kept_out:
            self.windows.restart()
            self._rate = None
            self._kept_out = False
        until = self.observed_until(now)
        blind = now - self.arrivals.seen_at > ASSUMED_SECONDS_MAX
        rate = 0.0 if blind or self._grid.index(until) >= upto else self.arrival_rate()
        counts = self.arrivals.close(upto, slots_max, rate, until)
        self.windows.extend(counts)
        self._rate = None
        return counts

    def flows(self) -> Flows:
        """What happened since this was asked last."""
        told = self._told_flows
        arrived = max(told.arrived, int(self.arrivals.arrived + 1e-6))
        self._told_flows = Flows(arrived, self._bytes, self._done)
        return Flows(arrived - told.arrived, self._bytes - told.bytes, self._done - told.done)

    def observed_seconds(self, now: float) -> float:
        """For how long it was observed since this was asked last."""
        until = self.observed_until(now)
        observed, self._told_observed = max(0.0, until - self._told_observed), max(until, self._told_observed)
        return observed

    def entry(
        self, now: float, interval: float, flows: Flows, state: PartitionState, cost_of: CostOf, before: float = 0.0
    ) -> PartitionReport | None:
        """Its part of a report; None where nothing happened, waits or changed and it was told not long ago.

        ``before``: seconds that it was observed for in an earlier time of ownership that ended in this interval.
        """
        lag, lag_min, self._lag_min = self.lag, self._lag_min, self.lag
        observed = before + self.observed_seconds(now)
        told = (self.position, self.committed, state)
        if not (flows or lag or told != self._told or now - self._told_at >= REFRESH_SECONDS):
            return None
        self._told, self._told_at = told, now
        cost = cost_of(self)
        return PartitionReport(
            topic=self.partition.topic,
            partition=self.partition.partition,
            arrived=flows.arrived,
            bytes=flows.bytes,
            done=flows.done,
            lag=lag,
            lag_min=min(lag, lag_min),
            lag_seconds=round(self.lag_seconds(now), 3),
            cost_mean=None if cost is None else short(cost.mean),
            cost_variance=None if cost is None else short(cost.variance),
            work_windows=() if cost is None else self._work_windows(cost),
            position=self.position,
            committed=self.committed,
            state=state.value,
            observed=None if abs(observed - interval) <= 0.1 * interval else round(observed, 3),
        )

    def _work_windows(self, cost: Cost) -> tuple[WorkWindow, ...]:
        return tuple(
            work_window(length / self._grid.inverse, moments, cost)
            for length, moments in zip(self._grid.lengths, self.windows.moments(), strict=True)
            if moments is not None
        )
