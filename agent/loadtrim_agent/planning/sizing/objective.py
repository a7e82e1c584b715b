"""Size the pool so that the share of records in time is kept: up in time, down after a stabilization window.

The group is sized as one server of n members' capacity, because handoffs of milliseconds let partitions be passed
on. For every window length, what arrives in it, one standard deviation and what waits must fit: the group has the
window plus the objective to do it. Then whole partitions are dealt out over that many members, longest first; over
those that are there, as their packer would place them. Further replicas are asked for where more would be late by
the division than the share permits over time. More are asked for at once, or where the objective is long when records
wait for so long that it is time (:mod:`.postponement`).

They are given back when fewer have been enough for the stabilization window: 2 s, or twice what no trend foresees of
the start-up time where that is longer. Every reversal doubles the window, and it halves every minute again (from a
start-up of a minute on that adds nothing). Ineffective scaling is replicas that brought no throughput to a group
that was saturated before and after. It is not repeated for 5 minutes, doubling up to an hour; as many as there were
then still are asked for.
"""

from __future__ import annotations

import math
from typing import Annotated, Self

from msgspec import Meta, structs

from loadtrim_agent.wire.telemetry_records import RejectedPlan

from ..forecast import dispersion_of, level_error
from ..parameters import Amount, Parameters
from ..policy_state import PolicyState
from ..values import Reason, Sizing
from .ineffective_scaling import ScalingEffect, before_up, watch
from .marginal_benefit import DOWN_MARGIN, BenefitHistory, least_benefit
from .need import STAY, Need, explain, misfit, needed, number, pool_of
from .policy import View
from .postponement import ANSWERS, answers_left, wait_permitted_seconds, wait_seconds
from .present import PresentPlacement, load_factor
from .stabilization import Stabilization, given_behind, is_reversal, remaining_window, reversed_down

__all__ = ["Objective", "ObjectiveState"]


class ObjectiveParameters(Parameters, frozen=True, kw_only=True):
    """For those that will not have it follow from the objective."""

    placement_gain: (
        Annotated[
            Amount,
            Meta(
                description="share of its capacity that a replica for the placement's sake must bring as work in time "
                "(default: the most that keeps the objective's share)",
            ),
        ]
        | None
    ) = None
    postpone: Annotated[
        bool, Meta(description="more replicas wait for the last moment that is soon enough (0: asked for at once)")
    ] = True


class ObjectiveState(PolicyState, frozen=True, kw_only=True):
    """What the policy remembers, by the module that it belongs to."""

    stabilization: Stabilization = Stabilization()
    effect: ScalingEffect = ScalingEffect()
    benefits: BenefitHistory = BenefitHistory()

    def interrupted(self) -> Self:
        """See :meth:`..policy_state.PolicyState.interrupted`."""
        return structs.replace(self, stabilization=self.stabilization.interrupted())


class Objective:
    """The policy ``objective``."""

    name = "objective"
    kind = ObjectiveParameters
    state = ObjectiveState

    def __init__(self, given: ObjectiveParameters | None = None) -> None:
        self._given = given or ObjectiveParameters()

    def decide(self, view: View, state: ObjectiveState) -> Sizing:
        """See :class:`.policy.Policy`."""
        view = structs.replace(view, late=PresentPlacement(view).late)
        settling = view.estimate.settling_seconds > 0.0
        if settling:
            view = _without_stopped(view)
        wanted = view.bounded(view.replicas if state.wanted is None else state.wanted)
        benefits, benefit = self._benefit(view, state)
        answers = answers_left(view, wanted) if self._given.postpone else 0.0
        needs = [_asked(view, peak, wanted, benefit) for peak in _peaks(view, answers)]
        need = max(needs, key=lambda entry: entry.replicas)
        effect, ineffective = watch(view, state.effect)
        need = _within_twice(view, need, wanted, judged=effect.up_from is None)
        stabilization = state.stabilization
        if need.replicas > wanted and answers >= ANSWERS and need.replicas < view.replicas_max:
            sizing, stabilization = _postponed(view, stabilization, wanted, need)
        elif need.replicas > wanted:
            sizing, stabilization = _up(view, stabilization, wanted, need)
        elif settling:
            sizing, stabilization = _settling(view, stabilization, wanted, need)
        else:
            sizing, stabilization = _down(view, stabilization, wanted, need, benefit)
        if ineffective and sizing.replicas > (most := max(wanted, ineffective)):
            brought = f"the replicas up to {ineffective} brought no throughput"
            sizing = structs.replace(
                sizing,
                replicas=most,
                reason=Reason.INEFFECTIVE,
                text=f"{sizing.text}; but {brought}, so no more are asked for",
                rejected=(RejectedPlan(replicas=sizing.replicas, reason="more replicas brought no throughput"),),
            )
        if sizing.replicas > view.replicas and sizing.replicas > wanted:
            effect = before_up(view, effect)
        after = ObjectiveState(wanted=sizing.replicas, stabilization=stabilization, effect=effect, benefits=benefits)
        return structs.replace(sizing, state=after, load_factor=load_factor(view), place=not settling)

    def _benefit(self, view: View, state: ObjectiveState) -> tuple[BenefitHistory, float]:
        """What a replica for the placement's sake must bring, as a share of its capacity."""
        if self._given.placement_gain is not None:
            return state.benefits, self._given.placement_gain
        if view.estimate.slicing:
            return state.benefits, math.inf  # members divide partitions among themselves: the pool alone sizes
        return least_benefit(view, state.benefits, state.wanted)


