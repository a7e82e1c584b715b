"""First stage: members' reports, live or replayed, become one observation of the group.

What is kept is small and bounded: per member the last report, per partition a few moving averages, for the group the
work that arrived per slot of 0.1 s over the last three minutes. A new leader feeds the telemetry of the last five
minutes through the same door and so knows what the old one knew.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable
from functools import partial
from operator import add, attrgetter

import msgspec
from msgspec import structs

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.pauses import in_turns, may_pause
from loadtrim_agent.wire.telemetry_records import PartitionReport, ReportRecord

from .bucket_sums import BucketSums
from .chance import Blocks, chance_share
from .falling_behind import GONE, Flow, MemberFlow, flow_of
from .history import RecentSeconds
from .left_out import BUCKET_SECONDS, SLOTS_SECONDS, left_out_slots
from .newcomer import Newcomer
from .observed import MemberObservation, Observation, PartitionObservation
from .shape import shape_of
from .values import GroupState, PlanConfig

__all__ = ["BUCKET_SECONDS", "FAST_SECONDS", "Average", "History"]

KEEP_SECONDS = 300.0
"""How long members that are gone are remembered, and what is not told any more. Derived: as much as a new leader reads
(``REPLAY_SECONDS``), so that it knows what the old one knew."""
FILLED_SECONDS_MAX = 60.0
"""Longest time after the newest slot for which a member that is gone is taken to have gone on. Chosen."""
PRUNE_SLOTS = 100
"""So many more than that may pile up before the old ones are dropped."""
SEQUENCES_MAX = 64
"""Sequences of a member's last reports that are remembered, so that a copy is known. Chosen: a minute of reports."""
MEMBERS_MAX = 5_000
"""Members that reported are remembered, the group's own before others. Chosen: more than any group has."""
PARTITIONS_MAX = 20_000
"""Partitions that were reported are remembered, or twice as many as the group has. Chosen."""
SAMPLES_MAX = 256
"""Handoff and start-up times that are remembered."""
FAST_SECONDS = 2.0
SLOW_SECONDS = 20.0
SLOW_RECORDS = 30.0
SLOW_SECONDS_MAX = 180.0
"""Few records tell a rate only over as long as so many take to come. Chosen: to a fifth, and as long as slots are
kept. A share that changes sooner is seen by the estimate."""
MEMBER_SECONDS = 10.0
JUMP_VARIANCES = 6.0
"""Variances whose root is the most that a rate counts as off the one before: of those measured, or of those usual for
arrivals at random."""
WHOLE_SHARE = 0.9
"""Of an interval: what was seen of it is taken for all of it."""
SHAPE_REACH_SECONDS = 2.0
"""Windows of this length tell what comes in a second; those of the half second around a burst do not. A shape that
reaches less far is none yet: its owner has just taken the partition over."""
WORK_MIN = 1e-12
"""Less is no work: what is divided by it would be no finite number. Chosen: clocks tell a thousand times as much."""
SECONDS_OF = attrgetter("seconds")
LEFT_OUT = ("copy", "slot_length", "slot_time", "partition")
"""Reasons to leave out a report, or a part of it. ``copy``: it was seen before. ``slot_length``, ``slot_time``: its
slots are of another length, or far from the time of its append. ``partition``: no more are remembered."""
UNSEEN = frozenset({"paused", "blocked"})
"""States of partitions whose arrivals are not in the reporter's slots."""


class _Given(msgspec.Struct, frozen=True):
    """A partition that its owner does not have any more."""

    owner: str
    at: float
    """Seconds since the epoch."""
    work: float
    """Busy seconds/s that arrived for it."""


class Average:
    """Exponentially forgetting mean of amounts per second.

    Args:
        time_constant: seconds.
        least: so much of the amount is remembered, for up to :data:`SLOW_SECONDS_MAX`.
    """

    __slots__ = ("_least", "_shortest", "amount", "seconds", "time_constant")

    def __init__(self, time_constant: float, least: float = 0.0) -> None:
        self.time_constant = self._shortest = time_constant
        self._least = least
        self.amount = 0.0
        self.seconds = 0.0

    def add(self, amount: float, observed: float, elapsed: float, silence: float) -> None:
        """``observed``: seconds that the amount came in; ``silence``: seconds before in which nothing came."""
        keep = math.exp(-elapsed / self.time_constant)
        self.amount = self.amount * keep + amount
        self.seconds = self.seconds * keep + observed + min(silence, self.time_constant)
        if self._least:
            longest = self._least / self.amount * self.seconds if self.amount > 0.0 else SLOW_SECONDS_MAX
            self.time_constant = max(self._shortest, min(longest, SLOW_SECONDS_MAX))

    def value(self, silence: float = 0.0) -> float:
        """The mean, after ``silence`` further seconds in which nothing came."""
        if silence == 0.0:
            return self.amount / self.seconds if self.seconds > 0 else 0.0
        keep = math.exp(-silence / self.time_constant)
        seconds = self.seconds * keep + self.time_constant * (1.0 - keep)
        return self.amount * keep / seconds if seconds > 0 else 0.0


