"""Tell whether a group still works off what its last moves have stopped.

Moves take milliseconds, unless a partition's new owner has to restore what it keeps about it. Then what waits meanwhile
looks like load, what is not read looks like a fall, and an answer to either makes further moves. So where a handoff
takes a good part of the objective, the group is left alone until it has settled. Nothing is advised until then, and
only the rate scales.

Source: the stabilization interval after a rescaling in Flink's autoscaler, and M. Koper, 2022. Changed: its length is
measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from loadtrim_agent.common.partition import Partition

from .values import GroupState, PlanConfig

__all__ = ["DEAR_OBJECTIVES", "Settling", "answer_seconds", "moves_are_dear"]

DEAR_OBJECTIVES = 0.5
"""Part of the objective that a handoff may take without being counted: what stops for longer is late, or nearly. As
much again is left for working it off. Chosen."""
SETTLED_HANDOFFS = 1.0
"""Handoffs after the last move until what came meanwhile is mostly worked off. Chosen: with two of them fewer records
were in time (docs/decisions/sizing.md), for what is overloaded meanwhile is not helped."""


TAKING_SECONDS = 1.0
"""From a replica's being there until it works, at least. Chosen: a report interval."""


def answer_seconds(startup_seconds: float, handoff_seconds: float, config: PlanConfig) -> float:
    """Return how long it takes until a replica that is asked for now helps.

    It has to start, a decision has to see it, and it has to be given a partition. That takes a second, or a handoff
    where new owners restore for longer.
    """
    return startup_seconds + config.decision_seconds + max(TAKING_SECONDS, handoff_seconds)


def moves_are_dear(handoff_seconds: float, objective_seconds: float) -> bool:
    """Return whether what a move stops is late, or nearly."""
    return handoff_seconds > DEAR_OBJECTIVES * objective_seconds


class Settling:
    """Remember when the last partition changed its owner. Not thread-safe; needs no clock."""

    def __init__(self) -> None:
        self._owners: Mapping[Partition, str | None] = {}
        self._moved_at = -math.inf

    def seconds(self, now: float, group: GroupState, handoff_seconds: float, objective_seconds: float) -> float:
        """Return how long the group is still to be left alone; 0: it has settled, or handoffs are short.

        Args:
            now: seconds since the epoch, not before the last time.
            group: as it is now.
            handoff_seconds: p99 of a handoff.
            objective_seconds: W.

        Cost: O(p) where handoffs are long.
        """
        if not moves_are_dear(handoff_seconds, objective_seconds):
            self._owners = {}
            return 0.0
        before, self._owners = self._owners, group.owners
        if group.in_flight or any(owner not in (None, group.owners.get(of)) for of, owner in before.items()):
            self._moved_at = now
        return max(0.0, self._moved_at + SETTLED_HANDOFFS * handoff_seconds - now)