def _peaks(view: View, answers: float) -> list[float]:
    """Return the loads that the group is sized for, work per second."""
    if answers >= 1.0:
        return [view.forecast.level]
    # More load may divide better, so a baseline that expects more could ask for fewer: both are looked at.
    return sorted({view.forecast.trend_peak, view.forecast.peak})


def _within_twice(view: View, need: Need, wanted: int, *, judged: bool) -> Need:
    """Return no more than double the group on a capacity that was found to be wrong: it has to show what that brings.

    Args:
        view: of the group.
        need: what the load asks for.
        wanted: replicas wanted last.
        judged: what the last replicas brought is known.
    """
    most = max(wanted, 2 * view.replicas if judged else 0)
    wrong = any(member.told is not None for member in view.estimate.members.values())
    if not wrong or need.replicas <= most:
        return need
    return structs.replace(need, replicas=most, pool=min(need.pool, most), at_max=False)


def _asked(view: View, peak: float, wanted: int, benefit: float) -> Need:
    """What a load asks for: as many as are there where they will do, else with room for the error.

    Where the objective is long, what was taken for too little shows as backlog before it is late, and replicas still
    come in time. So there the error counts the other way: few records are no reason for more.
    """
    need = needed(view, peak, slack=STAY, benefit=benefit)
    if need.replicas <= wanted:
        return need
    sooner = min(1.0, max(-1.0, 2.0 * view.forecast.horizon_seconds / view.config.sla_seconds - 1.0))
    error = level_error(view.estimate, view.forecast, view.config.sla_seconds)
    if sooner < 0.0:
        variance = peak * dispersion_of(view.estimate, view.config.sla_seconds)
        error = max(error, math.sqrt(variance / view.forecast.window_seconds))
    return needed(view, max(0.0, peak + sooner * error), benefit=benefit)


def _up(view: View, state: Stabilization, wanted: int, need: Need) -> tuple[Sizing, Stabilization]:
    if is_reversal(view, state):
        # It was let go too early: be slower next time.
        state = reversed_down(view, state)
    rejected = [RejectedPlan(replicas=wanted, reason=misfit(view, need, wanted))]
    if need.pool < need.replicas and need.pool > wanted:
        rejected.append(RejectedPlan(replicas=need.pool, reason="whole partitions do not divide well over them"))
    reason = Reason.NEEDS_MORE if need.pool > wanted else Reason.PLACEMENT
    text = explain(view, need)
    sizing = Sizing(replicas=need.replicas, reason=reason, text=text, rejected=tuple(rejected))
    return sizing, structs.replace(state, fit_since=None)


def _postponed(view: View, state: Stabilization, wanted: int, need: Need) -> tuple[Sizing, Stabilization]:
    """As many as before, because more still come in time if they are asked for later."""
    waits, permitted = wait_seconds(view), wait_permitted_seconds(view)
    why = f"keeping up takes {need.replicas}, asked for when records wait for {permitted:.0f} s (now {waits:.0f} s)"
    sizing = Sizing(
        replicas=wanted,
        reason=Reason.POSTPONED,
        text=f"{explain(view, need)}; {why}",
        rejected=(RejectedPlan(replicas=need.replicas, reason="they come in time if they are asked for later"),),
    )
    return sizing, structs.replace(state, fit_since=None)


def _without_stopped(view: View) -> View:
    """Return the view without what the last moves have stopped, which waits and is no load: at most what came since."""
    estimate = view.estimate
    stopped = view.forecast.level * estimate.restoring_seconds
    late = max(0.0, estimate.late - stopped)
    backlog = max(0.0, estimate.backlog - max(0.0, stopped - estimate.late))
    return structs.replace(view, estimate=structs.replace(estimate, backlog=backlog, late=late))


