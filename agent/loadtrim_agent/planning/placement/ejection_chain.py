"""The cheapest chain of moves that gives homeless partitions a place: one may push others out, which go on from there.

Uniform-cost search over what is in hand: the first state with empty hands is the cheapest of all that were looked at.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from loadtrim_agent.common.pauses import may_pause

from .problem import Item
from .result import FULL
from .state import PlacementState

__all__ = ["Offers", "Start", "ejection_chain", "reliefs"]

TRIED_MAX = 1500
"""Changes that one search looks at before giving up."""
TRIED_MAX_PLAN = 4000
"""After so many in one plan partitions only go where they fit without pushing others out."""
DEPTH_MAX = 5
"""Items that one chain may move."""
NEAR = 8
"""Members with the most room that are looked at for each item."""
TOGETHER = 8
"""Of so many of a member's cheapest items pairs and threes are tried, too."""

Cost = Callable[[Item], float]
Moves = dict[str, tuple[tuple[Item, ...], tuple[Item, ...]]]
"""Member -> what comes and what goes."""
Start = tuple[float, Moves, tuple[Item, ...]]
"""Cost so far, moves so far, items in hand."""


class Offers:
    """What each member may give away. For one search, in which the board stays as it is: each member is sorted once."""

    def __init__(self, state: PlacementState, cost: Cost) -> None:
        """``cost``: of moving an item away from where it is."""
        self._board = state
        self._cost = cost
        self._of: dict[str, tuple[list[tuple[float, Item]], list[Item]]] = {}

    def of(self, member: str) -> tuple[list[tuple[float, Item]], list[Item]]:
        """Its items with their costs, the cheapest first; and its items, the largest first."""
        found = self._of.get(member)
        if found is None:
            here = self._board.movable(member)
            costs = [(self._cost(item), item) for item in here]
            costs.sort(key=lambda entry: (entry[0], entry[1].partition))
            found = self._of[member] = costs, self._board.largest_first(here)
        return found


def reliefs(
    state: PlacementState, member: str, come: Sequence[Item], offers: Offers, gone: Sequence[Item] = ()
) -> list[tuple[float, tuple[Item, ...]]]:
    """What a member could give away so that it fits with what comes: the cheapest single item, and pairs and threes
    that are cheaper still. With costs, cheapest first.
    """
    may_pause()
    costs, largest = offers.of(member)
    if gone:
        costs = [entry for entry in costs if entry[1] not in gone]
        largest = [item for item in largest if item not in gone]
    found: list[tuple[float, tuple[Item, ...]]] = []

    def fits(*items: Item) -> bool:
        return state.pressure_with(member, come, (*gone, *items)) <= FULL

    if not costs or not fits(*largest[:3]):
        return found  # nor would any other three be enough
    least = float("inf")
    for one, item in costs:
        if fits(item):
            least = min(least, one)
            found.append((one, (item,)))
            if len(found) == 3:
                break
    costs = costs[:TOGETHER]
    for i, (one, a) in enumerate(costs):
        for j in range(i + 1, len(costs)):
            two = one + costs[j][0]
            if two >= least:
                break
            b = costs[j][1]
            if fits(a, b):
                found.append((two, (a, b)))
                continue
            for three, c in costs[j + 1 :]:
                if two + three >= least:
                    break
                if fits(a, b, c):
                    found.append((two + three, (a, b, c)))
                    break
    return sorted(found, key=lambda entry: (entry[0], [item.partition for item in entry[1]]))[:6]


def ejection_chain(
    state: PlacementState, starts: Sequence[Start], offers: Offers, *, min_bins: bool
) -> list[tuple[Item, str]]:
    """Places for everything in hand.

    Args:
        state: as it stands; nothing is changed.
        starts: (cost so far, moves so far, items in hand) of each way to begin.
        offers: of this board.
        min_bins: among members that take an item the fullest is preferred, else the emptiest.

    Returns:
        (item, member) for all that move; empty: nothing was found.
    """
    heap: list[tuple[float, int, int, Moves, tuple[Item, ...]]] = []
    pushed = 0
    for so_far, moves, hand in starts:
        heapq.heappush(heap, (so_far, len(hand), pushed, moves, hand))
        pushed += 1
    begun = state.tried
    while heap and state.tried - begun < TRIED_MAX:
        may_pause()
        so_far, _, _, moves, hand = heapq.heappop(heap)
        if not hand:
            return [(item, member) for member, (come, _) in sorted(moves.items()) for item in come]
        item, rest = hand[0], hand[1:]
        for added, target, out in _targets(state, item, moves, offers, min_bins=min_bins):
            come, gone = moves.get(target, ((), ()))
            number = sum(len(entry[0]) for entry in moves.values()) + 1 + len(rest) + len(out)
            if out and number > DEPTH_MAX + len(starts[0][2]):
                continue
            following = {**moves, target: ((*come, item), (*gone, *out))}
            left = tuple(state.largest_first((*rest, *out)))
            heapq.heappush(heap, (so_far + added, len(left), pushed, following, left))
            pushed += 1
    return []


def _targets(
    state: PlacementState, item: Item, moves: Moves, offers: Offers, *, min_bins: bool
) -> list[tuple[float, str, tuple[Item, ...]]]:
    """Where an item could go: what that costs besides, and what has to leave for it."""
    away = state.owners.get(item.partition)
    near = []
    for member in state.receivers(item.partition.topic, away, NEAR):
        come, gone = moves.get(member, ((), ()))
        if item in gone:
            continue
        pressure = state.pressure_with(member, (*come, item), gone)
        near.append((pressure, member, come, gone))
    fitting = [entry for entry in near if entry[0] <= FULL]
    if fitting:
        chosen = (max if min_bins else min)(fitting, key=lambda entry: (entry[0], entry[1]))
        return [(0.0, chosen[1], ())]
    result: list[tuple[float, str, tuple[Item, ...]]] = []
    if state.tried > TRIED_MAX_PLAN:
        return result
    size = state.sizes[item.partition]
    for _, member, come, gone in near:
        for added, out in reliefs(state, member, (*come, item), offers, gone):
            # Only smaller ones are pushed out, so that every chain ends.
            if all(state.sizes[other.partition] < size for other in out):
                result.append((added, member, out))
    return sorted(result, key=lambda entry: (entry[0], entry[1]))[:6]
