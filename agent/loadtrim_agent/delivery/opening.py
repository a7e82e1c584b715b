"""Opening partitions: from the machine's command to the first offset that is fetched.

Theory of operation. An acquired partition is opened in three steps: find its first offset, begin to fetch there, call
the user's rebalance listener. The machine is told when the listener has returned; only then are records delivered. An
offset that must be looked up, or that only user code can name by seeking, holds up its own partition and no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

import msgspec
from aiokafka.errors import KafkaError, KafkaTimeoutError, NoOffsetForPartitionError, TopicAuthorizationFailedError

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.settings import DEFAULTS
from loadtrim_agent.common.tasks import Spawner
from loadtrim_agent.kafka.connections import UNREACHABLE
from loadtrim_agent.kafka.fetch.port import Fetcher
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e

from .gate import DeliveryGate
from .intake import ChunkIntake
from .listener import Listener
from .observer import DeliveryObserver
from .partition_stream import Stream
from .ports import CommittedOffsets, DeliveryAgent
from .record_buffer import RecordBuffer

__all__ = ["DeliveryParts", "PartitionOpener"]

log = logging.getLogger("loadtrim")

LOOK_SECONDS = 0.25
"""Pause between two looks whether the task has ended that has a record in hand. Chosen."""
TOGETHER_SECONDS = 0.05
"""How long partitions whose start is known wait for those whose start is being looked up, to share a listener call.
Chosen."""


class DeliveryParts(msgspec.Struct, frozen=True, kw_only=True):
    """Delivery is put together from these parts."""

    buffer: RecordBuffer
    """User code takes records from it."""
    gate: DeliveryGate
    """The gate opens the buffer while the lease lasts."""
    fetcher: Fetcher
    listener: Listener
    """The user's rebalance listener."""
    observer: DeliveryObserver
    """Told of what is acquired, fetched and lost."""
    boundary: ErrorBoundary
    """Contains what the observer raises."""
    agent: DeliveryAgent
    tasks: Spawner
    offsets: CommittedOffsets
    retry_backoff: float
    """Seconds between tries."""
    drain_seconds: float = DEFAULTS.drain_seconds
    """Wait for what is in user code for so long."""
    by_hand: bool = False
    """User code commits itself."""


class Sought:
    """A partition that begins where user code seeks.

    Args:
        stream: what user code seeks in.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.offset: int | None = None
        """The offset sought last; None: none yet, or the partition was lost."""
        self.told = False
        """The listener, if there was one, has returned from the call that named it."""
        self.answered = asyncio.Event()


class LostInHand:
    """A partition that was lost while one of its records was in user code.

    Args:
        stream: whose record it is.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.ended = asyncio.Event()
        """Set when the record is done."""


