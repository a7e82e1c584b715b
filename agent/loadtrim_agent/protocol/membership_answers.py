"""The answers of the coordinator to JoinGroup and SyncGroup, each turned into a trigger."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from loadtrim_agent.wire.ownership_records import AssignmentRecord

from .commands import Command, CountCommand
from .counters import ProtocolCount
from .events import AssignmentFoundEvent, GroupAnswer, JoinAnsweredEvent, SyncAnsweredEvent
from .group_config import BROKER_ASSIGNS, COORDINATOR_MOVED, LOADTRIM, RETRIABLE, TOO_LARGE, Code
from .leader_assignment import LeaderAssignment
from .membership_state import MembershipState, Occurrence
from .membership_table import Phase, Trigger
from .ongoing_rebalance import OngoingRebalance
from .ports import MembershipHooks
from .session import Session

__all__ = ["MembershipAnswers"]


class MembershipAnswers:
    """Reader of answers. Each method returns the trigger to be fired; None for an answer that comes too late."""

    def __init__(
        self,
        state: MembershipState,
        session: Session,
        rebalance: OngoingRebalance,
        leader_assignment: LeaderAssignment,
        hooks: MembershipHooks,
        emit: Callable[[Command], None],
    ) -> None:
        self._state = state
        self._session = session
        self._rebalance = rebalance
        self._leader_assignment = leader_assignment
        self._hooks = hooks
        self._emit = emit

    def join(self, event: JoinAnsweredEvent) -> Occurrence | None:
        """Read the answer to a JoinGroup."""
        if event.attempt != self._rebalance.attempt or self._state.phase is not Phase.JOINING:
            return None
        self._rebalance.outstanding = False
        if event.code == Code.NONE:
            return self._joined(event)
        if event.code == Code.MEMBER_ID_REQUIRED:
            self._state.member = event.member
            return Occurrence(Trigger.ID_GIVEN)
        if event.code == Code.UNKNOWN_MEMBER_ID:
            return Occurrence(Trigger.FORGOTTEN)
        if event.code in RETRIABLE or event.code in (Code.REBALANCE_IN_PROGRESS, Code.ILLEGAL_GENERATION):
            if event.code in COORDINATOR_MOVED:
                self._session.coordinator_lost()
            return Occurrence(Trigger.JOIN_POSTPONED)
        if event.code == Code.INCONSISTENT_GROUP_PROTOCOL and self._rebalance.again:
            # The next JoinGroup may offer more: this one was sent before the control topic could be used, say.
            return Occurrence(Trigger.JOIN_POSTPONED)
        return Occurrence(Trigger.REFUSED_FOR_GOOD, code=event.code)

    def _joined(self, event: JoinAnsweredEvent) -> Occurrence:
        self._session.joined(event.now, event.sent_at, event.generation)
        self._state.member = event.member
        self._state.leader = event.leader
        self._rebalance.generation = event.generation
        # Where a member of the consumer protocol is in the group, the broker assigns and no member leads. The name in
        # the answer is then what this member offered first.
        self._rebalance.protocol = event.protocol if event.leader else BROKER_ASSIGNS
        # A member without the agent is back in the group. It heeds no claims, so that delivering stops at once.
        if self._rebalance.protocol != LOADTRIM:
            self._hooks.stop_foreign(event.now)
        if event.leader != event.member:
            self._leader_assignment.missing.forget()
            return Occurrence(Trigger.JOINED, answers={})
        if self._leader_assignment.judge(event):
            return self._stale_join()
        return Occurrence(Trigger.JOINED_AS_LEADER)

    def assignment_found(self, event: AssignmentFoundEvent) -> Occurrence | None:
        """Read what the log had: its newest assignment may show a JoinGroup to be a copy."""
        return self._stale_join() if self._leader_assignment.found(event) else None

    def _stale_join(self) -> Occurrence:
        self._emit(CountCommand(what=ProtocolCount.STALE_JOIN))
        return Occurrence(Trigger.STALE_JOIN)

    def sync(self, event: SyncAnsweredEvent) -> Occurrence | None:
        """Read the answer to a SyncGroup."""
        if event.attempt != self._rebalance.attempt:
            return None
        if self._state.phase is Phase.STABLE:
            self._rebalance.outstanding = False
            return self._session.confirmed(event.code)
        if self._state.phase is not Phase.SYNCING:
            return None
        self._rebalance.outstanding = False
        self._session.synced(event.sent_at, event.code)
        if event.code != Code.NONE:
            return self._sync_refused(event.code)
        if event.answer is None:
            self._emit(CountCommand(what=ProtocolCount.ASSIGNMENT_UNREADABLE))
            return Occurrence(Trigger.ASSIGNMENT_UNREADABLE)
        if event.answer.assignment_offset is not None:
            return Occurrence(Trigger.ASSIGNMENT_IN_LOG, event.answer)
        return self._assigned(event.answer)

    def _sync_refused(self, code: int) -> Occurrence:
        if code == Code.UNKNOWN_MEMBER_ID:
            return Occurrence(Trigger.FORGOTTEN)
        if code in TOO_LARGE:
            # Everybody is answered so: what is too large is the leader's to make smaller, and no reason to fail.
            self._emit(CountCommand(what=ProtocolCount.ASSIGNMENT_TOO_LARGE))
            self._leader_assignment.too_large()
            return Occurrence(Trigger.SYNC_REFUSED)
        if code not in (Code.ILLEGAL_GENERATION, Code.REBALANCE_IN_PROGRESS, *RETRIABLE):
            return Occurrence(Trigger.REFUSED_FOR_GOOD, code=code)
        if code in COORDINATOR_MOVED:
            self._session.coordinator_lost()
        return Occurrence(Trigger.SYNC_REFUSED)

    def read_from_log(self, assignment: AssignmentRecord) -> Occurrence | None:
        """Read the assignment in the log that the SyncGroup answer points to, in time or late."""
        if assignment.generation != self._rebalance.generation:
            return None
        return self._assigned(structs.replace(self._rebalance.answer, assignment=assignment))

    def not_read(self) -> Occurrence:
        """Enter without the assignment that was not found in the log in time: the others need not wait for it."""
        return self._assigned(self._rebalance.answer)

    def _assigned(self, answer: GroupAnswer) -> Occurrence:
        if self._rebalance.is_stale(self._state.member, answer):
            self._emit(CountCommand(what=ProtocolCount.STALE_ASSIGNMENT))
            return Occurrence(Trigger.STALE_ASSIGNMENT)
        return Occurrence(Trigger.ASSIGNMENT_HERE, answer)
