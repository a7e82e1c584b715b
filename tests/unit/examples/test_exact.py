"""The exact solver against trying all placements; the agent never imports it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from loadtrim_agent.core.plan.packers.problem import Problem
from papers.exact import NoPlacementError, fewest_bins
from unit.core.plan.packers.packing import packing


def tried_out(given: Problem) -> int:
    """The fewest bins of all placements that fit."""
    best = len(given.bins) + 1
    for placed in product(range(len(given.bins)), repeat=len(given.items)):
        loads = [0.0] * len(given.bins)
        for item, index in zip(given.items, placed, strict=True):
            loads[index] += item.work if given.bins[index].may_own(item.partition) else float("inf")
        if all(load <= entry.capacity + 1e-9 for load, entry in zip(loads, given.bins, strict=True)):
            best = min(best, len(set(placed)))
    return best


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_fewest_of_all_placements(seed: int) -> None:
    random = Random(seed)
    given = packing([random.randint(1, 9) for _ in range(6)], bins=5)
    unlike = replace(given, bins=tuple(replace(b, capacity=random.choice([6.0, 10.0, 14.0])) for b in given.bins))
    for one in (given, unlike):
        exact = fewest_bins(one)
        assert exact.opened == tried_out(one)
        assert len(exact.owners) == 6


def test_bins_that_are_filled_to_the_brim_count() -> None:
    """Found by a benchmark: thirds that add up to 100.00000000000001 were kept apart: the optimum was one too many."""
    thirds = [198, 190, 174, 174, 166, 160, 140, 122, 98, 68, 66, 64, 52, 42]
    assert fewest_bins(packing([size / 3 for size in thirds], capacity=100.0)).opened == 6


def test_only_where_a_member_may_own_it() -> None:
    given = packing([4, 4], bins=2)
    apart = replace(given, bins=(replace(given.bins[0], topics=frozenset({"u"})), given.bins[1]))
    assert set(fewest_bins(apart).owners.values()) == {"c1"}


def test_what_cannot_fit_is_said() -> None:
    with pytest.raises(NoPlacementError, match=r"t-0 \(25\) fits no bin"):
        fewest_bins(packing([25, 1]))
    with pytest.raises(NoPlacementError, match="too small"):
        fewest_bins(packing([9, 9, 9], bins=2))
    assert fewest_bins(packing([])).opened == 0


def test_the_agent_never_imports_the_solver() -> None:
    imported = "import sys, loadtrim, loadtrim_agent.agent, loadtrim_agent.core.plan.planner"
    script = f"{imported}; print('highspy' in sys.modules, 'loadtrim_agent.core.plan.packers.trim' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
