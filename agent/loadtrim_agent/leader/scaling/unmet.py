"""The reconciler learns here for how long a group has not come to a number that the other side took."""

from __future__ import annotations

from typing import Final

__all__ = ["EXECUTE_SECONDS", "Unmet"]

EXECUTE_SECONDS: Final = 120.0
"""A number that the group does not come to within this time is complained about. Chosen: a scrape each 30 s, an
autoscaler that looks each 30 s, and as long again for a pod to start or end."""


class Unmet:
    """Remember a number that was taken, and since when the group differs from it."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._since = 0.0
        self._told = False

    def met(self) -> None:
        """The group is as wanted, or nothing is wanted."""
        self._number = None

    def lasts(self, number: int, now: float) -> bool:
        """Return whether it is time to complain, once for a number: it was taken, and the group differs from it."""
        if number != self._number:
            self._number, self._since, self._told = number, now, False
        if self._told or now - self._since < EXECUTE_SECONDS:
            return False
        self._told = True
        return True
