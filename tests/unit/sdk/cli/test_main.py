"""The command line without a cluster: wrong use, exit codes, ``loadtrim up`` as a process."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loadtrim.cli import explain, main
from loadtrim.cli.explain import explain_lines, gather, told_lines
from loadtrim.cli.up import REPEAT_SECONDS, default_name

from ..observer.control_records import decision

POLITE = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("ready", flush=True)
signal.sigwait([signal.SIGTERM])
"""
STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True:
    signal.pause()
"""
NOWHERE = "127.0.0.1:1"
"""A port that nobody listens on."""


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("KAFKA_BOOTSTRAP", "LOADTRIM_CONTROL_TOPIC", "LOADTRIM_DRAIN_SECONDS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["frobnicate"],
        ["status"],
        ["scale", "payments"],
        ["scale", "payments", "0"],
        ["scale", "payments", "many"],
        ["explain", "payments", "--last", "0"],
        ["up"],
        ["up", "--replicas", "0", "--", "true"],
        ["up", "--startup-delay", "-1", "--", "true"],
        ["up", "--startup-delay", "soon", "--", "true"],
        ["up", "--min", "3", "--max", "2", "--", "true"],
        ["up", "--", "no-such-command"],
        ["status", "", "--bootstrap", NOWHERE],
        ["status", "payments", "--config", "/no/such/file"],
    ],
)
def test_wrong_use_is_exit_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["statsu", "g"], "There is no command 'statsu', so nothing was done. Did you mean status?"),
        (["frobnicate"], "There are: up, doctor, groups, "),
        (["up", "--replicas", "2", "python", "x.py"], "loadtrim up [option ...] -- python x.py"),
        (["groups", "there"], "unrecognized arguments: there"),
        (["status", "g", "--bootstrap", "http://localhost:9092/"], "Write it without: localhost:9092"),
        (["status", "g", "--bootstrap", "a:1,PLAINTEXT://b:2"], "Write it without: a:1,b:2"),
    ],
)
def test_what_was_meant_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """All commands were listed, or the words were unrecognized, or no broker could be talked to."""
    assert main(words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("words", [["up", "--plain", "--", "true"], ["doctor", "g", "--bootstrap", NOWHERE]])
def test_a_variable_that_cannot_be_used_is_wrong_use(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its exit code was that of `doctor` where something is missing."""
    monkeypatch.setenv("LOADTRIM_DRAIN_SECONDS", "soon")
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("loadtrim: LOADTRIM_DRAIN_SECONDS=soon cannot be used: ")


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["up", "--help"], ["explain", "--help"]])
def test_asking_for_help_is_done(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["status", "g"], ["explain", "g"], ["hold", "g"], ["resume", "g"], ["scale", "g", "3"]]
)
def test_no_broker_is_told_with_what_to_do(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--bootstrap", NOWHERE]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"loadtrim: No broker can be talked to at {NOWHERE} (from --bootstrap)")
    assert "Connect call failed" in told
    assert "Check the address (--bootstrap)" in told


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "examples/payments/service.py"], "service"),
        (["/usr/bin/python3.11", "-u", "-m", "shop.payments_service", "--fast"], "payments-service"),
        (["python"], "python"),
        (["./run.sh", "x"], "run-sh"),
        (["___"], "replica"),
        (["python", "-W", "ignore", "service.py"], "service"),
        (["python", "-u", "-c", "import shop; " + "shop.run(); " * 40], "python"),
        (["./" + "long" * 60], "long" * 10),
    ],
)
def test_instances_are_called_after_the_command(command: list[str], name: str) -> None:
    assert default_name(command) == name


@pytest.mark.parametrize("words", [["doctor", "g", "t"], ["status", "g"], ["up", "--", "true"]])
def test_an_address_that_is_none_is_wrong_use(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`invalid literal for int()` was told, with advice about Kerberos, and code 1: something is missing."""
    assert main([words[0], "--bootstrap", "broker:abc", *words[1:]]) == 2
    assert "'broker:abc' (from --bootstrap) is no address of a broker" in capsys.readouterr().err


def test_what_up_cannot_begin_is_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A traceback; and a folder was tried six times, as a command that ends."""
    (tmp_path / "file").write_text("")
    words = ["up", "--plain", "--log-dir", str(tmp_path / "file" / "logs"), "--", "true"]
    assert main(words) == 2
    assert "no directory for logs can be made at" in capsys.readouterr().err
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["up", "--plain", "--log-dir", str(tmp_path), "--", "true"]) == 2
    assert "Name another directory with --log-dir" in capsys.readouterr().err
    assert main(["up", "--plain", "--", str(tmp_path)]) == 2
    assert "was not found or may not be run" in capsys.readouterr().err


def test_decisions_that_came_to_the_same_are_told_once() -> None:
    quiet = [decision("a", at=float(second), reason=f"load {second}", replicas_actual=2) for second in range(5)]
    up = decision("a", at=5.0, replicas_actual=2, replicas_wanted=3)
    runs = gather([*quiet, up, *quiet])
    assert [run.count for run in runs] == [5, 1, 5]
    assert [run.count for run in gather(quiet, every=True)] == [1] * 5
    lines = explain_lines(runs, {"a": "pay-1"}, None)
    assert lines[0].startswith("1970-01-01 00:00:04.000 UTC  decision 1.1 by pay-1")
    assert "the same 5 times since 1970-01-01 00:00:00.000 UTC" in lines[2]
    assert lines.count("") == 2


