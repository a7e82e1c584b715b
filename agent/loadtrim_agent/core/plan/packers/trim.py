"""Load and trim: keep every owner that can be kept, repair what does not fit, spread what is uneven.

1. Partitions without an owner that stays go where they press least.
2. *Repair*: while a member's own curve does not fit, the cheapest single move that makes it fit, else the one that
   takes away most of the excess, else a swap. In small groups all placements are tried before giving up.
3. *Spread*: by mean work, while one move makes the fuller of two members at least 15 % less full, or they are 30 %
   apart.

Every step makes the plan strictly better by a margin, so that noise in the measurements moves nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from ...model import Partition
from ..values import Placement, PlannedMove
from .problem import Bin, Item, Load, Problem, size_of
from .victims import going

__all__ = ["Trim"]

NEAR = 4
"""Members with the least load that are looked at as receivers."""
NEAR_SWAP = 8
STEPS_MAX = 512
"""Moves that one plan may make on its own account."""
FULL = 1.0 + 1e-9
"""Pressure up to which a member fits; the rest is rounding of sums that items were taken off again."""
MARGIN = 0.05
"""Excess pressure that a move must take away where it does not make its member fit."""
SPREAD_MARGIN = 0.15
"""Share by which the fuller of two members must get less full for a move to be worth it."""
GAP_MARGIN = 0.3
"""Or: share by which a member is less full than the one that gives, so that it does not overtake it."""
IDLE_SHARE = 0.1
"""Share of the group's capacity that counts as load spread evenly over all partitions: idle ones are spread too."""
VICTIM_TRIES = 3
EXACT_NODES_MAX = 1500
EXACT_ITEMS_MAX = 12


class _Board:
    """A placement in the making."""

    def __init__(self, problem: Problem, receivers: Sequence[Bin]) -> None:
        self.problem = problem
        self.bins = {entry.member: entry for entry in receivers}
        self.limits = problem.limits.for_items(problem.items)
        self.loads = {entry.member: Load(self.limits) for entry in receivers}
        self.items: dict[str, dict[Partition, Item]] = {entry.member: {} for entry in receivers}
        self.sizes = {item.partition: size_of(item, problem.limits) for item in problem.items}
        self.filled = dict.fromkeys(self.bins, 0.0)
        self.owners: dict[Partition, str] = {}
        self.reasons: dict[Partition, str] = {}
        self._pressures: dict[str, float] = {}

    def put(self, item: Item, member: str, reason: str = "") -> None:
        """Give an item to a member, taking it from the one that has it on this board."""
        old = self.owners.get(item.partition)
        if old is not None:
            self._change(item, old, -1)
            del self.items[old][item.partition]
        self._change(item, member, 1)
        self.items[member][item.partition] = item
        self.owners[item.partition] = member
        if reason:
            self.reasons[item.partition] = reason

    def _change(self, item: Item, member: str, sign: int) -> None:
        self.loads[member].add(item, sign, self.burden(item, member))
        self.filled[member] += sign * self.sizes[item.partition] / self.bins[member].capacity
        self._pressures.pop(member, None)

    def burden(self, item: Item, member: str) -> float:
        """Work that piles up during the handoff of an item that moves there."""
        return 0.0 if item.owner == member else item.work * self.limits.handoff_seconds

    def pressure(self, member: str) -> float:
        known = self._pressures.get(member)
        if known is None:
            known = self.loads[member].pressure(self.bins[member].capacity)
            self._pressures[member] = known
        return known

    def pressure_with(self, member: str, add: Sequence[Item], take: Sequence[Item]) -> float:
        """Pressure of a member after a change that is not made."""
        load = self.loads[member]
        for sign in (1, -1):
            for item in add:
                load.add(item, sign, self.burden(item, member))
            for item in take:
                load.add(item, -sign, self.burden(item, member))
            if sign == 1:
                result = load.pressure(self.bins[member].capacity)
        return result

    def receivers(self, topic: str, here: str | None, count: int) -> list[str]:
        """Members that may own partitions of a topic, ``here`` left out, the least filled first."""
        may = (
            (self.filled[member], len(self.items[member]), member)
            for member, entry in self.bins.items()
            if member != here and (entry.topics is None or topic in entry.topics)
        )
        return [member for _, _, member in heapq.nsmallest(count, may)]

    def receivers_of(self, member: str, count: int) -> dict[str, list[str]]:
        """The same for every topic of which a member has something."""
        topics = sorted({partition.topic for partition in self.items[member]})
        return {topic: self.receivers(topic, member, count) for topic in topics}


