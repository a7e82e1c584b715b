"""Next, first, worst and best fit, and their decreasing forms: plain, and sticky as Landau'24 adapted them.

Plain (``ffd``): the k-th bin that is opened is the k-th of the supply. Sticky (``ffd_sticky``): the bin that is opened
for a partition is its owner's if that is not open yet, else the lowest that is not open. First fit takes the lowest
open bin, as the authors' does; with sticky that need not be the oldest, so there even the number of bins may differ a
little. Next fit begins with the lowest bin, whoever owns the first item, as theirs does: it has that bin open before it
looks at any item. The non-decreasing forms take the items in the problem's order; the paper shuffles them. An empty bin
takes any item, even a larger one.

Source: Landau'24, sections II-B and VI-A (equations 12 to 14); ties, the empty bin and next fit's first one as its
authors ran it (``NextFit.run`` of ``approximation_algorithms.py``, landaudiogo/kafka-consumer-group-autoscaler).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from ...parameters import Parameters
from ...placement.bin_source import BinSource, Fit, best, first, opening, worst
from ...placement.problem import Item, Problem
from ...values import Placement

__all__ = ["ANY_FITS", "AnyFit", "decreasing"]


def latest(source: BinSource, item: Item) -> int | None:
    """Only the bin that was opened last."""
    return source.last if source.last is not None and source.fits(source.last, item) else None


FITS: dict[str, Fit] = {"nf": latest, "ff": first, "wf": worst, "bf": best}


def decreasing(items: Sequence[Item]) -> list[Item]:
    """Largest first, ties by partition."""
    return sorted(sorted(items, key=attrgetter("partition")), key=attrgetter("work"), reverse=True)


class AnyFit:
    """One of the sixteen. Cost: ``O(p n)``."""

    kind = Parameters

    def __init__(self, name: str) -> None:
        """``name``: one of :data:`ANY_FITS`."""
        rule, _, adapted = name.partition("_")
        self.name = name
        self._fit = FITS[rule[:2]]
        self._decreasing = rule.endswith("d")
        self._sticky = bool(adapted)

    def pack(self, problem: Problem) -> Placement:
        """See :class:`...placement.problem.Packer`."""

        def fill(source: BinSource, items: list[Item]) -> None:
            for item in decreasing(items) if self._decreasing else items:
                source.place(item, self._fit, self._preferred(source, item))

        return opening(problem, fill, f"packed anew by {self.name}")

    def _preferred(self, source: BinSource, item: Item) -> int | None:
        """The bin to open if one has to be; None: the lowest. Next fit's first one is nobody's."""
        begins = self._fit is latest and source.last is None
        return source.index_of(item.owner) if self._sticky and not begins else None


ANY_FITS = tuple(f"{rule}{order}{form}" for form in ("", "_sticky") for order in ("", "d") for rule in FITS)
