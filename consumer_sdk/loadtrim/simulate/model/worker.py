"""Records that wait, and a member that works on them: exact to the record, without an event per record.

Theory of operation. Between two events of the group (a report, a decision, a handoff) nothing that one member does
touches another. So a member is not advanced record by record on the group's agenda, but in one go up to the next moment
at which somebody looks: *lazily*. Its own order is that of real members that slice, while much waits: the oldest head
of the partitions that it owns first, one record of a partition at a time, as many partitions at once as it has
concurrency. Time stamps may lie in the future of a queue (a second's arrivals are put in when the second begins): a
record is seen a fetch after its stamp, not before.

A record that is in hand when somebody looks counts as waiting, and is settled when the member is advanced over its end.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from loadtrim_agent.common.partition import Partition

from .work import FETCH_SECONDS

__all__ = ["Finished", "Queue", "Worker"]

COMPACT_RECORDS = 4096
"""Stamps of records that are done are dropped in portions of this size."""
INFINITY = float("inf")

Draw = Callable[[], float]
"""Busy seconds of the next record on the reference member."""


@dataclass(slots=True)
class Queue:
    """One partition: the stamps of what is not done, and of what comes in the second that has begun."""

    partition: Partition
    index: int
    """The place of its partition among all, sorted."""
    stamps: list[float] = field(default_factory=list)
    head: int = 0
    """Of ``stamps``: the first that is not done."""
    base: int = 0
    """Offset of ``stamps[0]``."""
    stopped: bool = False
    """Nobody is handed its records: it is on its way."""

    @property
    def position(self) -> int:
        """Offset of the first record that is not done."""
        return self.base + self.head

    @property
    def known(self) -> int:
        """Offset after the last record that was put in, be it one that comes later in the second."""
        return self.base + len(self.stamps)

    def end(self, at: float) -> int:
        """Offset after the last record that has arrived until ``at``."""
        return self.base + bisect_right(self.stamps, at, self.head)

    def lag(self, at: float) -> int:
        """Records that have arrived and are not done."""
        return bisect_right(self.stamps, at, self.head) - self.head

    def between(self, begin: int, end: int) -> list[float]:
        """Stamps of the offsets ``begin`` .. ``end``, the last one excluded; done ones may be gone already."""
        return self.stamps[max(0, begin - self.base) : end - self.base]

    def compact(self, keep_from: int) -> None:
        """Forget what is done and before the offset ``keep_from``."""
        spare = min(self.head, keep_from - self.base)
        if spare >= COMPACT_RECORDS:
            del self.stamps[:spare]
            self.head -= spare
            self.base += spare


@dataclass(slots=True)
class Finished:
    """Records of one partition that were done since this was asked last, in order."""

    latencies: list[float] = field(default_factory=list)
    busies: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Hand:
    queue: Queue
    finish: float
    busy: float


class Worker:
    """One member at work.

    Args:
        at: since when.
        draw: what the next record costs on the reference member.
        speed: so many times as fast as that.
        concurrency: partitions worked on at once.
        fetch_seconds: from a record's time stamp until the member has it.
    """

    def __init__(
        self, at: float, draw: Draw, speed: float = 1.0, concurrency: int = 1, fetch_seconds: float = FETCH_SECONDS
    ) -> None:
        self.now = at
        """Everything that began before this is known."""
        self.owned: dict[int, Queue] = {}
        self.finished: dict[int, Finished] = {}
        """By index of the partition; whoever reads it takes it away."""
        self.first: Queue | None = None
        """Comes before all others, however young its head is."""
        self._draw = draw
        self._speed = speed
        self._concurrency = concurrency
        self._fetch_seconds = fetch_seconds
        self._hands: list[_Hand] = []
        self._free_at = at

    def hand_until(self, queue: Queue) -> float | None:
        """Return when the record of this partition that is in hand will be done; None: none is."""
        for hand in self._hands:
            if hand.queue is queue:
                return hand.finish
        return None

    def advance(self, until: float) -> None:
        """Work until then. What is begun before ``until`` is begun."""
        if until <= self.now:
            return
        if self._concurrency == 1:
            self._alone(until)
        else:
            self._several(until)
        self.now = until

    def _settle(self, hand: _Hand) -> None:
        queue = hand.queue
        self._tell(queue).latencies.append(hand.finish - queue.stamps[queue.head])
        self._tell(queue).busies.append(hand.busy)
        queue.head += 1

    def _tell(self, queue: Queue) -> Finished:
        told = self.finished.get(queue.index)
        if told is None:
            told = self.finished[queue.index] = Finished()
        return told

    def _heads(self) -> list[tuple[float, int]]:
        """(stamp, index) of every owned partition's first record that is not in hand, as a heap."""
        in_hand = {hand.queue.index for hand in self._hands}
        heads = []
        for queue in self.owned.values():
            if not queue.stopped and queue.index not in in_hand and queue.head < len(queue.stamps):
                stamp = queue.stamps[queue.head]
                heads.append((stamp, queue.index))
        heapq.heapify(heads)
        return heads

    def _alone(self, until: float) -> None:
        """One record at a time: runs of one partition up to where another one's head is older."""
        free = self._free_at
        if self._hands:
            hand = self._hands[0]
            if hand.finish > until:
                return
            self._settle(hand)
            self._hands.clear()
        free = max(free, self.now)
        if self.first is not None:
            free = self._run(self.first, free, until, INFINITY, at_once=True)
        heads = self._heads()
        while heads and free < until and not self._hands:
            stamp, index = heapq.heappop(heads)
            if stamp + self._fetch_seconds >= until:
                break
            queue = self.owned[index]
            free = self._run(queue, free, until, heads[0][0] if heads else INFINITY)
            if queue.head < len(queue.stamps) and not self._hands:
                heapq.heappush(heads, (queue.stamps[queue.head], index))
        self._free_at = free

    def _run(self, queue: Queue, free: float, until: float, limit: float, at_once: bool = False) -> float:
        """Records of one partition as long as none of another is older.

        Args:
            queue: whose.
            free: when the member is free.
            until: nothing begins then or later.
            limit: stamp of the next partition's head.
            at_once: only what need not be waited for.

        Returns:
            When the member is free again.
        """
        if queue.stopped or queue.index not in self.owned:
            return free
        stamps, head, size = queue.stamps, queue.head, len(queue.stamps)
        told = self._tell(queue)
        latency, busy = told.latencies.append, told.busies.append
        draw, speed, fetch = self._draw, self._speed, self._fetch_seconds
        # The head itself was chosen; at equal stamps a run goes on, as records are handed out in portions.
        while head < size and free < until:
            stamp = stamps[head]
            if stamp > limit:
                break
            seen = stamp + fetch
            if seen > free:
                if at_once or seen >= until:
                    break
                free = seen
            cost = draw() / speed
            free += cost
            if free > until:
                self._hands.append(_Hand(queue, free, cost))
                break
            latency(free - stamp)
            busy(cost)
            head += 1
        queue.head = head
        return free

    def _several(self, until: float) -> None:
        """Several partitions at once: from one end of a record to the next."""
        now = self.now
        while True:
            if len(self._hands) < self._concurrency:
                heads = self._heads()
                if heads:
                    stamp, index = self._preferred(heads, now)
                    begin = max(now, stamp + self._fetch_seconds)
                    next_end = min((hand.finish for hand in self._hands), default=INFINITY)
                    if begin < until and begin <= next_end:
                        queue = self.owned[index]
                        cost = self._draw() / self._speed
                        self._hands.append(_Hand(queue, begin + cost, cost))
                        now = begin
                        continue
            ended = min(self._hands, key=lambda hand: (hand.finish, hand.queue.index), default=None)
            if ended is None or ended.finish > until:
                return
            self._hands.remove(ended)
            self._settle(ended)
            now = max(now, ended.finish)

    def _preferred(self, heads: list[tuple[float, int]], now: float) -> tuple[float, int]:
        """The oldest head, unless a partition comes first and has something that need not be waited for."""
        if self.first is not None:
            for stamp, index in heads:
                if index == self.first.index and stamp + self._fetch_seconds <= now:
                    return stamp, index
        return heads[0]
