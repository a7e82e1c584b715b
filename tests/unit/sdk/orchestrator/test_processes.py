"""What goes wrong around one instance of the local orchestrator is that instance's own."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from loadtrim.orchestrator import processes
from loadtrim.orchestrator.instances import EventKind, LogDirectoryTakenError, OrchestratorEvent, OrchestratorOptions
from loadtrim.orchestrator.orchestrator import LocalOrchestrator
from unit.sdk.orchestrator.test_orchestrator import POLITE, Lines, call, command, names, send_plan

SLOW_TO_END = """
import signal, sys, time
def end(*_):
    time.sleep(0.2)
    print("handed over", flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
while True:
    signal.pause()
"""
BACKOFF_SECONDS = 0.05


async def test_a_log_directory_that_was_tidied_away_is_made_again() -> None:
    """All instances were killed, and the webhook went on answering 200."""
    options = OrchestratorOptions(replicas=1, name="pay")
    async with LocalOrchestrator(command(POLITE), options) as up:
        await up.wait_until(lambda up: up.replicas == 1)
        assert up.log_directory is not None
        shutil.rmtree(up.log_directory)
        up.scale(2)
        await up.wait_until(lambda up: up.replicas == 2)
        assert (up.log_directory / "pay-2.log").exists()


async def test_a_log_that_cannot_be_opened_is_tried_again_and_the_others_go_on(tmp_path: Path) -> None:
    events = list[OrchestratorEvent]()
    lines = Lines()
    options = OrchestratorOptions(name="pay", log_directory=tmp_path, on_line=lines, backoff_seconds=BACKOFF_SECONDS)
    async with LocalOrchestrator(command(POLITE), options, events.append) as up:
        await lines.of(1)
        first = up.instances[0].process_id
        (tmp_path / "pay-2.log").mkdir()
        up.scale(2)
        async with asyncio.timeout(10.0):
            while not any("could not be started" in each.text for each in events):
                await up.wait_until(lambda up: bool(up.instances[1].failures))
        (tmp_path / "pay-2.log").rmdir()
        await lines.of(2)
        assert up.instances[0].process_id == first
        assert not up.killed


async def test_what_another_process_has_printed_is_not_what_it_said_last(tmp_path: Path) -> None:
    """The log of another day was read: an error that had long been mended was told as the reason."""
    (tmp_path / "pay-1.log").write_text("ValueError: of yesterday\n")
    events = list[OrchestratorEvent]()
    options = OrchestratorOptions(name="pay", log_directory=tmp_path, backoff_seconds=BACKOFF_SECONDS)
    once = f"[ -e {tmp_path}/once ] || echo now; touch {tmp_path}/once; exit 3"
    async with LocalOrchestrator(["sh", "-c", once], options, events.append) as up:
        await up.wait_until(lambda up: sum(each.kind is EventKind.EXITED for each in events) >= 2)
    first, second = [each.text for each in events if each.kind is EventKind.EXITED][:2]
    assert first.endswith("it said last: now")
    assert "said last" not in second


async def test_a_log_directory_is_one_orchestrators(tmp_path: Path) -> None:
    """Two wrote into the same files, and each told the other's words."""
    options = OrchestratorOptions(name="pay", log_directory=tmp_path)
    async with LocalOrchestrator(command(POLITE), options):
        with pytest.raises(LogDirectoryTakenError, match="keeps the logs of its instances in"):
            async with LocalOrchestrator(command(POLITE), options):
                pass
    async with LocalOrchestrator(command(POLITE), options):
        pass


async def test_a_start_that_fails_leaves_the_log_directory_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = OrchestratorOptions(name="pay", log_directory=tmp_path)
    fails = LocalOrchestrator(command(POLITE), options)

    async def no_port() -> None:
        raise OSError("no free port")

    monkeypatch.setattr(fails._webhook, "start", no_port)
    with pytest.raises(OSError, match="no free port"):
        async with fails:
            pass
    async with LocalOrchestrator(command(POLITE), options):
        pass


async def test_a_lock_that_another_user_has_made_is_locked_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".lock").touch()
    real = os.open

    def denied(path: Path, flags: int, *mode: int) -> int:
        if Path(path).name == ".lock" and flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, flags, *mode)

    monkeypatch.setattr(processes.os, "open", denied)
    options = OrchestratorOptions(name="pay", log_directory=tmp_path)
    async with LocalOrchestrator(command(POLITE), options):
        with pytest.raises(LogDirectoryTakenError):
            async with LocalOrchestrator(command(POLITE), options):
                pass


