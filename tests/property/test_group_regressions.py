"""Why each rule of the protocol is there: for each the shortest schedule that goes wrong without it.

Every schedule is run twice: with the machine as it is, where all invariants hold, and with one rule taken out by the
smallest patch that does it, where the named invariant does not. The numbers are those of ``docs/protocol.md``.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol import assigned_partition
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.assigned_partition import AssignedState
from loadtrim_agent.protocol.commits import CommitOutcome, CommitQueue
from loadtrim_agent.protocol.join_sequence import JoinSequence
from loadtrim_agent.protocol.leader_assignment import LeaderAssignment
from loadtrim_agent.protocol.lease import Lease
from loadtrim_agent.protocol.leave import Leave
from loadtrim_agent.protocol.machine import Machine
from loadtrim_agent.protocol.membership_effects import MembershipEffects
from loadtrim_agent.protocol.membership_table import Phase
from loadtrim_agent.protocol.missing_partitions import MissingPartitions
from loadtrim_agent.protocol.ongoing_rebalance import OngoingRebalance
from loadtrim_agent.protocol.ownership import Ownership
from loadtrim_agent.protocol.partitions import PartitionTable
from loadtrim_agent.protocol.prefetch import Prefetches
from loadtrim_agent.protocol.promises import Promises
from loadtrim_agent.protocol.session import Session
from loadtrim_agent.protocol.slices import Slices, _Slice
from loadtrim_agent.wire.ownership_records import HelloRecord, MovePlan, PromiseRecord, RejoinRecord, ReleaseRecord
from sim.controllog import AppendFate
from sim.coordinator import CommitRequest, GroupState, HeartbeatRequest, JoinRequest, SyncRequest
from sim.invariants import Violation
from sim.member import SimMember
from sim.network import Fate
from sim.options import GroupOptions
from sim.script import Script

P0, P1, P2 = (Partition("orders", index) for index in range(3))
Patch = pytest.MonkeyPatch


def fails_without(rule: Callable[[Patch], None], schedule: Callable[[], None], invariant: str) -> None:
    """The schedule passes, and violates ``invariant`` once ``rule`` is taken out."""
    schedule()
    with pytest.MonkeyPatch.context() as patch:
        rule(patch)
        with pytest.raises(Violation) as violation:
            schedule()
    assert violation.value.name == invariant, violation.value


# -- 1: the version ----------------------------------------------------------------------------------------------


def late_duplicate_of_a_release() -> None:
    """A->B, B->A, then a copy of the first release lands."""
    world = Script()
    a, b = world.members_in(2)
    world.next_append(a, ReleaseRecord, AppendFate(copy_seconds=1.0))
    world.moved(P0, a, b)
    world.moved(P0, b, a)
    world.run(2.0)


def without_versions(patch: Patch) -> None:
    def apply(self: Ownership, release: ReleaseRecord) -> bool:
        if release.generation != self.generation or self.owner(release.key) != release.source:
            return False
        self._owners = {**self._owners, release.key: release.target}
        self._versions[release.key] = self.version(release.key) + 1
        return True

    patch.setattr(Ownership, "apply", apply)


def test_1_versions() -> None:
    fails_without(without_versions, late_duplicate_of_a_release, "I1")


# -- 2: the commit comes first -----------------------------------------------------------------------------------


def barrier_before_the_release_is_read() -> None:
    """A's release lands, B has not read it, a barrier: nobody claims the partition."""
    world = Script()
    a, b = world.members_in(2)
    world.produce(P0, 5)
    world.run(1.0)
    b.reader.block(world.scheduler.now + 2.0)
    a.move(P0, b.member)
    world.produce(P0, 5)  # done while the others are committed ahead
    world.run_until(lambda: P0 not in a.user.slots)
    world.join()
    world.run(5.0)


