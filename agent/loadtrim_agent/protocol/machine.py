"""The one door of the protocol core: ``Machine.handle(event) -> list[Command]``.

Deterministic: the same events give the same commands, byte for byte. Nothing else changes its state.
``runtime/membership.py`` carries the commands out in order and feeds the answers back as events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from loadtrim_agent.common.errors import InvariantError
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.ownership_records import (
    AssignmentRecord,
    HelloRecord,
    LeavingRecord,
    LeftRecord,
    LoadRecord,
    ManualOverrideRecord,
    PlanRecord,
    PromiseRecord,
    RejoinRecord,
    ReleaseRecord,
)

from . import events
from .commands import (
    AppendCommand,
    Command,
    CommitResultCommand,
    CountCommand,
    EnteredCommand,
    LeaseCommand,
    LeftCommand,
)
from .counters import ProtocolCount
from .events import (
    AppendedEvent,
    AssignmentFoundEvent,
    CommitAnsweredEvent,
    CommittedFetchedEvent,
    CoordinatorFoundEvent,
    Event,
    GroupAnswer,
    LeaveAnsweredEvent,
    LeaveWantedEvent,
    LogFailedEvent,
    LogGapEvent,
    LogPositionEvent,
    LogReadEvent,
    LogUsableEvent,
    MoveWantedEvent,
    OpenedEvent,
    StartEvent,
    SubscriptionEvent,
    TickEvent,
    TopicsEvent,
    WeightsEvent,
)
from .future_records import FutureRecords
from .group_config import COORDINATOR_MOVED, Code, GroupConfig
from .known_override import KnownOverride
from .latest_plan import LatestPlan
from .lease import Lease
from .leave import Leave
from .membership import Membership
from .membership_table import Phase
from .mixed_group import MixedGroup
from .ownership import Ownership, is_foreign
from .partitions import PartitionTable
from .peers import Peers
from .prefetch import Prefetches
from .slices import Slices
from .snapshot import MachineSnapshot, TopicsView, views
from .trace import Trace

__all__ = ["Machine"]

NEVER = float("inf")


class Machine:
    """One member's protocol state.

    Its parts (``membership``, ``partitions``, ``peers``, ``leave``, ``plan``) are read in this room only. Other rooms
    read :meth:`snapshot`.

    Args:
        config: what the protocol must know.
        wall_offset: wall-clock time minus boot-time clock, seconds: only for the ``at`` of records.

    Cost: O(held partitions) per event at most; O(1) for heartbeats, ticks and log records of others. About every two
    seconds one event looks at all members. Entering a generation costs O(partitions + members).
    """

    def __init__(self, config: GroupConfig, *, wall_offset: float = 0.0) -> None:
        self.config = config
        self._wall_offset = wall_offset
        self._out: list[Command] = []
        self._appends = 0
        self._lease = Lease(config.session_timeout, config.rebalance_timeout)
        self.membership = Membership(config, self, self._lease, self._out.append)
        self.partitions = PartitionTable(config, self.emit, self.append)
        self.peers = Peers()
        self._prefetches = Prefetches(self.emit)
        self._weights: dict[Partition, float] = {}
        self._future = FutureRecords()
        self._log_failed = not config.log_usable
        self._broken = False
        """The machine contradicted itself once: nothing is given away any more."""
        self.plan = LatestPlan()
        self.override = KnownOverride()
        self.leave = Leave(self)
        self.slices = Slices(self)
        self._mixed = MixedGroup(config, self.partitions, self.emit)
        self._events_handled = 0
        self._snapshot: tuple[int, MachineSnapshot] | None = None
        """The last snapshot, and after how many events it was made."""
        self._trace = Trace()
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            StartEvent: lambda e: self.membership.start(e.now),
            TickEvent: lambda e: None,
            SubscriptionEvent: lambda e: self.leave.subscribe(e.topics),
            TopicsEvent: lambda e: self.membership.on_topics(e.now, e.partitions),
            WeightsEvent: self._on_weights,
            CoordinatorFoundEvent: self._on_coordinator_found,
            events.JoinAnsweredEvent: self.membership.join_answered,
            events.SyncAnsweredEvent: self.membership.sync_answered,
            events.HeartbeatAnsweredEvent: self.membership.heartbeat_answered,
            LeaveAnsweredEvent: self.left,
            events.CommitWantedEvent: self.partitions.commit_wanted,
            CommitAnsweredEvent: self._on_commit_answered,
            CommittedFetchedEvent: self._on_committed_fetched,
            OpenedEvent: self.partitions.opened,
            events.DrainedEvent: self.partitions.drained,
            events.IdlePointEvent: self.partitions.idle_point,
            events.TransactionSendsEvent: self.partitions.transaction_sends,
            events.TransactionSentEvent: self.partitions.transaction_sent,
            MoveWantedEvent: lambda e: self._intend(e.now, e.partition, e.target),
            events.SliceWantedEvent: self.slices.wanted,
            events.SliceDroppedEvent: self.slices.dropped,
            events.BoundReachedEvent: self.slices.reached,
            LogReadEvent: self._on_log,
            LogPositionEvent: self._on_log_position,
            LogGapEvent: self._on_log_gap,
            LogFailedEvent: self._on_log_failed,
            LogUsableEvent: self._on_log_usable,
            AppendedEvent: self._on_appended,
            AssignmentFoundEvent: self.membership.assignment_found,
            LeaveWantedEvent: self.leave.wanted,
        }

    # -- the door ------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Command]:
        """Feed one event in; take what is to be done, in order.

        Raises:
            InvariantError: the machine contradicts itself. It goes on with everything but moves.
        """
        try:
            self._handlers[type(event)](event)
            self._settle(event.now)
        except InvariantError as error:
            self._broken = True
            error.history += self._trace.history_of(error.item, event, self._out)
            raise
        finally:
            self._events_handled += 1
        out = self._out[:]
        self._out.clear()
        self._trace.add(event, out)
        return out

    def wakeup(self) -> float:
        """When a TickEvent is due at the latest, by the boot-time clock; inf: never."""
        membership = self.membership
        due = min(membership.wakeup(), self.partitions.wakeup(), self.leave.wakeup(), self._mixed.wakeup)
        due = min(due, self._prefetches.wakeup(), self.slices.wakeup())
        if membership.stable and self.log_works:
            due = min(due, self.peers.next_overdue, membership.blind.over_at)
        if membership.may_commit:
            due = min(due, self.partitions.commits.wakeup(membership.member, membership.generation))
        return due

    def successor(self) -> Machine:
        """A machine that joins anew in the same process after this one has left, for the topics subscribed now.

        It numbers on, so that answers to what this one has sent mean nothing to it.
        """
        config = structs.replace(self.config, topics=self.leave.topics)
        machine = Machine(config, wall_offset=self._wall_offset)
        machine.membership.continue_from(self.membership)
        machine.partitions.continue_from(self.partitions)
        machine._appends = self._appends
        machine._log_failed = self._log_failed
        machine.override = self.override
        return machine

    def use_log(self, usable: bool) -> None:
        """From the next JoinGroup on: offer our protocol, or the standard ones only (mixed group)."""
        self.config = structs.replace(self.config, log_usable=usable)
        self._snapshot = None
        self.membership.use_log(usable)
        self._log_failed = not usable

    @property
    def lease_until(self) -> float:
        """Nothing is handed out at or after this time."""
        return self._lease.until

    @property
    def log_works(self) -> bool:
        """The coordination log can be read and written, as far as is known, and this machine may be trusted with it."""
        return not (self._log_failed or self._broken)

    def snapshot(self) -> MachineSnapshot:
        """Return all that other rooms may know.

        Cost: O(assigned partitions) for the first call after an event, else O(1).
        """
        events_handled = self._events_handled
        if self._snapshot is not None and self._snapshot[0] == events_handled:
            return self._snapshot[1]
        membership, ownership = self.membership, self.partitions.ownership
        committing = self.partitions.commits.latest_offsets(self.partitions.acquisition_of)
        made = MachineSnapshot(
            config=self.config,
            phase=membership.phase,
            member=membership.member,
            generation=membership.generation,
            leader=membership.leader,
            protocol=membership.protocol,
            of_topics=TopicsView(
                told=membership.topics, subscribed=self.leave.topics, partition_counts=membership.partitions
            ),
            assignment=membership.assignment,
            owners=ownership.owners() if ownership is not None else None,
            assigned=views(self.partitions.assigned, committing),
            plan=self.plan.record,
            manual_override=self.override.latest,
            leaving=self.leaving_members(),
            slices=self.slices.view(),
            log_works=self.log_works,
        )
        # Another thread may have asked in the middle of an event: what it made counts until the event ends.
        self._snapshot = (events_handled, made)
        return made

    def trace(self) -> list[tuple[float, Event | Command]]:
        """The last events and commands, in order, with their times."""
        return self._trace.entries()

    def _settle(self, now: float) -> None:
        """Do all that follows from any change: timers that are due, releases whose commit is in, commits, the lease."""
        self._look_for_assignment(now)
        membership = self.membership
        overdue = self.log_works and self.peers.overdue(now, membership.member)
        membership.tick(now, overdue)
        if self.partitions.tick(now) and membership.stable:
            self.emit(CountCommand(what=ProtocolCount.RELEASE_IN_DOUBT))
            membership.rejoin(now)
        if membership.stable and self.log_works and now >= membership.blind.over_at:
            membership.rejoin(now)
        self._prefetches.tick(now)
        if self.plan.unopened:
            for partition, target in self.plan.opened(self.partitions.assigned):
                self._intend(now, partition, target)
        self.slices.tick(now)
        self._release_settled(now)
        self.leave.step(now)
        membership.maybe_join(now)
        if membership.may_commit:
            command = self.partitions.commits.next(now, membership.member, membership.generation)
            if command is not None:
                self.emit(command)
        until = self._lease.news()
        if until is not None:
            self.emit(LeaseCommand(until=until))

    def emit(self, command: Command) -> None:
        self._out.append(command)

    # -- hooks of membership -------------------------------------------------------------------------------------

    def ready_to_join(self, now: float) -> bool:
        self._prefetches.drop_all()  # nothing is acquired by a release until the next generation
        self.slices.drop_all()
        if self.membership.speaks_loadtrim or not self.partitions.assigned:
            self.partitions.freeze()
            return True
        return self._mixed.revoked(now, self.membership.member, self.membership.generation)

    def owned_partitions(self) -> tuple[Partition, ...]:
        return self.partitions.owned_partitions(self.membership.topics)

    def enter(self, now: float, answer: GroupAnswer) -> None:
        membership = self.membership
        self.plan = LatestPlan()
        self.slices.enter()
        self._mixed.end_revoking()
        self.emit(
            EnteredCommand(
                generation=membership.generation,
                member=membership.member,
                leader=membership.leader,
                protocol=membership.protocol,
            )
        )
        if not membership.speaks_loadtrim and self.partitions.assigned:
            membership.rejoin(now)  # a member without the agent came back: commit, drop the claims, join again
            return
        self._mixed.resume()
        if answer.assignment is None:
            self.peers.enter(now, answer.attempts or ())
            self.partitions.enter(None, answer.partitions)
        else:
            self.enter_assignment(now, answer.assignment, in_log=answer.assignment_offset is not None)
        if self.leave.request is not None:
            self.leave.announce_leaving(now)

    def enter_assignment(self, now: float, assignment: AssignmentRecord, *, in_log: bool) -> None:
        membership = self.membership
        if assignment.override_known:
            self.override.repeated(assignment.manual_override)
        self.peers.enter(now, assignment.members)
        owners = assignment.owners()
        mine = [partition for partition, owner in owners.items() if owner == membership.member]
        self.partitions.enter(Ownership(membership.generation, owners), mine)
        if membership.leader == membership.member and not in_log:
            self.append(assignment)  # a later leader without a map finds the newest one here (rule 8)
        for record in self._future.enter(membership.generation):
            self._apply(now, record)

    def forget(self, now: float) -> None:
        self._mixed.forget()
        self._future.clear()
        self.plan = LatestPlan()
        self._prefetches.drop_all()
        self.slices.enter()
        self.partitions.ownership = None
        self.partitions.drop_all()

    def stop_foreign(self, now: float) -> None:
        self._mixed.stop()

    def leaving_members(self) -> frozenset[str]:
        me = {self.membership.member} if self.leave.request is not None else set()
        return self.peers.leaving | me

    def weights(self) -> dict[Partition, float]:
        return self._weights

    def append(self, record: Record) -> int:
        self._appends += 1
        self.emit(AppendCommand(append=self._appends, record=record))
        return self._appends

    def wall(self, now: float) -> float:
        return now + self._wall_offset

    # -- events --------------------------------------------------------------------------------------------------

    def _on_weights(self, event: WeightsEvent) -> None:
        self._weights = event.weights

    def _on_commit_answered(self, event: CommitAnsweredEvent) -> None:
        self.partitions.commit_answered(
            event.now, self.partitions.commits.answered(event, self.partitions.acquisition_of)
        )
        codes = set(event.codes.values())
        # A broker that is cut off from its followers cannot store a commit, and does not know that another took over.
        if codes & (COORDINATOR_MOVED | {Code.REQUEST_TIMED_OUT}):
            self.membership.coordinator_lost()
        if Code.COORDINATOR_LOAD_IN_PROGRESS in codes:
            self.membership.session.takeover.learnt(event.now)
        for code in (Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.REBALANCE_IN_PROGRESS):
            if code in codes:
                self.membership.refused_generation(event.now, event.member, event.generation, code)
                return

    def _on_coordinator_found(self, event: CoordinatorFoundEvent) -> None:
        self.membership.coordinator_found(event.now, taken_over=event.taken_over)
        self.partitions.coordinator_found()

    def _on_committed_fetched(self, event: CommittedFetchedEvent) -> None:
        if not self.partitions.committed_fetched(event):
            self.membership.coordinator_lost()

    def _on_appended(self, event: AppendedEvent) -> None:
        self.partitions.appended(event)
        self.membership.assignment_appended(event.now, event.append, event.offset)

    def _on_log(self, event: LogReadEvent) -> None:
        record = event.record
        generation = getattr(record, "generation", -1)
        ahead = generation > self.membership.generation
        if ahead and isinstance(record, (ReleaseRecord, PromiseRecord, PlanRecord, LeavingRecord)):
            self._keep(event.now, generation, event.offset, record)
        elif isinstance(record, AssignmentRecord):
            if generation > self.membership.generation:
                self._keep(event.now, generation, event.offset, record)
            elif self.membership.reading == (generation, event.offset):
                self.membership.assignment_read(event.now, record)
        else:
            self._apply(event.now, record)

    def _keep(self, now: float, generation: int, offset: int, record: Record) -> None:
        if not self._future.keep(generation, offset, record):
            self.emit(CountCommand(what=ProtocolCount.FUTURE_RECORDS_DROPPED))
            self.slices.gap()
            self.membership.rejoin(now)

    def _look_for_assignment(self, now: float) -> None:
        wanted = self.membership.reading
        if wanted is None:
            return
        assignment = self._future.assignment_at(*wanted)
        if assignment is not None:
            self.membership.assignment_read(now, assignment)

    def _apply(self, now: float, record: Record) -> None:
        """One record of the log, of this generation or of none."""
        membership = self.membership
        match record:
            case ReleaseRecord():
                foreign = is_foreign(record, membership.member, self.partitions.assigned)
                if not self.partitions.fold(record, membership.member, acquire=membership.stable):
                    self.emit(CountCommand(what=ProtocolCount.VOID_RELEASE, partition=record.key))
                    return
                self.slices.released(record.key, record.target)
                self._prefetches.moved(record.key, here=record.key in self.partitions.assigned)
                if foreign:
                    # By the log another owns what this one holds. Both claim the partition in the next generation, so
                    # it is given away anew from what was committed (rule 7).
                    self.emit(CountCommand(what=ProtocolCount.FOREIGN_RELEASE, partition=record.key))
                    membership.rejoin(now)
            case PromiseRecord() if self.slices.read(now, record) and membership.stable:
                if record.taken_back:
                    self._prefetches.taken_back(record.key)
                elif self._comes(record.key, record.source, record.target):
                    self._prefetches.promised(now, record.key, record.until, record.seconds)
            case PlanRecord() if record.generation == membership.generation and membership.stable:
                if record.member == membership.leader:
                    self._advise(now, record)
                else:
                    self.emit(CountCommand(what=ProtocolCount.FOREIGN_PLAN))
            case HelloRecord() if record.member != membership.member:
                membership.on_member_notice(now, record.member, here=True)
            case LeftRecord() if record.member != membership.member:
                self.peers.forget_leaving(record.member)
                membership.on_member_notice(now, record.member, here=False)
            case RejoinRecord() if record.member != membership.member:
                membership.on_rebalance_notice(now, record.generation)
            case LoadRecord():
                self.peers.note_load(now, record)
            case LeavingRecord():
                self.peers.announce_leaving(record.member)
            case ManualOverrideRecord():
                self.override.read(record)
            case _:
                pass

    def _advise(self, now: float, plan: PlanRecord) -> None:
        """Plans are advice: this member's own moves are begun, if they can be."""
        if self.plan.record is not None and plan.sequence <= self.plan.record.sequence:
            return
        waiting, self.plan = self.plan.unopened, LatestPlan(plan)
        if waiting:
            self.plan.keep(waiting)
        for move in plan.moves:
            if move.source == self.membership.member:
                self._intend(now, Partition(move.topic, move.partition), move.target)
        coming = [
            partition
            for move in plan.moves
            if self._comes(partition := Partition(move.topic, move.partition), move.source, move.target)
        ]
        self._prefetches.advised(now, coming)

    def _comes(self, partition: Partition, source: str, target: str) -> bool:
        """Return whether a partition that its owner is to give away, or has promised, would come to this member."""
        ownership = self.partitions.ownership
        return (
            ownership is not None
            and self.leave.request is None
            and self.log_works
            and target == self.membership.member
            and partition not in self.partitions.assigned
            and partition.topic in self.leave.topics
            and ownership.owner(partition) == source
        )

    def _intend(self, now: float, partition: Partition, target: str) -> None:
        """Give a partition to a member of this generation that subscribes its topic and stays (rule 2)."""
        allowed = self.slices.may_give(partition, target)
        held = self.partitions.assigned.get(partition)
        if allowed and held is not None and not held.opened:
            self.plan.unopened[partition] = target
        elif not allowed or not self.partitions.intend(now, partition, target):
            self.emit(CountCommand(what=ProtocolCount.MOVE_NOT_POSSIBLE, partition=partition))

    def _release_settled(self, now: float) -> None:
        ownership = self.partitions.ownership
        for entry in self.partitions.settled():
            if entry.target == "":
                if self.leave.may_relinquish(entry.partition):
                    self.partitions.release(now, entry, None)
            elif not self.peers.well(entry.target):
                self.partitions.keep(entry.partition)
            elif ownership is not None and self.membership.stable and self.log_works:
                record = ownership.release(entry, self.config.group, self.membership.member, now, self.wall(now))
                self.partitions.release(now, entry, record)

    # -- the log's troubles (rule 10) ----------------------------------------------------------------------------

    def _on_log_position(self, event: LogPositionEvent) -> None:
        if self.partitions.missing_release(event.position) and self.membership.stable:
            self.emit(CountCommand(what=ProtocolCount.RELEASE_NOT_FOUND))
            self.membership.rejoin(event.now)

    def _on_log_gap(self, event: LogGapEvent) -> None:
        self.slices.gap()
        self.override.gap()
        self.emit(CountCommand(what=ProtocolCount.LOG_GAP))
        self._future.clear()
        self.membership.rejoin(event.now)

    def _on_log_failed(self, event: LogFailedEvent) -> None:
        if event.failed and self.log_works:
            self.emit(CountCommand(what=ProtocolCount.LOG_FAILED))
            self._prefetches.drop_all()
            self.slices.drop_all()
            for partition, entry in sorted(self.partitions.assigned.items()):
                if entry.target:
                    self.partitions.keep(partition)  # no moves, all else runs on
        self._log_failed = event.failed

    def _on_log_usable(self, event: LogUsableEvent) -> None:
        """Back from a mixed group: one barrier more, in which everybody can offer our protocol."""
        if not self.config.log_usable:
            self.emit(CountCommand(what=ProtocolCount.LOG_USABLE))
            self.use_log(True)
            if self.membership.phase is not Phase.IDLE:
                self.membership.rejoin(event.now)

    # -- the end -------------------------------------------------------------------------------------------------

    def relinquish_all(self) -> None:
        """Hand out nothing, hold nothing."""
        self._mixed.end_revoking()
        self._lease.revoke()
        self._prefetches.drop_all()
        self.slices.drop_all()
        self.partitions.drop_all()

    def left(self, event: LeaveAnsweredEvent) -> None:
        """Out of the group."""
        self.membership.left(event.now)
        self.relinquish_all()
        # Their answers would come to a machine that is not there any more.
        for request, code in sorted(self.partitions.commits.abandon().items()):
            self.emit(CommitResultCommand(request=request, code=code))
        self.emit(LeftCommand())
