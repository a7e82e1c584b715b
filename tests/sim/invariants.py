"""I1 to I6 of ``docs/protocol.md``, one small class each. The world calls them; each raises by ``world.violated``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.assigned_partition import AssignedState
from loadtrim_agent.protocol.group_config import LOADTRIM, Code
from loadtrim_agent.protocol.prefetch import EXPECTED_SECONDS_MAX, PREFETCH_SECONDS
from loadtrim_agent.protocol.slices import COUNT_SECONDS, LATE_SECONDS
from loadtrim_agent.wire.ownership_records import PlanRecord, PromiseRecord

if TYPE_CHECKING:
    from .member import SimMember
    from .user import Slot
    from .world import World

__all__ = ["ALL", "Invariant", "Violation"]


PREFETCH_SECONDS_MOST = 5 * PREFETCH_SECONDS + EXPECTED_SECONDS_MAX
"""Each plan that advises it again renews it."""
BOUND_SECONDS_MORE = 0.01
"""From a bound that is reached to the end of the slice, beside the time of the promise: steps of the machine at one
moment."""
_WISHES = (e.MoveWantedEvent, e.SliceWantedEvent, e.LogReadEvent)
_PUTS_DOWN = (c.StopCommand, c.DropCommand)
_MOVING = frozenset(
    (AssignedState.PRE_COMMIT, AssignedState.DRAINING, AssignedState.COMMITTING, AssignedState.TRANSFERRED)
)


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


class Invariant:
    """Base: told of what happens, says so when it must not."""

    name = ""

    def __init__(self, world: World) -> None:
        self.world = world

    def violated(self, text: str) -> None:
        self.world.violated(self.name, text)

    def step(self) -> None:
        """After every step."""

    def handed_out(self, member: SimMember, slot: Slot, offset: int) -> None:
        """User code was handed a record."""

    def committed(self, member: str, partition: Partition, offset: int) -> None:
        """The coordinator accepted a commit."""

    def commanded(self, member: SimMember, event: e.Event, commands: list[c.Command]) -> None:
        """A machine answered an event; nothing of it is carried out yet."""

    def healed(self) -> None:
        """The time after the last fault within which everything must be well is over."""


class OneOwner(Invariant):
    """I1: at most one member may hand a partition out or has a record of it in hand, among those with a valid lease.

    Stricter than the words of I1: that a second member *could* hand out is already a violation.
    """

    name = "I1"

    def step(self) -> None:
        world = self.world
        now = world.scheduler.now
        if world.mixed():
            return
        active: dict[Partition, SimMember] = {}
        for member in world.members.values():
            if member.gone or member.unaware or now >= member.lease_until:
                continue
            for partition, slot in member.user.slots.items():
                if slot.running or slot.in_hand is not None:
                    self._claim(active, partition, member)
            holding = member.user.holding
            if (
                holding is not None
                and holding.partition in member.user.lingering
                and not member.excused_since(holding.handed_at)
            ):
                self._claim(active, holding.partition, member)

    def _claim(self, active: dict[Partition, SimMember], partition: Partition, member: SimMember) -> None:
        other = active.setdefault(partition, member)
        if other is not member:
            self.violated(f"{partition} is in the hands of {other.name} and {member.name}, both with a valid lease")


class NothingLost(Invariant):
    """I2: no committed offset is ahead of what was done, and nobody is handed what lies behind something not done."""

    name = "I2"

    def committed(self, member: str, partition: Partition, offset: int) -> None:
        data = self.world.data[partition]
        data.start(offset)
        if offset > data.done_below:
            self.violated(f"{member} committed {partition} at {offset}, done is only what lies below {data.done_below}")

    def handed_out(self, member: SimMember, slot: Slot, offset: int) -> None:
        data = self.world.data[slot.partition]
        data.start(offset)
        if offset > data.done_below:
            self.violated(f"{member.name} was handed {slot.partition}:{offset}, {data.done_below} was never done")


class NothingTwice(Invariant):
    """I3: without a crash or a lost lease nothing is handed out twice (manual commits: nothing that was committed).

    With one, nothing that lies below the committed offset: a new owner begins there.
    """

    name = "I3"

    def handed_out(self, member: SimMember, slot: Slot, offset: int) -> None:
        world = self.world
        data = world.data[slot.partition]
        before = data.handed.get(offset)
        if before is None or member.unaware:
            return
        committed = world.committed_last.get(slot.partition, 0)
        if offset < committed and not world.mixed():
            self.violated(f"{slot.partition}:{offset} handed to {member.name}, below its commit at {committed}")
        if not before.holder.excused_since(before.at) and not world.mixed():
            by_hand = not world.options.group.auto_commit
            if not by_hand or offset < world.committed_most.get(slot.partition, 0):
                self.violated(f"{slot.partition}:{offset} handed to {before.holder.name}, and again to {member.name}")


class NoWayBack(Invariant):
    """I3, from the broker's side: no committed offset goes back (auto-commit), so no old commit overwrites a newer."""

    name = "I3"

    def committed(self, member: str, partition: Partition, offset: int) -> None:
        world = self.world
        before = world.committed_last.get(partition, 0)
        if offset < before and world.options.group.auto_commit and not world.mixed():
            self.violated(f"{member} committed {partition} at {offset}, which was at {before}")


