"""Arrivals above what is done, by more than chance: what was seen counts, whatever the model says."""

from __future__ import annotations

from random import Random

import pytest
from msgspec import structs

from loadtrim_agent.planning.falling_behind import FLOWS_MAX, Flow, MemberFlow, flow_of
from loadtrim_agent.planning.observation import History
from loadtrim_agent.planning.registry import make_planner
from loadtrim_agent.planning.values import PlanConfig
from loadtrim_agent.wire.telemetry_records import PartitionReport, ReportRecord
from unit.planning.virtual_group import COST, Fleet, steps

CONFIG = PlanConfig(group="g", sla_seconds=0.5, startup_seconds=2.0, max_replicas=12)


def entry(arrived: int, done: int, lag: int, state: str = "running", cost: float = 0.1) -> PartitionReport:
    return PartitionReport(
        topic="t", partition=0, arrived=arrived, done=done, lag=lag, cost_mean=cost, cost_variance=0.0, state=state
    )


def told(*entries: PartitionReport) -> Flow:
    report = ReportRecord(group="g", member="m", at=0.0, sequence=1, generation=1, partitions=entries)
    return flow_of(report, 1.0)


def fed(arrived: int, done: int, seconds: int, *, state: str = "running", objective_seconds: float = 1.0) -> MemberFlow:
    flow = MemberFlow(objective_seconds)
    for second in range(1, seconds + 1):
        flow.add(told(entry(arrived, done, second * (arrived - done), state)))
    return flow


def test_sixty_arrive_and_forty_are_done() -> None:
    """More than a second's work stands after 3 s; in 4 s there are 80 more, 5.2 deviations of 240 arrivals."""
    assert fed(60, 40, 5).busy_seconds is None
    assert fed(60, 40, 6).busy_seconds == pytest.approx(4.0)


def test_a_long_objective_takes_its_time() -> None:
    assert fed(60, 40, 40, objective_seconds=20.0).busy_seconds is None, "no more stands than it does within it"
    assert fed(60, 40, 60, objective_seconds=20.0).busy_seconds == pytest.approx(4.0)


def test_an_objective_above_what_is_remembered_is_not_waited_for() -> None:
    """256 reports are. After 600 s more stands than is done in 300 s."""
    assert fed(60, 40, 600 + FLOWS_MAX - 1, objective_seconds=300.0).busy_seconds is None
    assert fed(60, 40, 600 + FLOWS_MAX, objective_seconds=300.0).busy_seconds == pytest.approx(4.0)


def test_slow_growth_shows_in_longer_times() -> None:
    """2 of 10 a second: 4 deviations after 40 s, the first of which is the fifth."""
    assert fed(10, 8, 44).busy_seconds is None
    assert fed(10, 8, 45).busy_seconds == pytest.approx(0.8)


@pytest.mark.parametrize("state", ["paused", "blocked", "gone"])
def test_what_does_not_advance_for_other_reasons_is_not_counted(state: str) -> None:
    assert fed(60, 40, 60, state=state).busy_seconds is None


def test_nothing_done_at_all_says_nothing() -> None:
    assert fed(60, 0, 60).busy_seconds is None


def test_a_queue_that_keeps_up_with_records_by_chance_never_falls_behind() -> None:
    """Nine of ten members' worth for an hour."""
    random, flow, lag = Random(1), MemberFlow(1.0), 0
    for _ in range(3600):
        arrived = sum(random.random() < 0.09 for _ in range(100))
        done = min(10, lag + arrived)
        lag += arrived - done
        flow.add(told(entry(arrived, done, lag)))
    assert flow.busy_seconds is None


def test_it_counts_until_more_is_done() -> None:
    flow = fed(60, 40, 10)
    for _ in range(4):
        flow.add(told(entry(50, 50, 100)))
    assert flow.busy_seconds == pytest.approx(5.0)


def test_records_that_become_cheap_make_no_weak_member() -> None:
    """It gave all of four when it fell behind. That its records take a hundredth now says nothing against it."""
    flow = fed(60, 40, 10)
    for _ in range(60):
        flow.add(told(entry(8, 8, 0, cost=0.001)))
    assert flow.busy_seconds == pytest.approx(4.0)


def test_a_member_that_falls_behind_again_with_less_has_less() -> None:
    flow = fed(60, 40, 10)
    for second in range(60):
        flow.add(told(entry(60, 20, 400 + 40 * second)))
    assert flow.busy_seconds == pytest.approx(2.0, rel=0.25)


def test_records_that_become_dear_were_cheap_when_they_were_done() -> None:
    flow = fed(60, 40, 10)
    flow.add(told(entry(4, 4, 0, cost=1.0)))
    assert flow.busy_seconds == pytest.approx(4.0)


