"""Handing records out: where the agent's thread meets the user's.

The agent appends batches; the user's thread takes records from them one by one, without a lock. For each record the
user's thread *announces* its offset as in hand, then checks that the partition is running and the lease lasts; the
agent *stops* the partition first and reads what is in hand afterwards. Under the interpreter's lock one of the two sees
the other, so no record is handed out after the agent has read that nothing is in hand.

A record (or a batch of ``getmany``) is done when the next call is made that could return records of its partition.
Once user code has said itself of one record that it is done, or that it is worked on, it says so of each
(:mod:`.pending`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.chunk import Chunk
from loadtrim_agent.kafka.fetch.state import Budget

from .call_errors import CallErrors
from .deserializer import RecordDeserializer
from .going_back import go_back
from .hand import Hand
from .partition_stream import Stream
from .ports import BufferOwner
from .samples import RecordSamples
from .telling import Telling
from .turns import TurnOrder
from .user_sleep import UserSleep

__all__ = ["RecordBuffer"]

BATCH_RECORDS = 1024
"""Records that ``getmany`` returns at most where user code names no limit; as many are unpacked at a time."""


log = logging.getLogger("loadtrim")


class AgentCalls:
    """The user's thread tells the agent what matters to it. Methods run in the user's thread, and never wait.

    Args:
        loop: the loop that :attr:`owner` is called in.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.owner: BufferOwner | None = None
        """Agent: it is told. Invariant: set before anything is put."""
        self.budget: Budget | None = None
        """Agent: of all buffers."""

    def drained(self, stream: Stream) -> None:
        """A stream may have nothing in hand any more."""
        if stream.listening and self.owner is not None:
            self._call(self.owner.drained, stream)

    def refetch(self, stream: Stream) -> None:
        """A stream's chunks are corrupt."""
        if self.owner is not None:
            self._call(self.owner.refetch, stream, stream.position)

    def unpacked(self, stream: Stream, chunk: Chunk) -> None:
        """A chunk was unpacked to its end."""
        chunk.done = True  # first this, then look whether that is waited for: see fetch/state.py
        wanted = chunk.refill or (self.budget is not None and self.budget.exhausted)
        if wanted and self.owner is not None:
            self._call(self.owner.refill, stream)

    def _call(self, call: Callable[..., object], *args: object) -> None:
        """Call something in the agent's loop. Nothing happens when the agent has ended."""
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            log.debug("the agent has ended")


