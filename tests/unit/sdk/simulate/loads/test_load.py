"""Generated loads: what they are, and what is refused."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from loadtrim.simulate import Costs, Load, WrongLoadError, parse_costs, parse_generator, protocol_of, shares_skewed
from loadtrim.simulate.loads.load import Moment
from loadtrim.simulate.model.work import Machines
from loadtrim_agent.common.partition import Partition

TWO = (Partition("t", 0), Partition("t", 1))


def load(*per_second: float, **changes: object) -> Load:
    given: dict[str, object] = {"partitions": TWO, "shares": ((0.75, 0.25),)} | changes
    return Load(per_second=per_second, **given)  # type: ignore[arg-type]


def counts(made: Load, seed: int = 1) -> Counter[int]:
    total: Counter[int] = Counter()
    for batches in made.batches(Random(seed)):
        for batch in batches:
            assert 0.0 <= batch.offset_seconds < 1.0
            total.update(dict(batch.counts))
    return total


@pytest.mark.parametrize("arrivals", ["burst", "even", "random"])
def test_fixed_keys_give_each_partition_its_share_and_fractions_add_up(arrivals: str) -> None:
    made = load(*[2.5] * 40, arrivals=arrivals, keys="fixed")
    assert counts(made) == {0: 75, 1: 25}


def test_every_second_has_its_number_also_with_even_shares() -> None:
    """Five partitions with the same fraction must not all get their extra record in the same second."""
    five = tuple(Partition("t", index) for index in range(5))
    made = Load(per_second=(83.0,) * 10, partitions=five, shares=((0.2,) * 5,), keys="fixed")
    per_second = [sum(count for batch in batches for _, count in batch.counts) for batches in made.batches(Random(1))]
    assert per_second == [83] * 10


def test_poisson_has_the_mean_and_the_variance() -> None:
    made = load(*[9.0] * 4000, arrivals="poisson")
    numbers = [len(batches) for batches in made.batches(Random(3))]
    mean = sum(numbers) / len(numbers)
    variance = sum((number - mean) ** 2 for number in numbers) / len(numbers)
    assert mean == pytest.approx(9.0, rel=0.03)
    assert variance == pytest.approx(9.0, rel=0.08)


def test_one_seed_gives_one_load_and_random_keys_follow_the_shares() -> None:
    made = load(*[100.0] * 50)
    assert list(made.batches(Random(4))) == list(made.batches(Random(4)))
    assert counts(made)[0] == pytest.approx(3750, rel=0.05)


def test_generators_make_what_they_say() -> None:
    assert parse_generator("step:before=1,after=3,at=2,seconds=4", 1).per_second == (1, 1, 3, 3)
    assert parse_generator("ramp:begin=0,end=4,seconds=5", 1).per_second == (0, 1, 2, 3, 4)
    assert parse_generator("spike:rate=1,height=2,at=1,width=1,seconds=3", 1).per_second == (1, 3, 1)
    assert parse_generator("cosine:mean=2,amplitude=1,period=4,seconds=4", 1).per_second == pytest.approx((3, 2, 1, 2))
    drifting = parse_generator("drift:from=0.2,to=0.6,seconds=3,rate=10", 3)
    assert [row[0] for row in drifting.shares] == pytest.approx([0.2, 0.4, 0.6])
    unlike = parse_generator("drift:rate=100,seconds=200,noise=0.1,seed=2", 3)
    assert 90.0 <= min(unlike.per_second) < max(unlike.per_second) <= 110.0
    noisy = parse_generator("constant:rate=100,seconds=200,noise=0.1,seed=2", 1)
    assert 90.0 <= min(noisy.per_second) < max(noisy.per_second) <= 110.0
    assert noisy == parse_generator("constant:rate=100,seconds=200,noise=0.1,seed=2", 1)


def test_a_cosine_that_would_be_below_zero_is_no_load_there_and_says_so() -> None:
    made = parse_generator("cosine:mean=1,amplitude=-2,period=4,seconds=4", 1)
    assert made.per_second == pytest.approx((0, 1, 3, 1))
    assert "below 0 is no load" in made.notes[0]
    assert parse_generator("cosine:mean=2,amplitude=-2,period=4,seconds=4", 1).notes == ()


def test_no_more_partitions_than_can_be_played() -> None:
    with pytest.raises(WrongLoadError, match="10001 partitions, more than the 10000"):
        parse_generator("constant", 10_001)
    with pytest.raises(WrongLoadError, match="more than the 10000"):
        load(1.0).dealt(10_001, [1.0])


def test_landau_streams_walk_in_steps() -> None:
    made = parse_generator("landau:delta=5,iterations=20,interval=2,capacity=100,seed=3", 4)
    assert made.seconds == 40
    speeds = [[made.per_second[s] * share for share in made.row(s)] for s in range(0, 40, 2)]
    assert all(0 <= speed <= 100.0 + 1e-9 for row in speeds for speed in row)
    steps = [abs(a - b) for one, two in pairwise(speeds) for a, b in zip(one, two, strict=True)]
    assert 0.0 < max(steps) <= 5.0 + 1e-9


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cosin", "the nearest is 'cosine'"),
        ("step:befor=1", "the nearest is 'before'"),
        ("step:before=x", "no parameter with a finite number"),
        ("step:before=nan", "no parameter with a finite number"),
        ("constant:rate=-1", "negative"),
        ("constant:rate=1e12", "more than"),
        ("constant:seconds=0", "no second"),
        ("constant:seconds=1e15", "31 days"),
        ("constant:seconds=1.5", "whole number"),
        ("landau:iterations=1e15", "31 days"),
        ("cosine:mean=-5", "mean of 0 or more"),
        ("cosine:period=0", "period above 0"),
        ("constant:rate=5,noise=2", "not a share"),
        ("landau:delta=1.5", "whole number"),
        ("drift:to=2", "to is 2; it must be the first partition's share, from 0 to 1"),
        ("drift:noise=2", "not a share"),
        ("step:before=50,before=60", "before is there twice"),
        ("step:seed=7.7", "seed is 7.7; it must be a whole number"),
        ("landau:seed=7.7", "seed is 7.7; it must be a whole number"),
        ("landau:noise=0.1", "no parameter of landau called 'noise'"),
    ],
)
def test_what_is_no_load_is_refused(text: str, said: str) -> None:
    with pytest.raises(WrongLoadError, match=said):
        parse_generator(text, 3)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_rates_that_are_no_rates_are_refused(bad: float) -> None:
    with pytest.raises(WrongLoadError, match="second 1"):
        load(1.0, bad)


def test_a_rate_that_is_too_large_is_told_with_all_its_digits() -> None:
    with pytest.raises(WrongLoadError, match="is 10,000,001 records/s, which is .* more than 10,000,000"):
        load(1e7 + 1)
    with pytest.raises(WrongLoadError, match="second 0 is None"):
        load(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("offset", "records"),
    [(math.nan, 1.0), (-0.1, 1.0), (1.0, 1.0), (7.0, 1.0), (0.0, math.nan), (0.0, math.inf), (0.0, -3.0)],
)
def test_a_moment_that_is_none_is_refused(offset: float, records: float) -> None:
    with pytest.raises(WrongLoadError, match="moment"):
        Moment(offset, records)


@pytest.mark.parametrize("index", [-1, 2])
def test_a_moment_of_a_partition_that_is_not_there_is_refused(index: int) -> None:
    with pytest.raises(WrongLoadError, match=f"index {index}, and there are 2, .* give 0 to 1, or None"):
        load(1.0, moments=((Moment(0.0, 1.0, index),),))


@pytest.mark.parametrize(
    ("moments", "told"),
    [
        ((Moment(0.0, 1.0), Moment(0.5, 1.5)), "have 2.5 records and the second itself 2,"),
        ((Moment(0.5, 1.0), Moment(0.0, 1.0)), "not in order of time"),
    ],
)
def test_moments_must_be_those_of_their_second(moments: tuple[Moment, ...], told: str) -> None:
    with pytest.raises(WrongLoadError, match=told):
        load(2.0, moments=(moments,))


def test_rows_of_moments_must_fit() -> None:
    with pytest.raises(WrongLoadError, match="2 rows of moments for 1 seconds, so .* give one row for each second"):
        load(1.0, moments=((), ()))


@pytest.mark.parametrize(
    "changes",
    [
        {"partitions": (), "shares": ((),)},
        {"partitions": (TWO[0], TWO[0])},
        {"shares": ((0.5, 0.6),)},
        {"shares": ((1.5, -0.5),)},
        {"shares": ((math.nan, 1.0),)},
        {"shares": ((1.0,),)},
        {"arrivals": "sometimes"},
        {"keys": "none"},
    ],
)
def test_partitions_and_shares_must_fit(changes: dict[str, object]) -> None:
    with pytest.raises(WrongLoadError):
        load(1.0, **changes)


def test_a_load_is_cut_scaled_and_dealt_out() -> None:
    made = load(1.0, 2.0, 3.0)
    assert made.part(1, 1).per_second == (2.0,)
    assert made.scaled(2.0).per_second == (2.0, 4.0, 6.0)
    assert made.dealt(4, shares_skewed(4)).rates(1) == {Partition("load", i): 0.5 for i in range(4)}
    exact = load(1.0, 2.0, keys="fixed")
    assert exact.dealt(2, (0.5, 0.5)).keys == "random", "whose record was whose is not known any more"
    for wrong in (lambda: made.part(3, 1), lambda: made.part(-1, 1), lambda: made.scaled(0.0), lambda: made.scaled(-1)):
        with pytest.raises(WrongLoadError):
            wrong()


@pytest.mark.parametrize("text", ["5ms", "exponential:5ms", "lognormal:5ms,0.5", "0.005"])
def test_costs_have_their_mean(text: str) -> None:
    draw = parse_costs(text).drawer(Random(1))
    costs = [draw() for _ in range(20_000)]
    assert sum(costs) / len(costs) == pytest.approx(0.005, rel=0.03)
    assert min(costs) > 0


def test_measured_costs_are_drawn_from_the_file(tmp_path: object) -> None:
    path = tmp_path / "costs"  # type: ignore[operator]
    path.write_text("0.001\n0.003\n")
    costs = parse_costs(f"measured:{path}")
    assert costs.mean_seconds == pytest.approx(0.002)
    draw = costs.drawer(Random(1))
    assert {draw() for _ in range(50)} == {0.001, 0.003}


@pytest.mark.parametrize(
    "text", ["", "fast", "0", "-5ms", "nan", "inf", "gamma:5ms", "lognormal:5ms,-1", "measured:no"]
)
def test_costs_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(WrongLoadError):
        parse_costs(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lognorm:5ms", "no kind of cost 'lognorm'.*choose one of .* .the nearest is 'lognormal'"),
        ("lognormal:5ms,0", "standard deviation over their mean is 0; it must be a number above 0, at most 100"),
        ("lognormal:5ms,inf", "mean is inf"),
        ("lognormal:5ms,800ms", "no cost of a record"),
        ("exponential:5ms,0.5", "only lognormal takes; leave '0.5' out"),
        ("-5ms", "it is -0.005"),
        ("measured:costs", r"costs, line 3: .* it is 0\."),
        ("measured:words", "words, line 2: '0.1 0.2' is no number of seconds"),
        ("measured:nothing", "holds no cost"),
    ],
)
def test_a_wrong_cost_is_named(text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean was, which was right."""
    monkeypatch.chdir(tmp_path)
    for name, costs in (("costs", "0.1\n\n0\n"), ("words", "0.1\n0.1 0.2\n"), ("nothing", "\n")):
        (tmp_path / name).write_text(costs)
    with pytest.raises(WrongLoadError, match=said):
        parse_costs(text)


