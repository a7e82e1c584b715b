"""Least-load first-fit decreasing: cases worked by hand from ICCBDC'22 and CLOSER'24, as their authors ran it."""

from __future__ import annotations

import math

import pytest
from msgspec import structs
from msgspec.structs import replace

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.placement.problem import Bin, Item, Limits
from loadtrim_agent.planning.published.packers.least_loaded import BinSize, bin_size, first_fit, least_loaded
from loadtrim_agent.planning.registry import make_packer
from loadtrim_agent.planning.values import LagMoment
from unit.planning.virtual_group import bins, item, partition, problem


def entry(number: int, rate: float, lag: int = 0, owner: str | None = None, cost: float = 0.005) -> Item:
    return item(number, owner, rate * cost, rate=rate, lag=lag, lag_low=lag, lag_high=lag, cost=cost)


def numbers(packed: list[list[Partition]]) -> list[list[int]]:
    return [[partition.partition for partition in one] for one in packed]


# CLOSER'24: mu = 200/s, W = 0.5 s, f_up = 0.9: a bin takes 180 records/s and 90 records.
UP = BinSize(180.0, 90)


def test_the_size_of_a_bin_is_that_of_the_paper() -> None:
    items = [entry(0, 100.0), entry(1, 50.0)]
    assert bin_size(items, 1.0, 0.5, 0.9) == BinSize(pytest.approx(180.0), 90)
    assert bin_size(items, 1.0, 0.5, 0.4) == BinSize(pytest.approx(80.0), 40)
    assert bin_size(items, 2.0, 0.5, 0.9) == BinSize(pytest.approx(360.0), 180)


def test_lag_capacity_is_rounded_down() -> None:
    """85 records of 5.9 ms are what 0.5 s hold (the authors' figure), not 84.7 rounded up."""
    assert bin_size([entry(0, 10.0, cost=0.0059)], 1.0, 0.5, 1.0).lag == 84
    assert bin_size([entry(0, 10.0, cost=1 / 170)], 1.0, 0.5, 1.0).lag == 85


def test_unlike_costs_weigh_by_their_records() -> None:
    items = [entry(0, 300.0, cost=0.001), entry(1, 100.0, cost=0.005)]
    assert bin_size(items, 1.0, 1.0, 1.0).rate == pytest.approx(1 / 0.002)


def test_no_load_and_no_cost() -> None:
    assert bin_size([entry(0, 0.0), entry(1, 0.0, cost=0.015)], 1.0, 1.0, 1.0).rate == pytest.approx(100.0)
    assert bin_size([entry(0, 10.0, cost=0.0)], 1.0, 1.0, 1.0).rate == math.inf
    assert bin_size([], 1.0, 1.0, 1.0).rate == math.inf


def test_five_even_partitions_restart_until_they_fit() -> None:
    """60/s each: three fit 180/s. 1 bin: full after three; restart with 2: 3 + 2."""
    items = [entry(number, 60.0) for number in range(5)]
    assert numbers(least_loaded(items, UP)) == [[0, 2, 4], [1, 3]]


def test_the_restart_spreads_over_all_bins() -> None:
    """Rates 100, 90, 80, 70, 60 (sum 400): 1 bin fails at 90; 2 bins: 100|90, 80 -> the second (90 left) 170, 70 -> the
    first 170, 60 fits neither (10 | 10): restart with 3: 100 | 90 | 80, 70 -> third 150, 60 -> second 150."""
    items = [entry(number, rate) for number, rate in enumerate([100.0, 90.0, 80.0, 70.0, 60.0])]
    assert numbers(least_loaded(items, UP)) == [[0], [1, 4], [2, 3]]


def test_lag_opens_bins_where_the_rate_would_not() -> None:
    """10/s each but 50 records wait in each: 90 take one of them."""
    items = [entry(number, 10.0, lag=50) for number in range(3)]
    assert numbers(least_loaded(items, UP)) == [[0], [1], [2]]


