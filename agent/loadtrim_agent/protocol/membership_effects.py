"""The effects that the table of the membership names: JoinGroup, SyncGroup, and what comes before and after them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import structs

from loadtrim_agent.wire.ownership_records import HelloRecord, RejoinRecord

from .commands import Command, CountCommand, EnteredCommand, FailCommand, SendJoinCommand, SendSyncCommand
from .counters import ProtocolCount
from .events import GroupAnswer
from .group_config import LOADTRIM, STANDARD_PROTOCOLS, GroupConfig
from .join_sequence import JoinSequence
from .leader_assignment import LeaderAssignment
from .membership_state import MembershipState, Occurrence
from .membership_table import Effect, Phase, Trigger
from .ongoing_rebalance import NEVER, OngoingRebalance, join_sequences_of
from .pace import pace_seconds
from .ports import MembershipHooks
from .retry_backoff import RetryBackoff
from .session import Session

__all__ = ["MembershipEffects"]

Method = Callable[[float, Occurrence], Occurrence | None]
"""Carries one effect out, at this time and because of that; returns what follows from it."""

ASSIGNMENT_APPEND_SECONDS = 1.0
"""Chosen: without its place in the log the assignment is answered as attempts, and nothing moves in the generation."""
ASSIGNMENT_WAIT_SECONDS = 2.0
"""Chosen: a member that does not find the assignment in the log by then enters the generation without it."""
TOPICS_WAIT_SECONDS = 5.0
"""Chosen: the whole group waits for a leader without metadata."""
RESTART_PAUSE_SHARE = 0.2
"""Chosen: longest pause before a JoinGroup, as a share of the session timeout. Its answer renews the lease."""
PACE_SHARE_MAX = 0.1
"""Chosen: longest pause between two rebalances of a large group, as a share of the session timeout."""
UNREADABLE_WAIT_SECONDS = 1.0
"""Chosen: each retry is a rebalance of the whole group."""


class MembershipEffects:
    """One method for each effect of the table, called with the time and what happened.

    An effect does not change the phase: it returns the trigger that follows from it, where one does.
    """

    def __init__(
        self,
        config: GroupConfig,
        state: MembershipState,
        session: Session,
        rebalance: OngoingRebalance,
        hooks: MembershipHooks,
        emit: Callable[[Command], None],
    ) -> None:
        self._config = config
        self._state = state
        self._session = session
        self._rebalance = rebalance
        self._hooks = hooks
        self._emit = emit
        self._restarts = RetryBackoff(RESTART_PAUSE_SHARE * config.session_timeout)
        self._join_sequence = JoinSequence()
        self.leader_assignment = LeaderAssignment(hooks, emit, self._join_sequence)
        self.methods: Mapping[Effect, Method] = {
            Effect.ASSIGN: self.assign,
            Effect.ASSIGN_WITHOUT_MORE: self.assign_without_more,
            Effect.AWAIT_ASSIGNMENT: self.await_assignment,
            Effect.BACK_OFF: self.back_off,
            Effect.BEGIN_ASSIGNING: self.begin_assigning,
            Effect.COMPLETE: self.complete,
            Effect.ENTER: self.enter,
            Effect.FAIL: self.fail,
            Effect.FORGET: self.forget,
            Effect.HEARTBEAT_NOW: self.heartbeat_now,
            Effect.JOIN_AT_NEW_COORDINATOR: self.join_at_new_coordinator,
            Effect.JOIN_ON_NEW_CONNECTION: self.join_on_new_connection,
            Effect.JOIN_PACED: self.join_paced,
            Effect.MAYBE_JOIN: self.maybe_join,
            Effect.NOTE_AGAIN: self.note_again,
            Effect.RETRY_LATER: self.retry_later,
            Effect.RETRY_SOON: self.retry_soon,
            Effect.SEND_JOIN: self.send_join,
            Effect.SEND_SYNC: self.send_sync,
            Effect.STOP_WAITING: self.stop_waiting,
            Effect.STOP_WAITING_FOR_ANSWER: self.stop_waiting_for_answer,
        }

    def use_log(self, usable: bool) -> None:
        """Offer our protocol too from the next JoinGroup on, or the standard ones only."""
        self._config = structs.replace(self._config, log_usable=usable)

    # -- JoinGroup -----------------------------------------------------------------------------------------------

    def note_again(self, now: float, _: Occurrence) -> None:
        """Have another rebalance begin after the one going on."""
        self._rebalance.again = True

    def maybe_join(self, now: float, _: Occurrence | None = None) -> Occurrence | None:
        """Have the JoinGroup sent as soon as nothing stands in its way."""
        if self._state.phase is not Phase.REVOKING or self._rebalance.held_back(now):
            return None
        return Occurrence(Trigger.READY) if self._hooks.ready_to_join(now) else None

    def send_join(self, now: float, _: Occurrence | None = None, *, fresh: bool = False) -> None:
        """Send the JoinGroup, unless the coordinator must be found first.

        Args:
            now: time of the records that announce it.
            fresh: it needs a connection of its own, as the one in use may be dead.
        """
        state, rebalance = self._state, self._rebalance
        rebalance.again = False
        rebalance.retry_at = NEVER
        rebalance.deadline = now + self._config.rebalance_timeout / 2
        if not state.coordinator_known:
            return
        rebalance.attempt += 1
        self.leader_assignment.forget()
        protocols = (LOADTRIM, *STANDARD_PROTOCOLS) if self._config.log_usable else STANDARD_PROTOCOLS
        self._emit(
            SendJoinCommand(
                attempt=rebalance.attempt,
                member=state.member,
                protocols=protocols,
                topics=state.topics,
                owned=self._hooks.owned_partitions(),
                fresh=fresh or rebalance.outstanding,
            )
        )
        rebalance.outstanding = True
        self._announce_join(now)

    def _announce_join(self, now: float) -> None:
        """A hello (newcomer) or rejoin in the log makes everybody join now: rebalances of milliseconds."""
        state = self._state
        if not state.member or not self._config.log_usable:
            return
        group, at = self._config.group, self._hooks.wall(now)
        if state.generation < 0:
            config = self._config
            self._hooks.append(
                HelloRecord(group=group, member=state.member, at=at, instance=config.instance, process=config.process)
            )
        elif not self._session.end_noticed and not state.broker_assigns:
            self._hooks.append(RejoinRecord(group=group, member=state.member, at=at, generation=state.generation))
        self._session.end_announced()

    def join_on_new_connection(self, now: float, _: Occurrence) -> None:
        """Send the JoinGroup that was not answered in time again."""
        # Rule 12: the JoinGroup may have been lost while heartbeats keep us alive, and the rebalance waits for us.
        self._session.stop_heartbeats()
        self._emit(CountCommand(what=ProtocolCount.JOIN_UNANSWERED))
        self.send_join(now, fresh=True)

    def join_at_new_coordinator(self, now: float, _: Occurrence) -> None:
        """Send the JoinGroup to the coordinator just found, unless a retry is about to."""
        # Also where a JoinGroup is parked: it may be parked at a broker that is not the coordinator any more.
        if self._rebalance.retry_at == NEVER:
            self.send_join(now)

    def back_off(self, now: float, _: Occurrence) -> None:
        """Begin the rebalance again after a pause that grows with each time in a row."""
        # What was answered may be answered again, by a broker that cannot do better for a while.
        pause = self._restarts.failed(self._state.member)
        self._rebalance.held_until = now + pause if pause else NEVER

    def join_paced(self, now: float, _: Occurrence) -> Occurrence | None:
        """Join at once; in a large group wait a moment after the last rebalance, so that newcomers join together."""
        # Until then the generation is as good as one whose end this member has not heard of yet.
        assignment = self._state.assignment
        members = len(assignment.members) if assignment is not None and self._state.speaks_loadtrim else 0
        pace = min(pace_seconds(members), PACE_SHARE_MAX * self._config.session_timeout)
        self._rebalance.join_at = self._rebalance.entered_at + pace
        return Occurrence(Trigger.GENERATION_ENDS) if now >= self._rebalance.join_at else None

    def heartbeat_now(self, now: float, _: Occurrence) -> Occurrence | None:
        """Have the coordinator just found asked at once whether it knows the member; where the broker assigns, join."""
        if self._state.broker_assigns:
            # It may have stored the group as ours again and as stable, with what the last other member had given to
            # nobody. That a rebalance was to follow is not stored: no heartbeat would tell.
            return Occurrence(Trigger.REBALANCE_WANTED)
        self._session.heartbeat_by(now)
        return None

    def retry_soon(self, now: float, _: Occurrence) -> None:
        """Send the JoinGroup again after a moment."""
        self._rebalance.retry_at = now + self._config.retry_backoff

    def retry_later(self, now: float, _: Occurrence) -> None:
        """Join again after a while, with an assignment that cannot be read."""
        # What cannot be read stays so perhaps for as long as its leader leads: joining again at once would make
        # everybody rebalance all the time.
        self._rebalance.deadline = NEVER
        self._rebalance.retry_at = now + UNREADABLE_WAIT_SECONDS

    def fail(self, now: float, occurrence: Occurrence) -> None:
        """The user is told what aiokafka would tell."""
        self._emit(FailCommand(code=occurrence.code))

    # -- the leader's assignment ---------------------------------------------------------------------------------

    def begin_assigning(self, now: float, _: Occurrence) -> None:
        """Begin an assignment; topics are waited for until the deadline."""
        self._rebalance.deadline = now + TOPICS_WAIT_SECONDS
        self.leader_assignment.begin()

    def assign(self, now: float, _: Occurrence | None = None) -> Occurrence | None:
        """Answer with the assignment as soon as everything it needs is there."""
        if self._state.phase is not Phase.ASSIGNING or self.leader_assignment.writing:
            return None
        late = now >= self._rebalance.deadline
        answers = self.leader_assignment.make(now, self._config, self._state.partitions, late=late)
        if self.leader_assignment.writing:
            self._rebalance.deadline = now + ASSIGNMENT_APPEND_SECONDS
        return _assigned(answers)

    def assignment_appended(self, append: int, offset: int | None) -> Occurrence | None:
        """The assignment is in the log: answer with the place where it stands (rule 7)."""
        if self._state.phase is not Phase.ASSIGNING:
            return None
        return _assigned(self.leader_assignment.appended(append, offset))

    def assign_without_more(self, now: float, _: Occurrence) -> Occurrence | None:
        """Waiting takes too long: the leader assigns without the rest (rules 7 and 8)."""
        return _assigned(self.leader_assignment.without_more()) or self.assign(now)

    # -- SyncGroup and the generation ----------------------------------------------------------------------------

    def send_sync(self, now: float, occurrence: Occurrence) -> None:
        """Send the SyncGroup, with everybody's answer where this member leads."""
        assert occurrence.answers is not None, "JOINED and ASSIGNED tell them"
        rebalance = self._rebalance
        rebalance.deadline = now + self._config.rebalance_timeout / 2
        rebalance.outstanding = True
        self._emit(
            SendSyncCommand(
                attempt=rebalance.attempt,
                member=self._state.member,
                generation=rebalance.generation,
                answers=occurrence.answers,
            )
        )

    def await_assignment(self, now: float, occurrence: Occurrence) -> None:
        """Wait for the assignment in the log, but not for long."""
        answer = _answer_of(occurrence)
        self._rebalance.answer = answer
        self._rebalance.deadline = now + ASSIGNMENT_WAIT_SECONDS

    def enter(self, now: float, occurrence: Occurrence) -> Occurrence | None:
        """Enter the generation; another rebalance follows where one is wanted already."""
        answer = _answer_of(occurrence)
        state, rebalance = self._state, self._rebalance
        state.generation = rebalance.generation
        state.protocol = rebalance.protocol
        state.assignment = answer.assignment
        if answer.assignment is not None:
            self._join_sequence.entered(state.generation, join_sequences_of(answer))
        if state.broker_assigns:
            self.leader_assignment.made_by_broker(state.topics, state.partitions)
        rebalance.answer = answer
        written = not state.speaks_loadtrim or answer.assignment is not None or answer.assignment_offset is not None
        state.blind.entered(now, written=written, leads=state.leader == state.member)
        rebalance.deadline = rebalance.join_at = NEVER
        rebalance.entered_at = now
        self._restarts.succeeded()
        self._session.entered(now)
        # Another member may have entered this generation before, and have joined again.
        # Where the broker assigns, a JoinGroup may be answered with the generation that it was sent in.
        ended = self._session.end_noticed and not state.broker_assigns
        self._hooks.enter(now, answer)
        self._session.expect_unseen(now, answer.assignment.members if answer.assignment is not None else ())
        # The hook may have begun a rebalance itself; then the member is not in STABLE any more.
        if state.stable and (rebalance.again or ended or (self.leader_assignment.contested and state.is_leader)):
            self.leader_assignment.contested = False
            return Occurrence(Trigger.REBALANCE_WANTED)
        return None

    def complete(self, now: float, occurrence: Occurrence) -> None:
        """Take in the assignment of the generation entered without it: all that moved since then comes after it."""
        answer = _answer_of(occurrence)
        state = self._state
        assert answer.assignment is not None, "it was read from the log"
        state.assignment = answer.assignment
        self._join_sequence.entered(state.generation, join_sequences_of(answer))
        self._emit(
            EnteredCommand(
                generation=state.generation, member=state.member, leader=state.leader, protocol=state.protocol
            )
        )
        self._hooks.enter_assignment(now, answer.assignment, in_log=True)

    # -- the way out ---------------------------------------------------------------------------------------------

    def stop_waiting_for_answer(self, now: float, _: Occurrence) -> None:
        """The phase may last from now on; a retry stays due."""
        self._rebalance.deadline = NEVER

    def stop_waiting(self, now: float, _: Occurrence) -> None:
        """Nothing is waited for any more."""
        self._rebalance.stop_waiting()

    def forget(self, now: float, _: Occurrence) -> None:
        """The coordinator does not know the member (rule 9): own nothing, forget all, take a new id."""
        self._rebalance.deadline = self._rebalance.retry_at = NEVER
        self._emit(CountCommand(what=ProtocolCount.FORGOTTEN))
        state = self._state
        state.member = ""
        state.generation = -1
        state.protocol = ""
        state.assignment = None
        self._join_sequence.forget()
        self.leader_assignment.forget()
        self._session.forget()
        # Last: the rest of the machine finds a member that owns nothing.
        self._hooks.forget(now)


def _assigned(answers: dict[str, GroupAnswer] | None) -> Occurrence | None:
    return Occurrence(Trigger.ASSIGNED, answers=answers) if answers is not None else None


def _answer_of(occurrence: Occurrence) -> GroupAnswer:
    assert occurrence.answer is not None, f"{occurrence.trigger.name} comes with the answer to the SyncGroup"
    return occurrence.answer
