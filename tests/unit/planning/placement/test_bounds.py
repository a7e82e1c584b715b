"""Lower bounds: the textbook's example, and what is easy to work out."""

from __future__ import annotations

import pytest
from msgspec import structs
from msgspec.structs import replace

from loadtrim_agent.planning.placement.bounds import bound_of, fractional_bound, l2_bound, lower_bound
from loadtrim_agent.planning.placement.problem import Limits
from loadtrim_agent.planning.registry import make_packer
from unit.planning.placement.packing import packing
from unit.planning.virtual_group import bins, item, problem


def test_martello_and_toth_s_example() -> None:
    """*Knapsack Problems*, section 8.3: the sum alone says 3. With k = 33: 70 stands alone, 60 too (40 left), and of
    50 and three times 33 (149) at least 109 needs 2 more bins."""
    assert l2_bound([70, 60, 50, 33, 33, 33, 11, 7, 3], 100.0) == 4
    assert sum([70, 60, 50, 33, 33, 33, 11, 7, 3]) == 300


@pytest.mark.parametrize(
    ("sizes", "bound"),
    [([], 0), ([6, 6, 6], 3), ([5, 5, 5], 2), ([10, 10], 2), ([0.1] * 100, 1), ([7, 7, 4, 4], 3), ([3.4] * 3, 2)],
)
def test_what_is_easy_to_see(sizes: list[float], bound: int) -> None:
    assert l2_bound(sizes, 10.0) == bound


def test_unlike_bins_the_largest_first() -> None:
    assert fractional_bound([4, 4, 4], [5, 10, 5]) == 2
    assert fractional_bound([6] * 4, [5, 10, 5]) == 4, "more than all hold: one more than there are"
    assert fractional_bound([], [1.0]) == 0


def test_an_item_larger_than_every_bin_stands_alone() -> None:
    assert bound_of([25, 25, 4, 4], [10.0]) == 3
    assert lower_bound(packing([25.0, 3.0])) == 2


def test_nothing_to_place_and_no_load() -> None:
    assert lower_bound(packing([])) == 0
    assert lower_bound(packing([1.0], bins=0)) == 0
    assert lower_bound(packing([0.0, 0.0])) == 1


@pytest.mark.parametrize("name", ["trim", "ffd", "sticky", "closer24", "iccbdc22_as_run"])
def test_what_no_member_may_own_counts_for_nothing(name: str) -> None:
    """Three that would need a member each, of a topic that nobody subscribes; beside one that fits, and alone."""
    foreign = [item(number, None, 0.9, topic="u", rate=90.0, cost=0.01) for number in range(3)]
    members = tuple(structs.replace(entry, topics=frozenset({"orders"})) for entry in bins("a", "b", "c", "d"))
    placed = make_packer(name).pack(problem([item(9, None, 0.1, rate=10.0, cost=0.01), *foreign], members))
    assert (placed.opened, placed.bound) == (1, 1)
    placed = make_packer(name).pack(problem(foreign, members))
    assert (placed.opened, placed.bound) == (0, 0)
    silent = tuple(structs.replace(entry, topics=None, silent=True) for entry in members)
    assert lower_bound(problem(foreign, silent)) == 0, "nor may they be given anything"
    kept = [structs.replace(one, owner=member) for one, member in zip(foreign, "abc", strict=True)]
    assert lower_bound(problem(kept, silent)) == 3


def test_windows_bound_too_and_variance_only_as_far_as_it_adds_up() -> None:
    """0.35 comes at once, 0.5 s are there to do it: one a member, though the rate is low."""
    items = [item(number, None, 0.05, burst=0.35) for number in range(3)]
    members = bins("a", "b", "c", "d")
    assert lower_bound(problem(items, members)) == 3
    varied = [item(number, None, 0.05, burst=0.2, stddev=(0.2,) * 7) for number in range(3)]
    together = Limits(objective_seconds=0.5, correlation=1.0, z=1.0)
    assert lower_bound(problem(varied, members, limits=together)) == 3
    assert lower_bound(problem(varied, members, limits=replace(together, correlation=0.0))) == 2
