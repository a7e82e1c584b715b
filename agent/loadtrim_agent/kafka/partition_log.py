"""One partition of a topic of our own, read and appended to with single requests.

A consumer and a producer of aiokafka do the same with a client, background tasks and timers each. Here nothing runs
unless somebody asks, and whoever asks decides how long to wait and when to try again.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any, NamedTuple

import msgspec
from aiokafka.consumer.fetcher import READ_UNCOMMITTED, PartitionRecords
from aiokafka.errors import KafkaError, LeaderNotAvailableError, OffsetOutOfRangeError, for_code
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.partition import Partition

from .batches import is_whole, singly, split
from .connections import UNREACHABLE, Backoff, Channel, Connections
from .fetch.request import NO_SESSION, SessionFetchRequest

__all__ = ["ANSWER_SECONDS", "Appended", "Fetched", "PartitionLog", "leader_epochs"]

FETCH_BYTES_MAX = 1 << 20
BATCH_BYTES_MAX = 1 << 16
"""Appends that wait for each other share a batch up to this size; a record that is larger travels alone."""
WAITING_MAX = 10_000
"""Appends that wait for their turn; one more is refused."""
REQUEST_SECONDS = 5.0
"""For what the broker answers at once."""
ANSWER_SECONDS = 1.0
"""No answer to a read that is not to wait for this long: the connection is given up."""
FIRST_OFFSET, END_OFFSET = -2, -1
"""Stand for a time in ListOffsets."""
GZIP = 1
BATCH_VERSION = 2
_BATCH_BEGIN = struct.Struct(">qiib")
_LENGTH_BEHIND = 12
"""Bytes of a batch before those that its length counts."""


class Fetched(NamedTuple):
    """What one fetch brought."""

    records: list[Any]
    """aiokafka's ``ConsumerRecord``, by offset."""
    following: int
    """Offset to fetch next: behind the last record, and behind what holds no records for users."""
    end: int
    """Offset behind the last record that there was."""
    epochs: tuple[int, int] | None = None
    """Leader epochs of the first and the last batch: the leaders that took them. None: no batch, or not known."""
    unreadable: tuple[range, ...] = ()
    """Offsets of batches that cannot be unpacked, and are passed over."""


class Appended(NamedTuple):
    """Where a record is in the log."""

    offset: int
    appended_at: float | None
    """By the broker's clock, seconds since the epoch; None where the topic keeps the writer's times."""


class _Append(msgspec.Struct, eq=False):
    key: bytes | None
    value: bytes
    outcome: Appended | BaseException | None = None


