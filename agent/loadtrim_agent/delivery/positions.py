"""Where a stream is: the offset delivered next, and the offset that may be committed."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import msgspec
from aiokafka.errors import IllegalStateError, NoOffsetForPartitionError
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.port import Fetcher

from .partition_stream import Stream
from .record_buffer import RecordBuffer

__all__ = ["StreamPositions"]


class _Passed(msgspec.Struct, frozen=True):
    """Remember that a stretch of the log behind the last record done holds no records."""

    moves: int
    done: int
    behind: int

    def holds(self, stream: Stream, done: int) -> bool:
        """Return whether nothing more was done since, and the position was not moved."""
        return self.done == done and self.moves == stream.commits.moves


class StreamPositions:
    """Positions of the present streams. All methods run in the agent's loop.

    Args:
        buffer: holds the streams.
        fetcher: tells what lies behind the last record for user code.
    """

    def __init__(self, buffer: RecordBuffer, fetcher: Fetcher) -> None:
        self._buffer = buffer
        self._fetcher = fetcher
        self._passed: WeakKeyDictionary[Stream, _Passed] = WeakKeyDictionary()
        """Stretches passed last: a committed offset does not go back before them when the next records come."""
        self._committed: WeakKeyDictionary[Stream, _Passed] = WeakKeyDictionary()
        """The same behind what was handed out, for commits of user code."""

    def done_offset(self, stream: Stream) -> int | None:
        """What may be committed: behind the last record done, and behind what the log holds no records of.

        With auto-commit what user code has committed itself is done, also where the last of it is still in hand.
        """
        to_come = self._to_come(stream)
        # In this order: what is exhausted, what is in hand, what is done; then whether user code seeks meanwhile.
        exhausted, in_hand, done, handed_out = stream.exhausted, stream.in_hand, stream.done, stream.position
        committed = 0 if stream.commits.by_hand else stream.commits.highest
        if committed:
            done = max(committed, done or 0)
        if done is None:
            fetched = self._fetcher.position(stream.partition)
            if fetched is None or fetched.reset is None or not fetched.reset.first:
                return None
            done = handed_out  # Nothing was handed out. Where it goes on must not be looked up again after a stop.
        # What user code gave up with is not in hand, and not done either: its offset has been handed out.
        all_of_it = exhausted and in_hand is None and done == handed_out and not stream.seeking
        return self._below(to_come, stream, self._past(self._passed, stream, done, all_of_it=all_of_it))

    def position(self, stream: Stream) -> int:
        """The offset handed out next: behind what was handed out, and behind what the log holds no records of.

        Raises:
            NoOffsetForPartitionError: it has none (``auto_offset_reset=none``) until user code seeks.
        """
        if not stream.placed:
            raise NoOffsetForPartitionError(TopicPartition(*stream.partition))
        to_come = self._to_come(stream)
        exhausted, position = stream.exhausted, stream.position
        behind = self._behind(stream, position) if exhausted and not stream.seeking else position
        return self._below(to_come, stream, behind)

    def behind(self, stream: Stream, handed_out: int) -> int:
        """Return what user code commits that has been handed out everything before ``handed_out``.

        That is behind what the log holds no records of, and stays so when the next ones come.
        """
        to_come = self._to_come(stream)
        # In this order: a record that is taken in between would be passed otherwise.
        exhausted, position = stream.exhausted, stream.position
        all_of_it = exhausted and handed_out == position and not stream.seeking
        return self._below(to_come, stream, self._past(self._committed, stream, handed_out, all_of_it=all_of_it))

    async def position_of(self, partition: Partition) -> int:
        """Return the offset delivered next, as :meth:`position`.

        Raises:
            IllegalStateError: the partition is not owned.
        """
        stream = self._buffer.streams.get(partition)
        if stream is None:
            raise IllegalStateError(f"Partition {partition} is not assigned")
        return self.position(stream)

    def _past(self, memory: WeakKeyDictionary[Stream, _Passed], stream: Stream, offset: int, *, all_of_it: bool) -> int:
        """Return what may be committed where everything before ``offset`` may be: past what holds no records behind it.

        Args:
            memory: remembers that stretch, so that an offset does not go back when the next records come.
            stream: of the partition.
            offset: that may be committed.
            all_of_it: whether nothing more was fetched than what lies before ``offset``.
        """
        if all_of_it:
            behind = self._behind(stream, offset)
            memory[stream] = _Passed(stream.commits.moves, offset, behind)
            return behind
        passed = memory.get(stream)
        return passed.behind if passed is not None and passed.holds(stream, offset) else offset

    def _behind(self, stream: Stream, offset: int) -> int:
        """Everything before ``offset`` was handed out: past control records and what was compacted away behind it."""
        fetched = self._fetcher.position(stream.partition)
        if fetched is None or self._buffer.streams.get(stream.partition) is not stream:
            return offset
        return max(fetched.offset, offset)

    def _to_come(self, stream: Stream) -> int | None:
        """Return the lowest offset that is known to come, of what was fetched and of where a reset has led.

        All that was handed out lies below, unless the log goes back (:mod:`.going_back`). Ask for it first: a chunk
        that user code's thread has opened since counts still.
        """
        starts = [chunk.start for chunk in tuple(stream.chunks)]
        fetched = self._fetcher.position(stream.partition)
        if fetched is not None and fetched.reset is not None:
            starts.append(fetched.offset)
        return min(starts, default=None)

    @staticmethod
    def _below(to_come: int | None, stream: Stream, offset: int) -> int:
        """Return an offset, but no higher than what is to come, unless user code seeks elsewhere."""
        return offset if to_come is None or stream.seeking else min(to_come, offset)
