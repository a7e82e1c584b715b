"""JoinGroup, SyncGroup, heartbeats and the coordinator: how this member gets into a generation and stays there.

What happens is turned into a trigger here; what a trigger leads to in which phase says
:mod:`~.membership_table`, and :meth:`Membership._fire` carries it out. Nothing else changes the phase.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from loadtrim_agent.common.errors import InvariantError
from loadtrim_agent.wire.ownership_records import AssignmentRecord, HelloRecord, RejoinRecord

from .announcements import Announcements
from .commands import (
    Command,
    CountCommand,
    FailCommand,
    FindCoordinatorCommand,
    SendHeartbeatCommand,
    SendJoinCommand,
    SendSyncCommand,
)
from .counters import ProtocolCount
from .events import GroupAnswer, HeartbeatAnsweredEvent, JoinAnsweredEvent, SyncAnsweredEvent
from .group_config import COORDINATOR_MOVED, LOADTRIM, RETRIABLE, STANDARD_PROTOCOLS, Code, GroupConfig
from .heartbeats import Heartbeats
from .join_sequence import JoinSequence
from .leader_assignment import LeaderAssignment
from .lease import Lease
from .membership_table import TRANSITIONS, Phase, Trigger
from .ports import MembershipHooks

__all__ = ["Membership"]

NEVER = float("inf")
ASSIGNMENT_APPEND_SECONDS = 1.0
ASSIGNMENT_WAIT_SECONDS = 2.0
TOPICS_WAIT_SECONDS = 5.0
UNREADABLE_WAIT_SECONDS = 1.0
OVERDUE_HEARTBEAT_SECONDS = 0.25
HISTORY_ENTRIES_MAX = 50
"""Chosen: three rebalances with everything that may go wrong in them."""


class Membership:
    """See the module's text. Changed by :class:`~.machine.Machine` only."""

    def __init__(
        self, config: GroupConfig, hooks: MembershipHooks, lease: Lease, emit: Callable[[Command], None]
    ) -> None:
        self._config = config
        self._hooks = hooks
        self._lease = lease
        self._emit = emit
        self.phase = Phase.IDLE
        self.member = ""
        self.generation = -1
        """Generation entered last; -1 before the first and after being forgotten."""
        self.protocol = ""
        self.leader = ""
        self.topics = config.topics
        self.partitions: dict[str, int] = {}
        """Topic -> partitions, as far as metadata is known."""
        self.assignment: AssignmentRecord | None = None
        """The map of :attr:`generation`; None in a mixed generation."""
        self.coordinator_known = False
        self._attempt = 0
        self._outstanding = False
        """A JoinGroup or SyncGroup is on its connection: whatever follows there would wait behind it."""
        self._join_sequence = JoinSequence()
        self._leader_assignment = LeaderAssignment(hooks, emit, self._join_sequence)
        self._next_generation = -1
        self._next_protocol = ""
        self._phase_deadline = NEVER
        self._retry_at = NEVER
        self._answer = GroupAnswer()
        """READING: the answer whose map is still in the log."""
        self._again = False
        self._heartbeats = Heartbeats(config.heartbeat_interval)
        self._noticed_generation: int = -1
        """Generation whose end the log was already told of, by us or by another (rule 11)."""
        self._announcements = Announcements()
        self.history: deque[tuple[float, Phase, Trigger]] = deque(maxlen=HISTORY_ENTRIES_MAX)
        """Triggers that led to the phase of now, each with its time and the phase before."""

    # -- what others ask -----------------------------------------------------------------------------------------

    @property
    def stable(self) -> bool:
        """In a generation, with no barrier going on as far as we know."""
        return self.phase is Phase.STABLE

    @property
    def is_leader(self) -> bool:
        return self.stable and self.leader == self.member

    @property
    def speaks_loadtrim(self) -> bool:
        """The generation entered last is one of ours: claims count, the log moves ownership."""
        return self.protocol == LOADTRIM

    @property
    def may_commit(self) -> bool:
        """The broker takes commits and heartbeats of the generation entered.

        It refuses them between the answers of JoinGroup and SyncGroup.
        """
        in_generation = self.phase in (Phase.STABLE, Phase.REVOKING, Phase.JOINING)
        return in_generation and self.generation >= 0 and bool(self.member) and self.coordinator_known

    def wakeup(self) -> float:
        """Return the time at which :meth:`tick` wants to be called at the latest."""
        due = self._heartbeats.wakeup if self.may_commit else NEVER
        retry = self._retry_at if self.coordinator_known else NEVER
        return min(due, retry, self._phase_deadline)

    # -- getting in ----------------------------------------------------------------------------------------------

    def use_log(self, usable: bool) -> None:
        """From the next JoinGroup on: offer our protocol too, or the standard ones only."""
        self._config = msgspec.structs.replace(self._config, log_usable=usable)

    def continue_from(self, earlier: Membership) -> None:
        """Go on from the numbers of an earlier machine of this process, and from what it knew of the topics."""
        self._attempt = earlier._attempt
        self.partitions = earlier.partitions

    def _fire(self, trigger: Trigger, now: float, detail: Any = None) -> None:
        """Change the phase as the table says, then call the effects with the time and ``detail``.

        Raises:
            InvariantError: the trigger cannot come in this phase.
        """
        before = self.phase
        row = TRANSITIONS[before]
        if trigger not in row:
            raise InvariantError(f"membership: {trigger.name} in {before.name}", story=self.story())
        transition = row[trigger]
        if transition is None:
            return
        self.history.append((now, before, trigger))
        self.phase = transition.to
        for effect in transition.effects:
            getattr(self, effect)(now, detail)

    def story(self) -> tuple[str, ...]:
        """Return how the phase of now came about, a line for each trigger."""
        return tuple(f"{at:.3f} {phase.name}: {trigger.name}" for at, phase, trigger in self.history)

    def start(self, now: float) -> None:
        self._find_coordinator()
        self.rejoin(now)

    def rejoin(self, now: float) -> None:
        """Begin a rebalance, or note that one more is needed after the one going on."""
        self._fire(Trigger.REBALANCE_WANTED, now)

    def _note_again(self, now: float, _: Any) -> None:
        self._again = True

    def maybe_join(self, now: float, _: Any = None) -> None:
        """Send the JoinGroup as soon as nothing stands in its way."""
        if self.phase is Phase.REVOKING and self._hooks.ready_to_join(now):
            self._fire(Trigger.READY, now)

    def _join_on_new_connection(self, now: float, _: Any) -> None:
        # Rule 12: the JoinGroup may have been lost while heartbeats keep us alive, and the rebalance waits for us.
        self._heartbeats.stopped = True
        self._emit(CountCommand(what=ProtocolCount.JOIN_UNANSWERED))
        self._send_join(now, fresh=True)

    def _join_at_new_coordinator(self, now: float, _: Any) -> None:
        # Also where a JoinGroup is parked: it may be parked at a broker that is not the coordinator any more.
        if self._retry_at == NEVER:
            self._send_join(now)

    def _heartbeat_now(self, now: float, _: Any) -> None:
        self._heartbeats.by(now)

    def _retry_soon(self, now: float, _: Any) -> None:
        self._retry_at = now + self._config.retry_backoff

    def _retry_later(self, now: float, _: Any) -> None:
        # What cannot be read stays so perhaps for as long as its leader leads: joining again at once would make
        # everybody rebalance all the time.
        self._phase_deadline = NEVER
        self._retry_at = now + UNREADABLE_WAIT_SECONDS

    def _send_join(self, now: float, _: Any = None, *, fresh: bool = False) -> None:
        self._again = False
        self._retry_at = NEVER
        self._phase_deadline = now + self._config.rebalance_timeout / 2
        if not self.coordinator_known:
            return
        self._attempt += 1
        self._leader_assignment.forget()
        protocols = (LOADTRIM, *STANDARD_PROTOCOLS) if self._config.log_usable else STANDARD_PROTOCOLS
        self._emit(
            SendJoinCommand(
                attempt=self._attempt,
                member=self.member,
                protocols=protocols,
                topics=self.topics,
                owned=self._hooks.owned_partitions(),
                fresh=fresh or self._outstanding,
            )
        )
        self._outstanding = True
        self._announce_join(now)

    def _announce_join(self, now: float) -> None:
        """A hello (newcomer) or rejoin in the log makes everybody join now: barriers of milliseconds."""
        if not self.member or not self._config.log_usable:
            return
        group, at = self._config.group, self._hooks.wall(now)
        if self.generation < 0:
            self._hooks.append(HelloRecord(group=group, member=self.member, at=at, instance=self._config.instance))
        elif self._noticed_generation < self.generation:
            self._hooks.append(RejoinRecord(group=group, member=self.member, at=at, generation=self.generation))
        self._noticed_generation = self.generation

    def coordinator_found(self, now: float) -> None:
        self.coordinator_known = True
        self._fire(Trigger.COORDINATOR_FOUND, now)

    def coordinator_lost(self) -> None:
        """Somebody's request was answered by a broker that is not the coordinator, or by none."""
        if self.coordinator_known:
            self._find_coordinator()

    def _find_coordinator(self) -> None:
        self.coordinator_known = False
        self._emit(FindCoordinatorCommand())

    # -- JoinGroup answered --------------------------------------------------------------------------------------

    def join_answered(self, event: JoinAnsweredEvent) -> None:
        if event.attempt != self._attempt or self.phase is not Phase.JOINING:
            return
        self._outstanding = False
        if event.code == Code.NONE:
            self._joined_generation(event)
        elif event.code == Code.MEMBER_ID_REQUIRED:
            self.member = event.member
            self._fire(Trigger.ID_GIVEN, event.now)
        elif event.code == Code.UNKNOWN_MEMBER_ID:
            self._fire(Trigger.FORGOTTEN, event.now)
        elif event.code in RETRIABLE or event.code in (Code.REBALANCE_IN_PROGRESS, Code.ILLEGAL_GENERATION):
            if event.code in COORDINATOR_MOVED:
                self.coordinator_lost()
            self._fire(Trigger.JOIN_POSTPONED, event.now)
        else:
            self._fire(Trigger.REFUSED_FOR_GOOD, event.now, event.code)

    def _fail(self, now: float, code: int) -> None:
        """The user is told what aiokafka would tell."""
        self._emit(FailCommand(code=code))

    def _joined_generation(self, event: JoinAnsweredEvent) -> None:
        self._lease.renew(event.sent_at)
        self._heartbeats.stopped = False
        self.member = event.member
        self.leader = event.leader
        self._next_generation = event.generation
        self._next_protocol = event.protocol
        if event.protocol != LOADTRIM:
            self._hooks.stop_foreign(event.now)
        if event.leader != event.member:
            self._fire(Trigger.JOINED, event.now, {})
            return
        if self._leader_assignment.judge(event):
            self._emit(CountCommand(what=ProtocolCount.STALE_JOIN))
            self._fire(Trigger.STALE_JOIN, event.now)
            return
        self._fire(Trigger.JOINED_AS_LEADER, event.now)

    def _begin_assigning(self, now: float, _: Any) -> None:
        self._phase_deadline = now + TOPICS_WAIT_SECONDS
        self._leader_assignment.begin()

    # -- the leader's assignment ---------------------------------------------------------------------------------

    def assign(self, now: float, _: Any = None) -> None:
        """Answer with the assignment as soon as everything it needs is there."""
        if self.phase is not Phase.ASSIGNING or self._leader_assignment.writing:
            return
        late = now >= self._phase_deadline
        self._answer_members(now, self._leader_assignment.make(now, self._config, self.partitions, late=late))
        if self._leader_assignment.writing:
            self._phase_deadline = now + ASSIGNMENT_APPEND_SECONDS

    def _answer_members(self, now: float, answers: dict[str, GroupAnswer] | None) -> None:
        if answers is not None:
            self._fire(Trigger.ASSIGNED, now, answers)

    def assignment_found(self, now: float, newest: AssignmentRecord | None) -> None:
        """The newest assignment of the log was found, or there is none."""
        if self.phase is not Phase.ASSIGNING or self._leader_assignment.newest_known:
            return
        if self._leader_assignment.found(newest):
            self._emit(CountCommand(what=ProtocolCount.STALE_JOIN))
            self._fire(Trigger.STALE_JOIN, now)
        else:
            self.assign(now)

    def on_topics(self, now: float, partitions: dict[str, int]) -> None:
        """Metadata is there. Rule 7: only the leader's watch starts a rebalance for new partitions."""
        self.partitions = {**self.partitions, **partitions}
        if self._leader_assignment.topics_changed(self.partitions):
            self._emit(CountCommand(what=ProtocolCount.PARTITIONS_CHANGED))
            self.rejoin(now)
        self.assign(now)

    def assignment_appended(self, now: float, append: int, offset: int | None) -> None:
        """The assignment is in the log: answer with where it stands (rule 7)."""
        if self.phase is Phase.ASSIGNING:
            self._answer_members(now, self._leader_assignment.appended(append, offset))

    def _assign_without_more(self, now: float, _: Any) -> None:
        """Waiting takes too long: the leader assigns without the rest (rules 7 and 8)."""
        self._answer_members(now, self._leader_assignment.without_more())
        self.assign(now)

    # -- SyncGroup -----------------------------------------------------------------------------------------------

    def _send_sync(self, now: float, answers: dict[str, GroupAnswer]) -> None:
        self._phase_deadline = now + self._config.rebalance_timeout / 2
        self._outstanding = True
        self._emit(
            SendSyncCommand(
                attempt=self._attempt, member=self.member, generation=self._next_generation, answers=answers
            )
        )

    def sync_answered(self, event: SyncAnsweredEvent) -> None:
        if self.phase is not Phase.SYNCING or event.attempt != self._attempt:
            return
        self._outstanding = False
        if event.code == Code.UNKNOWN_MEMBER_ID:
            self._fire(Trigger.FORGOTTEN, event.now)
            return
        if event.code not in (Code.NONE, Code.ILLEGAL_GENERATION, Code.REBALANCE_IN_PROGRESS, *RETRIABLE):
            self._fire(Trigger.REFUSED_FOR_GOOD, event.now, event.code)
            return
        if event.code != Code.NONE:
            if event.code in COORDINATOR_MOVED:
                self.coordinator_lost()
            self._fire(Trigger.SYNC_REFUSED, event.now)
            return
        if event.answer is None:
            self._emit(CountCommand(what=ProtocolCount.ASSIGNMENT_UNREADABLE))
            self._fire(Trigger.ASSIGNMENT_UNREADABLE, event.now)
            return
        self._lease.renew(event.sent_at)
        if event.answer.assignment_offset is not None:
            self._fire(Trigger.ASSIGNMENT_IN_LOG, event.now, event.answer)
        else:
            self._assignment_here(event.now, event.answer)

    def _await_assignment(self, now: float, answer: GroupAnswer) -> None:
        self._answer = answer
        self._phase_deadline = now + ASSIGNMENT_WAIT_SECONDS

    @property
    def reading(self) -> tuple[int, int] | None:
        """(generation, offset in the log) of the map that is waited for."""
        if self.phase is not Phase.READING or self._answer.assignment_offset is None:
            return None
        return self._next_generation, self._answer.assignment_offset

    def assignment_read(self, now: float, assignment: AssignmentRecord) -> None:
        """The map that the SyncGroup answer points to has been read from the log."""
        if self.phase is Phase.READING and assignment.generation == self._next_generation:
            self._assignment_here(now, msgspec.structs.replace(self._answer, assignment=assignment))

    def _assignment_here(self, now: float, answer: GroupAnswer) -> None:
        # Rule 6: an assignment made from an earlier JoinGroup of this member knows less than what it owns now.
        if self._next_protocol == LOADTRIM and _attempts_of(answer).get(self.member, -1) != self._attempt:
            self._emit(CountCommand(what=ProtocolCount.STALE_ASSIGNMENT))
            self._fire(Trigger.STALE_ASSIGNMENT, now)
        else:
            self._fire(Trigger.ASSIGNMENT_HERE, now, answer)

    def _enter(self, now: float, answer: GroupAnswer) -> None:
        self.generation = self._next_generation
        self.protocol = self._next_protocol
        self.assignment = answer.assignment
        if self.protocol == LOADTRIM:
            self._join_sequence.entered(self.generation, _attempts_of(answer))
        self._phase_deadline = NEVER
        self._heartbeats.entered(now)
        ended = self._noticed_generation >= self.generation  # somebody was in before us, and has joined again
        self._hooks.enter(now, answer)
        if self._announcements.unseen(answer.assignment.members if answer.assignment is not None else ()):
            self.expect_rebalance(now)
        if self.stable and (self._again or ended or (self._leader_assignment.contested and self.is_leader)):
            self._leader_assignment.contested = False
            self.rejoin(now)

    def _stop_waiting_for_answer(self, now: float, _: Any) -> None:
        self._phase_deadline = NEVER

    def _stop_waiting(self, now: float, _: Any) -> None:
        self._phase_deadline = self._retry_at = NEVER

    # -- heartbeats ----------------------------------------------------------------------------------------------

    def expect_rebalance(self, now: float, generation: int | None = None) -> None:
        """The log says that a barrier began (or is about to): heartbeat now and a few times more (rule 11)."""
        self._noticed_generation = max(self._noticed_generation, self.generation if generation is None else generation)
        if self.phase is Phase.STABLE:
            self._heartbeats.burst(now)

    def on_rebalance_notice(self, now: float, generation: int) -> None:
        """A member was told that this generation ends: join too, without asking first (rule 11)."""
        if generation == self.generation:
            self._join_on_notice(now)
        elif generation > self.generation:
            self.expect_rebalance(now, generation)

    def on_member_notice(self, now: float, member: str, *, here: bool) -> None:
        """A newcomer said hello, or a member that it left: where the map does not show it yet, join at once.

        Asking first would cost every member a round trip, in the milliseconds in which the broker is to answer the
        JoinGroups. Who says the same again, still in no map, is only asked about.
        """
        news = self._announcements.say(member, here=here)
        if self.assignment is None or not news:
            self.expect_rebalance(now)
        elif (member in self.assignment.members) != here:
            self._join_on_notice(now)

    def _join_on_notice(self, now: float) -> None:
        self._noticed_generation = max(self._noticed_generation, self.generation)
        self._fire(Trigger.GENERATION_ENDS, now)

    def tick(self, now: float, overdue: bool) -> None:
        """Do all that is due. ``overdue``: a member has not been heard of, its eviction is to be noticed at once."""
        if overdue and self.phase is Phase.STABLE:
            self._heartbeats.by(now + OVERDUE_HEARTBEAT_SECONDS)
        if now >= self._retry_at and self.coordinator_known and self.phase is Phase.JOINING:
            self._fire(Trigger.RETRY_DUE, now)
        if now >= self._phase_deadline:
            self._phase_overdue(now)
        # Last, because what came before may have brought us back into a phase with heartbeats.
        if self.may_commit and now >= self._heartbeats.wakeup:
            self._heartbeats.sent()
            self._emit(SendHeartbeatCommand(member=self.member, generation=self.generation))

    def _phase_overdue(self, now: float) -> None:
        if self.phase in (Phase.SYNCING, Phase.READING):
            self._emit(CountCommand(what=ProtocolCount.ASSIGNMENT_UNANSWERED))
        self._fire(Trigger.OVERDUE, now)

    def heartbeat_answered(self, event: HeartbeatAnsweredEvent) -> None:
        self._heartbeats.answered()
        if event.member != self.member:
            return
        current = event.generation == self.generation
        self._heartbeats.next(event.now)
        if event.code == Code.NONE:
            if current and self.phase is Phase.STABLE:
                self._lease.renew(event.sent_at)
            else:
                self._lease.renew_session(event.sent_at)
        elif event.code in (Code.REBALANCE_IN_PROGRESS, Code.ILLEGAL_GENERATION):
            if event.code == Code.REBALANCE_IN_PROGRESS:
                self._lease.renew_session(event.sent_at)
            if current:
                self._fire(Trigger.GENERATION_ENDS, event.now)
        elif event.code == Code.UNKNOWN_MEMBER_ID:
            self._fire(Trigger.FORGOTTEN, event.now)
        elif event.code in COORDINATOR_MOVED:
            self.coordinator_lost()

    def refused_generation(self, now: float, member: str, generation: int, code: int) -> None:
        """A commit was refused: the same meaning as for a heartbeat (rule 9)."""
        if member != self.member:
            return
        if code == Code.UNKNOWN_MEMBER_ID:
            self._fire(Trigger.FORGOTTEN, now)
        elif generation == self.generation and code == Code.ILLEGAL_GENERATION:
            self._fire(Trigger.GENERATION_ENDS, now)
        elif generation == self.generation and code == Code.REBALANCE_IN_PROGRESS and self.phase is Phase.STABLE:
            self._heartbeats.by(now)

    # -- getting out ---------------------------------------------------------------------------------------------

    def _forget(self, now: float, _: Any) -> None:
        """Rule 9: own nothing, forget all, take a new id."""
        self._phase_deadline = NEVER
        self._emit(CountCommand(what=ProtocolCount.FORGOTTEN))
        self._lease.revoke()
        self.member = ""
        self.generation = -1
        self.protocol = ""
        self.assignment = None
        self._join_sequence.forget()
        self._leader_assignment.forget()
        self._noticed_generation = -1
        self._announcements.forget()
        self._heartbeats.forget()
        self._hooks.forget(now)

    def left(self, now: float) -> None:
        self._fire(Trigger.LEFT, now)


def _attempts_of(answer: GroupAnswer) -> dict[str, int]:
    """Member -> attempt that the map was made from (rule 6)."""
    if answer.assignment is not None:
        return {member: entry.attempt for member, entry in answer.assignment.members.items()}
    return answer.attempts or {}
