"""Partitions that change hands in the simulated group: one by one, or in Kafka's rebalances."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from loadtrim_agent.wire.ownership_records import MovePlan

from .protocols import Protocol as RebalanceProtocol
from .world import Member, World

__all__ = ["GroupLeader", "Handoff", "make_handoff"]

HEARTBEAT_SLACK = 1e-6
"""Share of the interval that rounding may take: a member's next heartbeat is a whole interval after the last."""


class GroupLeader(Protocol):
    """The part of the group's leader that a handoff needs."""

    def plan_moves(self) -> Sequence[MovePlan]:
        """Return the moves that it wants as the group is now: what an assignor is asked in a rebalance."""

    def scale(self) -> None:
        """Ask for replicas anew: a partition has arrived somewhere, or members are gone."""


class Handoff:
    """Ours: a partition that moves stops, and nothing else does.

    Args:
        world: the group.
        protocol: which, with its times.
        leader: of the group.
    """

    def __init__(self, world: World, protocol: RebalanceProtocol, leader: GroupLeader) -> None:
        self._world = world
        self._protocol = protocol
        self._leader = leader

    def joined(self, member: Member) -> None:
        """A member has come."""

    def leave(self, member: Member) -> None:
        """A member that owns nothing goes."""
        self._gone(member)

    def advise(self, moves: Sequence[MovePlan]) -> None:
        """The leader wants this."""
        for move in moves:
            self.move(self._world.index[(move.topic, move.partition)], move.source, move.target)  # type: ignore[index]

    def move(self, index: int, source: str, target: str) -> bool:
        """Hand a partition over; False: it is on its way or somebody else's, so nothing is done."""
        world = self._world
        if index in world.targets or world.owners[index] != source or world.members[target].left:
            return False
        world.targets[index] = target
        world.tally.moves[world.second()] += 1
        world.agenda.at(world.stop(index), self._release, index)
        return True

    def _release(self, index: int) -> None:
        world = self._world
        since = world.now
        world.lose(index)
        world.agenda.at(world.now + world.random.uniform(*self._protocol.handoff_seconds), self._take, index, since)

    def _take(self, index: int, since: float) -> None:
        target = self._world.members[self._world.targets[index]]
        if target.left:
            target = _roomiest(self._world)
        self._world.acquire(target, index, self._world.now - since)
        self._leader.scale()

    def _gone(self, member: Member) -> None:
        member.left = True
        self._world.generation += 1


class _Rebalances(Handoff):
    """The common part of Kafka's protocols: members that learn at heartbeats, and leave without being drained."""

    def _heartbeat(self, member: Member, after: float) -> float:
        """A member's first heartbeat after a moment."""
        every = self._protocol.heartbeat_seconds
        phase = member.heartbeat_phase * every
        return phase + (math.floor((after - phase) / every + HEARTBEAT_SLACK) + 1) * every

    def _stopping(self, member: Member) -> float:
        """A member hands nothing out any more; when its record in hand is done."""
        return max([self._world.now, *(self._world.stop(index) for index in sorted(member.worker.owned))])

    def leave(self, member: Member) -> None:
        """The member stops at once and says that it goes; what it owned waits for the others."""
        member.leaving = True
        self._world.agenda.at(self._stopping(member), self._said_goodbye, member)

    def _said_goodbye(self, member: Member) -> None:
        self._world.gather(member)
        self.changed()

    def joined(self, member: Member) -> None:
        self.changed()

    def changed(self) -> None:
        """Members came or went, or the leader wants partitions elsewhere."""
        raise NotImplementedError

    def _orphans(self, moves: Sequence[MovePlan]) -> list[tuple[int, str, str]]:
        """The moves, and for what members that go still own and no move is about, whoever owns fewest."""
        world = self._world
        wanted = [(world.index[(m.topic, m.partition)], m.source, m.target) for m in moves]  # type: ignore[index]
        planned = {index for index, _, _ in wanted} | set(world.targets)
        counts = {member.name: len(world.owned(member.name)) for member in world.active()}
        for member in world.present():
            for index in world.owned(member.name) if member.leaving else ():
                if index not in planned and counts:
                    target = min(counts, key=lambda name: (counts[name], name))
                    counts[target] += 1
                    wanted.append((index, member.name, target))
        return [entry for entry in wanted if entry[0] not in world.targets and world.owners[entry[0]] == entry[1]]

    def _farewell(self) -> None:
        """Members that go and own nothing are gone."""
        for member in self._world.present():
            if member.leaving and not self._world.owned(member.name):
                self._gone(member)
        self._leader.scale()


