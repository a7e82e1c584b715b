"""The one door: what is remembered, replayed, bounded, and when to knock next."""

from __future__ import annotations

import msgspec
import pytest

from loadtrim_agent.common.errors import InvariantError
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol import assigned_partition, future_records, membership_table, peers, trace
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.assigned_partition import AssignedState
from loadtrim_agent.protocol.group_config import Code
from loadtrim_agent.protocol.membership_table import Phase
from loadtrim_agent.wire.ownership_records import (
    HelloRecord,
    LeavingRecord,
    LoadRecord,
    ManualOverrideRecord,
    MovePlan,
    PlanRecord,
)
from loadtrim_agent.wire.telemetry_records import ReportRecord
from sim.driver import GROUP, ME, OTHER, Driver, assignment_of, release

P0, P1 = Partition("orders", 0), Partition("orders", 1)


def manual_override(action: str, at: float) -> ManualOverrideRecord:
    return ManualOverrideRecord(group=GROUP, member="cli", at=at, action=action)


def test_same_events_same_commands() -> None:
    def run() -> list[str]:
        d = Driver().running(0, 1)
        d.give(P0)
        d.drained(P0, 9)
        return [repr(entry) for entry in d.machine.trace()]

    assert run() == run()


def test_a_contradiction_tells_the_history_of_its_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    d = Driver().running(0, 1)
    d.give(P0)
    monkeypatch.setitem(assigned_partition.TRANSITIONS, AssignedState.DRAINING, {})  # type: ignore[arg-type]
    with pytest.raises(InvariantError) as caught:
        d.drained(P0, 9)
    error = caught.value
    assert error.what == "orders-0 (acquisition 1): DRAINED in DRAINING"
    states, events = error.history[:4], error.history[4:]
    assert states[-2:] == ("RUNNING: GIVING", "PRE_COMMIT: STOPPED")
    assert events
    kinds = [line.split()[1].partition("(")[0] for line in events]
    assert kinds[-5:] == ["MoveWantedEvent", "AwaitIdlePointCommand", "IdlePointEvent", "StopCommand", "DrainedEvent"]
    assert all("partition=0" in line for line in events), "and nothing of the other partition"
    assert str(error).splitlines() == [error.what, *(f"  {line}" for line in error.history)]


def test_a_history_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    d = Driver().running(0)
    for _ in range(40):
        d.give(P0)
        d.after(d.machine.config.drain_seconds)
        d.read(LoadRecord(group=GROUP, member=OTHER, at=0.0, generation=1))
    d.give(P0)
    monkeypatch.setitem(assigned_partition.TRANSITIONS, AssignedState.DRAINING, {})  # type: ignore[arg-type]
    with pytest.raises(InvariantError) as caught:
        d.drained(P0, 9)
    assert len(caught.value.history) == assigned_partition.HISTORY_ENTRIES_MAX + trace.HISTORY_LINES_MAX
    assert max(map(len, caught.value.history)) <= trace.HISTORY_LINE_CHARACTERS_MAX


def test_a_contradiction_of_the_membership_tells_how_it_came_there(monkeypatch: pytest.MonkeyPatch) -> None:
    d = Driver().running(0)
    monkeypatch.setitem(membership_table.TRANSITIONS, Phase.STABLE, {})  # type: ignore[arg-type]
    with pytest.raises(InvariantError, match="membership: REBALANCE_TOLD in STABLE") as caught:
        d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    triggers = [
        line.split(maxsplit=1)[1] for line in caught.value.history if line.endswith(("JOINED", "_HERE", "READY"))
    ]
    assert triggers == ["REVOKING: READY", "JOINING: JOINED", "SYNCING: ASSIGNMENT_HERE"]
    assert "HeartbeatAnsweredEvent" in caught.value.history[-1]


def test_ticks_without_consequence_are_not_remembered() -> None:
    d = Driver().running(0)
    before = d.machine.trace()
    d.after(0.1)
    assert d.machine.trace() == before