class _Rates:
    """The records that come for one partition, over short and long times."""

    __slots__ = ("blocks", "fast", "slow")

    def __init__(self) -> None:
        self.fast = Average(FAST_SECONDS)
        self.slow = Average(SLOW_SECONDS, SLOW_RECORDS)
        self.blocks = Blocks(SLOW_SECONDS_MAX)

    def add(self, arrived: int, observed: float, elapsed: float, silence: float) -> None:
        """As :meth:`Average.add`."""
        self.fast.add(arrived, observed, elapsed, silence)
        self.slow.add(arrived, observed, elapsed, silence)
        self.blocks.add(arrived, observed + silence, self.slow.value())


class _PartitionTrack:
    """Moving averages of one partition."""

    __slots__ = (
        "at",
        "cost",
        "cost_variance",
        "interval",
        "lag",
        "last",
        "part",
        "persistent_backlog",
        "rate",
        "rates",
        "reporter",
        "shape",
        "shape_rate",
        "stood",
        "variance",
    )

    def __init__(self) -> None:
        self.rates = _Rates()
        self.variance = Average(SLOW_SECONDS)
        self.rate: float | None = None
        """Records/s in the last interval that was seen."""
        self.part = (0, 0.0, 0.0)
        """Records, seconds observed and seconds gone by since then, of an interval that was seen in part."""
        self.cost: float | None = None
        self.cost_variance = 0.0
        self.shape: tuple[float, ...] = ()
        self.shape_rate = 0.0
        self.at = 0.0
        self.interval = 1.0
        self.lag = 0
        """As its owner told last."""
        self.reporter = ""
        self.last: PartitionReport | None = None
        self.persistent_backlog = 0.0
        """Records that waited all the time, by the last report of an owner."""
        self.stood: float | None = None
        """The same by the report before, where the last one saw only a part of its interval."""

    def add(self, member: str, report: PartitionReport, interval: float, received_at: float, whole: float) -> None:
        self._add_rate(report, interval, received_at, whole)
        if report.state == GONE and self.last is not None and self.reporter != member:
            return  # what its new owner told already is newer
        if report.state != GONE:
            self.lag = report.lag
        if report.cost_mean is not None and report.cost_mean >= WORK_MIN:
            self.cost, self.cost_variance = report.cost_mean, report.cost_variance or 0.0
        if report.state != GONE:
            # A member that took it over in a burst saw it only since then, and would call the burst a standing backlog.
            partly = report.observed is not None and report.observed < interval
            before = self.persistent_backlog if self.stood is None else min(self.persistent_backlog, self.stood)
            self.stood = before if partly and self.last is not None else None
            self.persistent_backlog = _persistent_backlog(report)
        longest = max(report.work_windows, key=SECONDS_OF, default=None)
        if longest is not None and longest.mean >= WORK_MIN and longest.seconds >= SHAPE_REACH_SECONDS:
            # Each window as so many seconds' worth of the mean work of the longest.
            per_second = longest.mean / longest.seconds
            self.shape = shape_of([(window.seconds, window.mean / per_second) for window in report.work_windows])
            self.shape_rate = per_second
        self.at, self.interval, self.reporter, self.last = max(received_at, self.at), interval, member, report

    def _add_rate(self, report: PartitionReport, interval: float, received_at: float, whole: float) -> None:
        elapsed = max(0.0, received_at - self.at) if self.last is not None else interval
        observed = interval if report.observed is None else report.observed
        if observed > 0.0:
            silence = max(0.0, elapsed - 1.5 * interval)
            self.rates.add(report.arrived, observed, elapsed, silence)
            self._add_variance(report.arrived, observed, elapsed, max(interval, whole))

    def _add_variance(self, arrived: int, observed: float, elapsed: float, interval: float) -> None:
        """A second that two owners share is one second: a burst is in one part of it and nothing in the other."""
        self.part = arrived, observed, elapsed = self.part[0] + arrived, self.part[1] + observed, self.part[2] + elapsed
        if observed < WHOLE_SHARE * interval:
            if self.rate is None:
                # A burst in the first moments would look like a rate: nothing is compared with less than an interval.
                self.part = (0, 0.0, 0.0)
            return
        rate = arrived / observed
        if self.rate is not None:
            # Neighbours, so that ups and downs hardly count; a jump counts as a large accident at most.
            usual = max(self.variance.value(), 0.5 * (rate + self.rate) / observed)
            off = min(0.5 * (rate - self.rate) ** 2, JUMP_VARIANCES * usual)
            self.variance.add(off * observed, observed, elapsed, 0.0)
        self.rate = rate
        self.part = (0, 0.0, 0.0)

    def observation(self, silence: float) -> PartitionObservation:
        """``silence``: for how long its owner has reported without a word about it, so nothing came."""
        last = self.last
        assert last is not None
        observed = self.interval if last.observed is None else max(last.observed, 1e-3)
        return PartitionObservation(
            reporter=self.reporter,
            at=self.at,
            rate_slow=self.rates.slow.value(silence),
            rate_fast=self.rates.fast.value(silence),
            rate_last=last.arrived / observed if silence == 0 else 0.0,
            rate_sd=math.sqrt(max(0.0, self.variance.value())),
            done_rate=last.done / self.interval if silence == 0 else 0.0,
            cost=self.cost,
            cost_variance=self.cost_variance,
            lag=last.lag,
            standing_records=self.persistent_backlog
            if self.stood is None
            else min(self.persistent_backlog, self.stood),
            lag_seconds=last.lag_seconds,
            shape=self.shape,
            shape_rate=self.shape_rate,
            state=last.state,
        )


