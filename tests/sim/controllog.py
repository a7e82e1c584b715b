"""The coordination log: ordered records, appends whose fate is uncertain, readers that lag and miss things."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.ownership_records import AssignmentRecord

from .scheduler import Scheduler

__all__ = ["AppendFate", "ControlLog", "LogReader", "LogTail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendFate:
    """What happens to one append."""

    land_seconds: float = 0.002
    lands: bool = True
    acknowledged: bool = True
    """False: reported as failed, whatever happened."""
    answer_seconds: float = 0.002
    copy_seconds: float | None = None
    """It lands once more, this much later."""
    vanishes: bool = False
    """Acknowledged, and lost by the log before anybody read it."""


class LogTail(Protocol):
    """Who reads: gets every record once, in order."""

    def read(self, offset: int, record: Record) -> None: ...

    def positioned(self, position: int) -> None: ...

    def gap(self) -> None: ...


class LogReader:
    """One member's position in the log."""

    def __init__(self, log: ControlLog, tail: LogTail, position: int) -> None:
        self._log = log
        self._tail = tail
        self.position = position
        self.blocked_until = 0.0
        """Nothing is read before this time (lag, failure)."""
        self._due = False
        self.closed = False

    def notify(self) -> None:
        if not self._due and not self.closed:
            self._due = True
            scheduler = self._log.scheduler
            delay = self._log.read_seconds()
            scheduler.at(max(scheduler.now + delay, self.blocked_until), self._read)

    def block(self, until: float) -> None:
        self.blocked_until = max(self.blocked_until, until)

    def skip_to_end(self) -> None:
        """Miss what is there and be told."""
        if not self.closed:
            self.position = self._log.end
            self._tail.gap()

    def _read(self) -> None:
        self._due = False
        if self.closed:
            return
        if self._log.scheduler.now < self.blocked_until:
            self.notify()
            return
        end = self._log.end
        while self.position < end and not self.closed:
            offset = self.position
            self.position += 1
            record = self._log.records[offset]
            if record is not None:
                self._tail.read(offset, record)
        if not self.closed:
            self._tail.positioned(self.position)


class ControlLog:
    """Partition 0 of the control topic."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.records: list[Record | None] = []
        """None: acknowledged and lost. Readers pass over it without noticing."""
        self.readers: list[LogReader] = []
        self.fate_of: Callable[[str, Record], AppendFate] = lambda source, record: AppendFate()
        self.read_seconds: Callable[[], float] = lambda: 0.001
        self.late_until = 0.0

    @property
    def end(self) -> int:
        return len(self.records)

    def tail(self, tail: LogTail) -> LogReader:
        """Read from the log's end as it is now."""
        reader = LogReader(self, tail, self.end)
        self.readers.append(reader)
        return reader

    def append(self, source: str, record: Record, answered: Callable[[int | None], None]) -> None:
        """Append; ``answered`` gets the offset, or None where the outcome is not known. Never at once."""
        fate = self.fate_of(source, record)
        if fate.lands:
            self.scheduler.after(fate.land_seconds, self._land, record, fate, answered)
            late = max(fate.land_seconds, fate.copy_seconds or 0.0)
            self.late_until = max(self.late_until, self.scheduler.now + late)
        if fate.copy_seconds is not None:
            self.scheduler.after(fate.copy_seconds, self._land, record, None, None)
        if not fate.acknowledged:
            self.scheduler.after(fate.answer_seconds, answered, None)

    def newest_assignment(self) -> AssignmentRecord | None:
        return next((r for r in reversed(self.records) if isinstance(r, AssignmentRecord)), None)

    def truncate(self, count: int) -> None:
        """Lose the last ``count`` records. Readers beyond are told; others notice nothing."""
        keep = max(0, self.end - count)
        del self.records[keep:]
        for reader in self.readers:
            if reader.position > keep:
                reader.skip_to_end()

    def _land(self, record: Record, fate: AppendFate | None, answered: Callable[[int | None], None] | None) -> None:
        offset = self.end
        self.records.append(None if fate is not None and fate.vanishes else record)
        if fate is not None and fate.acknowledged and answered is not None:
            self.scheduler.after(fate.answer_seconds, answered, offset)
        for reader in self.readers:
            reader.notify()