def without_the_commit(patch: Patch) -> None:
    def drained(self: PartitionTable, event: e.DrainedEvent) -> None:
        entry = self._current(event.partition, event.acquisition_id, AssignedState.DRAINING)
        if entry is not None:
            entry.advance(assigned_partition.AssignedEvent.DRAINED)
            entry.decided = True
            entry.committed = event.done or entry.committed

    patch.setattr(PartitionTable, "drained", drained)


def test_2_commit_before_release() -> None:
    fails_without(without_the_commit, barrier_before_the_release_is_read, "I3")


# -- 3: after the append nothing is cancelled ----------------------------------------------------------------------


def release_lands_unacknowledged() -> None:
    """The append fails for all that A knows, and has landed; B reads it."""
    world = Script()
    a, b = world.members_in(2)
    world.next_append(a, ReleaseRecord, AppendFate(acknowledged=False))
    for member in (a, b):
        member.reader.block(world.scheduler.now + 0.5)
    a.move(P0, b.member)
    world.run(3.0)


def without_patience(patch: Patch) -> None:
    def appended(self: PartitionTable, event: e.AppendedEvent) -> None:
        partition, acquisition_id = self._appends.pop(event.append, (None, 0))
        entry = self.assigned.get(partition) if partition is not None else None
        if entry is not None and entry.acquisition_id == acquisition_id and event.offset is None:
            self._resume(entry)

    transferred = {
        **assigned_partition.TRANSITIONS[AssignedState.TRANSFERRED],
        assigned_partition.AssignedEvent.RESUMED: AssignedState.RUNNING,
    }
    later = {**assigned_partition.TRANSITIONS, AssignedState.TRANSFERRED: transferred}
    patch.setattr(assigned_partition, "TRANSITIONS", later)
    patch.setattr(PartitionTable, "appended", appended)


def test_3_stopped_until_the_log_decides() -> None:
    fails_without(without_patience, release_lands_unacknowledged, "I1")


def unaware(world: Script, member: SimMember, seconds: float) -> None:
    """Neither the log nor its heartbeats tell this member of a barrier for a while."""
    member.reader.block(world.scheduler.now + seconds)
    world.next_request(member, HeartbeatRequest, *[Fate(request_seconds=seconds)] * 3)


# -- 4: the first commit -------------------------------------------------------------------------------------------


def first_owner_dies_before_its_first_commit() -> None:
    """``latest``, nothing committed yet: what the first owner was handed and did not do is for the second."""
    world = Script(group=GroupOptions(auto_commit_seconds=600.0, reset_latest=True))
    world.produce(P0, 3)
    (a,) = world.members_in(1)
    world.cost_seconds = lambda: 5.0
    world.produce(P0, 2)
    world.run(1.0)
    a.crash()
    world.produce(P0, 2)
    world.join()
    world.run(12.0)
    world.produce(P0)
    world.run(12.0)


def without_the_first_commit(patch: Patch) -> None:
    def opened(self: PartitionTable, event: e.OpenedEvent) -> None:
        entry = self._current(event.partition, event.acquisition_id, AssignedState.OPENING)
        if entry is not None:
            entry.committed = event.position
            self._run(entry, assigned_partition.AssignedEvent.OPENED)

    patch.setattr(PartitionTable, "opened", opened)


def test_4_first_commit_before_anything_is_handed_out() -> None:
    fails_without(without_the_first_commit, first_owner_dies_before_its_first_commit, "I2")


# -- 5: claims are frozen ------------------------------------------------------------------------------------------


def barrier_while_the_giver_has_not_read_its_release() -> None:
    """B has read A's release and runs the partition, A has not; a barrier."""
    world = Script()
    a, b = world.members_in(2)
    a.reader.block(world.scheduler.now + 3.0)
    world.next_request(a, HeartbeatRequest, Fate(request_seconds=0.4))
    a.move(P0, b.member)
    world.run_until(lambda: world.owner(P0) is b)
    world.join()
    world.run(6.0)


