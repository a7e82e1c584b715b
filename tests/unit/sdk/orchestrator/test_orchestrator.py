"""The local orchestrator with real processes."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from loadtrim import process_guard
from loadtrim.orchestrator.orchestrator import (
    CommandNotFoundError,
    EventKind,
    LocalOrchestrator,
    OrchestratorEvent,
    OrchestratorOptions,
)
from loadtrim.orchestrator.supervisor import Phase
from loadtrim.settings import SettingsError

# Waits for the signal instead of handling it: a handler that runs just before pause() leaves it waiting for ever.
POLITE = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("ready", *(os.environ.get(name) for name in sys.argv[1:]))
signal.sigwait([signal.SIGTERM])
"""
STUBBORN = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print("ready", os.getpid(), child.pid, flush=True)
while True:
    signal.pause()
"""
WAIT_SECONDS = 20.0


class Lines:
    """What instances print, and a way to wait for it."""

    def __init__(self) -> None:
        self.all: list[tuple[str, str]] = []
        self._changed = asyncio.Event()

    def __call__(self, instance: str, line: str) -> None:
        self.all.append((instance, line))
        self._changed.set()

    async def of(self, count: int, start: str = "ready") -> list[tuple[str, str]]:
        """Wait for so many lines that begin so; returns (instance, rest of the line), sorted."""
        async with asyncio.timeout(WAIT_SECONDS):
            while len(found := [each for each in self.all if each[1].startswith(start)]) < count:
                self._changed.clear()
                await self._changed.wait()
        return sorted((instance, line.removeprefix(start).strip()) for instance, line in found)


def command(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", script, *arguments]


def call(url: str, token: str, method: str = "PUT", body: bytes | None = None) -> tuple[int, dict[str, Any]]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=WAIT_SECONDS)
    connection.request(method, parts.path, body, {"Authorization": f"Bearer {token}"})
    response = connection.getresponse()
    return response.status, json.loads(response.read())


async def send_plan(
    up: LocalOrchestrator, replicas: int, *victims: str, generation: int = 1, sequence: int = 1
) -> tuple[int, dict[str, Any]]:
    plan = {"generation": generation, "sequence": sequence}
    body = {"group": "payments", "replicas": replicas, "victims": victims, "plan": plan, "reason": "because"}
    return await asyncio.to_thread(call, up.url, up.token, body=json.dumps(body).encode())


async def gone(process_id: int) -> bool:
    """Wait for the end of a process that need not be a child of ours."""
    try:
        fd = os.pidfd_open(process_id)
    except ProcessLookupError:
        return True
    try:
        readable, _, _ = await asyncio.to_thread(select.select, [fd], [], [], WAIT_SECONDS)
        return bool(readable)
    finally:
        os.close(fd)


def names(up: LocalOrchestrator) -> list[str]:
    return [each.name for each in up.instances]


async def test_every_instance_gets_its_name_and_the_webhook() -> None:
    lines = Lines()
    asked = ["LOADTRIM_INSTANCE", "LOADTRIM_SCALER", "LOADTRIM_SCALER_URL", "LOADTRIM_SCALER_TOKEN"]
    asked += ["LOADTRIM_HTTP", "LOADTRIM_MIN_REPLICAS", "LOADTRIM_MAX_REPLICAS", "OWN"]
    options = OrchestratorOptions(replicas=2, name="pay", replicas_max=4, on_line=lines, env={**os.environ, "OWN": "1"})
    async with LocalOrchestrator(command(POLITE, *asked), options) as up:
        rest = f"webhook {up.url} {up.token} 127.0.0.1:0 None 4 1"
        assert await lines.of(2) == [("pay-1", f"pay-1 {rest}"), ("pay-2", f"pay-2 {rest}")]
    assert up.replicas == 0
    assert up.killed == 0


@pytest.mark.slow
async def test_plans_start_more_and_end_the_victims() -> None:
    lines, events = Lines(), list[OrchestratorEvent]()
    options = OrchestratorOptions(replicas=2, name="pay", on_line=lines)
    async with LocalOrchestrator(command(POLITE), options, events.append) as up:
        await lines.of(2)
        status, answer = await send_plan(up, 3)
        assert (status, answer["outcome"], answer["wanted"]) == (200, "accepted", 3)
        await lines.of(3)
        assert up.replicas == 3
        status, _ = await send_plan(up, 2, "pay-1", sequence=2)
        assert status == 200
        await up.wait_until(lambda up: names(up) == ["pay-2", "pay-3"])
        assert up.replicas == 2
        status, answer = await send_plan(up, 2, "pay-1", sequence=2)
        assert (status, answer["outcome"]) == (200, "repeated")
        status, answer = await send_plan(up, 9, sequence=1)
        assert (status, answer["outcome"]) == (409, "stale")
        assert up.wanted == 2
        assert up.groups == ("payments",)
    told = [(event.kind, event.instance) for event in events if event.kind is not EventKind.STARTED]
    assert told[:4] == [
        (EventKind.PLAN, ""),
        (EventKind.PLAN, ""),
        (EventKind.STOPPING, "pay-1"),
        (EventKind.EXITED, "pay-1"),
    ]
    exited = [event for event in events if event.kind is EventKind.EXITED]
    assert [event.exit_code for event in exited] == [0, 0, 0]
    assert all(event.process_id for event in exited)
    assert [running for _, running in up.history] == [1, 2, 3, 2, 1, 0]


@pytest.mark.slow
async def test_what_crashes_comes_back_and_its_last_words_are_told(tmp_path: Path) -> None:
    script = "import sys; print('so far so good'); sys.exit('no such table: payments')"
    events = list[OrchestratorEvent]()
    options = OrchestratorOptions(name="pay", log_directory=tmp_path, backoff_seconds=0.01)
    async with LocalOrchestrator(command(script), options, events.append) as up:
        await up.wait_until(lambda up: up.failing(3))
    first = next(event for event in events if event.kind is EventKind.EXITED)
    assert first.exit_code == 1
    assert first.text.startswith("ended with code 1 after")
    assert first.text.endswith("it said last: no such table: payments")
    log = (tmp_path / "pay-1.log").read_text()
    assert log.count("so far so good") >= 3
    assert up.replica_seconds() > 0


@pytest.mark.slow
async def test_an_instance_killed_from_outside_comes_back_under_its_name() -> None:
    lines = Lines()
    options = OrchestratorOptions(name="pay", backoff_seconds=0.01, on_line=lines)
    async with LocalOrchestrator(command(POLITE), options) as up:
        await lines.of(1)
        before = up.instances[0].process_id
        assert up.signal("pay-1", signal.SIGKILL)
        await lines.of(2)
        assert names(up) == ["pay-1"]
        assert up.instances[0].process_id != before
        assert not up.signal("pay-9", signal.SIGKILL)


@pytest.mark.parametrize(
    ("env", "seconds"),
    [({}, 30.0), ({"LOADTRIM_DRAIN_SECONDS": "2", "LOADTRIM_EXIT_SECONDS": "40"}, 47.0)],
)
def test_nobody_is_killed_before_a_program_has_had_its_time_to_end(env: dict[str, str], seconds: float) -> None:
    """It was the drain and 5 s: who raised the time to exit was killed all the same."""
    up = LocalOrchestrator(command(STUBBORN), OrchestratorOptions(env=env))
    assert up._supervisor.config.stop_seconds == seconds


@pytest.mark.slow
async def test_who_does_not_end_is_killed_with_all_it_started() -> None:
    lines = Lines()
    options = OrchestratorOptions(replicas=2, stop_seconds=0.2, on_line=lines)
    async with LocalOrchestrator(command(STUBBORN), options) as up:
        ids = [int(each) for _, line in await lines.of(2) for each in line.split()]
        up.scale(1)
        await up.wait_until(lambda up: up.replicas == 1)
        assert up.killed == 1
    assert up.killed == 2
    assert all([await gone(each) for each in ids])


async def test_what_a_command_leaves_behind_ends_with_it() -> None:
    lines = Lines()
    script = f"sleep 1000 & echo ready $!; exec {sys.executable} -c 'import signal; signal.pause()'"
    async with LocalOrchestrator(["sh", "-c", script], OrchestratorOptions(on_line=lines)):
        ((_, left_behind),) = await lines.of(1)
    assert await gone(int(left_behind))


@pytest.mark.slow
async def test_cancelling_the_block_leaves_nothing() -> None:
    lines = Lines()
    entered = asyncio.Event()

    async def forever() -> None:
        async with LocalOrchestrator(command(STUBBORN), OrchestratorOptions(on_line=lines)):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(forever())
    ((_, ids),) = await lines.of(1)
    task.cancel()
    await asyncio.wait({task}, timeout=0.2)
    assert not task.done(), "it waits for the drain first"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all([await gone(int(each)) for each in ids.split()])


async def test_waiting_in_vain_says_so() -> None:
    async with LocalOrchestrator(command(POLITE)) as up:
        with pytest.raises(TimeoutError):
            await up.wait_until(lambda up: up.replicas == 7, timeout_seconds=0.05)
        await up.stop()
        with pytest.raises(TimeoutError, match="everything has ended"):
            await up.wait_until(lambda up: up.replicas == 7)


@pytest.mark.slow
async def test_a_start_up_delay_is_paid_for_but_not_counted() -> None:
    lines = Lines()
    options = OrchestratorOptions(name="pay", startup_delay_seconds=1000.0, on_line=lines)
    async with LocalOrchestrator(command(POLITE), options) as up:
        await lines.of(1)
        up.scale(2)
        await up.wait_until(lambda up: len(up.instances) == 2)
        assert [each.phase for each in up.instances] == [Phase.RUNNING, Phase.WAITING]
        asked = up.instances[1].asked_at
        assert up.replicas == 1
        assert up.replica_seconds(since=asked, until=asked + 10.0) == pytest.approx(20.0)


@pytest.mark.parametrize("name", ["no-such-command", "./no/such/file", ""])
async def test_a_command_that_is_not_there_is_refused_at_once(name: str) -> None:
    with pytest.raises(CommandNotFoundError, match="was not found"):
        async with LocalOrchestrator([name]):
            pass


async def test_a_callback_that_fails_is_contained(caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug of the caller")

    options = OrchestratorOptions(on_line=fail)
    async with LocalOrchestrator(command("print('ready')"), options, fail) as up:
        await up.wait_until(lambda up: up.failing(1))
    assert "a bug of the caller" in caplog.text


@pytest.mark.slow
async def test_long_and_unfinished_lines_are_passed_on(tmp_path: Path) -> None:
    lines = Lines()
    script = "import sys; sys.stdout.write('x' * 200_000 + '\\nlast'); sys.stdout.flush()"
    options = OrchestratorOptions(on_line=lines, log_directory=tmp_path)
    async with LocalOrchestrator(command(script), options) as up:
        await up.wait_until(lambda up: up.failing(1))
    assert sum(len(line) for _, line in lines.all if set(line) == {"x"}) % 200_000 == 0
    assert lines.all[-1][1] == "last"
    assert (tmp_path / "replica-1.log").stat().st_size >= 200_004


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/scale", b"{}", 400),
        ("PUT", "/scale", b'{"group":"g","replicas":0,"plan":{"generation":1,"sequence":1}}', 400),
        ("PUT", "/scale", b"\xff", 400),
        ("PUT", "/scale", b"", 411),
        ("PUT", "/scale", b" " * 70_000, 411),
        ("POST", "/scale", b"{}", 405),
        ("PUT", "/elsewhere", b"{}", 404),
    ],
)
async def test_what_is_no_plan_is_turned_away(method: str, path: str, body: bytes, status: int) -> None:
    async with LocalOrchestrator(command(POLITE)) as up:
        url = up.url.replace("/scale", path)
        answered, answer = await asyncio.to_thread(call, url, up.token, method, body)
        assert answered == status
        assert answer["error"]
        answered, _ = await asyncio.to_thread(call, up.url, "wrong", "GET")
        assert answered == 401
        answered, answer = await asyncio.to_thread(call, up.url, up.token, "GET")
        assert (answered, answer["replicas"]) == (200, 1)


async def test_garbage_instead_of_http_is_answered() -> None:
    async with LocalOrchestrator(command(POLITE)) as up:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(up.url).port)
        writer.write(b"hello\r\n\r\n")
        assert b"400 Bad Request" in await reader.read()
        writer.close()


HOST = """
import asyncio, sys
from loadtrim.orchestrator.orchestrator import LocalOrchestrator, OrchestratorOptions

