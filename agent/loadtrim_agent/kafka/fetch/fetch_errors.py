"""Errors that a fetcher tells."""

from __future__ import annotations

from aiokafka.errors import KafkaError

from loadtrim_agent.common.partition import Partition

from .port import FetchSink

__all__ = ["FetchErrors"]


class FetchErrors:
    """Errors of a fetcher on their way to user code. One that no task expects ends fetching for good."""

    def __init__(self) -> None:
        self.sink: FetchSink | None = None
        """The receiver of chunks and errors; None: the fetcher does not run yet."""
        self._broken: KafkaError | None = None
        """An error from before the fetcher ran, which ended fetching."""

    def serve(self, sink: FetchSink) -> None:
        """Give chunks and errors to ``sink`` from now on."""
        self.sink = sink
        if self._broken is not None:
            sink.failed(self._broken, None)

    def raise_to_user(self, error: BaseException) -> None:
        """Raise what aiokafka's consumer raises then; nothing more is fetched."""
        ended = KafkaError(f"Unexpected error during data retrieval: {error!r}")
        if self.sink is not None:
            self.sink.failed(ended, None)
        else:
            self._broken = ended

    def tell(self, error: Exception, partition: Partition) -> None:
        """Raise an error of a partition in user code; fetching goes on."""
        if self.sink is not None:
            self.sink.failed(error, partition)
