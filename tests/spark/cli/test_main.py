"""What the command line says when Spark or the tables fail, whatever the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtrim_spark.cli import main as cli

pytestmark = pytest.mark.usefixtures("one_session")
NOBODY = "127.0.0.1:1"
COMMANDS = [["baselines"], ["compact"], ["delete", "--group", "g"], ["backtest"], ["report"]]


def said(command: list[str], state: str, capsys: pytest.CaptureFixture[str]) -> str:
    """On stderr, by a command that fails."""
    assert cli.main([*command, "--bootstrap", NOBODY, "--state", state]) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_tables_that_cannot_be_read(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for table in ("history", "ledger"):
        log = tmp_path / table / "_delta_log"
        log.mkdir(parents=True)
        (log / f"{0:020}.json").write_text("spoilt")
    error = said(command, str(tmp_path), capsys)
    assert error.startswith(f"loadtrim_spark: The tables in {tmp_path} cannot be read: ")
    assert "--state" in error
    assert "Traceback" not in error
    assert said([*command, "--verbose"], str(tmp_path), capsys).startswith("Traceback")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_file_system_that_spark_does_not_know(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    error = said(command, "nowhere://data/loadtrim", capsys)
    assert error.startswith("loadtrim_spark: The tables in nowhere://data/loadtrim cannot be read: ")
    assert "--state" in error
    assert "Traceback" not in error