class NoPause(Invariant):
    """I4: a partition that does not move never pauses while its owner's lease is valid, and no lease ends for nothing.

    A member that gives up its lease pauses all that it holds. The lease may become shorter only if the coordinator
    does not know the member any more; it may run out only where something happened to a member.
    """

    name = "I4"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._asked: dict[str, dict[Partition, int]] = {}
        """Name of a member -> partition -> generation in which it was asked to give the partition away."""
        self._leases: dict[str, tuple[str, float]] = {}
        """Name of a member -> the id under which it was granted its lease, and the end of that lease."""

    def commanded(self, member: SimMember, event: e.Event, commands: list[c.Command]) -> None:
        if isinstance(event, _WISHES):
            self._note_wish(member, event)
        for command in commands:
            if isinstance(command, c.LeaseCommand):
                self._leased(member, event, command.until)
            elif isinstance(command, _PUTS_DOWN) and self._is_well(member):
                self._put_down(member, command)
        if member.name in self._asked:
            self._forget_moves_that_ended(member)

    def healed(self) -> None:
        now = self.world.scheduler.now
        for member in self.world.alive:
            self._ran_out(member, now)

    # -- what it was asked to give away --------------------------------------------------------------------------

    def _note_wish(self, member: SimMember, event: e.MoveWantedEvent | e.SliceWantedEvent | e.LogReadEvent) -> None:
        if isinstance(event, e.MoveWantedEvent | e.SliceWantedEvent):
            # A plan of a generation to come, read before, excuses what follows it all the same.
            self._asked.setdefault(member.name, {}).setdefault(event.partition, -1)
        elif isinstance(event.record, PlanRecord):
            for move in event.record.moves:
                if move.source == member.member:
                    asked = self._asked.setdefault(member.name, {})
                    asked[Partition(move.topic, move.partition)] = event.record.generation

    def _forget_moves_that_ended(self, member: SimMember) -> None:
        """A move that is over, or was never begun, excuses no later stop. A plan may be read before its generation."""
        known = member.machine.snapshot()
        asked = self._asked[member.name]
        for partition, generation in list(asked.items()):
            entry = known.assigned.get(partition)
            # One of a partition that is not opened yet waits for that, and a slice for its bound.
            waits = partition in known.slices.own
            moves = entry is not None and (not entry.opened or entry.state in _MOVING)
            if generation <= known.generation and not moves and not waits:
                del asked[partition]
        if not asked:
            del self._asked[member.name]

    def _is_well(self, member: SimMember) -> bool:
        return self.world.scheduler.now < member.lease_until and not self.world.mixed()

    def _put_down(self, member: SimMember, command: c.StopCommand | c.DropCommand) -> None:
        if isinstance(command, c.StopCommand):
            self._stopped(member, command.partition)
        else:
            self._dropped(member, command)

    def _stopped(self, member: SimMember, partition: Partition) -> None:
        asked = partition in self._asked.get(member.name, ()) or member.leave_deadline != float("inf")
        if not asked and partition.topic in member.machine.snapshot().subscribed:
            self.violated(f"{member.name} stopped {partition} though nobody asked it to give it away")

    def _dropped(self, member: SimMember, command: c.DropCommand) -> None:
        slot = member.user.slots.get(command.partition)
        held = slot is not None and slot.acquisition_id == command.acquisition_id and slot.running
        leaves = member.leave_deadline != float("inf")
        if held and not leaves and command.partition.topic in member.machine.snapshot().subscribed:
            self.violated(f"{member.name} dropped {command.partition}, which it was handing out")

    # -- the lease -----------------------------------------------------------------------------------------------

    def _leased(self, member: SimMember, event: e.Event, until: float) -> None:
        world = self.world
        now = world.scheduler.now
        granted_to, before = self._leases.get(member.name, ("", 0.0))
        leaves = member.leave_deadline != float("inf")
        # What an administrator removed may come back with another broker, before the member reads that it is removed.
        codes = {getattr(event, "code", None), *getattr(event, "codes", {}).values()}
        told = member.removed == granted_to and Code.UNKNOWN_MEMBER_ID in codes
        known = granted_to in world.coordinator.members and not told
        if until < before and now < before and known and not leaves and not world.mixed():
            self.violated(
                f"{member.name} gave up its lease until {before:.2f}, though it is in the group as {granted_to}"
            )
        self._ran_out(member, now)
        if until:
            self._leases[member.name] = (member.member, until)
        else:
            self._leases.pop(member.name, None)

    def _ran_out(self, member: SimMember, now: float) -> None:
        """Nothing has happened to anybody: the lease of a member that holds something is renewed before it ends.

        So it is while a rebalance waits. A newcomer's begins with the JoinGroup, which may have waited for all others,
        so it may be over when the newcomer gets its first partition; it is renewed by two answers then.
        """
        _, before = self._leases.get(member.name, ("", now))
        leaves = member.leave_deadline != float("inf")
        held = any(slot.opened_at < before for slot in member.user.slots.values())
        if before < now and self.world.calm and held and not leaves and not self.world.mixed():
            self.violated(f"the lease of {member.name} ended at {before:.4f}, though nothing had happened")


