"""One acquisition of one partition, as both threads see it: what was fetched, what is in hand, what is done.

There is no lock: every field is written by one thread, said beside it, and where an order matters that is said too
(:mod:`.record_buffer` says why it is enough).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.chunk import Chunk, Reader

__all__ = ["SLICE_RECORDS", "Finished", "Stream"]

SLICE_RECORDS = 64
"""Records of one partition handed out one by one before it is the next one's turn; as many are unpacked at a time."""


class Finished(NamedTuple):
    """Records that are done, oldest first."""

    stamps: Sequence[int]
    """Their timestamps, ms; -1: none."""
    times: list[float]
    """Boot clock. When the first was handed out, then when each was done, which is when the next was handed out; of a
    batch: when it was handed out and when it was done."""
    at_once: bool
    """They were one batch of ``getmany``."""


class _Stretch:
    """Records handed out one after the other without a break, or one batch."""

    __slots__ = ("at_once", "first", "stamps", "taken", "times")

    def __init__(self, now: float, stamps: Sequence[int], first: int, *, at_once: bool) -> None:
        self.stamps = stamps
        """Of all that was unpacked together."""
        self.first = first
        """Which of these is the first record's."""
        self.times = [now]
        """User appends; see :class:`Finished`."""
        self.at_once = at_once
        self.taken = 0
        """Agent: so many ends were taken."""


