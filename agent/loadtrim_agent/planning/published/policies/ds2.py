"""DS2-modern: arrival rate over true processing rate, the records that a replica does per useful second.

* ``ds2_modern``          ``ceil(ceil(arrival rate / true processing rate) x (1 + overprovisioning))``, each time the
  cool-down is over. The inner one is DS2's, whose answer is a whole number; the outer one is the thesis'.
* ``ds2_modern_adapted``  the same, but up only while the event-time lag (the age of the oldest record that is not
  done, the mean over the partitions) is above ``up_lag_seconds``, and down only while it is below
  ``down_lag_seconds``.

Source: Koper'22, sections 3.5 (equation 3.7) and 4.6 (over-provisioning of 0, 33 and 66 %); Kalavri et al., *Three
steps is all you need*, 2018. Changed: a group of consumers is one operator; the true processing rate is capacity over
measured cost, which is records over busy seconds; the arrival rate is that of the last 60 s, of which the thesis does
not tell. As run its adapted form computed a correction for the lag and never added it: nor does this.
``cooldown_from_change`` 1: the cool-down counts from when replicas have come or gone, as it did in the thesis' runs.
"""

from __future__ import annotations

import math
from typing import Annotated

from msgspec import Meta, structs

from ...parameters import Amount, Mu, Parameters, Positive, Seconds
from ...sizing.policy import Measure, View
from ...values import Reason, Sizing
from .shared import (
    Cooldown,
    FromChange,
    WatchingState,
    held,
    sized,
    still_cooling,
    wanted,
)

__all__ = ["DS2", "Ds2"]


class Ds2Parameters(Parameters, frozen=True, kw_only=True):
    """The thesis' experiments; the over-provisioning in the middle."""

    mu: Mu | None = None
    overprovisioning: Annotated[Amount, Meta(description="so much more than needed")] = 0.33
    rate_seconds: Annotated[Positive, Meta(description="the arrival rate is that of so many last seconds")] = 60.0
    cooldown_seconds: Cooldown = 240.0
    cooldown_from_change: FromChange = False


class Ds2AdaptedParameters(Ds2Parameters, frozen=True, kw_only=True):
    """The same with its thresholds."""

    up_lag_seconds: Annotated[Seconds, Meta(description="age of the oldest record above which it may grow")] = 5.0
    down_lag_seconds: Annotated[Seconds, Meta(description="age of the oldest record below which it may shrink")] = 1.0


DS2: dict[str, type[Ds2Parameters]] = {"ds2_modern": Ds2Parameters, "ds2_modern_adapted": Ds2AdaptedParameters}


class Ds2:
    """One of :data:`DS2`."""

    state = WatchingState

    def __init__(self, name: str, given: Ds2Parameters | None = None) -> None:
        self.name = name
        self.kind = DS2[name]
        self._given = given or self.kind()
        self.needs = frozenset({Measure.RATES, Measure.SERVICE_RATE})
        if self.kind is Ds2AdaptedParameters:
            self.needs |= {Measure.LAG_SECONDS}

    def decide(self, view: View, state: WatchingState) -> Sizing:
        """See :class:`...sizing.policy.Policy`."""
        given = self._given
        state = structs.replace(state, change=state.change.seen(view))
        if (left := still_cooling(view, state, given.cooldown_seconds, given.cooldown_from_change)) > 0:
            return held(
                view, state, Reason.STABILIZING, f"the cool-down after the last scaling takes {left:.0f} s more"
            )
        mu, rate, before = view.service_rate(given.mu), view.arrival_rate(given.rate_seconds), wanted(view, state)
        if mu is None or rate is None:
            return held(view, state, Reason.NOT_READY, "nothing was done yet, so what a record costs is not known")
        count = view.bounded(math.ceil(rate / mu - 1e-9) * (1.0 + given.overprovisioning))
        text = f"{rate:.0f} records/s arrive, a replica does {mu:.0f}, {given.overprovisioning:.0%} are kept free"
        if isinstance(given, Ds2AdaptedParameters) and count != before:
            age = view.lag_seconds
            if count > before and age <= given.up_lag_seconds:
                why = f"{text}; but the oldest records have waited for {age:.2g} s only"
                return held(view, state, Reason.STABILIZING, why, count)
            if count < before and age >= given.down_lag_seconds:
                why = f"{text}; but the oldest records have waited for {age:.2g} s"
                return held(view, state, Reason.STABILIZING, why, count)
        return sized(view, state, count, text)
