"""What arrived in one partition, and when: end offsets, time stamps and the slots of wall-clock time they fall into.

Theory of operation. A record has arrived when the log's end has moved past it, not when it is fetched. Each answer of
the broker tells the end, so the records between the end known before and the new one arrived between the two answers.
Their time stamps say where in between: a time stamp is *clamped* to that interval, because a producer's clock, or a
time stamp that means something else, may say anything, but a record cannot have come before the log ended in front of
it nor after it was seen. Records that are known to exist and not fetched yet (*ahead*) count as arrived at once and get
their slots when they are fetched; if slots are closed before, they are spread evenly over the rest of the interval.
None of them is counted again when it is fetched.

What was in the log at the acquisition is lag, not an arrival. Where the end was not known then, the time stamps of the
first batch decide.

Slots are closed once, when the partition has been observed past them or at the latest after a bounded wait. While a
partition with records in hand is not observed (its buffer is full, so nobody asks the broker), it is *assumed* to go on
at its recent rate; the next observation puts the difference between what came and what was assumed right, spread evenly
over the slots that are closed next, so that a full buffer makes neither a hole nor a burst. (Sending the late ones in
the slot of the moment would make a burst that never was; restating closed slots would make every reader merge.)

Nothing is counted twice or lost. At every moment, for the records since the acquisition::

    arrived = closed + open + ahead + correction - assumed + kept_out

``kept_out`` is what arrived while the partition was paused or blocked: lag afterwards, but no load that replicas could
have carried.

Offsets and records: a compacted topic, or one with transactions, has fewer records than offsets. Fetched records are
counted as records; those known and not fetched are estimated by the share of offsets that were records lately.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .windows import BucketGrid

__all__ = [
    "ASSUMED_SECONDS_MAX",
    "DENSITY_OFFSETS",
    "OPEN_BUCKETS_MAX",
    "TRUNCATED_SECONDS",
    "Ahead",
    "Arrivals",
    "spread",
]

OPEN_BUCKETS_MAX = 1200
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


class Ahead(msgspec.Struct):
    """Records that arrived, are not fetched and are in no slot yet."""

    offset: int = 0
    """Of the first of them."""
    records: float = 0.0
    since: float = 0.0
    """They arrived between these two times."""
    until: float = 0.0


class Arrivals:
    """Arrivals of one partition since it was acquired. Times are of the log's clock. O(runs) per batch."""

    __slots__ = (
        "_grid",
        "_lower_since",
        "ahead",
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

    def __init__(self, grid: BucketGrid, at: float, end_offset: int | None, first_open: int) -> None:
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
        self.ahead = Ahead()
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
            if self.ahead.records and next_offset > self.ahead.offset:
                self._fetch_ahead(runs, count - fresh, start, min(next_offset, known), known)
        latest = self.seen_at
        if fresh:
            self.arrived += fresh
            latest = self._place(runs, count - fresh, fresh, 1.0, self.seen_at, now)
            self.last_at = max(self.last_at, now)
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
            records = ahead_offsets * self.density
            self.arrived += records
            self.last_at = max(self.last_at, at)
            if not self.ahead.records:
                self.ahead.offset, self.ahead.since = end - ahead_offsets, since
            self.ahead.records += records
            self.ahead.until = at
        self.end_offset = end
        if at > self.seen_at:
            self.seen_at = at
            self.correction -= self.assumed
            self.assumed = 0.0
        if len(self.open) > OPEN_BUCKETS_MAX:
            self._fold(sorted(self.open)[: OPEN_BUCKETS_MAX // 2])

    def _fetch_ahead(
        self, runs: Sequence[tuple[float, int]], known_records: int, start: int, upto: int, known: int
    ) -> None:
        """Of a batch's first ``known_records``, before offset ``upto``, the last were ahead: give them their slots.

        Where the log has gaps, as many are taken as were counted for these offsets, not as many as there are.
        """
        ahead = self.ahead
        begin = max(start, ahead.offset)
        counted = ahead.records * min(1.0, (upto - begin) / max(1, known - ahead.offset))
        records = round(known_records * (upto - begin) / max(1, upto - start))
        if records:
            weight = counted / records
            ahead.since = self._place(runs, known_records - records, records, weight, ahead.since, ahead.until)
            ahead.records -= counted
        ahead.offset = upto
        if upto >= known:
            self._place_ahead(None)

    def _place(
        self, runs: Sequence[tuple[float, int]], skip: int, take: int, weight: float, since: float, until: float
    ) -> float:
        """Put ``take`` records after the first ``skip`` into their slots; when the last of them arrived."""
        lowest, highest = self._grid.index(since), self._grid.index(until)
        timestamp = until
        for timestamp, records in runs:
            if skip >= records:
                skip -= records
                continue
            placed = min(records - skip, take)
            skip = 0
            take -= placed
            slot = self._grid.index(timestamp) if timestamp >= 0.0 else highest
            self._put(min(max(slot, lowest), highest), placed * weight)
            if not take:
                break
        return min(max(timestamp, since), until) if timestamp >= 0.0 else until

    def _place_ahead(self, upto: int | None) -> None:
        """Spread what is ahead evenly over its slots; those from ``upto`` on stay ahead."""
        ahead = self.ahead
        last = self._grid.index(ahead.until)
        first = max(self._grid.index(ahead.since), last - OPEN_BUCKETS_MAX // 2)
        end = last + 1 if upto is None else min(upto, last + 1)
        if not ahead.records or end <= first:
            return
        each = ahead.records / (last + 1 - first)
        for slot in range(first, end):
            self._put(slot, each)
        ahead.records = each * (last + 1 - end)
        ahead.since = max(ahead.since, self._grid.start(end))

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
        if rate == 0.0 and not self.open and self.correction == 0.0 and not self.ahead.records:
            return [0.0] * (upto - first)
        self._place_ahead(upto)
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

    def known(self) -> dict[int, float]:
        """Grid slot -> records, of the slots that are not closed: there will be no fewer in them.

        What is ahead counts in the last slot that it may belong to.
        """
        known = dict(self.open)
        if self.ahead.records:
            last = max(self._grid.index(self.ahead.until), self.first_open)
            known[last] = known.get(last, 0.0) + self.ahead.records
        return known

    def place_all(self) -> None:
        """Nothing more will be fetched: what is ahead gets its slots now."""
        self._place_ahead(None)

    def set_aside(self, before: float) -> None:
        """The partition is kept out of sizing: no slot gets what arrived before now and was in none yet."""
        self.kept_out += sum(self.open.values()) + self.ahead.records + self.correction - self.assumed
        self.open.clear()
        self.ahead.records = 0.0
        self.correction = self.assumed = 0.0
        self.out_before = self._grid.index(before)

    def shift(self, grid_slots: int, seconds: float) -> None:
        """The log clock turned out to be ``seconds`` ahead of what was thought."""
        self.seen_at += seconds
        self.last_at += seconds
        self.ahead.since += seconds
        self.ahead.until += seconds
        self.first_open += grid_slots
        self.opened += grid_slots
        self.out_before += grid_slots
        self.open = {slot + grid_slots: records for slot, records in self.open.items()}