class Stream:
    """One acquisition of one partition, shared by both threads."""

    __slots__ = (
        "__weakref__",
        "_reader",
        "_stamps",
        "_stretches",
        "acquisition_id",
        "chunks",
        "done",
        "done_told",
        "handoff_since",
        "in_hand",
        "index",
        "led",
        "listening",
        "partition",
        "paused",
        "position",
        "queued",
        "records",
        "revoked",
        "running",
        "seeks",
        "seeks_answered",
        "size_bytes",
        "size_told",
        "times",
    )

    def __init__(self, partition: Partition, acquisition_id: int, position: int) -> None:
        self.partition = partition
        self.acquisition_id = acquisition_id
        self.running = False
        """Agent: records may be handed out."""
        self.paused = False
        """User: ``pause()`` was called."""
        self.listening = False
        """Agent: it wants to be told when nothing is in hand any more."""
        self.led = False
        """Agent: its first records were put before those of all others."""
        self.handoff_since: float | None = None
        """Agent: when its last owner stopped handing it out, if it came by a handoff."""
        self.revoked = False
        """Agent: ``on_partitions_revoked`` was called for it."""
        self.chunks: deque[Chunk] = deque()
        """Agent appends, user takes."""
        self.size_bytes = 0
        """User: keys and values unpacked so far."""
        self.size_told = 0
        """Agent: as much of it as was reported."""
        self.seeks = 0
        """User: so often its position was set."""
        self.seeks_answered = 0
        """Agent: so many of these are carried out."""
        self.position = position
        """User: the offset handed out next."""
        self.done: int | None = None
        """User: the offset after the last record done; None before the first."""
        self.done_told: int | None = None
        """Agent: as much of it as was reported."""
        self.in_hand: int | None = None
        """User: offset of the last record handed out and not done."""
        self.records: Sequence[Any] = ()
        """User: unpacked; those from :attr:`index` on are to be handed out."""
        self.index = 0
        self.queued = False
        """User: it is among those whose turn comes round."""
        self.times: list[float] = []
        """User: where the end of what is in hand is noted when it is done."""
        self._stretches: deque[_Stretch] = deque()
        """User appends, agent takes. Only the last one still grows."""
        self._stamps: Sequence[int] = ()
        self._reader: Reader | None = None

    @property
    def seeking(self) -> bool:
        """What is buffered, and what comes, is from before a seek and thrown away. Any thread."""
        return self.seeks != self.seeks_answered

    # -- user's thread -------------------------------------------------------------------------------------------

    def has_more(self) -> bool:
        """Return True when :meth:`peek` may find a record."""
        return self.index < len(self.records) or self._reader is not None or bool(self.chunks)

    def peek(self, finished: Callable[[Chunk], None], records_max: int = SLICE_RECORDS) -> Any | None:
        """The next record, or None.

        Args:
            finished: told of a chunk that is unpacked.
            records_max: where nothing is left of what was unpacked, unpack so many more.

        Raises:
            CorruptRecordException, UnsupportedCodecError: it cannot be unpacked.
        """
        while not self.seeking:
            if self.index < len(self.records):
                return self.records[self.index]
            reader = self._reader
            self.let_go()
            if reader is None:
                if not self.chunks:
                    return None
                # In this order: a chunk on its way from one to the other would look as if all was handed out.
                reader = self._reader = Reader(self.chunks[0])
                self.chunks.popleft()
            size = reader.size_bytes
            self.records = records = reader.read(records_max)
            self._stamps = [record.timestamp for record in records]
            self.size_bytes += reader.size_bytes - size
            if reader.finished:
                self._reader = None
                finished(reader.chunk)
        return None

    def begin(self, now: float) -> None:
        """A stretch begins with the peeked record, which is handed out now."""
        self._begin(_Stretch(now, self._stamps, self.index, at_once=False))

    def begin_batch(self, now: float, stamps: Sequence[int]) -> None:
        """Records with these timestamps are handed out now."""
        self._begin(_Stretch(now, stamps, 0, at_once=True))

    def _begin(self, stretch: _Stretch) -> None:
        self.times = stretch.times
        self._stretches.append(stretch)

    def end(self, now: float) -> None:
        """What is in hand is done."""
        offset = self.in_hand
        if offset is not None:
            self.times.append(now)
            if self.position == offset + 1:  # else the user sought elsewhere while it was in hand
                self.done = offset + 1
            self.in_hand = None

    def advance(self, records: int, offset: int) -> None:
        """So many more of what is unpacked, up to this offset, are handed out."""
        self.index += records
        self.position = offset + 1

    def read(self, records_max: int) -> tuple[Sequence[Any], Sequence[int]]:
        """What is unpacked, some or all of it, is handed out: the records and their timestamps."""
        begin, records, stamps = self.index, self.records, self._stamps
        if begin or records_max < len(records):
            records = records[begin : begin + records_max]
            stamps = stamps[begin : begin + records_max]
        self.advance(len(records), records[-1].offset)
        self.let_go()
        return records, stamps

    def let_go(self) -> None:
        """Keep no records that were handed out: they are counted in no limit."""
        if self.index >= len(self.records):
            # In this order: the other one would look as if there were more to hand out.
            self.records, self._stamps = (), ()
            self.index = 0

    # -- agent's thread ------------------------------------------------------------------------------------------

    @property
    def exhausted(self) -> bool:
        """Everything fetched so far was handed out; what is in hand is to be looked at after this."""
        return not self.chunks and self._reader is None and self.index >= len(self.records)

    def take_finished(self) -> list[Finished]:
        """What was done since this was asked last."""
        found: list[Finished] = []
        stretches = self._stretches
        while stretches:
            last = len(stretches) == 1  # first this, then look at its times: what is not the last is complete
            stretch = stretches[0]
            begin, end = stretch.taken, len(stretch.times) - 1
            if begin < end:
                stamps = stretch.stamps
                if not stretch.at_once:
                    stamps = stamps[stretch.first + begin : stretch.first + end]
                found.append(Finished(stamps, stretch.times[begin : end + 1], stretch.at_once))
                stretch.taken = end
            if last:
                break
            stretches.popleft()
        return found

    @property
    def gathered(self) -> bool:
        """Everything that is done was taken."""
        stretches = self._stretches
        return not stretches or stretches[-1].taken == len(stretches[-1].times) - 1

    def clear(self) -> None:
        """While :attr:`seeking` keeps the user away: forget what is buffered."""
        self.chunks.clear()
        self._reader = None
        self.records = ()
        self.index = 0
