"""KEDA's scaler for Kafka: ``ceil(lag / lag_threshold_records)`` through Kubernetes' HPA.

The lag is an external metric with a target per replica, so tolerance, windows and steps are the HPA's (:mod:`.hpa`).
Every ``polling_seconds`` it is looked at whether the scaler is active: with no more than ``activation_lag_records``
waiting for ``cooldown_seconds`` the group goes down to ``LOADTRIM_MIN_REPLICAS`` at once. That drop is ours, in the
place of KEDA's to 0: one member at least has to stay here, for without members there is no leader to wake the group. In
KEDA the cool-down means the way from 1 to 0 alone; with a ``minReplicaCount`` of 1 or more only the HPA makes the group
smaller, which is what a ``cooldown_seconds`` that never passes (1e9) does here.

Source: KEDA, *Scaling Deployments* and *Apache Kafka* scaler (idle consumers not allowed: never more replicas than
partitions). Polling 5 s and threshold 290, five times what a consumer does in a second, as in Li & Ku; KEDA's own
defaults are 30 s and 10.
"""

from __future__ import annotations

import math
from typing import Annotated

from msgspec import Meta, structs

from ...parameters import Amount, Positive, Seconds
from ...sizing.policy import Measure, View
from ...values import Sizing
from .hpa import HpaParameters, HpaState, recommend, unsynced
from .shared import is_due, sized, wanted

__all__ = ["Keda"]


class KedaParameters(HpaParameters, frozen=True, kw_only=True):
    """Li & Ku's experiments."""

    lag_threshold_records: Annotated[Positive, Meta(description="records that may wait per replica")] = 290.0
    activation_lag_records: Annotated[Amount, Meta(description="with no more waiting it is inactive")] = 0.0
    polling_seconds: Annotated[Positive, Meta(description="how often it is looked whether it is active")] = 5.0
    cooldown_seconds: Annotated[Seconds, Meta(description="inactive for so long: to the least (KEDA: to 0)")] = 300.0


class KedaState(HpaState, frozen=True, kw_only=True):
    """What KEDA's scaler remembers."""

    polled_at: float | None = None
    """When it was looked at last whether the scaler is active."""
    idle_since: float | None = None
    """Since when it has been inactive, as of the last poll; None: it is active."""


class Keda:
    """The policy ``keda``."""

    name = "keda"
    needs = frozenset({Measure.LAG})
    kind = KedaParameters
    state = KedaState

    def __init__(self, given: KedaParameters | None = None) -> None:
        self._given = given or KedaParameters()

    def decide(self, view: View, state: KedaState) -> Sizing:
        """See :class:`...sizing.policy.Policy`."""
        given = self._given
        state = self._polled(view, state)
        idle = None if state.idle_since is None else view.now - state.idle_since
        if idle is not None and idle >= given.cooldown_seconds:
            text = f"{given.activation_lag_records:g} records or fewer have waited for {idle:.0f} s"
            return sized(view, state, view.replicas_min, text)
        if (waiting := unsynced(view, state, given)) is not None:
            return waiting
        before, lag = wanted(view, state), view.lag
        desired = math.ceil(lag / given.lag_threshold_records)
        if abs(lag / (given.lag_threshold_records * before) - 1.0) <= given.tolerance:
            desired = before
        text = f"{lag} records wait, {given.lag_threshold_records:g} may per replica"
        return recommend(view, state, given, desired, text)

    def _polled(self, view: View, state: KedaState) -> KedaState:
        """The state after a poll, where one is due."""
        if not is_due(view, state.polled_at, self._given.polling_seconds):
            return state
        idle_since = view.now if state.idle_since is None else state.idle_since
        active = view.lag > self._given.activation_lag_records
        return structs.replace(state, polled_at=view.now, idle_since=None if active else idle_since)
