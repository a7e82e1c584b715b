"""The state of a group, folded from its control topic: pure, fed record by record.

Theory of operation: the owners are those of rule 1 of the ownership protocol, found as every member finds them: the
map of the newest ``base`` record, then each release of its generation that counts (:class:`Ownership`). Releases may
stand in the log before the leader's ``base`` of their generation, so they are kept until it comes. A ``base`` of an
older generation changes nothing, except after half a minute of silence from the newer one: then the group was
forgotten by Kafka and begins anew at generation 1.

Where no ``base`` was read (it is too far back in the log) the owners are taken from the members' reports, which
list only partitions that changed: :attr:`ObservedOwners.owners_from` says so. In a mixed group no ``base`` is written,
and they are taken from the reports as well (:attr:`ObservedOwners.mixed`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from loadtrim_agent.common.member_names import member_names, shared_instances
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.pod_names import number_of
from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.ownership_records import (
    AssignmentRecord,
    HelloRecord,
    LeavingRecord,
    LeftRecord,
    LoadRecord,
    ManualOverrideRecord,
    PlanRecord,
    ReleaseRecord,
)
from loadtrim_agent.wire.telemetry_records import DecisionRecord, PartitionReport, ReportRecord, Untold

from .assignments import Assignments, UnplannedGeneration

__all__ = ["GroupObserver", "LoadPoint", "ObservedGroup", "ObservedMember", "ObservedPartition"]

SILENT_SECONDS = 5.0
"""Members say something at least every second; one that was silent for longer is shown as such."""
GONE_SECONDS = 600.0
"""A member that left is remembered for so long: its name is wanted for what it did."""
WINDOW_SECONDS = 60.0
"""All that is counted over time (share in time, latencies, moves) is counted over this window."""
HISTORY_MAX = 240
COMMAND_LINE_MEMBER = "cli"
GONE = "gone"
"""State of a partition that its reporter has lost."""


class LoadPoint(msgspec.Struct, frozen=True, array_like=True):
    """The group at one decision: for curves."""

    at: float
    work: float
    """Busy seconds per second."""
    capacity: float
    in_time_share: float | None
    """Of the records done since the decision before."""


class ObservedMember(msgspec.Struct, frozen=True, kw_only=True):
    """One member of the group."""

    member: str
    instance: str
    """Empty: not known."""
    state: str
    """``running``, ``joining``, ``leaving``, ``victim`` (to go) or ``silent`` (no sign of life for 5 s)."""
    leader: bool
    partitions: tuple[tuple[str, int], ...]
    """The partitions that it owns, sorted."""
    utilization: float | None
    """Busy seconds per second and concurrency; None: not reported yet."""
    capacity: float | None
    """Busy seconds per second that it can give."""
    capacity_error: float | None
    """The member may well give so much less: the standard error, and of a guess the distance to the most it gave."""
    capacity_known: bool
    """False: the capacity is a guess, because the member was never saturated."""
    lag_records: int
    lag_seconds: float
    """Age of the oldest record not done."""
    done_rate: float
    """Records/s."""
    seen_at: float | None
    """Last sign of life, seconds since the epoch."""
    process: str = ""
    """The process id, and what tells processes with the same one apart; empty: not known."""


class ObservedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """One partition, with its true owner."""

    topic: str
    partition: int
    member: str | None
    """None: nobody."""
    instance: str
    version: int
    """The number of its handoffs in this generation."""
    lag_records: int | None
    """None: not reported since the view began."""
    lag_seconds: float | None
    arrival_rate: float | None
    cost_seconds: float | None
    state: str
    """``running``, ``paused``, ``blocked`` or ``idle``; empty: not known."""


class ObservedLatency(msgspec.Struct, frozen=True, kw_only=True):
    """The latency of the records that were done in the window."""

    in_time_share: float | None
    """Share of the records done in the window that met the objective; None: of none is that known."""
    unknown_share: float
    """Share of the records done in the window of which nobody knows whether they met it."""
    untold: dict[str, str]
    """Member id -> why nobody knows when its records are done: :class:`~loadtrim_agent.wire.telemetry_records.Untold`.
    """
    late: dict[str, int]
    """Records done too late in the window, by cause."""
    latency_p50: float | None
    latency_p99: float | None
    """Upper bounds of the buckets that hold the percentiles; None: not reported. Above all buckets it is infinite,
    which JSON cannot say: there it is null, and named in ``latency_beyond``."""
    latency_beyond: tuple[str, ...]
    """The percentiles above all buckets, an hour or more: ``p50``, ``p99``, or both."""


class ObservedOwners(ObservedLatency, frozen=True, kw_only=True):
    """The source of the owners that are shown."""

    owners_from: str
    """``log`` (exact), ``reports`` (about a second old, idle partitions missing) or ``nothing``."""
    mixed: bool
    """Flag of a group that members without the agent are in, or were in when a member reported last: nothing is planned
    for it, so that it has no leader, and its owners are as its members report."""


class ObservedGroup(ObservedOwners, frozen=True, kw_only=True):
    """The group at one moment. Seconds, records/s, busy seconds per second; times since the epoch."""

    group: str
    at: float
    generation: int | None
    leader: str | None
    """Member id of the last one known; None in a mixed group."""
    names: dict[str, str]
    """Member id -> instance, also of members that left lately."""
    members: tuple[ObservedMember, ...]
    """By instance, then member id."""
    partitions: tuple[ObservedPartition, ...]
    """Sorted by topic and partition."""
    replicas: int
    """Instances that show signs of life. A member whose instance is not known is none."""
    replicas_wanted: int | None
    rate: float
    work: float | None
    capacity: float
    forecast: float | None
    backlog: float | None
    lag_records: int
    lag_seconds: float
    window_seconds: float
    objective_seconds: float | None
    objective_share: float | None
    moves: int
    """Handoffs in the window."""
    startup_seconds: float | None
    manual_override: ManualOverrideRecord | None = msgspec.field(name="brake")
    """In force; None: plans are made freely."""
    decision: DecisionRecord | None
    history: tuple[LoadPoint, ...]
    seen_at: float | None
    """The last sign of life of any member."""

    @property
    def alive(self) -> bool:
        """Return whether any member shows signs of life."""
        return any(each.state != "silent" for each in self.members)

    @property
    def called(self) -> dict[str, str]:
        """Return what each member is called: its instance, or "instance/client_id" where it has several."""
        return member_names({each.member: each.instance for each in self.members})

    @property
    def shared(self) -> dict[str, tuple[str, ...]]:
        """Return the instances that are several processes, with these."""
        return shared_instances(
            {each.member: each.instance for each in self.members}, {each.member: each.process for each in self.members}
        )


@dataclass(slots=True)
class _Member:
    """The newest values of one member."""

    instance: str = ""
    process: str = ""
    seen_at: float | None = None
    hello_at: float | None = None
    leaving: int = -1
    """Generation in which it asked to be drained."""
    utilization: float | None = None
    capacity: float | None = None
    capacity_error: float | None = None
    capacity_known: bool = True
    untold: str = ""
    done_rate: float = 0.0
    arrived_rate: float = 0.0
    reported_at: float = -math.inf


@dataclass(slots=True)
class _Done:
    """Records done in one report."""

    at: float
    in_time: int
    unknown: int
    late: Mapping[str, int]
    latencies: tuple[tuple[float, int], ...]


@dataclass(slots=True)
class _Reported:
    """The newest report of one partition."""

    member: str
    """Empty: it says that it has lost the partition."""
    at: float
    report: PartitionReport
    interval: float


@dataclass(slots=True)
class GroupObserver:
    """The fold: :meth:`apply` each record in the order of the log, then ask for the :meth:`state`.

    The two partitions of the control topic may be interleaved in any way; each is to come in its own order.
    """

    group: str
    unreadable: int = 0
    """Counted by whoever reads the topic."""
    _members: dict[str, _Member] = field(default_factory=dict)
    _assignments: Assignments = field(default_factory=Assignments)
    _unplanned: UnplannedGeneration = field(default_factory=UnplannedGeneration)
    _left: set[str] = field(default_factory=set)
    _plan: PlanRecord | None = None
    _manual_override: ManualOverrideRecord | None = None
    _manual_override_logged: bool = False
    """True where it was read from the log itself: the log's order decides, and other records may be behind."""
    _decision: DecisionRecord | None = None
    _heard: dict[Partition, _Reported] = field(default_factory=dict)
    _done: deque[_Done] = field(default_factory=deque)
    _moves: deque[float] = field(default_factory=deque)
    _history: deque[LoadPoint] = field(default_factory=lambda: deque(maxlen=HISTORY_MAX))
    _since_decision: list[int] = field(default_factory=lambda: [0, 0])
    """Records done in time, records done, since the last decision."""

    @property
    def names(self) -> dict[str, str]:
        """Member id -> instance, where known."""
        return {member: each.instance for member, each in self._members.items() if each.instance}

    def heard_lately(self, now: float) -> bool:
        """Return whether any member showed a sign of life in the last 5 s; needs no map."""
        return any(m not in self._left and not self._silent(each, now) for m, each in self._members.items())

    def apply(self, record: Record, at: float | None = None) -> None:
        """Fold one record in. Records of other groups and the agents' probes are left out.

        Args:
            record: the record.
            at: when the broker appended it, seconds since the epoch; None: when its writer says.
        """
        if record.group != self.group:
            return
        at = record.at if at is None else at
        if isinstance(record, ManualOverrideRecord):
            self._manual_override, self._manual_override_logged = record, True
        if record.member == COMMAND_LINE_MEMBER:
            return
        member = self._members.setdefault(record.member, _Member())
        member.seen_at = at if member.seen_at is None else max(at, member.seen_at)
        if self._assignments.note_alive(getattr(record, "generation", None), at):
            self._left.clear()
        match record:
            case HelloRecord():
                member.instance = record.instance or member.instance
                member.process = record.process or member.process
                member.hello_at = at
                self._left.discard(record.member)
            case LeavingRecord():
                member.instance = record.instance or member.instance
                member.leaving = record.generation
            case LeftRecord():
                self._left.add(record.member)
            case AssignmentRecord():
                self._apply_assignment(record, at)
            case ReleaseRecord():
                if self._assignments.release(record):
                    self._moves.append(at)
            case PlanRecord():
                self._plan = record
            case ReportRecord():
                self._apply_report(record, member, at)
            case DecisionRecord():
                self._apply_decision(record, at)
            case LoadRecord():
                pass  # A sign of life, noted above.

    def state(self, now: float) -> ObservedGroup:
        """The group as it is now. O(members + partitions).

        Args:
            now: seconds since the epoch, by a clock close to the broker's.
        """
        self._forget(now)
        owners, owners_from = self._owners()
        partitions = tuple(self._partition_state(p, owner) for p, owner in sorted(owners.items()))
        members = self._member_states(owners, now)
        alive = [each for each in members if each.state != "silent"]
        decision = self._decision
        planned = None if self._unplanned.mixed else decision
        measured = planned if planned is not None and _is_measured(planned) else None
        in_time = sum(done.in_time for done in self._done)
        late = self._late()
        done_records = in_time + sum(late.values())
        percentiles = {"p50": self._latency(0.5, done_records), "p99": self._latency(0.99, done_records)}
        unknown = sum(done.unknown for done in self._done)
        seen = [each.seen_at for each in self._members.values() if each.seen_at is not None]
        return ObservedGroup(
            group=self.group,
            at=now,
            generation=self._generation(),
            leader=self._leader(),
            names=dict(sorted(self.names.items())),
            owners_from=owners_from,
            mixed=self._unplanned.mixed,
            members=members,
            partitions=partitions,
            replicas=len({each.instance for each in alive if each.instance}),
            replicas_wanted=planned.replicas_wanted if planned else None,
            rate=measured.rate if measured else sum(each.arrived_rate for each in self._members.values()),
            work=measured.work if measured else None,
            capacity=_capacity([each.capacity for each in alive if each.state != "joining"]),
            forecast=measured.forecast if measured else None,
            backlog=measured.backlog if measured else None,
            lag_records=sum(each.lag_records or 0 for each in partitions),
            lag_seconds=max((each.lag_seconds or 0.0 for each in partitions), default=0.0),
            window_seconds=WINDOW_SECONDS,
            in_time_share=in_time / done_records if done_records else None,
            unknown_share=unknown / (done_records + unknown) if unknown else 0.0,
            untold={
                each.member: why
                for each in alive
                if (why := self._members[each.member].untold) and why != Untold.BRIEFLY
            },
            late=late,
            latency_p50=percentiles["p50"],
            latency_p99=percentiles["p99"],
            latency_beyond=tuple(name for name, seconds in percentiles.items() if seconds == math.inf),
            objective_seconds=decision.objective_seconds if decision else None,
            objective_share=decision.objective_share if decision else None,
            moves=len(self._moves),
            startup_seconds=decision.startup_seconds if decision else None,
            manual_override=self._manual_override
            if self._manual_override and self._manual_override.action != "resume"
            else None,
            decision=decision,
            history=tuple(self._history),
            seen_at=max(seen, default=None),
        )

    def _apply_assignment(self, assignment: AssignmentRecord, at: float) -> None:
        self._unplanned.note_written(assignment.generation, at)
        if not self._manual_override_logged:
            self._manual_override = assignment.manual_override
        if self._assignments.begin(assignment, at):
            self._left.clear()

    def _apply_report(self, report: ReportRecord, member: _Member, at: float) -> None:
        member.instance = report.instance or member.instance
        member.process = report.process or member.process
        interval = max(report.interval, 1e-3)
        member.capacity, member.capacity_error, member.capacity_known = report.capacity.at(report.speed)
        member.utilization = report.busy_seconds / interval / max(report.concurrency, 1e-9)
        member.untold = report.untold
        member.done_rate = sum(each.done for each in report.partitions) / interval
        member.arrived_rate = sum(each.arrived for each in report.partitions) / interval
        member.reported_at = at
        self._unplanned.note_report(report.generation, at)
        for each in report.partitions:
            self._apply_partition(each, report.member, at, interval)
        self._done.append(_Done(at, report.in_time, report.unknown, report.late, report.latency_counts))
        self._since_decision[0] += report.in_time
        self._since_decision[1] += report.in_time + sum(report.late.values())

    def _apply_partition(self, report: PartitionReport, member: str, at: float, interval: float) -> None:
        partition = Partition(report.topic, report.partition)
        if report.state != GONE:
            self._heard[partition] = _Reported(member, at, report, interval)
        elif (heard := self._heard.get(partition)) is not None and heard.member == member:
            # What a former owner says last tells nothing of how the partition is now: its new owner does.
            heard.member = ""

    def _apply_decision(self, decision: DecisionRecord, at: float) -> None:
        self._unplanned.note_written(decision.generation, at)
        if not self._manual_override_logged and self._assignments.newest is None:
            self._manual_override = decision.manual_override
        self._decision = decision
        in_time, done = self._since_decision
        self._since_decision = [0, 0]
        capacity = _capacity([self._members[each].capacity for each in decision.members if each in self._members])
        share = in_time / done if done else None
        self._history.append(LoadPoint(at, decision.work, capacity, share))

    def _forget(self, now: float) -> None:
        while self._done and self._done[0].at < now - WINDOW_SECONDS:
            self._done.popleft()
        while self._moves and self._moves[0] < now - WINDOW_SECONDS:
            self._moves.popleft()
        in_base = self._assignments.newest.members if self._assignments.newest else {}
        gone = [
            m for m, each in self._members.items() if m not in in_base and now - (each.seen_at or now) > GONE_SECONDS
        ]
        for member in gone:
            del self._members[member]

    def _generation(self) -> int | None:
        if self._unplanned.mixed:
            return self._unplanned.generation
        return self._assignments.ownership.generation if self._assignments.ownership else None

    def _leader(self) -> str | None:
        """Only a leader writes bases and decisions."""
        if self._unplanned.mixed:
            return None
        decision = self._decision
        newest = self._assignments.newest
        if newest is None:
            return decision.member if decision else None
        if decision is not None and decision.generation > newest.generation:
            return decision.member
        return newest.member

    def _owners(self) -> tuple[dict[Partition, str | None], str]:
        if self._unplanned.mixed:
            there = self._reporters() - self._left
            return {p: heard.member for p, heard in self._heard.items() if heard.member in there}, "reports"
        if self._assignments.ownership is not None:
            owners: dict[Partition, str | None] = dict(self._assignments.ownership.owners())
            generation_members = self._assignments.newest.members if self._assignments.newest else {}
            for partition, heard in self._heard.items():
                # Reported in this generation but on nobody's map: a partition without an owner.
                if partition not in owners and heard.member in generation_members:
                    owners[partition] = None
            return owners, "log"
        reported: dict[Partition, str | None] = {p: heard.member for p, heard in self._heard.items() if heard.member}
        return reported, "reports" if reported else "nothing"

    def _reporters(self) -> set[str]:
        """Return the members of a mixed group: those that have reported lately, as of the last report of any."""
        last = self._unplanned.until
        return {m for m, each in self._members.items() if last - each.reported_at <= SILENT_SECONDS}

    def _member_states(self, owners: Mapping[Partition, str | None], now: float) -> tuple[ObservedMember, ...]:
        if self._unplanned.mixed:
            ids = self._reporters()
        elif self._assignments.newest:
            ids = set(self._assignments.newest.members)
        else:
            ids = {m for m in owners.values() if m is not None}
        for member, each in self._members.items():
            joining = each.hello_at is not None and each.hello_at > self._assignments.begun_at
            if joining and not self._silent(each, now):
                ids.add(member)
        owned: dict[str, list[Partition]] = {member: [] for member in ids - self._left}
        for partition, owner in sorted(owners.items()):
            if owner in owned:
                owned[owner].append(partition)
        states = [self._member_state(member, owned[member], now) for member in owned]
        return tuple(sorted(states, key=lambda each: (_natural(each.instance), each.member)))

    def _member_state(self, member: str, owned: list[Partition], now: float) -> ObservedMember:
        heard = self._members.get(member, _Member())
        reports = [self._heard[p].report for p in owned if p in self._heard]
        return ObservedMember(
            member=member,
            instance=heard.instance,
            state=self._phase(member, heard, now),
            leader=member == self._leader(),
            partitions=tuple((each.topic, each.partition) for each in owned),
            utilization=heard.utilization,
            capacity=heard.capacity,
            capacity_error=heard.capacity_error,
            capacity_known=heard.capacity_known,
            lag_records=sum(each.lag for each in reports),
            lag_seconds=max((each.lag_seconds for each in reports), default=0.0),
            done_rate=heard.done_rate,
            seen_at=heard.seen_at,
            process=heard.process,
        )

    def _phase(self, member: str, heard: _Member, now: float) -> str:
        if self._silent(heard, now):
            return "silent"
        generation = self._assignments.generation
        if heard.leaving >= max(generation, 0):
            return "leaving"
        if self._plan is not None and self._plan.generation == generation and member in self._plan.victims:
            return "victim"
        newest = None if self._unplanned.mixed else self._assignments.newest
        unknown = member not in newest.members if newest else heard.utilization is None
        if unknown and heard.hello_at is not None:
            return "joining"
        return "running"

    def _silent(self, heard: _Member, now: float) -> bool:
        return heard.seen_at is None or now - heard.seen_at > SILENT_SECONDS

    def _partition_state(self, partition: Partition, owner: str | None) -> ObservedPartition:
        heard = self._heard.get(partition)
        report = heard.report if heard else None
        return ObservedPartition(
            topic=partition.topic,
            partition=partition.partition,
            member=owner,
            instance=self._members[owner].instance if owner in self._members else "",
            version=self._version(partition),
            lag_records=report.lag if report else None,
            lag_seconds=report.lag_seconds if report else None,
            arrival_rate=report.arrived / heard.interval if report and heard else None,
            cost_seconds=report.cost_mean if report else None,
            state=report.state if report else "",
        )

    def _version(self, partition: Partition) -> int:
        ownership = self._assignments.ownership
        # What was handed off in the last generation of loadtrim's is no handoff of this one.
        return 0 if ownership is None or self._unplanned.mixed else ownership.version(partition)

    def _late(self) -> dict[str, int]:
        late: dict[str, int] = {}
        for done in self._done:
            for cause, count in done.late.items():
                late[cause] = late.get(cause, 0) + count
        return dict(sorted(late.items()))

    def _latency(self, share: float, done_records: int) -> float | None:
        counts: dict[float, int] = {}
        for done in self._done:
            for bound, count in done.latencies:
                counts[bound] = counts.get(bound, 0) + count
        if not counts:
            return None
        # What is above all bounds is in no bucket, but was done.
        needed = share * max(done_records, sum(counts.values()))
        below = 0
        for bound, count in sorted(counts.items()):
            below += count
            if below >= needed:
                return bound
        return math.inf


def _capacity(members: Sequence[float | None]) -> float:
    """Return the capacity of members together; one that has not told its own is taken to be like the others."""
    known = [each for each in members if each is not None]
    return sum(known) / len(known) * len(members) if known else 0.0


def _is_measured(decision: DecisionRecord) -> bool:
    """Return whether a decision knew the load; one that did not has 0 in its place."""
    return decision.startup_seconds is not None


def _natural(name: str) -> tuple[str, int]:
    """Sort key that has ``pay-10`` after ``pay-9``."""
    stem = name.rstrip("0123456789")
    return stem, number_of(name[len(stem) :]) or 0
