"""Ineffective scaling: replicas that brought no throughput are not asked for again for some time.

It is judged only where the group was saturated before and after: then something else is the bottleneck. The time is 5
minutes, doubling up to an hour; as many replicas as there were then still are asked for.
"""

from __future__ import annotations

from msgspec import field, structs

from ..policy_state import DIGITS, StatePart
from .policy import View

__all__ = ["ScalingEffect", "before_up", "watch"]

SETTLE_SECONDS = 5.0
"""New replicas are given this time before their effect is judged. Chosen."""
EFFECT_SHARE = 0.3
"""Of the throughput that new replicas should add: with less than this they were ineffective. Chosen."""
SECONDS = 300.0
SECONDS_MAX = 3600.0
THROUGHPUT_WEIGHT = 0.3
"""Weight of the newest throughput in the smoothed one. Chosen."""


class ScalingEffect(StatePart, frozen=True, kw_only=True):
    """What is remembered to judge whether replicas helped."""

    done_rate: float | None = None
    """Records done per second, smoothed."""
    up_from: int | None = None
    """Replicas before an up of a saturated group; None: no effect is to be judged."""
    up_rate: float | None = None
    """``done_rate`` before it."""
    up_there_at: float | None = None
    """When every member owned something after it; None: not yet."""
    ineffective_until: float | None = field(name="futile_until", default=None)
    """Until when no more replicas are asked for."""
    ineffective_seconds: float | None = field(name="futile_seconds", default=None)
    """For how long the next time; None: as at first."""
    ineffective_replicas: int | None = field(name="futile_replicas", default=None)
    """How many replicas there were when the last of them brought nothing."""


def before_up(view: View, state: ScalingEffect) -> ScalingEffect:
    """Return the state with what has to be known to judge later whether the replicas helped."""
    estimate = view.estimate
    saturated = estimate.backlog + estimate.late >= view.config.sla_seconds * view.capacity(view.replicas)
    if not saturated:
        return _judged(state)
    rate = estimate.throughput if state.done_rate is None else state.done_rate
    return structs.replace(state, up_from=view.replicas, up_rate=rate, up_there_at=None)


def _judged(state: ScalingEffect) -> ScalingEffect:
    return structs.replace(state, up_from=None, up_rate=None, up_there_at=None)


def watch(view: View, state: ScalingEffect) -> tuple[ScalingEffect, int]:
    """Judge the last up, when it is time to.

    Only where the group was saturated before and after, and every member has something to do: under other protocols
    than ours it takes seconds until a new one is given a partition.

    Returns:
        The state, and how many replicas there were when the last of them brought no throughput; 0: none such is known.
    """
    done = view.estimate.throughput
    smoothed = (1.0 - THROUGHPUT_WEIGHT) * (done if state.done_rate is None else state.done_rate)
    done_rate = round(smoothed + THROUGHPUT_WEIGHT * done, DIGITS)
    state = structs.replace(state, done_rate=done_rate)
    if view.now < (state.ineffective_until or 0.0):
        # A leader of an older version has left the time alone.
        return state, view.replicas if state.ineffective_replicas is None else state.ineffective_replicas
    start, rate = state.up_from, state.up_rate or 0.0
    if start is None or view.replicas <= start:
        return state, 0
    if state.up_there_at is None and _all_own(view):
        state = structs.replace(state, up_there_at=view.now)
    if state.up_there_at is None or view.now - state.up_there_at < SETTLE_SECONDS:
        return state, 0
    state = _judged(state)
    backlog = view.estimate.backlog + view.estimate.late
    should = rate * (1.0 + EFFECT_SHARE * (view.replicas / start - 1.0)) if start else 0.0
    if backlog < view.config.sla_seconds * view.capacity(view.replicas) or done_rate >= should:
        return structs.replace(state, ineffective_seconds=None), 0
    seconds = SECONDS if state.ineffective_seconds is None else state.ineffective_seconds
    state = structs.replace(
        state,
        ineffective_until=view.now + seconds,
        ineffective_seconds=min(2.0 * seconds, SECONDS_MAX),
        ineffective_replicas=view.replicas,
    )
    return state, view.replicas


def _all_own(view: View) -> bool:
    """Does every member own something, as far as there are partitions? What is on its way has no owner yet."""
    members = view.replicas * view.members_per_replica
    owners = {item.owner for item in view.items if item.owner is not None and item.movable}
    return len(owners) >= min(members, len(view.items))