def test_what_just_fits_fits() -> None:
    items = [entry(0, 90.0, lag=45), entry(1, 90.0, lag=45)]
    assert numbers(least_loaded(items, UP)) == [[0, 1]]


def test_what_is_larger_than_a_bin_is_cut_to_it() -> None:
    items = [entry(0, 500.0, lag=1000), entry(1, 10.0)]
    assert numbers(least_loaded(items, UP)) == [[0], [1]]


def test_the_lag_of_a_rebalance_is_added() -> None:
    """CLOSER'24, algorithm 2: totalLag = lag + rate x t_r. Two of 40 + 50 x 0.1 = 45 fit 90; with more t_r not."""
    items = [entry(0, 50.0, lag=40), entry(1, 50.0, lag=40)]
    assert numbers(least_loaded(items, UP, 0.1)) == [[0, 1]]
    assert numbers(least_loaded(items, UP, 0.101)) == [[0], [1]]


def test_sorted_by_rate_and_ties_by_partition() -> None:
    items = [entry(2, 50.0), entry(0, 50.0), entry(1, 120.0)]
    assert numbers(least_loaded(items, UP)) == [[1], [0, 2]]
    assert least_loaded(list(reversed(items)), UP) == least_loaded(items, UP)


def test_with_no_more_bins_allowed_the_rest_goes_to_the_most_room() -> None:
    items = [entry(number, 100.0) for number in range(5)]
    assert numbers(least_loaded(items, UP, bins_max=2)) == [[0, 2, 4], [1, 3]]
    assert numbers(least_loaded([], UP)) == [[]]


def test_the_authors_optimum_on_five_equal_partitions() -> None:
    """reproduction.md: 85 records/s per replica. 85 -> 1 replica, 86 -> 2, five above 85 each never more than 5."""

    def count(total: float) -> int:
        return len(least_loaded([entry(number, total / 5) for number in range(5)], BinSize(85.0, 10**6)))

    assert [count(total) for total in (85, 86, 140, 142, 255, 256, 400, 1000)] == [1, 2, 2, 3, 5, 5, 5, 5]


def test_packer_the_kth_bin_goes_to_the_kth_member() -> None:
    items = [entry(number, 60.0, owner="b") for number in range(5)]
    placed = make_packer("least_loaded").pack(
        problem(items, bins("a", "b", "c"), limits=Limits(objective_seconds=0.5), fill=0.9)
    )
    assert {p.partition: owner for p, owner in placed.owners.items()} == {0: "a", 1: "b", 2: "a", 3: "b", 4: "a"}
    assert [(move.partition.partition, move.source, move.target) for move in placed.moves] == [
        (0, "b", "a"),
        (2, "b", "a"),
        (4, "b", "a"),
    ]
    assert placed.victims == ()


def test_packer_leaves_what_may_not_move() -> None:
    items = [entry(0, 60.0, owner="b"), entry(1, 60.0, owner="b"), entry(2, 60.0, owner=None)]
    packer = make_packer("least_loaded")
    placed = packer.pack(problem(items, bins("a", "b"), may_move=False))
    assert [owner for _, owner in sorted(placed.owners.items())] == ["b", "b", "a"]
    fixed = [structs.replace(one, movable=False) if one.partition == partition(0) else one for one in items]
    placed = packer.pack(problem(fixed, bins("a", "b"), limits=Limits(objective_seconds=0.5)))
    assert placed.owners[partition(0)] == "b"


def test_packer_respects_subscriptions_leaving_members_and_victims() -> None:
    items = [entry(0, 60.0), entry(1, 60.0), entry(2, 60.0, owner="d")]
    other = Bin(member="a", unit="a", capacity=1.0, topics=frozenset({"another"}))
    members = (other, *bins("b", "c", "d", leaving=["c"]))
    placed = make_packer("least_loaded").pack(problem(items, members))
    assert set(placed.owners.values()) <= {"b", "d"}
    assert len(placed.owners) == 3
    fewer = make_packer("least_loaded").pack(problem(items, members, replicas=1, victims=("a", "b")))
    assert fewer.victims == ("a", "b")
    assert set(fewer.owners.values()) == {"d"}


