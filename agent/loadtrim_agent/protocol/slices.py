"""Slices: partitions that this member gives away by its own decision, each at a bound (rule 14).

Theory of operation. A slice has four steps. (1) It is promised on the log, and the partition is delivered before all
others from now on, up to its bound. (2) The promise is read and counts: no other member was first with one to the same
receiver. (3) Everything below the bound is done, and committed. (4) The partition is given away as any other: stopped,
drained, committed, released. What is done before that takes nothing from the pause: only the last commit and the
release are left. Until step 4 the partition runs, and nothing that makes it safe to move depends on the first three.

A slice that does not come to step 4 is taken back on the log. It ends with a rebalance, with another handoff of the
partition, and with its time. A log that fails ends it as well, a promise that came second, and a pause or a seek.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.ownership_records import PromiseRecord
from loadtrim_agent.wire.ranges import HANDOFF_SECONDS_MAX

from .assigned_partition import AssignedState
from .commands import BoundCommand, CountCommand, GatherCommitsCommand, UnboundCommand
from .counters import ProtocolCount
from .events import BoundReachedEvent, OffsetCommit, SliceDroppedEvent, SliceWantedEvent
from .promises import Promises

if TYPE_CHECKING:
    from .machine import Machine

__all__ = ["SliceView", "Slices", "SlicesView"]

NEVER = float("inf")
COUNT_SECONDS = 0.2
"""Chosen: the time within which a promise is to be read back, some forty times what that takes. Below its bound the
partition goes on meanwhile, and above it nothing of it is delivered."""
LATE_SECONDS = 0.2
"""Chosen: a bound that is reached so much later than expected is not waited for. The partition goes as it is."""
AHEAD_SECONDS = 0.025
"""Chosen: if the bound is at least so far away, what is done is committed at once: three commits of 8 ms. A commit that
is under way when the bound is reached would delay the last one."""
REPEAT_SECONDS = 1.0
"""Chosen: what takes a promise back is written again if it is not read by then. A release is in doubt after as long."""
SLICES_MAX = 16
"""Chosen: slices of one member that are promised and not given away yet; four looks at :data:`COUNT_SECONDS`."""


class SliceView(msgspec.Struct, frozen=True, kw_only=True):
    """One slice of this member that is not given away yet."""

    until: int
    target: str
    work: float
    counts: bool
    """Flag of a promise that was read, with no other member first."""


class SlicesView(msgspec.Struct, frozen=True, kw_only=True):
    """All that other rooms may know of slices."""

    able: bool
    """A partition may be given away by this member's own decision, as far as the protocol is concerned."""
    own: Mapping[Partition, SliceView]
    promises: Mapping[Partition, PromiseRecord]
    """Promises of all members that count and are neither kept nor taken back."""


class _Slice(msgspec.Struct):
    """One slice up to step 4."""

    promise: PromiseRecord
    acquisition_id: int
    deadline: float
    counts: bool = False
    reached: bool = False

    @property
    def partition(self) -> Partition:
        return self.promise.key


