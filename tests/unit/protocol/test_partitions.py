"""Taking and giving: the life of what a member holds (rules 2 to 5, 10, 13)."""

from __future__ import annotations

from typing import Any

import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.assigned_partition import AssignedState
from loadtrim_agent.protocol.counters import ProtocolCount
from loadtrim_agent.protocol.group_config import Code
from loadtrim_agent.protocol.partitions import PRE_COMMIT_SECONDS
from loadtrim_agent.wire.ownership_records import MovePlan, PlanRecord, ReleaseRecord
from sim.driver import GROUP, ME, OTHER, Driver, assignment_of, release

P0, P1 = Partition("orders", 0), Partition("orders", 1)
TOPIC_AUTHORIZATION_FAILED = 29


def commit(d: Driver, offset: int, partition: Partition = P0, request: int = 0) -> None:
    """User code or auto-commit wants this."""
    offsets = {partition: e.OffsetCommit(acquisition_id=d.acquisition_of(partition), offset=offset)}
    d.feed(e.CommitWantedEvent, request=request, offsets=offsets)
    d.all(c.SendCommitCommand)


def giving(d: Driver, done: int | None = 9) -> Driver:
    """P0 on its way to the other member, drained."""
    d.give(P0)
    d.drained(P0, done)
    d.all(c.SendCommitCommand)
    return d


def committed_ahead(offset: int, *indexes: int) -> Driver:
    """P0 is to be given away; what was done so far is committed, and a lull awaited."""
    d = Driver().running(*(indexes or (0,)))
    d.feed(e.MoveWantedEvent, partition=P0, target=OTHER)
    commit(d, offset)
    d.commit_answered()
    assert d.only(c.AwaitIdlePointCommand).committed == offset
    return d


def state(d: Driver, partition: Partition = P0) -> AssignedState | None:
    entry = d.machine.partitions.assigned.get(partition)
    return entry.state if entry is not None else None


# -- taking (rule 4) -----------------------------------------------------------------------------------------------


def test_starts_at_the_committed_offset() -> None:
    d = Driver().entered()
    fetch = d.only(c.FetchCommittedCommand)
    assert fetch.partitions == (P0, P1)
    d.feed(e.CommittedFetchedEvent, fetch=fetch.fetch, code=0, offsets={P0: 5, P1: 0})
    assert [(o.partition, o.offset) for o in d.all(c.OpenCommand)] == [(P0, 5), (P1, 0)]


def test_where_nothing_is_committed_the_start_is_committed_before_anything_is_handed_out() -> None:
    d = Driver().running(0, offset=-1)
    assert d.kinds() == ["SendCommit"]
    assert d.only(c.SendCommitCommand).offsets == {P0: (-1, "")}  # the position that the shell said
    assert state(d) is AssignedState.INITIAL_COMMIT
    d.commit_answered()
    assert d.kinds() == ["Run"]


def test_a_start_that_is_refused_around_a_barrier_is_committed_in_the_next_generation() -> None:
    d = Driver().running(0, offset=-1)
    d.all(c.SendCommitCommand)
    d.commit_answered(Code.ILLEGAL_GENERATION)
    assert d.kinds() == ["SendJoin", "Append"]
    d.join_answered(generation=2)
    d.sync_answered(partitions=(P0,), attempts={ME: 3})
    assert d.only(c.SendCommitCommand).generation == 2
    d.commit_answered()
    assert d.kinds() == ["Run"]


def test_a_start_that_is_refused_for_good_is_tried_again() -> None:
    d = Driver().running(0, offset=-1)
    d.all(c.SendCommitCommand)
    d.commit_answered(TOPIC_AUTHORIZATION_FAILED)
    refused = d.only(c.CountCommand)
    assert (refused.what.label, refused.partition, refused.code) == ("pin_refused", P0, TOPIC_AUTHORIZATION_FAILED)
    assert d.machine.snapshot().settled, "the start of the consumer need not wait for somebody to grant the right"
    assert d.after(0.9) == []
    d.after(0.1)
    assert d.only(c.SendCommitCommand).offsets == {P0: (-1, "")}


@pytest.mark.parametrize("code", [Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR])
def test_offsets_that_do_not_come_are_asked_for_again(code: Code) -> None:
    d = Driver().entered()
    fetch = d.only(c.FetchCommittedCommand)
    d.feed(e.CommittedFetchedEvent, fetch=fetch.fetch, code=code, offsets={})
    assert ("FindCoordinator" in d.kinds()) == (code == Code.NOT_COORDINATOR)
    d.after(0.1)
    assert d.only(c.FetchCommittedCommand).partitions == (P0, P1)
    assert d.after(0.1) == [], "once"


def test_an_offset_that_is_refused_holds_up_its_own_partition_only() -> None:
    """The code of one was the code of all: a topic without rights kept all partitions closed, and start() waiting."""
    d = Driver().entered()
    fetch = d.only(c.FetchCommittedCommand)
    d.feed(
        e.CommittedFetchedEvent,
        fetch=fetch.fetch,
        code=0,
        offsets={P1: 5},
        refused={P0: TOPIC_AUTHORIZATION_FAILED},
    )
    refused = d.only(c.CountCommand)
    assert (refused.what.label, refused.partition, refused.code) == ("offsets_refused", P0, TOPIC_AUTHORIZATION_FAILED)
    opening = d.only(c.OpenCommand)
    assert (opening.partition, opening.offset) == (P1, 5)
    d.feed(e.OpenedEvent, partition=P1, acquisition_id=opening.acquisition_id, position=5)
    assert d.machine.snapshot().settled
    assert d.after(0.9) == []
    d.after(0.1)
    assert d.only(c.FetchCommittedCommand).partitions == (P0,)


