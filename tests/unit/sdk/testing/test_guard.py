"""The guard with real processes: they end with their parent, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loadtrim.testing.errors import BrokerError
from loadtrim.testing.guard import ProcessGuard

PARENT = """
import json, os, signal, sys
from pathlib import Path
from loadtrim.testing.guard import ProcessGuard
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored in what nohup starts, and inherited
directory = Path(sys.argv[1])
guard = ProcessGuard(remove=[directory])
process_id = guard.start("sleeper", ["sleep", "1000"], directory / "out", directory)
{then}
print(json.dumps({{"sleeper": process_id, "guard": guard._process.pid}}), flush=True)
sys.stdin.read()
"""
FORK = """
if os.fork() == 0:
    os.read(0, 1)
    os._exit(0)
"""


def runs(process_id: int) -> bool:
    """Whether a process exists and is more than a zombie."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"


def wait_until(holds: Callable[[], bool], timeout_seconds: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.01)


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[ProcessGuard]:
    guard = ProcessGuard()
    yield guard
    guard.close()


def start_parent(directory: Path, then: str = "") -> tuple[subprocess.Popen[str], dict[str, int]]:
    directory.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(then=then), str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    return parent, json.loads(parent.stdout.readline())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_parent_that_is_killed_takes_processes_and_data_with_it(tmp_path: Path, number: signal.Signals) -> None:
    data = tmp_path / "data"
    parent, ids = start_parent(data)
    assert runs(ids["sleeper"])

    parent.send_signal(number)
    parent.wait()

    wait_until(lambda: not runs(ids["sleeper"]) and not data.exists() and not runs(ids["guard"]))
    parent.communicate()


@pytest.mark.slow
def test_a_forked_child_that_holds_the_pipe_does_not_keep_them_alive(tmp_path: Path) -> None:
    data = tmp_path / "data"
    parent, ids = start_parent(data, then=FORK)

    parent.kill()
    parent.wait()

    wait_until(lambda: not runs(ids["sleeper"]) and not data.exists())
    parent.communicate()


@pytest.mark.slow
def test_a_guard_that_is_killed_itself_takes_its_processes_with_it(tmp_path: Path) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux's kernel does this")
    parent, ids = start_parent(tmp_path / "data")

    os.kill(ids["guard"], signal.SIGKILL)

    wait_until(lambda: not runs(ids["sleeper"]))
    parent.communicate()


def test_a_suspended_process_ends_too(tmp_path: Path) -> None:
    guard = ProcessGuard(remove=[tmp_path / "data"])
    tmp_path.joinpath("data").mkdir()
    process_id = guard.start("sleeper", ["sleep", "1000"], tmp_path / "out", tmp_path)
    guard.signal("sleeper", signal.SIGSTOP)

    guard.close()

    assert not runs(process_id)
    assert not tmp_path.joinpath("data").exists()


def test_output_is_appended_and_the_exit_code_told(guard: ProcessGuard, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_text("before\n", encoding="utf-8")

    guard.start("once", ["sh", "-c", "echo said; echo wrong >&2; exit 7"], output, tmp_path)
    wait_until(lambda: guard.exit_code("once") is not None)

    assert guard.exit_code("once") == 7
    assert output.read_text(encoding="utf-8") == "before\nsaid\nwrong\n"


def test_a_signal_ends_a_process_and_one_more_is_harmless(guard: ProcessGuard, tmp_path: Path) -> None:
    guard.start("sleeper", ["sleep", "1000"], tmp_path / "out", tmp_path)
    assert guard.exit_code("sleeper") is None

    guard.signal("sleeper", signal.SIGTERM)
    wait_until(lambda: guard.exit_code("sleeper") is not None)
    guard.signal("sleeper", signal.SIGTERM)

    assert guard.exit_code("sleeper") == -signal.SIGTERM


def test_an_interrupt_while_it_is_asked_does_not_mix_up_answers(guard: ProcessGuard, tmp_path: Path) -> None:
    guard.start("sleeper", ["sleep", "1000"], tmp_path / "out", tmp_path)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    interrupts = 0
    try:
        # The timer is armed over and over, so that it strikes at many places of the exchange.
        for attempt in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 * (attempt % 30 + 1))
                for _ in range(20):
                    assert guard.exit_code("sleeper") is None
            except KeyboardInterrupt:
                interrupts += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)

    assert interrupts > 100
    guard.signal("sleeper", signal.SIGKILL)
    wait_until(lambda: guard.exit_code("sleeper") == -signal.SIGKILL)


def test_what_cannot_be_run_is_an_error_and_the_guard_goes_on(guard: ProcessGuard, tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="No such file"):
        guard.start("nothing", [str(tmp_path / "nothing")], tmp_path / "out", tmp_path)

    assert guard.start("something", ["sleep", "1000"], tmp_path / "out", tmp_path) > 0


def test_after_its_end_it_says_so(tmp_path: Path) -> None:
    guard = ProcessGuard()
    guard.close()
    guard.close()

    with pytest.raises(BrokerError, match="start a new LocalKafka"):
        guard.start("late", ["sleep", "1000"], tmp_path / "out", tmp_path)


def test_a_forked_process_cannot_close_it(guard: ProcessGuard, tmp_path: Path) -> None:
    process_id = guard.start("sleeper", ["sleep", "1000"], tmp_path / "out", tmp_path)

    child = os.fork()
    if child == 0:
        guard.close()
        os._exit(0)
    os.waitpid(child, 0)

    assert guard.exit_code("sleeper") is None
    assert runs(process_id)
