"""The member's slots: work that arrived per 0.1 s of wall clock, summed over its partitions, each slot told once.

A slot is closed when every partition in sizing was observed past it, at the earliest after ``settle_seconds`` (at once
where nothing is owned) and at the latest after ``settle_seconds_max``. What is found out later is put right in the
slots that are closed next (:mod:`.arrivals` says why), so the sum of all slots ever told is the work of all records
that arrived.
"""

from __future__ import annotations

from collections.abc import Sequence

from .arrivals import OPEN_BUCKETS_MAX, spread
from .cost import Cost, TopicCosts
from .partition_meter import CostOf, PartitionMeter
from .windows import BucketGrid

__all__ = ["BUCKETS_MAX", "WorkBuckets"]

BUCKETS_MAX = 300
"""Slots told per report (30 s); after a longer silence the work of older ones is spread over them."""
OPENING_MAX = 20
"""Open slots told per report (2 s)."""


class WorkBuckets:
    """Slots of one member. Times are of the log's clock."""

    def __init__(self, grid: BucketGrid, settle_seconds: float, settle_seconds_max: float) -> None:
        self._grid = grid
        self._settle_seconds = settle_seconds
        self._settle_seconds_max = settle_seconds_max
        self.first_open: int | None = None
        """First grid slot that is not closed; None until a partition is acquired."""
        self.carry = 0.0
        """Work, or less than none, that goes to the slots that are closed next."""
        self.uncosted: dict[str, dict[int, float]] = {}
        """Topic -> grid slot -> records in closed slots, while no cost is known. They are told in these slots when one
        is: put together into one, a few long records would look like a burst."""
        self._gone: dict[int, float] = {}
        """Grid slot -> work that is told apart: of partitions lost while the slot was open, or costed late."""

    def opened(self, at: float) -> int:
        """The first open grid slot; the slots of a member begin with its first partition."""
        if self.first_open is None:
            self.first_open = self._grid.aligned(self._grid.index(at))
        return self.first_open

    def lost(self, part: PartitionMeter, cost: Cost | None) -> None:
        """Keep what arrived in a partition that is not owned any more and is in no closed slot yet."""
        arrivals = part.arrivals
        arrivals.place_all()
        if cost is None:
            begin = min(arrivals.open, default=self.first_open or 0)
            for slot, count in ((begin, arrivals.correction), *arrivals.open.items()):
                self._add_uncosted(part.partition.topic, slot, count)
            return
        for slot, count in arrivals.open.items():
            self._add_gone(slot, count * cost.mean)
        self.carry += arrivals.correction * cost.mean
        if len(self._gone) > OPEN_BUCKETS_MAX:
            self.carry += sum(self._gone.pop(slot) for slot in sorted(self._gone)[: OPEN_BUCKETS_MAX // 2])

    def shift(self, grid_slots: int) -> None:
        """The log clock turned out to be that much ahead of what was thought."""
        if self.first_open is not None:
            self.first_open += grid_slots
        self.uncosted = {
            topic: {slot + grid_slots: records for slot, records in slots.items()}
            for topic, slots in self.uncosted.items()
        }
        self._gone = {slot + grid_slots: work for slot, work in self._gone.items()}

    def close(
        self,
        now: float,
        parts: Sequence[tuple[PartitionMeter, bool]],
        costs: TopicCosts,
        cost_of: CostOf,
    ) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
        """Close what is complete.

        Args:
            now: log clock.
            parts: every owned partition and whether it is in sizing, sorted.
            costs: by topic.
            cost_of: what a record of a partition is taken to cost.

        Returns:
            When the first slot begins (0.0: there has been no partition yet). The work of each, busy seconds. What of
            that came in its second half.
        """
        if self.first_open is None:
            return 0.0, (), ()
        upto = max(self._settled(now, parts), self.first_open)
        oldest = upto - BUCKETS_MAX * self._grid.parts
        begin = max(self.first_open, oldest)
        counted = [(part, part.close(now, upto, upto - begin, sized)) for part, sized in parts]
        for part, counts in counted:
            if any(counts) and cost_of(part) is None:
                for slot, count in enumerate(counts, upto - len(counts)):
                    self._add_uncosted(part.partition.topic, slot, count)
        self._cost(costs, oldest)
        late = [(slot, self._gone.pop(slot)) for slot in sorted(self._gone) if slot < upto]
        first = self._grid.aligned(max(oldest, min([begin, *(slot for slot, _ in late)])))
        work = [0.0] * ((upto - first) // self._grid.parts)
        second = work.copy()
        for part, counts in counted:
            if any(counts) and (cost := cost_of(part)) is not None:
                self._add(work, second, counts, cost)
        for slot, amount in late:
            if slot < first:
                self.carry += amount
            else:
                self._put(work, second, slot - first, amount)
        self.first_open = upto
        shares = [part / whole if whole > 0.0 else 0.5 for part, whole in zip(second, work, strict=True)]
        self.carry = spread(work, self.carry)
        told = self._rounded(work)
        second_told = tuple(round(min(1.0, share) * each, 6) for share, each in zip(shares, told, strict=True))
        return round(self._grid.start(first), 6), told, second_told

    def opening(self, parts: Sequence[tuple[PartitionMeter, bool]], cost_of: CostOf) -> tuple[float, ...]:
        """What is known of the slots after the closed ones, busy seconds: they will be told with no less.

        Args:
            parts: every owned partition and whether it is in sizing.
            cost_of: what a record of a partition is taken to cost.
        """
        if self.first_open is None:
            return ()
        work = [0.0] * OPENING_MAX
        for slot, amount in self._gone.items():
            self._add_open(work, slot, amount)
        for part, sized in parts:
            known = part.arrivals.known() if sized else {}
            cost = cost_of(part) if known else None
            if cost is not None:
                for slot, records in known.items():
                    self._add_open(work, slot, records * cost.mean)
        while work and not work[-1]:
            work.pop()
        return tuple(round(value, 6) for value in work)

    def _add_open(self, work: list[float], slot: int, amount: float) -> None:
        assert self.first_open is not None
        place = (slot - self.first_open) // self._grid.parts
        if 0 <= place < len(work):
            work[place] += amount

    def _rounded(self, work: list[float]) -> tuple[float, ...]:
        """Whole microseconds, for short telemetry; what rounding takes from one slot it gives to the next."""
        slots = []
        rest = 0.0
        for value in work:
            told = max(0.0, round(value + rest, 6))
            rest += value - told
            slots.append(told)
        self.carry += rest
        return tuple(slots)

    def _settled(self, now: float, parts: Sequence[tuple[PartitionMeter, bool]]) -> int:
        """The first grid slot that is not complete, at the beginning of a slot."""
        # Nothing more is found out by a member that owns nothing: what its last word left open would be guessed.
        settled = now - self._settle_seconds if parts else now
        for part, sized in parts:
            if sized:
                settled = min(settled, part.observed_until(now))
        return self._grid.aligned(self._grid.index(max(settled, now - self._settle_seconds_max)))

    def _add(self, work: list[float], second: list[float], counts: Sequence[float], cost: Cost) -> None:
        """Add one partition's closed counts, of which the last belongs to the end of ``work``."""
        per_slot = self._grid.parts
        for number, count in enumerate(counts, len(work) * per_slot - len(counts)):
            if count:
                self._put(work, second, number, count * cost.mean)

    def _put(self, work: list[float], second: list[float], grid_slot: int, amount: float) -> None:
        """Add work to a slot, and to its second half if it came there; grid slots count from the first slot's begin."""
        slot = grid_slot // self._grid.parts
        work[slot] += amount
        if self._is_second(grid_slot):
            second[slot] += amount

    def _is_second(self, grid_slot: int) -> bool:
        """Return whether a grid slot lies in the second half of its slot, which begins at a whole number of parts."""
        return 2 * (grid_slot % self._grid.parts) >= self._grid.parts

    def _add_gone(self, slot: int, work: float) -> None:
        self._gone[slot] = self._gone.get(slot, 0.0) + work

    def _add_uncosted(self, topic: str, slot: int, records: float) -> None:
        if records:
            slots = self.uncosted.setdefault(topic, {})
            slots[slot] = slots.get(slot, 0.0) + records

    def _cost(self, costs: TopicCosts, oldest: int) -> None:
        """Turn records into work where a cost is known by now; a slot may be closed or, of a partition that was lost,
        still open. What still has none is kept, no further back than it will be told.
        """
        for topic in sorted(self.uncosted):
            slots, cost = self.uncosted.pop(topic), costs.roughly(topic)
            for slot, records in slots.items():
                if cost is not None:
                    self._add_gone(slot, records * cost.mean)
                else:
                    self._add_uncosted(topic, max(slot, oldest), records)