async def main(script):
    options = OrchestratorOptions(
        replicas=2, orphan_seconds=0.3, on_line=lambda instance, line: print(line, flush=True)
    )
    async with LocalOrchestrator([sys.executable, "-c", script], options) as up:
        print("guard", up._processes._guard.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture
def host() -> Callable[[str], subprocess.Popen[str]]:
    """Runs an orchestrator in a process of its own."""

    def start(script: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(HOST), script],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    return start


def read_ids(process: subprocess.Popen[str]) -> tuple[int, list[int]]:
    """The guard's process id, and those of two instances and of what they started."""
    assert process.stdout is not None
    guard, ids = 0, list[int]()
    while not guard or len(ids) < 4:
        word, *numbers = process.stdout.readline().split()
        if word == "guard":
            guard = int(numbers[0])
        else:
            ids += map(int, numbers)
    return guard, ids


@pytest.mark.slow
async def test_nothing_outlives_an_orchestrator_killed_with_9(
    host: Callable[[str], subprocess.Popen[str]],
) -> None:
    process = host(STUBBORN)
    guard, ids = await asyncio.to_thread(read_ids, process)
    process.kill()
    process.wait()
    assert all([await gone(each) for each in [*ids, guard]])


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's signal at a parent's end is Linux's")
async def test_instances_end_even_when_the_guard_is_killed_too(
    host: Callable[[str], subprocess.Popen[str]],
) -> None:
    process = host(POLITE.replace('"ready"', '"ready", os.getpid(), os.getpid()'))
    guard, ids = await asyncio.to_thread(read_ids, process)
    os.kill(guard, signal.SIGKILL)
    assert await gone(guard)
    process.kill()
    process.wait()
    assert all([await gone(each) for each in ids])


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "soon"])
def test_a_drain_that_no_instance_would_take_is_refused(text: str) -> None:
    """It was read in a way of its own, so that instances were never killed, or at once."""
    with pytest.raises(SettingsError, match="LOADTRIM_DRAIN_SECONDS"):
        LocalOrchestrator(["true"], OrchestratorOptions(env={"LOADTRIM_DRAIN_SECONDS": text}))


@pytest.mark.parametrize("said", [b"+7\n+8\n-7\n", b""])
def test_what_was_registered_before_the_parents_end_is_read_after_it(said: bytes) -> None:
    """A guard that got no processor time until its parent was killed forgot whom to end."""
    script = "import process_guard; print(list(process_guard.lines_until_end(-1)))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=said,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(Path(process_guard.__file__).parent)},
        check=True,
    )
    assert done.stdout.decode().strip() == str(said.splitlines())
