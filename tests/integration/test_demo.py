"""The demo's parts on a real Kafka: load, service, orchestrator, checker, report; and the demo itself.

The plain ``AIOKafkaConsumer`` is the witness that the checker sees real faults: it commits what is still in hand, and
it gives partitions away while a record of them is in hand. The same provocations must leave loadtrim spotless.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import pty
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from aiokafka.admin import AIOKafkaAdminClient

from demo.checker import CheckerVerdict, check
from demo.follow import Follower
from demo.journal import SupervisorJournal, read_run
from demo.load import LoadOptions, constant, play, shares_even, shares_skewed, step
from demo.plot import plot
from demo.run import SERVICE, RunFailedError, RunOptions, run
from loadtrim.testing import Cluster

pytestmark = pytest.mark.kafka

PROJECT = Path(__file__).resolve().parents[2]
CLIENTS = ("loadtrim", "aiokafka")
SESSION_MS = 6_000
"""The least that a broker's defaults allow."""
WAIT_SECONDS = 40.0


@dataclass
class Services:
    """Processes of the payments service, started and stopped one by one."""

    kafka: Cluster
    topic: str
    client: str
    directory: Path
    busy_seconds: float
    group: str = field(default_factory=lambda: f"payments-{uuid.uuid4().hex[:8]}")
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True)
        self.supervisor = SupervisorJournal(self.directory)
        self.follower = Follower(self.directory)

    async def start(self, name: str, **options: object) -> None:
        env = {
            **os.environ,
            "LOADTRIM_INSTANCE": name,
            "PAYMENTS_BOOTSTRAP": self.kafka.bootstrap,
            "PAYMENTS_TOPIC": self.topic,
            "PAYMENTS_GROUP": self.group,
            "PAYMENTS_CLIENT": self.client,
            "PAYMENTS_BUSY_SECONDS": str(self.busy_seconds),
            "PAYMENTS_JOURNAL": str(self.directory),
            "PAYMENTS_OPTIONS": msgspec.json.encode({"session_timeout_ms": SESSION_MS, **options}).decode(),
        }
        self.processes[name] = await asyncio.create_subprocess_exec(sys.executable, str(SERVICE), env=env)

    async def end(self, name: str, number: int = signal.SIGTERM) -> int:
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        code = await process.wait()
        self.supervisor.exited(process.pid)
        return code

    async def until(self, condition: Callable[[Follower], bool]) -> None:
        """Look at the journals until a condition holds."""
        async with asyncio.timeout(WAIT_SECONDS):
            self.follower.poll()
            while not condition(self.follower):
                await asyncio.sleep(0.02)
                self.follower.poll()

    async def until_committed(self, offset: int) -> None:
        """Ask the broker until the group's commit of partition 0 is there."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.kafka.bootstrap)
        await admin.start()
        try:
            committed = -1
            async with asyncio.timeout(WAIT_SECONDS):
                while committed < offset:
                    await asyncio.sleep(0.02)
                    for found in (await admin.list_consumer_group_offsets(self.group)).values():
                        committed = found.offset
        finally:
            await admin.close()

    async def send(self, count: int) -> None:
        options = LoadOptions(
            bootstrap=self.kafka.bootstrap,
            topic=self.topic,
            rates=constant(count, 1),
            shares=shares_even(1),
            journal=self.directory,
        )
        assert (await play(options)).acknowledged == count

    def verdict(self) -> CheckerVerdict:
        return check(read_run(self.directory))


@contextlib.asynccontextmanager
async def services(kafka: Cluster, client: str, directory: Path, busy_seconds: float) -> AsyncIterator[Services]:
    topic = kafka.create_topic(partitions=1)
    running = Services(kafka, topic, client, directory, busy_seconds)
    try:
        yield running
    finally:
        for name in list(running.processes):
            await running.end(name, signal.SIGKILL)


def run_options(kafka: Cluster, client: str, directory: Path, partitions: int) -> RunOptions:
    return RunOptions(
        bootstrap=kafka.bootstrap,
        topic=kafka.create_topic(partitions=partitions),
        group=f"payments-{uuid.uuid4().hex[:8]}",
        rates=constant(120, 5),
        shares=shares_skewed(partitions),
        directory=directory / "run",
        client=client,
        busy_seconds=0.003,
        objective_seconds=1.0,
        comparable=True,
    )


@pytest.mark.parametrize("client", CLIENTS)
async def test_steady_group_is_spotless(kafka: Cluster, client: str, tmp_path: Path) -> None:
    """Three members from the start to the end: nothing may move, nothing may be late for want of hands."""
    options = dataclasses.replace(
        run_options(kafka, client, tmp_path, 9), replicas=3, env={"LOADTRIM_MIN_REPLICAS": "3"}
    )
    report = await run(options)
    summary = report.summary
    assert report.verdict.spotless, str(report.verdict)
    assert summary.records == report.verdict.done == 600
    assert report.verdict.processes == 3
    assert summary.replicas_max == 3
    assert 0.003 <= summary.latency.p50 < 1.0
    assert [row.records for row in report.seconds] == [120] * 5
    assert {change.partition.partition for change in report.owner_changes} == set(range(9))
    path = tmp_path / "run.png"
    plot(report, path)
    assert path.stat().st_size > 20_000


async def test_group_scales_with_the_load_and_stays_spotless(kafka: Cluster, tmp_path: Path) -> None:
    """Twice what one member can do in time: more come, partitions move, nothing is lost, repeated or owned twice."""
    options = dataclasses.replace(
        run_options(kafka, "loadtrim", tmp_path, 9),
        rates=step(20, 150, 4, 20),
        busy_seconds=0.0059,
        objective_seconds=0.5,
    )
    report = await run(options)
    summary = report.summary
    assert report.verdict.spotless, str(report.verdict)
    assert summary.scale_ups >= 1
    assert summary.restarts == 0
    assert summary.replicas_max >= 2
    assert summary.moves > 0
    assert summary.handoff_p50 is not None
    assert report.wanted
    # One member alone would have every second burst late from its 85th record on; with more, few are.
    last = report.seconds[-5:]
    assert sum(row.late for row in last) <= 0.1 * sum(row.records for row in last)


async def test_a_load_begins_when_it_is_to(kafka: Cluster, tmp_path: Path) -> None:
    """At a moment of the wall clock; what the group did before it, here in an earlier run, is no part of the report."""
    options = dataclasses.replace(run_options(kafka, "loadtrim", tmp_path, 3), rates=constant(30, 2))
    await run(dataclasses.replace(options, directory=tmp_path / "before"))
    ended_at = time.time()
    begin_at = ended_at + 20.0
    report = await run(dataclasses.replace(options, begin_at=begin_at))
    assert report.setting.started_at == pytest.approx(begin_at, abs=0.05)
    assert report.verdict.spotless, str(report.verdict)
    assert report.wanted
    assert min(at for at, _ in report.wanted) > ended_at


async def test_a_load_that_cannot_begin_in_time_is_not_played(kafka: Cluster, tmp_path: Path) -> None:
    options = dataclasses.replace(run_options(kafka, "aiokafka", tmp_path, 1), begin_at=time.time() - 1.0)
    with pytest.raises(RunFailedError, match="was to begin .* s before it could"):
        await run(options)
    assert not [line for path in options.directory.glob("producer-*") for line in path.read_text().splitlines()[1:]]


@pytest.mark.chaos
@pytest.mark.parametrize("client", CLIENTS)
async def test_killed_with_a_committed_record_in_hand(kafka: Cluster, client: str, tmp_path: Path) -> None:
    """aiokafka's auto-commit covers the record in hand: killed then, it is lost. loadtrim commits what is done."""
    async with services(kafka, client, tmp_path / "run", busy_seconds=3.0) as running:
        await running.start("a", auto_commit_interval_ms=50)
        await running.send(3)
        await running.until(lambda follower: len(follower.done) == 1 and bool(follower.in_hand))
        await running.until_committed(1 if client == "loadtrim" else 2)
        await running.end("a", signal.SIGKILL)
        await running.start("b")
        expected = 3 if client == "loadtrim" else 2
        await running.until(lambda follower: len(follower.done) == expected)
        assert await running.end("b") == 0
        verdict = running.verdict()
    if client == "loadtrim":
        assert verdict.ok, str(verdict)
        assert not verdict.repeated
        assert [found.offset for found in verdict.handed_out_again] == [1]
    else:
        assert [lost.offset for lost in verdict.lost] == [1]
        assert not verdict.double_owners