def with_claims_after_the_release(patch: Patch) -> None:
    patch.setattr(PartitionTable, "owned_partitions", lambda self, topics: tuple(sorted(self.assigned)))


def test_5_no_claim_after_the_release() -> None:
    fails_without(with_claims_after_the_release, barrier_while_the_giver_has_not_read_its_release, "I4")


def barrier_while_the_giver_commits() -> None:
    """A's JoinGroup leaves while its last commit is sent; B does not hear of the barrier: both hints are lost."""
    world = Script()
    a, b = world.members_in(2)
    world.produce(P0, 5)
    world.run(1.0)
    world.next_request(a, CommitRequest, Fate(answer_seconds=0.2))
    world.next_request(b, HeartbeatRequest, *[Fate(request_seconds=2.0)] * 2)
    world.next_append(world.join(), HelloRecord, AppendFate(vanishes=True))
    world.next_append(a, RejoinRecord, AppendFate(vanishes=True))
    world.run_until(lambda: world.coordinator.state is GroupState.PREPARING)
    world.run_until(lambda: a.machine.membership.wakeup() - world.scheduler.now < 0.1)
    a.move(P0, b.member)
    world.run(6.0)


def with_releases_after_the_join(patch: Patch) -> None:
    def release_settled(self: Machine, now: float) -> None:
        ownership = self.partitions.ownership
        for entry in self.partitions.settled():
            if ownership is not None and entry.target:
                record = ownership.release(entry, self.config.group, self.membership.member, now, self.wall(now))
                self.partitions.release(now, entry, record)

    patch.setattr(Machine, "_release_settled", release_settled)
    patch.setattr(PartitionTable, "freeze", lambda self: None)


def test_5_no_release_after_the_join() -> None:
    fails_without(with_releases_after_the_join, barrier_while_the_giver_commits, "I4")


def release_read_while_joining() -> None:
    """B joined with nothing, then reads A's release; the map gives the partition back to A, B's answer is slow."""
    world = Script()
    a, b = world.members_in(2)
    b.reader.block(world.scheduler.now + 1.5)
    world.next_request(b, SyncRequest, Fate(answer_seconds=2.0))
    a.move(P0, b.member)
    world.run_until(lambda: P0 not in a.user.slots)
    world.join()
    world.run(6.0)


def with_acquisition_while_joining(patch: Patch) -> None:
    fold = PartitionTable.fold
    patch.setattr(
        PartitionTable, "fold", lambda self, release, member, acquire: fold(self, release, member, acquire=True)
    )


def test_5_no_acquisition_while_joining() -> None:
    fails_without(with_acquisition_while_joining, release_read_while_joining, "I1")


# -- 6: the attempt number -----------------------------------------------------------------------------------------


def joining_again_with_nothing_new_to_say() -> None:
    """A follower that joined with nothing, was given a partition and gave it away, joins again (a gap in its log)."""
    world = Script()
    a, b = world.members_in(2)
    world.enlarge("orders", 2)
    world.run_until(lambda: world.owner(P1) is b)
    world.moved(P1, b, a)
    unaware(world, a, 0.5)
    b.reader.skip_to_end()
    world.run(3.0)


def without_attempts(patch: Patch) -> None:
    patch.setattr(OngoingRebalance, "attempt", property(lambda self: 1, lambda self, value: None), raising=False)
    patch.setattr(JoinSequence, "is_stale", lambda self, members: False)  # which could not do without


def test_6_every_join_differs() -> None:
    fails_without(without_attempts, joining_again_with_nothing_new_to_say, "I1")


# -- 8: delayed copies of old JoinGroups ---------------------------------------------------------------------------


