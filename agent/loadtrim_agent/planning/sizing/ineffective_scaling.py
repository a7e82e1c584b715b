"""Ineffective scaling: replicas that brought no throughput are not asked for again for some time.

It is judged only where the group was saturated before and after: then something else is the bottleneck. Records are
counted over the time for which the group was saturated before the replicas were there, and since then. Few records tell
little. So replicas are found to be of no use only where less is done than if each did its part, and by more than
chance. The time is 5 minutes, doubling up to an hour; as many replicas as there were then still are asked for.
"""

from __future__ import annotations

import math

from msgspec import field, structs

from ..falling_behind import GROWTH_SDS
from ..policy_state import DIGITS, StatePart
from .policy import View

__all__ = ["ScalingEffect", "before_up", "watch"]

SETTLE_SECONDS = 5.0
"""New replicas are given this time before their effect is judged. Chosen."""
EFFECT_SHARE = 0.3
"""Of the throughput that new replicas should add: with less than this they were ineffective. Chosen."""
SECONDS = 300.0
SECONDS_MAX = 3600.0
BEGIN_SECONDS = SECONDS
"""The judgement waits so long at most for members that have done nothing yet. Derived: to judge too early costs so many
seconds without more replicas, so to wait for longer would cost more than it can save."""
WHOLE_RECORDS = 1.0 / 6.0
"""Variance of a member's count for the records that it has in hand at the beginning and at the end. Derived: each is
done to a part that is anything between 0 and 1 alike."""


class ScalingEffect(StatePart, frozen=True, kw_only=True):
    """What is remembered to judge whether replicas helped."""

    full_since: float | None = None
    """Since when the group has been saturated, with as many replicas as there are; None: it is not."""
    full_replicas: int | None = None
    """Number of these replicas."""
    up_from: int | None = None
    """Replicas before an up of a saturated group; None: no effect is to be judged."""
    up_rate: float | None = None
    """Records that they did, per second."""
    up_seconds: float | None = None
    """For so long that was counted."""
    up_since: float | None = None
    """Since when there have been more replicas, which may not all have begun yet; None: there are no more."""
    up_there_at: float | None = None
    """When every member was at work after it; None: not yet."""
    ineffective_until: float | None = field(name="futile_until", default=None)
    """Until when no more replicas are asked for."""
    ineffective_seconds: float | None = field(name="futile_seconds", default=None)
    """For how long the next time; None: as at first."""
    ineffective_replicas: int | None = field(name="futile_replicas", default=None)
    """How many replicas there were when the last of them brought nothing."""


def before_up(view: View, state: ScalingEffect) -> ScalingEffect:
    """Return the state with what has to be known to judge later whether the replicas helped."""
    if not _is_saturated(view):
        return _judged(state)
    if state.up_from is not None and view.replicas > state.up_from:
        return structs.replace(state, up_there_at=None)  # judged together with those that are not judged yet
    return _before(view, structs.replace(state, up_from=view.replicas, up_since=None, up_there_at=None))


def _is_saturated(view: View) -> bool:
    return view.estimate.backlog + view.estimate.late >= view.config.sla_seconds * view.capacity(view.replicas)


def _judged(state: ScalingEffect) -> ScalingEffect:
    return structs.replace(state, up_from=None, up_rate=None, up_seconds=None, up_since=None, up_there_at=None)


def _full(view: View, state: ScalingEffect) -> ScalingEffect:
    """Return the state with the time since when the group is saturated, and has as many replicas.

    What is counted after an up begins anew as well: some that were asked for may have come later than others.
    """
    if not _is_saturated(view):
        return structs.replace(state, full_since=None, full_replicas=None)
    if state.full_since is not None and state.full_replicas == view.replicas:
        return state
    return structs.replace(state, full_since=view.now, full_replicas=view.replicas, up_there_at=None)


def _before(view: View, state: ScalingEffect) -> ScalingEffect:
    """Return the state with what is done while the replicas that were asked for are not there.

    Counted since the group is saturated, and some seconds at least: less that was done before makes no replica useless.
    """
    since = view.now - SETTLE_SECONDS
    records, seconds = _counted(view, since if state.full_since is None else min(state.full_since, since))
    rate = round(records / seconds, DIGITS) if seconds > 0.0 else 0.0
    return structs.replace(state, up_rate=rate, up_seconds=seconds)


