"""Leaving (rule 11), and topics that are not subscribed any more (rule 5)."""

from __future__ import annotations

from typing import Any

import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.assigned_partition import AssignedState
from loadtrim_agent.protocol.counters import ProtocolCount
from loadtrim_agent.protocol.group_config import Code
from loadtrim_agent.wire.ownership_records import (
    AssignmentRecord,
    LeavingRecord,
    LeftRecord,
    LoadRecord,
    MemberEntry,
    MovePlan,
    PlanRecord,
    ReleaseRecord,
)
from sim.driver import GROUP, ME, OTHER, Driver

P0, P1 = Partition("orders", 0), Partition("orders", 1)
R0 = Partition("refunds", 0)
TOPIC_AUTHORIZATION_FAILED = 29


def leave(d: Driver, *, seconds: float = 20.0, release: bool = True) -> list[c.Command]:
    return d.feed(e.LeaveWantedEvent, deadline=d.now + seconds, release=release)


def appended(d: Driver, kind: type) -> list[object]:
    return [command.record for command in d.all(c.AppendCommand) if isinstance(command.record, kind)]


def give(d: Driver, partition: Partition, done: int | None = None) -> None:
    """Let one handoff go through."""
    d.drained(partition, done)
    (record,) = appended(d, ReleaseRecord)
    d.read(record)  # type: ignore[arg-type]


# -- leaving -------------------------------------------------------------------------------------------------------


def test_leaving_says_so_gives_everything_away_and_leaves() -> None:
    d = Driver().running(0, 1)
    leave(d)
    assert isinstance(d.all(c.AppendCommand)[0].record, LeavingRecord)
    assert d.kinds() == ["Append", "Stop", "Stop"]
    give(d, P0)
    give(d, P1)
    assert d.kinds() == ["Drop", "Append", "SendLeave"]
    assert isinstance(d.only(c.AppendCommand).record, LeftRecord)
    assert d.feed(e.LeaveAnsweredEvent) == [c.LeftCommand()]
    assert d.machine.lease_until == 0.0
    assert d.machine.wakeup() == float("inf")


def test_nothing_is_released_to_a_member_that_has_fallen_silent() -> None:
    """The partition would have no owner until the dead one's session is over."""
    d = Driver().running(0, owns={ME: (0,), OTHER: (), "m3": ()})
    d.read(LoadRecord(group=GROUP, member=OTHER, at=0.0, generation=1, slack=9.0))
    d.after(2.0)
    d.read(LoadRecord(group=GROUP, member="m3", at=0.0, generation=1, slack=0.1))
    d.after(1.0)
    leave(d)
    assert d.machine.partitions.assigned[P0].target == "m3"


def test_a_plan_moves_nothing_to_a_member_that_has_fallen_silent() -> None:
    d = Driver().running(0, owns={ME: (0,), OTHER: ()})
    d.after(3.0)
    d.feed(e.MoveWantedEvent, partition=P0, target=OTHER)
    assert d.counted() == ["move_not_possible"]
    d.read(LoadRecord(group=GROUP, member=OTHER, at=0.0, generation=1))
    d.feed(e.MoveWantedEvent, partition=P0, target=OTHER)
    assert d.counted() == []


def test_the_receiver_is_who_the_plan_says_else_who_has_most_slack() -> None:
    d = Driver().running(0, 1, owns={ME: (0, 1), "m2": (), "m3": ()})
    for member, slack in (("m2", 0.2), ("m3", 0.8)):
        d.read(LoadRecord(group=GROUP, member=member, at=0.0, generation=1, slack=slack))
    moves = (
        MovePlan(topic="orders", partition=0, source=ME, target="m2"),
        MovePlan(topic="orders", partition=1, source=ME, target="gone"),
    )
    d.read(PlanRecord(group=GROUP, member=OTHER, at=0.0, generation=1, sequence=1, moves=moves))
    d.feed(e.CommitWantedEvent, offsets={})
    d.idle_point(P0, done=None)
    assert d.kinds() == ["Stop"]
    d.after(0.1)
    leave(d)
    assigned = d.machine.partitions.assigned
    assert (assigned[P0].target, assigned[P1].target) == ("m2", "m3")


