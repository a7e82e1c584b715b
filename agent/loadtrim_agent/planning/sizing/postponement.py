"""More replicas are asked for at the last moment at which they still come in time.

A long objective is a buffer. What waits in it costs nothing, and a rise that ends before it is full needs no replica.
The oldest record becomes older by no more than a second per second, and what waits on a member is done at its rate. So
it is early while two answers fit: more are asked for now, turn out to be too few, and others are asked for then. While
one fits, a rise can be answered when it is there, and what a trend foresees is no reason for replicas.

An answer has to be possible, so nothing is postponed in four cases:

* no more replicas than will be asked for are allowed;
* more replicas are there than are wanted, and keep the wait short;
* a single partition could become too much for one member;
* it is not known how long records wait.

Source: the last responsible moment of lean production (M. and T. Poppendieck, 2003). Changed: how long records wait is
measured, and the moment is worked out for it.
"""

from __future__ import annotations

import math

from ..baseline import startup_seconds
from ..settling import answer_seconds
from .policy import View

__all__ = ["ANSWERS", "answers_left", "wait_permitted_seconds", "wait_seconds"]

ANSWERS = 2.0
"""Times that more may be asked for before records are late: the first answer may be too small. Chosen."""
USED_OBJECTIVES = 0.8
"""Part of the objective that counts. The rest is for what divides badly, and for how records wait by chance. Chosen by
the loads for tuning."""
LARGEST_CAPACITIES = 0.5
"""Part of a member that a partition may take: what waits in a larger one could not be worked off if it grew. Chosen."""


def wait_permitted_seconds(view: View) -> float:
    """Return for how long records may wait before more replicas have to be asked for; negative: at once, always."""
    return USED_OBJECTIVES * view.config.sla_seconds - ANSWERS * _answer_seconds(view)


def answers_left(view: View, wanted: int) -> float:
    """Return how often more could be asked for one after the other, so that the last ones come in time.

    0 where the objective never leaves time for two answers, or one may not be possible.

    Args:
        view: of the group.
        wanted: replicas wanted last.

    Cost: O(p).
    """
    possible = view.replicas <= wanted < view.replicas_max
    if wait_permitted_seconds(view) <= 0.0 or not possible or _is_coarse(view):
        return 0.0
    return max(0.0, USED_OBJECTIVES * view.config.sla_seconds - wait_seconds(view)) / _answer_seconds(view)


def wait_seconds(view: View) -> float:
    """Return how long records wait: the age of the oldest, or until what waits on one member is done if that is longer.

    Infinite where it is not known: nobody knows when records are done, or records wait in a partition without an owner,
    or with one that does not report.

    Cost: O(p).
    """
    estimate = view.estimate
    if estimate.untold:
        return math.inf
    oldest, busy = 0.0, dict.fromkeys(estimate.members, 0.0)
    for entry in estimate.partitions.values():
        if not entry.sized:
            continue
        if entry.owner not in busy or (owner := estimate.members[entry.owner]).silent:
            return math.inf
        oldest = max(oldest, entry.lag_seconds)
        busy[entry.owner] += entry.lag * entry.cost / owner.capacity
    return max(oldest, *busy.values(), 0.0)


def _answer_seconds(view: View) -> float:
    """Return how long it takes until a replica that is asked for now helps; few starts tell less than the setting."""
    startup = startup_seconds(view.estimate, view.config.startup_seconds)
    return answer_seconds(startup, view.estimate.restoring_seconds, view.config)


def _is_coarse(view: View) -> bool:
    fastest = max((member.capacity for member in view.estimate.members.values()), default=0.0)
    total = view.columns.total
    factor = view.forecast.level / total if total > 0.0 else 1.0
    return any(item.work * factor > LARGEST_CAPACITIES * fastest for item in view.items)