def test_packer_with_nobody_to_give_to() -> None:
    placed = make_packer("least_loaded").pack(problem([entry(0, 1.0)], bins("a", leaving=["a"])))
    assert placed.owners == {}
    assert placed.moves == ()


# -- as published and as run


def by_member(
    name: str, items: list[Item], members: str = "abcd", fill: float = 1.0, **more: object
) -> list[list[int]]:
    given = problem(items, bins(*members), limits=Limits(objective_seconds=5.0), fill=fill, **more)
    placed = make_packer(name).pack(given)
    return [[p.partition for p, owner in placed.owners.items() if owner == member] for member in members]


def iccbdc(rates: list[float], lags: list[int]) -> list[Item]:
    return [entry(number, rate, lag, cost=0.01) for number, (rate, lag) in enumerate(zip(rates, lags, strict=True))]


def test_iccbdc22_experiment_1_at_the_start_and_in_its_first_ramp() -> None:
    """Five partitions of 15/s fit one member of 100/s. With 60, 60, 15, 15, 15 they need two: 60 | 60, then each 15 to
    the less loaded, the first of equals: 75 | 60, 75 | 75, 90 | 75."""
    calm = iccbdc([15.0] * 5, [0] * 5)
    assert by_member("iccbdc22", calm) == [[0, 1, 2, 3, 4], [], [], []]
    ramp = iccbdc([60.0, 60.0, 15.0, 15.0, 15.0], [0] * 5)
    assert by_member("iccbdc22", ramp) == [[0, 2, 4], [1, 3], [], []]


def test_iccbdc22_a_lag_above_what_a_member_can_work_off_gets_one_of_its_own() -> None:
    """100/s and 5 s: 500 records. 600 count as 500, so nothing with a lag goes beside them; 1/s goes to the one with
    more rate left."""
    assert by_member("iccbdc22", iccbdc([10.0, 5.0, 1.0], [600, 1, 0])) == [[0], [1, 2], [], []]


def test_iccbdc22_as_run_the_count_of_one_pass_and_then_the_fewest_partitions() -> None:
    """95/s: one pass of first fit packs 80 | 20 20 20, so two members. Dealt out: 80 to a, 20 to b, 20 to b (one each,
    b has less), 20 to a, which has fewer partitions and so gets 100/s. As published: 80 | 60."""
    items = iccbdc([80.0, 20.0, 20.0, 20.0], [0] * 4)
    assert first_fit(items, BinSize(95.0, 475.0)) == 2
    assert by_member("iccbdc22_as_run:mu=95", items) == [[0, 3], [1, 2], [], []]
    assert by_member("iccbdc22:mu=95", items) == [[0], [1, 2, 3], [], []]


def test_the_policys_mu_comes_before_the_packers() -> None:
    """50/s twice: one member of 100/s takes both, one of 50/s does not."""
    items = iccbdc([50.0, 50.0], [0, 0])
    assert by_member("iccbdc22:mu=100", items) == [[0, 1], [], [], []]
    assert by_member("iccbdc22:mu=100", items, mu=50.0) == [[0], [1], [], []]


def test_iccbdc22_takes_no_account_of_fill_and_closer24_does() -> None:
    items = iccbdc([50.0, 50.0], [0, 0])
    assert by_member("iccbdc22", items, fill=0.9) == [[0, 1], [], [], []]
    assert by_member("closer24", items, fill=0.9) == [[0], [1], [], []]


def test_closer24_as_run_counts_whole_records_of_lag() -> None:
    """mu x W x f = 170 x 0.5 x 0.9 = 76.5. Lags of 38 and 5/s x 0.05 s each are 38.25 + 38.25 = 76.5: they fit as
    published, and not as run, where a member takes 76."""
    items = [entry(number, 5.0, 38, cost=1 / 170) for number in range(2)]
    given = problem(items, bins("a", "b"), limits=Limits(objective_seconds=0.5), fill=0.9, extra_lag_seconds=0.05)
    assert make_packer("closer24").pack(given).opened == 1
    assert make_packer("closer24_as_run").pack(given).opened == 2
    assert make_packer("least_loaded").pack(given).owners == make_packer("closer24_as_run").pack(given).owners