async def test_logs_are_kept_where_a_file_system_knows_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(processes.fcntl, "flock", no_locks)
    options = OrchestratorOptions(name="pay", log_directory=tmp_path)
    async with LocalOrchestrator(command(POLITE), options) as up:
        await up.wait_until(lambda up: up.replicas == 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
async def test_a_full_disk_takes_the_log_and_not_the_instance(tmp_path: Path) -> None:
    (tmp_path / "pay-1.log").symlink_to("/dev/full")
    lines = Lines()
    script = POLITE + "print('ended in order')"
    options = OrchestratorOptions(name="pay", log_directory=tmp_path, on_line=lines)
    async with LocalOrchestrator(command(script), options) as up:
        await lines.of(1)
        assert names(up) == ["pay-1"]
    assert lines.all[-1] == ("pay-1", "ended in order")


async def test_a_signal_without_a_name_ends_its_instance_only() -> None:
    events = list[OrchestratorEvent]()
    lines = Lines()
    options = OrchestratorOptions(replicas=2, name="pay", backoff_seconds=BACKOFF_SECONDS, on_line=lines)
    async with LocalOrchestrator(command(POLITE), options, events.append) as up:
        await lines.of(2)
        assert up.signal("pay-1", signal.SIGRTMIN + 1)
        await lines.of(3)
    ended = next(each for each in events if each.kind is EventKind.EXITED)
    assert f"ended by signal {signal.SIGRTMIN + 1}" in ended.text


async def test_a_plan_is_refused_when_all_has_ended() -> None:
    async with LocalOrchestrator(command(POLITE)) as up:
        assert (await send_plan(up, 1))[0] == 200
        await up.stop()
        assert (await send_plan(up, 2, sequence=2))[0] == 503
        assert (await asyncio.to_thread(call, up.url, up.token, "GET"))[0] == 200


@pytest.mark.parametrize("shell", ["{python} {script}; true", "{python} {script} & wait"])
async def test_what_a_shell_runs_is_asked_to_end_too(tmp_path: Path, shell: str) -> None:
    """The shell dies of SIGTERM, and the consumer that has not heard of it was killed: a crash at each stop."""
    (script := tmp_path / "service.py").write_text(SLOW_TO_END)
    lines = Lines()
    words = ["sh", "-c", shell.format(python=sys.executable, script=script)]
    async with LocalOrchestrator(words, OrchestratorOptions(on_line=lines)) as up:
        await lines.of(1)
    assert lines.all[-1][1] == "handed over"
    assert not up.killed


COUNTS_SIGNALS = """
import signal, sys, time
heard = 0
def end(*_):
    global heard
    heard += 1
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
while not heard:
    time.sleep(0.01)
time.sleep(0.3)
print("signals", heard, flush=True)
"""


async def test_what_a_script_has_told_to_end_is_not_told_again(tmp_path: Path) -> None:
    """A consumer that gets SIGTERM twice leaves without handing over; its script had passed on the first."""
    (script := tmp_path / "service.py").write_text(COUNTS_SIGNALS)
    lines = Lines()
    shell = f"trap 'kill -TERM $!; exit 0' TERM; {sys.executable} {script} & wait"
    async with LocalOrchestrator(["sh", "-c", shell], OrchestratorOptions(on_line=lines)) as up:
        await lines.of(1)
    assert lines.all[-1][1] == "signals 1"
    assert not up.killed


@pytest.mark.parametrize(("seconds", "stop_seconds"), [(0.1, None), (5.0, 1.5)])
async def test_what_a_script_has_told_nothing_is_told_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, stop_seconds: float | None
) -> None:
    monkeypatch.setattr(processes, "PASSED_ON_SECONDS", seconds)
    (script := tmp_path / "service.py").write_text(POLITE)
    lines = Lines()
    shell = f"trap 'exit 0' TERM; {sys.executable} {script} & wait"
    options = OrchestratorOptions(on_line=lines, stop_seconds=stop_seconds)
    async with LocalOrchestrator(["sh", "-c", shell], options) as up:
        await lines.of(1)
    assert not up.killed


async def test_what_a_shell_runs_and_does_not_end_is_killed_and_counted() -> None:
    lines = Lines()
    stubborn = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    options = OrchestratorOptions(stop_seconds=0.3, on_line=lines)
    async with LocalOrchestrator(["sh", "-c", f'sh -c "{stubborn}"; true'], options) as up:
        await lines.of(1)
    assert up.killed == 1


@pytest.mark.parametrize("name", ["team/payments", "", "pay ments", "pay\n"])
def test_a_name_that_is_no_name_of_a_file_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="instances cannot be called"):
        OrchestratorOptions(name=name)


async def test_times_are_those_of_the_walls_clock_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a suspend a new instance was told that it had been asked for an hour ago."""
    async with LocalOrchestrator(command(POLITE)) as up:
        before = up._events.epoch
        monkeypatch.setattr("loadtrim.orchestrator.events.time.time", lambda: before + up._events.now() + 3600.0)
        assert up._events.epoch - before == pytest.approx(3600.0)
