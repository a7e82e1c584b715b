"""The task that looks whether this member will be done in time, and passes work on if another one would be.

:mod:`loadtrim_agent.planning.slicing` says what is decided, and why. :mod:`loadtrim_agent.planning.peer_work` folds
what is known of the other members. :mod:`loadtrim_agent.protocol.slices` gives a partition away at a bound. Here own
queues are counted: not while nothing waits, and not where slicing is off.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Mapping
from statistics import median

from loadtrim_agent.common.clock import boot_time, wall_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.settings import MemberSettings
from loadtrim_agent.kafka.fetch.chunk import Chunk
from loadtrim_agent.kafka.fetch.port import Fetcher
from loadtrim_agent.metering.meter import MeterSnapshot
from loadtrim_agent.planning.peer_work import GroupNow, PeerWork
from loadtrim_agent.planning.settling import DEAR_OBJECTIVES
from loadtrim_agent.planning.slicing import (
    BURST_SHARE,
    LOOK_SECONDS,
    QUIET_SHARE,
    SLICES_PER_LOOK_MAX,
    SOFT_SECONDS,
    Limits,
    Own,
    Slice,
    SlicingOff,
    Tier,
    sliced,
)
from loadtrim_agent.protocol.assigned_partition import AssignedState
from loadtrim_agent.protocol.events import SliceWantedEvent
from loadtrim_agent.protocol.pace import load_seconds
from loadtrim_agent.protocol.snapshot import MachineSnapshot
from loadtrim_agent.wire.ownership_records import LoadRecord, PromiseRecord

from .listener import Listener
from .loads_task import LoadsTask
from .metering_task import MeteringTask
from .oldest_first import OldestFirst
from .own_arrivals import Arrived, OwnArrivals
from .partition_stream import SLICE_RECORDS, Stream
from .ports import Member
from .record_buffer import RecordBuffer

__all__ = ["SlicingTask", "pause_seconds", "turn_of"]

log = logging.getLogger("loadtrim")

LOOK_SHARE = 0.03
"""Of the time that looks take at most: the more members there are, the longer a look takes. Wanted: 3 % of a
core while a member slices."""
ALONE_LOOK_SHARE = 0.2
"""Of the objective, between two looks of a member that is alone. Chosen."""
OBJECTIVE_SECONDS_MIN = 0.2
"""Measured (decision on slicing): below it members of a full group pass everything to and fro."""
SILENT_LOADS = 1.25
"""Of the longest time between two ``load`` records of a member. It is given nothing if its last is older. Chosen."""
HANDOFF_SECONDS = 0.015
"""The time of a handoff until some were measured: what the simulator charges."""
HANDOFFS_MIN = 5
HANDOFFS_MAX = 20
"""Of the last handoffs the median counts. Both chosen."""
REST_HANDOFFS = 4.0
"""A partition that came less than so many handoffs ago is not given on: two would be lost to nobody's hands. Chosen."""


def pause_seconds(look_seconds: float, alone_objective_seconds: float = 0.0) -> float:
    """Return the time to the next look.

    Args:
        look_seconds: of the agent's time that the last one took.
        alone_objective_seconds: W of a member that is alone, which looks only for what to deliver first; 0: it is not.
    """
    return max(LOOK_SECONDS, ALONE_LOOK_SHARE * alone_objective_seconds, look_seconds / LOOK_SHARE)


def turn_of(snapshot: MeterSnapshot, objective_seconds: float) -> OldestFirst | None:
    """Return the order of turns that are about as long as the time between two looks, by what records cost.

    None: turns round by round are no longer than that, and cost nothing to choose.
    """
    cost = max((seen.cost.mean for seen in snapshot.partitions if seen.cost is not None), default=0.0)
    records = max(1, int(LOOK_SECONDS / cost)) if cost > 0.0 else SLICE_RECORDS
    if records >= SLICE_RECORDS:
        return None
    return OldestFirst(records, objective_seconds, snapshot.clock_offset_seconds)


