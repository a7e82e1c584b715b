"""How packers that open their own number of bins live with a number that a policy decided."""

from __future__ import annotations

import pytest
from msgspec import structs
from msgspec.structs import replace

from loadtrim_agent.planning.placement.bin_source import wanted
from loadtrim_agent.planning.placement.problem import Bin, Item, Limits, LoadError, Problem
from loadtrim_agent.planning.registry import PACKERS, make_packer
from unit.planning.placement.packing import held, packed, packing
from unit.planning.virtual_group import partition

COUNTS_ONLY = {"range", "roundrobin", "sticky", "kd_n"}
OPENERS = sorted(set(PACKERS) - COUNTS_ONLY)


def test_who_is_left_empty_is_the_first_to_go() -> None:
    """6 and 3 fit the first bin that is opened: of three members two may stay, and c2, which owns both, is kept."""
    given = packing([6, 3], ["c2", "c2"], bins=3, replicas=2)
    placed = make_packer("ffd_sticky").pack(given)
    assert placed.victims == ("c1",)
    assert held(given, placed) == {"c2": [6, 3]}


def test_where_fewer_may_stay_than_are_opened_it_packs_again_onto_those() -> None:
    given = packing([9, 8, 7], ["c0", "c1", "c2"], replicas=2)
    placed = make_packer("bfd_sticky").pack(given)
    assert len(placed.victims) == 1
    assert sorted(map(len, held(given, placed).values())) == [1, 2], "what fits nowhere has an owner all the same"
    assert placed.misfits != ()
    assert placed.bound == 3


def test_nothing_left_to_open_goes_where_most_room_is() -> None:
    assert packed("ffd", packing([9, 8, 7, 1], bins=2)) == {"c0": [9, 1], "c1": [8, 7]}


@pytest.mark.parametrize(("name", "count"), [("ffd", 2), ("nf", 3), ("trim", 2), ("mwf", 2)])
def test_a_policy_asks_how_many_a_packer_would_open(name: str, count: int) -> None:
    given = packing([4, 8, 1, 4, 2, 1], ["c0"] * 6, replicas=1)
    assert wanted(make_packer(name), given) == count


def test_instances_are_asked_for_not_members() -> None:
    given = packing([9, 8, 7])
    given = replace(
        given, bins=tuple(structs.replace(entry, unit=f"u{at // 2}") for at, entry in enumerate(given.bins))
    )
    assert wanted(make_packer("ffd"), given) == 2
    assert wanted(make_packer("ffd"), packing([])) == 0
    assert wanted(make_packer("ffd"), packing([], bins=3)) == 1


@pytest.mark.parametrize("name", sorted(PACKERS))
def test_no_members_is_an_empty_placement(name: str) -> None:
    placed = make_packer(name).pack(packing([1.0, 2.0], bins=0))
    assert placed.owners == {}
    assert placed.moves == ()
    assert (placed.opened, placed.gap) == (0, 0)


@pytest.mark.parametrize("name", sorted(PACKERS))
def test_nothing_to_place(name: str) -> None:
    placed = make_packer(name).pack(packing([], bins=2))
    assert placed.owners == {}
    assert (placed.opened, placed.bound) == (0, 0)


@pytest.mark.parametrize("name", sorted(PACKERS))
def test_what_was_not_measured_weighs_nothing_and_is_placed(name: str) -> None:
    given = packing([0.0, 0.0, 0.0], bins=2)
    assert len(make_packer(name).pack(given).owners) == 3


@pytest.mark.parametrize("name", OPENERS)
def test_a_partition_larger_than_any_member_is_placed_and_named(name: str) -> None:
    given = packing([25.0, 3.0])
    given = replace(given, items=tuple(structs.replace(i, rate=i.work, cost=1.0) for i in given.items), fewest=True)
    placed = make_packer(name).pack(given)
    assert len(placed.owners) == 2
    assert placed.misfits == (placed.owners[given.items[0].partition],)
    assert held(given, placed)[placed.misfits[0]] == [25.0], "it gets a bin of its own where one is left"


@pytest.mark.parametrize(
    "wrong",
    [
        {"work": -1.0},
        {"work": float("nan")},
        {"work": float("inf")},
        {"work": None},
        {"rate": -0.5},
        {"lag": -1},
        {"lag_low": -1},
        {"lag_high": float("inf")},
        {"lag_high": None},
        {"mean": (0.0, 0.0, 0.0, float("nan"), 0.0, 0.0, 0.0)},
        {"stddev": (0.0,) * 6 + (-1.0,)},
    ],
)
def test_loads_that_are_none_are_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(LoadError, match="orders-3 is negative or no finite number.*leave the fields out"):
        Item(partition=partition(3), owner=None, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [{"mean": ()}, {"stddev": ()}, {"mean": (), "stddev": ()}, {"mean": (0.1,)}, {"stddev": (0.1,) * 8}]
)
def test_windows_that_are_not_one_each_are_refused(wrong: dict[str, tuple[float, ...]]) -> None:
    with pytest.raises(LoadError, match="orders-3 has . means and . standard deviations.*7 windows.*leave the fields"):
        Item(partition=partition(3), owner=None, **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"objective_seconds": float("nan")},
        {"objective_seconds": -1.0},
        {"objective_seconds": 0.0},
        {"objective_seconds": float("inf")},
        {"overhead_seconds": -0.1},
        {"z": float("nan")},
        {"load_factor": float("inf")},
        {"handoff_seconds": float("nan")},
    ],
)
def test_limits_that_nobody_can_keep_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(LoadError, match="no member can be held.*give a finite objective above 0"):
        Limits(**{"objective_seconds": 1.0} | wrong)


@pytest.mark.parametrize("capacity", [0.0, -1.0, float("nan"), float("inf"), None, "1"])
def test_a_capacity_that_nothing_can_be_placed_on_is_refused(capacity: float) -> None:
    with pytest.raises(LoadError, match="capacity of 'm' is .* above 0"):
        Bin(member="m", unit="m", capacity=capacity)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"fill": float("nan")}, "fill is nan.*at most 1"),
        ({"fill": 0.0}, "fill is 0.0"),
        ({"fill": 1.5}, "fill is 1.5"),
        ({"extra_lag_seconds": -1.0}, "extra_lag_seconds is -1.0.*0 or more"),
        ({"extra_lag_seconds": float("inf")}, "extra_lag_seconds is inf"),
        ({"mu": 0.0}, "mu is 0.0.*above 0"),
        ({"mu": float("nan")}, "mu is nan"),
        ({"replicas": 0}, "replicas is 0; at least one"),
        ({"replicas": -1}, "replicas is -1"),
    ],
)
def test_a_problem_that_nothing_can_be_packed_by_is_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(LoadError, match=f"nothing can be packed.*{said}"):
        Problem(items=(), bins=(), **wrong)  # type: ignore[arg-type]
