"""Dhalion-adapted: lag tells when, throughput tells by how much.

* Up when the event-time lag (the age of the oldest record that is not done, the mean over the partitions) is above
  ``lag_threshold_seconds`` and the lag grows: to ``replicas x input rate / throughput``, with ``overprovisioning`` on
  top.
* Down by ``down_share`` when that lag is below the threshold, the members are less busy than ``busy_threshold`` and
  there is no backpressure.
* Nothing for ``cooldown_seconds`` after either.

Source: Koper'22, sections 3.4 and 4.6 (lag thresholds of 1, 5 and 10 s); Floratou et al., *Dhalion*, 2017. Changed: a
consumer has nobody behind it that could push back, so its condition of less than 100 ms of backpressure always holds;
busy share instead of CPU; windows, of which the thesis does not tell, of 60 s; a fraction is rounded up on the way up
and down on the way down (rounded up, 20 % of four would be none).

Two things are of the thesis' runs and not of its text. ``down_lag_share`` (0.2 there) takes the place of the age on the
way down: the group shrinks when less than this share of a second's records waits in the fullest partition of a member,
the mean over the members. With ``cooldown_from_change`` the cool-down counts from when replicas have come or gone.
"""

from __future__ import annotations

import math
from statistics import fmean
from typing import Annotated

from msgspec import Meta, structs

from ...history import lag_slope, throughput, utilization
from ...parameters import Amount, Fill, Parameters, Positive, Seconds
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

__all__ = ["DhalionAdapted"]


class DhalionParameters(Parameters, frozen=True, kw_only=True):
    """The thesis' experiments; the lag threshold in the middle."""

    lag_threshold_seconds: Annotated[Seconds, Meta(description="age of the oldest record that is too much")] = 5.0
    overprovisioning: Annotated[Amount, Meta(description="so much more than needed on the way up")] = 0.2
    down_share: Annotated[float, Meta(gt=0, lt=1, description="so much of the group goes on the way down")] = 0.2
    busy_threshold: Annotated[Fill, Meta(description="down only when the members are less busy")] = 0.6
    down_lag_share: Annotated[Amount, Meta(description="down by lag over arrival rate (0: by its age)")] = 0.0
    metric_seconds: Annotated[Positive, Meta(description="metrics are taken over so many seconds")] = 60.0
    cooldown_seconds: Cooldown = 120.0
    cooldown_from_change: FromChange = False


class DhalionAdapted:
    """The policy ``dhalion_adapted``."""

    name = "dhalion_adapted"
    needs = frozenset({Measure.RATES, Measure.LAG, Measure.LAG_SECONDS, Measure.THROUGHPUT, Measure.UTILIZATION})
    kind = DhalionParameters
    state = WatchingState

    def __init__(self, given: DhalionParameters | None = None) -> None:
        self._given = given or DhalionParameters()

    def decide(self, view: View, state: WatchingState) -> Sizing:
        """See :class:`...sizing.policy.Policy`."""
        given = self._given
        state = structs.replace(state, change=state.change.seen(view))
        if (left := still_cooling(view, state, given.cooldown_seconds, given.cooldown_from_change)) > 0:
            return held(
                view, state, Reason.STABILIZING, f"the cool-down after the last scaling takes {left:.0f} s more"
            )
        past, before = view.estimate.past, wanted(view, state)
        busy, slope = utilization(past, given.metric_seconds), lag_slope(past, given.metric_seconds)
        done, rate = throughput(past, given.metric_seconds), view.arrival_rate(given.metric_seconds)
        if busy is None or slope is None or done is None or rate is None:
            return held(view, state, Reason.NOT_READY, "there is no past yet to tell a change of the lag from")
        age = view.lag_seconds
        text = f"the oldest records have waited for {age:.2g} s, the lag changes by {slope:+.0f} records/s"
        if age > given.lag_threshold_seconds and slope > 0:
            if done <= 0:
                return held(view, state, Reason.NOT_READY, f"{text}; nothing is done, so nobody knows what helps")
            factor = rate / done
            text += f"; {factor:.2f} times what is done comes"
            more = math.ceil(before * factor * (1.0 + given.overprovisioning) - 1e-9)
            return sized(view, state, max(before, more), text)
        share = given.down_lag_share
        caught_up = _fullest(view) < share * rate if share > 0 else age < given.lag_threshold_seconds
        if caught_up and busy < given.busy_threshold:
            text += f"; the members are busy for {busy:.0%} of the time only"
            return sized(view, state, math.floor(before * (1.0 - given.down_share) + 1e-9), text)
        return sized(view, state, before, text)


def _fullest(view: View) -> float:
    """Return the records that wait in the fullest partition of a member, the mean over members; 0: nobody owns any.

    Flink's ``records_lag_max`` of each subtask of its source, averaged.
    """
    fullest: dict[str, int] = {}
    for item in view.items:
        if item.owner is not None:
            fullest[item.owner] = max(fullest.get(item.owner, 0), item.lag)
    return fmean(fullest.values()) if fullest else 0.0
