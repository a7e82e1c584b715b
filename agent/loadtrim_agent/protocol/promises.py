"""The fold of the promises on the log: the partitions that their owners are about to give away (rule 14).

A promise moves nothing and binds nobody. Members that give work away by their own decision learn from it what is on its
way to each other, and a receiver fetches ahead. Every member folds the same records in the same order, so all agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec import structs

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.ownership_records import MemberEntry, PromiseRecord

from .ownership import Ownership

__all__ = ["REMEMBERED_MAX", "Promises"]


REMEMBERED_MAX = 1_000
"""Chosen: whoever may write to the topic can make no member remember more. Copies of an append land within seconds."""


class Promises:
    """The promises of one generation. Cost: O(1) per record."""

    def __init__(self) -> None:
        self._open: dict[Partition, PromiseRecord] = {}
        """Promises that count and are neither kept nor taken back. Invariant: one per partition, of its owner."""
        self._turns: Counter[str] = Counter()
        """Receiver -> promises to it that counted so far."""
        self._own: Counter[tuple[str, str]] = Counter()
        """The same of one giver: (receiver, giver) -> promises."""
        self._known: dict[PromiseRecord, None] = {}
        """The last promises that were read, or taken back before: appends land twice, and overtake each other."""
        self._whole = True
        """Every record of the generation was read, so this fold is that of all members."""

    def enter(self, *, whole: bool = True) -> None:
        """A generation begins: what was promised in the one before is void.

        Args:
            whole: False where records of this generation may have been missed before it was entered.
        """
        self._open = {}
        self._turns.clear()
        self._own.clear()
        self._known.clear()
        self._whole = whole

    def gap(self) -> None:
        """Records were missed: what others count is not known until the next generation."""
        self.enter(whole=False)

    @property
    def whole(self) -> bool:
        """Promises of this generation can be counted."""
        return self._whole

    def turn(self, source: str, target: str) -> int:
        """Return how many promises of members other than ``source`` to a receiver have counted so far.

        A giver's own promises are left out: it knows of them, also of those that it has not read yet.
        """
        return self._turns[target] - self._own[target, source]

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
        ours = ownership is not None and record.generation == ownership.generation
        if ownership is None or not (ours and self._whole) or record.member != record.source:
            return False
        if (ownership.owner(partition), ownership.version(partition)) != (record.source, record.version):
            return False
        if record.taken_back:
            return self._take_back(structs.replace(record, taken_back=False))
        if record in self._known:
            return False
        self._remember(record)
        entry = members.get(record.target)
        able = entry is not None and partition.topic in entry.topics and record.target != record.source
        # Appends may overtake each other: until the first promise of a partition is taken back, a second is void.
        if not able or partition in self._open or record.turn != self.turn(record.source, record.target):
            return False
        self._turns[record.target] += 1
        self._own[record.target, record.source] += 1
        self._open[partition] = record
        return True

    def _take_back(self, promise: PromiseRecord) -> bool:
        if self._open.get(promise.key) == promise:
            del self._open[promise.key]
            return True
        self._remember(promise)
        return False

    def _remember(self, promise: PromiseRecord) -> None:
        """Count no copy of it, whatever became of it."""
        self._known[promise] = None
        if len(self._known) > REMEMBERED_MAX:
            del self._known[next(iter(self._known))]

    def released(self, partition: Partition) -> PromiseRecord | None:
        """A release of a partition counted: return the promise that it ends, wherever the partition went."""
        return self._open.pop(partition, None)
