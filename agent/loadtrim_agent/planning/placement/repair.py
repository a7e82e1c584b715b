"""Make every member fit with the cheapest moves: what ``trim`` does where something does not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.pauses import may_pause

from .ejection_chain import Offers, Start, ejection_chain, reliefs
from .problem import Item
from .result import FULL
from .state import PlacementState

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


def move_cost(state: PlacementState, item: Item) -> float:
    """Work that a move holds up: what waits, what arrives during the handoff, and the handoff itself."""
    return item.queue + item.work * max(state.problem.limits.handoff_seconds, MOVE_SECONDS) + MOVE_SECONDS * MARGIN


def place(state: PlacementState, item: Item, reason: str) -> None:
    """Put an item that nobody has where it presses least. Cost: ``O(log n)`` where every member may own it."""
    near = state.receivers(item.partition.topic, None, NEAR)
    if near:
        best = min(near, key=lambda member: (state.pressure_with(member, (item,), ()), state.filled[member], member))
        state.put(item, best, reason)


def repair(state: PlacementState, *, min_bins: bool = False) -> set[str]:
    """Move until everything fits.

    Returns:
        Members that do not fit whatever is tried.
    """
    stuck: set[str] = set()
    for _ in range(STEPS_MAX):
        may_pause()
        over = [(state.pressure(member), member) for member in state.over() if member not in stuck]
        if not over:
            break
        member = max(over)[1]
        changes = _relief(state, member, min_bins=min_bins) or _best_move(state, member) or _best_swap(state, member)
        if not changes:
            stuck.add(member)
        for item, target in changes:
            state.put(item, target, f"{state.bins[member].label} is over its limit")
    return stuck


def _relief(state: PlacementState, member: str, *, min_bins: bool) -> list[tuple[Item, str]]:
    """The cheapest partitions whose going makes the member fit, and where they go; they may push others out."""
    offers = Offers(state, partial(move_cost, state))
    starts: list[Start] = [
        (cost_so_far, {member: ((), out)}, tuple(state.largest_first(out)))
        for cost_so_far, out in reliefs(state, member, (), offers)
    ]
    return ejection_chain(state, starts, offers, min_bins=min_bins) if starts else []


def _best_move(state: PlacementState, member: str) -> list[tuple[Item, str]]:
    """The move that leaves the least excess, of equal ones the cheapest; empty: none helps."""
    before = state.excess(member)
    best: tuple[float, float, Partition, str] | None = None
    chosen: Item | None = None
    near = state.receivers_of(member, NEAR)
    for item in state.movable(member):
        may_pause()
        left = state.excess_with(member, (), (item,))
        for target in near[item.partition.topic]:
            excess = left + state.excess_with(target, (item,), ()) - state.excess(target)
            if excess > 0.0 and excess > before - MARGIN:
                continue
            key = (excess, move_cost(state, item), item.partition, target)
            if best is None or key < best:
                best, chosen = key, item
    return [(chosen, best[3])] if best is not None and chosen is not None else []


def _best_swap(state: PlacementState, member: str) -> list[tuple[Item, str]]:
    """The exchange of two partitions that leaves the least excess; empty: none helps."""
    before = state.excess(member)
    best: tuple[float, float, Partition, Partition] | None = None
    chosen: list[tuple[Item, str]] = []
    near = state.receivers_of(member, NEAR_SWAP)
    others = {target: state.movable(target) for targets in near.values() for target in targets}
    for item in state.movable(member):
        may_pause()
        size, cost = state.sizes[item.partition], move_cost(state, item)
        for target in near[item.partition.topic]:
            there = state.excess(target)
            for other in others[target]:
                if state.sizes[other.partition] >= size or not state.may(member, other):
                    continue
                left = state.excess_with(member, (other,), (item,))
                if best is not None and left - there > best[0]:
                    continue
                excess = left + state.excess_with(target, (item,), (other,)) - there
                if excess > 0.0 and excess > before - MARGIN:
                    continue
                key = (excess, cost + move_cost(state, other), item.partition, other.partition)
                if best is None or key < best:
                    best, chosen = key, [(item, target), (other, member)]
    return chosen


def settle(state: PlacementState) -> None:
    """Try all placements of a small group, owners first; put the first that fits onto the board, if any does."""
    items = state.largest_first(item for items in state.items.values() for item in items.values())
    if len(items) > EXACT_ITEMS_MAX or any(not item.movable for item in items):
        return
    found = _search(state, items)
    for item, member in zip(items, found, strict=False):
        if state.owners[item.partition] != member:
            state.put(item, member, "the only way found that all fit")


def _search(state: PlacementState, items: Sequence[Item]) -> list[str]:
    """Depth first with a bounded number of tries; the member of each item, or nothing."""
    trial = PlacementState(state.problem, list(state.bins.values()))
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
