"""The fewest bins there can be, proven, for small instances: an integer program that HiGHS solves.

Packers are judged by it. The mean work alone counts: neither windows nor what is expected. Nor do owners, except of
partitions that may not move. A few dozen partitions take milliseconds to seconds, a hundred may take for ever. So this
is no packer: with a limit of the clock's time, a placement would depend on the machine. It needs the extra
``experiments``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import highspy

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.placement.bounds import lower_bound
from loadtrim_agent.planning.placement.problem import Bin, Item, Problem
from loadtrim_agent.planning.published.packers.any_fit import decreasing

__all__ = ["NoPlacementError", "NotProvenError", "Optimum", "fewest_bins"]


class NoPlacementError(ValueError):
    """No placement fits: an item is larger than every bin that may own it, or all bins together are too small."""


class NotProvenError(TimeoutError):
    """The time was over before an optimum was proven. Give it more, or fewer partitions."""


TOLERANCE = 1e-6
"""Share by which a bin may be overfilled. The solver's own: with less it lost bins that are filled to the brim."""
BITS = 7
"""Every bin is put to the solver as one of 64 to 128. What the solver may be off by (1e-6) is far less than the
tolerance of such a bin. Sizes may lie further apart than the numbers that it takes, from 1e-9 to 1e15."""
NOTHING = 1e-9
"""Of such a bin: what is less counts as nothing."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """A placement onto the fewest bins there can be."""

    opened: int
    owners: Mapping[Partition, str]


def fewest_bins(problem: Problem, seconds: float = 60.0) -> Optimum:
    """Minimise how many bins are opened, by ``Item.work`` against capacity times ``fill``.

    Args:
        problem: owners count for nothing except of what may not move; leaving bins are not used.
        seconds: given to the solver.

    Raises:
        NoPlacementError: none fits.
        NotProvenError: the time was over.
    """
    bins = problem.staying
    items = decreasing(problem.items)
    if not items:
        return Optimum(0, {})
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.silent()
    for option, value in (("threads", 1), ("time_limit", seconds), ("mip_rel_gap", 0.0)):
        solver.setOptionValue(option, value)
    opened = [solver.addBinary() for _ in bins]
    alike = _alike(bins) and all(_home(problem, item) is None for item in items)
    capacities = [entry.capacity * problem.fill * (1.0 + TOLERANCE) for entry in bins]
    placed = {
        (at, index): solver.addBinary()
        for at, item in enumerate(items)
        for index, entry in enumerate(bins)
        # Alike bins are opened in order, so the k-th item needs none beyond the k-th.
        if _may_go(problem, item, entry) and item.work <= capacities[index] and (not alike or index <= at)
    }
    for at, item in enumerate(items):
        somewhere = [placed[at, index] for index in range(len(bins)) if (at, index) in placed]
        if not somewhere:
            raise NoPlacementError(f"{item.partition} ({item.work}) fits no bin that may own it: no optimum to compare")
        solver.addConstr(solver.qsum(somewhere) == 1)
    for index, capacity in enumerate(capacities):
        held = [(at, placed[at, index]) for at in range(len(items)) if (at, index) in placed]
        if held:
            filled = solver.qsum(_scaled(items[at].work, capacity) * variable for at, variable in held)
            solver.addConstr(filled <= _scaled(capacity, capacity) * opened[index])
        for _, variable in held:
            solver.addConstr(variable <= opened[index])
    for index in range(len(bins) - 1 if alike else 0):
        solver.addConstr(opened[index] >= opened[index + 1])
    # Of this very program: the bound that is told beside plans counts windows and what is expected, too.
    least = lower_bound(problem, problem.fill * (1.0 + TOLERANCE), [[item.work for item in problem.items]])
    solver.addConstr(solver.qsum(opened) >= least)
    solver.minimize(solver.qsum(opened))
    _judge(solver.getModelStatus(), f"{seconds} s ({len(items)} partitions, {len(bins)} bins)")
    owners = {
        items[at].partition: bins[index].member
        for (at, index), variable in placed.items()
        if solver.val(variable) > 0.5
    }
    return Optimum(len(set(owners.values())), dict(sorted(owners.items())))


def _scaled(work: float, capacity: float) -> float:
    """Return a load as it is in a bin of 64 to 128: scaled by a power of two, so that no digit is lost."""
    scaled = math.ldexp(work, BITS - math.frexp(capacity)[1])
    return scaled if scaled >= NOTHING else 0.0


def _judge(status: object, within: str) -> None:
    if status == highspy.HighsModelStatus.kInfeasible:
        raise NoPlacementError("the bins together are too small for the partitions: no optimum to compare")
    if status != highspy.HighsModelStatus.kOptimal:
        raise NotProvenError(f"no optimum was proven within {within}")


def _alike(bins: Sequence[Bin]) -> bool:
    first = (bins[0].capacity, bins[0].topics, False) if bins else None
    return all((entry.capacity, entry.topics, entry.silent) == first for entry in bins)


def _home(problem: Problem, item: Item) -> str | None:
    """Return the member on which an item has to stay; None: it may go anywhere."""
    if item.movable and problem.may_move:
        return None
    owner = next((entry for entry in problem.staying if entry.member == item.owner), None)
    return owner.member if owner is not None and owner.may_have(item) else None


def _may_go(problem: Problem, item: Item, entry: Bin) -> bool:
    home = _home(problem, item)
    return entry.may_have(item) if home is None else entry.member == home
