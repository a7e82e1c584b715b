"""Kubernetes' HPA on CPU utilisation: ``ceil(replicas x utilisation / target)``.

What is taken for CPU utilisation is the *busy share* of the members, user code's busy seconds over what its concurrency
permits: a member cannot know the CPU that its container was granted, and code that waits for others uses none although
it can do no more. Koper'22 says of its own utilisation metric that it is a part of CPU utilisation.

Source: Koper'22, section 3.2 and equation 3.1; targets of 50, 70 and 90 % in section 4.6, 70 % in figure 3.2. Changed:
busy share instead of CPU; Kubernetes' defaults for what the thesis leaves out (:mod:`.hpa`).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ...history import utilization
from ...parameters import Fill, Positive
from ...sizing.policy import Measure, View
from ...values import Reason, Sizing
from .hpa import HpaParameters, HpaState, averaged, recommend, unsynced
from .shared import held

__all__ = ["HpaCpu"]


class HpaCpuParameters(HpaParameters, frozen=True, kw_only=True):
    """The thesis' middle target."""

    target_utilization: Annotated[Fill, Meta(description="busy share that is aimed at")] = 0.7
    metric_seconds: Annotated[Positive, Meta(description="the metric is the mean over so many seconds")] = 15.0


class HpaCpu:
    """The policy ``hpa_cpu``."""

    name = "hpa_cpu"
    needs = frozenset({Measure.UTILIZATION})
    kind = HpaCpuParameters
    state = HpaState

    def __init__(self, given: HpaCpuParameters | None = None) -> None:
        self._given = given or HpaCpuParameters()

    def decide(self, view: View, state: HpaState) -> Sizing:
        """See :class:`...sizing.policy.Policy`."""
        given = self._given
        busy = utilization(view.estimate.past, given.metric_seconds)
        if busy is None:
            return held(view, state, Reason.NOT_READY, "no member has said yet how busy it is")
        if (waiting := unsynced(view, state, given)) is not None:
            return waiting
        desired = averaged(view, state, busy / given.target_utilization, given.tolerance)
        text = f"the members are busy for {busy:.0%} of the time, {given.target_utilization:.0%} is aimed at"
        return recommend(view, state, given, desired, text)
