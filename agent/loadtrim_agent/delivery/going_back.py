"""A log that goes back: the next records have lower offsets than those before, and no seek has said so.

Theory of operation. A topic was deleted and made anew, or an election has cut its log. The offset that is fetched next
is out of range then, and ``auto_offset_reset`` goes on at a lower one. What was fetched before is still handed out. The
first records of the new log are handed out as after a seek: nothing that was done says anything of them. They begin a
call of user code, so that one batch is of one log.
From the reset on nothing above its offset is committed (:mod:`.positions`). An owner that begins at an offset of the
old log would pass over all below it, once the new log has grown so long.
"""

from __future__ import annotations

from .partition_stream import Stream
from .telling import Telling

__all__ = ["go_back"]


def go_back(stream: Stream, telling: Telling) -> bool:
    """Let a stream go on where its log has gone back to. User's thread; nothing of a stretch is in hand.

    What is not done below that offset stays so: where the log was cut, its records are still there.

    Args:
        stream: that had nothing more to hand out before.
        telling: what user code says itself of the records.

    Returns:
        False: its log has not gone back.
    """
    if stream.seeking or not stream.chunks or stream.chunks[0].start >= stream.position:
        return False
    start = stream.chunks[0].start
    stream.commits.moved(start)
    stream.position = start
    stream.done = start if stream.done is None else min(stream.done, start)
    if stream.pending is not None:
        stream.pending.forget_from(start)
        telling.settle(stream)
    return True
