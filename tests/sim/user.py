"""User code of one member: one loop that takes a record, works on it, takes the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtrim_agent.common.partition import Partition

if TYPE_CHECKING:
    from .member import SimMember

__all__ = ["Slot", "UserCode"]


class Slot:
    """One acquisition of one partition, as the fetcher sees it."""

    __slots__ = (
        "acquisition_id",
        "awaits_lull",
        "done",
        "draining",
        "handed_at",
        "in_hand",
        "opened_at",
        "partition",
        "position",
        "revoked",
        "running",
        "until",
    )

    def __init__(self, partition: Partition, acquisition_id: int, position: int, opened_at: float) -> None:
        self.partition = partition
        self.opened_at = opened_at
        self.acquisition_id = acquisition_id
        self.position = position
        self.running = False
        self.draining = False
        """Stopped, and it is to be said when nothing is in hand."""
        self.awaits_lull = False
        """To be given away: it is to be said when it is done with what there is."""
        self.revoked = False
        """The listener was told that it goes."""
        self.until: int | None = None
        """Delivered before all others, and nothing of it from here on."""
        self.done: int | None = None
        self.in_hand: int | None = None
        self.handed_at = 0.0

    @property
    def at_bound(self) -> bool:
        """Nothing of it may be delivered, as its bound is reached."""
        return self.until is not None and self.position >= self.until


class UserCode:
    """Takes records in turn from what runs, while the lease lasts; one in hand at a time."""

    def __init__(self, member: SimMember) -> None:
        self._member = member
        self._world = member.world
        self.slots: dict[Partition, Slot] = {}
        self.lingering: dict[Partition, Slot] = {}
        """Given up with a record still in hand: it blocks the partition here until it ends (rule 13)."""
        self._in_hand: Slot | None = None
        self._turn = 0
        self._finish_due = False
        self._since_commit = 0

    @property
    def busy(self) -> bool:
        return self._in_hand is not None

    @property
    def holding(self) -> Slot | None:
        """The slot whose record is in hand."""
        return self._in_hand

    def pump(self) -> None:
        """Take the next record if there is one and it may be taken."""
        member, world = self._member, self._world
        if self._in_hand is not None or member.gone or member.frozen:
            return
        if world.scheduler.now >= member.lease_until:
            return
        slots = list(self.slots.values())
        ready = [s.running and not s.at_bound and s.position < world.data[s.partition].end for s in slots]
        first = [slot for slot, is_ready in zip(slots, ready, strict=True) if is_ready and slot.until is not None]
        if first:
            self._take(first[0])
            return
        for step in range(len(slots)):
            index = (self._turn + step) % len(slots)
            if ready[index]:
                self._turn = (self._turn + step + 1) % len(slots)
                self._take(slots[index])
                return

    def _take(self, slot: Slot) -> None:
        world = self._world
        offset = slot.position
        slot.in_hand, slot.handed_at = offset, world.scheduler.now
        slot.position += 1
        self._in_hand = slot
        world.handed_out(self._member, slot, offset)
        world.scheduler.after(world.cost_seconds(), self._finish, slot)

    def _finish(self, slot: Slot) -> None:
        if self._in_hand is not slot or self._member.gone:
            return
        if self._member.frozen:
            self._finish_due = True
            return
        offset = slot.in_hand
        assert offset is not None
        self._in_hand, slot.in_hand = None, None
        slot.done = offset + 1
        self._world.data[slot.partition].mark_done(offset)
        if self.lingering.get(slot.partition) is slot:
            del self.lingering[slot.partition]
            self._member.lingering_ended(slot.partition)
        elif slot.draining:
            self._member.nothing_in_hand(slot)
        elif slot.running and slot.at_bound:
            self._member.bound_reached(slot)
        elif slot.awaits_lull and slot.running and slot.position >= self._world.data[slot.partition].end:
            self._member.idle_point(slot, busy=False)
        elif not self._world.options.group.auto_commit and self.slots.get(slot.partition) is slot:
            self._commit_by_hand(slot)
        self.pump()

    def _commit_by_hand(self, slot: Slot) -> None:
        self._since_commit += 1
        if self._since_commit >= 3:
            self._since_commit = 0
            self._member.commit_by_hand()

    def thaw(self) -> None:
        """The process runs again after a freeze."""
        if self._finish_due and self._in_hand is not None:
            self._finish_due = False
            self._finish(self._in_hand)
        self.pump()
