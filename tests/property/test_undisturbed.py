"""What README says of moves and rebalances, of the whole product on virtual time, where a pause of 60 ms is seen.

Nothing else runs in this time, so a bound is one of the product and not of the machine. The same on a real Kafka, with
bounds for a busy machine: ``tests/integration/test_moves.py`` and ``tests/chaos/test_members.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.planner import Planner
from loadtrim_agent.protocol.membership import Phase
from loadtrim_agent.runtime.agent import Agent
from loadtrim_agent.wire.ownership_records import MovePlan, PlanRecord
from whole.chaos import PLAN_SEQUENCE, Chaos
from whole.large import LargeGroup
from whole.member import GROUP, threads_in_charge
from whole.programs import FIRST_PROGRAMS
from whole.world import TOPIC, Member, Options, World

pytestmark = pytest.mark.usefixtures("quiet")

RECORD_SECONDS = 0.02
"""Each partition is sent a record so often."""
GAP_SECONDS_MAX = 0.06
"""Longest time between two records of a partition that is not paused. Chosen: twice what is seen."""
MEMBERS = 3
MOVES = 18
"""Each of the six partitions goes to each of the three members, and is back."""
WARM_SECONDS = 3.0
BETWEEN_SECONDS = 0.5
FROZEN_SECONDS = 6.0
"""Less than the session timeout, so that it is waited for."""
DECISIONS = 6
"""One a second."""
SLOW_SECONDS_MAX = 1.0
"""Longest that a message of a slow leader takes, one way."""


Owners = dict[Partition, Member]


@dataclass(frozen=True, slots=True)
class Delivery:
    at: float
    member: str
    partition: Partition
    generation: int


def watch(world: World) -> list[Delivery]:
    """Return the list in which every delivery of a run will stand."""
    journal, seen = world.journal, list[Delivery]()
    delivered = journal.delivered

    def noted(member: Any, partition: Partition, offset: int) -> None:
        seen.append(Delivery(world.kernel.now, member.name, partition, world.cluster.group(GROUP).generation))
        delivered(member, partition, offset)

    journal.delivered = noted  # type: ignore[method-assign]
    return seen


class FedGroup(LargeGroup):
    """A group of three whose partitions are all sent a record every :data:`RECORD_SECONDS`."""

    def __init__(self) -> None:
        super().__init__(MEMBERS, partitions_each=2)
        self.partitions = [Partition(TOPIC, index) for index in range(self.world.options.partitions)]
        self.seen = watch(self.world)

    def begin(self) -> None:
        self.start(MEMBERS)
        self.settle()
        self._feed()
        self.world.kernel.run(WARM_SECONDS)

    def _feed(self) -> None:
        for partition in self.partitions:
            self.world.produce(partition)
        self.world.kernel.scheduler.after(RECORD_SECONDS, self._feed)

    @property
    def now(self) -> float:
        return self.world.kernel.now

    def owners(self) -> Owners:
        return {partition: member for member in self.world.alive for partition in member.delivers}

    def last_at(self, partition: Partition) -> str:
        """Return the name of the member that was delivered the partition's newest record."""
        return next(each.member for each in reversed(self.seen) if each.partition == partition)

    def until(self, holds: Callable[[], bool]) -> None:
        assert self.world.kernel.run_until(holds, seconds=30.0)

    def move(self, partition: Partition, source: Member, target: Member, number: int) -> None:
        """Advise a move as the leader would, and wait for the first record at the new owner."""
        leader = next(agent for agent in map(agent_of, self.world.alive) if agent.snapshot().is_leader)
        assert leader.log is not None
        snapshot = leader.snapshot()
        ends = {"source": agent_of(source).snapshot().member, "target": agent_of(target).snapshot().member}
        plan = PlanRecord(
            group=GROUP,
            member=snapshot.member,
            at=0.0,
            generation=snapshot.generation,
            sequence=PLAN_SEQUENCE + number,
            moves=(MovePlan(topic=TOPIC, partition=partition.partition, **ends),),
        )
        writer = next(member for member in self.world.alive if member.agent is leader)
        writer.process.loops[-1].create_task(leader.log.write(plan))
        self.until(lambda: self.last_at(partition) == target.name)

    def paused(self, since: float, partitions: Iterable[Partition]) -> dict[str, float]:
        """Return the partitions that were delivered no record for too long, and for how many seconds."""
        longest: dict[str, float] = {}
        for partition in partitions:
            times = [each.at for each in self.seen if each.partition == partition]
            gaps = [after - before for before, after in pairwise([*times, self.now]) if after > since]
            if max(gaps) > GAP_SECONDS_MAX:
                longest[str(partition)] = round(max(gaps), 3)
        return longest


def agent_of(member: Member) -> Agent:
    assert member.agent is not None
    return member.agent


def phases_of(members: Iterable[Member]) -> set[Phase]:
    return {agent_of(member).snapshot().phase for member in members}


