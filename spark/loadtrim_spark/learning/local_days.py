"""Days of a time zone, in seconds since the epoch: where clocks change, one lasts 23 or 25 hours. Pure."""

from __future__ import annotations

import datetime
from zoneinfo import ZoneInfo

__all__ = ["begin_of", "date_at", "midnight", "spans"]


def begin_of(day: datetime.date, zone: str) -> int:
    """The day's midnight; where clocks leave that one out, the first moment after it."""
    return int(datetime.datetime.combine(day, datetime.time(), ZoneInfo(zone)).timestamp())


def date_at(at: int, zone: str) -> datetime.date:
    """The local date of a moment."""
    return datetime.datetime.fromtimestamp(at, ZoneInfo(zone)).date()


def midnight(at: int, zone: str, days: int = 0) -> int:
    """The last midnight at or before a moment, or the one so many days after it (before it: negative)."""
    return begin_of(date_at(at, zone) + datetime.timedelta(days=days), zone)


def spans(begin: int, end: int, zone: str, every_days: int = 1) -> list[tuple[int, int]]:
    """Cut some time at every n-th midnight.

    Args:
        begin: the first span begins at the last midnight at or before it.
        end: of the last span, whatever the hour.
        zone: whose midnights.
        every_days: from one to the next.

    Returns:
        (begin, end) of each span, in order.
    """
    cuts, days = [], 0
    while (cut := midnight(begin, zone, days)) < end:
        cuts.append(cut)
        days += every_days
    return list(zip(cuts, [*cuts[1:], end], strict=False))
