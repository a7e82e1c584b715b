"""Landau'24's baselines (section II-B, adapted in VI-A): cases worked out by hand, bins of 10."""

from __future__ import annotations

import pytest
from msgspec import structs
from msgspec.structs import replace

from loadtrim_agent.planning.published.packers.any_fit import ANY_FITS
from loadtrim_agent.planning.registry import make_packer
from unit.planning.placement.packing import owned, packed, packing

MIXED = [4.0, 8.0, 1.0, 4.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("name", "bins"),
    [
        # Only the newest bin: 4 | 8 1 | 4 2 1.
        ("nf", [[4, 0], [8, 1], [4, 2, 1]]),
        # The first that takes it: 4 1 4 1 | 8 2.
        ("ff", [[4, 4, 1, 1], [8, 2]]),
        # The one with most room: 1 and 4 beside the first 4 (6 and 5 left), 2 beside 8 (2 left, not 1).
        ("wf", [[4, 4, 1, 1], [8, 2]]),
        # The tightest: 1 beside 8 (2 left, not 6), 4 and 2 beside 4, the last 1 beside 8.
        ("bf", [[4, 4, 2], [8, 1, 1]]),
        # 8 | 4 4 2 | 1 1: what is behind the newest bin is never looked at again.
        ("nfd", [[8], [4, 4, 2], [1, 1]]),
        ("ffd", [[8, 2], [4, 4, 1, 1]]),
        ("wfd", [[8, 2], [4, 4, 1, 1]]),
        ("bfd", [[8, 2], [4, 4, 1, 1]]),
    ],
)
def test_one_list_every_rule(name: str, bins: list[list[int]]) -> None:
    expected = [sorted((size for size in one if size), reverse=True) for one in bins]
    assert packed(name, packing(MIXED)) == {f"c{at}": one for at, one in enumerate(expected)}


def test_worst_and_best_fit_decreasing_differ() -> None:
    """6 | 5, then 3 beside 5 (more room) or beside 6 (tighter), then 2 where 3 is not."""
    assert packed("wfd", packing([2, 3, 5, 6])) == {"c0": [6, 2], "c1": [5, 3]}
    assert packed("bfd", packing([2, 3, 5, 6])) == {"c0": [6, 3], "c1": [5, 2]}


@pytest.mark.parametrize("rule", ["ffd", "wfd", "bfd"])
def test_the_owner_s_bin_is_opened_where_it_is_closed(rule: str) -> None:
    """Equation 14: 7 and 6 belong to c2. 7 opens c2; for 6 that is open already, so the lowest, c0."""
    given = packing([7, 6], ["c2", "c2"], bins=3)
    assert packed(f"{rule}_sticky", given) == {"c0": [6], "c2": [7]}
    assert packed(rule, given) == {"c0": [7], "c1": [6]}


def test_next_fit_sticky_keeps_what_opens_a_bin() -> None:
    """NFD, section VI-E: large partitions seldom fit behind another, so their own consumer is opened."""
    given = packing([9, 8, 7], ["c0", "c2", "c1"])
    assert packed("nfd_sticky", given) == {"c0": [9], "c1": [7], "c2": [8]}
    assert make_packer("nfd_sticky").pack(given).moves == ()


def test_next_fit_sticky_begins_with_the_lowest_bin() -> None:
    """Its authors' opens that before it looks at an item. NFD: 9 into c0, though c1 owns it; 8 finds its own, c0, open,
    so c1; 7 opens its own. NF: 7 into c0, though c2 owns it; 8 and 9 find their own open, so c1 and c2."""
    given = packing([7, 8, 9], ["c2", "c0", "c1"])
    assert packed("nfd_sticky", given) == {"c0": [9], "c1": [8], "c2": [7]}
    assert packed("nf_sticky", given) == {"c0": [7], "c1": [8], "c2": [9]}


def test_ties_go_to_the_lowest_bin() -> None:
    given = packing([6, 6, 3], ["c1", "c0", None])
    for rule in ("ffd", "wfd", "bfd"):
        assert packed(f"{rule}_sticky", given)["c0"] == [6, 3]


@pytest.mark.parametrize("name", ANY_FITS)
def test_an_empty_bin_takes_any_item_and_then_no_other(name: str) -> None:
    placed = packed(name, packing([25, 1]))
    assert sorted(placed.values()) == [[1], [25]]
    assert make_packer(name).pack(packing([25, 1])).misfits == ("c0",)


@pytest.mark.parametrize("name", ANY_FITS)
def test_what_just_fits_fits_in_spite_of_rounding(name: str) -> None:
    assert len(packed(name, packing([0.1] * 10, capacity=1.0))) == 1


@pytest.mark.parametrize("name", [name for name in ANY_FITS if name.endswith("_sticky")])
def test_sticky_forms_keep_what_they_packed(name: str) -> None:
    given = packing([7, 6, 5, 4, 3, 2, 1], ["c3", "c3", "c1", "c5", None, "c1", "c0"])
    first = make_packer(name).pack(given)
    assert make_packer(name).pack(owned(given, first)).moves == ()


def test_unlike_bins_are_opened_in_order_past_those_that_are_too_small() -> None:
    given = packing([9, 4], capacity=5.0)
    small, large = given.bins
    assert packed("ffd", replace(given, bins=(small, structs.replace(large, capacity=10.0)))) == {"c0": [4], "c1": [9]}


def test_only_so_much_of_a_bin_is_filled() -> None:
    assert len(packed("ffd", packing([5, 5], fill=0.75))) == 2
    assert make_packer("ffd").pack(packing([5, 5], fill=0.75)).bound == 2
