"""What one fetch brought of one partition, and how its records are read.

Framing and reading are apart. Framing, in the agent's thread, walks the headers of the batches only: which of them user
code is to see, how many records they hold, where to fetch next. Reading, in the user's thread, unpacks records a slice
at a time when user code asks for them: nothing is unpacked that is thrown away, what is buffered stays as small as it
came over the wire, and the agent's loop is never held up by a large batch.

Source: message formats v0 to v2, https://kafka.apache.org/documentation/#messageformat; read_committed as in
``org.apache.kafka.clients.consumer.internals.CompletedFetch``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final

from aiokafka.errors import CorruptRecordException
from aiokafka.record.control_record import ABORT_MARKER, ControlRecord
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import ConsumerRecord

from loadtrim_agent.common.partition import Partition

__all__ = ["Batch", "Chunk", "Reader", "frame"]

_LENGTH = struct.Struct(">qi")
"""Base offset, bytes behind this field."""
_LENGTH_END = _LENGTH.size
_MAGIC_AT = 16
_V2 = struct.Struct(">hiqqqhii")
"""Attributes, last offset delta, first and largest timestamp, producer id and epoch, base sequence, records."""
_V2_AT = 21
_V2_BYTES = 61
_V1_STAMP_AT = 18
_COUNT = struct.Struct(">i")
_COUNT_AT = 57
_ATTRIBUTES_LOW_AT = 22
_LEGACY_BYTES = 26
_UNKNOWN: Final = 1 << 62
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_APPEND_TIME: Final = 0x08
_new: Final = object.__new__
STAMPS_MAX = 20
"""Points in time that the records of one batch are spread over."""
CHUNK_OVERHEAD_BYTES = 1024
"""What a chunk costs beside its bytes; else a flood of tiny ones would count for nothing."""

Batch = tuple[int, int, int, int, int]
"""Where it begins and ends in the bytes; records to be seen; timestamps of the first and the last, ms, -1: none."""


class Chunk:
    """What one fetch brought of one partition. The agent makes it, the user's thread reads it (:class:`Reader`)."""

    __slots__ = (
        "batches",
        "check_crcs",
        "data",
        "done",
        "end",
        "partition",
        "records",
        "refill",
        "size_bytes",
        "start",
    )

    def __init__(
        self,
        partition: Partition,
        start: int,
        end: int,
        data: bytes,
        batches: list[Batch],
        *,
        check_crcs: bool,
    ) -> None:
        self.partition = partition
        self.start = start
        """The offset that was asked for: records below it are not for user code."""
        self.end = end
        """The offset to fetch next."""
        self.data = data
        self.batches = batches
        """Those with records for user code."""
        self.check_crcs = check_crcs
        self.records = sum(batch[2] for batch in batches)
        """As the headers tell; exact but for a first batch that is both compacted and read from its middle."""
        self.size_bytes = len(data) + CHUNK_OVERHEAD_BYTES
        """What it takes of the buffers' limits, until :attr:`done`."""
        self.done = False
        """User: everything in it was unpacked."""
        self.refill = False
        """Agent: wants to be told when it is done."""

    def stamps(self) -> tuple[list[float], list[int]]:
        """When its records were written, in the order of the log.

        Returns:
            Seconds since the epoch, negative where not known, and how many records each of them stands for. From the
            headers: exact for the first and the last record of a batch, spread evenly between them.
        """
        stamps: list[float] = []
        counts: list[int] = []
        for _, _, records, first, last in self.batches:
            if records == 1 or first == last:
                stamps.append((last if records == 1 else first) / 1000)
                counts.append(records)
                continue
            points = min(records, STAMPS_MAX)
            step = (last - first) / (points - 1)
            stamps += [(first + step * number) / 1000 for number in range(points)]
            share, more = divmod(records, points)
            counts += [share + 1] * more + [share] * (points - more)
        return stamps, counts


