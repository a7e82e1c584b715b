"""The fewest replicas that hold the share: at the start, and all the time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadtrim.simulate import Costs, Load, Machines, Options, PlanConfig, parse_generator, simulate
from loadtrim.simulate.study.fixed_group import (
    _fewest,
    fixed_group,
    play_fixed,
    replicas_at_first,
    seconds_until_joined,
)

CONFIG = PlanConfig()
OPTIONS = Options(costs=Costs(mean_seconds=0.005))


def made(text: str, partitions: int = 9, arrivals: str = "poisson") -> Load:
    return replace(parse_generator(text, partitions), arrivals=arrivals)


@pytest.mark.parametrize(
    ("text", "arrivals", "objective", "replicas"),
    [
        ("constant:rate=20,seconds=30", "poisson", 1.0, 1),
        ("constant:rate=300,seconds=30", "poisson", 1.0, 2),
        ("constant:rate=300,seconds=30", "burst", 0.5, 5),
        ("constant:rate=900,seconds=30", "even", 1.0, 5),
        ("step:before=50,after=800,at=6,seconds=30", "poisson", 1.0, 1),
        ("constant:rate=0,seconds=30", "poisson", 1.0, 1),
    ],
)
@pytest.mark.slow
def test_a_group_begins_with_what_the_first_seconds_take(
    text: str, arrivals: str, objective: float, replicas: int
) -> None:
    """It began with one, and what was late for that reason was nobody's fault."""
    assert replicas_at_first(made(text, arrivals=arrivals), PlanConfig(sla_seconds=objective), OPTIONS) == replicas


@pytest.mark.slow
def test_limits_and_machines_count_at_the_start() -> None:
    load = made("constant:rate=900,seconds=10")
    assert replicas_at_first(load, PlanConfig(max_replicas=3), OPTIONS) == 3
    assert replicas_at_first(made("constant:rate=1,seconds=10"), PlanConfig(min_replicas=4), OPTIONS) == 4
    assert replicas_at_first(load, CONFIG, replace(OPTIONS, machines=Machines(speeds=(3.0,)))) == 2


@pytest.mark.slow
def test_where_no_group_holds_the_share_no_replica_too_many_is_there() -> None:
    """One partition is too much for any member, and two or three members do all the others."""
    load = replace(made("constant:rate=400,seconds=30"), shares=((0.6, *(0.05,) * 8),), keys="fixed")
    assert 2 <= replicas_at_first(load, CONFIG, OPTIONS) <= 3


@pytest.mark.slow
def test_the_fixed_group_is_the_fewest_that_hold_the_share() -> None:
    load = made("spike:rate=100,height=400,at=20,width=15,seconds=60")
    found = fixed_group(load, CONFIG, OPTIONS, (1, 2))
    assert found is not None
    for seed in (1, 2):
        options = replace(OPTIONS, seed=seed)
        assert play_fixed(load, CONFIG, options, found.replicas).share_in_time >= 0.999
    assert play_fixed(load, CONFIG, OPTIONS, found.replicas - 1).share_in_time < 0.999
    assert found.replica_minutes == found.replicas * 1.0
    assert fixed_group(load, PlanConfig(max_replicas=1), OPTIONS, (1,)) is None


@pytest.mark.slow
def test_late_records_are_counted_by_when_they_arrived() -> None:
    """What came before a replica that was asked for could be there is told apart from the rest."""
    load = made("constant:rate=500,seconds=25")
    outcome = simulate(load, CONFIG, replace(OPTIONS, startup_seconds=3.0))
    assert len(outcome.late_by_arrival) == 25
    assert sum(outcome.late_by_arrival) == outcome.arrived - outcome.in_time > 0
    assert outcome.share_in_time_from(0) == outcome.share_in_time
    since = seconds_until_joined(CONFIG, replace(OPTIONS, startup_seconds=3.0))
    assert since == 6
    assert outcome.share_in_time_from(since + 9) > outcome.share_in_time
    left = simulate(
        made("constant:rate=500,seconds=5", 1), PlanConfig(), replace(OPTIONS, costs=Costs(mean_seconds=1.0))
    )
    assert left.left > 0
    assert sum(left.late_by_arrival) == left.arrived - left.in_time


@pytest.mark.parametrize(("least", "most"), [(1, 1), (1, 2), (1, 9), (3, 9), (7, 100)])
def test_the_fewest_are_found_in_steps_that_double_and_halve(least: int, most: int) -> None:
    for fewest in range(least, most + 1):
        tried: list[int] = []

        def holds(replicas: int, fewest: int = fewest, tried: list[int] = tried) -> bool:
            tried.append(replicas)
            return replicas >= fewest

        assert _fewest(holds, least, most) == fewest
        assert len(set(tried)) == len(tried), "each is played once"
        assert all(least <= replicas <= most for replicas in tried)
    calls = iter(range(100))
    assert _fewest(lambda _: next(calls) < 0, least, most) is None


def test_an_objective_may_be_a_whole_number() -> None:
    """A whole number of seconds from Python ended in a TypeError as soon as one record was late."""
    outcome = simulate(made("constant:rate=900,seconds=5", 2), PlanConfig(sla_seconds=1), OPTIONS)
    assert outcome.in_time < outcome.arrived
