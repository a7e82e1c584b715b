"""Kubernetes' horizontal pod autoscaler, as far as a metric's policy needs it: tolerance, windows, steps, rhythm.

Each ``sync_seconds`` a metric says how many replicas it wants; less than ``tolerance`` off is no change. Replicas
that were asked for and are not there yet count as idle on the way up, and not at all on the way down. Down goes to
the most that was wanted in the last ``down_window_seconds``; up by at most ``up_replicas`` or to ``1 + up_share``
times what there was ``up_period_seconds`` ago, whichever is more.

Source: Kubernetes, *Horizontal Pod Autoscaling* (algorithm details, default behaviour) and KEP-853; values as there.
"""

from __future__ import annotations

import math
from typing import Annotated

from msgspec import Meta, field, structs

from ...parameters import Amount, Parameters, Positive, Seconds
from ...sizing.policy import View
from ...values import Reason, Sizing
from .shared import PaperState, held, is_due, sized, wanted

__all__ = ["HpaParameters", "HpaState", "averaged", "recommend", "unsynced"]


class HpaParameters(Parameters, frozen=True, kw_only=True):
    """What is the same for all metrics; Kubernetes' defaults."""

    sync_seconds: Annotated[Positive, Meta(description="how often it looks")] = 15.0
    tolerance: Annotated[float, Meta(ge=0, lt=1, description="so far off the target is as good as on it")] = 0.1
    down_window_seconds: Annotated[Seconds, Meta(description="down to the most that was wanted for so long")] = 300.0
    up_replicas: Annotated[int, Meta(ge=0, le=100_000, description="most replicas added per period, or")] = 4
    up_share: Annotated[Amount, Meta(description="share of the replicas added per period, if that is more")] = 1.0
    up_period_seconds: Annotated[Positive, Meta(description="that period")] = 15.0


class HpaState(PaperState, frozen=True, kw_only=True):
    """What Kubernetes' autoscaler remembers."""

    synced_at: float | None = None
    """When it looked last."""
    asked: dict[int, float] = field(default_factory=dict)
    """Replicas -> when so many were asked for last. Invariant: within the window, and no larger number was later."""
    period_at: float | None = None
    """When the present period for going up began."""
    period_from: float | None = None
    """How many replicas were wanted then."""


def unsynced(view: View, state: HpaState, given: HpaParameters) -> Sizing | None:
    """Return the answer between two looks, as before; None: it is time to look."""
    if state.synced_at is None or is_due(view, state.synced_at, given.sync_seconds):
        return None
    left = state.synced_at + given.sync_seconds - view.now
    return held(view, state, Reason.FITS, f"looked at every {given.sync_seconds:g} s; {max(0.0, left):.0f} s left")


def averaged(view: View, state: HpaState, ratio: float, tolerance: float) -> int:
    """Return the replicas for a metric that is averaged over those that are there.

    Args:
        view: as given.
        state: as given.
        ratio: metric over target, the mean of the replicas that are there; may be negative.
        tolerance: of the ratio.
    """
    before = wanted(view, state)
    there = min(view.replicas, before)
    if abs(ratio - 1.0) <= tolerance:
        return before
    if ratio < 1.0 or there == before:
        return math.ceil(ratio * there - 1e-9)
    # Those on their way will take their part: they count as idle.
    rebalanced = ratio * there / before
    if rebalanced < 1.0 or abs(rebalanced - 1.0) <= tolerance:
        return before
    return math.ceil(rebalanced * before - 1e-9)


def recommend(view: View, state: HpaState, given: HpaParameters, desired: int, text: str) -> Sizing:
    """Return what becomes of a metric's answer.

    Args:
        view: as given.
        state: to be remembered; this look is added.
        given: parameters.
        desired: replicas that the metric (the largest of several) asks for.
        text: reads on from "4 replicas: ".
    """
    before, desired = wanted(view, state), view.bounded(desired)
    asked = _within((state.asked or {before: view.now}) | {desired: view.now}, view.now, given.down_window_seconds)
    state = structs.replace(state, synced_at=view.now, asked=asked)
    if desired < before:
        most = min(before, max(asked)) if given.down_window_seconds > 0 else desired
        if most > desired:
            text += f"; {desired} would do, but {most} were wanted in the last {given.down_window_seconds:.0f} s"
        return sized(view, state, most, text)
    if state.period_from is None or is_due(view, state.period_at, given.up_period_seconds):
        state = structs.replace(state, period_at=view.now, period_from=float(before))
    start = float(before) if state.period_from is None else state.period_from
    most = max(before, math.floor(max(start + given.up_replicas, start * (1.0 + given.up_share))))
    if desired > most:
        text += f"; {desired} at once are more than {given.up_period_seconds:g} s permit"
    return sized(view, state, min(desired, most), text)


def _within(asked: dict[int, float], now: float, seconds: float) -> dict[int, float]:
    """Per number the last time it was asked for is all that the most of a window needs; and only while it is in it."""
    return {
        count: at
        for count, at in asked.items()
        if now - at <= seconds and not any(other > count and later >= at for other, later in asked.items())
    }
