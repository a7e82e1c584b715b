"""Framing and reading, against aiokafka's own reader of the same bytes."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.errors import CorruptRecordException, UnsupportedCodecError
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.chunk import Chunk, Reader, frame

from .batches import ABORT, COMMIT, batch, control

AT = Partition("topic", 3)
CHECKSUM_AT, HEADER_BYTES = 17, 61


def framed(data: bytes, start: int = 0, aborted: Any = (), *, committed: bool = False) -> Chunk:
    chunk = frame(AT, start, data, aborted, committed_only=committed, check_crcs=True)
    assert chunk is not None
    return chunk


def read_all(chunk: Chunk, at_once: int = 2) -> list[Any]:
    reader, found = Reader(chunk), []
    while not reader.finished:
        found += reader.read(at_once)
    return found


def as_aiokafka(data: bytes, start: int, aborted: Any, committed: bool) -> tuple[list[Any], int]:
    records = PartitionRecords(
        TopicPartition(*AT), MemoryRecords(data), list(aborted), start, None, None, True, int(committed)
    )
    return list(records), records.next_fetch_offset


PLAIN = batch(0, [(0, 10, b"a"), (1, 20, b"bb"), (2, 30, b"ccc")]) + batch(3, [(3, 40, b"d")])
ZIPPED = batch(0, [(n, 10 + n, b"v" * n) for n in range(7)], codec=1)
COMPACTED = batch(0, [(1, 10, b"a"), (5, 20, b"b")], last_offset=9) + batch(10, [(12, 30, b"c")], last_offset=14)
FROM_THREE = (
    batch(3, [(3, 3, b"of 7 again")], producer=7)
    + control(4, 8, COMMIT)
    + control(5, 7, COMMIT)
    + batch(6, [(6, 4, b"of nobody")])
)
MIXED = (
    batch(0, [(0, 1, b"of 7")], producer=7)
    + batch(1, [(1, 2, b"of 8")], producer=8)
    + control(2, 7, ABORT)
    + FROM_THREE
)


@pytest.mark.parametrize("at_once", [1, 2, 64])
@pytest.mark.parametrize(
    ("data", "start", "aborted", "committed"),
    [
        (PLAIN, 0, (), False),
        (PLAIN, 1, (), False),
        (PLAIN, 2, (), True),
        (PLAIN, 3, (), False),
        (PLAIN + PLAIN[:40], 0, (), False),
        (ZIPPED, 0, (), False),
        (ZIPPED, 4, (), False),
        (COMPACTED, 0, (), False),
        (COMPACTED, 2, (), False),
        (COMPACTED, 6, (), False),
        (MIXED, 0, [(7, 0)], False),
        (MIXED, 0, [(7, 0)], True),
        (FROM_THREE, 3, [], True),
        (MIXED, 1, [(7, 0)], True),
    ],
)
def test_reads_what_aiokafka_reads(data: bytes, start: int, aborted: Any, committed: bool, at_once: int) -> None:
    chunk = framed(data, start, aborted, committed=committed)
    records, following = as_aiokafka(data, start, aborted, committed)
    assert read_all(chunk, at_once) == records
    assert chunk.end == following
    assert chunk.records >= len(records)


def test_only_markers_move_the_position() -> None:
    chunk = framed(control(4, 1, COMMIT), 4)
    assert (chunk.batches, chunk.end) == ([], 5)
    assert Reader(chunk).finished


def test_nothing_complete_is_none() -> None:
    assert frame(AT, 0, PLAIN[:30], (), committed_only=False, check_crcs=True) is None


def test_a_wrong_checksum_is_raised_after_what_came_before_it() -> None:
    spoilt = bytearray(PLAIN)
    spoilt[-1] ^= 1
    reader = Reader(framed(bytes(spoilt)))
    assert [record.value for record in reader.read(10)] == [b"a", b"bb", b"ccc"]
    assert not reader.finished
    with pytest.raises(CorruptRecordException):
        reader.read(10)
    unchecked = frame(AT, 0, bytes(spoilt), (), committed_only=False, check_crcs=False)
    assert unchecked is not None
    assert len(Reader(unchecked).read(10)) == 4


@pytest.mark.parametrize("spoilt", range(1, 4), ids=["aborted", "a marker", "to be read"])
def test_what_is_left_out_is_checked_as_well(spoilt: int) -> None:
    """A spoilt header made records look aborted, or like a marker. They were passed over, and aborted ones given."""
    aborted = [(7, 0)]
    batches = [
        batch(0, [(0, 1, b"before")]),
        batch(1, [(1, 2, b"aborted")], producer=7),
        control(2, 7, ABORT),
        batch(3, [(3, 3, b"behind")], producer=7),
        control(4, 7, COMMIT),
    ]
    assert [record.offset for record in read_all(framed(b"".join(batches), 0, aborted, committed=True))] == [0, 3]
    for at in range(CHECKSUM_AT, HEADER_BYTES):
        for bit in range(8):
            data = bytearray(batches[spoilt])
            data[at] ^= 1 << bit
            chunk = framed(b"".join([*batches[:spoilt], data, *batches[spoilt + 1 :]]), 0, aborted, committed=True)
            assert Reader(chunk).read(1)[0].offset == 0, "what came before it is first"
            with pytest.raises(CorruptRecordException):
                read_all(framed(b"".join([data, *batches[spoilt + 1 :]]), spoilt, aborted, committed=True))
            with contextlib.suppress(CorruptRecordException):
                read_all(chunk)
                assert chunk.end == spoilt, "it is fetched again from there"


def test_a_marker_that_cannot_be_read_is_corrupt() -> None:
    """It is not checked, and ended all fetching."""
    data = bytearray(batch(0, [(0, 1, b"a")], producer=7))
    data[22] |= 0x20
    with pytest.raises(CorruptRecordException, match="end of a transaction"):
        frame(AT, 0, bytes(data), [(7, 0)], committed_only=True, check_crcs=False)


def test_a_batch_of_no_length_is_corrupt() -> None:
    with pytest.raises(CorruptRecordException):
        framed(b"\x00" * 8 + b"\x00\x00\x00\x05" + b"\x00" * 20)


def test_an_unknown_codec_is_what_aiokafka_says_it_is() -> None:
    unknown = bytearray(batch(0, [(0, 1, b"a")]))
    unknown[22] |= 5
    chunk = frame(AT, 0, bytes(unknown), (), committed_only=False, check_crcs=False)
    assert chunk is not None
    with pytest.raises(UnsupportedCodecError):
        Reader(chunk).read(1)


def test_stamps_are_exact_at_both_ends_and_stand_for_all() -> None:
    stamps, counts = framed(batch(0, [(n, 1_000 + 10 * n, b"") for n in range(101)])).stamps()
    assert (stamps[0], stamps[-1]) == (1.0, 2.0)
    assert stamps == sorted(stamps)
    assert sum(counts) == 101
    assert framed(PLAIN, 2).stamps() == ([0.03, 0.04], [1, 1])
    assert framed(batch(0, [(n, 5_000, b"") for n in range(9)])).stamps() == ([5.0], [9])