def frame(
    partition: Partition,
    start: int,
    data: bytes,
    aborted: Iterable[tuple[int, int]] | None,
    *,
    committed_only: bool,
    check_crcs: bool,
) -> Chunk | None:
    """Find the batches in an answer.

    Args:
        partition: topic and index.
        start: the offset that was asked for.
        data: what the broker sent; its last batch may be cut off.
        aborted: (producer id, first offset) of each aborted transaction.
        committed_only: leave records of aborted transactions out (``read_committed``).
        check_crcs: check what is left out; the reader checks the rest.

    Returns:
        None where not even one batch is complete.

    Raises:
        CorruptRecordException: a header that cannot be, or a checksum of what is left out. Cost: O(batches), and a
            checksum of each that is left out.
    """
    batches: list[Batch] = []
    waiting = sorted(aborted or (), key=lambda entry: entry[1]) if committed_only else []
    aborting: set[int] = set()
    at, size, end = 0, len(data), start
    while at + _LENGTH_END <= size:
        base, length = _LENGTH.unpack_from(data, at)
        stop = at + _LENGTH_END + length
        if stop > size:
            break
        if length < _LEGACY_BYTES - _LENGTH_END:
            raise CorruptRecordException(f"{partition}: a batch of {length} bytes at offset {base}")
        if data[at + _MAGIC_AT] < 2:
            end = max(end, base + 1)
            batches.append(_legacy(data, at, stop, base, start))
        else:
            if stop - at < _V2_BYTES:
                raise CorruptRecordException(f"{partition}: a batch of {length} bytes at offset {base}")
            attributes, delta, first, last, producer, _, _, records = _V2.unpack_from(data, at + _V2_AT)
            while waiting and waiting[0][1] <= base:
                aborting.add(waiting.pop(0)[0])
            behind = base + delta + 1
            is_aborted = attributes & _TRANSACTIONAL and producer in aborting
            is_left_out = attributes & _CONTROL or records <= 0 or behind <= start or is_aborted
            if is_left_out and check_crcs and not _is_whole(data, at, stop):
                if at:
                    break  # what came before it first: it is fetched again
                raise CorruptRecordException(f"Invalid CRC - {partition}")
            end = max(end, behind)
            if attributes & _CONTROL:
                if producer in aborting and _is_abort(data[at:stop], partition):
                    aborting.discard(producer)
            elif not is_left_out:
                if base < start:
                    records = min(records, behind - start)
                batches.append((at, stop, records, last if attributes & _APPEND_TIME else first, last))
        at = stop
    if at == 0:
        return None
    return Chunk(partition, start, end, data, batches, check_crcs=check_crcs)


def last_offset(data: bytes, at: int) -> int:
    """Of the batch that begins there; the formats before v2 carry it as their own offset."""
    base: int = _LENGTH.unpack_from(data, at)[0]
    return base + int(_V2.unpack_from(data, at + _V2_AT)[1]) if data[at + _MAGIC_AT] >= 2 else base


def _legacy(data: bytes, at: int, stop: int, offset: int, start: int) -> Batch:
    """Formats v0 and v1: one message, or a compressed set that carries the offset of its last message."""
    compressed = data[at + _MAGIC_AT + 1] & 0x07
    stamp = struct.unpack_from(">q", data, at + _V1_STAMP_AT)[0] if data[at + _MAGIC_AT] else -1
    return (at, stop, max(1, offset + 1 - start) if compressed else 1, stamp, stamp)


def _is_whole(data: bytes, at: int, stop: int) -> bool:
    return bool(DefaultRecordBatch(memoryview(data)[at:stop]).validate_crc())


def _is_abort(batch: bytes, partition: Partition) -> bool:
    try:
        found = MemoryRecords(batch).next_batch()
        return any(ControlRecord.parse(record.key) == ABORT_MARKER for record in found or ())
    except Exception as error:  # of many types, where nothing has checked the bytes
        raise CorruptRecordException(f"{partition}: the end of a transaction cannot be read: {error!r}") from error


