"""Members that pass work on by their own decision, as :func:`~loadtrim_agent.planning.slicing.sliced` says.

What each of them knows is as old as it would be: its own queues as they are, the others' queues as their ``load``
records told them up to half a second ago, or when a burst came, the rate of each partition as measured up to the last
whole second, and what was promised or released since. Promises are known at the moment they are made; members of a
real group read them on the log (docs/decisions/placement.md#slicing).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from loadtrim_agent.planning.slicing import (
    BURST_SHARE,
    LOOK_SECONDS,
    QUIET_SHARE,
    SLICES_PER_LOOK_MAX,
    SOFT_SECONDS,
    Limits,
    Own,
    Peer,
    Slice,
    Tier,
    predicted,
    sliced,
)

from .handoff import Handoff
from .world import Member, World

__all__ = ["Slicer"]

LOAD_SECONDS = 0.5
"""The time between two ``load`` records."""
LOG_SECONDS = 0.005
"""From writing to the log until the others have read it."""
KNOWN_SECONDS = LOAD_SECONDS + LOG_SECONDS
"""The oldest fetch that still matters: whatever was fetched before is in every ``load`` record."""
BIN_SECONDS = 0.05
"""Within which records count as having come together."""
BURST_SECONDS = 0.001
"""Within which a burst comes: a member that tells it knows all of it."""


@dataclass(slots=True)
class _Told:
    """The last ``load`` record that others have read."""

    at: float
    queue_seconds: float


@dataclass(slots=True, eq=False)
class _Promise:
    """Work that one member passes on to another, now or when it has done what it keeps."""

    at: float
    index: int
    source: str
    target: str
    work: float
    moved_at: float = math.inf
    """The time when it began to change hands; infinite: not yet; minus infinity: it came to nothing."""


@dataclass(slots=True)
class _Order:
    """Do this partition first until then, and pass it on."""

    promise: _Promise
    until_position: int
    due_at: float = 0.0
    """The time when it was last expected to be carried out."""


class Slicer:
    """All members' slicing.

    Args:
        world: the group.
        handoff: how partitions change hands.
        victims: who is to go, and so is given nothing.
        end: when to stop looking.
    """

    def __init__(self, world: World, handoff: Handoff, victims: Callable[[], Collection[str]], end: float) -> None:
        config = world.config
        self._world = world
        self._handoff = handoff
        self._victims = victims
        self._end = end
        self._cost = world.costs.mean_seconds
        seconds = config.handoff_seconds
        margin = min(seconds + 1.5 * self._cost, config.sla_seconds / 2.0)
        self._limits = {
            soft: Limits(
                objective_seconds=config.sla_seconds, margin_seconds=margin, handoff_seconds=seconds, soft=soft
            )
            for soft in (False, True)
        }
        self._told: dict[str, _Told] = {}
        self._waited: dict[str, float] = {}
        """Work that waited at a member's last look."""
        self._promises: list[_Promise] = []
        """Of the last moments, in order."""
        self._orders: dict[str, list[_Order]] = {}
        """In the order in which they are carried out."""
        self._soft_at = world.begin - SOFT_SECONDS
        world.agenda.at(world.begin + world.machines.fetch_seconds + 1e-6, self._look_all, 0)
        world.agenda.at(world.begin, self._tell_all)

    # -- what is known

    def _tell_all(self) -> None:
        """Every member writes its ``load`` record."""
        world = self._world
        if world.now < self._end:
            world.agenda.at(world.now + LOAD_SECONDS, self._tell_all)
        for member in world.active():
            self._tell(member)

    def _tell(self, member: Member) -> None:
        world = self._world
        world.gather(member)
        record = member.meter.load(world.now, member.name, world.generation)
        queued = sum(queue.queue_seconds for queue in record.queues)
        told = _Told(world.now, queued * member.speed)
        world.agenda.at(world.now + LOG_SECONDS, self._told.__setitem__, member.name, told)

    def _capacity(self, member: Member) -> float:
        return member.speed * self._world.machines.concurrency

    def _waiting(self, member: Member, index: int) -> tuple[int, float]:
        """(records, stamp of the youngest) that the member has fetched of a partition and not done."""
        queue = self._world.queues[index]
        end = bisect_right(queue.stamps, self._world.now - self._world.machines.fetch_seconds, queue.head)
        return end - queue.head, queue.stamps[end - 1] if end > queue.head else 0.0

    def _peers(self, member: Member) -> list[Peer]:
        world, victims, came = self._world, self._victims(), self._came(member)
        peers = []
        for other in world.active():
            if other is member or other.name in victims:
                continue
            # A member that has just come has told nothing, and had nothing.
            told = self._told.get(other.name) or _Told(world.now - LOAD_SECONDS, 0.0)
            capacity = self._capacity(other)
            rate = sum(world.rates[index] for index in other.worker.owned)
            changes = self._changes(other, told.at, came, rate)
            peers.append(
                Peer(
                    member=other.name,
                    busy_seconds=predicted(told.queue_seconds, told.at, changes, world.now, capacity),
                    speed=capacity / self._capacity(member),
                    slack=capacity - self._cost * rate,
                )
            )
        return peers

    def _came(self, member: Member) -> list[tuple[float, float]]:
        """(when, seconds' worth) that came to this member's partitions since the oldest ``load`` record."""
        world = self._world
        rate = sum(world.rates[index] for index in member.worker.owned)
        if rate <= 0.0:
            return []
        fetched_until = world.now - world.machines.fetch_seconds
        begin = fetched_until - KNOWN_SECONDS
        edges = [begin + step * BIN_SECONDS for step in range(math.ceil(KNOWN_SECONDS / BIN_SECONDS))]
        edges.append(fetched_until)
        counts, sums = [0] * len(edges), [0.0] * len(edges)
        for index in member.worker.owned:
            stamps = world.queues[index].stamps
            places = [bisect_right(stamps, edge) for edge in edges]
            for step, (low, high) in enumerate(pairwise(places)):
                if high > low:
                    counts[step] += high - low
                    sums[step] += sum(stamps[low:high])
        return [(total / count, count / rate) for count, total in zip(counts, sums, strict=True) if count]

    def _changes(
        self, other: Member, told_at: float, came: Sequence[tuple[float, float]], rate: float
    ) -> list[tuple[float, float]]:
        """(when, work) that came to another member since it told, or went from it. ``rate``: of what it owns now."""
        changes = [
            (at, seconds * self._cost * self._rate(other, at, rate))
            for at, seconds in came
            if at > told_at - self._world.machines.fetch_seconds + BURST_SECONDS
        ]
        changes += [
            (promise.at, promise.work if promise.target == other.name else -promise.work)
            for promise in self._promises
            if promise.moved_at > told_at and other.name in (promise.source, promise.target)
        ]
        return changes

    def _rate(self, other: Member, at: float, rate: float) -> float:
        """Records/s of the partitions that it owned then: what changed hands later was the giver's."""
        rates, owned = self._world.rates, other.worker.owned
        for promise in self._promises:
            if at < promise.moved_at < math.inf:
                if promise.source == other.name and promise.index not in owned:
                    rate += rates[promise.index]
                elif promise.target == other.name and promise.index in owned:
                    rate -= rates[promise.index]
        return max(0.0, rate)

    # -- looking

    def _look_all(self, count: int) -> None:
        world = self._world
        if world.now < self._end:
            world.agenda.at(
                world.begin + world.machines.fetch_seconds + 1e-6 + (count + 1) * LOOK_SECONDS,
                self._look_all,
                count + 1,
            )
        for member in world.active():
            for _ in range(SLICES_PER_LOOK_MAX):
                if not self._look(member):
                    break

    def _look(self, member: Member) -> bool:
        """Return whether something was passed on, so that it is worth looking again."""
        world = self._world
        worker = member.worker
        worker.advance(world.now)
        self._pursue(member)
        cost = self._cost
        waiting = {index: self._waiting(member, index) for index in worker.owned}
        total = sum(count for count, _ in waiting.values()) * cost
        capacity = self._capacity(member)
        full = world.config.sla_seconds * capacity
        before, self._waited[member.name] = self._waited.get(member.name, 0.0), total
        if total - before > BURST_SHARE * full:
            self._tell(member)
            return False  # next time the others' are known as well
        if total < QUIET_SHARE * full:
            return False
        kept = {order.promise.index: order.until_position for order in self._orders.get(member.name, ())}
        own = []
        for index, (count, newest) in sorted(waiting.items()):
            # What is promised to somebody else is as good as gone, and what has been stopped for it is.
            stays = min(count, kept[index] - world.queues[index].position) if index in kept else count
            stays = 0 if index in world.targets else stays
            own.append(self._own(member, index, stays, newest, index not in kept))
        incoming = (
            sum(world.queues[i].lag(world.now) for i, name in world.targets.items() if name == member.name) * cost
        )
        soft = world.now - self._soft_at >= SOFT_SECONDS
        choice = sliced(
            own,
            self._peers(member),
            self._limits[soft],
            incoming_seconds=incoming,
            capacity=capacity,
        )
        return choice is not None and self._act(member, choice)

    def _own(self, member: Member, index: int, count: int, newest: float, free: bool) -> Own:
        queue = self._world.queues[index]
        return Own(
            partition=queue.partition,
            work=max(0, count) * self._cost / member.speed,
            cost=self._cost / member.speed,
            newest_age=self._world.now - newest if count else 0.0,
            movable=free and not queue.stopped and index not in self._world.targets,
            taken_seconds=self._world.now - member.acquired_at.get(index, 0.0),
        )

    # -- acting

    def _act(self, member: Member, choice: Slice) -> bool:
        """Return whether it is worth looking again at once."""
        world = self._world
        index = world.index[choice.partition]
        if choice.tier is Tier.SOFT:
            self._soft_at = world.now
        records = self._waiting(member, index)[0] - choice.keep_records
        self._promises = [promise for promise in self._promises if promise.moved_at > world.now - KNOWN_SECONDS]
        promise = _Promise(world.now, index, member.name, choice.target, records * self._cost)
        self._promises.append(promise)
        if not choice.keep_records:
            return self._pass_on(member, promise)
        orders = self._orders.setdefault(member.name, [])
        orders.append(_Order(promise, world.queues[index].position + choice.keep_records))
        self._pursue(member)
        return True

    def _pass_on(self, member: Member, promise: _Promise) -> bool:
        moved = self._handoff.move(promise.index, member.name, promise.target)
        self._world.tally.slices[self._world.second()] += moved
        promise.moved_at = self._world.now if moved else -math.inf
        return moved

    def _due(self, member: Member) -> None:
        if not member.left:
            member.worker.advance(self._world.now)
            self._pursue(member)

    def _pursue(self, member: Member) -> None:
        """Follow the first order up, and those after it."""
        world, worker = self._world, member.worker
        orders = self._orders.get(member.name)
        while orders:
            order = orders[0]
            promise = order.promise
            queue = world.queues[promise.index]
            valid = promise.index in worker.owned and not queue.stopped and not world.members[promise.target].left
            left = order.until_position - queue.position
            hand = worker.hand_until(queue)
            if valid and (left > 1 or (left == 1 and hand is None)):
                worker.first = queue
                due = (hand or world.now) + (left - (hand is not None)) * self._cost / member.speed
                if due > world.now and order.due_at != due:
                    order.due_at = due
                    world.agenda.at(due, self._due, member)
                return
            orders.pop(0)
            worker.first = None
            if valid and promise.target not in self._victims():
                self._pass_on(member, promise)
            else:
                promise.moved_at = -math.inf
