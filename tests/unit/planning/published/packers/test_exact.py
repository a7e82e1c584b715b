"""The exact packer against trying all placements; no consumer ever imports its solver."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import product
from random import Random

import pytest
from msgspec import structs

from loadtrim.settings import Settings, SettingsError
from loadtrim_agent.common.naming import UnknownNameError
from loadtrim_agent.planning.placement.bin_source import wanted
from loadtrim_agent.planning.placement.problem import Limits, Problem
from loadtrim_agent.planning.published.packers.exact import (
    MissingSolverError,
    NoPlacementError,
    NotProvenError,
    fewest_bins,
)
from loadtrim_agent.planning.registry import SimulatorOnlyError, make_packer
from unit.planning.placement.packing import held, packing


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


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_fewest_of_all_placements(seed: int) -> None:
    random = Random(seed)
    given = packing([random.randint(1, 9) for _ in range(6)], bins=5)
    bins = tuple(structs.replace(b, capacity=random.choice([6.0, 10.0, 14.0])) for b in given.bins)
    unlike = replace(given, bins=bins)
    for one in (given, unlike):
        exact = fewest_bins(one)
        assert exact.opened == tried_out(one)
        assert len(exact.owners) == 6


def test_bins_that_are_filled_to_the_brim_count() -> None:
    """Found by a benchmark: thirds that add up to 100.00000000000001 were kept apart: the optimum was one too many."""
    thirds = [198, 190, 174, 174, 166, 160, 140, 122, 98, 68, 66, 64, 52, 42]
    assert fewest_bins(packing([size / 3 for size in thirds], capacity=100.0)).opened == 6


@pytest.mark.parametrize("large", [1e12, 1e15, 1e300])
def test_bins_and_items_of_very_unlike_sizes(large: float) -> None:
    """The solver refuses numbers from 1e15 on and below 1e-9; as shares of a bin none is."""
    given = packing([6, 6, 6], bins=2)
    small, other = given.bins
    assert fewest_bins(replace(given, bins=(small, structs.replace(other, capacity=large)))).opened == 1
    tiny = packing([6, 6, 6 / large], bins=2)
    assert fewest_bins(tiny).opened == 2
    assert len(fewest_bins(tiny).owners) == 3


def test_only_where_a_member_may_own_it() -> None:
    given = packing([4, 4], bins=2)
    apart = replace(given, bins=(structs.replace(given.bins[0], topics=frozenset({"u"})), given.bins[1]))
    assert set(fewest_bins(apart).owners.values()) == {"c1"}


def test_what_cannot_fit_is_said() -> None:
    with pytest.raises(NoPlacementError, match=r"t-0 \(25\) fits no bin"):
        fewest_bins(packing([25, 1]))
    with pytest.raises(NoPlacementError, match="too small"):
        fewest_bins(packing([9, 9, 9], bins=2))
    assert fewest_bins(packing([])).opened == 0


@pytest.mark.slow
def test_the_agent_never_imports_the_solver() -> None:
    imported = "import sys, loadtrim, loadtrim_agent.runtime.agent, loadtrim_agent.planning.planner"
    script = (
        f"{imported}; print('highspy' in sys.modules, 'loadtrim_agent.planning.placement.incremental' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


# -- the packer


def test_it_opens_fewer_than_decreasing_fits_and_its_bound_is_what_it_opens() -> None:
    """4 3 3 | 4 3 3 fill two bins of 10. Best fit decreasing: 4 4 | 3 3 3 | 3; the L2 bound says two, too."""
    given = packing([4, 4, 3, 3, 3, 3])
    placed = make_packer("exact").pack(given)
    assert sorted(held(given, placed).values()) == [[4, 3, 3], [4, 3, 3]]
    assert (placed.opened, placed.bound, placed.misfits) == (2, 2, ())
    assert make_packer("bfd").pack(given).opened == 3
    assert wanted(make_packer("exact"), given) == 2, "landau24 asks it, too"


def test_its_bound_is_proven_where_the_others_is_loose() -> None:
    """Sizes of 4 in bins of 10: five need three bins, of which their sum says two."""
    assert make_packer("ffd").pack(packing([4] * 5)).bound == 2
    assert make_packer("exact").pack(packing([4] * 5)).bound == 3


def test_bursts_open_no_members_for_it() -> None:
    """Found with `simulate --arrivals burst`: the solver was given a bound that counts the windows, so that a member
    was opened that owned nothing. Beside the plan that bound is right: no fewer keep the objective."""
    even = packing([2, 2, 2])
    burst = replace(even, items=tuple(structs.replace(item, mean=(12.0,) * len(item.mean)) for item in even.items))
    assert fewest_bins(burst).opened == 1
    placed, peer = make_packer("exact").pack(burst), make_packer("bfd").pack(burst)
    assert placed.opened == peer.opened == wanted(make_packer("exact"), burst) == 1
    assert placed.bound == peer.bound == 3


@pytest.mark.parametrize(("factor", "opened", "bound"), [(0.5, 2, 1), (1.0, 2, 2), (2.0, 2, 3)])
def test_its_bound_is_not_above_what_the_expected_load_takes(factor: float, opened: int, bound: int) -> None:
    """The program packs what arrives now, as its peers do; half or twice of it may be expected."""
    limits = Limits(objective_seconds=1.0, load_factor=factor)
    placed = make_packer("exact").pack(replace(packing([5, 5, 4]), limits=limits))
    assert (placed.opened, placed.bound) == (opened, bound)


@pytest.mark.parametrize("given", [packing([25, 1]), packing([9, 9, 9], bins=2)])
def test_what_fits_nowhere_is_placed_as_best_fit_decreasing_does(given: Problem) -> None:
    exact, peer = make_packer("exact").pack(given), make_packer("bfd").pack(given)
    assert (exact.owners, exact.misfits, exact.bound) == (peer.owners, peer.misfits, peer.bound)


def test_at_the_limit_it_is_best_fit_decreasing(monkeypatch: pytest.MonkeyPatch) -> None:
    def over(problem: Problem, seconds: float) -> None:
        assert seconds == 0.5
        raise NotProvenError

    monkeypatch.setattr("loadtrim_agent.planning.published.packers.exact.fewest_bins", over)
    given = packing([4, 4, 3, 3, 3, 3])
    assert make_packer("exact:limit_seconds=0.5").pack(given).owners == make_packer("bfd").pack(given).owners


def test_what_may_not_move_stays_and_what_nobody_may_own_is_left() -> None:
    given = packing([6, 4], ["c1", "c0"])
    fixed = replace(given, items=(given.items[0], structs.replace(given.items[1], movable=False)))
    assert held(fixed, make_packer("exact").pack(fixed)) == {"c0": [6, 4]}
    assert make_packer("exact").pack(replace(given, may_move=False)).moves == ()
    nobody = replace(given, bins=tuple(structs.replace(one, topics=frozenset({"u"})) for one in given.bins))
    assert make_packer("exact").pack(nobody).owners == {}


def test_without_the_extra_it_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(MissingSolverError, match=r"pip install 'loadtrim\[experiments\]'"):
        make_packer("exact")


def test_a_running_group_refuses_it() -> None:
    with pytest.raises(SimulatorOnlyError, match="LOADTRIM_PACKER to another"):
        make_packer("exact", in_group=True)
    with pytest.raises(SettingsError, match="LOADTRIM_PACKER=exact cannot be used.*heartbeats"):
        Settings(packer="exact")
    with pytest.raises(UnknownNameError, match="nearest is 'exact'"):
        make_packer("exakt")
