"""CLOSER'24, algorithm 2: least-loaded packing with factors for up and down, planned for the lag of a rebalance.

First UP, DOWN or REASSIGN is decided by packing the present lag and rate; then the packing of
``lag + rate x t_r`` says how many.

Parameters (``PlanConfig.parameters``), defaults as published: ``mu`` (records/s per member; the paper's set-up: 200;
default: measured), ``f_up`` 0.9, ``f_down`` 0.4, ``rebalance_seconds`` 0.05,
``cooldown_seconds`` 0 after any scale action (the authors' runs: 10), ``corrected`` 1, ``sampled_lag`` 0. With
``corrected`` 0 a DOWN may ask for *more* replicas in its second pass, as in the authors' runs; the corrected form
requires it to ask for fewer.

Which lag? The authors' scaler sampled it once a second, at a moment that drifted through the one-second bursts of
their load, so that it met each burst and each pause between bursts sooner or later. Here UP and REASSIGN look at the
lag just after a usual burst and DOWN at the fewest records that waited in the last interval, which is what such a
sampler ends up doing whatever its phase. ``sampled_lag`` 1: the lag when the member reported, for both.

Source: *Tail-Latency Aware and Resource-Efficient Bin Pack Autoscaling for Distributed Event Queues*, CLOSER 2024,
section 4. Changed: mu is the capacity of a typical member over the measured cost of a record, not a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...records import RejectedPlan
from ..packers.least_loaded import BinSize, bin_size, least_loaded
from ..packers.problem import Item
from ..values import Reason, Sizing
from .base import View

__all__ = ["Closer24"]

F_UP = 0.9
F_DOWN = 0.4
REBALANCE_SECONDS = 0.05
COOLDOWN_SECONDS = 0.0


class Closer24:
    """The policy ``closer24``."""

    name = "closer24"
    parameters = frozenset(
        {"mu", "f_up", "f_down", "rebalance_seconds", "cooldown_seconds", "corrected", "sampled_lag"}
    )

    def decide(self, view: View) -> Sizing:
        """See :class:`.base.Policy`."""
        parameters = view.config.parameters
        memory = dict(view.memory)
        wanted = view.bounded(round(memory.get("wanted", view.replicas)))
        up_at = parameters.get("f_up", F_UP)
        sizing = self._decide(view, wanted, up_at)
        since = memory.get("scaled_at")
        cooldown = parameters.get("cooldown_seconds", COOLDOWN_SECONDS)
        if sizing.replicas != wanted and since is not None and view.now - since <= cooldown:
            sizing = replace(
                sizing,
                replicas=wanted,
                reason=Reason.PATIENCE,
                place=False,
                text=f"{sizing.text}; but the last scaling was {view.now - since:.1f} s ago",
                rejected=(RejectedPlan(replicas=sizing.replicas, reason="cool-down"),),
            )
        # The assignment that goes with a scale-up is made when the new members are there.
        if sizing.replicas != wanted:
            memory["scaled_at"] = view.now
            memory["assign_at"] = float(sizing.replicas)
        arrived = view.replicas == round(memory.get("assign_at", -1.0))
        if arrived:
            memory.pop("assign_at")
        memory["wanted"] = float(sizing.replicas)
        rebalance = parameters.get("rebalance_seconds", REBALANCE_SECONDS)
        return replace(sizing, place=sizing.place or arrived, fill=up_at, extra_lag_seconds=rebalance, memory=memory)

    def _decide(self, view: View, wanted: int, f_up: float) -> Sizing:
        parameters = view.config.parameters
        rebalance = parameters.get("rebalance_seconds", REBALANCE_SECONDS)
        corrected = parameters.get("corrected", 1.0) != 0
        sampled = parameters.get("sampled_lag", 0.0) != 0
        high = view.items if sampled else [replace(item, lag=item.lag_high) for item in view.items]
        low = view.items if sampled else [replace(item, lag=item.lag_low) for item in view.items]
        up = _size(view, f_up)
        down = _size(view, parameters.get("f_down", F_DOWN))
        count_up = _count(view, high, up, 0.0)
        rates = f"{sum(i.rate for i in view.items):.0f} records/s arrive, {sum(i.lag for i in view.items)} wait"
        if count_up > wanted or (_violated(high, up) and _count(view, low, down, 0.0) >= wanted):
            count = _count(view, high, up, rebalance)
            if count > wanted:
                text = f"{rates}; packed with the lag of a rebalance they need {count}"
                return Sizing(
                    replicas=count,
                    reason=Reason.NEEDS_MORE,
                    text=text,
                    place=False,
                    rejected=(RejectedPlan(replicas=wanted, reason=f"does not take {f_up:.0%} of a member's limits"),),
                )
            return Sizing(replicas=wanted, reason=Reason.PLACEMENT, text=f"{rates}; a member is over its limits")
        if _count(view, low, down, 0.0) < wanted:
            count = _count(view, low, down, rebalance)
            if count < wanted or (not corrected and count > wanted):
                text = f"{rates}; with the lower limits and the lag of a rebalance they need {count}"
                reason = Reason.NEEDS_LESS if count < wanted else Reason.NEEDS_MORE
                return Sizing(
                    replicas=count,
                    reason=reason,
                    text=text,
                    rejected=(RejectedPlan(replicas=wanted, reason="more than is needed"),),
                )
        return Sizing(replicas=wanted, reason=Reason.FITS, text=f"{rates}; they fit", place=False)


def _size(view: View, fill: float) -> BinSize:
    capacity = view.capacity(view.replicas) / view.replicas if view.replicas else view.estimate.capacity_typical
    return bin_size(view.items, capacity, view.config.objective_seconds, fill, view.config.parameters.get("mu"))


def _count(view: View, items: Sequence[Item], size: BinSize, extra_lag_seconds: float) -> int:
    packed = least_loaded(items, size, extra_lag_seconds, bins_max=view.replicas_max)
    return view.bounded(len(packed))


def _violated(items: Sequence[Item], size: BinSize) -> bool:
    """Is some member, as things are, over the limits of a bin?"""
    rates: dict[str, float] = {}
    lags: dict[str, int] = {}
    for item in items:
        if item.owner is not None:
            rates[item.owner] = rates.get(item.owner, 0.0) + item.rate
            lags[item.owner] = lags.get(item.owner, 0) + item.lag
    return any(rate > size.rate for rate in rates.values()) or any(lag > size.lag for lag in lags.values())
