"""One member gives a partition away by its own decision: promise, bound, commit, release, and all that ends it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol import future_records
from loadtrim_agent.protocol.counters import ProtocolCount
from loadtrim_agent.protocol.group_config import Code
from loadtrim_agent.protocol.prefetch import PREFETCH_SECONDS
from loadtrim_agent.protocol.slices import AHEAD_SECONDS, COUNT_SECONDS, LATE_SECONDS, REPEAT_SECONDS, SLICES_MAX
from loadtrim_agent.wire.ownership_records import (
    LeavingRecord,
    LoadRecord,
    MovePlan,
    PlanRecord,
    PromiseRecord,
    ReleaseRecord,
)
from sim.driver import GROUP, ME, OTHER, Driver, assignment_of, release

P0, P1, P2 = (Partition("orders", index) for index in range(3))
THIRD = "m3"


def member(**config: Any) -> Driver:
    """P0 and P1 are mine, P2 is the other's."""
    return Driver(**config).running(0, 1, owns={ME: (0, 1), OTHER: (2,), THIRD: ()})


def slice_(d: Driver, partition: Partition = P0, target: str = OTHER, until: int = 9, **fields: Any) -> PromiseRecord:
    """Ask for a slice; the promise that is written."""
    d.feed(e.SliceWantedEvent, partition=partition, target=target, until=until, work=0.1, **fields)
    (promise,) = [command.record for command in d.all(c.AppendCommand)]
    assert isinstance(promise, PromiseRecord)
    return promise


def reached(d: Driver, partition: Partition = P0, done: int | None = 9, until: int = 9) -> list[c.Command]:
    values = {"partition": partition, "acquisition_id": d.acquisition_of(partition), "done": done}
    return d.feed(e.BoundReachedEvent, **values, until=until)


def commit_answered(d: Driver) -> list[c.Command]:
    """The commit that was commanded just now is answered."""
    d.only(c.SendCommitCommand)
    return d.commit_answered()


def taken_back(d: Driver) -> list[PromiseRecord]:
    records = [command.record for command in d.all(c.AppendCommand)]
    return [record for record in records if isinstance(record, PromiseRecord) and record.taken_back]


def promised_by(source: str, target: str, index: int, turn: int = 0, **fields: Any) -> PromiseRecord:
    values = {"group": GROUP, "member": source, "at": 0.0, "generation": 1, "topic": "orders", "version": 0}
    values |= {"until": 33, "work": 0.1}
    return PromiseRecord(partition=index, source=source, target=target, turn=turn, **{**values, **fields})


# -- the way ------------------------------------------------------------------------------------------------------


def test_promised_bounded_committed_stopped_released() -> None:
    d = member()
    promise = slice_(d)
    assert d.kinds() == ["Append", "Bound"]
    assert d.only(c.BoundCommand).until == 9
    assert (promise.source, promise.target, promise.until, promise.version, promise.turn) == (ME, OTHER, 9, 0, 0)
    assert d.read(promise) == [], "it counts: what is left is the bound"
    reached(d)
    assert d.kinds() == ["Stop", "SendCommit"], "what is done is committed beside the stop"
    assert d.only(c.SendCommitCommand).offsets == {P0: (9, "")}
    d.drained(P0, done=9)
    assert d.kinds() == [], "that commit is the last"
    d.commit_answered()
    written = d.only(c.AppendCommand).record
    assert isinstance(written, ReleaseRecord)
    assert (written.target, written.offset) == (OTHER, 9)
    d.read(written)
    assert "slice_kept" in d.counted()
    assert d.machine.snapshot().slices.promises == {}


def test_the_bound_is_not_enough_before_the_promise_counts() -> None:
    d = member()
    promise = slice_(d)
    reached(d)
    assert d.kinds() == ["SendCommit"], "committed at once, and not stopped"
    commit_answered(d)
    d.read(promise)
    assert d.kinds() == ["Stop"]
    d.drained(P0, done=9)
    assert isinstance(d.only(c.AppendCommand).record, ReleaseRecord), "with nothing left to commit"


