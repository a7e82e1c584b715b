"""What holds for every packer on every problem, and for ``trim`` against a judge that tries all placements."""

from __future__ import annotations

from itertools import product

import pytest
from benchmarks.suite.optimum import fewest_bins
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.placement.bin_source import BinSource, best, worst
from loadtrim_agent.planning.placement.columns import Columns
from loadtrim_agent.planning.placement.lateness import Load, LongestFirst, Whole
from loadtrim_agent.planning.placement.problem import Bin, Item, Limits, Problem
from loadtrim_agent.planning.published.packers.least_loaded import LEAST_LOADED
from loadtrim_agent.planning.published.packers.modified import MODIFIED
from loadtrim_agent.planning.registry import PACKERS, make_packer
from loadtrim_agent.planning.values import Placement
from unit.planning.placement.packing import packing
from unit.planning.virtual_group import item, problem

TOPICS = ("orders", "u")
MEMBERS = ("a", "b", "c", "d")


@st.composite
def problems(draw: st.DrawFn, partitions: int = 7, members: int = 4) -> Problem:
    """Small groups: unlike machines, several topics, members that leave or are silent, partitions on their way or
    nobody's."""
    names = MEMBERS[: draw(st.integers(1, members))]
    entries = tuple(
        Bin(
            member=name,
            unit=draw(st.sampled_from(["x", "y", name])),
            capacity=draw(st.sampled_from([0.5, 1.0, 2.0])),
            topics=draw(st.sampled_from([None, frozenset({"orders"}), frozenset(TOPICS)])),
            leaving=draw(st.booleans()) and draw(st.booleans()),
            silent=draw(st.integers(0, 4)) == 4,
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
        fewest=draw(st.integers(0, 3)) == 0,
        fill=draw(st.sampled_from([1.0, 0.9])),
    )


def owned(given: Problem, placed: Placement, member: str) -> list[Item]:
    return [entry for entry in given.items if placed.owners.get(entry.partition) == member]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PACKERS.keys() - LEAST_LOADED.keys()))
@given(given_problem=problems())
@settings(max_examples=20, deadline=None)
def test_the_bound_is_not_above_a_placement_that_fits(name: str, given_problem: Problem) -> None:
    """Onto all members, for where some have to go what they alone may own is left out."""
    placed = make_packer(name).pack(replace(given_problem, replicas=None, fill=1.0))
    assert placed.misfits or placed.bound <= placed.opened


@given(first=problems(), second=problems(), replicas=st.sampled_from([None, 1, 2]), leader=st.sampled_from(["", "a"]))
@settings(max_examples=60, deadline=None)
def test_what_a_packer_was_asked_before_changes_no_answer(
    first: Problem, second: Problem, replicas: int | None, leader: str
) -> None:
    """A policy asks where everything would go, without saying how many may stay; then it is to go there."""
    kept = make_packer("trim")
    asked = [first, replace(first, replicas=replicas, leader=leader), replace(first, may_move=not first.may_move)]
    asked += [second, replace(first, items=second.items), replace(first, bins=second.bins), first]
    for each in asked:
        assert kept.pack(each) == make_packer("trim").pack(each)


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
        items=tuple(structs.replace(entry, movable=True) for entry in given_problem.items),
        bins=tuple(
            structs.replace(entry, topics=None, leaving=False, silent=False, capacity=1.0)
            for entry in given_problem.bins
        ),
        limits=Limits(objective_seconds=0.5, handoff_seconds=0.0),
        replicas=None,
        may_move=True,
        fewest=False,
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
        items=tuple(structs.replace(e, owner=first.owners.get(e.partition, e.owner)) for e in given_problem.items),
        victims=first.victims,
    )
    second = make_packer("trim").pack(done)
    if given_problem.fewest and second.opened < first.opened:
        return  # it may find a way to do with fewer from where it stands now
    if first.misfits == () and given_problem.may_move:
        assert second.moves == ()
    assert second.victims == first.victims


@given(given_problem=problems())
@settings(max_examples=20, deadline=None)
def test_a_plan_is_a_function_of_the_problem(given_problem: Problem) -> None:
    for name in sorted(PACKERS):
        assert make_packer(name).pack(given_problem) == make_packer(name).pack(given_problem)


# -- packing alone: one number per partition, alike or unlike bins, a judge that tries everything

SIZES = st.sampled_from([0.0, 1.0, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.5, 10.0])
COUNTS_ONLY = frozenset({"range", "roundrobin", "sticky", "kd_n"})
TWO_DIMENSIONS = frozenset(LEAST_LOADED)
ALL = sorted(PACKERS)
BY_SIZE = sorted(set(ALL) - COUNTS_ONLY - TWO_DIMENSIONS)
KEEPS = sorted({name for name in PACKERS if name not in MODIFIED})


