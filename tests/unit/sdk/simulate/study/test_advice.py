"""Advice: each kind in a case in which it is right, found by playing it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loadtrim.simulate import Costs, Load, Options, PlanConfig, parse_costs, parse_generator, protocol_of, simulate
from loadtrim.simulate.study import advice as module
from loadtrim.simulate.study.advice import Advice, advise, records_alone
from loadtrim.simulate.study.fixed_group import replicas_at_first

FIVE_MS = Costs(mean_seconds=0.005)


def advice(load: Load, config: PlanConfig, **given: Any) -> Advice:
    options = Options(**({"costs": FIVE_MS} | given))
    if "replicas" not in given:
        options = replace(options, replicas=replicas_at_first(load, config, options))
    outcome = simulate(load, config, options)
    assert outcome.share_in_time < config.sla_share, "the case is one that misses"
    return advise(load, config, options, outcome)


def made(text: str, partitions: int, **changes: Any) -> Load:
    return replace(parse_generator(text, partitions), **({"arrivals": "poisson"} | changes))


def helped(found: Advice) -> dict[str, str]:
    return {trial.change: trial.words for trial in found.trials if trial.holds}


@pytest.mark.slow
def test_a_partition_that_is_too_much_for_one_member_takes_more_partitions() -> None:
    load = made("constant:rate=300,seconds=30", 2, shares=((0.8, 0.2),), keys="fixed")
    found = advice(load, PlanConfig())
    assert helped(found) == {"partitions": "4 partitions, over which keys fall as evenly"}
    assert found.text.startswith("99.9 % would be held with 4 partitions, over which keys fall as evenly (100.00 %, ")


@pytest.mark.slow
def test_a_maximum_that_is_too_low_is_raised_and_partitions_do_not_help() -> None:
    found = advice(made("constant:rate=300,seconds=30", 4), PlanConfig(max_replicas=1))
    assert helped(found)["maximum"] == "--max 2 --replicas 2"
    assert "partitions" not in helped(found)


@pytest.mark.slow
def test_replicas_that_come_too_late_take_a_quicker_start_up_or_a_minimum() -> None:
    found = advice(
        made("step:before=50,after=300,at=20,seconds=60", 9), PlanConfig(startup_seconds=4.0), startup_seconds=4.0
    )
    assert helped(found)["start-up"] == "a start-up of 1 s"
    assert helped(found)["minimum"] == "--min 2"
    assert "partitions" not in {trial.change for trial in found.trials}, "what cannot help is not played"


@pytest.mark.slow
def test_a_rise_that_comes_every_day_takes_a_baseline() -> None:
    load = made("step:before=100,after=400,at=120,seconds=180", 4, arrivals="even")
    found = advice(load, PlanConfig(startup_seconds=60.0), startup_seconds=60.0)
    assert helped(found)["baseline"] == "a baseline, if the load comes at these times again"
    assert "start-up" not in helped(found), "no start-up that was tried is quick enough"


@pytest.mark.slow
def test_a_cold_start_takes_replicas_at_the_start() -> None:
    load = made("constant:rate=500,seconds=30", 9)
    found = advice(load, PlanConfig(startup_seconds=10.0), startup_seconds=10.0, replicas=1)
    assert helped(found)["replicas"] == "--replicas 3 at the start"


@pytest.mark.slow
def test_an_objective_that_bursts_leave_no_time_for_takes_a_longer_one() -> None:
    """Forty records of one partition come at once and take 0.2 s: no second member may help with them."""
    load = made("constant:rate=40,seconds=20", 1, arrivals="burst")
    found = advice(load, PlanConfig(sla_seconds=0.15))
    assert helped(found)["objective"] == "an objective of 0.3 s"


@pytest.mark.slow
def test_a_policy_and_a_protocol_of_others_are_told_of_ours() -> None:
    load = made("constant:rate=500,seconds=30", 9)
    found = advice(load, PlanConfig(policy="fixed:replicas=2", packer="sticky"), replicas=2)
    assert helped(found)["policy"] == "--policy objective --replicas 3"
    rising = made("ramp:begin=100,end=500,seconds=60", 9)
    found = advice(rising, PlanConfig(sla_seconds=0.3), protocol=protocol_of("cooperative"))
    assert helped(found)["protocol"] == "--protocol loadtrim"


@pytest.mark.slow
def test_records_that_take_longer_than_the_objective_are_helped_by_no_group() -> None:
    costs = parse_costs("lognormal:400ms,1")
    found = advice(made("constant:rate=6,seconds=20", 9), PlanConfig(), costs=costs)
    assert (found.code, found.trials) == ("record", ())
    assert found.text.startswith("no group helps: 6.33 % of the records take longer than W = 1 s by themselves; 99.9 %")
    alone, least = records_alone(Options(costs=costs), 4.4, 0.999)
    assert alone < 0.001
    assert least < 4.4


@pytest.mark.slow
def test_what_nothing_holds_is_said_with_the_best_that_was_played() -> None:
    load = made("constant:rate=3000,seconds=10", 2)
    found = advice(load, PlanConfig())
    assert found.code == "none"
    best = max(found.trials, key=lambda trial: trial.share_in_time)
    assert found.text.startswith(f"no single change of {len(found.trials)} that were played holds 99.9 %; the best is")
    assert best.words in found.text


@pytest.mark.slow
def test_of_a_long_load_the_worst_stretch_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_SECONDS", 60)
    rates = [20.0] * 90 + [400.0] * 10 + [20.0] * 50
    load = replace(made(f"constant:seconds={len(rates)}", 4), per_second=tuple(rates))
    found = advice(load, PlanConfig(startup_seconds=5.0), startup_seconds=5.0)
    assert found.seconds == 60
    assert found.begin <= 90 <= 100 <= found.begin + 60
    assert f"played on the worst 60 s from second {found.begin} on" in found.text


@pytest.mark.slow
def test_a_longer_objective_is_no_answer_where_there_is_another() -> None:
    """It is cheapest, and it is not what was asked for."""
    found = advice(made("step:before=100,after=400,at=10,seconds=40", 6), PlanConfig(sla_seconds=0.8))
    assert helped(found) == {"minimum": "--min 2"}
    assert "objective" not in {trial.change for trial in found.trials}
