"""Partitions that a member relinquishes by itself: all when it leaves (rule 11), else those it subscribes no more.

Both are handoffs to whoever may have the partition and has the most slack; where nobody may, it is stopped, committed
and left to the next map. A partition is never just not claimed any more: until everybody has the new map its records
would be handed out by two.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.ownership_records import LeavingRecord, LeftRecord

from .assigned_partition import AssignedPartition, AssignedState
from .commands import GatherCommitsCommand, SendLeaveCommand
from .events import LeaveAnsweredEvent, LeaveWantedEvent
from .membership_table import Phase

if TYPE_CHECKING:
    from .machine import Machine

__all__ = ["Leave", "LeavePhase"]

LAST_COMMIT_SECONDS = 1.0
"""Chosen: how long the last answer is waited for: to the last commit, or to the JoinGroup that tells the id."""
NEVER = float("inf")


class LeavePhase(enum.Enum):
    """The place of a member on its way out of the group. Each phase leads to the next or to a later one."""

    STAYING = "staying"
    RELINQUISHING = "relinquishing"
    """Everything is handed over, for as long as the user's drain time lasts."""
    AWAITING_ID = "awaiting_id"
    """Nothing is held, and only the member's id is waited for, without which the group cannot be left."""
    COMMITTING = "committing"
    """The drain time is over: nothing more is delivered, and only the last commit is waited for."""
    GONE = "gone"
    """The group was told, or never knew of the member."""


