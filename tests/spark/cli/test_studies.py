"""The commands that judge, show and make up histories, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from loadtrim_spark.cli import main as cli
from loadtrim_spark.evaluation.backtest import METHODS
from loadtrim_spark.evaluation.truth import SCENARIOS, Busy, Spell, Truth
from loadtrim_spark.learning.learn import QUANTILES
from loadtrim_spark.pipeline.baselines import update_days
from loadtrim_spark.pipeline.history import Tables

END = 1_795_392_000  # Monday, 2026-11-23 00:00 UTC
pytestmark = pytest.mark.usefixtures("one_session")
SMALL = Truth(
    seed=1, end=END, weeks=2, night=2.0, busy=(Busy(begin_minute=30, end_minute=60, height=5.0, ramp_seconds=60.0),),
    blind=tuple(Spell(begin_hour=24 * day + 1, end_hour=24 * day + 24) for day in range(14)),
    shares=(0.5, 0.3, 0.2), cost_seconds=0.25, noise=0.05,
)  # fmt: skip
"""Watched in the first hour of each day."""
REPORTS = 14 * 60 * 3
JUDGED = ("--group", "g", "--from", "2026-11-21", "--to", "2026-11-22", "--weeks", "2")


@pytest.fixture(scope="module")
def state(one_session: None, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history that `generate` made up, whose days are summed up by buckets of five minutes."""
    root = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCENARIOS, "steep", SMALL)
        assert cli.main(["generate", "--scenario", "steep", "--group", "g", "--state", str(root)]) == 0
    update_days(spark, Tables(str(root)), 300)
    return root


def files(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_generate_writes_into_the_history(state: Path, spark: SparkSession) -> None:
    assert spark.read.format("delta").load(Tables(str(state)).history).where("`group` = 'g'").count() == REPORTS


def test_backtest_judges_by_the_buckets_that_are_there(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(state)
    assert cli.main(["backtest", *JUDGED, "--state", str(state)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("2026-11-21 00:00 UTC to 2026-11-22 00:00 UTC; coverage / pinball loss")
    assert lines[2].startswith("g load: ")
    assert [line.split()[0] for line in lines[3:]] == list(METHODS)
    assert files(state) == before


def test_backtest_sums_up_other_buckets_and_writes_nothing(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(state)
    assert cli.main(["backtest", *JUDGED, "--state", str(state), "--bucket-minutes", "20", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(score["method"], score["quantile"]) for score in told["scores"]] == [
        (method, quantile) for method in METHODS for quantile in QUANTILES
    ]
    assert {(score["group"], score["topic"]) for score in told["scores"]} == {("g", "load")}
    assert told["played"] == []
    assert files(state) == before


def test_report_writes_its_page_and_nothing_else(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, output = files(state), tmp_path / "page.html"
    assert cli.main(["report", "--days", "1", "--output", str(output), "--state", str(state)]) == 0
    assert capsys.readouterr().out == f"{output}: 1 groups, 1 days\n"
    text = output.read_text(encoding="utf-8")
    assert "<svg" in text
    assert "Nothing was expected" not in text
    assert files(state) == before


@pytest.mark.parametrize("command", ["backtest", "report"])
def test_a_group_that_is_not_in_the_history_is_named(
    command: str, state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said that there was nothing to judge by yet, or nothing to tell of."""
    monkeypatch.chdir(tmp_path)
    assert cli.main([command, "--group", "nobody", "--state", str(state)]) == 0
    assert f"the history in {state} has nothing of the group nobody" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["backtest", "report"])
def test_without_a_history_there_is_nothing_to_do(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main([command, "--state", str(tmp_path / "s")]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"there is no history in {tmp_path}/s yet: ")
    assert list(tmp_path.iterdir()) == []
