"""What one member measures: the shell feeds it per batch and asks it once per report.

Theory of operation. Everything is counted where it happens, so in steady state the broker is asked nothing beyond the
fetches: their answers tell the end of the log (:mod:`.arrivals`), user code's hands tell cost and latency
(:mod:`.cost`, :mod:`.lateness`), and both are kept per acquisition of a partition (:mod:`.partition_meter`). The sum of
all partitions' arriving work per 0.1 s of wall clock is the member's *slots*: those of all members are aligned, so the
leader adds them up and sees how the group's total varies.

Two clocks: ``now`` is always the member's own wall clock; time stamps are the log's. What compares them uses the own
clock less :meth:`Meter.clock_offset`.

Slots hold work as expected when they are closed: records that arrived x their mean cost then (of the partition, blended
with its topic's; of the member's other topics while its own topic is new; work without any cost known waits for one).
The scatter of single costs is not in them: in a window of tau seconds it adds rate x tau x cost variance.

Partitions that are paused or blocked are kept out of the slots; their arrivals and lag are still told.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

from msgspec import structs

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.ownership_records import LoadRecord, PartitionLoad
from loadtrim_agent.wire.ranges import HANDOFF_SECONDS_MAX, STARTUP_SECONDS_MAX
from loadtrim_agent.wire.telemetry_records import PartitionReport, ReportRecord

from .arrivals import Arrivals
from .broker_clock import ClockOffset
from .buckets import WorkBuckets
from .capacity import MemberWork
from .cost import ALONE, Cost, Together, TopicCosts
from .lateness import Judge, NotLate, runs_of
from .partition_meter import PartitionMeter
from .pause import Pauses
from .readings import (
    OUT_OF_SIZING,
    Flows,
    MeterConfig,
    MeterSnapshot,
    PartitionSnapshot,
    PartitionState,
    PartitionWork,
    Working,
    split_report,
)

__all__ = [
    "HANDOFFS_MAX",
    "QUEUES_MAX",
    "Meter",
    "MeterConfig",
    "MeterSnapshot",
    "PartitionSnapshot",
    "split_report",
]

HANDOFFS_MAX = 1000
"""Handoffs told per report."""
QUEUES_MAX = 200
"""Partitions told per ``load`` record: those with most work waiting."""
_STUCK_AFTER_COSTS = 20.0
"""A record may take this many times the dearest topic's mean before its partition counts as blocked ..."""
_STUCK_AFTER_STRETCHES = 3.0
"""... and a batch (of ``getmany``: told as done when all of it is) this many times the longest one lately, or this many
times what the records in hand cost."""
_STUCK_AFTER_NEW_SECONDS = 60.0
"""A member's first batch, of which nothing is known, or one that is larger than before may take no longer than this.
Chosen: from then on an alert tells that a record hangs."""
_REBASE_SECONDS = 0.2
"""A change of the clock offset above this moves what is being measured along; smaller ones come out in the wash."""


class _Moment(NamedTuple):
    own: float
    """Own clock, which may be set."""
    boot: float | None = None
    """Boot clock; None: not told."""

    def since(self, earlier: _Moment) -> float:
        """Return the seconds between two, by the boot clock where both tell it."""
        if self.boot is not None and earlier.boot is not None:
            return self.boot - earlier.boot
        return self.own - earlier.own


