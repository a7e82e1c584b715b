"""The group's arriving work per slot of wall-clock time: what all members told, added up.

Dense, so that reading three minutes of it is one slice; bounded, whatever times the members tell.
"""

from __future__ import annotations

__all__ = ["BucketSums"]


class BucketSums:
    """Work per slot, by the slot's number since the epoch.

    Args:
        kept: so many slots are remembered before the newest one.
        spare: so many more may pile up before they are dropped.
    """

    def __init__(self, kept: int, spare: int) -> None:
        self._kept = kept
        self._spare = spare
        self._first = 0
        self._works: list[float] = []

    def __bool__(self) -> bool:
        return bool(self._works)

    def add(self, slot: int, work: float) -> None:
        """Add work to a slot; to one that is too old to be remembered, nothing. O(1), but for slots out of order."""
        at, works = slot - self._first, self._works
        if 0 <= at < len(works):
            works[at] += work
        elif not works or at - len(works) >= self._kept:
            self._first, self._works = slot, [work]  # all before is too old now
        elif at >= 0:
            works += [0.0] * (at - len(works))
            works.append(work)
        elif len(works) - at <= self._kept:
            works[:0] = [work, *[0.0] * (-at - 1)]
            self._first = slot

    def take(self, slot: int, work: float) -> None:
        """Take work away again, nothing below 0."""
        at = slot - self._first
        if 0 <= at < len(self._works):
            self._works[at] = max(0.0, self._works[at] - work)

    def until(self, end: int) -> list[float]:
        """The slots before ``end``, oldest first, as many as are remembered; those nobody told of are 0."""
        if not self._works:
            return []
        first = max(self._first, end - self._kept)
        works = self._works[first - self._first : max(0, end - self._first)]
        return works + [0.0] * (end - first - len(works))

    def total(self, begin: int, end: int) -> float:
        """Of the slots ``begin`` .. ``end`` - 1, as far as anybody told of them."""
        return sum(self._works[max(0, begin - self._first) : max(0, end - self._first)])

    def prune(self) -> None:
        """Drop what is too old."""
        if len(self._works) > self._kept + self._spare:
            dropped = len(self._works) - self._kept - 1
            del self._works[:dropped]
            self._first += dropped
