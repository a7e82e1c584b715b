"""JoinGroup, SyncGroup, heartbeats and the coordinator: the way of this member into a generation, and its stay there.

Each event becomes a trigger: :mod:`~.membership_answers` and :mod:`~.session` say which. :mod:`~.membership_table`
says what a trigger leads to in which phase, and :mod:`~.membership_effects` has the effects it names.
:meth:`Membership._fire` carries the table out. Nothing else changes the phase.
"""

from __future__ import annotations

from collections.abc import Callable

from loadtrim_agent.common.errors import InvariantError
from loadtrim_agent.wire.ownership_records import AssignmentRecord

from .commands import Command, CountCommand
from .counters import ProtocolCount
from .events import AssignmentFoundEvent, HeartbeatAnsweredEvent, JoinAnsweredEvent, SyncAnsweredEvent
from .group_config import GroupConfig
from .lease import Lease
from .membership_answers import MembershipAnswers
from .membership_effects import MembershipEffects
from .membership_state import MembershipState, Occurrence
from .membership_table import TRANSITIONS, Phase, Trigger
from .ongoing_rebalance import OngoingRebalance
from .ports import MembershipHooks
from .session import Session

__all__ = ["Membership"]


class Membership(MembershipState):
    """The door of the membership: events come in, the phase changes, the rest of the machine reads the state.

    :class:`~.machine.Machine` alone calls it. Its parts get it as a :class:`MembershipState`, which cannot fire.
    """

    def __init__(
        self, config: GroupConfig, hooks: MembershipHooks, lease: Lease, emit: Callable[[Command], None]
    ) -> None:
        super().__init__(config.topics)
        self._emit = emit
        self.rebalance = OngoingRebalance()
        self.session = Session(self, config, lease, self.rebalance, emit)
        self._effects = MembershipEffects(config, self, self.session, self.rebalance, hooks, emit)
        leader_assignment = self._effects.leader_assignment
        self._answers = MembershipAnswers(self, self.session, self.rebalance, leader_assignment, hooks, emit)

    def use_log(self, usable: bool) -> None:
        """Offer our protocol too from the next JoinGroup on, or the standard ones only."""
        self._effects.use_log(usable)

    def continue_from(self, earlier: Membership) -> None:
        """Go on from the numbers of an earlier machine of this process, and from what it knew of the topics."""
        self.rebalance.attempt = earlier.rebalance.attempt
        self.partitions = earlier.partitions

    # -- the table -----------------------------------------------------------------------------------------------

    def _fire(self, occurrence: Occurrence, now: float) -> None:
        """Change the phase as the table says, then carry the effects out.

        Raises:
            InvariantError: the trigger cannot come in this phase.
        """
        trigger, before = occurrence.trigger, self.phase
        row = TRANSITIONS[before]
        if trigger not in row:
            raise InvariantError(f"membership: {trigger.name} in {before.name}", history=self.history_lines())
        transition = row[trigger]
        if transition is None:
            return
        self.history.append((now, before, trigger))
        self.phase = transition.to
        for effect in transition.effects:
            self._follow(now, self._effects.methods[effect](now, occurrence))

    def _follow(self, now: float, occurrence: Occurrence | None) -> None:
        if occurrence is not None:
            self._fire(occurrence, now)

    # -- wishes and times ----------------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Look for the coordinator and join."""
        self.session.find_coordinator()
        self.rejoin(now)

    def rejoin(self, now: float) -> None:
        """Begin a rebalance, or note that one more is needed after the one going on."""
        self._fire(Occurrence(Trigger.REBALANCE_WANTED), now)

    def maybe_join(self, now: float) -> None:
        """Send the JoinGroup as soon as nothing stands in its way."""
        self._follow(now, self._effects.maybe_join(now))

    def left(self, now: float) -> None:
        """The member is out of the group."""
        self._fire(Occurrence(Trigger.LEFT), now)

    def wakeup(self) -> float:
        """Return the time at which :meth:`tick` wants to be called at the latest."""
        due = min(self.session.wakeup, self.rebalance.wakeup(coordinator_known=self.coordinator_known))
        in_stable = (self.rebalance.join_at, self._effects.leader_assignment.missing.ask_at, self.session.takeover.due)
        return min(due, *in_stable) if self.stable else due

    def tick(self, now: float, overdue: bool) -> None:
        """Do all that is due. ``overdue``: a member has not been heard of, its eviction is to be noticed at once."""
        if overdue:
            self.session.member_overdue(now)
        if now >= self.rebalance.retry_at and self.coordinator_known and self.phase is Phase.JOINING:
            self._fire(Occurrence(Trigger.RETRY_DUE), now)
        if now >= self.rebalance.deadline:
            if self.phase in (Phase.SYNCING, Phase.READING):
                self._emit(CountCommand(what=ProtocolCount.ASSIGNMENT_UNANSWERED))
            if self.phase is Phase.READING:
                self._follow(now, self._answers.not_read())
            else:
                self._fire(Occurrence(Trigger.OVERDUE), now)
        if self.stable and now >= self.rebalance.join_at:
            self._fire(Occurrence(Trigger.GENERATION_ENDS), now)
        if self.stable:
            self._effects.leader_assignment.ask_for_missing(now)
        if now >= self.session.takeover.due:
            self.rejoin(now)
        # Last, because what came before may have brought us back into a phase with heartbeats.
        self.session.send_heartbeat(now)

    # -- the coordinator -----------------------------------------------------------------------------------------

    def coordinator_found(self, now: float, *, taken_over: bool) -> None:
        """Requests go to the coordinator from now on."""
        self.coordinator_known = True
        if taken_over:
            self.session.takeover.learnt(now)
        self._fire(Occurrence(Trigger.COORDINATOR_FOUND), now)

    def coordinator_lost(self) -> None:
        """A request was answered by a broker that is not the coordinator, or by none."""
        self.session.coordinator_lost()

    def join_answered(self, event: JoinAnsweredEvent) -> None:
        """A JoinGroup was answered."""
        self._follow(event.now, self._answers.join(event))

    def sync_answered(self, event: SyncAnsweredEvent) -> None:
        """A SyncGroup was answered."""
        self._follow(event.now, self._answers.sync(event))

    def heartbeat_answered(self, event: HeartbeatAnsweredEvent) -> None:
        """A heartbeat was answered."""
        self._follow(event.now, self.session.heartbeat_answered(event))

    def refused_generation(self, now: float, member: str, generation: int, code: int) -> None:
        """A commit was refused: the same meaning as for a heartbeat (rule 9)."""
        self._follow(now, self.session.commit_refused(now, member, generation, code))

    # -- metadata and the log ------------------------------------------------------------------------------------

    def on_topics(self, now: float, partitions: dict[str, int]) -> None:
        """Metadata is there. Rule 7: only the leader's watch starts a rebalance for new partitions."""
        self.partitions = {**self.partitions, **partitions}
        if self._effects.leader_assignment.topics_changed(now, self.partitions):
            self._emit(CountCommand(what=ProtocolCount.PARTITIONS_CHANGED))
            self.rejoin(now)
        self._follow(now, self._effects.assign(now))

    def assignment_found(self, event: AssignmentFoundEvent) -> None:
        """The look at the log is over."""
        looking = self.phase is Phase.ASSIGNING and self._effects.leader_assignment.looking
        stale = self._answers.assignment_found(event)
        if looking:
            self._follow(event.now, stale or self._effects.assign(event.now))

    def assignment_appended(self, now: float, append: int, offset: int | None) -> None:
        """An append to the log was answered; the leader's assignment may be the one."""
        self._follow(now, self._effects.assignment_appended(append, offset))

    @property
    def reading(self) -> tuple[int, int] | None:
        """Return the generation, and the offset in the log, of the assignment that is to be read there.

        It may be waited for, or the generation was entered without it as the log could not be read.
        """
        offset = self.rebalance.answer.assignment_offset
        late = self.stable and self.assignment is None and self.speaks_loadtrim
        if offset is None or not (late or self.phase is Phase.READING):
            return None
        return self.rebalance.generation, offset

    def assignment_read(self, now: float, assignment: AssignmentRecord) -> None:
        """The assignment that the SyncGroup answer points to has been read from the log."""
        self._follow(now, self._answers.read_from_log(assignment))

    def on_rebalance_notice(self, now: float, generation: int) -> None:
        """A member says on the log that this generation ends (rule 11)."""
        self._follow(now, self.session.on_rebalance_notice(now, generation))

    def on_member_notice(self, now: float, member: str, *, here: bool) -> None:
        """A newcomer says hello on the log, or a member that it left (rule 11)."""
        self._follow(now, self.session.on_member_notice(now, member, here=here))
