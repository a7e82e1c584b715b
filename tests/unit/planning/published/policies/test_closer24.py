"""CLOSER'24, algorithm 2, step by step against counts worked by hand: mu = 200/s, W = 0.5 s, f_up = 0.9, f_down = 0.4.

A member takes 180 records/s and 90 waiting records on the way up, 80 records/s and 40 records on the way down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from loadtrim_agent.planning.registry import make_policy
from loadtrim_agent.planning.sizing.policy import View
from loadtrim_agent.planning.values import LagMoment, PlanConfig, Reason, Sizing
from unit.planning.sizing.test_policy import answer_of, entry, memory_of, view
from unit.planning.virtual_group import Fleet, steps

SETTING = PlanConfig(group="g", sla_seconds=0.5, policy="closer24")


def decide(
    rates: Sequence[float],
    replicas: int,
    *,
    lags: Sequence[int] = (),
    lows: Sequence[int] = (),
    parameters: dict[str, float] | None = None,
    memory: dict[str, float] | None = None,
    owners: str = "",
    **more: Any,
) -> Sizing:
    given = picture(rates, replicas, lags=lags, lows=lows, owners=owners, **more)
    return answer_of(make_policy("closer24", given=parameters), given, memory)


def picture(
    rates: Sequence[float],
    replicas: int,
    *,
    lags: Sequence[int] = (),
    lows: Sequence[int] = (),
    owners: str = "",
    **more: Any,
) -> View:
    items = tuple(
        entry(
            number,
            rate,
            owner=owners[number] if owners else f"m{number % replicas}",
            lag=lags[number] if lags else 0,
            lag_high=lags[number] if lags else 0,
            lag_low=lows[number] if lows else (lags[number] if lags else 0),
        )
        for number, rate in enumerate(rates)
    )
    return view(items, replicas, config=SETTING, **more)


def test_up_when_the_upper_limits_need_more() -> None:
    """Five of 60/s: three fill 180, so two members."""
    answer = decide([60.0] * 5, 1)
    assert (answer.replicas, answer.reason) == (2, "needs_more")
    assert answer.rejected[0].replicas == 1
    assert answer.place is False


def test_up_in_one_step() -> None:
    assert decide([170.0] * 5, 1).replicas == 5


def test_nothing_between_the_factors() -> None:
    """Five of 60/s on four members: up needs two, down four (80/s take one of 60 each, five bins)."""
    answer = decide([60.0] * 5, 5)
    assert (answer.replicas, answer.reason) == (5, "fits")
    assert answer.place is False


def test_down_when_the_lower_limits_need_fewer() -> None:
    """Five of 20/s: 80/s take four, so two."""
    answer = decide([20.0] * 5, 4)
    assert (answer.replicas, answer.reason) == (2, "needs_less")
    assert answer.place is True
    assert memory_of(answer)["wanted"] == 2.0


def test_lag_alone_asks_for_more() -> None:
    """10/s each, 50 wait in each of three: a member takes 90."""
    assert decide([10.0] * 3, 1, lags=[50, 50, 50]).replicas == 3


def test_the_lag_of_a_rebalance_is_planned_for() -> None:
    """Up is decided without it (3 x 60 <= 180, 3 x 29 = 87 <= 90: two members for six); with t_r = 0.05 s each
    partition has 29 + 60 x 0.05 = 32: two fit 90, so three members. Only a decision for up looks at it."""
    rates, lags = [60.0] * 6, [29] * 6
    assert decide(rates, 2, lags=lags, lows=[0] * 6).reason == "fits"
    answer = decide(rates, 1, lags=lags)
    assert (answer.replicas, answer.reason) == (3, "needs_more")
    assert decide(rates, 1, lags=lags, parameters={"rebalance_seconds": 0.0}).replicas == 2


def test_down_is_not_taken_when_the_rebalance_would_need_as_many() -> None:
    """35 wait in each of three at 20/s. Down: 40 records take one each: three < four. With 1 s of rebalance lag each
    has 55, cut to 40: still three; from three there is nothing to gain."""
    assert decide([20.0] * 3, 4, lags=[35] * 3, parameters={"rebalance_seconds": 1.0}).replicas == 3
    assert decide([20.0] * 3, 3, lags=[35] * 3, parameters={"rebalance_seconds": 1.0}).replicas == 3


def test_as_run_a_down_may_go_up() -> None:
    """Six of 13/s with 6 waiting each: down 40 records or 80/s take six: one < two. With t_r = 2 s each has 32: six
    members. The corrected form does nothing, the authors' own scaled up."""
    rates, lags = [13.0] * 6, [6] * 6
    assert decide(rates, 2, lags=lags, parameters={"rebalance_seconds": 2.0}).replicas == 2
    answer = decide(rates, 2, lags=lags, parameters={"rebalance_seconds": 2.0, "corrected": 0.0})
    assert (answer.replicas, answer.reason) == (6, "needs_more")


def test_reassign_when_one_member_is_over_and_the_number_is_right() -> None:
    """Two members for 4 x 60: one has three and 10 more, the other one. Packed anew two do."""
    answer = decide([60.0, 60.0, 70.0, 60.0], 2, owners="aaab")
    assert (answer.replicas, answer.reason, answer.place) == (2, "placement", True)


def test_reassign_that_would_need_more_goes_up() -> None:
    """The same with 43 waiting in each: two take 86 of 90, but with the lag of the rebalance 46 each: one a member."""
    answer = decide([60.0, 60.0, 70.0, 60.0], 2, owners="aaab", lags=[43, 43, 43, 43], lows=[0] * 4)
    assert (answer.replicas, answer.reason) == (4, "needs_more")


