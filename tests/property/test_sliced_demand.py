"""A leader that plans and members that pass partitions on do not fight each other: the product on virtual time.

The real planner, the real slices and the protocol, with one burst a second, keys by chance, joins, crashes and
rebalances.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from benchmarks.programs.cells import Arrival, Cell, cells

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.ownership_records import AssignmentRecord, PromiseRecord, ReleaseRecord
from loadtrim_agent.wire.telemetry_records import DecisionRecord
from whole.demand import Demand

pytestmark = [
    pytest.mark.usefixtures("quiet"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::ResourceWarning"),
]

COST_SECONDS = 0.01
OBJECTIVE_SECONDS = 0.5
MEMBER = OBJECTIVE_SECONDS / COST_SECONDS
"""Records of a burst that one member does in time."""
SECONDS = 90
PARTITIONS = 5
CELL = replace(
    next(cells(random.Random(0))),
    program="one-by-one",
    levels=((0.0, 1.0),),
    seconds=float(SECONDS),
    record_seconds=COST_SECONDS,
    objective_seconds=OBJECTIVE_SECONDS,
    partitions=PARTITIONS,
    start_seconds=1.0,
)
SLICED = {"slicing": "auto", "packer": "trim"}


def bursts(seed: int, *, members_max: float) -> Iterator[Arrival]:
    """Yield one burst a second that rises and falls, of what one to so many members do in time; keys by chance."""
    rng = random.Random(f"bursts {seed}")
    shares = [rng.uniform(0.5, 1.5) for _ in range(PARTITIONS)]
    for second in range(SECONDS - 10):
        members = 0.5 + (members_max - 0.5) * (0.5 - 0.5 * math.cos(2.0 * math.pi * second / 60.0))
        for index, partition in enumerate(rng.choices(range(PARTITIONS), shares, k=round(members * MEMBER))):
            yield Arrival(second + index * 1e-6, partition, COST_SECONDS)


@dataclass(slots=True)
class _Log:
    """The control topic of a run, as far as it tells who owned what when."""

    owners: dict[Partition, str]

    def read(self, record: Record) -> None:
        if isinstance(record, AssignmentRecord):
            self.owners = {
                Partition(topic, index): member
                for member, entry in record.members.items()
                for topic, indexes in entry.owns
                for index in indexes
            }
        elif isinstance(record, ReleaseRecord) and self.owners.get(record.key) == record.source:
            self.owners[record.key] = record.target


def fights(demand: Demand) -> list[str]:
    """Return the moves of plans that are the members' own to make."""
    assert demand.played is not None
    log, found = _Log({}), []
    for at, record in demand.played.control:
        if isinstance(record, DecisionRecord) and record.slicing:
            owning = set(log.owners.values())
            found += [
                f"{at:.3f}: {move.topic}-{move.partition} from {move.source} to {move.target}"
                for move in record.moves
                if move.source not in record.victims and move.target in owning
            ]
        log.read(record)
    return found


def promises(demand: Demand) -> int:
    assert demand.played is not None
    return sum(isinstance(each, PromiseRecord) and not each.taken_back for _, each in demand.played.control)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.weekly) for seed in range(2, 6))])
@pytest.mark.parametrize("crashes", [(), (31.3, 33.7)])
def test_a_plan_moves_nothing_that_members_move_by_themselves(seed: int, crashes: tuple[float, ...]) -> None:
    cell: Cell = replace(CELL, objective_share=0.999)
    demand = Demand(cell, seed, load=bursts(seed, members_max=3.4), settings=SLICED)
    verdict = demand.run(crashes)
    assert fights(demand) == []
    assert promises(demand) > 0
    assert verdict.lost == 0
    assert verdict.repeated == 0 or crashes
    assert max(replicas for _, replicas in verdict.wanted) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("phase_seconds", [0.04, 0.085, 0.09])
def test_a_burst_takes_as_many_members_wherever_the_edges_of_slots_are(phase_seconds: float) -> None:
    """A burst of 20 ms that an edge cut looked as if it came within 0.2 s: two members, and a quarter was late."""
    rng = random.Random(f"edges {phase_seconds}")
    burst = round(2.4 * MEMBER)
    load = [
        Arrival(second + phase_seconds + 0.02 * index / burst, rng.randrange(PARTITIONS), COST_SECONDS)
        for second in range(40)
        for index in range(burst)
    ]
    verdict = Demand(replace(CELL, seconds=41.0), 1, load=load, settings=SLICED).run()
    assert {replicas for at, replicas in verdict.wanted if 15.0 <= at < 41.0} <= {3}
    assert [replicas for at, replicas in verdict.wanted if at < 41.0][-1] == 3


@pytest.mark.slow
def test_whole_partitions_divide_as_badly_where_the_edge_of_a_slot_cuts_bursts() -> None:
    """Each partition told three quarters of its bursts: two members seemed enough for five, and 6 % was late."""
    load = [
        Arrival(second + 0.0945 + 0.008 * index / burst, index % PARTITIONS, COST_SECONDS)
        for second in range(90)
        for burst in [max(86, round(120 - 0.57 * second))]
        for index in range(burst)
    ]
    cell = replace(CELL, seconds=91.0, objective_share=0.999)
    verdict = Demand(cell, 1, load=load, settings={"packer": "trim"}).run()
    assert {replicas for at, replicas in verdict.wanted if 40.0 <= at < 91.0} <= {3}
    assert [replicas for at, replicas in verdict.wanted if at < 91.0][-1] == 3