def test_a_move_of_the_plan_that_was_dropped_is_still_where_a_leaver_gives_the_partition() -> None:
    d = Driver().running(0, owns={ME: (0,), "m2": (), "m3": ()})
    for member, slack in (("m2", 0.2), ("m3", 0.8)):
        d.read(LoadRecord(group=GROUP, member=member, at=0.0, generation=1, slack=slack))
    moves = (MovePlan(topic="orders", partition=0, source=ME, target="m2"),)
    d.read(PlanRecord(group=GROUP, member=OTHER, at=0.0, generation=1, sequence=1, moves=moves))
    for failed in (True, False):
        d.feed(e.LogFailedEvent, failed=failed)
    assert d.machine.partitions.assigned[P0].state is AssignedState.RUNNING
    leave(d)
    assert d.machine.partitions.assigned[P0].target == "m2", "though m3 has more slack"


def test_a_plan_counts_once_and_in_its_generation_only() -> None:
    d = Driver().running(0, 1)
    move = (MovePlan(topic="orders", partition=0, source=ME, target=OTHER),)
    for generation in (0, 2):
        plan = PlanRecord(group=GROUP, member=OTHER, at=0.0, generation=generation, sequence=5, moves=move)
        assert d.read(plan) == []
    d.read(PlanRecord(group=GROUP, member=OTHER, at=0.0, generation=1, sequence=2))
    assert d.read(PlanRecord(group=GROUP, member=OTHER, at=0.0, generation=1, sequence=2, moves=move)) == []
    assert d.machine.plan.record is not None


def test_with_nobody_to_give_to_it_commits_and_leaves_the_rest_to_the_map() -> None:
    d = Driver().running(0, owns={ME: (0,)})
    leave(d)
    d.drained(P0, 9)
    assert d.only(c.SendCommitCommand).offsets == {P0: (9, "")}
    d.commit_answered()
    assert d.kinds() == ["Drop", "Append", "SendLeave"]


def test_without_the_log_too() -> None:
    d = Driver().running(0)
    d.feed(e.LogFailedEvent, failed=True)
    leave(d)
    assert d.kinds() == ["Stop"], "said to nobody"
    d.drained(P0, 9)
    d.all(c.SendCommitCommand)
    d.commit_answered()
    assert d.kinds() == ["Drop", "SendLeave"]


def test_a_last_commit_that_is_refused_for_good_holds_nobody_up() -> None:
    d = Driver().running(0, owns={ME: (0,)})
    leave(d)
    d.drained(P0, 9)
    d.all(c.SendCommitCommand)
    d.commit_answered(29)  # type: ignore[arg-type]
    assert "SendLeave" in d.kinds()


def test_the_drain_time_is_over() -> None:
    d = Driver().running(0, 1)
    leave(d, seconds=5.0)
    d.drained(P1, 9)
    d.all(c.SendCommitCommand)
    d.after(5.0)
    assert "GatherCommits" in d.kinds(), "P0 is still in user code's hands"
    d.feed(e.CommitWantedEvent, offsets={P0: e.OffsetCommit(acquisition_id=d.acquisition_of(P0), offset=6)})
    d.after(0.9)
    assert "SendLeave" not in d.kinds()
    d.after(0.1)
    assert d.kinds()[-2:] == ["Append", "SendLeave"]
    assert {x.partition for x in d.all(c.DropCommand)} == {P0, P1}, "dropped before anybody else may have it"


