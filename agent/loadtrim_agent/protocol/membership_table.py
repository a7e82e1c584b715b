"""The way of a member into a generation and out of it: phases, triggers and one table.

Theory of operation
===================

A member is in exactly one phase. Something happens to it: an answer of the coordinator, a record of the log, a timer, a
wish of the user. :class:`~.membership.Membership` turns that into one *trigger*. The table says for each phase what the
trigger leads to: the next phase, and the effects that follow, in order. Nothing else changes the phase.

A trigger that may come in a phase and means nothing there is in the table as ``IGNORED``. A pair that is not in the
table is a contradiction: it raises :class:`~loadtrim_agent.common.errors.InvariantError` with the history.

An answer counts only if it answers the request sent last and the phase waits for it. Every other answer is late and is
dropped before the table is asked.

The way in is REVOKING, JOINING, SYNCING, STABLE; the leader goes through ASSIGNING, and through READING goes who must
read the assignment from the log. REVOKING takes no time in a group that speaks ``loadtrim``: there a rebalance stops
nothing (rule 5). In a mixed group it lasts until everything was drained and committed, as for any eager consumer.

Rules that hold in the table (numbers as in ``docs/protocol.md``):

* What is owned goes on being delivered in every phase, as long as the lease lasts: no phase stops a partition.
* Each way back leads to REVOKING, never straight to JOINING: what must come before a JoinGroup comes before each one.
  The exceptions send a JoinGroup of the same rebalance again: a new id, a retry, a new coordinator, one unanswered.
* A rebalance that is begun again because of an answer is held back, for longer each time in a row (``back_off``).
* A rebalance that is wanted while one goes on is not lost: it is noted (``note_again``) and begins after that one.
* A rebalance that the member is told of counts in STABLE only (rule 9): in any other phase it is in one already.
* In a large group a member joins the next rebalance a moment after the last one (``join_paced``). Newcomers of that
  time join the same one.
* FORGOTTEN owns nothing from then on (rule 9), in whatever phase the coordinator's answer finds the member.
* LEFT is final, and FAILED too, but for leaving: :meth:`~.machine.Machine.successor` joins anew.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

__all__ = ["IGNORED", "TRANSITIONS", "Effect", "Phase", "Transition", "Trigger", "diagram"]


class Phase(enum.Enum):
    """The place of a member on its way into a generation."""

    IDLE = "idle"
    """The member was made and not started."""
    REVOKING = "revoking"
    """The member is about to send a JoinGroup; in a mixed group it puts everything down first."""
    JOINING = "joining"
    """A JoinGroup is on its way, or waits for the coordinator or for a retry."""
    ASSIGNING = "assigning"
    """The member leads and makes the assignment: topics, the newest assignment or the log may be waited for."""
    SYNCING = "syncing"
    """A SyncGroup is on its way."""
    READING = "reading"
    """The answer named a place in the log; the assignment there is not read yet."""
    STABLE = "stable"
    """The member is in a generation and knows of no rebalance."""
    LEFT = "left"
    """The member is out of the group."""
    FAILED = "failed"
    """The coordinator refused the member for good; the user's next call raises that."""


class Trigger(enum.Enum):
    """A reason to change the phase. The value is the text in the diagram, without colon or semicolon (Mermaid)."""

    REBALANCE_WANTED = "start, a gap in the log, a release in doubt, new topics or partitions"
    REBALANCE_TOLD = "told of a rebalance"
    GENERATION_ENDS = "fenced, or time to join the rebalance told of"
    READY = "ready"
    ID_GIVEN = "new id"
    JOIN_POSTPONED = "refused for now"
    RETRY_DUE = "retry"
    COORDINATOR_FOUND = "coordinator found"
    JOINED = "answered"
    JOINED_AS_LEADER = "answered, and this member leads"
    STALE_JOIN = "a delayed copy among the joins (rule 8)"
    ASSIGNED = "the assignment is made"
    ASSIGNMENT_IN_LOG = "answered with a place in the log"
    ASSIGNMENT_HERE = "the assignment is here"
    ASSIGNMENT_UNREADABLE = "the assignment cannot be read"
    STALE_ASSIGNMENT = "an assignment from another attempt (rule 6)"
    SYNC_REFUSED = "refused"
    OVERDUE = "no answer in time"
    REFUSED_FOR_GOOD = "refused for good"
    FORGOTTEN = "unknown member (rule 9)"
    LEFT = "LeaveGroup"


