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

import itertools
import math
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.ownership_records import LoadRecord, PromiseRecord

from .slicing import Peer, SliceError, predicted

__all__ = ["GroupNow", "PeerWork"]

KNOWN_SECONDS = 10.0
"""Older arrivals and handoffs are in every ``load`` record. Chosen: above the longest time between two of a member."""
BIN_SECONDS = 0.05
"""Own records that came within this time count as having come together, as in the simulator."""


class GroupNow(msgspec.Struct, frozen=True, kw_only=True):
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


class _Told(msgspec.Struct, frozen=True):
    at: float
    record: LoadRecord


class _Moved(msgspec.Struct, frozen=True):
    """Promised work that one member has taken, or has given (negative)."""

    at: float
    work: float
    rate: float


class PeerWork:
    """The fold of one generation. Deterministic; times are the caller's.

    Cost: O(1) per record; O(promises + members x own arrivals + handoffs since each member told) per question.
    """

    def __init__(self) -> None:
        self._generation = -1
        self._members: frozenset[str] = frozenset()
        self._told: dict[str, _Told] = {}
        self._moved: defaultdict[str, deque[_Moved]] = defaultdict(deque)
        """Member -> work that it took and gave since it told, in order."""
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
            self._moved.pop(record.member, None)

    def promised(self, now: float, promise: PromiseRecord) -> None:
        """Take in a promise that counts."""
        if promise.soft:
            self.soft_at = now

    def released(self, now: float, promise: PromiseRecord, target: str) -> None:
        """Take in a release that counts: what was promised went to this member."""
        if promise.generation == self._generation:
            self._move(promise.source, _Moved(now, -promise.work, -promise.rate))
            self._move(target, _Moved(now, promise.work, promise.rate))

    def came(self, at: float, seconds: float) -> None:
        """Records came to this member: as much work as arrives in so many seconds."""
        if self._came and at - self._came[-1][0] < BIN_SECONDS:
            self._came[-1] = (self._came[-1][0], self._came[-1][1] + seconds)
        else:
            self._came.append((at, seconds))
            # Here, for a member that slices nothing is asked for no peers.
            while self._came[0][0] < at - KNOWN_SECONDS:
                self._came.popleft()

    def peers(self, group: GroupNow) -> list[Peer]:
        """Return the members that may be given work now."""
        found, promised = [], _promised(group)
        for member in sorted(self._members):
            told = self._told.get(member)
            if member == group.me or told is None or member in group.away or member not in group.members:
                continue
            queue, capacity = told.record.work, told.record.capacity
            # A member of an older version tells neither of the two.
            if group.now - told.at > group.silent_seconds or queue is None or not capacity:
                continue
            moved = self._moved.get(member, ())
            rates = list(itertools.accumulate((each.rate for each in moved), initial=told.record.rate))
            changes = promised.get(member, []) + self._changes(told, moved, rates)
            try:
                busy = predicted(queue, told.at, changes, group.now, capacity)
                speed, slack = capacity / group.capacity, capacity - max(0.0, rates[-1])
                found.append(Peer(member=member, busy_seconds=busy, speed=speed, slack=slack))
            except SliceError:
                continue  # each number that it tells is within its bounds, and together they are too much
        return found

    def _changes(self, told: _Told, moved: Collection[_Moved], rates: Sequence[float]) -> list[tuple[float, float]]:
        """Return (when, work) that came to a member since it told, or went from it.

        Args:
            told: what it told last.
            moved: what it took or gave since.
            rates: work that arrived there per second when it told, and after each of ``moved``.
        """
        times = [each.at for each in moved]
        came = itertools.islice(self._came, bisect_right(self._came, (told.at, math.inf)), None)
        changes = [(at, seconds * max(0.0, rates[bisect_right(times, at)])) for at, seconds in came]
        return changes + [(each.at, each.work) for each in moved]

    def _move(self, member: str, change: _Moved) -> None:
        moved = self._moved[member]
        moved.append(change)
        while moved[0].at < change.at - KNOWN_SECONDS:
            moved.popleft()


def _promised(group: GroupNow) -> Mapping[str, list[tuple[float, float]]]:
    """Return member -> (when, work) that is promised to it, or by it (negative)."""
    found = defaultdict(list)
    for promise in group.promises.values():
        found[promise.target].append((group.now, promise.work))  # nobody works on it yet
        found[promise.source].append((-math.inf, -promise.work))  # it does not work on it any more
    for target, work in group.mine:
        found[target].append((group.now, work))
    return found
