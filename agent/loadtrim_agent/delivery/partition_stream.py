"""One acquisition of one partition, as both threads see it: what was fetched, what is in hand, what is done.

There is no lock: every field is written by one thread, said beside it, and where an order matters that is said too
(:mod:`.record_buffer` says why it is enough).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.chunk import Chunk, Reader
from loadtrim_agent.metering.commit_bounds import CommitBounds

from .commit_calls import CommitCalls
from .pending import PendingRecords, ReportedDone
from .stretches import Finished, Stretches

__all__ = ["SLICE_RECORDS", "UNPLACED", "Stream"]

UNPLACED = -1
"""The position of what begins where user code seeks, before it has."""
SLICE_RECORDS = 64
"""Records of one partition handed out one by one before it is the next one's turn; as many are unpacked at a time."""


class Reported(msgspec.Struct):
    """Reports tell so much of a stream."""

    size_bytes: int = 0
    done: int | None = None
    bounds: CommitBounds | None = None
    """Records that were handed on and wait for a commit. None: none do."""


class Stream:
    """One acquisition of one partition, shared by both threads.

    Args:
        partition: topic and index.
        acquisition_id: of the acquisition.
        position: the offset handed out first; None: user code has to seek, and may do so once it has the stream.
        by_hand: nobody but user code commits.
    """

    __slots__ = (
        "__weakref__",
        "_reader",
        "_stretches",
        "acquisition_id",
        "chunks",
        "commits",
        "done",
        "handoff_since",
        "in_hand",
        "index",
        "led",
        "listening",
        "partition",
        "paused",
        "pending",
        "position",
        "queued",
        "records",
        "reported",
        "revoked",
        "running",
        "seeks",
        "seeks_answered",
        "size_bytes",
        "times",
    )

    def __init__(
        self, partition: Partition, acquisition_id: int, position: int | None, *, by_hand: bool = False
    ) -> None:
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
        self.reported = Reported()
        """Agent."""
        self.seeks = 0
        """User: so often its position was set."""
        self.seeks_answered = 0
        """Agent: so many of these are carried out."""
        self.position = UNPLACED if position is None else position
        """User: the offset handed out next."""
        self.done: int | None = None
        """User: the offset after the last record done; None before the first."""
        self.in_hand: int | None = None
        """User: offset of the last record handed out and not done."""
        self.records: Sequence[Any] = ()
        """User: unpacked; those from :attr:`index` on are to be handed out."""
        self.index = 0
        self.queued = False
        """User: it is among those whose turn comes round."""
        self.pending: PendingRecords | None = None
        """User: handed out since user code says itself what is done. None: the next call says it."""
        self.times: list[float] = []
        """User: where the end of what is in hand is noted when it is done."""
        self.commits = CommitCalls(by_hand=by_hand)
        """Notes of what user code commits itself."""
        self._stretches = Stretches()
        self._reader: Reader | None = None

    @property
    def seeking(self) -> bool:
        """What is buffered, and what comes, is from before a seek and thrown away. Any thread."""
        return self.seeks != self.seeks_answered

    @property
    def placed(self) -> bool:
        """Return whether it has a position. Any thread."""
        return self.position != UNPLACED

    # -- user's thread -------------------------------------------------------------------------------------------

    def has_more(self) -> bool:
        """Return True when :meth:`peek` may find a record."""
        return self.index < len(self.records) or self._reader is not None or bool(self.chunks)

    def head_stamp(self) -> int:
        """Return when the next record was written, by its timestamp or its batch's, in ms; -1: not known."""
        if self.index < len(self.records):
            stamp: int = self.records[self.index].timestamp
            return stamp
        if self._reader is not None:
            return self._reader.stamp
        batches = self.chunks[0].batches if self.chunks else ()
        return batches[0][3] if batches else -1

    def peek(self, finished: Callable[[Chunk], None], records_max: int = SLICE_RECORDS) -> Any | None:
        """The next record, or None. Nothing is read over a place where the log goes back (:mod:`.going_back`).

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
                if not self.chunks or self.chunks[0].start < self.position:
                    return None
                # In this order: a chunk on its way from one to the other would look as if all was handed out.
                reader = self._reader = Reader(self.chunks[0])
                self.chunks.popleft()
            size = reader.size_bytes
            self.records = records = reader.read(records_max)
            offsets = _offsets_of(records) if records and self.commits.by_hand else ()
            self._stretches.unpacked([record.timestamp for record in records], offsets)
            self.size_bytes += reader.size_bytes - size
            if reader.finished:
                self._reader = None
                finished(reader.chunk)
        return None

    def begin(self, now: float) -> None:
        """A stretch begins with the peeked record, which is handed out now."""
        self.times = self._stretches.begin(now, self.index)

    def begin_batch(self, now: float, stamps: Sequence[int], records: Sequence[Any]) -> None:
        """Records with these timestamps are handed out now."""
        self.times = self._stretches.begin_batch(now, stamps, _offsets_of(records))

    def batch_of(self, records: int, limit: int) -> None:
        """Note that what was handed out last is a part of a batch of so many records, of so many at most."""
        self._stretches.batch_of(records, limit)

    @property
    def stretching(self) -> bool:
        """The next call makes done what is in hand."""
        return self._stretches.open

    def end(self, now: float) -> None:
        """Take what is in hand as done, but for what is pending."""
        offset = self.in_hand
        self._stretches.open = False
        if offset is not None:
            self.times.append(now)
            if self.position == offset + 1:  # else the user sought elsewhere while it was in hand
                self.done = offset + 1
            self.in_hand = None
            if self.pending:
                self.settle()

    def tell_from_here(self) -> PendingRecords:
        """From now on user code says itself what is done, also of what is in hand."""
        if self.pending is None:
            self.pending = PendingRecords()
            # Where user code sought elsewhere meanwhile, what is in hand says nothing of what is done.
            if self.stretching and self.in_hand is not None and self.position == self.in_hand + 1:
                for offset, pending in self._stretches.take_open(self.in_hand):
                    self.pending.hold(offset, pending)
                self.settle()
        return self.pending

    def forget_hand(self) -> None:
        """Count on no more of what is in hand, but for what user code says itself to be done."""
        self._stretches.open = False
        self.in_hand = self.pending.in_hand if self.pending is not None else None

    @property
    def handed_out(self) -> int:
        """Return the offset after the last record handed out, but not beyond one that user code says it works on."""
        first = self.pending.first if self.pending is not None else None
        return self.position if first is None else first

    def settle(self) -> None:
        """Follow from what is pending what is done and what is in hand."""
        if self.pending is None or self.stretching:
            return  # until the stretch ends, nothing that was handed out in it is done
        first = self.pending.first
        self.done = self.position if first is None else first
        self.in_hand = self.pending.in_hand

    def advance(self, records: int, offset: int) -> None:
        """So many more of what is unpacked, up to this offset, are handed out."""
        self.index += records
        self.position = offset + 1

    def read(self, records_max: int) -> tuple[Sequence[Any], Sequence[int]]:
        """What is unpacked, some or all of it, is handed out: the records and their timestamps."""
        begin, records, stamps = self.index, self.records, self._stretches.stamps
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
            self.records = ()
            self._stretches.let_go()
            self.index = 0

    # -- agent's thread ------------------------------------------------------------------------------------------

    @property
    def exhausted(self) -> bool:
        """Everything fetched so far was handed out; what is in hand is to be looked at after this."""
        return not self.chunks and self._reader is None and self.index >= len(self.records)

    def take_finished(self) -> list[Finished]:
        """Return what was done since this was asked last."""
        return self._stretches.take_finished()

    def open_work(self, now: float) -> tuple[int, float]:
        """Return how many records are in hand, and for how long in all (boot clock)."""
        records, seconds = self._stretches.open_work(now)
        if self.pending is not None:
            more, longer = self.pending.open_work(now)
            records, seconds = records + more, seconds + longer
        return records, seconds

    def taken_at(self) -> float | None:
        """Return when the record that is in hand for longest was handed out (boot clock); None: none is in hand."""
        times = (self._stretches.taken_at(), self.pending.taken_at() if self.pending is not None else None)
        return min((at for at in times if at is not None), default=None)

    def take_reported_done(self) -> list[ReportedDone]:
        """Return what user code has said to be done since this was asked last."""
        told = self.pending.reported_done if self.pending is not None else ()
        return [told.popleft() for _ in range(len(told))] if told else []

    @property
    def gathered(self) -> bool:
        """Everything that is done was taken."""
        return self._stretches.gathered and not (self.pending is not None and self.pending.reported_done)

    def clear(self) -> None:
        """While :attr:`seeking` keeps the user away: forget what is buffered."""
        self.chunks.clear()
        self._reader = None
        self.records = ()
        self.index = 0


def _offsets_of(records: Sequence[Any]) -> Sequence[int]:
    """Return the offsets of one record at least: in most logs they have no gaps."""
    first, end = records[0].offset, records[-1].offset + 1
    return range(first, end) if end - first == len(records) else [record.offset for record in records]
