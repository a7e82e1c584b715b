"""The fold of the control topic that ``status``, ``explain`` and the live view show."""

from __future__ import annotations

import math

import msgspec
import pytest

from loadtrim.observer.group import GroupObserver, ObservedGroup
from loadtrim_agent.wire.ownership_records import HelloRecord, LeavingRecord, LeftRecord, LoadRecord, PlanRecord
from loadtrim_agent.wire.telemetry_records import PartitionReport

from .control_records import GROUP, base, decision, manual_override, release, report, view


def owners(state: ObservedGroup) -> dict[int, str | None]:
    return {each.partition: each.member for each in state.partitions}


def test_owners_are_the_map_and_the_releases_that_count() -> None:
    state = view(
        base(1, {"a": (0, 1), "b": (2,)}),
        release(1, 0, 0, "a", "b"),
        release(1, 0, 0, "a", "b"),
        release(1, 0, 1, "b", "a"),
        release(1, 1, 0, "b", "a"),
        release(1, 2, 0, "b", "a"),
    ).state(1.0)
    assert owners(state) == {0: "a", 1: "a", 2: "a"}
    assert [each.version for each in state.partitions] == [2, 0, 1]
    assert state.owners_from == "log"
    assert state.moves == 3


def test_a_delayed_copy_of_a_release_is_void() -> None:
    records = [base(1, {"a": (0,), "b": ()}), release(1, 0, 0, "a", "b"), release(1, 0, 1, "b", "a")]
    state = view(*records, release(1, 0, 0, "a", "b")).state(1.0)
    assert owners(state) == {0: "a"}


def test_releases_that_overtook_their_base_count() -> None:
    state = view(
        base(1, {"a": (0,), "b": ()}),
        release(2, 0, 0, "a", "b"),
        release(3, 0, 0, "b", "a"),
        base(2, {"a": (0,), "b": ()}),
    ).state(1.0)
    assert owners(state) == {0: "b"}
    assert state.generation == 2


def test_an_older_base_changes_nothing_unless_the_newer_generation_fell_silent() -> None:
    folded = view(base(7, {"a": (0,)}, at=100.0), base(6, {"b": (0,)}, at=101.0))
    assert owners(folded.state(101.0)) == {0: "a"}
    folded.apply(LoadRecord(group=GROUP, member="a", at=110.0, generation=7))
    folded.apply(base(1, {"c": (0,)}, at=139.0))
    assert owners(folded.state(139.0)) == {0: "a"}
    folded.apply(base(1, {"c": (0,)}, at=141.0))
    assert owners(folded.state(141.0)) == {0: "c"}


def test_a_group_that_was_deleted_and_begins_anew_at_once_is_seen() -> None:
    """Its map was passed over as one of an older generation, and is written once: the dead ones were shown for ever."""
    folded = view(base(5, {"old": (0,)}, at=100.0), base(1, {"new": (0,)}, at=110.0))
    folded.apply(LoadRecord(group=GROUP, member="new", at=129.0, generation=1))
    assert owners(folded.state(129.0)) == {0: "old"}, "a leader that was late may have written it"
    folded.apply(LoadRecord(group=GROUP, member="new", at=131.0, generation=1))
    state = folded.state(131.0)
    assert (state.generation, owners(state)) == (1, {0: "new"})


def test_a_base_written_twice_does_not_undo_releases() -> None:
    folded = view(base(1, {"a": (0,), "b": ()}), release(1, 0, 0, "a", "b"), base(1, {"a": (0,), "b": ()}))
    assert owners(folded.state(1.0)) == {0: "b"}


def test_without_a_base_the_reports_tell_the_owners() -> None:
    folded = view(report("b", PartitionReport(topic="payments", partition=3)))
    state = folded.state(1.0)
    assert (owners(state), state.owners_from) == ({3: "b"}, "reports")
    assert GroupObserver(GROUP).state(0.0).owners_from == "nothing"


