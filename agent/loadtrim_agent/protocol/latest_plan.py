"""The leader's latest advice, and those of its moves that cannot begin yet."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.ownership_records import MovePlan, PlanRecord

from .assigned_partition import AssignedPartition

__all__ = ["LatestPlan"]


class LatestPlan(msgspec.Struct):
    """The latest plan of a generation. The next one, and the end of the generation, put another in its place.

    The first plan of a group may overtake the first commits of its members. A move of a partition that is not opened
    yet waits for that: refused, it would rest for seconds (:mod:`loadtrim_agent.planning.advice`), and a newcomer would
    have nothing to do.
    """

    record: PlanRecord | None = None
    """None: there was none in this generation."""
    unopened: dict[Partition, str] = msgspec.field(default_factory=dict)
    """The targets of moves that wait until their partition is opened."""

    @property
    def moves(self) -> tuple[MovePlan, ...]:
        """The moves that it advises."""
        return self.record.moves if self.record is not None else ()

    def keep(self, waiting: Mapping[Partition, str]) -> None:
        """Let moves of earlier plans go on waiting, but those of partitions that this one moves.

        A leader names a move once and takes it for under way then, as it is where the partition is opened.
        """
        named = {Partition(move.topic, move.partition) for move in self.moves}
        self.unopened |= {partition: target for partition, target in waiting.items() if partition not in named}

    def opened(self, assigned: Mapping[Partition, AssignedPartition]) -> list[tuple[Partition, str]]:
        """Return the moves that need not wait any longer, in order, once each.

        Args:
            assigned: all that is held. A move of what is not held any more need not wait either.
        """
        waiting = {partition for partition, entry in assigned.items() if not entry.opened}
        moves = [move for move in sorted(self.unopened.items()) if move[0] not in waiting]
        for partition, _ in moves:
            del self.unopened[partition]
        return moves
