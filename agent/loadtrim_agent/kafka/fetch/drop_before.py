"""Taking from the front of what was fetched ahead what turned out to be done by somebody else."""

from __future__ import annotations

from .chunk import Chunk, last_offset

__all__ = ["drop_before"]


def drop_before(chunk: Chunk, offset: int) -> None:
    """Take from a chunk that nobody reads yet what lies below ``offset``; it is done where nothing is left.

    Cost: O(batches).
    """
    if offset <= chunk.start:
        return
    chunk.start = offset
    kept = [batch for batch in chunk.batches if last_offset(chunk.data, batch[0]) >= offset]
    if kept:
        begin, stop, records, first, last = kept[0]
        # As in framing: exact where the batch is not compacted.
        kept[0] = (begin, stop, min(records, last_offset(chunk.data, begin) + 1 - offset), first, last)
    chunk.batches = kept
    chunk.records = sum(batch[2] for batch in kept)
    chunk.done = not kept