def test_a_report_in_two_parts_is_one_interval() -> None:
    """100 a second of 10 ms are done in all; half of them by each part's partitions."""
    history = History(CONFIG)
    for second in range(1, 40):
        for part in range(2):
            half = structs.replace(entry(100, 50, 50 * second, cost=0.01), partition=part)
            report = ReportRecord(
                group="g",
                member="m",
                at=float(second),
                sequence=2 * second + part,
                generation=1,
                slots_start=0.0 if part else 1000.0 + second,
                slots=() if part else (0.2,) * 10,
                partitions=(half,),
            )
            history.observe(report, 1000.0 + second)
    assert history._members["m"].behind == pytest.approx((1.0, 100.0))


def test_what_was_given_away_is_done_by_another_member() -> None:
    flow = fed(60, 40, 5)
    flow.add(told(entry(60, 40, 1000), entry(100, 0, 0, "gone")))
    assert flow.busy_seconds is None, "four seconds have not been seen since"
    for _ in range(3):
        flow.add(told(entry(60, 40, 1000)))
    assert flow.busy_seconds == pytest.approx(4.0)


def test_a_burst_that_has_just_come_is_not_behind() -> None:
    """60 arrive and 40 are done in every interval that is looked at, but nothing stands."""
    flow = MemberFlow(1.0)
    for _ in range(10):
        flow.add(told(structs.replace(entry(60, 40, 60), lag_min=0)))
    assert flow.busy_seconds is None


class Boasting(Fleet):
    """Its members say that they can give ten times what they can."""

    def _report(self, *given: object) -> ReportRecord:
        report = super()._report(*given)  # type: ignore[arg-type]
        return structs.replace(report, concurrency=10.0 * report.concurrency)


def test_lag_that_grows_is_a_reason_to_scale_whatever_the_model_says() -> None:
    """2.5 members' load on one that says it can do ten."""
    fleet = Boasting(CONFIG, lambda second: [2.5 / COST / 10] * 10, members=1)
    fleet.run_scaled(60)
    assert 3 <= len(fleet.members) <= 5
    said = next(decision.reason for decision in fleet.history if decision.replicas_wanted > 1)
    assert "1 member fell behind and did 200.0 of the 2000.0 records/s that were expected" in said, said
    assert sum(fleet.lag.values()) < 5 / COST, "it is worked off"


class Dearer(Fleet):
    """Its records take ten times as long from second 20 on, and its members still tell what they took before."""

    def tick(self) -> None:
        self.cost = COST if self.second < 20 else 10.0 * COST
        super().tick()

    def _report(self, *given: object) -> ReportRecord:
        report = super()._report(*given)  # type: ignore[arg-type]
        return structs.replace(
            report,
            slots=tuple(COST / self.cost * work for work in report.slots),
            partitions=tuple(structs.replace(each, cost_mean=COST) for each in report.partitions),
        )


def test_a_group_that_is_full_and_does_not_keep_up_is_not_made_smaller() -> None:
    """Records became dearer, and fewer. Their cost is learnt slowly, so the load seemed to fall: two of four went."""
    fleet = Dearer(CONFIG, steps(8, (0, 3.0 / COST), (20, 0.75 / COST), (40, 0.01 / COST)), members=4)
    fleet.run_scaled(40)
    later = fleet.history[20:]
    assert "down" not in {decision.outcome for decision in later}
    said = next(decision for decision in later if "more came than they did" in decision.reason)
    assert said.reason_code == "fits"
    assert "2 would do, but the members gave 4.0 busy seconds/s lately, and more came than they did" in said.reason
    fleet.run_scaled(120)
    assert fleet.history[-1].replicas_wanted == 1, "what waited is worked off"


def test_a_member_that_falls_behind_is_told_to_be_full_and_what_it_does_in_records() -> None:
    """With the cost of before it seemed to give a tenth of a busy second per second, and to be busy for 1000 %."""
    fleet = Dearer(CONFIG, lambda second: [0.75 / COST / 5] * 5, members=1)
    fleet.config = structs.replace(CONFIG, max_replicas=1)
    fleet.planner = make_planner(fleet.config)
    fleet.run_scaled(40)
    assert "1 member fell behind and did 20.0 of the 200.0 records/s that were expected" in fleet.history[-1].reason
    assert fleet.history[-1].members == {"m01": 1.0}


@pytest.mark.slow
def test_where_scaling_brings_nothing_it_ends() -> None:
    """Whatever they are, all members together do one member's work: something else is the bottleneck."""
    fleet = Boasting(CONFIG, lambda second: [2.5 / COST / 10] * 10, members=1)
    fleet.limited_to = 1.0 / COST
    fleet.run_scaled(120)
    assert len(fleet.members) <= 4
    assert any("brought no throughput" in decision.reason for decision in fleet.history)