class Effect(enum.Enum):
    """A step that a transition takes: the method of :class:`~.membership_effects.MembershipEffects` with this name."""

    ASSIGN = "assign"
    ASSIGN_WITHOUT_MORE = "assign_without_more"
    AWAIT_ASSIGNMENT = "await_assignment"
    BACK_OFF = "back_off"
    BEGIN_ASSIGNING = "begin_assigning"
    COMPLETE = "complete"
    ENTER = "enter"
    FAIL = "fail"
    FORGET = "forget"
    HEARTBEAT_NOW = "heartbeat_now"
    JOIN_AT_NEW_COORDINATOR = "join_at_new_coordinator"
    JOIN_ON_NEW_CONNECTION = "join_on_new_connection"
    JOIN_PACED = "join_paced"
    MAYBE_JOIN = "maybe_join"
    NOTE_AGAIN = "note_again"
    RETRY_LATER = "retry_later"
    RETRY_SOON = "retry_soon"
    SEND_JOIN = "send_join"
    SEND_SYNC = "send_sync"
    STOP_WAITING = "stop_waiting"
    STOP_WAITING_FOR_ANSWER = "stop_waiting_for_answer"


class Transition(msgspec.Struct, frozen=True):
    """The phase that follows, and the effects in order."""

    to: Phase
    effects: tuple[Effect, ...] = ()


IGNORED = None
"""The trigger may come in this phase and changes nothing."""

_FORGET = Transition(Phase.REVOKING, (Effect.BACK_OFF, Effect.FORGET, Effect.MAYBE_JOIN))
_LEAVE = Transition(Phase.LEFT, (Effect.STOP_WAITING,))
_RESTART = Transition(Phase.REVOKING, (Effect.STOP_WAITING_FOR_ANSWER, Effect.BACK_OFF, Effect.MAYBE_JOIN))

