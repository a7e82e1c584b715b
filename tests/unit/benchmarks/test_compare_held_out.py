"""Loads drawn by seed: what judges is never what was chosen by, and equal names are equal loads."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from statistics import fmean

import pytest
from benchmarks.compare import families, held_out, tuning_set, verdict_set
from benchmarks.compare.families import draw
from benchmarks.compare.held_out import FIXED, HeldOutResult, names_of, play, rows_of

from loadtrim_agent import planning

NAMES = [*names_of("tuning", seeds=1), *names_of("verdict", seeds=1)]


def result(
    choice: str, share: float, minutes: float = 10.0, name: str = "tuning/steps/1", **more: int
) -> HeldOutResult:
    return HeldOutResult(
        name=name, choice=choice, seed=1, share=share, asked=0.99, work_minutes=5.0,
        replica_minutes=minutes, scalings=2, moves=0, cpu_seconds=0.0, **more,
    )  # fmt: skip


def test_the_sets_have_nothing_in_common() -> None:
    assert not set(tuning_set.SEEDS) & set(verdict_set.SEEDS)
    shared = set(tuning_set.FAMILIES) & set(verdict_set.FAMILIES)
    assert shared == {"constant"}, "a constant load has one shape; its seeds are others"
    assert not set(names_of("tuning")) & set(names_of("verdict"))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_drawn_is_within_bounds_and_always_the_same(name: str) -> None:
    sets = {"tuning": tuning_set, "verdict": verdict_set}[name.split("/")[0]].FAMILIES
    drawn = draw(name, sets)
    assert drawn == draw(name, sets)
    scenario, load = drawn.scenario, drawn.scenario.load
    assert 0.2 <= scenario.objective_seconds <= 60.0
    assert 0.5 <= drawn.startup_seconds <= 120.0
    assert 3 <= len(load.partitions) <= 200
    assert load.records <= 2.5 * families.RECORDS_MAX
    assert all(math.isclose(math.fsum(row), 1.0) for row in load.shares)
    assert fmean(load.per_second) * scenario.cost_seconds < 2.5 * families.LEVEL_MEMBERS[1]


def imports_of(module: Path) -> set[str]:
    """Return the top-level packages that a module imports anywhere."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).partition(".")[0])
    return found


def test_the_planner_knows_neither_set() -> None:
    modules = sorted(Path(planning.__path__[0]).rglob("*.py"))
    assert len(modules) > 30
    assert not [module for module in modules if imports_of(module) & {"benchmarks"}]


def test_a_run_is_judged_after_the_settling_time_by_what_is_asked() -> None:
    assert result("objective", 0.9896).kept, "missed by 0.04 points"
    assert not result("objective", 0.9894).kept


def test_a_load_counts_where_a_fixed_number_keeps_it() -> None:
    runs = [result(FIXED, 0.995, 20.0, replicas=3), result("objective", 0.98, 15.0)]
    hopeless = [result(FIXED, 0.8, 90.0, name="tuning/steps/2"), result("objective", 0.7, name="tuning/steps/2")]
    of_family, of_all = rows_of([*runs, *hopeless], ["objective"])
    assert (of_family.kept, of_family.loads, of_family.family) == (0, 1, "steps")
    assert of_family.missed_points == pytest.approx(1.0)
    assert of_family.late_allowed == pytest.approx(2.0)
    assert (of_family.cost, of_family.over_fixed) == (pytest.approx(3.0), pytest.approx(0.75))
    assert of_all.loads == 1


def test_the_fewest_fixed_replicas_are_searched_for_up_to_one_for_each_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[int] = []

    def played(name: str, replicas: int, seed: int) -> HeldOutResult:
        tried.append(replicas)
        return result(FIXED, 0.995 if replicas >= enough else 0.5)

    monkeypatch.setattr(held_out, "_with_fixed", played)
    enough = 5
    name = "tuning/rises/3"
    assert play(name, FIXED, 1).replicas == 5
    assert tried == sorted(tried)
    tried.clear()
    enough = 1000
    assert play(name, FIXED, 1).replicas == 0
    assert tried[-1] == len(held_out.drawn_of(name).scenario.load.partitions)


@pytest.mark.slow
def test_a_run_can_be_played_again() -> None:
    first = play("tuning/rises/1", "objective", 1)
    again = play("tuning/rises/1", "objective", 1)
    assert (first.share, first.replica_minutes, first.code) == (again.share, again.replica_minutes, again.code)
