"""A group under load, record by record in virtual time, with the real planner and the real meters.

What is real: :class:`~loadtrim_agent.core.plan.planner.Planner` and a
:class:`~loadtrim_agent.core.plan.measure.Meter` per member, reports included. What is a model: records that arrive and
wait, a member's work on the oldest head first, handoffs that take milliseconds, and an orchestrator that starts and
stops what it is asked to. Membership is taken for granted here (:mod:`.world` is about that), so leaders do not change
and nobody crashes.

From one seed; nothing else decides about order.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from loadtrim_agent.core.model import Partition
from loadtrim_agent.core.plan.measure import Meter, MeterConfig, split_report
from loadtrim_agent.core.plan.planner import Planner, scale_request
from loadtrim_agent.core.plan.values import GroupState, MemberState, PlanConfig
from loadtrim_agent.core.records import DecisionRecord, ReportRecord

__all__ = ["Fleet", "FleetOptions", "Load", "Outcome"]

EPOCH = 1_700_000_000.0
TOPIC = "orders"
FETCH_SECONDS = 0.003
"""From a record's arrival until its owner has fetched it."""
HANDOFF_SECONDS = (0.010, 0.018)
"""Least and most from a release until the new owner starts."""
REPORT_SECONDS = 0.01
"""From a report's making until the leader has heard it."""
JOIN_SECONDS = 0.05
"""A replica that is ready needs this long to join."""
BURST_AT = 0.3
"""Where in a second a burst comes, and the leader's clock ticks anywhere."""
COST_SECONDS_MIN = 1e-4
AFTER_SECONDS = 5.0
"""Time given at the end to finish what waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What arrives."""

    per_second: tuple[float, ...]
    """Records in each second; a fraction is a chance."""
    shares: tuple[float, ...]
    """Weight of each partition."""
    dealing: str = "random"
    """``random``: each record goes to a partition at random; ``even``: to the one that is furthest behind its share, so
    that every second's records divide as exactly as whole records can (the demo's producer does that)."""
    spacing: str = "even"
    """``burst``: all records of a second at once; ``even``: at random moments of it (so they come as Poisson does)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """What the group is like."""

    seed: int = 1
    cost_seconds: float = 0.005
    cost_sd_seconds: float = 0.0
    startup_seconds: float = 1.0
    """From the request for a replica until it is ready."""
    replicas: int = 1
    """At the start, each with its even part of the partitions."""
    concurrency: float = 1.0
    last_report: bool = True
    """Does a member that leaves tell what it measured since its last report?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it."""

    arrived: int
    latencies: tuple[float, ...]
    """Seconds from arrival until done, in order of completion."""
    in_time: int
    replica_minutes: float
    """From the request for a replica until it is gone, in the time of the load."""
    moves: int
    late_by_cause: dict[str, int]
    decisions: tuple[tuple[float, DecisionRecord], ...]
    """(seconds since the start, decision)."""

    @property
    def share_in_time(self) -> float:
        return self.in_time / self.arrived if self.arrived else 1.0

    def scalings(self, after_seconds: float = 0.0) -> int:
        """Changes of the wanted number of replicas."""
        wanted = [decision.replicas_wanted for at, decision in self.decisions if at >= after_seconds]
        return sum(before != now for before, now in pairwise(wanted))

    def first_above(self, replicas: int, since_seconds: float) -> float | None:
        """Seconds from ``since_seconds`` until more replicas than that were wanted."""
        for at, decision in self.decisions:
            if at >= since_seconds and decision.replicas_wanted > replicas:
                return at - since_seconds
        return None


@dataclass(slots=True)
class _Member:
    name: str
    meter: Meter
    requested_at: float
    joined_at: float
    owned: set[Partition] = field(default_factory=set)
    in_hand: set[Partition] = field(default_factory=set)
    sequence: int = 0
    left: bool = False


@dataclass(slots=True)
class _Queue:
    """One partition: stamps of the records that are not done."""

    waiting: deque[float] = field(default_factory=deque)
    owner: str | None = None
    target: str | None = None
    """Where it is going to."""
    position: int = 0
    end: int = 0
    fetched: int = 0


class Fleet:
    """One run. Build it, :meth:`run` it once."""

    def __init__(self, load: Load, config: PlanConfig, options: FleetOptions) -> None:
        self._load = load
        self._config = config
        self._options = options
        self._random = Random(options.seed)
        self._planner = Planner(config)
        self._queues = {Partition(TOPIC, index): _Queue() for index in range(len(load.shares))}
        self._partitions = sorted(self._queues)
        self._members: dict[str, _Member] = {}
        self._events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._order = itertools.count()
        self._now = EPOCH
        self._end = EPOCH + len(load.per_second)
        self._born = 0
        self._starting = 0
        self._generation = 1
        self._last: DecisionRecord | None = None
        self._arrived = 0
        self._credits = [0.0] * len(load.shares)
        self._moves = 0
        self._replica_seconds = 0.0
        self._latencies: list[float] = []
        self._late: Counter[str] = Counter()
        self._decisions: list[tuple[float, DecisionRecord]] = []

    def run(self) -> Outcome:
        """Play the load to its end and a few seconds beyond."""
        for _ in range(self._options.replicas):
            self._join(self._now)
        names = sorted(self._members)
        for index, partition in enumerate(self._partitions):
            self._acquire(self._members[names[index % len(names)]], partition, None)
        self._at(EPOCH, self._arrivals, 0)
        self._at(EPOCH + self._random.random(), self._tick)
        while self._events and self._events[0][0] <= self._end + AFTER_SECONDS:
            self._now, _, action, arguments = heapq.heappop(self._events)
            action(*arguments)
        for member in self._present():
            self._count(member, self._end)
        objective = self._config.objective_seconds
        return Outcome(
            arrived=self._arrived,
            latencies=tuple(self._latencies),
            in_time=sum(latency <= objective for latency in self._latencies),
            replica_minutes=self._replica_seconds / 60.0,
            moves=self._moves,
            late_by_cause=dict(sorted(self._late.items())),
            decisions=tuple(self._decisions),
        )

    def _at(self, at: float, action: Callable[..., None], *arguments: object) -> None:
        heapq.heappush(self._events, (at, next(self._order), action, arguments))

    def _present(self) -> list[_Member]:
        return [member for member in self._members.values() if not member.left]

    # -- records

    def _arrivals(self, second: int) -> None:
        """All records of one second; the next one's are made when it begins, which keeps the queue of events short."""
        if second >= len(self._load.per_second):
            return
        rate = self._load.per_second[second]
        count = math.floor(rate) + (self._random.random() < rate - math.floor(rate))
        chosen = self._deal(count)
        if self._load.spacing == "burst":
            self._at(EPOCH + second + BURST_AT + self._random.random() * 0.004, self._arrive, chosen)
        else:
            for partition in chosen:
                self._at(EPOCH + second + self._random.random(), self._arrive, [partition])
        self._at(EPOCH + second + 1.0, self._arrivals, second + 1)

    def _deal(self, count: int) -> list[Partition]:
        """Where the next records go."""
        shares = self._load.shares
        if self._load.dealing == "random":
            return self._random.choices(self._partitions, weights=shares, k=count)
        chosen = []
        for _ in range(count):
            self._credits = [credit + share for credit, share in zip(self._credits, shares, strict=True)]
            index = max(range(len(shares)), key=lambda which: (self._credits[which], -which))
            self._credits[index] -= sum(shares)
            chosen.append(self._partitions[index])
        return chosen

    def _arrive(self, partitions: Sequence[Partition]) -> None:
        self._arrived += len(partitions)
        for partition in partitions:
            queue = self._queues[partition]
            queue.waiting.append(self._now)
            queue.end += 1
        for partition in sorted(set(partitions)):
            self._at(self._now + FETCH_SECONDS, self._fetch_due, partition)

    def _fetch_due(self, partition: Partition) -> None:
        queue = self._queues[partition]
        if queue.owner is not None and queue.target is None:
            member = self._members[queue.owner]
            self._fetch(member, partition)
            self._serve(member)

    def _fetch(self, member: _Member, partition: Partition) -> None:
        queue = self._queues[partition]
        if queue.fetched < queue.end:
            stamps = list(itertools.islice(queue.waiting, queue.fetched - queue.position, None))
            member.meter.fetched(partition, self._now, stamps, next_offset=queue.end, end_offset=queue.end)
            queue.fetched = queue.end
        else:
            member.meter.observed(partition, self._now, queue.end)

    def _serve(self, member: _Member) -> None:
        """Take the oldest record that was fetched, as long as there is somebody to work on it."""
        while len(member.in_hand) < self._options.concurrency:
            able = [
                (self._queues[p].waiting[0], p)
                for p in member.owned
                if p not in member.in_hand
                and self._queues[p].target is None
                and self._queues[p].position < self._queues[p].fetched
            ]
            if not able:
                return
            partition = min(able)[1]
            member.in_hand.add(partition)
            spread = self._options.cost_sd_seconds
            cost = self._options.cost_seconds + (self._random.gauss(0.0, spread) if spread else 0.0)
            cost = max(COST_SECONDS_MIN, cost)
            self._at(self._now + cost, self._done, member, partition, cost)

    def _done(self, member: _Member, partition: Partition, cost: float) -> None:
        queue = self._queues[partition]
        member.in_hand.discard(partition)
        latency = self._now - queue.waiting.popleft()
        queue.position += 1
        self._latencies.append(latency)
        member.meter.done(partition, self._now, [latency], [cost], queue.position)
        if queue.target is not None:
            self._release(partition)
        self._serve(member)

    # -- handoffs

    def _acquire(self, member: _Member, partition: Partition, handoff_seconds: float | None) -> None:
        queue = self._queues[partition]
        queue.owner, queue.target, queue.fetched = member.name, None, queue.position
        member.owned.add(partition)
        member.meter.acquired(partition, self._now, queue.position, queue.end, handoff_seconds)
        self._fetch(member, partition)
        self._serve(member)

    def _release(self, partition: Partition) -> None:
        queue = self._queues[partition]
        assert queue.owner is not None
        source = self._members[queue.owner]
        source.meter.lost(partition, self._now)
        source.owned.discard(partition)
        self._at(self._now + self._random.uniform(*HANDOFF_SECONDS), self._taken, partition, self._now)
        self._serve(source)

    def _taken(self, partition: Partition, since: float) -> None:
        target = self._queues[partition].target
        assert target is not None
        assert not self._members[target].left, "a partition was moved to a member that is gone"
        self._acquire(self._members[target], partition, self._now - since)
        self._scale()

    # -- the leader

    def _report(self, member: _Member) -> None:
        if member.left:
            return
        for partition in sorted(member.owned):
            queue = self._queues[partition]
            if queue.fetched == queue.end:
                member.meter.observed(partition, self._now, queue.end)
        self._tell(member)
        self._at(self._now + self._config.report_seconds, self._report, member)

    def _tell(self, member: _Member) -> None:
        report = member.meter.report(self._now, member.name, self._generation, member.sequence)
        self._late.update(report.late)
        for part in split_report(report):
            member.sequence = part.sequence + 1
            self._at(self._now + REPORT_SECONDS, self._hear, part)

    def _hear(self, report: ReportRecord) -> None:
        self._planner.observe(report, self._now)

    def _group(self) -> GroupState:
        present = self._present()
        return GroupState(
            generation=self._generation,
            leader=min(member.name for member in present),
            members={
                member.name: MemberState(instance=member.name, topics=frozenset({TOPIC}), joined_at=member.joined_at)
                for member in present
            },
            owners={partition: queue.owner for partition, queue in self._queues.items()},
            in_flight={p: queue.target for p, queue in self._queues.items() if queue.target is not None},
            replicas_requested=None if self._last is None else self._last.replicas_wanted,
        )

    def _tick(self) -> None:
        self._at(self._now + self._config.decision_seconds, self._tick)
        self._decide()

    def _decide(self) -> None:
        decision = self._planner.decide(self._now, self._group())
        self._last = decision
        self._decisions.append((self._now - EPOCH, decision))
        for move in decision.moves:
            partition = Partition(move.topic, move.partition)
            queue = self._queues[partition]
            if queue.target is None and queue.owner == move.source:
                queue.target = move.target
                self._moves += 1
                if partition not in self._members[move.source].in_hand:
                    self._release(partition)
        self._scale()

    # -- the orchestrator

    def _scale(self) -> None:
        """Stop who is named, start who is missing."""
        if self._last is None or not self._config.can_scale or self._config.mode != "active":
            return
        request = scale_request(self._last, self._group())
        if not request.ask:
            return
        for name in request.victims:
            self._leave(self._members[name])
        missing = request.replicas - len(self._present()) - self._starting
        for _ in range(missing):
            self._starting += 1
            self._at(self._now + self._options.startup_seconds + JOIN_SECONDS, self._ready, self._now)

    def _leave(self, member: _Member) -> None:
        if self._options.last_report:
            self._tell(member)
        member.left = True
        self._generation += 1
        self._count(member, min(self._now, self._end))

    def _ready(self, requested_at: float) -> None:
        self._starting -= 1
        assert self._last is not None
        if len(self._present()) >= scale_request(self._last, self._group()).replicas:
            self._replica_seconds += max(0.0, min(self._now, self._end) - requested_at)
            return
        self._join(requested_at)
        self._generation += 1
        self._at(self._now + 0.03, self._decide)

    def _join(self, requested_at: float) -> None:
        self._born += 1
        name = f"m{self._born:03}"
        config = MeterConfig(
            group=self._config.group,
            objective_seconds=self._config.objective_seconds,
            instance=name,
            concurrency=self._options.concurrency,
            started_at=requested_at,
        )
        self._members[name] = _Member(name, Meter(config), requested_at, self._now)
        self._at(self._now + self._random.random() * self._config.report_seconds, self._report, self._members[name])

    def _count(self, member: _Member, until: float) -> None:
        self._replica_seconds += max(0.0, until - member.requested_at)
