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
import statistics
from collections.abc import Mapping, Sequence

from loadtrim_agent.common.partition import Partition

from .values import GroupState, PlanConfig

__all__ = ["DEAR_OBJECTIVES", "Settling", "answer_seconds", "moves_are_dear", "restoring_seconds"]

DEAR_OBJECTIVES = 0.5
"""Part of the objective that a move may stop without being counted: what stops for longer is late, or nearly. As much
again is left for working it off. Chosen."""
HANDOFFS_MIN = 5
"""Handoffs by which it is known that new owners restore something. Chosen."""
SETTLED_HANDOFFS = 1.0
"""Handoffs after the last move until what came meanwhile is mostly worked off. Chosen: with two of them fewer records
were in time (docs/decisions/sizing.md), for what is overloaded meanwhile is not helped."""
SETTLING_HANDOFFS_MAX = 3.0
"""Handoffs after the first of several moves for which a group is left alone at most. Then it is planned for as long,
whatever moves. Chosen."""
TAKING_SECONDS = 1.0
"""From a replica's being there until it works, at least. Chosen: a report interval."""


def restoring_seconds(handoffs_seconds: Sequence[float], in_hand_seconds: float) -> float:
    """Return how long a new owner restores what it keeps about a partition, as the median of the handoffs tells.

    One handoff in a hundred may take seconds, where user code was in the middle of a long record. That is no reason to
    move less. So the median counts, less a record in hand, and nothing where there are few handoffs.

    Args:
        handoffs_seconds: the last ones of the group.
        in_hand_seconds: that user code has a record.

    Cost: O(n log n) for n handoffs.
    """
    if len(handoffs_seconds) < HANDOFFS_MIN:
        return 0.0
    return max(0.0, statistics.median(handoffs_seconds) - in_hand_seconds)


def answer_seconds(startup_seconds: float, restores_seconds: float, config: PlanConfig) -> float:
    """Return how long it takes until a replica that is asked for now helps.

    It has to start, a decision has to see it, and it has to be given a partition. That takes a second, or what a new
    owner restores for if that is longer.
    """
    return startup_seconds + config.decision_seconds + max(TAKING_SECONDS, restores_seconds)


def moves_are_dear(restores_seconds: float, objective_seconds: float) -> bool:
    """Return whether what a move stops is late, or nearly."""
    return restores_seconds > DEAR_OBJECTIVES * objective_seconds


class Settling:
    """Remember when partitions changed their owners. Not thread-safe; needs no clock."""

    def __init__(self) -> None:
        self._owners: Mapping[Partition, str | None] = {}
        self._moved_at = -math.inf
        """Time of the last move that was looked at."""
        self._began_at = -math.inf
        """Time of the first of moves that followed each other before the group had settled."""
        self._until = -math.inf
        """Time at which it has settled."""

    def seconds(self, now: float, group: GroupState, restores_seconds: float, objective_seconds: float) -> float:
        """Return how long the group is still to be left alone; 0: it has settled, or moves stop little.

        Args:
            now: seconds since the epoch, by the leader's clock. One that is set back ends the settling.
            group: as it is now.
            restores_seconds: see :func:`restoring_seconds`.
            objective_seconds: W.

        Cost: O(p) where moves stop much.
        """
        if not moves_are_dear(restores_seconds, objective_seconds):
            self._owners = {}
            return 0.0
        before, self._owners = self._owners, group.owners
        if now < self._moved_at:
            self._until = self._began_at = -math.inf
        if group.in_flight or any(owner not in (None, group.owners.get(of)) for of, owner in before.items()):
            self._moved(now, restores_seconds)
        return max(0.0, self._until - now)

    def _moved(self, now: float, restores_seconds: float) -> None:
        longest = SETTLING_HANDOFFS_MAX * restores_seconds
        too_long = self._until >= self._began_at + longest
        if now >= self._until and not (too_long and now < self._began_at + 2.0 * longest):
            self._began_at = now
        self._moved_at = now
        self._until = min(now + SETTLED_HANDOFFS * restores_seconds, self._began_at + longest)