def test_what_a_former_owner_reports_last_is_not_shown_under_the_new_one() -> None:
    """The new owner's partition was shown as ``gone``, with nothing behind."""
    records = [base(1, {"a": (0,), "b": ()}), release(1, 0, 0, "a", "b")]
    running = report("b", PartitionReport(topic="payments", partition=0, lag=7), at=1.0)
    gone = report("a", PartitionReport(topic="payments", partition=0, arrived=3, state="gone"), at=1.5)
    (shown,) = view(*records, running, gone).state(2.0).partitions
    assert (shown.member, shown.state, shown.lag_records) == ("b", "running", 7)
    (shown,) = view(*records, gone).state(2.0).partitions
    assert (shown.member, shown.state, shown.lag_records) == ("b", "", None)


def test_by_the_reports_a_partition_that_was_lost_has_no_owner() -> None:
    seen = report("a", PartitionReport(topic="payments", partition=0))
    gone = report("a", PartitionReport(topic="payments", partition=0, state="gone"))
    assert owners(view(seen, gone).state(0.0)) == {}
    assert owners(view(seen, gone, seen).state(0.0)) == {0: "a"}


def mixed_group(*reported: tuple[float, int]) -> GroupObserver:
    """Group of generation 7 until 20, with reports of c at these times and in these generations."""
    folded = view(base(7, {"a": (0, 1), "b": (2,)}, at=10.0), decision("a", at=20.0, generation=7))
    for at, generation in reported:
        folded.apply(report("c", PartitionReport(topic="payments", partition=1, lag=2), at=at, generation=generation))
    return folded


def test_reports_beyond_what_any_leader_wrote_are_those_of_a_mixed_group() -> None:
    """Leader, owners and members that had ended were shown for as long as the group was mixed."""
    folded = mixed_group((21.0, 8), (22.0, 8), (23.0, 8))
    folded.apply(release(7, 1, 0, "a", "b", at=15.0))
    state = folded.state(23.0)
    assert state.mixed
    assert [each.version for each in state.partitions] == [0], "handoffs of a generation that is over"
    assert (state.generation, state.leader, state.owners_from) == (8, None, "reports")
    assert owners(state) == {1: "c"}
    assert [(each.member, each.state) for each in state.members] == [("c", "running")]
    folded.apply(base(9, {"c": (0, 1, 2)}, at=24.0))
    state = folded.state(24.0)
    assert (state.mixed, state.generation, state.leader) == (False, 9, "c")


def test_a_member_that_joins_a_mixed_group_is_joining_until_it_reports() -> None:
    """It was shown as joining for as long as it consumed: it is on no map."""
    folded = mixed_group((21.0, 8), (23.0, 8))
    folded.apply(HelloRecord(group=GROUP, member="d", at=23.0))
    assert {each.member: each.state for each in folded.state(23.0).members} == {"c": "running", "d": "joining"}
    folded.apply(report("d", at=24.0, generation=8))
    assert {each.member: each.state for each in folded.state(24.0).members} == {"c": "running", "d": "running"}


@pytest.mark.parametrize(
    "reported",
    [
        pytest.param(((20.0, 7), (60.0, 7)), id="of the generation that was planned last"),
        pytest.param(((21.0, 8), (22.0, 8)), id="the leader may be about to write"),
        pytest.param(((21.0, 6), (24.0, 6)), id="late"),
    ],
)
def test_a_group_is_not_called_mixed_too_soon(reported: tuple[tuple[float, int], ...]) -> None:
    assert not mixed_group(*reported).state(reported[-1][0]).mixed


def test_a_decision_of_the_generation_before_makes_no_group_mixed() -> None:
    """Telemetry is read after all of the coordination log: older decisions come after a newer map."""
    folded = mixed_group()
    folded.apply(base(9, {"c": (0, 1, 2)}, at=30.0))
    folded.apply(decision("a", at=25.0, generation=7))
    for at in (31.0, 34.0):
        folded.apply(report("c", at=at, generation=9))
    assert not folded.state(34.0).mixed


