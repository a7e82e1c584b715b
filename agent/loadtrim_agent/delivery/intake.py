"""Fetched chunks go into the record buffer, to the prefetched partitions, or nowhere."""

from __future__ import annotations

from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.tasks import FailureSink
from loadtrim_agent.kafka.fetch.chunk import Chunk
from loadtrim_agent.kafka.fetch.port import Fetcher

from .observer import DeliveryObserver
from .partition_stream import Stream
from .prefetch import Prefetching
from .record_buffer import RecordBuffer

__all__ = ["ChunkIntake"]


class ChunkIntake:
    """The intake takes chunks in the agent's loop. Implements :class:`loadtrim_agent.kafka.fetch.port.FetchSink`.

    Args:
        buffer: where user code takes records from.
        fetcher: what they come from.
        prefetching: keeps what was fetched before a partition is owned.
        observer: told of what was fetched.
        boundary: contains what the observer raises.
        failures: takes what ends fetching.
    """

    def __init__(
        self,
        buffer: RecordBuffer,
        fetcher: Fetcher,
        prefetching: Prefetching,
        observer: DeliveryObserver,
        boundary: ErrorBoundary,
        failures: FailureSink,
    ) -> None:
        self._buffer = buffer
        self._fetcher = fetcher
        self.prefetching = prefetching
        self._observer = observer
        self._boundary = boundary
        self._failures = failures
        self._untold: dict[Partition, list[Chunk]] = {}
        """Fetched of partitions whose records are not delivered yet: measured from then on."""

    def begin(self, partition: Partition, offset: int) -> None:
        """A partition is opened: fetch it from ``offset``, or go on behind what was prefetched."""
        self._untold[partition] = []
        early = self.prefetching.adopt(partition, offset)
        if early is None:
            self._fetcher.take(partition, offset)
        for chunk in early or ():
            self.chunk(chunk)

    def delivered(self, stream: Stream) -> None:
        """The stream's records are delivered from now on."""
        for chunk in self._untold.pop(stream.partition, ()):
            self._tell(stream, chunk)

    def sought(self, partition: Partition) -> None:
        """Throw away what was fetched of a partition."""
        if partition in self._untold:
            self._untold[partition] = []

    def lost(self, partition: Partition) -> None:
        """Fetch a partition no more."""
        self._untold.pop(partition, None)
        self._fetcher.drop(partition)

    def chunk(self, chunk: Chunk) -> None:
        """Take one chunk."""
        stream = self._buffer.streams.get(chunk.partition)
        if chunk.partition in self.prefetching:
            self.prefetching.keep(chunk)
        elif stream is not None and not stream.seeking:
            self._buffer.feed(stream, chunk)
            untold = self._untold.get(chunk.partition)
            if untold is None:
                self._tell(stream, chunk)
            else:
                untold.append(chunk)

    def failed(self, error: Exception, partition: Partition | None) -> None:
        """Raise in user code what fetching raised. A member that fetches no more leaves its group."""
        stream = self._buffer.streams.get(partition) if partition is not None else None
        if partition is None:
            self._failures.raise_to_user(error)
        elif stream is None or not stream.seeking:  # else it is of before the seek, which may answer the same error
            self._buffer.fail(error, partition)

    def _tell(self, stream: Stream, chunk: Chunk) -> None:
        end_offset = self._fetcher.end_offset(chunk.partition)
        self._boundary.call("fetched", self._observer.fetched, stream, chunk, end_offset)
