"""Load and trim: keep every owner that can be kept, repair what does not fit, spread what is uneven.

1. Partitions without an owner that stays go where they press least.
2. *Repair*: while a member's own curve does not fit, the cheapest partitions (up to three) whose going makes it fit,
   else the move that takes away most of the excess, else a swap. In small groups all placements are tried before
   giving up.
3. *Spread*: by mean work, while one move makes the fuller of two members at least 15 % less full, or they are 30 %
   apart. Where new owners restore for longer than half of the objective, only members that own nothing are given
   something. Such a move makes records late. Parameter ``spread`` 0 leaves this out: the fewest moves there can be, for
   those who count them. Then, where repairing is not enough, up to 200 partitions are packed anew.

Every step makes the plan strictly better by a margin, so that noise in the measurements moves nothing. With
``Problem.fewest`` it opens as few bins as it can (:mod:`.min_bins`) and does not spread.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Annotated

from msgspec import Meta

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.pauses import in_turns, may_pause

from ..parameters import Parameters
from ..settling import moves_are_dear
from ..values import Placement
from .bounds import lower_bound
from .min_bins import pack_min_bins, repacked
from .problem import Item, Problem
from .repair import place, repair, settle
from .result import FULL, placement
from .state import PlacementState
from .victims import going

__all__ = ["Trim"]

STEPS_MAX = 512
"""Moves that spreading may make in one plan."""
NEAR = 4
"""Members that can give nothing away before spreading ends."""
MARGIN = 0.05
"""Share of the excess that other victims must take away to be preferred."""
SPREAD_MARGIN = 0.15
"""Share by which the fuller of two members must get less full for a move to be worth it."""
GAP_MARGIN = 0.3
"""Or: share by which a member is less full than the one that gives, so that it does not overtake it."""
IDLE_SHARE = 0.1
"""Share of the group's capacity that counts as load spread evenly over all partitions: idle ones are spread too."""
VICTIM_TRIES = 3
ANEW_ITEMS_MAX = 200
"""Up to so many partitions everything is packed anew where repairing does not make all fit (``spread`` 0)."""


class TrimParameters(Parameters, frozen=True, kw_only=True):
    """As :mod:`.incremental` describes it."""

    spread: Annotated[bool, Meta(description="uneven loads are evened out (0: the fewest moves there can be)")] = True


class Trim:
    """The packer ``trim``."""

    name = "trim"
    kind = TrimParameters

    def __init__(self, given: TrimParameters | None = None) -> None:
        self._spreads = (given or TrimParameters()).spread
        self._last: tuple[Problem, PlacementState] | None = None
        """The last placement, after what was asked. The policy of a decision asks where everything would go, and then
        it is to go there: that is worked out once."""

    def pack(self, problem: Problem) -> Placement:
        """See :class:`.problem.Packer`. Cost: about 6 us per partition and 60 us per move."""
        if problem.fewest:
            return _fewest(problem)
        victims = going(problem)
        best = self._onto_staying(problem, victims)
        spared: set[str] = set()
        for _ in range(VICTIM_TRIES):
            if not best.misfits or not victims:
                break
            # The cheapest to empty may be the one machine that the others cannot do without.
            spared |= {entry.unit for entry in problem.bins if entry.member in victims}
            others = going(problem, sorted(spared))
            if others == victims:
                break
            victims = others
            other = self._onto_staying(problem, victims)
            if _excess(other) < _excess(best) * (1.0 - MARGIN):
                best = other
        return best

    def _onto_staying(self, problem: Problem, victims: tuple[str, ...]) -> Placement:
        staying = tuple(entry for entry in problem.staying if entry.member not in victims)
        asked = Problem(
            items=problem.items,
            bins=staying,
            limits=problem.limits,
            may_move=problem.may_move,
            drawn_up=problem.drawn_up,
        )
        if self._last is None or self._last[0] != asked:
            self._last = asked, _pack(asked, spreads=self._spreads)
        return _result(problem, self._last[1], victims)


