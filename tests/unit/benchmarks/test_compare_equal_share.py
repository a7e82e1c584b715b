"""Costs at equal share: the search for a policy's cheapest parameter, and what is told of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from benchmarks.compare import equal_share, equal_share_picture, held_out
from benchmarks.compare.equal_share import FACTORS, KNOBS, EqualShareRun, cheapest, knob_of, play_equal, rows_of
from benchmarks.compare.equal_share_picture import COST_MAX, costs_by_family, draw
from benchmarks.compare.held_out import FIXED, HeldOutResult, drawn_of
from hypothesis import given
from hypothesis import strategies as st

from loadtrim_agent.planning.registry import make_policy
from loadtrim_agent.planning.sizing.policy import Measure
from loadtrim_agent.planning.values import PlanConfig
from unit.benchmarks.test_compare_held_out import result

NAME = "tuning/steps/1"


@dataclass(frozen=True)
class Tried:
    kept: bool
    replica_minutes: float


def keeps_from(limit: float) -> Callable[[float], Tried]:
    """A policy that keeps the share from a factor on, and costs as much as the factor says."""
    return lambda factor: Tried(factor >= limit, 10.0 * factor)


@given(st.floats(FACTORS[0], FACTORS[1]))
def test_the_cheapest_that_keeps_is_found_but_for_five_percent(limit: float) -> None:
    tried = cheapest(keeps_from(limit))
    best = min(run.replica_minutes for run in tried.values() if run.kept)
    assert 10.0 * limit <= best <= 10.0 * limit * 1.0520
    assert len(tried) <= 2 + math.ceil(math.log(8.0, 1.5)) + equal_share.HALVINGS


@pytest.mark.parametrize("limit", [0.01, 100.0])
def test_the_search_ends_where_all_or_none_keeps(limit: float) -> None:
    tried = cheapest(keeps_from(limit))
    assert (min(tried), max(tried)) == ((FACTORS[0], 1.0) if limit < 1.0 else (1.0, FACTORS[1]))


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_every_parameter_is_one_that_the_policy_takes(knob: equal_share.Knob) -> None:
    drawn = drawn_of(NAME)
    for factor in (*FACTORS, 1.0):
        config = PlanConfig(group="g", policy=knob.choice(drawn, factor).policy, sla_share=knob.share(drawn, factor))
        assert config.policy.startswith(knob.name.partition(",")[0])
        make_policy(config.policy, frozenset(Measure))
    assert knob.share(drawn, 1.0) == pytest.approx(drawn.share)


def test_more_asked_of_a_policy_is_told_to_it_and_not_judged_by(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[PlanConfig] = []

    def keep(load: object, config: PlanConfig, options: object) -> object:
        told.append(config)
        raise InterruptedError

    monkeypatch.setattr(held_out, "simulate", keep)
    knob, drawn = knob_of("objective"), drawn_of(NAME)
    with pytest.raises(InterruptedError):
        held_out.play_policy(NAME, knob.choice(drawn, 2.0), 1, share=knob.share(drawn, 2.0))
    assert told[0].sla_share == pytest.approx(1.0 - (1.0 - drawn.share) / 16.0)


def test_a_load_is_played_until_the_cheapest_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept from 0.8 of what it has by itself: 0.67 is missed, so the search is between these."""
    played: list[float] = []

    def play(name: str, choice: held_out.Choice, seed: int, share: float | None = None) -> HeldOutResult:
        factor = 1.0 / (float(choice.policy.partition("=")[2]) * drawn_of(name).scenario.cost_seconds)
        played.append(factor)
        return result("iccbdc22", 0.995 if factor >= 0.8 else 0.9, 10.0 * factor, name=name)

    monkeypatch.setattr(equal_share, "play_policy", play)
    run = play_equal((NAME, "iccbdc22", 1))
    assert 0.8 <= run.factor <= 0.84
    assert (run.tried, run.default.replica_minutes) == (len(played), pytest.approx(10.0))
    assert run.best.replica_minutes == pytest.approx(10.0 * run.factor)


def equal(choice: str, minutes: float, factor: float = 1.0, name: str = NAME) -> EqualShareRun:
    one = msgspec.structs.replace(result(choice, 0.995, minutes, name=name), scalings=4)
    return EqualShareRun(name=name, choice=choice, seed=1, code="", factor=factor, default=one, best=one, tried=3)


def test_costs_are_told_by_the_cheapest_of_a_load() -> None:
    runs = [
        equal("clairvoyant", 10.0), equal("objective", 11.0), equal("keda", 30.0, 0.0), equal(FIXED, 20.0),
        equal("clairvoyant", 26.0, name="tuning/steps/2"), equal("objective", 13.0, 0.5, name="tuning/steps/2"),
        equal("objective", 20.0, name="tuning/steps/3"), equal("linear", 10.0, name="tuning/steps/3"),
        equal("clairvoyant, slicing", 5.0, name="tuning/steps/3"),
        equal("objective", 9.0, 0.0, name="tuning/steps/4"),
    ]  # fmt: skip
    rows = {row.choice: row for row in rows_of(runs) if row.family == "all"}
    objective = rows["objective"]
    assert (objective.kept, objective.loads, objective.factors) == (3, 3, (0.5, 1.0)), "the last is kept by none"
    assert (objective.cost, objective.cost_worst) == (pytest.approx(1.1), pytest.approx(2.0))
    assert rows["clairvoyant"].cost_worst == pytest.approx(2.0)
    assert rows["clairvoyant, slicing"].cost == pytest.approx(0.5), "partitions that are cut set no line"
    assert (rows["keda"].kept, rows["keda"].loads) == (0, 1)
    assert math.isnan(rows["keda"].cost)
    assert rows[FIXED].cost == pytest.approx(2.0)
    assert "steps" in equal_share.table(rows_of(runs))


def test_a_dot_is_a_load_and_what_is_not_kept_stands_at_the_edge() -> None:
    runs = [
        equal("clairvoyant", 10.0), equal("objective", 12.0), equal("keda", 30.0, 0.0), equal("linear", 90.0),
        equal("clairvoyant", 10.0, 0.0, name="tuning/steps/2"), equal("objective", 10.0, 0.0, name="tuning/steps/2"),
    ]  # fmt: skip
    costs = costs_by_family(runs)["steps"]
    assert costs["objective"] == [pytest.approx(1.2)], "a load that nobody keeps is left out"
    assert (costs["keda"], costs["linear"]) == ([COST_MAX], [COST_MAX])


@pytest.mark.slow
def test_the_picture_is_drawn(tmp_path: Path) -> None:
    file = tmp_path / "costs.png"
    draw(file, costs_by_family([equal("clairvoyant", 10.0), equal("objective", 12.0)]))
    assert file.stat().st_size > 5_000


def test_without_searches_it_is_said_what_to_play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(equal_share_picture, "OUT", tmp_path)
    assert equal_share_picture.main(["verdict", str(tmp_path / "none.png")]) == 1
    assert "benchmarks.compare.equal_share verdict" in capsys.readouterr().err