def test_what_runs_at_the_deadline_is_stopped_before_the_last_commit() -> None:
    d = Driver().running(0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    leave(d, seconds=3.0)
    assert d.kinds() == [], "not during a barrier"
    d.after(3.0)
    assert d.kinds() == ["SendHeartbeat", "Stop", "GatherCommits"]
    d.drained(P0, 9)
    d.all(c.SendCommitCommand)
    d.commit_answered()
    assert d.kinds() == ["Drop", "Append", "SendLeave"]


def test_giving_nothing_away() -> None:
    d = Driver().running(0)
    leave(d, release=False)
    assert d.kinds() == ["Append", "Stop", "GatherCommits"]
    d.drained(P0, None)
    assert d.kinds() == ["Drop", "Append", "SendLeave"]


def test_a_second_signal_shortens_the_first() -> None:
    d = Driver().running(0)
    leave(d)
    assert leave(d, release=False) == [c.GatherCommitsCommand()]


def test_leaving_before_having_joined() -> None:
    d = Driver()
    leave(d)
    assert d.kinds() == ["Left"]
    d = Driver().joining()
    leave(d)
    assert d.kinds() == ["Append", "SendLeave"], "the broker knows the id"


def test_leaving_is_said_again_in_every_generation() -> None:
    d = Driver().running(0)
    leave(d)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=2)
    d.sync_answered(partitions=(P0,), attempts={ME: 3, OTHER: 3})
    assert len(appended(d, LeavingRecord)) == 1


def test_what_was_not_opened_yet_is_left_to_the_map() -> None:
    d = Driver().entered()
    leave(d)
    assert d.kinds() == ["Append", "Drop", "Drop", "Append", "SendLeave"]


def test_after_it_has_left_nothing_brings_it_back() -> None:
    d = Driver().running(0)
    d.feed(e.CommitWantedEvent, offsets={P0: e.OffsetCommit(acquisition_id=d.acquisition_of(P0), offset=6)})
    d.all(c.SendCommitCommand)
    leave(d, seconds=0.0)
    d.after(1.0)
    assert "SendLeave" in d.kinds()
    d.commit_answered(Code.UNKNOWN_MEMBER_ID)
    assert d.out == []
    assert d.heartbeat_answered(Code.UNKNOWN_MEMBER_ID) == []
    assert d.feed(e.LogGapEvent) == [c.CountCommand(what=ProtocolCount.LOG_GAP)]


def test_coming_back_in_the_same_process_numbers_on() -> None:
    d = Driver().running(0, 1)
    leave(d, seconds=0.0)
    d.after(1.0)
    d.feed(e.LeaveAnsweredEvent)
    late = {
        "sent_at": d.now,
        "attempt": d.machine.membership.rebalance.attempt,
        "code": 0,
        "member": ME,
        "generation": 1,
    }
    d.machine = d.machine.successor()
    d.feed(e.StartEvent)
    d.feed(e.CoordinatorFoundEvent)
    assert d.only(c.SendJoinCommand).member == ""
    assert d.feed(e.JoinAnsweredEvent, **late) == [], "meant for the one before"
    d.join_answered(code=Code.MEMBER_ID_REQUIRED, member="m9")
    d.join_answered(member="m9")
    d.sync_answered(partitions=(P0,), attempts={"m9": d.machine.membership.rebalance.attempt})
    assert d.acquisition_of(P0) == 3


# -- subscriptions -------------------------------------------------------------------------------------------------


def both_topics(others: tuple[str, ...] = ("orders", "refunds")) -> Driver:
    """Everything is mine; the other subscribes ``others``."""
    d = Driver(topics=("orders", "refunds"))
    d.joining()
    d.join_answered()
    mine = MemberEntry(attempt=2, topics=("orders", "refunds"), owns=(("orders", (0,)), ("refunds", (0,))))
    members = {ME: mine, OTHER: MemberEntry(attempt=2, topics=others)}
    d.sync_answered(assignment=AssignmentRecord(group=GROUP, member=OTHER, at=0.0, generation=1, members=members))
    d.open_all()
    d.feed(e.TickEvent)
    return d


def test_a_new_topic_is_told_at_once() -> None:
    d = Driver().running(0)
    d.feed(e.SubscriptionEvent, topics=("orders", "refunds"))
    assert d.only(c.SendJoinCommand).topics == ("orders", "refunds")
    assert d.feed(e.SubscriptionEvent, topics=("orders", "refunds")) == []


