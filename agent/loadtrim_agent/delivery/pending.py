"""Records of one stream that user code works on until it says that they are done."""

from __future__ import annotations

import contextlib
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any, NamedTuple

__all__ = ["Pending", "PendingRecords", "ReportedDone"]


class Pending(NamedTuple):
    """A record that is not done yet."""

    stamp: int
    """The timestamp, ms; -1: none."""
    taken_at: float
    """Boot clock."""
    object_id: int = 0
    """``id()`` of the object that user code was handed; 0: not known."""


class ReportedDone(NamedTuple):
    """A record that user code has said to be done."""

    stamp: int
    taken_at: float
    done_at: float


class PendingRecords:
    """The pending records of one stream are in the order of the log. User code's thread, but for :attr:`reported_done`.

    Cost: O(1) for each record that is handed out, and for each that is told, in whatever order.
    """

    __slots__ = ("_blocks", "_given_up", "_records", "_taken_at_sum", "_timed", "_unbegun", "reported_done")

    def __init__(self) -> None:
        self._records: OrderedDict[int, Pending] = OrderedDict()
        self._given_up: set[int] = set()
        """User code failed with these: they are not done, and nobody works on them."""
        self._unbegun: set[int] = set()
        """Handed out one by one, and user code has said nothing of them. Invariant: of records that are pending."""
        self._blocks: dict[int, int] = {}
        """Blocks of user code that are open around a record. Invariant: above 0, of records that are pending."""
        self._timed = 0
        """Records that are worked on."""
        self._taken_at_sum = 0.0
        """The sum of the times at which these were handed out."""
        self.reported_done: deque[ReportedDone] = deque()
        """User appends, agent takes."""

    def __bool__(self) -> bool:
        return bool(self._records)

    @property
    def first(self) -> int | None:
        """Return the lowest offset that is pending: nothing above it may be committed."""
        return next(iter(self._records), None)

    @property
    def in_hand(self) -> int | None:
        """Return the highest offset that user code works on."""
        return next((offset for offset in reversed(self._records) if offset not in self._given_up), None)

    def open_work(self, now: float) -> tuple[int, float]:
        """Return how many records are worked on, and for how long in all. Any thread, so it may be off by one."""
        return self._timed, max(0.0, self._timed * now - self._taken_at_sum)

    def taken_at(self) -> float | None:
        """Return when the record that is worked on for longest was handed out; None: there is none, or it is not known.

        Any thread: user code's may change the order meanwhile, so that the next look tells.
        """
        with contextlib.suppress(RuntimeError):
            for offset, pending in self._records.items():
                if offset not in self._given_up:
                    return pending.taken_at
        return None

    def taken(self, records: Iterable[Any], now: float) -> None:
        """Add records that are handed out now, above all that are pending."""
        for record in records:
            self.hold(record.offset, Pending(record.timestamp, now, id(record)))

    def taken_alone(self, record: Any, now: float) -> None:
        """Add a record that is handed out by itself: a block around it begins before anything is awaited, or never."""
        self.taken((record,), now)
        self._unbegun.add(record.offset)

    def hold(self, offset: int, pending: Pending) -> None:
        """Add a record above all that are pending."""
        self._records[offset] = pending
        self._time(pending, 1)

    def enter(self, offset: int) -> None:
        """Note that a block around a pending record begins."""
        self._blocks[offset] = self._blocks.get(offset, 0) + 1

    def leave(self, offset: int) -> bool:
        """Note that a block around a pending record has ended. Return whether it was the last one."""
        more = self._blocks.pop(offset, 1) - 1
        if more:
            self._blocks[offset] = more
        return not more

    def find(self, record: Any) -> bool:
        """Return whether a record is pending. One with its offset in a log that was made anew has another timestamp."""
        pending = self._records.get(record.offset)
        return pending is not None and pending.stamp == record.timestamp

    def is_of(self, record: Any) -> bool:
        """Return whether a record is pending, and this object is what was handed out, not a copy or an earlier one."""
        pending = self._records.get(record.offset)
        return pending is not None and pending.object_id == id(record)

    def done(self, offset: int, now: float) -> bool:
        """Take a record off. Returns False where it is not pending."""
        pending = self._take_off(offset)
        if pending is None:
            return False
        self.reported_done.append(ReportedDone(pending.stamp, pending.taken_at, now))
        return True

    def given_up(self, offset: int) -> None:
        """Note that nobody works on a record any more, though it is not done. Nothing above it may be committed."""
        if offset not in self._given_up:
            self._given_up.add(offset)
            self._time(self._records[offset], -1)

    def give_up_unbegun(self) -> None:
        """Nobody works on the records that were handed out one by one and not begun with, and nobody will."""
        for offset in self._unbegun:
            self.given_up(offset)
        self._unbegun.clear()

    def worked_on(self, offset: int) -> None:
        """Note that user code works on a pending record, perhaps once more."""
        self._unbegun.discard(offset)
        if offset in self._given_up:
            self._given_up.discard(offset)
            self._time(self._records[offset], 1)

    def clear(self) -> None:
        """Forget what is pending: user code moved the position."""
        self._records.clear()
        self._given_up.clear()
        self._unbegun.clear()
        self._blocks.clear()
        self._timed, self._taken_at_sum = 0, 0.0

    def forget_from(self, offset: int) -> None:
        """Forget what is pending from an offset on: the log holds other records there now."""
        for each in [pending for pending in self._records if pending >= offset]:
            self._take_off(each)

    def _take_off(self, offset: int) -> Pending | None:
        pending = self._records.pop(offset, None)
        if pending is None:
            return None
        self._blocks.pop(offset, None)
        self._unbegun.discard(offset)
        if offset in self._given_up:
            self._given_up.discard(offset)
        else:
            self._time(pending, -1)
        return pending

    def _time(self, pending: Pending, records: int) -> None:
        self._timed += records
        self._taken_at_sum += records * pending.taken_at