class Owned(Invariant):
    """I5: after the last fault every partition has an owner that is alive, runs it and has a lease."""

    name = "I5"

    def healed(self) -> None:
        world = self.world
        now = world.scheduler.now
        alive = [m for m in world.members.values() if not m.gone]
        for member in alive:
            known = member.machine.snapshot()
            if not known.stable and world.unnoticed_takeover and not known.config.log_usable:
                continue  # It may be refused until the next rebalance.
            if not known.stable and world.coordinator.protocol == LOADTRIM:
                self.violated(f"{member.name} is {known.phase.value}, not in a generation")
            if now >= member.lease_until:
                self.violated(f"{member.name} has no lease")
        for partition in sorted(world.data):
            able = [m for m in alive if partition.topic in m.machine.snapshot().topics]
            owners = [m for m in able if self._runs(m, partition)]
            if able and len(owners) != 1:
                self.violated(f"{partition} is run by {[m.name for m in owners]}, of {[m.name for m in able]}")

    def _runs(self, member: SimMember, partition: Partition) -> bool:
        slot = member.user.slots.get(partition)
        entry = member.machine.snapshot().assigned.get(partition)
        moving = entry is not None and entry.state in (AssignedState.DRAINING, AssignedState.COMMITTING)
        return slot is not None and (slot.running or moving)


class OldLeader(Invariant):
    """I6: a leader of an older generation changes nothing."""

    name = "I6"

    def commanded(self, member: SimMember, event: e.Event, commands: list[c.Command]) -> None:
        membership = member.machine.snapshot()
        plan = event.record if isinstance(event, e.LogReadEvent) else None
        old = isinstance(plan, PlanRecord) and plan.generation != membership.generation
        if old and any(isinstance(command, c.StopCommand) for command in commands):
            self.violated(f"{member.name} followed {plan} in generation {membership.generation}")
        for command in commands:
            if isinstance(command, c.EnteredCommand) and membership.assignment is not None:
                assignment, generation = membership.assignment, command.generation
                leader = self.world.coordinator.leaders.get(generation)
                if assignment.generation != generation or assignment.member not in (leader, command.leader):
                    self.violated(
                        f"{member.name} entered {generation} with {assignment.member}'s map of {assignment.generation}"
                    )