def _persistent_backlog(report: PartitionReport) -> float:
    return float(report.lag_min if report.lag_min is not None else max(0, report.lag - report.arrived))


class _Told:
    """Memory of one member's reports."""

    __slots__ = ("delay", "delay_at", "flow", "interval", "left_out", "newcomer", "sequences")

    def __init__(self, objective_seconds: float) -> None:
        self.sequences: deque[int] = deque(maxlen=SEQUENCES_MAX)
        """Of the last ones."""
        self.flow = MemberFlow(objective_seconds)
        self.newcomer = Newcomer()
        self.interval: Flow | None = None
        """The newest, of which further parts may come."""
        self.delay: float | None = None
        self.delay_at = -math.inf
        self.left_out = ""
        """The reason to leave out the slots of its last report; empty: they count."""

    def delayed(self, now: float, told: float | None, take: float) -> float | None:
        """Take in a report's arrival delay, or that it tells none. Returns the smoothed one; None: not known."""
        before = self.delay if now - self.delay_at <= KEEP_SECONDS else None
        self.delay = before if told is None else told if before is None else before + (told - before) * take
        if told is not None:
            self.delay_at = now
        return self.delay

    def add(self, part: Flow, further: bool) -> None:
        """Take in a report, or a further part of one that was split."""
        if further and self.interval is not None:
            self.interval = self.interval.joined(part)
            return
        if self.interval is not None:
            self.flow.add(self.interval)
        self.interval = part


def _halves_of(slot: int) -> tuple[int, int]:
    """Return the numbers of a slot's half slots."""
    return 2 * slot, 2 * slot + 1


