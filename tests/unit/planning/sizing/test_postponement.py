"""Where the objective is long, more replicas are asked for when records have waited for so long that it is time."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from loadtrim.simulate import Costs, Load, Options, Outcome, simulate
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.registry import make_policy
from loadtrim_agent.planning.sizing.objective import ObjectiveState
from loadtrim_agent.planning.sizing.policy import View
from loadtrim_agent.planning.sizing.postponement import answers_left, wait_permitted_seconds, wait_seconds
from loadtrim_agent.planning.sizing.stabilization import Stabilization
from loadtrim_agent.planning.values import PartitionEstimate, PlanConfig, Reason, Sizing
from unit.planning.sizing.test_policy import CONFIG, entry, view

LONG = structs.replace(CONFIG, sla_seconds=60.0, startup_seconds=3.0)
"""An answer takes 5 s: 0.8 x 60 less two answers are 38 s."""
ONE_MEMBER = 200.0
"""Records/s of 5 ms."""


def loaded(members_worth: float, replicas: int = 1, **more: Any) -> View:
    items = tuple(entry(number, members_worth * ONE_MEMBER / 20, owner=f"m{number % replicas}") for number in range(20))
    return view(items, replicas, **({"config": LONG} | more))


def decided(given: View, policy: str = "objective", **state: Any) -> Sizing:
    return make_policy(policy).decide(given, ObjectiveState(**state))


def with_partition(given: View, number: int, **changes: Any) -> View:
    """The same but for one of its partitions."""
    known: dict[Partition, PartitionEstimate] = dict(given.estimate.partitions)
    key = sorted(known)[number]
    known[key] = structs.replace(known[key], **changes)
    return replace(given, estimate=replace(given.estimate, partitions=known))


def test_more_are_asked_for_when_records_have_waited_for_long_enough() -> None:
    assert wait_permitted_seconds(loaded(2.5)) == pytest.approx(38.0)
    early = decided(loaded(2.5, lag=1, lag_seconds=37.9))
    assert (early.replicas, early.reason) == (1, Reason.POSTPONED)
    assert early.text.endswith("; keeping up takes 3, asked for when records wait for 38 s (now 38 s)")
    assert [plan.replicas for plan in early.rejected] == [3]
    in_time = decided(loaded(2.5, lag=1, lag_seconds=38.1))
    assert (in_time.replicas, in_time.reason) == (3, Reason.NEEDS_MORE)


def test_at_once_where_that_is_set() -> None:
    assert decided(loaded(2.5, lag=1), "objective:postpone=0").replicas == 3


def test_the_oldest_record_of_all_partitions_counts() -> None:
    assert wait_seconds(with_partition(loaded(2.5, lag=1), 7, lag_seconds=21.0)) == 21.0


def test_a_burst_waits_from_its_first_moment_on() -> None:
    """39 s of work on one member, none of it old."""
    assert wait_seconds(loaded(2.5, lag=390)) == pytest.approx(39.0)
    assert decided(loaded(2.5, lag=390)).replicas == 3


def test_what_waits_is_looked_at_by_member() -> None:
    """The same on two members, or twice as fast a one, is done in half the time; uneven, the fuller one counts."""
    assert wait_seconds(loaded(2.5, 2, lag=390)) == pytest.approx(19.5)
    assert wait_seconds(loaded(2.5, lag=390, member_capacity=2.0)) == pytest.approx(19.5)
    assert wait_seconds(with_partition(loaded(2.5, 2), 0, lag=2_000)) == pytest.approx(10.0)


@pytest.mark.parametrize("objective_seconds", [0.5, 5.0, 12.5])
def test_a_short_objective_leaves_no_time(objective_seconds: float) -> None:
    short = loaded(2.5, config=structs.replace(LONG, sla_seconds=objective_seconds))
    assert answers_left(short, 1) == 0.0
    assert decided(short).replicas > 1


def test_a_rise_that_is_foreseen_is_no_reason_while_it_can_be_answered() -> None:
    """48 s count, and an answer takes 5: at 43 s none is left for what is not there yet."""
    foreseen = {"ahead": 3.9, "lag": 1}
    assert decided(loaded(1.8, 2, **foreseen)).reason is Reason.FITS
    assert decided(loaded(1.8, 2, lag_seconds=42.9, **foreseen)).replicas == 2
    assert decided(loaded(1.8, 2, lag_seconds=43.1, **foreseen)).replicas == 4
    assert decided(loaded(1.8, 2, config=structs.replace(LONG, sla_seconds=12.5), **foreseen)).replicas == 4


def test_what_is_not_known_is_not_waited_for() -> None:
    known = loaded(2.5, lag=1, ahead=4.9)
    assert decided(known).reason is Reason.POSTPONED
    untold = replace(known, estimate=replace(known.estimate, untold={"m0": "tasks"}))
    assert wait_seconds(untold) == math.inf
    assert decided(untold).replicas == 5


def test_a_member_that_does_not_report_tells_no_wait() -> None:
    known = loaded(2.5, 2, lag=1)
    members = {**known.estimate.members, "m1": replace(known.estimate.members["m1"], silent=True)}
    assert wait_seconds(replace(known, estimate=replace(known.estimate, members=members))) == math.inf


def test_a_partition_without_an_owner_is_not_waited_for() -> None:
    assert wait_seconds(with_partition(loaded(2.5, lag=1), 3, owner=None)) == math.inf


def test_what_is_paused_does_not_count() -> None:
    assert wait_seconds(with_partition(loaded(2.5), 3, lag=10_000, lag_seconds=900.0, sized=False)) == 0.0


def test_nothing_is_postponed_that_could_not_be_answered() -> None:
    """Work that waits for replicas that may not come is late, however early it is seen."""
    assert decided(loaded(2.5, replicas_max=4)).reason is Reason.POSTPONED
    for most in (3, 2):
        assert decided(loaded(2.5, replicas_max=most)).replicas == most


def test_others_than_those_that_are_wanted_tell_nothing() -> None:
    """Six do the work, two are wanted: with two, records would not wait for as little as they do."""
    assert decided(loaded(3.5, 6), wanted=2).replicas >= 4
    assert decided(loaded(3.5, 2), wanted=2).reason is Reason.POSTPONED


def test_a_partition_that_may_become_too_large_is_not_let_wait() -> None:
    items = (entry(0, 0.55 * ONE_MEMBER), *(entry(number, 0.2 * ONE_MEMBER) for number in range(1, 10)))
    assert decided(view(items, 1, config=LONG)).replicas == 3
    even = tuple(entry(number, 0.24 * ONE_MEMBER) for number in range(10))
    assert decided(view(even, 1, config=LONG)).reason is Reason.POSTPONED


def test_a_partition_is_that_large_by_the_load_that_is_sized_for() -> None:
    """What came in the last two seconds was three times the load, so one seemed to take more than half of a member."""
    items = tuple(entry(number, 0.6 * ONE_MEMBER) for number in range(10))
    assert decided(view(items, 1, config=LONG, level=2.0)).reason is Reason.POSTPONED
    assert decided(view(items, 1, config=LONG, level=6.0)).reason is not Reason.POSTPONED


def test_few_starts_do_not_tell_how_long_one_takes() -> None:
    """The setting counts as long as it is longer and few were measured."""
    slow = structs.replace(LONG, startup_seconds=20.0)
    assert wait_permitted_seconds(loaded(2.5, config=slow)) == pytest.approx(48.0 - 2.0 * 22.0)
    known = loaded(2.5, config=slow)
    measured = replace(known, estimate=replace(known.estimate, startups=10))
    assert wait_permitted_seconds(measured) == pytest.approx(38.0)


def test_time_in_which_more_would_be_needed_is_no_quiet_time() -> None:
    """Fewer have to be enough for the whole stabilization window."""
    waits = decided(loaded(2.5, lag=1), stabilization=Stabilization(fit_since=1.0))
    assert waits.reason is Reason.POSTPONED
    assert waits.state.stabilization.fit_since is None


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


@pytest.mark.slow
def test_a_rise_that_ends_before_records_are_late_needs_no_replica() -> None:
    """20 s of twice what one member does, and time to work it off."""
    short = played((30, 15.0), (20, 40.0), (70, 10.0))
    assert (short.replicas_max, short.share_in_time) == (1, 1.0)


@pytest.mark.slow
def test_a_rise_that_stays_is_answered_in_time() -> None:
    stays = played((30, 15.0), (150, 70.0))
    assert stays.replicas_max >= 4
    assert stays.share_in_time == 1.0
    assert {decision.reason_code for _, decision in stays.decisions} >= {Reason.POSTPONED, Reason.NEEDS_MORE}


def test_a_batch_that_one_replica_does_in_time_needs_no_other() -> None:
    """Every minute the work of 15 s within a second. It was told as a rate, and all twelve replicas were asked for."""
    batches = played((25, 0.0), (1, 300.0), (59, 0.0), (1, 300.0), (34, 0.0))
    assert (batches.replicas_max, batches.share_in_time) == (1, 1.0)
