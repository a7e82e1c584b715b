"""A generation whose assignment its leader could not write in time: nothing moves, so that it is to end (rule 7)."""

from __future__ import annotations

__all__ = ["BlindGeneration"]

NEVER = float("inf")
FIRST_SECONDS = 1.0
SECONDS_MAX = 60.0
"""Chosen: the time until its leader joins again, doubled for each such generation in a row up to the bound.

Each try is a rebalance of the whole group. Without one there are no moves, no plans and no scaling."""


class BlindGeneration:
    """The wait of a leader for the end of a generation without an assignment."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self.over_at = NEVER
        """Time at which this member, which leads, is to join again."""

    def entered(self, now: float, *, written: bool, leads: bool) -> None:
        """A generation began; ``written``: its assignment is in the answers or in the log."""
        self._in_a_row = 0 if written else self._in_a_row + 1
        self.over_at = NEVER
        if leads and not written:
            self.over_at = now + min(SECONDS_MAX, FIRST_SECONDS * 2.0 ** min(self._in_a_row - 1, 30))