@st.composite
def packings(draw: st.DrawFn, items: int = 9, *, alike: bool = True) -> Problem:
    sizes = draw(st.lists(SIZES, min_size=0, max_size=items))
    owners = draw(st.lists(st.sampled_from([None, "c0", "c1", "c2", "gone"]), min_size=len(sizes), max_size=len(sizes)))
    given = packing(sizes, owners, fewest=True)
    if alike:
        return given
    capacities = draw(st.lists(st.sampled_from([10.0, 12.0, 20.0]), min_size=len(sizes), max_size=len(sizes)))
    bins = tuple(structs.replace(b, capacity=c) for b, c in zip(given.bins, capacities, strict=True))
    return replace(given, bins=bins)


def fewest_by_trying(sizes: list[float], capacities: list[float]) -> int:
    """Bins of the best of all placements; items one after the other, alike bins that are alike filled tried once."""
    best = len(sizes)
    left = list(capacities)

    def place(at: int, opened: int) -> None:
        nonlocal best
        if opened >= best:
            return
        if at == len(sizes):
            best = opened
            return
        tried = set()
        for index, room in enumerate(left):
            state = (room, capacities[index])
            if sizes[at] <= room + 1e-9 and state not in tried:
                tried.add(state)
                left[index] -= sizes[at] + 1e-12
                place(at + 1, opened + (room == capacities[index]))
                left[index] = room

    place(0, 0)
    return best if sizes else 0


@pytest.mark.parametrize("name", ALL)
@given(given_problem=packings(alike=False))
@settings(max_examples=20, deadline=None)
def test_no_bin_is_filled_beyond_its_capacity(name: str, given_problem: Problem) -> None:
    """With as many bins as items and no item larger than a bin; assignors that count only may do as they like."""
    placed = make_packer(name).pack(given_problem)
    assert placed.owners.keys() == {entry.partition for entry in given_problem.items}
    assert placed.opened == len(set(placed.owners.values()))
    assert placed.opened <= len(given_problem.items)
    if name in BY_SIZE:
        assert placed.misfits == ()
        for entry in given_problem.bins:
            held = sum(i.work for i in given_problem.items if placed.owners[i.partition] == entry.member)
            assert held <= entry.capacity * (1 + 1e-8)


MU, OBJECTIVE_SECONDS = 100.0, 5.0
"""Of a member of capacity 1: it takes 100 records/s, and 500 that wait."""


