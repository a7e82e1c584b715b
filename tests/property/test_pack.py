"""What holds for every packer on every problem, and for ``trim`` against a judge that tries all placements."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtrim_agent.core.plan.packers import PACKERS, make_packer
from loadtrim_agent.core.plan.packers.problem import Bin, Item, Limits, Load, Problem
from loadtrim_agent.core.plan.values import Placement
from unit.core.plan.virtual_group import item, problem

TOPICS = ("orders", "u")
MEMBERS = ("a", "b", "c", "d")


@st.composite
def problems(draw: st.DrawFn, partitions: int = 7, members: int = 4) -> Problem:
    """Small groups: unlike machines, several topics, members that leave, partitions on their way or nobody's."""
    names = MEMBERS[: draw(st.integers(1, members))]
    entries = tuple(
        Bin(
            member=name,
            unit=draw(st.sampled_from(["x", "y", name])),
            capacity=draw(st.sampled_from([0.5, 1.0, 2.0])),
            topics=draw(st.sampled_from([None, frozenset({"orders"}), frozenset(TOPICS)])),
            leaving=draw(st.booleans()) and draw(st.booleans()),
        )
        for name in names
    )
    items = [
        item(
            number,
            draw(st.sampled_from([*names, *names, None, "gone"])),
            draw(st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.5])),
            topic=draw(st.sampled_from(["orders", "orders", "u"])),
            burst=draw(st.sampled_from([0.0, 0.0, 0.1, 0.3])),
            queue=draw(st.sampled_from([0.0, 0.1, 1.0])),
            movable=draw(st.integers(0, 4)) > 0,
        )
        for number in range(draw(st.integers(0, partitions)))
    ]
    return problem(
        items,
        entries,
        limits=Limits(objective_seconds=0.5, handoff_seconds=draw(st.sampled_from([0.0, 0.05]))),
        replicas=draw(st.one_of(st.none(), st.integers(1, 4))),
        victims=draw(st.sampled_from([(), ("a",), ("b", "zz")])),
        leader=draw(st.sampled_from(["", "a"])),
        may_move=draw(st.integers(0, 3)) > 0,
        fill=draw(st.sampled_from([1.0, 0.9])),
    )


def owned(given: Problem, placed: Placement, member: str) -> list[Item]:
    return [entry for entry in given.items if placed.owners.get(entry.partition) == member]


@pytest.mark.parametrize("name", sorted(PACKERS))
@given(given_problem=problems())
@settings(max_examples=80, deadline=None)
def test_nothing_lost_or_doubled_and_only_to_who_may(name: str, given_problem: Problem) -> None:
    placed = make_packer(name).pack(given_problem)
    stay = {b.member: b for b in given_problem.bins if not b.leaving and b.member not in placed.victims}
    for entry in given_problem.items:
        owner = placed.owners.get(entry.partition)
        able = [b for b in stay.values() if b.may_own(entry.partition)]
        assert (owner is None) == (not able), "placed exactly where somebody may own it"
        if owner is not None:
            assert stay[owner].may_own(entry.partition)
            kept_well = entry.owner in stay and stay[entry.owner].may_own(entry.partition)
            if kept_well and not (entry.movable and given_problem.may_move):
                assert owner == entry.owner
    assert placed.owners.keys() <= {entry.partition for entry in given_problem.items}
    assert list(placed.owners) == sorted(placed.owners)
    before = {entry.partition: entry.owner for entry in given_problem.items}
    assert {m.partition: (m.source, m.target) for m in placed.moves} == {
        p: (before[p], owner) for p, owner in placed.owners.items() if before[p] != owner
    }
    assert len(placed.moves) == len({move.partition for move in placed.moves})


@pytest.mark.parametrize("name", sorted(PACKERS))
@given(given_problem=problems())
@settings(max_examples=60, deadline=None)
def test_victims_are_whole_instances_and_as_many_as_needed(name: str, given_problem: Problem) -> None:
    placed = make_packer(name).pack(given_problem)
    there = {b.unit for b in given_problem.bins if not b.leaving}
    going = {b.unit for b in given_problem.bins if b.member in placed.victims}
    wanted = len(there) if given_problem.replicas is None else given_problem.replicas
    assert len(going) == max(0, len(there) - wanted)
    assert set(placed.victims) == {b.member for b in given_problem.bins if b.unit in going}


@given(given_problem=problems())
@settings(max_examples=80, deadline=None)
def test_trims_misfits_are_those_over_their_limits(given_problem: Problem) -> None:
    limits = Limits(objective_seconds=0.5, handoff_seconds=0.0)
    placed = make_packer("trim").pack(replace(given_problem, limits=limits))
    for entry in given_problem.bins:
        if entry.member not in placed.pressures:
            continue
        load = Load(limits, owned(given_problem, placed, entry.member))
        assert load.pressure(entry.capacity) == pytest.approx(placed.pressures[entry.member], abs=1e-6)
        if entry.member not in placed.misfits:
            assert load.pressure(entry.capacity) <= 1.0 + 1e-6


@given(given_problem=problems(partitions=6, members=3))
@settings(max_examples=150, deadline=None)
def test_trim_finds_a_placement_where_there_is_one(given_problem: Problem) -> None:
    """All placements of small groups are tried out: where one fits, so does trim's.

    Handoffs cost nothing here, everything may move, and machines are alike, so that nothing but packing is judged.
    """
    simple = replace(
        given_problem,
        items=tuple(replace(entry, movable=True) for entry in given_problem.items),
        bins=tuple(replace(entry, topics=None, leaving=False, capacity=1.0) for entry in given_problem.bins),
        limits=Limits(objective_seconds=0.5, handoff_seconds=0.0),
        replicas=None,
        may_move=True,
    )
    fits = any(
        all(
            Load(simple.limits, [e for e, m in zip(simple.items, placed, strict=True) if m == entry.member]).pressure(
                1.0
            )
            <= 1.0 + 1e-9
            for entry in simple.bins
        )
        for placed in product([entry.member for entry in simple.bins], repeat=len(simple.items))
    )
    assert (make_packer("trim").pack(simple).misfits == ()) == fits


@given(given_problem=problems())
@settings(max_examples=100, deadline=None)
def test_what_was_planned_and_done_is_not_planned_anew(given_problem: Problem) -> None:
    """Where everything fits, a second look at the same load moves nothing."""
    first = make_packer("trim").pack(given_problem)
    done = replace(
        given_problem,
        items=tuple(replace(e, owner=first.owners.get(e.partition, e.owner)) for e in given_problem.items),
        victims=first.victims,
    )
    second = make_packer("trim").pack(done)
    if first.misfits == () and given_problem.may_move:
        assert second.moves == ()
    assert second.victims == first.victims


@given(given_problem=problems())
@settings(max_examples=50, deadline=None)
def test_a_plan_is_a_function_of_the_problem(given_problem: Problem) -> None:
    for name in sorted(PACKERS):
        assert make_packer(name).pack(given_problem) == make_packer(name).pack(given_problem)
