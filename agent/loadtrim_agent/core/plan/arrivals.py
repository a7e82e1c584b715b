"""What arrived in one partition, and when: end offsets, time stamps and the slots of wall-clock time they fall into.

Theory of operation. A record has arrived when the log's end has moved past it, not when it is fetched. Each answer of
the broker tells the end, so the records between the end known before and the new one arrived between the two answers.
Their time stamps say where in between: a time stamp is *clamped* to that interval, because a producer's clock, or a
time stamp that means something else, may say anything, but a record cannot have come before the log ended in front of
it nor after it was seen. Records that are known to exist and not fetched yet have no time stamp here; they are spread
evenly over the rest of the interval. None of them is counted again when it is fetched.

What was in the log at the acquisition is lag, not an arrival. Where the end was not known then, the time stamps of the
first batch decide.

Slots are closed once, when the partition has been observed past them or at the latest after a bounded wait. While a
partition with records in hand is not observed (its buffer is full, so nobody asks the broker), it is *assumed* to go on
at its recent rate; the next observation puts the difference between what came and what was assumed right, spread evenly
over the slots that are closed next, so that a full buffer makes neither a hole nor a burst. (Sending the late ones in
the slot of the moment would make a burst that never was; restating closed slots would make every reader merge.)

Nothing is counted twice or lost. At every moment, for the records since the acquisition::

    arrived = closed + open + correction - assumed + kept_out

``kept_out`` is what arrived while the partition was paused or blocked: lag afterwards, but no load that replicas could
have carried.

Offsets and records: a compacted topic, or one with transactions, has fewer records than offsets. Fetched records are
counted as records; those known and not fetched are estimated by the share of offsets that were records lately.
"""

from __future__ import annotations

from collections.abc import Sequence

from .windows import SlotGrid

__all__ = ["ASSUMED_SECONDS_MAX", "DENSITY_OFFSETS", "OPEN_SLOTS_MAX", "TRUNCATED_SECONDS", "Arrivals", "spread"]

OPEN_SLOTS_MAX = 1200
"""Open slots kept per partition (a minute of 0.05 s); older ones are closed together with the next."""
ASSUMED_SECONDS_MAX = 30.0
"""A partition that was not observed for longer is not assumed to receive anything any more."""
TRUNCATED_SECONDS = 5.0
"""When all answers of so long a time are below the known end, the log was truncated or made anew."""
_GAP_MAX = 100
"""Offsets per record beyond which a gap teaches nothing: what retention deleted is no compaction."""
DENSITY_OFFSETS = 500.0
"""Memory, in offsets, of the share of offsets that are records."""


def spread(values: list[float], amount: float) -> float:
    """Add ``amount`` evenly, or take it away in proportion but nothing below 0; return what found no place."""
    if not values or amount == 0.0:
        return amount
    if amount > 0.0:
        each = amount / len(values)
        values[:] = [value + each for value in values]
        return 0.0
    there = sum(values)
    taken = min(there, -amount)
    if taken > 0.0:
        keep = 1.0 - taken / there
        values[:] = [value * keep for value in values]
    return amount + taken


