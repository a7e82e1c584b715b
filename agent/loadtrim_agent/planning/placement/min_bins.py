"""Onto as few bins as can be, keeping owners: what ``trim`` does in a laboratory and where a policy asks it how many.

From the lower bound upward: keep the owners that carry most, place the rest best-fit, repair. What packing from
scratch needs (best-fit decreasing, then filling bin by bin with what leaves least room) is the most it opens; that
packing is taken, with the bins named so that the most work stays where it is, when no repair succeeds before.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import replace

from .bin_source import ROUNDING
from .bounds import lower_bound
from .problem import Bin, Item, Problem
from .repair import place, repair, settle
from .result import FULL
from .state import Board

__all__ = ["repacked", "tightly"]

COUNTS_MAX = 6
"""Numbers of bins, from the bound upward, that are tried with owners kept; then those from scratch decide."""
NODES_MAX = 60_000
"""Items looked at in all when bins are filled one by one with what leaves least room."""

Group = tuple[Bin, list[Item]]


def tightly(problem: Problem, supply: Sequence[Bin]) -> Board:
    """A placement onto as few bins of the supply as were found to do.

    Cost: ``O(p log p)`` and a bounded search where bins are alike and every one may own everything; else ``O(p n)``.
    """
    board = Board(problem, supply)
    if not supply or not problem.items:
        return board
    if not problem.may_move:
        for item in board.largest_first(board.seat(problem.items)):
            place(board, item, "nobody owns it")
        return board
    onto = replace(problem, bins=tuple(supply))
    bound, placeable = lower_bound(onto, 1.0, board.dimensions()), sum(onto.ownable())
    groups = _from_scratch(board, bound)
    carried = _carried(board)
    if any(carried.values()):
        pinned = {item.owner for item in problem.items if not item.movable and _at_home(board, item)}
        fewest = max(bound, len(pinned))
        ranked = sorted(
            range(len(supply)),
            key=lambda i: (supply[i].member not in pinned, -carried[supply[i].member], -supply[i].capacity, i),
        )
        for number in range(fewest, min(len(groups), fewest + COUNTS_MAX) + 1):
            kept = _kept(problem, [supply[index] for index in sorted(ranked[:number])])
            if kept is not None and len(kept.owners) == placeable:
                return kept
    _put(board, groups, "packed onto fewer members")
    return board


def repacked(problem: Problem, supply: Sequence[Bin]) -> Board | None:
    """Everything packed anew onto these bins, as much as can be staying where it is; None where that does not fit."""
    board = Board(problem, supply)
    if not supply or lower_bound(replace(problem, bins=tuple(supply)), 1.0, board.dimensions()) > len(supply):
        return None
    _put(board, _from_scratch(board, len(supply)), "the only way found that all fit")
    return None if board.over() else board


def _put(board: Board, groups: list[Group], reason: str) -> None:
    for entry, items in _named(board, groups):
        for item in items:
            board.put(item, entry.member, reason)
    for item in board.problem.items:
        if item.partition not in board.owners:
            place(board, item, "nothing else is left to take it")


def _carried(board: Board) -> dict[str, float]:
    """Work that each bin of the supply owns now; a little for every partition, so that idle ones count too."""
    carried = dict.fromkeys(board.bins, 0.0)
    for item in board.problem.items:
        if item.owner in carried:
            carried[item.owner] += board.rows[item.partition][0] + 1e-9
    return carried


def _at_home(board: Board, item: Item) -> bool:
    """Is its owner here, and may it have it?"""
    return item.owner in board.bins and board.may(item.owner, item)


def _kept(problem: Problem, supply: Sequence[Bin]) -> Board | None:
    """These bins with what they own, the rest placed on them, repaired; None where that does not fit."""
    board = Board(problem, supply)
    for item in board.largest_first(board.seat(problem.items)):
        _place_tightly(board, item)
    if repair(board, tight=True):
        settle(board)
    return board if all(len(board.items[member]) == 1 for member in board.over()) else None


def _place_tightly(board: Board, item: Item) -> None:
    """Onto the fullest bin that takes it, else where it presses least."""
    size = board.rows[item.partition][0]
    fullest = sorted(
        (
            (entry.capacity - board.sums[member][0], member)
            for member, entry in board.bins.items()
            if board.may(member, item) and entry.capacity * (1.0 + ROUNDING) - board.sums[member][0] >= size
        ),
    )
    for _, member in fullest:
        if board.pressure_with(member, (item,), ()) <= FULL:
            board.put(item, member, "moved to where it fits")
            return
    place(board, item, "moved to where it presses least")


# -- from scratch


def _from_scratch(board: Board, bound: int) -> list[Group]:
    """The fewest groups that were found, each with a bin; what fits nowhere is left out."""
    supply = list(board.bins.values())
    like = (supply[0].capacity, supply[0].topics, False)
    alike = all((entry.capacity, entry.topics, entry.silent) == like for entry in supply)
    topics = supply[0].topics
    free = topics is None or all(item.partition.topic in topics for item in board.problem.items)
    if not (alike and free and board.flat and all(item.movable for item in board.problem.items)):
        return _anywhere(board)
    items = board.largest_first(board.problem.items)
    sizes = [board.rows[item.partition][0] for item in items]
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


def _anywhere(board: Board) -> list[Group]:
    """Best-fit decreasing under the whole arithmetic: unlike bins, curves, topics, items that may not move."""
    trial = Board(board.problem, list(board.bins.values()))
    trial.seat(item for item in board.problem.items if not item.movable)
    ranked = sorted(trial.bins, key=lambda member: -trial.bins[member].capacity)
    opened = [member for member in ranked if trial.items[member]]
    for item in trial.largest_first(item for item in board.problem.items if item.partition not in trial.owners):
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


def _named(board: Board, groups: list[Group]) -> list[Group]:
    """The same groups with bins of the same kind exchanged so that the most work stays where it is, greedily."""
    if any(not item.movable for item in board.problem.items):
        return groups
    overlaps: dict[tuple[int, str], float] = {}
    for index, (entry, items) in enumerate(groups):
        for item in items:
            owner = board.bins.get(item.owner) if item.owner is not None else None
            if owner is not None and (owner.capacity, owner.topics) == (entry.capacity, entry.topics):
                key = (index, owner.member)
                overlaps[key] = overlaps.get(key, 0.0) + board.rows[item.partition][0] + 1e-9
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
                for other in board.bins.values()
                if other.member not in taken and (other.capacity, other.topics) == (entry.capacity, entry.topics)
            )
            named[index] = next(alike)
            taken.add(named[index])
        result.append((board.bins[named[index]], items))
    return result
