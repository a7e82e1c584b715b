"""What a bin may have, and what is late on it."""

from __future__ import annotations

import math
from random import Random
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from loadtrim_agent.planning.placement.columns import Columns
from loadtrim_agent.planning.placement.lateness import Load, LongestFirst, Whole, _deviation
from loadtrim_agent.planning.placement.problem import Limits, expected_by
from loadtrim_agent.planning.queueing import share_late
from loadtrim_agent.planning.values import TAUS_SECONDS, PlanConfig
from unit.planning.virtual_group import TOPIC, bins, item


def test_a_silent_member_keeps_what_it_has_and_is_given_nothing() -> None:
    """What it is doing is not known, so nothing is taken from it and nothing is added."""
    [entry] = bins("a")
    mine, anothers, nobodys = item(0, "a"), item(1, "b"), item(2, None)
    assert [entry.may_have(each) for each in (mine, anothers, nobodys)] == [True, True, True]
    silent = replace(entry, silent=True)
    assert [silent.may_have(each) for each in (mine, anothers, nobodys)] == [True, False, False]
    assert (entry.takes(TOPIC), silent.takes(TOPIC)) == (True, False)


def test_a_member_has_nothing_of_a_topic_that_it_does_not_subscribe() -> None:
    [entry] = bins("a")
    elsewhere = replace(entry, topics=frozenset({"payments"}))
    assert not elsewhere.may_have(item(0, "a"))
    assert (elsewhere.takes(TOPIC), elsewhere.takes("payments")) == (False, True)


@pytest.mark.parametrize(("burst", "late"), [(0.25, 0.0), (1.0, 0.25), (2.0, 0.375)])
def test_what_a_burst_brings_above_the_window_is_late(burst: float, late: float) -> None:
    """Of a burst of 1 busy second a member does half within 0.5 s: half of the work, 0.5 busy seconds/s, is late."""
    limits = Limits(objective_seconds=0.5, handoff_seconds=0.0)
    load = Load(limits, [item(0, "a", 0.5, burst=burst)])
    assert load.late(1.0) == pytest.approx(late)


@pytest.mark.parametrize(("correlation", "deviation"), [(0.0, math.sqrt(5.0)), (1.0, 3.0), (0.25, math.sqrt(6.0))])
def test_deviations_add_up_between_independent_and_in_step(correlation: float, deviation: float) -> None:
    """Two parts with standard deviations of 1 and 2: their sum is 3, that of their variances 5."""
    assert _deviation(3.0, 5.0, correlation) == pytest.approx(deviation)


def moved_in_time(objective_seconds: float, reaction_seconds: float = 1.3) -> Limits:
    """Limits to expect lateness by, for records of 0.1 s that come by chance."""
    return Limits(
        objective_seconds=objective_seconds, handoff_seconds=0.0, reaction_seconds=reaction_seconds,
        dispersion=0.1, dispersion_apart=0.1,
    )  # fmt: skip


def test_records_that_are_dealt_out_in_turn_vary_less_on_a_member() -> None:
    """The group's work comes evenly; only whether its parts do is not known."""

    def apart(chance_share: float) -> float:
        estimate = told(4.0, (2.4,) * 120, chance_share=chance_share)
        return expected_by(moved_in_time(20.0), estimate, PlanConfig(sla_seconds=20.0)).dispersion_apart

    assert apart(1.0) == 4.0
    assert apart(0.5) == 2.0
    assert apart(0.0) < 1.0, "no less than what the whole varies by"


def told(cost: float, series: tuple[float, ...], chance_share: float = 1.0, instant: float = 0.0) -> Any:
    """Return of an estimate what lateness is expected by; ``instant``: seconds' worth of work that comes at once."""
    curve = SimpleNamespace(mean=(instant, *(max(tau, instant) for tau in TAUS_SECONDS[1:])))
    return SimpleNamespace(
        cost=cost, grain=cost, in_hand_seconds=cost, overhead_seconds=cost, handoff_seconds=0.1, dispersion=0.0,
        series=series, rate=fmean(series) / cost, curve=curve, chance_share=chance_share,
    )  # fmt: skip


def test_bursts_that_the_windows_hold_are_no_chance_beside_them() -> None:
    """Six busy seconds every 3 s, in records of 0.02 s. Their variance was counted as a queue, beside the bursts."""
    config = PlanConfig(sla_seconds=4.0)
    bursts = expected_by(moved_in_time(4.0), told(0.02, (0.0, 0.0, 6.0) * 40, instant=3.0), config)
    assert bursts.by_chance == 0.02 < 1.0 < bursts.dispersion_apart
    uneven = expected_by(moved_in_time(4.0), told(0.02, (1.0, 3.0) * 60), config)
    assert uneven.by_chance == uneven.dispersion_apart > 0.3, "within a second nothing comes at once"


def test_what_a_record_is_in_hand_for_is_not_left_to_wait_in() -> None:
    estimate = told(0.02, (1.0, 3.0) * 60)
    estimate.in_hand_seconds, estimate.overhead_seconds = 1.5, 2.0
    assert expected_by(moved_in_time(4.0), estimate, PlanConfig(sla_seconds=4.0)).overhead_seconds == 1.5


def late_of(limits: Limits, work: float) -> float:
    """Return what is late where one member has so much in two partitions, each in bursts of 2.5 s, and another 0.1."""
    busy = [item(number, "a", work / 2, burst=2.5) for number in (0, 1)]
    idle = [item(2, "b", 0.1)]
    return LongestFirst([*busy, *idle], limits).late_as([(busy, 1.0), (idle, 1.0)])


