"""The simulated group: its partitions, its members, and the agenda of what happens when."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

import msgspec

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.metering.meter import Meter, MeterConfig, split_report
from loadtrim_agent.planning.values import PlanConfig
from loadtrim_agent.wire.telemetry_records import ReportRecord

from .tally import Tally
from .work import Costs, Machines
from .worker import Queue, Worker

__all__ = ["EPOCH", "Agenda", "Member", "World"]

EPOCH = 1_700_000_000.0


class Agenda:
    """The list of what is to happen, in order of time; what is due at the same time happens in the order of asking."""

    def __init__(self, begin: float) -> None:
        self.now = begin
        self._entries: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._order = itertools.count()

    def at(self, when: float, action: Callable[..., None], *arguments: object) -> None:
        """Do this then; what is past is done next."""
        heapq.heappush(self._entries, (max(when, self.now), next(self._order), action, arguments))

    def step(self) -> bool:
        """Do what is due next; False: nothing is."""
        if not self._entries:
            return False
        self.now, _, action, arguments = heapq.heappop(self._entries)
        action(*arguments)
        return True


@dataclass(slots=True)
class Member:
    """One member: what it works on, and what it measures."""

    name: str
    number: int
    """Of all that were started, from 0."""
    worker: Worker
    meter: Meter
    speed: float
    requested_at: float
    joined_at: float
    heartbeat_phase: float
    """0 .. 1 of the heartbeat interval."""
    sequence: int = 0
    leaving: bool = False
    """True once it has stopped, while others are not told yet."""
    left: bool = False
    parked: bool = False
    """True while it waits to be let into the group; the leader does not know of it."""
    acquired_at: dict[int, float] = field(default_factory=dict)
    """Index of a partition -> when it was acquired last."""
    fetched: dict[int, int] = field(default_factory=dict)
    """Index of an owned partition -> offset up to which it was fetched."""


class World:
    """Partitions, members, ownership, and what was measured.

    Args:
        partitions: sorted.
        config: of the planner.
        costs: of a record.
        machines: what members are like.
        seed: all randomness comes from it, one stream for each purpose, so that what one policy does differently does
            not change another's load.
        begin: when the load begins.
    """

    def __init__(
        self,
        partitions: tuple[Partition, ...],
        config: PlanConfig,
        costs: Costs,
        machines: Machines,
        seed: int,
        begin: float,
    ) -> None:
        self.config = config
        self.costs = costs
        self.machines = machines
        self.begin = begin
        self.agenda = Agenda(begin)
        self.random = Random(f"group:{seed}")
        self.queues = [Queue(partition, index) for index, partition in enumerate(partitions)]
        self.index = {queue.partition: queue.index for queue in self.queues}
        self.owners: list[str | None] = [None] * len(partitions)
        self.targets: dict[int, str] = {}
        """Partitions on their way -> where to."""
        self.members: dict[str, Member] = {}
        self.generation = 1
        self.rates = [0.0] * len(partitions)
        """Records/s of each partition, smoothed, up to the last whole second."""
        self.tally = Tally(len(partitions))
        self._draw = costs.drawer(Random(f"costs:{seed}"))

    @property
    def now(self) -> float:
        return self.agenda.now

    def second(self) -> int:
        """Of the load, from 0."""
        return int(self.now - self.begin)

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(queue.partition.topic for queue in self.queues)

    def present(self) -> list[Member]:
        """Members that are in the group, in the order of their coming."""
        return [member for member in self.members.values() if not member.left]

    def active(self) -> list[Member]:
        """Return the members of them that are not about to go."""
        return [member for member in self.members.values() if not member.left and not member.leaving]

    def owned(self, name: str) -> list[int]:
        """Partitions of a member, sorted."""
        return [index for index, owner in enumerate(self.owners) if owner == name]

    def waited(self) -> Iterator[float]:
        """Of each record that is not done: seconds since it arrived."""
        return (self.now - stamp for queue in self.queues for stamp in queue.stamps[queue.head :])

    # -- members

    def join(self, requested_at: float, unseen_seconds: float = 0.0) -> Member:
        """A replica is there. It owns nothing yet, and its process began so much later than it was asked for."""
        number = len(self.members)
        name = f"m{number + 1:03}"
        speed = self.machines.speed(number)
        config = MeterConfig(
            group=self.config.group,
            sla_seconds=self.config.sla_seconds,
            instance=name,
            concurrency=float(self.machines.concurrency),
            speed=speed,
            started_at=requested_at + unseen_seconds,
        )
        member = Member(
            name=name,
            number=number,
            worker=Worker(self.now, self._draw, speed, self.machines.concurrency, self.machines.fetch_seconds),
            meter=Meter(config),
            speed=speed,
            requested_at=requested_at,
            joined_at=self.now,
            heartbeat_phase=self.random.random(),
        )
        self.members[name] = member
        return member

    def acquire(self, member: Member, index: int, handoff_seconds: float | None) -> None:
        """A member owns a partition from now on."""
        queue = self.queues[index]
        member.worker.advance(self.now)
        self.owners[index] = member.name
        self.targets.pop(index, None)
        queue.stopped = False
        member.worker.owned[index] = queue
        member.acquired_at[index] = self.now
        member.fetched[index] = queue.position
        member.meter.acquired(queue.partition, self.now, queue.position, queue.end(self.now), handoff_seconds)
        self._fetch(member, index)

    def stop(self, index: int) -> float:
        """Stop a partition: its owner delivers no more records of it.

        Returns:
            When the record in hand is done: now where none is.
        """
        queue = self.queues[index]
        owner = self.owners[index]
        if owner is None:
            return self.now
        worker = self.members[owner].worker
        worker.advance(self.now)
        queue.stopped = True
        if worker.first is queue:
            worker.first = None
        return worker.hand_until(queue) or self.now

    def lose(self, index: int) -> None:
        """The owner of a stopped partition, whose record in hand is done, has it no more; nothing where it has not."""
        owner = self.owners[index]
        if owner is None or index not in self.members[owner].worker.owned:
            return
        member = self.members[owner]
        self.gather(member)
        member.meter.lost(self.queues[index].partition, self.now)
        member.worker.owned.pop(index, None)
        member.fetched.pop(index, None)

    # -- measuring

    def gather(self, member: Member) -> None:
        """Tell a member's meter what was fetched and done until now."""
        now, worker = self.now, member.worker
        worker.advance(now)
        queues = self.queues
        for index, fetched in sorted(member.fetched.items()):
            if fetched < queues[index].known:
                self._fetch(member, index)
        if not worker.finished:
            return
        finished, worker.finished = worker.finished, {}
        for index in sorted(finished):
            told = finished[index]
            if told.busies:
                queue = self.queues[index]
                member.meter.done(queue.partition, now, told.latencies, told.busies, queue.position)
                if self.tally.done(self.second(), index, told.latencies, self.config.sla_seconds):
                    self._count_late(queue, told.latencies)
                queue.compact(member.fetched.get(index, queue.position))

    def _count_late(self, queue: Queue, latencies: Sequence[float]) -> None:
        """Count the late ones of the records that were done last of a partition, by when they arrived."""
        stamps = queue.stamps[queue.head - len(latencies) : queue.head]
        objective, begin = self.config.sla_seconds, self.begin
        self.tally.late(
            int(stamp - begin) for stamp, latency in zip(stamps, latencies, strict=True) if latency > objective
        )

    def count_left(self) -> None:
        """Count what is not done as late, by when it arrived."""
        self.tally.late(int(stamp - self.begin) for queue in self.queues for stamp in queue.stamps[queue.head :])

    def _fetch(self, member: Member, index: int) -> None:
        queue, fetched = self.queues[index], member.fetched[index]
        end = queue.end(self.now - self.machines.fetch_seconds)
        if end > fetched:
            stamps = queue.between(fetched, end)
            member.meter.fetched(queue.partition, self.now, stamps, next_offset=end, end_offset=end)
            member.fetched[index] = end

    def report(self, member: Member, slicing_off: str) -> tuple[ReportRecord, ...]:
        """Return what a member tells of the time since its last report; ``slicing_off``: as there."""
        self.gather(member)
        for index in sorted(member.fetched):
            queue = self.queues[index]
            end = queue.end(self.now)
            if member.fetched[index] == end:
                member.meter.observed(queue.partition, self.now, end)
        report = member.meter.report(self.now, member.name, self.generation, member.sequence)
        # What is fetched is told to the meter when it is looked at, which is later than in the agent.
        delay = None if report.arrival_delay is None else self.machines.fetch_seconds
        report = msgspec.structs.replace(report, slicing_off=slicing_off, arrival_delay=delay)
        self.tally.late_by_cause.update(report.late)
        parts = split_report(report)
        member.sequence = parts[-1].sequence + 1
        return parts
