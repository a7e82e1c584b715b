"""The broker's logs: batches of records as Kafka keeps them, offsets, times, truncation."""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

__all__ = ["PartitionStore", "batch_of"]

_BASE_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_EPOCH = struct.Struct(">i")
_EPOCH_AT = 12
_CRC = struct.Struct(">I")
_CRC_AT = 17
_CHECKED_FROM = 21
_ATTRIBUTES = struct.Struct(">h")
_ATTRIBUTES_AT = 21
_LAST_DELTA_AT = 23
_MAX_TIMESTAMP_AT = 35
APPEND_TIME = 0x08
NO_PRODUCER = -1


@dataclass(frozen=True, slots=True)
class _Batch:
    base: int
    last: int
    max_timestamp_ms: int
    data: bytes


def batch_of(values: list[bytes], *timestamps_ms: int) -> bytes:
    """Return the bytes of one batch of records without keys, as a producer sends it.

    Args:
        values: of the records.
        timestamps_ms: one for all, or one for each.
    """
    builder = DefaultRecordBatchBuilder(2, 0, 0, NO_PRODUCER, NO_PRODUCER, NO_PRODUCER, 1 << 30)
    times = timestamps_ms if len(timestamps_ms) == len(values) else timestamps_ms * len(values)
    for offset, (value, timestamp_ms) in enumerate(zip(values, times, strict=True)):
        builder.append(offset, timestamp_ms, None, value, [])
    return bytes(builder.build())


class PartitionStore:
    """One partition's log.

    Args:
        append_time: stamp records with the broker's time, as ``message.timestamp.type=LogAppendTime`` does.
    """

    def __init__(self, *, append_time: bool = False) -> None:
        self._append_time = append_time
        self._batches: list[_Batch] = []
        self._bases: list[int] = []
        self.start = 0
        self.end = 0
        self.epoch = 0
        """Of the leader: how often one was elected."""

    def append(self, data: bytes, now_ms: int) -> int:
        """Append what a producer sent; return the first offset."""
        first, at = self.end, 0
        while at < len(data):
            (length,) = _LENGTH.unpack_from(data, at + _BASE_OFFSET.size)
            size = _BASE_OFFSET.size + _LENGTH.size + length
            self._add(bytearray(data[at : at + size]), now_ms)
            at += size
        return first

    def _add(self, raw: bytearray, now_ms: int) -> None:
        count = _LENGTH.unpack_from(raw, _LAST_DELTA_AT)[0] + 1
        timestamp = _BASE_OFFSET.unpack_from(raw, _MAX_TIMESTAMP_AT)[0]
        if self._append_time:
            timestamp = now_ms
            (attributes,) = _ATTRIBUTES.unpack_from(raw, _ATTRIBUTES_AT)
            _ATTRIBUTES.pack_into(raw, _ATTRIBUTES_AT, attributes | APPEND_TIME)
            _BASE_OFFSET.pack_into(raw, _MAX_TIMESTAMP_AT, now_ms)
            _CRC.pack_into(raw, _CRC_AT, calc_crc32c(bytes(raw[_CHECKED_FROM:])))
        _BASE_OFFSET.pack_into(raw, 0, self.end)
        _EPOCH.pack_into(raw, _EPOCH_AT, self.epoch)
        self._batches.append(_Batch(self.end, self.end + count - 1, timestamp, bytes(raw)))
        self._bases.append(self.end)
        self.end += count

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return whole batches from the one with ``offset`` on: at least one where there is one."""
        if offset >= self.end:
            return b""
        parts: list[bytes] = []
        size = 0
        for batch in self._batches[max(0, bisect_right(self._bases, offset) - 1) :]:
            if parts and size + len(batch.data) > max_bytes:
                break
            parts.append(batch.data)
            size += len(batch.data)
        return b"".join(parts)

    def offset_at(self, timestamp_ms: int) -> tuple[int, int]:
        """Return (timestamp, offset) of the first batch of that time or later; (-1, -1): there is none."""
        for batch in self._batches:
            if batch.max_timestamp_ms >= timestamp_ms:
                return batch.max_timestamp_ms, batch.base
        return -1, -1

    def truncate(self, end: int) -> None:
        """Lose the last records, as an unclean election does: what follows is the new leader's."""
        self.epoch += 1
        while self._batches and self._batches[-1].base >= end:
            self._batches.pop()
            self._bases.pop()
        self.end = self._batches[-1].last + 1 if self._batches else self.start

    def expire(self, start: int) -> None:
        """Lose the first records, as retention does."""
        while self._batches and self._batches[0].last < start:
            self._batches.pop(0)
            self._bases.pop(0)
        self.start = self._batches[0].base if self._batches else self.end