class _Barriers(_Rebalances):
    """The classic protocol: eager, or cooperative in two rounds."""

    def __init__(self, world: World, protocol: RebalanceProtocol, leader: GroupLeader) -> None:
        super().__init__(world, protocol, leader)
        self._running = False
        self._again = False
        self._missing: set[str] = set()
        self._wish: Sequence[MovePlan] = ()
        """The moves that the leader wants, where it has said so since the last assignment."""
        self._pending: list[tuple[int, str, float]] = []
        """(partition, target, given up at)."""

    def joined(self, member: Member) -> None:
        # Its JoinGroup is parked: nobody knows of it before all have come.
        member.parked = True
        self.changed()

    def advise(self, moves: Sequence[MovePlan]) -> None:
        if moves:
            self._wish = moves
            self.changed()

    def changed(self) -> None:
        if self._running:
            self._again = True
            return
        self._begin(self._assign)

    def _begin(self, then: Callable[[], None]) -> None:
        world = self._world
        self._running, self._again = True, False
        world.tally.rebalances[world.second()] += 1
        members = world.active()
        self._missing = {member.name for member in members}
        for member in members:
            newcomer = member.joined_at == world.now
            told = world.now if newcomer else self._heartbeat(member, world.now)
            world.agenda.at(told, self._told, member, then)

    def _told(self, member: Member, then: Callable[[], None]) -> None:
        stopped = self._stopping(member) if self._protocol.stops_all else self._world.now
        self._world.agenda.at(stopped, self._came, member, then)

    def _came(self, member: Member, then: Callable[[], None]) -> None:
        self._missing.discard(member.name)
        if not self._missing:
            self._world.agenda.at(self._world.now + self._protocol.sync_seconds, then)

    def _synced(self) -> None:
        """Heartbeats begin anew when members are told their partitions: from now on all ask at the same moments."""
        phase = self._world.now / self._protocol.heartbeat_seconds % 1.0
        for member in self._world.present():
            member.heartbeat_phase = phase

    def _assign(self) -> None:
        world, since = self._world, self._world.now
        self._synced()
        for member in world.present():
            member.parked = False
        moves = self._orphans(self._leader.plan_moves() or self._wish)
        self._wish = ()
        self._pending = []
        for index, _, target in moves:
            world.tally.moves[world.second()] += 1
            world.targets[index] = target
            self._pending.append((index, target, since))
            stopped = world.stop(index)
            if not self._protocol.stops_all:
                world.agenda.at(stopped, world.lose, index)
        if self._protocol.stops_all:
            self._deal()
            for member in world.active():
                for index in member.worker.owned:
                    world.queues[index].stopped = False
            self._end()
        elif self._pending:
            self._begin(self._second)
        else:
            self._end()

    def _second(self) -> None:
        self._synced()
        self._deal()
        self._end()

    def _deal(self) -> None:
        world = self._world
        for index, name, since in self._pending:
            world.lose(index)
            target = world.members[name]
            if target.left or target.leaving:
                target = _roomiest(world)
            world.acquire(target, index, world.now - since)
        self._pending = []

    def _end(self) -> None:
        self._running = False
        self._farewell()
        leaving = any(member.leaving for member in self._world.present())
        if self._again or leaving:
            self.changed()


class _Broker(_Rebalances):
    """KIP-848: no barrier; each member at its own heartbeats."""

    def advise(self, moves: Sequence[MovePlan]) -> None:
        if moves:
            self._go(self._orphans(moves))

    def changed(self) -> None:
        self._go(self._orphans(self._leader.plan_moves()))

    def _go(self, moves: Sequence[tuple[int, str, str]]) -> None:
        world = self._world
        world.tally.rebalances[world.second()] += bool(moves)
        for index, source, target in moves:
            world.targets[index] = target
            world.tally.moves[world.second()] += 1
            member = world.members[source]
            told = world.now if member.leaving else self._heartbeat(member, world.now)
            world.agenda.at(told, self._give_up, index)
        self._farewell()

    def _give_up(self, index: int) -> None:
        self._world.agenda.at(self._world.stop(index), self._given_up, index)

    def _given_up(self, index: int) -> None:
        world = self._world
        world.lose(index)
        target = world.members[world.targets[index]]
        world.agenda.at(self._heartbeat(target, world.now), self._take, index, world.now)

    def _take(self, index: int, since: float) -> None:
        target = self._world.members[self._world.targets[index]]
        if target.left or target.leaving:
            target = _roomiest(self._world)
        self._world.acquire(target, index, self._world.now - since)
        self._farewell()
        if any(member.leaving and self._world.owned(member.name) for member in self._world.present()):
            self.changed()


def _roomiest(world: World) -> Member:
    """Return the member that owns fewest, of those that stay."""
    return min(world.active(), key=lambda member: (len(world.owned(member.name)), member.name))


def make_handoff(world: World, protocol: RebalanceProtocol, leader: GroupLeader) -> Handoff:
    """Return what plays a protocol."""
    if not protocol.rebalances:
        return Handoff(world, protocol, leader)
    return (_Barriers if protocol.barrier else _Broker)(world, protocol, leader)
