"""The order in which streams have their turn: round by round, a slice each, new acquisitions first.

Streams with a bound come before all others, until it is reached. While the agent wants it, each turn is that of the
stream whose next record is oldest (:mod:`.oldest_first`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection

from loadtrim_agent.common.partition import Partition

from .bounds import Bounds
from .oldest_first import OldestFirst
from .partition_stream import SLICE_RECORDS, Stream

__all__ = ["TurnOrder"]


class TurnOrder:
    """Streams with something to deliver. There is no lock: see :mod:`.record_buffer`."""

    def __init__(self) -> None:
        self.present: dict[Partition, Stream] = {}
        """Agent: all streams, a new mapping at each change."""
        self.ordered: dict[Partition, Stream] = {}
        """User: the streams that the order was made of last."""
        self.on_change: Callable[[dict[Partition, Stream]], None] = _nothing
        """User: called when other streams are present, before records of them are handed out."""
        self.left_in_slice = SLICE_RECORDS
        """User: records of the present stream before the next one's turn."""
        self.bounds = Bounds()
        self.oldest_first: OldestFirst | None = None
        """Agent: the order of turns; None: round by round."""
        self._begins = True
        """User: the present stream has had nothing of its turn yet."""
        self._turn: deque[Stream] = deque()
        """User: streams with something to deliver, whether or not it may be, in the order of their turns."""
        self._fed: deque[Stream] = deque()
        """Agent appends, user takes: something was added to these. So nobody looks at those that are quiet."""
        self._leading: deque[Stream] = deque()
        """Agent appends, user takes: their turn is next."""

    # -- agent's thread ------------------------------------------------------------------------------------------

    def fed(self, stream: Stream) -> bool:
        """Add a stream to which something was added. Returns whether it leads from now on."""
        self._fed.append(stream)
        return self.lead(stream)

    def lead(self, stream: Stream) -> bool:
        """Let a stream lead whose first records of an acquisition may be delivered: its turn is next.

        Returns:
            Whether it does from now on.
        """
        if stream.led or not stream.running or not stream.chunks:
            return False
        stream.led = True
        self._leading.append(stream)
        return True

    def go_by_heads(self, wish: OldestFirst | None) -> bool:
        """Let turns go by the oldest head from now on; None: round by round.

        Returns:
            Whether that begins, so that the present turn is too long.
        """
        began = wish is not None and self.oldest_first is None
        self.oldest_first = wish
        return began

    # -- user's thread -------------------------------------------------------------------------------------------

    def order(self) -> deque[Stream]:
        """Return the order, with what was fed meanwhile at its end; what leads is put first by those that ask."""
        fed = [self._fed.popleft() for _ in range(len(self._fed))]
        streams = self.present  # after that: a stream that was fed was put before
        if streams is not self.ordered:
            self._turn = deque(s for s in self._turn if streams.get(s.partition) is s)
            self.ordered = streams
            self.left_in_slice = SLICE_RECORDS
            self.on_change(streams)
        for stream in fed:
            if not stream.queued and streams.get(stream.partition) is stream:
                stream.queued = True
                self._turn.append(stream)
        return self._turn

    def current(self, wanted: Collection[Partition]) -> Stream | None:
        """Return the stream whose turn it is and that may deliver; None: there is none.

        Args:
            wanted: of these partitions; empty: of all.
        """
        self.order()
        wish = self.oldest_first
        if wish is not None:
            self._let_oldest_be_next(wish, wanted)
        elif self.left_in_slice <= 0:
            self.next()
        if self._leading:
            self._leading_first()
        if self.bounds.until:
            self._bounded_first(wanted)
        if wish is not None:
            self.left_in_slice = min(self.left_in_slice, wish.records)
        for _ in range(len(self._turn)):
            if not self._turn:
                return None
            stream = self._turn[0]
            # As may_deliver() says, without the call.
            eligible = stream.running and not stream.paused and (not wanted or stream.partition in wanted)
            if eligible and stream.has_more() and not (self.bounds.until and self.bounds.reached(stream)):
                self._begins = False
                return stream
            self.next()
        return None

    def may_deliver(self, stream: Stream, wanted: Collection[Partition]) -> bool:
        """Return whether records of a stream may be delivered, if there are any.

        Args:
            stream: any.
            wanted: of these partitions; empty: of all.
        """
        eligible = stream.running and not stream.paused and (not wanted or stream.partition in wanted)
        return eligible and not (self.bounds.until and self.bounds.reached(stream))

    @property
    def unpacked_at_a_time(self) -> int:
        """Return how many records are unpacked for a turn: where heads decide, more than it has, to know the next."""
        return self.left_in_slice if self.oldest_first is None else SLICE_RECORDS

    def _bounded_first(self, wanted: Collection[Partition]) -> None:
        """Let the first stream that has a bound, and something below it, have its turn."""
        for stream in self.bounds.streams():
            able = stream.queued and self.may_deliver(stream, wanted) and not stream.seeking
            if not (able and stream.has_more()):
                continue
            if self._turn[0] is not stream and stream in self._turn:
                self._turn.remove(stream)
                self._turn.appendleft(stream)
                self.left_in_slice = SLICE_RECORDS
            return

    def _let_oldest_be_next(self, wish: OldestFirst, wanted: Collection[Partition]) -> None:
        """Let the stream with the oldest head have its turn, where one begins."""
        present = self._turn[0] if self._turn else None
        goes_on = present is not None and present.has_more() and self.may_deliver(present, wanted)
        if goes_on and self.left_in_slice > 0 and not self._begins:
            return
        if not self._begins:
            self._rotate()
        # While user code seeks, a stream may have chunks and nothing to deliver.
        able = [s for s in self._turn if self.may_deliver(s, wanted) and not s.seeking and s.has_more()]
        oldest = wish.of(able)
        if oldest is not None and oldest is not self._turn[0]:
            self._turn.remove(oldest)
            self._turn.appendleft(oldest)
        self.left_in_slice = wish.records

    def next(self) -> None:
        """End the present stream's turn."""
        self._rotate()
        self._leading_first()

    def _rotate(self) -> None:
        if self._turn:
            stream = self._turn.popleft()
            stream.let_go()
            stream.queued = stream.has_more()  # what is fed after this look is in _fed
            if stream.queued:
                self._turn.append(stream)
        self.left_in_slice = SLICE_RECORDS
        self._begins = True

    def _leading_first(self) -> None:
        """Let streams that lead have their turn, each with a slice of its own."""
        while self._leading:
            stream = self._leading.popleft()
            turn = self.order()
            waits = stream.done is None and stream.in_hand is None  # its turn may have come meanwhile
            if waits and stream in turn:
                turn.remove(stream)
                turn.appendleft(stream)
                self.left_in_slice = SLICE_RECORDS


def _nothing(streams: dict[Partition, Stream]) -> None:
    pass
