"""From owners to a placement: moves, pressures, how many bins were opened, and how far from the fewest that can be."""

from __future__ import annotations

from collections.abc import Mapping

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.pauses import may_pause

from ..values import Placement, PlannedMove
from .bounds import lower_bound
from .lateness import Load
from .problem import Item, Problem

__all__ = ["FULL", "placement"]

FULL = 1.0 + 1e-9
"""Pressure up to which a member fits; the rest is rounding of sums that items were taken off again."""


def placement(
    problem: Problem,
    owners: Mapping[Partition, str],
    victims: tuple[str, ...] = (),
    reason: str = "",
    reasons: Mapping[Partition, str] | None = None,
    pressures: Mapping[str, float] | None = None,
    bound: int | None = None,
) -> Placement:
    """A packer's result.

    Args:
        problem: as it was given.
        owners: of every partition that was placed.
        victims: members that are to go.
        reason: of every move that has none in ``reasons``.
        reasons: why a partition moves.
        pressures: of every member that stays; None: worked out here.
        bound: fewest bins that could do; None: worked out for bins that may be filled.
    """
    may_pause()
    why = reasons or {}
    owned: dict[str, list[Item]] = {}
    moves: list[PlannedMove] = []
    for item in problem.items:
        partition = item.partition
        if (owner := owners.get(partition)) is None:
            continue
        owned.setdefault(owner, []).append(item)
        if owner != item.owner:
            moves.append(PlannedMove(partition, item.owner, owner, why.get(partition, reason)))
    may_pause()
    if pressures is None:
        pressures = _pressures(problem, owned, frozenset(victims))
    return Placement(
        owners=dict(sorted(owners.items())),
        moves=tuple(sorted(moves, key=lambda move: move.partition)),
        victims=victims,
        misfits=tuple(member for member, pressure in sorted(pressures.items()) if pressure > FULL),
        pressures=pressures,
        opened=len(owned),
        bound=lower_bound(problem) if bound is None else bound,
    )


def _pressures(problem: Problem, owned: Mapping[str, list[Item]], victims: frozenset[str]) -> dict[str, float]:
    """Needed capacity over capacity of every member that stays."""
    limits = problem.columns.asks(problem.limits).binding()
    staying = [entry for entry in problem.bins if not entry.leaving and entry.member not in victims]
    pressures = dict.fromkeys((entry.member for entry in staying), 0.0)
    flat = limits.flat(problem.items)
    for entry in staying:
        items = owned.get(entry.member)
        if items and flat:
            pressures[entry.member] = sum(item.work for item in items) * limits.load_factor / entry.capacity
        elif items:
            pressures[entry.member] = Load(limits, items).pressure(entry.capacity)
    return pressures
