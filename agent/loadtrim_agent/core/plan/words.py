"""Decisions in words, and late records by cause."""

from __future__ import annotations

from .values import Estimate, Outcome, Placement, PlanConfig, Reason, Sizing

__all__ = ["attribute", "sentence"]

QUEUED = "queued"
"""What a member says of a record that waited for other partitions' records: it cannot know why nobody else had them."""


def sentence(sizing: Sizing, placement: Placement, moves: int, outcome: Outcome, config: PlanConfig) -> str:
    """One English sentence: "4 replicas: 2.9 busy seconds/s arrive, bursts and an objective of 0.5 s need 3.6; ..."."""
    count = f"{sizing.replicas} replica{'s' if sizing.replicas != 1 else ''}"
    parts = [f"{count}: {sizing.text}"]
    if sizing.reason is Reason.AT_MAX:
        parts.append("nothing more can be added")
    if placement.victims:
        parts.append(f"{', '.join(placement.victims)} to go")
    if moves:
        whose = "" if len({m.reason for m in placement.moves}) != 1 else f" ({placement.moves[0].reason})"
        parts.append(f"{moves} partition{'s' if moves != 1 else ''} to move{whose}")
    if config.mode == "shadow" and outcome in (Outcome.UP, Outcome.DOWN):
        parts.append("shadow mode, so nothing is scaled")
    elif not config.can_scale and outcome in (Outcome.UP, Outcome.DOWN):
        parts.append("no scaler is set, so this is advice")
    return "; ".join(parts) + "."


def attribute(seen: Estimate, placement: Placement, actual: int, wanted: int) -> dict[str, int]:
    """Late records by cause. What members call *queued* waited for lack of capacity in the right place, because a
    replica is on its way, because whole partitions do not fit better (placement), or because more came than was
    expected (forecast)."""
    result: dict[str, int] = {}
    for cause, count in sorted(seen.late_records.items()):
        if cause == QUEUED:
            if wanted > actual:
                cause = "startup"
            elif placement.misfits:
                cause = "placement"
            else:
                cause = "forecast"
        result[cause] = result.get(cause, 0) + count
    return result
