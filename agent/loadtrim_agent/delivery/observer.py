"""The port of observers of delivery."""

from __future__ import annotations

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.chunk import Chunk

from .partition_stream import Stream

__all__ = ["DeliveryObserver"]


class DeliveryObserver:
    """The observer of a consumer's streams is told of everything and asked for nothing.

    Every call goes through an :class:`~loadtrim_agent.common.error_boundary.ErrorBoundary`. This base class does
    nothing.
    """

    def acquired(self, stream: Stream, seconds: float | None) -> None:
        """The stream's records are delivered from now on; ``seconds`` since its last owner stopped, if any."""

    def fetched(self, stream: Stream, chunk: Chunk, end_offset: int | None) -> None:
        """Records were fetched."""

    def released(self, partition: Partition, seconds: float) -> None:
        """A partition was given away; ``seconds`` from the stop until its new owner was in the log."""

    def lost(self, stream: Stream) -> None:
        """A partition is not owned any more (given away ones included)."""

    def sought(self, stream: Stream, offset: int) -> None:
        """User code moved its position."""

    def paused(self, stream: Stream, paused: bool) -> None:
        """User code paused or resumed a partition."""
