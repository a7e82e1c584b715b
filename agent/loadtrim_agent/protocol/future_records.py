"""Records of the log that belong to a generation which this member has not entered yet (rule 9)."""

from __future__ import annotations

from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.ownership_records import AssignmentRecord, PlanRecord

__all__ = ["FutureRecords"]

RECORDS_MAX = 10_000
"""Records of later generations kept (rule 9); beyond it a rebalance is forced, which makes them unnecessary."""
NAMES_MAX = 200_000
"""The same for all members, partitions and moves that they name: a record may be as large as the broker takes."""


class FutureRecords:
    """Generation -> its records, in the order of the log. Invariant: at most RECORDS_MAX and NAMES_MAX in all."""

    def __init__(self) -> None:
        self._records: dict[int, list[tuple[int, Record]]] = {}
        self._names = 0
        """Count of the names in the records since all were forgotten last; no less than the count of what is kept."""

    def keep(self, generation: int, offset: int, record: Record) -> bool:
        """Keep one. False: there are too many, and all were dropped."""
        self._records.setdefault(generation, []).append((offset, record))
        self._names += _names(record)
        if sum(len(records) for records in self._records.values()) > RECORDS_MAX or self._names > NAMES_MAX:
            self.clear()
            return False
        return True

    def enter(self, generation: int) -> list[Record]:
        """Return the records of the generation that is entered now, and forget them with all earlier ones."""
        entered = [record for _, record in self._records.get(generation, ())]
        self._records = {g: records for g, records in self._records.items() if g > generation}
        self._names = sum(_names(record) for records in self._records.values() for _, record in records)
        return entered

    def assignment_at(self, generation: int, offset: int) -> AssignmentRecord | None:
        """Return the assignment that stands at this place of the log, if it was read."""
        for at, record in self._records.get(generation, ()):
            if at == offset and isinstance(record, AssignmentRecord):
                return record
        return None

    def clear(self) -> None:
        """Forget everything: what was read may have a gap."""
        self._records = {}
        self._names = 0


def _names(record: Record) -> int:
    if isinstance(record, AssignmentRecord):
        return sum(1 + len(indexes) for entry in record.members.values() for _, indexes in (("", ()), *entry.owns))
    return len(record.moves) + len(record.victims) if isinstance(record, PlanRecord) else 0
