"""The group here follows its planner. Its partitions are uneven, its arrivals noisy, drawn by seed.

Members do what their capacity allows, so what the planner decides comes back to it as reports. No clock, no threads:
the same seed gives the same decisions, which :mod:`.bench_planner` times.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.values import GroupState, MemberState
from loadtrim_agent.wire.telemetry_records import DecisionRecord, PartitionReport, ReportRecord, WorkWindow

__all__ = ["KINDS", "START", "PlannedGroup"]

START = 1_700_000_000.0
COST_SECONDS = 0.004
FILLED = 0.75
"""Share of the group's capacity that arrives at first."""
WINDOWS_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
SLOTS = 10
TOPIC = "bench"
KINDS = ("steady", "uneven", "scaling")
"""Names of loads. ``steady`` varies by chance alone. Of ``uneven`` some partitions change each second.
``scaling`` rises and falls, so that members come and go."""
CHANGED_SHARE = 0.02
"""Partitions whose load changes in a second of an uneven load."""
SCALING_SECONDS = 40.0
"""Period of a load that rises and falls."""
SCALING_SHARE = 0.25
"""Share of its mean by which it does."""


@dataclass(slots=True)
class _Load:
    """Hold the load of one partition."""

    weight: float
    cost: float
    burst: float
    """Time in which as much work comes as comes at once, seconds."""
    waiting: float = 0.0
    arrived: int = 0
    done: int = 0


class PlannedGroup:
    """Play the members of a group and their load.

    Args:
        members: how many there are at first.
        partitions: how many partitions.
        kind: of :data:`KINDS`.
        seed: of everything.
    """

    def __init__(self, members: int, partitions: int, kind: str, seed: int = 1) -> None:
        self._rng = random.Random(f"{kind}/{seed}/{members}/{partitions}")
        self._kind = kind
        self._loads = {
            Partition(TOPIC, index): _Load(
                weight=self._rng.paretovariate(2.5),
                cost=COST_SECONDS * self._rng.uniform(0.7, 1.4),
                burst=self._rng.choice((0.0, 0.0, self._rng.uniform(0.0, 0.3))),
            )
            for index in range(partitions)
        }
        total = sum(load.weight * load.cost for load in self._loads.values())
        self._scale = FILLED * members / total
        self.second = 0
        self._next = members
        self._topics = frozenset({TOPIC})
        self.members = {f"member-{index:05}": START for index in range(members)}
        self.owners = self._dealt()
        self._sequence = dict.fromkeys(self.members, 0)

    def _dealt(self) -> dict[Partition, str]:
        """Return owners by load, dealt out: where a group that has run for a while stands."""
        filled = [(0.0, member) for member in sorted(self.members)]
        owners = {}
        order = sorted(self._loads, key=lambda p: (-self._loads[p].weight * self._loads[p].cost, p))
        for at, partition in enumerate(order):
            if at % len(filled) == 0:
                filled.sort()
            load, member = filled[at % len(filled)]
            filled[at % len(filled)] = (load + self._loads[partition].weight * self._loads[partition].cost, member)
            owners[partition] = member
        return owners

    def reports(self) -> list[ReportRecord]:
        """Let a second go by, and return what the members tell of it."""
        self.second += 1
        self._change()
        owned: dict[str, list[Partition]] = {member: [] for member in self.members}
        for partition, owner in sorted(self.owners.items()):
            owned[owner].append(partition)
        return [self._report(member, owned[member]) for member in sorted(self.members)]

    def _change(self) -> None:
        if self._kind != "uneven":
            return
        changed = self._rng.sample(sorted(self._loads), max(1, round(CHANGED_SHARE * len(self._loads))))
        for partition in changed:
            self._loads[partition].weight = self._rng.paretovariate(2.5)

    def _level(self) -> float:
        if self._kind != "scaling":
            return self._scale
        return self._scale * (1.0 + SCALING_SHARE * math.sin(2.0 * math.pi * self.second / SCALING_SECONDS))

    def _report(self, member: str, owned: list[Partition]) -> ReportRecord:
        level, rng = self._level(), self._rng
        work = asked = 0.0
        for partition in owned:
            load = self._loads[partition]
            rate = load.weight * level
            load.arrived = max(0, round(rng.gauss(rate, rate**0.5)))
            work += load.arrived * load.cost
            asked += (load.waiting + load.arrived) * load.cost
        share = min(1.0, 1.0 / asked) if asked > 0.0 else 1.0
        entries = []
        for partition in owned:
            load = self._loads[partition]
            waited = load.waiting + load.arrived
            load.done = round(waited * share)
            load.waiting = waited - load.done
            entries.append(self._entry(partition, load, level))
        self._sequence[member] = sequence = self._sequence.get(member, 0) + 1
        even = [rng.uniform(0.5, 1.5) for _ in range(SLOTS)]
        return ReportRecord(
            group="bench",
            member=member,
            at=START + self.second,
            sequence=sequence,
            generation=1,
            instance=member,
            busy_seconds=min(asked, 1.0),
            in_time=sum(self._loads[partition].done for partition in owned),
            latency_seconds=0.01,
            slots_start=START + self.second - 1,
            slots=tuple(work * share / sum(even) for share in even),
            partitions=tuple(entries),
        )

    def _entry(self, partition: Partition, load: _Load, level: float) -> PartitionReport:
        rate = load.weight * level
        work = rate * load.cost
        waits = round(load.waiting)
        return PartitionReport(
            topic=partition.topic,
            partition=partition.partition,
            arrived=load.arrived,
            bytes=100 * load.arrived,
            done=load.done,
            lag=waits,
            lag_min=min(waits, max(0, waits - self._rng.randint(0, 3))),
            lag_seconds=round(waits / rate, 3) if rate > 0.0 else 0.0,
            cost_mean=load.cost,
            cost_variance=0.1 * load.cost * load.cost,
            work_windows=tuple(
                WorkWindow(
                    seconds=seconds,
                    mean=work * (seconds + load.burst * (1.0 - math.exp(-seconds / 0.2))),
                    variance=0.0,
                    largest=0.0,
                )
                for seconds in WINDOWS_SECONDS
            ),
            position=load.arrived,
            committed=load.arrived,
        )

    def state(self) -> GroupState:
        """Return the group as its leader sees it."""
        return GroupState(
            generation=1,
            leader=min(self.members),
            members={
                member: MemberState(instance=member, topics=self._topics, joined_at=joined)
                for member, joined in sorted(self.members.items())
            },
            owners=dict(self.owners),
        )

    def follow(self, decision: DecisionRecord) -> None:
        """Do what was decided: partitions move at once, victims go, and as many members as are wanted are there."""
        for move in decision.moves:
            self.owners[Partition(move.topic, move.partition)] = move.target
        owning = set(self.owners.values())
        for victim in decision.victims:
            if victim in self.members and victim not in owning:
                del self.members[victim]
        for _ in range(decision.replicas_wanted - len(self.members)):
            self.members[f"member-{self._next:05}"] = START + self.second
            self._next += 1
