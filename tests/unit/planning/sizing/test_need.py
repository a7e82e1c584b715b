"""What replicas can help, and what they cannot: a partition that is too large for one member."""

from __future__ import annotations

import pytest
from msgspec import structs
from msgspec.structs import replace

from loadtrim_agent.planning.placement.problem import Item
from loadtrim_agent.planning.sizing.need import explain, needed, pool_of
from loadtrim_agent.planning.sizing.policy import View
from loadtrim_agent.planning.values import PlanConfig
from unit.planning.sizing.test_policy import entry, view
from unit.planning.virtual_group import Fleet

PER_MEMBER = 200.0
"""Records/s of 5 ms that one member can do."""


def overdue(large: float, small: int = 9, *, late: float, backlog: float = 0.0, elsewhere: float = 0.0) -> View:
    """One partition of so many members' work beside small ones; so much waits there, and elsewhere."""
    items: tuple[Item, ...] = (
        entry(0, large * PER_MEMBER, unsplittable=True, persistent_backlog=backlog),
        *(entry(number, 0.09 * PER_MEMBER) for number in range(1, small + 1)),
    )
    seen = view(items, 2, late=late + elsewhere, backlog=backlog)
    partitions = dict(seen.estimate.partitions)
    first = items[0].partition
    partitions[first] = structs.replace(partitions[first], late=late)
    return replace(seen, estimate=replace(seen.estimate, partitions=partitions))


def pool(seen: View) -> int:
    return pool_of(seen, seen.forecast.level, 0.0, 1.0)[0]


@pytest.mark.parametrize("late", [0.0, 10.0, 1_000.0, 100_000.0])
def test_what_waits_in_a_partition_that_is_too_large_asks_for_nobody(late: float) -> None:
    """It grows for as long as it comes: one replica more after the other was asked for, and none could help."""
    assert pool(overdue(3.0, late=late)) == 2
    assert pool(overdue(3.0, late=late, backlog=late)) == 2


def test_what_waits_elsewhere_is_worked_off() -> None:
    assert pool(overdue(3.0, late=1_000.0, elsewhere=30.0)) > 2


def test_its_owner_works_off_what_it_has_time_for() -> None:
    """Of a partition that comes in bursts too large for one member, and not all the time."""
    assert pool(overdue(0.5, 15, late=0.0)) == 2
    assert pool(overdue(0.5, 15, late=1_000.0)) == pool(overdue(0.5, 15, late=100_000.0)) == 3


def said_late(work: float, expected: float) -> str:
    """Return how much is told to be late of seven partitions that have so much work together."""
    seen = view(tuple(entry(number, work / 7.0 * PER_MEMBER) for number in range(7)), 2, ahead=expected)
    said = explain(seen, needed(seen, expected))
    assert "would be late, because whole partitions divide badly" in said
    return said.partition(" would be late")[0].rpartition("about ")[2]


def test_what_is_late_is_told_of_the_load_that_is_expected() -> None:
    """1.0 becomes 1.85, of which each of two members would have four of seven partitions: all that comes, it said."""
    assert said_late(1.0, expected=1.85) == said_late(1.85, expected=1.85) == "57.1 %"


@pytest.mark.slow
def test_a_group_does_not_grow_while_one_partition_falls_behind() -> None:
    fleet = Fleet(PlanConfig(group="g", sla_seconds=0.5), lambda _: [400.0] + [10.0] * 15)
    wanted = set()
    for _ in range(400):
        fleet.run_scaled(1, 3)
        wanted.add(fleet.history[-1].replicas_wanted)
    assert wanted == {2}
    assert "too large for one member, so replicas cannot help: orders-0" in fleet.history[-1].reason
