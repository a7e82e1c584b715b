"""Real runs on the page: what was played stays there when something is played again, in the plans' order."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import get_origin

import msgspec
import pytest
from benchmarks.papers import __main__ as papers
from benchmarks.papers import real
from benchmarks.papers.bench import ExperimentContext
from benchmarks.papers.real_page import PICTURE, RealRun, load_runs, merge_runs, paint, section

from demo.report import Latency, RunSummary
from demo.telemetry import ControlEntry, save_entries
from loadtrim_agent.wire.codec import encode
from loadtrim_agent.wire.envelope import TELEMETRY
from loadtrim_agent.wire.telemetry_records import ReportRecord

ORDER = [("W1", "Alg. 2"), ("W1", "aiokafka"), ("W2", "objective")]


def run(load: str, consumers: str, **changes: object) -> RealRun:
    plain = RealRun(
        load=load, consumers=consumers, share=97.125, replica_minutes=30.5, p99=0.61, rebalances=7, lost=0, repeated=2,
        stolen=0.4, at=1_800_000_000.0, machine="2 cores",
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)


def test_runs_take_the_place_of_their_like(tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    assert merge_runs(folder, [], ORDER) == []
    assert not folder.exists()
    merge_runs(folder, [run("W2", "objective"), run("W1", "aiokafka", scaled_as="Alg. 2")], ORDER)
    runs = merge_runs(folder, [run("W1", "Alg. 2"), run("W2", "objective", share=99.0)], ORDER)
    assert [(each.load, each.consumers, each.share) for each in runs] == [
        ("W1", "Alg. 2", 97.125),
        ("W1", "aiokafka", 97.125),
        ("W2", "objective", 99.0),
    ]
    assert load_runs(folder) == runs


def test_where_nothing_was_played_nothing_is_drawn(tmp_path: Path) -> None:
    real.publish({}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_page_tells_the_paper_beside_ours() -> None:
    assert section([]) == []
    runs = [run("W1", "Alg. 2", paper_share=97.4, paper_minutes=30.21), run("W1", "aiokafka", scaled_as="Alg. 2")]
    text = "\n".join(section(runs))
    assert "| Alg. 2 | 97.12 | 97.4 | 30.50 | 30.21 | 0.61 | 7 | 0 | 2 | - | 0.4 |" in text
    assert "| aiokafka, scaled as Alg. 2 | 97.12 | - | 30.50 | - |" in text
    assert "2 cores" in text
    assert f"({PICTURE})" in text


def test_the_page_tells_how_many_went_on_at_once() -> None:
    alone = [run("W1", "Alg. 2", at=0.0), run("W1", "aiokafka", at=640.0)]
    assert "at once" not in "\n".join(section(alone))
    assert "up to 2 of them at once" in "\n".join(section([*alone, run("W2", "objective", at=700.0)]))


@pytest.mark.slow
def test_the_picture_has_a_panel_for_each_load(tmp_path: Path) -> None:
    runs = [run("W1", "Alg. 2", paper_share=97.4, paper_minutes=30.21), run("W2", "objective")]
    titles: list[str] = []

    def painted(figure: object) -> None:
        paint(figure, runs)
        titles.extend(axes.get_title() for axes in figure.axes)  # type: ignore[attr-defined]

    ExperimentContext(quick=False, pool=None, folder=tmp_path).draw(PICTURE, "", painted)
    assert titles == ["W1", "W2"]
    assert (tmp_path / PICTURE).exists()


def test_every_plan_has_a_name_of_its_own_and_stands_behind_what_it_is_scaled_as() -> None:
    plans = real.plans()
    names = [plan.name for plan in plans]
    assert len(set(names)) == len(names)
    assert all(names.index(plan.scaled_as) < names.index(plan.name) for plan in plans if plan.scaled_as)
    assert all(plan.scaled_as.startswith(plan.load) for plan in plans if plan.scaled_as)


def test_the_reference_assignors_of_closer24_are_scaled_by_what_a_replica_does_within_w() -> None:
    """By mu alone two replicas would do for 350/s, and every assignor would be late."""
    named = {plan.name: plan for plan in real.plans()}
    for plan in named.values():
        if plan.scaled_as and plan.load.startswith("CLOSER'24"):
            assert named[plan.scaled_as].policy == "linear:mu=100"
            assert named[plan.scaled_as].paper is not None


def summary() -> RunSummary:
    """Of a run that did nothing."""
    kinds = {float: 0.0, int: 0, str: "", bool: True, dict: {}}
    plain = {
        field.name: kinds.get(get_origin(field.type) or field.type) for field in msgspec.structs.fields(RunSummary)
    }
    latency = {field.name: 0.0 for field in msgspec.structs.fields(Latency)}
    return msgspec.convert({**plain, "latency": latency}, RunSummary)


def test_what_was_kept_of_another_group_is_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real, "OUT", tmp_path)
    first = next(plan for plan in real.plans() if plan.policy.startswith("linear"))
    found = real.CachedRun(name=first.name, summary=summary(), replicas_at=(), at=0.0, machine="", played=first.played)
    path = real.directory_of(first, 0, None) / real.KEPT_FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(msgspec.json.encode(found))
    assert real.cached_run(first, 0, None) == found
    assert real.cached_run(replace(first, policy="linear:mu=200"), 0, None) is None


def test_when_members_reported_is_worked_out_of_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real, "OUT", tmp_path)
    plan = real.plans()[0]
    keep(plan, at=100.0)
    directory = real.directory_of(plan, 0, None)
    result = real.cached_run(plan, 0, None)
    assert result is not None
    assert real.told(plan, result, directory).reported_after_seconds is None, "nobody reported"
    reports = [
        ReportRecord(group="g", member="m", at=at, sequence=sequence, generation=1)
        for sequence, at in enumerate((101.25, 102.25))
    ]
    save_entries(
        directory / real.CONTROL_FILE,
        [ControlEntry(TELEMETRY, offset, each.at, encode(each).decode()) for offset, each in enumerate(reports)],
    )
    assert real.told(plan, result, directory).reported_after_seconds == pytest.approx(0.25)


def test_what_another_command_plays_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be taken the directory that it is writing to."""
    monkeypatch.setattr(real, "OUT", tmp_path)
    monkeypatch.setattr(real, "any_kafka", lambda: contextlib.nullcontext())
    plan = next(plan for plan in real.plans() if plan.name == "CLOSER'24 W1/objective")
    with real._claimed(real.directory_of(plan, 0, 60)) as mine:
        assert mine
        assert real.main(["--runs", plan.name, "--seconds", "60"]) == 1
    assert f"{plan.name}: left to another command" in capsys.readouterr().err
    with real._claimed(real.directory_of(plan, 0, 60)) as mine:
        assert mine, "it has ended"