def _pack(problem: Problem, *, spreads: bool) -> PlacementState:
    """Return everything on the bins, none of which is leaving. Only these, items, limits and ``may_move`` count."""
    state = PlacementState(problem, problem.bins)
    orphans = state.seat(problem.items)
    for item in state.largest_first(orphans):
        place(state, item, "its owner goes" if item.owner is not None else "nobody owns it")
    if problem.may_move:
        if repair(state, min_bins=not spreads):
            settle(state)
            if not spreads and state.over() and len(problem.items) <= ANEW_ITEMS_MAX:
                state = repacked(problem, list(state.bins.values())) or state
        if spreads:
            _spread(state)
    return state


def _fewest(problem: Problem) -> Placement:
    """Onto as few bins as will do; where fewer may stay than that, onto those that stay."""
    state = pack_min_bins(problem, problem.staying)
    owning = set(state.owners.values())
    victims = going(problem, sorted({entry.unit for entry in problem.bins if entry.member in owning}))
    if owning.intersection(victims):
        state = pack_min_bins(problem, [entry for entry in problem.staying if entry.member not in victims])
    return _result(problem, state, victims)


def _excess(placement: Placement) -> float:
    return sum(max(0.0, pressure - 1.0) for pressure in placement.pressures.values())


def _spread(state: PlacementState) -> None:
    """Even out the mean work, idle partitions included.

    In the steady state: were the handoffs of this plan counted, the next one, which has none of them, would find room
    for further moves.
    """
    state.forget_handoffs()
    total = sum(entry.capacity for entry in state.bins.values())
    floor = IDLE_SHARE * total / max(1, len(state.problem.items))
    full = {
        member: sum([item.work + floor for item in state.items[member].values()]) / entry.capacity
        for member, entry in in_turns(state.bins.items())
    }
    limits, skipped = state.problem.limits, set[str]()
    dear = moves_are_dear(limits.restoring_seconds, limits.objective_seconds)
    takers = {member for member, items in state.items.items() if not (dear and items)}
    for _ in range(STEPS_MAX):
        may_pause()
        fuller = max((m for m in state.bins if m not in skipped), key=lambda m: (full[m], m), default=None)
        if fuller is None:
            return
        move = _spread_move(state, fuller, takers, full, floor)
        if move is None:
            skipped.add(fuller)
            if len(skipped) > NEAR:
                return
            continue
        skipped.clear()  # what could give nothing away before may be able to now
        item, target = move
        weight = item.work + floor
        full[fuller] -= weight / state.bins[fuller].capacity
        full[target] += weight / state.bins[target].capacity
        state.put(item, target, f"spreads the load of {state.bins[fuller].label}")


def _spread_move(
    state: PlacementState, member: str, takers: Set[str], full: dict[str, float], floor: float
) -> tuple[Item, str] | None:
    """The move off a member that makes the fuller of the two least full, if by enough; of equal ones the cheapest."""
    best: tuple[float, float, Partition, str] | None = None
    chosen: Item | None = None
    bound = full[member] * (1.0 - SPREAD_MARGIN)
    emptiest: dict[str, str | None] = {}
    for topic in sorted({partition.topic for partition in state.items[member]}):
        may = (m for m, entry in state.bins.items() if m != member and m in takers and entry.takes(topic))
        emptiest[topic] = min(may, key=lambda m: (full[m], m), default=None)
    for item in state.movable(member):
        target = emptiest[item.partition.topic]
        if target is None:
            continue
        weight = item.work + floor
        left = full[member] - weight / state.bins[member].capacity
        there = full[target] + weight / state.bins[target].capacity
        key = (max(left, there), item.queue, item.partition, target)
        # Of many small partitions none alone makes 15 %: then the gap decides, or a newcomer would get nothing.
        wide = there <= left and full[target] <= full[member] * (1.0 - GAP_MARGIN)
        if not (key[0] <= bound or wide) or (best is not None and key > best):
            continue
        if state.pressure_with(target, (item,), ()) <= max(FULL, state.pressure(member)):
            best, chosen = key, item
    return (chosen, best[3]) if best is not None and chosen is not None else None


def _result(problem: Problem, state: PlacementState, victims: tuple[str, ...]) -> Placement:
    state.forget_handoffs()
    bound = lower_bound(problem, 1.0, state.dimensions())
    empty = {entry.member: 0.0 for entry in problem.staying if entry.member not in victims}
    return placement(problem, state.owners, victims, "", state.reasons, empty | state.pressures(), bound)
