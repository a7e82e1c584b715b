"""What every packer keeps to, whatever the problem: those of the registry, and the template for a new one.

A packer that is entered in ``PACKERS`` is tested here; one that is not registered yet takes a line in ``MAKERS``.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from contract.templates import template
from loadtrim_agent.planning.parameters import described
from loadtrim_agent.planning.placement.problem import Packer, Problem
from loadtrim_agent.planning.registry import PACKERS
from property.test_pack import problems
from unit.planning.placement.packing import packing

MAKERS: dict[str, Callable[..., Packer]] = {
    **PACKERS,
    "most_room": template("packer").MostRoom,
}
NAMES = sorted(MAKERS)


@pytest.mark.parametrize("name", NAMES)
def test_it_says_its_name_and_what_can_be_set(name: str) -> None:
    packer = MAKERS[name]()
    assert packer.name == name
    for parameter in described(packer.kind):
        assert parameter.meaning
        assert parameter.allowed
    if packer.kind.__struct_fields__:
        MAKERS[name](packer.kind())  # as the registry makes it where parameters are given


@pytest.mark.parametrize("name", NAMES)
@given(problem=problems())
@settings(max_examples=35, deadline=None)
def test_nothing_is_lost_or_doubled_and_only_members_that_may_own_a_partition_get_it(
    name: str, problem: Problem
) -> None:
    placed = MAKERS[name]().pack(problem)
    stay = {b.member: b for b in problem.bins if not b.leaving and b.member not in placed.victims}
    for entry in problem.items:
        owner = placed.owners.get(entry.partition)
        # A silent member keeps what it has, and is given nothing.
        able = {m for m, b in stay.items() if b.may_own(entry.partition) and (not b.silent or entry.owner == m)}
        assert (owner is None) == (not able), "placed exactly where some member may have it"
        if owner is not None:
            assert owner in able
            kept_well = entry.owner in stay and stay[entry.owner].may_own(entry.partition)
            if kept_well and not (entry.movable and problem.may_move):
                assert owner == entry.owner
    assert placed.owners.keys() <= {entry.partition for entry in problem.items}
    assert list(placed.owners) == sorted(placed.owners)
    before = {entry.partition: entry.owner for entry in problem.items}
    assert {m.partition: (m.source, m.target) for m in placed.moves} == {
        p: (before[p], owner) for p, owner in placed.owners.items() if before[p] != owner
    }
    assert len(placed.moves) == len({move.partition for move in placed.moves})


@pytest.mark.parametrize("name", NAMES)
@given(problem=problems())
@settings(max_examples=20, deadline=None)
def test_victims_are_whole_instances_as_many_as_needed_and_the_same_again(name: str, problem: Problem) -> None:
    packer = MAKERS[name]()
    placed = packer.pack(problem)
    assert packer.pack(problem) == placed, "an instance does not change"
    assert MAKERS[name]().pack(problem) == placed
    there = {b.unit for b in problem.bins if not b.leaving}
    going = {b.unit for b in problem.bins if b.member in placed.victims}
    wanted = len(there) if problem.replicas is None else problem.replicas
    assert len(going) == max(0, len(there) - wanted)
    assert set(placed.victims) == {b.member for b in problem.bins if b.unit in going}


@pytest.mark.parametrize("name", NAMES)
def test_without_members_or_partitions_there_is_an_empty_placement(name: str) -> None:
    packer = MAKERS[name]()
    for problem in (packing([], bins=3), packing([1.0, 2.0], bins=0), packing([], bins=0)):
        assert packer.pack(problem).owners == {}
        assert packer.pack(replace(problem, replicas=1)).moves == ()
