"""What a load needs whose moments are known, against cases worked by hand: a record takes 0.1 s, W is 0.5 s."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from loadtrim.simulate import Costs, Options, PlanConfig, parse_generator, simulate
from loadtrim.simulate.loads.load import Batch, Load
from loadtrim.simulate.model.foresight import Foresight
from loadtrim_agent.common.partition import Partition


def foresight(*seconds: tuple[Batch, ...], partitions: int = 4, most: int = 4, objective: float = 0.5) -> Foresight:
    named = tuple(Partition("t", index) for index in range(partitions))
    load = Load(per_second=(1.0,) * len(seconds), partitions=named, shares=((1.0 / partitions,) * partitions,))
    return Foresight(load, seconds, 0.1, objective, most)


def burst(*counts: int, at: float = 0.0) -> tuple[Batch, ...]:
    return (Batch(at, tuple((index, count) for index, count in enumerate(counts) if count)),)


def even(count: int, partitions: int = 4) -> tuple[Batch, ...]:
    return tuple(Batch(place / count, ((place % partitions, 1),)) for place in range(count))


@pytest.mark.parametrize(
    ("counts", "whole", "sliced"),
    [
        ((5,), 1, 1),
        ((3, 3), 2, 2),
        # Two of 4 and 4 do 4 and 4; three of 5 each take a replica each, though 13 fit into three.
        ((4, 4), 2, 2),
        ((4, 4, 4), 3, 3),
        # 2 x 5 = 10 of a pool; as whole partitions 3 + 2 and 3 + 2.
        ((3, 3, 2, 2), 2, 2),
        # 4 + 4 is too much for one: whole partitions take three, a pool of 12 takes three as well.
        ((4, 4, 4, 0), 3, 3),
        # 3 + 3 is too much for one, so whole partitions take four where a pool of 12 takes three.
        ((3, 3, 3, 3), 4, 3),
    ],
)
def test_a_burst(counts: tuple[int, ...], whole: int, sliced: int) -> None:
    given = foresight(burst(*counts))
    assert given.needed(False, 1.0) == (whole,)
    assert given.needed(True, 1.0) == (sliced,)


def test_what_comes_evenly_takes_a_replica_for_ten_a_second() -> None:
    """As one burst 10 would take two. 19 take two, for a replica does 10 in the second and has W for 5 more."""
    assert foresight(even(10), even(10), even(10)).needed(False, 1.0) == (1, 1, 1)
    assert foresight(*[even(19)] * 3).needed(False, 1.0) == (2, 2, 2)


def test_what_is_left_counts_in_the_next_second() -> None:
    """13 in a second: three are left, 0.3 s of work, which is within W. With 13 more the last waits for 0.58 s; two
    replicas leave nothing."""
    assert foresight(*[even(13)] * 4).needed(True, 1.0) == (1, 2, 1, 2)


def test_less_is_counted_on_or_more() -> None:
    given = foresight(burst(3, 2))
    assert [given.needed(False, counted)[0] for counted in (0.5, 1.0, 2.0)] == [2, 1, 1]
    assert foresight(burst(5, 5)).needed(False, 2.0) == (1,)


def test_where_no_number_helps_it_is_the_fewest_that_lose_no_more() -> None:
    """Nine of one partition are late whoever has it; the two others fit beside each other."""
    assert foresight(burst(9, 2, 2)).needed(False, 1.0) == (2,)
    assert foresight(burst(9, 9), most=1).needed(False, 1.0) == (1,)


@pytest.mark.slow
def test_the_policy_has_what_comes_by_chance_in_time_for_less_than_by_its_seconds() -> None:
    """Poisson arrivals of 2.5 members' work: as one burst a second they take twice as many (W = 0.5 s)."""
    load = parse_generator("constant:rate=50,seconds=60", 20)
    load = replace(load, arrivals="poisson", keys="random")
    options = Options(costs=Costs(mean_seconds=0.05), startup_seconds=2.0, replicas=5)

    def play(policy: str) -> tuple[float, float]:
        config = PlanConfig(sla_seconds=0.5, policy=policy, packer="trim", startup_seconds=2.0)
        outcome = simulate(load, config, options)
        return outcome.share_in_time, outcome.replica_minutes

    share, minutes = play("clairvoyant")
    by_seconds = play("clairvoyant:limit_records_per_second=10")
    assert share > 0.95
    assert minutes < 0.7 * by_seconds[1]


def test_it_is_worked_out_from_the_records_that_are_played() -> None:
    load = parse_generator("constant:rate=20,seconds=5", 4)
    seconds = list(load.batches(Random("load:1")))
    assert Foresight(load, seconds, 0.1, 0.5, 4).needed(True, 1.0) == (4, 4, 4, 4, 4)
