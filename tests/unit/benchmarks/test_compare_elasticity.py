"""How closely policies follow what a load takes: the demand curve, and SPEC's measures."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.compare import elasticity as module
from benchmarks.compare.elasticity import (
    DemandPoint,
    Elasticity,
    LoadElasticity,
    demand_by_second,
    elasticity,
    means,
    ratchet,
    rates_around,
)
from benchmarks.compare.held_out import drawn_of

CURVE = (DemandPoint(rate=10.0, replicas=1), DemandPoint(rate=20.0, replicas=3))


def test_the_measures_are_those_of_the_spec_research_group() -> None:
    """Worked by hand: demand 2 2 4 4, supply 2 3 2 4."""
    found = elasticity([2, 2, 4, 4], [2, 3, 2, 4], kept=True)
    assert found.too_few == pytest.approx(100.0 * (2 / 4) / 4)
    assert found.too_many == pytest.approx(100.0 * (1 / 2) / 4)
    assert (found.time_too_few, found.time_too_many) == (25.0, 25.0)
    assert found.unstable == pytest.approx(100.0), "up before it is taken, down when more is, up when nothing changes"


def test_who_follows_at_once_has_nothing_to_be_told_of() -> None:
    assert elasticity([1, 2, 2, 1], [1, 2, 2, 1], kept=True) == Elasticity(
        kept=1.0, too_few=0.0, too_many=0.0, time_too_few=0.0, time_too_many=0.0, unstable=0.0
    )


def test_a_second_takes_what_the_next_higher_rate_takes() -> None:
    assert demand_by_second([0.0, 10.0, 10.1, 20.0, 25.0], CURVE) == [1, 1, 3, 3, 3]


def test_a_rate_is_the_mean_of_ten_seconds() -> None:
    rates = rates_around([0.0] * 10 + [10.0] * 10)
    assert (rates[4], rates[10], rates[19]) == (0.0, 5.0, 10.0)


def test_more_records_never_take_fewer_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """By chance a higher rate may be kept by fewer."""
    drawn = drawn_of("tuning/steps/1")
    least = min(rates_around(drawn.scenario.load.per_second))
    kept_by = {least: 3}
    monkeypatch.setattr(
        module, "_kept", lambda lasting, seed, replicas: replicas >= kept_by.get(lasting.scenario.load.per_second[0], 1)
    )
    found = [point.replicas for point in module.demand_curve(drawn, 1)]
    assert found[:2] == [3, 3]


def test_a_ratchet_asks_for_the_most_so_far() -> None:
    assert ratchet([2, 2, 1, 3, 3, 2, 4]) == ((0.0, 2), (3.0, 3), (6.0, 4))


def test_a_rate_that_lasts_is_the_loads_own() -> None:
    drawn = drawn_of("tuning/cosine/3")
    load = module._lasting(drawn, 7.0).scenario.load
    assert set(load.per_second) == {7.0}
    assert load.seconds > 180 + drawn.scenario.objective_seconds
    assert sum(load.shares[0]) == pytest.approx(1.0)
    assert (load.arrivals, load.keys) == (drawn.scenario.load.arrivals, drawn.scenario.load.keys)


def measured(too_few: float) -> Elasticity:
    return Elasticity(kept=1.0, too_few=too_few, too_many=0.0, time_too_few=0.0, time_too_many=0.0, unstable=0.0)


def test_a_policy_has_the_mean_of_its_loads() -> None:
    loads = [
        LoadElasticity(name=f"tuning/steps/{at}", seed=1, code="", demand=CURVE, by_choice={"keda": measured(too_few)})
        for at, too_few in enumerate((10.0, 30.0))
    ]
    assert means(loads) == {"keda": measured(20.0)}


@pytest.mark.slow
def test_a_load_is_played_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "OUT", tmp_path)
    monkeypatch.setattr(module, "LEVELS", 2)
    asked = ["tuning", "--families", "ramp", "--seeds", "1", "--policies", "linear (mu x W)", "--processes", "1"]
    assert module.main([*asked, "--seconds", "0"]) == 1
    assert module.main(asked) == 0
    assert "linear (mu x W)" in capsys.readouterr().out
    assert module.main([*asked, "--each"]) == 0
    told = capsys.readouterr()
    assert "1 of 1 loads are kept" in told.err
    assert "replicas by rate" in told.out