@pytest.mark.parametrize("speeds", [(), (0.0,), (-1.0,), (math.nan,), (math.inf,)])
def test_a_member_without_capacity_is_refused(speeds: tuple[float, ...]) -> None:
    with pytest.raises(WrongLoadError, match="no capacity"):
        Machines(speeds=speeds)


def test_measured_costs_need_a_sample() -> None:
    """It was an IndexError in the middle of the run."""
    with pytest.raises(WrongLoadError, match="no sample"):
        Costs(mean_seconds=0.005, kind="measured")


@pytest.mark.parametrize("concurrency", [0, 1.5, math.nan])
def test_a_member_works_on_whole_partitions(concurrency: int) -> None:
    with pytest.raises(WrongLoadError, match="has no capacity"):
        Machines(concurrency=concurrency)


@pytest.mark.parametrize(
    "changes",
    [
        *({"heartbeat_seconds": value} for value in (math.nan, math.inf, 0.0, -1.0, 1e-9)),
        {"sync_seconds": math.nan},
        {"handoff_seconds": (-1.0, 1.0)},
        {"handoff_seconds": (0.2, 0.1)},
    ],
)
def test_a_protocol_with_a_time_that_is_none_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(WrongLoadError, match="give .*finite number"):
        replace(protocol_of("eager"), **changes)


def test_an_unknown_protocol_names_the_nearest() -> None:
    with pytest.raises(WrongLoadError, match="the nearest is 'cooperative'"):
        protocol_of("cooperativ")
