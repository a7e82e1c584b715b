"""What every policy is given and must keep to; also the views for the tests of each policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loadtrim_agent.core.plan.packers.problem import Item, Limits, divide
from loadtrim_agent.core.plan.policies import POLICIES, make_policy
from loadtrim_agent.core.plan.policies.base import View
from loadtrim_agent.core.plan.values import (
    TAUS_SECONDS,
    Curve,
    Estimate,
    Forecast,
    MemberEstimate,
    PartitionEstimate,
    PlanConfig,
)
from unit.core.plan.virtual_group import COST, T, item, partition

CONFIG = PlanConfig(group="g", objective_seconds=0.5)
SMOOTH = Curve(TAUS_SECONDS, (0.0,) * len(TAUS_SECONDS))


def entry(number: int, rate: float, **more: Any) -> Item:
    return item(number, more.pop("owner", "m0"), rate * COST, **more)


def view(
    items: tuple[Item, ...],
    replicas: int,
    *,
    config: PlanConfig = CONFIG,
    now: float = T,
    level: float | None = None,
    ahead: float | None = None,
    error: float = 0.0,
    backlog: float = 0.0,
    late: float = 0.0,
    throughput: float = 0.0,
    startup_seconds: float = 3.0,
    replicas_max: int | None = None,
    least: int | None = None,
    member_capacity: float = 1.0,
    curve: Curve = SMOOTH,
    memory: dict[str, float] | None = None,
) -> View:
    """A group of equal members at a load that is known exactly."""
    if least is not None:
        config = replace(config, min_replicas=least)
    total = sum(one.work for one in items)
    level = total if level is None else level
    estimate = Estimate(
        at=now,
        series=(total,) * 30,
        curve=curve,
        correlation=1.0,
        partitions={
            one.partition: PartitionEstimate(partition=one.partition, owner=one.owner, curve=curve) for one in items
        },
        members={f"m{number}": MemberEstimate(capacity=member_capacity) for number in range(replicas)},
        rate=sum(one.rate for one in items),
        backlog=backlog,
        late=late,
        throughput=throughput,
        cost=COST,
        overhead_seconds=0.015,
        handoff_seconds=0.015,
        startup_seconds=startup_seconds,
        capacity_typical=member_capacity,
    )
    limits = Limits(objective_seconds=config.objective_seconds, overhead_seconds=0.015, z=config.z)
    return View(
        now=now,
        config=config,
        estimate=estimate,
        forecast=Forecast(
            level=level,
            ahead=level if ahead is None else ahead,
            error=error,
            slope=0.0,
            horizon_seconds=5.0,
            window_seconds=30,
        ),
        items=items,
        replicas=replicas,
        members_per_replica=1,
        replicas_max=replicas_max if replicas_max is not None else max(1, len(items)),
        capacity=lambda count: count * member_capacity,
        late=lambda count, factor: divide(items, [member_capacity] * count, replace(limits, load_factor=factor)),
        memory=memory or {},
    )


@pytest.mark.parametrize("name", sorted(POLICIES))
@pytest.mark.parametrize("rate", [0.0, 50.0, 1e6])
@pytest.mark.parametrize("replicas", [1, 3, 9])
def test_every_policy_keeps_to_the_bounds_and_gives_reasons(name: str, rate: float, replicas: int) -> None:
    items = tuple(entry(number, rate / 6) for number in range(6))
    answer = make_policy(name).decide(view(items, replicas, least=2, replicas_max=5))
    assert 2 <= answer.replicas <= 5
    assert answer.text != ""
    assert "\n" not in answer.text
    assert answer.memory["wanted"] == answer.replicas
    assert all(isinstance(value, float) for value in answer.memory.values())


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_no_policy_changes_what_it_is_given(name: str) -> None:
    given = view((entry(0, 500.0), entry(1, 500.0)), 1, memory={"wanted": 1.0})
    first = make_policy(name).decide(given)
    assert given.memory == {"wanted": 1.0}
    assert make_policy(name).decide(given) == first


def test_fewer_partitions_than_the_least_replicas() -> None:
    assert view((entry(0, 1.0),), 1, least=3).replicas_min == 1
    assert view((entry(0, 1.0),), 1, least=3).bounded(7) == 1


def test_fixed_takes_its_parameter_else_what_was_there() -> None:
    items = tuple(entry(number, 900.0) for number in range(8))
    policy = make_policy("fixed")
    assert policy.decide(view(items, 2, config=replace(CONFIG, parameters={"replicas": 5.0}))).replicas == 5
    assert policy.decide(view(items, 2, config=replace(CONFIG, parameters={"replicas": 50.0}))).replicas == 8
    first = policy.decide(view(items, 3))
    assert (first.replicas, first.reason) == (3, "fixed")
    assert policy.decide(view(items, 2, memory=dict(first.memory))).replicas == 3
    assert policy.decide(view(items, 4, memory=dict(first.memory))).replicas == 4


def test_the_helper_is_right_about_partitions() -> None:
    assert entry(3, 10.0).partition == partition(3)
    assert entry(3, 10.0).work == pytest.approx(10.0 * COST)
