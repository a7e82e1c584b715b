"""The work of the other members, as the coordination log tells it: the fold that slices are decided by.

Theory of operation. A ``load`` record tells how much work waited at a member when it was written, and how much arrives
there per second. Since then the member has worked, records came, and partitions changed hands, with what arrives in
them. What changes hands is told by promises. An open one counts for its receiver though nothing of it is there yet, and
no more for its giver. When its release was read the work is at the receiver, until a ``load`` record of the receiver
tells it. Work is neither lost nor made up.

How a member's records came since it told is judged by how one's own came: bursts reach all members of a topic together.

A member that has told nothing in this generation, or nothing lately, looks idle. It is given nothing: it may be dead.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.ownership_records import LoadRecord, PromiseRecord

from .slicing import Peer, SliceError, predicted

__all__ = ["GroupNow", "PeerWork"]

KNOWN_SECONDS = 10.0
"""Older arrivals and handoffs are in every ``load`` record. Chosen: above the longest time between two of a member."""
BIN_SECONDS = 0.05
"""Own records that came within this time count as having come together, as in the simulator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNow:
    """The group at one moment, as one member knows it. Times: any one clock, seconds."""

    now: float
    me: str
    members: Collection[str]
    """Members of the generation."""
    away: Collection[str]
    """Members that leave, and those that the leader's plan names as victims."""
    silent_seconds: float
    """A member is not given anything if its ``load`` record is older."""
    promises: Mapping[Partition, PromiseRecord]
    """Promises that count and are open."""
    mine: Iterable[tuple[str, float]]
    """(receiver, work) of own promises that were not read back yet."""
    capacity: float
    """Busy seconds per second that this member can give, above 0."""


@dataclass(frozen=True, slots=True)
class _Told:
    at: float
    record: LoadRecord


@dataclass(frozen=True, slots=True)
class _Moved:
    """Promised work that has changed hands."""

    at: float
    source: str
    target: str
    work: float
    rate: float


class PeerWork:
    """The fold of one generation. Deterministic; times are the caller's.

    Cost: O(1) per record; O(members x (arrivals + handoffs) of the last seconds) per question.
    """

    def __init__(self) -> None:
        self._generation = -1
        self._members: frozenset[str] = frozenset()
        self._told: dict[str, _Told] = {}
        self._moved: deque[_Moved] = deque()
        self._came: deque[tuple[float, float]] = deque()
        """(time, seconds' worth of own work that came), per :data:`BIN_SECONDS`."""
        self.soft_at = -math.inf
        """Time at which a soft slice was promised last, by any member."""

    def enter(self, generation: int, members: Collection[str]) -> None:
        """A generation begins: what was told in the one before says nothing of its owners."""
        self._generation, self._members = generation, frozenset(members)
        self._told.clear()
        self._moved.clear()

    def load(self, now: float, record: LoadRecord) -> None:
        """Take in a ``load`` record. One of another generation, or of no member of this one, is passed over."""
        if record.generation == self._generation and record.member in self._members:
            self._told[record.member] = _Told(now, record)

    def promised(self, now: float, promise: PromiseRecord) -> None:
        """Take in a promise that counts."""
        if promise.soft:
            self.soft_at = now

    def released(self, now: float, promise: PromiseRecord, target: str) -> None:
        """Take in a release that counts: what was promised went to this member."""
        if promise.generation == self._generation:
            self._moved.append(_Moved(now, promise.source, target, promise.work, promise.rate))

    def came(self, at: float, seconds: float) -> None:
        """Records came to this member: as much work as arrives in so many seconds."""
        if self._came and at - self._came[-1][0] < BIN_SECONDS:
            self._came[-1] = (self._came[-1][0], self._came[-1][1] + seconds)
        else:
            self._came.append((at, seconds))

    def peers(self, group: GroupNow) -> list[Peer]:
        """Return the members that may be given work now."""
        self._forget(group.now - KNOWN_SECONDS)
        found = []
        for member in sorted(self._members):
            told = self._told.get(member)
            if member == group.me or told is None or member in group.away or member not in group.members:
                continue
            queue, capacity = told.record.work, told.record.capacity
            # A member of an older version tells neither of the two.
            if group.now - told.at > group.silent_seconds or queue is None or not capacity:
                continue
            moved = [each for each in self._moved if each.at > told.at and member in (each.source, each.target)]
            changes = self._changes(group, member, told, moved)
            try:
                busy = predicted(queue, told.at, changes, group.now, capacity)
                speed, slack = capacity / group.capacity, capacity - _rate(member, told, moved, group.now)
                found.append(Peer(member=member, busy_seconds=busy, speed=speed, slack=slack))
            except SliceError:
                continue  # each number that it tells is within its bounds, and together they are too much
        return found

    def _changes(self, group: GroupNow, member: str, told: _Told, moved: Sequence[_Moved]) -> list[tuple[float, float]]:
        """(when, work) that came to a member since it told, or went from it; ``moved``: what it took or gave since."""
        changes = [(at, seconds * _rate(member, told, moved, at)) for at, seconds in self._came if at > told.at]
        for promise in group.promises.values():
            if promise.target == member:
                changes.append((group.now, promise.work))  # nobody works on it yet
            elif promise.source == member:
                changes.append((told.at, -promise.work))
        changes += [(group.now, work) for target, work in group.mine if target == member]
        changes += [(each.at, each.work if member == each.target else -each.work) for each in moved]
        return changes

    def _forget(self, before: float) -> None:
        while self._came and self._came[0][0] < before:
            self._came.popleft()
        while self._moved and self._moved[0].at < before:
            self._moved.popleft()


def _rate(member: str, told: _Told, moved: Sequence[_Moved], at: float) -> float:
    """Return the work that arrived at a member at that time: as it told, and as partitions changed hands since."""
    since = sum(each.rate if member == each.target else -each.rate for each in moved if each.at <= at)
    return max(0.0, told.record.rate + since)