@contextmanager
def up(*options: str, command: list[str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """``loadtrim up`` in a process of its own; killed at the end if it still runs."""
    words = [sys.executable, "-m", "loadtrim", "up", *options, "--", *(command or [sys.executable, "-c", POLITE])]
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def lines_until(process: subprocess.Popen[str], count: int, words: str) -> list[str]:
    """Lines of its output up to the ``count``-th that holds ``words``."""
    assert process.stdout is not None
    lines: list[str] = []
    while count:
        line = process.stdout.readline()
        assert line, lines
        lines.append(line)
        count -= words in line
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_runs_instances_and_ends_them_in_order(number: int) -> None:
    with up("--plain", "--replicas", "2", "--name", "pay") as process:
        lines_until(process, 2, "| ready")
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
        assert process.returncode == 0, err
        assert out.count("ended with code 0") == 2
        assert "0 killed" in out


@pytest.mark.slow
def test_up_tells_programs_in_json(tmp_path: Path) -> None:
    with up("--json", "--log-dir", str(tmp_path), "--name", "pay") as process:
        lines = lines_until(process, 1, '"line":"ready"')
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
    told: list[dict[str, Any]] = [json.loads(line) for line in [*lines, *out.splitlines()]]
    kinds = [each["kind"] for each in told]
    assert sorted(kinds[:2]) == ["ready", "started"]
    assert kinds[2:] == ["output", "stopping", "exited", "end"]
    assert told[-1]["replicas_most"] == 1
    assert (tmp_path / "pay-1.log").read_text() == "ready\n"


@pytest.mark.slow
def test_a_second_signal_kills_at_once() -> None:
    with up("--plain", command=[sys.executable, "-c", STUBBORN]) as process:
        lines_until(process, 1, "| ready")
        process.send_signal(signal.SIGINT)
        lines_until(process, 1, "asked to end")
        time.sleep(REPEAT_SECONDS)  # a repeat within this time is the same signal
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
        assert process.returncode == 1
        assert "killed (asked to end at once)" in out


@pytest.mark.slow
def test_nothing_outlives_up_killed_with_9() -> None:
    with up("--json", "--replicas", "2", command=[sys.executable, "-c", STUBBORN]) as process:
        told = [json.loads(line) for line in lines_until(process, 2, '"line":"ready"')]
        ids = [each["process_id"] for each in told if each["kind"] == "started"]
        process.kill()
        process.wait()
        assert len(ids) == 2
        for process_id in ids:
            with contextlib.suppress(ProcessLookupError):
                fd = os.pidfd_open(process_id)
                assert select.select([fd], [], [], 20.0)[0], "it is gone within the grace"
                os.close(fd)


@pytest.mark.slow
def test_up_gives_up_on_a_command_that_never_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("loadtrim.cli.up.FAILURES_MAX", 2)
    assert main(["up", "--", sys.executable, "-c", "import sys; sys.exit('no such table')"]) == 1
    told = capsys.readouterr()
    assert "Every instance ended right after its start, 2 times in a row." in told.err
    assert "it said last: no such table" in told.err
    assert "starts in 0.5 s" in told.out


@pytest.mark.slow
def test_up_ends_when_nobody_reads_its_lines() -> None:
    talker = "import time\nwhile 1: print('x', flush=True); time.sleep(0.01)"
    with up("--plain", command=[sys.executable, "-c", talker]) as process:
        lines_until(process, 3, "| x")
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=20) == 0


@pytest.mark.slow
def test_without_rich_up_goes_on_with_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr("loadtrim.cli.live", raising=False)
    monkeypatch.setitem(sys.modules, "loadtrim.cli.live", None)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("loadtrim.cli.up.FAILURES_MAX", 1)
    assert main(["up", "--", "false"]) == 1
    told = capsys.readouterr()
    assert "pip install rich" in told.err
    assert "ended with code 1" in told.out


@pytest.mark.slow
def test_commands_work_without_rich() -> None:
    """Everything but the live view: ``rich`` is made impossible to import."""
    script = (
        "import sys; sys.modules['rich'] = None; from loadtrim.cli import main; sys.exit(main(['status', '--help']))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["status", "doctor"])
def test_settings_that_the_client_refuses_are_one_sentence(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kerberos without its library was an ``AssertionError`` with its trace."""
    monkeypatch.setattr("aiokafka.conn.gssapi", None)
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\n")
    assert main([command, "g", "--bootstrap", NOWHERE, "--config", str(config)]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"loadtrim: The settings of {config} cannot be used: "), "not those of --bootstrap"
    assert "gssapi library required" in told
    assert "Traceback" not in told


def test_sasl_without_a_login_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was a ``ValueError`` with its trace."""
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n")
    assert main(["status", "g", "--config", str(config)]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"loadtrim: {config} asks for SASL with PLAIN and has no username and no password.")
    assert "Traceback" not in told


def test_decisions_of_a_group_that_is_mixed_now_are_told_as_old() -> None:
    """They were told as if the leader made them still."""
    assert "mixed group" in told_lines("g", gather([decision()]), {}, True, None)[-1]
    assert "no decisions. This is a mixed group" in told_lines("g", [], {}, True, None)[0]
    assert told_lines("g", [], {}, False, None) == [
        "g: no decisions yet; its leader decides once it has its members' reports"
    ]


@pytest.mark.parametrize("mixed", [False, True])
def test_a_mixed_group_is_told_beside_the_json_too(
    mixed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`explain --json` printed nothing at all, as for a group that has decided nothing yet."""

    async def read(*_: object) -> tuple[list[Any], dict[str, str], bool]:
        return [], {}, mixed

    monkeypatch.setattr(explain, "_read", read)
    assert main(["explain", "g", "--json"]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert ("This is a mixed group" in told.err) is mixed
