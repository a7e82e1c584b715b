"""The shell's side of owned partitions: carries out what the machine commands about one of them.

Every acquisition is one :class:`~.partition_stream.Stream`. The order of each step matters and is said beside it: the
machine's rules hold only if nothing is delivered after :meth:`Partitions.stop` has read that nothing is in hand.
"""

from __future__ import annotations

import asyncio
import logging

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e

from .intake import ChunkIntake
from .opening import DeliveryParts, LostInHand, PartitionOpener
from .partition_stream import Stream
from .positions import StreamPositions
from .prefetch import Prefetching
from .stops import StreamStops

__all__ = ["DeliveryParts", "Partitions"]

log = logging.getLogger("loadtrim")

BUSY_SECONDS = 0.01
"""Records that wait for user code now and still after this time are a backlog, and no burst that is soon over."""


class Partitions:
    """The owned partitions of one consumer. All methods run in the agent's loop.

    Implements :class:`~.ports.BufferOwner`.

    Args:
        parts: what delivery is put together from.
    """

    def __init__(self, parts: DeliveryParts) -> None:
        self.buffer = parts.buffer
        self.buffer.agent.owner = self
        self.gate = parts.gate
        self.listener = parts.listener
        self._fetcher = parts.fetcher
        self._observer = parts.observer
        self._tell = parts.boundary.call
        self._agent = parts.agent
        self._tasks = parts.tasks
        self.prefetching = Prefetching(parts.fetcher, parts.tasks, parts.offsets)
        self.intake = ChunkIntake(
            parts.buffer, parts.fetcher, self.prefetching, parts.observer, parts.boundary, parts.agent
        )
        self._opener = PartitionOpener(parts, self.intake)
        self.positions = StreamPositions(parts.buffer, parts.fetcher)
        self._lingering: dict[Partition, Stream] = {}
        """Partitions lost while one of their records was in user code (rule 13)."""
        self._stops = StreamStops(parts.buffer, parts.listener, self.positions, parts.agent, parts.tasks)
        self._idle_points: dict[Partition, Stream] = {}
        """Streams to be given away, whose idle point the machine waits for."""

    @property
    def without_offset(self) -> frozenset[Partition]:
        """Partitions that have no offset until user code seeks. Any thread."""
        return self._opener.without_offset

    @property
    def waiting_for_a_seek(self) -> frozenset[Partition]:
        """See :attr:`.opening.PartitionOpener.waiting_for_a_seek`."""
        return self._opener.waiting_for_a_seek

    def lost_in_hand(self) -> list[Stream]:
        """Return the streams that are lost while one of their records is in user code."""
        return [self._lingering[partition] for partition in sorted(self._lingering)]

    # -- commands ------------------------------------------------------------------------------------------------

    def prefetch(self, command: c.PrefetchCommand) -> None:
        """Begin to fetch what a plan, or a promise, is about to bring."""
        self.prefetching.begin([p for p in command.partitions if p not in command.starts])
        self.prefetching.begin_at(command.starts)

    def drop_prefetch(self, command: c.DropPrefetchCommand) -> None:
        """Drop partitions that do not come."""
        self.prefetching.drop(command.partitions)

    def open(self, commands: list[c.OpenCommand]) -> None:
        """Begin fetching; answer when the listener has returned. Each partition waits for itself only."""
        self._opener.open(commands)

    def stream(self, partition: Partition, acquisition_id: int) -> Stream | None:
        """Return the stream of one acquisition; None: it is not the present one."""
        stream = self.buffer.streams.get(partition)
        return stream if stream is not None and stream.acquisition_id == acquisition_id else None

    def run(self, command: c.RunCommand) -> None:
        stream = self.stream(command.partition, command.acquisition_id)
        if stream is not None:
            stream.running = True
            if self.buffer.turns.lead(stream):
                self.buffer.look_again()
            self.buffer.wake()
            since = stream.handoff_since
            seconds = boot_time() - since if since is not None else None
            self._tell("acquired", self._observer.acquired, stream, seconds)
            self.intake.delivered(stream)

    def stop(self, command: c.StopCommand) -> None:
        stream = self.stream(command.partition, command.acquisition_id)
        if stream is None:
            return
        self._stops.stop(stream)
        self._lift(stream)
        self._idle_points.pop(command.partition, None)
        self.drained(stream)

    def bind(self, command: c.BoundCommand) -> None:
        """Deliver a partition before all others, up to an offset, and say when all of that is done."""
        stream = self.stream(command.partition, command.acquisition_id)
        if stream is not None:
            self._idle_points.pop(command.partition, None)  # of a move that was dropped: nobody waits for it any more
            self.buffer.turns.bounds.bind(stream, command.until)
            stream.listening = True  # first the bound, then this, then look what is in hand
            self.buffer.look_again()
            self.drained(stream)

    def unbind(self, command: c.UnboundCommand) -> None:
        """Deliver a partition in its turn again."""
        stream = self.stream(command.partition, command.acquisition_id)
        if stream is not None:
            if stream.running:
                stream.listening = False
            self._lift(stream)

    def _lift(self, stream: Stream) -> None:
        if self.buffer.turns.bounds.holds(stream):
            self.buffer.turns.bounds.lift(stream)
            self.buffer.look_again()

    def await_idle_point(self, command: c.AwaitIdlePointCommand) -> None:
        """Say when user code is done with what there is of a partition, and nothing more waits."""
        stream = self.stream(command.partition, command.acquisition_id)
        if stream is None:
            return
        stream.listening = True  # first this, then look what is in hand
        exhausted, in_hand, done = stream.exhausted, stream.in_hand, self.positions.done_offset(stream)
        if exhausted and in_hand is None and (command.begun or done is None or done == command.committed):
            stream.listening = False
            self._tell_idle_point(stream, busy=False)
            return
        self._idle_points[command.partition] = stream
        if not exhausted:
            asyncio.get_running_loop().call_later(BUSY_SECONDS, self._still_busy, stream)

    def _still_busy(self, stream: Stream) -> None:
        if self._idle_points.get(stream.partition) is stream and not stream.exhausted:
            del self._idle_points[stream.partition]
            stream.listening = False
            self._tell_idle_point(stream, busy=True)

    def _tell_idle_point(self, stream: Stream, *, busy: bool) -> None:
        done = self.positions.done_offset(stream)
        event = e.IdlePointEvent(
            now=boot_time(), partition=stream.partition, acquisition_id=stream.acquisition_id, done=done, busy=busy
        )
        self._agent.feed(event)

    def drained(self, stream: Stream) -> None:
        """A stream may have nothing in hand any more."""
        if stream.in_hand is not None or not stream.listening:
            return
        if self._idle_points.get(stream.partition) is stream and stream.running:
            if stream.exhausted:
                stream.listening = False
                del self._idle_points[stream.partition]
                self._tell_idle_point(stream, busy=False)
            return
        if stream.running and self.buffer.turns.bounds.reached(stream):
            stream.listening = False
            done = self.positions.done_offset(stream)
            event = e.BoundReachedEvent(
                now=boot_time(),
                partition=stream.partition,
                acquisition_id=stream.acquisition_id,
                done=done,
                until=self.buffer.turns.bounds.until[stream],
            )
            self._agent.feed(event)
        elif self._lingering.get(stream.partition) is stream:
            stream.listening = False
            del self._lingering[stream.partition]
            self._opener.in_user_code.pop(stream.partition).ended.set()
        elif self.stream(stream.partition, stream.acquisition_id) is stream and not stream.running:
            stream.listening = False
            self._stops.follow(stream)

    def resume(self, command: c.ResumeCommand) -> None:
        stream = self.stream(command.partition, command.acquisition_id)
        if stream is not None:
            self._stops.resume(stream)

    def drop(self, command: c.DropCommand) -> None:
        stream = self.stream(command.partition, command.acquisition_id)
        stopped_at = self._stops.end(command.partition) if stream is not None else None
        self._opener.cancel(command.partition, command.acquisition_id)
        if stream is None:
            return
        if command.released and stopped_at is not None:
            self._tell("released", self._observer.released, command.partition, boot_time() - stopped_at)
        stream.running = False
        self.buffer.turns.bounds.lift(stream)
        self._idle_points.pop(command.partition, None)
        self.intake.lost(command.partition)
        self.buffer.remove(command.partition)
        self._tell("lost", self._observer.lost, stream)
        if stream.in_hand is not None:
            stream.listening = True
            self._lingering[command.partition] = stream
            self._opener.in_user_code[command.partition] = LostInHand(stream)
            self.drained(stream)
        if self.listener.target is not None and not stream.revoked:
            self._tasks.spawn(self.listener.revoked([command.partition]), "revoke-lost")

    # -- what user code asks for ---------------------------------------------------------------------------------

    def seek(self, stream: Stream, offset: int) -> None:
        """User code has moved its position: fetch from there."""
        if self.stream(stream.partition, stream.acquisition_id) is not stream:
            return
        self._drop_slice(stream)
        if self._opener.user_sought(stream.partition, offset):
            stream.seeks_answered += 1
        else:
            self._fetcher.take(stream.partition, offset)
            stream.clear()
            self.intake.sought(stream.partition)
            stream.seeks_answered += 1  # last: from now on user code may take, unless it has sought again
            self.buffer.wake()
            self._tell("sought", self._observer.sought, stream, offset)

    def paused(self, stream: Stream, paused: bool) -> None:
        """User code paused or resumed a partition."""
        if paused:
            self._drop_slice(stream)
        self._tell("paused", self._observer.paused, stream, paused)

    def _drop_slice(self, stream: Stream) -> None:
        """Nothing is given away at a bound that user code may not reach, or has left behind."""
        if self.buffer.turns.bounds.holds(stream):
            event = e.SliceDroppedEvent(
                now=boot_time(), partition=stream.partition, acquisition_id=stream.acquisition_id
            )
            self._agent.feed(event)

    # -- fetching ------------------------------------------------------------------------------------------------

    async def fetch(self) -> None:
        """Fetch for ever; what fetching raises, the user's next call raises."""
        await self._fetcher.run(self.intake)

    def refill(self, stream: Stream) -> None:
        """A chunk of it was unpacked that was waited for."""
        if self.stream(stream.partition, stream.acquisition_id) is stream:
            self._fetcher.refill(stream.partition)

    def refetch(self, stream: Stream, offset: int) -> None:
        """Fetch a stream anew whose chunks cannot be read."""
        log.warning("%s: what was fetched cannot be unpacked; fetching it again from %d", stream.partition, offset)
        self.seek(stream, offset)
