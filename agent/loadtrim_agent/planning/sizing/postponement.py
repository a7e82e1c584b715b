"""More replicas are asked for at the last moment at which they still come in time.

A long objective is a buffer. What waits in it costs nothing, and a rise that ends before it is full needs no replica.
The oldest record becomes older by no more than a second per second. So it is early while two answers fit: more are asked
for now, turn out to be too few, and others are asked for then. Where that holds, a rise can be answered when it is
there, and what a trend foresees is no reason for replicas.

Source: the last responsible moment of lean production (M. and T. Poppendieck, 2003). Changed: how long records wait is
measured, and the moment is worked out for it.
"""

from __future__ import annotations

import math

from .policy import View

__all__ = ["answers_in_time", "is_early", "wait_permitted_seconds", "wait_seconds"]

ANSWERS = 2.0
"""Times that more may be asked for before records are late: the first answer may be too small. Chosen."""
USED_OBJECTIVES = 0.8
"""Part of the objective that counts. The rest is for what divides badly, and for how records wait by chance. Chosen by
the loads for tuning."""


def wait_permitted_seconds(view: View) -> float:
    """Return for how long records may wait before more replicas have to be asked for; negative: at once, always."""
    return USED_OBJECTIVES * view.config.sla_seconds - ANSWERS * view.forecast.horizon_seconds


def answers_in_time(view: View) -> bool:
    """Return whether the objective leaves time to answer a rise once it is there."""
    return wait_permitted_seconds(view) > 0.0


def wait_seconds(view: View) -> float:
    """Return how long records wait: the age of the oldest, or until what waits on one member is done if that is longer.

    Infinite where it is not known: nobody knows when records are done, or records wait in a partition without an owner.

    Cost: O(p).
    """
    estimate = view.estimate
    if estimate.untold:
        return math.inf
    oldest, work = 0.0, {}
    for entry in estimate.partitions.values():
        if not entry.sized or entry.lag <= 0:
            continue
        if entry.owner not in estimate.members:
            return math.inf
        oldest = max(oldest, entry.lag_seconds)
        work[entry.owner] = work.get(entry.owner, 0.0) + entry.lag * entry.cost
    return max([oldest, *(waiting / estimate.members[owner].capacity for owner, waiting in work.items())])


def is_early(view: View) -> bool:
    """Return whether more replicas come in time if they are asked for later."""
    return answers_in_time(view) and wait_seconds(view) <= wait_permitted_seconds(view)
