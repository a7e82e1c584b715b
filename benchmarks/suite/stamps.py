"""What a process writes down about records: (partition, offset, nanoseconds on the boot-time clock)."""

from __future__ import annotations

import array
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["Count", "Stamp", "Stamps", "by_partition"]


class Stamp(NamedTuple):
    """One record in the hands of one process."""

    partition: int
    offset: int
    at_ns: int
    who: str


class Stamps:
    """Kept in memory, 24 bytes a record, and written as a whole."""

    def __init__(self) -> None:
        self.values = array.array("q")

    def add(self, partition: int, offset: int, at_ns: int) -> None:
        self.values.extend((partition, offset, at_ns))

    def __len__(self) -> int:
        return len(self.values) // 3

    def save(self, path: Path) -> None:
        path.write_bytes(self.values.tobytes())

    @staticmethod
    def load(path: Path, who: str) -> Iterator[Stamp]:
        values = array.array("q")
        values.frombytes(path.read_bytes())
        for index in range(0, len(values), 3):
            yield Stamp(values[index], values[index + 1], values[index + 2], who)


class Count(Stamps):
    """Count records and keep none of them, for runs in which memory is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def add(self, partition: int, offset: int, at_ns: int) -> None:
        self._count += 1

    def __len__(self) -> int:
        return self._count


def by_partition(stamps: Iterator[Stamp] | list[Stamp]) -> dict[int, list[Stamp]]:
    """Sorted by time, per partition."""
    found: dict[int, list[Stamp]] = {}
    for stamp in stamps:
        found.setdefault(stamp.partition, []).append(stamp)
    return {p: sorted(found[p], key=lambda s: (s.at_ns, s.offset)) for p in sorted(found)}
