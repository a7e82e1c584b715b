"""The linear autoscaler that CLOSER'24 compares with: ``ceil(sum of rates / (mu x f))``.

``f_up`` on the way up; what fits even with ``f_down`` on the way down; between the two nothing changes. It knows
nothing of partitions: who owns what is for the packer to say (in the paper Kafka's own sticky assignor, ``sticky``).

Source: CLOSER'24, section 5.1, "Comparison with a Linear Autoscaling Solution". Changed: mu is measured (the paper's:
200 records/s).
"""

from __future__ import annotations

import math
from typing import Annotated

from msgspec import Meta

from ...parameters import Fill, Mu, Parameters
from ...sizing.policy import Measure, View
from ...values import Reason, Sizing
from .shared import Cooldown, PaperState, cooling, held, sized, wanted

__all__ = ["Linear"]


class LinearParameters(Parameters, frozen=True, kw_only=True):
    """As published."""

    mu: Mu | None = None
    f_up: Annotated[Fill, Meta(description="share of a member that is filled on the way up")] = 0.9
    f_down: Annotated[Fill, Meta(description="share of a member that is filled on the way down")] = 0.4
    cooldown_seconds: Cooldown = 0.0

    def __post_init__(self) -> None:
        if self.f_down >= self.f_up:
            raise ValueError(f"f_down is {self.f_down:g}, which is not below f_up ({self.f_up:g})")


class Linear:
    """The policy ``linear``."""

    name = "linear"
    needs = frozenset({Measure.RATES, Measure.SERVICE_RATE})
    kind = LinearParameters
    state = PaperState

    def __init__(self, given: LinearParameters | None = None) -> None:
        self._given = given or LinearParameters()

    def decide(self, view: View, state: PaperState) -> Sizing:
        """See :class:`...sizing.policy.Policy`."""
        given = self._given
        mu, rate, before = view.service_rate(given.mu), view.estimate.rate, wanted(view, state)
        if mu is None:
            return held(view, state, Reason.NOT_READY, "nothing was done yet, so what a record costs is not known")
        up, down = math.ceil(rate / (mu * given.f_up)), math.ceil(rate / (mu * given.f_down))
        text = f"{rate:.0f} records/s arrive, a replica does {mu:.0f}"
        if up <= before <= down:
            return sized(view, state, before, f"{text}; that is enough, and not too much")
        if (left := cooling(view, state, given.cooldown_seconds)) > 0:
            return held(view, state, Reason.STABILIZING, f"{text}; the cool-down takes {left:.0f} s more")
        if up > before:
            return sized(view, state, up, f"{text}, {given.f_up:.0%} of which is used")
        return sized(view, state, down, f"{text}; {given.f_down:.0%} of that is enough")
