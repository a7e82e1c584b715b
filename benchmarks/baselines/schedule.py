"""When what happens: the rise has to come at a boundary of the wall clock, and everything before it has to fit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

__all__ = ["BUCKET_SECONDS", "GROUPS_SECONDS", "LOW_SECONDS_MIN", "NotInTimeError", "Schedule", "clock", "planned"]

BUCKET_SECONDS = 300
"""A baseline tells a week in steps of this: the steepest rise that it can tell is from one to the next."""
GROUPS_SECONDS = 20.0
"""Kept free for both groups to come up; 3 to 6 s on 2 cores, some more while others use them too."""
LOW_SECONDS_MIN = 90
"""Before the rise: the leader's forecast counts once 30 s of today are compared with the expected, the first 10 s of a
bucket are not compared, a load that has just begun is seen for some seconds before it is believed, and a replica is to
be asked for more than 20 s before the rise."""


class NotInTimeError(Exception):
    """Making and learning the history took longer than there was time for. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Moments in seconds since the epoch.

    Attributes:
        rise_at: T, when the load rises.
        low_seconds: of the low level before it.
    """

    rise_at: int
    low_seconds: int

    @property
    def begin_at(self) -> int:
        """When the load begins."""
        return self.rise_at - self.low_seconds

    @property
    def groups_at(self) -> float:
        """When the groups are started: until then everything has to be ready."""
        return self.begin_at - GROUPS_SECONDS

    def check(self, began: float, now: float) -> None:
        """Is there still time for the groups?

        Args:
            began: when making the history began, seconds since the epoch.
            now: when it was made and learnt.

        Raises:
            NotInTimeError: there is not.
        """
        if now <= self.groups_at:
            return
        took = now - began
        raise NotInTimeError(
            f"making and learning the history took {took:.0f} s, and {self.groups_at - began:.0f} s were left for it: "
            f"the load would rise at {clock(self.rise_at)} before the leader knows what today is like, so nothing was "
            f"played. Run it again with PREPARE={math.ceil(took * 1.5)}, or on a machine with less to do."
        )


def planned(now: float, prepare_seconds: float, low_seconds: int) -> Schedule:
    """The first boundary for which the time suffices.

    Args:
        now: seconds since the epoch.
        prepare_seconds: that making and learning the history is given.
        low_seconds: of the low level before the rise.
    """
    earliest = now + prepare_seconds + GROUPS_SECONDS + low_seconds
    return Schedule(math.ceil(earliest / BUCKET_SECONDS) * BUCKET_SECONDS, low_seconds)


def clock(at: float) -> str:
    """``12:35:00``, in UTC as the history's weeks are."""
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}"