def test_offsets_that_the_group_refuses_for_good_fail() -> None:
    d = Driver().entered()
    fetch = d.only(c.FetchCommittedCommand)
    d.feed(e.CommittedFetchedEvent, fetch=fetch.fetch, code=Code.GROUP_AUTHORIZATION_FAILED, offsets={})
    assert d.only(c.FailCommand).code == Code.GROUP_AUTHORIZATION_FAILED


def test_an_auto_commit_that_is_refused_for_good_is_counted_and_one_that_somebody_waits_for_is_answered() -> None:
    d = Driver().running(0)
    commit(d, 9)
    d.commit_answered(TOPIC_AUTHORIZATION_FAILED)
    refused = d.only(c.CountCommand)
    assert (refused.what.label, refused.partition, refused.code) == ("commit_refused", P0, TOPIC_AUTHORIZATION_FAILED)
    commit(d, 10, request=7)
    d.commit_answered(TOPIC_AUTHORIZATION_FAILED)
    assert d.out == [c.CommitResultCommand(request=7, code=TOPIC_AUTHORIZATION_FAILED)]


def test_answers_about_an_earlier_acquisition_mean_nothing() -> None:
    d = Driver().entered()
    fetch = d.only(c.FetchCommittedCommand)
    d.heartbeat_answered(Code.UNKNOWN_MEMBER_ID)
    assert d.feed(e.CommittedFetchedEvent, fetch=fetch.fetch, code=0, offsets={P0: 5, P1: 5}) == []
    assert d.feed(e.OpenedEvent, partition=P0, acquisition_id=1, position=5) == []
    assert d.feed(e.DrainedEvent, partition=P0, acquisition_id=1, done=5) == []


def test_a_release_to_us_starts_at_its_offset() -> None:
    d = Driver().running(0, owns={ME: (0,), OTHER: (1,)})
    d.read(release(1, 1, 0, OTHER, ME, offset=33))
    opening = d.only(c.OpenCommand)
    assert (opening.partition, opening.offset) == (P1, 33)
    d.feed(e.OpenedEvent, partition=P1, acquisition_id=opening.acquisition_id, position=33)
    assert d.kinds() == ["Run"]


def test_nothing_is_acquired_during_a_barrier() -> None:
    d = Driver().running(0, owns={ME: (0,), OTHER: (1,)})
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    assert d.read(release(1, 1, 0, OTHER, ME)) == []
    assert d.machine.partitions.ownership is not None
    assert d.machine.partitions.ownership.owner(P1) == ME, "though the fold goes on"


def test_records_of_the_next_generation_wait_for_it() -> None:
    d = Driver().running(0, owns={ME: (0,), OTHER: (1,)})
    assert d.read(release(2, 1, 0, OTHER, ME, offset=33)) == []
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=2)
    assignment = assignment_of(2, OTHER, m1=(0,), m2=(1,))
    newer = {m: type(entry)(attempt=3, topics=entry.topics, owns=entry.owns) for m, entry in assignment.members.items()}
    d.sync_answered(
        assignment=type(assignment)(group=assignment.group, member=OTHER, at=0.0, generation=2, members=newer)
    )
    assert d.only(c.OpenCommand).offset == 33


# -- giving (rules 2 and 3) ----------------------------------------------------------------------------------------


def test_a_handoff_stops_drains_commits_and_only_then_releases() -> None:
    d = Driver().running(0)
    assert d.give(P0) == [c.StopCommand(partition=P0, acquisition_id=d.acquisition_of(P0))]
    d.drained(P0, 9)
    assert d.kinds() == ["SendCommit"]
    assert d.only(c.SendCommitCommand).offsets == {P0: (9, "")}
    d.commit_answered()
    record = d.only(c.AppendCommand).record
    assert isinstance(record, ReleaseRecord)
    assert (record.key, record.version, record.source, record.target, record.offset) == (P0, 0, ME, OTHER, 9)
    d.read(record)
    assert d.out == [c.DropCommand(partition=P0, acquisition_id=1, released=True)]


def test_what_is_done_is_committed_before_it_stops() -> None:
    d = Driver().running(0)
    assert d.feed(e.MoveWantedEvent, partition=P0, target=OTHER) == [c.GatherCommitsCommand()]
    assert state(d) is AssignedState.PRE_COMMIT
    commit(d, 9)
    assert d.kinds() == ["SendCommit"], "and it goes on being handed out"
    d.commit_answered()
    assert d.out == [c.AwaitIdlePointCommand(partition=P0, acquisition_id=1, committed=9, begun=True)]
    d.idle_point(P0, done=9)
    assert d.kinds() == ["Stop"]
    d.drained(P0, 9)
    record = d.only(c.AppendCommand).record
    assert isinstance(record, ReleaseRecord)
    assert record.offset == 9, "nothing was left to commit"


