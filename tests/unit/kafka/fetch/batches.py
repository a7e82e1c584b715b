"""Record batches as a broker sends them, and the request that asks for some."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.request import NO_SESSION, SessionFetchRequest

__all__ = ["batch", "control", "request"]

ABORT = b"\x00\x00\x00\x00"
COMMIT = b"\x00\x00\x00\x01"
_ATTRIBUTES_AT = 21
_CONTROL = 0x20


def batch(
    base: int,
    records: Sequence[tuple[int, int, bytes]],
    *,
    codec: int = 0,
    producer: int = -1,
    last_offset: int | None = None,
) -> bytes:
    """A batch of format v2.

    Args:
        base: its base offset.
        records: (offset, timestamp in ms, value); gaps are what compaction left.
        codec: 0 none, 1 gzip.
        producer: 0 and above: of a transaction of this producer.
        last_offset: as its header tells, where compaction took its last record.
    """
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=producer >= 0,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        batch_size=1 << 20,
    )
    for offset, stamp, value in records:
        builder.append(offset - base, stamp, None, value, [("h", b"1")])
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, base)
    if last_offset is not None:
        struct.pack_into(">i", data, 23, last_offset - base)
    return _signed(data)


def control(offset: int, producer: int, kind: bytes) -> bytes:
    """The marker that ends a transaction."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=True,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    builder.append(0, 1_000, kind, b"\x00\x00\x00\x00\x00\x00", [])
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, offset)
    (attributes,) = struct.unpack_from(">h", data, _ATTRIBUTES_AT)
    struct.pack_into(">h", data, _ATTRIBUTES_AT, attributes | _CONTROL)
    return _signed(data)


def _signed(data: bytearray) -> bytes:
    struct.pack_into(">I", data, 17, calc_crc32c(bytes(data[_ATTRIBUTES_AT:])))
    return bytes(data)


def request(rack: str = "") -> SessionFetchRequest:
    """For one partition, from offset 7 on."""
    return SessionFetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        partition_max_bytes={Partition("topic", 0): 1 << 20},
        isolation_level=0,
        session=NO_SESSION,
        fetch=[(Partition("topic", 0), 7)],
        rack=rack,
    )
