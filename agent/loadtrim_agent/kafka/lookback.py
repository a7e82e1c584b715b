"""The look back from the end of the control topic, for a leader that has not read what came before it (rule 8)."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, TypeVar

from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.envelope import Envelope
from loadtrim_agent.wire.ownership_records import AssignmentRecord, ManualOverrideRecord
from loadtrim_agent.wire.telemetry_records import DecisionRecord

from .connections import UNREACHABLE
from .partition_log import ANSWER_SECONDS, PartitionLog

__all__ = ["Lookback"]

Kind = TypeVar("Kind", bound=Envelope)

CHUNK_RECORDS = 2_000
DECISION_CHUNK_RECORDS = 500
"""Chosen: the last decision of up to some 400 members, each of which reports once a second, is among them."""
CLOCKS_SECONDS = 60.0
"""By which the clocks of two writers may differ. Chosen."""


class Lookback:
    """The look holds what it has found so far, so it may end at any time.

    Cost: one read for each 2,000 records since the generation began, and one of the telemetry where those are more.

    Args:
        group: the group whose records count; a control topic may be shared.
        coordination: the log.
        telemetry: the partition of the decisions.
        decode: makes records of messages; what cannot be read is left out.
    """

    def __init__(
        self,
        group: str,
        coordination: PartitionLog,
        telemetry: PartitionLog,
        decode: Callable[[Iterable[Any]], list[Record]],
    ) -> None:
        self._group = group
        self._coordination = coordination
        self._telemetry = telemetry
        self._decode = decode
        self.assignment: AssignmentRecord | None = None
        """The newest one."""
        self.complete = False
        """The look went back as far as it had to."""
        self._ordered: ManualOverrideRecord | None = None
        """The last order of the command line."""
        self._knowing: AssignmentRecord | None = None
        """The newest assignment of a leader that knew the last order."""
        self._decided: DecisionRecord | None = None
        """The newest decision, where the log does not tell enough in its last records."""
        self._oldest_at = math.inf
        """Time of the oldest record of any group so far, by its writer's clock."""

    @property
    def manual_override(self) -> ManualOverrideRecord | None:
        """Return what the command line wants: by its last order, else by the newest record that repeats it."""
        repeated_in = self._knowing or self._decided
        return self._ordered or (repeated_in.manual_override if repeated_in is not None else None)

    async def run(self, *, override_only: bool) -> None:
        """Look until the newest assignment is found, and what the command line wants.

        Args:
            override_only: the assignment is not needed. Then the look ends at what is older than the last decision,
                which tells what was wanted before.

        Raises:
            KafkaError, OSError, TimeoutError: the log cannot be read now.
        """
        decisions_read = False
        async for records in self._back(self._coordination, CHUNK_RECORDS):
            self._take(records)
            if self._ordered is not None or self._knowing is not None:
                if override_only or self.assignment is not None:
                    break
            elif not decisions_read:
                decisions_read = True
                await self._look_at_the_decisions()
            if override_only and self._decided is not None and self._oldest_at < self._decided.at - CLOCKS_SECONDS:
                break
        self.complete = True

    def _take(self, records: list[Record]) -> None:
        """Take in what stands before all that was read so far."""
        self._ordered = self._ordered or _last(records, ManualOverrideRecord)
        self.assignment = self.assignment or _last(records, AssignmentRecord)
        knowing = [each for each in records if isinstance(each, AssignmentRecord) and each.override_known]
        self._knowing = self._knowing or (knowing[-1] if knowing else None)

    async def _look_at_the_decisions(self) -> None:
        """Find the last decision: the generation may have begun days ago, further back than can be read in time."""
        try:
            async for records in self._back(self._telemetry, DECISION_CHUNK_RECORDS):
                self._decided = _last(records, DecisionRecord)
                return
        except UNREACHABLE:
            return

    async def _back(self, log: PartitionLog, chunk_records: int) -> AsyncIterator[list[Record]]:
        """Yield the group's records, chunk by chunk from the end; those of a chunk in the order of the log."""
        begin, end = await log.first(), await log.end()
        while end > begin:
            position = start = max(begin, end - chunk_records)
            records: list[Record] = []
            while position < end:
                fetched = await log.read(position, wait_seconds=0.1, timeout=ANSWER_SECONDS)
                position = fetched.following
                records += self._decode(message for message in fetched.records if message.offset < end)
            if log is self._coordination:
                self._oldest_at = min([self._oldest_at, *(record.at for record in records)])
            # A topic may be shared by groups: another one's records say nothing of this one's members.
            yield [record for record in records if record.group == self._group]
            end = start


def _last(records: list[Record], kind: type[Kind]) -> Kind | None:
    return next((record for record in reversed(records) if isinstance(record, kind)), None)
