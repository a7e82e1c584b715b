"""Mixed groups: members without the agent in the same group, and the way there and back."""

from __future__ import annotations

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.group_config import BROKER_ASSIGNS, LOADTRIM, STANDARD_PROTOCOLS, Code
from loadtrim_agent.wire.ownership_records import RejoinRecord
from sim.driver import GROUP, ME, Driver

P0, P1, P2, P3 = (Partition("orders", index) for index in range(4))


def joined(member: str, attempt: int | None) -> e.JoinedMember:
    return e.JoinedMember(member=member, topics=("orders",), attempt=attempt)


def mixed(d: Driver, *given: Partition, generation: int = 1) -> Driver:
    """In a generation with a member without the agent."""
    d.join_answered(generation=generation, protocol="range")
    d.sync_answered(partitions=given)
    d.open_all()
    return d


def test_in_a_mixed_group_what_the_leader_gives_is_held() -> None:
    d = mixed(Driver().joining(), P0, P1)
    assert set(d.machine.partitions.assigned) == {P0, P1}
    assert not d.machine.membership.speaks_loadtrim


def test_a_leader_of_ours_deals_out_as_any_other() -> None:
    d = Driver().joining()
    d.join_answered(protocol="range", leader=ME, members=(joined(ME, 2), joined("foreign", None)))
    assert d.only(c.SendSyncCommand).answers[ME] == e.GroupAnswer(partitions=(P2, P3))