def old_join_counts_in_the_next_barrier() -> None:
    """C leaves; a copy of B's first JoinGroup, which claims nothing, arrives before B has heard of the barrier."""
    world = Script()
    a, d, b, gone = world.members_in(4)
    world.enlarge("orders", 2)
    world.run_until(lambda: world.owner(P1) is not None)
    if world.owner(P1) is not b:
        world.moved(P1, world.owner(P1) or d, b)
    unaware(world, b, 0.4)
    gone.leave()
    world.run_until(lambda: world.coordinator.state is GroupState.PREPARING)
    world.repeat(b, lambda r: isinstance(r, JoinRequest) and r.member and not r.metadata.owned)
    world.run(5.0)
    assert a.machine.snapshot().is_leader


def without_the_look_at_attempts(patch: Patch) -> None:
    patch.setattr(JoinSequence, "is_stale", lambda self, members: False)


def test_8_old_joins_do_not_count() -> None:
    fails_without(without_the_look_at_attempts, old_join_counts_in_the_next_barrier, "I1")


REFUNDS = Partition("refunds", 0)
BOTH = ("orders", "refunds")


def own(world: Script, wanted: dict[Partition, SimMember]) -> None:
    for partition, member in wanted.items():
        owner = world.owner(partition)
        assert owner is not None
        if owner is not member:
            world.moved(partition, owner, member)


def led_by(world: Script, first: SimMember) -> list[SimMember]:
    """Return those of which the first that is there follows a leader that is gone: others may be put before them."""
    preferred = [first]
    world.coordinator.successor = lambda members: next(p.member for p in preferred if p.member in members)
    return preferred


def led_twice_by_others() -> None:
    """A generation is not stored before a failover. Its number comes again with another leader; a copy arrives next.

    B leads the first one. In the second it is not answered, and it leads the next. D gets the refunds between them.
    """
    world = Script(topics=(("orders", 2), ("refunds", 1)))
    a, b, d = (world.join(BOTH), world.join(("orders",)), world.join(BOTH))
    world.settle()
    own(world, {REFUNDS: a, P0: b, P1: d})
    world.run(2.0)
    generation = world.coordinator.generation + 1
    preferred = led_by(world, b)
    a.crash()
    while world.coordinator.state is not GroupState.COMPLETING or b.machine.snapshot().phase is Phase.JOINING:
        world.run(0.0005)
    assert world.coordinator.leader == b.member
    world.coordinator.fail(silent=True)
    world.run(0.05)
    world.take_over()
    world.run(1.0)
    newcomer = world.join(("orders",))
    preferred[:0] = [newcomer]
    world.next_request(b, SyncRequest, Fate(answered=False, breaks_seconds=1.3))
    world.run_until(lambda: world.coordinator.generation == generation and world.coordinator.state is GroupState.STABLE)
    began = world.scheduler.now
    assert world.coordinator.leader == newcomer.member
    world.produce(REFUNDS, 3)
    world.run(0.05)
    newcomer.crash()
    world.run(began + 1.15 - world.scheduler.now)
    answered = [r for name, r in world.sent if name == d.name and isinstance(r, JoinRequest)][-1]
    world.run(0.35)
    world.join(BOTH)
    world.run(3.3)
    world.coordinator.serve(answered, lambda reply: None)
    world.run(7.0)


def with_a_generation_led_taken_for_entered(patch: Patch) -> None:
    answered = LeaderAssignment.judge

    def judge(self: LeaderAssignment, joined: e.JoinAnsweredEvent) -> bool:
        stale = answered(self, joined)
        self._join_sequence._generation = max(self._join_sequence._generation, joined.generation)
        return stale

    patch.setattr(LeaderAssignment, "judge", judge)


def test_8_a_generation_that_was_led_and_not_entered_is_not_known() -> None:
    fails_without(with_a_generation_led_taken_for_entered, led_twice_by_others, "I3")


