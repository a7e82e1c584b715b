"""Queues by chance: the capacity that keeps one within a time, and the share that is late with less.

Records that come by chance now and then come together, and the longer a record takes, the longer the others wait. No
window of a few seconds shows it: the queue grows over many of them.

Work comes at a rate a, with a variance of d per unit of it. c can be done, a record at a time per busy second of it.
Then a record waits at all with a probability of ``(a / c) ** (sqrt(2 (c + 1)) - 1)``, and longer than t with
``exp(-2 (c - a) t / d)`` of that.

Source: the queue M/M/c, whose waiting times have this tail where costs vary exponentially (d is twice the mean cost);
H. Sakasegawa, 1977, for the probability to wait. J. F. C. Kingman, 1962, for other variances: near full load the tail
depends on the variance alone. Changed: d stands in both, so that for equal costs a little more is expected late than
is seen.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

__all__ = ["capacity_in_time", "share_late", "z_of"]

STEPS = 24
"""Halvings of what a capacity is looked for in: it is found to less than a millionth of that."""

STEEPEST = 1e12
"""A tail does not fall faster than by exp(-this) a second: no number overflows, and nothing is late anyhow."""


def share_late(work: float, dispersion: float, capacity: float, seconds: float, burst: float = 0.0) -> float:
    """Return the share of the work that waits for longer than ``seconds``, 0 .. 1.

    In a burst a record waits for what came before it, and less of ``seconds`` is left for what waits by chance. With a
    burst this is the mean over the records of it that ``seconds`` has room for. The caller counts the others.

    Args:
        work: that arrives per second.
        dispersion: variance of it per second, per unit of it, seconds.
        capacity: work per second that can be done. Below 1 one record at a time is done, more slowly.
        seconds: what is there to wait; with nothing everything is late.
        burst: work that comes together.
    """
    if work >= capacity or seconds <= 0.0:
        return 1.0
    if dispersion <= 0.0 or work <= 0.0:
        return 0.0
    waits = math.pow(work / capacity, math.sqrt(2.0 * (max(1.0, capacity) + 1.0)) - 1.0)
    decay = min(2.0 * (capacity - work) / dispersion, STEEPEST)
    behind = min(burst / capacity, seconds)
    last, fallen = math.exp(-decay * (seconds - behind)), decay * behind
    return waits * last * (-math.expm1(-fallen) / fallen if fallen > 0.0 else 1.0)


def capacity_in_time(work: float, dispersion: float, seconds: float, share: float) -> float:
    """Return the least capacity with which no more than ``share`` waits for longer than ``seconds`` (above 0)."""
    # If everything waited, so much more than the work would do.
    low, high = work, work + 0.5 * max(0.0, dispersion) * math.log(1.0 / share) / seconds
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        if share_late(work, dispersion, middle, seconds) <= share:
            high = middle
        else:
            low = middle
    return high


@lru_cache(maxsize=16)  # asked for in every window of every decision, and of one share nearly always
def z_of(share: float) -> float:
    """Return the standard deviations that a share of records in time takes: 1 for 99.9 %, in proportion for others."""
    normal = NormalDist()
    return max(0.0, normal.inv_cdf(share) / normal.inv_cdf(0.999))
