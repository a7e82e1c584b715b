"""Which moves were advised and did not happen: they rest for a while before they are advised again.

A move fails when its owner drops the intention: user code holds the record in hand for longer than the drain may take.
It fails as well when the commit is refused. Nobody tells the leader so; the partition simply stays where it was.
Advised again at once it would stop the partition again and again for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.ownership_records import MovePlan

from .values import GroupState

__all__ = ["Advice"]

REST_SECONDS = 10.0
"""Doubles with every failure of the same partition in a row."""
REST_SECONDS_MAX = 300.0


class _Move(msgspec.Struct, frozen=True):
    source: str
    target: str
    generation: int


class _Rest(msgspec.Struct, frozen=True):
    owner: str
    until: float
    seconds: float


class Advice:
    """Deterministic; fed with every decision's moves and asked before the next."""

    def __init__(self) -> None:
        self._pending: dict[Partition, _Move] = {}
        self._rests: dict[Partition, _Rest] = {}

    def resting(self, now: float, group: GroupState) -> frozenset[Partition]:
        """Partitions that are to stay where they are for now, unless their owner goes.

        Args:
            now: seconds since the epoch, not before the last time.
            group: as it is now; a move is under way as long as it is among ``in_flight``, and advice of an earlier
                generation is void whatever came of it.
        """
        for partition, move in list(self._pending.items()):
            if move.generation == group.generation and partition in group.in_flight:
                continue
            del self._pending[partition]
            if move.generation == group.generation and group.owners.get(partition) == move.source:
                self._failed(partition, move.source, now)
        for partition, rest in list(self._rests.items()):
            # The length is remembered for as long again, so that the next failure doubles it.
            if group.owners.get(partition) != rest.owner or now >= rest.until + rest.seconds:
                del self._rests[partition]
        return frozenset(partition for partition, rest in self._rests.items() if now < rest.until)

    def advised(self, moves: Sequence[MovePlan], generation: int) -> None:
        """These moves were decided on."""
        for move in moves:
            self._pending[Partition(move.topic, move.partition)] = _Move(move.source, move.target, generation)

    def _failed(self, partition: Partition, owner: str, now: float) -> None:
        before = self._rests.get(partition)
        seconds = REST_SECONDS if before is None else min(2.0 * before.seconds, REST_SECONDS_MAX)
        self._rests[partition] = _Rest(owner, now + seconds, seconds)
