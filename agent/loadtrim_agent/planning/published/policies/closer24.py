"""CLOSER'24: least-loaded packing with factors for up and down.

* ``closer24``             algorithm 2: first UP, DOWN or REASSIGN is decided by packing the present lag and rate; then
  the packing of ``lag + rate x t_r``, with what a rebalance will add, says how many.
* ``closer24_algorithm_1`` algorithm 1: the packing of the present lag and rate decides and says how many.
* ``closer24_as_run``      algorithm 2 as the authors ran it: a DOWN may ask for *more* in its second pass (the guard in
  their code always holds), limits in whole records, ``sampled_lag``, 10 s of cool-down, nothing in the first 15 s.

Which lag? The authors' scaler sampled it once a second, at a moment that drifted through the one-second bursts of
their load, so that it met each burst and each pause between bursts sooner or later. Here UP and REASSIGN look at the
lag just after a usual burst and DOWN at the fewest records that waited in the last interval, which is what such a
sampler ends up doing whatever its phase. ``sampled_lag`` 1: the lag when the member reported, for both.

Who owns what goes by the packing that decided, and by its lag: into ``f_up`` of a member after UP and REASSIGN, into
``f_down`` after DOWN ("scale down by G less G_down"; packed into ``f_up`` the same load would leave some of those that
stay idle).

Source: *Tail-Latency Aware and Resource-Efficient Bin Pack Autoscaling for Distributed Event Queues*, CLOSER 2024,
section 4, algorithms 1 and 2, procedures 1 and 2. Changed: mu is the capacity of a typical member over the measured
cost of a record, not a constant (the paper's set-up: 200 records/s); rates are measured by the members, not told by the
producer.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, structs

from loadtrim_agent.wire.telemetry_records import RejectedPlan

from ...parameters import Fill, Mu, Parameters, Seconds
from ...sizing.policy import Measure, View
from ...values import LagMoment, Reason, Sizing
from ..packers.least_loaded import with_lag
from .packing import SampledLag, lag_after_burst, lag_before_burst, member_size, opened, violated
from .shared import Cooldown, PaperState, held, unknown_cost, wanted

__all__ = ["CLOSER24", "Closer24"]


class Closer24Parameters(Parameters, frozen=True, kw_only=True):
    """As published."""

    mu: Mu | None = None
    f_up: Annotated[Fill, Meta(description="share of a member that is filled on the way up")] = 0.9
    f_down: Annotated[Fill, Meta(description="share of a member that is filled on the way down")] = 0.4
    rebalance_seconds: Annotated[Seconds, Meta(description="t_r: how long a rebalance stops everything")] = 0.05
    cooldown_seconds: Cooldown = 0.0
    warmup_seconds: Annotated[Seconds, Meta(description="nothing is decided for this long at first")] = 0.0
    corrected: Annotated[bool, Meta(description="a DOWN never asks for more")] = True
    sampled_lag: SampledLag = False

    def __post_init__(self) -> None:
        if self.f_down >= self.f_up:
            raise ValueError(f"f_down is {self.f_down:g}, which is not below f_up ({self.f_up:g})")


class FirstParameters(Closer24Parameters, frozen=True, kw_only=True):
    """Of algorithm 1: the placement plans for the lag of no rebalance."""

    rebalance_seconds: Annotated[Seconds, Meta(description="planned for by the packer alone")] = 0.0


class Closer24AsRunParameters(Closer24Parameters, frozen=True, kw_only=True):
    """As in the authors' code."""

    sampled_lag: SampledLag = True
    cooldown_seconds: Cooldown = 10.0
    warmup_seconds: Annotated[Seconds, Meta(description="nothing is decided for this long at first")] = 15.0
    corrected: Annotated[bool, Meta(description="a DOWN never asks for more")] = False


class Closer24State(PaperState, frozen=True, kw_only=True):
    """What CLOSER'24 remembers."""

    fill: float | None = None
    """Share of a member that the last UP, DOWN or REASSIGN filled."""
    began_at: float | None = None
    """Time of the first decision."""
    assign_at: int | None = None
    """Replicas with which partitions are assigned anew; None: they were."""


class _Form(msgspec.Struct, frozen=True):
    kind: type[Closer24Parameters]
    plans_for_rebalance: bool = True
    whole_lag: bool = False
    """A member's limit of records that wait is rounded down."""


CLOSER24 = {
    "closer24": _Form(Closer24Parameters),
    "closer24_algorithm_1": _Form(FirstParameters, plans_for_rebalance=False),
    "closer24_as_run": _Form(Closer24AsRunParameters, whole_lag=True),
}


