"""Taking from the front of what was fetched ahead what turned out to be done by somebody else."""

from __future__ import annotations

import struct

from .chunk import Chunk

__all__ = ["trim"]

_BASE = struct.Struct(">q")
_MAGIC_AT = 16
_DELTA = struct.Struct(">i")
_DELTA_AT = 23


def trim(chunk: Chunk, offset: int) -> None:
    """Take from a chunk that nobody reads yet what lies below ``offset``; it is done where nothing is left.

    Cost: O(batches).
    """
    if offset <= chunk.start:
        return
    chunk.start = offset
    kept = [batch for batch in chunk.batches if _last_offset(chunk.data, batch[0]) >= offset]
    if kept:
        begin, stop, records, first, last = kept[0]
        # As in framing: exact where the batch is not compacted.
        kept[0] = (begin, stop, min(records, _last_offset(chunk.data, begin) + 1 - offset), first, last)
    chunk.batches = kept
    chunk.records = sum(batch[2] for batch in kept)
    chunk.done = not kept


def _last_offset(data: bytes, at: int) -> int:
    """Of the batch that begins there; the formats before v2 carry it as their own offset."""
    base: int = _BASE.unpack_from(data, at)[0]
    return base + int(_DELTA.unpack_from(data, at + _DELTA_AT)[0]) if data[at + _MAGIC_AT] >= 2 else base
