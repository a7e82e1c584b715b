"""User code commits: its thread notes each call, the agent takes the notes."""

from __future__ import annotations

from collections import deque

__all__ = ["CommitCalls"]


class CommitCalls:
    """The calls of ``commit()`` for one stream that went beyond those before. What was not taken is bounded by what
    was handed out since: a call that says nothing new of these records is not kept.

    Args:
        by_hand: nothing else commits, so calls are kept until they are taken.
    """

    __slots__ = ("_calls", "by_hand", "highest", "moves", "sent")

    def __init__(self, *, by_hand: bool) -> None:
        self.by_hand = by_hand
        self._calls: deque[tuple[int, float]] = deque()
        self.highest = 0
        """User: the offset that it has said to be done; 0: nothing yet, or nothing since its position was moved."""
        self.sent = -1
        """User: the offset that it sent in a transaction last, or went back to; -1: neither yet."""
        self.moves = 0
        """User: so often the position was moved."""

    def called(self, offset: int, position: int, now: float) -> None:
        """User: an offset is to be committed.

        Args:
            offset: everything below it is done, says user code.
            position: the offset that is handed out next: of what lies above it user code can say nothing yet.
            now: boot clock.
        """
        offset = min(offset, position)
        if offset > self.highest:
            self.highest = offset
            if self.by_hand:
                self._calls.append((offset, now))

    def moved(self, offset: int) -> None:
        """User: the position was moved, by a seek or in a log that goes back: lower offsets say something new."""
        self.moves += 1
        self.highest = 0
        self.sent = offset

    def take(self) -> list[tuple[int, float]]:
        """Agent: return the calls since this was asked last: offset and time (boot clock), oldest first."""
        calls = self._calls
        return [calls.popleft() for _ in range(len(calls))]
