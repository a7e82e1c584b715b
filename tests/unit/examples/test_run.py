"""Runs of the demo on a real Kafka, as far as they can be looked at without one: what is refused before they start."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from demo import __main__ as demo
from demo import run as runs
from demo.follow import Follower
from demo.journal import SupervisorJournal
from demo.load import Progress, constant
from loadtrim.orchestrator.instances import OrchestratorOptions
from loadtrim.orchestrator.orchestrator import LocalOrchestrator
from nexmark import __main__ as nexmark


@pytest.fixture
def no_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts one fails at once."""

    def started() -> None:
        raise AssertionError("Kafka was started")

    monkeypatch.setattr(nexmark, "any_kafka", started)
    monkeypatch.setattr(demo, "any_kafka", started)


@pytest.mark.usefixtures("no_kafka")
@pytest.mark.parametrize(
    "words",
    [
        ["--begin", "10000", "--seconds", "5"],
        ["--begin", "8400"],
        ["--begin", "8000", "--seconds", "500"],
        ["--begin", "-1", "--seconds", "5"],
        ["--seconds", "0"],
    ],
)
def test_a_piece_beyond_the_load_is_refused_with_its_length(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Found by a reader: Kafka and eight consumers were started for a load of nothing, which ended in a traceback."""
    with pytest.raises(SystemExit) as left:
        nexmark.main(words)
    assert left.value.code == 2
    assert "the load has 8,400 s" in capsys.readouterr().err


@pytest.mark.usefixtures("no_kafka")
@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("fo", "there is no policy 'fo'"),
        ("ds2_modern:overprovision=1", "'overprovisioning'"),
        ("fixed:replicas=x", "replicas=x"),
    ],
)
def test_a_policy_that_there_is_not_is_told_before_anything_is_started(
    policy: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Found by a reader: half a minute, and then "the service does not start"."""
    with pytest.raises(SystemExit) as left:
        nexmark.main(["--policy", policy, "--seconds", "5"])
    assert left.value.code == 2
    assert said in capsys.readouterr().err
    monkeypatch.setenv("POLICY", policy)
    monkeypatch.setenv("OUT", str(tmp_path))
    assert demo.main() == 2
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("no_kafka")
def test_so_is_a_packer(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOADTRIM_PACKER", "trimm")
    monkeypatch.setenv("OUT", str(tmp_path))
    assert demo.main() == 2
    assert "the nearest is 'trim'" in capsys.readouterr().err


def test_without_seconds_the_rest_of_the_load_is_played() -> None:
    options = nexmark.run_options("q1", "fixed", 8390, None, "", "")
    assert len(options.rates.per_second) == 10
    assert options.rates.source.endswith("seconds 8390 to 8400")


@pytest.mark.slow
async def test_a_service_that_does_not_start_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    @contextlib.asynccontextmanager
    async def nobody(_: str) -> AsyncIterator[None]:
        yield

    async def state(*_: object) -> tuple[str, int]:
        return "", 0

    monkeypatch.setattr(runs, "_admin", nobody)
    monkeypatch.setattr(runs, "_group_state", state)
    options = runs.RunOptions(
        bootstrap="", topic="t", rates=constant(1, 1), shares=(1.0,), directory=tmp_path, ready_seconds=20.0
    )
    recorder = runs._Recorder(SupervisorJournal(tmp_path))
    command = [sys.executable, "-c", "raise SystemExit('no such thing')"]
    settings = OrchestratorOptions(log_directory=tmp_path / "logs", backoff_seconds=0.01)
    async with LocalOrchestrator(command, settings, recorder) as up:
        live = runs.Live(options, up, Progress(1, 1), Follower(tmp_path), recorder.events)
        with pytest.raises(runs.RunFailedError, match=r"does not start.*it said last: no such thing.*logs"):
            await runs._until_ready(live)


@pytest.mark.parametrize(("full", "seconds"), [("0", 120), ("1", 600)])
def test_two_minutes_of_the_load_are_played_or_all_ten(
    full: str, seconds: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOADTRIM_DATA", str(tmp_path))  # none is there, so that one is made
    options = demo.run_options({"FULL": full}, "", "", "")
    assert len(options.rates.per_second) == seconds
    assert options.comparable == (full == "1")
