"""The back-off of rebalances and heartbeats that are begun again because of an answer."""

from __future__ import annotations

from zlib import crc32

__all__ = ["RetryBackoff"]

FIRST_SECONDS = 0.05
"""Chosen: the pause before the second try in a row. The first one comes at once: mostly it is enough."""


class RetryBackoff:
    """Pauses between tries in a row: none, then one that doubles up to a bound, different for each member.

    Args:
        most_seconds: longest pause.
    """

    def __init__(self, most_seconds: float) -> None:
        self._most_seconds = most_seconds
        self._failures = 0

    def failed(self, member: str) -> float:
        """Count a try in vain and return the pause before the next one, seconds."""
        self._failures += 1
        if self._failures == 1:
            return 0.0
        doublings = min(self._failures - 2, 30)
        seconds = min(FIRST_SECONDS * 2.0**doublings, self._most_seconds)
        # From half of it to all of it. Computed, as nothing here is random: the same events give the same commands.
        share = crc32(f"{member} {self._failures}".encode()) / 2**32
        return seconds * (1.0 + share) / 2

    def succeeded(self) -> None:
        """The next failure is a first one."""
        self._failures = 0
