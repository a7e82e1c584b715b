"""Streams that are delivered before all others, each up to an offset: what a slice asks of the record buffer.

The agent sets and lifts bounds, user code's thread looks at them: without a lock, as in :mod:`.record_buffer`. A bound
is no fence: user code's thread may be taking a record beyond it while it is set. Like every record in hand, that is
done before the stream counts as through.
"""

from __future__ import annotations

from bisect import bisect_left

from .partition_stream import Stream

__all__ = ["Bounds"]


class Bounds:
    """The bounds of one consumer's streams, in the order in which they were set. Empty nearly always."""

    __slots__ = ("until",)

    def __init__(self) -> None:
        self.until: dict[Stream, int] = {}
        """Agent: a new mapping at each change. User code's thread asks for nothing else where it is empty."""

    # -- agent's thread ------------------------------------------------------------------------------------------

    def bind(self, stream: Stream, until: int) -> None:
        """Deliver a stream before all others, and nothing of it from ``until`` on."""
        self.until = {**self.until, stream: until}

    def lift(self, stream: Stream) -> None:
        """Deliver a stream in its turn, without a bound. One that has none is passed over."""
        if stream in self.until:
            self.until = {each: until for each, until in self.until.items() if each is not stream}

    # -- any thread ----------------------------------------------------------------------------------------------

    def streams(self) -> tuple[Stream, ...]:
        """Return the streams that have a bound, the first of them first."""
        return tuple(self.until)

    def holds(self, stream: Stream) -> bool:
        """Return whether a stream has a bound."""
        return stream in self.until

    def reached(self, stream: Stream) -> bool:
        """Return whether a stream has a bound, and its next record lies beyond it.

        Offsets have gaps: the next record is known once it is unpacked.
        """
        until = self.until.get(stream)
        if until is None:
            return False
        records, index = stream.records, stream.index
        return stream.position >= until or (index < len(records) and bool(records[index].offset >= until))

    # -- user's thread -------------------------------------------------------------------------------------------

    def below(self, stream: Stream, records_max: int) -> int:
        """Return how many of the next records that are unpacked lie below the stream's bound, up to ``records_max``."""
        until = self.until.get(stream)
        if until is None:
            return records_max
        records, index = stream.records, stream.index
        end = min(len(records), index + records_max)
        return bisect_left(records, until, index, end, key=lambda record: record.offset) - index
