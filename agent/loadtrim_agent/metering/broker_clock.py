"""How far this machine's wall clock is off the log's.

Records carry the log's time (or their producer's), ``now`` is the member's own. What compares the two (age, lateness,
the slot that a record falls into) uses ``now - offset``.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median

__all__ = ["SAMPLES_MAX", "ClockOffset"]

SAMPLES_MAX = 8
"""Samples looked at: as many as NTP's clock filter keeps."""
_ROUND_TRIP_FLOOR_SECONDS = 0.005
"""Round trips below this are equally good: a broker's time stamps are milliseconds."""


class ClockOffset:
    """Own wall clock minus the broker's log clock, seconds. 0 until a sample came.

    Source: the clock filter of RFC 5905 section 10 (trust the samples with the shortest round trips, because half of
    the round trip bounds the error), with the median of those within twice the shortest, so that one odd stamp counts
    for nothing.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES_MAX)
        self.seconds = 0.0

    def add(self, offset_seconds: float, round_trip_seconds: float = 0.0) -> float:
        """Take in a sample and return the offset that holds from now on. What is not finite is ignored."""
        if math.isfinite(offset_seconds) and math.isfinite(round_trip_seconds):
            self._samples.append((max(0.0, round_trip_seconds), offset_seconds))
            limit = max(2.0 * min(self._samples)[0], _ROUND_TRIP_FLOOR_SECONDS)
            self.seconds = median(offset for round_trip, offset in self._samples if round_trip <= limit)
        return self.seconds
