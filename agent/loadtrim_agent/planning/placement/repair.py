"""Make every member fit with the cheapest moves: what ``trim`` does where something does not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from loadtrim_agent.common.partition import Partition

from .ejection_chain import Offers, Start, chain, reliefs
from .problem import Item
from .result import FULL
from .state import Board

__all__ = ["move_cost", "place", "repair", "settle"]

NEAR = 4
"""Members with the least load that are looked at as receivers."""
NEAR_SWAP = 8
STEPS_MAX = 512
"""Rounds of one repair."""
MARGIN = 0.05
"""Excess pressure that a move must take away where it does not make its member fit."""
EXACT_NODES_MAX = 1500
EXACT_ITEMS_MAX = 12
MOVE_SECONDS = 0.001
"""Of busy time that a move costs whatever it carries, and the shortest handoff that moves are weighed by."""


def move_cost(board: Board, item: Item) -> float:
    """Work that a move holds up: what waits, what arrives during the handoff, and the handoff itself."""
    return item.queue + item.work * max(board.problem.limits.handoff_seconds, MOVE_SECONDS) + MOVE_SECONDS * MARGIN


def place(board: Board, item: Item, reason: str) -> None:
    """Put an item that nobody has where it presses least. Cost: ``O(log n)`` where every member may own it."""
    near = board.receivers(item.partition.topic, None, NEAR)
    if near:
        best = min(near, key=lambda member: (board.pressure_with(member, (item,), ()), board.filled[member], member))
        board.put(item, best, reason)


def repair(board: Board, *, tight: bool = False) -> set[str]:
    """Move until everything fits.

    Returns:
        Members that do not fit whatever is tried.
    """
    stuck: set[str] = set()
    for _ in range(STEPS_MAX):
        over = [(board.pressure(member), member) for member in board.over() if member not in stuck]
        if not over:
            break
        member = max(over)[1]
        changes = _relief(board, member, tight=tight) or _best_move(board, member) or _best_swap(board, member)
        if not changes:
            stuck.add(member)
        for item, target in changes:
            board.put(item, target, f"{board.bins[member].label} is over its limit")
    return stuck


def _relief(board: Board, member: str, *, tight: bool) -> list[tuple[Item, str]]:
    """The cheapest partitions whose going makes the member fit, and where they go; they may push others out."""
    offers = Offers(board, partial(move_cost, board))
    starts: list[Start] = [
        (cost_so_far, {member: ((), out)}, tuple(board.largest_first(out)))
        for cost_so_far, out in reliefs(board, member, (), offers)
    ]
    return chain(board, starts, offers, tight=tight) if starts else []


def _best_move(board: Board, member: str) -> list[tuple[Item, str]]:
    """The move that leaves the least excess, of equal ones the cheapest; empty: none helps."""
    before = board.excess(member)
    best: tuple[float, float, Partition, str] | None = None
    chosen: Item | None = None
    near = board.receivers_of(member, NEAR)
    for item in board.movable(member):
        left = board.excess_with(member, (), (item,))
        for target in near[item.partition.topic]:
            excess = left + board.excess_with(target, (item,), ()) - board.excess(target)
            if excess > 0.0 and excess > before - MARGIN:
                continue
            key = (excess, move_cost(board, item), item.partition, target)
            if best is None or key < best:
                best, chosen = key, item
    return [(chosen, best[3])] if best is not None and chosen is not None else []


def _best_swap(board: Board, member: str) -> list[tuple[Item, str]]:
    """The exchange of two partitions that leaves the least excess; empty: none helps."""
    before = board.excess(member)
    best: tuple[float, float, Partition, Partition] | None = None
    chosen: list[tuple[Item, str]] = []
    near = board.receivers_of(member, NEAR_SWAP)
    others = {target: board.movable(target) for targets in near.values() for target in targets}
    for item in board.movable(member):
        size, cost = board.sizes[item.partition], move_cost(board, item)
        for target in near[item.partition.topic]:
            there = board.excess(target)
            for other in others[target]:
                if board.sizes[other.partition] >= size or not board.may(member, other):
                    continue
                left = board.excess_with(member, (other,), (item,))
                if best is not None and left - there > best[0]:
                    continue
                excess = left + board.excess_with(target, (item,), (other,)) - there
                if excess > 0.0 and excess > before - MARGIN:
                    continue
                key = (excess, cost + move_cost(board, other), item.partition, other.partition)
                if best is None or key < best:
                    best, chosen = key, [(item, target), (other, member)]
    return chosen


def settle(board: Board) -> None:
    """Try all placements of a small group, owners first; put the first that fits onto the board, if any does."""
    items = board.largest_first(item for items in board.items.values() for item in items.values())
    if len(items) > EXACT_ITEMS_MAX or any(not item.movable for item in items):
        return
    found = _search(board, items)
    for item, member in zip(items, found, strict=False):
        if board.owners[item.partition] != member:
            board.put(item, member, "the only way found that all fit")


def _search(board: Board, items: Sequence[Item]) -> list[str]:
    """Depth first with a bounded number of tries; the member of each item, or nothing."""
    trial = Board(board.problem, list(board.bins.values()))
    chosen: list[str] = []
    nodes = 0

    def descend(depth: int) -> bool:
        nonlocal nodes
        if depth == len(items):
            return True
        item = items[depth]
        for member in sorted(trial.bins, key=lambda m: (m != item.owner, trial.sums[m][0], m)):
            if nodes >= EXACT_NODES_MAX:
                return False
            if not trial.may(member, item):
                continue
            nodes += 1
            if trial.pressure_with(member, (item,), ()) <= FULL:
                trial.put(item, member)
                chosen.append(member)
                if descend(depth + 1):
                    return True
                chosen.pop()
                trial.take(item)
        return False

    return chosen if descend(0) else []
