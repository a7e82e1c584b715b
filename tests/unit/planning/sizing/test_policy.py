"""What every policy is given and must keep to; also the views for the tests of each policy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from loadtrim_agent.common.naming import UnknownNameError
from loadtrim_agent.planning.history import Second
from loadtrim_agent.planning.parameters import ParameterError, described
from loadtrim_agent.planning.placement.columns import Columns
from loadtrim_agent.planning.placement.lateness import LongestFirst
from loadtrim_agent.planning.placement.problem import Item, Limits, LoadError
from loadtrim_agent.planning.policy_state import PolicyState, read_state, written_state
from loadtrim_agent.planning.published.policies.shared import PaperState, held, sized
from loadtrim_agent.planning.registry import POLICIES, make_packer, make_policy, unmonitored
from loadtrim_agent.planning.sizing.policy import MEASURED, Future, Measure, Policy, UnmeasuredError, View
from loadtrim_agent.planning.values import (
    TAUS_SECONDS,
    ArrivalCurve,
    Estimate,
    Forecast,
    MemberEstimate,
    PartitionEstimate,
    PlanConfig,
    Sizing,
)
from unit.planning.virtual_group import COST, T, bins, item, partition

EVERYTHING = MEASURED | {Measure.FUTURE}
CONFIG = PlanConfig(group="g", sla_seconds=0.5)
SMOOTH = ArrivalCurve(TAUS_SECONDS, (0.0,) * len(TAUS_SECONDS))


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
    curve: ArrivalCurve = SMOOTH,
    past: tuple[Second, ...] | None = None,
    lag: int = 0,
    lag_seconds: float = 0.0,
    generation: int = 1,
    future: Future | None = None,
) -> View:
    """A group of equal members at a load that is known exactly."""
    if least is not None:
        config = structs.replace(config, min_replicas=least)
    total = sum(one.work for one in items)
    level = total if level is None else level
    estimate = Estimate(
        at=now,
        series=(total,) * 30,
        curve=curve,
        correlation=1.0,
        partitions={
            one.partition: PartitionEstimate(
                partition=one.partition, owner=one.owner, cost=COST, curve=curve, lag=lag, lag_seconds=lag_seconds
            )
            for one in items
        },
        members={f"m{number}": MemberEstimate(capacity=member_capacity) for number in range(replicas)},
        rate=sum(one.rate for one in items),
        backlog=backlog,
        late=late,
        throughput=throughput,
        cost=COST,
        in_hand_seconds=COST,
        overhead_seconds=0.015,
        handoff_seconds=0.015,
        startup_seconds=startup_seconds,
        capacity_typical=member_capacity,
        past=steady(items, replicas, now) if past is None else past,
    )
    limits = Limits(objective_seconds=config.sla_seconds, overhead_seconds=0.015, z=config.z)

    # Kept as in the planner's own view: a policy asks for the same factors with every number of replicas.
    @cache
    def longest_first(factor: float) -> LongestFirst:
        return LongestFirst(items, replace(limits, load_factor=factor))

    @cache
    def late(count: int, factor: float) -> float:
        return longest_first(factor).late([member_capacity] * count)

    return View(
        now=now,
        config=config,
        estimate=estimate,
        forecast=Forecast(
            level=level,
            ahead=level if ahead is None else ahead,
            trend=level if ahead is None else ahead,
            error=error,
            slope=0.0,
            horizon_seconds=5.0,
            window_seconds=30,
        ),
        columns=Columns(items),
        replicas=replicas,
        members_per_replica=1,
        replicas_max=replicas_max if replicas_max is not None else max(1, len(items)),
        capacity=lambda count: count * member_capacity,
        late=late,
        longest_first=longest_first,
        packer=make_packer(config.packer),
        generation=generation,
        future=future,
        supply=bins(
            *(f"m{number}" for number in range(replicas)),
            *(f"new{number}" for number in range(replicas, len(items))),
            capacity=member_capacity,
        ),
    )


def answer_of(policy: Policy, given: View, memory: Mapping[str, float] | None = None) -> Sizing:
    """What a policy decides; ``memory``: its state as a decision carries it."""
    state = read_state(policy.state, memory or {})
    assert state is not None, memory
    answer: Sizing = policy.decide(given, state)
    return answer


def memory_of(answer: Sizing) -> dict[str, float]:
    """The state after an answer, as a decision carries it."""
    return written_state(answer.state)


def seconds(
    now: float = T,
    *,
    done: float = 0.0,
    busy: float = 0.0,
    replicas: int = 1,
    latency: float = 0.02,
    lag: float = 0.0,
    slope: float = 0.0,
    count: int = 120,
) -> tuple[Second, ...]:
    """The last seconds of a group: records done per second, busy share, mean latency, lag now and how it grows."""
    return tuple(
        Second(
            at=int(now) - back,
            done=round(done),
            busy_seconds=busy * replicas,
            given_seconds=float(replicas),
            latency_seconds=latency * round(done),
            judged=round(done),
            lag=round(max(0.0, lag - slope * back)),
        )
        for back in range(count - 1, -1, -1)
    )


def steady(items: tuple[Item, ...], replicas: int, now: float) -> tuple[Second, ...]:
    """What a group has done that keeps up as far as it can."""
    work, able = sum(one.work for one in items), float(replicas)
    done = min(work, able) / COST
    return seconds(now, done=done, busy=min(work / able, 1.0), replicas=replicas, lag=sum(one.lag for one in items))


def tomorrow(items: tuple[Item, ...], now: float, count: int = 30) -> Future:
    """A future that goes on like this."""
    return Future(
        begins_at=now - 5.0,
        partitions=tuple(one.partition for one in items),
        records=(tuple(one.rate for one in items),) * count,
    )


@pytest.mark.parametrize("name", sorted(POLICIES))
@pytest.mark.parametrize("rate", [0.0, 50.0, 1e6])
@pytest.mark.parametrize("replicas", [1, 3, 9])
def test_every_policy_keeps_to_the_bounds_and_gives_reasons(name: str, rate: float, replicas: int) -> None:
    items = tuple(entry(number, rate / 6) for number in range(6))
    answer = answer_of(
        make_policy(name, EVERYTHING), view(items, replicas, least=2, replicas_max=5, future=tomorrow(items, T))
    )
    assert 2 <= answer.replicas <= 5
    assert answer.text != ""
    assert "\n" not in answer.text
    assert memory_of(answer)["wanted"] == answer.replicas
    assert all(isinstance(value, float) for value in memory_of(answer).values())


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_no_policy_changes_what_it_is_given(name: str) -> None:
    given, memory = view((entry(0, 500.0), entry(1, 500.0)), 1), {"wanted": 1.0}
    first = answer_of(make_policy(name, EVERYTHING), given, memory)
    assert memory == {"wanted": 1.0}
    assert answer_of(make_policy(name, EVERYTHING), given, memory) == first


def test_fewer_partitions_than_the_least_replicas() -> None:
    assert view((entry(0, 1.0),), 1, least=3).replicas_min == 1
    assert view((entry(0, 1.0),), 1, least=3).bounded(7) == 1


def test_fixed_takes_its_parameter_else_what_was_there() -> None:
    items = tuple(entry(number, 900.0) for number in range(8))
    policy = make_policy("fixed")
    assert answer_of(make_policy("fixed:replicas=5"), view(items, 2)).replicas == 5
    assert answer_of(make_policy("fixed:replicas=50"), view(items, 2)).replicas == 8
    first = answer_of(policy, view(items, 3))
    assert (first.replicas, first.reason) == (3, "fixed")
    assert answer_of(policy, view(items, 2), memory_of(first)).replicas == 3
    assert answer_of(policy, view(items, 4), memory_of(first)).replicas == 4


def test_the_helper_is_right_about_partitions() -> None:
    assert entry(3, 10.0).partition == partition(3)
    assert entry(3, 10.0).work == pytest.approx(10.0 * COST)


# -- what a start refuses ----------------------------------------------------------------------------------------------


def test_what_a_running_group_cannot_know_is_refused_with_what_to_do() -> None:
    with pytest.raises(UnmeasuredError, match="'clairvoyant' looks at what will arrive.*LOADTRIM_POLICY.*objective"):
        make_policy("clairvoyant")
    assert make_policy("clairvoyant", EVERYTHING).name == "clairvoyant"


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"clairvoyant"}))
def test_everything_else_can_be_measured(name: str) -> None:
    assert make_policy(name).name == name


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("keda:activation_lag_records=1", "'keda' looks at no arrival rates.*only where the packer puts.*=reports"),
        ("fixed", "looks at no arrival rates"),
        ("objective", "level and trend of the load; how it comes within a second.*what the members report"),
        ("linear:mu=200", ""),
        ("li_ku", ""),
        ("dhalion_adapted", ""),
    ],
)
def test_what_a_monitor_does_not_tell_a_policy_is_said(choice: str, said: str) -> None:
    assert re.search(said, unmonitored(choice, "landau24"))
    assert bool(unmonitored(choice, "landau24")) == bool(said)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("closer24:f_up=1.5", "f_up of the policy 'closer24' is 1.5.*above 0 and of at most 1"),
        ("closer24:f_up=0.3", r"f_down is 0.4, which is not below f_up \(0.3\)"),
        ("linear:mu=0", "mu of the policy 'linear' is 0, .*a number above 0"),
        (
            "li_ku:up_notes=2.5",
            "up_notes of the policy 'li_ku' is 2.5.*a whole number of at least 1 and of at most 100",
        ),
        ("keda:polling_seconds=-1", "polling_seconds.*above 0"),
        ("closer24:corrected=2", "corrected.*0 or 1"),
        ("fixed:replicas=0", "replicas.*of at least 1"),
        ("flas:lower_seconds=2,upper_seconds=1", "lower_seconds.*not below upper_seconds"),
        ("clairvoyant:limit_records_per_second=-85", "limit_records_per_second"),
    ],
)
def test_a_parameter_out_of_its_range_is_refused(choice: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make_policy(choice, EVERYTHING)


def test_parameters_given_beside_the_name_come_first_and_are_checked_too() -> None:
    with pytest.raises(ParameterError):
        make_policy("linear:f_up=0.8", given={"f_up": 7.0})
    told = r"no parameter of policy 'linear' called 'f_upp'.*the nearest is 'f_up'"
    with pytest.raises(UnknownNameError, match=told):
        make_policy("linear", given={"f_upp": 0.8})
    assert make_policy("objective", given={"mu": 200.0}).name == "objective", "the packer's"


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_parameter_has_a_meaning_a_range_and_a_default(name: str) -> None:
    for one in described(make_policy(name, EVERYTHING).kind):
        assert one.meaning, one
        assert one.default or "default:" in one.meaning, one
        assert one.allowed, one


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0])
def test_a_load_that_is_no_load_is_refused_where_the_view_is_made(wrong: float) -> None:
    good = view((entry(0, 10.0),), 1)
    for estimate in (
        replace(good.estimate, rate=wrong),
        replace(good.estimate, cost=wrong),
        replace(good.estimate, throughput=wrong),
        replace(good.estimate, series=(1.0, wrong)),
        replace(good.estimate, capacity_typical=wrong),
    ):
        with pytest.raises(LoadError):
            replace(good, estimate=estimate)
    with pytest.raises(LoadError, match="give a finite number of records"):
        Future(begins_at=T, partitions=(partition(0),), records=((wrong,),))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused_where_the_view_is_made(wrong: float) -> None:
    """And not in the middle of a policy, which would break on it or speak of nan seconds."""
    good = view((entry(0, 10.0), entry(1, 10.0)), 1)
    second = good.estimate.past[-1]
    with pytest.raises(LoadError, match="the start-up time is"):
        replace(good, estimate=replace(good.estimate, startup_seconds=wrong))
    with pytest.raises(LoadError, match="oldest record is"):
        view((entry(0, 10.0), entry(1, 10.0)), 1, lag_seconds=wrong)
    for field in ("busy_seconds", "given_seconds", "latency_seconds"):
        past = (*good.estimate.past[:-1], replace(second, **{field: wrong}))
        with pytest.raises(LoadError, match=f"{field} of one of the last seconds is {wrong}"):
            replace(good, estimate=replace(good.estimate, past=past))
    assert read_state(PolicyState, {"wanted": wrong}) is None


def test_no_capacity_and_no_members_are_refused_where_the_view_is_made() -> None:
    good = view((entry(0, 10.0),), 1)
    with pytest.raises(LoadError, match="capacity"):
        replace(good, capacity=lambda count: 0.0)
    with pytest.raises(LoadError, match="no member"):
        replace(good, replicas=0)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_missing_data_holds(name: str) -> None:
    """Records wait; nothing was done, so there is no cost and no past: what was wanted stays, and it is said why."""
    waiting = {"cost": 0.0, "lag": 500, "lag_high": 500, "lag_low": 500}
    items = tuple(structs.replace(entry(number, 0.0), **waiting) for number in range(6))
    bare = view(items, 3, past=())
    bare = replace(bare, estimate=replace(bare.estimate, cost=0.0, series=(1.0,) * 5))
    policy = make_policy(name, EVERYTHING)
    answer = answer_of(policy, bare, {"wanted": 3.0})
    if name in ("fixed", "objective"):
        assert answer.replicas == 3
    elif name in ("keda", "overprovisioned"):
        assert answer.replicas == 6, "3,000 waiting records are known, and so is the number of partitions"
    elif getattr(policy, "needs", MEASURED) <= {Measure.LAG}:
        assert answer.reason != "not_ready", "waiting records are known; the policy of the template is such a one"
    else:
        assert (answer.replicas, answer.reason) == (3, "not_ready")


# -- what the papers' policies have in common --------------------------------------------------------------------------


def paper_state(answer: Sizing) -> PaperState:
    assert isinstance(answer.state, PaperState)
    return answer.state


def test_partitions_are_dealt_out_when_the_group_has_changed_and_then_left_alone() -> None:
    items = (entry(0, 10.0), entry(1, 10.0))
    first = sized(view(items, 2, generation=7), PaperState(), 2, "text")
    assert first.place is True
    later = sized(view(items, 2, generation=7, now=T + 3.5), paper_state(first), 2, "text")
    assert later.place is False
    changed = held(view(items, 2, generation=8, now=T + 4.5), paper_state(later), later.reason, "text")
    assert changed.place is True


def test_what_is_asked_for_beyond_the_bounds_is_said() -> None:
    answer = sized(view((entry(0, 10.0),), 1), PaperState(), 5, "a lot comes")
    assert (answer.replicas, answer.reason) == (1, "at_max")
    assert answer.text.endswith("no more than 1 are allowed or have a partition")


def test_the_future_is_asked_in_whole_seconds() -> None:
    future = Future(begins_at=T, partitions=(partition(0),), records=tuple((float(n),) for n in range(5)))
    assert future.between(T + 1.5, T + 1.5) == ((1.0,),)
    assert future.between(T + 1.5, T + 3.0) == ((1.0,), (2.0,))
    assert future.between(T - 9.0, T) == ((0.0,),)
    assert future.between(T + 9.0, T + 12.0) == ()


@pytest.mark.parametrize(
    ("cost", "rate", "series", "told"),
    [
        (0.005, 0.0, (9.0, 1.0, 2.0), 300.0),
        (0.0, 0.0, (9.0, 1.0, 2.0), None),
        (0.0, 7.0, (9.0, 0.0, 0.0), None),
        (0.0, 0.0, (9.0, 0.0, 0.0), 0.0),
    ],
)
def test_records_are_told_by_the_work_and_their_cost(
    cost: float, rate: float, series: tuple[float, ...], told: float | None
) -> None:
    """1.5 busy seconds/s at 5 ms a record are 300 records/s; without a cost only nothing is known to be nothing."""
    estimate = SimpleNamespace(cost=cost, rate=rate, series=series)
    assert View.arrival_rate(SimpleNamespace(estimate=estimate), 2.0) == told  # type: ignore[arg-type]