def test_a_mixed_group_that_was_deleted_and_begins_anew_is_seen() -> None:
    assert mixed_group((60.0, 1), (63.0, 1)).state(63.0).mixed


def test_a_partition_on_nobodys_map_has_no_owner() -> None:
    state = view(base(1, {"a": (0,)}), report("a", PartitionReport(topic="payments", partition=1))).state(1.0)
    assert owners(state) == {0: "a", 1: None}


def test_members_with_their_state() -> None:
    records = [
        base(3, {"a": (0,), "b": (1,), "c": (2,), "d": ()}, at=10.0),
        HelloRecord(group=GROUP, member="e", at=11.0, instance="pay-10"),
        report("a", at=12.0, instance="pay-9", busy_seconds=0.5, concurrency=2.0, speed=1.5),
        LeavingRecord(group=GROUP, member="b", at=12.0, generation=3, instance="pay-2"),
        PlanRecord(group=GROUP, member="a", at=12.0, generation=3, sequence=1, victims=("c",)),
        LoadRecord(group=GROUP, member="c", at=12.0, generation=3),
    ]
    state = view(*records).state(13.0)
    told = {each.instance or each.member: each.state for each in state.members}
    assert told == {"c": "victim", "d": "silent", "pay-2": "leaving", "pay-9": "running", "pay-10": "joining"}
    assert list(told) == ["c", "d", "pay-2", "pay-9", "pay-10"], "by instance, numbers as numbers"
    leader = next(each for each in state.members if each.leader)
    assert (leader.member, leader.utilization, leader.capacity) == ("a", 0.25, 3.0)
    assert state.leader == "a"
    assert state.replicas == 3, "c has not told its instance"
    assert state.capacity == 3 * 3.0, "the newcomer gives nothing yet; unknown ones count like the others"
    assert state.names == {"a": "pay-9", "b": "pay-2", "e": "pay-10"}


def test_who_left_is_gone_and_a_new_generation_begins_anew() -> None:
    folded = view(base(1, {"a": (0,), "b": ()}), LeftRecord(group=GROUP, member="b", at=1.0))
    assert [each.member for each in folded.state(1.0).members] == ["a"]
    folded.apply(HelloRecord(group=GROUP, member="b", at=2.0))
    assert [each.state for each in folded.state(2.0).members] == ["running", "running"]


def test_nobody_is_alive_once_all_are_silent() -> None:
    folded = view(base(1, {"a": (0,)}, at=10.0))
    assert folded.state(14.0).alive
    state = folded.state(16.0)
    assert not state.alive
    assert state.seen_at == 10.0


def test_lag_and_rates_are_those_last_reported() -> None:
    state = view(
        base(1, {"a": (0,), "b": (1,)}),
        report(
            "a",
            PartitionReport(topic="payments", partition=0, arrived=40, done=30, lag=9, lag_seconds=0.5),
            interval=2.0,
        ),
        report("b", PartitionReport(topic="payments", partition=1, arrived=10, lag=1, lag_seconds=3.0, cost_mean=0.1)),
        report("b", at=1.0),
    ).state(1.0)
    assert (state.lag_records, state.lag_seconds) == (10, 3.0)
    assert [each.arrival_rate for each in state.partitions] == [20.0, 10.0]
    assert state.members[0].done_rate == 15.0
    assert state.rate == 20.0, "b's last report lists nothing: nothing changed"
    assert state.partitions[1].cost_seconds == 0.1


def test_share_in_time_is_that_of_the_last_minute() -> None:
    folded = view(
        base(1, {"a": (0,)}),
        report("a", at=0.0, in_time=0, late={"forecast": 1000}),
        report("a", at=50.0, in_time=90, late={"serial": 4, "forecast": 6}),
    )
    assert folded.state(50.0).in_time_share == pytest.approx(90 / 1100)
    state = folded.state(61.0)
    assert state.in_time_share == pytest.approx(0.9)
    assert state.late == {"forecast": 6, "serial": 4}
    assert folded.state(200.0).in_time_share is None


