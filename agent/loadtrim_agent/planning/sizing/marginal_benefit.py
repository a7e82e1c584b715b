"""The marginal benefit that a replica for the placement's sake must bring, so that the objective's share is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import field, structs

from ..policy_state import DIGITS, StatePart
from .need import STAY, divided, pool_of
from .policy import View

__all__ = ["DOWN_MARGIN", "BenefitHistory", "least_benefit"]

BENEFITS = (0.5, 0.35, 0.25, 0.2, 0.18, 0.16, 0.14, 0.125, 0.11, 0.1, 0.085, 0.07, 0.05, 0.03, 0.015, 0.005)
"""Shares of its capacity that a replica for the placement's sake must bring as work in time. The largest counts with
which the objective's share is kept (:func:`least_benefit`), unless the parameter ``placement_gain`` gives one.
Chosen."""
HISTORY_SECONDS = 600.0
"""The share is to be kept over about this time. Chosen."""
DOWN_MARGIN = 1.03
"""Fewer replicas must do for so many times what is expected. Chosen."""


class BenefitHistory(StatePart, frozen=True, kw_only=True):
    """What would have been with each of :data:`BENEFITS`, as sums that forget."""

    at: float | None = field(name="priced_at", default=None)
    """When the sums were taken."""
    work: float | None = field(name="priced_work", default=None)
    """Work that arrived."""
    replicas: dict[float, int] = field(name="with", default_factory=dict)
    """Benefit -> replicas that there would be, where it is not as many as with the next smaller one."""
    overdue: dict[float, float] = field(name="late", default_factory=dict)
    """Benefit -> work that would have been overdue, where it is not as much as with the next smaller one, or none."""


def _held(view: View, pools: Sequence[tuple[int, float]], benefit: float, before: int) -> int:
    """Return as many replicas as before, or the fewest that are added, or the most that are not given back."""
    (least_pool, up), (most_pool, down) = pools
    least = divided(view, least_pool, up, benefit)[0]
    # Dividing takes the most time, and it makes a number no smaller: mostly it need not be known.
    if before <= least or before <= most_pool:
        return max(least, before)
    return max(least, min(before, divided(view, most_pool, down, benefit)[0]))


def least_benefit(view: View, state: BenefitHistory, wanted: int | None) -> tuple[BenefitHistory, float]:
    """Return the most that may be asked of a replica for the placement's sake so that the objective's share is kept.

    How much of the work is overdue because whole partitions do not divide depends on the load: it is nothing at one
    level and a lot at the next. The share is promised over time, so what counts is the mean over the loads of the last
    minutes. Of all rules that keep it, the one with the fewest replicas asks the same benefit of every replica (the
    multiplier of the constrained problem). For each of some benefits it is remembered how many replicas there would be
    and how much would have been overdue. The largest is used that would have kept the share and keeps it if the
    present goes on. Under a constant load that is the share at this load: nothing is saved up and spent in
    turns.

    Args:
        view: of the group.
        state: the history; this decision is added.
        wanted: replicas wanted last; None: the first decision.
    """
    ahead, level = view.forecast, view.forecast.level
    # Replicas are added for the first and given back for the second: in between there are as many as before.
    loads = (ahead.trend_peak, max(ahead.trend_peak, ahead.trend * DOWN_MARGIN + ahead.error))
    total = view.columns.total
    pools = [(pool_of(view, load, 0.0, STAY)[0], load / total if total > 0 else 0.0) for load in loads]
    keep = 1.0 if state.at is None else math.exp(-max(0.0, view.now - state.at) / HISTORY_SECONDS)
    work = round((state.work or 0.0) * keep + level, DIGITS)
    # What has been as it is for so long is expected to go on for as long: what was saved up buys no smaller group that
    # has to grow again as soon as it is spent.
    onward = 0.0 if ahead.slope else ahead.window_seconds / view.config.decision_seconds
    permitted = (1.0 - view.config.sla_share) * (work + onward * level)
    # The least also where the share is missed with every one of them: a replica that brings nothing keeps no share.
    chosen = BENEFITS[-1]
    before, there = view.replicas if wanted is None else wanted, 0
    late_before = late_there = 0.0
    replicas: dict[float, int] = {}
    overdue: dict[float, float] = {}
    for benefit in reversed(BENEFITS):
        before = state.replicas.get(benefit, before)
        held = _held(view, pools, benefit, before)
        if held != there:
            replicas[benefit] = held  # else as many as with the smaller benefit
        there = held
        now = view.late(held, level / total) if total > 0 else 0.0
        late_before = state.overdue.get(benefit, late_before)
        late = round(late_before * keep + now, DIGITS)
        if late != late_there:
            overdue[benefit] = late
        late_there = late
        if late + onward * now <= permitted:
            chosen = benefit
    return structs.replace(state, at=view.now, work=work, replicas=replicas, overdue=overdue), chosen
