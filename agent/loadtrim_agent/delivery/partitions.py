"""The shell's side of held partitions: carries out what the machine commands about one of them.

Every acquisition is one :class:`~.record_buffer.Stream`. The order of each step matters and is said beside it: the
machine's
rules hold only if nothing is handed out after :meth:`Partitions.stop` has read that nothing is in hand.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from aiokafka.errors import KafkaError, NoOffsetForPartitionError
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.chunk import Chunk
from loadtrim_agent.kafka.fetch.port import Fetcher
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e

from .listener import Listener
from .observer import DeliveryObserver
from .partition_stream import Stream
from .prefetch import Committed, Prefetching
from .record_buffer import RecordBuffer

__all__ = ["Partitions"]

log = logging.getLogger("loadtrim")

TOGETHER_SECONDS = 0.05
"""How long partitions whose start is known wait for those whose start is being looked up, to share a listener call."""
BUSY_SECONDS = 0.01
"""Records that wait for user code now and still after this time are a backlog, and no burst that is soon over."""


class Sought:
    """A partition that begins where user code seeks."""

    def __init__(self) -> None:
        self.offset: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        """Where; None: the partition was lost before."""


class Partitions:
    """All methods run in the agent's loop.

    Args:
        buffer: where user code takes records from.
        fetcher: fetches them.
        listener: the user's rebalance listener.
        observer: told of what is taken, fetched and lost.
        boundary: contains what the observer raises.
        feed: gives the machine an event.
        spawn: starts a task that the agent owns.
        fail: raises an error in the user's loop.
        waits_for_user: called when a partition can go on only when user code seeks in it.
        committed: asks for the group's committed offsets.
        retry_backoff: seconds between tries.
    """

    def __init__(
        self,
        *,
        buffer: RecordBuffer,
        fetcher: Fetcher,
        listener: Listener,
        observer: DeliveryObserver,
        boundary: ErrorBoundary,
        feed: Callable[[e.Event], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
        fail: Callable[[BaseException], None],
        waits_for_user: Callable[[], None],
        committed: Committed,
        retry_backoff: float,
    ) -> None:
        self.buffer = buffer
        self._fetcher = fetcher
        self.listener = listener
        self._observer = observer
        self._tell = boundary.call
        self._feed = feed
        self._spawn = spawn
        self._fail = fail
        self._waits_for_user = waits_for_user
        self.without_offset: frozenset[Partition] = frozenset()
        """Held, without a commit and with ``auto_offset_reset=none``: every call raises until user code seeks. A new
        set each time, for the user's thread reads it."""
        self._sought: dict[Partition, Sought] = {}
        self._retry_backoff = retry_backoff
        self._lingering: dict[Partition, Stream] = {}
        """Partitions lost while one of their records was in user code (rule 13)."""
        self._lingering_ended: dict[Partition, asyncio.Event] = {}
        self._stopped_at: dict[Partition, float] = {}
        self._lulls: dict[Partition, Stream] = {}
        """To be given away: when user code is done with what there is, that is to be said."""
        self._prefetching = Prefetching(fetcher, spawn, committed)
        self._untold: dict[Partition, list[Chunk]] = {}
        """Fetched before it was handed out: measured from then on."""
        self._opening: dict[Partition, int] = {}
        """Partition -> take that is to be opened; one lost before it was is not opened any more."""

    # -- before it is ours ---------------------------------------------------------------------------------------

    def prefetch(self, command: c.PrefetchCommand) -> None:
        """Begin to fetch what a plan is about to bring."""
        self._prefetching.begin(command.partitions)

    def drop_prefetch(self, command: c.DropPrefetchCommand) -> None:
        """It does not come."""
        self._prefetching.drop(command.partitions)

    # -- commands ------------------------------------------------------------------------------------------------

    def open(self, commands: list[c.OpenCommand]) -> None:
        """Begin fetching; answer when the listener has returned. Each partition waits for itself only."""
        self._opening.update({command.partition: command.acquisition_id for command in commands})
        slow: list[c.OpenCommand] = []
        for command in commands:
            if command.partition in self._lingering:
                self._spawn(self._open_late(command, self._lingering_ended[command.partition]), "open-late")
            elif self.listener.target is None and command.offset is not None:
                self._opened(command, command.offset)
            else:
                slow.append(command)
        if slow:
            self._spawn(self._open_slowly(slow), "open")

    async def _open_late(self, command: c.OpenCommand, ended: asyncio.Event) -> None:
        """One of its records is still in user code, from the time when it was held before."""
        await ended.wait()
        await self._open_slowly([command])

    async def _open_slowly(self, commands: list[c.OpenCommand]) -> None:
        """The listener is called once for those whose offsets are there together."""
        async with asyncio.TaskGroup() as tasks:
            waiting = {tasks.create_task(self._start_offset(command)): command for command in commands}
            while waiting:
                done, late = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if late:
                    done, _ = await asyncio.wait(waiting, timeout=TOGETHER_SECONDS)
                await self._assign([(waiting.pop(task), task.result()) for task in done])

    async def _assign(self, found: list[tuple[c.OpenCommand, int | Sought | None]]) -> None:
        found.sort(key=lambda each: each[0].partition)
        current = [each for each in found if self._opening.get(each[0].partition) == each[0].acquisition_id]
        streams = [self._begin(command, offset) for command, offset in current if isinstance(offset, int)]
        sought = [(command, to) for command, to in current if isinstance(to, Sought)]
        if streams or sought:
            await self.listener.assigned([s.partition for s in streams] + [command.partition for command, _ in sought])
        for stream in streams:
            self._tell_opened(stream)
        for command, to in sought:
            self._spawn(self._open_sought(command, to), "open-sought")

    async def _start_offset(self, command: c.OpenCommand) -> int | Sought | None:
        while command.offset is None:
            try:
                return await self._fetcher.reset_offset(command.partition)
            except NoOffsetForPartitionError:
                return (
                    self._let_seek(command) if self._opening.get(command.partition) == command.acquisition_id else None
                )
            except (KafkaError, OSError, TimeoutError) as error:
                if not getattr(error, "retriable", False) and not isinstance(error, (OSError, TimeoutError)):
                    self._fail(error)
                    return None
                await asyncio.sleep(self._retry_backoff)
        return command.offset

    def _let_seek(self, command: c.OpenCommand) -> Sought:
        """``auto_offset_reset=none`` and no commit: only user code can say where to begin, by seeking."""
        self._sought[command.partition] = sought = Sought()
        self.buffer.put(Stream(command.partition, command.acquisition_id, 0))
        return sought

    async def _open_sought(self, command: c.OpenCommand, sought: Sought) -> None:
        if not sought.offset.done():  # the listener, which was called with it, did not seek
            self.without_offset |= {command.partition}
            self.buffer.wake()
            self._waits_for_user()
        offset = await sought.offset
        if offset is not None and self._opening.get(command.partition) == command.acquisition_id:
            self._opened(command, offset)

    def _user_sought(self, partition: Partition, offset: int | None) -> bool:
        """User code has said where to begin, or (None) the partition is lost. False: that was not asked."""
        sought = self._sought.pop(partition, None)
        self.without_offset -= {partition}
        if sought is not None and not sought.offset.done():
            sought.offset.set_result(offset)
        return sought is not None

    def _opened(self, command: c.OpenCommand, offset: int) -> None:
        self._tell_opened(self._begin(command, offset))

    def _begin(self, command: c.OpenCommand, offset: int) -> Stream:
        del self._opening[command.partition]
        stream = Stream(command.partition, command.acquisition_id, offset)
        stream.handoff_since = boot_time() - command.handoff_seconds if command.handoff_seconds is not None else None
        self.buffer.put(stream)
        self._untold[command.partition] = []
        early = self._prefetching.adopt(command.partition, offset)
        if early is None:
            self._fetcher.take(command.partition, offset)
        for chunk in early or ():
            self._chunk(chunk)
        return stream

    def _tell_opened(self, stream: Stream) -> None:
        self._feed(
            e.OpenedEvent(
                now=boot_time(),
                partition=stream.partition,
                acquisition_id=stream.acquisition_id,
                position=stream.position,
            )
        )

    def stream(self, partition: Partition, acquisition_id: int) -> Stream | None:
        stream = self.buffer.streams.get(partition)
        return stream if stream is not None and stream.acquisition_id == acquisition_id else None

    def run(self, command: c.RunCommand) -> None:
        stream = self.stream(command.partition, command.acquisition_id)
        if stream is not None:
            stream.running = True
            self.buffer.lead(stream)
            self.buffer.wake()
            since = stream.handoff_since
            seconds = boot_time() - since if since is not None else None
            self._tell("acquired", self._observer.acquired, stream, seconds)
            for chunk in self._untold.pop(command.partition, ()):
                self._tell_fetched(stream, chunk)

    def stop(self, command: c.StopCommand) -> None:
        stream = self.stream(command.partition, command.acquisition_id)
        if stream is None:
            return
        stream.running = False  # first this, then look what is in hand: see record_buffer.py
        stream.listening = True
        self._lulls.pop(command.partition, None)
        self._stopped_at.setdefault(command.partition, boot_time())
        self.drained(stream)

    def await_idle_point(self, command: c.AwaitIdlePointCommand) -> None:
        """Say when user code is done with what there is of a partition, and nothing more waits."""
        stream = self.stream(command.partition, command.acquisition_id)
        if stream is None:
            return
        exhausted, in_hand, done = stream.exhausted, stream.in_hand, self.done_offset(stream)
        if exhausted and in_hand is None and (command.begun or done is None or done == command.committed):
            self._tell_lull(stream, busy=False)
            return
        self._lulls[command.partition] = stream
        stream.listening = True
        if not exhausted:
            asyncio.get_running_loop().call_later(BUSY_SECONDS, self._still_busy, stream)

    def _still_busy(self, stream: Stream) -> None:
        if self._lulls.get(stream.partition) is stream and not stream.exhausted:
            del self._lulls[stream.partition]
            stream.listening = False
            self._tell_lull(stream, busy=True)

    def _tell_lull(self, stream: Stream, *, busy: bool) -> None:
        done = self.done_offset(stream)
        event = e.IdlePointEvent(
            now=boot_time(), partition=stream.partition, acquisition_id=stream.acquisition_id, done=done, busy=busy
        )
        self._feed(event)

    def drained(self, stream: Stream) -> None:
        """A stream may have nothing in hand any more."""
        if stream.in_hand is not None or not stream.listening:
            return
        if self._lulls.get(stream.partition) is stream and stream.running:
            if stream.exhausted:
                stream.listening = False
                del self._lulls[stream.partition]
                self._tell_lull(stream, busy=False)
            return
        if self._lingering.get(stream.partition) is stream:
            stream.listening = False
            del self._lingering[stream.partition]
            self._lingering_ended.pop(stream.partition).set()
        elif self.stream(stream.partition, stream.acquisition_id) is stream and not stream.running:
            stream.listening = False
            if self.listener.target is None:
                self._tell_drained(stream)
            else:
                stream.revoked = True  # now, not when the task runs: a resume or a drop may come in between
                self._spawn(self._revoke(stream), "revoke")

    async def _revoke(self, stream: Stream) -> None:
        await self.listener.revoked([stream.partition])
        # While the listener took its time it may have been resumed, handed out, and stopped again.
        if not stream.running and stream.in_hand is None:
            self._tell_drained(stream)

    def _tell_drained(self, stream: Stream) -> None:
        event = e.DrainedEvent(
            now=boot_time(),
            partition=stream.partition,
            acquisition_id=stream.acquisition_id,
            done=self.done_offset(stream),
        )
        self._feed(event)

    def done_offset(self, stream: Stream) -> int | None:
        """What may be committed: behind the last record done, and behind what the log holds no records of."""
        # In this order: what is exhausted, what is in hand, what is done; then whether user code seeks meanwhile.
        exhausted, in_hand, done, handed_out = stream.exhausted, stream.in_hand, stream.done, stream.position
        # What user code gave up with is not in hand, and not done either: its offset has been handed out.
        if exhausted and in_hand is None and done is not None and done == handed_out and not stream.seeking:
            return self._behind(stream, done)
        return done

    def position(self, stream: Stream) -> int:
        """The offset handed out next: behind what was handed out, and behind what the log holds no records of.

        Raises:
            NoOffsetForPartitionError: it has none (``auto_offset_reset=none``) until user code seeks.
        """
        if stream.partition in self.without_offset:
            raise NoOffsetForPartitionError(TopicPartition(*stream.partition))
        exhausted, position = stream.exhausted, stream.position
        return self._behind(stream, position) if exhausted and not stream.seeking else position

    def _behind(self, stream: Stream, offset: int) -> int:
        """Everything before ``offset`` was handed out: past control records and what was compacted away behind it."""
        behind = self._fetcher.position(stream.partition)
        if behind is not None and behind > offset and self.stream(stream.partition, stream.acquisition_id) is stream:
            return behind
        return offset

    def resume(self, command: c.ResumeCommand) -> None:
        stream = self.stream(command.partition, command.acquisition_id)
        if stream is None:
            return
        self._stopped_at.pop(command.partition, None)
        stream.listening = False
        if stream.revoked:
            stream.revoked = False
            self._spawn(self._assign_again(stream), "assign-again")
        else:
            stream.running = True
            self.buffer.wake()

    async def _assign_again(self, stream: Stream) -> None:
        await self.listener.assigned([stream.partition])
        stopped_again = stream.partition in self._stopped_at
        if self.stream(stream.partition, stream.acquisition_id) is stream and not stopped_again:
            stream.running = True
            self.buffer.wake()

    def drop(self, command: c.DropCommand) -> None:
        stream = self.stream(command.partition, command.acquisition_id)
        stopped_at = self._stopped_at.pop(command.partition, None)
        if self._opening.get(command.partition) == command.acquisition_id:
            del self._opening[command.partition]
            self._user_sought(command.partition, None)
            self._prefetching.drop((command.partition,))
        if stream is None:
            return
        if command.released and stopped_at is not None:
            self._tell("released", self._observer.released, command.partition, boot_time() - stopped_at)
        stream.running = False
        self._lulls.pop(command.partition, None)
        self._untold.pop(command.partition, None)
        self._fetcher.drop(command.partition)
        self.buffer.remove(command.partition)
        self._tell("lost", self._observer.lost, stream)
        if stream.in_hand is not None:
            stream.listening = True
            self._lingering[command.partition] = stream
            self._lingering_ended[command.partition] = asyncio.Event()
            self.drained(stream)
        if self.listener.target is not None and not stream.revoked:
            self._spawn(self.listener.revoked([command.partition]), "revoke-lost")

    # -- what user code asks for ---------------------------------------------------------------------------------

    def seek(self, stream: Stream, offset: int) -> None:
        """User code has moved its position: fetch from there."""
        if self.stream(stream.partition, stream.acquisition_id) is stream and not self._user_sought(
            stream.partition, offset
        ):
            self._fetcher.take(stream.partition, offset)
            stream.clear()
            if stream.partition in self._untold:
                self._untold[stream.partition] = []
            stream.seeks_answered += 1  # last: from now on user code may take, unless it has sought again
            self.buffer.wake()
            self._tell("sought", self._observer.sought, stream, offset)

    def paused(self, stream: Stream, paused: bool) -> None:
        """User code paused or resumed a partition."""
        self._tell("paused", self._observer.paused, stream, paused)

    # -- fetching ------------------------------------------------------------------------------------------------

    async def fetch(self) -> None:
        """Fetch for ever; what fetching raises, the user's next call raises."""
        await self._fetcher.run(self._chunk, self._failed)

    def _chunk(self, chunk: Chunk) -> None:
        stream = self.buffer.streams.get(chunk.partition)
        if stream is None:
            self._prefetching.keep(chunk)
        elif not stream.seeking:
            self.buffer.feed(stream, chunk)
            untold = self._untold.get(chunk.partition)
            if untold is None:
                self._tell_fetched(stream, chunk)
            else:
                untold.append(chunk)

    def _tell_fetched(self, stream: Stream, chunk: Chunk) -> None:
        self._tell("fetched", self._observer.fetched, stream, chunk, self._fetcher.end_offset(chunk.partition))

    def _failed(self, error: Exception, for_good: bool) -> None:
        self.buffer.fail(error, for_good=for_good)

    def refill(self, stream: Stream) -> None:
        """A chunk of it was unpacked that was waited for."""
        if self.stream(stream.partition, stream.acquisition_id) is stream:
            self._fetcher.refill(stream.partition)

    def refetch(self, stream: Stream, offset: int) -> None:
        """What was fetched cannot be read: fetch it anew."""
        log.warning("%s: what was fetched cannot be unpacked; fetching it again from %d", stream.partition, offset)
        self.seek(stream, offset)
