"""FLAS, its reactive half: one replica more or less when the response time is above or below a threshold for a while.

The response time is the mean time from a record's time stamp until it was done, over the last ``metric_seconds``.
Above ``upper_seconds`` in ``up_notes`` looks in a row: one more. Below ``lower_seconds`` in ``down_notes`` looks: one
less.

Source: Rampérez, Soriano, Lizcano and Lara, *FLAS: a combination of proactive and reactive auto-scaling architecture
for distributed services*, as described and used in Li & Ku: two fixed thresholds, an SLA of 500 ms, reactW of 2.
Changed: the upper threshold is the objective W; what neither text at hand gives is chosen here: a lower threshold of
a fifth of it, steps of one, and the cool-down of Li & Ku's own scaler. In Li & Ku its condition for going down hardly
ever held.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, structs

from ...history import latency_seconds
from ...parameters import Parameters, Positive
from ...sizing.policy import Measure, View
from ...values import Reason, Sizing
from .shared import Cooldown, PaperState, cooling, held, sized, wanted

__all__ = ["Flas"]

LOWER_SHARE = 0.2


class FlasParameters(Parameters, frozen=True, kw_only=True):
    """Li & Ku's experiments, as far as they are told."""

    upper_seconds: (
        Annotated[Positive, Meta(description="response time above which one is added (default: W)")] | None
    ) = None
    lower_seconds: (
        Annotated[Positive, Meta(description="response time below which one goes (default: W / 5)")] | None
    ) = None
    up_notes: Annotated[int, Meta(ge=1, le=100, description="reactW: looks in a row above")] = 2
    down_notes: Annotated[int, Meta(ge=1, le=100, description="looks in a row below")] = 2
    metric_seconds: Annotated[Positive, Meta(description="the mean is over so many seconds")] = 2.0
    cooldown_seconds: Cooldown = 10.0

    def __post_init__(self) -> None:
        if None not in (self.lower_seconds, self.upper_seconds) and not self.lower_seconds < self.upper_seconds:  # type: ignore[operator]
            raise ValueError(
                f"lower_seconds ({self.lower_seconds:g}) is not below upper_seconds ({self.upper_seconds:g})"
            )


class FlasState(PaperState, frozen=True, kw_only=True):
    """What FLAS remembers."""

    above: int | None = None
    """Looks in a row above the upper threshold; None: the last one was not."""
    below: int | None = None
    """Looks in a row below the lower threshold; None: the last one was not."""


class Flas:
    """The policy ``flas``."""

    name = "flas"
    needs = frozenset({Measure.LATENCY})
    kind = FlasParameters
    state = FlasState

    def __init__(self, given: FlasParameters | None = None) -> None:
        self._given = given or FlasParameters()

    def decide(self, view: View, state: FlasState) -> Sizing:
        """See :class:`...sizing.policy.Policy`."""
        given = self._given
        upper = given.upper_seconds or view.config.sla_seconds
        lower = min(given.lower_seconds or LOWER_SHARE * upper, upper)
        if (left := cooling(view, state, given.cooldown_seconds)) > 0:
            return held(
                view, state, Reason.STABILIZING, f"the cool-down after the last scaling takes {left:.0f} s more"
            )
        response, before = latency_seconds(view.estimate.past, given.metric_seconds), wanted(view, state)
        if response is None:
            return held(view, state, Reason.NOT_READY, "nothing was done lately, so there is no response time")
        above = (state.above or 0) + 1 if response > upper else 0
        below = (state.below or 0) + 1 if response < lower else 0
        state = structs.replace(state, above=None, below=None)
        text = f"a record takes {response:.3g} s"
        if above >= given.up_notes:
            return sized(view, state, before + 1, f"{text}, more than {upper:g} s {above} times in a row")
        if below >= given.down_notes:
            return sized(view, state, before - 1, f"{text}, less than {lower:g} s {below} times in a row")
        state = structs.replace(state, above=above or None, below=below or None)
        return sized(view, state, before, f"{text}; one more above {upper:g} s, one less below {lower:g} s")