def _counted(view: View, since: float) -> tuple[int, float]:
    """Return the records that were done since then, as far as is remembered, and in how many seconds."""
    past = [second for second in view.estimate.past if second.at > int(since)]
    return sum(second.done for second in past), past[-1].at - past[0].at + 1.0 if past else 0.0


def watch(view: View, state: ScalingEffect) -> tuple[ScalingEffect, int]:
    """Judge the last up, when it is time to.

    Only where the group was saturated before and after, and every member is at work. Under other protocols than ours it
    takes seconds until a new one is given a partition. Its first record may take far longer than others. What chance
    may explain is counted for as long as before the up; that it is not known then ends it.

    Returns:
        The state, and how many replicas there were when the last of them brought no throughput; 0: none such is known.
    """
    state = _full(view, state)
    if view.now < (state.ineffective_until or 0.0):
        # A leader of an older version has left the time alone.
        return state, view.replicas if state.ineffective_replicas is None else state.ineffective_replicas
    start = state.up_from
    if start is None:
        return state, 0
    if view.replicas <= start:
        return _before(view, state), 0
    if state.up_since is None:
        state = structs.replace(state, up_since=view.now)
    if state.up_there_at is None and ((_all_own(view) and _all_began(view)) or _has_waited(view, state)):
        state = structs.replace(state, up_there_at=view.now)
    if state.up_there_at is None or view.now - state.up_there_at < SETTLE_SECONDS:
        return state, 0
    records, seconds = _counted(view, state.up_there_at)
    before, more = (state.up_rate or 0.0) * seconds, view.replicas / start
    if not _is_saturated(view) or records >= before * (1.0 + EFFECT_SHARE * (more - 1.0)):
        return structs.replace(_judged(state), ineffective_seconds=None), 0
    if before * more - records <= GROWTH_SDS * _error(view, state, start, seconds):
        return (_judged(state) if seconds >= (state.up_seconds or 0.0) else state), 0
    return _found(view, _judged(state)), view.replicas


def _error(view: View, state: ScalingEffect, start: int, seconds: float) -> float:
    """Return the standard error of the records that are missing after so long, where each replica does its part.

    What a full member does varies by whole records, and by the variance of a record's cost over the square of its mean.

    Source: renewal theory.
    """
    estimate, before = view.estimate, state.up_seconds or 1.0
    varies = max(0.0, (estimate.grain + estimate.dispersion) / estimate.cost - 1.0) if estimate.cost > 0.0 else 0.0
    rate, more, whole = state.up_rate or 0.0, view.replicas / start, WHOLE_RECORDS * view.members_per_replica
    now = varies * rate * more * seconds + whole * view.replicas
    then = varies * rate * before + whole * start
    return math.sqrt(now + then * (more * seconds / before) ** 2)


def _found(view: View, state: ScalingEffect) -> ScalingEffect:
    """Return the state in which no more replicas than there are are asked for, for longer each time."""
    seconds = SECONDS if state.ineffective_seconds is None else state.ineffective_seconds
    return structs.replace(
        state,
        ineffective_until=view.now + seconds,
        ineffective_seconds=min(2.0 * seconds, SECONDS_MAX),
        ineffective_replicas=view.replicas,
    )


def _all_own(view: View) -> bool:
    """Does every member own something, as far as there are partitions? What is on its way has no owner yet."""
    members = view.replicas * view.members_per_replica
    owners = {item.owner for item in view.items if item.owner is not None and item.movable}
    return len(owners) >= min(members, len(view.items))


def _all_began(view: View) -> bool:
    """Return whether every member has done a record, as far as some wait for it; it may be blocked until its first."""
    waiting = {entry.owner for entry in view.estimate.partitions.values() if entry.lag > 0}
    return all(entry.has_begun for member, entry in view.estimate.members.items() if member in waiting)


def _has_waited(view: View, state: ScalingEffect) -> bool:
    """Return whether the first of them have been there for so long; of later ones no more is known."""
    return state.up_since is not None and view.now - state.up_since >= BEGIN_SECONDS
