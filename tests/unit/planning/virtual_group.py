"""A group in virtual time, for the tests of planning: arrivals, queues, reports, and who does what the plan says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from msgspec.structs import replace

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.placement.problem import Bin, Item, Limits, Problem
from loadtrim_agent.planning.planner import scale_request
from loadtrim_agent.planning.registry import make_planner
from loadtrim_agent.planning.values import TAUS_SECONDS, GroupState, MemberState, PlanConfig, units_of
from loadtrim_agent.wire.ownership_records import ManualOverrideRecord
from loadtrim_agent.wire.telemetry_records import DecisionRecord, PartitionReport, ReportRecord

T = 1_700_000_000.0
TOPIC = "orders"
SLOTS = 10
COST = 0.005
STUCK = ("paused", "blocked")


def partition(number: int, topic: str = TOPIC) -> Partition:
    return Partition(topic, number)


def item(number: int, owner: str | None, work: float = 0.0, **more: Any) -> Item:
    """A partition with an even stream of work; ``burst`` comes with every window on top."""
    burst = float(more.pop("burst", 0.0))
    topic = str(more.pop("topic", TOPIC))
    cost = float(more.setdefault("cost", COST))
    more.setdefault("rate", work / cost if cost > 0 else 0.0)
    more.setdefault("mean", tuple(work * tau + burst for tau in TAUS_SECONDS))
    return Item(partition=partition(number, topic), owner=owner, work=work, **more)


def bins(*members: str, capacity: float = 1.0, leaving: Sequence[str] = ()) -> tuple[Bin, ...]:
    return tuple(
        Bin(member=member, unit=f"i-{member}", capacity=capacity, leaving=member in leaving)
        for member in sorted(members)
    )


def problem(items: Sequence[Item], members: Sequence[Bin], **more: Any) -> Problem:
    more.setdefault("limits", Limits(objective_seconds=0.5, handoff_seconds=0.0))
    ordered = tuple(sorted(items, key=lambda entry: entry.partition))
    return Problem(items=ordered, bins=tuple(sorted(members, key=lambda b: b.member)), **more)


class Fleet:
    """Members, their partitions and queues; one step is one second: arrivals, work, reports, a decision."""

    def __init__(
        self,
        config: PlanConfig,
        rates: Callable[[int], Sequence[float]],
        *,
        members: int = 2,
        cost: float = COST,
        bursts: bool = False,
        consumers: int = 1,
    ) -> None:
        """``rates``: second -> records/s of each partition. ``bursts``: all of them in the first slot of a second.
        ``consumers``: members of each instance that the orchestrator starts."""
        self.config = config
        self.planner = make_planner(config)
        self.rates = rates
        self.cost = cost
        self.bursts = bursts
        self.consumers = consumers
        self.second = 0
        self.sequence = 0
        self.members: dict[str, MemberState] = {}
        self.concurrency: dict[str, float] = {}
        self.reported: dict[str, Any] = {}
        """Fields of every report beside what happens."""
        self.born = 0
        self.partitions = [partition(number) for number in range(len(rates(0)))]
        self.lag = dict.fromkeys(self.partitions, 0.0)
        self.oldest = dict.fromkeys(self.partitions, 0.0)
        self.silent: set[str] = set()
        self.states: dict[Partition, str] = {}
        self.limited_to: float | None = None
        self.in_flight: dict[Partition, str] = {}
        self.manual_override: ManualOverrideRecord | None = None
        self.generation = 1
        self.requested: int | None = None
        self.standing: int | None = None
        self.pending: list[int] = []
        self.history: list[DecisionRecord] = []
        self.reports: list[tuple[ReportRecord, float]] = []
        for _ in range(members):
            self.join()
        self.owners: dict[Partition, str | None] = {
            entry: sorted(self.members)[number % members] if members else None
            for number, entry in enumerate(self.partitions)
        }

    # -- the group

    @property
    def now(self) -> float:
        return T + self.second

    def join(self, instance: str | None = None, concurrency: float = 1.0) -> str:
        self.born += 1
        name = f"m{self.born:02}"
        self.members[name] = MemberState(
            instance=instance if instance is not None else f"pod-{self.born:02}",
            topics=frozenset({TOPIC}),
            joined_at=self.now,
        )
        self.concurrency[name] = concurrency
        return name

    def start(self) -> str:
        """An instance with as many members as each has; its name."""
        name = f"pod-{self.born + 1:02}"
        for _ in range(self.consumers):
            self.join(name)
        return name

    def leaving(self, member: str) -> None:
        self.members[member] = replace(self.members[member], leaving=True)

    def remove(self, member: str) -> None:
        del self.members[member]
        for entry, owner in self.owners.items():
            if owner == member:
                self.owners[entry] = None

    def state(self) -> GroupState:
        return GroupState(
            generation=self.generation,
            leader=min(self.members, default=""),
            members=dict(self.members),
            owners=dict(self.owners),
            unowned_lag={p: round(self.lag.get(p, 0.0)) for p, owner in self.owners.items() if owner is None},
            in_flight=dict(self.in_flight),
            manual_override=self.manual_override,
            replicas_requested=self.requested,
            replicas_standing=self.standing,
        )

    # -- one second

    def tick(self) -> None:
        """A second of arrivals and work, and every member's report of it."""
        arrived = {
            entry: [rate, *[0.0] * (SLOTS - 1)] if self.bursts else [rate / SLOTS] * SLOTS
            for entry, rate in zip(self.partitions, self.rates(self.second), strict=True)
        }
        done = self._work()
        start = self.now
        self.second += 1
        for member in sorted(self.members.keys() - self.silent):
            report = self._report(member, start, arrived, done)
            self.reports.append((report, self.now))
            self.planner.observe(report, self.now)
        self.sequence += 1

    def decide(self) -> DecisionRecord:
        decision = self.planner.decide(self.now, self.state())
        self.history.append(decision)
        return decision

    def step(self) -> DecisionRecord:
        """A second, a decision, and the moves that it advises, made at once."""
        self.tick()
        decision = self.decide()
        self.apply(decision)
        return decision

    def apply(self, decision: DecisionRecord) -> None:
        """Make the moves that a decision advises."""
        for move in decision.moves:
            moved = Partition(move.topic, move.partition)
            assert self.owners[moved] == move.source
            self.owners[moved] = move.target

    def run(self, seconds: int) -> DecisionRecord:
        for _ in range(seconds):
            decision = self.step()
        return decision

    def run_scaled(self, seconds: int, startup: int = 0) -> None:
        """The same with an orchestrator that does what it is asked for, after ``startup`` seconds."""
        for _ in range(seconds):
            decision = self.step()
            request = scale_request(decision, self.state(), self.config)
            self.requested = decision.replicas_wanted
            for unit in units_of(self.state()):
                if unit.instance in request.victims:
                    for member in unit.members:
                        self.remove(member)
            there = len(units_of(self.state()))
            for _ in range(request.replicas - there - len(self.pending)):
                self.pending.append(self.second + startup)
            for due in [due for due in self.pending if due <= self.second]:
                self.pending.remove(due)
                self.start()

    def _work(self) -> dict[Partition, float]:
        """Queues after this second, each member's work shared in proportion to what waits."""
        rates = dict(zip(self.partitions, self.rates(self.second), strict=True))
        waits = {p: self.lag[p] + rates[p] for p in self.partitions}
        done = dict.fromkeys(self.partitions, 0.0)
        running = {m: [p for p in self._owned(m) if self.states.get(p) not in STUCK] for m in self.members}
        asked = {member: sum(waits[p] for p in owned) for member, owned in running.items()}
        able = {member: min(asked[member], self.concurrency[member] / max(self.cost, 1e-9)) for member in self.members}
        shrink = 1.0
        if self.limited_to is not None:
            shrink = min(1.0, self.limited_to / max(sum(able.values()), 1e-9))
        for member, owned in running.items():
            for entry in owned:
                done[entry] = waits[entry] * able[member] * shrink / asked[member] if asked[member] > 0 else 0.0
        for entry in self.partitions:
            self.lag[entry] = max(0.0, waits[entry] - done[entry])
            age = self.lag[entry] / rates[entry] if rates[entry] > 0 else self.oldest[entry] + 1.0
            self.oldest[entry] = age if self.lag[entry] > 0.5 else 0.0
        return done

    def _owned(self, member: str) -> list[Partition]:
        return [entry for entry in self.partitions if self.owners[entry] == member]

    def _report(
        self, member: str, start: float, arrived: dict[Partition, list[float]], done: dict[Partition, float]
    ) -> ReportRecord:
        owned = self._owned(member)
        sized = [entry for entry in owned if self.states.get(entry) not in STUCK]
        return ReportRecord(
            group=self.config.group,
            member=member,
            at=start + 1.0,
            sequence=self.sequence,
            generation=self.generation,
            instance=self.members[member].instance or "",
            concurrency=self.concurrency[member],
            **self.reported,
            busy_seconds=sum(done[p] for p in owned) * self.cost,
            in_time=sum(round(done[p]) for p in owned),
            latency_seconds=sum(round(done[p]) * (self.cost + self.oldest[p]) for p in owned),
            slots_start=start,
            slots=tuple(sum(arrived[p][slot] for p in sized) * self.cost for slot in range(SLOTS)),
            partitions=tuple(
                PartitionReport(
                    topic=p.topic,
                    partition=p.partition,
                    arrived=round(sum(arrived[p])),
                    done=round(done[p]),
                    lag=round(self.lag[p]),
                    lag_min=round(self.lag[p]),
                    lag_seconds=self.oldest[p],
                    cost_mean=self.cost if self.cost > 0 else None,
                    state=self.states.get(p, "running"),
                )
                for p in owned
            ),
        )


def even(count: int, total: float) -> Callable[[int], list[float]]:
    """``total`` records/s, the same for each of ``count`` partitions, for ever."""
    return lambda second: [total / count] * count


def noisy(count: int, total: float, share: float, seed: int) -> Callable[[int], list[float]]:
    """The same with the total of every second off by up to ``share``."""

    def rates(second: int) -> list[float]:
        factor = 1.0 + share * (2.0 * Random(seed * 100_003 + second).random() - 1.0)
        return [total * factor / count] * count

    return rates


def steps(count: int, *phases: tuple[int, float]) -> Callable[[int], list[float]]:
    """(from second, total records/s) in order of time."""

    def rates(second: int) -> list[float]:
        total = [rate for start, rate in phases if start <= second][-1]
        return [total / count] * count

    return rates
