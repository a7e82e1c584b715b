"""``python -m sim SEED LINES`` tells what happened, whether the seed passes or not."""

from __future__ import annotations

import pytest

from sim.__main__ import main
from sim.chaos import Chaos


def test_a_seed_that_passes_is_told_by_its_last_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["3", "5"]) == 0
    options, *lines, outcome = capsys.readouterr().out.splitlines()
    assert options.startswith("SimOptions(")
    assert len(lines) == 5
    assert outcome.startswith("Report(seed=3, ")


def test_a_seed_that_fails_is_told_by_its_last_lines_and_the_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(chaos: Chaos) -> None:
        assert chaos.world.trace is not None
        chaos.world.trace.extend(["one", "two", "three"])
        raise AssertionError("two owners")

    monkeypatch.setattr(Chaos, "run", run)
    assert main(["3", "2"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == ["two", "three"]
    assert lines[-1] == "AssertionError: two owners"
