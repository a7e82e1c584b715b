"""Varga's scaling by two metrics through Kubernetes' HPA; the larger answer wins.

* Relative change of the lag: ``1 + deriv(totalLag) / totalRate``, target 1: what arrives over what is done. While less
  than ``lag_threshold_records`` wait its sign is turned, so that it asks for nothing and the other metric decides.
* Utilisation: the busy share of the members.

``varga_v2`` adds a cool-down: both metrics are 0 for ``cooldown_seconds`` after the number of members has changed, and
the window for scaling down keeps the group from shrinking meanwhile.

Source: Koper'22, sections 3.3 (equations 3.2 to 3.6) and 4.6; Varga, Balassi and Kiss, *Towards autoscaling of Apache
Flink jobs*, 2021. Changed: the lag of every partition is known, so it is added up, where Flink offers the largest times
the number of partitions; utilisation is the busy share of the members, not of Flink's operators; over how long the
derivative and the rate are taken the thesis does not say: 60 s here. ``threshold_per_replica`` 1: the threshold counts
per replica, as it did in the thesis' runs. Target 0.7 is that of figure 3.3; 0.3 and 0.5 were run, too.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field, structs

from ...history import lag_slope, throughput, utilization
from ...parameters import Amount, Fill, Positive, Seconds
from ...sizing.policy import Measure, View
from ...values import Reason, Sizing
from .hpa import HpaParameters, HpaState, averaged, recommend, unsynced
from .shared import ReplicaChange, held

__all__ = ["VARGA", "Varga"]


class VargaParameters(HpaParameters, frozen=True, kw_only=True):
    """The thesis' experiments."""

    target_utilization: Annotated[Fill, Meta(description="busy share that is aimed at")] = 0.7
    lag_threshold_records: Annotated[Amount, Meta(description="while fewer wait, the lag asks for nothing")] = 50_000.0
    threshold_per_replica: Annotated[bool, Meta(description="that threshold is per replica")] = False
    metric_seconds: Annotated[Positive, Meta(description="metrics are taken over so many seconds")] = 60.0
    down_window_seconds: Annotated[Seconds, Meta(description="down to the most that was wanted for so long")] = 480.0


class VargaV2Parameters(VargaParameters, frozen=True, kw_only=True):
    """The same with its cool-down."""

    cooldown_seconds: Annotated[Seconds, Meta(description="both metrics are 0 for so long after a change")] = 120.0


class VargaState(HpaState, frozen=True, kw_only=True):
    """What Varga's policy remembers; the first version remembers what the HPA does."""

    change: ReplicaChange = field(default_factory=ReplicaChange)


VARGA: dict[str, type[VargaParameters]] = {"varga_v1": VargaParameters, "varga_v2": VargaV2Parameters}


class Varga:
    """One of :data:`VARGA`."""

    needs = frozenset({Measure.LAG, Measure.THROUGHPUT, Measure.UTILIZATION})
    state = VargaState

    def __init__(self, name: str, given: VargaParameters | None = None) -> None:
        self.name = name
        self.kind = VARGA[name]
        self._given = given or self.kind()

    def decide(self, view: View, state: VargaState) -> Sizing:
        """See :class:`...sizing.policy.Policy`."""
        given = self._given
        cooling = 0.0
        if isinstance(given, VargaV2Parameters):
            state = structs.replace(state, change=state.change.seen(view))
            cooling = state.change.cooling(view, given.cooldown_seconds)
        past = view.estimate.past
        busy, slope = utilization(past, given.metric_seconds), lag_slope(past, given.metric_seconds)
        done = throughput(past, given.metric_seconds)
        if busy is None or slope is None or done is None:
            return held(view, state, Reason.NOT_READY, "there is no past yet to tell a change of the lag from")
        if (waiting := unsynced(view, state, given)) is not None:
            return waiting
        if cooling > 0:
            text = f"the number of members changed, so both metrics are 0 for {cooling:.0f} s more"
            return recommend(view, state, given, 0, text)
        text = f"the members are busy for {busy:.0%} of the time, {given.target_utilization:.0%} is aimed at"
        answers = [averaged(view, state, busy / given.target_utilization, given.tolerance)]
        threshold = given.lag_threshold_records * (view.replicas if given.threshold_per_replica else 1)
        if done > 0:
            relative = 1.0 + slope / done
            answers.append(averaged(view, state, relative if view.lag > threshold else -relative, given.tolerance))
            text += f"; {view.lag} records wait and {slope:+.0f}/s, {relative:.2f} times what is done comes"
            if view.lag <= threshold:
                text += ", too few to ask for replicas"
        return recommend(view, state, given, max(answers), text)