def test_a_mixed_group_is_revoked_before_every_join() -> None:
    d = mixed(Driver().joining(), P0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    assert d.kinds() == ["Stop"]
    d.drained(P0, 9)
    assert d.all(c.SendCommitCommand)
    d.commit_answered()
    assert d.kinds() == ["Drop", "SendJoin", "Append"]
    assert d.only(c.SendJoinCommand).owned == ()


def test_a_commit_refused_while_revoking_is_waited_for() -> None:
    d = mixed(Driver().joining(), P0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.drained(P0, 9)
    d.all(c.SendCommitCommand)
    d.commit_answered(Code.COORDINATOR_LOAD_IN_PROGRESS)
    assert d.kinds() == [], "neither joined nor handed out again"
    d.after(0.1)
    assert d.all(c.SendCommitCommand)
    d.commit_answered()
    assert "SendJoin" in d.kinds()


def test_user_code_that_does_not_finish_holds_a_mixed_group_up_no_longer_than_the_drain_time() -> None:
    d = mixed(Driver(drain_seconds=4.0).joining(), P0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.after(3.9)
    assert "SendJoin" not in d.kinds()
    d.after(0.1)
    assert d.kinds()[:2] == ["Drop", "SendJoin"]


def test_a_foreign_member_comes_back() -> None:
    d = Driver().running(0, 1)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=2, protocol="range")
    assert d.kinds() == ["Stop", "Stop", "SendSync"], "handing out ends at once"
    d.sync_answered(partitions=(P0, P1))
    assert d.kinds() == ["Entered", "Stop", "Stop"], "and is put down"
    d.drained(P0, 9)
    d.drained(P1, None)
    d.all(c.SendCommitCommand)
    d.feed(e.TickEvent)
    d.feed(e.CommitAnsweredEvent, commit=1, member=ME, generation=2, codes={P0: 0})
    assert d.kinds() == ["Drop", "Drop", "SendJoin", "Append"]
    assert d.only(c.SendJoinCommand).owned == ()


def test_a_foreign_member_that_is_gone_again_before_the_answer() -> None:
    d = Driver().running(0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=2, protocol="range")
    d.sync_answered(code=Code.REBALANCE_IN_PROGRESS)
    assert d.only(c.SendJoinCommand).owned == (P0,)
    d.join_answered(generation=3)
    d.sync_answered(partitions=(P0,), attempts={ME: 4})
    assert d.kinds() == ["Entered", "Resume"]


def test_what_was_not_opened_yet_is_not_opened_when_a_foreign_member_comes_back() -> None:
    d = Driver().entered()
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=2, protocol="range")
    assert d.kinds() == ["Drop", "Drop", "SendSync"]


def test_a_log_that_can_be_used_later_brings_the_member_back() -> None:
    d = Driver()
    d.machine.use_log(False)
    mixed(d.joining(), P0)
    d.feed(e.LogUsableEvent)
    assert (d.counted(), d.kinds()) == (["log_usable"], ["Stop"])
    assert d.machine.log_works
    assert d.feed(e.LogUsableEvent) == [], "once"
    d.drained(P0, None)
    assert d.only(c.SendJoinCommand).protocols == (LOADTRIM, *STANDARD_PROTOCOLS)


def test_a_join_without_our_protocol_that_is_refused_when_the_log_can_be_used_is_asked_again() -> None:
    """The group speaks ours alone, and the answer was late: the start failed, though nothing stood in its way."""
    d = Driver()
    d.machine.use_log(False)
    d.joining()
    assert d.only(c.SendJoinCommand).protocols == STANDARD_PROTOCOLS
    d.feed(e.LogUsableEvent)
    d.join_answered(code=Code.INCONSISTENT_GROUP_PROTOCOL)
    assert not d.all(c.FailCommand)
    d.after(1.0)
    assert d.only(c.SendJoinCommand).protocols == (LOADTRIM, *STANDARD_PROTOCOLS)
    d.join_answered(code=Code.INCONSISTENT_GROUP_PROTOCOL)
    assert d.only(c.FailCommand).code == Code.INCONSISTENT_GROUP_PROTOCOL


def test_a_log_that_can_be_used_before_the_start_begins_nothing() -> None:
    d = Driver()
    d.machine.use_log(False)
    d.feed(e.LogUsableEvent)
    assert d.kinds() == []
    d.joining()
    assert d.only(c.SendJoinCommand).protocols == (LOADTRIM, *STANDARD_PROTOCOLS)


# -- a member of Kafka's consumer protocol (KIP-848): the broker assigns -----------------------------------------------


def broker_assigns(d: Driver, *given: Partition, generation: int = 1) -> Driver:
    """In a generation that the broker made: its answers name the protocol offered first, no leader and no user data."""
    d.join_answered(generation=generation, protocol=LOADTRIM, leader="")
    d.sync_answered(partitions=given)
    return d


def test_what_the_broker_assigns_is_held_as_in_any_mixed_group() -> None:
    """It was taken for an assignment from another attempt, and joined again for, at once and for ever."""
    d = broker_assigns(Driver().joining(), P0, P1)
    assert d.kinds() == ["Entered", "FetchCommitted"]
    assert d.only(c.EnteredCommand).protocol == BROKER_ASSIGNS
    d.open_all()
    assert d.machine.snapshot().settled
    assert not d.machine.membership.speaks_loadtrim
    d.feed(e.MoveWantedEvent, partition=P0, target="other")
    assert d.counted() == ["move_not_possible"]


def test_where_the_broker_assigns_everything_is_revoked_before_every_join() -> None:
    d = broker_assigns(Driver().joining(), P0)
    d.open_all()
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    assert d.kinds() == ["Stop"]
    d.drained(P0, None)
    assert d.kinds() == ["Drop", "SendJoin"], "and the log is not told: others have generations of their own"
    assert d.only(c.SendJoinCommand).owned == ()


def test_a_generation_of_the_broker_may_be_entered_again() -> None:
    d = broker_assigns(Driver().joining(), P0)
    d.open_all()
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.drained(P0, None)
    broker_assigns(d, P1)
    assert d.kinds() == ["Entered", "FetchCommitted"], "no JoinGroup follows for the generation that ended before"


def test_a_member_that_joins_again_does_not_make_the_others_put_everything_down() -> None:
    d = broker_assigns(Driver().joining(), P0)
    d.open_all()
    d.read(RejoinRecord(group=GROUP, member="other", at=0.0, generation=1))
    assert d.kinds() == ["SendHeartbeat"]
    d.heartbeat_answered(Code.NONE)
    assert not d.all(c.SendJoinCommand)


def test_a_mixed_group_rebalances_for_no_takeover() -> None:
    """All would put everything down for it, and plain consumers share the protocol already, by aiokafka's default."""
    d = Driver().joining()
    d.join_answered(protocol="range", leader=ME, members=(joined(ME, 2), joined("foreign", None)))
    d.sync_answered(partitions=(P0,))
    d.open_all()
    d.heartbeat_answered(Code.NOT_COORDINATOR)
    d.kinds()
    d.feed(e.CoordinatorFoundEvent, taken_over=True)
    assert d.kinds() == ["SendHeartbeat"]
    d.after(60.0)
    assert d.kinds() == []


def test_where_the_broker_assigned_another_coordinator_is_joined_at_once() -> None:
    """It may have stored a stable group of ours, in which what the other kind of member had is nobody's."""
    d = broker_assigns(Driver().joining(), P0)
    d.open_all()
    d.heartbeat_answered(Code.NOT_COORDINATOR)
    assert d.kinds() == ["FindCoordinator"]
    d.feed(e.CoordinatorFoundEvent)
    assert d.kinds() == ["Stop"]
    d.drained(P0, None)
    assert d.kinds() == ["Drop", "SendJoin"]


def test_where_the_broker_assigns_each_member_looks_for_new_partitions() -> None:
    """The broker looks when somebody joins, and nobody leads. They were consumed by nobody."""
    d = broker_assigns(Driver().joining(), P0)
    d.open_all()
    known = d.machine.membership.partitions["orders"]
    assert d.feed(e.TopicsEvent, partitions={"orders": known}) == []
    d.feed(e.TopicsEvent, partitions={"orders": known + 1})
    assert d.counted() == ["partitions_changed"]
    assert d.all(c.StopCommand)
    d.drained(P0, None)
    broker_assigns(d, P0)
    d.open_all()
    assert d.feed(e.TopicsEvent, partitions={"orders": known + 1}) == []


def test_a_broker_that_assigns_stops_at_once_what_was_owned_by_claims() -> None:
    d = Driver().running(0, 1)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=2, leader="")
    assert d.kinds() == ["Stop", "Stop", "SendSync"]