def test_what_is_unknown_is_neither_in_time_nor_late() -> None:
    folded = view(
        base(1, {"a": (0,), "b": (1,)}),
        report("a", at=1.0, in_time=30, late={"queued": 10}),
        report("b", at=1.0, unknown=60, untold="kept"),
    )
    state = folded.state(2.0)
    assert (state.in_time_share, state.unknown_share) == (0.75, 0.6)
    assert state.untold == {"b": "kept"}
    folded.apply(report("b", at=3.0, in_time=60, untold="briefly"))
    assert folded.state(3.0).untold == {}
    assert folded.state(62.0).unknown_share == 0.0


def test_latencies_of_all_members_are_added_bound_by_bound() -> None:
    state = view(
        base(1, {"a": (0,)}),
        report("a", in_time=60, latency_counts=((0.01, 50), (0.5, 10))),
        report("b", in_time=39, late={"serial": 1}, latency_counts=((0.01, 30), (0.1, 9))),
    ).state(1.0)
    assert state.latency_p50 == 0.01
    assert state.latency_p99 == 0.5
    assert state.latency_beyond == ()
    beyond = view(report("a", in_time=1, late={"serial": 9}, latency_counts=((0.01, 1),))).state(1.0)
    assert beyond.latency_p99 == math.inf
    assert beyond.latency_beyond == ("p50", "p99")
    assert view(report("a", in_time=1)).state(1.0).latency_p50 is None


def test_the_leaders_decision_tells_load_and_objective() -> None:
    state = view(
        base(1, {"a": (0,)}),
        report("a", in_time=3, late={"serial": 1}),
        decision(work=1.5, rate=200.0, forecast=2.0, backlog=0.1, members={"a": 0.5}, replicas_wanted=4,
                 objective_seconds=0.5, objective_share=0.999, startup_seconds=2.0),
        decision(at=1.0, work=1.6, members={"a": 0.5}),
    ).state(1.0)  # fmt: skip
    assert state.work == 1.6
    assert [(point.work, point.in_time_share) for point in state.history] == [(1.5, 0.75), (1.6, None)]
    assert state.decision is not None
    assert state.decision.at == 1.0


def test_a_decision_of_a_newer_generation_names_the_leader() -> None:
    newer = msgspec.structs.replace(decision("b"), generation=2)
    assert view(base(1, {"a": (0,)}), newer).state(0.0).leader == "b"
    assert view(newer).state(0.0).leader == "b"


def test_the_latest_brake_in_the_log_is_in_force() -> None:
    folded = view(manual_override("hold", at=100.0), manual_override("scale", at=50.0, replicas=3))
    found = folded.state(0.0).manual_override
    assert found is not None
    assert found.replicas == 3, "the log's order counts, not the clocks of those who wrote"
    folded.apply(decision(manual_override=manual_override("hold")))
    assert folded.state(0.0).manual_override == found, "what a decision repeats may be behind"
    folded.apply(manual_override("resume"))
    assert folded.state(0.0).manual_override is None


def test_a_brake_that_is_too_far_back_is_known_from_what_repeats_it() -> None:
    held = manual_override("hold")
    assert view(base(1, {"a": ()}, manual_override=held)).state(0.0).manual_override == held
    assert view(decision(manual_override=held)).state(0.0).manual_override == held
    assert view(base(1, {"a": ()}, manual_override=held), base(2, {"a": ()})).state(0.0).manual_override is None


def test_other_groups_and_probes_are_left_out() -> None:
    probe = LoadRecord(group="", member="", at=0.0, generation=-1)
    other = msgspec.structs.replace(base(9, {"x": (0,)}), group="other")
    state = view(probe, other).state(0.0)
    assert state.members == ()
    assert state.seen_at is None


