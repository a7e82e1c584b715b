"""The fewest bins there can be, proven, for small instances: an integer program that HiGHS solves.

The packer ``exact`` is what others are judged by. The mean work alone counts: neither windows nor what is expected. Nor
do owners, except of partitions that may not move. It needs the extra ``experiments``, and only making the packer
imports the solver.

A few dozen partitions take milliseconds to seconds, a hundred may take for ever. Where ``limit_seconds`` are over
before an optimum was proven, or where not everything fits, the partitions are packed by best fit decreasing (``bfd``),
and the bound is the one that every packer tells. So at the limit, and nowhere else, a placement depends on the machine.
A running group refuses this packer: its leader could not answer its heartbeats meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from msgspec import Meta

from loadtrim_agent.common.errors import LoadtrimError
from loadtrim_agent.common.partition import Partition

from ...parameters import MOST, Parameters
from ...placement.bin_source import BinSource, best, opening
from ...placement.bounds import lower_bound
from ...placement.problem import Bin, Item, Problem
from ...values import Placement
from .any_fit import decreasing

__all__ = ["Exact", "MissingSolverError", "NoPlacementError", "NotProvenError", "Optimum", "fewest_bins"]


class MissingSolverError(LoadtrimError, ValueError):
    """The extra with the solver is not installed. The shell stops the start with its text."""


class NoPlacementError(LoadtrimError, ValueError):
    """No placement fits: an item is larger than every bin that may own it, or all bins together are too small."""


class NotProvenError(LoadtrimError, TimeoutError):
    """The time was over before an optimum was proven. Give it more, or fewer partitions."""


TOLERANCE = 1e-6
"""Share by which a bin may be overfilled. The solver's own: with less it lost bins that are filled to the brim."""
BITS = 7
"""Every bin is put to the solver as one of 64 to 128. What the solver may be off by (1e-6) is far less than the
tolerance of such a bin, and sizes may lie further apart than the numbers that it takes, from 1e-9 to 1e15."""
NOTHING = 1e-9
"""Of such a bin: what is less counts as nothing."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """A placement onto the fewest bins there can be."""

    opened: int
    owners: Mapping[Partition, str]


class ExactParameters(Parameters, frozen=True, kw_only=True):
    """Ours."""

    limit_seconds: Annotated[float, Meta(gt=0, le=MOST, description="the solver has so long for each placement")] = 10.0


class Exact:
    """The packer ``exact``."""

    name = "exact"
    kind = ExactParameters

    def __init__(self, given: ExactParameters | None = None) -> None:
        """
        Raises:
            MissingSolverError: the extra ``experiments`` is not installed.
        """
        _highspy()
        self._limit_seconds = (given or ExactParameters()).limit_seconds

    def pack(self, problem: Problem) -> Placement:
        """See :class:`...placement.problem.Packer`. Cost: exponential at worst, ``limit_seconds`` at most, twice
        with victims."""
        proven: list[int] = []

        def fill(source: BinSource, items: list[Item]) -> None:
            try:
                optimum = fewest_bins(problem.onto(source.bins), self._limit_seconds)
            except (NoPlacementError, NotProvenError):
                for item in decreasing(items):
                    source.place(item, best)
                return
            proven.append(optimum.opened)
            for item in items:
                index = source.index_of(optimum.owners.get(item.partition))
                if index is not None:
                    if not source.held[index]:
                        source.start(index)
                    source.put(index, item)

        placed = opening(problem, fill, "packed anew by exact")
        free = problem.may_move and all(item.movable for item in problem.items)
        # With all bins and nothing that has to stay where it is, the first answer is a bound on mean work alone, unless
        # less is expected than there is now. The windows may ask for more.
        proves = proven and free and problem.limits.load_factor >= 1.0
        return replace(placed, bound=max(placed.bound, proven[0])) if proves else placed


def fewest_bins(problem: Problem, seconds: float = 60.0) -> Optimum:
    """Minimise how many bins are opened, by ``Item.work`` against capacity times ``fill``.

    Args:
        problem: owners count for nothing except of what may not move; leaving bins are not used.
        seconds: given to the solver.

    Raises:
        MissingSolverError: the extra ``experiments`` is not installed.
        NoPlacementError: none fits.
        NotProvenError: the time was over.
    """
    highspy = _highspy()
    bins = problem.staying
    items = decreasing(problem.items)
    if not items:
        return Optimum(0, {})
    solver: Any = highspy.Highs()
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
    _judge(highspy, solver.getModelStatus(), f"{seconds} s ({len(items)} partitions, {len(bins)} bins)")
    owners = {
        items[at].partition: bins[index].member
        for (at, index), variable in placed.items()
        if solver.val(variable) > 0.5
    }
    return Optimum(len(set(owners.values())), dict(sorted(owners.items())))


def _scaled(work: float, capacity: float) -> float:
    """What fits a bin of this capacity, were that 64 to 128: by a power of two, so that no digit is lost."""
    scaled = math.ldexp(work, BITS - math.frexp(capacity)[1])
    return scaled if scaled >= NOTHING else 0.0


def _judge(highspy: Any, status: object, within: str) -> None:
    if status == highspy.HighsModelStatus.kInfeasible:
        raise NoPlacementError("the bins together are too small for the partitions: no optimum to compare")
    if status != highspy.HighsModelStatus.kOptimal:
        raise NotProvenError(f"no optimum was proven within {within}")


def _alike(bins: Sequence[Bin]) -> bool:
    first = (bins[0].capacity, bins[0].topics, False) if bins else None
    return all((entry.capacity, entry.topics, entry.silent) == first for entry in bins)


def _home(problem: Problem, item: Item) -> str | None:
    """Where it has to stay; None: it may go anywhere."""
    if item.movable and problem.may_move:
        return None
    owner = next((entry for entry in problem.staying if entry.member == item.owner), None)
    return owner.member if owner is not None and owner.may_have(item) else None


def _may_go(problem: Problem, item: Item, entry: Bin) -> bool:
    home = _home(problem, item)
    return entry.may_have(item) if home is None else entry.member == home


def _highspy() -> Any:
    try:
        import highspy
    except ImportError:
        raise MissingSolverError(
            "the packer 'exact' needs the solver HiGHS, which is not installed, so nothing can be packed by it; "
            "pip install 'loadtrim[experiments]', or choose another packer"
        ) from None
    return highspy