def test_the_group_is_ours_again_when_a_member_leads_it() -> None:
    d = broker_assigns(Driver().joining(), P0)
    d.open_all()
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.drained(P0, None)
    d.into(2, **{ME: (0,), "other": (1,)})
    assert d.machine.membership.speaks_loadtrim
    assert d.machine.partitions.ownership is not None


def test_a_commit_that_the_broker_has_fenced_is_not_waited_for() -> None:
    """A late copy of this member's JoinGroup made the next generation: it stood still for ten seconds for nothing."""
    d = mixed(Driver().joining(), P0)
    d.heartbeat_answered(Code.ILLEGAL_GENERATION)
    d.drained(P0, 9)
    d.all(c.SendCommitCommand)
    assert not d.all(c.SendJoinCommand), "until the broker says that it takes no commit"
    d.commit_answered(Code.ILLEGAL_GENERATION)
    assert d.all(c.SendJoinCommand)


def test_a_record_in_hand_is_waited_for_also_where_the_broker_has_fenced_the_generation() -> None:
    d = mixed(Driver().joining(), P0, P1)
    d.heartbeat_answered(Code.ILLEGAL_GENERATION)
    d.drained(P0, 9)
    d.all(c.SendCommitCommand)
    d.commit_answered(Code.ILLEGAL_GENERATION)
    assert not d.all(c.SendJoinCommand)
    d.drained(P1, None)
    assert d.all(c.SendJoinCommand)
