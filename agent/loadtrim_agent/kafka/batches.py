"""Record batches of topics that others may write to: what is unpacked of one is bounded.

A megabyte of gzip may hold a gigabyte, of zstd much more, and the broker takes both. A codec may also have no library
here, and then the whole topic could not be read until retention removes the batch.

Source: Kafka's record batch, version 2: base offset, length of what follows, leader epoch, version, checksum,
attributes, last offset delta; records begin at byte 61.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from aiokafka.codec import has_zstd
from aiokafka.record.default_records import DefaultRecordBatch

__all__ = ["UNPACKED_BYTES_MAX", "Batches", "is_whole", "singly", "split"]

UNPACKED_BYTES_MAX = 32 << 20
"""Chosen: a record of the broker's usual limit, 1 MB, that was compressed to a thirtieth."""
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
GZIP_WINDOW = 31
"""For zlib: the largest window, in gzip's frame."""
SNAPPY_FACTOR_MAX = 22
"""A copy of 64 bytes takes three."""
ROOM_BYTES_MIN = 1 << 16
ROOM_FACTOR = 16
"""Chosen: to make room takes longer than to unpack, so little is tried first."""
VERSION = 2
_HEAD = struct.Struct(">qiibIhi")
_LENGTH_BEHIND = 12
"""Bytes of a batch before those that its length counts."""
_RECORDS_AT = 61


class Batches(NamedTuple):
    """Batches that follow each other: all of them can be unpacked, or it is one that cannot."""

    data: bytes
    unreadable: range | None = None
    """Offsets of the one that cannot be unpacked; None: they can."""


def split(data: bytes) -> list[Batches]:
    """Divide what a broker answered at the batches that are not to be unpacked.

    A batch with a wrong checksum counts as readable: reading it raises, and it is fetched again.
    """
    found: list[Batches] = []
    begin = 0
    for at, end, offsets, codec in _heads(data):
        if codec and not _is_bounded(data[at:end], codec):
            if begin < at:
                found.append(Batches(data[begin:at]))
            found.append(Batches(data[at:end], offsets))
            begin = end
    if begin == 0:
        return [Batches(data)]
    return [*found, Batches(data[begin:])] if begin < len(data) else found


def singly(data: bytes) -> list[tuple[bytes, range]]:
    """Return each whole batch with its offsets; none of those that have the format of the time before batches."""
    return [(data[at:end], offsets) for at, end, offsets, _ in _heads(data)]


def is_whole(batch: bytes) -> bool:
    """Return whether a batch has its checksum: it is as it was written."""
    return bool(DefaultRecordBatch(batch).validate_crc())


def _heads(data: bytes) -> Iterator[tuple[int, int, range, int]]:
    """Tell of each whole batch where it begins and ends, its offsets, and its codec."""
    at = 0
    while at + _RECORDS_AT <= len(data):
        first, length, _, version, _, attributes, last = _HEAD.unpack_from(data, at)
        end = at + _LENGTH_BEHIND + length
        if version != VERSION or length <= 0 or end > len(data):
            return
        yield at, end, range(first, first + last + 1), attributes & 0x07
        at = end


def _is_bounded(batch: bytes, codec: int) -> bool:
    packed = memoryview(batch)[_RECORDS_AT:]
    if codec == GZIP:
        fits = _gzip_fits(packed)
    elif codec in (SNAPPY, LZ4, ZSTD) and has_zstd():
        fits = len(packed) * SNAPPY_FACTOR_MAX <= UNPACKED_BYTES_MAX if codec == SNAPPY else _fits(packed, codec)
    else:
        fits = False
    return fits or not is_whole(batch)


def _gzip_fits(packed: memoryview) -> bool:
    left, rest = UNPACKED_BYTES_MAX, bytes(packed)
    try:
        while rest:
            member = zlib.decompressobj(GZIP_WINDOW)
            left -= len(member.decompress(rest, left + 1))
            if left < 0 or not member.eof:
                return False
            rest = member.unused_data
    except zlib.error:
        return False
    return len(packed) > 0


def _fits(packed: memoryview, codec: int) -> bool:
    import cramjam  # aiokafka's extra, which need not be there

    library: Any = cramjam.lz4 if codec == LZ4 else cramjam.zstd
    room = min(UNPACKED_BYTES_MAX, max(ROOM_BYTES_MIN, ROOM_FACTOR * len(packed)))
    while True:
        try:
            library.decompress_into(packed, bytearray(room))
        except Exception:  # of the library's own types, for too little room as for what is no such data
            if room == UNPACKED_BYTES_MAX:
                return False
            room = min(UNPACKED_BYTES_MAX, ROOM_FACTOR * room)
        else:
            return True