@pytest.mark.parametrize(
    ("moment", "opened"), [(LagMoment.AFTER_BURST, 3), (LagMoment.REPORTED, 2), (LagMoment.BEFORE_BURST, 1)]
)
def test_it_packs_by_the_lag_that_it_is_told(moment: LagMoment, opened: int) -> None:
    """A member takes 200 x 0.5 = 100 records: one of 60, two of 40, three of 20."""
    items = [structs.replace(entry(number, 5.0), lag=40, lag_low=20, lag_high=60) for number in range(3)]
    given = problem(items, bins("a", "b", "c"), limits=Limits(objective_seconds=0.5), lag=moment)
    assert make_packer("closer24").pack(given).opened == opened


def unlike(*capacities: float) -> tuple[Bin, ...]:
    members = bins(*"abcd"[: len(capacities)])
    return tuple(structs.replace(one, capacity=capacity) for one, capacity in zip(members, capacities, strict=True))


@pytest.mark.parametrize("name", ["iccbdc22", "closer24", "closer24_as_run", "least_loaded", "iccbdc22:mu=100"])
def test_a_small_member_gets_what_it_can_do(name: str) -> None:
    """A quarter of 100/s takes none of 45/s; the others two each: with three bins, 45 + 45 on b and on c."""
    given = problem(iccbdc([45.0] * 4, [0] * 4), unlike(0.25, 1.0, 1.0, 1.0), limits=Limits(objective_seconds=5.0))
    placed = make_packer(name).pack(given)
    assert [placed.owners[partition(n)] for n in range(4)] == ["b", "c", "b", "c"]
    assert (placed.misfits, placed.opened, placed.bound) == ((), 2, 2)
    fewer = make_packer(name).pack(replace(given, replicas=2))
    assert fewer.victims == ("a", "d"), "the small one holds nothing"


def test_a_large_member_counts_as_what_it_is() -> None:
    """200/s and 50/s: 150 go to the large one, 45 to it as long as it has more left (50 each: a comes first)."""
    given = problem(iccbdc([150.0, 45.0, 20.0], [0] * 3), unlike(2.0, 0.5), limits=Limits(objective_seconds=5.0))
    placed = make_packer("iccbdc22").pack(given)
    assert [placed.owners[partition(n)] for n in range(3)] == ["a", "a", "b"]
    assert placed.misfits == ()


def test_the_lag_that_a_small_member_takes_is_its_own() -> None:
    """5 s of 100/s are 500 records, of 50/s 250: 300 fit a, further 200 fit it too, and the last 250 b."""
    given = problem(iccbdc([3.0, 2.0, 1.0], [300, 200, 250]), unlike(1.0, 0.5), limits=Limits(objective_seconds=5.0))
    placed = make_packer("iccbdc22").pack(given)
    assert [placed.owners[partition(n)] for n in range(3)] == ["a", "a", "b"]


def test_the_bound_is_that_of_the_stricter_dimension() -> None:
    given = problem(iccbdc([10.0] * 4, [400] * 4), bins(*"abcd"), limits=Limits(objective_seconds=5.0))
    placed = make_packer("iccbdc22").pack(given)
    assert placed.opened == placed.bound == 4


def test_the_last_members_go_when_fewer_are_filled() -> None:
    items = [structs.replace(one, owner="c") for one in iccbdc([15.0] * 5, [0] * 5)]
    placed = make_packer("iccbdc22").pack(
        problem(items, bins("a", "b", "c"), limits=Limits(objective_seconds=5.0), replicas=1)
    )
    assert placed.victims == ("b", "c")
    assert set(placed.owners.values()) == {"a"}
