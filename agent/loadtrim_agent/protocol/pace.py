"""The pace of what costs each member more the more members there are: rebalances, and signs of life."""

from __future__ import annotations

__all__ = ["UNPACED_MEMBERS_MAX", "load_seconds", "overdue_seconds", "pace_seconds"]

UNPACED_MEMBERS_MAX = 10
"""Chosen: a rebalance of so many takes some 60 ms, and one more costs little."""
SECONDS_PER_MEMBER = 0.01
SECONDS_MAX = 1.0
"""Chosen: reached at 110 members. A newcomer waits so much longer at most."""
LOAD_SECONDS_MIN = 1.0
LOADS_PER_SECOND_MAX = 100.0
"""Chosen: of a whole group whose loads stay the same. Every member reads them all, some 170 bytes each."""
LATE_SECONDS = 2.0
"""A ``load`` record may take so long to be written, read and handled."""


def pace_seconds(members: int) -> float:
    """Return the shortest time between two rebalances of so many members.

    Each rebalance costs each member two requests, and an assignment with an entry for every member. Without a pace
    each member of a rolling deploy would have one of its own.

    Source: ``group.initial.rebalance.delay.ms`` (KIP-134), which the broker has for the first rebalance of a group.
    """
    return min(SECONDS_MAX, max(0, members - UNPACED_MEMBERS_MAX) * SECONDS_PER_MEMBER)


def load_seconds(members: int) -> float:
    """Return the longest time between two ``load`` records of a member in a group of so many.

    Each member reads those of all: with one a second, what is read grows with the square of the members.
    """
    return max(LOAD_SECONDS_MIN, members / LOADS_PER_SECOND_MAX)


def overdue_seconds(members: int) -> float:
    """Return how long a member of such a group is silent until its eviction is watched for (rule 11)."""
    return load_seconds(members) + LATE_SECONDS
