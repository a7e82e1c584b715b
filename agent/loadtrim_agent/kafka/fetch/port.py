"""The fetcher: fetches the records of what this member holds.

:class:`Fetcher` is the port; :class:`~.fetcher.KafkaFetcher` implements it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from loadtrim_agent.common.partition import Partition

from .chunk import Chunk
from .offsets import OffsetQueries
from .state import Budget, FetchPosition

__all__ = ["FetchSink", "Fetcher"]


class FetchSink(Protocol):
    """The sink takes fetched chunks, in the agent's loop."""

    def chunk(self, chunk: Chunk) -> None:
        """One fetch brought this of one partition; it has records for user code."""

    def failed(self, error: Exception, partition: Partition | None) -> None:
        """An error that ``AIOKafkaConsumer`` would raise in user code, of one partition; None: fetching has ended."""


class Fetcher(Protocol):
    """What the agent needs of any fetcher. All methods are called in the agent's loop."""

    @property
    def queries(self) -> OffsetQueries:
        """What needs no group: offsets by time, end offsets, topics."""

    @property
    def budget(self) -> Budget:
        """Of all buffers."""

    async def start(self) -> None:
        """Connect. Raises what ``AIOKafkaConsumer.start`` raises."""

    async def close(self) -> None:
        """End every task and connection."""

    def cover(self, partitions: Iterable[Partition]) -> None:
        """All partitions that might ever be taken, now. What is fetched goes on being fetched."""

    async def reset_offset(self, partition: Partition) -> int:
        """Where ``auto_offset_reset`` starts. Raises NoOffsetForPartitionError where that is ``none``."""

    def take(self, partition: Partition, offset: int) -> None:
        """Fetch from ``offset`` on, at once. What was fetched for an earlier take is not given any more."""

    def take_ahead(self, partition: Partition, offset: int) -> None:
        """The same for one that is perhaps about to be ours: nothing that is ours waits for it. :meth:`take` or
        :meth:`drop` ends that, or :meth:`keep`."""

    def keep(self, partition: Partition) -> None:
        """What is fetched ahead is ours now, and is gone on with at once."""

    def drop(self, partition: Partition) -> None:
        """Fetch no more; what comes late is thrown away."""

    def refill(self, partition: Partition) -> None:
        """The user's thread is done with a chunk that asked to be told: there may be room again."""

    def position(self, partition: Partition) -> FetchPosition | None:
        """The offset fetched next: behind the last record given, and behind what holds no records for users."""

    def end_offset(self, partition: Partition) -> int | None:
        """End of the log as the last answer told it: with ``read_committed`` the last stable offset."""

    def end_offset_at(self, partition: Partition) -> float | None:
        """When it did, own wall clock."""

    def high_watermark(self, partition: Partition) -> int | None:
        """End of the log, open transactions included. Any thread."""

    def last_stable_offset(self, partition: Partition) -> int | None:
        """End of what is decided, -1 where the broker does not tell. Any thread."""

    async def run(self, sink: FetchSink) -> None:
        """Fetch for ever."""
