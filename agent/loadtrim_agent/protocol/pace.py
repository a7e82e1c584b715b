"""The pace at which the rebalances of a large group may follow each other."""

from __future__ import annotations

__all__ = ["UNPACED_MEMBERS_MAX", "pace_seconds"]

UNPACED_MEMBERS_MAX = 10
"""Chosen: a rebalance of so many takes some 60 ms, and one more costs little."""
SECONDS_PER_MEMBER = 0.01
SECONDS_MAX = 1.0
"""Chosen: reached at 110 members. A newcomer waits so much longer at most."""


def pace_seconds(members: int) -> float:
    """Return the shortest time between two rebalances of so many members.

    Each rebalance costs each member two requests, and an assignment with an entry for every member. Without a pace
    each member of a rolling deploy would have one of its own.

    Source: ``group.initial.rebalance.delay.ms`` (KIP-134), which the broker has for the first rebalance of a group.
    """
    return min(SECONDS_MAX, max(0, members - UNPACED_MEMBERS_MAX) * SECONDS_PER_MEMBER)