def test_a_contradiction_is_raised() -> None:
    d = Driver().running(0)
    d.machine.partitions.assigned[P0].state = AssignedState.TRANSFERRED
    with pytest.raises(InvariantError, match="RELEASE_SENT in TRANSFERRED"):
        d.machine.partitions.release(d.now, d.machine.partitions.assigned[P0], None)


def test_after_a_contradiction_nothing_is_given_away_and_all_else_goes_on() -> None:
    d = Driver().running(0, 1)
    d.give(P0)
    d.machine.partitions.assigned[P1].state = AssignedState.OPENING
    d.machine.partitions.assigned[P1].committed = None
    d.machine.partitions.commits.want = _contradict  # type: ignore[method-assign]
    with pytest.raises(InvariantError):
        d.feed(e.OpenedEvent, partition=P1, acquisition_id=d.acquisition_of(P1), position=5)
    assert not d.machine.log_works
    d.drained(P0, None)
    assert not d.all(c.AppendCommand), "the move that was going on is not finished"
    d.give(P0)
    assert d.counted() == ["move_not_possible"]
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    assert P0 in d.only(c.SendJoinCommand).owned


def _contradict(*args: object) -> None:
    raise InvariantError("made up")


def test_nothing_is_due_before_the_start() -> None:
    assert Driver().machine.wakeup() == float("inf")


def test_the_latest_brake_in_the_log_counts_and_every_map_repeats_it() -> None:
    d = Driver().running(0, leader=ME)
    d.read(manual_override("hold", at=9.0))
    d.read(manual_override("resume", at=5.0))
    assert d.machine.snapshot().manual_override == manual_override("resume", at=5.0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    me = e.JoinedMember(member=ME, topics=("orders",), owned=(P0,), attempt=3)
    d.join_answered(generation=2, leader=ME, members=(me,))
    assignment = d.only(c.SendSyncCommand).answers[ME].assignment
    assert assignment is not None
    assert assignment.manual_override == manual_override("resume", at=5.0)


def test_a_newcomer_learns_the_brake_from_the_map() -> None:
    d = Driver().joining()
    d.join_answered()
    assignment = assignment_of(1, OTHER, m1=(0,), m2=())
    held = type(assignment)(
        group=GROUP,
        member=OTHER,
        at=0.0,
        generation=1,
        members=assignment.members,
        manual_override=manual_override("hold", at=1.0),
    )
    d.sync_answered(assignment=held)
    assert d.machine.snapshot().manual_override == manual_override("hold", at=1.0)


@pytest.mark.parametrize("read", [None, "resume"])
def test_a_newcomer_that_leads_learns_the_brake_from_the_log(read: str | None) -> None:
    """A process that was killed was started again, and elected: its map repeated that there is none, and nobody's was
    heeded. What it has read from the log itself is newer.
    """
    d = Driver().joining()
    if read is not None:
        d.read(manual_override(read, at=2.0))
    members = tuple(e.JoinedMember(member=name, topics=("orders",), attempt=3) for name in (ME, OTHER))
    d.join_answered(generation=2, leader=ME, members=members)
    assert d.kinds() == ["ReadAssignment"]
    newest = assignment_of(1, OTHER, **{OTHER: (0,)})
    d.feed(e.AssignmentFoundEvent, assignment=newest, manual_override=manual_override("hold", 1.0))
    assignment = d.only(c.SendSyncCommand).answers[OTHER].assignment
    assert assignment is not None
    assert assignment.manual_override is not None
    assert assignment.manual_override.action == (read or "hold")


def test_records_of_later_generations_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(future_records, "RECORDS_MAX", 3)
    d = Driver().running(0)
    for version in range(3):
        assert d.read(release(2, 1, version, OTHER, ME)) == []
    d.read(release(3, 1, 0, OTHER, ME))
    assert d.counted() == ["future_records_dropped"]
    assert d.all(c.SendJoinCommand), "a map makes them unnecessary"


def test_a_barrier_drops_what_was_kept_for_generations_that_are_over() -> None:
    d = Driver().running(0, owns={ME: (0,), OTHER: (1,)})
    d.read(release(2, 1, 0, OTHER, ME))
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=3)
    d.sync_answered(assignment=_with_attempt(assignment_of(3, OTHER, m1=(0,), m2=(1,)), 3))
    assert not d.all(c.OpenCommand)
    d.read(release(2, 1, 0, OTHER, ME))
    assert d.counted() == ["void_release"]


