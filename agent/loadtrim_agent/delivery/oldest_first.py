"""The order of delivery while much waits: the partition whose next record is oldest, for some records at a time.

Round by round a turn has 64 records. At 6 ms each the others wait for 0.4 s, while what came to that one meanwhile is
done before them. Where little waits that does no harm, and nothing here is asked for.

Timestamps are producers', and no producer may keep the others from being delivered. So what is older than a limit, the
objective, counts as half so old. So does what is further ahead than that, or has no timestamp. What is late already
thus comes before what is young, and behind what is about to be late. Of streams that are equally old each has its turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from loadtrim_agent.common.clock import wall_time

from .partition_stream import Stream

__all__ = ["OldestFirst"]


class OldestFirst(msgspec.Struct, frozen=True):
    """The wish of the agent that the oldest head be next."""

    records: int
    """Records of one turn, >= 1."""
    seconds: float
    """The limit: what is older counts as half so old."""
    clock_offset_seconds: float = 0.0
    """This host's clock less the log's."""

    def of(self, streams: Iterable[Stream]) -> Stream | None:
        """Return the stream whose next record is oldest, of several the first; None: there are none.

        Runs in user code's thread. Cost: O(streams).
        """
        now = wall_time() - self.clock_offset_seconds
        begin, end = now - self.seconds, now + self.seconds
        found, oldest = None, math.inf
        for stream in streams:
            stamp = stream.head_stamp() / 1000
            if not begin <= stamp <= end:
                stamp = now - self.seconds / 2.0
            if stamp < oldest:
                found, oldest = stream, stamp
        return found