def test_members_long_gone_are_forgotten() -> None:
    folded = GroupObserver(GROUP)
    for number in range(500):
        at = float(number * 10)
        folded.apply(HelloRecord(group=GROUP, member=f"m{number}", at=at, instance=f"i{number}"))
        state = folded.state(at)
    assert len(state.names) < 100


def test_the_state_is_json() -> None:
    state = view(base(1, {"a": (0,)}), report("a", in_time=1, latency_counts=((0.01, 1),)), decision()).state(1.0)
    assert msgspec.json.decode(msgspec.json.encode(state), type=ObservedGroup) == state


def test_a_percentile_above_all_buckets_can_be_told_from_none_in_json() -> None:
    """Both were null: a program took an hour of delay for nothing that is reported."""
    beyond = view(report("a", in_time=90, late={"serial": 10}, latency_counts=((0.01, 90),))).state(1.0)
    told = msgspec.json.decode(msgspec.json.encode(beyond))
    assert (told["latency_p50"], told["latency_p99"], told["latency_beyond"]) == (0.01, None, ["p99"])
    untold = msgspec.json.decode(msgspec.json.encode(view(report("a", in_time=1)).state(1.0)))
    assert (untold["latency_p99"], untold["latency_beyond"]) == (None, [])


def test_replicas_are_instances_not_members() -> None:
    """Two consumers in each of two processes, and a member that has said nothing of itself."""
    state = view(
        base(1, {"a": (0,), "b": (1,), "c": (2,), "d": (3,), "e": ()}),
        *(report(member, instance=instance, process=process) for member, instance, process in (
            ("a", "pay-1", "17-aa"), ("b", "pay-1", "17-aa"), ("c", "pay-2", "18-bb"), ("d", "pay-2", "19-cc"),
        )),
        LoadRecord(group=GROUP, member="e", at=0.0, generation=1),
    ).state(1.0)  # fmt: skip
    assert (state.replicas, len(state.members), state.alive) == (2, 5, True)
    assert state.called == {"a": "pay-1/a", "b": "pay-1/b", "c": "pay-2/c", "d": "pay-2/d", "e": "e"}
    assert state.shared == {"pay-2": ("18-bb", "19-cc")}


def test_a_group_of_members_that_have_not_told_their_instance_is_alive() -> None:
    state = view(base(1, {"a": (0,)}), LoadRecord(group=GROUP, member="a", at=0.0, generation=1)).state(1.0)
    assert (state.replicas, state.alive) == (0, True)


def test_a_decision_that_knew_no_load_tells_none() -> None:
    """Its 0 was shown beside members that were busy all of the time."""
    state = view(
        base(1, {"a": (0,)}),
        report("a", PartitionReport(topic="payments", partition=0, arrived=40), instance="pay-1", busy_seconds=1.0),
        decision(outcome="hold", replicas_actual=1, replicas_wanted=1, startup_seconds=None),
    ).state(1.0)
    assert (state.work, state.forecast, state.backlog, state.rate) == (None, None, None, 40.0)


@pytest.mark.parametrize("record", [HelloRecord, LeavingRecord, LeftRecord])
def test_a_record_in_the_name_of_the_command_line_that_is_no_order_counts_for_nothing(record: type) -> None:
    """One of these ended ``status`` and ``explain`` until the next rebalance."""
    folded = view(base(1, {"a": (0,)}))
    before = folded.state(1.0)
    folded.apply(record(group=GROUP, member="cli", at=1.0, **({"generation": 1} if record is LeavingRecord else {})))
    assert folded.state(1.0) == before


def test_an_instance_whose_number_is_too_long_for_python_is_shown() -> None:
    name = f"pay-{'7' * 5000}"
    folded = view(base(1, {"a": (0,)}), HelloRecord(group=GROUP, member="a", at=1.0, instance=name))
    assert [each.instance for each in folded.state(1.0).members] == [name]