def test_what_is_done_during_the_commit_ahead_is_committed_in_the_next_lull() -> None:
    d = committed_ahead(9)
    d.idle_point(P0, done=10)
    assert d.only(c.SendCommitCommand).offsets == {P0: (10, "")}
    assert state(d) is AssignedState.PRE_COMMIT, "and it goes on being handed out"
    d.commit_answered()
    assert d.out == [c.AwaitIdlePointCommand(partition=P0, acquisition_id=1, committed=10)], (
        "right after a record, from now on"
    )
    d.idle_point(P0, done=10)
    assert d.kinds() == ["Stop"]
    d.drained(P0, 10)
    assert d.all(c.AppendCommand)


def test_where_records_wait_no_lull_is_hoped_for() -> None:
    d = committed_ahead(9)
    d.idle_point(P0, done=12, busy=True)
    assert d.kinds() == ["Stop"]


def test_a_lull_is_asked_for_once_at_a_time_whatever_else_is_committed() -> None:
    d = committed_ahead(9, 0, 1)
    commit(d, 4, P1)
    d.commit_answered()
    assert d.kinds() == []


def test_a_lull_that_comes_too_late_means_nothing() -> None:
    d = committed_ahead(9)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    assert state(d) is AssignedState.RUNNING
    assert d.feed(e.IdlePointEvent, partition=P0, acquisition_id=1, done=10, busy=False) == []
    d = committed_ahead(9)
    d.after(PRE_COMMIT_SECONDS)
    assert d.kinds() == ["Stop"]
    assert d.feed(e.IdlePointEvent, partition=P0, acquisition_id=1, done=10, busy=False) == []
    assert d.feed(e.IdlePointEvent, partition=P0, acquisition_id=7, done=10, busy=False) == [], (
        "nor of another acquisition"
    )


def test_what_a_commit_under_way_covers_is_not_committed_again() -> None:
    d = committed_ahead(9)
    d.idle_point(P0, done=10)
    d.all(c.SendCommitCommand)
    d.after(PRE_COMMIT_SECONDS)
    assert d.kinds() == ["Stop"], "its answer takes too long"
    d.drained(P0, 10)
    assert not d.all(c.AppendCommand), "not yet acknowledged"
    d.commit_answered()
    record = d.only(c.AppendCommand).record
    assert isinstance(record, ReleaseRecord)
    assert record.offset == 10


@pytest.mark.parametrize("code", [Code.DISCONNECTED, Code.ILLEGAL_GENERATION, TOPIC_AUTHORIZATION_FAILED])
def test_a_commit_under_way_that_covers_what_is_done_and_is_refused_ends_the_move(code: int) -> None:
    d = committed_ahead(9)
    d.idle_point(P0, done=10)
    d.all(c.SendCommitCommand)
    d.after(PRE_COMMIT_SECONDS)
    d.drained(P0, 10)
    d.commit_answered(code)  # type: ignore[arg-type]
    assert "move_refused" in d.counted() or "move_dropped" in d.counted()
    assert state(d) is AssignedState.RUNNING
    assert not [a for a in d.all(c.AppendCommand) if isinstance(a.record, ReleaseRecord)]


def test_one_commit_ahead_for_all_that_go_together() -> None:
    d = Driver().running(0, 1)
    moves = tuple(MovePlan(topic="orders", partition=index, source=ME, target=OTHER) for index in (0, 1))
    d.read(PlanRecord(group=GROUP, member=OTHER, at=0.0, generation=1, sequence=1, moves=moves))
    assert d.kinds() == ["GatherCommits"]
    d.feed(e.CommitWantedEvent, offsets={})
    assert [command.partition for command in d.all(c.AwaitIdlePointCommand)] == [P0, P1]
    d.feed(e.IdlePointEvent, partition=P0, acquisition_id=1, done=None, busy=False)
    assert d.kinds() == ["Stop"]
    d.feed(e.IdlePointEvent, partition=P1, acquisition_id=2, done=None, busy=False)
    assert d.kinds() == ["Stop"]


def test_a_commit_ahead_that_takes_long_is_not_waited_for() -> None:
    d = Driver().running(0)
    d.feed(e.MoveWantedEvent, partition=P0, target=OTHER)
    commit(d, 9)
    assert d.machine.wakeup() <= d.now + PRE_COMMIT_SECONDS
    d.after(PRE_COMMIT_SECONDS)
    assert d.kinds() == ["Stop"]
    d.drained(P0, 10)
    assert not d.all(c.AppendCommand), "the commit is still under way"
    d.commit_answered()
    assert d.kinds() == ["SendCommit"], "the one after the stop: the log's release follows its answer"
    d.all(c.SendCommitCommand)
    d.commit_answered()
    assert d.all(c.AppendCommand)


@pytest.mark.parametrize("code", [Code.DISCONNECTED, TOPIC_AUTHORIZATION_FAILED])
def test_a_commit_ahead_that_fails_leaves_it_to_the_one_after_the_stop(code: int) -> None:
    d = Driver().running(0)
    d.feed(e.MoveWantedEvent, partition=P0, target=OTHER)
    commit(d, 9)
    d.commit_answered(code)  # type: ignore[arg-type]
    d.after(PRE_COMMIT_SECONDS)
    assert state(d) is AssignedState.DRAINING


