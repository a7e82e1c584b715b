"""Over-provisioned: as many as the peak needs, all the time.

The peak is told (``peak_records_per_second``), and spread evenly over the partitions; least-loaded packing with
``f_up`` of a member filled says how many. Without it: as many as there can be.

Source: CLOSER'24, section 5.1, "Implementing overprovisioning experiments".
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, structs

from ...parameters import Fill, Mu, Parameters, Positive
from ...sizing.policy import Measure, View
from ...values import Reason, Sizing
from .packing import member_size, opened
from .shared import PaperState, held, sized

__all__ = ["Overprovisioned"]


class OverprovisionedParameters(Parameters, frozen=True, kw_only=True):
    """As published; the peak is the user's to tell."""

    peak_records_per_second: (
        Annotated[Positive, Meta(description="most that ever arrives in the group (default: as many as can be)")] | None
    ) = None
    mu: Mu | None = None
    f_up: Annotated[Fill, Meta(description="share of a member that is filled")] = 0.9


class OverprovisionedState(PaperState, frozen=True, kw_only=True):
    """What over-provisioning remembers."""

    most: int | None = None
    """The most replicas that the peak has asked for."""


class Overprovisioned:
    """The policy ``overprovisioned``."""

    name = "overprovisioned"
    needs = frozenset({Measure.SERVICE_RATE})
    kind = OverprovisionedParameters
    state = OverprovisionedState

    def __init__(self, given: OverprovisionedParameters | None = None) -> None:
        self._given = given or OverprovisionedParameters()

    def decide(self, view: View, state: OverprovisionedState) -> Sizing:
        """See :class:`...sizing.policy.Policy`."""
        given = self._given
        peak = given.peak_records_per_second
        if peak is None:
            return structs.replace(
                sized(view, state, view.replicas_max, "as many as there can be, for no peak is told"),
                reason=Reason.FIXED,
            )
        if view.service_rate(given.mu) is None:
            return held(view, state, Reason.NOT_READY, "nothing was done yet, so what a record costs is not known")
        items = [structs.replace(item, rate=peak / len(view.items), lag=0) for item in view.items]
        count = opened(view, items, member_size(view, given.f_up, given.mu))
        # A capacity that is measured a little less or more is no reason to scale.
        count = max(count, 1 if state.most is None else state.most)
        state = structs.replace(state, most=count)
        return structs.replace(sized(view, state, count, f"for a peak of {peak:g} records/s"), reason=Reason.FIXED)
