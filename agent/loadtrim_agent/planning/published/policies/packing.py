"""How many members a least-loaded packing opens, and whether one is over its limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from ...placement.problem import Item
from ...sizing.policy import View
from ...values import LagMoment
from ..packers.least_loaded import BinSize, bin_size, first_fit, least_loaded

__all__ = [
    "SampledLag",
    "lag_after_burst",
    "lag_before_burst",
    "member_size",
    "opened",
    "opened_in_one_pass",
    "violated",
]


SampledLag = Annotated[bool, Meta(description="the lag as reported, wherever in a burst that was")]


def member_size(view: View, fill: float, mu: float | None, *, whole_lag: bool = True) -> BinSize:
    """What a member takes: ``mu x fill`` records/s and ``mu x W x fill`` records that wait."""
    capacity = view.capacity(view.replicas) / view.replicas
    return bin_size(view.items, capacity, view.config.sla_seconds, fill, mu, whole_lag=whole_lag)


def opened(view: View, items: Sequence[Item], size: BinSize, extra_lag_seconds: float = 0.0) -> int:
    """Members that least-loaded packing opens, within the bounds."""
    packed = least_loaded(items, size, extra_lag_seconds, bins_max=view.replicas_max)
    return view.bounded(len(packed))


def opened_in_one_pass(view: View, items: Sequence[Item], size: BinSize) -> int:
    """The same for one pass of plain first-fit decreasing."""
    return view.bounded(first_fit(items, size))


def lag_after_burst(sampled: bool) -> LagMoment:
    """Return the moment just after a usual burst; ``sampled``: when the member reported."""
    return LagMoment.REPORTED if sampled else LagMoment.AFTER_BURST


def lag_before_burst(sampled: bool) -> LagMoment:
    """Return the moment of the least lag in the last interval; ``sampled``: when the member reported."""
    return LagMoment.REPORTED if sampled else LagMoment.BEFORE_BURST


def violated(items: Sequence[Item], size: BinSize) -> bool:
    """Is some member, as things are, over the limits of a bin?"""
    rates: dict[str, float] = {}
    lags: dict[str, int] = {}
    for item in items:
        if item.owner is not None:
            rates[item.owner] = rates.get(item.owner, 0.0) + item.rate
            lags[item.owner] = lags.get(item.owner, 0) + item.lag
    return any(rate > size.rate for rate in rates.values()) or any(lag > size.lag for lag in lags.values())
