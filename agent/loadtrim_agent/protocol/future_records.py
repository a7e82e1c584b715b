"""Records of the log that belong to a generation which this member has not entered yet (rule 9)."""

from __future__ import annotations

from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.ownership_records import AssignmentRecord

__all__ = ["FutureRecords"]

RECORDS_MAX = 10_000
"""Records of later generations kept (rule 9); beyond it a rebalance is forced, which makes them unnecessary."""


class FutureRecords:
    """Generation -> its records, in the order of the log. Invariant: at most RECORDS_MAX in all."""

    def __init__(self) -> None:
        self._records: dict[int, list[tuple[int, Record]]] = {}

    def keep(self, generation: int, offset: int, record: Record) -> bool:
        """Keep one. False: there are too many, and all were dropped."""
        self._records.setdefault(generation, []).append((offset, record))
        if sum(len(records) for records in self._records.values()) > RECORDS_MAX:
            self.clear()
            return False
        return True

    def enter(self, generation: int) -> list[Record]:
        """Return the records of the generation that is entered now, and forget them with all earlier ones."""
        entered = [record for _, record in self._records.get(generation, ())]
        self._records = {g: records for g, records in self._records.items() if g > generation}
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
