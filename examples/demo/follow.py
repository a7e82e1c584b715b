"""Follows the journals of a run that is still going on."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Follower"]

RECENT_MAX = 5_000
"""Latencies kept for a look at the present."""


@dataclass(slots=True)
class Follower:
    """What the journals say so far. Each :meth:`poll` reads only what was added since the last one."""

    directory: Path
    acknowledged: int = 0
    done: set[tuple[str, str, str]] = field(default_factory=set)
    """(topic, partition, offset) of every record that was done at least once."""
    done_last_ns: int = 0
    recent: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=RECENT_MAX))
    """(time of being done in clock's ns, seconds since it was sent) of the newest records."""
    unfinished: set[tuple[str, str, str]] = field(default_factory=set)
    """(topic, partition, offset) of every record that was acknowledged and not done yet."""
    handed_last_ns: dict[tuple[str, str], int] = field(default_factory=dict)
    """(topic, partition) -> when a record of it was handed out last."""
    in_hand: dict[tuple[Path, str, str, str], str] = field(default_factory=dict)
    """(journal, topic, partition, offset) -> id of every record that was handed out and is not done there."""
    _read: dict[Path, int] = field(default_factory=dict)
    _sent_ns: dict[str, int] = field(default_factory=dict)

    def poll(self) -> None:
        """Read on. O(new lines)."""
        for path in sorted(self.directory.glob("*.journal"), key=lambda path: not path.name.startswith("producer-")):
            if path.stat().st_size == self._read.get(path, 0):
                continue
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                whole, line_break, _ = file.read().rpartition(b"\n")
            self._read[path] = self._read.get(path, 0) + len(whole) + len(line_break)
            for line in whole.decode(errors="replace").split("\n") if line_break else ():
                self._take(path, line.split(","))

    def _take(self, path: Path, fields: list[str]) -> None:
        match fields:
            case ["P", record_id, _, _, at, _]:
                self._sent_ns[record_id] = int(at)
            case ["A", _, topic, partition, offset, _]:
                self.acknowledged += 1
                if (topic, partition, offset) not in self.done:
                    self.unfinished.add((topic, partition, offset))
            case ["H", topic, partition, offset, record_id, at]:
                self.in_hand[path, topic, partition, offset] = record_id
                self.handed_last_ns[topic, partition] = max(self.handed_last_ns.get((topic, partition), 0), int(at))
            case ["D", topic, partition, offset, at]:
                self._done(path, (topic, partition, offset), int(at))

    def _done(self, path: Path, key: tuple[str, str, str], at_ns: int) -> None:
        self.done_last_ns = max(self.done_last_ns, at_ns)
        record_id = self.in_hand.pop((path, *key), "")
        sent_ns = self._sent_ns.pop(record_id, None)
        if key not in self.done and sent_ns is not None:
            self.recent.append((at_ns, (at_ns - sent_ns) / 1e9))
        self.done.add(key)
        self.unfinished.discard(key)