def assignment_that_never_came_into_force() -> None:
    """Assignments travel in the log. That of a generation which a failover undoes is its newest for the next leader."""
    world = Script(
        topics=(("orders", 2), ("refunds", 1)), group=GroupOptions(auto_commit_seconds=600.0, inline_limit_bytes=0)
    )
    a, d, b = (world.join(BOTH), world.join(BOTH), world.join(("orders",)))
    world.settle()
    own(world, {P1: d, REFUNDS: a, P0: a})
    old = [r for name, r in world.sent if name == d.name and isinstance(r, JoinRequest)][-1]
    own(world, {REFUNDS: d, P0: b})
    world.run(2.0)
    world.produce(REFUNDS, 3)
    world.run(0.5)
    generation = world.coordinator.generation + 1
    preferred = led_by(world, b)
    a.crash()
    while world.coordinator.generation != generation or b.machine.snapshot().phase is not Phase.SYNCING:
        world.run(0.0002)
    world.next_request(d, JoinRequest, Fate(arrives=False, breaks_seconds=0.8))
    world.coordinator.fail(silent=False)
    world.run(0.05)
    world.take_over()
    world.run(0.5)
    preferred[:0] = [world.join(BOTH)]
    world.run(5.0)
    world.coordinator.serve(old, lambda reply: None)
    world.run(8.0)


def without_assignments_of_this_number(patch: Patch) -> None:
    found = LeaderAssignment.found

    def look(self: LeaderAssignment, event: e.AssignmentFoundEvent) -> bool:
        newest = event.assignment
        if newest is not None and newest.generation >= self._joined.generation:
            event = e.AssignmentFoundEvent(now=event.now, assignment=None)
        return found(self, event)

    patch.setattr(LeaderAssignment, "found", look)


def test_8_an_assignment_that_never_came_into_force_shows_copies() -> None:
    fails_without(without_assignments_of_this_number, assignment_that_never_came_into_force, "I1")


# -- 9: records of the next generation -----------------------------------------------------------------------------


def release_read_before_the_generation_is_entered() -> None:
    """A is in the new generation and gives the partition to B at once; B's SyncGroup answer is slower than the log."""
    world = Script()
    a, b = world.members_in(2)
    generation = world.coordinator.generation
    world.next_request(b, SyncRequest, Fate(answer_seconds=0.5))
    world.join()
    world.run_until(lambda: a.machine.snapshot().stable and a.machine.snapshot().generation > generation)
    a.move(P0, b.member)
    world.run(5.0)
    world.check_healed()


def without_later_records(patch: Patch) -> None:
    patch.setattr(Machine, "_keep", lambda self, now, generation, offset, record: None)


def test_9_records_of_later_generations_are_kept() -> None:
    fails_without(without_later_records, release_read_before_the_generation_is_entered, "I5")


# -- 10: gaps ------------------------------------------------------------------------------------------------------


def reader_misses_its_release() -> None:
    """A has read its release; the log tells B that records are missing."""
    world = Script()
    a, b = world.members_in(2)
    b.reader.block(world.scheduler.now + 1.0)
    a.move(P0, b.member)
    world.run_until(lambda: P0 not in a.user.slots)
    b.reader.skip_to_end()
    world.run(8.0)
    world.check_healed()


def without_gaps(patch: Patch) -> None:
    patch.setattr(Machine, "_on_log_gap", lambda self, event: None)


def test_10_gap() -> None:
    fails_without(without_gaps, reader_misses_its_release, "I5")


def log_loses_the_release() -> None:
    """The release was acknowledged and is not there."""
    world = Script()
    a, b = world.members_in(2)
    world.next_append(a, ReleaseRecord, AppendFate(vanishes=True))
    a.move(P0, b.member)
    world.run(8.0)
    world.check_healed()


def without_doubt(patch: Patch) -> None:
    patch.setattr(Machine, "_on_log_position", lambda self, event: None)
    tick = PartitionTable.tick
    patch.setattr(PartitionTable, "tick", lambda self, now: tick(self, now) and False)


def test_10_release_not_found() -> None:
    fails_without(without_doubt, log_loses_the_release, "I5")


# -- 11: leaving ---------------------------------------------------------------------------------------------------