class PartitionLog:
    """Reads and appends one partition, wherever its leader is.

    Args:
        connections: started.
        topic, partition: which one.
        read: channel of the long polls.
        append: channel of the appends, and of questions that are answered at once.
        compressed: whether batches are written with gzip.
        append_seconds: after this long a record that does not get through is given up.
    """

    def __init__(
        self,
        connections: Connections,
        topic: str,
        partition: int,
        *,
        read: Channel,
        append: Channel,
        compressed: bool = False,
        append_seconds: float = 40.0,
    ) -> None:
        self._connections = connections
        self._at = TopicPartition(topic, partition)
        self._read_channel = read
        self._append_channel = append
        self._compression = GZIP if compressed else 0
        self._append_seconds = append_seconds
        self._waiting: list[_Append] = []
        self._turn = asyncio.Lock()

    # -- reading -------------------------------------------------------------------------------------------------

    async def offset_at(self, timestamp_ms: int) -> int:
        """The first offset with a record of that time or later, -1 where there is none. Also takes
        :data:`FIRST_OFFSET` and :data:`END_OFFSET`.

        Raises:
            KafkaError, OSError, TimeoutError: it cannot be told now.
        """
        request = OffsetRequest(-1, READ_UNCOMMITTED, [(self._at.topic, [(self._at.partition, timestamp_ms)])])
        answer = await self._ask(self._append_channel, request, REQUEST_SECONDS)
        _, code, _, offset, *_ = answer.topics[0][1][0]
        self._check(code)
        return int(offset)

    async def first(self) -> int:
        """The first offset that is still there. Raises as :meth:`offset_at`."""
        return await self.offset_at(FIRST_OFFSET)

    async def end(self) -> int:
        """The offset behind the last record. Raises as :meth:`offset_at`."""
        return await self.offset_at(END_OFFSET)

    async def read(self, position: int, *, wait_seconds: float, timeout: float) -> Fetched:
        """Records from ``position`` on.

        Args:
            position: offset.
            wait_seconds: how long the broker waits for a record where there is none.
            timeout: seconds until the request is given up; above ``wait_seconds``.

        Raises:
            OffsetOutOfRangeError: the log does not have that position. KafkaError, OSError, TimeoutError: it cannot be
            read now.
        """
        at = Partition(*self._at)
        request = SessionFetchRequest(
            max_wait_ms=int(wait_seconds * 1000),
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            partition_max_bytes={at: FETCH_BYTES_MAX},
            isolation_level=READ_UNCOMMITTED,
            session=NO_SESSION,
            fetch=[(at, position)],
        )
        answer = await self._ask(self._read_channel, request, timeout)
        if not answer.topics:
            return Fetched([], position, position)
        _, code, end, *rest = answer.topics[0][1][0]
        self._check(code)
        raw = rest[-1]
        if not raw:
            return Fetched([], position, position)
        records, following, unreadable = self._unpacked(bytes(raw), position)
        return Fetched(records, following, int(end), leader_epochs(raw), unreadable)

    def _unpacked(self, raw: bytes, position: int) -> tuple[list[Any], int, tuple[range, ...]]:
        """Return records, the offset behind them, and the offsets of what is passed over."""
        records: list[Any] = []
        unreadable: list[range] = []
        for batches in split(raw):
            if batches.unreadable is not None:
                unreadable.append(batches.unreadable)
                position = max(position, batches.unreadable.stop)
                continue
            try:
                position = self._unpack(batches.data, position, records)
            except Exception:
                # The broker takes what aiokafka cannot read, such as the name of a header that is no text.
                singles = singly(batches.data)
                if not singles:
                    raise
                for data, offsets in singles:
                    try:
                        position = self._unpack(data, position, records)
                    except Exception:
                        if not is_whole(data):
                            raise  # changed on its way: it is fetched again
                        unreadable.append(offsets)
                        position = max(position, offsets.stop)
        return records, position, tuple(unreadable)

    def _unpack(self, batches: bytes, position: int, records: list[Any]) -> int:
        """Add the records from ``position`` on, all or none, and return the offset behind them."""
        reader = PartitionRecords(self._at, MemoryRecords(batches), [], position, None, None, True, READ_UNCOMMITTED)
        records += list(reader)
        return int(reader.next_fetch_offset)

    # -- appending -----------------------------------------------------------------------------------------------

    async def append(self, value: bytes, key: bytes | None = None) -> Appended:
        """Append one record, after all that were asked for before; tried again until it is in the log.

        One request at a time: who comes meanwhile shares the next. A record may be in the log twice when an answer was
        lost, and may come to be there after this has raised.

        Raises:
            KafkaError, OSError, TimeoutError: it is not known to be there.
        """
        if len(self._waiting) >= WAITING_MAX:
            raise KafkaError(f"{WAITING_MAX} records wait to be appended to {self._at} already")
        mine = _Append(key, value)
        self._waiting.append(mine)
        try:
            async with self._turn:
                if mine.outcome is None:
                    await self._append_some()
        finally:
            if mine in self._waiting:  # cancelled before its turn
                self._waiting.remove(mine)
        if isinstance(mine.outcome, BaseException):
            raise mine.outcome
        assert mine.outcome is not None
        return mine.outcome

    async def _append_some(self) -> None:
        some, data = self._batch()
        try:
            first, stamp = await self._append_batch(data)
        except UNREACHABLE as error:
            for each in some:
                each.outcome = error
        except BaseException:
            for each in some:
                each.outcome = KafkaError("who wrote the batch was cancelled")
            raise
        else:
            for index, each in enumerate(some):
                each.outcome = Appended(first + index, stamp / 1000 if stamp >= 0 else None)

    def _batch(self) -> tuple[list[_Append], bytes]:
        builder = DefaultRecordBatchBuilder(2, self._compression, 0, -1, -1, 0, BATCH_BYTES_MAX)
        count = 0
        for each in self._waiting:
            if builder.append(count, None, each.key, each.value, []) is None:
                break
            count += 1
        some, self._waiting = self._waiting[:count], self._waiting[count:]
        return some, bytes(builder.build())

    async def _append_batch(self, data: bytes) -> tuple[int, int]:
        """(offset of the first record, its time in ms by the broker's clock or -1)."""
        deadline = boot_time() + self._append_seconds
        backoff = Backoff(self._connections.retry_backoff)
        while True:
            try:
                return await self._produce(data)
            except UNREACHABLE as error:
                wait = backoff.failed()
                final = isinstance(error, KafkaError) and not error.retriable
                if final or boot_time() + wait >= deadline:
                    raise
                await asyncio.sleep(wait)

    async def _produce(self, data: bytes) -> tuple[int, int]:
        request = ProduceRequest(
            transactional_id=None,
            required_acks=-1,
            timeout=int(REQUEST_SECONDS * 1000),
            topics=[(self._at.topic, [(self._at.partition, data)])],
        )
        answer = await self._ask(self._append_channel, request, REQUEST_SECONDS)
        _, code, offset, stamp, *_ = answer.topics[0][1][0]
        self._check(code)
        return int(offset), int(stamp)

    # -- asking --------------------------------------------------------------------------------------------------

    async def _ask(self, channel: Channel, request: Any, timeout: float) -> Any:
        return await self._connections.send(await self._leader(), channel, request, timeout=timeout)

    async def _leader(self) -> int:
        client = self._connections.client
        node = client.cluster.leader_for_partition(self._at)
        if node is None or node < 0:
            async with asyncio.timeout(REQUEST_SECONDS):
                await client.force_metadata_update()
            node = client.cluster.leader_for_partition(self._at)
        if node is None or node < 0:
            raise LeaderNotAvailableError(f"{self._at} has no leader now")
        return int(node)

    def _check(self, code: int) -> None:
        if code == 0:
            return
        error = for_code(code)
        if error is OffsetOutOfRangeError:
            raise OffsetOutOfRangeError(f"{self._at}")
        if error.invalid_metadata:
            self._connections.client.force_metadata_update()
        raise error(f"{self._at}")


def leader_epochs(batches: bytes) -> tuple[int, int] | None:
    """Return the leader epochs of the first and the last whole batch; None where one is not known.

    Source: Kafka's record batch, version 2: base offset, length of what follows, leader epoch, version.
    """
    epochs: list[int] = []
    at = 0
    while at + _BATCH_BEGIN.size <= len(batches):
        _, length, epoch, version = _BATCH_BEGIN.unpack_from(batches, at)
        at += _LENGTH_BEHIND + length
        if length <= 0 or at > len(batches):
            break
        if version != BATCH_VERSION or epoch < 0:
            return None
        epochs.append(epoch)
    return (epochs[0], epochs[-1]) if epochs else None