def test_a_topic_that_ends_is_given_away_first_and_told_when_nothing_is_held() -> None:
    d = both_topics()
    d.feed(e.SubscriptionEvent, topics=("orders",))
    assert d.kinds() == ["Stop"], "and no JoinGroup: whoever did not claim it would be two"
    give(d, R0)
    assert d.kinds()[:2] == ["Drop", "SendJoin"]
    assert d.only(c.SendJoinCommand).topics == ("orders",)
    assert d.only(c.SendJoinCommand).owned == (P0,)


def test_a_topic_that_ends_and_that_nobody_may_have_is_committed_and_put_down() -> None:
    d = both_topics(others=("orders",))
    d.feed(e.SubscriptionEvent, topics=("orders",))
    d.drained(R0, 9)
    d.all(c.SendCommitCommand)
    d.commit_answered()
    assert d.only(c.SendJoinCommand) == c.SendJoinCommand(
        attempt=3, member=ME, protocols=("loadtrim", "roundrobin", "range"), topics=("orders",), owned=(P0,)
    )


def test_a_topic_that_ends_takes_as_long_as_user_code_does() -> None:
    d = both_topics()
    d.feed(e.SubscriptionEvent, topics=("orders",))
    for _ in range(60):
        d.after(1.0)
        d.heartbeat_answered(Code.NONE)
        assert not d.all(c.SendJoinCommand)
        assert not d.all(c.ResumeCommand)


def test_a_barrier_meanwhile_claims_it_still() -> None:
    d = both_topics()
    d.feed(e.SubscriptionEvent, topics=("orders",))
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    assert d.only(c.ResumeCommand).partition == R0
    join = d.only(c.SendJoinCommand)
    assert (join.topics, join.owned) == (("orders", "refunds"), (P0, R0))
    d.join_answered(generation=2)
    d.sync_answered(partitions=(P0, R0), attempts={ME: 3, OTHER: 3})
    assert d.only(c.StopCommand).partition == R0, "and then it goes on"


def test_what_a_map_still_gives_of_an_ended_topic_is_not_opened() -> None:
    d = both_topics(others=("orders",))
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.feed(e.SubscriptionEvent, topics=("orders",))
    d.join_answered(generation=2)
    d.sync_answered(partitions=(P0, R0, Partition("refunds", 1)), attempts={ME: 3, OTHER: 3})
    assert d.only(c.DropCommand).partition == Partition("refunds", 1)


@pytest.mark.parametrize("when", ["stopping", "put down"])
def test_subscribed_again_before_it_was_gone(when: str) -> None:
    d = both_topics(others=("orders",))
    d.feed(e.SubscriptionEvent, topics=("orders",))
    if when == "put down":
        d.drained(R0, None)
        assert d.only(c.SendJoinCommand).topics == ("orders",)
        d.feed(e.SubscriptionEvent, topics=("orders", "refunds"))
        d.join_answered(generation=2)
        d.sync_answered(partitions=(P0,), attempts={ME: 3, OTHER: 3})
        assert d.only(c.SendJoinCommand).topics == ("orders", "refunds")
    else:
        d.feed(e.SubscriptionEvent, topics=("orders", "refunds"))
        assert d.only(c.ResumeCommand).partition == R0
        assert not d.all(c.SendJoinCommand), "nothing has changed"


def test_subscribed_otherwise_before_the_start() -> None:
    d = Driver(topics=("orders",))
    assert d.feed(e.SubscriptionEvent, topics=("refunds",)) == []
    d.joining()
    assert d.only(c.SendJoinCommand).topics == ("refunds",)


def test_user_code_has_all_the_time_of_the_leave_to_finish() -> None:
    """The time of a single move is not the time of a stop: the partition would run again on a member that goes."""
    d = Driver(drain_seconds=2.0).running(0)
    d.feed(e.LeaveWantedEvent, deadline=d.now + 60.0)
    assert d.all(c.StopCommand)
    for _ in range(5):
        d.after(1.0)
        assert not d.all(c.ResumeCommand)
        d.heartbeat_answered(Code.NONE)
        d.read(LoadRecord(group=GROUP, member=OTHER, at=0.0, generation=1))
    assert d.machine.partitions.assigned[P0].state is AssignedState.DRAINING


