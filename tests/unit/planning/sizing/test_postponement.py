"""Where the objective is long, more replicas are asked for when records have waited for so long that it is time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from loadtrim.simulate import Costs, Load, Options, Outcome, simulate
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.registry import make_policy
from loadtrim_agent.planning.sizing.policy import View
from loadtrim_agent.planning.sizing.postponement import answers_in_time, wait_permitted_seconds, wait_seconds
from loadtrim_agent.planning.values import PlanConfig, Reason, Sizing
from unit.planning.sizing.test_policy import CONFIG, answer_of, entry, view

LONG = structs.replace(CONFIG, sla_seconds=60.0)
"""With a horizon of 5 s: 0.8 x 60 less two answers are 38 s."""
ONE_MEMBER = 200.0
"""Records/s of 5 ms."""


def loaded(members_worth: float, replicas: int = 1, **more: Any) -> View:
    items = tuple(entry(number, members_worth * ONE_MEMBER / 20, owner=f"m{number % replicas}") for number in range(20))
    return view(items, replicas, **({"config": LONG} | more))


def decided(given: View) -> Sizing:
    return answer_of(make_policy("objective"), given)


def test_more_are_asked_for_when_records_have_waited_for_long_enough() -> None:
    assert wait_permitted_seconds(loaded(2.5)) == pytest.approx(38.0)
    early = decided(loaded(2.5, lag=1, lag_seconds=37.9))
    assert (early.replicas, early.reason) == (1, Reason.POSTPONED)
    assert early.text.endswith(
        "3 would keep up; records wait for 37.9 s, and it is soon enough to ask for more at 38.0 s"
    )
    assert [plan.replicas for plan in early.rejected] == [3]
    in_time = decided(loaded(2.5, lag=1, lag_seconds=38.1))
    assert (in_time.replicas, in_time.reason) == (3, Reason.NEEDS_MORE)


def test_a_burst_waits_from_its_first_moment_on() -> None:
    """39 s of work on one member, none of it old."""
    assert wait_seconds(loaded(2.5, lag=390)) == pytest.approx(39.0)
    assert decided(loaded(2.5, lag=390)).replicas == 3


def test_what_waits_is_looked_at_by_member() -> None:
    """The same on two members, or twice as fast a one, is done in half the time."""
    assert wait_seconds(loaded(2.5, 2, lag=390)) == pytest.approx(19.5)
    assert wait_seconds(loaded(2.5, lag=390, member_capacity=2.0)) == pytest.approx(19.5)


@pytest.mark.parametrize("objective_seconds", [0.5, 5.0, 12.5])
def test_a_short_objective_leaves_no_time(objective_seconds: float) -> None:
    short = loaded(2.5, config=structs.replace(CONFIG, sla_seconds=objective_seconds))
    assert not answers_in_time(short)
    assert decided(short).replicas > 1


def test_a_rise_that_is_foreseen_is_no_reason_where_it_can_be_answered() -> None:
    assert decided(loaded(1.8, 2, ahead=3.9)).replicas == 2
    assert decided(loaded(1.8, 2, ahead=3.9)).reason is Reason.FITS
    short = structs.replace(CONFIG, sla_seconds=12.5)
    assert decided(loaded(1.8, 2, ahead=3.9, config=short)).replicas == 4


def test_what_is_not_known_is_not_waited_for() -> None:
    known = loaded(2.5, lag=1)
    assert decided(known).reason is Reason.POSTPONED
    untold = replace(known, estimate=replace(known.estimate, untold={"m0": "tasks"}))
    assert wait_seconds(untold) == math.inf
    assert decided(untold).replicas == 3


def test_records_in_a_partition_without_an_owner_are_not_waited_for() -> None:
    known = loaded(2.5, lag=1)
    first = next(iter(known.estimate.partitions))
    nobody = structs.replace(known.estimate.partitions[first], owner=None)
    orphaned = replace(known, estimate=replace(known.estimate, partitions={**known.estimate.partitions, first: nobody}))
    assert wait_seconds(orphaned) == math.inf
    empty = structs.replace(nobody, lag=0)
    calm = replace(known, estimate=replace(known.estimate, partitions={**known.estimate.partitions, first: empty}))
    assert wait_seconds(calm) < 1.0


def test_what_is_paused_does_not_count() -> None:
    paused = loaded(2.5, lag=10_000, lag_seconds=900.0)
    kept_out = {key: structs.replace(one, sized=False) for key, one in paused.estimate.partitions.items()}
    assert wait_seconds(replace(paused, estimate=replace(paused.estimate, partitions=kept_out))) == 0.0


# -- in a group


def played(*parts: tuple[int, float]) -> Outcome:
    """(seconds, records/s) by chance on 12 partitions, 50 ms a record, W of a minute, start-up 3 s, from one member."""
    load = Load(
        per_second=tuple(rate for seconds, rate in parts for _ in range(seconds)),
        partitions=tuple(Partition("t", number) for number in range(12)),
        shares=((1.0 / 12,) * 12,),
        arrivals="poisson",
        keys="random",
    )
    config = PlanConfig(sla_seconds=60.0, sla_share=0.99, startup_seconds=3.0)
    return simulate(load, config, Options(costs=Costs(mean_seconds=0.05), startup_seconds=3.0, replicas=1, seed=1))


def test_a_rise_that_ends_before_records_are_late_needs_no_replica() -> None:
    """20 s of twice what one member does, and time to work it off."""
    short = played((30, 15.0), (20, 40.0), (70, 10.0))
    assert (short.replicas_max, short.share_in_time) == (1, 1.0)


def test_a_rise_that_stays_is_answered_in_time() -> None:
    stays = played((30, 15.0), (150, 70.0))
    assert stays.replicas_max >= 4
    assert stays.share_in_time == 1.0
    assert {decision.reason_code for _, decision in stays.decisions} >= {Reason.POSTPONED, Reason.NEEDS_MORE}