class Arrivals:
    """Arrivals of one partition since it was acquired. Times are of the log's clock. O(runs) per batch."""

    __slots__ = (
        "_grid",
        "_lower_since",
        "arrived",
        "assumed",
        "correction",
        "density",
        "end_offset",
        "first_open",
        "kept_out",
        "last_at",
        "open",
        "opened",
        "out_before",
        "seen_at",
    )

    def __init__(self, grid: SlotGrid, at: float, end_offset: int | None, first_open: int) -> None:
        """``at``: since when this member answers for what arrives; ``first_open``: first grid slot not closed."""
        self._grid = grid
        self.end_offset = end_offset
        """The highest end of the log that is known: everything below has arrived or was there before."""
        self._lower_since: float | None = None
        """Since when every answer was below it."""
        self.seen_at = at
        """When the end was last observed."""
        self.last_at = at
        """When a record last arrived."""
        self.arrived = 0.0
        self.open: dict[int, float] = {}
        """Grid slot -> records, of slots not closed."""
        self.first_open = first_open
        self.opened = max(first_open, grid.index(at))
        """First grid slot that was observed."""
        self.correction = 0.0
        """Records to be added to, or taken from, the slots that are closed next."""
        self.assumed = 0.0
        """Records in closed slots that nobody has seen yet."""
        self.kept_out = 0.0
        self.out_before = 0
        """Arrivals before this grid slot are kept out."""
        self.density = 1.0
        """Share of offsets that are records."""

    # -- in

    def fetched(
        self, now: float, runs: Sequence[tuple[float, int]], start: int, next_offset: int, end_offset: int | None
    ) -> int:
        """Records came, in the order of the log, from the offsets ``start`` .. ``next_offset`` - 1.

        Returns:
            How many of them, the last ones, had not been known to exist.
        """
        count = sum(records for _, records in runs)
        self._learn_density(count, next_offset - start)
        end = max(next_offset, end_offset if end_offset is not None else 0)
        known = self._known_end(now, end)
        if known is None:
            fresh = self._since_acquired(runs)
            ahead_from = next_offset if fresh and runs[-1][0] >= self.seen_at else end
        else:
            if next_offset <= known:
                fresh = 0
            elif start >= known:
                fresh = count
            else:
                fresh = min(count, next_offset - known)
            ahead_from = max(known, next_offset)
        latest = self._place(now, runs, count - fresh) if fresh else self.seen_at
        self._observe(now, max(end, known or 0), max(0, end - ahead_from), latest)
        return fresh

    def observed(self, at: float, end_offset: int) -> None:
        """The end of the log was seen, with no records. An end below the known one is an older answer."""
        known = self._known_end(at, end_offset)
        ahead = 0 if known is None else max(0, end_offset - known)
        self._observe(max(at, self.seen_at), max(end_offset, known or 0), ahead, self.seen_at)

    def skipped(self, next_offset: int) -> None:
        """The position was moved to ``next_offset``: what lies before it needs no work and is no arrival."""
        if self.end_offset is not None:
            self.end_offset = max(self.end_offset, next_offset)

    def _known_end(self, at: float, end_offset: int) -> int | None:
        """The end known before this observation. One below it is an older answer, unless there is no other any more."""
        known = self.end_offset
        if known is None or end_offset >= known:
            self._lower_since = None
        elif self._lower_since is None:
            self._lower_since = at
        elif at - self._lower_since >= TRUNCATED_SECONDS:
            known, self._lower_since = end_offset, None
        return known

    def _since_acquired(self, runs: Sequence[tuple[float, int]]) -> int:
        """Of a first batch, with the end unknown at the acquisition: the records from the first that is newer."""
        fresh = 0
        newer = False
        for timestamp, records in runs:
            newer = newer or timestamp >= self.seen_at
            fresh += records if newer else 0
        return fresh

    def _observe(self, at: float, end: int, ahead_offsets: int, since: float) -> None:
        if ahead_offsets:
            self._place_evenly(ahead_offsets * self.density, since, at)
        self.end_offset = end
        if at > self.seen_at:
            self.seen_at = at
            self.correction -= self.assumed
            self.assumed = 0.0
        if len(self.open) > OPEN_SLOTS_MAX:
            self._fold(sorted(self.open)[: OPEN_SLOTS_MAX // 2])

    def _place(self, now: float, runs: Sequence[tuple[float, int]], skip: int) -> float:
        """Put records after the first ``skip`` into their slots; when the last of them arrived."""
        lowest, highest = self._grid.index(self.seen_at), self._grid.index(now)
        timestamp = now
        for timestamp, records in runs:
            if skip >= records:
                skip -= records
                continue
            slot = self._grid.index(timestamp) if timestamp >= 0.0 else highest
            self.arrived += records - skip
            self._put(min(max(slot, lowest), highest), records - skip)
            skip = 0
        self.last_at = max(self.last_at, now)
        return min(max(timestamp, self.seen_at), now) if timestamp >= 0.0 else now

    def _place_evenly(self, records: float, since: float, until: float) -> None:
        first, last = self._grid.index(min(since, until)), self._grid.index(until)
        first = max(first, last - OPEN_SLOTS_MAX // 2)
        each = records / (last - first + 1)
        self.arrived += records
        for slot in range(first, last + 1):
            self._put(slot, each)
        self.last_at = max(self.last_at, until)

    def _put(self, slot: int, records: float) -> None:
        if slot < self.out_before:
            self.kept_out += records
        elif slot < self.first_open:
            self.correction += records
        else:
            self.open[slot] = self.open.get(slot, 0.0) + records

    def _learn_density(self, records: int, offsets: int) -> None:
        offsets = min(offsets, _GAP_MAX * (records + 1))
        if offsets > 0 and (offsets != records or self.density != 1.0):
            self.density += (min(1.0, records / offsets) - self.density) * offsets / (offsets + DENSITY_OFFSETS)

    # -- out

    def close(self, upto: int, slots_max: int, rate: float, observed_until: float) -> list[float]:
        """Close the grid slots before ``upto`` and return the records of the last of them, oldest first.

        The last count is that of slot ``upto`` - 1; slots before the acquisition are left out.

        Args:
            upto: the first slot that stays open.
            slots_max: how many counts to return at most; what lies before them is spread over them.
            rate: records/s that the partition is assumed to get in slots that it was not observed in.
            observed_until: until when it was observed.
        """
        if upto <= self.first_open:
            return []
        first = max(self.first_open, self.opened, upto - slots_max)
        self.first_open = upto
        if first >= upto:
            return []
        self._fold([slot for slot in self.open if slot < first])
        counts = [0.0] * (upto - first)
        for slot in [slot for slot in self.open if slot < upto]:
            counts[slot - first] = self.open.pop(slot)
        unseen = max(first, self._grid.index(observed_until))
        if rate > 0.0 and unseen < upto:
            for slot in range(unseen, upto):
                counts[slot - first] += rate / self._grid.inverse
            self.assumed += rate / self._grid.inverse * (upto - unseen)
        self.correction = spread(counts, self.correction)
        return counts

    def _fold(self, slots: list[int]) -> None:
        for slot in slots:
            self.correction += self.open.pop(slot)

    def set_aside(self, before: float) -> None:
        """The partition is kept out of sizing: no slot gets what arrived before now and was in none yet."""
        self.kept_out += sum(self.open.values()) + self.correction - self.assumed
        self.open.clear()
        self.correction = self.assumed = 0.0
        self.out_before = self._grid.index(before)

    def shift(self, grid_slots: int, seconds: float) -> None:
        """The log clock turned out to be ``seconds`` ahead of what was thought."""
        self.seen_at += seconds
        self.last_at += seconds
        self.first_open += grid_slots
        self.opened += grid_slots
        self.out_before += grid_slots
        self.open = {slot + grid_slots: records for slot, records in self.open.items()}
