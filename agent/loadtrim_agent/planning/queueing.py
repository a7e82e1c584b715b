"""Queues by chance: the capacity that keeps one within a time, and the share that is late with less.

Records that come by chance now and then come together, and the longer a record takes, the longer the others wait. No
window of a few seconds shows it: the queue grows over many of them.

Source: the exponential tail of a queue in heavy traffic (J. F. C. Kingman, 1962). Work comes at a rate a with a
variance of v per second, and c can be done: then what waits exceeds b with a probability of ``exp(-2 (c - a) b / v)``.
That is within a factor of two for records of a fifth of the time.
"""

from __future__ import annotations

import math

__all__ = ["capacity_in_time", "share_late"]


def share_late(work: float, variance: float, capacity: float, seconds: float) -> float:
    """Return the share of the work that waits for longer than ``seconds``, 0 .. 1.

    Args:
        work: that arrives per second.
        variance: of it per second.
        capacity: work per second that can be done.
        seconds: what is there to wait; with nothing everything is late.
    """
    if work >= capacity or seconds <= 0.0:
        return 1.0
    if variance <= 0.0:
        return 0.0
    return math.exp(-2.0 * (capacity - work) * capacity * seconds / variance)


def capacity_in_time(work: float, variance: float, seconds: float, share: float) -> float:
    """Return the least capacity with which no more than ``share`` waits for longer than ``seconds`` (above 0)."""
    return 0.5 * (work + math.sqrt(work * work + 2.0 * variance * math.log(1.0 / share) / seconds))
