"""Sliding windows over the arrivals of one partition: how much comes within 0.1 s, within 1 s, within 5 s.

What has to be waited for is what came together with a record, so windows are *counted by records*: one window per
record, ending with the grid slot (0.05 s by default) of that record. With 200 records in the first milliseconds of
every second each of them sees 200 records in its window of 0.1 s, where the mean over time would be 20.

Theory of operation: the counts of closed grid slots come in as lists. A window's content is the difference of two
prefix sums, taken for all new slots in one sweep of C code, and slots without a record weigh nothing. The statistics
are kept in blocks of 10 s of observed time; the present block and the three before it are what is told, so the memory
is 30 to 40 s and no single window has to be remembered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import accumulate, compress
from operator import mul, sub
from typing import NamedTuple

import msgspec

__all__ = ["BLOCKS_KEPT", "BLOCK_SECONDS", "EDGE", "BucketGrid", "Moments", "SlidingWindows"]

BLOCK_SECONDS = 10.0
BLOCKS_KEPT = 3
"""Finished blocks that are kept besides the one being filled."""
EDGE = 1e-3
"""Part of a grid slot: time stamps are whole milliseconds and must not fall below an edge that floats cannot hold."""
_PREFIX_MAX = 1e9
"""Prefix sums start again from 0 above this, long before floats lose records."""
_PARTS_MAX = 20
_FEW = 4
"""Where at most one slot of so many has a record, only those are looked at."""


class BucketGrid(msgspec.Struct, frozen=True):
    """Wall-clock time cut into slots, and each of them into grid slots fine enough for every window length.

    Slot and grid slot 0 begin at the epoch, so those of all members are aligned.
    """

    slot_seconds: float
    parts: int
    """Grid slots per slot."""
    lengths: tuple[int, ...]
    """Window lengths in grid slots."""
    inverse: float
    """Grid slots per second."""

    @classmethod
    def of(cls, slot_seconds: float, windows_seconds: Sequence[float]) -> BucketGrid:
        """The coarsest grid in which the slot and every window are whole numbers.

        Raises:
            ValueError: a length is not positive, or no grid of at most 20 parts per slot fits.
        """
        if slot_seconds <= 0 or any(seconds <= 0 for seconds in windows_seconds):
            raise ValueError(f"slot of {slot_seconds} s, windows of {windows_seconds} s: all must be above 0")
        for parts in range(1, _PARTS_MAX + 1):
            inverse = parts / slot_seconds
            lengths = tuple(round(seconds * inverse) for seconds in windows_seconds)
            if all(abs(n - s * inverse) < 1e-6 and n > 0 for n, s in zip(lengths, windows_seconds, strict=True)):
                return cls(slot_seconds, parts, lengths, inverse)
        raise ValueError(f"windows of {windows_seconds} s do not fit a slot of {slot_seconds} s")

    def index(self, at: float) -> int:
        """The grid slot that a time (seconds since the epoch) lies in."""
        return int(at * self.inverse + EDGE)

    def start(self, index: int) -> float:
        """When a grid slot begins."""
        return index / self.inverse

    def aligned(self, index: int) -> int:
        """The last beginning of a whole slot at or before a grid slot."""
        return index - index % self.parts


class Moments(NamedTuple):
    """Records per window, over windows that end at a record."""

    mean: float
    variance: float
    largest: float


class _Tally:
    """Sums over the windows of one length in one block."""

    __slots__ = ("largest", "squares", "total", "weight")

    def __init__(self) -> None:
        self.weight = 0.0
        self.total = 0.0
        self.squares = 0.0
        self.largest = 0.0


class SlidingWindows:
    """Statistics of one partition's arrivals. About 20 us per second of busy slots, less when few have records."""

    __slots__ = ("_before", "_block_slots", "_blocks", "_filled", "_finished", "_lengths", "_prefix", "_reach")

    def __init__(self, grid: BucketGrid, reach_seconds: float, rate_before: float | None = None) -> None:
        """``reach_seconds``: how far back :meth:`recent` looks at most. ``rate_before``: records/s until now; None:
        not known.
        """
        self._before = None if rate_before is None else rate_before / grid.inverse
        self._lengths = grid.lengths
        self._reach = max(*grid.lengths, round(reach_seconds * grid.inverse), 1)
        self._block_slots = max(1, round(BLOCK_SECONDS * grid.inverse))
        self._blocks: deque[list[_Tally]] = deque(maxlen=BLOCKS_KEPT + 1)
        self._blocks.append([_Tally() for _ in self._lengths])
        self._finished: list[_Sums] | None = None
        """Over the finished blocks that are kept; None: a block has ended since somebody asked. That happens to all
        partitions at once, and most of them are not asked then."""
        self._filled = 0
        self._prefix = [0.0]
        """Prefix sums of the last counts, at most ``reach`` + 1 of them."""

    def extend(self, counts: Sequence[float]) -> None:
        """Append the counts of the grid slots that were closed next, each >= 0."""
        while counts:
            room = self._block_slots - self._filled
            part, counts = counts[:room], counts[room:]
            if any(part):
                self._tally(part)
                del self._prefix[: -self._reach - 1]
            else:
                self._nothing(len(part))
            self._advance(len(part))

    def _nothing(self, slots: int) -> None:
        """Slots without a record: no window ends at one."""
        prefix = self._prefix
        if len(prefix) > self._reach and prefix[0] == prefix[-1]:
            return  # nothing in reach before either
        prefix.extend([prefix[-1]] * slots)
        del prefix[: -self._reach - 1]

    def _advance(self, slots: int) -> None:
        self._filled += slots
        if self._filled >= self._block_slots:
            self._filled = 0
            self._blocks.append([_Tally() for _ in self._lengths])
            self._finished = None

    def _tally(self, counts: Sequence[float]) -> None:
        prefix = self._prefix
        if prefix[-1] > _PREFIX_MAX:
            base = prefix[0]
            prefix[:] = [value - base for value in prefix]
        first_end = len(prefix)
        prefix.extend(list(accumulate(counts, initial=prefix[-1]))[1:])
        ends = [number for number, count in enumerate(counts) if count]
        if len(ends) * _FEW <= len(counts):
            self._tally_few(counts, first_end, ends)
            return
        for length, tally in zip(self._lengths, self._blocks[-1], strict=True):
            start = max(first_end, length)
            skipped = start - first_end
            if skipped >= len(counts):
                continue
            weights = counts[skipped:] if skipped else counts
            contents = list(map(sub, prefix[start:], prefix[start - length : len(prefix) - length]))
            weighted = list(map(mul, contents, weights))
            tally.weight += sum(weights)
            tally.total += sum(weighted)
            tally.squares += sum(map(mul, weighted, contents))
            # As in `_tally_few`: before a window is full, one may end behind a record where none ends at it.
            tally.largest = max(tally.largest, max(compress(contents, weights), default=0.0))

    def _tally_few(self, counts: Sequence[float], first_end: int, ends: Sequence[int]) -> None:
        """The same where only some slots have records: a window holds no more where it ends behind its last one."""
        prefix = self._prefix
        for length, tally in zip(self._lengths, self._blocks[-1], strict=True):
            for number in ends:
                end = first_end + number
                if end >= length:
                    content, weight = prefix[end] - prefix[end - length], counts[number]
                    tally.weight += weight
                    tally.total += content * weight
                    tally.squares += content * weight * content
                    if content > tally.largest:
                        tally.largest = content

    def restart(self) -> None:
        """Windows do not reach over this moment: the time before it was not observed. What is known stays."""
        self._prefix = [0.0]
        self._before = None

    def recent(self, slots: int) -> tuple[float, int]:
        """Records in the last grid slots, and how many of the wanted slots were observed.

        What is known of the rate before counts as observed.
        """
        observed = min(slots, len(self._prefix) - 1)
        records = max(0.0, self._prefix[-1] - self._prefix[-1 - observed])
        return (records, observed) if self._before is None else (records + self._before * (slots - observed), slots)

    def moments(self) -> tuple[Moments | None, ...]:
        """Per window length; None where no window of that length has ended at a record yet."""
        if self._finished is None:
            finished = list(self._blocks)[:-1]
            self._finished = [_summed([block[which] for block in finished]) for which in range(len(self._lengths))]
        return tuple(map(_moments, self._finished, self._blocks[-1]))


_Sums = tuple[float, float, float, float]


def _summed(tallies: Sequence[_Tally]) -> _Sums:
    return (
        sum(tally.weight for tally in tallies),
        sum(tally.total for tally in tallies),
        sum(tally.squares for tally in tallies),
        max((tally.largest for tally in tallies), default=0.0),
    )


def _moments(finished: _Sums, tally: _Tally) -> Moments | None:
    weight, total, squares, largest = finished
    weight += tally.weight
    if weight <= 0.0:
        return None
    mean = (total + tally.total) / weight
    variance = (squares + tally.squares) / weight - mean * mean
    return Moments(mean, variance if variance > 0.0 else 0.0, largest if largest > tally.largest else tally.largest)