def test_a_barrier_ends_an_intention_before_it_stopped_anything() -> None:
    d = Driver().running(0)
    d.feed(e.MoveWantedEvent, partition=P0, target=OTHER)
    commit(d, 9)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    assert d.kinds() == ["SendJoin", "Append"], "no resume of what was not stopped"
    d.commit_answered()
    assert not d.all(c.StopCommand)
    assert state(d) is AssignedState.RUNNING


def test_a_last_commit_overrides_an_intention() -> None:
    d = Driver().running(0)
    d.feed(e.MoveWantedEvent, partition=P0, target=OTHER)
    d.feed(e.LeaveWantedEvent, deadline=d.now, release=True)
    assert "Stop" in d.kinds()
    assert d.machine.partitions.assigned[P0].target == ""


@pytest.mark.parametrize("done", [None, 5])
def test_nothing_done_needs_no_commit(done: int | None) -> None:
    d = giving(Driver().running(0, offset=5), done=done)
    record = d.only(c.AppendCommand).record
    assert isinstance(record, ReleaseRecord)
    assert record.offset == 5


def test_commits_under_way_come_first() -> None:
    d = Driver().running(0)
    d.give(P0)
    commit(d, 7)
    first = d._last_commit
    d.drained(P0, 9)
    assert d.kinds() == [], "one request in flight"
    commit(d, 8)
    assert d.kinds() == [], "and none after the last"
    d.feed(e.CommitAnsweredEvent, commit=first.commit, member=ME, generation=1, codes={P0: 0})
    assert d.only(c.SendCommitCommand).offsets == {P0: (9, "")}
    d.commit_answered()
    assert d.all(c.AppendCommand)


@pytest.mark.parametrize("code", [Code.DISCONNECTED, Code.REBALANCE_IN_PROGRESS, TOPIC_AUTHORIZATION_FAILED])
def test_a_commit_that_is_refused_or_unknown_ends_the_move(code: int) -> None:
    d = giving(Driver().running(0))
    d.commit_answered(code)  # type: ignore[arg-type]
    assert "Resume" in d.kinds()
    assert "move_refused" in d.counted()
    assert state(d) is AssignedState.RUNNING


def test_user_code_that_does_not_finish_keeps_the_partition() -> None:
    d = Driver(drain_seconds=2.0).running(0)
    d.give(P0)
    d.after(1.9)
    assert state(d) is AssignedState.DRAINING
    d.after(0.1)
    assert d.counted() == ["move_timed_out"]
    assert d.only(c.ResumeCommand).partition == P0
    assert d.drained(P0, 9) == [], "too late"


def test_after_the_append_nothing_is_cancelled() -> None:
    d = giving(Driver(drain_seconds=2.0).running(0))
    d.commit_answered()
    append = d.only(c.AppendCommand)
    d.feed(e.AppendedEvent, append=append.append, offset=None)
    assert state(d) is AssignedState.TRANSFERRED
    d.after(0.9)
    assert state(d) is AssignedState.TRANSFERRED


def test_a_release_in_doubt_is_decided_by_a_barrier_without_its_claim() -> None:
    d = giving(Driver().running(0, 1))
    d.commit_answered()
    d.after(1.0)
    assert "release_in_doubt" in d.counted()
    assert d.only(c.SendJoinCommand).owned == (P1,)


def test_a_process_that_did_not_run_reads_the_log_before_it_doubts() -> None:
    d = giving(Driver().running(0, 1))
    d.commit_answered()
    d.after(1.5)
    assert "release_in_doubt" not in d.counted(), "frozen for half a second too long"
    d.after(1.0)
    assert "release_in_doubt" in d.counted()


def test_a_release_in_doubt_during_a_barrier_needs_no_other() -> None:
    d = giving(Driver().running(0, 1))
    d.commit_answered()
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.after(1.0)
    assert d.counted() == []
    d.join_answered(generation=2)
    d.sync_answered(partitions=(P1,), attempts={ME: 3})
    assert not d.all(c.SendJoinCommand)


def test_an_acknowledged_release_that_is_not_in_the_log() -> None:
    d = giving(Driver().running(0, 1))
    d.commit_answered()
    append = d.only(c.AppendCommand)
    d.feed(e.LogPositionEvent, position=4)
    d.feed(e.AppendedEvent, append=append.append, offset=4)
    assert d.feed(e.LogPositionEvent, position=4) == []
    d.feed(e.LogPositionEvent, position=5)
    assert d.counted() == ["release_not_found"]
    assert d.only(c.SendJoinCommand).owned == (P1,)


def test_a_gap_makes_it_join_with_its_claims() -> None:
    d = Driver().running(0, 1)
    d.feed(e.LogGapEvent)
    assert d.counted() == ["log_gap"]
    assert d.only(c.SendJoinCommand).owned == (P0, P1)
    assert not d.all(c.StopCommand)


