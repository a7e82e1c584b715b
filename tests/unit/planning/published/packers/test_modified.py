"""Landau'24's modified any-fit packers (section IV-B, algorithm 1): cases worked out by hand, bins of 10."""

from __future__ import annotations

from collections import Counter

import pytest

from loadtrim_agent.planning.published.packers.modified import MODIFIED
from loadtrim_agent.planning.registry import make_packer
from unit.planning.placement.packing import packed, packing


@pytest.mark.parametrize("name", MODIFIED)
def test_what_overflows_is_placed_in_the_end(name: str) -> None:
    """c0 has 6 and 5, c1 has 4 and 1. c0 (11) first: nothing is open; 6 stays, 5 does not fit. Then c1: 1 goes to c0 (4
    left), 4 does not (3 left) and opens c1. In the end 5: only c1 has room."""
    given = packing([6, 5, 4, 1], ["c0", "c0", "c1", "c1"])
    assert packed(name, given) == {"c0": [6, 1], "c1": [5, 4]}
    moves = make_packer(name).pack(given).moves
    assert [(move.partition.partition, move.source, move.target) for move in moves] == [
        (1, "c0", "c1"),
        (3, "c1", "c0"),
    ]


def test_the_fit_rule_says_where_small_ones_go() -> None:
    """6 | 5 stay; c2 has 2 and 1. Worst: 1 to c1 (5 left), then both have 4 left, so 2 to c0. Best: both to c0."""
    given = packing([6, 5, 2, 1], ["c0", "c1", "c2", "c2"])
    assert packed("mwf", given) == {"c0": [6, 2], "c1": [5, 1]}
    assert packed("mbf", given) == {"c0": [6, 2, 1], "c1": [5]}


def test_the_sort_key_says_who_is_first() -> None:
    """c0 has 4 and 4, c1 has 5. By what they carry c0 is first and all stay; by their largest c1 is, and takes a 4."""
    given = packing([4, 4, 5], ["c0", "c0", "c1"])
    assert packed("mwf", given) == packed("mbf", given) == {"c0": [4, 4], "c1": [5]}
    assert packed("mwfp", given) == packed("mbfp", given) == {"c0": [4], "c1": [5, 4]}


def test_the_first_that_does_not_fit_and_all_smaller_ones_are_left_over() -> None:
    """c0 has 6, 5 and 1: 6 stays, 5 does not fit, so 1 is not tried any more. In the end 5 opens the lowest, c1 (its
    own is open), and 1 goes where most room is, c1 (5 left, c0 4)."""
    assert packed("mwf", packing([6, 5, 1], ["c0"] * 3)) == {"c0": [6], "c1": [5, 1]}
    assert packed("mbf", packing([6, 5, 1], ["c0"] * 3)) == {"c0": [6, 1], "c1": [5]}


@pytest.mark.parametrize("name", MODIFIED)
def test_from_nothing_they_are_their_rule_s_decreasing_form(name: str) -> None:
    sizes = [4.0, 8.0, 1.0, 4.0, 2.0, 1.0, 6.0]
    assert packed(name, packing(sizes)) == packed("wfd" if name.startswith("mw") else "bfd", packing(sizes))


def test_a_partition_larger_than_a_bin_keeps_its_own() -> None:
    placed = packed("mwf", packing([25, 3], ["c1", "c1"]))
    assert placed == {"c0": [3], "c1": [25]}
    assert Counter(len(sizes) for sizes in placed.values()) == {1: 2}