class PrefetchesEnd(Invariant):
    """Nothing is fetched for long by a member that does not hold it, and nothing at all in a barrier."""

    name = "prefetch"

    def step(self) -> None:
        now = self.world.scheduler.now
        for member in self.world.members.values():
            if not member.prefetched or member.gone or member.frozen or member.stalled:
                continue
            if not member.machine.snapshot().stable:
                self.violated(f"{member.name} prefetches {sorted(member.prefetched)} while it is not in a generation")
            for partition, since in member.prefetched.items():
                if partition in member.machine.snapshot().assigned:
                    self.violated(f"{member.name} prefetches {partition} and holds it")
                if now > since + PREFETCH_SECONDS_MOST:
                    self.violated(f"{member.name} prefetches {partition} since {since}")


class BoundsEnd(Invariant):
    """I4: what stands still at a bound is about to move: the machine knows of the bound, and not for long.

    A partition is given away at its bound only when its promise counts, and all below is done or its time is over.
    """

    name = "I4"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._bound_at: dict[tuple[str, Partition, int], tuple[float, float]] = {}
        """Member, partition and acquisition -> time of its bound, and seconds within which it was to be reached."""
        self._at_bound: dict[tuple[str, Partition, int], float] = {}
        """The same -> time since which nothing of it is delivered because of its bound."""
        self._stood_until: dict[str, float] = {}
        """Member -> time at which it stood still last: it could end nothing."""

    def step(self) -> None:
        before, self._at_bound = self._at_bound, {}
        for member in self.world.members.values():
            if member.gone or member.frozen or member.stalled:
                self._stood_until[member.name] = self.world.scheduler.now
                continue
            for slot in member.user.slots.values():
                if slot.until is not None and slot.running:
                    self._bounded(member, slot, before)

    def _bounded(self, member: SimMember, slot: Slot, before: dict[tuple[str, Partition, int], float]) -> None:
        now, partition, known = self.world.scheduler.now, slot.partition, member.machine.snapshot()
        entry = known.assigned.get(partition)
        if partition not in known.slices.own or entry is None or entry.state is not AssignedState.RUNNING:
            self.violated(f"{member.name} has {partition} bounded at {slot.until}, and no slice of it")
        if not known.stable or not member.machine.log_works:
            self.violated(f"{member.name} has {partition} bounded at {slot.until} while nothing moves")
        key = member.name, partition, slot.acquisition_id
        bound_at, seconds = self._bound_at[key]
        since = max(bound_at, self._stood_until.get(member.name, bound_at))
        if now - since > COUNT_SECONDS + seconds + LATE_SECONDS + BOUND_SECONDS_MORE:
            self.violated(f"{member.name} has {partition} bounded at {slot.until} since {bound_at:.4f}")
        if slot.at_bound and slot.in_hand is None:
            since = self._at_bound[key] = before.get(key, now)
            if now - since > COUNT_SECONDS + BOUND_SECONDS_MORE:
                self.violated(f"{member.name} delivers nothing of {partition} at its bound since {since:.4f}")

    def commanded(self, member: SimMember, event: e.Event, commands: list[c.Command]) -> None:
        lifted = set()
        for command in commands:
            if isinstance(command, c.UnboundCommand):
                lifted.add(command.partition)
            elif isinstance(command, c.AwaitIdlePointCommand):
                slot = member.user.slots.get(command.partition)
                if slot is not None and slot.until is not None and command.partition not in lifted:
                    self.violated(f"{member.name} waits for an idle point of {command.partition}, which has a bound")
            elif isinstance(command, c.BoundCommand) and isinstance(event, e.SliceWantedEvent):
                key = member.name, command.partition, command.acquisition_id
                self._bound_at[key] = self.world.scheduler.now, event.seconds
                if not member.config.auto_commit:
                    self.violated(f"{member.name} slices {command.partition}, whose commits are user code's")
            elif isinstance(command, c.StopCommand):
                self._stopped(member, command)

    def _stopped(self, member: SimMember, command: c.StopCommand) -> None:
        """A bounded partition is stopped: by its slice, or because this member leaves or follows a plan."""
        machine, slot = member.machine, member.user.slots.get(command.partition)
        entry = machine.partitions.assigned.get(command.partition)
        leaves = member.leave_deadline != float("inf") or command.partition.topic not in machine.snapshot().subscribed
        if slot is None or slot.until is None or entry is None or leaves:
            return
        promise = machine.slices.promises.of(command.partition)
        if promise is None or (promise.source, promise.target) != (member.member, entry.target):
            self.violated(f"{member.name} gives {command.partition} away, which it has promised to nobody")
        bound_at, seconds = self._bound_at[member.name, command.partition, command.acquisition_id]
        early = self.world.scheduler.now < bound_at + seconds
        if early and not (slot.at_bound and slot.in_hand is None):
            self.violated(f"{member.name} stops {command.partition} at {slot.position}, below its bound {slot.until}")
        if entry.target in machine.peers.leaving:
            self.violated(f"{member.name} gives {command.partition} to {entry.target}, which leaves")


