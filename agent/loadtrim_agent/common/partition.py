"""The partition: the one value that every room uses."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Partition"]


class Partition(NamedTuple):
    """One partition of one topic.

    Equal to, and hashed like, ``aiokafka.TopicPartition`` (both are plain tuples), so the shell passes either.
    Sorting by it is the order in which every decision of the core looks at partitions.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