def leaves_with_records_done_and_not_committed() -> None:
    """A has done five records since its last commit, and leaves."""
    world = Script()
    a, b = world.members_in(2)
    world.produce(P0, 5)
    world.run(1.0)
    assert world.owner(P0) is a
    a.leave()
    world.run(5.0)
    assert world.owner(P0) is b


def with_a_leave_at_once(patch: Patch) -> None:
    patch.setattr(Leave, "_leave_step", lambda self, now, leave: self._send_leave(now))


def test_11_what_was_done_is_committed_before_leaving() -> None:
    fails_without(with_a_leave_at_once, leaves_with_records_done_and_not_committed, "I3")


# -- 12: the lease -------------------------------------------------------------------------------------------------


def heartbeats_pass_and_the_join_does_not() -> None:
    """A hears of the barrier and goes on heartbeating; the broker never sees its JoinGroup and removes it."""
    world = Script()
    a, _ = world.members_in(2)
    world.next_request(a, JoinRequest, *[Fate(arrives=False)] * 3)
    world.join()
    world.run(20.0)


def without_the_second_time(patch: Patch) -> None:
    def join_no_more(self: MembershipEffects, now: float, _: object) -> None:
        self._rebalance.deadline = float("inf")

    patch.setattr(Lease, "renew_session", _renew_both)
    patch.setattr(MembershipEffects, "join_on_new_connection", join_no_more)


def _renew_both(self: Lease, sent_at: float) -> None:
    self._session_from = max(sent_at, self._session_from or sent_at)
    self._entered_from = max(sent_at, self._entered_from or sent_at)


def test_12_lease_of_a_member_that_the_barrier_waits_for() -> None:
    fails_without(without_the_second_time, heartbeats_pass_and_the_join_does_not, "I1")


# -- 13: the queue of commits --------------------------------------------------------------------------------------


def partition_lost_with_a_commit_queued() -> None:
    """A's commit gets no answer and is queued; A sleeps and is forgotten; B has done more when A is back."""
    world = Script()
    a, b = world.members_in(2)
    world.produce(P0, 5)
    world.run(1.0)
    world.next_request(a, CommitRequest, *[Fate(arrives=False, breaks_seconds=0.05)] * 2)
    a.commit_done()
    world.run(0.1)
    a.freeze(9.0)
    world.run_until(lambda: P0 in b.user.slots)
    world.produce(P0, 5)
    world.run(1.0)
    b.commit_done()
    world.run(10.0)


def without_emptying_the_queue(patch: Patch) -> None:
    answered = CommitQueue.answered

    def answered_whoever_holds(
        self: CommitQueue, event: e.CommitAnsweredEvent, acquisition_of: object
    ) -> CommitOutcome:
        acquisitions = {partition: entry.acquisition_id for partition, entry in self._in_flight.items()}
        return answered(self, event, acquisitions.get)

    patch.setattr(CommitQueue, "lose", lambda self, partition: {})
    patch.setattr(CommitQueue, "answered", answered_whoever_holds)


def test_13_losing_a_partition_empties_its_queue() -> None:
    fails_without(without_emptying_the_queue, partition_lost_with_a_commit_queued, "I3")


# -- what a plan is about to bring --------------------------------------------------------------------------------


def barrier_while_a_partition_is_prefetched() -> None:
    """A's user code is slow, so B prefetches P0 for a while; then a third member joins."""
    world = Script()
    world.cost_seconds = lambda: 1.0
    a, b = world.members_in(2)
    world.produce(P0)
    a.write_plan((MovePlan(topic="orders", partition=0, source=a.member, target=b.member),))
    world.run_until(lambda: P0 in b.prefetched)
    world.join()
    world.settle()
    assert not b.prefetched
    world.run(3.0)


def with_prefetches_that_outlive_barriers(patch: Patch) -> None:
    patch.setattr(Prefetches, "drop_all", lambda self: None)


def test_a_barrier_ends_what_is_prefetched() -> None:
    fails_without(with_prefetches_that_outlive_barriers, barrier_while_a_partition_is_prefetched, "prefetch")


