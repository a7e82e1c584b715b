"""Onto as few bins as can be, keeping owners: what ``trim`` does in a laboratory and where a policy asks it how many.

From the lower bound upward: keep the owners that carry most, place the rest best-fit, repair. What packing from
scratch needs (best-fit decreasing, then filling bin by bin with what leaves least room) is the most it opens; that
packing is taken, with the bins named so that the most work stays where it is, when no repair succeeds before.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from msgspec import structs

from .bin_source import ROUNDING
from .bounds import lower_bound
from .problem import Bin, Item, Problem
from .repair import place, repair, settle
from .result import FULL
from .state import PlacementState

__all__ = ["pack_min_bins", "repacked"]

COUNTS_MAX = 6
"""Numbers of bins, from the bound upward, that are tried with owners kept; then those from scratch decide."""
NODES_MAX = 60_000
"""Items looked at in all when bins are filled one by one with what leaves least room."""

Group = tuple[Bin, list[Item]]


def pack_min_bins(problem: Problem, supply: Sequence[Bin]) -> PlacementState:
    """A placement onto as few bins of the supply as were found to do.

    Cost: ``O(p log p)`` and a bounded search where bins are alike and every one may own everything; else ``O(p n)``.
    """
    state = PlacementState(problem, supply)
    if not supply or not problem.items:
        return state
    if not problem.may_move:
        for item in state.largest_first(state.seat(problem.items)):
            place(state, item, "nobody owns it")
        return state
    onto = structs.replace(problem, bins=tuple(supply))
    bound, placeable = lower_bound(onto, 1.0, state.dimensions()), sum(onto.ownable())
    groups = _from_scratch(state, bound)
    carried = _carried(state)
    if any(carried.values()):
        pinned = {item.owner for item in problem.items if not item.movable and _at_home(state, item)}
        fewest = max(bound, len(pinned))
        ranked = sorted(
            range(len(supply)),
            key=lambda i: (supply[i].member not in pinned, -carried[supply[i].member], -supply[i].capacity, i),
        )
        for number in range(fewest, min(len(groups), fewest + COUNTS_MAX) + 1):
            kept = _kept(problem, [supply[index] for index in sorted(ranked[:number])])
            if kept is not None and len(kept.owners) == placeable:
                return kept
    _put(state, groups, "packed onto fewer members")
    return state


def repacked(problem: Problem, supply: Sequence[Bin]) -> PlacementState | None:
    """Everything packed anew onto these bins, as much as can be staying where it is; None where that does not fit."""
    state = PlacementState(problem, supply)
    if not supply or lower_bound(structs.replace(problem, bins=tuple(supply)), 1.0, state.dimensions()) > len(supply):
        return None
    _put(state, _from_scratch(state, len(supply)), "the only way found that all fit")
    return None if state.over() else state


def _put(state: PlacementState, groups: list[Group], reason: str) -> None:
    for entry, items in _named(state, groups):
        for item in items:
            state.put(item, entry.member, reason)
    for item in state.problem.items:
        if item.partition not in state.owners:
            place(state, item, "nothing else is left to take it")


def _carried(state: PlacementState) -> dict[str, float]:
    """Work that each bin of the supply owns now; a little for every partition, so that idle ones count too."""
    carried = dict.fromkeys(state.bins, 0.0)
    for item in state.problem.items:
        if item.owner in carried:
            carried[item.owner] += state.rows[item.partition][0] + 1e-9
    return carried


def _at_home(state: PlacementState, item: Item) -> bool:
    """Is its owner here, and may it have it?"""
    return item.owner in state.bins and state.may(item.owner, item)


def _kept(problem: Problem, supply: Sequence[Bin]) -> PlacementState | None:
    """These bins with what they own, the rest placed on them, repaired; None where that does not fit."""
    state = PlacementState(problem, supply)
    for item in state.largest_first(state.seat(problem.items)):
        _place_min_bins(state, item)
    if repair(state, min_bins=True):
        settle(state)
    return state if all(len(state.items[member]) == 1 for member in state.over()) else None


def _place_min_bins(state: PlacementState, item: Item) -> None:
    """Onto the fullest bin that takes it, else where it presses least."""
    size = state.rows[item.partition][0]
    fullest = sorted(
        (
            (entry.capacity - state.sums[member][0], member)
            for member, entry in state.bins.items()
            if state.may(member, item) and entry.capacity * (1.0 + ROUNDING) - state.sums[member][0] >= size
        ),
    )
    for _, member in fullest:
        if state.pressure_with(member, (item,), ()) <= FULL:
            state.put(item, member, "moved to where it fits")
            return
    place(state, item, "moved to where it presses least")


# -- from scratch


def _from_scratch(state: PlacementState, bound: int) -> list[Group]:
    """The fewest groups that were found, each with a bin; what fits nowhere is left out."""
    supply = list(state.bins.values())
    like = (supply[0].capacity, supply[0].topics, False)
    alike = all((entry.capacity, entry.topics, entry.silent) == like for entry in supply)
    topics = supply[0].topics
    free = topics is None or all(item.partition.topic in topics for item in state.problem.items)
    if not (alike and free and state.flat and all(item.movable for item in state.problem.items)):
        return _anywhere(state)
    items = state.largest_first(state.problem.items)
    sizes = [state.rows[item.partition][0] for item in items]
    capacity = supply[0].capacity * (1.0 + ROUNDING)
    found = best_fit(sizes, capacity)
    for other in (first_fit, bin_by_bin):
        if len(found) > bound:
            found = min(found, other(sizes, capacity), key=len)
    return [(entry, [items[index] for index in group]) for entry, group in zip(supply, found, strict=False)]


def best_fit(descending: Sequence[float], capacity: float) -> list[list[int]]:
    """Best-fit decreasing: indices per bin. An empty bin takes anything. Cost: ``O(p log p)``."""
    rooms: list[tuple[float, int]] = []
    groups: list[list[int]] = []
    for index, size in enumerate(descending):
        at = bisect_left(rooms, (size, -1))
        if at < len(rooms):
            room, group = rooms.pop(at)
        else:
            room, group = capacity, len(groups)
            groups.append([])
        groups[group].append(index)
        insort(rooms, (room - size, group))
    return groups


def first_fit(descending: Sequence[float], capacity: float) -> list[list[int]]:
    """First-fit decreasing: indices per bin. Cost: ``O(p n)``."""
    rooms: list[float] = []
    groups: list[list[int]] = []
    for index, size in enumerate(descending):
        for at, room in enumerate(rooms):
            if size <= room:
                rooms[at] = room - size
                groups[at].append(index)
                break
        else:
            rooms.append(capacity - size)
            groups.append([index])
    return groups


def bin_by_bin(descending: Sequence[float], capacity: float) -> list[list[int]]:
    """Fill one bin after the other: the largest item left, and what leaves least room beside it.

    Source: J. N. D. Gupta, J. C. Ho, *A new heuristic algorithm for the one-dimensional bin-packing problem*, 1999,
    with the largest item fixed (K. Fleszar, K. S. Hindi, 2002) and a bounded search.
    """
    left = list(range(len(descending)))
    groups: list[list[int]] = []
    budget = max(20, int(NODES_MAX * capacity / max(sum(descending), capacity)))
    while left:
        largest = left.pop(0)
        rest = [-descending[index] for index in left]
        chosen = _closest(rest, capacity - descending[largest], budget)
        groups.append([largest, *(left[at] for at in chosen)])
        for at in reversed(chosen):
            del left[at]
    return groups


def _closest(negative: Sequence[float], room: float, nodes: int) -> list[int]:
    """Positions, ascending, of items that leave as little of the room as was found. Items are negative, ascending."""
    best: list[int] = []
    least = room
    chosen: list[int] = []

    def descend(start: int, room: float) -> None:
        nonlocal nodes, best, least
        at = bisect_left(negative, -room, start)
        while at < len(negative) and nodes > 0 and least > 0.0:
            nodes -= 1
            size = -negative[at]
            chosen.append(at)
            if room - size < least:
                least, best = room - size, list(chosen)
            descend(at + 1, room - size)
            chosen.pop()
            # Another item of the same size leads nowhere new.
            at = bisect_left(negative, -size + 1e-15 * size, at + 1)

    if room > 0.0:
        descend(0, room)
    return best


def _anywhere(state: PlacementState) -> list[Group]:
    """Best-fit decreasing under the whole arithmetic: unlike bins, curves, topics, items that may not move."""
    trial = PlacementState(state.problem, list(state.bins.values()))
    trial.seat(item for item in state.problem.items if not item.movable)
    ranked = sorted(trial.bins, key=lambda member: -trial.bins[member].capacity)
    opened = [member for member in ranked if trial.items[member]]
    for item in trial.largest_first(item for item in state.problem.items if item.partition not in trial.owners):
        size = trial.rows[item.partition][0]
        room = sorted(
            (left, member)
            for member in opened
            if (left := trial.bins[member].capacity * (1.0 + ROUNDING) - trial.sums[member][0]) >= size
            and trial.may(member, item)
        )
        target = next((m for _, m in room if trial.pressure_with(m, (item,), ()) <= FULL), None)
        if target is None:
            closed = [member for member in ranked if not trial.items[member] and trial.may(member, item)]
            target = next((m for m in closed if trial.pressure_with(m, (item,), ()) <= FULL), None)
            target = closed[0] if target is None and closed else target
            if target is None:
                continue
            opened.append(target)
        trial.put(item, target)
    return [(trial.bins[member], list(items.values())) for member, items in trial.items.items() if items]


def _named(state: PlacementState, groups: list[Group]) -> list[Group]:
    """The same groups with bins of the same kind exchanged so that the most work stays where it is, greedily."""
    if any(not item.movable for item in state.problem.items):
        return groups
    overlaps: dict[tuple[int, str], float] = {}
    for index, (entry, items) in enumerate(groups):
        for item in items:
            owner = state.bins.get(item.owner) if item.owner is not None else None
            if owner is not None and (owner.capacity, owner.topics) == (entry.capacity, entry.topics):
                key = (index, owner.member)
                overlaps[key] = overlaps.get(key, 0.0) + state.rows[item.partition][0] + 1e-9
    named: dict[int, str] = {}
    taken: set[str] = set()
    for (index, member), _ in sorted(overlaps.items(), key=lambda entry: (-entry[1], entry[0])):
        if index not in named and member not in taken:
            named[index] = member
            taken.add(member)
    result = []
    for index, (entry, items) in enumerate(groups):
        if index not in named:
            alike = (
                other.member
                for other in state.bins.values()
                if other.member not in taken and (other.capacity, other.topics) == (entry.capacity, entry.topics)
            )
            named[index] = next(alike)
            taken.add(named[index])
        result.append((state.bins[named[index]], items))
    return result
