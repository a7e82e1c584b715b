"""A trimmed chunk is what a fetch from the later offset would have brought."""

from __future__ import annotations

from typing import Any

import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.chunk import Chunk, Reader, frame
from loadtrim_agent.kafka.fetch.drop_before import drop_before

from .batches import batch, control

AT = Partition("topic", 3)
PLAIN = batch(0, [(0, 10, b"a"), (1, 20, b"bb"), (2, 30, b"ccc")]) + batch(3, [(3, 40, b"d")])
ZIPPED = batch(0, [(n, 10 + n, b"v" * n) for n in range(7)], codec=1)
COMPACTED = batch(0, [(1, 10, b"a"), (5, 20, b"b")], last_offset=9) + batch(10, [(12, 30, b"c")], last_offset=14)
TRANSACTIONS = batch(0, [(0, 1, b"a"), (1, 2, b"b")], producer=7) + control(2, 7, b"\x00\x00\x00\x01")


def framed(data: bytes, start: int) -> Chunk:
    chunk = frame(AT, start, data, (), committed_only=False, check_crcs=True)
    assert chunk is not None
    return chunk


def offsets(chunk: Chunk) -> list[Any]:
    reader, found = Reader(chunk), []
    while not reader.finished:
        found += reader.read(64)
    return [(record.offset, record.value) for record in found]


@pytest.mark.parametrize("data", [PLAIN, ZIPPED, COMPACTED, TRANSACTIONS])
@pytest.mark.parametrize("start", [0, 1])
def test_as_if_fetched_from_there(data: bytes, start: int) -> None:
    for offset in range(framed(data, start).end + 1):
        trimmed, fetched = framed(data, start), framed(data, max(start, offset))
        drop_before(trimmed, offset)
        assert offsets(trimmed) == offsets(fetched)
        assert trimmed.end == framed(data, start).end
        assert trimmed.records == fetched.records
        assert trimmed.stamps() == fetched.stamps()
        assert trimmed.done == (not fetched.batches)