def _with_attempt(assignment, attempt):  # type: ignore[no-untyped-def]
    members = {m: type(x)(attempt=attempt, topics=x.topics, owns=x.owns) for m, x in assignment.members.items()}
    return type(assignment)(
        group=GROUP, member=assignment.member, at=0.0, generation=assignment.generation, members=members
    )


def test_maps_of_this_generation_and_telemetry_are_passed_over() -> None:
    d = Driver().running(0)
    assert d.read(assignment_of(1, OTHER, m1=(), m2=(0,))) == []
    assert d.read(ReportRecord(group=GROUP, member=OTHER, at=0.0, sequence=1, generation=1)) == []
    assert d.machine.partitions.assigned.keys() == {P0}


def test_a_plan_of_a_member_that_does_not_lead_is_not_heeded() -> None:
    """With a sequence above the leader's own it shut the leader's plans out for the generation."""
    d = Driver().running(0, 1)
    move = MovePlan(topic="orders", partition=0, source=ME, target=OTHER)
    plan = PlanRecord(group=GROUP, member="m9", at=0.0, generation=1, sequence=2**62, moves=(move,))
    d.read(plan)
    assert d.counted() == ["foreign_plan"]
    assert d.machine.plan.record is None
    mine = msgspec.structs.replace(plan, member=OTHER, sequence=1)
    d.read(mine)
    assert d.machine.plan.record == mine
    assert d.machine.partitions.assigned[P0].state is AssignedState.PRE_COMMIT


def test_names_that_are_made_up_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "LEAVING_MAX", 10)
    monkeypatch.setattr(future_records, "NAMES_MAX", 100)
    d = Driver().running(0, 1)
    for number in range(50):
        d.read(LeavingRecord(group=GROUP, member=f"stranger-{number}", at=0.0, generation=1))
    d.read(LeavingRecord(group=GROUP, member=OTHER, at=0.0, generation=1))
    assert len(d.machine.peers.leaving) == 11
    assert OTHER in d.machine.peers.leaving
    later = assignment_of(7, **{f"m{number}": tuple(range(9)) for number in range(5)})
    d.read(later)
    d.read(later)
    assert d.counted() == ["future_records_dropped"]


def test_leaving_said_for_the_next_generation_counts_there() -> None:
    d = Driver().running(0)
    d.read(LeavingRecord(group=GROUP, member=OTHER, at=0.0, generation=2))
    assert d.machine.snapshot().leaving == frozenset()
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=2)
    d.sync_answered(assignment=_with_attempt(assignment_of(2, OTHER, m1=(0,), m2=()), 3))
    assert d.machine.snapshot().leaving == {OTHER}


def test_weights_reach_the_map() -> None:
    d = Driver().joining()
    d.feed(e.WeightsEvent, weights={P0: 10.0})
    one = e.JoinedMember(member=ME, topics=("orders",), attempt=2)
    two = e.JoinedMember(member=OTHER, topics=("orders",), attempt=2)
    d.join_answered(leader=ME, members=(one, two))
    d.feed(e.AssignmentFoundEvent, assignment=None)
    assert d.only(c.SendSyncCommand).answers[ME].partitions == (P0,)