@st.composite
def loads(draw: st.DrawFn, items: int = 9) -> Problem:
    """Rate and lag of partitions of which each fits even the smallest of as many unlike members."""
    count = draw(st.integers(0, items))
    entries = []
    for number in range(count):
        rate = draw(st.sampled_from([0.0, 5.0, 10.0, 20.0, 30.0, 40.0]))
        lag = draw(st.sampled_from([0, 1, 50, 100, 200]))
        owner = draw(st.sampled_from([None, "c0", "c1", "c2", "gone"]))
        entries.append(item(number, owner, rate / MU, rate=rate, cost=1 / MU, lag=lag, lag_low=0, lag_high=lag))
    capacities = draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=count, max_size=count))
    told = [None, *(MU * median for median in sorted(capacities)[count // 2 :][:1])]
    return problem(
        entries,
        tuple(Bin(member=f"c{at}", unit=f"u{at}", capacity=one) for at, one in enumerate(capacities)),
        limits=Limits(objective_seconds=OBJECTIVE_SECONDS),
        fill=draw(st.sampled_from([1.0, 0.9])),
        extra_lag_seconds=draw(st.sampled_from([0.0, 0.1])),
        mu=draw(st.sampled_from(told)),  # measured, or said of the median member
    )


@pytest.mark.parametrize("name", sorted(TWO_DIMENSIONS - {"iccbdc22_as_run"}))
@given(given_problem=loads())
@settings(max_examples=60, deadline=None)
def test_no_bin_is_filled_beyond_its_capacity_in_rate_or_lag(name: str, given_problem: Problem) -> None:
    placed = make_packer(name).pack(given_problem)
    assert placed.owners.keys() == {entry.partition for entry in given_problem.items}
    assert placed.bound <= placed.opened
    fill = given_problem.fill if LEAST_LOADED[name].filled else 1.0
    for entry in given_problem.bins:
        held = owned(given_problem, placed, entry.member)
        records_per_s = fill * MU * entry.capacity
        rate = sum(one.rate for one in held)
        assert rate <= records_per_s * (1 + 1e-9)
        lag = sum(one.lag_high for one in held) + rate * given_problem.extra_lag_seconds
        assert lag <= records_per_s * OBJECTIVE_SECONDS * (1 + 1e-9)


@given(given_problem=loads())
@settings(max_examples=60, deadline=None)
def test_iccbdc22_as_run_deals_evenly_by_count(given_problem: Problem) -> None:
    """It looks at rate and lag only to count members: what one of them gets may be more than it can do."""
    placed = make_packer("iccbdc22_as_run").pack(given_problem)
    counts = [len(owned(given_problem, placed, member)) for member in set(placed.owners.values())]
    assert not counts or max(counts) - min(counts) <= 1
    assert placed.bound <= placed.opened


@given(given_problem=packings(items=7, alike=False))
@settings(max_examples=30, deadline=None)
def test_the_proven_optimum_is_what_trying_all_placements_finds(given_problem: Problem) -> None:
    sizes = sorted((entry.work for entry in given_problem.items), reverse=True)
    opened = fewest_bins(given_problem).opened
    assert opened == fewest_by_trying(sizes, [b.capacity for b in given_problem.bins])


@given(given_problem=packings(items=7, alike=False))
@settings(max_examples=60, deadline=None)
def test_the_bound_is_never_above_the_best_placement_and_trim_at_most_one(given_problem: Problem) -> None:
    sizes = sorted((entry.work for entry in given_problem.items), reverse=True)
    best = fewest_by_trying(sizes, [entry.capacity for entry in given_problem.bins])
    placed = make_packer("trim").pack(given_problem)
    assert placed.bound <= max(best, 1 if sizes else 0)
    assert best <= placed.opened <= best + 1


@given(given_problem=packings(items=40))
@settings(max_examples=100, deadline=None)
def test_trim_from_cold_never_opens_more_than_first_fit_decreasing(given_problem: Problem) -> None:
    cold = replace(given_problem, items=tuple(structs.replace(entry, owner=None) for entry in given_problem.items))
    ours, theirs = make_packer("trim").pack(cold), make_packer("ffd").pack(cold)
    assert ours.opened <= theirs.opened
    assert ours.misfits == ()
    assert make_packer("trim").pack(given_problem).opened <= theirs.opened, "nor with owners"


@pytest.mark.slow
@pytest.mark.parametrize("name", KEEPS)
@given(given_problem=packings(alike=False), group=st.booleans())
@settings(max_examples=15, deadline=None)
def test_nothing_moves_when_nothing_changed(name: str, given_problem: Problem, group: bool) -> None:
    """All but the modified any-fits, which are made to move the small ones along."""
    given_problem = replace(given_problem, fewest=not group)
    first = make_packer(name).pack(given_problem)
    done = replace(
        given_problem,
        items=tuple(structs.replace(e, owner=first.owners.get(e.partition, e.owner)) for e in given_problem.items),
    )
    second = make_packer(name).pack(done)
    if name == "trim" and not group and second.opened < first.opened:
        return  # it may find a way to do with fewer from where it stands now
    assert second.moves == ()


@given(
    given_problem=problems(),
    scale=st.floats(0.0, 1.0),
    factor=st.floats(0.5, 4.0),
    capacities=st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=1, max_size=4),
)
@settings(max_examples=200, deadline=None)
def test_what_is_in_time_all_on_one_member_is_in_time_dealt_out(
    given_problem: Problem, scale: float, factor: float, capacities: list[float]
) -> None:
    items = [
        structs.replace(
            entry,
            work=entry.work * scale,
            mean=tuple(mean * scale for mean in entry.mean),
            stddev=tuple(stddev * scale for stddev in entry.stddev),
            persistent_backlog=entry.persistent_backlog * scale,
        )
        for entry in given_problem.items
    ]
    limits = replace(given_problem.limits, load_factor=factor)
    if Whole(Columns(items)).in_time(limits, min(capacities)):
        assert LongestFirst(items, limits).late(capacities) == 0.0


ROOMS = st.lists(st.sampled_from([0.0, 1.0, 2.0, 2.5, 4.0]), min_size=1, max_size=6)


@given(ROOMS, st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0]), st.booleans()), max_size=8), st.data())
def test_best_and_worst_fit_are_what_looking_at_every_bin_finds(
    rooms: list[float], placed: list[tuple[float, bool]], data: st.DataObject
) -> None:
    """Bins of which some may not own everything; of equals the lowest; kept up to date while they fill."""
    topics = data.draw(st.lists(st.booleans(), min_size=len(rooms), max_size=len(rooms)))
    source = BinSource(
        [
            Bin(member=f"c{at}", unit=f"c{at}", capacity=room + 1.0, topics=None if every else frozenset({"orders"}))
            for at, (room, every) in enumerate(zip(rooms, topics, strict=True))
        ]
    )
    for at in data.draw(st.permutations(range(len(rooms)))):
        source.start(at)
    for number, (size, orders) in enumerate(placed):
        asked = item(number, None, size, topic="orders" if orders else "u")
        able = [at for at in source.open if size <= source.room[at] and source.may(at, asked)]
        assert best(source, asked) == min(able, key=lambda at: (source.room[at], at), default=None)
        assert worst(source, asked) == max(able, key=lambda at: (source.room[at], -at), default=None)
        if able:
            source.put(data.draw(st.sampled_from(able)), asked)


def test_many_that_vary_on_their_own_are_in_time_together() -> None:
    """The sum of their deviations says nothing: with 1 000 quiet partitions it was above any member's capacity."""
    items = [
        Item(partition=Partition("t", index), owner=None, work=1e-5, mean=(1e-5,) * 7, stddev=(1e-3,) * 7)
        for index in range(1_000)
    ]
    apart, together = (Limits(objective_seconds=1.0, correlation=correlation) for correlation in (0.0, 1.0))
    assert Whole(Columns(items)).in_time(apart, 1.0)
    assert LongestFirst(items, apart).late([1.0]) == 0.0
    assert not Whole(Columns(items)).in_time(together, 1.0)
