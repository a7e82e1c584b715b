"""One member: the real machine, in a shell that carries its commands out as the agent's shell does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.group_config import Code, GroupConfig
from loadtrim_agent.protocol.leave import LAST_COMMIT_SECONDS
from loadtrim_agent.protocol.machine import Machine
from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.ownership_records import LoadRecord, MovePlan, PlanRecord

from .coordinator import (
    CommitRequest,
    FetchRequest,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveRequest,
    SyncReply,
    SyncRequest,
)
from .scheduler import Timer
from .user import Slot, UserCode

if TYPE_CHECKING:
    from .world import World

__all__ = ["SimMember"]

Make = Callable[[float], e.Event]
NEVER = float("inf")
LOAD_SECONDS = 1.0
REFUSED_SECONDS = 2.0
LEAVE_TIMEOUT_SECONDS = 3.0
LOOKUP_AGAIN_SECONDS = 0.05


class SimMember:
    """A process with one consumer. Events reach the machine one after the other, as in the agent's loop."""

    def __init__(self, world: World, name: str, config: GroupConfig) -> None:
        self.world = world
        self.name = name
        self.config = config
        self.machine = Machine(config)
        self.user = UserCode(self)
        self.gone = False
        """Crashed or left."""
        self.crashed = False
        self.frozen = False
        self.stalled = False
        self._gone_well = False
        """It has left, with all it did committed: it gave up its lease by itself, which excuses nothing."""
        self._last_commit_until = NEVER
        """From then on a leave does not wait for the answer to its last commit."""
        self.excused_at = 0.0
        """When it was last seen without a valid lease, or to have gone without having finished."""
        self.removed = ""
        """The id under which an administrator removed it: a known limit, until it hears of it."""
        self.leave_deadline = NEVER
        self.commit_codes: list[int] = []
        self._comes_back = False
        self._scheduler = world.scheduler
        self._inbox: deque[Make] = deque()
        self._queue: deque[Make] = deque()
        self._handling = False
        self._timer: Timer | None = None
        self._timer_at = NEVER
        self._looking = False
        self._listener_free_at = 0.0
        self._commit_requests = 0
        self._opening: dict[Partition, list[Callable[[], None]]] = {}
        self._plan_sequence = 0
        self.prefetched: dict[Partition, float] = {}
        """Partition -> since when it is fetched without being held."""
        connect = world.network.connect
        self._join, self._heartbeats = connect(name), connect(name)
        self._commits, self._offsets = connect(name), connect(name)
        self._connections = (self._join, self._heartbeats, self._commits, self._offsets)
        self.reader = world.log.tail(self)
        self._run: dict[type[c.Command], Callable[[Any], None]] = {
            c.FindCoordinatorCommand: self._find_coordinator,
            c.SendJoinCommand: self._send_join,
            c.SendSyncCommand: self._send_sync,
            c.SendHeartbeatCommand: self._send_heartbeat,
            c.SendLeaveCommand: self._send_leave,
            c.SendCommitCommand: self._send_commit,
            c.CommitResultCommand: lambda command: self.commit_codes.append(command.code),
            c.GatherCommitsCommand: lambda command: self.commit_done(),
            c.FetchCommittedCommand: self._fetch_committed,
            c.FetchTopicsCommand: self._fetch_topics,
            c.AppendCommand: self._append,
            c.ReadAssignmentCommand: self._read_assignment,
            c.OpenCommand: self._open,
            c.PrefetchCommand: self._prefetch,
            c.DropPrefetchCommand: self._drop_prefetch,
            c.RunCommand: self._run_slot,
            c.AwaitIdlePointCommand: self._await_idle_point,
            c.BoundCommand: self._bind,
            c.UnboundCommand: self._unbind,
            c.StopCommand: self._stop_slot,
            c.ResumeCommand: self._resume_slot,
            c.DropCommand: self._drop_slot,
            c.LeaseCommand: self._lease,
            c.EnteredCommand: lambda command: None,
            c.LeftCommand: lambda command: self._left(),
            c.FailCommand: self._fail,
            c.CountCommand: lambda command: world.count(command.what.label),
        }

    @property
    def member(self) -> str:
        """The id that the coordinator knows it by."""
        return self.machine.snapshot().member

    @property
    def lease_until(self) -> float:
        return self.machine.lease_until

    def excused_since(self, time: float) -> bool:
        self._look_at_lease()
        return self.crashed or self.unaware or self.excused_at >= time or self.world.mixed_at >= time

    @property
    def unaware(self) -> bool:
        """Removed by an administrator, and not told yet."""
        return self.removed != "" and self.removed == self.member

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.feed(lambda now: e.StartEvent(now=now))
        self._scheduler.after(self.world.options.group.auto_commit_seconds, self._auto_commit)
        self._scheduler.after(LOAD_SECONDS, self._say_load)
        self._scheduler.after(self.world.metadata_seconds(), self._watch_topics)

    def find_log(self) -> None:
        """The control topic can be used after all."""
        self.feed(lambda now: e.LogUsableEvent(now=now))

    def leave(self, *, release: bool = True, come_back: bool = False) -> None:
        """Leave the group; ``come_back``: the process stays and joins again."""
        self._comes_back = come_back
        self.leave_deadline = self._scheduler.now + self.config.drain_seconds
        deadline = self.leave_deadline
        last_commit_until = deadline if release else self._scheduler.now + LAST_COMMIT_SECONDS
        self._last_commit_until = min(self._last_commit_until, last_commit_until)
        self.feed(lambda now: e.LeaveWantedEvent(now=now, deadline=deadline, release=release))

    def _left(self) -> None:
        if not self._comes_back:
            self._end()
            return
        self._comes_back = self._gone_well = False
        self._last_commit_until = NEVER
        self.machine = self.machine.successor()
        self.leave_deadline = NEVER
        self.excused_at = self._scheduler.now
        self.feed(lambda now: e.StartEvent(now=now))

    def crash(self) -> None:
        self.crashed = True
        self._end()

    def freeze(self, seconds: float) -> None:
        """SIGSTOP, then SIGCONT."""
        self.frozen = True
        self._scheduler.after(seconds, self.wake)

    def stall(self, seconds: float) -> None:
        """The agent hears nothing; user code goes on."""
        self.stalled = True
        self._scheduler.after(seconds, self.wake)

    def wake(self) -> None:
        """Run again, with all that came meanwhile."""
        if self.gone:
            return
        thawed, self.frozen, self.stalled = self.frozen, False, False
        # One callback of the loop each: what follows from one comes before the next.
        while self._inbox:
            self.feed(self._inbox.popleft())
        self.feed(lambda now: e.TickEvent(now=now))
        if thawed:
            self.user.thaw()

    def _end(self) -> None:
        self.gone = True
        self.reader.closed = True
        for connection in self._connections:
            connection.close(tell=False)
        self._inbox.clear()
        self._queue.clear()

    def _fail(self, command: c.FailCommand) -> None:
        if command.code == Code.INCONSISTENT_GROUP_PROTOCOL and not self.machine.snapshot().config.log_usable:
            self._scheduler.after(REFUSED_SECONDS, self._join_again)
        else:
            self.world.violated("membership", f"{self.name} failed with code {command.code}")

    def _join_again(self) -> None:
        if not self.gone and self.leave_deadline == NEVER:
            self.machine = self.machine.successor()
            self.feed(lambda now: e.StartEvent(now=now))

    # -- events --------------------------------------------------------------------------------------------------

    def feed(self, make: Make) -> None:
        """Give the machine an event; those that come meanwhile wait their turn."""
        if self.gone:
            return
        if self.frozen or self.stalled:
            self._inbox.append(make)
            return
        self._queue.append(make)
        if self._handling:
            return
        self._handling = True
        try:
            while self._queue:
                self._step(self._queue.popleft())
        finally:
            self._handling = False
        if not self.gone:
            self._set_timer()

    def _called(self, make: Make) -> None:
        """User code has a thread of its own: what it calls comes after all that waits already."""
        if self._inbox:
            self._inbox.append(make)
        else:
            self.feed(make)

    def _step(self, make: Make) -> None:
        self._look_at_lease()
        event = make(self._scheduler.now)
        commands = self.machine.handle(event)
        self.world.commanded(self, event, commands)
        for command in commands:
            if not self.gone:
                self._run[type(command)](command)

    def _look_at_lease(self) -> None:
        if self.gone or self._gone_well:
            return
        if self._scheduler.now >= self.machine.lease_until or self.unaware:
            self.excused_at = self._scheduler.now

    def _set_timer(self) -> None:
        due = self.machine.wakeup()
        if due <= self._scheduler.now:
            self.world.violated("wakeup", f"{self.name} wants to be woken at {due}, which has passed: it would spin")
        if due == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._scheduler.at(due, self._tick) if due != NEVER else None

    def _tick(self) -> None:
        self._timer, self._timer_at = None, NEVER
        self.feed(lambda now: e.TickEvent(now=now))

    # -- the log -------------------------------------------------------------------------------------------------

    def read(self, offset: int, record: Record) -> None:
        self.feed(lambda now: e.LogReadEvent(now=now, offset=offset, record=record))

    def positioned(self, position: int) -> None:
        self.feed(lambda now: e.LogPositionEvent(now=now, position=position))

    def gap(self) -> None:
        self.feed(lambda now: e.LogGapEvent(now=now))

    def fail_log(self, seconds: float) -> None:
        """The log does not answer this member for a while."""
        until = self._scheduler.now + seconds
        self.reader.block(until)
        self.feed(lambda now: e.LogFailedEvent(now=now, failed=True))
        self._scheduler.at(until, self._log_is_back)

    def _log_is_back(self) -> None:
        if self._scheduler.now < self.reader.blocked_until:  # it lags too, or has failed again
            self._scheduler.at(self.reader.blocked_until, self._log_is_back)
            return
        self.feed(lambda now: e.LogFailedEvent(now=now, failed=False))
        self.reader.notify()

    def _append(self, command: c.AppendCommand) -> None:
        def answered(offset: int | None) -> None:
            self.feed(lambda now: e.AppendedEvent(now=now, append=command.append, offset=offset))

        self.world.log.append(self.name, command.record, answered)

    def _read_assignment(self, command: c.ReadAssignmentCommand) -> None:
        def found() -> None:
            blocked = self._scheduler.now < self.reader.blocked_until
            assignment = None if blocked else self.world.log.newest_assignment()
            self.feed(lambda now: e.AssignmentFoundEvent(now=now, assignment=assignment, complete=not blocked))

        blocked = self._scheduler.now < self.reader.blocked_until
        self._scheduler.after(command.timeout if blocked else 0.01, found)

    def _say_load(self) -> None:
        if self.gone:
            return
        self._scheduler.after(LOAD_SECONDS, self._say_load)
        known = self.machine.snapshot()
        if not (self.frozen or self.stalled) and known.stable and known.config.log_usable:
            slack = self._scheduler.rng.random()
            record = LoadRecord(
                group=self.config.group,
                member=self.member,
                at=self._scheduler.now,
                generation=known.generation,
                slack=slack,
            )
            self.world.log.append(self.name, record, lambda offset: None)

    def write_plan(self, moves: tuple[MovePlan, ...]) -> None:
        """As the leader: advise."""
        self._plan_sequence += 1
        record = PlanRecord(
            group=self.config.group,
            member=self.member,
            at=self._scheduler.now,
            generation=self.machine.snapshot().generation,
            sequence=self._plan_sequence,
            moves=moves,
        )
        self.world.log.append(self.name, record, lambda offset: None)

    # -- the coordinator -----------------------------------------------------------------------------------------

    def _find_coordinator(self, command: c.FindCoordinatorCommand) -> None:
        if not self._looking:
            self._looking = True
            self._scheduler.after(self.world.lookup_seconds(), self._looked_up)

    def _looked_up(self) -> None:
        if not self.world.coordinator.up:
            self._scheduler.after(LOOKUP_AGAIN_SECONDS, self._looked_up)
            return
        self._looking = False
        found = [connection.find() for connection in self._connections]
        self.feed(lambda now: e.CoordinatorFoundEvent(now=now, taken_over=any(found)))

    def _send_join(self, command: c.SendJoinCommand) -> None:
        if command.fresh:
            self._join.close()
        metadata = e.JoinedMember(member="", topics=command.topics, owned=command.owned, attempt=command.attempt)
        config, sent_at = self.config, self._scheduler.now

        def answered(reply: JoinReply | int) -> None:
            got = reply if isinstance(reply, JoinReply) else JoinReply(reply)
            self.feed(
                lambda now: e.JoinAnsweredEvent(
                    now=now,
                    sent_at=sent_at,
                    attempt=command.attempt,
                    code=got.code,
                    member=got.member,
                    generation=got.generation,
                    protocol=got.protocol,
                    leader=got.leader,
                    members=got.members,
                )
            )

        request = JoinRequest(
            command.member, command.protocols, metadata, config.session_timeout, config.rebalance_timeout
        )
        self._join.ask(request, answered, timeout_seconds=config.rebalance_timeout + 5)

    def _send_sync(self, command: c.SendSyncCommand) -> None:
        sent_at = self._scheduler.now

        def answered(reply: SyncReply | int) -> None:
            got = reply if isinstance(reply, SyncReply) else SyncReply(reply)
            self.feed(
                lambda now: e.SyncAnsweredEvent(
                    now=now,
                    sent_at=sent_at,
                    attempt=command.attempt,
                    generation=command.generation,
                    code=got.code,
                    answer=got.answer,
                )
            )

        request = SyncRequest(command.member, command.generation, command.answers)
        self._join.ask(request, answered, timeout_seconds=self.config.rebalance_timeout)

    def _send_heartbeat(self, command: c.SendHeartbeatCommand) -> None:
        sent_at = self._scheduler.now

        def answered(code: int) -> None:
            self.feed(
                lambda now: e.HeartbeatAnsweredEvent(
                    now=now, sent_at=sent_at, member=command.member, generation=command.generation, code=code
                )
            )

        request = HeartbeatRequest(command.member, command.generation)
        self._heartbeats.ask(request, answered, timeout_seconds=self.config.session_timeout / 4)

    def _send_leave(self, command: c.SendLeaveCommand) -> None:
        if self.user.busy or self._scheduler.now >= self._last_commit_until:
            self.excused_at = NEVER
        self._gone_well = True
        self._heartbeats.ask(
            LeaveRequest(command.member),
            lambda code: self.feed(lambda now: e.LeaveAnsweredEvent(now=now)),
            timeout_seconds=LEAVE_TIMEOUT_SECONDS,
        )

    def _send_commit(self, command: c.SendCommitCommand) -> None:
        offsets = {p: offset for p, (offset, _) in command.offsets.items()}

        def answered(reply: dict[Partition, int] | int) -> None:
            codes = reply if isinstance(reply, dict) else dict.fromkeys(offsets, reply)
            self.feed(
                lambda now: e.CommitAnsweredEvent(
                    now=now, commit=command.commit, member=command.member, generation=command.generation, codes=codes
                )
            )

        request = CommitRequest(command.member, command.generation, offsets)
        self._commits.ask(request, answered, timeout_seconds=self.config.session_timeout)

    def _fetch_committed(self, command: c.FetchCommittedCommand) -> None:
        def answered(reply: dict[Partition, int] | int) -> None:
            code, offsets = (0, reply) if isinstance(reply, dict) else (reply, {})
            self.feed(lambda now: e.CommittedFetchedEvent(now=now, fetch=command.fetch, code=code, offsets=offsets))

        self._offsets.ask(FetchRequest(command.partitions), answered, timeout_seconds=self.config.session_timeout)

    def _fetch_topics(self, command: c.FetchTopicsCommand) -> None:
        def answer() -> None:
            counts = {topic: self.world.topics.get(topic, 0) for topic in command.topics}
            self.feed(lambda now: e.TopicsEvent(now=now, partitions=counts))

        self._scheduler.after(self.world.lookup_seconds(), answer)

    def _watch_topics(self) -> None:
        if not self.gone:
            counts = dict(self.world.topics)
            self.feed(lambda now: e.TopicsEvent(now=now, partitions=counts))
            self._scheduler.after(self.world.metadata_seconds(), self._watch_topics)

    # -- partitions ----------------------------------------------------------------------------------------------

    def _prefetch(self, command: c.PrefetchCommand) -> None:
        if not set(command.starts) <= set(command.partitions):
            self.world.violated("prefetch", f"{self.name} is told where to begin with what it does not prefetch")
        for partition in command.partitions:
            if partition in self.user.slots or partition in self.prefetched:
                self.world.violated("prefetch", f"{self.name} prefetches {partition}, which it has")
            self.prefetched[partition] = self._scheduler.now

    def _drop_prefetch(self, command: c.DropPrefetchCommand) -> None:
        for partition in command.partitions:
            if self.prefetched.pop(partition, None) is None:
                self.world.violated("prefetch", f"{self.name} drops {partition}, which it does not prefetch")

    def _open(self, command: c.OpenCommand) -> None:
        if self.prefetched.pop(command.partition, None) is not None:
            self.world.count("prefetch_used")
        if command.partition in self.user.lingering:
            self._opening.setdefault(command.partition, []).append(lambda: self._begin(command))
        else:
            self._begin(command)

    def lingering_ended(self, partition: Partition) -> None:
        for begin in self._opening.pop(partition, []):
            begin()

    def _begin(self, command: c.OpenCommand) -> None:
        offset = command.offset
        if offset is None:
            data = self.world.data[command.partition]
            offset = data.end if self.world.options.group.reset_latest else 0
        self.user.slots[command.partition] = Slot(
            command.partition, command.acquisition_id, offset, self._scheduler.now
        )
        self._listener(lambda: self._opened(command, offset))

    def _opened(self, command: c.OpenCommand, offset: int) -> None:
        self.feed(
            lambda now: e.OpenedEvent(
                now=now, partition=command.partition, acquisition_id=command.acquisition_id, position=offset
            )
        )

    def _listener(self, then: Callable[[], None]) -> None:
        """Call the user's listener: one call at a time, in order."""
        self._listener_free_at = max(self._listener_free_at, self._scheduler.now) + self.world.listener_seconds()
        self._scheduler.at(self._listener_free_at, then)

    def _slot(self, partition: Partition, acquisition_id: int) -> Slot | None:
        slot = self.user.slots.get(partition)
        return slot if slot is not None and slot.acquisition_id == acquisition_id else None

    def _run_slot(self, command: c.RunCommand) -> None:
        slot = self._slot(command.partition, command.acquisition_id)
        if slot is not None:
            slot.running = True
            self.user.pump()

    def _await_idle_point(self, command: c.AwaitIdlePointCommand) -> None:
        slot = self._slot(command.partition, command.acquisition_id)
        if slot is None:
            return
        busy = slot.position < self.world.data[slot.partition].end
        if busy or (slot.in_hand is None and (command.begun or slot.done in (None, command.committed))):
            self.idle_point(slot, busy=busy)
        else:
            slot.awaits_lull = True

    def idle_point(self, slot: Slot, *, busy: bool) -> None:
        """User code is done with what there is."""
        slot.awaits_lull = False
        done = slot.done
        self.feed(
            lambda now: e.IdlePointEvent(
                now=now, partition=slot.partition, acquisition_id=slot.acquisition_id, done=done, busy=busy
            )
        )

    def _bind(self, command: c.BoundCommand) -> None:
        slot = self._slot(command.partition, command.acquisition_id)
        if slot is not None:
            slot.until = command.until
            if slot.at_bound and slot.in_hand is None:
                self.bound_reached(slot)
            self.user.pump()

    def bound_reached(self, slot: Slot) -> None:
        """Everything below the bound is done."""
        done, until = slot.done, slot.until
        assert until is not None
        self.feed(
            lambda now: e.BoundReachedEvent(
                now=now, partition=slot.partition, acquisition_id=slot.acquisition_id, done=done, until=until
            )
        )

    def _unbind(self, command: c.UnboundCommand) -> None:
        slot = self._slot(command.partition, command.acquisition_id)
        if slot is not None:
            slot.until = None
            self.user.pump()

    def _stop_slot(self, command: c.StopCommand) -> None:
        slot = self._slot(command.partition, command.acquisition_id)
        if slot is not None:
            slot.running = slot.awaits_lull = False
            slot.until = None
            slot.draining = True
            if slot.in_hand is None:
                self.nothing_in_hand(slot)

    def nothing_in_hand(self, slot: Slot) -> None:
        """A stopped slot has nothing in hand any more: the listener is told, then the machine."""
        slot.draining = False
        slot.revoked = True
        if not self.config.auto_commit and self._scheduler.rng.random() < 0.5:
            self.commit_by_hand()
        self._listener(lambda: self._drained(slot))

    def _drained(self, slot: Slot) -> None:
        if slot.running or slot.in_hand is not None:
            return  # resumed while the listener took its time, and perhaps stopped again: that stop has its own answer
        self.feed(
            lambda now: e.DrainedEvent(
                now=now, partition=slot.partition, acquisition_id=slot.acquisition_id, done=slot.done
            )
        )

    def _resume_slot(self, command: c.ResumeCommand) -> None:
        slot = self._slot(command.partition, command.acquisition_id)
        if slot is None:
            return
        slot.draining = False
        if slot.revoked:
            slot.revoked = False
            self._listener(lambda: self._assigned_again(slot))
        else:
            slot.running = True
            self.user.pump()

    def _assigned_again(self, slot: Slot) -> None:
        entry = self.machine.snapshot().assigned.get(slot.partition)
        if entry is not None and entry.acquisition_id == slot.acquisition_id and entry.delivered and not self.gone:
            slot.running = True
            self.user.pump()

    def _drop_slot(self, command: c.DropCommand) -> None:
        slot = self._slot(command.partition, command.acquisition_id)
        self._opening.pop(command.partition, None)
        if slot is None:
            return
        del self.user.slots[command.partition]
        slot.running = slot.draining = False
        if slot.in_hand is not None:
            self.user.lingering[command.partition] = slot

    def _lease(self, command: c.LeaseCommand) -> None:
        self.user.pump()

    # -- commits -------------------------------------------------------------------------------------------------

    def _auto_commit(self) -> None:
        if not self.gone:
            self._scheduler.after(self.world.options.group.auto_commit_seconds, self._auto_commit)
            if not (self.frozen or self.stalled):
                self.commit_done()

    def commit_done(self) -> None:
        """Commit what is done and was not committed (auto-commit)."""
        offsets: dict[Partition, e.OffsetCommit] = {}
        if self.config.auto_commit:
            for partition, slot in self.user.slots.items():
                entry = self.machine.snapshot().assigned.get(partition)
                if slot.done is not None and entry is not None and entry.committed != slot.done:
                    offsets[partition] = e.OffsetCommit(acquisition_id=slot.acquisition_id, offset=slot.done)
        self.feed(lambda now: e.CommitWantedEvent(now=now, offsets=offsets))

    def commit_by_hand(self) -> None:
        """User code's own commit of all that is done."""
        offsets = {
            p: e.OffsetCommit(acquisition_id=slot.acquisition_id, offset=slot.done)
            for p, slot in self.user.slots.items()
            if slot.done is not None
        }
        self._commit_requests += 1
        request = self._commit_requests
        self._called(lambda now: e.CommitWantedEvent(now=now, request=request, offsets=offsets))

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """User code subscribes other topics."""
        topics = tuple(sorted(topics))
        self.feed(lambda now: e.SubscriptionEvent(now=now, topics=topics))

    def move(self, partition: Partition, target: str) -> None:
        """Ask for a handoff."""
        self.feed(lambda now: e.MoveWantedEvent(now=now, partition=partition, target=target))

    def slice(self, partition: Partition, target: str, until: int, seconds: float = 0.0) -> None:
        """Ask for a slice: this one first, up to there, then to the target."""
        self.feed(
            lambda now: e.SliceWantedEvent(
                now=now, partition=partition, target=target, until=until, seconds=seconds, work=seconds
            )
        )

    def drop_slice(self, partition: Partition) -> None:
        """User code pauses a partition that is to be given away at its bound, and lets it go on."""
        slot = self.user.slots.get(partition)
        if slot is not None:
            acquisition_id = slot.acquisition_id
            self.feed(lambda now: e.SliceDroppedEvent(now=now, partition=partition, acquisition_id=acquisition_id))
