"""This goes from the window lengths at which a member measured to those of every work curve."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache

from .values import TAUS_SECONDS

__all__ = ["shape_of"]


def shape_of(windows: Iterable[tuple[float, float]]) -> tuple[float, ...]:
    """Return measured windows at the lengths of every curve; the window of no length extends the two shortest to 0.

    Args:
        windows: (seconds, seconds' worth of work that arrive in a window so long), of one length at least.
    """
    points = sorted(windows)
    works = [work for _, work in points]
    twice, shortest, *longer = [
        works[at] + (works[at + 1] - works[at]) * beyond / width if width else works[at] + beyond - less
        for at, beyond, width, less in _between(tuple([seconds for seconds, _ in points]))
    ]
    return (min(max(2.0 * shortest - twice, 0.0), shortest), shortest, *longer)


@lru_cache(maxsize=16)  # members measure at the same lengths in every report
def _between(seconds: tuple[float, ...]) -> tuple[tuple[int, float, float, float], ...]:
    """Return where lengths of a curve lie between measured ones: twice the shortest, then all but that of no length.

    Of each: the measured one before it, how far it is beyond, the distance to the next one, and what to take away.
    No distance: it is no longer than the shortest measured one, or longer than the longest, beyond which work flows on.
    """
    found = []
    for tau in (2.0 * TAUS_SECONDS[1], *TAUS_SECONDS[1:]):
        right = bisect_left(seconds, tau)
        if right == 0:
            found.append((0, 0.0, 0.0, 0.0))
        elif right == len(seconds):
            found.append((right - 1, tau, 0.0, seconds[-1]))
        else:
            found.append((right - 1, tau - seconds[right - 1], seconds[right] - seconds[right - 1], 0.0))
    return tuple(found)
