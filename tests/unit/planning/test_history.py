"""What the group did in the last seconds: from reports alone, bounded, and right over parts and changes of owner."""

from __future__ import annotations

import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.metering.meter import Meter, MeterConfig
from loadtrim_agent.planning.history import (
    KEEP_SECONDS,
    RecentSeconds,
    lag_slope,
    latency_seconds,
    throughput,
    utilization,
)
from loadtrim_agent.planning.observation import History
from loadtrim_agent.planning.values import GroupState, MemberState, PlanConfig
from loadtrim_agent.wire.telemetry_records import PartitionReport, ReportRecord
from unit.planning.sizing.test_policy import seconds
from unit.planning.virtual_group import Fleet as VirtualGroup
from unit.planning.virtual_group import T, even

P0 = Partition("orders", 0)


def report(member: str, sequence: int, *entries: PartitionReport, **more: object) -> ReportRecord:
    fields = {"group": "g", "member": member, "at": T, "sequence": sequence, "generation": 1, "slots_start": T} | more
    return ReportRecord(partitions=entries, **fields)  # type: ignore[arg-type]


def past_of(history: History, *members: str, owner: str | None = None) -> list[tuple[int, int]]:
    group = GroupState(
        generation=1, leader="a", members={member: MemberState() for member in members}, owners={P0: owner}
    )
    return [(entry.at - int(T), entry.lag) for entry in history.observation(T + 10, group).past]


def test_averages_and_trends() -> None:
    past = seconds(T, done=100.0, busy=0.5, replicas=2, latency=0.3, lag=700.0, slope=10.0, count=60)
    assert utilization(past, 30.0) == pytest.approx(0.5)
    assert throughput(past, 30.0) == pytest.approx(100.0)
    assert latency_seconds(past, 2.0) == pytest.approx(0.3)
    assert lag_slope(past, 60.0) == pytest.approx(10.0)


def test_a_second_that_was_told_already_still_grows() -> None:
    past = RecentSeconds()
    told = []
    for done in (3, 4):
        past.add(T, done=done, busy_seconds=0.1, given_seconds=1.0, latency_seconds=None, judged=0, lag=done)
        told.append([(entry.done, entry.lag) for entry in past.seconds()])
    assert told == [[(3, 3)], [(7, 4)]]


def test_without_reports_nothing_is_known() -> None:
    assert utilization((), 30.0) is None
    assert throughput((), 30.0) is None
    assert latency_seconds((), 2.0) is None
    assert lag_slope((), 60.0) is None
    assert lag_slope(seconds(T, count=2), 60.0) is None
    assert latency_seconds(seconds(T, done=0.0, count=9), 2.0) is None


def test_it_is_bounded() -> None:
    past = RecentSeconds()
    for second in range(3 * KEEP_SECONDS):
        past.add(T + second, done=1, busy_seconds=0.1, given_seconds=1.0, latency_seconds=None, judged=1, lag=0)
    kept = past.seconds()
    assert len(kept) == KEEP_SECONDS
    assert kept[-1].at == int(T) + 3 * KEEP_SECONDS - 1
    assert kept[-1].judged == 0, "a member that does not say how long records took is not counted in"


def test_the_groups_lag_is_what_each_owner_told_last() -> None:
    history = History(PlanConfig(group="g"))
    history.observe(report("a", 0, PartitionReport(topic="orders", partition=0, lag=50)), T)
    history.observe(report("a", 1, PartitionReport(topic="orders", partition=1, lag=7)), T + 1)
    # Given away: what is left of the old owner's report says nothing of the lag; the new owner's does.
    history.observe(report("a", 2, PartitionReport(topic="orders", partition=0, state="gone")), T + 2)
    history.observe(report("b", 0, PartitionReport(topic="orders", partition=0, lag=20)), T + 3)
    assert past_of(history, "a", "b", owner="b") == [(0, 50), (1, 57), (2, 57), (3, 27)]


def test_the_parts_of_a_split_report_count_once() -> None:
    """Concurrency and busy time are in the first part; records done in all of them."""
    history = History(PlanConfig(group="g"))
    for part in (
        report("a", 0, PartitionReport(topic="orders", partition=0, done=5), busy_seconds=0.4, interval=1.0),
        report("a", 1, PartitionReport(topic="orders", partition=1, done=6), interval=1.0, slots_start=0.0),
    ):
        history.observe(part, T)
    history.observe(report("a", 0), T)
    group = GroupState(generation=1, leader="a", members={"a": MemberState()}, owners={P0: "a"})
    (second,) = history.observation(T + 1, group).past
    assert (second.done, second.busy_seconds, second.given_seconds) == (11, 0.4, 1.0)


def test_members_tell_how_long_their_records_took() -> None:
    """Three records of 0.1, 0.2 and 0.9 s by a clock that is 0.05 s ahead of the log's, one of them late."""
    meter = Meter(MeterConfig(group="g", sla_seconds=0.5))
    meter.clock_offset(0.05)
    meter.acquired(P0, T, 0, 3)
    meter.fetched(P0, T, [T - 0.3, T - 0.2, T - 0.9], next_offset=3, end_offset=3)
    meter.report(T, "a", 1, 0)
    meter.done(P0, T + 0.1, [0.1, 0.2, 0.9], [0.01] * 3, 3)
    told = meter.report(T + 1.0, "a", 1, 1)
    assert told.in_time + sum(told.late.values()) == 3
    assert told.latency_seconds == pytest.approx(0.1 + 0.2 + 0.9 - 3 * 0.05)
    assert meter.report(T + 2.0, "a", 1, 2).latency_seconds == 0.0


def test_a_new_leader_knows_the_same_past() -> None:
    """It hears the same reports, though it decided nothing."""
    group = VirtualGroup(PlanConfig(group="g"), even(4, 300.0), members=2)
    group.run(20)
    heir = History(group.config)
    for record, received_at in group.reports:
        heir.observe(record, received_at)
    assert (
        heir.observation(group.now, group.state()).past
        == group.planner.history.observation(group.now, group.state()).past
    )


def test_a_second_that_is_stamped_long_ago_is_not_kept() -> None:
    past = RecentSeconds()
    for at in (1000.0, 1.0, 500.0, 1001.0):
        past.add(at, done=1, busy_seconds=0.0, given_seconds=1.0, latency_seconds=None, judged=0, lag=0)
    assert [second.at for second in past.seconds()] == [1000, 1001]