class PartitionOpener:
    """The opener opens partitions; see the module's text. All methods run in the agent's loop.

    Args:
        parts: of delivery.
        intake: takes the chunks that were prefetched.
    """

    def __init__(self, parts: DeliveryParts, intake: ChunkIntake) -> None:
        self._parts = parts
        self._intake = intake
        self.without_offset: frozenset[Partition] = frozenset()
        """Owned, without a commit and with ``auto_offset_reset=none``: calls raise until user code seeks. A new set at
        each change, for the user's thread reads it."""
        self._sought: dict[Partition, Sought] = {}
        self._opening: dict[Partition, int] = {}
        """Partition -> acquisition that is to be opened; one lost before it was is not opened any more."""
        self.in_user_code: dict[Partition, LostInHand] = {}
        """Partitions lost while one of their records was in user code (rule 13)."""

    def open(self, commands: list[c.OpenCommand]) -> None:
        """Begin fetching; answer when the listener has returned. Each partition waits for itself only."""
        tasks = self._parts.tasks
        self._opening.update({command.partition: command.acquisition_id for command in commands})
        slow: list[c.OpenCommand] = []
        for command in commands:
            if command.partition in self.in_user_code:
                tasks.spawn(self._open_late(command, self.in_user_code[command.partition]), "open-late")
            elif self._parts.listener.target is None and command.offset is not None:
                self._opened(command, command.offset)
            else:
                slow.append(command)
        if slow:
            tasks.spawn(self._open_slowly(slow), "open")

    def cancel(self, partition: Partition, acquisition_id: int) -> None:
        """The acquisition is lost: if it is still to be opened, it is not opened any more."""
        if self._is_current(partition, acquisition_id):
            del self._opening[partition]
            self._parts.buffer.errors.forget(partition)
            self.user_sought(partition, None)
            self._intake.prefetching.drop((partition,))

    def _is_current(self, partition: Partition, acquisition_id: int) -> bool:
        return self._opening.get(partition) == acquisition_id

    async def _open_late(self, command: c.OpenCommand, lost: LostInHand) -> None:
        """One of its records is still in user code, from an earlier acquisition."""
        clock = asyncio.get_running_loop().time
        ends = clock() + self._parts.drain_seconds
        while not (lost.ended.is_set() or self._is_left(lost)) and clock() < ends:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_SECONDS, self._parts.drain_seconds)):
                    await lost.ended.wait()
        if not (lost.ended.is_set() or self._is_left(lost)):
            log.warning(
                "%s was lost and came back, and user code has had a record of it in hand for another %.0f s since "
                "(LOADTRIM_DRAIN_SECONDS): it is delivered again from its last commit on, that record too.",
                command.partition,
                self._parts.drain_seconds,
            )
        await self._open_slowly([command])

    def _is_left(self, lost: LostInHand) -> bool:
        """Return whether the task that had it has ended without a word. Those that say what is done may use others."""
        return lost.stream.pending is None and self._parts.buffer.hand.is_left(lost.stream)

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
        current = [each for each in found if self._is_current(each[0].partition, each[0].acquisition_id)]
        streams = [self._begin(command, offset) for command, offset in current if isinstance(offset, int)]
        sought = [(command, to) for command, to in current if isinstance(to, Sought)]
        if streams or sought:
            partitions = [s.partition for s in streams] + [command.partition for command, _ in sought]
            await self._parts.listener.assigned(partitions)
        for stream in streams:
            self._tell_opened(stream)
        for command, to in sought:
            to.told = True
            self._parts.tasks.spawn(self._open_sought(command, to), "open-sought")

    async def _start_offset(self, command: c.OpenCommand) -> int | Sought | None:
        """Return where to begin; None: the acquisition is lost. A leader that is away holds up its partition only."""
        while command.offset is None and self._is_current(command.partition, command.acquisition_id):
            try:
                return await self._parts.fetcher.reset_offset(command.partition)
            except NoOffsetForPartitionError:
                current = self._is_current(command.partition, command.acquisition_id)
                return self._let_seek(command) if current else None
            except UNREACHABLE as error:
                if not self._is_current(command.partition, command.acquisition_id):
                    return None
                if isinstance(error, TopicAuthorizationFailedError):
                    self._parts.agent.raise_to_user(error)
                    return None
                if isinstance(error, KafkaError) and not (error.retriable or isinstance(error, KafkaTimeoutError)):
                    self._parts.buffer.fail(error, command.partition)
                await asyncio.sleep(self._parts.retry_backoff)
        return command.offset

    def _let_seek(self, command: c.OpenCommand) -> Sought:
        """``auto_offset_reset=none`` and no commit: only user code can say where to begin, by seeking."""
        stream = self._stream_of(command, None)
        self._sought[command.partition] = sought = Sought(stream)
        self._parts.buffer.put(stream)
        return sought

    async def _open_sought(self, command: c.OpenCommand, sought: Sought) -> None:
        if not sought.answered.is_set():  # the listener, which was called with it, did not seek
            self.without_offset |= {command.partition}
            self._parts.buffer.wake()
            self._parts.agent.waits_for_user()
        await sought.answered.wait()
        if sought.offset is not None and self._is_current(command.partition, command.acquisition_id):
            self._opened(command, sought.offset)

    @property
    def waiting_for_a_seek(self) -> frozenset[Partition]:
        """Partitions that begin where user code seeks, after the listener's call if there was one."""
        return frozenset(partition for partition, sought in self._sought.items() if sought.told)

    def user_sought(self, partition: Partition, offset: int | None) -> bool:
        """User code has said where to begin, or (None) the partition is lost. False: that was not asked."""
        sought = self._sought.get(partition)
        self.without_offset -= {partition}
        if sought is None:
            return False
        # The last one counts: user code may seek again until the partition is opened.
        sought.offset = offset
        sought.answered.set()
        if offset is None:
            del self._sought[partition]
        return True

    def _opened(self, command: c.OpenCommand, offset: int) -> None:
        self._tell_opened(self._begin(command, offset))

    def _begin(self, command: c.OpenCommand, offset: int) -> Stream:
        del self._opening[command.partition]
        sought = self._sought.pop(command.partition, None)
        # User code may seek in the stream that it knows at any moment, so that one stays.
        stream = sought.stream if sought is not None else self._stream_of(command, offset)
        stream.handoff_since = boot_time() - command.handoff_seconds if command.handoff_seconds is not None else None
        self._parts.buffer.put(stream)
        self._intake.begin(command.partition, offset)
        return stream

    def _stream_of(self, command: c.OpenCommand, offset: int | None) -> Stream:
        return Stream(command.partition, command.acquisition_id, offset, by_hand=self._parts.by_hand)

    def _tell_opened(self, stream: Stream) -> None:
        self._parts.agent.feed(
            e.OpenedEvent(
                now=boot_time(),
                partition=stream.partition,
                acquisition_id=stream.acquisition_id,
                position=stream.position,
            )
        )