class Meter:
    """Everything one member measures. Deterministic; not thread-safe: one thread feeds and asks.

    Cost: about 0.15 us per record in batches of hundreds, 20 us per batch, 30 us per idle and 100 us per busy partition
    and report (``benchmarks/suite/bench_meter.py``).
    """

    def __init__(self, config: MeterConfig) -> None:
        self._config = config
        self._grid = config.grid
        self._clock = ClockOffset()
        self._parts: dict[Partition, PartitionMeter] = {}
        self._costs = TopicCosts()
        self._judge = Judge(config.sla_seconds, config.concurrency)
        self._work = MemberWork(config.concurrency)
        self._pauses = Pauses(self._work.busy)
        self._slots = WorkBuckets(self._grid, config.settle_seconds, config.settle_seconds_max)
        self._gone: dict[Partition, tuple[Flows, PartitionReport]] = {}
        """Lost since the last report."""
        self._handoffs: deque[float] = deque(maxlen=HANDOFFS_MAX)
        self._startup: float | None = None
        self._started = False
        self._reported: _Moment | None = None
        """Of the last report; before the first one, of the first acquisition."""
        self._told = structs.replace(self._judge, late={})
        self.ignored = 0
        """Records told of for partitions that were not owned (any more)."""

    def _log_time(self, now: float) -> float:
        return now - self._clock.seconds

    # -- fed by the shell

    def acquired(
        self,
        partition: Partition,
        now: float,
        position: int,
        end_offset: int | None = None,
        handoff_seconds: float | None = None,
        work_rate: float | None = None,
    ) -> None:
        """This member owns a partition from now on.

        Args:
            partition: topic and index.
            now: own clock.
            position: the offset it starts at.
            end_offset: end of the log, where it was observed just now; else the first answer of the broker tells what
                is backlog. One below ``position`` is left over from earlier and taken as None.
            handoff_seconds: since the old owner stopped, for a handoff; arrivals since then count here.
            work_rate: busy seconds/s that arrived there, as the old owner told; None: it did not.
        """
        partition = Partition(*partition)
        if partition in self._parts:
            self.lost(partition, now)
        if end_offset is not None and end_offset < position:
            end_offset = None
        at = self._log_time(now) - max(0.0, handoff_seconds or 0.0)
        arrivals = Arrivals(self._grid, at, end_offset, self._slots.opened(at))
        cost = self._costs.roughly(partition.topic)
        rate = work_rate / cost.mean if work_rate is not None and cost is not None and cost.mean > 0.0 else None
        self._parts[partition] = PartitionMeter(partition, self._config, self._work.busy, position, arrivals, rate)
        self._pauses.owned(self._log_time(now), len(self._parts))
        if handoff_seconds is not None:
            self._handoffs.append(min(max(0.0, handoff_seconds), HANDOFF_SECONDS_MAX))
        if not self._started:
            self._started = True
            self._reported = self._reported or _Moment(now)
            if self._config.started_at is not None:
                startup = max(0.0, now - self._config.started_at)
                # A member that waited for hours for its first partition was spare: that was no start-up.
                self._startup = startup if startup <= STARTUP_SECONDS_MAX else None

    def lost(self, partition: Partition, now: float) -> None:
        """This member does not own the partition any more. What arrived until now stays in its slots."""
        part = self._parts.pop(partition, None)
        if part is None:
            return
        self._pauses.lost(partition, self._log_time(now), len(self._parts))
        if part.state(self._log_time(now), self._stuck_after()) not in OUT_OF_SIZING:
            self._slots.lost(part, self._cost_of_work(part))
        flows, observed = part.flows(), part.observed_seconds(self._log_time(now))
        if part.partition in self._gone:
            before, told = self._gone[part.partition]
            flows.add(before)
            observed += told.observed or 0.0
        entry = PartitionReport(
            topic=part.partition.topic,
            partition=part.partition.partition,
            position=part.position,
            committed=part.committed,
            state=PartitionState.GONE.value,
            # Always said: taken for the whole interval it would look as if nothing had come since it was given away.
            observed=round(observed, 3),
        )
        self._gone[part.partition] = (flows, entry)
        self._costs.forget({partition.topic for partition in self._parts})

    def fetched(
        self,
        partition: Partition,
        now: float,
        timestamps: Sequence[float],
        counts: Sequence[int] | None = None,
        *,
        next_offset: int,
        end_offset: int | None,
        size_bytes: int = 0,
        answered_at: float | None = None,
    ) -> None:
        """A batch of one partition was fetched. Records come in the order of the log, each acquisition's once.

        Args:
            partition: topic and index.
            now: own clock.
            timestamps: of the records, seconds since the epoch; negative: the record has none.
            counts: how many consecutive records have each timestamp; None: one each.
            next_offset: the next offset to be fetched (behind gaps and transaction markers).
            end_offset: end of the log as the answer told it: the high watermark, with ``read_committed`` the last
                stable offset; None: not told.
            size_bytes: of the records, where it is known already; else :meth:`unpacked` tells it.
            answered_at: own clock when the broker told ``end_offset``, where the records have waited in a client's
                buffer since; None: now.
        """
        part = self._parts.get(partition)
        if part is None:
            self.ignored += len(timestamps) if counts is None else sum(counts)
            return
        at = self._log_time(now if answered_at is None else min(answered_at, now))
        at = max(at, part.acquired_at)
        runs = runs_of(timestamps, self._grid, at, counts)
        if part.fetched(at, runs, next_offset, end_offset, size_bytes):
            self._judge.add_came(runs, at)

    def unpacked(self, partition: Partition, size_bytes: int) -> None:
        """Records of one partition turned out to be so large, uncompressed."""
        part = self._parts.get(partition)
        if part is not None:
            part.unpacked(size_bytes)

    def observed(self, partition: Partition, at: float, end_offset: int) -> None:
        """The broker told the end of a log without records.

        Call it for every owned partition before :meth:`report`, with the time (own clock) and end of the last answer;
        one from before the acquisition is ignored.
        """
        part = self._parts.get(partition)
        if part is not None:
            part.observed(self._log_time(at), end_offset)

    def done(
        self,
        partition: Partition,
        now: float,
        latencies: Sequence[float],
        busies: Sequence[float],
        position: int,
        *,
        not_late: NotLate = NotLate.IN_TIME,
        revision: float = 1.0,
        together: Together = ALONE,
    ) -> None:
        """Records of one partition were done, in the order of the log; one call per gathered batch.

        Args:
            partition: topic and index.
            now: own clock.
            latencies: own clock when done less the record's timestamp, seconds; anything where it has none.
            busies: busy seconds of user code, as many.
            position: the offset after the last of them.
            not_late: what is known of those that were not late by then, where user code may work on them still.
            revision: what was done before is taken to have cost so many times as much. How busy the member was stays as
                it was told.
            together: those of them that were worked on at once with others.

        Raises:
            ValueError: the two sequences differ in length.
        """
        count = len(busies)
        if count != len(latencies):
            raise ValueError(f"{partition}: {len(latencies)} latencies but {count} busy times")
        total = sum(busies)
        if not 0.0 <= total < math.inf:
            busies = [busy if 0.0 <= busy < math.inf else 0.0 for busy in busies]
            total, together = sum(busies), ALONE
        if revision != 1.0:
            self._costs.revise(revision, (part.cost for part in self._parts.values()))
        part = self._parts.get(partition)
        if part is None:
            self.ignored += count
            self._work.busy.add(now, total)
            return
        log_now = self._log_time(now)
        if not count and position == part.position:
            return
        # Asked before this batch's work counts, which may be what it was stuck in.
        waited = log_now - part.waiting_since
        if waited > self._config.blocked_seconds and part.state(log_now, self._stuck_after()) is PartitionState.BLOCKED:
            part.resumed(log_now)
        self._work.done(now, total, count)
        if count:
            self._pauses.done()
            squares = sum(map(mul, busies, busies))
            part.cost.add(now, count, total, squares, together)
            self._costs.add(part.partition.topic, now, count, total, squares, together)
            self._judge.not_late = not_late
            part.finished(latencies, busies, total, self._judge, log_now)
        part.moved(log_now, position)

    @property
    def judge(self) -> Judge:
        """Return the judge of what is done, which also takes in what is decided later."""
        return self._judge

    def working(self, now: float, hand: Working) -> None:
        """Tell what is in hand, and how long user code has slept: every 0.2 s or so, and before :meth:`report`.

        Without it work counts when it is done, and the capacity is what it was set to.
        """
        self._work.working(now, hand)
        self._costs.provisional = hand.costs_provisional
        self._costs.batch_seconds = hand.batch_seconds

    def sought(self, partition: Partition, now: float, position: int) -> None:
        """The user moved the position (seek); what was fetched and not done is dropped. No arrivals."""
        part = self._parts.get(partition)
        if part is not None:
            part.sought(self._log_time(now), position)

    def committed(self, partition: Partition, offset: int) -> None:
        """The broker acknowledged a commit."""
        part = self._parts.get(partition)
        if part is not None:
            part.committed = offset

    def paused(self, partition: Partition, now: float, paused: bool) -> None:
        """The user paused or resumed a partition that is still owned.

        What is paused for most of the time between two reports is kept out of sizing, but for back pressure.
        """
        part, log_now = self._parts.get(partition), self._log_time(now)
        if part is None:
            return
        if paused:
            self._pauses.paused(partition, log_now, len(self._parts))
        elif self._pauses.resumed(partition, log_now, len(self._parts)):
            part.resumed(log_now, load=not part.paused)

    def clock_offset(self, seconds: float, round_trip_seconds: float = 0.0) -> None:
        """A sample of own wall clock minus the broker's log clock.

        Args:
            seconds: middle of send and acknowledgement of an own control record, less its LogAppendTime.
            round_trip_seconds: between them; samples with short ones are trusted more.

        The first sample should come before anything is acquired. A later jump moves what is being measured along; slots
        that were told already keep their wrong times, so some times are told twice or not at all then.
        """
        old = self._clock.seconds
        new = self._clock.add(seconds, round_trip_seconds)
        self._judge.offset_seconds = new
        if abs(new - old) <= _REBASE_SECONDS:
            return
        parts = self._grid.parts
        grid_slots = round((old - new) * self._grid.inverse / parts) * parts
        self._slots.shift(grid_slots)
        self._pauses.shift(old - new)
        for part in self._parts.values():
            part.shift(grid_slots, old - new)

    # -- asked by the shell

    def report(
        self, now: float, member: str, generation: int, sequence: int, boot_now: float | None = None
    ) -> ReportRecord:
        """What happened since the last report. Ask once per interval; :func:`split_report` it before it is sent.

        Args:
            now: own clock.
            member: member id.
            generation: of the group.
            sequence: above that of every earlier report of this member.
            boot_now: the same by a clock that nobody sets, by which work is measured, too; None: by the own clock.
        """
        log_now = self._log_time(now)
        moment = _Moment(now, boot_now)
        interval = max(0.001, moment.since(self._reported or moment))
        self._reported = moment
        self._pauses.settle(log_now)
        for partition, part in self._parts.items():
            part.paused = partition in self._pauses.kept_out
        states = self._states(log_now)
        sized = [(self._parts[partition], state not in OUT_OF_SIZING) for partition, state in states.items()]
        slots_start, slots, second = self._slots.close(log_now, sized, self._costs, self._cost_of_work)
        judge, told = self._judge, self._told
        lag_least = sum(self._parts[p].lag_least for p, state in states.items() if state not in OUT_OF_SIZING)
        busy_seconds = self._work.close(interval, lag_least, self._costs.mean_seconds())
        capacity = self._work.capacity
        late = {
            cause.value: count - told.late.get(cause, 0)
            for cause, count in sorted(judge.late.items())
            if count > told.late.get(cause, 0)
        }
        came = judge.came - told.came
        report = ReportRecord(
            group=self._config.group,
            member=member,
            at=now,
            sequence=sequence,
            generation=generation,
            instance=self._config.instance,
            process=self._config.process,
            instance_type=self._config.instance_type,
            interval=round(interval, 6),
            concurrency=capacity.value,
            capacity_known=capacity.known,
            capacity_error=round(capacity.error, 6),
            untold=self._work.untold.value,
            speed=self._config.speed,
            busy_seconds=round(busy_seconds, 6),
            batch_seconds=round(self._costs.batch_seconds, 6) or None,
            startup_seconds=self._startup,
            handoffs=tuple(round(seconds, 6) for seconds in self._handoffs),
            late=late,
            in_time=judge.in_time - told.in_time,
            unknown=judge.unknown - told.unknown,
            latency_seconds=round(max(0.0, judge.latency_seconds - told.latency_seconds), 6),
            arrival_delay=round((judge.came_seconds - told.came_seconds) / came, 6) if came > 0 else None,
            slot_seconds=self._config.slot_seconds,
            slots_start=slots_start,
            slots=slots,
            slots_second=second,
            slots_open=self._slots.opening(sized, self._cost_of_work),
            partitions=self._entries(log_now, interval, states),
        )
        self._told = structs.replace(judge, late=dict(judge.late))
        self._startup = None
        self._handoffs.clear()
        return report

    def load(self, now: float, member: str, generation: int) -> LoadRecord:
        """Slack and queues. Send it when ``(slack, queues)`` differ from the last sent; they are rounded for that."""
        queues = [
            PartitionLoad(
                topic=part.partition.topic, partition=part.partition.partition, queue_seconds=round(seconds, 3)
            )
            for part in self._parts.values()
            if part.lag and (work := self.work_of(part.partition)) and (seconds := work.queue_seconds) >= 0.0005
        ]
        queues.sort(key=lambda queue: (-queue.queue_seconds, queue.topic, queue.partition))
        kept = sorted(queues[:QUEUES_MAX], key=lambda queue: (queue.topic, queue.partition))
        states = self._states(self._log_time(now))
        return LoadRecord(
            group=self._config.group,
            member=member,
            at=now,
            generation=generation,
            slack=round(self._slack(now, states), 2),
            queues=tuple(kept),
            work=round(sum(queue.queue_seconds for queue in queues), 3),
            rate=round(self._work_rate(states), 3),
            capacity=round(self._work.capacity.value, 3),
        )

    def snapshot(self, now: float) -> MeterSnapshot:
        """What metrics and ``/status`` tell, without changing what the next report says."""
        log_now = self._log_time(now)
        states = self._states(log_now)
        partitions = tuple(
            PartitionSnapshot(
                partition=partition,
                state=states[partition],
                position=part.position,
                committed=part.committed,
                end_offset=part.arrivals.end_offset,
                lag_records=part.lag,
                lag_seconds=part.lag_seconds(log_now),
                arrival_rate=part.arrival_rate(),
                cost=self._cost(part),
                queue_seconds=work.queue_seconds if part.lag and (work := self.work_of(partition)) else 0.0,
            )
            for partition, part in sorted(self._parts.items())
        )
        return MeterSnapshot(
            utilization=self._work.busy.share(now),
            slack=self._slack(now, states),
            capacity=self._work.capacity,
            speed=self._config.speed,
            work_rate=self._work_rate(states),
            clock_offset_seconds=self._clock.seconds,
            busy_seconds=self._work.busy.total,
            in_time=self._judge.in_time,
            untimed=self._judge.untimed,
            unknown=self._judge.unknown,
            untold=self._work.untold,
            late={cause.value: count for cause, count in sorted(self._judge.late.items())},
            ignored=self.ignored,
            partitions=partitions,
        )

    def work_of(self, partition: Partition) -> PartitionWork | None:
        """Return the work that a partition makes; None: it is not owned, or no cost of its records is known.

        Cost: O(1), but for the first time after a slot was closed.
        """
        part = self._parts.get(partition)
        cost = self._cost_of_work(part) if part is not None else None
        if part is None or cost is None:
            return None
        return PartitionWork(cost.mean, part.arrival_rate() * cost.mean, part.lag * cost.mean)

    # -- costs and states

    def _cost(self, part: PartitionMeter) -> Cost | None:
        """Of a partition's records; its topic's while it has none of its own; None while nobody has."""
        return self._costs.blended(part.cost, self._costs.of(part.partition.topic))

    def _cost_of_work(self, part: PartitionMeter) -> Cost | None:
        """The same for slots and queues, where a rough figure is better than none."""
        return self._costs.blended(part.cost, self._costs.roughly(part.partition.topic))

    def _stuck_after(self) -> float:
        """How long user code may be busy with a record, or with what it has in hand at once, before it is stuck."""
        hand_seconds = self._work.hand_seconds(self._costs.mean_seconds())
        return max(
            self._config.blocked_seconds,
            _STUCK_AFTER_COSTS * self._costs.dearest_seconds(),
            _STUCK_AFTER_STRETCHES * self._work.busy.longest_seconds,
            min(_STUCK_AFTER_NEW_SECONDS, _STUCK_AFTER_STRETCHES * hand_seconds),
        )

    def _states(self, log_now: float) -> dict[Partition, PartitionState]:
        """Of every owned partition, sorted."""
        patience = self._stuck_after()
        return {partition: part.state(log_now, patience) for partition, part in sorted(self._parts.items())}

    def _work_rate(self, states: dict[Partition, PartitionState]) -> float:
        works = (self.work_of(partition) for partition, state in states.items() if state not in OUT_OF_SIZING)
        return sum(work.rate for work in works if work is not None)

    def _slack(self, now: float, states: dict[Partition, PartitionState]) -> float:
        """What is neither used nor about to be: the larger of what is worked and what arrives counts as used."""
        capacity = self._work.capacity.value
        used = max(self._work.busy.share(now) * capacity, self._work_rate(states))
        return max(0.0, capacity - used) * self._config.speed

    def _entries(
        self, log_now: float, interval: float, states: dict[Partition, PartitionState]
    ) -> tuple[PartitionReport, ...]:
        entries: list[PartitionReport] = []
        for partition in sorted(self._parts.keys() | self._gone.keys()) if self._gone else states:
            part = self._parts.get(partition)
            gone = self._gone.get(partition)
            if part is None:
                assert gone is not None
                flows, entry = gone
                entries.append(structs.replace(entry, arrived=flows.arrived, bytes=flows.bytes, done=flows.done))
                continue
            flows, before = part.flows(), 0.0
            if gone is not None:
                flows.add(gone[0])
                before = gone[1].observed or 0.0
            changed = part.entry(log_now, interval, flows, states[partition], self._cost, before)
            if changed is not None:
                entries.append(changed)
        self._gone.clear()
        return tuple(entries)
