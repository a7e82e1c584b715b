"""Bins that are opened one after the other, and how packers that open their own number of them live in a group.

In a laboratory the supply is as long as it needs to be and a packer opens what it needs. In a group the policy says
how many stay. :func:`opening` joins the two: the packer packs onto all members; those it leaves empty are the first to
go; where fewer may stay than it opened, it packs again onto those that stay. When nothing is left to open, what fits
nowhere goes to the bin with the most room, so that every partition has an owner, and the member is named as a misfit.
:func:`wanted` asks the other way round: how many bins would this packer open?
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence

from msgspec import structs

from loadtrim_agent.common.partition import Partition

from ..values import Placement
from .bounds import lower_bound
from .problem import Bin, Item, Packer, Problem
from .result import placement
from .victims import going

__all__ = ["BinSource", "Fit", "best", "first", "opening", "wanted", "worst"]

ROUNDING = 1e-9
"""Share of a bin by which sums may be off through rounding."""


class BinSource:
    """The supply while it is being filled by one number per item (``Item.work``). Mutable."""

    def __init__(self, supply: Sequence[Bin], fill: float = 1.0) -> None:
        self.bins = list(supply)
        self.room = [entry.capacity * fill * (1.0 + ROUNDING) for entry in supply]
        """Capacity that is left, per bin of the supply."""
        self.held: list[list[Item]] = [[] for _ in supply]
        self.open: list[int] = []
        """Open bins, lowest in the supply first."""
        self._closed = list(range(len(supply)))
        """The others, likewise."""
        self.last: int | None = None
        """The bin that was opened last."""
        self.free = all(entry.topics is None and not entry.silent for entry in supply)
        """Every bin may own everything."""
        self._index = {entry.member: index for index, entry in enumerate(supply)}
        self._ranked: list[tuple[float, int]] | None = None
        """Open bins by room, once somebody asked."""

    def index_of(self, member: str | None) -> int | None:
        """Where in the supply a member is, if it is."""
        return None if member is None else self._index.get(member)

    def may(self, index: int, item: Item) -> bool:
        """May the bin own the item?"""
        return self.free or self.bins[index].may_have(item)

    def fits(self, index: int, item: Item) -> bool:
        """An empty bin takes any item, even a larger one."""
        return (item.work <= self.room[index] or not self.held[index]) and self.may(index, item)

    def put(self, index: int, item: Item) -> None:
        """Place an item on an open bin."""
        self.held[index].append(item)
        if self._ranked is not None:
            del self._ranked[bisect_left(self._ranked, (self.room[index], index))]
            insort(self._ranked, (self.room[index] - item.work, index))
        self.room[index] -= item.work

    def start(self, index: int) -> None:
        """Open a bin."""
        insort(self.open, index)
        del self._closed[bisect_left(self._closed, index)]
        self.last = index
        if self._ranked is not None:
            insort(self._ranked, (self.room[index], index))

    def by_room(self) -> Sequence[tuple[float, int]]:
        """(room, bin) of the open ones, the fullest first; of equals the lowest first. Kept up to date from now on."""
        if self._ranked is None:
            self._ranked = sorted((self.room[index], index) for index in self.open)
        return self._ranked

    def open_for(self, item: Item, preferred: int | None = None) -> int | None:
        """Open a bin for an item that fits none: the preferred one if it is closed, else the lowest that holds it.

        Returns:
            The bin; of closed ones that are all too small the one with the largest capacity; None: none is left.
        """
        if preferred is not None and not self.held[preferred] and self.may(preferred, item):
            self.start(preferred)
            return preferred
        best: int | None = None
        for index in self._closed:
            if not self.may(index, item):
                continue
            if item.work <= self.room[index]:
                best = index
                break
            if best is None or self.room[index] > self.room[best]:
                best = index
        if best is not None:
            self.start(best)
        return best

    def force(self, item: Item) -> None:
        """Place an item that fits nowhere where the most room is; where nobody may own it, nowhere."""
        able = [index for index in self.open if self.may(index, item)]
        if able:
            self.put(max(able, key=lambda index: (self.room[index], -index)), item)

    def place(self, item: Item, fit: Fit, preferred: int | None = None) -> None:
        """By the rule onto an open bin, else onto a new one, else by force."""
        index = fit(self, item)
        if index is None:
            index = self.open_for(item, preferred)
        if index is None:
            self.force(item)
        else:
            self.put(index, item)

    def owners(self) -> dict[Partition, str]:
        """Who has what."""
        return {
            item.partition: entry.member for entry, items in zip(self.bins, self.held, strict=True) for item in items
        }


Fit = Callable[[BinSource, Item], int | None]
"""The open bin that an item goes to; None: none takes it. Open bins hold something; ties go to the lowest."""


def first(source: BinSource, item: Item) -> int | None:
    """The lowest that takes it."""
    room, size = source.room, item.work
    for index in source.open:
        if size <= room[index] and (source.free or source.may(index, item)):
            return index
    return None


def best(source: BinSource, item: Item) -> int | None:
    """The one that it fills most. Cost: ``O(log n)`` where every bin may own everything."""
    ranked = source.by_room()
    for at in range(bisect_left(ranked, (item.work, -1)), len(ranked)):
        index = ranked[at][1]
        if source.free or source.may(index, item):
            return index
    return None


def worst(source: BinSource, item: Item) -> int | None:
    """The one with the most room. Cost: ``O(log n)`` where every bin may own everything."""
    ranked = source.by_room()
    end = len(ranked)
    while end and ranked[end - 1][0] >= item.work:
        begin = bisect_left(ranked, (ranked[end - 1][0], -1), 0, end)  # of equals the lowest comes first
        for _, index in ranked[begin:end]:
            if source.free or source.may(index, item):
                return index
        end = begin
    return None


def opening(problem: Problem, fill_source: Callable[[BinSource, list[Item]], None], reason: str) -> Placement:
    """Run a packer that opens bins as it needs them, within the number that may stay.

    Args:
        problem: what to pack.
        fill_source: places the given items onto the shelf; what may not move is on it already.
        reason: of the moves.
    """
    source = _filled(problem, problem.staying, fill_source)
    units = sorted({source.bins[index].unit for index in source.open if source.held[index]})
    victims = going(problem, units)
    if victims:
        gone = frozenset(victims)
        if any(source.held[index] and source.bins[index].member in gone for index in source.open):
            source = _filled(problem, [entry for entry in problem.staying if entry.member not in gone], fill_source)
    return placement(problem, source.owners(), victims, reason, bound=lower_bound(problem, problem.fill))


def _filled(problem: Problem, supply: list[Bin], fill_source: Callable[[BinSource, list[Item]], None]) -> BinSource:
    source = BinSource(supply, problem.fill)
    free: list[Item] = []
    for item in problem.items:
        home = None if item.movable and problem.may_move else source.index_of(item.owner)
        if home is None or not source.may(home, item):
            free.append(item)
            continue
        if not source.held[home]:
            source.start(home)
        source.put(home, item)
    fill_source(source, free)
    return source


def wanted(packer: Packer, problem: Problem) -> int:
    """Instances that hold what the packer would open, were it free to choose.

    Args:
        packer: any; ours opens the fewest it can.
        problem: ``bins`` is the whole supply: the members there, in the order in which they are to be kept, and then
            those that could be added.

    Returns:
        At least 1 where there is a bin.
    """
    placed = packer.pack(structs.replace(problem, replicas=None, fewest=True, may_move=True))
    owning = set(placed.owners.values())
    units = {entry.unit for entry in problem.bins if entry.unit and entry.member in owning}
    return max(len(units), 1 if problem.bins else 0)