def test_records_carry_wall_clock_time() -> None:
    d = Driver().running(0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    assert d.only(c.AppendCommand).record.at == d.now + 1e9


def plan_of(sequence: int, *moves: MovePlan, generation: int = 1) -> PlanRecord:
    return PlanRecord(group=GROUP, member=OTHER, at=0.0, generation=generation, sequence=sequence, moves=moves)


TO_ME = MovePlan(topic="orders", partition=1, source=OTHER, target=ME)
FROM_ME = MovePlan(topic="orders", partition=0, source=ME, target=OTHER)


def test_a_plan_that_is_read_in_a_rebalance_is_not_heeded() -> None:
    """Nothing it advises can happen before the generation ends, and the next one has plans of its own."""
    d = Driver().running(0, owns={ME: (0,), OTHER: (1,)})
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.read(plan_of(1, FROM_ME, TO_ME))
    assert (d.out, d.machine.plan.record) == ([], None)


def test_the_plans_of_a_generation_count_from_its_first_on() -> None:
    """Each leader numbers its own: a plan of the generation before shut out those of the next leader."""
    d = Driver().running(0)
    d.read(plan_of(7))
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.into(2, m1=(0,), m2=())
    assert d.machine.plan.record is None
    d.read(plan_of(1, FROM_ME, generation=2))
    assert d.machine.partitions.assigned[P0].state is AssignedState.PRE_COMMIT


def test_a_move_that_is_advised_before_its_partition_is_opened_waits_for_that() -> None:
    """A group's first plan may overtake the first commit of a start. The move was refused, and rested for 10 s."""
    d = Driver().running(0, offset=-1)
    d.all(c.SendCommitCommand)
    d.read(plan_of(1, FROM_ME))
    assert (d.counted(), d.kinds()) == ([], [])
    d.commit_answered()
    assert d.kinds() == ["Run", "GatherCommits"]
    assert d.machine.partitions.assigned[P0].target == OTHER


def test_a_move_that_waits_for_its_partition_goes_on_waiting_over_the_next_plan() -> None:
    """The leader leaves moves that are under way out of its next plans. Dropped, it rested for 10 s after all."""
    d = Driver().running(0, offset=-1)
    d.all(c.SendCommitCommand)
    d.read(plan_of(1, FROM_ME))
    d.read(plan_of(2))
    d.commit_answered()
    assert d.kinds() == ["Run", "GatherCommits"]
    assert d.machine.partitions.assigned[P0].target == OTHER


def test_a_move_that_waits_for_its_partition_is_off_with_the_next_generation() -> None:
    d = Driver().running(0, offset=-1)
    d.all(c.SendCommitCommand)
    d.read(plan_of(1, FROM_ME))
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.into(2, m1=(0,), m2=())
    d.commit_answered(Code.ILLEGAL_GENERATION)
    d.all(c.SendCommitCommand)
    d.commit_answered()
    assert d.kinds() == ["Run"]


def test_a_move_that_waits_for_its_partition_is_not_possible_when_its_target_has_left() -> None:
    d = Driver().running(0, offset=-1)
    d.all(c.SendCommitCommand)
    d.read(plan_of(1, FROM_ME))
    d.read(LeavingRecord(group=GROUP, member=OTHER, at=0.0, generation=1))
    d.commit_answered()
    assert (d.kinds(), d.counted()) == (["Run"], ["move_not_possible"])


def test_a_member_that_does_not_subscribe_the_topic_is_given_nothing_of_it() -> None:
    d = Driver().joining()
    d.join_answered()
    assignment = assignment_of(1, m1=(0,), m2=())
    others = msgspec.structs.replace(assignment.members[OTHER], topics=("payments",))
    d.sync_answered(assignment=msgspec.structs.replace(assignment, members={**assignment.members, OTHER: others}))
    d.open_all()
    d.feed(e.MoveWantedEvent, partition=P0, target=OTHER)
    assert d.counted() == ["move_not_possible"]
    assert d.kinds() == []


def test_no_move_begins_in_a_rebalance_and_none_twice() -> None:
    d = Driver().running(0)
    d.feed(e.MoveWantedEvent, partition=P0, target=OTHER)
    assert d.kinds() == ["GatherCommits"]
    d.feed(e.MoveWantedEvent, partition=P0, target=OTHER)
    assert (d.counted(), d.kinds()) == (["move_not_possible"], []), "it is on its way"
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.feed(e.MoveWantedEvent, partition=P0, target=OTHER)
    assert (d.counted(), d.kinds()) == (["move_not_possible"], [])
    assert d.machine.partitions.assigned[P0].state is AssignedState.RUNNING


def test_what_is_held_is_not_acquired_again() -> None:
    """A release that gives a member what it holds, and that it never sent, must not open a second acquisition."""
    d = Driver().running(0)
    d.read(release(1, 0, 0, ME, ME))
    assert d.counted() == ["foreign_release"]
    assert not d.all(c.OpenCommand)
    assert d.machine.partitions.assigned[P0].state is AssignedState.RUNNING


def test_what_was_kept_for_a_later_generation_is_dropped_at_a_gap() -> None:
    """Between these records one may be missing: folded without it they made owners that nobody else knew."""
    d = Driver().running(0, owns={ME: (0,), OTHER: (1,)})
    d.read(release(2, 1, 0, OTHER, ME))
    d.feed(e.LogGapEvent)
    d.into(2, m1=(0,), m2=(1,))
    assert not d.all(c.OpenCommand)
    assert d.machine.snapshot().owners == {P0: ME, Partition("orders", 1): OTHER}


def test_a_commit_carries_the_generation_that_was_entered() -> None:
    """With the next one, which only JoinGroup has told yet, the fence would let a commit of before pass."""
    d = Driver().running(0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.join_answered(generation=2)
    d.sync_answered(code=Code.REBALANCE_IN_PROGRESS)
    assert d.all(c.SendJoinCommand)
    offsets = {P0: e.OffsetCommit(acquisition_id=d.acquisition_of(P0), offset=6)}
    d.feed(e.CommitWantedEvent, offsets=offsets)
    assert d.only(c.SendCommitCommand).generation == 1


def test_a_commit_of_an_earlier_generation_that_is_refused_late_begins_no_rebalance() -> None:
    d = Driver().running(0)
    offsets = {P0: e.OffsetCommit(acquisition_id=d.acquisition_of(P0), offset=6)}
    d.feed(e.CommitWantedEvent, offsets=offsets)
    assert d.only(c.SendCommitCommand).generation == 1
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    d.into(2, m1=(0,), m2=())
    d.commit_answered(Code.ILLEGAL_GENERATION)
    assert d.machine.snapshot().stable
    assert d.only(c.SendCommitCommand).generation == 2, "it is sent again where it belongs now"


def test_a_forgotten_member_comes_back_as_a_newcomer() -> None:
    d = Driver().running(0)
    d.heartbeat_answered(Code.UNKNOWN_MEMBER_ID)
    seen = d.machine.snapshot()
    assert (seen.member, seen.generation, seen.protocol, seen.assignment) == ("", -1, "", None)
    d.join_answered(code=Code.MEMBER_ID_REQUIRED, member="m7")
    assert isinstance(d.only(c.AppendCommand).record, HelloRecord), "the others know it by no generation"


@pytest.mark.parametrize("code", [Code.REQUEST_TIMED_OUT, Code.NOT_COORDINATOR])
def test_a_commit_that_could_not_be_stored_in_time_makes_the_coordinator_be_looked_up(code: Code) -> None:
    """A broker that is cut off from its followers answers heartbeats as before, while another one coordinates."""
    d = Driver().running(0)
    d.feed(e.CommitWantedEvent, offsets={P0: e.OffsetCommit(acquisition_id=d.acquisition_of(P0), offset=9)})
    d.all(c.SendCommitCommand)
    d.commit_answered(code)
    assert d.kinds() == ["FindCoordinator"]


def test_a_successor_numbers_on() -> None:
    """Answers to what was sent before it left must not be taken for answers to the successor's requests."""
    d = Driver().running(0)
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    last_join, last_append = d.only(c.SendJoinCommand).attempt, d.only(c.AppendCommand).append
    last_acquisition = d.acquisition_of(P0)
    d.machine = d.machine.successor()
    d.feed(e.StartEvent)
    d.feed(e.CoordinatorFoundEvent)
    assert d.only(c.SendJoinCommand).attempt == last_join + 1
    d.join_answered(code=Code.MEMBER_ID_REQUIRED)
    assert d.only(c.AppendCommand).append == last_append + 1
    d.join_answered()
    d.sync_answered(assignment=assignment_of(1, attempt=last_join + 2, m1=(0,), m2=()))
    assert d.acquisition_of(P0) == last_acquisition + 1
