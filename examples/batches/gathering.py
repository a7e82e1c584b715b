"""When a batch is complete: pure, the time is given.

Source: Landau'24, section V-B, first phase: "attempt to fetch batch_size bytes [...]. After this condition is satisfied
or wait_time_secs is exceeded, the consumer moves on".
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import TopicPartition

__all__ = ["Batch", "BatchLimits", "Complete", "Gathering", "size_bytes"]

Batch = dict[TopicPartition, list[Any]]
"""Records by partition, as ``getmany`` returns them; each list in the order of the offsets."""


class Complete(enum.Enum):
    """Why a batch is complete."""

    BYTES = "enough bytes"
    TIME = "the time is over"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Whichever is reached first completes a batch.

    Raises:
        ValueError: one of them is out of its range, in one line.
    """

    batch_bytes: int = 5_000_000
    """The paper's ``batch_size`` (5 MB in section VI): keys and values, at least 1."""
    wait_seconds: float = 1.0
    """The paper's ``wait_time_secs`` (1 s there), above 0."""

    def __post_init__(self) -> None:
        if self.batch_bytes < 1:
            raise ValueError(f"a batch of {self.batch_bytes} bytes would never be begun; give 1 byte or more")
        if not 0.0 < self.wait_seconds < math.inf:
            raise ValueError(f"{self.wait_seconds:g} s is no time to wait for a batch; give a finite number above 0")


class Gathering:
    """What a cycle has gathered so far."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._batch: Batch = {}
        self._until = 0.0
        self.bytes = 0
        """Of all records that are in it now."""

    def begin(self, now: float) -> None:
        """A cycle begins, and with it the time that it may gather (seconds, on any clock)."""
        self._until = now + self._limits.wait_seconds

    def add(self, records: Mapping[TopicPartition, Sequence[Any]]) -> None:
        """What one call of ``getmany`` returned."""
        for partition, more in records.items():
            self._batch.setdefault(partition, []).extend(more)
            self.bytes += size_bytes(more)

    def complete(self, now: float) -> Complete | None:
        """Whether to stop gathering, and why; None: go on."""
        if self.bytes >= self._limits.batch_bytes:
            return Complete.BYTES
        return Complete.TIME if now >= self._until else None

    def left_seconds(self, now: float) -> float:
        """How long it may still gather, at least 0."""
        return max(0.0, self._until - now)

    def take(self, partitions: Iterable[TopicPartition] | None = None) -> Batch:
        """Remove and return the records of these partitions; None: of all."""
        wanted = list(self._batch) if partitions is None else partitions
        taken = {partition: self._batch.pop(partition) for partition in wanted if partition in self._batch}
        self.bytes -= sum(map(size_bytes, taken.values()))
        return taken


def size_bytes(records: Iterable[Any]) -> int:
    """Keys and values as they came over the wire; a size of -1 is that of one that is not there."""
    return sum(max(0, each.serialized_key_size) + max(0, each.serialized_value_size) for each in records)
