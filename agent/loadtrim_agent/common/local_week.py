"""Which slot of the local week a moment is in: the calendar that the pure core does without."""

from __future__ import annotations

import logging
import zoneinfo
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

__all__ = ["LocalWeek"]

log = logging.getLogger("loadtrim")

WARNINGS_MAX = 20
"""Unknown zones that are warned about. Chosen: names in baselines are anybody's."""


class LocalWeek:
    """Slots of the week from Monday midnight, by local clocks.

    An hour that a change of clocks repeats has the same slots twice, one that it leaves out has none: as they were
    learnt.

    Args:
        zone: IANA name for baselines that do not name theirs; one that exists.
    """

    def __init__(self, zone: str = "UTC") -> None:
        self._zone = zone
        self._unknown: set[str] = set()

    def slots(self, zone: str, bucket_seconds: int, begin: int, count: int) -> Sequence[int] | None:
        """The slot of each bucket (:data:`loadtrim_agent.wire.baseline_records.SlotsOf`)."""
        local = _zone(zone or self._zone)
        if local is None:
            if zone not in self._unknown and len(self._unknown) < WARNINGS_MAX:
                self._unknown.add(zone)
                log.warning(
                    "A baseline was learnt in the time zone %.40r, which this machine does not know, so it is not "
                    "used; install the system's tzdata, or the Python package of that name.",
                    zone,
                )
            return None
        first = datetime.fromtimestamp(begin, UTC)
        moments = (first + timedelta(seconds=bucket_seconds * index) for index in range(count))
        return [_slot(moment.astimezone(local), bucket_seconds) for moment in moments]


def _slot(local: datetime, bucket_seconds: int) -> int:
    minutes = (local.weekday() * 24 + local.hour) * 60 + local.minute
    return minutes * 60 // bucket_seconds


@lru_cache(maxsize=16)
def _zone(name: str) -> tzinfo | None:
    if name == "UTC":
        return UTC  # also where the machine has no time zone database
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None
