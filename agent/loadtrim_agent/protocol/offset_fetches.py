"""The OffsetFetch requests in flight, and the acquisitions that each asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from loadtrim_agent.common.partition import Partition

from .assigned_partition import AssignedPartition
from .commands import Command, FetchCommittedCommand

__all__ = ["OffsetFetches"]


class OffsetFetches:
    """Numbered requests; an answer counts for an acquisition only if it answers what was asked for it last."""

    def __init__(self, emit: Callable[[Command], None]) -> None:
        self._emit = emit
        self._in_flight: dict[int, tuple[Partition, ...]] = {}
        """Request -> what it is for, sorted."""
        self._numbers = 0

    def continue_from(self, earlier: OffsetFetches) -> None:
        """Number requests on from earlier ones of this process."""
        self._numbers = earlier._numbers

    def ask(self, entries: Iterable[AssignedPartition]) -> None:
        """Ask for the committed offsets of these, if there are any."""
        asked = list(entries)
        if not asked:
            return
        self._numbers += 1
        for entry in asked:
            entry.fetch = self._numbers
        self._in_flight[self._numbers] = partitions = tuple(sorted(entry.partition for entry in asked))
        self._emit(FetchCommittedCommand(fetch=self._numbers, partitions=partitions))

    def asks(self, entry: AssignedPartition) -> bool:
        """The last question for this acquisition is not answered yet."""
        return entry.fetch in self._in_flight

    def ask_again(self, entries: Iterable[AssignedPartition]) -> None:
        """Ask what is not answered yet of another coordinator: the one before may be silent for a session timeout."""
        waiting = [entry for entry in entries if self.asks(entry)]
        self._in_flight.clear()
        self.ask(waiting)

    def answered(self, number: int, assigned: dict[Partition, AssignedPartition]) -> list[AssignedPartition]:
        """A request was answered. Return the entries that the answer counts for, sorted by partition."""
        found = (assigned.get(partition) for partition in self._in_flight.pop(number, ()))
        return [entry for entry in found if entry is not None and entry.fetch == number]