class Slices:
    """The part of :class:`~.machine.Machine` that gives partitions away at a bound; changed by it only."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.promises = Promises()
        self._slices: dict[Partition, _Slice] = {}
        """Invariant: each has a BoundCommand that no UnboundCommand, StopCommand or DropCommand has ended."""
        self._given: dict[Partition, _Slice] = {}
        """Slices in step 4. Invariant: the partition is being given away, or was dropped since the last tick."""
        self._ended: dict[PromiseRecord, float] = {}
        """Promises of this generation that were not read to be taken back yet -> when to say so (again)."""
        self._gap_attempt = -1
        """Number of the last JoinGroup that was sent before records were missed."""

    def wakeup(self) -> float:
        """Return the time at which :meth:`tick` wants to be called at the latest."""
        due = min((each.deadline for each in self._slices.values()), default=NEVER)
        return min(due, *self._ended.values()) if self._ended and self._may_write() else due

    def view(self) -> SlicesView:
        """Return what other rooms may know."""
        machine = self._machine
        return SlicesView(
            able=self._able(),
            own={
                p: SliceView(
                    until=each.promise.until,
                    target=each.promise.target,
                    work=each.promise.work,
                    counts=each.counts,
                )
                for p, each in list(self._slices.items())  # a copy in one step: other threads may ask
            },
            promises=self.promises.open() if machine.partitions.ownership is not None else {},
        )

    def _able(self) -> bool:
        machine = self._machine
        moves = machine.membership.stable and machine.log_works and machine.partitions.ownership is not None
        moves = moves and self.promises.whole
        # With manual commits what is done and not committed would be done again: at each slice, not at a rebalance.
        return moves and machine.config.auto_commit and machine.leave.request is None

    def _may_write(self) -> bool:
        return self._machine.membership.stable and self._machine.log_works

    def may_give(self, partition: Partition, target: str) -> bool:
        """Return whether this member may give a partition to that one now (rule 2)."""
        machine = self._machine
        membership, ownership = machine.membership, machine.partitions.ownership
        entry = membership.assignment.members.get(target) if membership.assignment is not None else None
        return (
            membership.stable
            and machine.log_works
            and ownership is not None
            and ownership.owner(partition) == membership.member
            and target != membership.member
            and entry is not None
            and partition.topic in entry.topics
            and target not in machine.peers.leaving
            and machine.peers.well(target)
        )

    # -- events --------------------------------------------------------------------------------------------------

    def wanted(self, event: SliceWantedEvent) -> None:
        """Promise a partition, and bound it (step 1)."""
        machine, partition = self._machine, event.partition
        entry, ownership = machine.partitions.assigned.get(partition), machine.partitions.ownership
        fits = (
            self._able()
            and entry is not None
            and entry.state is AssignedState.RUNNING
            and partition not in self._slices
            and len(self._slices) < SLICES_MAX
            and 0.0 <= event.seconds <= HANDOFF_SECONDS_MAX
            and 0.0 <= event.work < math.inf
            and 0.0 <= event.rate < math.inf
            and self.may_give(partition, event.target)
        )
        if not fits or entry is None or ownership is None:
            self._count(ProtocolCount.SLICE_NOT_POSSIBLE, partition)
            return
        promise = PromiseRecord(
            group=machine.config.group,
            member=machine.membership.member,
            at=machine.wall(event.now),
            generation=ownership.generation,
            topic=partition.topic,
            partition=partition.partition,
            version=ownership.version(partition),
            source=machine.membership.member,
            target=event.target,
            turn=self.promises.turn(machine.membership.member, event.target),
            until=event.until,
            work=event.work,
            rate=event.rate,
            seconds=event.seconds,
            soft=event.soft,
        )
        if promise in self._ended:  # read, one would be taken for the other
            self._count(ProtocolCount.SLICE_NOT_POSSIBLE, partition)
            return
        self._slices[partition] = _Slice(promise, entry.acquisition_id, event.now + COUNT_SECONDS)
        machine.append(promise)
        machine.emit(BoundCommand(partition=partition, acquisition_id=entry.acquisition_id, until=event.until))
        if event.seconds >= AHEAD_SECONDS:
            machine.emit(GatherCommitsCommand())
        self._count(ProtocolCount.SLICE_PROMISED, partition)

    def dropped(self, event: SliceDroppedEvent) -> None:
        """User code wants something else of the partition."""
        found = self._slices.get(event.partition)
        if found is not None and found.acquisition_id == event.acquisition_id:
            self._end(found, ProtocolCount.SLICE_DROPPED)

    def reached(self, event: BoundReachedEvent) -> None:
        """Everything below the bound is done: commit it at once (step 3), whether or not the promise was read yet."""
        found = self._slices.get(event.partition)
        if found is None or found.acquisition_id != event.acquisition_id or found.reached:
            return
        if event.until != found.promise.until:
            return  # of a slice before this one
        found.reached = True
        partitions = self._machine.partitions
        entry = partitions.assigned[event.partition]
        if event.done is not None and event.done != entry.committed:
            commit = OffsetCommit(acquisition_id=entry.acquisition_id, offset=event.done)
            if not partitions.commits.covers(event.partition, commit):
                partitions.commits.want(0, {event.partition: commit})

    # -- the log -------------------------------------------------------------------------------------------------

    def read(self, now: float, record: PromiseRecord) -> bool:
        """Fold a promise of the log (step 2). Returns whether it counts."""
        assignment = self._machine.membership.assignment
        members = assignment.members if assignment is not None else {}
        counts = self.promises.apply(record, self._machine.partitions.ownership, members)
        if record.taken_back and self._ended:
            self._ended.pop(structs.replace(record, taken_back=False), None)
        if not counts:
            self._count(ProtocolCount.VOID_PROMISE, record.key)
        found = self._slices.get(record.key)
        if found is not None and found.promise == record and not found.counts:
            if counts:
                found.counts = True
                found.deadline = now + record.seconds + LATE_SECONDS
            else:
                self._end(found, ProtocolCount.SLICE_OVERTAKEN)
        return counts

    def released(self, partition: Partition, target: str) -> None:
        """A release of a partition to that member counted."""
        promise = self.promises.released(partition)
        given = self._given.get(partition)
        if given is not None and given.promise == promise and target == given.promise.target:
            del self._given[partition]
            self._count(ProtocolCount.SLICE_KEPT, partition)

    # -- time and all that ends a slice --------------------------------------------------------------------------

    def enter(self) -> None:
        """A generation begins: promises of the one before are void."""
        # A generation does not begin before all its members have joined, so a JoinGroup after the gap is enough.
        self.promises.enter(whole=self._machine.membership.rebalance.attempt > self._gap_attempt)
        self.drop_all()
        self._ended.clear()

    def gap(self) -> None:
        """Records of the log were missed: no slice counts for certain until the next generation."""
        self.drop_all()
        self.promises.gap()
        self._gap_attempt = self._machine.membership.rebalance.attempt

    def drop_all(self) -> None:
        """Nothing moves for now: every partition stays, without a bound."""
        for found in self._slices.values():
            self._unbind(found)
            self._count(ProtocolCount.SLICE_DROPPED, found.partition)
        for found in (*self._slices.values(), *self._given.values()):
            self._take_back(found.promise)
        self._slices.clear()
        self._given.clear()

    def tick(self, now: float) -> None:
        """Go on with every slice that can go on, and end those that cannot."""
        assigned = self._machine.partitions.assigned
        for found in list(self._slices.values()):
            entry = assigned.get(found.partition)
            if entry is None or entry.acquisition_id != found.acquisition_id:
                del self._slices[found.partition]  # lost, and its bound with it
                self._count(ProtocolCount.SLICE_DROPPED, found.partition)
            elif entry.state is not AssignedState.RUNNING:
                self._end(found, ProtocolCount.SLICE_DROPPED)  # a plan moves it, or this member leaves
            elif found.counts and (found.reached or now >= found.deadline):
                self._give(now, found)
            elif now >= found.deadline:
                self._end(found, ProtocolCount.SLICE_TIMED_OUT)
        for found in list(self._given.values()):
            entry = assigned.get(found.partition)
            if entry is None or entry.acquisition_id != found.acquisition_id:
                del self._given[found.partition]
            elif entry.delivered:
                del self._given[found.partition]  # the handoff was given up: the partition runs again
                self._take_back(found.promise)
        if self._ended and self._may_write():
            self._say_ended(now)

    def _give(self, now: float, found: _Slice) -> None:
        """Give the partition away (step 4)."""
        partition, target = found.partition, found.promise.target
        if self.may_give(partition, target) and self._machine.partitions.intend(now, partition, target, at_once=True):
            del self._slices[partition]
            self._given[partition] = found
        else:
            self._end(found, ProtocolCount.SLICE_NOT_POSSIBLE)

    def _end(self, found: _Slice, why: ProtocolCount) -> None:
        """The partition stays."""
        del self._slices[found.partition]
        self._count(why, found.partition)
        self._unbind(found)
        if why is not ProtocolCount.SLICE_OVERTAKEN:  # else it never counted
            self._take_back(found.promise)

    def _unbind(self, found: _Slice) -> None:
        self._machine.emit(UnboundCommand(partition=found.partition, acquisition_id=found.acquisition_id))

    def _take_back(self, promise: PromiseRecord) -> None:
        """Say so on the log, now or once it works again, and until it is read."""
        self._ended[promise] = -NEVER

    def _say_ended(self, now: float) -> None:
        """Take back what is due: the append before may have failed, and all count work that does not come."""
        for promise, due in self._ended.items():
            if now >= due:
                self._machine.append(structs.replace(promise, taken_back=True))
                self._ended[promise] = now + REPEAT_SECONDS

    def _count(self, what: ProtocolCount, partition: Partition) -> None:
        self._machine.emit(CountCommand(what=what, partition=partition))
