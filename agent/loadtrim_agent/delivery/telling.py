"""User code says itself which records it works on, and which are done."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.partition import Partition

from .partition_stream import Stream
from .pending import PendingRecords

if TYPE_CHECKING:
    from .record_buffer import RecordBuffer

__all__ = ["Telling"]

UNDECIDED_CALLS = 1_000
"""Calls without a word from user code, after which it is taken to tell nothing. Chosen: some 10 ms in all."""


class Telling:
    """User code tells of the records of one buffer. All methods run in the user's thread.

    Theory of operation. The next call makes a record done, as long as user code tells nothing. From the first word on
    each record that is handed out is pending until it is told to be done, in whatever order: what lies below the first
    pending one is done. The first word is of what is in hand as well, be it a batch.
    The first calls of all let the loop turn before they make a record done, so that a task that was made of it begins.
    A program whose tasks begin with :meth:`work_on` is right from its first record on.
    Several blocks may be open around one record: then the end of the last one counts.
    A block around a record that was handed out by itself is entered before anything is awaited. So in a program that
    says all by blocks, such a record without one will have none when the loop around it is over: its task was cancelled
    before it began, say. The records of a batch may be worked on one after the other.
    A record may come again while user code has it in hand still, of a partition that was lost and came back. Then the
    object says which of the two is meant; what is said of a copy is said of both.

    Args:
        buffer: that hands the records out.
    """

    def __init__(self, buffer: RecordBuffer) -> None:
        self._buffer = buffer
        self.begun = False
        """User code has said something of a record."""
        self._by_done = False
        """User code has said of a record that it is done, in whatever task: others may lie in a queue of its own."""
        self._calls = 0

    @property
    def undecided(self) -> bool:
        """Return whether user code may still begin to say itself what is done."""
        return not self.begun and self._calls < UNDECIDED_CALLS

    async def let_begin(self, wanted: Collection[Partition] = ()) -> None:
        """In the first calls, let tasks of user code begin that may say what they work on.

        Args:
            wanted: the call asks for records of these partitions; empty: of all.
        """
        if not self.undecided:
            return
        self._calls += 1
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._buffer.asked(boot_time(), wanted)  # the call was made: what was in hand is done all the same
            raise

    def work_on(self, record: Any) -> bool:
        """Note that user code works on a record until it says that it is done, or gives it up.

        Returns:
            False: it is done already, or it is not this member's any more.
        """
        return self._worked_on(self._find(record), record.offset)

    def enter(self, record: Any) -> bool:
        """Note that a block around a record begins. Returns as :meth:`work_on`."""
        found = self._find(record)
        for _, pending in found:
            pending.enter(record.offset)
        return self._worked_on(found, record.offset)

    def leave(self, record: Any) -> bool:
        """Note that a block around a record has ended well: it is done, unless another block goes on.

        Returns as :meth:`done`.
        """
        left = [
            self._done(stream, pending, record.offset) if pending.leave(record.offset) else True
            for stream, pending in self._find(record)
        ]
        return any(left)

    def done(self, record: Any) -> bool:
        """Take it that a record is done, whatever blocks are open around it.

        Returns:
            False: it was done already, or it is not this member's any more.
        """
        self._by_done = True
        told = [self._done(stream, pending, record.offset) for stream, pending in self._find(record)]
        return any(told)

    def give_up(self, record: Any) -> bool:
        """Nobody works on a record any more, though it is not done, unless another block around it goes on.

        Nothing from it on is committed. Returns as :meth:`work_on`.
        """
        found = self._find(record)
        for stream, pending in found:
            if pending.leave(record.offset):
                pending.given_up(record.offset)
                self.settle(stream)
        return bool(found)

    def abandoned(self) -> None:
        """The loop around the records is over. What was handed out and not begun with is given up in the next turn."""
        if self.begun and not self._by_done:
            asyncio.get_running_loop().call_soon(self._give_up_unbegun)

    def _give_up_unbegun(self) -> None:
        for stream in list(self._buffer.hand.streams):
            if stream.pending is not None:
                stream.pending.give_up_unbegun()
                self.settle(stream)

    def _worked_on(self, found: list[tuple[Stream, PendingRecords]], offset: int) -> bool:
        for stream, pending in found:
            pending.worked_on(offset)
            self.settle(stream)
        return bool(found)

    def _done(self, stream: Stream, pending: PendingRecords, offset: int) -> bool:
        pending.done(offset, boot_time())
        self.settle(stream)
        # Of a partition that was lost it ends the wait for the record, and its next owner is handed it again.
        return self._buffer.streams.get(stream.partition) is stream

    def settle(self, stream: Stream) -> None:
        """Follow from what is pending what is in hand, and tell the agent when that is nothing."""
        hand = self._buffer.hand.streams
        stream.settle()
        if stream.in_hand is None:
            if stream in hand:
                hand.remove(stream)
                self._buffer.hand.workers.pop(stream, None)
                self._buffer.hand.tell_when_empty()
            self._buffer.agent.drained(stream)
        elif stream not in hand:
            hand.append(stream)

    def _find(self, record: Any) -> list[tuple[Stream, PendingRecords]]:
        """Find what a pending record was handed out from, among what is lost and still in hand as well."""
        hand, streams = self._buffer.hand.streams, self._buffer.streams
        partition = Partition(record.topic, record.partition)
        present = streams.get(partition)
        held = [stream for stream in hand if stream.partition == partition and stream is not present]
        if present is not None:
            held.append(present)
        if not held:
            # Of another consumer's record nothing follows for those of this one: it may never tell of them.
            return []
        if not self.begun:
            self.begun = True
            self._buffer.end_run()
            for stream in (*streams.values(), *hand):
                stream.tell_from_here()
        found = [(s, s.pending) for s in held if s.pending is not None and s.pending.find(record)]
        # The last: an object that is gone may have had the same id, and what is held now comes behind what is lost.
        return [(s, pending) for s, pending in found if pending.is_of(record)][-1:] or found