def test_what_was_put_down_unopened_comes_back_with_its_topic() -> None:
    """A pattern's topic is gone for a moment: P1 was this member's by the assignment, and nobody's."""
    d = Driver(topics=("orders", "refunds")).entered(**{ME: (0, 1), OTHER: ()})
    fetch = d.only(c.FetchCommittedCommand)
    d.feed(e.CommittedFetchedEvent, fetch=fetch.fetch, code=0, offsets={P0: 5}, unstable=frozenset({P1}))
    d.feed(e.OpenedEvent, partition=P0, acquisition_id=d.acquisition_of(P0), position=5)
    d.feed(e.SubscriptionEvent, topics=("refunds",))
    assert d.machine.partitions.assigned[P0].state is AssignedState.DRAINING, "a record is in hand"
    d.feed(e.SubscriptionEvent, topics=("orders", "refunds"))
    assert d.machine.partitions.assigned[P0].state is AssignedState.RUNNING
    assert d.only(c.SendJoinCommand).owned == (P0,), "the next assignment gives P1 to somebody"


@pytest.mark.parametrize("ends", [False, True])
def test_what_the_broker_refuses_to_commit_is_given_away_at_its_last_commit(ends: bool) -> None:
    """Refused, resumed, stopped again at the pace of the round trips, until the drain time or for ever."""
    d = Driver(topics=("orders", "refunds")).running(0)
    if ends:
        d.feed(e.SubscriptionEvent, topics=("refunds",))
    else:
        leave(d)
    d.drained(P0, 9)
    d.all(c.SendCommitCommand)
    d.commit_answered(TOPIC_AUTHORIZATION_FAILED)
    assert d.machine.partitions.assigned.get(P0) is None or not d.machine.partitions.assigned[P0].delivered
    assert not d.all(c.StopCommand), "no second round"


@pytest.mark.parametrize(
    "answer", [{"refused": {P0: TOPIC_AUTHORIZATION_FAILED}, "offsets": {}}, {"offsets": {P0: -1}}]
)
def test_by_hand_a_topic_that_ended_is_put_down_also_where_its_offset_is_not_told(answer: dict[str, Any]) -> None:
    d = Driver(topics=("orders", "refunds"), auto_commit=False).running(0)
    d.feed(e.SubscriptionEvent, topics=("refunds",))
    d.drained(P0, None)
    fetch = d.only(c.FetchCommittedCommand)
    d.feed(e.CommittedFetchedEvent, fetch=fetch.fetch, code=0, **answer)
    assert d.machine.membership.topics == ("refunds",), "the group is told, and the next assignment gives it away"


def test_a_release_names_no_member_that_has_fallen_silent_meanwhile() -> None:
    """User code held the record for seconds: the partition waited for the dead member's session to end."""
    d = Driver().running(0, owns={ME: (0,), OTHER: (), "m3": ()})
    leave(d)
    target = d.machine.partitions.assigned[P0].target
    other = "m3" if target == OTHER else OTHER
    for _ in range(6):
        d.after(1.0)
        d.read(LoadRecord(group=GROUP, member=other, at=0.0, generation=1, slack=1.0))
        d.heartbeat_answered(Code.NONE)
    d.drained(P0, None)
    assert d.machine.partitions.assigned[P0].target == other
    assert d.only(c.StopCommand).partition == P0
    d.drained(P0, None)
    record = d.only(c.AppendCommand).record
    assert isinstance(record, ReleaseRecord)
    assert record.target == other


def test_who_waits_for_a_commit_is_answered_when_the_member_has_left() -> None:
    """Its own answer would come to a machine that is there no more, if the member joins anew meanwhile."""
    d = Driver().running(0)
    d.feed(e.CommitWantedEvent, request=7, offsets={P0: e.OffsetCommit(acquisition_id=d.acquisition_of(P0), offset=9)})
    leave(d, release=False)
    d.after(1.0)
    assert d.all(c.SendLeaveCommand)
    assert not d.all(c.CommitResultCommand)
    d.feed(e.LeaveAnsweredEvent)
    assert d.only(c.CommitResultCommand).request == 7