class Reader:
    """Unpacks one chunk. The user's thread."""

    __slots__ = ("_chunk", "_error", "_left", "_number", "_stamp_type", "_unpacked", "finished", "size_bytes")

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._number = 0
        """Of the batch to be opened next."""
        self._unpacked: Iterator[Any] = iter(())
        self._stamp_type: int | None = None
        """Of every record of the open batch; None: each has its own, and a checksum."""
        self._left = 0
        """Records left in the open batch; a set of an old format does not tell."""
        self._error: Exception | None = None
        self.size_bytes = 0
        """Keys and values unpacked so far."""
        self.finished = not chunk.batches

    @property
    def chunk(self) -> Chunk:
        return self._chunk

    @property
    def stamp(self) -> int:
        """Return when the open batch began, or the one that is opened next, in ms; -1: not known."""
        number = self._number - 1 if self._left else self._number
        return self._chunk.batches[number][3] if 0 <= number < len(self._chunk.batches) else -1

    def read(self, records_max: int) -> list[ConsumerRecord[Any, Any]]:
        """The next records: so many, fewer only where the chunk ends or something is wrong.

        Raises:
            CorruptRecordException: a checksum or a record is wrong; what was before it was given by earlier calls.
            UnsupportedCodecError: the library of a codec is not installed.

        Cost: 0.7 us per record of 100 bytes, 3 us per batch.
        """
        if self._error is not None:
            raise self._error
        found: list[ConsumerRecord[Any, Any]] = []
        try:
            while len(found) < records_max and not self.finished:
                if not self._left:
                    self._open()
                self._unpack(min(records_max - len(found), self._left), found)
        except Exception as error:
            if not found:
                raise
            self._error = error  # what came before it first
        return found

    def _open(self) -> None:
        """Begin with the next batch: checksum, decompression."""
        chunk = self._chunk
        begin, stop, _, _, _ = chunk.batches[self._number]
        legacy = chunk.data[begin + _MAGIC_AT] < 2
        packed: Any = (
            MemoryRecords(chunk.data[begin:stop]).next_batch()
            if legacy
            else DefaultRecordBatch(memoryview(chunk.data)[begin:stop])
        )
        if packed is None:
            raise CorruptRecordException(f"{chunk.partition}: no batch where its header was")
        if chunk.check_crcs and not packed.validate_crc():
            raise CorruptRecordException(f"Invalid CRC - {chunk.partition}")
        # A batch may be iterated over once; what goes over this goes on where the last one stopped.
        unpacked: Iterator[Any] = chain(packed)
        left = _UNKNOWN if legacy else _COUNT.unpack_from(chunk.data, begin + _COUNT_AT)[0]
        if self._number == 0 and (legacy or _LENGTH.unpack_from(chunk.data, begin)[0] < chunk.start):
            for record in unpacked:
                if record.offset >= chunk.start:
                    unpacked = chain((record,), unpacked)
                    break
                left -= 1
            else:
                left = 0
        self._unpacked = unpacked
        self._left = left
        self._stamp_type = None if legacy else int(bool(chunk.data[begin + _ATTRIBUTES_LOW_AT] & _APPEND_TIME))
        self._number += 1

    def _unpack(self, wanted: int, found: list[ConsumerRecord[Any, Any]]) -> None:
        """Unpack so many records of the batch, fewer where it ends."""
        topic, partition = self._chunk.partition
        begin, size, stamp_type = len(found), 0, self._stamp_type
        append = found.append
        try:
            for record in islice(self._unpacked, wanted):
                key, value, headers = record.key, record.value, record.headers
                # Setting the fields is faster than calling the constructor, which does just that.
                made = _new(ConsumerRecord)
                made.topic = topic
                made.partition = partition
                made.offset = record.offset
                made.timestamp = record.timestamp
                made.timestamp_type = record.timestamp_type if stamp_type is None else stamp_type
                made.key = key
                made.value = value
                made.checksum = record.checksum if stamp_type is None else None
                made.serialized_key_size = key_bytes = -1 if key is None else len(key)
                made.serialized_value_size = value_bytes = -1 if value is None else len(value)
                made.headers = tuple(headers) if headers else ()
                append(made)
                size += key_bytes + value_bytes
        finally:
            unpacked = len(found) - begin
            self.size_bytes += size + 2 * unpacked
        self._left = self._left - wanted if unpacked == wanted else 0
        if not self._left:
            self._unpacked = iter(())
            self.finished = self._number == len(self._chunk.batches)