def test_what_is_done_is_committed_ahead_where_the_bound_is_far() -> None:
    d = member()
    slice_(d, seconds=AHEAD_SECONDS)
    assert d.kinds() == ["Append", "Bound", "GatherCommits"]
    slice_(d, P1, seconds=AHEAD_SECONDS / 2)
    assert d.kinds() == ["Append", "Bound"], "a commit on its way would only delay the last one"


def test_a_commit_that_is_on_its_way_is_not_sent_again_at_the_bound() -> None:
    d = member()
    d.read(slice_(d))
    d.feed(e.CommitWantedEvent, offsets={P0: e.OffsetCommit(acquisition_id=d.acquisition_of(P0), offset=9)})
    d.only(c.SendCommitCommand)
    reached(d)
    d.drained(P0, done=9)
    assert d.kinds() == []
    d.commit_answered()
    assert isinstance(d.only(c.AppendCommand).record, ReleaseRecord)


def test_nothing_done_since_it_came_leaves_nothing_to_commit() -> None:
    d = member()
    d.read(slice_(d))
    reached(d, done=None)
    assert d.kinds() == ["Stop"]
    d.drained(P0, done=None)
    assert d.only(c.AppendCommand).record.offset == 5


def test_two_slices_to_one_receiver_count_one_after_the_other() -> None:
    d = member()
    first = slice_(d)
    second = slice_(d, P1)
    assert (first.turn, second.turn) == (0, 0), "of the promises of others"
    d.read(first)
    d.read(second)
    assert d.counted() == []
    assert [each.counts for each in d.machine.snapshot().slices.own.values()] == [True, True]


# -- who comes second ----------------------------------------------------------------------------------------------


def test_a_promise_that_came_second_is_void_and_the_partition_stays() -> None:
    d = member()
    promise = slice_(d)
    d.read(promised_by(OTHER, THIRD, 2))
    assert d.kinds() == [], "another receiver"
    late = slice_(d, P1, THIRD)
    assert late.turn == 1
    d.read(promised_by(OTHER, THIRD, 2, taken_back=True))
    first = promised_by(OTHER, THIRD, 2, at=1.0)
    d.read(first)
    d.read(late)
    assert d.kinds() == ["Unbound"], "and nothing is to be taken back"
    assert "slice_overtaken" in d.counted()
    assert d.machine.snapshot().slices.own.keys() == {P0}
    d.read(promise)
    assert d.counted() == []


def test_two_promises_behind_another_members_are_both_void() -> None:
    """Seed 3286061334 of the simulation: the second counted, and its giver did not know of the other member's."""
    d = member()
    first, second = slice_(d, target=THIRD), slice_(d, P1, THIRD)
    d.read(promised_by(OTHER, THIRD, 2))
    for promise in (first, second):
        d.read(promise)
        assert d.counted() == ["void_promise", "slice_overtaken"]
    assert d.machine.snapshot().slices.own == {}


def test_a_late_copy_of_an_earlier_promise_does_not_count_for_the_present_one() -> None:
    d = member()
    lost = slice_(d)
    d.after(COUNT_SECONDS)
    again = slice_(d, target=THIRD)
    d.read(lost)
    assert not d.machine.snapshot().slices.own[P0].counts
    reached(d)
    assert "Stop" not in d.kinds(), "by the log it was promised to another member"
    d.read(msgspec.structs.replace(lost, taken_back=True))
    d.read(again)
    assert d.kinds() == ["Stop"]


def test_a_promise_like_one_that_is_being_taken_back_is_not_made() -> None:
    """Of a member that stood still, at one moment of its clock: its word that took the first back ended the second."""
    d = member()
    first = slice_(d)
    d.feed(e.SliceDroppedEvent, partition=P0, acquisition_id=d.acquisition_of(P0))
    (word,) = taken_back(d)
    d.feed(e.SliceWantedEvent, partition=P0, target=OTHER, until=9, work=0.1)
    assert [command.what for command in d.all(c.CountCommand)] == [ProtocolCount.SLICE_NOT_POSSIBLE]
    assert P0 not in d.machine.snapshot().slices.own
    d.read(first)
    d.read(word)
    assert slice_(d) == first, "it can be told apart now"


