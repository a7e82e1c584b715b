"""Replicas that are not given up, because it is not known whether they are needed."""

from __future__ import annotations

import math

from msgspec import structs

from .explain import blind
from .values import Estimate, GroupState, Reason, Sizing, units_of

__all__ = ["no_fewer_unknown"]

AGAIN = 2.0
"""Arrivals for partitions that stand still count so many times. Derived: what waits when they go on is worked off with
as much again as the load, at most."""


def no_fewer_unknown(sizing: Sizing, before: int, estimate: Estimate, group: GroupState) -> Sizing:
    """Keep the replicas that there are while it is not known what they do.

    Nobody knows when records are done, nor what a member can do. Or an owner has never reported: what comes for it is
    not seen and looks like a fall, so that is no quiet time. Or records come for partitions that stand still.

    Args:
        sizing: what the policy answers.
        before: replicas that were wanted, within today's bounds.
        estimate: of the group.
        group: as it is.
    """
    owners = {entry.owner for entry in estimate.partitions.values()}
    unheard = [member for member, entry in estimate.members.items() if entry.age_seconds is None and member in owners]
    fewer = sizing.replicas < before or sizing.reason in (Reason.STABILIZING, Reason.RETURNING)
    if sizing.reason is Reason.FIXED or not fewer:
        return sizing
    if estimate.capacity_known and not unheard:
        return _for_kept_out(sizing, before, estimate, group)
    replicas = max(before, sizing.replicas)
    why = blind(dict.fromkeys(unheard), {}, group) if unheard else "nobody knows when records are done"
    return structs.replace(
        sizing,
        replicas=replicas,
        reason=Reason.BLIND if unheard else Reason.UNTOLD,
        text=f"{sizing.text}; but {why}, so it will not be fewer",
        state=structs.replace(sizing.state.interrupted() if unheard else sizing.state, wanted=replicas),
    )


def _for_kept_out(sizing: Sizing, before: int, estimate: Estimate, group: GroupState) -> Sizing:
    """Keep replicas for what comes for partitions that are paused or blocked.

    More could not help now, so these partitions are out of sizing. But their records are to be done when they go on. A
    group that had shrunk meanwhile would begin with the fewest replicas, and with the most that waits.

    They may stand for good. So what waits counts for nothing, and what comes for no more than its part of the load.
    """
    stand = estimate.kept_out
    if not stand:
        return sizing
    units = [unit for unit in units_of(group) if not unit.leaving]
    capacity = sum(estimate.members[member].capacity for unit in units for member in unit.members) / len(units)
    work = sum(entry.work for entry in estimate.partitions.values()) + AGAIN * sum(stand.values())
    least = min(before, math.ceil(work / capacity))
    considered = min(sizing.replicas, *(plan.replicas for plan in sizing.rejected), before)
    if least == before > considered:
        state = sizing.state.interrupted()  # what came was not seen as load, so that was no quiet time
    elif sizing.replicas < least:
        state = sizing.state
    else:
        return sizing
    replicas, count = max(least, sizing.replicas), len(stand)
    what = f"{count} partition{'s' if count > 1 else ''} that {'are' if count > 1 else 'is'} paused or blocked"
    return structs.replace(
        sizing,
        replicas=replicas,
        reason=Reason.KEPT_OUT,
        text=f"{sizing.text}; but records come for {what}, so it will not be fewer than {replicas}",
        state=structs.replace(state, wanted=replicas),
    )