def test_a_gap_during_a_barrier_calls_for_another() -> None:
    d = Driver().running(0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    assert d.feed(e.LogGapEvent) == [c.CountCommand(what=ProtocolCount.LOG_GAP)]
    d.join_answered(generation=2)
    d.sync_answered(partitions=(P0,), attempts={ME: 3})
    assert d.kinds()[:2] == ["Entered", "SendJoin"]


def test_what_was_stopped_without_a_release_runs_again_at_a_barrier() -> None:
    d = giving(Driver().running(0, 1))
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    assert d.kinds()[:2] == ["Resume", "SendJoin"]
    assert d.only(c.SendJoinCommand).owned == (P0, P1)
    d.commit_answered()
    assert not d.all(c.AppendCommand), "no release after the JoinGroup"


def test_a_log_that_fails_ends_the_moves_and_nothing_else() -> None:
    d = Driver().running(0, 1)
    d.give(P0)
    d.feed(e.LogFailedEvent, failed=True)
    assert d.counted() == ["log_failed", "move_dropped"]
    assert d.only(c.ResumeCommand).partition == P0
    assert d.feed(e.LogFailedEvent, failed=True) == []
    d.give(P0)
    assert d.counted() == ["move_not_possible"]
    d.feed(e.LogFailedEvent, failed=False)
    d.give(P0)
    assert d.kinds() == ["Stop"]


@pytest.mark.parametrize("target", [ME, "nobody"])
def test_moves_that_make_no_sense(target: str) -> None:
    d = Driver().running(0)
    d.feed(e.MoveWantedEvent, partition=P0, target=target)
    assert d.counted() == ["move_not_possible"]
    d.feed(e.MoveWantedEvent, partition=P1, target=OTHER)
    assert d.counted() == ["move_not_possible"], "not ours"


def test_one_move_of_a_partition_at_a_time() -> None:
    d = Driver().running(0)
    d.give(P0)
    d.give(P0)
    assert d.counted() == ["move_not_possible"]


def test_a_void_release_is_counted() -> None:
    d = Driver().running(0, owns={ME: (0,), OTHER: (1,)})
    d.read(release(1, 1, 3, OTHER, ME))
    assert d.counted() == ["void_release"]
    assert d.machine.partitions.assigned.keys() == {P0}


@pytest.mark.parametrize("target", [OTHER, "nobody"])
def test_a_release_in_this_members_name_that_it_never_sent(target: str) -> None:
    """By the log another owns it: both had every record, until somebody restarted."""
    d = Driver().running(0, 1)
    d.read(release(1, 0, 0, ME, target))
    assert d.counted() == ["foreign_release"]
    assert P0 in d.only(c.SendJoinCommand).owned, "the other claims it too, so the leader gives it to neither"
    assert state(d) is AssignedState.RUNNING
    assert d.machine.partitions.ownership is not None
    assert d.machine.partitions.ownership.owner(P0) == target, "as for all others who read the log"


def test_a_release_in_this_members_name_while_it_gives_the_partition_away() -> None:
    d = giving(Driver().running(0, 1))
    d.read(release(1, 0, 0, ME, "nobody"))
    assert "foreign_release" in d.counted()
    assert P0 in d.only(c.SendJoinCommand).owned
    assert state(d) is AssignedState.RUNNING


# -- a generation begins -------------------------------------------------------------------------------------------


def next_generation(d: Driver, *mine: Partition) -> None:
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=2)
    d.sync_answered(partitions=mine, attempts={ME: 3})


def test_what_is_kept_goes_on_what_is_not_is_dropped_what_is_new_is_taken() -> None:
    d = Driver().running(0, 1)
    next_generation(d, P1, Partition("orders", 2))
    assert d.kinds() == ["Entered", "Drop", "FetchCommitted"]
    assert d.only(c.DropCommand).partition == P0
    assert d.only(c.FetchCommittedCommand).partitions == (Partition("orders", 2),)


def test_a_released_partition_that_comes_back_is_taken_anew() -> None:
    d = giving(Driver().running(0))
    d.commit_answered()
    next_generation(d, P0)
    assert d.kinds() == ["Entered", "Drop", "FetchCommitted"]
    assert d.acquisition_of(P0) == 2


# -- commits of user code ------------------------------------------------------------------------------------------


def test_a_commit_by_hand_is_answered() -> None:
    d = Driver().running(0)
    commit(d, 7, request=1)
    d.commit_answered()
    assert d.only(c.CommitResultCommand) == c.CommitResultCommand(request=1, code=0)


def test_nothing_to_commit_is_committed() -> None:
    d = Driver().running(0)
    assert d.feed(e.CommitWantedEvent, request=1, offsets={}) == [c.CommitResultCommand(request=1, code=0)]


def test_a_commit_of_what_is_not_held_is_refused() -> None:
    d = Driver().running(0)
    d.feed(e.CommitWantedEvent, request=1, offsets={P1: e.OffsetCommit(acquisition_id=9, offset=1)})
    assert d.only(c.CommitResultCommand).code == Code.ILLEGAL_GENERATION
    assert d.feed(e.CommitWantedEvent, offsets={P1: e.OffsetCommit(acquisition_id=9, offset=1)}) == [], "nobody asked"


