"""The pace of what costs each member more the more members there are: rebalances, signs of life, reads of the log."""

from __future__ import annotations

__all__ = ["UNPACED_MEMBERS_MAX", "load_seconds", "overdue_seconds", "pace_seconds", "read_seconds"]

UNPACED_MEMBERS_MAX = 10
"""Chosen: a rebalance of so many takes some 60 ms, and one more costs little."""
SECONDS_PER_MEMBER = 0.01
SECONDS_MAX = 1.0
"""Chosen: reached at 110 members. A newcomer waits so much longer at most."""
LOAD_SECONDS_MIN = 1.0
LOADS_PER_SECOND_MAX = 16.0
"""Chosen: of a whole group whose loads stay the same. Every member reads them all, most of them with a request each."""
LOAD_SECONDS_MAX = 6.0
"""Chosen: with :data:`LATE_SECONDS` below the default session timeout: an eviction is watched for before it comes."""
LATE_SECONDS = 2.0
"""A ``load`` record may take so long to be written, read and handled."""
READS_PER_SECOND_MAX = 50.0
"""Chosen: twice what the members of all but the largest groups tell while their loads change, and plans besides."""


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
    return min(LOAD_SECONDS_MAX, max(LOAD_SECONDS_MIN, members / LOADS_PER_SECOND_MAX))


def overdue_seconds(members: int) -> float:
    """Return how long a member of such a group is silent until its eviction is watched for (rule 11)."""
    return load_seconds(members) + LATE_SECONDS


def read_seconds(members: int) -> float:
    """Return the least mean time between two reads of the log by a member of such a group that waits for no record.

    In a large group each member would read each record with a request of its own, thousands a second at one broker.
    Where loads alone are more than :data:`LOADS_PER_SECOND_MAX`, a rebalance takes a second and more: a record that is
    read some hundredths of a second later makes no difference.
    """
    most = READS_PER_SECOND_MAX if members <= LOADS_PER_SECOND_MAX * LOAD_SECONDS_MAX else LOADS_PER_SECOND_MAX
    return 1.0 / most
