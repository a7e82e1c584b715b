"""Is a number what it has to be? Asked by every value type that refuses what nothing could be planned by."""

from __future__ import annotations

import math

__all__ = ["is_count", "is_positive", "within"]

MOST = math.nextafter(math.inf, 0.0)


def within(value: object, least: float, most: float = MOST) -> bool:
    """Is it a number in these bounds, and so a finite one? Not of NaN, not of what is none."""
    return isinstance(value, int | float) and least <= value <= most


def is_positive(value: object) -> bool:
    """Is it a finite number above 0?"""
    return within(value, 0.0) and value != 0


def is_count(value: object) -> bool:
    """Is it a whole number of at least 1?"""
    return isinstance(value, int) and value >= 1
