"""How the papers measure arrival rates at the broker, by name; the I/O is :mod:`loadtrim_agent.kafka.rate_sources`.

* ``reports``   the members' reports, the default; nothing is measured at the broker.
* ``landau24``  Landau'24: bytes of each partition on its leader's disk, newest less oldest sample of a sliding window
  of 30 s over the time between them.
* ``iccbdc22``  ICCBDC'22: records whose time stamps lie in the interval that ended 1.5 s ago, by the offsets at its
  ends.

Source: Landau'24, section V-A; ICCBDC'22 as run.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping

from loadtrim_agent.common.naming import chosen
from loadtrim_agent.common.partition import Partition

from ..rate_source import BYTES_WINDOW_SECONDS, REPORTS

__all__ = ["DELAY_SECONDS", "LogGrowth", "RateSourceName", "rate_source_of"]

DELAY_SECONDS = 1.5
"""ICCBDC'22: the interval ends that long ago, so that what was stamped in it has been appended. Source: as run."""


class RateSourceName(enum.StrEnum):
    """What ``LOADTRIM_MONITOR`` may say."""

    REPORTS = REPORTS
    LANDAU24 = "landau24"
    ICCBDC22 = "iccbdc22"


def rate_source_of(name: str) -> RateSourceName:
    """Return the rate source with this name.

    Raises:
        UnknownNameError: there is none; the message lists them and the nearest.
    """
    return chosen("monitor", name, {source.value: source for source in RateSourceName})


class LogGrowth:
    """Sizes sampled over a sliding window, and how fast they grow."""

    def __init__(self, seconds: float = BYTES_WINDOW_SECONDS) -> None:
        """``seconds``: length of the window."""
        self._seconds = seconds
        self._samples: deque[tuple[float, Mapping[Partition, int]]] = deque()

    def add(self, at: float, sizes: Mapping[Partition, int]) -> None:
        """Add one sample. Bounded: samples that are older than the window go, except for two."""
        self._samples.append((at, sizes))
        while len(self._samples) > 2 and at - self._samples[0][0] > self._seconds:
            self._samples.popleft()

    def per_second(self) -> dict[Partition, float] | None:
        """Return (newest - oldest) / time between, of each partition in the newest sample.

        A partition that shrank counts as 0: the broker deleted a segment, and what came meanwhile cannot be known.

        Returns:
            None while there is nothing to compare with.
        """
        if len(self._samples) < 2:
            return None
        newest_at, newest = self._samples[-1]
        rates = {}
        for partition in sorted(newest):
            oldest_at, oldest = next((at, sizes) for at, sizes in self._samples if partition in sizes)
            grown = max(0, newest[partition] - oldest[partition])
            rates[partition] = grown / (newest_at - oldest_at) if newest_at > oldest_at else 0.0
        return rates