class Leave:
    """The part of :class:`~.machine.Machine` that puts things down; changed by it only."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.topics = machine.config.topics
        """Topics that the user subscribes. The group is told of a topic's end when nothing of it is held any more."""
        self.request: LeaveWantedEvent | None = None
        self._phase = LeavePhase.STAYING
        self._until = NEVER
        """Time at which what the phase waits for is given up."""
        self._unopened: set[str] = set()
        """Ended topics of which something was put down unopened: it is this member's by the assignment."""
        self._again = False
        """Something was put down whose subscription has come back since: the next map is to give it to somebody."""

    def wakeup(self) -> float:
        return self._until

    def wanted(self, event: LeaveWantedEvent) -> None:
        self.request = event
        self._machine.membership.session.takeover.leave()
        if self._phase is LeavePhase.STAYING:
            self._phase = LeavePhase.RELINQUISHING
            self.announce_leaving(event.now)
        if self._phase is LeavePhase.RELINQUISHING:
            self._until = event.deadline

    def subscribe(self, topics: tuple[str, ...]) -> None:
        before, self.topics = self.topics, topics
        partitions = self._machine.partitions
        self._again = self._again or not self._unopened.isdisjoint(topics)
        self._unopened -= set(topics)
        for partition, entry in sorted(partitions.assigned.items()):
            if partition.topic in topics and partition.topic not in before and self.request is None:
                partitions.keep(partition)
                self._again = self._again or entry.state is AssignedState.TRANSFERRED

    def may_relinquish(self, partition: Partition) -> bool:
        """Return whether a partition that nobody is to get may be left to the next assignment."""
        return self.request is not None or partition.topic not in self.topics

    def step(self, now: float) -> None:
        """Relinquish all that can be relinquished now."""
        if self._phase is LeavePhase.GONE:
            return
        if self.request is not None:
            self._leave_step(now, self.request)
        elif self._machine.membership.topics != self.topics or self._again:
            self._resubscribe(now)

    # -- topics that are not subscribed any more -----------------------------------------------------------------

    def _resubscribe(self, now: float) -> None:
        membership, partitions = self._machine.membership, self._machine.partitions
        if membership.stable:
            ended = {p.topic for p in partitions.assigned} - set(self.topics)
            self._unopened |= {p.topic for p, h in partitions.assigned.items() if p.topic in ended and not h.opened}
            partitions.drop_unopened(ended)
            for partition in sorted(p for p in partitions.assigned if p.topic in ended):
                self._relinquish(now, partition)
            held = {
                p.topic for p, h in partitions.assigned.items() if h.state is not AssignedState.TRANSFERRED or h.target
            }
        elif membership.phase is Phase.IDLE:
            held = set()
        else:
            held = set(membership.topics)  # a map that is on its way may still give something of them
        topics = tuple(sorted(set(self.topics) | (held & set(membership.topics))))
        if topics != membership.topics or (membership.stable and self._again):
            self._again = False
            self._unopened &= set(topics)
            membership.topics = topics
            if membership.phase is not Phase.IDLE:
                membership.rejoin(now)

    # -- leaving (rule 11) ---------------------------------------------------------------------------------------

    def announce_leaving(self, now: float) -> None:
        """Said on the log, again in every generation."""
        machine = self._machine
        if machine.membership.stable and machine.membership.speaks_loadtrim and machine.log_works:
            machine.append(
                LeavingRecord(
                    group=machine.config.group,
                    member=machine.membership.member,
                    at=machine.wall(now),
                    generation=machine.membership.generation,
                    instance=machine.config.instance,
                )
            )

    def _leave_step(self, now: float, leave: LeaveWantedEvent) -> None:
        membership, partitions = self._machine.membership, self._machine.partitions
        if self._phase is LeavePhase.COMMITTING:
            if now >= self._until or self._all_relinquished():
                self._send_leave(now)
        elif membership.generation < 0 and not partitions.assigned:
            self._await_id(now)
        elif now >= leave.deadline or not leave.release:
            self._commit_last(now)
        elif membership.stable:
            for partition in sorted(partitions.assigned):
                self._relinquish(now, partition)
            if all(h.state is AssignedState.TRANSFERRED and not h.target for h in self._started()):
                self._send_leave(now)

    def _await_id(self, now: float) -> None:
        """Leave at once, but for an id on its way: in each rebalance the broker waits for it as for a member."""
        membership = self._machine.membership
        if membership.member or not membership.rebalance.outstanding:
            self._send_leave(now)
        elif self._phase is not LeavePhase.AWAITING_ID:
            self._phase, self._until = LeavePhase.AWAITING_ID, now + LAST_COMMIT_SECONDS
        elif now >= self._until:
            self._send_leave(now)

    def _commit_last(self, now: float) -> None:
        """Hand nothing more out, commit what is done, and wait a moment for the answer."""
        self._phase, self._until = LeavePhase.COMMITTING, now + LAST_COMMIT_SECONDS
        for partition in sorted(self._machine.partitions.assigned):
            self._machine.partitions.intend(now, partition, "")
        self._machine.emit(GatherCommitsCommand())

    def _started(self) -> list[AssignedPartition]:
        """Return the partitions that matter when leaving; those not opened yet are left to the next assignment."""
        return [h for h in self._machine.partitions.assigned.values() if h.opened]

    def _all_relinquished(self) -> bool:
        return all(h.state is AssignedState.TRANSFERRED for h in self._started())

    def _relinquish(self, now: float, partition: Partition) -> None:
        """Begin to give one partition to whom the plan says, else to the able member with the most slack."""
        machine = self._machine
        if machine.partitions.assigned[partition].state is not AssignedState.RUNNING:
            return
        me, assignment = machine.membership.member, machine.membership.assignment
        takers = (
            machine.peers.takers(partition, assignment.members, me)
            if assignment is not None and machine.log_works
            else []
        )
        advised = {Partition(m.topic, m.partition): m.target for m in machine.plan.moves if m.source == me}
        target = advised.get(partition, "")
        if target not in takers:
            target = takers[0] if takers else ""
        machine.partitions.intend(now, partition, target, patient=True)
        machine.peers.charge(target, machine.weights().get(partition, 1.0))

    def _send_leave(self, now: float) -> None:
        """Everything left is relinquished before the group hears of it: another member may own it the next moment."""
        machine = self._machine
        self._phase, self._until = LeavePhase.GONE, NEVER
        machine.relinquish_all()
        member = machine.membership.member
        if not member:
            machine.left(LeaveAnsweredEvent(now=now))
            return
        # First, as it has the longer way: a barrier that the others begin before the LeaveGroup arrives waits for it.
        if machine.log_works:
            machine.append(
                LeftRecord(
                    group=machine.config.group,
                    member=member,
                    at=machine.wall(now),
                    generation=machine.membership.generation,
                )
            )
        machine.emit(SendLeaveCommand(member=member))
        machine.membership.left(now)
