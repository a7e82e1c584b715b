"""What is unpacked of a batch is bounded, and what cannot be unpacked is told apart."""

from __future__ import annotations

import struct
import zlib
from random import Random
from typing import Any

import aiokafka.codec
import pytest
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c

from loadtrim_agent.kafka import batches
from loadtrim_agent.kafka.batches import GZIP, LZ4, SNAPPY, ZSTD, Batches, split
from loadtrim_agent.kafka.connections import Channel
from loadtrim_agent.kafka.partition_log import PartitionLog

NONE = 0
CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
LARGE = 33 << 20


def batch(codec: int, *sizes: int, first: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, 0, 1 << 30)
    for number, size in enumerate(sizes):
        assert builder.append(number, None, None, b"x" * size, []) is not None
    return struct.pack(">q", first) + bytes(builder.build())[8:]


def with_records(made: bytes, records: bytes) -> bytes:
    """The same batch with other bytes in place of its packed records, and the checksum of these."""
    body = made[21:61] + records
    return made[:8] + struct.pack(">i", 9 + len(body)) + made[12:17] + struct.pack(">I", calc_crc32c(body)) + body


@pytest.mark.parametrize("codec", [NONE, *CODECS])
def test_what_members_write_is_not_divided(codec: int) -> None:
    data = batch(codec, 10, 900_000) + batch(codec, 70_000, first=2) + batch(codec, 5, first=3)[:-3]
    assert split(data) == [Batches(data)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.slow
def test_a_batch_that_unpacks_to_more_is_told_apart(codec: int) -> None:
    before, bomb, behind = batch(NONE, 1), batch(codec, 7, LARGE, first=1), batch(codec, 5, first=3)
    assert split(before + bomb + behind) == [Batches(before), Batches(bomb, range(1, 3)), Batches(behind)]
    assert split(bomb) == [Batches(bomb, range(1, 3))]


def test_a_bomb_behind_a_second_head_of_gzip() -> None:
    """Readers of gzip go on behind the end of a member."""
    packer = zlib.compressobj(wbits=batches.GZIP_WINDOW)
    harmless = zlib.compress(b"x", wbits=batches.GZIP_WINDOW)
    bomb = with_records(batch(GZIP, 5), harmless + packer.compress(bytes(LARGE)) + packer.flush())
    assert split(bomb)[0].unreadable == range(1)


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
@pytest.mark.parametrize("junk", [b"", b"\x00" * 40, b"\x1f\x8b\x08" + b"\x00" * 30])
def test_what_is_not_packed_at_all(codec: int, junk: bytes) -> None:
    made = with_records(batch(codec, 5), junk)
    assert [each.unreadable for each in split(made)] == [range(1)]


@pytest.mark.parametrize("codec", [SNAPPY, LZ4, ZSTD])
def test_a_codec_without_its_library(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was fetched again and again, until retention had removed it."""
    made = batch(codec, 5)
    monkeypatch.setattr(aiokafka.codec, "cramjam", None)
    assert split(made) == [Batches(made, range(1))]


def test_a_wrong_checksum_is_for_the_reader_to_raise() -> None:
    """The network may have changed any byte: the batch is fetched again."""
    made = bytearray(batch(GZIP, 5))
    made[-1] ^= 0xFF
    assert split(bytes(made)) == [Batches(bytes(made))]


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_whatever_a_batch_holds_is_read_or_passed_over(codec: int) -> None:
    """With its checksum right, so that fetching it again would change nothing."""
    rng = Random(codec)
    nothing: Any = None
    log = PartitionLog(nothing, "t", 0, read=Channel.TAIL, append=Channel.APPEND)
    passed_over = 0
    for _ in range(1_000):
        made, behind = batch(codec, 5, 300), batch(NONE, 1, first=2)
        records = bytearray(made[61:])
        for _ in range(rng.choice((1, 2, 8))):
            records[rng.randrange(len(records))] = rng.randrange(256)
        _, following, unreadable = log._unpacked(with_records(made, bytes(records)) + behind, 0)
        assert following == 3
        passed_over += len(unreadable)
    assert 100 < passed_over < 1_000


def test_a_batch_that_was_changed_on_its_way_is_fetched_again() -> None:
    nothing: Any = None
    log = PartitionLog(nothing, "t", 0, read=Channel.TAIL, append=Channel.APPEND)
    made = bytearray(batch(NONE, 5))
    made[70] ^= 0xFF
    with pytest.raises(CorruptRecordException):
        log._unpacked(bytes(made), 0)


def test_formats_of_the_time_before_batches_are_left_to_the_reader() -> None:
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 20)
    assert builder.append(0, timestamp=1, key=None, value=b"x" * 100) is not None
    made = bytes(builder.build())
    assert split(made) == [Batches(made)]
    assert MemoryRecords(made).has_next()