def test_what_waits_on_one_member_is_moved_where_there_is_time() -> None:
    """Both bursts together are late on one member, and in time where one of the partitions follows the free one."""
    stays = late_of(moved_in_time(4.0, math.inf), 0.8)
    assert stays > 0.1
    assert late_of(moved_in_time(4.0), 0.8) < 0.01
    assert late_of(moved_in_time(4.0, 4.0), 0.8) == stays, "no time is left"


def test_more_than_a_member_can_do_is_no_chance() -> None:
    """The rate is known over 20 s: two deviations are 0.14 busy seconds/s above 1."""
    stays = moved_in_time(4.0, math.inf)
    assert late_of(moved_in_time(4.0), 1.1) < 0.01 < late_of(stays, 1.1)
    assert late_of(moved_in_time(4.0), 1.2) == late_of(stays, 1.2)


def test_a_queue_that_stands_by_chance_is_no_reason_for_more_members() -> None:
    """It is what the queue by chance has at a moment. Counted in each window as well, it told of ten times as much."""
    limits = moved_in_time(0.5)
    even = item(0, "a", 0.6)
    queued = replace(even, persistent_backlog=0.4)
    assert Load(limits, [queued]).late(1.0) == Load(limits, [even]).late(1.0)
    more = replace(even, persistent_backlog=0.6)
    unknown = Limits(objective_seconds=0.5)
    assert Load(unknown, [more]).late(1.0) > Load(unknown, [even]).late(1.0), "nothing is known of chance"


def test_records_by_chance_are_late_as_a_queue_of_them_is() -> None:
    """0.6 busy seconds/s in records of 0.05 s that vary, 0.5 s to wait."""
    load = Load(moved_in_time(0.5), [item(number, "a", 0.2) for number in range(3)])
    known = 0.6 * (1.0 - 0.5 / 20.0)
    assert load.late(1.0) == pytest.approx(0.6 * share_late(known, 0.1, 1.0, 0.5))


def test_what_comes_together_leaves_the_others_less_time_to_wait() -> None:
    """A burst of 0.3 busy seconds is in time by itself; what comes by chance beside it has 0.2 to 0.5 s."""
    load = Load(moved_in_time(0.5), [item(0, "a", 0.3), item(1, "a", 0.3, burst=0.3)])
    known = 0.6 * (1.0 - 0.5 / 20.0)
    assert load.late(1.0) == pytest.approx(0.6 * share_late(known, 0.1, 1.0, 0.5, 0.3))
    assert share_late(known, 0.1, 1.0, 0.5) < load.late(1.0) / 0.6 < share_late(known, 0.1, 1.0, 0.2)


def test_of_a_burst_that_takes_a_little_too_long_a_little_is_late() -> None:
    """Its last twentieth. All of it was said to be, so a share of 97.5 % cost as much as one of 100 %."""
    limits = Limits(objective_seconds=0.5, handoff_seconds=0.0, dispersion=0.006, dispersion_apart=0.006)
    late = Load(limits, [item(0, "a", 0.525, burst=0.525)]).late(1.0)
    assert 0.025 < late < 0.06


def test_the_error_of_a_rate_makes_nothing_late() -> None:
    """By chance a member's load is seen 2 % above what it is, or below: 0.95 busy seconds/s in records of 6 ms.

    On average over such errors about as much is expected as is late. It was thirty times as much.
    """
    random, work, dispersion = Random(1), 0.95, 0.006
    limits = Limits(objective_seconds=0.5, dispersion=dispersion, dispersion_apart=dispersion)
    seen = [random.gauss(work, math.sqrt(work * dispersion / 20.0)) for _ in range(500)]
    expected = fmean(Load(limits, [item(0, "a", each)]).late(1.0) / each for each in seen)
    assert expected < 5.0 * share_late(work, dispersion, 1.0, 0.5)


def test_a_group_that_chance_makes_late_on_one_member_is_dealt_out() -> None:
    """In no window comes more than one member does, and still one record of a hundred waits for too long."""
    whole = Whole(Columns([item(0, "a", 0.9)]))
    assert not whole.in_time(moved_in_time(0.5), 1.0)
    assert whole.in_time(moved_in_time(0.5), 3.0)


def test_a_burst_leaves_those_that_come_by_chance_less_time_also_on_one_member() -> None:
    """A burst of 0.45 busy seconds is in time by itself. What comes beside it has as little as 50 ms."""
    limits = Limits(objective_seconds=0.5, handoff_seconds=0.0, dispersion=0.006, dispersion_apart=0.006)
    items = [item(0, "a", 0.45, burst=0.45), item(1, "a", 0.15)]
    assert Load(limits, items).late(1.0) > 1e-6 > Load(limits, [item(0, "a", 0.6)]).late(1.0)
    assert not Whole(Columns(items)).in_time(limits, 1.0)
    assert Whole(Columns([items[1]])).in_time(limits, 1.0)


def test_nothing_is_in_time_on_any_member() -> None:
    assert Whole(Columns([])).in_time(moved_in_time(0.5), 1.0)


@pytest.mark.parametrize("objective_seconds", [0.5, 1.2, 5.0, 30.0])
def test_a_member_that_has_more_than_it_can_do_is_late_however_long_the_objective(objective_seconds: float) -> None:
    """8 % too much in short records is no error of a rate that is known to 2 %."""
    limits = Limits(objective_seconds=objective_seconds, dispersion=0.006, dispersion_apart=0.006)
    assert Load(limits, [item(0, "a", 0.54), item(1, "a", 0.54)]).late(1.0) == pytest.approx(1.08)
