"""The session of a member at its coordinator: heartbeats, the lease, and notices that a generation ends."""

from __future__ import annotations

from collections.abc import Callable, Container

from .announcements import Announcements
from .commands import (
    Command,
    CountCommand,
    FailCommand,
    FindCoordinatorCommand,
    SendHeartbeatCommand,
    SendSyncCommand,
)
from .counters import ProtocolCount
from .events import HeartbeatAnsweredEvent
from .group_config import COORDINATOR_MOVED, REFUSED_FOR_GOOD, RETRIABLE, Code, GroupConfig
from .heartbeats import Heartbeats
from .lease import Lease
from .membership_state import MembershipState, Occurrence
from .membership_table import Phase, Trigger
from .ongoing_rebalance import OngoingRebalance
from .retry_backoff import RetryBackoff
from .takeover import Takeover

__all__ = ["Session"]

NEVER = float("inf")
HEARTBEAT_PAUSE_SHARE = 0.05
"""Chosen: longest pause after heartbeats to wrong brokers, as a share of the session timeout. The lease runs on."""
OVERDUE_HEARTBEAT_SECONDS = 0.25
"""Chosen: an eviction is noticed this late at most, without a heartbeat for each tick."""


class Session:
    """The coordinator keeps a session for each member; the member knows this much of its own.

    A method that learns of the end of a generation, or of the session, returns the trigger to be fired.
    """

    def __init__(
        self,
        state: MembershipState,
        config: GroupConfig,
        lease: Lease,
        rebalance: OngoingRebalance,
        emit: Callable[[Command], None],
    ) -> None:
        self._state = state
        self._lease = lease
        self._rebalance = rebalance
        self._emit = emit
        self._doubted_from: float | None = None
        """Time at which the heartbeat was sent whose answer a SyncGroup is to confirm; None: there is none."""
        self._heartbeats = Heartbeats(
            config.heartbeat_interval, RetryBackoff(HEARTBEAT_PAUSE_SHARE * config.session_timeout)
        )
        self._joined_generation = -1
        """Generation of the last JoinGroup answer, which heartbeats carry.

        The coordinator counts this member to it before it is entered, and where it never is, as its SyncGroup was
        refused. The generation entered last, where a coordinator does not know that one.
        """
        self._unhindered_at: float | None = None
        """Send time of the last heartbeat of that generation answered OK: no rebalance waited for this member yet."""
        self._noticed_generation = -1
        """Generation whose end the log was already told of, by this member or by another (rule 11)."""
        self._announcements = Announcements()
        self.takeover = Takeover(state, config.session_timeout)

    # -- the coordinator -----------------------------------------------------------------------------------------

    def find_coordinator(self) -> None:
        """Ask for the coordinator; no JoinGroup, heartbeat or commit is sent until it is found."""
        self._state.coordinator_known = False
        self._emit(FindCoordinatorCommand())

    def coordinator_lost(self) -> None:
        """A request was answered by a broker that is not the coordinator, or by none."""
        # Several requests fail at the same time: one search is enough for all of them.
        if self._state.coordinator_known:
            self.find_coordinator()

    # -- the life of a generation --------------------------------------------------------------------------------

    def joined(self, now: float, sent_at: float, generation: int) -> None:
        """The JoinGroup sent at this time was answered: the rebalance does not wait for this member any more."""
        self._lease.renew(sent_at)
        self._joined_generation = generation
        self._unhindered_at = self._doubted_from = None
        self._heartbeats.joined(sent_at)
        self.takeover.joined(sent_at)

    def synced(self, sent_at: float, code: int) -> None:
        """The SyncGroup sent at this time was answered: OK, or that the next rebalance has begun.

        That one began after the last heartbeat answered OK. Before the answer no heartbeat proves that much. A
        coordinator takes the heartbeats of a member whose SyncGroup was lost. It removes the member a rebalance timeout
        after the JoinGroup.
        """
        if code == Code.NONE:
            self._lease.renew_entry(sent_at)
        elif code == Code.REBALANCE_IN_PROGRESS and self._unhindered_at is not None:
            self._lease.renew_entry(self._unhindered_at)

    def entered(self, now: float) -> None:
        """A generation began."""
        renewed_at = self._lease.session_from
        self._heartbeats.entered(now if renewed_at is None else renewed_at)

    def forget(self) -> None:
        """The coordinator does not know the member any more."""
        self._lease.revoke()
        self._noticed_generation = -1
        self._announcements.forget()
        self._heartbeats.forget()

    # -- heartbeats ----------------------------------------------------------------------------------------------

    @property
    def wakeup(self) -> float:
        """Return the time of the next heartbeat."""
        return self._heartbeats.wakeup if self._state.may_commit or self._syncs else NEVER

    @property
    def _syncs(self) -> bool:
        """The JoinGroup was answered and the assignment is not here yet."""
        syncs = self._state.phase in (Phase.ASSIGNING, Phase.SYNCING, Phase.READING)
        return syncs and self._state.coordinator_known

    def send_heartbeat(self, now: float) -> None:
        """Send a heartbeat if one is due."""
        if now >= self.wakeup:
            self._heartbeats.sent()
            self._emit(SendHeartbeatCommand(member=self._state.member, generation=self._joined_generation))

    def heartbeat_by(self, time: float) -> None:
        """Have the next heartbeat sent at this time at the latest."""
        self._heartbeats.by(time)

    def stop_heartbeats(self) -> None:
        """Send none until a JoinGroup is answered (rule 12)."""
        self._heartbeats.stopped = True

    def member_overdue(self, now: float) -> None:
        """Another member has not been heard of: its eviction is to be noticed at once."""
        if self._state.stable:
            self._heartbeats.by(now + OVERDUE_HEARTBEAT_SECONDS)

    def heartbeat_answered(self, event: HeartbeatAnsweredEvent) -> Occurrence | None:
        """Renew the lease as far as the answer allows, and return what it means for the generation."""
        state = self._state
        self._heartbeats.answered()
        # An answer to an id that was given up since says nothing of the session of now.
        if event.member != state.member:
            return None
        current = event.generation == state.generation
        self._heartbeats.next(event.now)
        if event.code in COORDINATOR_MOVED:
            self._heartbeats.refused(event.now, state.member)
            self.coordinator_lost()
            return None
        self._heartbeats.accepted()
        if event.code == Code.NONE:
            if event.generation == self._joined_generation and event.sent_at < self._lease.until:
                self._unhindered_at = event.sent_at
            entered = current and state.phase is Phase.STABLE
            self._accepted(event.sent_at, entered=entered)
        elif event.code in (Code.REBALANCE_IN_PROGRESS, Code.ILLEGAL_GENERATION):
            told = event.code == Code.REBALANCE_IN_PROGRESS
            if told:
                self._lease.renew_session(event.sent_at)
            if current:
                return Occurrence(Trigger.REBALANCE_TOLD if told else Trigger.GENERATION_ENDS)
            if not told and event.generation == self._joined_generation and not self._syncs:
                # A generation that nobody enters is not stored. The next coordinator counts to the one before.
                self._joined_generation = state.generation
                self._heartbeats.by(event.now)
        elif event.code == Code.UNKNOWN_MEMBER_ID:
            return Occurrence(Trigger.FORGOTTEN)
        elif event.code in REFUSED_FOR_GOOD:
            self._emit(FailCommand(code=event.code))
        elif event.code not in RETRIABLE:
            self._emit(CountCommand(what=ProtocolCount.HEARTBEAT_REFUSED, code=event.code))
            # What the code means is not known. It may pass, as long as the lease lasts; then nothing is delivered.
            if event.now >= self._lease.until and state.phase is not Phase.LEFT:
                self._emit(FailCommand(code=event.code))
        return None

    def _accepted(self, sent_at: float, *, entered: bool) -> None:
        """Renew the lease by a heartbeat that was answered OK, if the lease lasted when it was sent.

        A coordinator that loads its groups answers OK to every member. One whose lease is over may have been evicted
        before, so it asks by a SyncGroup as well, which such a coordinator refuses.
        """
        if sent_at < self._lease.until:
            # Only an answer to the generation of now proves that no rebalance waits for this member (rule 12).
            renew = self._lease.renew if entered else self._lease.renew_session
            renew(sent_at)
        elif entered and self._doubted_from is None:  # an answer on its way says nothing of what is sent after it
            self._doubted_from = sent_at
            self._rebalance.outstanding = True
            state = self._state
            self._emit(
                SendSyncCommand(attempt=self._rebalance.attempt, member=state.member, generation=state.generation)
            )

    def confirmed(self, code: int) -> Occurrence | None:
        """The SyncGroup of :meth:`_accepted` was answered: OK proves that the member is in its generation."""
        doubted_from, self._doubted_from = self._doubted_from, None
        if doubted_from is None:
            return None
        if code == Code.NONE:
            self._lease.renew(doubted_from)
        elif code in COORDINATOR_MOVED:
            self.coordinator_lost()
        elif code == Code.UNKNOWN_MEMBER_ID:
            return Occurrence(Trigger.FORGOTTEN)
        elif code == Code.ILLEGAL_GENERATION:
            return Occurrence(Trigger.GENERATION_ENDS)
        # Any other refusal may be that of a coordinator that loads. The next heartbeat asks again.
        return None

    def commit_refused(self, now: float, member: str, generation: int, code: int) -> Occurrence | None:
        """Return the meaning of a refused commit: the same as of a heartbeat (rule 9)."""
        state = self._state
        if member != state.member:
            return None
        if code == Code.UNKNOWN_MEMBER_ID:
            return Occurrence(Trigger.FORGOTTEN)
        if generation == state.generation and code == Code.ILLEGAL_GENERATION:
            return Occurrence(Trigger.GENERATION_ENDS)
        if generation == state.generation and code == Code.REBALANCE_IN_PROGRESS and state.phase is Phase.STABLE:
            self._heartbeats.by(now)
        return None

    # -- notices on the log (rule 11) ----------------------------------------------------------------------------

    @property
    def end_noticed(self) -> bool:
        """The log was already told that the generation of now ends."""
        return self._noticed_generation >= self._state.generation

    def end_announced(self) -> None:
        """This member told the log that it joins, which ends the generation of now."""
        self._noticed_generation = self._state.generation

    def expect_rebalance(self, now: float, generation: int | None = None) -> None:
        """The log says that a rebalance began, or is about to: send a heartbeat now and a few more soon."""
        self._notice(self._state.generation if generation is None else generation)
        if self._state.stable:
            self._heartbeats.burst(now)

    def expect_unseen(self, now: float, members: Container[str]) -> None:
        """Expect a rebalance if an announcement is not in the assignment entered, which has these members."""
        if self._announcements.unseen(members):
            self.expect_rebalance(now)

    def on_rebalance_notice(self, now: float, generation: int) -> Occurrence | None:
        """A member was told that this generation ends: join too, without asking first."""
        if generation == self._state.generation and not self._state.broker_assigns:
            return self._join_on_notice()
        if generation >= self._state.generation:
            self.expect_rebalance(now, generation)
        return None

    def on_member_notice(self, now: float, member: str, *, here: bool) -> Occurrence | None:
        """A member said hello, or that it left: where the assignment does not show it yet, join at once.

        Asking first would cost every member a round trip, in the milliseconds in which the broker is to answer the
        JoinGroups. For a member that says the same again, still in no assignment, a heartbeat asks.
        """
        news = self._announcements.announce(member, here=here)
        assignment = self._state.assignment
        if assignment is None or not news:
            self.expect_rebalance(now)
        elif (member in assignment.members) != here:
            return self._join_on_notice()
        return None

    def _join_on_notice(self) -> Occurrence:
        # The log knows of this end: a rejoin record of this member would tell nobody anything.
        self._notice(self._state.generation)
        return Occurrence(Trigger.REBALANCE_TOLD)

    def _notice(self, generation: int) -> None:
        self._noticed_generation = max(self._noticed_generation, generation)
