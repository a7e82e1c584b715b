"""The one door of the protocol core: ``Machine.handle(event) -> list[Command]``.

Deterministic: the same events give the same commands, byte for byte. Nothing else changes its state. The shell
(:mod:`loadtrim_agent.kafka.shell`) carries the commands out in order and feeds the answers back as events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from ..model import Partition
from ..records import (
    BaseRecord,
    BrakeRecord,
    HelloRecord,
    LeavingRecord,
    LeftRecord,
    LoadRecord,
    PlanRecord,
    Record,
    RejoinRecord,
    ReleaseRecord,
)
from . import events
from .commands import (
    AppendCommand,
    Command,
    CountCommand,
    EnteredCommand,
    GatherCommitsCommand,
    LeaseCommand,
    LeftCommand,
    ResumeCommand,
    SendLeaveCommand,
    StopCommand,
)
from .events import (
    AppendedEvent,
    BaseFoundEvent,
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
    MoveWantedEvent,
    OpenedEvent,
    StartEvent,
    SubscriptionEvent,
    TickEvent,
    TopicsEvent,
    WeightsEvent,
)
from .holdings import Holdings
from .lease import Lease
from .membership import Membership, Phase
from .ownership import Hold, HoldState, Ownership
from .peers import Peers
from .values import COORDINATOR_MOVED, Code, GroupConfig

__all__ = ["Machine"]

FUTURE_RECORDS_MAX = 10_000
"""Records of later generations kept (rule 9); beyond it a barrier is forced, which makes them unnecessary."""
STORY_ENTRIES_MAX = 2_000
LAST_COMMIT_SECONDS = 1.0
UNOPENED = (HoldState.FETCHING, HoldState.OPENING, HoldState.PINNING)
NEVER = float("inf")


class Machine:
    """One member's protocol state.

    Args:
        config: what the protocol must know.
        wall_offset: wall-clock time minus boot-time clock, seconds: only for the ``at`` of records.

    Cost: O(held partitions) per event at most; O(1) for heartbeats, ticks and log records of others.
    """

    def __init__(self, config: GroupConfig, *, wall_offset: float = 0.0) -> None:
        self.config = config
        self._wall_offset = wall_offset
        self._out: list[Command] = []
        self._appends = 0
        self._lease = Lease(config.session_timeout, config.rebalance_timeout)
        self._lease_said = 0.0
        self.membership = Membership(config, self, self._lease, self._out.append)
        self.holdings = Holdings(config, self._emit, self.append)
        self.peers = Peers()
        self._weights: dict[Partition, float] = {}
        self._future: dict[int, list[tuple[int, Record]]] = {}
        """Generation above ours -> records of the log, in order (rule 9)."""
        self._log_failed = not config.log_usable
        self.plan: PlanRecord | None = None
        """The leader's latest advice in this generation."""
        self.brake: BrakeRecord | None = None
        self._leave: LeaveWantedEvent | None = None
        self._leave_sent = False
        self._last_commit_until: float | None = None
        """Set when the drain time is over and only the last commit is waited for."""
        self._revoking = False
        self._revoke_deadline = NEVER
        self._stopped_for_foreign = False
        """Handing out was stopped because a member without the agent came back; undone if it is gone again."""
        self._story: deque[tuple[float, str, str]] = deque(maxlen=STORY_ENTRIES_MAX)
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            StartEvent: lambda e: self.membership.start(e.now),
            TickEvent: lambda e: None,
            SubscriptionEvent: self._on_subscription,
            TopicsEvent: self._on_topics,
            WeightsEvent: self._on_weights,
            CoordinatorFoundEvent: lambda e: self.membership.coordinator_found(e.now),
            events.JoinAnsweredEvent: self.membership.join_answered,
            events.SyncAnsweredEvent: self.membership.sync_answered,
            events.HeartbeatAnsweredEvent: self.membership.heartbeat_answered,
            LeaveAnsweredEvent: self._on_left,
            events.CommitWantedEvent: self.holdings.commit_wanted,
            CommitAnsweredEvent: self._on_commit_answered,
            CommittedFetchedEvent: self._on_committed_fetched,
            OpenedEvent: self.holdings.opened,
            events.DrainedEvent: self.holdings.drained,
            MoveWantedEvent: lambda e: self._intend(e.now, e.partition, e.target),
            LogReadEvent: self._on_log,
            LogPositionEvent: self._on_log_position,
            LogGapEvent: self._on_log_gap,
            LogFailedEvent: self._on_log_failed,
            AppendedEvent: self._on_appended,
            BaseFoundEvent: lambda e: self.membership.base_found(e.now, e.base),
            LeaveWantedEvent: self._on_leave_wanted,
        }

    # -- the door ------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Command]:
        """Feed one event in; take what is to be done, in order.

        Raises:
            InvariantError: the machine contradicts itself; the shell stops moving and goes on consuming.
        """
        self._handlers[type(event)](event)
        self._settle(event.now)
        out = self._out[:]
        self._out.clear()
        self._remember(event, out)
        return out

    def wakeup(self) -> float:
        """When a TickEvent is due at the latest, by the boot-time clock; inf: never."""
        due = min(self.membership.wakeup(), self.holdings.wakeup(), self._revoke_deadline)
        if self.membership.stable and not self._log_failed:
            due = min(due, self.peers.next_overdue(self.membership.member))
        if self._leave is not None and not self._leave_sent:
            due = min(due, self._last_commit_until or self._leave.deadline)
        return due

    def without_log(self) -> None:
        """Before the start: the control topic cannot be used, so offer the standard protocols only (mixed group)."""
        self.config = msgspec.structs.replace(self.config, log_usable=False)
        self.membership.without_log()
        self._log_failed = True

    @property
    def settled(self) -> bool:
        """In a generation, with everything held being handed out or given away."""
        return self.membership.stable and all(h.state not in UNOPENED for h in self.holdings.holds.values())

    @property
    def lease_until(self) -> float:
        """Nothing is handed out at or after this time."""
        return self._lease.until

    def story(self, partition: Partition | None = None) -> list[tuple[float, str, str]]:
        """The last events and commands (time, kind, text), of one partition or of all: for bug reports."""
        if partition is None:
            return list(self._story)
        needle = repr(partition)
        return [entry for entry in self._story if needle in entry[2]]

    def _settle(self, now: float) -> None:
        """What follows from any change: whatever is due now, releases whose commit is in, commits, the lease."""
        self._look_for_map(now)
        overdue = not self._log_failed and self.peers.overdue(now, self.membership.member)
        self.membership.tick(now, overdue)
        if self.holdings.tick(now):
            self._emit(CountCommand(what="release_in_doubt"))
            self.membership.rejoin(now)
        if self._leave is not None:
            self._leave_step(now, self._leave)
        self._release_settled(now)
        self.membership.poke(now)
        if self.membership.may_commit:
            command = self.holdings.commits.next(self.membership.member, self.membership.generation)
            if command is not None:
                self._emit(command)
        if self._lease.until != self._lease_said:
            self._lease_said = self._lease.until
            self._emit(LeaseCommand(until=self._lease_said))

    def _emit(self, command: Command) -> None:
        self._out.append(command)

    def _remember(self, event: Event, out: list[Command]) -> None:
        if not isinstance(event, TickEvent) or out:
            self._story.append((event.now, type(event).__name__, repr(event)))
            self._story.extend((event.now, type(c).__name__, repr(c)) for c in out)

    # -- hooks of membership -------------------------------------------------------------------------------------

    def ready_to_join(self, now: float) -> bool:
        if self.membership.speaks_loadtrim or not self.holdings.holds:
            self.holdings.freeze()
            return True
        return self._revoked(now)

    def _revoked(self, now: float) -> bool:
        """Mixed group: put everything down first, as any eager consumer does."""
        if not self._revoking:
            self._revoking = True
            self._revoke_deadline = now + min(self.config.drain_seconds, self.config.rebalance_timeout / 2)
            for partition in sorted(self.holdings.holds):
                self.holdings.intend(now, partition, "")
        waiting = [h for h in self.holdings.holds.values() if h.state in (HoldState.STOPPING, HoldState.COMMITTING)]
        done = {id(h) for h in self.holdings.settled()}
        if any(id(h) not in done for h in waiting) and now < self._revoke_deadline:
            return False
        self._revoking = False
        self._revoke_deadline = NEVER
        self.holdings.drop_all()
        return True

    def claims(self) -> tuple[Partition, ...]:
        return self.holdings.claims(self.membership.topics)

    def enter(self, now: float, answer: GroupAnswer) -> None:
        membership = self.membership
        self.plan = None
        self._revoking, self._revoke_deadline = False, NEVER
        self._emit(
            EnteredCommand(
                generation=membership.generation,
                member=membership.member,
                leader=membership.leader,
                protocol=membership.protocol,
            )
        )
        if not membership.speaks_loadtrim and self.holdings.holds:
            membership.rejoin(now)  # a member without the agent came back: commit, drop the claims, join again
            return
        if answer.base is None:
            self.peers.enter(now, ())
            self.holdings.enter_blind(answer.partitions)
        else:
            self._enter_map(now, answer.base)
        if self._leave is not None:
            self._say_leaving(now)

    def _enter_map(self, now: float, base: BaseRecord) -> None:
        membership = self.membership
        self._heed(base.brake)
        self._run_again()
        self.peers.enter(now, base.members)
        self.holdings.enter(Ownership(membership.generation, base.owners()), membership.member)
        if membership.leader == membership.member:
            self.append(base)  # a later leader without a map finds the newest one here (rule 8)
        future = self._future
        self._future = {g: records for g, records in future.items() if g > membership.generation}
        for _, record in future.get(membership.generation, ()):
            self._apply(now, record)

    def forget(self, now: float) -> None:
        self._revoking, self._revoke_deadline = False, NEVER
        self._stopped_for_foreign = False
        self._future = {}
        self.plan = None
        self.holdings.ownership = None
        self.holdings.drop_all()

    def stop_foreign(self, now: float) -> None:
        for partition, hold in sorted(self.holdings.holds.items()):
            if hold.state is HoldState.RUNNING:
                self._stopped_for_foreign = True
                self._emit(StopCommand(partition=partition, take=hold.take))

    def _run_again(self) -> None:
        if self._stopped_for_foreign:
            self._stopped_for_foreign = False
            for partition, hold in sorted(self.holdings.holds.items()):
                if hold.state is HoldState.RUNNING:
                    self._emit(ResumeCommand(partition=partition, take=hold.take))

    def leaving(self) -> frozenset[str]:
        me = {self.membership.member} if self._leave is not None else set()
        return self.peers.leaving | me

    def weights(self) -> dict[Partition, float]:
        return self._weights

    def brake_in_force(self) -> BrakeRecord | None:
        return self.brake

    def _heed(self, brake: BrakeRecord | None) -> None:
        """The latest brake wins; every ``base`` repeats the one in force."""
        if brake is not None and (self.brake is None or brake.at >= self.brake.at):
            self.brake = brake

    def append(self, record: Record) -> int:
        self._appends += 1
        self._emit(AppendCommand(append=self._appends, record=record))
        return self._appends

    def wall(self, now: float) -> float:
        return now + self._wall_offset

    # -- events --------------------------------------------------------------------------------------------------

    def _on_subscription(self, event: SubscriptionEvent) -> None:
        if event.topics != self.membership.topics:
            self.membership.topics = event.topics
            if self.membership.phase is not Phase.IDLE:
                self.membership.rejoin(event.now)

    def _on_topics(self, event: TopicsEvent) -> None:
        """Rule 7: only the leader's metadata watch starts a barrier for new partitions."""
        known = self.membership.partitions
        changed = {t for t, count in event.partitions.items() if known.get(t, count) != count}
        self.membership.partitions = {**known, **event.partitions}
        if changed and self.membership.leader == self.membership.member and self.membership.generation >= 0:
            self._emit(CountCommand(what="partitions_changed"))
            self.membership.rejoin(event.now)
        self.membership.assign(event.now)

    def _on_weights(self, event: WeightsEvent) -> None:
        self._weights = event.weights

    def _on_commit_answered(self, event: CommitAnsweredEvent) -> None:
        self.holdings.commit_answered(self.holdings.commits.answered(event, self.holdings.take_of))
        codes = set(event.codes.values())
        if codes & COORDINATOR_MOVED:
            self.membership.coordinator_lost()
        for code in (Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.REBALANCE_IN_PROGRESS):
            if code in codes:
                self.membership.refused_generation(event.now, event.member, event.generation, code)
                return

    def _on_committed_fetched(self, event: CommittedFetchedEvent) -> None:
        if not self.holdings.committed_fetched(event):
            self.membership.coordinator_lost()

    def _on_appended(self, event: AppendedEvent) -> None:
        self.holdings.appended(event)
        self.membership.base_appended(event.now, event.append, event.offset)

    def _on_log(self, event: LogReadEvent) -> None:
        record = event.record
        generation = getattr(record, "generation", -1)
        if isinstance(record, (ReleaseRecord, PlanRecord, LeavingRecord)) and generation > self.membership.generation:
            self._keep(event.now, generation, event.offset, record)
        elif isinstance(record, BaseRecord):
            if generation > self.membership.generation:
                self._keep(event.now, generation, event.offset, record)
        else:
            self._apply(event.now, record)

    def _keep(self, now: float, generation: int, offset: int, record: Record) -> None:
        self._future.setdefault(generation, []).append((offset, record))
        if sum(len(records) for records in self._future.values()) > FUTURE_RECORDS_MAX:
            self._future = {}
            self._emit(CountCommand(what="future_records_dropped"))
            self.membership.rejoin(now)

    def _look_for_map(self, now: float) -> None:
        wanted = self.membership.reading
        if wanted is None:
            return
        for offset, record in self._future.get(wanted[0], ()):
            if offset == wanted[1] and isinstance(record, BaseRecord):
                self.membership.base_read(now, record)
                return

    def _apply(self, now: float, record: Record) -> None:
        """One record of the log, of this generation or of none."""
        membership = self.membership
        match record:
            case ReleaseRecord():
                counted = self.holdings.fold(record, membership.member, acquire=membership.stable)
                if not counted:
                    self._emit(CountCommand(what="void_release", partition=record.key))
            case PlanRecord() if record.generation == membership.generation and membership.stable:
                self._advise(now, record)
            case HelloRecord() | LeftRecord() if record.member != membership.member:
                if isinstance(record, LeftRecord):
                    self.peers.forget_leaving(record.member)
                membership.hint(now)
            case RejoinRecord() if record.member != membership.member:
                if record.generation >= membership.generation:
                    membership.hint(now, record.generation)
            case LoadRecord():
                self.peers.heard(now, record)
            case LeavingRecord():
                self.peers.say_leaving(record.member)
            case BrakeRecord():
                self._heed(record)
            case _:
                pass

    def _advise(self, now: float, plan: PlanRecord) -> None:
        """Plans are advice: this member's own moves are begun, if they can be."""
        if self.plan is not None and plan.sequence <= self.plan.sequence:
            return
        self.plan = plan
        for move in plan.moves:
            if move.source == self.membership.member:
                self._intend(now, Partition(move.topic, move.partition), move.target)

    def _intend(self, now: float, partition: Partition, target: str) -> None:
        """Give a partition to a member of this generation that subscribes its topic and stays (rule 2)."""
        base, ownership = self.membership.base, self.holdings.ownership
        entry = base.members.get(target) if base is not None else None
        allowed = (
            self.membership.stable
            and not self._log_failed
            and ownership is not None
            and ownership.owner(partition) == self.membership.member
            and target != self.membership.member
            and entry is not None
            and partition.topic in entry.topics
            and target not in self.peers.leaving
        )
        if not allowed or not self.holdings.intend(now, partition, target):
            self._emit(CountCommand(what="move_not_possible", partition=partition))

    def _release_settled(self, now: float) -> None:
        ownership = self.holdings.ownership
        for hold in self.holdings.settled():
            if hold.target == "":
                if self._leave is not None:
                    self.holdings.release(now, hold, None)
            elif ownership is not None and self.membership.stable:
                self.holdings.release(now, hold, self._release_record(now, ownership, hold))

    def _release_record(self, now: float, ownership: Ownership, hold: Hold) -> ReleaseRecord:
        return ReleaseRecord(
            group=self.config.group,
            member=self.membership.member,
            at=self.wall(now),
            generation=ownership.generation,
            topic=hold.partition.topic,
            partition=hold.partition.partition,
            version=ownership.version(hold.partition),
            source=self.membership.member,
            target=hold.target,
            offset=hold.committed if hold.committed is not None else 0,
            seconds=max(0.0, now - hold.since),
        )

    # -- the log's troubles (rule 10) ----------------------------------------------------------------------------

    def _on_log_position(self, event: LogPositionEvent) -> None:
        if self.holdings.missing_release(event.position) and self.membership.stable:
            self._emit(CountCommand(what="release_not_found"))
            self.membership.rejoin(event.now)

    def _on_log_gap(self, event: LogGapEvent) -> None:
        self._emit(CountCommand(what="log_gap"))
        self._future = {}
        self.membership.rejoin(event.now)

    def _on_log_failed(self, event: LogFailedEvent) -> None:
        if event.failed and not self._log_failed:
            self._emit(CountCommand(what="log_failed"))
        self._log_failed = event.failed

    # -- leaving (rule 11) ---------------------------------------------------------------------------------------

    def _on_leave_wanted(self, event: LeaveWantedEvent) -> None:
        first = self._leave is None
        self._leave = event
        if first:
            self._say_leaving(event.now)

    def _say_leaving(self, now: float) -> None:
        if self.membership.stable and not self._log_failed and self.holdings.ownership is not None:
            self.append(
                LeavingRecord(
                    group=self.config.group,
                    member=self.membership.member,
                    at=self.wall(now),
                    generation=self.membership.generation,
                    instance=self.config.instance,
                )
            )

    def _leave_step(self, now: float, leave: LeaveWantedEvent) -> None:
        if self._leave_sent:
            return
        membership = self.membership
        if self._last_commit_until is not None:
            if self.holdings.commits.idle or now >= self._last_commit_until:
                self._send_leave(now)
        elif membership.generation < 0 and not self.holdings.holds:
            self._send_leave(now)
        elif now >= leave.deadline or not leave.release:
            # The drain time is over: commit what is done, wait a moment for the answer, leave.
            self._last_commit_until = now + LAST_COMMIT_SECONDS
            self._emit(GatherCommitsCommand())
        elif membership.stable:
            self._give_everything(now)
            if all(h.state is HoldState.RELEASED and not h.target for h in self._started()):
                self._send_leave(now)

    def _started(self) -> list[Hold]:
        """Holds that matter when leaving: those not opened yet are simply left to the next map."""
        return [h for h in self.holdings.holds.values() if h.state not in UNOPENED]

    def _give_everything(self, now: float) -> None:
        base = self.membership.base
        entries = base.members if base is not None and not self._log_failed else {}
        advised = {
            Partition(m.topic, m.partition): m.target
            for m in (self.plan.moves if self.plan is not None else ())
            if m.source == self.membership.member
        }
        for partition in sorted(self.holdings.holds):
            if self.holdings.holds[partition].state is not HoldState.RUNNING:
                continue
            takers = self.peers.takers(partition, entries, self.membership.member)
            target = advised.get(partition, "")
            if target not in takers:
                target = takers[0] if takers else ""
            self.holdings.intend(now, partition, target)
            self.peers.charge(target, self._weights.get(partition, 1.0))

    def _send_leave(self, now: float) -> None:
        self._leave_sent = True
        membership = self.membership
        if not membership.member:
            self._on_left(LeaveAnsweredEvent(now=now))
            return
        self._emit(SendLeaveCommand(member=membership.member))
        if not self._log_failed:
            self.append(
                LeftRecord(
                    group=self.config.group,
                    member=membership.member,
                    at=self.wall(now),
                    generation=membership.generation,
                )
            )
        membership.left()

    def _on_left(self, event: LeaveAnsweredEvent) -> None:
        self.membership.left()
        self._lease.revoke()
        self.holdings.drop_all()
        self._emit(LeftCommand())
