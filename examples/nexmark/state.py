"""What a query keeps of one partition, and how that survives a move or a crash: a compacted changelog beside the input.

Changes are written after a batch's results were acknowledged, in an order that a crash may cut anywhere:

1. what was put, each with the offset of the last event that is in it, so that an event that is handed out again is not
   counted again; also what was dropped since, as it was last, so that who finds it finds all of it;
2. the offset up to which the batch was worked off: events up to it are skipped when they are handed out again;
3. what was dropped. Before the offset is there nothing is gone that an event handed out again would miss.

So counts are exact, and results of the last batch before a crash may come twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

__all__ = ["APPLIED", "Change", "State"]

T = TypeVar("T")
APPLIED = "applied"
"""Key of the offset in the changelog; keys of queries are numbers."""

Change = tuple[str, bytes | None]
"""(key, value); None: dropped."""


class State:
    """Of one partition. Queries put, get and drop; the service writes the changes."""

    def __init__(self) -> None:
        self.applied = -1
        """Offset up to which everything is in the changelog."""
        self._values: dict[str, Any] = {}
        self._stored: dict[str, bytes] = {}
        """Restored and not looked at yet."""
        self._put: dict[str, None] = {}
        self._dropped: dict[str, Any] = {}
        """What it was, if it was put since the last changes were written; None: as in the changelog."""

    def restore(self, key: str, value: bytes | None) -> None:
        """One record of the changelog, in its order."""
        if key == APPLIED:
            self.applied = max(self.applied, msgspec.json.decode(value or b"-1", type=int))
        elif value is None:
            self._stored.pop(key, None)
        else:
            self._stored[key] = value

    def get(self, key: str, kind: type[T]) -> T | None:
        """What is kept under a key."""
        if (stored := self._stored.pop(key, None)) is not None:
            self._values[key] = msgspec.json.decode(stored, type=kind)
        value: T | None = self._values.get(key)
        return value

    def all(self, kind: type[T]) -> Iterator[tuple[str, T]]:
        """Everything that is kept, sorted by key."""
        for key in sorted(self._stored.keys() | self._values.keys()):
            value = self.get(key, kind)
            assert value is not None
            yield key, value

    def put(self, key: str, value: msgspec.Struct) -> None:
        """Keep this."""
        self._stored.pop(key, None)
        self._values[key] = value
        self._dropped.pop(key, None)
        self._put[key] = None

    def drop(self, key: str) -> None:
        """Keep nothing under a key."""
        self._stored.pop(key, None)
        value = self._values.pop(key, None)
        self._dropped[key] = value if key in self._put else None
        self._put.pop(key, None)

    def changes(self, applied: int) -> list[Change]:
        """What was changed since the last call, in the order in which it is to be written.

        Args:
            applied: offset up to which all events are worked off.
        """
        self.applied = applied
        put = {key: self._values[key] for key in self._put}
        put |= {key: value for key, value in self._dropped.items() if value is not None}
        made: list[Change] = [(key, msgspec.json.encode(value)) for key, value in put.items()]
        made.append((APPLIED, b"%d" % applied))
        made += [(key, None) for key in self._dropped]
        self._put, self._dropped = {}, {}
        return made