class _Waiting:
    """The work that waits at a member, from look to look. Busy seconds."""

    def __init__(self) -> None:
        self._work = 0.0
        self._quiet_at = math.inf
        """Boot clock: time of the last look, if the next one waits until something is fetched."""

    def grown(self, now: float, work: float, capacity: float, *, much: bool) -> float:
        """Take in the work that waits at a look, and whether it is much. Returns by how much it has grown.

        Nothing is looked at after little waited: until something is fetched that is worked off.
        """
        before = max(0.0, self._work - capacity * max(0.0, now - self._quiet_at))
        self._work, self._quiet_at = work, math.inf if much else now
        return work - before


class SlicingTask:
    """One member's slicing. All methods run in the agent's loop.

    Args:
        settings: of the user.
        metering: tells costs and rates, and the capacity as of the last report.
        loads: tells the others what waits here.
    """

    def __init__(self, settings: MemberSettings, metering: MeteringTask, loads: LoadsTask) -> None:
        self._unwanted = _unwanted(settings)
        self._objective = settings.sla_seconds
        self._metering = metering
        self.loads = loads
        self._work = PeerWork()
        """By the boot clock."""
        self._member: Member | None = None
        self._listener: Listener | None = None
        self._buffer: RecordBuffer | None = None
        self._fetcher: Fetcher | None = None
        self._arrivals = OwnArrivals(metering.meter)
        self._handoffs: deque[float] = deque(maxlen=HANDOFFS_MAX)
        self._promises: Mapping[Partition, PromiseRecord] = {}
        """Open promises as of the last record of the log."""
        self._fetched = asyncio.Event()
        """Set while records came since the last quiet look."""
        self._waiting = _Waiting()
        self.looks = 0
        """Close looks so far, for tests."""

    def attach(self, member: Member, listener: Listener, buffer: RecordBuffer, fetcher: Fetcher) -> None:
        """From now on these streams are looked at."""
        self._member, self._listener, self._buffer, self._fetcher = member, listener, buffer, fetcher

    # -- what the agent tells ------------------------------------------------------------------------------------

    def entered(self) -> None:
        """A generation began."""
        if self._unwanted:
            return
        group = self._group()
        self._work.enter(group.generation, group.assignment.members if group.assignment is not None else ())
        self._promises = {}
        self._arrivals.expect_nothing()

    def acquired(self, stream: Stream, seconds: float | None) -> None:
        """A stream is delivered from now on; ``seconds`` since its last owner stopped, if it came by a handoff."""
        self._arrivals.acquired(stream.partition)
        if seconds is not None:
            self._handoffs.append(seconds)

    def work_rate_of(self, partition: Partition) -> float | None:
        """Return the busy seconds/s that arrive in a partition, as its promise told; None: it came otherwise."""
        return self._arrivals.expected_rate(partition)

    def lost(self, stream: Stream) -> None:
        """A stream is not owned any more."""
        self._arrivals.lost(stream.partition)

    def fetched(self, stream: Stream, chunk: Chunk, end_offset: int | None) -> None:
        """Records were fetched."""
        if self._unwanted or self._arrivals.of(stream.partition) is None:
            return
        offset = self._snapshot().clock_offset_seconds
        if seconds := self._arrivals.fetched(stream.partition, chunk, end_offset, offset):
            self._work.came(boot_time(), seconds)
        self._fetched.set()

    def loaded(self, record: LoadRecord) -> None:
        """A member's load was read."""
        if not self._unwanted:
            self._work.load(boot_time(), record)

    def promised(self, record: PromiseRecord) -> None:
        """A promise was read, and folded into the group's."""
        if not self._unwanted:
            self._promises = self._group().slices.promises
            stands = self._promises.get(record.key)
            if stands is record:
                self._work.promised(boot_time(), record)
            mine = stands if stands is not None and stands.target == self._group().member else None
            self._arrivals.expect(record.key, mine.rate if mine is not None else 0.0)

    def released(self, partition: Partition, target: str) -> None:
        """A release of a partition to that member was read, and folded into ownership if it counts."""
        if not self._unwanted:
            before, self._promises = self._promises, self._group().slices.promises
            if partition in before and partition not in self._promises:
                self._work.released(boot_time(), before[partition], target)

    # -- looking -------------------------------------------------------------------------------------------------

    def off(self) -> SlicingOff:
        """Return why this member passes nothing on now; NOTHING: it may."""
        if self._unwanted is not SlicingOff.NOTHING:
            return self._unwanted
        group = self._group()
        if not group.config.auto_commit:
            return SlicingOff.MANUAL_COMMITS
        if self._listener is not None and self._listener.plain:
            return SlicingOff.LISTENER
        if self._objective < OBJECTIVE_SECONDS_MIN:
            return SlicingOff.OBJECTIVE
        if self._handoff_seconds() > DEAR_OBJECTIVES * self._objective:
            return SlicingOff.HANDOFFS
        if not self._snapshot().untold.at_next_call:
            return SlicingOff.UNTOLD
        if group.stable and not group.speaks_loadtrim:
            return SlicingOff.MIXED
        if group.member in group.leaving:
            return SlicingOff.LEAVING
        if not group.stable:
            return SlicingOff.REBALANCE
        if group.owners is None:
            return SlicingOff.BLIND
        return SlicingOff.NOTHING if group.slices.able else SlicingOff.LOG

    def lasting_off(self) -> SlicingOff:
        """Return the same as :meth:`off` but for what is soon over."""
        why = self.off()
        return SlicingOff.NOTHING if why.passing else why

    async def run(self) -> None:
        """Look for ever: every 20 ms while much waits, once for what was fetched while little does.

        While much waits the oldest is delivered first.
        """
        if self._unwanted:
            return
        assert self._buffer is not None, "attached at the start"
        took = 0.0
        while True:
            await self._fetched.wait()
            await asyncio.sleep(pause_seconds(took, self._objective if self._is_alone() else 0.0))
            began = boot_time()
            much = self.look()
            if self._buffer.turns.go_by_heads(turn_of(self._snapshot(), self._objective) if much else None):
                self._buffer.look_again()
            if not much:
                self._fetched.clear()
            took = boot_time() - began

    def look(self) -> bool:
        """Pass on what will not be done in time. Returns whether much waits."""
        if self.off() is not SlicingOff.NOTHING:
            self._waiting = _Waiting()
            return False
        for _ in range(SLICES_PER_LOOK_MAX):
            own = self._own()
            capacity = self._snapshot().capacity.value
            work, full = sum(entry.work for entry in own), self._objective * capacity
            much = work >= QUIET_SHARE * full
            grown = self._waiting.grown(boot_time(), work, capacity, much=much)
            if self._is_alone():
                return much
            if grown > BURST_SHARE * full and self.loads.tell_soon():
                return much  # next time the others' are known as well
            if not much:
                return False
            self.looks += 1
            choice = self._choice(own, capacity)
            if choice is None or not self._act(choice, own, capacity):
                break
        return True

    def _is_alone(self) -> bool:
        """Return whether there is nobody to pass anything on to, or to be told of a burst."""
        assignment = self._group().assignment
        return assignment is None or len(assignment.members) <= 1

    def _choice(self, own: list[Own], capacity: float) -> Slice | None:
        group, now = self._group(), boot_time()
        victims = group.plan.victims if group.plan is not None else ()
        entries = group.assignment.members if group.assignment is not None else {}
        topics = {entry.partition.topic for entry in own if entry.movable}
        members = {member for member, entry in entries.items() if topics.issubset(entry.topics)}
        promises = group.slices.promises
        peers = self._work.peers(
            GroupNow(
                now=now,
                me=group.member,
                members=members,
                away=group.leaving.union(victims),
                silent_seconds=SILENT_LOADS * load_seconds(len(entries)),
                promises=promises,
                mine=[(each.target, each.work) for each in group.slices.own.values() if not each.counts],
                capacity=capacity,
            )
        )
        incoming = sum(promise.work for promise in promises.values() if promise.target == group.member)
        limits = self._limits(max((entry.cost for entry in own), default=0.0), now)
        return sliced(own, peers, limits, incoming_seconds=incoming, capacity=capacity)

    def _limits(self, cost: float, now: float) -> Limits:
        handoff = self._handoff_seconds()
        return Limits(
            objective_seconds=self._objective,
            margin_seconds=min(handoff + 1.5 * cost, self._objective / 2.0),
            handoff_seconds=handoff,
            rest_seconds=REST_HANDOFFS * handoff,
            soft=now - self._work.soft_at >= SOFT_SECONDS,
        )

    def _own(self) -> list[Own]:
        """Return what waits in the partitions that are not going already."""
        assert self._buffer is not None
        group, now, wall_now = self._group(), boot_time(), wall_time()
        found = []
        for partition, stream in self._buffer.streams.items():
            view, seen = group.assigned.get(partition), self._metering.meter.work_of(partition)
            arrived = self._arrivals.of(partition)
            running = view is not None and view.acquisition_id == stream.acquisition_id
            if view is None or not running or view.state is not AssignedState.RUNNING:
                continue
            if seen is None or arrived is None or stream.paused:
                continue
            bound, cost = group.slices.own.get(partition), seen.cost_seconds
            end = self._end(partition, arrived)
            upto = end if bound is None else min(end, max(stream.position, bound.until))
            records, seconds = stream.open_work(now)
            work = max(0, upto - stream.position) * cost + max(0.0, records * cost - seconds)
            found.append(
                Own(
                    partition=partition,
                    work=work,
                    cost=cost,
                    newest_age=max(0.0, wall_now - self._newest_at(partition, arrived, end)) if work else 0.0,
                    movable=bound is None,
                    taken_seconds=now - arrived.acquired_at,
                    rate=seen.rate,
                )
            )
        return found

    def _end(self, partition: Partition, arrived: Arrived) -> int:
        """Return the end of a log as far as is known, what is not fetched yet included."""
        assert self._fetcher is not None
        return max(arrived.end, self._fetcher.end_offset(partition) or 0)

    def _newest_at(self, partition: Partition, arrived: Arrived, end: int) -> float:
        assert self._fetcher is not None
        told_at = self._fetcher.end_offset_at(partition)
        return told_at if end > arrived.end and told_at is not None else arrived.newest_at

    def _act(self, choice: Slice, own: list[Own], capacity: float) -> bool:
        """Promise a slice. Returns whether it was, so that it is worth looking again."""
        assert self._buffer is not None
        assert self._member is not None
        entry = next(each for each in own if each.partition == choice.partition)
        stream, arrived = self._buffer.streams[choice.partition], self._arrivals.of(choice.partition)
        assert arrived is not None, "only what is owned is chosen"
        until, seconds = stream.position, 0.0
        if choice.keep_records:
            given = int(entry.work / entry.cost + 1e-9) - choice.keep_records
            until = max(until, self._end(choice.partition, arrived) - given)
            seconds = (until - stream.position) * entry.cost / capacity
        work = max(0.0, entry.work - (until - stream.position) * entry.cost)
        log.debug("slice of %s at offset %d: %.3f s of work for %s", entry.partition, until, work, choice.target)
        before = len(self._group().slices.own)
        self._member.feed(
            SliceWantedEvent(
                now=boot_time(),
                partition=choice.partition,
                target=choice.target,
                until=until,
                work=work,
                rate=entry.rate,
                seconds=seconds,
                soft=choice.tier is Tier.SOFT,
            )
        )
        return len(self._group().slices.own) > before

    # -- small steps ---------------------------------------------------------------------------------------------

    def _handoff_seconds(self) -> float:
        return median(self._handoffs) if len(self._handoffs) >= HANDOFFS_MIN else HANDOFF_SECONDS

    def _group(self) -> MachineSnapshot:
        assert self._member is not None, "attached at the start"
        return self._member.snapshot()

    def _snapshot(self) -> MeterSnapshot:
        return self._metering.snapshot


def _unwanted(settings: MemberSettings) -> SlicingOff:
    """Return why a member with these settings never passes anything on; NOTHING: it may."""
    if settings.slicing == "off":
        return SlicingOff.SETTING
    return SlicingOff.SHADOW if settings.mode == "shadow" else SlicingOff.NOTHING