class History:
    """Everything the leader has heard from the members. Deterministic; the only input of time is ``received_at``."""

    def __init__(self, config: PlanConfig) -> None:
        self._config = config
        self._members: dict[str, MemberObservation] = {}
        self._told: dict[str, _Told] = {}
        self._partitions: dict[Partition, _PartitionTrack] = {}
        self._slots = BucketSums(2 * round(SLOTS_SECONDS / BUCKET_SECONDS), 2 * PRUNE_SLOTS)
        """By half slots."""
        self._handoffs: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._startups: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._late: dict[str, int] = {}
        self._present: frozenset[str] = frozenset()
        """Members when they were last looked at."""
        self._open: dict[str, list[tuple[int, float]]] = {}
        """Member -> (slot, work) that it told of slots which it had not closed yet."""
        self._filled: dict[str, dict[int, float]] = {}
        """Member that is gone -> work per slot that was put in for what it did not tell."""
        self._past = RecentSeconds()
        self._lag = 0
        """Of all partitions."""
        self._owners: dict[Partition, str | None] = {}
        self._looked_at = 0.0
        self._given: dict[Partition, _Given] = {}
        """What changed owner last."""
        self._advised: frozenset[Partition] = frozenset()
        self.left_out: Counter[str] = Counter()
        """Reports, or parts of them, that count for nothing, by :data:`LEFT_OUT`."""

    def observe(self, report: ReportRecord, received_at: float, logged_at: float | None = None) -> None:
        """Take one report in. One that was seen before, by member and sequence, is counted and ignored.

        Args:
            report: as read from telemetry.
            received_at: seconds since the epoch by the leader's clock; for replayed ones the broker's time of append.
            logged_at: when it was appended by the clock that slots follow, the broker's; None: ``received_at``.
        """
        if self._seen_before(report):
            self.left_out["copy"] += 1
            return
        told = self._told[report.member]
        report = told.newcomer.tempered(report, partial(self._told_before, report.member, report.speed))
        interval = max(report.interval, 1e-3)
        for entry in report.partitions:
            track = self._track(Partition(entry.topic, entry.partition))
            if track is not None:
                self._lag -= track.lag
                track.add(report.member, entry, interval, received_at, self._config.report_seconds)
                self._lag += track.lag
        old = self._members.get(report.member)
        further = old is not None and report.slots_start <= 0 and not report.slots
        told.add(flow_of(report, interval), further)
        slots_end = self._take_slots(report, received_at if logged_at is None else logged_at)
        heard_at = received_at if not told.left_out else old.received_at if old is not None else -math.inf
        self._handoffs.extend(seconds for seconds in report.handoffs if seconds >= 0)
        if report.startup_seconds is not None and report.startup_seconds >= 0:
            self._startups.append(report.startup_seconds)
        for cause in sorted(report.late):
            self._late[cause] = self._late.get(cause, 0) + report.late[cause]
        self._past.add(
            received_at,
            done=sum(entry.done for entry in report.partitions),
            busy_seconds=report.busy_seconds,
            given_seconds=0.0 if further else report.concurrency * interval,
            latency_seconds=report.latency_seconds,
            judged=report.in_time + sum(report.late.values()),
            lag=self._lag,
        )
        if old is not None and further:
            # A further part of a report that was split: everything beyond its partitions was in the first part.
            self._members[report.member] = structs.replace(old, received_at=heard_at)
            return
        arrived = sum(report.slots) / (len(report.slots) * BUCKET_SECONDS) if report.slots else 0.0
        take = 1.0 if old is None else 1.0 - math.exp(-interval / MEMBER_SECONDS)
        smoothed = arrived if old is None else old.work_rate + (arrived - old.work_rate) * take
        self._members[report.member] = MemberObservation(
            received_at=heard_at,
            instance=report.instance,
            instance_type=report.instance_type,
            interval_seconds=interval,
            capacity=report.capacity,
            untold=report.untold,
            batch_seconds=report.batch_seconds,
            arrival_delay=told.delayed(received_at, report.arrival_delay, take),
            slicing_off=report.slicing_off,
            speed=report.speed,
            busy_seconds=report.busy_seconds,
            slots_end=slots_end if slots_end is not None else (old.slots_end if old else None),
            work_rate=smoothed,
            behind=told.flow.given,
            shown_busy_seconds=max(old.shown_busy_seconds if old else 0.0, report.busy_seconds / max(interval, 1.0)),
        )

    def _told_before(self, member: str, speed: float, partition: Partition) -> float | None:
        """Return what a record costs by another owner, as it would at that speed; None: none has told."""
        track = self._partitions.get(partition)
        if track is None or track.cost is None or track.reporter == member:
            return None
        known = self._members.get(track.reporter)
        return track.cost * (known.speed if known is not None else 1.0) / max(speed, 1e-3)

    def _seen_before(self, report: ReportRecord) -> bool:
        """Note the report's sequence. By the highest alone, one that is made up would shut out the real ones."""
        told = self._told.get(report.member)
        if told is None:
            if len(self._told) >= MEMBERS_MAX:
                self._forget(next((member for member in self._told if member not in self._present), report.member))
            told = self._told[report.member] = _Told(self._config.sla_seconds)
        if report.sequence in told.sequences:
            return True
        told.sequences.append(report.sequence)
        return False

    def _track(self, partition: Partition) -> _PartitionTrack | None:
        """Return the partition's track; None: too many are reported."""
        track = self._partitions.get(partition)
        if track is None:
            if len(self._partitions) >= max(PARTITIONS_MAX, 2 * len(self._owners)):
                self.left_out["partition"] += 1
                return None
            track = self._partitions[partition] = _PartitionTrack()
        return track

    def _forget(self, member: str) -> None:
        for known in (self._members, self._filled, self._open, self._told):
            known.pop(member, None)

    def _take_slots(self, report: ReportRecord, logged_at: float) -> float | None:
        """Add a member's slots to the group's; the end of the last one."""
        if report.slots_start <= 0:
            return None
        first = round(report.slots_start / BUCKET_SECONDS)
        after = first + len(report.slots)
        self._told[report.member].left_out = why = left_out_slots(report.slot_seconds, after, logged_at)
        if why:
            self.left_out[why] += 1
            return None
        self._open[report.member] = [(after + n, work * report.speed) for n, work in enumerate(report.slots_open)]
        for slot, guess in self._filled.pop(report.member, {}).items():
            for half in _halves_of(slot):
                self._slots.take(half, guess / 2.0)
        second = report.slots_second
        if len(second) != len(report.slots):
            second = tuple(work / 2.0 for work in report.slots)
        for slot, (work, later) in enumerate(zip(report.slots, second, strict=True), first):
            for half, part in zip(_halves_of(slot), (max(0.0, work - later), min(work, later)), strict=True):
                self._slots.add(half, part * report.speed)
        return after * BUCKET_SECONDS

    @property
    def ignored(self) -> int:
        """Number of reports, or parts of them, that counted for nothing."""
        return self.left_out.total()

    def advised(self, partitions: Iterable[Partition]) -> None:
        """These are to move, on the decision that followed the last observation."""
        self._advised = frozenset(partitions)

    def observation(self, now: float, group: GroupState) -> Observation:
        """What is known now about this group. Forgets members and slots that are long gone."""
        self._prune(now, group)
        may_pause()
        silent = frozenset(member for member in group.members if self._is_stale(member, now, group))
        owners = {owner for owner in group.owners.values() if owner is not None}
        stale = tuple((member, self._age(member, now)) for member in sorted(owners & silent))
        late, self._late = self._late, {}
        self._note_owners(now, group)
        self._fill_gone(group)
        halves, end = self._complete_slots(silent, owners, group)
        self._present = frozenset(group.members)
        owned = [partition for partition in sorted(group.owners) if partition in self._partitions]
        return Observation(
            now=now,
            slots=tuple(map(add, halves[::2], halves[1::2])),
            second_halves=tuple(halves[1::2]),
            members={member: self._members[member] for member in sorted(group.members) if member in self._members},
            partitions={
                partition: self._partitions[partition].observation(self._silence(partition, group))
                for partition in in_turns(owned)
            },
            chance_share=chance_share(self._partitions[partition].rates.blocks.sums for partition in owned),
            handoffs_seconds=tuple(self._handoffs),
            startups_seconds=tuple(self._startups),
            stale=stale,
            silent=silent,
            left_out={m: why for m in sorted(silent) if m in self._told and (why := self._told[m].left_out)},
            begun=frozenset(m for m in group.members if m in self._told and self._told[m].newcomer.has_begun),
            late_records=late,
            past=self._past.seconds(),
            opening=self._opening(end, group) if halves else 0.0,
        )

    def _silence(self, partition: Partition, group: GroupState) -> float:
        """How long the owner has reported without a word about the partition: nothing came, nothing changed."""
        track = self._partitions[partition]
        known = self._members.get(track.reporter)
        if known is None or group.owners[partition] != track.reporter:
            return 0.0
        return max(0.0, known.received_at - track.at - 0.5 * track.interval)

    def _age(self, member: str, now: float) -> float | None:
        known = self._members.get(member)
        return None if known is None else max(0.0, now - known.received_at)

    def _is_stale(self, member: str, now: float, group: GroupState) -> bool:
        allowed = 2.5 * self._config.report_seconds + 0.5
        age = self._age(member, now)
        if age is None:
            # A newcomer reports one interval after it joined, and what it says needs as long to arrive.
            return now - group.members[member].joined_at > allowed + self._config.report_seconds
        return age > allowed

    def _opening(self, end: int, group: GroupState) -> float:
        """What is known of the second that begins with the slot ``end``.

        That second, and not the newest: the seconds before it end there as well, so that bursts of a second are cut
        nowhere else, and none is counted twice.
        """
        until = end + round(1.0 / BUCKET_SECONDS)
        return self._slots.total(2 * end, 2 * until) + sum(
            work
            for member, entries in self._open.items()
            if member in group.members
            for index, work in entries
            if end <= index < until
        )

    def _complete_slots(self, silent: frozenset[str], owners: set[str], group: GroupState) -> tuple[list[float], int]:
        """The group's half slots up to the last that every member which still reports has told about, and its slot."""
        told = {m: known.slots_end for m, known in self._members.items() if m in group.members and known.slots_end}
        if not told or not self._slots:
            return [], 0
        # One that is silent hides nobody's arrivals, also where it owns nothing. With everybody silent the last picture
        # stays: it is stale, and said to be, but better than none.
        ends = [end for member, end in told.items() if member not in silent] or [max(told.values())]
        end = round(min(ends) / BUCKET_SECONDS)
        halves = self._slots.until(2 * end)
        del halves[: len(halves) % 2]  # of the oldest slot one half may be forgotten
        for member in sorted(silent & owners):
            known = self._members.get(member)
            if known is not None and known.slots_end is not None:
                # What a silent member gets is not seen; its partitions go on receiving what they received.
                missing = min(len(halves), max(0, 2 * (end - round(known.slots_end / BUCKET_SECONDS))))
                for half in range(len(halves) - missing, len(halves)):
                    halves[half] += known.work_rate * known.speed * BUCKET_SECONDS / 2.0
        return halves, end

    def _note_owners(self, now: float, group: GroupState) -> None:
        """Remember what was given away, when, and what came for it."""
        for partition, owner in group.owners.items():
            before = self._owners.get(partition)
            if before is not None and before != owner:
                # Advice is followed within milliseconds; what nobody advised, a member that is gone had to the end.
                at = self._looked_at if before in group.members or partition in self._advised else now
                self._given[partition] = _Given(before, at, self._work(partition))
        self._owners, self._looked_at, self._advised = dict(group.owners), now, frozenset()

    def _work(self, partition: Partition) -> float:
        """Busy seconds/s that arrive, as far as they are in its reporter's slots."""
        track = self._partitions.get(partition)
        if track is None or track.last is None or track.cost is None or track.last.state in UNSEEN:
            return 0.0
        return track.rates.fast.value() * track.cost

    def _fill_gone(self, group: GroupState) -> None:
        """What came for a member between its last report and its going was never told, unless its last word is still
        on its way: what it owned is taken to have gone on as before, until it was given to somebody who tells.

        Without this every member that goes would look like a dip of the load. No more is filled than is remembered, and
        little after what the others told: clocks may be apart, and a report may tell of slots of long ago.
        """
        newest = max((known.slots_end or 0.0 for known in self._members.values()), default=0.0)
        for member in sorted(self._present - group.members.keys()):
            known = self._members.get(member)
            if known is None or known.slots_end is None:
                continue
            begin = round(max(known.slots_end, newest - SLOTS_SECONDS) / BUCKET_SECONDS)
            filled: dict[int, float] = {}
            for given in self._given.values():
                if given.owner == member:
                    for index in range(begin, round(min(given.at, newest + FILLED_SECONDS_MAX) / BUCKET_SECONDS)):
                        filled[index] = filled.get(index, 0.0) + given.work * known.speed * BUCKET_SECONDS
            for slot, work in filled.items():
                for half in _halves_of(slot):
                    self._slots.add(half, work / 2.0)
            self._filled[member] = filled

    def _prune(self, now: float, group: GroupState) -> None:
        gone = [
            member
            for member, known in self._members.items()
            if member not in group.members and now - known.received_at > KEEP_SECONDS
        ]
        for member in gone:
            self._forget(member)
        self._given = {p: given for p, given in self._given.items() if now - given.at <= KEEP_SECONDS}
        unknown = [partition for partition in self._partitions if partition not in group.owners]
        for partition in unknown:
            if now - self._partitions[partition].at > KEEP_SECONDS:
                self._lag -= self._partitions[partition].lag
                del self._partitions[partition]
        self._slots.prune()
