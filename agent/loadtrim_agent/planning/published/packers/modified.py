"""Landau'24's modified any-fit packers: keep the large partitions, let the small ones fill what is open.

``mwf`` and ``mbf``: worst and best fit, consumers sorted by what they carry; ``mwfp`` and ``mbfp``: by their largest
partition.

1. Consumers in descending order. Of each, from its smallest partition upward: by the fit rule, each onto a bin that is
   open already. Stop at the first that fits nowhere.
2. What remains, from the largest downward, onto the consumer's own bin, up to the first that does not fit.
3. In the end what is left over, largest first, by the fit rule; a bin that has to be opened is the partition's owner's
   if that is not open yet, else the lowest.

Source: Landau'24, section IV-B, algorithm 1 and table II. The authors' controller does the same, by the same fit rule
in steps 1 and 3 (docs/decisions/published-policies.md).
"""

from __future__ import annotations

from ...parameters import Parameters
from ...placement.bin_source import BinSource, Fit, best, opening, worst
from ...placement.problem import Item, Problem
from ...values import Placement
from .any_fit import decreasing

__all__ = ["MODIFIED", "ModifiedAnyFit"]

MODIFIED: dict[str, tuple[Fit, bool]] = {
    "mwf": (worst, False),
    "mbf": (best, False),
    "mwfp": (worst, True),
    "mbfp": (best, True),
}
"""Name -> fit rule, by largest partition."""


class ModifiedAnyFit:
    """One of the four. Cost: ``O(p n)``."""

    kind = Parameters

    def __init__(self, name: str) -> None:
        """``name``: one of :data:`MODIFIED`."""
        self.name = name
        self._fit, self._by_largest = MODIFIED[name]

    def pack(self, problem: Problem) -> Placement:
        """See :class:`...placement.problem.Packer`."""

        def fill(source: BinSource, items: list[Item]) -> None:
            groups: dict[int, list[Item]] = {}
            left: list[Item] = []
            for item in items:
                home = source.index_of(item.owner)
                if home is None or not source.may(home, item):
                    left.append(item)
                else:
                    groups.setdefault(home, []).append(item)
            for home in sorted(groups, key=lambda index: (-self._weight(groups[index]), index)):
                left += _kept(source, home, decreasing(groups[home]), self._fit)
            for item in decreasing(left):
                source.place(item, self._fit, source.index_of(item.owner))

        return opening(problem, fill, f"packed anew by {self.name}")

    def _weight(self, items: list[Item]) -> float:
        return max(item.work for item in items) if self._by_largest else sum(item.work for item in items)


def _kept(source: BinSource, home: int, descending: list[Item], fit: Fit) -> list[Item]:
    """Steps 1 and 2 for one consumer; what is left over."""
    while descending:
        index = fit(source, descending[-1])
        if index is None:
            break
        source.put(index, descending.pop())
    if not descending:
        return []
    if home not in source.open:
        source.start(home)
    for at, item in enumerate(descending):
        if not source.fits(home, item):
            return descending[at:]
        source.put(home, item)
    return []