def test_what_a_failed_log_has_ended_is_taken_back_once_it_works() -> None:
    """Its receiver counted the work until the next generation."""
    d = member()
    promise = slice_(d)
    d.read(promise)
    d.feed(e.LogFailedEvent, failed=True)
    assert not taken_back(d)
    d.feed(e.LogFailedEvent, failed=False)
    assert taken_back(d) == [msgspec.structs.replace(promise, taken_back=True)]
    d.read(taken_back(d)[0])
    d.after(2 * REPEAT_SECONDS)
    assert not taken_back(d), "once"


def test_a_word_that_takes_back_is_said_again_until_it_is_read() -> None:
    """Its append failed: all counted on the work, and the partition could not be promised again in its generation."""
    d = member()
    d.read(slice_(d))
    d.feed(e.SliceDroppedEvent, partition=P0, acquisition_id=d.acquisition_of(P0))
    (word,) = taken_back(d)
    d.feed(e.AppendedEvent, append=d.only(c.AppendCommand).append, offset=None)
    assert d.machine.slices.wakeup() == d.now + REPEAT_SECONDS
    d.after(REPEAT_SECONDS)
    assert taken_back(d) == [word]
    d.read(word)
    assert d.machine.slices.wakeup() == float("inf")
    d.after(REPEAT_SECONDS)
    assert not taken_back(d)
    assert d.machine.snapshot().slices.promises == {}


def test_what_was_to_be_taken_back_is_void_in_the_next_generation() -> None:
    d = member()
    d.read(slice_(d))
    d.feed(e.SliceDroppedEvent, partition=P0, acquisition_id=d.acquisition_of(P0))
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.after(REPEAT_SECONDS)
    assert not taken_back(d), "nothing is said while no generation is entered"
    d.into(2, **{ME: (0, 1), OTHER: (2,), THIRD: ()})
    d.after(REPEAT_SECONDS)
    assert not taken_back(d)


def test_a_gap_in_the_log_ends_all_slices_of_the_generation() -> None:
    d = member()
    d.read(slice_(d))
    d.feed(e.LogGapEvent)
    assert "Unbound" in d.kinds()
    assert not d.machine.snapshot().slices.able


@pytest.mark.parametrize("answered", [False, True])
def test_a_gap_between_join_and_entry_ends_the_slices_of_the_generation_entered(answered: bool) -> None:
    """Its promises may be among what was missed: seed 1006519870 of the simulation."""
    d = member()
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    if answered:
        d.join_answered(generation=2)
        d.feed(e.LogGapEvent)
        d.sync_answered(assignment=assignment_of(2, OTHER, 3, **{ME: (0, 1), OTHER: (2,)}))
    else:
        d.feed(e.LogGapEvent)
        d.into(2, **{ME: (0, 1), OTHER: (2,)})
    assert not d.machine.slices.promises.whole
    d.into(3, **{ME: (0, 1), OTHER: (2,)})
    assert d.machine.snapshot().generation == 3
    assert d.machine.slices.promises.whole


def test_a_gap_before_the_join_is_over_with_the_next_generation() -> None:
    d = member()
    d.feed(e.LogGapEvent)
    d.into(2, **{ME: (0, 1), OTHER: (2,)})
    assert d.machine.snapshot().slices.able


def test_records_of_later_generations_that_were_dropped_are_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(future_records, "RECORDS_MAX", 1)
    d = member()
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.read(promised_by(OTHER, THIRD, 2, generation=2))
    d.read(promised_by(OTHER, THIRD, 2, generation=2, version=1))
    assert d.counted() == ["future_records_dropped"]
    d.into(2, **{ME: (0, 1), OTHER: (2,), THIRD: ()})
    assert not d.machine.slices.promises.whole


def test_a_bound_that_was_reached_is_not_the_next_one() -> None:
    """The word of it was on its way while another was set: seed 3463851554 of the simulation."""
    d = member()
    d.read(slice_(d, until=12))
    reached(d, done=9, until=9)
    assert "Stop" not in d.kinds()
    reached(d, done=12, until=12)
    assert "Stop" in d.kinds()


# -- what ends it ----------------------------------------------------------------------------------------------------


