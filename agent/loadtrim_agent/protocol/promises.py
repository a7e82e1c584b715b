"""The fold of the promises on the log: the partitions that their owners are about to give away (rule 14).

A promise moves nothing and binds nobody. Members that give work away by their own decision learn from it what is on its
way to each other, and a receiver fetches ahead. Every member folds the same records in the same order, so all agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.ownership_records import MemberEntry, PromiseRecord

from .ownership import Ownership

__all__ = ["Promises"]


class Promises:
    """The promises of one generation. Cost: O(1) per record."""

    def __init__(self) -> None:
        self._open: dict[Partition, PromiseRecord] = {}
        """Promises that count and are neither kept nor taken back. Invariant: one per partition, of its owner."""
        self._turns: Counter[str] = Counter()
        """Receiver -> promises to it that counted so far."""

    def enter(self) -> None:
        """A generation begins: what was promised in the one before is void."""
        self._open = {}
        self._turns.clear()

    def turn(self, target: str) -> int:
        """Return how many promises to a receiver have counted so far."""
        return self._turns[target]

    def open(self) -> dict[Partition, PromiseRecord]:
        """Return the promises that are neither kept nor taken back."""
        return dict(self._open)

    def of(self, partition: Partition) -> PromiseRecord | None:
        """Return the open promise of a partition."""
        return self._open.get(partition)

    def apply(self, record: PromiseRecord, ownership: Ownership | None, members: Mapping[str, MemberEntry]) -> bool:
        """Fold one promise in. True if it counts; anything that does not match is void and changes nothing.

        Args:
            record: the promise, or the word that it is taken back.
            ownership: the fold of the releases; None: nothing moves.
            members: of the generation's assignment.
        """
        partition = record.key
        if ownership is None or record.generation != ownership.generation or record.member != record.source:
            return False
        if (ownership.owner(partition), ownership.version(partition)) != (record.source, record.version):
            return False
        if record.taken_back:
            taken = self._open.get(partition)
            # Appends may overtake each other: a later promise of the partition stays.
            if taken != msgspec.structs.replace(record, taken_back=False):
                return False
            del self._open[partition]
            return True
        entry = members.get(record.target)
        able = entry is not None and partition.topic in entry.topics and record.target != record.source
        if not able or record.turn != self._turns[record.target]:
            return False
        self._turns[record.target] += 1
        self._open[partition] = record
        return True

    def released(self, partition: Partition) -> PromiseRecord | None:
        """A release of a partition counted: return the promise that it ends, wherever the partition went."""
        return self._open.pop(partition, None)
