"""Standard output that is slow, closed, full, or knows few letters: what commands do is not the reader's to stop."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loadtrim.cli.up import _name

from .test_main import POLITE, lines_until, up

TALKS = """
import sys, time
while True:
    print("x" * 1000, flush=True)
    with open(sys.argv[1], "a") as file:
        file.write(".")
"""
WAIT_SECONDS = 20.0


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
def test_up_and_its_instances_go_on_where_nobody_reads_their_lines(tmp_path: Path) -> None:
    """``up | less`` heard no signal, answered no plan, and its instances stood still in their next line."""
    (written := tmp_path / "written").touch()
    with up("--plain", command=[sys.executable, "-c", TALKS, str(written)]) as process:
        lines_until(process, 1, "takes plans at")
        full = 2_000  # lines: pipes hold less than a hundred of them
        wait_until(lambda: written.stat().st_size > full)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0


@pytest.mark.slow
@pytest.mark.parametrize("ignored", [signal.SIGHUP, signal.SIGINT])
def test_up_does_not_hear_what_was_ignored_when_it_started(ignored: signal.Signals) -> None:
    before = signal.signal(ignored, signal.SIG_IGN)
    try:
        with up("--plain") as process:
            lines_until(process, 1, "| ready")
            process.send_signal(ignored)
            assert process.stdout is not None
            readable, _, _ = select.select([process.stdout], [], [], 0.5)
            assert not readable, process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_SECONDS) == 0
    finally:
        signal.signal(ignored, before)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_said_and_is_a_failure() -> None:
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "loadtrim", "policies"]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, env=env, check=False)
    assert done.returncode == 1
    assert done.stderr == "loadtrim: what was printed is not complete: No space left on device\n"


@pytest.mark.slow
def test_letters_that_the_output_does_not_know_are_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line was lost, and a traceback came in its place."""
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    says = "import sys; sys.stdout.buffer.write('5 € → 6\\n'.encode())" + POLITE
    with up("--plain", command=[sys.executable, "-X", "utf8", "-c", says]) as process:
        assert lines_until(process, 1, "| 5 ")[-1].endswith("| 5 \\u20ac \\u2192 6\n")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=WAIT_SECONDS)
        assert (process.returncode, errors) == (0, "")


@pytest.mark.slow
def test_up_runs_with_a_closed_output(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "loadtrim", "up", "--", "sh", "-c", f"touch {tmp_path}/there; exec sleep 1000"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    shell = subprocess.Popen(["sh", "-c", 'exec "$@" >&-', "sh", *words], stderr=subprocess.PIPE, text=True, env=env)
    try:
        wait_until((tmp_path / "there").exists)
        shell.send_signal(signal.SIGTERM)
        _, errors = shell.communicate(timeout=WAIT_SECONDS)
    finally:
        shell.kill()
    assert (shell.returncode, errors) == (0, "")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_up_goes_on_where_its_lines_cannot_be_written(tmp_path: Path) -> None:
    command = ["sh", "-c", f"touch {tmp_path}/there; exec sleep 1000"]
    words = [sys.executable, "-m", "loadtrim", "up", "--plain", "--", *command]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with open("/dev/full", "w") as full:
        process = subprocess.Popen(words, stdout=full, stderr=subprocess.PIPE, text=True, env=env)
    try:
        wait_until((tmp_path / "there").exists)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WAIT_SECONDS)
    finally:
        process.kill()


def test_a_name_with_a_slash_is_refused() -> None:
    assert _name("pay.ments_2") == "pay.ments_2"
    with pytest.raises(Exception, match="letters, digits"):
        _name("team/payments")