def test_a_commit_over_a_barrier_is_answered_after_it() -> None:
    d = Driver().running(0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    commit(d, 7, request=1)
    assert d._last_commit.generation == 1, "accepted while the JoinGroup is parked"
    d.commit_answered(Code.ILLEGAL_GENERATION)
    assert d.kinds() == []
    d.join_answered(generation=2)
    d.sync_answered(partitions=(P0,), attempts={ME: 3})
    assert d.only(c.SendCommitCommand).generation == 2
    d.commit_answered()
    assert d.only(c.CommitResultCommand) == c.CommitResultCommand(request=1, code=0)


def test_a_commit_of_what_a_handoff_has_committed_is_done() -> None:
    d = giving(Driver().running(0))
    d.commit_answered()
    commit(d, 9, request=1)
    assert d.only(c.CommitResultCommand) == c.CommitResultCommand(request=1, code=0)
    commit(d, 8, request=2)
    assert d.only(c.CommitResultCommand).code == Code.ILLEGAL_GENERATION


@pytest.mark.parametrize("offset", [8, 9])
def test_a_commit_during_the_handoffs_own_is_answered_with_it(offset: int) -> None:
    """It was refused as if another member had the partition, also where the move was dropped then."""
    d = giving(Driver().running(0))
    commit(d, offset, request=1)
    assert d.out == []
    d.commit_answered()
    assert d.only(c.CommitResultCommand) == c.CommitResultCommand(request=1, code=0)
    record = d.only(c.AppendCommand).record
    assert isinstance(record, ReleaseRecord)
    assert record.offset == 9


def test_a_later_commit_during_the_handoffs_own_is_where_the_next_owner_starts() -> None:
    d = giving(Driver().running(0))
    commit(d, 12, request=1)
    d.commit_answered()
    assert d.only(c.SendCommitCommand).offsets == {P0: (12, "")}
    d.commit_answered()
    assert d.only(c.CommitResultCommand) == c.CommitResultCommand(request=1, code=0)
    record = d.only(c.AppendCommand).record
    assert isinstance(record, ReleaseRecord)
    assert record.offset == 12


def test_a_commit_during_the_handoffs_own_outlives_a_dropped_move() -> None:
    d = giving(Driver().running(0))
    commit(d, 12, request=1)
    d.commit_answered(TOPIC_AUTHORIZATION_FAILED)
    assert d.only(c.SendCommitCommand).offsets == {P0: (12, "")}
    d.commit_answered()
    assert d.only(c.CommitResultCommand) == c.CommitResultCommand(request=1, code=0)


def test_callers_hear_of_a_lost_partition() -> None:
    d = Driver().running(0)
    d.give(P0)
    commit(d, 7)
    commit(d, 8, request=1)
    d.heartbeat_answered(Code.UNKNOWN_MEMBER_ID)
    assert d.only(c.CommitResultCommand) == c.CommitResultCommand(request=1, code=Code.ILLEGAL_GENERATION)


# -- manual commits ------------------------------------------------------------------------------------------------


def by_hand() -> Driver:
    return giving(Driver(auto_commit=False).running(0))


def test_by_hand_a_handoff_starts_at_what_the_broker_has() -> None:
    d = by_hand()
    fetch = d.only(c.FetchCommittedCommand)
    d.feed(e.CommittedFetchedEvent, fetch=fetch.fetch, code=0, offsets={P0: 6})
    record = d.only(c.AppendCommand).record
    assert isinstance(record, ReleaseRecord)
    assert record.offset == 6


def test_by_hand_a_commit_under_way_is_waited_for() -> None:
    d = Driver(auto_commit=False).running(0)
    commit(d, 6, request=1)
    sent = d._last_commit
    giving(d)
    assert d.kinds() == []
    d._last_commit = sent
    d.commit_answered()
    assert d.kinds() == ["FetchCommitted", "CommitResult"]


def test_by_hand_a_later_commit_makes_an_earlier_look_stale() -> None:
    d = by_hand()
    first = d.only(c.FetchCommittedCommand)
    commit(d, 9, request=1)
    d.commit_answered()
    second = d.only(c.FetchCommittedCommand)
    d.feed(e.CommittedFetchedEvent, fetch=second.fetch, code=0, offsets={P0: 9})
    record = d.only(c.AppendCommand).record
    assert isinstance(record, ReleaseRecord)
    assert record.offset == 9
    assert d.feed(e.CommittedFetchedEvent, fetch=first.fetch, code=0, offsets={P0: 5}) == []


def test_by_hand_an_earlier_look_that_is_answered_after_a_later_commit_is_not_used() -> None:
    """The new owner would start before what user code has committed, and do it again."""
    d = by_hand()
    first = d.only(c.FetchCommittedCommand)
    commit(d, 9, request=1)
    d.commit_answered()
    second = d.only(c.FetchCommittedCommand)
    assert d.feed(e.CommittedFetchedEvent, fetch=first.fetch, code=0, offsets={P0: 5}) == []
    d.feed(e.CommittedFetchedEvent, fetch=second.fetch, code=0, offsets={P0: 9})
    record = d.only(c.AppendCommand).record
    assert isinstance(record, ReleaseRecord)
    assert record.offset == 9


def test_by_hand_a_look_that_is_answered_before_a_commit_under_way_is_not_used() -> None:
    """The next owner would begin below what user code has committed."""
    d = by_hand()
    first = d.only(c.FetchCommittedCommand)
    commit(d, 9, request=1)
    assert d.feed(e.CommittedFetchedEvent, fetch=first.fetch, code=0, offsets={P0: 5}) == []
    d.commit_answered()
    second = d.only(c.FetchCommittedCommand)
    d.feed(e.CommittedFetchedEvent, fetch=second.fetch, code=0, offsets={P0: 9})
    record = d.only(c.AppendCommand).record
    assert isinstance(record, ReleaseRecord)
    assert record.offset == 9


def test_by_hand_a_look_that_is_not_answered_is_repeated() -> None:
    d = by_hand()
    fetch = d.only(c.FetchCommittedCommand)
    d.feed(e.CommittedFetchedEvent, fetch=fetch.fetch, code=Code.COORDINATOR_LOAD_IN_PROGRESS, offsets={})
    assert d.kinds() == []
    d.after(0.1)
    assert d.only(c.FetchCommittedCommand).partitions == (P0,)


def test_by_hand_what_has_no_commit_is_not_given_away() -> None:
    d = by_hand()
    fetch = d.only(c.FetchCommittedCommand)
    d.feed(e.CommittedFetchedEvent, fetch=fetch.fetch, code=0, offsets={P0: -1})
    assert d.kinds() == ["Resume"]


# -- what is late --------------------------------------------------------------------------------------------------


def test_what_user_code_commits_of_an_acquisition_that_was_lost_is_refused() -> None:
    """It did those records as the owner of before: the owner since may be further, or behind."""
    d = Driver().running(0)
    earlier = d.acquisition_of(P0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.into(2, m1=(), m2=(0,))
    d.read(release(2, 0, 0, OTHER, ME, offset=20))
    assert d.acquisition_of(P0) != earlier
    offsets = {P0: e.OffsetCommit(acquisition_id=earlier, offset=9)}
    d.feed(e.CommitWantedEvent, request=3, offsets=offsets)
    assert d.only(c.CommitResultCommand) == c.CommitResultCommand(request=3, code=Code.ILLEGAL_GENERATION)
    assert not d.all(c.SendCommitCommand)


def test_offsets_of_an_acquisition_that_was_lost_say_nothing_of_the_next_one() -> None:
    d = Driver().entered(**{ME: (0,), OTHER: ()})
    fetch = d.only(c.FetchCommittedCommand).fetch
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.into(2, m1=(), m2=(0,))
    d.read(release(2, 0, 0, OTHER, ME, offset=20))
    d.feed(e.CommittedFetchedEvent, fetch=fetch, code=0, offsets={}, refused={P0: TOPIC_AUTHORIZATION_FAILED})
    assert d.out == []
    assert not d.machine.partitions.assigned[P0].held_up


def back_while_an_earlier_commit_is_out(d: Driver) -> c.SendCommitCommand:
    """P0 goes to the other member with the next generation and comes back; a commit of before is not answered yet."""
    commit_of_p0 = e.OffsetCommit(acquisition_id=d.acquisition_of(P0), offset=9)
    d.feed(e.CommitWantedEvent, request=0, offsets={P0: commit_of_p0})
    sent = d.only(c.SendCommitCommand)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.into(2, m1=(), m2=(0,))
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.into(3, m1=(0,), m2=())
    return sent


def test_offsets_are_asked_for_again_while_a_commit_of_an_earlier_acquisition_is_out() -> None:
    """The partition looked busy with that commit, was not asked for again, and was nobody's until a rebalance."""
    d = Driver().running(0)
    back_while_an_earlier_commit_is_out(d)
    fetch = d.only(c.FetchCommittedCommand)
    d.feed(e.CommittedFetchedEvent, fetch=fetch.fetch, code=Code.COORDINATOR_LOAD_IN_PROGRESS, offsets={})
    d.after(0.1)
    assert d.only(c.FetchCommittedCommand).partitions == (P0,)


def test_by_hand_a_handoff_does_not_wait_for_a_commit_of_an_earlier_acquisition() -> None:
    """Its answer says nothing of this acquisition: the handoff would wait for ever for the one that does."""
    d = Driver(auto_commit=False).running(0)
    back_while_an_earlier_commit_is_out(d)
    fetch = d.only(c.FetchCommittedCommand)
    d.feed(e.CommittedFetchedEvent, fetch=fetch.fetch, code=0, offsets={P0: 9})
    d.feed(e.OpenedEvent, partition=P0, acquisition_id=d.acquisition_of(P0), position=9)
    d.give(P0)
    d.drained(P0, None)
    assert d.only(c.FetchCommittedCommand).partitions == (P0,)


def asked_for_twice() -> tuple[Driver, c.FetchCommittedCommand, c.FetchCommittedCommand]:
    """P0's offset is asked for at a silent coordinator; the next one has forgotten the member, which joins anew.

    The coordinator is found before P0 is lost and taken again, so that the first question stays out.
    """
    d = Driver().entered(**{ME: (0,), OTHER: ()})
    d.heartbeat_answered(Code.DISCONNECTED)
    d.feed(e.CoordinatorFoundEvent)
    first = d.only(c.FetchCommittedCommand)
    d.heartbeat_answered(Code.UNKNOWN_MEMBER_ID)
    d.join_answered(code=Code.MEMBER_ID_REQUIRED, member=ME)
    d.into(2, m1=(0,), m2=())
    return d, first, d.only(c.FetchCommittedCommand)


@pytest.mark.parametrize(
    "answer",
    [
        {"code": Code.COORDINATOR_LOAD_IN_PROGRESS},
        {"code": 0, "unstable": frozenset({P0})},
        {"code": 0, "refused": {P0: TOPIC_AUTHORIZATION_FAILED}},
    ],
)
def test_offsets_are_asked_for_again_while_a_question_of_an_earlier_acquisition_is_out(answer: dict[str, Any]) -> None:
    """The partition looked asked for; once that question was given up, nobody asked any more, over all rebalances."""
    d, _, second = asked_for_twice()
    d.feed(e.CommittedFetchedEvent, fetch=second.fetch, offsets={}, **answer)
    d.after(1.0)
    assert d.only(c.FetchCommittedCommand).partitions == (P0,)


def test_a_start_is_committed_again_while_a_question_of_an_earlier_acquisition_is_out() -> None:
    d, _, second = asked_for_twice()
    d.feed(e.CommittedFetchedEvent, fetch=second.fetch, code=0, offsets={P0: -1})
    d.feed(e.OpenedEvent, partition=P0, acquisition_id=d.acquisition_of(P0), position=0)
    d.all(c.SendCommitCommand)
    d.commit_answered(TOPIC_AUTHORIZATION_FAILED)
    d.after(1.0)
    assert d.only(c.SendCommitCommand).offsets == {P0: (0, "")}


def test_what_the_coordinator_of_before_has_not_answered_is_asked_of_the_next_one() -> None:
    """New partitions waited for the silent broker, for as long as a session timeout."""
    d = Driver().entered(**{ME: (0,), OTHER: ()})
    d.only(c.FetchCommittedCommand)
    d.heartbeat_answered(Code.DISCONNECTED)
    d.feed(e.CoordinatorFoundEvent)
    assert d.only(c.FetchCommittedCommand).partitions == (P0,)


def test_what_a_coordinator_has_refused_is_not_asked_again_before_its_time() -> None:
    """A coordinator that is found at once and is none would be asked as fast as it answers."""
    d = Driver().entered(**{ME: (0,), OTHER: ()})
    fetch = d.only(c.FetchCommittedCommand)
    d.feed(e.CommittedFetchedEvent, fetch=fetch.fetch, code=Code.NOT_COORDINATOR, offsets={})
    d.feed(e.CoordinatorFoundEvent)
    assert not d.all(c.FetchCommittedCommand)
    d.after(0.1)
    assert d.only(c.FetchCommittedCommand).partitions == (P0,)


@pytest.mark.parametrize("ends", [False, True])
def test_a_lower_offset_that_was_on_its_way_holds_up_no_handoff(ends: bool) -> None:
    """User code commits a lower offset by name: what was done was not committed again, and the partition stood."""
    d = Driver(topics=("orders", "refunds")).running(0)
    commit(d, 9)
    d.commit_answered()
    commit(d, 6, request=1)
    if ends:
        d.feed(e.SubscriptionEvent, topics=("refunds",))
    else:
        d.feed(e.MoveWantedEvent, partition=P0, target=OTHER)
        d.after(PRE_COMMIT_SECONDS)
    d.drained(P0, 9)
    d.commit_answered()
    assert d.only(c.SendCommitCommand).offsets == {P0: (9, "")}
    d.commit_answered()
    record = d.only(c.AppendCommand).record
    assert isinstance(record, ReleaseRecord)
    assert record.offset == 9


def test_the_place_of_an_earlier_release_is_not_the_place_of_the_present_one() -> None:
    """Both are of one partition: the present one would look as if it were missing, and cost a rebalance."""
    d = giving(Driver().running(0), done=None)
    first = d.only(c.AppendCommand).append
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.into(2, m1=(0,), m2=())
    d.open_all()
    giving(d, done=None)
    assert d.only(c.AppendCommand).append != first
    d.feed(e.AppendedEvent, append=first, offset=3)
    d.feed(e.LogPositionEvent, position=9)
    assert d.out == []
    assert state(d) is AssignedState.TRANSFERRED


def test_what_was_released_and_is_given_back_by_an_assignment_is_acquired_anew() -> None:
    """It stands still since the release: kept as it is, no member would ever deliver it."""
    d = giving(Driver().running(0), done=None)
    earlier = d.acquisition_of(P0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.into(2, m1=(0,), m2=())
    assert d.only(c.DropCommand).acquisition_id == earlier
    assert d.only(c.FetchCommittedCommand).partitions == (P0,)
    assert state(d) is AssignedState.FETCHING


def test_what_is_not_opened_yet_is_owned_all_the_same() -> None:
    """The leader would give it to another member, and this one opens it a moment later."""
    d = Driver().entered(**{ME: (0, 1), OTHER: ()})
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    assert d.only(c.SendJoinCommand).owned == (P0, P1)


def test_the_auto_commit_adds_nothing_to_a_handoff() -> None:
    """The release would wait for one more answer of the broker, while the partition stands still."""
    d = giving(Driver().running(0), done=9)
    commit(d, 9)
    d.commit_answered()
    assert not d.all(c.SendCommitCommand)
    assert d.only(c.AppendCommand).record.offset == 9


def test_no_release_below_what_is_done() -> None:
    """User code may commit an earlier offset; until that is answered the broker and this member differ."""
    d = Driver().running(0, offset=9)
    d.give(P0)
    commit(d, 3, request=1)
    d.drained(P0, 9)
    d.commit_answered()
    assert not d.all(c.AppendCommand)
    assert d.only(c.SendCommitCommand).offsets == {P0: (9, "")}
    d.commit_answered()
    assert d.only(c.AppendCommand).record.offset == 9