class Trim:
    """The packer ``trim``."""

    name = "trim"
    parameters: frozenset[str] = frozenset()

    def pack(self, problem: Problem) -> Placement:
        """See :class:`.problem.Packer`. Cost: about 60 us per move plus 10 us per partition."""
        victims = going(problem)
        best = self._pack(problem, victims)
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
            other = self._pack(problem, victims)
            if _excess(other) < _excess(best) * (1.0 - MARGIN):
                best = other
        return best

    def _pack(self, problem: Problem, victims: tuple[str, ...]) -> Placement:
        receivers = [b for b in problem.bins if not b.leaving and b.member not in victims]
        if not receivers:
            return Placement(owners={}, moves=(), victims=victims)
        board = _Board(problem, receivers)
        orphans = []
        for item in problem.items:
            if item.owner in board.bins and board.bins[item.owner].may_own(item.partition):
                board.put(item, item.owner)
            else:
                orphans.append(item)
        for item in sorted(orphans, key=lambda item: (-board.sizes[item.partition], item.partition)):
            _place(board, item, "its owner goes" if item.owner is not None else "nobody owns it")
        if problem.may_move:
            if _repair(board):
                _exact(board)
            _spread(board)
        return _result(board, victims)


def _excess(placement: Placement) -> float:
    return sum(max(0.0, pressure - 1.0) for pressure in placement.pressures.values())


def _place(board: _Board, item: Item, reason: str) -> None:
    near = board.receivers(item.partition.topic, None, NEAR)
    if near:
        best = min(near, key=lambda member: (board.pressure_with(member, (item,), ()), board.filled[member], member))
        board.put(item, best, reason)


def _movable(board: _Board, member: str) -> Iterator[Item]:
    return (item for _, item in sorted(board.items[member].items()) if item.movable)


def _repair(board: _Board) -> set[str]:
    """Members that do not fit whatever single move or swap is made."""
    stuck: set[str] = set()
    for _ in range(STEPS_MAX):
        over = [(board.pressure(m), m) for m in board.bins if m not in stuck and board.pressure(m) > FULL]
        if not over:
            break
        member = max(over)[1]
        changes = _best_move(board, member) or _best_swap(board, member)
        if not changes:
            stuck.add(member)
        for item, target in changes:
            board.put(item, target, f"{board.bins[member].unit} is over its limit")
    return stuck


def _best_move(board: _Board, member: str) -> list[tuple[Item, str]]:
    """The cheapest move that makes the member fit, else the one that leaves the least excess; empty: none helps."""
    before = board.pressure(member) - 1.0
    best: tuple[float, float, Partition, str] | None = None
    chosen: Item | None = None
    near = board.receivers_of(member, NEAR)
    for item in _movable(board, member):
        left = max(0.0, board.pressure_with(member, (), (item,)) - 1.0)
        for target in near[item.partition.topic]:
            there = max(0.0, board.pressure(target) - 1.0)
            excess = left + max(0.0, board.pressure_with(target, (item,), ()) - 1.0) - there
            if excess > 0.0 and excess > before - MARGIN:
                continue
            cost = item.queue + item.work * board.problem.limits.handoff_seconds
            key = (excess, cost, item.partition, target)
            if best is None or key < best:
                best, chosen = key, item
    return [(chosen, best[3])] if best is not None and chosen is not None else []


def _best_swap(board: _Board, member: str) -> list[tuple[Item, str]]:
    """The exchange of two partitions that leaves the least excess; empty: none helps."""
    before = board.pressure(member) - 1.0
    best: tuple[float, float, Partition, Partition] | None = None
    chosen: list[tuple[Item, str]] = []
    near = board.receivers_of(member, NEAR_SWAP)
    for item in _movable(board, member):
        for target in near[item.partition.topic]:
            there = max(0.0, board.pressure(target) - 1.0)
            for other in _movable(board, target):
                if board.sizes[other.partition] >= board.sizes[item.partition]:
                    continue
                if not board.bins[member].may_own(other.partition):
                    continue
                left = max(0.0, board.pressure_with(member, (other,), (item,)) - 1.0)
                excess = left + max(0.0, board.pressure_with(target, (item,), (other,)) - 1.0) - there
                if excess > 0.0 and excess > before - MARGIN:
                    continue
                key = (excess, item.queue + other.queue, item.partition, other.partition)
                if best is None or key < best:
                    best, chosen = key, [(item, target), (other, member)]
    return chosen