def join_answered_late_and_heartbeats_lost() -> None:
    """B hears of a generation late, syncs with a stable group, and is cut off; A and C are given what it had."""
    world = Script(topics=(("orders", 2),))
    a, b = world.members_in(2)
    world.moved(P1, a, b)
    world.next_request(b, JoinRequest, Fate(answer_seconds=2.0))
    world.join()

    def syncs_with_a_stable_group() -> bool:
        syncs = any(isinstance(request, SyncRequest) and name == b.name for name, request in world.sent[-3:])
        return syncs and world.coordinator.state is GroupState.STABLE

    world.run_until(syncs_with_a_stable_group, seconds=10.0)
    for kind in (HeartbeatRequest, JoinRequest):
        world.next_request(b, kind, *[Fate(arrives=False)] * 20)
    world.run(8.0)


def with_sessions_renewed_by_syncs(patch: Patch) -> None:
    patch.setattr(Session, "synced", lambda self, sent_at, code: self._lease.renew(sent_at))


def test_12_a_sync_proves_no_session() -> None:
    fails_without(with_sessions_renewed_by_syncs, join_answered_late_and_heartbeats_lost, "I1")


# -- what the random schedules found besides -----------------------------------------------------------------------


def topic_that_is_not_subscribed_any_more() -> None:
    """A ends its subscription of a topic that B has too; A's SyncGroup answer is slow."""
    world = Script(topics=(("orders", 1), ("refunds", 1)))
    a, b = world.members_in(2)
    refunds = Partition("refunds", 0)
    assert world.owner(refunds) is a
    world.next_request(a, SyncRequest, Fate(answer_seconds=1.0))
    a.subscribe(("orders",))
    world.run(5.0)
    assert world.owner(refunds) is b
    world.check_healed()


def with_topics_told_at_once(patch: Patch) -> None:
    def resubscribe(self: Leave, now: float) -> None:
        self._machine.membership.topics = self.topics
        self._machine.membership.rejoin(now)

    patch.setattr(Leave, "_resubscribe", resubscribe)


def test_5_a_topic_that_ends_is_given_away_first() -> None:
    fails_without(with_topics_told_at_once, topic_that_is_not_subscribed_any_more, "I1")


def new_leader_that_has_not_heard_of_new_partitions() -> None:
    """The leader sees that the topic has grown, C gets the new partition, the leader leaves; B leads, unaware of it."""
    world = Script()
    world.metadata_seconds = lambda: 3_600.0
    a, b, third = world.members_in(3)
    world.enlarge("orders", 2)
    a.feed(lambda now: e.TopicsEvent(now=now, partitions={"orders": 2}))
    world.run_until(lambda: world.owner(P1) is not None)
    if world.owner(P1) is not third:
        world.moved(P1, b, third)
    a.leave()
    world.run(5.0)
    assert b.machine.snapshot().is_leader
    assert world.owner(P1) is third


def without_believing_or_asking_for_what_is_claimed(patch: Patch) -> None:
    patch.setattr(LeaderAssignment, "_lacks_topics", lambda self, counts, late: False)
    patch.setattr(MissingPartitions, "believed", lambda self, now, members, counts: counts)


def test_7_a_claim_that_the_leader_does_not_know_is_looked_into() -> None:
    rule = without_believing_or_asking_for_what_is_claimed
    fails_without(rule, new_leader_that_has_not_heard_of_new_partitions, "I4")


# -- 14: slices --------------------------------------------------------------------------------------------------------


def rebalance_before_the_promise_is_read() -> None:
    """A waits at its bound for its promise. A member comes, and the promise lands a generation late."""
    world = Script()
    world.cost_seconds = lambda: 0.05
    a, b = world.members_in(2)
    world.produce(P0, 4)
    world.run(0.06)
    world.next_append(a, PromiseRecord, AppendFate(land_seconds=2.0, answer_seconds=2.0))
    a.slice(P0, b.member, 2)
    world.run(0.1)
    world.join()
    world.settle()
    world.run(3.0)
    assert world.owner(P0) is a
    assert world.data[P0].done_below == 4


