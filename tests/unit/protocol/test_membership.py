"""Getting into a generation and staying there: JoinGroup, SyncGroup, heartbeats, coordinator (rules 5 to 8, 11, 12)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.announcements import KEPT_MAX, Announcements
from loadtrim_agent.protocol.counters import ProtocolCount
from loadtrim_agent.protocol.group_config import LOADTRIM, STANDARD_PROTOCOLS, Code, GroupConfig
from loadtrim_agent.protocol.heartbeats import BURST_GAPS_SECONDS
from loadtrim_agent.protocol.membership_table import Phase
from loadtrim_agent.wire.codec import encode
from loadtrim_agent.wire.ownership_records import (
    AssignmentRecord,
    HelloRecord,
    LeavingRecord,
    LeftRecord,
    LoadRecord,
    ManualOverrideRecord,
    RejoinRecord,
)
from sim.driver import GROUP, ME, OTHER, Driver, assignment_of, release

P0, P1, P2, P3 = (Partition("orders", index) for index in range(4))
SESSION_SECONDS = GroupConfig(group=GROUP, topics=("orders",)).session_timeout
INCONSISTENT = Code.INCONSISTENT_GROUP_PROTOCOL


def joined(member: str, *owned: Partition, attempt: int | None = 2, topics: tuple[str, ...] = ("orders",)):  # type: ignore[no-untyped-def]
    return e.JoinedMember(member=member, topics=topics, owned=owned, attempt=attempt)


# -- the way in ----------------------------------------------------------------------------------------------------


def test_a_newcomer_from_the_start_to_its_first_record() -> None:
    d = Driver()
    assert d.feed(e.StartEvent) == [c.FindCoordinatorCommand()]
    d.feed(e.CoordinatorFoundEvent)
    first = d.only(c.SendJoinCommand)
    assert first == c.SendJoinCommand(
        attempt=1, member="", protocols=(LOADTRIM, *STANDARD_PROTOCOLS), topics=("orders",), owned=()
    )
    d.join_answered(code=Code.MEMBER_ID_REQUIRED)
    assert d.kinds() == ["SendJoin", "Append"]
    assert d.only(c.SendJoinCommand).attempt == 2
    assert isinstance(d.only(c.AppendCommand).record, HelloRecord), "everybody is told when there is an id"
    d.join_answered()
    assert d.only(c.SendSyncCommand) == c.SendSyncCommand(attempt=2, member=ME, generation=1)
    d.sync_answered(assignment=assignment_of(1, OTHER, m1=(0,), m2=()))
    assert d.kinds() == ["Entered", "FetchCommitted"]
    fetch = d.only(c.FetchCommittedCommand)
    d.feed(e.CommittedFetchedEvent, fetch=fetch.fetch, code=0, offsets={P0: 5})
    opening = d.only(c.OpenCommand)
    assert (opening.partition, opening.offset) == (P0, 5)
    d.feed(e.OpenedEvent, partition=P0, acquisition_id=opening.acquisition_id, position=5)
    assert d.kinds() == ["Run"]
    assert d.machine.snapshot().settled


def test_the_lease_runs_from_when_the_request_was_sent() -> None:
    d = Driver().joining()
    sent_at = d.now
    d.now += 3.0
    d.join_answered(sent_at=sent_at)
    assert d.only(c.LeaseCommand).until == sent_at + 10.0 - 0.5


def test_a_member_without_the_log_offers_the_standard_protocols_only() -> None:
    d = Driver()
    d.machine.use_log(False)
    d.joining()
    assert d.only(c.SendJoinCommand).protocols == STANDARD_PROTOCOLS
    assert d.kinds() == ["SendJoin"], "and says nothing in the log"
    assert not d.machine.log_works


@pytest.mark.parametrize("code", [Code.COORDINATOR_LOAD_IN_PROGRESS, Code.REBALANCE_IN_PROGRESS])
def test_join_refused_for_now_is_sent_again(code: Code) -> None:
    d = Driver().joining()
    d.join_answered(code=code)
    assert d.kinds() == []
    assert d.machine.wakeup() == pytest.approx(d.now + 0.1)
    d.after(0.1)
    assert d.only(c.SendJoinCommand).attempt == 3, "never the same bytes twice"


@pytest.mark.parametrize("code", [Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE, Code.DISCONNECTED])
def test_join_without_a_coordinator_waits_for_one(code: Code) -> None:
    d = Driver().joining()
    d.join_answered(code=code)
    assert d.kinds() == ["FindCoordinator"]
    assert d.after(0.2) == [], "it is not known yet"
    d.feed(e.CoordinatorFoundEvent)
    assert d.kinds() == ["SendJoin", "Append"]


def test_join_refused_for_good_fails() -> None:
    d = Driver().joining()
    d.join_answered(code=INCONSISTENT)
    assert d.only(c.FailCommand).code == INCONSISTENT
    assert d.machine.wakeup() == float("inf")
    assert d.feed(e.LogGapEvent) == [c.CountCommand(what=ProtocolCount.LOG_GAP)], "nothing brings it back"


def test_answers_to_an_earlier_join_mean_nothing() -> None:
    d = Driver().joining()
    assert d.join_answered(attempt=1) == []
    d.join_answered()
    assert d.join_answered() == [], "nor does a second answer"


def test_a_join_behind_a_parked_one_takes_a_new_connection() -> None:
    d = Driver().joining()
    d.feed(e.HeartbeatAnsweredEvent, sent_at=d.now, member=ME, generation=-1, code=Code.NOT_COORDINATOR)
    assert d.kinds() == ["FindCoordinator"]
    d.feed(e.CoordinatorFoundEvent)
    assert d.only(c.SendJoinCommand).fresh


# -- SyncGroup -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [Code.REBALANCE_IN_PROGRESS, Code.ILLEGAL_GENERATION])
def test_sync_refused_joins_again_with_the_claims(code: Code) -> None:
    d = Driver().running(0, 1)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=2)
    d.sync_answered(code=code)
    assert d.only(c.SendJoinCommand).owned == (P0, P1)
    assert not d.all(c.StopCommand), "what is owned goes on"


def test_sync_without_a_coordinator_waits_for_one() -> None:
    d = Driver().joining()
    d.join_answered()
    d.sync_answered(code=Code.NOT_COORDINATOR)
    assert d.kinds() == ["FindCoordinator"]
    assert d.feed(e.CoordinatorFoundEvent)[0] == d.only(c.SendJoinCommand)


def test_a_heartbeat_refused_for_good_fails() -> None:
    """An ACL that was taken away: the lease ended, and user code waited for ever."""
    d = Driver().running(0)
    d.heartbeat_answered(Code.GROUP_AUTHORIZATION_FAILED)
    assert d.only(c.FailCommand).code == Code.GROUP_AUTHORIZATION_FAILED


def test_a_heartbeat_refused_otherwise_is_counted_and_renews_nothing() -> None:
    d = Driver().running(0)
    until = d.machine.lease_until
    d.now += 1.0
    d.heartbeat_answered(-1)
    (refused,) = d.all(c.CountCommand)
    assert (refused.what.label, refused.code) == ("heartbeat_refused", -1)
    assert d.machine.lease_until == until
    d.heartbeat_answered(Code.COORDINATOR_LOAD_IN_PROGRESS)
    assert d.counted() == [], "it says by itself to be over soon"


def test_heartbeats_that_are_refused_until_the_lease_is_over_fail() -> None:
    """Nothing was delivered any more, and user code waited for ever: only a warning had told why."""
    d = Driver().running(0)
    until = d.machine.lease_until
    while d.now < until:
        d.heartbeat_answered(-1)
        assert d.all(c.FailCommand) == []
        d.now = min(until, d.now + 2.0)
    d.heartbeat_answered(-1)
    assert d.only(c.FailCommand).code == -1


def test_one_refusal_behind_a_lease_that_other_reasons_ended_fails_nothing_that_comes_back() -> None:
    """The process was frozen, say: the first answer is what counts, and it is no refusal."""
    d = Driver().running(0)
    d.now = d.machine.lease_until + 1.0
    d.heartbeat_answered(0)
    d.sync_answered()
    d.heartbeat_answered(-1)
    assert d.all(c.FailCommand) == []


def frozen_past_its_lease() -> Driver:
    """The member runs on, and its first heartbeat is answered OK."""
    d = Driver().running(0)
    d.now = d.machine.lease_until + 1.0
    d.heartbeat_answered(Code.NONE)
    return d


def test_a_heartbeat_answered_behind_the_lease_is_confirmed_by_a_sync() -> None:
    """A coordinator that loads its groups answers OK to whom it has evicted: two members had one partition."""
    d = frozen_past_its_lease()
    assert d.kinds() == ["SendSync"]
    assert d.only(c.SendSyncCommand).answers == {}
    assert d.machine.lease_until < d.now, "nothing is delivered yet"
    asked_at = d.now
    d.after(0.1)
    d.sync_answered()
    assert d.machine.lease_until == asked_at + SESSION_SECONDS - 0.5
    assert d.machine.membership.stable
    assert not d.all(c.EnteredCommand)


def test_a_sync_on_its_way_confirms_no_heartbeat_that_was_sent_after_it() -> None:
    d = frozen_past_its_lease()
    asked_at = d.now
    d.after(1.0)
    d.heartbeat_answered(Code.NONE)
    assert d.kinds() == []
    d.sync_answered()
    assert d.machine.lease_until == asked_at + SESSION_SECONDS - 0.5


def test_a_coordinator_that_loads_confirms_no_lease_and_is_asked_again() -> None:
    d = frozen_past_its_lease()
    d.sync_answered(code=Code.REBALANCE_IN_PROGRESS)
    assert d.machine.lease_until < d.now
    assert d.kinds() == []
    d.after(3.0)
    assert d.kinds() == ["SendHeartbeat"]
    d.heartbeat_answered(Code.NONE)
    assert d.kinds() == ["SendSync"]
    d.sync_answered()
    assert d.machine.lease_until > d.now


@pytest.mark.parametrize("code", [Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION])
def test_an_evicted_member_learns_it_from_the_sync(code: Code) -> None:
    d = frozen_past_its_lease()
    d.sync_answered(code=code)
    assert d.all(c.SendJoinCommand)
    assert bool(d.all(c.DropCommand)) == (code == Code.UNKNOWN_MEMBER_ID)


def test_a_sync_that_confirms_is_not_waited_for_by_a_join() -> None:
    """Its connection may be silent: the JoinGroup would wait behind it."""
    d = frozen_past_its_lease()
    d.feed(e.LogGapEvent)
    assert d.only(c.SendJoinCommand).fresh
    assert d.sync_answered() == [], "it confirms nothing any more"


def test_a_lost_coordinator_is_looked_up_by_the_sync_that_confirms() -> None:
    d = frozen_past_its_lease()
    d.sync_answered(code=Code.NOT_COORDINATOR)
    assert d.kinds() == ["FindCoordinator"]


def test_behind_the_lease_a_heartbeat_in_a_rebalance_renews_nothing() -> None:
    d = Driver().running(0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.all(c.SendJoinCommand)
    d.now = d.machine.lease_until + 1.0
    d.heartbeat_answered(Code.NONE)
    assert d.machine.lease_until < d.now
    assert not d.all(c.SendSyncCommand), "the JoinGroup on its way tells"


def test_sync_refused_for_good_fails() -> None:
    d = Driver().joining()
    d.join_answered()
    d.sync_answered(code=30)
    assert d.only(c.FailCommand).code == 30


def test_a_map_that_cannot_be_read_is_not_asked_for_again_at_once() -> None:
    d = Driver().joining()
    d.join_answered()
    d.feed(e.SyncAnsweredEvent, sent_at=d.now, attempt=2, generation=1, code=0, answer=None)
    assert d.kinds() == []
    assert d.counted() == ["map_unreadable"]
    assert d.after(0.9) == []
    assert d.after(0.2) == [d.only(c.SendJoinCommand), *d.all(c.AppendCommand)]


def test_sync_without_an_answer_joins_again_on_a_new_connection() -> None:
    d = Driver().joining()
    d.join_answered()
    d.after(10.0)
    assert d.counted() == ["map_unanswered"]
    assert d.only(c.SendJoinCommand).fresh


def test_a_map_made_from_an_earlier_attempt_is_not_used() -> None:
    d = Driver().running(0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    assert d.only(c.SendJoinCommand).attempt == 3
    d.join_answered(generation=2)
    d.sync_answered(assignment=assignment_of(2, OTHER, m1=(), m2=(0,)))  # base_of: from attempt 2
    assert "stale_map" in d.counted()
    assert d.only(c.SendJoinCommand).owned == (P0,)


def test_a_map_without_us_is_not_used() -> None:
    d = Driver().joining()
    d.join_answered()
    d.sync_answered(assignment=assignment_of(1, OTHER, m2=(0, 1)))
    assert "stale_map" in d.counted()


@pytest.mark.parametrize("first", ["answer", "log"])
def test_a_map_in_the_log_is_waited_for(first: str) -> None:
    assignment = assignment_of(1, OTHER, m1=(0,), m2=())
    d = Driver().joining()
    d.join_answered()
    if first == "log":
        d.read(assignment)
        d.sync_answered(assignment_offset=0, partitions=(P0,))
    else:
        d.sync_answered(assignment_offset=0, partitions=(P0,))
        assert d.machine.membership.phase is Phase.READING
        d.read(assignment)
    assert d.kinds() == ["Entered", "FetchCommitted"]


def test_another_map_than_the_one_named_is_not_taken() -> None:
    d = Driver().joining()
    d.join_answered()
    d.sync_answered(assignment_offset=1, partitions=(P0,))
    d.read(assignment_of(1, OTHER, m1=(1,), m2=()))  # of a leader before a failover, at offset 0
    assert d.machine.membership.phase is Phase.READING
    d.read(assignment_of(1, OTHER, m1=(0,), m2=()))
    assert d.only(c.FetchCommittedCommand).partitions == (P0,)


def test_an_assignment_that_is_not_read_in_time_makes_nobody_join_again() -> None:
    """One member that cannot read the log made a rebalance for everybody every two seconds."""
    d = unread()
    assert d.counted() == ["map_unanswered"]
    assert d.kinds() == ["Entered", "FetchCommitted", "SendHeartbeat"]
    assert d.machine.snapshot().assignment is None, "nothing moves for this member"


def unread(leader: str = OTHER) -> Driver:
    """In a generation whose assignment, at offset 0 of the log, was not read in time."""
    d = Driver().joining()
    d.join_answered(leader=leader, members=(joined(ME), joined(OTHER)) if leader == ME else ())
    if leader == ME:
        d.feed(e.AssignmentFoundEvent, assignment=None)
    d.sync_answered(assignment_offset=0, partitions=(P0,), attempts={ME: 2})
    d.after(2.0)
    return d


@pytest.mark.parametrize("leader", [ME, OTHER])
def test_an_assignment_that_is_read_late_completes_the_generation(leader: str) -> None:
    d = unread(leader)
    d.open_all()
    d.read(assignment_of(1, leader, m1=(0,), m2=(1,)))
    assert d.kinds() == ["Entered"], "what is held stays, and nothing is written again"
    d.read(release(1, 1, 0, OTHER, ME))
    assert d.only(c.OpenCommand).partition == P1, "releases come after it, and count"
    d.feed(e.MoveWantedEvent, partition=P0, target=OTHER)
    assert d.counted() == []


def test_another_assignment_of_the_same_generation_completes_nothing() -> None:
    d = unread()
    d.read(HelloRecord(group=GROUP, member=ME, at=0.0))
    d.read(assignment_of(1, OTHER, m1=(1,), m2=()))  # of a leader before a failover: at offset 1
    assert d.kinds() == []
    assert d.machine.snapshot().assignment is None


def test_an_assignment_of_another_attempt_that_is_read_late_ends_the_generation() -> None:
    """What the leader wrote vanished with a failover, and a delayed copy of an earlier leader took its offset.

    The right one never comes, and the leader knows nothing of it: without a rebalance nothing would move again.
    """
    d = unread()
    d.open_all()
    d.read(assignment_of(1, "m9", attempt=7, m1=(0,), m9=()))
    assert d.counted() == ["stale_map"]
    assert d.kinds()[0] == "SendJoin"
    assert d.machine.membership.phase is Phase.JOINING


def test_an_assignment_that_is_read_late_means_nothing_to_a_member_that_joins() -> None:
    d = unread()
    d.open_all()
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    assert d.read(assignment_of(1, OTHER, m1=(0,), m2=(1,))) == []


def test_an_older_leader_does_not_tell_the_attempt_and_the_member_joins_again() -> None:
    d = Driver().joining()
    d.join_answered()
    d.sync_answered(assignment_offset=0, partitions=(P0,))
    d.after(2.0)
    assert d.counted() == ["map_unanswered", "stale_map"]
    assert d.kinds()[0] == "SendJoin"


def not_written(d: Driver, generation: int) -> None:
    """This member leads, and nobody was answered with an assignment."""
    attempt = d.machine.membership.rebalance.attempt
    members = (joined(ME, P0, attempt=attempt), joined(OTHER, attempt=attempt))
    d.join_answered(generation=generation, leader=ME, members=members)
    if d.all(c.ReadAssignmentCommand):
        d.feed(e.AssignmentFoundEvent, assignment=None)
    d.after(1.0)
    d.sync_answered(partitions=(P0, P2), attempts={ME: attempt})


@pytest.mark.parametrize("code", [Code.UNKNOWN_SERVER_ERROR, Code.MESSAGE_TOO_LARGE])
def test_an_assignment_that_is_too_large_for_the_broker_goes_through_the_log_next_time(code: Code) -> None:
    """The broker answers it to every member; each of them failed for good."""
    d = Driver().joining()
    d.join_answered(leader=ME, members=(joined(ME), joined(OTHER)))
    d.feed(e.AssignmentFoundEvent, assignment=None)
    d.sync_answered(code=code)
    assert not d.all(c.FailCommand)
    assert "map_too_large" in d.counted()
    assert d.all(c.SendJoinCommand)
    d.join_answered(generation=2, leader=ME, members=(joined(ME, attempt=3), joined(OTHER, attempt=3)))
    d.feed(e.AssignmentFoundEvent, assignment=None)
    assert isinstance(d.only(c.AppendCommand).record, AssignmentRecord)
    assert not d.all(c.SendSyncCommand)


def test_the_leader_ends_a_generation_without_an_assignment_after_ever_longer_pauses() -> None:
    """It lasted until somebody came or went, and without it there were neither plans nor scaling."""
    d = Driver(inline_limit_bytes=0).joining()
    pauses = []
    for generation in range(1, 10):
        not_written(d, generation)
        entered_at = d.now
        while not d.all(c.SendJoinCommand):
            if d.all(c.SendHeartbeatCommand):
                d.heartbeat_answered(Code.NONE)
            d.after(d.machine.wakeup() - d.now)
        pauses.append(d.now - entered_at)
    assert pauses == pytest.approx([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0])
    d.into(10, leader=OTHER, **{ME: (0,), OTHER: (1,)})
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    not_written(d, 11)
    d.after(1.0)
    assert d.all(c.SendJoinCommand), "one with an assignment begins anew"


def test_only_the_leader_ends_a_generation_without_an_assignment_and_only_with_a_log() -> None:
    follower = Driver().joining()
    follower.join_answered()
    follower.sync_answered(partitions=(P0,), attempts={ME: 2})
    follower.after(5.0)
    assert not follower.all(c.SendJoinCommand)
    leader = Driver(inline_limit_bytes=0).joining()
    not_written(leader, 1)
    leader.feed(e.LogFailedEvent, failed=True)
    leader.after(1.0)
    assert not leader.all(c.SendJoinCommand)
    assert leader.feed(e.LogFailedEvent, failed=False)[0] == leader.only(c.SendJoinCommand)


def test_who_was_told_of_one_attempt_knows_not_all_when_it_leads_next() -> None:
    d = Driver().joining()
    d.join_answered()
    d.sync_answered(partitions=(P0,), attempts={ME: 2})
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=2, leader=ME, members=(joined(ME, P0, attempt=3), joined(OTHER, attempt=3)))
    assert d.kinds() == ["ReadAssignment"]


def test_without_a_map_what_is_given_is_held_and_nothing_moves() -> None:
    d = Driver().joining()
    d.join_answered()
    d.sync_answered(partitions=(P0, P1), attempts={ME: 2, OTHER: 2})
    d.open_all()
    d.feed(e.MoveWantedEvent, partition=P0, target=OTHER)
    assert d.counted() == ["move_not_possible"]
    assert d.machine.partitions.ownership is None


ROUND_TRIP_SECONDS = 0.005


def restarts(d: Driver, seconds: float, answer: Callable[[Driver], object]) -> int:
    """Answer each JoinGroup well and each SyncGroup with ``answer``; how many JoinGroups were sent in this time?"""
    joins, end = 0, d.now + seconds
    while d.now < end:
        if d.all(c.FindCoordinatorCommand):
            d.feed(e.CoordinatorFoundEvent)
        if d.all(c.SendJoinCommand):
            joins += 1
            d.now += ROUND_TRIP_SECONDS
            d.join_answered(generation=d.machine.membership.rebalance.generation + 1)
            d.now += ROUND_TRIP_SECONDS
            answer(d)
        else:
            d.after(max(ROUND_TRIP_SECONDS, d.machine.wakeup() - d.now))
    return joins


@pytest.mark.parametrize(
    "code",
    [
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.REBALANCE_IN_PROGRESS,
        Code.ILLEGAL_GENERATION,
        Code.UNKNOWN_MEMBER_ID,
    ],
)
def test_a_sync_refused_again_and_again_is_not_repeated_all_the_time(code: Code) -> None:
    """A coordinator that cannot store the assignment refuses for as long as its log has too few replicas."""
    d = Driver().joining()
    assert restarts(d, 2.0, lambda d: d.sync_answered(code=code)) <= 8
    assert restarts(d, 60.0, lambda d: d.sync_answered(code=code)) <= 60


def test_stale_assignments_again_and_again_are_not_answered_by_a_rebalance_each_at_once() -> None:
    d = Driver().joining()
    assert restarts(d, 2.0, lambda d: d.sync_answered(partitions=(P0,))) <= 8


def test_a_generation_entered_ends_the_waiting() -> None:
    d = Driver().joining()
    restarts(d, 2.0, lambda d: d.sync_answered(code=Code.COORDINATOR_NOT_AVAILABLE))
    d.after(d.machine.wakeup() - d.now)
    d.into(90, **{ME: (0,), OTHER: ()})
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=91)
    d.sync_answered(code=Code.REBALANCE_IN_PROGRESS)
    assert d.all(c.SendJoinCommand), "the first time it joins at once"


def test_heartbeats_to_brokers_that_do_not_coordinate_come_less_and_less_often() -> None:
    """The lookup may name the broker of before for as long as that one does not know better."""
    d = Driver().running(0)
    heartbeats, end = 0, d.now + 5.0
    d.after(1.0)
    while d.now < end:
        if d.all(c.SendHeartbeatCommand):
            heartbeats += 1
            d.now += ROUND_TRIP_SECONDS
            d.heartbeat_answered(Code.NOT_COORDINATOR)
            d.feed(e.CoordinatorFoundEvent)
        else:
            d.after(max(ROUND_TRIP_SECONDS, d.machine.wakeup() - d.now))
    assert 10 <= heartbeats <= 25, "the lease is not renewed meanwhile: some are sent in each second"
    if not d.all(c.SendHeartbeatCommand):
        d.after(d.machine.wakeup() - d.now)
    d.heartbeat_answered(Code.NONE)
    d.after(1.0)
    assert d.all(c.SendHeartbeatCommand), "the interval counts again"


# -- leading -------------------------------------------------------------------------------------------------------


def test_the_leader_answers_with_the_map_and_writes_it_down() -> None:
    d = Driver().joining()
    d.join_answered(leader=ME, members=(joined(ME), joined("foreign-id")))
    d.feed(e.AssignmentFoundEvent, assignment=None)
    sync = d.only(c.SendSyncCommand)
    assignment = sync.answers[ME].assignment
    assert assignment is not None
    assert assignment.owners() == {P0: "foreign-id", P1: ME, P2: "foreign-id", P3: ME}
    d.sync_answered(assignment=assignment)
    assert d.only(c.AppendCommand).record == assignment


def test_a_leader_without_the_newest_map_asks_the_log_once() -> None:
    d = Driver().joining()
    d.join_answered(leader=ME, members=(joined(ME), joined(OTHER)))
    assert d.kinds() == ["ReadAssignment"]
    d.feed(e.AssignmentFoundEvent, assignment=assignment_of(0, OTHER, m2=(0,)))
    assert d.counted() == ["stale_join"], "the other's JoinGroup was in that map already"
    assert d.only(c.SendJoinCommand).owned == ()
    d.join_answered(generation=2, leader=ME, members=(joined(ME, attempt=3), joined(OTHER, P0, attempt=3)))
    assert d.kinds() == ["ReadAssignment"], "nobody has entered the generation before"
    d.feed(e.AssignmentFoundEvent, assignment=None)
    d.sync_answered(assignment=d.only(c.SendSyncCommand).answers[ME].assignment)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=3, leader=ME, members=(joined(ME, attempt=4), joined(OTHER, P0, attempt=4)))
    assert d.kinds() == ["SendSync"], "it leads since the generation before: it knows all there is"
    assert d.feed(e.AssignmentFoundEvent, assignment=None) == []


def test_what_the_log_told_of_delayed_copies_is_not_forgotten() -> None:
    """Of two old copies the second was believed: by its claims the partitions of today went elsewhere."""
    d = Driver().joining()
    d.join_answered(leader=ME, members=(joined(ME), joined(OTHER, attempt=3)))
    d.feed(e.AssignmentFoundEvent, assignment=assignment_of(0, OTHER, attempt=5, m2=(0,)))
    assert d.counted() == ["stale_join"]
    d.join_answered(generation=2, leader=ME, members=(joined(ME, attempt=3), joined(OTHER, attempt=4)))
    assert d.counted() == ["stale_join"], "4 is not above 5, though above 3"


def test_a_leader_alone_asks_as_well() -> None:
    """It has no JoinGroup to doubt; but what the command line wants outlives a moment without any member."""
    d = Driver().joining()
    d.join_answered(leader=ME, members=(joined(ME),))
    assert d.kinds() == ["ReadAssignment"]
    order = ManualOverrideRecord(group=GROUP, member="cli", at=0.0, action="hold")
    d.feed(e.AssignmentFoundEvent, assignment=None, manual_override=order)
    assignment = d.only(c.SendSyncCommand).answers[ME].assignment
    assert assignment is not None
    assert assignment.manual_override == order
    assert d.machine.snapshot().manual_override == order


HOLD, RESUME = (
    ManualOverrideRecord(group=GROUP, member="cli", at=at, action=action)
    for at, action in ((1.0, "hold"), (2.0, "resume"))
)


def overridden(d: Driver) -> tuple[ManualOverrideRecord | None, bool]:
    """What the assignment that was just made says of the last order."""
    assignment = d.only(c.SendSyncCommand).answers[ME].assignment
    assert assignment is not None
    return assignment.manual_override, assignment.override_known


def test_a_look_that_fails_says_nothing_and_is_made_again() -> None:
    """One answer that was late took the order away for good."""
    d = Driver().joining()
    d.join_answered(leader=ME, members=(joined(ME),))
    d.feed(e.AssignmentFoundEvent, assignment=None, complete=False)
    assert overridden(d) == (None, False)
    d.sync_answered(assignment=d.only(c.SendSyncCommand).answers[ME].assignment)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=2, leader=ME, members=(joined(ME, attempt=3),))
    assert d.only(c.ReadAssignmentCommand).override_only, "it knows the JoinGroups of the generation before"
    d.feed(e.AssignmentFoundEvent, assignment=None, manual_override=HOLD)
    assert overridden(d) == (HOLD, True)


def test_a_look_that_is_answered_too_late_tells_what_was_ordered() -> None:
    d = Driver().joining()
    d.join_answered(leader=ME, members=(joined(ME),))
    d.after(5.0)
    assert overridden(d) == (None, False)
    d.feed(e.AssignmentFoundEvent, assignment=None, manual_override=HOLD)
    assert d.machine.snapshot().manual_override == HOLD


def test_one_that_led_a_mixed_group_has_not_looked_yet() -> None:
    d = Driver().joining()
    d.join_answered(generation=5, leader=ME, protocol="range", members=(joined(ME), joined("foreign")))
    d.sync_answered(partitions=(P0,), attempts={})
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    attempt = d.machine.membership.rebalance.attempt
    d.join_answered(generation=6, leader=ME, members=(joined(ME, attempt=attempt),))
    assert d.all(c.ReadAssignmentCommand)


def test_after_a_gap_the_later_order_counts() -> None:
    """The resumption that was missed was repeated by the assignment, and the group held all the same."""
    d = Driver().running(0)
    d.read(HOLD)
    d.feed(e.LogGapEvent)
    d.join_answered(generation=2)
    made = assignment_of(2, OTHER, 3, **{ME: (0,), OTHER: ()})
    d.sync_answered(assignment=msgspec.structs.replace(made, manual_override=RESUME))
    assert d.machine.snapshot().manual_override == RESUME
    d.feed(e.LogGapEvent)
    d.join_answered(generation=3)
    made = assignment_of(3, OTHER, 4, **{ME: (0,), OTHER: ()})
    d.sync_answered(assignment=msgspec.structs.replace(made, manual_override=HOLD))
    assert d.machine.snapshot().manual_override == RESUME


def test_an_assignment_of_a_leader_that_does_not_know_makes_nobody_know() -> None:
    d = Driver().joining()
    d.join_answered()
    made = assignment_of(1, OTHER, **{ME: (0,), OTHER: ()})
    d.sync_answered(assignment=msgspec.structs.replace(made, override_known=False))
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=2, leader=ME, members=(joined(ME, P0, attempt=3), joined(OTHER, attempt=3)))
    assert d.all(c.ReadAssignmentCommand)


def test_the_log_does_not_answer_and_the_leader_goes_by_the_claims() -> None:
    d = Driver().joining()
    d.join_answered(leader=ME, members=(joined(ME), joined(OTHER, P0, P1)))
    d.after(5.0)
    assert d.only(c.SendSyncCommand).answers[OTHER].partitions == (P0, P1)


def test_a_leader_that_missed_a_generation_does_not_trust_its_own_map() -> None:
    d = Driver().running(0, generation=4)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=6, leader=ME, members=(joined(ME, P0, attempt=3), joined(OTHER, attempt=3)))
    assert d.kinds() == ["ReadAssignment"]
    newer = AssignmentRecord(group=GROUP, member=OTHER, at=0.0, generation=5, members={OTHER: _entry(3)})
    d.feed(e.AssignmentFoundEvent, assignment=newer)
    assert d.counted() == ["stale_join"]


def _entry(attempt: int):  # type: ignore[no-untyped-def]
    return assignment_of(1, m1=()).members[ME].__class__(attempt=attempt, topics=("orders",))


def test_a_delayed_copy_makes_the_leader_join_again() -> None:
    d = Driver().running(0, leader=ME)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=2, leader=ME, members=(joined(ME, P0, attempt=3), joined(OTHER, attempt=2)))
    assert d.counted() == ["stale_join"]
    assert d.only(c.SendJoinCommand).owned == (P0,)


def test_the_leader_asks_for_topics_that_it_does_not_know() -> None:
    d = Driver().joining()
    d.join_answered(leader=ME, members=(joined(ME, topics=("orders", "refunds")),))
    d.feed(e.AssignmentFoundEvent, assignment=None)
    assert d.only(c.FetchTopicsCommand).topics == ("refunds",)
    d.feed(e.TopicsEvent, partitions={"refunds": 1})
    assert d.only(c.SendSyncCommand).answers[ME].partitions == (P0, P1, P2, P3, Partition("refunds", 0))


def test_unknown_topics_are_not_waited_for_for_ever_and_not_forgotten() -> None:
    d = Driver().joining()
    d.join_answered(leader=ME, members=(joined(ME, topics=("orders", "refunds")),))
    d.after(5.0)
    d.sync_answered(assignment=d.only(c.SendSyncCommand).answers[ME].assignment)
    d.feed(e.TopicsEvent, partitions={"refunds": 1})
    assert d.counted() == ["partitions_changed"]
    assert d.all(c.SendJoinCommand)


def test_a_claim_beyond_what_the_leader_knows_makes_it_ask_again() -> None:
    d = Driver().joining()
    beyond = Partition("orders", 5)
    d.join_answered(leader=ME, members=(joined(ME, beyond),))
    d.feed(e.AssignmentFoundEvent, assignment=None)
    assert d.only(c.FetchTopicsCommand).topics == ("orders",)
    d.feed(e.TopicsEvent, partitions={"orders": 6})
    assert beyond in d.only(c.SendSyncCommand).answers[ME].partitions


def test_a_claim_beyond_what_metadata_shows_is_believed_at_first() -> None:
    """A broker that did not know the topic for a moment cost every owner of it its partitions."""
    d = Driver().joining()
    d.feed(e.TopicsEvent, partitions={"orders": 0})
    d.join_answered(leader=ME, members=(joined(ME, P0, P1), joined(OTHER, P2)))
    d.feed(e.AssignmentFoundEvent, assignment=None)
    d.feed(e.TopicsEvent, partitions={"orders": 0})
    answers = d.only(c.SendSyncCommand).answers
    assert (answers[ME].partitions, answers[OTHER].partitions) == ((P0, P1), (P2,))
    assert d.counted() == []


def leading_without_metadata() -> Driver:
    """This member leads and owns what there is, and metadata shows nothing of it any more."""
    d = Driver().joining()
    d.join_answered(leader=ME, members=(joined(ME, P0, P1, P2, P3),))
    d.feed(e.AssignmentFoundEvent, assignment=None)
    d.sync_answered(assignment=d.only(c.SendSyncCommand).answers[ME].assignment)
    d.feed(e.TopicsEvent, partitions={"orders": 0})
    assert not d.all(c.SendJoinCommand)
    return d


def seconds_pass(d: Driver, seconds: int, shown: int) -> list[float]:
    """Answer each question for metadata so, until a JoinGroup is sent; the times of the questions."""
    asked, end = [], d.now + seconds
    while d.now < end and not d.all(c.SendJoinCommand):
        d.after(d.machine.wakeup() - d.now)
        questions = d.all(c.FetchTopicsCommand)
        if d.all(c.SendHeartbeatCommand):
            d.heartbeat_answered(Code.NONE)
        if questions:
            asked.append(d.now)
            d.feed(e.TopicsEvent, partitions={"orders": shown})
    return asked


def test_a_topic_that_metadata_loses_is_asked_for_each_second_and_nothing_moves() -> None:
    d = leading_without_metadata()
    before = d.now
    d.after(0.9)
    assert not d.all(c.FetchTopicsCommand)
    d.after(0.1)
    assert d.only(c.FetchTopicsCommand).topics == ("orders",)
    assert d.machine.wakeup() <= before + 2.0
    assert d.feed(e.TopicsEvent, partitions={"orders": 4}) == [], "it is back"
    assert not d.all(c.SendJoinCommand)
    d.heartbeat_answered(Code.NONE)
    assert seconds_pass(d, 20, shown=4) == []
    assert not d.all(c.SendJoinCommand)


def test_a_topic_that_is_really_gone_is_given_up_after_a_while() -> None:
    d = leading_without_metadata()
    before = d.now
    seconds_pass(d, 60, shown=0)
    assert d.all(c.SendJoinCommand)
    assert 10.0 <= d.now - before <= 11.1
    d.join_answered(generation=2, leader=ME, members=(joined(ME, P0, P1, P2, P3, attempt=3),))
    if d.all(c.FetchTopicsCommand):
        d.feed(e.TopicsEvent, partitions={"orders": 0})
    assert d.counted() == ["void_claim"] * 4
    d.sync_answered(assignment=d.only(c.SendSyncCommand).answers[ME].assignment)
    assert {p.partition for p in (command.partition for command in d.all(c.DropCommand))} <= {0, 1, 2, 3}
    assert d.machine.partitions.assigned == {}
    assert len(seconds_pass(d, 20, shown=0)) <= 1, "nobody asks any more"


def test_who_leads_again_looks_anew() -> None:
    d = leading_without_metadata()
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.into(2, **{ME: (0, 1), OTHER: (2, 3)})
    d.feed(e.TopicsEvent, partitions={"orders": 4})
    d.after(3_600.0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.feed(e.TopicsEvent, partitions={"orders": 0})
    members = (joined(ME, P0, P1, attempt=4), joined(OTHER, P2, P3, attempt=4))
    d.join_answered(generation=3, leader=ME, members=members)
    d.feed(e.TopicsEvent, partitions={"orders": 0})
    assert d.counted() == []
    assert d.only(c.SendSyncCommand).answers[OTHER].partitions == (P2, P3)


def test_only_the_leader_starts_a_barrier_for_new_partitions() -> None:
    follower = Driver().running(0)
    assert follower.feed(e.TopicsEvent, partitions={"orders": 9}) == []
    leader = Driver().running(0, leader=ME)
    leader.feed(e.TopicsEvent, partitions={"orders": 5})
    assert leader.counted() == ["partitions_changed"]
    assert leader.only(c.SendJoinCommand).owned == (P0,)
    assert leader.feed(e.TopicsEvent, partitions={"orders": 6}) == [], "the barrier has begun; one is enough"


def test_partitions_that_appear_while_the_first_map_is_on_its_way() -> None:
    d = Driver().joining()
    d.join_answered(leader=ME, members=(joined(ME),))
    d.feed(e.AssignmentFoundEvent, assignment=None)
    sync = d.only(c.SendSyncCommand)
    d.feed(e.TopicsEvent, partitions={"orders": 5})
    d.sync_answered(assignment=sync.answers[ME].assignment)
    assert d.all(c.SendJoinCommand), "again, for what the map does not have"


def test_claimed_twice_is_given_away_in_the_next_generation() -> None:
    d = Driver().joining()
    d.join_answered(leader=ME, members=(joined(ME), joined("a", P0), joined("b", P0)))
    d.feed(e.AssignmentFoundEvent, assignment=None)
    assert d.counted() == ["contested_claim"]
    d.sync_answered(assignment=d.only(c.SendSyncCommand).answers[ME].assignment)
    assert d.kinds()[:3] == ["Entered", "FetchCommitted", "Append"]
    assert d.all(c.SendJoinCommand)


def test_a_map_that_does_not_fit_goes_through_the_log() -> None:
    d = Driver(inline_limit_bytes=0).joining()
    d.join_answered(leader=ME, members=(joined(ME), joined(OTHER)))
    d.feed(e.AssignmentFoundEvent, assignment=None)
    append = d.only(c.AppendCommand)
    assert isinstance(append.record, AssignmentRecord)
    d.feed(e.AppendedEvent, append=append.append, offset=17)
    answers = d.only(c.SendSyncCommand).answers
    assert {a.assignment_offset for a in answers.values()} == {17}
    assert {a.assignment for a in answers.values()} == {None}
    assert {m: a.attempts for m, a in answers.items()} == {ME: {ME: 2}, OTHER: {OTHER: 2}}
    assert answers[ME].partitions == (P0, P2)


@pytest.mark.parametrize("failure", ["refused", "slow"])
def test_a_map_that_cannot_be_written_moves_nothing(failure: str) -> None:
    d = Driver(inline_limit_bytes=0).joining()
    d.join_answered(leader=ME, members=(joined(ME), joined(OTHER)))
    d.feed(e.AssignmentFoundEvent, assignment=None)
    append = d.only(c.AppendCommand)
    if failure == "slow":
        d.after(1.0)
    else:
        d.feed(e.AppendedEvent, append=append.append, offset=None)
    assert d.counted() == ["map_not_written"]
    answers = d.only(c.SendSyncCommand).answers
    assert answers[OTHER] == e.GroupAnswer(partitions=(P1, P3), attempts={OTHER: 2}), "no others': that would be n x n"
    assert d.feed(e.AppendedEvent, append=append.append, offset=17) == [], "too late"


# -- heartbeats and barriers ---------------------------------------------------------------------------------------


def test_one_heartbeat_at_a_time() -> None:
    d = Driver().running(0)
    d.after(1.0)
    assert d.only(c.SendHeartbeatCommand) == c.SendHeartbeatCommand(member=ME, generation=1)
    assert not Driver.all(d, c.StopCommand)
    d.after(1.0)
    assert not d.all(c.SendHeartbeatCommand)
    d.heartbeat_answered(Code.NONE)
    assert not d.all(c.SendHeartbeatCommand)
    d.after(1.0)
    assert d.all(c.SendHeartbeatCommand)


def test_told_of_a_barrier_it_joins_at_once_and_tells_the_log() -> None:
    d = Driver().running(0, 1)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    assert d.kinds() == ["SendJoin", "Append"]
    assert d.only(c.SendJoinCommand).owned == (P0, P1)
    record = d.only(c.AppendCommand).record
    assert isinstance(record, RejoinRecord)
    assert record.generation == 1
    assert d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS) == [], "while joining it only renews the session"


LARGE = {ME: (0,), OTHER: (1,), **{f"peer{number}": () for number in range(58)}}
"""Sixty members: rebalances half a second apart."""


def hello(member: str) -> HelloRecord:
    return HelloRecord(group=GROUP, member=member, at=0.0, instance="")


def test_in_a_large_group_newcomers_that_follow_closely_join_together() -> None:
    """Five hundred members that are replaced one after the other made five hundred rebalances of five hundred."""
    d = Driver().running(owns=LARGE)
    for number in range(3):
        d.read(hello(f"new{number}"))
        assert d.kinds() == []
    assert d.machine.membership.stable, "until then partitions are handed over"
    assert d.machine.wakeup() <= d.now + 0.5
    d.after(0.49)
    assert not d.all(c.SendJoinCommand)
    d.after(0.02)
    assert d.kinds() == ["SendJoin"], "the log knows already"
    d.after(1.0)
    assert not d.all(c.SendJoinCommand)


def test_in_a_large_group_that_was_quiet_a_newcomer_is_joined_at_once() -> None:
    d = Driver().running(owns=LARGE)
    d.after(2.0)
    d.read(hello("new"))
    assert d.kinds() == ["SendJoin"]


def test_in_a_large_group_what_the_coordinator_tells_waits_as_well_and_a_fence_does_not() -> None:
    d = Driver().running(owns=LARGE)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    assert not d.all(c.SendJoinCommand)
    d.heartbeat_answered(Code.ILLEGAL_GENERATION)
    assert d.only(c.SendJoinCommand).owned == (P0,)


def test_a_rebalance_of_its_own_ends_the_wait_for_the_one_told_of() -> None:
    d = Driver().running(owns=LARGE)
    d.read(hello("new"))
    d.heartbeat_answered(Code.ILLEGAL_GENERATION)
    attempt = d.only(c.SendJoinCommand).attempt
    d.into(2, **LARGE, new=())
    d.after(0.6)
    assert not d.all(c.SendJoinCommand)
    assert d.machine.membership.rebalance.attempt == attempt


def test_told_of_a_barrier_of_an_older_generation_it_does_nothing() -> None:
    d = Driver().running(0, generation=5)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS, generation=4)
    assert d.kinds() == []


def test_fenced_it_joins_again_with_its_claims() -> None:
    d = Driver().running(0)
    d.heartbeat_answered(Code.ILLEGAL_GENERATION)
    assert d.only(c.SendJoinCommand).owned == (P0,)
    assert d.heartbeat_answered(Code.ILLEGAL_GENERATION) == [], "while joining it is ignored"


def test_forgotten_it_owns_nothing_and_takes_a_new_id() -> None:
    d = Driver().running(0)
    d.heartbeat_answered(Code.UNKNOWN_MEMBER_ID)
    assert d.kinds() == ["Drop", "SendJoin"]
    assert d.only(c.SendJoinCommand) == c.SendJoinCommand(
        attempt=3, member="", protocols=(LOADTRIM, *STANDARD_PROTOCOLS), topics=("orders",), owned=()
    )
    assert d.machine.lease_until == 0.0


def test_an_id_given_up_before_means_nothing() -> None:
    d = Driver().running(0)
    d.heartbeat_answered(Code.UNKNOWN_MEMBER_ID, member="an older id")
    assert d.kinds() == []


@pytest.mark.parametrize("answer", ["join", "sync", "commit"])
def test_forgotten_by_any_answer(answer: str) -> None:
    d = Driver().running(0)
    if answer == "commit":
        d.feed(e.CommitWantedEvent, offsets={P0: e.OffsetCommit(acquisition_id=d.acquisition_of(P0), offset=9)})
        d.all(c.SendCommitCommand)
        d.commit_answered(Code.UNKNOWN_MEMBER_ID)
    else:
        d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
        d.join_answered(generation=2, code=Code.UNKNOWN_MEMBER_ID if answer == "join" else Code.NONE)
        if answer == "sync":
            d.sync_answered(code=Code.UNKNOWN_MEMBER_ID)
    assert d.counted() == ["forgotten"]
    assert d.only(c.SendJoinCommand).member == ""


def test_heartbeats_stop_when_the_join_is_not_answered() -> None:
    d = Driver().running(0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    for _ in range(9):
        d.after(1.0)
        assert d.all(c.SendHeartbeatCommand)
        d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.after(1.0)
    assert d.counted() == ["join_unanswered"]
    assert d.only(c.SendJoinCommand).fresh
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    answered_at = d.now
    for _ in range(5):
        d.after(1.0)
        assert not d.all(c.SendHeartbeatCommand), "though none is on its way"
    assert d.machine.lease_until == answered_at + 10.0 - 0.5, "so the lease ends with the session"
    d.join_answered(generation=2)
    assert d.all(c.SendHeartbeatCommand), "until it is answered"


def test_the_lease_runs_from_when_a_heartbeat_was_sent() -> None:
    """Its answer may be two seconds late, which is four times the margin."""
    d = Driver().running(0)
    d.after(1.0)
    sent_at = d.now
    d.now += 2.0
    d.heartbeat_answered(Code.NONE, sent_at=sent_at)
    assert d.machine.lease_until == sent_at + 10.0 - 0.5


def test_a_sync_renews_no_session_and_a_heartbeat_follows_where_the_join_took_long() -> None:
    """From Kafka 4.0 on the coordinator renews no session for a SyncGroup in a stable group."""
    d = Driver().joining()
    sent_at = d.now
    d.now += 3.0
    d.join_answered(sent_at=sent_at)
    assert d.all(c.SendHeartbeatCommand), "at once: the last renewal is longer ago than the interval"
    answer = e.GroupAnswer(assignment=assignment_of(1, OTHER, m1=(0,)))
    d.feed(e.SyncAnsweredEvent, sent_at=d.now, attempt=2, generation=1, code=0, answer=answer)
    assert d.machine.lease_until == sent_at + 10.0 - 0.5
    d.heartbeat_answered(Code.NONE, sent_at=d.now)
    assert d.machine.lease_until == d.now + 10.0 - 0.5


def test_a_member_that_is_forgotten_while_a_retry_is_due_does_not_spin() -> None:
    """The retry of before stayed due: the timer ran some thousand times a second until the next JoinGroup."""
    d = Driver().running(0)
    d.feed(e.CommitWantedEvent, request=0, offsets={P0: e.OffsetCommit(acquisition_id=d.acquisition_of(P0), offset=9)})
    d.all(c.SendCommitCommand)
    d.heartbeat_answered(Code.UNKNOWN_MEMBER_ID)
    d.join_answered(code=Code.MEMBER_ID_REQUIRED, member=ME)
    d.join_answered(code=Code.COORDINATOR_LOAD_IN_PROGRESS)
    d.commit_answered(Code.UNKNOWN_MEMBER_ID)
    assert not d.all(c.SendJoinCommand), "the second time in a row it is held back"
    assert d.machine.membership.rebalance.retry_at == float("inf")


def test_the_entry_runs_from_when_the_sync_was_sent() -> None:
    """Its answer may wait for the leader, and for a rebalance that this member is not in."""
    d = Driver(session_timeout=60.0, rebalance_timeout=120.0).joining()
    joined_at = d.now
    d.join_answered(sent_at=joined_at)
    d.now += 1.0
    synced_at = d.now
    d.now += 2.0
    answer = e.GroupAnswer(assignment=assignment_of(1, OTHER, m1=(0,)))
    d.feed(e.SyncAnsweredEvent, sent_at=synced_at, attempt=2, generation=1, code=0, answer=answer)
    for _ in range(4):
        d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS, sent_at=synced_at + 80.0)
    assert d.machine.lease_until == synced_at + 120.0 - 3.0
    assert joined_at < synced_at


def test_the_lease_ends_with_the_barrier_that_waits_for_us() -> None:
    d = Driver(rebalance_timeout=30.0).running(0)
    entered = d.now
    for _ in range(14):
        d.after(1.0)
        d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    assert d.machine.lease_until == pytest.approx(entered + 14.0 + 10.0 - 0.5)
    d.after(1.0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS, sent_at=entered + 25.0)
    assert d.machine.lease_until == entered + 30.0 - 0.5


def test_a_lost_coordinator_is_looked_up_once() -> None:
    d = Driver().running(0)
    d.after(1.0)
    assert d.heartbeat_answered(Code.DISCONNECTED) == [c.FindCoordinatorCommand()]
    assert d.heartbeat_answered(Code.DISCONNECTED) == []
    assert d.after(5.0) == [], "no heartbeats to nobody"
    d.feed(e.CoordinatorFoundEvent)
    assert d.kinds() == ["SendHeartbeat"]


def test_behind_a_takeover_the_leader_has_all_join_again() -> None:
    """The coordinator knew our protocol alone, and refused plain consumers until the group's next rebalance.

    Members that ended with the broker are evicted first: a rebalance would wait for them, and nothing moves meanwhile.
    """
    d = taken_over(Driver().running(0, leader=ME))
    assert d.kinds() == ["SendHeartbeat"]
    assert heartbeats(d, SESSION_SECONDS - 0.1) <= {"SendHeartbeat"}
    d.after(0.1)
    join = d.only(c.SendJoinCommand)
    assert isinstance(d.only(c.AppendCommand).record, RejoinRecord), "the others join at once"
    assert "range" in join.protocols
    assert join.owned == (P0,)
    assert not d.all(c.StopCommand), "what is owned goes on"
    enter(d)
    assert heartbeats(d, 2 * SESSION_SECONDS) == {"SendHeartbeat"}, "once is enough"


@pytest.mark.parametrize(("leader", "another"), [(OTHER, True), (ME, False)])
def test_one_rebalance_behind_a_takeover_is_enough_and_a_connection_that_broke_is_none(
    leader: str, *, another: bool
) -> None:
    d = taken_over(Driver().running(0, leader=leader), another=another)
    assert heartbeats(d, 2 * SESSION_SECONDS) == {"SendHeartbeat"}


def test_a_rebalance_that_comes_by_itself_behind_a_takeover_is_enough() -> None:
    d = taken_over(Driver().running(0, leader=ME))
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    enter(d)
    assert heartbeats(d, 2 * SESSION_SECONDS) == {"SendHeartbeat"}


def test_a_join_that_was_sent_to_the_coordinator_before_is_not_enough() -> None:
    d = Driver().running(0, leader=ME)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    sent_at = d.now
    d.after(0.1)
    d.feed(e.CommitAnsweredEvent, commit=99, member=ME, generation=1, codes={P0: Code.COORDINATOR_LOAD_IN_PROGRESS})
    enter(d, sent_at=sent_at)
    assert "SendJoin" in heartbeats(d, SESSION_SECONDS)


def test_a_leader_that_leaves_has_nobody_join_for_a_takeover() -> None:
    d = Driver().running(0, leader=ME)
    d.feed(e.LeaveWantedEvent, deadline=d.now + 60.0, release=True)
    taken_over(d)
    assert "SendJoin" not in heartbeats(d, 2 * SESSION_SECONDS)


def test_a_commit_to_a_coordinator_that_loads_tells_of_a_takeover() -> None:
    """The same broker again, say, which a lookup does not show; a heartbeat is answered blindly meanwhile."""
    d = Driver().running(0, leader=ME)
    d.feed(e.CommitWantedEvent, offsets={P0: e.OffsetCommit(acquisition_id=d.acquisition_of(P0), offset=9)})
    d.all(c.SendCommitCommand)
    d.commit_answered(Code.COORDINATOR_LOAD_IN_PROGRESS)
    assert "SendJoin" in heartbeats(d, SESSION_SECONDS)


def taken_over(d: Driver, *, another: bool = True) -> Driver:
    """The coordinator is lost, and found again: at another broker, or where it was."""
    d.heartbeat_answered(Code.DISCONNECTED)
    d.kinds()
    d.feed(e.CoordinatorFoundEvent, taken_over=another)
    return d


def heartbeats(d: Driver, seconds: float) -> set[str]:
    """Let time pass, with every heartbeat answered; return the kinds of what the member has done meanwhile."""
    done = set[str]()
    for step in (*[0.5] * int(seconds / 0.5), seconds % 0.5):
        d.heartbeat_answered(Code.NONE)
        done |= set(d.kinds())
        d.after(step)
        done |= set(d.kinds())
    return done


def enter(d: Driver, **answer: float) -> None:
    """The JoinGroup is answered, this member leads, and it enters the next generation with what it had."""
    d.join_answered(
        generation=2,
        leader=ME,
        members=(joined(ME, P0, attempt=d.machine.membership.rebalance.attempt), joined(OTHER, attempt=3)),
        **answer,
    )
    d.sync_answered(assignment=d.only(c.SendSyncCommand).answers[ME].assignment)
    assert d.machine.membership.stable


def test_a_commit_refused_for_a_barrier_makes_it_look_at_once() -> None:
    d = Driver().running(0)
    d.feed(e.CommitWantedEvent, offsets={P0: e.OffsetCommit(acquisition_id=d.acquisition_of(P0), offset=9)})
    d.all(c.SendCommitCommand)
    d.commit_answered(Code.REBALANCE_IN_PROGRESS)
    assert d.kinds() == ["SendHeartbeat"]


def test_a_fenced_commit_makes_it_join_again() -> None:
    d = Driver().running(0)
    d.feed(e.CommitWantedEvent, offsets={P0: e.OffsetCommit(acquisition_id=d.acquisition_of(P0), offset=9)})
    d.all(c.SendCommitCommand)
    d.commit_answered(Code.ILLEGAL_GENERATION)
    assert d.only(c.SendJoinCommand).owned == (P0,)


def test_a_commit_of_an_older_id_means_nothing() -> None:
    d = Driver().running(0)
    d.feed(e.CommitAnsweredEvent, commit=99, member="an older id", generation=1, codes={P0: Code.UNKNOWN_MEMBER_ID})
    assert d.kinds() == []


def test_heartbeats_go_on_while_the_leader_does_not_assign() -> None:
    """A leader that dies before its SyncGroup holds everybody up for its session: all leases ended before."""
    d = Driver().running(0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=2)
    joined_at = d.now
    for _ in range(9):
        d.after(1.0)
        assert d.only(c.SendHeartbeatCommand) == c.SendHeartbeatCommand(member=ME, generation=2)
        d.heartbeat_answered(Code.NONE, generation=2)
    assert d.machine.lease_until == joined_at + 9.0 + 10.0 - 0.5
    d.sync_answered(code=Code.REBALANCE_IN_PROGRESS)
    assert d.all(c.SendJoinCommand)


def test_while_the_leader_does_not_assign_heartbeats_prove_no_generation() -> None:
    d = Driver(rebalance_timeout=20.0).running(0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    joined_at = d.now
    d.join_answered(generation=2)
    for _ in range(5):
        d.after(1.0)
        d.heartbeat_answered(Code.NONE, generation=2, sent_at=d.machine.lease_until - 0.01)
    assert d.machine.lease_until == joined_at + 20.0 - 0.5, "E stays where it was"


def test_a_generation_that_is_never_entered_keeps_the_lease() -> None:
    """Its leader died before it assigned, and the next rebalance waits for one more that is dead."""
    d = Driver(rebalance_timeout=20.0).running(0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=2)
    for _ in range(8):
        d.after(1.0)
        d.heartbeat_answered(Code.NONE, generation=2)
    answered_at = d.now
    d.sync_answered(code=Code.REBALANCE_IN_PROGRESS)
    for _ in range(9):
        d.after(1.0)
        assert d.only(c.SendHeartbeatCommand).generation == 2, "the one that the coordinator counts the member to"
        d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS, generation=2)
    assert d.machine.lease_until == answered_at + 9.0 + 10.0 - 0.5


def test_a_generation_that_a_failover_forgets_is_told_no_more() -> None:
    """It is stored with its assignment. The coordinator after it knows the one before, whose barrier waits for all."""
    d = Driver(rebalance_timeout=20.0).running(0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=2)
    d.sync_answered(code=Code.ILLEGAL_GENERATION)
    d.after(1.0)
    assert d.only(c.SendHeartbeatCommand).generation == 2
    d.heartbeat_answered(Code.ILLEGAL_GENERATION, generation=2)
    for _ in range(8):
        assert d.only(c.SendHeartbeatCommand).generation == 1
        d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS, generation=1)
        renewed_at = d.now
        d.after(1.0)
    assert d.machine.lease_until == renewed_at + 10.0 - 0.5


def test_a_heartbeat_after_the_end_of_the_lease_tells_nothing_of_a_rebalance() -> None:
    d = Driver(rebalance_timeout=20.0).running(0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    joined_at = d.now
    d.join_answered(generation=2)
    d.after(9.8)
    d.heartbeat_answered(Code.NONE, generation=2)
    d.sync_answered(code=Code.REBALANCE_IN_PROGRESS)
    d.after(1.0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS, generation=2)
    assert d.machine.lease_until == joined_at + 20.0 - 0.5


@pytest.mark.parametrize("code", [Code.REBALANCE_IN_PROGRESS, Code.ILLEGAL_GENERATION])
def test_the_answer_to_the_sync_decides_not_a_heartbeat(code: Code) -> None:
    d = Driver().running(0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=2)
    d.after(1.0)
    d.heartbeat_answered(code, generation=2)
    assert d.machine.membership.phase is Phase.SYNCING
    d.after(1.0)
    d.heartbeat_answered(Code.UNKNOWN_MEMBER_ID, generation=2)
    assert d.counted() == ["forgotten"]


def test_no_commit_is_sent_while_the_leader_does_not_assign() -> None:
    d = Driver().running(0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=2)
    d.feed(e.CommitWantedEvent, offsets={P0: e.OffsetCommit(acquisition_id=d.acquisition_of(P0), offset=9)})
    assert not d.all(c.SendCommitCommand)


# -- what the log says (rule 11) -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        HelloRecord(group=GROUP, member="new", at=0.0),
        RejoinRecord(group=GROUP, member=OTHER, at=0.0, generation=1),
        LeftRecord(group=GROUP, member=OTHER, at=0.0, generation=1),
    ],
    ids=["hello", "rejoin", "left"],
)
def test_who_reads_of_a_barrier_joins_at_once(record) -> None:  # type: ignore[no-untyped-def]
    """Asking by heartbeat first would cost every member a round trip, all at the same time."""
    d = Driver().running(0)
    d.read(record)
    assert d.kinds() == ["SendJoin"], "and does not tell the log what it has from there"


@pytest.mark.parametrize(
    "record",
    [
        HelloRecord(group=GROUP, member="new", at=0.0),
        RejoinRecord(group=GROUP, member=OTHER, at=0.0, generation=2),
    ],
    ids=["a hello that no map followed", "a rejoin of the next generation"],
)
def test_a_hint_of_a_barrier_makes_everybody_heartbeat_at_once_and_a_few_times_more(record) -> None:  # type: ignore[no-untyped-def]
    d = Driver().running(0)
    if isinstance(record, HelloRecord):
        d.machine.membership.session._announcements.announce(record.member, here=True)
    d.read(record)
    assert d.kinds() == ["SendHeartbeat"]
    for gap in BURST_GAPS_SECONDS:
        d.heartbeat_answered(Code.NONE)
        assert d.machine.wakeup() == pytest.approx(d.now + gap)
        d.after(gap)
        assert d.kinds() == ["SendHeartbeat"]
    d.heartbeat_answered(Code.NONE)
    assert d.machine.wakeup() == pytest.approx(d.now + 1.0)


def test_a_hello_that_overtook_its_joingroup_is_looked_for_after_the_barrier_without_it() -> None:
    d = Driver().running(0)
    d.read(HelloRecord(group=GROUP, member="new", at=0.0))
    d.into(2, **{ME: (0,), OTHER: (1,)})
    assert "SendHeartbeat" in d.kinds()
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    assert "SendJoin" in d.kinds()


def test_a_hello_that_the_next_map_shows_is_over() -> None:
    d = Driver().running(0)
    d.read(HelloRecord(group=GROUP, member="new", at=0.0))
    d.into(2, **{ME: (0,), OTHER: (1,), "new": ()})
    assert "SendHeartbeat" not in d.kinds()
    assert d.read(HelloRecord(group=GROUP, member="new", at=0.0)) == []


def test_who_never_came_is_looked_for_after_one_map_only() -> None:
    """A pod that could not get in once would cost every member seven heartbeats at each later barrier."""
    d = Driver().running(0)
    d.read(HelloRecord(group=GROUP, member="gone", at=0.0))
    d.into(2, **{ME: (0,), OTHER: (1,)})
    assert "SendHeartbeat" in d.kinds()
    d.heartbeat_answered(Code.NONE)
    d.read(HelloRecord(group=GROUP, member="new", at=0.0))
    d.into(3, **{ME: (0,), OTHER: (1,), "new": ()})
    assert "SendHeartbeat" not in d.kinds()
    d.read(HelloRecord(group=GROUP, member="gone", at=0.0))
    assert d.kinds() == ["SendHeartbeat"], "the same again starts no barrier"


def test_who_says_hello_and_never_comes_takes_no_memory_for_ever() -> None:
    heard = Announcements()
    for number in range(3 * KEPT_MAX):
        assert heard.announce(f"pod-{number}", here=True)
        if number % 100 == 0:
            heard.unseen({ME})
    assert len(heard._here) == KEPT_MAX
    assert not heard.announce(f"pod-{3 * KEPT_MAX - 1}", here=True)
    assert heard.unseen({ME})
    assert not heard.unseen({ME})


def test_who_left_while_we_joined_and_is_in_the_map_is_looked_for() -> None:
    """Without it the others would learn of the barrier at their next regular heartbeat, seconds later."""
    d = Driver().running(0)
    d.read(HelloRecord(group=GROUP, member="new", at=0.0))
    d.read(LeftRecord(group=GROUP, member=OTHER, at=0.0, generation=1))
    d.into(2, **{ME: (0,), OTHER: (1,), "new": ()})
    assert "SendHeartbeat" in d.kinds()


def test_whose_generation_ended_before_it_was_in_joins_when_it_is() -> None:
    """Without it the barrier waits for its next regular heartbeat, which tells it seconds later."""
    d = Driver().running(0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=2)
    d.read(RejoinRecord(group=GROUP, member=OTHER, at=0.0, generation=2))
    d.sync_answered(assignment=assignment_of(2, OTHER, attempt=3, m1=(0,), m2=(1,)))
    assert d.machine.membership.generation == 2
    assert "SendJoin" in d.kinds()
    assert "Append" not in d.kinds(), "the log says so already"


def test_who_was_told_by_the_log_does_not_tell_it_again() -> None:
    d = Driver().running(0)
    d.read(RejoinRecord(group=GROUP, member=OTHER, at=0.0, generation=2))
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    assert d.kinds() == ["SendJoin"]


@pytest.mark.parametrize(
    "record",
    [
        HelloRecord(group=GROUP, member=ME, at=0.0),
        RejoinRecord(group=GROUP, member=OTHER, at=0.0, generation=0),
        RejoinRecord(group=GROUP, member=ME, at=0.0, generation=1),
    ],
    ids=["own hello", "older generation", "own rejoin"],
)
def test_no_hint(record) -> None:  # type: ignore[no-untyped-def]
    d = Driver().running(0)
    assert d.read(record) == []


def test_a_silent_member_makes_the_others_look_for_its_eviction() -> None:
    d = Driver(heartbeat_interval=20.0, session_timeout=60.0, rebalance_timeout=120.0).running(0)
    d.after(3.0)
    assert d.machine.wakeup() == pytest.approx(d.now + 0.25)
    d.after(0.25)
    assert d.kinds() == ["SendHeartbeat"]
    d.heartbeat_answered(Code.NONE)
    assert d.machine.wakeup() == pytest.approx(d.now + 0.25)
    d.read(LoadRecord(group=GROUP, member=OTHER, at=0.0, generation=1))
    d.after(0.25)
    d.heartbeat_answered(Code.NONE)
    d.after(2.0)
    assert d.kinds() == [], "it was heard of again"


def test_leaving_members_are_given_nothing() -> None:
    d = Driver().running(0, 1)
    d.read(LeavingRecord(group=GROUP, member=OTHER, at=0.0, generation=1))
    d.feed(e.MoveWantedEvent, partition=P0, target=OTHER)
    assert d.counted() == ["move_not_possible"]


def test_the_answer_to_an_earlier_sync_is_not_entered() -> None:
    """Its assignment is of a rebalance that was given up: others are in a later one."""
    d = Driver().joining()
    d.join_answered()
    earlier = d.machine.membership.rebalance.attempt
    d.after(10.0)
    assert d.only(c.SendJoinCommand).fresh
    d.join_answered(generation=2)
    answer = e.GroupAnswer(assignment=assignment_of(1, attempt=earlier, m1=(0,), m2=()))
    d.feed(e.SyncAnsweredEvent, sent_at=d.now, attempt=earlier, generation=1, code=0, answer=answer)
    assert d.out == []
    assert d.machine.membership.phase is Phase.SYNCING
    d.sync_answered(assignment=assignment_of(2, attempt=earlier + 1, m1=(0,), m2=()))
    assert d.machine.snapshot().generation == 2


@pytest.mark.parametrize(("before", "stale"), [(2, True), (1, False)])
def test_an_assignment_that_never_came_into_force_shows_copies_too(before: int, *, stale: bool) -> None:
    """Behind a failover its number came again. It hid the newest one, and a copy took a partition from its owner."""
    d = Driver().joining()
    d.join_answered(leader=ME, members=(joined(ME), joined(OTHER)))
    d.feed(e.AssignmentFoundEvent, assignment=assignment_of(1, "gone", attempt=before, **{OTHER: (0,)}))
    assert d.counted() == ["stale_join"] * stale
    assert d.kinds() == (["SendJoin", "Append"] if stale else ["SendSync"])


def test_the_answers_are_as_large_as_there_are_members() -> None:
    """The broker keeps the answers of all members in one record: it is their sum that must fit."""
    inline = Driver(inline_limit_bytes=10_000).joining()
    members = tuple(joined(member) for member in (ME, OTHER, "m3"))
    inline.join_answered(leader=ME, members=members)
    inline.feed(e.AssignmentFoundEvent, assignment=None)
    assignment = inline.only(c.SendSyncCommand).answers[ME].assignment
    assert assignment is not None
    d = Driver(inline_limit_bytes=2 * len(encode(assignment))).joining()
    d.join_answered(leader=ME, members=members)
    d.feed(e.AssignmentFoundEvent, assignment=None)
    assert isinstance(d.only(c.AppendCommand).record, AssignmentRecord), "it goes through the log"


def test_a_heartbeat_that_was_refused_renews_nothing() -> None:
    """The coordinator's clock for the member runs on, so the member's must as well."""
    d = Driver().running(0)
    until = d.machine.lease_until
    d.after(1.0)
    d.heartbeat_answered(Code.ILLEGAL_GENERATION)
    assert d.machine.lease_until == until
    assert d.all(c.SendJoinCommand)


def test_the_shell_is_told_when_the_lease_is_gone() -> None:
    """It would go on delivering what it has until the time it was told last."""
    d = Driver().running(0)
    d.heartbeat_answered(Code.UNKNOWN_MEMBER_ID)
    assert d.only(c.LeaseCommand).until == 0.0