def _exact(board: _Board) -> None:
    """Try all placements of a small group, owners first; put the first that fits onto the board, if any does."""
    items = sorted(
        (item for items in board.items.values() for item in items.values()),
        key=lambda item: (-board.sizes[item.partition], item.partition),
    )
    if len(items) > EXACT_ITEMS_MAX or any(not item.movable for item in items):
        return
    found = _search(board, items)
    for item, member in zip(items, found, strict=False):
        if board.owners[item.partition] != member:
            board.put(item, member, "the only way found that all fit")


def _search(board: _Board, items: Sequence[Item]) -> list[str]:
    """Depth first with a bounded number of tries; the member of each item, or nothing."""
    loads = {member: Load(board.limits) for member in board.bins}
    chosen: list[str] = []
    nodes = 0

    def descend(depth: int) -> bool:
        nonlocal nodes
        if depth == len(items):
            return True
        item = items[depth]
        for member in sorted(board.bins, key=lambda m: (m != item.owner, loads[m].work, m)):
            if nodes >= EXACT_NODES_MAX:
                return False
            if not board.bins[member].may_own(item.partition):
                continue
            nodes += 1
            burden = board.burden(item, member)
            loads[member].add(item, 1, burden)
            if loads[member].pressure(board.bins[member].capacity) <= FULL:
                chosen.append(member)
                if descend(depth + 1):
                    return True
                chosen.pop()
            loads[member].add(item, -1, burden)
        return False

    return chosen if descend(0) else []


def _spread(board: _Board) -> None:
    """Even out the mean work, idle partitions included."""
    total = sum(entry.capacity for entry in board.bins.values())
    floor = IDLE_SHARE * total / max(1, len(board.problem.items))
    full = {
        member: sum(item.work + floor for item in board.items[member].values()) / entry.capacity
        for member, entry in board.bins.items()
    }
    skipped: set[str] = set()
    for _ in range(STEPS_MAX):
        fuller = max((m for m in board.bins if m not in skipped), key=lambda m: (full[m], m), default=None)
        if fuller is None:
            return
        move = _spread_move(board, fuller, full, floor)
        if move is None:
            skipped.add(fuller)
            if len(skipped) > NEAR:
                return
            continue
        skipped.clear()  # what could give nothing away before may be able to now
        item, target = move
        weight = item.work + floor
        full[fuller] -= weight / board.bins[fuller].capacity
        full[target] += weight / board.bins[target].capacity
        board.put(item, target, f"spreads the load of {board.bins[fuller].unit}")


def _spread_move(board: _Board, member: str, full: dict[str, float], floor: float) -> tuple[Item, str] | None:
    """The move off a member that makes the fuller of the two least full, if by enough; of equal ones the cheapest."""
    best: tuple[float, float, Partition, str] | None = None
    chosen: Item | None = None
    bound = full[member] * (1.0 - SPREAD_MARGIN)
    emptiest: dict[str, str | None] = {}
    for topic in sorted({partition.topic for partition in board.items[member]}):
        may = (m for m, entry in board.bins.items() if m != member and (entry.topics is None or topic in entry.topics))
        emptiest[topic] = min(may, key=lambda m: (full[m], m), default=None)
    for item in _movable(board, member):
        target = emptiest[item.partition.topic]
        if target is None:
            continue
        weight = item.work + floor
        left = full[member] - weight / board.bins[member].capacity
        there = full[target] + weight / board.bins[target].capacity
        key = (max(left, there), item.queue, item.partition, target)
        # Of many small partitions none alone makes 15 %: then the gap decides, or a newcomer would get nothing.
        wide = there <= left and full[target] <= full[member] * (1.0 - GAP_MARGIN)
        if not (key[0] <= bound or wide) or (best is not None and key > best):
            continue
        if board.pressure_with(target, (item,), ()) <= max(1.0, board.pressure(member)):
            best, chosen = key, item
    return (chosen, best[3]) if best is not None and chosen is not None else None


def _result(board: _Board, victims: tuple[str, ...]) -> Placement:
    owners = dict(sorted(board.owners.items()))
    moves = tuple(
        PlannedMove(item.partition, item.owner, owners[item.partition], board.reasons.get(item.partition, ""))
        for item in board.problem.items
        if item.partition in owners and owners[item.partition] != item.owner
    )
    pressures = {member: board.pressure(member) for member in board.bins}
    return Placement(
        owners=owners,
        moves=moves,
        victims=victims,
        misfits=tuple(member for member, pressure in sorted(pressures.items()) if pressure > FULL),
        pressures=pressures,
    )