def stayed(members: Iterable[Member], before: Owners, after: Owners) -> list[Partition]:
    """Return the partitions of these members that have not moved."""
    found = [partition for partition, member in before.items() if member in members and after[partition] is member]
    assert len(found) > 1
    return found


@pytest.fixture
def group() -> Iterator[FedGroup]:
    made = FedGroup()
    with made.world.kernel.in_charge(), threads_in_charge():
        made.begin()
        yield made


@pytest.mark.slow
def test_a_move_takes_milliseconds_and_stops_no_other_partition(group: FedGroup) -> None:
    began = group.now
    for number in range(MOVES):
        partition = group.partitions[number % len(group.partitions)]
        members, source = group.world.alive, group.owners()[partition]
        target = members[(members.index(source) + 1) % len(members)]
        group.move(partition, source, target, number)
        group.world.kernel.run(BETWEEN_SECONDS)
    assert group.paused(began, group.partitions) == {}
    assert group.world.journal.repeats == 0


@pytest.mark.slow
def test_what_does_not_move_never_pauses_while_members_come_and_go(group: FedGroup) -> None:
    for joins in (True, True, False, False):
        began, generation, before, members = group.now, group.generation, group.owners(), group.world.alive
        if joins:
            group.start(1)
        else:
            group.stop(members[:1], within_seconds=0.0)
            group.until(lambda one=members[0]: one.left)
        group.until(lambda before=generation: group.generation > before)
        group.settle()
        group.world.kernel.run(BETWEEN_SECONDS)
        assert group.paused(began, stayed(members, before, group.owners())) == {}
    assert group.world.journal.repeats == 0


@pytest.mark.slow
def test_what_does_not_move_never_pauses_while_a_rebalance_waits(group: FedGroup) -> None:
    """One member is frozen, another one joins: the coordinator waits, and nobody else does."""
    *others, frozen = group.world.alive
    before, began = group.owners(), group.now
    frozen.process.freeze(FROZEN_SECONDS)
    group.start(1)
    group.until(lambda: phases_of(others) == {Phase.JOINING})
    group.world.kernel.run(FROZEN_SECONDS / 2)
    assert phases_of(others) == {Phase.JOINING}, "it waits"
    group.settle()
    group.world.kernel.run(BETWEEN_SECONDS)
    assert group.paused(began, stayed(others, before, group.owners())) == {}


@pytest.mark.slow
def test_what_does_not_move_never_pauses_while_the_leader_assigns_slowly(group: FedGroup) -> None:
    """All have joined, and wait for the assignment of a leader whose messages take their time."""
    (leader,) = [member for member in group.world.alive if agent_of(member).snapshot().is_leader]
    others = [member for member in group.world.alive if member is not leader]
    before, began = group.owners(), group.now
    group.world.network.slow[leader.process] = SLOW_SECONDS_MAX
    group.start(1)
    group.until(lambda: phases_of(others) == {Phase.SYNCING})
    group.settle()
    group.world.kernel.run(BETWEEN_SECONDS)
    assert group.paused(began, stayed(others, before, group.owners())) == {}


def moves_in(seen: list[Delivery]) -> int:
    """Return how often a partition changed its owner without a rebalance."""
    moves, last = 0, dict[Partition, Delivery]()
    for each in seen:
        before = last.setdefault(each.partition, each)
        moves += before.generation == each.generation and before.member != each.member
        last[each.partition] = each
    return moves


UNDISTURBED = Options(
    members=3, members_max=5, partitions=6, fault_seconds=20.0, drift_max=0.0, slow_record_share=0.0,
    moves_per_second=3.0, rates=(("join", 0.4), ("end", 0.3), ("stop", 0.1)),
    programs=tuple(sorted({*FIRST_PROGRAMS} - {"goes_back"})),
)  # fmt: skip
"""Members come and leave in order and partitions move; nobody crashes and no lease is lost."""


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
@pytest.mark.slow
def test_nothing_is_delivered_twice_however_many_moves_and_rebalances(seed: int) -> None:
    chaos = Chaos(seed, UNDISTURBED)
    seen = watch(chaos.world)
    report = chaos.run()
    assert report.repeats == 0
    assert len({each.generation for each in seen}) > 5
    assert moves_in(seen) > 5


@pytest.mark.slow
def test_the_leader_alone_decides(group: FedGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every member has what a leader needs; one of them works at a time, also after the leader has gone."""
    decisions: list[Planner] = []
    decide = Planner.decide

    def noted(planner: Planner, *args: Any) -> Any:
        decisions.append(planner)
        return decide(planner, *args)

    monkeypatch.setattr(Planner, "decide", noted)
    group.world.kernel.run(DECISIONS)
    assert len(set(map(id, decisions))) == 1
    assert len(decisions) == pytest.approx(DECISIONS, abs=2)
    (leader,) = [member for member in group.world.alive if agent_of(member).snapshot().is_leader]
    group.stop([leader], within_seconds=0.0)
    group.until(lambda: leader.left)
    group.settle()
    del decisions[:]
    group.world.kernel.run(DECISIONS)
    assert len(set(map(id, decisions))) == 1