def test_a_promise_that_is_not_read_in_time_is_taken_back() -> None:
    d = member()
    slice_(d)
    reached(d)
    assert d.machine.wakeup() <= d.now + COUNT_SECONDS
    d.after(COUNT_SECONDS)
    assert "Unbound" in d.kinds()
    assert len(taken_back(d)) == 1
    assert d.counted() == ["slice_timed_out"]


def test_a_bound_that_is_not_reached_in_time_is_not_waited_for() -> None:
    """User code took longer than expected, and the receiver has nothing to do."""
    d = member()
    d.read(slice_(d, seconds=1.0))
    d.after(0.99 + LATE_SECONDS)
    assert "Stop" not in d.kinds()
    d.after(0.02)
    assert "Stop" in d.kinds()
    d.drained(P0, done=7)
    commit_answered(d)
    assert d.only(c.AppendCommand).record.offset == 7


def test_a_rebalance_undoes_the_bound_before_it_joins() -> None:
    d = member()
    d.read(slice_(d))
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    kinds = d.kinds()
    assert kinds.index("Unbound") < kinds.index("SendJoin")
    assert not taken_back(d), "a promise ends with its generation"
    reached(d)
    assert "Stop" not in d.kinds()
    assert d.machine.owned_partitions() == (P0, P1)


@pytest.mark.parametrize("ending", ["log", "forgotten", "leaving", "plan", "user"])
def test_whatever_else_ends_it(ending: str) -> None:
    d = member()
    d.read(slice_(d))
    match ending:
        case "log":
            d.feed(e.LogFailedEvent, failed=True)
        case "forgotten":
            d.heartbeat_answered(Code.UNKNOWN_MEMBER_ID)
        case "leaving":
            d.feed(e.LeaveWantedEvent, deadline=d.now + 5.0)
            d.after(0.0)
        case "plan":
            d.read(
                PlanRecord(
                    group=GROUP,
                    member=OTHER,
                    at=0.0,
                    generation=1,
                    sequence=1,
                    moves=(MovePlan(topic="orders", partition=0, source=ME, target=THIRD),),
                )
            )
        case _:
            d.feed(e.SliceDroppedEvent, partition=P0, acquisition_id=d.acquisition_of(P0))
    assert "Unbound" in d.kinds()
    assert d.counted().count("slice_dropped") == 1
    assert len(taken_back(d)) == (ending in ("leaving", "plan", "user"))
    assert d.machine.snapshot().slices.own == {}


def test_a_drop_of_an_earlier_acquisition_ends_nothing() -> None:
    d = member()
    slice_(d)
    d.feed(e.SliceDroppedEvent, partition=P0, acquisition_id=d.acquisition_of(P0) - 1)
    d.feed(e.BoundReachedEvent, partition=P0, acquisition_id=d.acquisition_of(P0) - 1, done=9, until=9)
    assert d.kinds() == []
    assert d.machine.snapshot().slices.own


def test_a_receiver_that_leaves_before_the_bound_is_given_nothing() -> None:
    d = member()
    d.read(slice_(d))
    d.read(LeavingRecord(group=GROUP, member=OTHER, at=0.0, generation=1))
    reached(d)
    assert "Stop" not in d.kinds()
    assert "Unbound" in d.kinds()
    assert len(taken_back(d)) == 1
    assert d.counted() == ["slice_not_possible"]


def test_a_handoff_that_is_given_up_is_taken_back() -> None:
    d = member(drain_seconds=1.0)
    d.read(slice_(d))
    reached(d)
    assert "Stop" in d.kinds()
    commit_answered(d)
    d.after(1.0)
    assert "Resume" in d.kinds()
    assert "move_timed_out" in d.counted()
    assert len(taken_back(d)) == 1
    slice_(d)
    assert "Bound" in d.kinds(), "and it may be tried again"


def test_a_partition_that_is_lost_takes_its_slice_along() -> None:
    d = member()
    d.read(slice_(d))
    d.heartbeat_answered(Code.UNKNOWN_MEMBER_ID)
    d.now += 60.0
    assert d.machine.slices.wakeup() == float("inf")


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"target": ME}, "to itself"),
        ({"target": "stranger"}, "of no generation"),
        ({"partition": P2}, "another one's"),
        ({"seconds": float("inf")}, "no time"),
        ({"seconds": -1.0}, "no time"),
        ({"work": float("nan")}, "no work"),
        ({"work": -1.0}, "no work"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], why: str) -> None:
    d = member()
    d.feed(e.SliceWantedEvent, **{"partition": P0, "target": OTHER, "until": 9, **fields})
    assert d.kinds() == [], why
    assert d.counted() == ["slice_not_possible"]


