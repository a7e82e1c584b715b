"""What user code was handed and finished, what was committed, and what must hold of it (I1 to I5, E1).

The journal knows nothing of the product's insides but the lease that it believes to have. Everything else is what an
observer from outside sees: records, commits, time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loadtrim_agent.common.partition import Partition

if TYPE_CHECKING:
    from .broker_assigned import BrokerAssigned
    from .world import Member, World

__all__ = ["Journal", "Violation"]

STANDSTILL_SECONDS = 2.0
"""A partition whose owner is well, with records to deliver and user code that asks for them, delivers one within this
time, in a rebalance too: a second for the sleep of user code, and as much again. Chosen."""
LOOK_SECONDS = 0.25


class Violation(AssertionError):
    """Something that must hold does not."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


@dataclass(slots=True)
class _Handed:
    member: Member | BrokerAssigned
    at: float
    excused: bool = False


@dataclass(slots=True)
class _Partition:
    end: int = 0
    done: set[int] = field(default_factory=set)
    done_below: int = 0
    handed: dict[int, _Handed] = field(default_factory=dict)
    committed: int = 0
    sought: bool = False
    """User code set its position: commits may go back."""
    waits_since: float | None = None

    def finish(self, offset: int) -> None:
        self.done.add(offset)
        while self.done_below in self.done:
            self.done.discard(self.done_below)
            self.done_below += 1


