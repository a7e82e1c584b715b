"""The agent's two clocks.

:func:`boot_time` decides when a record may be handed out. It goes on while the machine is suspended, which
``time.monotonic`` does not on Linux: a laptop that slept past its session timeout must not think its lease still runs.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable

__all__ = ["boot_time", "seconds_to_beat", "wall_time", "warn_about_clock"]

log = logging.getLogger("loadtrim")

wall_time: Callable[[], float] = time.time
"""Seconds since the epoch."""

_HAS_BOOT_CLOCK = hasattr(time, "CLOCK_BOOTTIME")

boot_time: Callable[[], float] = (
    functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME) if _HAS_BOOT_CLOCK else time.monotonic
)
"""Seconds since boot, suspended time included (where the platform has such a clock)."""


def seconds_to_beat(now: float, period: float, phase: float) -> float:
    """How long to wait for the next beat of a rhythm that all members share.

    Args:
        now: seconds since the epoch.
        period: seconds between two beats.
        phase: how long after a multiple of the period this one's beats are, seconds.

    Returns:
        More than a tenth of the period, up to 1.1 of it: a beat that is nearer has just been.
    """
    left = (phase - now) % period
    return left if left > period / 10 else left + period


def warn_about_clock() -> None:
    """Say once per process where a suspend could outlive a lease."""
    if not _HAS_BOOT_CLOCK:  # pragma: no cover - not Linux
        log.warning(
            "This platform has no boot-time clock: after a suspend longer than the session timeout, records may be "
            "handed out for up to one heartbeat although the group gave their partitions away. Their commits are "
            "refused."
        )