@pytest.mark.parametrize("client", CLIENTS)
async def test_newcomer_while_a_record_is_in_hand(kafka: Cluster, client: str, tmp_path: Path) -> None:
    """aiokafka gives the partition away with a record in hand: two owners. loadtrim lets the record end first."""
    async with services(kafka, client, tmp_path / "run", busy_seconds=4.0) as running:
        # Round-robin gives the only partition to the member whose id sorts first: the newcomer.
        await running.start("a", client_id="z", heartbeat_interval_ms=200)
        await running.send(4)
        await running.until(lambda follower: bool(follower.in_hand))
        await running.start("b", client_id="a", heartbeat_interval_ms=200)
        await running.until(lambda follower: len(follower.done) == 4)
        await running.end("a")
        await running.end("b")
        verdict = running.verdict()
    if client == "loadtrim":
        assert verdict.spotless, str(verdict)
    else:
        assert [(found.kind, found.holder.process[0]) for found in verdict.double_owners] == [("overlap", "a")]


async def test_demo_from_the_command_line(kafka: Cluster, tmp_path: Path) -> None:
    env = {
        **os.environ,
        "KAFKA_BOOTSTRAP": kafka.bootstrap,
        "RATES": "constant:60:4",
        "PARTITIONS": "4",
        "REPLICAS": "2",
        "W": "2",
        "TERM": "xterm",
        "OUT": str(tmp_path / "out"),
        "PAYMENTS_CLIENT": "aiokafka",
    }
    command = [sys.executable, str(PROJECT / "examples" / "demo")]
    terminal, other_end = pty.openpty()
    process = await asyncio.create_subprocess_exec(*command, env=env, stdout=other_end)
    os.close(other_end)
    text = (await asyncio.to_thread(everything, terminal)).decode()
    assert await process.wait() == 0, text
    assert "Playing 240 records in 4 s: constant 60 records/s." in text
    assert "loadtrim demo" in text, "the live view's title"
    assert "lost 0, repeated 0, double owners 0" in text
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    numbers = msgspec.json.decode((tmp_path / "out" / "demo.json").read_bytes())
    assert numbers["summary"]["records"] == 240
    # The evidence alone brings the same report, and fails when a line of it is taken away.
    again = [sys.executable, str(PROJECT / "examples" / "demo" / "report.py"), str(tmp_path / "out" / "run"), "--json"]
    assert await _exit_code(again) == 0
    journal = next((tmp_path / "out" / "run").glob("payments-1-*.journal"))
    kept = [line for line in journal.read_text().splitlines(keepends=True) if not line.startswith("D,")]
    journal.write_text("".join(kept))
    assert await _exit_code(again) == 1


@pytest.mark.parametrize(("name", "value"), [("W", "soon"), ("SHARES", "odd"), ("RATES", "wave"), ("PARTITIONS", "0")])
async def test_wrong_use_is_told_before_anything_starts(name: str, value: str) -> None:
    command = [sys.executable, str(PROJECT / "examples" / "demo")]
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, name: value}, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert value in errors.decode()
    assert "allowed" in errors.decode()


def everything(terminal: int) -> bytes:
    """Read what a process writes to a terminal, until its end."""
    parts = []
    with open(terminal, "rb", buffering=0) as file, contextlib.suppress(OSError):  # how Linux tells the end of one
        while part := file.read(65_536):
            parts.append(part)
    return b"".join(parts)


async def _exit_code(command: list[str]) -> int:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
    return await process.wait()