class Closer24:
    """One of :data:`CLOSER24`."""

    needs = frozenset({Measure.RATES, Measure.LAG, Measure.SERVICE_RATE})
    state = Closer24State

    def __init__(self, name: str, given: Closer24Parameters | None = None) -> None:
        self.name = name
        self._form = CLOSER24[name]
        self.kind = self._form.kind
        self._given = given or self.kind()

    def decide(self, view: View, state: Closer24State) -> Sizing:
        """See :class:`...sizing.policy.Policy`."""
        given = self._given
        if unknown_cost(view, given.mu):
            return held(view, state, Reason.NOT_READY, "nothing was done yet, so what a record costs is not known")
        before = wanted(view, state)
        sizing = self._decide(view, state, before)
        since, began = state.scaled_at, view.now if state.began_at is None else state.began_at
        why = ""
        if since is not None and view.now - since <= given.cooldown_seconds:
            why = f"the last scaling was {view.now - since:.1f} s ago"
        elif view.now - began < given.warmup_seconds:
            why = f"the first {given.warmup_seconds:g} s are left alone"
        if sizing.replicas != before and why:
            sizing = structs.replace(
                sizing,
                replicas=before,
                reason=Reason.STABILIZING,
                place=False,
                fill=self._last_fill(state),
                text=f"{sizing.text}; but {why}",
                rejected=(RejectedPlan(replicas=sizing.replicas, reason="cool-down" if since else "warm-up"),),
            )
        # The assignment that goes with a scale-up is made when the new members are there.
        assign_at = state.assign_at
        if sizing.replicas != before:
            since, assign_at = view.now, sizing.replicas
        arrived = view.replicas == assign_at
        state = structs.replace(
            state,
            wanted=sizing.replicas,
            fill=sizing.fill,
            scaled_at=since,
            began_at=began,
            assign_at=None if arrived else assign_at,
        )
        return structs.replace(
            sizing,
            place=sizing.place or arrived,
            lag=self._lag_of(sizing.fill),
            extra_lag_seconds=given.rebalance_seconds,
            state=state,
        )

    def _decide(self, view: View, state: Closer24State, before: int) -> Sizing:
        given = self._given
        high, low = (with_lag(view.items, self._lag_of(fill)) for fill in (given.f_up, given.f_down))
        up = member_size(view, given.f_up, given.mu, whole_lag=self._form.whole_lag)
        down = member_size(view, given.f_down, given.mu, whole_lag=self._form.whole_lag)
        rebalance = given.rebalance_seconds if self._form.plans_for_rebalance else 0.0
        beside = " with the lag of a rebalance" if self._form.plans_for_rebalance else ""
        count_up = opened(view, high, up)
        rates = f"{sum(i.rate for i in view.items):.0f} records/s arrive, {sum(i.lag for i in view.items)} wait"
        if count_up > before or (violated(high, up) and opened(view, low, down) >= before):
            count = opened(view, high, up, rebalance)
            if count > before:
                return Sizing(
                    replicas=count,
                    reason=Reason.NEEDS_MORE,
                    text=f"{rates}; packed{beside} they need {count}",
                    place=False,
                    fill=given.f_up,
                    rejected=(
                        RejectedPlan(replicas=before, reason=f"does not take {given.f_up:.0%} of a member's limits"),
                    ),
                )
            text = f"{rates}; a member is over its limits"
            return Sizing(replicas=before, reason=Reason.PLACEMENT, text=text, fill=given.f_up)
        if opened(view, low, down) < before:
            count = opened(view, low, down, rebalance)
            if count < before or (not given.corrected and count > before):
                return Sizing(
                    replicas=count,
                    reason=Reason.NEEDS_LESS if count < before else Reason.NEEDS_MORE,
                    text=f"{rates}; with the lower limits packed{beside} they need {count}",
                    fill=given.f_down,
                    rejected=(RejectedPlan(replicas=before, reason="more than is needed"),),
                )
        fill = self._last_fill(state)
        return Sizing(replicas=before, reason=Reason.FITS, text=f"{rates}; they fit", place=False, fill=fill)

    def _last_fill(self, state: Closer24State) -> float:
        """Of the last UP, DOWN or REASSIGN that was carried out."""
        return self._given.f_up if state.fill is None else state.fill

    def _lag_of(self, fill: float) -> LagMoment:
        """Return the moment whose lag a packing goes by that fills so much of a member."""
        is_down = fill == self._given.f_down
        return (lag_before_burst if is_down else lag_after_burst)(self._given.sampled_lag)
