"""The data partitions, and the ledger: what was handed out to whom, and what was done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from loadtrim_agent.common.partition import Partition

__all__ = ["DataPartition", "Handed", "Holder"]


class Holder(Protocol):
    """Who was handed a record, as far as the ledger must know."""

    name: str

    def excused_since(self, time: float) -> bool:
        """Whether it crashed, lost its lease, or was in a mixed group at some time from ``time`` on."""


@dataclass(slots=True)
class Handed:
    """One record that was handed out."""

    holder: Holder
    at: float


class DataPartition:
    """One partition of the user's records: they are numbers only."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.end = 0
        self.started_at: int | None = None
        """Where the group began to read: what lies before need not be done."""
        self.done_below = 0
        """Every record from :attr:`started_at` up to here is done."""
        self._done: set[int] = set()
        self.handed: dict[int, Handed] = {}
        """Offset -> who had it last."""

    def start(self, offset: int) -> None:
        """The group begins to read here, unless it began before."""
        if self.started_at is None:
            self.started_at = self.done_below = offset

    def mark_done(self, offset: int) -> None:
        if offset < self.done_below:
            return
        self._done.add(offset)
        while self.done_below in self._done:
            self._done.discard(self.done_below)
            self.done_below += 1
