"""The fewest bins there can be, proven, for small instances: what the packers are judged by.

An integer program solved by HiGHS (extra ``experiments``). The agent never imports this; a few dozen partitions take
seconds, a hundred may take for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import highspy

from loadtrim_agent.core.model import LoadtrimError, Partition
from loadtrim_agent.core.plan.packers.bounds import lower_bound
from loadtrim_agent.core.plan.packers.problem import Bin, Problem

__all__ = ["Exact", "NoPlacementError", "NotProvenError", "fewest_bins"]


class NoPlacementError(LoadtrimError, ValueError):
    """No placement fits: an item is larger than every bin that may own it, or all bins together are too small."""


class NotProvenError(LoadtrimError, TimeoutError):
    """The time was over before an optimum was proven. Give it more, or fewer partitions."""


TOLERANCE = 1e-6
"""Share by which a bin may be overfilled. The solver's own: with less it lost bins that are filled to the brim."""


@dataclass(frozen=True, slots=True)
class Exact:
    """A placement onto the fewest bins there can be."""

    opened: int
    owners: Mapping[Partition, str]


def fewest_bins(problem: Problem, seconds: float = 60.0) -> Exact:
    """Minimise how many bins are opened, by ``Item.work`` against capacity times ``fill``.

    Args:
        problem: present owners count for nothing; leaving bins are not used.
        seconds: given to the solver.

    Raises:
        NoPlacementError: none fits.
        NotProvenError: the time was over.
    """
    bins = problem.staying
    items = sorted(problem.items, key=lambda item: (-item.work, item.partition))
    if not items:
        return Exact(0, {})
    capacities = [entry.capacity * problem.fill * (1.0 + TOLERANCE) for entry in bins]
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.silent()
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("time_limit", seconds)
    solver.setOptionValue("mip_rel_gap", 0.0)
    opened = [solver.addBinary() for _ in bins]
    alike = _alike(bins)
    placed = {
        (at, index): solver.addBinary()
        for at, item in enumerate(items)
        for index, entry in enumerate(bins)
        # Alike bins are opened in order, so the k-th item needs none beyond the k-th.
        if entry.may_own(item.partition) and item.work <= capacities[index] and (not alike or index <= at)
    }
    for at, item in enumerate(items):
        somewhere = [placed[at, index] for index in range(len(bins)) if (at, index) in placed]
        if not somewhere:
            raise NoPlacementError(f"{item.partition} ({item.work}) fits no bin that may own it: no optimum to compare")
        solver.addConstr(solver.qsum(somewhere) == 1)
    for index, capacity in enumerate(capacities):
        held = [(at, placed[at, index]) for at in range(len(items)) if (at, index) in placed]
        if held:
            solver.addConstr(
                solver.qsum(items[at].work * variable for at, variable in held) <= capacity * opened[index]
            )
        for _, variable in held:
            solver.addConstr(variable <= opened[index])
    if alike:
        for index in range(len(bins) - 1):
            solver.addConstr(opened[index] >= opened[index + 1])
    solver.addConstr(solver.qsum(opened) >= lower_bound(problem, problem.fill))
    solver.minimize(solver.qsum(opened))
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        raise NoPlacementError("the bins together are too small for the partitions: no optimum to compare")
    if status != highspy.HighsModelStatus.kOptimal:
        raise NotProvenError(f"no optimum was proven within {seconds} s ({len(items)} partitions, {len(bins)} bins)")
    owners = {
        items[at].partition: bins[index].member
        for (at, index), variable in placed.items()
        if solver.val(variable) > 0.5
    }
    return Exact(len(set(owners.values())), dict(sorted(owners.items())))


def _alike(bins: Sequence[Bin]) -> bool:
    return all(entry.capacity == bins[0].capacity and entry.topics == bins[0].topics for entry in bins)
