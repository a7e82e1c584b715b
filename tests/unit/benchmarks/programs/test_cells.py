"""Loads are drawn as a cell says, and a member's capacity is what its program can do."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, pstdev

import pytest
from benchmarks.programs.cells import JUDGED, LEVELS, PARTITIONS, Cell, arrivals, capacity, cell_named, cells

from programs.shapes import SHAPES

CELLS = {cell.name: cell for cell in cells(random.Random(1))}


def test_every_program_meets_every_load() -> None:
    assert {name for name in CELLS if name.startswith("gather/")} == {
        *(f"gather/{level:g}" for level in LEVELS),
        "gather/step",
    }
    assert set(JUDGED) == set(SHAPES) - {"unbounded"}
    assert cell_named("threads/step", CELLS).program == "threads"
    with pytest.raises(ValueError, match="no cell is called 'threads/9'; there are one-by-one/0.3, "):
        cell_named("threads/9", CELLS)


def test_the_length_of_records_is_drawn_for_each_program_and_the_objective_follows_it() -> None:
    lengths = {cell.record_seconds for cell in CELLS.values() if cell.program in JUDGED and "slow" not in cell.load}
    assert len(lengths) == len(JUDGED)
    assert all(0.25 <= seconds <= 1.0 for seconds in lengths)
    assert all(cell.objective_seconds == 10 * cell.record_seconds for cell in CELLS.values() if "slow" not in cell.load)


def test_the_same_seed_is_the_same_load_and_another_one_is_not() -> None:
    cell = CELLS["one-by-one/1.5"]
    assert arrivals(cell, 1) == arrivals(cell, 1)
    assert arrivals(cell, 1)[:5] != arrivals(cell, 2)[:5]


def test_arrivals_bring_as_much_work_as_the_level_says() -> None:
    cell = replace(CELLS["semaphore/2.5"], seconds=600.0)
    load = arrivals(cell, 7)
    assert sum(arrival.busy_seconds for arrival in load) / cell.seconds / 10 == pytest.approx(2.5, rel=0.03)
    times = [arrival.busy_seconds for arrival in load]
    assert fmean(times) == pytest.approx(cell.record_seconds, rel=0.02)
    assert pstdev(times) / fmean(times) == pytest.approx(cell.variation, rel=0.05)
    gaps = [after.at - before.at for before, after in pairwise(load)]
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(1.0, rel=0.05), "a Poisson process"


def test_keys_at_random_make_partitions_of_unequal_load() -> None:
    counts = Counter(arrival.partition for arrival in arrivals(CELLS["semaphore/4.5"], 3))
    assert len(counts) == PARTITIONS
    assert 1.15 < max(counts.values()) / fmean(counts.values()) < 2.0


def test_a_step_is_at_its_moment_and_both_sides_are_judged_when_they_have_settled() -> None:
    cell = CELLS["one-by-one/step"]
    (_, before), (step_at, after) = cell.levels
    assert cell.windows == ((120.0, step_at), (step_at + 120.0, cell.seconds))
    assert (cell.rate(step_at - 0.1), cell.rate(step_at)) == pytest.approx(
        (before / cell.record_seconds, after / cell.record_seconds)
    )
    assert cell.replicas_least == 3


def test_the_capacity_of_a_batch_is_set_by_its_slowest_record() -> None:
    rng = random.Random(2)
    shape, cell = SHAPES["gather"], replace(CELLS["one-by-one/4.5"], seconds=4000.0)
    times = [arrival.busy_seconds for arrival in arrivals(cell, 4)]
    slowest = fmean(max(rng.sample(times, shape.at_once)) for _ in range(4000))
    assert capacity(shape, cell.record_seconds, cell.variation) == pytest.approx(shape.at_once / slowest, rel=0.03)
    assert capacity(SHAPES["threads"], 0.3, 0.5) == pytest.approx(4 / 0.3)


def test_slow_records_come_at_equal_distances_in_turn() -> None:
    cell: Cell = CELLS["one-by-one/slow"]
    load = arrivals(cell, 1)
    assert [(round(arrival.at, 3), arrival.partition, arrival.busy_seconds) for arrival in load[:3]] == [
        (0.0, 0, 4.0),
        (1.667, 1, 4.0),
        (3.333, 2, 4.0),
    ]
    assert len(load) == 360
