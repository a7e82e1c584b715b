"""What the papers' policies have in common: how they hold, scale, cool down and look again.

A paper says how many replicas, and no more. What every group needs besides is here: the bounds, the reason, when
partitions are dealt out anew, and what has to be remembered for that.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

from msgspec import Meta, field, structs

from loadtrim_agent.wire.telemetry_records import RejectedPlan

from ...parameters import MOST
from ...policy_state import PolicyState, StatePart
from ...sizing.policy import View
from ...values import Reason, Sizing

__all__ = [
    "Cooldown",
    "FromChange",
    "PaperState",
    "ReplicaChange",
    "WatchingState",
    "cooling",
    "held",
    "is_due",
    "sized",
    "still_cooling",
    "unknown_cost",
    "wanted",
]

Cooldown = Annotated[float, Meta(ge=0, le=MOST, description="no scaling for this long after one")]
FromChange = Annotated[bool, Meta(description="the cool-down counts from when replicas have come or gone")]

DEAL_SECONDS = 3.0
"""Partitions are dealt out anew for so long after a generation began: by then new members are there. Chosen."""
EARLY_SECONDS = 0.05
"""Decisions come once per interval and a few milliseconds early or late."""


class PaperState(PolicyState, frozen=True, kw_only=True):
    """What every policy of a paper remembers."""

    scaled_at: float | None = None
    """Time of the last scaling, seconds since the epoch; None: it has not scaled yet."""
    dealt_in: int | None = None
    """Generation in which partitions are dealt out anew, or were last."""
    dealt_at: float | None = None
    """When that generation was first seen, seconds since the epoch."""


class ReplicaChange(StatePart, frozen=True, kw_only=True):
    """The last change of the number of replicas, a part of the state of a policy that goes by it."""

    members: int | None = None
    """How many there were at the last decision."""
    changed_at: float | None = None
    """When that number changed last, seconds since the epoch; None: it has not yet."""

    def seen(self, view: View) -> ReplicaChange:
        """Return what is to be remembered after this decision."""
        if self.members == view.replicas:
            return self
        return ReplicaChange(members=view.replicas, changed_at=self.changed_at if self.members is None else view.now)

    def cooling(self, view: View, seconds: float) -> float:
        """Return the seconds that are left of a cool-down after the last change; 0: none."""
        return 0.0 if self.changed_at is None else max(0.0, self.changed_at + seconds - view.now)


class WatchingState(PaperState, frozen=True, kw_only=True):
    """State of a policy whose cool-down may count from a change of the replicas."""

    change: ReplicaChange = field(default_factory=ReplicaChange)


_S = TypeVar("_S", bound=PaperState)


def wanted(view: View, state: PolicyState) -> int:
    """Return what was wanted last, for that is what the orchestrator runs or starts; at first what is there."""
    return view.bounded(view.replicas if state.wanted is None else state.wanted)


def unknown_cost(view: View, mu: float | None = None) -> bool:
    """Return whether records come or wait though nothing was done, so that it is not known what one costs.

    A packer would take them for weightless, and let every member go but one.
    """
    comes = view.estimate.rate > 0 or view.lag > 0 or any(view.estimate.series)
    return comes and view.service_rate(mu) is None


def is_due(view: View, last: float | None, seconds: float) -> bool:
    """Return whether ``seconds`` have passed since the last time; True at first."""
    return last is None or view.now - last >= seconds - EARLY_SECONDS


def cooling(view: View, state: PaperState, seconds: float) -> float:
    """Return the seconds that are left of the cool-down after the last scaling; 0: none."""
    return 0.0 if state.scaled_at is None else max(0.0, state.scaled_at + seconds - view.now)


def still_cooling(view: View, state: WatchingState, seconds: float, from_change: bool) -> float:
    """Return the seconds that are left of a cool-down.

    Args:
        view: as given.
        state: with the change of the replicas as seen in this decision.
        seconds: how long the cool-down lasts.
        from_change: it counts from when replicas have come or gone, and not from the last scaling.
    """
    return state.change.cooling(view, seconds) if from_change else cooling(view, state, seconds)


def held(view: View, state: PaperState, reason: Reason, text: str, asked: int | None = None) -> Sizing:
    """Return the answer "as many as before".

    Args:
        view: as given.
        state: to be remembered.
        reason: why not something else.
        text: reads on from "4 replicas: ".
        asked: what would have been taken otherwise.
    """
    count, state = wanted(view, state), _dealt(view, state)
    rejected = () if asked is None or asked == count else (RejectedPlan(replicas=asked, reason=text),)
    return Sizing(
        replicas=count,
        reason=reason,
        text=text,
        place=_is_dealing(view, state),
        state=structs.replace(state, wanted=count),
        rejected=rejected,
    )


def sized(view: View, state: PaperState, count: float, text: str) -> Sizing:
    """Return the answer "so many from now on", within the bounds.

    Partitions are dealt out anew when members have come or gone, as a Kafka group does it, and else left alone.

    Args:
        view: as given.
        state: to be remembered; when it was scaled is added.
        count: what the policy asks for; rounded up.
        text: reads on from "4 replicas: ".
    """
    before, bounded, state = wanted(view, state), view.bounded(count), _dealt(view, state)
    reason, rejected = Reason.FITS, ""
    if bounded > before:
        reason, rejected = Reason.NEEDS_MORE, "less than is needed"
    elif bounded < before:
        reason, rejected = Reason.NEEDS_LESS, "more than is needed"
    elif count > view.replicas_max:
        reason = Reason.AT_MAX
        text += f"; no more than {view.replicas_max} are allowed or have a partition"
    if bounded != before:
        state = structs.replace(state, scaled_at=view.now)
    return Sizing(
        replicas=bounded,
        reason=reason,
        text=text,
        place=_is_dealing(view, state),
        state=structs.replace(state, wanted=bounded),
        rejected=(RejectedPlan(replicas=before, reason=rejected),) if rejected else (),
    )


def _dealt(view: View, state: _S) -> _S:
    """The state with the present generation."""
    if state.dealt_in == view.generation and state.dealt_at is not None:
        return state
    return structs.replace(state, dealt_in=view.generation, dealt_at=view.now)


def _is_dealing(view: View, state: PaperState) -> bool:
    """Has the group just changed?"""
    return state.dealt_at is not None and view.now - state.dealt_at <= DEAL_SECONDS
