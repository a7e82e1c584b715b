"""The last events and commands of a machine: what an error tells, and what benchmarks look at."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from loadtrim_agent.common.partition import Partition

from .commands import Command
from .events import Event, TickEvent

__all__ = ["Trace"]

ENTRIES_MAX = 2_000
"""Chosen: some minutes of a quiet member; at most 1 MB."""
HISTORY_LINES_MAX = 30
"""Chosen: what an error tells of its item; three moves of a partition."""
HISTORY_LINE_CHARACTERS_MAX = 300
"""Chosen: a whole assignment of a large group would be thousands."""


class Trace:
    """Events and the commands that answered them, with their times. Bounded."""

    def __init__(self) -> None:
        self._entries: deque[tuple[float, Event | Command]] = deque(maxlen=ENTRIES_MAX)

    def add(self, event: Event, commands: Sequence[Command]) -> None:
        """Keep an event with what it led to. A tick that led to nothing is not kept."""
        if commands or not isinstance(event, TickEvent):
            self._entries.append((event.now, event))
            self._entries.extend((event.now, command) for command in commands)

    def entries(self) -> list[tuple[float, Event | Command]]:
        """Return what is kept, oldest first."""
        return list(self._entries)

    def history_of(self, item: object, event: Event, commands: Sequence[Command]) -> tuple[str, ...]:
        """Return the last lines about a partition, or about everything where ``item`` is none.

        Args:
            item: what the error is about.
            event: the event that led to the error. It is not kept yet.
            commands: what was commanded before the error.
        """
        named = f"topic={item.topic!r}, partition={item.partition}" if isinstance(item, Partition) else ""
        entries = [*self._entries, (event.now, event), *((event.now, command) for command in commands)]
        lines = (f"{at:.3f} {entry!r}" for at, entry in entries)
        # Both as a Partition and as the fields of a record: "...partition=1" must not find partition 10.
        told = deque((line for line in lines if f"{named})" in line or f"{named}," in line), maxlen=HISTORY_LINES_MAX)
        return tuple(line[:HISTORY_LINE_CHARACTERS_MAX] for line in told)