class RecordBuffer:
    """All streams of one consumer, and the user's side of taking from them.

    Args:
        user_loop: the loop that user code runs in.
        agent_loop: the loop that the agent is told in.
        deserializer: the user's. What it raises, it raises again at each call, until the user seeks past the record.
    """

    def __init__(
        self,
        user_loop: asyncio.AbstractEventLoop,
        agent_loop: asyncio.AbstractEventLoop,
        deserializer: RecordDeserializer | None = None,
    ) -> None:
        self.agent = AgentCalls(agent_loop)
        """Told what the user's thread did that matters to the agent."""
        self.sleep = UserSleep(user_loop)
        self._deserializer = deserializer if deserializer is not None and deserializer.active else None
        self.streams: dict[Partition, Stream] = {}
        """Agent writes (a new dict each time); both read."""
        self.turns = TurnOrder()
        """The order of delivery, and the bounds in it."""
        self.hand = Hand(user_loop, Telling(self), RecordSamples(user_loop))
        """User."""
        self._run: Stream | None = None
        """User: one record of this stream is in hand and nothing else, and nothing happened since then but hand-outs
        of the records behind it, up to :attr:`_run_end`."""
        self._run_end = 0
        self._run_streams: dict[Partition, Stream] = {}
        """User: the streams that there were when the run began; with others, another one's turn may come first."""
        self.lease_until = 0.0
        """Agent: records are handed out until then (:class:`~.gate.DeliveryGate`)."""
        self.errors = CallErrors()
        self.closing = False
        """User or agent: the iteration ends after the record in hand."""
        self.last_call = boot_time()
        """User: when records were asked for last (max_poll_interval)."""
        self.agent_seen_at = boot_time()
        """Agent: when its loop turned last, to tell a stuck agent from a quiet topic."""
        self.expired = False
        """Agent sets it when it left for want of calls; user clears it and asks the agent to come back."""

    # -- agent's thread ------------------------------------------------------------------------------------------

    def put(self, stream: Stream) -> None:
        self.turns.present = self.streams = {**self.streams, stream.partition: stream}

    def remove(self, partition: Partition) -> None:
        self.errors.forget(partition)
        stream = self.streams.get(partition)
        handed_out = stream is not None and (stream.done is not None or stream.in_hand is not None)
        if stream is not None and handed_out and stream.position > stream.commits.sent:
            self.hand.unsent[partition] = None
        self.hand.went.add(partition)  # first this: user code finds it in one of the two
        self.turns.present = self.streams = {p: s for p, s in self.streams.items() if p != partition}

    def feed(self, stream: Stream, chunk: Chunk) -> None:
        """Add what was fetched and wake the user if asleep."""
        stream.chunks.append(chunk)
        if self.turns.fed(stream):
            self.look_again()
        self.wake()

    def look_again(self) -> None:
        """Let no run of records go on: a bound was set or lifted, a stream leads, or heads decide."""
        self.streams = dict(self.streams)
        self.wake()

    def wake(self) -> None:
        """Wake user code that sleeps for want of records; costs nothing when it does not."""
        self.sleep.wake()

    def fail(self, error: BaseException, partition: Partition | None = None, *, for_good: bool = False) -> None:
        """Raise this in the user's next call for the partition, or in one that waits; ``for_good``: in every one."""
        self.errors.put(error, partition, for_good=for_good)
        self.wake()

    # -- user's thread -------------------------------------------------------------------------------------------

    def take_one(self, wanted: Collection[Partition] = ()) -> Any | None:
        """The next record, or None where there is nothing to hand out now. Ends what was in hand before.

        There is nothing either while the loop is due a turn, which :meth:`wait` gives it.
        """
        now = boot_time()
        self.last_call = now
        stream = self._run
        if (
            stream is None
            or wanted
            or (index := stream.index) >= self._run_end
            or now >= self.lease_until
            or self.closing
            or now >= self.sleep.turn_due
            or self._run_streams is not self.streams
        ):
            return self._look_for_one(now, wanted)
        # Nearly every call: the same steps in the same order as there, without the calls.
        stream.times.append(now)
        stream.done = stream.position
        record = stream.records[index]
        offset = record.offset
        stream.in_hand = offset
        if not stream.running or stream.paused:
            self._withdraw(stream)
            return self._look_for_one(now, wanted)
        if self._deserializer is not None:
            record = self._deserialized_in_hand(stream, record)
        stream.index = index + 1
        stream.position = offset + 1
        return record

    def _look_for_one(self, now: float, wanted: Collection[Partition]) -> Any | None:
        streams = self.streams  # before the order is looked at: what changes meanwhile ends the run
        self.asked(now, wanted)
        if now >= self.lease_until or now >= self.sleep.turn_due or self.closing:
            return None
        for _ in range(len(self.turns.order()) + 1):
            stream = self.turns.current(wanted)
            if stream is None:
                return None
            try:
                record = self._peek(stream, self.turns.unpacked_at_a_time)
            except Exception:
                self.turns.next()  # The others come before it is asked again.
                raise
            if record is None or not self._announce(stream, record.offset):
                self.turns.next()
                continue
            if self._deserializer is not None:
                record = self._deserialized_in_hand(stream, record)
            if self.hand.telling.begun:
                stream.tell_from_here().taken_alone(record, now)
            else:
                stream.begin(now)
            stream.advance(1, record.offset)
            self.hand.taken()
            self.turns.left_in_slice -= 1
            if not self.hand.telling.begun:
                self.hand.samples.handed_out(record, stream, now)
                # A sample is looked at in the next call, which a run would leave out.
                if not wanted and not self.hand.samples.waiting and len(self.hand.streams) == 1:
                    self._run_on(stream, streams)
            return record
        return None

    def _run_on(self, stream: Stream, streams: dict[Partition, Stream]) -> None:
        """What is left of the slice is handed out without looking for it, as long as nothing else happens."""
        self._run = stream
        self._run_streams = streams
        more = max(0, min(len(stream.records) - stream.index, self.turns.left_in_slice))
        if (bounds := self.turns.bounds).until:
            # What is fetched of a stream with a bound is next: no run of another one goes on over it.
            more = bounds.below(stream, more) if bounds.holds(stream) else 0
        self._run_end = stream.index + more
        self.turns.left_in_slice -= more

    def take_many(self, wanted: Collection[Partition], max_records: int | None) -> dict[Partition, list[Any]]:
        """What is there now, by partition, oldest first; ends what was in hand before.

        Args:
            wanted: of these partitions; empty: of all.
            max_records: at most so many; None: :data:`BATCH_RECORDS`.
        """
        now = boot_time()
        self.asked(now, wanted)
        taken: dict[Partition, list[Any]] = {}
        streams: list[Stream] = []
        if now >= self.lease_until or self.closing:
            return taken
        limit = left = max_records if max_records is not None else BATCH_RECORDS
        for _ in range(len(self.turns.order())):
            stream = self.turns.current(wanted)
            if stream is None or left == 0 or stream.partition in taken:
                break  # the last: its turn has come round again, and more was fetched meanwhile
            try:
                records = self._take_batch(stream, left, now)
            except Exception:
                self.turns.next()  # The others come before it is asked again.
                if not taken:
                    raise
                break  # What was taken is handed out. The error comes again when it is asked next.
            if records:
                taken[stream.partition] = records
                streams.append(stream)
                left -= len(records)
            # A batch ends at a bound: the stream is through when all of the batch is done.
            if records and self.turns.bounds.until and self.turns.bounds.holds(stream):
                break
            self.turns.next()
        for stream in streams:
            stream.batch_of(limit - left, limit)
        self.hand.taken()
        return taken

    def _take_batch(self, stream: Stream, limit: int, now: float) -> list[Any]:
        records: list[Any] = []
        first = self._peek(stream, min(limit, BATCH_RECORDS))
        if first is None or not self._announce(stream, first.offset):
            return records
        stamps: list[int] = []
        bounds = self.turns.bounds
        try:
            while more := limit - len(records):
                if self._peek(stream, min(more, BATCH_RECORDS), begins=False) is None:
                    break
                if bounds.until:
                    more = bounds.below(stream, more)
                if not more:
                    break
                self._read(stream, more, records, stamps)
        except Exception:
            if not records:
                self._withdraw(stream)
                raise
        if not records:  # the agent has set a bound before the first of them, after it was announced
            self._withdraw(stream)
            return records
        if self.hand.telling.begun:
            stream.tell_from_here().taken(records, now)
        else:
            stream.begin_batch(now, stamps, records)
            self.hand.samples.handed_out(records[0], stream, now)
        stream.in_hand = records[-1].offset
        return records

    def _read(self, stream: Stream, limit: int, records: list[Any], stamps: list[int]) -> None:
        """Hand out what is unpacked; what cannot be deserialized raises, and stays to be handed out next."""
        if self._deserializer is None:
            more, their_stamps = stream.read(limit)
            records += more
            stamps += their_stamps
            return
        for record in stream.records[stream.index : stream.index + limit]:
            records.append(self._deserializer.apply(record))
            stamps.append(record.timestamp)
            stream.advance(1, record.offset)

    async def wait(self, timeout: float | None = None, wanted: Collection[Partition] = ()) -> None:
        """Sleep until something may be there to hand out, or ``timeout`` seconds have passed.

        Where the loop is due a turn it has that instead, and the caller looks again.

        Args:
            timeout: in seconds; None: no limit.
            wanted: of these partitions; empty: of all.
        """
        if boot_time() >= self.sleep.turn_due:
            await self.sleep.let_turn()
            return
        await self.sleep.until(lambda: self._ready(wanted), timeout)

    def asked(self, now: float, wanted: Collection[Partition]) -> None:
        """Take it that user code asks for records now: what is in hand of the partitions that it asks for is done.

        So is what its task has of partitions that were lost, which it will not name any more.

        Args:
            now: boot clock.
            wanted: of these partitions; empty: of all.
        """
        self.last_call = now
        self._run = None
        self.hand.samples.asked(now, wanted)
        held = self.streams
        if self.hand.streams:
            self.hand.streams[:] = [
                stream
                for stream in self.hand.streams
                if not stream.stretching
                or (wanted and stream.partition not in wanted and not self.hand.has_lost(stream, held))
                or not self._end(stream, now)
            ]
            self.hand.tell_when_empty()

    def end_run(self) -> None:
        """Look for the next record anew: something has happened beside hand-outs."""
        self._run = None

    def seek(self, stream: Stream, offset: int) -> None:
        """Hand out from ``offset`` on; the agent is told by the caller."""
        self._run = None
        stream.seeks += 1
        self.errors.forget(stream.partition)  # which the seek answers
        stream.commits.moved(offset)  # first this, then what is done: what it has committed before counts no more
        stream.position = offset
        stream.done = offset
        if stream.pending is not None:
            stream.pending.clear()
            self.hand.telling.settle(stream)

    def abandon(self, streams: Collection[Stream] | None = None) -> None:
        """Give up what is in hand: it is not done, and never will be (an exception, a break, then stop).

        What user code says itself to be done stays in hand: tasks of its own may work on that
        (:meth:`~.telling.Telling.abandoned`).

        Args:
            streams: of these; None: of all.
        """
        self._run = None
        given_up = [stream for stream in self.hand.streams if streams is None or stream in streams]
        nobody_works = len(given_up) == len(self.hand.streams)
        for stream in given_up:
            self.hand.workers.pop(stream, None)
            stream.forget_hand()
            if stream.in_hand is None:
                self.agent.drained(stream)
        self.hand.streams[:] = [stream for stream in self.hand.streams if stream.in_hand is not None]
        self.hand.tell_when_empty()
        if nobody_works:
            self.hand.telling.abandoned()

    def _ready(self, wanted: Collection[Partition]) -> bool:
        if self.errors.concern(wanted) or self.closing:
            return True
        if boot_time() >= self.lease_until:
            return False
        eligible = (s for s in self.turns.order() if self.turns.may_deliver(s, wanted))
        return any(not s.seeking and s.has_more() for s in eligible)

    def _end(self, stream: Stream, now: float) -> bool:
        """Return whether nothing of the stream is in hand any more."""
        stream.end(now)
        if stream.in_hand is not None:
            return False
        self.hand.workers.pop(stream, None)
        # Told of each record, the agent would have a call for each. In this order: nothing is in hand, then the bound.
        bounds = self.turns.bounds
        if not bounds.until or not bounds.holds(stream) or bounds.reached(stream):
            self.agent.drained(stream)
        return True

    def _announce(self, stream: Stream, offset: int) -> bool:
        """Say what is in hand, then look whether that is allowed. False: it is not, nothing was handed out."""
        stream.in_hand = offset
        self.hand.workers.pop(stream, None)
        if not stream.running or stream.paused or (self.turns.bounds.until and self.turns.bounds.reached(stream)):
            self._clear_hand(stream)
            return False
        if stream not in self.hand.streams:
            self.hand.streams.append(stream)
        return True

    def _withdraw(self, stream: Stream) -> None:
        self._run = None
        self._clear_hand(stream)
        if stream.in_hand is None:
            self.hand.streams.remove(stream)
            self.hand.workers.pop(stream, None)
            self.hand.tell_when_empty()

    def _clear_hand(self, stream: Stream) -> None:
        stream.forget_hand()
        if stream.in_hand is None:
            self.agent.drained(stream)

    def _peek(self, stream: Stream, records_max: int, *, begins: bool = True) -> Any | None:
        try:
            record = stream.peek(lambda chunk: self.agent.unpacked(stream, chunk), records_max)
            if record is None and begins and go_back(stream, self.hand.telling):
                record = stream.peek(lambda chunk: self.agent.unpacked(stream, chunk), records_max)
            return record
        except Exception:
            # It may have been spoilt on its way: the next call gets what is fetched anew, or the same error.
            stream.seeks += 1
            self.agent.refetch(stream)
            raise

    def _deserialized_in_hand(self, stream: Stream, record: Any) -> Any:
        assert self._deserializer is not None
        try:
            return self._deserializer.apply(record)
        except BaseException:
            self._withdraw(stream)
            self._run = None
            self.turns.next()  # The others come before it is asked again.
            raise