class Journal:
    """One run's. Violations are raised by the kernel after the round in which they were found."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.partitions: dict[Partition, _Partition] = {}
        self.delivered_count = 0
        self.repeats = 0
        self.have_offsets_been_lost = False

    def _violated(self, name: str, text: str) -> None:
        self._world.violated(name, text)

    def of(self, partition: Partition) -> _Partition:
        return self.partitions.setdefault(partition, _Partition())

    # -- what happens --------------------------------------------------------------------------------------------

    def produced(self, partition: Partition, offset: int) -> None:
        self.of(partition).end = offset + 1

    def delivered(self, member: Member | BrokerAssigned, partition: Partition, offset: int) -> None:
        """User code of a member has a record in hand."""
        world, data = self._world, self.of(partition)
        self.delivered_count += 1
        data.waits_since = None
        world.note(member.name, f"has {partition}:{offset}")
        if not member.has_lease and not member.foreign:
            self._violated("I1", f"{member.name} was handed {partition}:{offset} without a lease")
        for other in world.members:
            if other is member or world.mixed_lately or member.unaware or other.unaware:
                continue
            # What was taken under a lease that has ended since is in its hands still; it cannot be committed.
            taken = [o for o, at in other.in_hand.get(partition, {}).items() if not other.excused_since(at)]
            if taken and other.has_lease:
                self._violated(
                    "I1", f"{partition}:{offset} is in the hands of {member.name} while {other.name} works on "
                    f"{partition}:{sorted(taken)}, both with a lease",
                )  # fmt: skip
        # aiokafka's own auto-commit commits what is in hand: what follows may be handed out elsewhere meanwhile.
        holders = (member, *(m for m in world.members if m.foreign))
        in_hand = {o for holder in holders for o in holder.in_hand.get(partition, {})}
        if any(o not in data.done and o not in in_hand for o in range(data.done_below, offset)):
            self._violated("I2", f"{member.name} was handed {partition}:{offset}, {data.done_below} was never done")
        before = data.handed.get(offset)
        if before is not None:
            self.repeats += 1
            self._repeated(member, partition, offset, before)
        data.handed[offset] = _Handed(member, world.kernel.now, excused=member.unaware)

    def _repeated(self, member: Member | BrokerAssigned, partition: Partition, offset: int, before: _Handed) -> None:
        """I3: what is handed out again was in the hands of a member that is excused, and is not committed."""
        world, data = self._world, self.of(partition)
        if before.excused or member.unaware or world.mixed_lately:
            return
        if offset < data.committed and not world.may_go_back and not self.have_offsets_been_lost:
            self._violated(
                "I3", f"{partition}:{offset} was handed to {member.name}, below its commit at {data.committed}"
            )
        # What was not committed when a mixed group put it down may be handed out much later.
        may_be_missing = not world.options.auto_commit or world.mixed_since(before.at)
        if not before.member.excused_since(before.at) and not (may_be_missing and offset >= data.committed):
            self._violated("I3", f"{partition}:{offset} was handed to {before.member.name}, now to {member.name}")

    def done(self, member: Member | BrokerAssigned, partition: Partition, offset: int) -> None:
        self._world.note(member.name, f"did {partition}:{offset}")
        self.of(partition).finish(offset)

    def put_out(self, partition: Partition, offset: int) -> None:
        """A committed transaction has put out what was made of a record."""
        data = self.of(partition)
        if offset < data.done_below or offset in data.done:
            self._violated("E1", f"{partition}:{offset} was put out twice by committed transactions")
        data.finish(offset)

    def offsets_lost(self) -> None:
        """The group's committed offsets are gone: whoever asks for them begins at the first record."""
        for partition, data in self.partitions.items():
            self.sought(partition, 0)
            data.committed = -1
        self.have_offsets_been_lost = True

    def sought(self, partition: Partition, offset: int) -> None:
        """User code goes back: what it was handed from there on comes again."""
        data = self.of(partition)
        data.sought = True
        self._excuse(data, offset)

    def skipped(self, partition: Partition) -> None:
        """User code goes to the end: nobody has to do what lies before it."""
        data = self.of(partition)
        data.sought = True
        data.done_below = max(data.done_below, data.end)
        data.done = {offset for offset in data.done if offset >= data.done_below}

    def comes_again(self, partition: Partition) -> None:
        """What was not committed comes again, whatever user code commits of it from now on, as with aiokafka."""
        data = self.of(partition)
        self._excuse(data, data.committed)

    def _excuse(self, data: _Partition, offset: int) -> None:
        for at, handed in data.handed.items():
            if at >= offset:
                handed.excused = True

    def committed(self, member: str, partition: Partition, offset: int) -> None:
        """The coordinator accepted a commit."""
        world, data = self._world, self.of(partition)
        if world.trace is not None:
            world.note("", f"committed {partition} at {offset} by {member}")
        if offset > data.done_below and not world.foreign_lately:
            self._violated(
                "I2", f"{member} committed {partition} at {offset}, done is what lies below {data.done_below}"
            )
        if offset < data.committed and world.options.auto_commit and not data.sought and not world.may_go_back:
            self._violated("I3", f"{member} committed {partition} at {offset}, which was at {data.committed}")
        data.committed = offset

    # -- what must hold as time passes ---------------------------------------------------------------------------

    def look(self) -> None:
        """I4: no partition stands still while its owner is well, whatever has happened to other members."""
        world = self._world
        now = world.kernel.now
        owners = {partition: m for m in reversed(world.members) if m.well for partition in m.ought_to_deliver}
        for partition, data in self.partitions.items():
            owner = owners.get(partition)
            waits = owner is not None and owner.waits_for_records and data.end > owner.position(partition)
            if not waits or world.disturbed_lately:
                data.waits_since = None
            elif data.waits_since is None:
                data.waits_since = now
            elif now - data.waits_since > STANDSTILL_SECONDS + (owner.listener_seconds if owner is not None else 0.0):
                assert owner is not None
                if owner.hears_nothing:
                    data.waits_since = None
                    continue
                self._violated("I4", f"{partition} stands still at {owner.name} since {data.waits_since:.2f}")

    def must_be_committed(self, data: _Partition) -> bool:
        """Return whether a commit is missing. What was committed before offsets were lost is not committed again."""
        by_itself = self._world.options.auto_commit or self._world.options.transactions
        return by_itself and data.committed != data.end and data.end > 0 and not self.have_offsets_been_lost

    def owners(self, partition: Partition) -> list[str]:
        everybody = (*self._world.members, *self._world.broker_assigned)
        return [member.name for member in everybody if partition in member.delivers]

    def owned_once(self) -> bool:
        return all(len(self.owners(partition)) == 1 for partition in self.partitions)

    def healed(self) -> None:
        """I5 and I2: everything has an owner, and everything produced is done and committed."""
        world = self._world
        for partition, data in sorted(self.partitions.items()):
            owners = self.owners(partition)
            if len(owners) != 1:
                self._violated("I5", f"{partition} is delivered by {owners}")
            if data.done_below < data.end:
                self._violated("I2", f"{partition} ends at {data.end}, done is only what lies below {data.done_below}")
            if self.must_be_committed(data):
                self._violated("I2", f"{partition} is done up to {data.end} and committed at {data.committed}")
        if world.kernel.violation is not None:
            raise world.kernel.violation
