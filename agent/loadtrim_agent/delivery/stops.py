"""Stopped streams, and the calls of the user's listener that a stop and a resume ask for.

Theory of operation. The machine may stop a stream, resume it and stop it again while one call of the listener takes
its time. At most one task follows a stream. It calls the listener until user code was told last what holds now. Only
then is the machine told that the stream is drained, or the stream runs again. So no record is delivered between
``on_partitions_revoked`` and ``on_partitions_assigned``, and one loss is told once.
"""

from __future__ import annotations

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.tasks import Spawner
from loadtrim_agent.kafka.ports import EventFeed
from loadtrim_agent.protocol import events as e

from .listener import Listener
from .partition_stream import Stream
from .positions import StreamPositions
from .record_buffer import RecordBuffer

__all__ = ["StreamStops"]


class StreamStops:
    """The stops of one consumer's streams; see the module's text. All methods run in the agent's loop.

    Args:
        buffer: holds the present streams.
        listener: of user code.
        positions: tell what is done of a stream.
        events: takes what the machine is told.
        tasks: owns the tasks that follow streams.
    """

    def __init__(
        self, buffer: RecordBuffer, listener: Listener, positions: StreamPositions, events: EventFeed, tasks: Spawner
    ) -> None:
        self._buffer = buffer
        self._listener = listener
        self._positions = positions
        self._events = events
        self._tasks = tasks
        self._stopped_at: dict[Partition, float] = {}
        """Partition -> time of its stop (boot clock). Invariant: only present streams that are to stand still."""
        self._followed: set[Stream] = set()
        """Streams that a task follows."""

    def stop(self, stream: Stream) -> None:
        """Stop a stream: nothing of it is delivered from now on."""
        stream.running = False  # first this, then look what is in hand: see record_buffer.py
        stream.listening = True
        self._stopped_at.setdefault(stream.partition, boot_time())

    def resume(self, stream: Stream) -> None:
        """Let a stream run again, as soon as the listener knows."""
        self._stopped_at.pop(stream.partition, None)
        stream.listening = False
        self.follow(stream)

    def end(self, partition: Partition) -> float | None:
        """Forget the stop of a partition that is lost. Returns the time of the stop; None: it was not stopped."""
        return self._stopped_at.pop(partition, None)

    def follow(self, stream: Stream) -> None:
        """Tell the listener and the machine what holds: the stream is drained, or it is to run."""
        if stream in self._followed:
            return  # the task looks again when the listener has returned
        if self._listener.target is None or self._is_told(stream):
            self._settle(stream)
        else:
            self._followed.add(stream)
            self._tasks.spawn(self._follow(stream), "follow-stop")

    async def _follow(self, stream: Stream) -> None:
        try:
            while self._is_present(stream) and not self._is_told(stream):
                if self._is_stopped(stream):
                    stream.revoked = True  # before the call: a loss meanwhile need not be told again
                    await self._listener.revoked([stream.partition])
                else:
                    stream.revoked = False
                    await self._listener.assigned([stream.partition])
        finally:
            self._followed.discard(stream)
        if self._is_present(stream):
            self._settle(stream)

    def _settle(self, stream: Stream) -> None:
        if not self._is_stopped(stream):
            stream.revoked = False  # also where the listener that was told to let it go has gone meanwhile
            stream.running = True
            self._buffer.wake()
        elif stream.in_hand is None:
            self._events.feed(
                e.DrainedEvent(
                    now=boot_time(),
                    partition=stream.partition,
                    acquisition_id=stream.acquisition_id,
                    done=self._positions.done_offset(stream),
                )
            )

    def _is_present(self, stream: Stream) -> bool:
        return self._buffer.streams.get(stream.partition) is stream

    def _is_stopped(self, stream: Stream) -> bool:
        return stream.partition in self._stopped_at

    def _is_told(self, stream: Stream) -> bool:
        """Return whether the listener was told last what holds now."""
        return stream.revoked == self._is_stopped(stream)
