"""User code's thread notes when records were handed out and done; the agent takes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from .pending import Pending

__all__ = ["Finished", "Stretches"]


STRETCHES_MAX = 16_384
"""Stretches that wait to be taken; the oldest are left out beyond. Chosen: ten times what is handed out, one record a
call, between two looks of a tenth of a second. Where measuring is off for good, memory would grow without a bound."""


class Finished(NamedTuple):
    """Records that are done, oldest first."""

    stamps: Sequence[int]
    """Their timestamps, ms; -1: none."""
    times: list[float]
    """Boot clock. When the first was handed out, then when each was done, which is when the next was handed out; of a
    batch: when it was handed out and when it was done."""
    at_once: bool
    """They were one batch of ``getmany``, or a part of one."""
    records: int = 0
    """Of the whole batch, which may be of several partitions. 0: these are all."""
    limit: int = 0
    """Most records that the batch could have."""
    offsets: Sequence[int] = ()
    """Offsets of the records; empty where they were handed out one by one and no commits of user code are noted."""


class _Stretch:
    """Records handed out one after the other without a break, or one batch."""

    __slots__ = ("at_once", "batch", "first", "offsets", "stamps", "taken", "times")

    def __init__(self, now: float, stamps: Sequence[int], offsets: Sequence[int], first: int, *, at_once: bool) -> None:
        self.stamps = stamps
        """Of all that was unpacked together."""
        self.offsets = offsets
        """Likewise; empty where nobody asks for them."""
        self.first = first
        """Which of these is the first record's."""
        self.times = [now]
        """User appends; see :class:`Finished`."""
        self.at_once = at_once
        self.batch = (len(stamps), len(stamps))
        """Records of the whole batch, and the most that there could be."""
        self.taken = 0
        """Agent: so many ends were taken."""


class Stretches:
    """The stretches of one stream. User code's thread appends, the agent takes; only the last one still grows."""

    __slots__ = ("_offsets", "_stretches", "open", "stamps")

    def __init__(self) -> None:
        self._stretches: deque[_Stretch] = deque(maxlen=STRETCHES_MAX)
        self.stamps: Sequence[int] = ()
        """User: timestamps of what is unpacked."""
        self._offsets: Sequence[int] = ()
        self.open = False
        """User: something of the last one is in hand, and the next call makes it done."""

    def unpacked(self, stamps: Sequence[int], offsets: Sequence[int]) -> None:
        """Note what was unpacked and is to be handed out; no offsets where nobody asks for them."""
        self.stamps, self._offsets = stamps, offsets

    def let_go(self) -> None:
        """Everything that was unpacked is handed out."""
        self.stamps = self._offsets = ()

    def begin(self, now: float, first: int) -> list[float]:
        """Begin a stretch with a record of what is unpacked. Returns the list that the ends are noted in."""
        self.open = True
        stretch = _Stretch(now, self.stamps, self._offsets, first, at_once=False)
        self._stretches.append(stretch)
        return stretch.times

    def begin_batch(self, now: float, stamps: Sequence[int], offsets: Sequence[int]) -> list[float]:
        """Begin a batch. Returns the list that its end is noted in."""
        self.open = True
        stretch = _Stretch(now, stamps, offsets, 0, at_once=True)
        self._stretches.append(stretch)
        return stretch.times

    def batch_of(self, records: int, limit: int) -> None:
        """Note that the last stretch is a part of a batch of so many records, of so many at most."""
        if self._stretches and self.open:
            self._stretches[-1].batch = (records, limit)

    def take_open(self, offset: int) -> list[tuple[int, Pending]]:
        """Take what is in hand, up to an offset, out of its stretch, which ends before it. Something is in hand."""
        self.open = False
        stretch = self._stretches[-1]
        taken_at = stretch.times[-1]
        if not stretch.at_once:
            return [(offset, Pending(stretch.stamps[stretch.first + len(stretch.times) - 1], taken_at))]
        return [(each, Pending(stamp, taken_at)) for each, stamp in zip(stretch.offsets, stretch.stamps, strict=True)]

    def open_work(self, now: float) -> tuple[int, float]:
        """Return how many records are in hand, and for how long: a batch counts once. Any thread."""
        stretches = self._stretches
        if not self.open or not stretches:
            return 0, 0.0
        stretch = stretches[-1]
        if not stretch.at_once:
            return 1, max(0.0, now - stretch.times[-1])
        return len(stretch.stamps), max(0.0, now - stretch.times[-1]) * len(stretch.stamps) / stretch.batch[0]

    def taken_at(self) -> float | None:
        """Return when what is in hand was handed out (boot clock); None: nothing is. Any thread."""
        stretches = self._stretches
        return stretches[-1].times[-1] if self.open and stretches else None

    def take_finished(self) -> list[Finished]:
        """Return what was done since this was asked last."""
        found: list[Finished] = []
        stretches = self._stretches
        while stretches:
            last = len(stretches) == 1  # first this, then look at its times: what is not the last is complete
            stretch = stretches[0]
            begin, end = stretch.taken, len(stretch.times) - 1
            if begin < end:
                stamps, offsets = stretch.stamps, stretch.offsets
                if not stretch.at_once:
                    stamps = stamps[stretch.first + begin : stretch.first + end]
                    offsets = offsets[stretch.first + begin : stretch.first + end]
                times = stretch.times[begin : end + 1]
                found.append(Finished(stamps, times, stretch.at_once, *stretch.batch, offsets))
                stretch.taken = end
            if last:
                break
            stretches.popleft()
        return found

    @property
    def gathered(self) -> bool:
        """Everything that is done was taken."""
        stretches = self._stretches
        return not stretches or stretches[-1].taken == len(stretches[-1].times) - 1