class PromisesAgree(Invariant):
    """Rule 14: members that read the same promise agree whether it counts, and its giver knew of all before it.

    A promise that counts for its giver was made in knowledge of every promise of another member to the same receiver
    that counted earlier: else two members fill one receiver without knowing of each other.
    """

    name = "promises"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._outcomes: dict[tuple[int, PromiseRecord], dict[str, bool]] = {}
        """Place in the log, and the promise there -> member that has missed nothing of its generation -> it counts."""
        self._unread: dict[str, dict[PromiseRecord, list[PromiseRecord]]] = {}
        """Member -> its promise that it has not read yet -> those of others to the same receiver that counted since."""
        self._counted: dict[str, set[PromiseRecord]] = {}
        """Member -> what counted for it in its generation: a copy in the log does not, though the promise is open."""

    def healed(self) -> None:
        """No member counts on work that its owner keeps: what is promised is about to go, or was taken back."""
        owners = {member.member: member for member in self.world.alive}
        for member in self.world.alive:
            for promise in member.machine.snapshot().slices.promises.values():
                owner = owners.get(promise.source)
                own = owner.machine.snapshot().slices.own if owner is not None else {}
                if promise.key not in own:
                    self.violated(f"{member.name} counts on {promise}, and nobody is to keep it")

    def commanded(self, member: SimMember, event: e.Event, commands: list[c.Command]) -> None:
        if isinstance(event, e.LogGapEvent):
            # What it has read may be lost to all others.
            for outcomes in self._outcomes.values():
                outcomes.pop(member.name, None)
            self._counted.pop(member.name, None)
        elif isinstance(event, e.LogReadEvent) and isinstance(event.record, PromiseRecord):
            self._read(member, event.offset, event.record)
        for command in commands:
            record = command.record if isinstance(command, c.AppendCommand) else None
            if isinstance(command, c.EnteredCommand):
                self._unread.pop(member.name, None)
                self._counted.pop(member.name, None)
            elif isinstance(record, PromiseRecord) and not record.taken_back:
                self._unread.setdefault(member.name, {})[record] = []

    def _read(self, member: SimMember, offset: int, promise: PromiseRecord) -> None:
        promises, known = member.machine.slices.promises, member.machine.snapshot()
        if promise.taken_back or known.owners is None or known.generation != promise.generation or not promises.whole:
            return
        counts = promises.of(promise.key) is promise
        outcomes = self._outcomes.setdefault((offset, promise), {})
        outcomes[member.name] = counts
        if len(set(outcomes.values())) > 1:
            self.violated(f"{promise} counts for some members: {outcomes}")
        mine = self._unread.get(member.name, {})
        unknown = mine.pop(promise, [])
        if counts and unknown:
            self.violated(f"{promise} counts, and {member.name} did not know of {unknown}")
        counted = self._counted.setdefault(member.name, set())
        anew = counts and promise not in counted
        counted.add(promise)
        for own, others in mine.items():
            if anew and own.target == promise.target and own.source != promise.source:
                others.append(promise)


ALL = (
    OneOwner,
    NothingLost,
    NothingTwice,
    NoWayBack,
    NoPause,
    Owned,
    OldLeader,
    PrefetchesEnd,
    BoundsEnd,
    PromisesAgree,
)