TRANSITIONS: Mapping[Phase, Mapping[Trigger, Transition | None]] = {
    Phase.IDLE: {
        Trigger.REBALANCE_WANTED: Transition(Phase.REVOKING, (Effect.MAYBE_JOIN,)),
        Trigger.REBALANCE_TOLD: IGNORED,
        Trigger.GENERATION_ENDS: IGNORED,
        Trigger.COORDINATOR_FOUND: IGNORED,
        Trigger.LEFT: _LEAVE,
    },
    Phase.REVOKING: {
        Trigger.REBALANCE_WANTED: IGNORED,
        Trigger.REBALANCE_TOLD: IGNORED,
        Trigger.GENERATION_ENDS: IGNORED,
        Trigger.READY: Transition(Phase.JOINING, (Effect.SEND_JOIN,)),
        Trigger.COORDINATOR_FOUND: IGNORED,
        Trigger.FORGOTTEN: _FORGET,
        Trigger.LEFT: _LEAVE,
    },
    Phase.JOINING: {
        Trigger.REBALANCE_WANTED: Transition(Phase.JOINING, (Effect.NOTE_AGAIN,)),
        Trigger.REBALANCE_TOLD: IGNORED,
        Trigger.GENERATION_ENDS: IGNORED,
        Trigger.ID_GIVEN: Transition(Phase.JOINING, (Effect.SEND_JOIN,)),
        Trigger.JOIN_POSTPONED: Transition(Phase.JOINING, (Effect.RETRY_SOON,)),
        Trigger.RETRY_DUE: Transition(Phase.JOINING, (Effect.SEND_JOIN,)),
        Trigger.COORDINATOR_FOUND: Transition(Phase.JOINING, (Effect.JOIN_AT_NEW_COORDINATOR,)),
        Trigger.JOINED: Transition(Phase.SYNCING, (Effect.SEND_SYNC,)),
        Trigger.JOINED_AS_LEADER: Transition(Phase.ASSIGNING, (Effect.BEGIN_ASSIGNING, Effect.ASSIGN)),
        Trigger.STALE_JOIN: _RESTART,
        Trigger.OVERDUE: Transition(Phase.JOINING, (Effect.JOIN_ON_NEW_CONNECTION,)),
        Trigger.REFUSED_FOR_GOOD: Transition(Phase.FAILED, (Effect.STOP_WAITING, Effect.FAIL)),
        Trigger.FORGOTTEN: _FORGET,
        Trigger.LEFT: _LEAVE,
    },
    Phase.ASSIGNING: {
        Trigger.REBALANCE_WANTED: Transition(Phase.ASSIGNING, (Effect.NOTE_AGAIN,)),
        Trigger.REBALANCE_TOLD: IGNORED,
        Trigger.GENERATION_ENDS: IGNORED,
        Trigger.COORDINATOR_FOUND: IGNORED,
        Trigger.STALE_JOIN: _RESTART,
        Trigger.ASSIGNED: Transition(Phase.SYNCING, (Effect.SEND_SYNC,)),
        Trigger.OVERDUE: Transition(Phase.ASSIGNING, (Effect.ASSIGN_WITHOUT_MORE,)),
        Trigger.FORGOTTEN: _FORGET,
        Trigger.LEFT: _LEAVE,
    },
    Phase.SYNCING: {
        Trigger.REBALANCE_WANTED: Transition(Phase.SYNCING, (Effect.NOTE_AGAIN,)),
        Trigger.REBALANCE_TOLD: IGNORED,
        Trigger.GENERATION_ENDS: IGNORED,
        Trigger.COORDINATOR_FOUND: IGNORED,
        Trigger.ASSIGNMENT_HERE: Transition(Phase.STABLE, (Effect.ENTER,)),
        Trigger.ASSIGNMENT_IN_LOG: Transition(Phase.READING, (Effect.AWAIT_ASSIGNMENT,)),
        Trigger.ASSIGNMENT_UNREADABLE: Transition(Phase.JOINING, (Effect.RETRY_LATER,)),
        Trigger.STALE_ASSIGNMENT: _RESTART,
        Trigger.SYNC_REFUSED: _RESTART,
        Trigger.OVERDUE: _RESTART,
        Trigger.REFUSED_FOR_GOOD: Transition(Phase.FAILED, (Effect.STOP_WAITING, Effect.FAIL)),
        Trigger.FORGOTTEN: _FORGET,
        Trigger.LEFT: _LEAVE,
    },
    Phase.READING: {
        Trigger.REBALANCE_WANTED: Transition(Phase.READING, (Effect.NOTE_AGAIN,)),
        Trigger.REBALANCE_TOLD: IGNORED,
        Trigger.GENERATION_ENDS: IGNORED,
        Trigger.COORDINATOR_FOUND: IGNORED,
        Trigger.ASSIGNMENT_HERE: Transition(Phase.STABLE, (Effect.ENTER,)),
        Trigger.STALE_ASSIGNMENT: _RESTART,
        Trigger.FORGOTTEN: _FORGET,
        Trigger.LEFT: _LEAVE,
    },
    Phase.STABLE: {
        Trigger.REBALANCE_WANTED: Transition(Phase.REVOKING, (Effect.MAYBE_JOIN,)),
        Trigger.REBALANCE_TOLD: Transition(Phase.STABLE, (Effect.JOIN_PACED,)),
        Trigger.GENERATION_ENDS: Transition(Phase.REVOKING, (Effect.MAYBE_JOIN,)),
        Trigger.ASSIGNMENT_HERE: Transition(Phase.STABLE, (Effect.COMPLETE,)),
        Trigger.STALE_ASSIGNMENT: Transition(Phase.REVOKING, (Effect.BACK_OFF, Effect.MAYBE_JOIN)),
        Trigger.COORDINATOR_FOUND: Transition(Phase.STABLE, (Effect.HEARTBEAT_NOW,)),
        Trigger.FORGOTTEN: _FORGET,
        Trigger.LEFT: _LEAVE,
    },
    Phase.LEFT: {
        Trigger.REBALANCE_WANTED: IGNORED,
        Trigger.REBALANCE_TOLD: IGNORED,
        Trigger.GENERATION_ENDS: IGNORED,
        Trigger.COORDINATOR_FOUND: IGNORED,
        Trigger.FORGOTTEN: IGNORED,
        Trigger.LEFT: _LEAVE,
    },
    Phase.FAILED: {
        Trigger.REBALANCE_WANTED: IGNORED,
        Trigger.REBALANCE_TOLD: IGNORED,
        Trigger.GENERATION_ENDS: IGNORED,
        Trigger.COORDINATOR_FOUND: IGNORED,
        Trigger.FORGOTTEN: IGNORED,
        Trigger.LEFT: _LEAVE,
    },
}


def diagram() -> str:
    """Return the table as a Mermaid state diagram: one arrow per pair of phases, without what changes nothing.

    FORGOTTEN and LEFT, which lead to one phase from everywhere, are drawn for STABLE only.
    """
    everywhere = (Trigger.FORGOTTEN, Trigger.LEFT)
    arrows: dict[tuple[Phase, Phase], list[str]] = {}
    for phase, row in TRANSITIONS.items():
        for trigger, transition in row.items():
            noted = transition is not None and transition.effects == (Effect.NOTE_AGAIN,)
            if transition is None or noted or (trigger in everywhere and phase is not Phase.STABLE):
                continue
            arrows.setdefault((phase, transition.to), []).append(trigger.value)
    lines = [f"    {begin.name} --> {end.name}: {' / '.join(texts)}" for (begin, end), texts in arrows.items()]
    return "\n".join(["stateDiagram-v2", "    [*] --> IDLE", *lines, "    LEFT --> [*]", "    FAILED --> [*]"])