def test_14_a_rebalance_undoes_bounds() -> None:
    def kept_at_their_bounds(patch: Patch) -> None:
        patch.setattr(Slices, "drop_all", lambda self: None)

    fails_without(kept_at_their_bounds, rebalance_before_the_promise_is_read, "I4")


def promise_that_came_second() -> None:
    """A and B promise to C without knowing of each other, and B's lands first: A keeps its partition."""
    world = Script(topics=(("orders", 2),))
    world.cost_seconds = lambda: 0.05
    a, b, c = world.members_in(3)
    world.moved(P1, a, b)
    for partition in (P0, P1):
        world.produce(partition, 4)
    world.run(0.06)
    world.next_append(a, PromiseRecord, AppendFate(land_seconds=0.02))
    a.slice(P0, c.member, 3)
    b.slice(P1, c.member, 3)
    world.run(1.0)
    assert world.owner(P1) is c
    assert world.owner(P0) is a


def test_14_a_promise_that_came_second_does_not_count() -> None:
    def first_or_not(patch: Patch) -> None:
        def given(self: Slices, now: float, record: PromiseRecord) -> bool:
            counts = read(self, now, record)
            found = self._slices.get(record.key)
            if found is not None:
                found.counts = True
            return counts

        read = Slices.read
        patch.setattr(Slices, "read", given)
        patch.setattr(Slices, "_end", lambda self, found, why: None)

    fails_without(first_or_not, promise_that_came_second, "I4")


def two_promises_around_another() -> None:
    """A promises two partitions to C. B's promise to C, which A does not know, lands before both."""
    world = Script(topics=(("orders", 3),))
    world.cost_seconds = lambda: 0.05
    a, b, c = world.members_in(3)
    world.moved(P1, a, b)
    for partition in (P0, P1, P2):
        world.produce(partition, 4)
    world.run(0.06)
    world.next_append(a, PromiseRecord, AppendFate(land_seconds=0.02), AppendFate(land_seconds=0.03))
    a.slice(P0, c.member, 3)
    a.slice(P2, c.member, 3)
    b.slice(P1, c.member, 3)
    world.run(1.0)
    assert world.owner(P1) is c
    assert [world.owner(partition) for partition in (P0, P2)] == [a, a]


def test_14_own_promises_are_left_out_of_the_turn() -> None:
    def numbered_as_well(patch: Patch) -> None:
        def turn(self: Promises, source: str, target: str) -> int:
            unread = [each for each in asking if each.promise.target == target and not each.counts]
            return self._turns[target] + len(unread)

        def wanted(self: Slices, event: e.SliceWantedEvent) -> None:
            asking.extend(self._slices.values())
            ask(self, event)
            asking.clear()

        asking: list[_Slice] = []
        ask = Slices.wanted
        patch.setattr(Promises, "turn", turn)
        patch.setattr(Slices, "wanted", wanted)

    fails_without(numbered_as_well, two_promises_around_another, "promises")


def word_that_is_lost() -> None:
    """A takes a promise back, and that append fails: B would count on the work for ever."""
    world = Script()
    a, b = world.members_in(2)
    a.slice(P0, b.member, 9, seconds=1.0)
    world.run(0.05)
    world.next_append(a, PromiseRecord, AppendFate(lands=False, acknowledged=False, answer_seconds=0.1))
    a.drop_slice(P0)
    world.run(3.0)
    world.check_healed()


def test_14_a_promise_is_taken_back_until_that_is_read() -> None:
    def once(patch: Patch) -> None:
        patch.setattr("loadtrim_agent.protocol.slices.REPEAT_SECONDS", float("inf"))

    fails_without(once, word_that_is_lost, "promises")