def _settling(view: View, state: Stabilization, wanted: int, need: Need) -> tuple[Sizing, Stabilization]:
    """Return as many as before, because what is measured says little until the last moves are worked off."""
    why = f"the last moves are worked off in {view.estimate.settling_seconds:.0f} s, and nothing moves before that"
    sizing = Sizing(replicas=wanted, reason=Reason.SETTLING, text=f"{explain(view, need)}; {why}")
    return sizing, state.interrupted()


def _down(view: View, state: Stabilization, wanted: int, need: Need, benefit: float) -> tuple[Sizing, Stabilization]:
    """As many as before, or fewer when these have been enough for long enough."""
    text = explain(view, need)
    smaller = need
    if need.replicas < wanted:
        # The present fits (need); what is expected must fit with a margin as well.
        error = level_error(view.estimate, view.forecast, view.config.sla_seconds)
        margin = view.forecast.trend * DOWN_MARGIN + error
        if pool_of(view, margin, 0.0, STAY)[0] >= wanted:
            # The work alone asks for all of them, however partitions divide, which takes the most time to find out.
            return _fitting(view, wanted, need, text), structs.replace(state, fit_since=None)
        ahead = needed(view, margin, slack=STAY, benefit=benefit)
        smaller = max(need, ahead, key=lambda entry: entry.replicas)
    if smaller.replicas < wanted and view.forecast.returning > 0.0:
        back = needed(view, view.forecast.returning * DOWN_MARGIN, slack=STAY, benefit=benefit)
        if back.replicas >= wanted:
            return _returning(view, wanted, smaller, text), structs.replace(state, fit_since=None)
        smaller = max(smaller, back, key=lambda entry: entry.replicas)
    if smaller.replicas >= wanted:
        return _fitting(view, wanted, need, text), structs.replace(state, fit_since=None)
    return _fewer(view, state, wanted, smaller.replicas, text)


def _returning(view: View, wanted: int, smaller: Need, text: str) -> Sizing:
    """As many as there are, because they would be asked for again before letting them go had paid."""
    expected = f"{number(view.forecast.returning)} busy seconds/s are expected back"
    why = f"would do, but {expected} before a replica that is let go would have paid"
    return _kept(wanted, Reason.RETURNING, text, smaller.replicas, why)


def _kept(wanted: int, reason: Reason, text: str, smaller: int, why: str) -> Sizing:
    """As many as there are, and why not the smaller number."""
    rejected = RejectedPlan(replicas=smaller, reason=why)
    return Sizing(replicas=wanted, reason=reason, text=f"{text}; {smaller} {why}", rejected=(rejected,))


def _fitting(view: View, wanted: int, need: Need, text: str) -> Sizing:
    """As many as there are, because fewer would not do."""
    unsplittable = bool(view.columns.unsplittable)
    reason = Reason.AT_MAX if need.at_max else Reason.UNSPLITTABLE if unsplittable else Reason.FITS
    rejected = (RejectedPlan(replicas=need.replicas, reason="fits, but not with a margin"),)
    return Sizing(replicas=wanted, reason=reason, text=text, rejected=rejected if need.replicas < wanted else ())


def _fewer(view: View, state: Stabilization, wanted: int, smaller: int, text: str) -> tuple[Sizing, Stabilization]:
    """Fewer would do: take them at the end of the stabilization window, the most that any decision in it asked for."""
    since, most = view.now, smaller
    if state.fit_since is not None:
        since, most = state.fit_since, max(smaller, 1 if state.fit_replicas is None else state.fit_replicas)
    seconds = remaining_window(view, state)
    if view.now - since < seconds:
        why = f"would do; waiting {seconds - (view.now - since):.1f} s more to be sure"
        sizing = _kept(wanted, Reason.STABILIZING, text, most, why)
        return sizing, structs.replace(state, fit_since=since, fit_replicas=most)
    given = given_behind(view, seconds)
    if view.capacity(most) < given:
        why = f"would do, but the members gave {number(given)} busy seconds/s lately, and more came than they did"
        sizing = _kept(wanted, Reason.FITS, text, most, why)
        return sizing, structs.replace(state, fit_since=since, fit_replicas=most)
    sizing = Sizing(
        replicas=most,
        reason=Reason.NEEDS_LESS,
        text=f"{text}; {most} would have done for the last {view.now - since:.1f} s",
        rejected=(RejectedPlan(replicas=wanted, reason="more than is needed"),),
    )
    return sizing, structs.replace(state, fit_since=None, fit_replicas=None, down_at=view.now)