def test_real_runs_take_no_abbreviations() -> None:
    with pytest.raises(SystemExit):
        real.main(["--lis"])


def keep(plan: real.Plan, at: float, stolen: float = 0.0) -> None:
    path = real.directory_of(plan, 0, None) / real.KEPT_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    found = real.CachedRun(
        name=plan.name, summary=summary(), replicas_at=(), at=at, machine="", played=plan.played, stolen=stolen
    )
    path.write_bytes(msgspec.json.encode(found))


def test_what_was_disturbed_is_played_again_and_what_was_scaled_like_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real, "OUT", tmp_path)
    base, reference = real.plans()[2], next(plan for plan in real.plans() if plan.scaled_as)
    assert reference.scaled_as == base.name
    keep(base, at=10.0, stolen=0.03)
    keep(reference, at=20.0)
    assert set(real.cached_runs(0, None, 1.0)) == {base.name, reference.name}
    assert real.cached_runs(0, None, 0.02) == {}
    keep(base, at=30.0)
    assert set(real.cached_runs(0, None, 0.02)) == {base.name}


def test_the_moment_of_the_reports_is_told_from_the_burst_on() -> None:
    assert real.reported_after([], 100.9) is None, "a group of others' consumers does not report"
    assert real.reported_after([103.1, 104.1, 105.2], 100.9) == pytest.approx(0.2)
    assert real.reported_after([103.98, 105.02, 106.02], 100.0) == pytest.approx(0.02), "around a burst"


def test_what_another_command_has_played_meanwhile_is_not_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real, "OUT", tmp_path)
    monkeypatch.setattr(real, "publish", lambda found, folder: None)
    monkeypatch.setattr(real, "any_kafka", lambda: contextlib.nullcontext("a broker"))
    first, second, *others = [plan for plan in real.plans() if plan.load == "ICCBDC'22 experiment 1"]
    played: list[str] = []

    def play(plan: real.Plan, *_: object) -> real.CachedRun:
        played.append(plan.name)
        keep(plan, at=10.0 + len(played))
        keep(second, at=10.0)  # by somebody else
        found = real.cached_run(plan, 0, None)
        assert found is not None
        return found

    monkeypatch.setattr(real, "play", play)
    assert real.main(["--runs", "experiment 1/"]) == 0
    assert played == [first.name, *(plan.name for plan in others)]


def test_real_runs_take_their_own_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []
    monkeypatch.setattr("sys.argv", ["papers", "--real", "--seconds", "60"])
    monkeypatch.setattr(papers, "write_page", lambda folder: None)
    monkeypatch.setattr(real, "main", lambda arguments: given.append(arguments) or 0)
    assert papers.main() == 0
    assert given == [["--seconds", "60"]]
