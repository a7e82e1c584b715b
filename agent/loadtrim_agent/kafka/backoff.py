"""Wait before the next try, longer each time."""

from __future__ import annotations

__all__ = ["RECONNECT_SECONDS_MAX", "Backoff"]

RECONNECT_SECONDS_MAX = 1.0
"""A broker that does not take connections is tried at least this often. Source: ``reconnect.backoff.max.ms``, whose
default in Kafka's own clients this is."""


class Backoff:
    """The wait before the next try: doubled at each failure in a row, up to a bound.

    Args:
        first: seconds after the first failure.
        most: seconds at most.
    """

    def __init__(self, first: float, most: float = RECONNECT_SECONDS_MAX) -> None:
        self._first = min(first, most)
        self._most = most
        self._next = self._first

    def failed(self) -> float:
        """One more failure: seconds to wait now."""
        wait, self._next = self._next, min(self._most, self._next * 2)
        return wait

    def succeeded(self) -> None:
        """Begin anew."""
        self._next = self._first