@pytest.mark.parametrize("why", ["manual commits", "log", "leaving", "moving", "twice", "overdue"])
def test_when_nothing_is_sliced(why: str) -> None:
    d = member(auto_commit=why != "manual commits")
    match why:
        case "log":
            d.feed(e.LogFailedEvent, failed=True)
        case "leaving":
            d.feed(e.LeaveWantedEvent, deadline=d.now + 5.0)
        case "moving":
            d.give(P0)
        case "twice":
            slice_(d)
        case "overdue":
            for _ in range(3):
                d.now += 1.5
                d.read(LoadRecord(group=GROUP, member=THIRD, at=0.0, generation=1))
                d.heartbeat_answered(Code.NONE)
        case _:
            pass
    d.feed(e.SliceWantedEvent, partition=P0, target=OTHER, until=9)
    assert "Bound" not in d.kinds()
    assert "slice_not_possible" in d.counted()


def test_slices_are_bounded() -> None:
    everything = tuple(range(SLICES_MAX + 1))
    d = Driver().running(*everything, owns={ME: everything, OTHER: ()})
    for index in everything:
        d.feed(e.SliceWantedEvent, partition=Partition("orders", index), target=OTHER, until=9)
    assert d.counted() == ["slice_not_possible"]
    assert len(d.machine.snapshot().slices.own) == SLICES_MAX


# -- the receiver ------------------------------------------------------------------------------------------------------


def test_a_promise_is_prefetched_from_where_it_will_begin() -> None:
    d = member()
    d.read(promised_by(OTHER, ME, 2))
    assert d.out == [c.PrefetchCommand(partitions=(P2,), starts={P2: 33})]
    d.read(release(1, 2, 0, OTHER, ME, offset=33))
    assert d.kinds() == ["Open"]


def test_plans_that_name_other_things_leave_it() -> None:
    d = member()
    d.read(promised_by(OTHER, ME, 2))
    d.read(PlanRecord(group=GROUP, member=OTHER, at=0.0, generation=1, sequence=1))
    assert d.kinds() == []
    d.read(promised_by(OTHER, ME, 2, taken_back=True))
    assert d.kinds() == ["DropPrefetch"]


def test_what_a_plan_and_a_promise_bring_is_fetched_until_neither_does() -> None:
    d = member()
    move = MovePlan(topic="orders", partition=2, source=OTHER, target=ME)
    d.read(PlanRecord(group=GROUP, member=OTHER, at=0.0, generation=1, sequence=1, moves=(move,)))
    assert d.kinds() == ["Prefetch"]
    d.read(promised_by(OTHER, ME, 2))
    assert d.kinds() == [], "it is fetched already"
    d.read(PlanRecord(group=GROUP, member=OTHER, at=0.0, generation=1, sequence=2))
    assert d.kinds() == []
    d.after(PREFETCH_SECONDS)
    assert "DropPrefetch" in d.kinds()


def test_a_promise_to_another_member_or_that_is_void_is_not_prefetched() -> None:
    d = member()
    d.read(promised_by(OTHER, THIRD, 2))
    d.read(promised_by(OTHER, ME, 2, turn=3))
    assert d.kinds() == []
    assert d.counted() == ["void_promise"]


def test_a_promise_of_the_next_generation_counts_in_it() -> None:
    d = member()
    d.read(promised_by(OTHER, ME, 2, generation=2))
    assert d.out == []
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.into(2, **{ME: (0, 1), OTHER: (2,), THIRD: ()})
    assert d.machine.snapshot().slices.promises.keys() == {P2}


def test_the_log_is_read_quickly_while_a_slice_is_under_way() -> None:
    d = member()
    assert not d.machine.snapshot().awaits_log
    slice_(d)
    assert d.machine.snapshot().awaits_log
    d = member()
    d.read(promised_by(OTHER, ME, 2))
    assert d.machine.snapshot().awaits_log
