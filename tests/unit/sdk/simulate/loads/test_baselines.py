"""Baselines in the simulator: a leader that knows the week has its replicas before the rise."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loadtrim.cli import main
from loadtrim.simulate import (
    BaselineRecord,
    Costs,
    LoadFileError,
    Options,
    Outcome,
    PlanConfig,
    WrongLoadError,
    parse_generator,
    parse_moment,
    read_baselines,
    simulate,
)
from loadtrim_agent.wire.baseline_records import WEEK_SECONDS
from unit.planning.baseline_feed import MONDAY, data, record, value

BEGIN = MONDAY + 9 * 3600 - 120.0
"""The rise is at nine, two minutes after the load's beginning."""
LOAD = "step:before=100,after=400,at=120,seconds=180"
CALM = "constant:rate=50,seconds=45"
COST = 0.005
STARTUP = 60.0


def at_nine(second: int) -> float:
    return 4.0 if 9 * 3600 <= second % 86_400 < 17 * 3600 else 1.0


def play(baselines: tuple[BaselineRecord, ...], begins_at: float = BEGIN, text: str = CALM, **changes: Any) -> Outcome:
    config = PlanConfig(group="g", sla_seconds=1.0, startup_seconds=STARTUP)
    given: dict[str, Any] = {"costs": Costs(mean_seconds=COST), "startup_seconds": STARTUP, "begins_at": begins_at}
    load = replace(parse_generator(text, 4), arrivals="even")
    return simulate(load, config, Options(**(given | {"baselines": baselines} | changes)))


@pytest.mark.slow
def test_with_a_start_up_time_of_a_minute_the_group_is_ready_before_the_rise() -> None:
    learnt = record(at_nine, topic="load", bucket_seconds=900)
    with_it, without = play((learnt,), text=LOAD), play((), text=LOAD)
    needed = 400.0 * COST
    assert with_it.curves.replicas[119] >= needed, "in the second before the rise"
    assert without.curves.replicas[119] < needed
    assert with_it.share_in_time == 1.0
    assert without.share_in_time < 0.9
    # The price: the replicas a start-up time earlier.
    assert with_it.replica_minutes <= without.replica_minutes + 4 * (STARTUP + 5.0) / 60.0
    (up,) = [decision for _, decision in with_it.decisions if decision.outcome in ("up", "down")]
    assert "by the baseline" in up.reason


@pytest.mark.slow
def test_local_time_counts() -> None:
    """Nine o'clock in Berlin is eight in UTC: to a leader that is told so the rise is an hour away."""
    learnt = record(at_nine, topic="load", time_zone="Europe/Berlin", rate=50.0)
    soon, late = play((learnt,), begins_at=BEGIN - 3600.0), play((learnt,))
    told = [[d.baseline for at, d in outcome.decisions if 40 < at < 45] for outcome in (soon, late)]
    assert max(use.returning or 0.0 for use in told[0] if use is not None) == pytest.approx(200 * COST, rel=0.1)
    assert {use.reason_code for use in told[1] if use is not None} == {"contradicted"}, "it is ten there already"


@pytest.mark.slow
def test_the_load_can_be_of_any_time() -> None:
    """1998, as a recorded trace: decisions carry its times, and one seed plays one way."""
    begin = 896_659_200.4
    learnt = record(lambda second: 1.0, topic="load", at=begin, to=begin, rate=50.0)
    first, second = (play((learnt,), begins_at=begin) for _ in range(2))
    assert first.decisions == second.decisions
    assert 0.0 <= first.decisions[0][1].at - begin < 3.0
    used = [decision.baseline.used for _, decision in first.decisions if decision.baseline is not None]
    assert any(used)
    stale = play((learnt,), begins_at=begin + 9 * 86_400.0)
    assert {d.baseline.reason_code for _, d in stale.decisions if d.baseline is not None} == {"stale"}


@pytest.mark.slow
def test_when_the_load_begins_changes_nothing_without_baselines() -> None:
    told = [play((), begins_at=begin, phase_seconds=0.5) for begin in (MONDAY, MONDAY + WEEK_SECONDS)]
    assert list(told[0].latencies) == pytest.approx(list(told[1].latencies), abs=1e-5)
    assert told[0].replica_minutes == pytest.approx(told[1].replica_minutes, abs=1e-5)


@pytest.mark.parametrize("changes", [{"begins_at": None}, {"begins_at": -1.0}, {"begins_at": 1.7e12}])
def test_baselines_need_to_know_when(changes: dict[str, Any]) -> None:
    with pytest.raises(WrongLoadError, match="begin"):
        Options(baselines=(record(topic="load"),), **changes)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "baselines.jsonl"
    lines = [
        value(topic="a", rate=1.0),
        value(topic="a", partition=0),
        value(topic=None),
        value(topic="b"),
        value(topic="a"),
    ]
    path.write_bytes(b"\n\n".join(map(data, lines)))
    assert [(each.topic, each.rate) for each in read_baselines(path)] == [("a", 100.0), ("b", 100.0)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no baseline"),
        (data(value(partition=1)), "no baseline"),
        (data(value()) + b"\n{", "line 2"),
        (data(value(rate=-1.0)), "line 1"),
        (data(value()) + b"\n" + data(value(group="h")), "'g' and 'h'"),
        (None, "cannot be read"),
    ],
)
def test_files_that_are_none(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "baselines.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LoadFileError, match=said):
        read_baselines(path)


@pytest.mark.parametrize("text", ["1715156100", "2024-05-08T08:15:00", "2024-05-08 10:15:00+02:00"])
def test_moments(text: str) -> None:
    assert parse_moment(text) == 1715156100.0


@pytest.mark.parametrize("text", ["nine", "nan", "2024-13-01"])
def test_moments_that_are_none(text: str) -> None:
    with pytest.raises(WrongLoadError, match="moment"):
        parse_moment(text)


def written(tmp_path: Path, level: Callable[[int], float] = at_nine, topic: str = "load") -> str:
    path = tmp_path / "baselines.jsonl"
    path.write_bytes(data(value(level, topic=topic)))
    return str(path)


SHORT = ["simulate", "step:before=100,after=400,at=60,seconds=65", "--cost", "5ms", "--startup", "20"]


@pytest.mark.slow
def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SHORT, "--baselines", written(tmp_path), "--begins-at", str(MONDAY + 9 * 3600 - 60), "--arrivals", "even"]
    assert main([*words, "--json", "--curves"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["curves"]["replicas"][59] >= 2
    assert main(words) == 0
    assert "baselines of baselines.jsonl" in capsys.readouterr().out


def test_wrong_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for topic, words, said in (
        ("load", [], "--begins-at"),
        ("orders", ["--begins-at", "0"], "is about orders, and the load is of load"),
        ("load", ["--begins-at", "soon"], "is no moment"),
    ):
        assert main([*SHORT, "--baselines", written(tmp_path, topic=topic), *words]) == 2
        assert said in capsys.readouterr().err
