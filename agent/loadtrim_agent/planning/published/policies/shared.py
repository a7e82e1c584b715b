"""What the papers' policies have in common: how they hold, scale, cool down and look again.

A paper says how many replicas, and no more. What every group needs besides is here: the bounds, the reason, when
partitions are dealt out anew, and what has to be remembered for that.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from loadtrim_agent.wire.telemetry_records import RejectedPlan

from ...parameters import MOST
from ...sizing.policy import View
from ...values import Reason, Sizing

__all__ = ["Cooldown", "cooling", "due", "held", "sized", "unknown_cost", "wanted"]

Cooldown = Annotated[float, Meta(ge=0, le=MOST, description="no scaling for this long after one")]

WANTED = "wanted"
DEAL_SECONDS = 3.0
"""Partitions are dealt out anew for so long after a generation began: by then new members are there. Chosen."""
EARLY_SECONDS = 0.05
"""Decisions come once per interval and a few milliseconds early or late."""


def wanted(view: View) -> int:
    """What was wanted last, for that is what the orchestrator runs or starts; at first what is there."""
    return view.bounded(round(view.memory.get(WANTED, view.replicas)))


def unknown_cost(view: View, mu: float | None = None) -> bool:
    """Do records come or wait though nothing was done, so that nobody knows what one costs?

    A packer would take them for weightless, and let everybody go but one.
    """
    comes = view.estimate.rate > 0 or view.lag > 0 or any(view.estimate.series)
    return comes and view.service_rate(mu) is None


def due(view: View, memory: dict[str, float], name: str, seconds: float) -> bool:
    """Is it time again? True at first and every ``seconds``; remembers when."""
    last = memory.get(name)
    if last is not None and view.now - last < seconds - EARLY_SECONDS:
        return False
    memory[name] = view.now
    return True


def cooling(view: View, seconds: float) -> float:
    """Seconds left of the cool-down after the last scaling; 0: none."""
    scaled_at = view.memory.get("scaled_at")
    return 0.0 if scaled_at is None else max(0.0, scaled_at + seconds - view.now)


def held(view: View, memory: dict[str, float], reason: Reason, text: str, asked: int | None = None) -> Sizing:
    """As many as before.

    Args:
        view: as given.
        memory: to be remembered.
        reason: why not something else.
        text: reads on from "4 replicas: ".
        asked: what would have been taken otherwise.
    """
    count = wanted(view)
    memory[WANTED] = float(count)
    rejected = () if asked is None or asked == count else (RejectedPlan(replicas=asked, reason=text),)
    return Sizing(
        replicas=count, reason=reason, text=text, place=_dealing(view, memory), memory=memory, rejected=rejected
    )


def sized(view: View, memory: dict[str, float], count: float, text: str) -> Sizing:
    """So many from now on, within the bounds.

    Partitions are dealt out anew when members have come or gone, as a Kafka group does it, and else left alone.

    Args:
        view: as given.
        memory: to be remembered; when it was scaled is added.
        count: what the policy asks for; rounded up.
        text: reads on from "4 replicas: ".
    """
    before, bounded = wanted(view), view.bounded(count)
    reason, rejected = Reason.FITS, ""
    if bounded > before:
        reason, rejected = Reason.NEEDS_MORE, "less than is needed"
    elif bounded < before:
        reason, rejected = Reason.NEEDS_LESS, "more than is needed"
    elif count > view.replicas_max:
        reason = Reason.AT_MAX
        text += f"; no more than {view.replicas_max} are allowed or have a partition"
    if bounded != before:
        memory["scaled_at"] = view.now
    memory[WANTED] = float(bounded)
    return Sizing(
        replicas=bounded,
        reason=reason,
        text=text,
        place=_dealing(view, memory),
        memory=memory,
        rejected=(RejectedPlan(replicas=before, reason=rejected),) if rejected else (),
    )


def _dealing(view: View, memory: dict[str, float]) -> bool:
    """Has the group just changed?"""
    if memory.get("dealt_in") != view.generation:
        memory |= {"dealt_in": float(view.generation), "dealt_at": view.now}
    return view.now - memory["dealt_at"] <= DEAL_SECONDS