def test_lag_before_and_after_a_burst() -> None:
    """Up looks at the most that waits, down at the least; sampled: at what was reported, for both. (Sampled, 15 + 20 x
    0.05 = 16: two fit 40, three do not; 20 + 1: one.)"""
    rates = [20.0] * 3
    assert decide(rates, 1, lags=[60] * 3, lows=[0] * 3).replicas == 3
    assert decide(rates, 3, lags=[15] * 3, lows=[0] * 3).replicas == 1
    assert decide(rates, 3, lags=[15] * 3, lows=[0] * 3, parameters={"sampled_lag": 1.0}).replicas == 2
    assert decide(rates, 3, lags=[20] * 3, lows=[0] * 3, parameters={"sampled_lag": 1.0}).replicas == 3


def test_partitions_are_placed_by_the_lag_that_decided() -> None:
    """A DOWN that the least lag decided was placed by the most: 60 beside 60 in 40 of a member, so by force."""
    rates = [20.0] * 3
    up, down = decide(rates, 1, lags=[60] * 3, lows=[0] * 3), decide(rates, 3, lags=[15] * 3, lows=[0] * 3)
    assert (up.lag, down.lag) == (LagMoment.AFTER_BURST, LagMoment.BEFORE_BURST)
    later = decide(rates, 1, lags=[15] * 3, lows=[0] * 3, memory=memory_of(down))
    assert (later.reason, later.lag) == ("fits", LagMoment.BEFORE_BURST)
    sampled = decide(rates, 3, lags=[15] * 3, lows=[0] * 3, parameters={"sampled_lag": 1.0})
    assert sampled.lag is LagMoment.REPORTED


@pytest.mark.parametrize("name", ["closer24_as_run", "iccbdc22_as_run"])
def test_as_run_the_lag_is_sampled(name: str) -> None:
    """170 records/s in two partitions, in each of which 95 wait just after a burst and none when the member reports."""
    items = tuple(structs.replace(item, lag_high=95) for item in picture([170.0 / 2] * 2, 1).items)
    given = view(items, 1, config=SETTING)
    sampled = answer_of(make_policy(name, given={"mu": 200.0}), given, None)
    assert (sampled.replicas, sampled.lag) == (1, LagMoment.REPORTED)
    drifting = {"mu": 200.0, "sampled_lag": 0.0} | ({"warmup_seconds": 0.0} if name == "closer24_as_run" else {})
    assert answer_of(make_policy(name, given=drifting), given, None).replicas == 2


def test_a_given_mu_is_used() -> None:
    assert decide([60.0] * 5, 1, parameters={"mu": 100.0}).replicas == 5
    assert decide([60.0] * 5, 1, parameters={"mu": 1000.0}).replicas == 1


def test_cool_down_after_any_scaling() -> None:
    first = decide([60.0] * 5, 1, parameters={"cooldown_seconds": 10.0}, now=1000.0)
    assert first.replicas == 2
    memory = memory_of(first)
    held = decide([170.0] * 5, 2, parameters={"cooldown_seconds": 10.0}, memory=memory, now=1010.0)
    assert (held.replicas, held.reason) == (2, "patience")
    assert held.rejected[0].replicas == 5
    later = decide([170.0] * 5, 2, parameters={"cooldown_seconds": 10.0}, memory=memory_of(held), now=1010.1)
    assert later.replicas == 5


def test_partitions_are_dealt_out_when_the_new_members_are_there() -> None:
    first = decide([60.0] * 5, 1)
    assert first.place is False
    waiting = decide([60.0] * 5, 1, memory=memory_of(first))
    assert waiting.replicas == 2
    there = decide([60.0] * 5, 2, memory=memory_of(waiting), owners="aaaaa")
    assert there.place is True
    assert (there.fill, there.extra_lag_seconds) == (0.9, 0.05)
    settled = decide([60.0] * 5, 2, memory=memory_of(there))
    assert settled.place is False


def test_bounds() -> None:
    assert decide([170.0] * 5, 1, replicas_max=3).replicas == 3
    assert decide([1.0] * 5, 4, least=2).replicas == 2


@pytest.mark.parametrize("rates", [[0.0] * 3, []])
def test_without_load_one_is_enough(rates: list[float]) -> None:
    assert decide(rates, 2).replicas == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["closer24", "closer24_algorithm_1", "closer24_as_run"])
def test_after_a_down_those_that_stay_share_the_work(name: str) -> None:
    """100/s on 5 partitions take two members of 80/s, three partitions and two: bins of 180/s would leave one idle."""
    config = PlanConfig(group="g", sla_seconds=0.5, policy=name, packer=name.removesuffix("_algorithm_1"))
    group = Fleet(config, steps(5, (0, 800.0), (30, 100.0)), members=1)
    for _ in range(60):
        group.run_scaled(1)
    assert group.history[-1].replicas_wanted == len(group.members) == 2
    assert sorted(Counter(group.owners.values()).values()) == [2, 3]


def test_what_fills_members_is_kept_until_the_next_change() -> None:
    down = decide([20.0] * 5, 4)
    assert (down.reason, down.replicas, down.fill) == (Reason.NEEDS_LESS, 2, 0.4)
    fits = decide([20.0] * 5, 2, memory=memory_of(down))
    assert (fits.reason, fits.fill) == (Reason.FITS, 0.4)
    waits = decide([90.0] * 5, 2, memory=memory_of(fits), parameters={"cooldown_seconds": 10.0})
    assert (waits.reason, waits.fill) == (Reason.STABILIZING, 0.4)
    up = decide([90.0] * 5, 2, memory={**memory_of(fits), "scaled_at": 0.0})
    assert (up.reason, up.fill) == (Reason.NEEDS_MORE, 0.9)
