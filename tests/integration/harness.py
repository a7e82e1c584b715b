"""Groups of real processes against a real Kafka, and the evidence of what they did.

Every process writes a journal, the producer writes one, and this harness writes the supervisor's; the demo's checker
judges them. Waits are for states, with a deadline, never for a time to pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from demo.checker import CheckerVerdict, check
from demo.follow import Follower
from demo.journal import Journal, SupervisorJournal, clock_ns, read_run
from integration.offsets_topic import Commit, accepted_commits
from loadtrim.process_guard import end_with_parent
from loadtrim.testing import Cluster
from loadtrim.testing.ports import free_ports

__all__ = [
    "WAIT_SECONDS",
    "Commit",
    "Group",
    "Load",
    "Member",
    "accepted_commits",
    "committed_offsets",
    "eventually",
    "group_of_processes",
]

WAIT_SECONDS = 40.0
"""Longest wait for a state: some 2 s on a quiet machine."""
LOOK_SECONDS = 0.02
PROJECT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("member.py")
PLAIN_SCRIPT = PROJECT / "examples" / "payments" / "service.py"
IMPORT_PATHS = ("agent", "consumer_sdk", "examples", "tests", ".")


async def eventually(
    holds: Callable[[], Any] | Callable[[], Awaitable[Any]], what: str, timeout_seconds: float = WAIT_SECONDS
) -> Any:
    """Look until ``holds`` returns something true, and return that.

    Raises:
        AssertionError: it did not within the time.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        found = holds()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {timeout_seconds:.0f} s: {what}"
        await asyncio.sleep(LOOK_SECONDS)


async def committed_offsets(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    """The group's committed offsets as the broker has them."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        found = await admin.list_consumer_group_offsets(group)
        return {(at.topic, at.partition): entry.offset for at, entry in found.items()}
    finally:
        await admin.close()


class Load:
    """A producer that sends numbered records evenly to all partitions until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, directory: Path, rate: float) -> None:
        self.topic = topic
        self.partitions = partitions
        self.rate = rate
        self.sent = 0
        self._journal = Journal(directory, "producer", role="producer")
        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=1, retry_backoff_ms=50
        )
        self._prefix = uuid.uuid4().hex[:6]
        self._deliveries: set[asyncio.Future[Any]] = set()
        self._running = True
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._producer.start()
        self._task = asyncio.create_task(self._play())

    async def _play(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while self._running:
            await self.send()
            due = max(due + 1.0 / self.rate, loop.time() - 0.2)
            await asyncio.sleep(max(0.0, due - loop.time()))

    async def send(self) -> None:
        number = self.sent
        self.sent += 1
        partition = number % self.partitions
        record_id = f"{self._prefix}-{number}"
        stamp_ms = time.time_ns() // 1_000_000
        self._journal.write("P", record_id, self.topic, partition, clock_ns(), stamp_ms)
        value = msgspec.json.encode({"id": record_id, "amount_cents": 1})
        try:
            delivery = await self._producer.send(self.topic, value, partition=partition, timestamp_ms=stamp_ms)
        except KafkaError as error:
            self._journal.write("F", record_id, type(error).__name__)
            return
        self._deliveries.add(delivery)
        delivery.add_done_callback(lambda done: self._delivered(record_id, done))

    def _delivered(self, record_id: str, delivery: asyncio.Future[Any]) -> None:
        self._deliveries.discard(delivery)
        if delivery.cancelled():
            return
        error = delivery.exception()
        if error is not None:
            self._journal.write("F", record_id, type(error).__name__)
            return
        written = delivery.result()
        self._journal.write("A", record_id, written.topic, written.partition, written.offset, clock_ns())

    async def stop(self) -> None:
        """Stop sending and wait for all acknowledgements."""
        if self._task is not None:
            self._running = False
            await self._task
            self._task = None
            if self._deliveries:
                await asyncio.wait(self._deliveries, timeout=WAIT_SECONDS)
            await self._producer.stop()
            self._journal.close()


@dataclass
class Member:
    """One process of the group."""

    name: str
    process: asyncio.subprocess.Process
    port: int
    log_path: Path
    began_at: float = field(default_factory=time.monotonic)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    async def status(self) -> dict[str, Any]:
        """Its ``/status``; empty while there is none."""
        agents = await self.statuses()
        return agents[0] if agents else {}

    async def statuses(self) -> list[dict[str, Any]]:
        body = await self.get("/status")
        found = json.loads(body or "[]")
        agents: list[dict[str, Any]] = found["agents"] if isinstance(found, dict) else found
        return agents

    async def get(self, path: str) -> str:
        """The body of one page; empty when nobody answers."""
        try:
            async with asyncio.timeout(2.0):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                try:
                    writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
                    answer = (await reader.read()).decode()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return ""
        return answer.partition("\r\n\r\n")[2]


class Group:
    """Processes of one consumer group, its load, and the evidence."""

    def __init__(
        self, kafka: Cluster, directory: Path, *, partitions: int, session_ms: int, busy_seconds: float
    ) -> None:
        self.kafka = kafka
        self.partitions = partitions
        self.session_ms = session_ms
        self.busy_seconds = busy_seconds
        self.topic = kafka.create_topic(partitions=partitions)
        self.group = f"group-{uuid.uuid4().hex[:8]}"
        self.directory = directory / "run"
        self.directory.mkdir(parents=True)
        self.logs = directory
        self.supervisor = SupervisorJournal(self.directory)
        self.follower = Follower(self.directory)
        self.members: dict[str, Member] = {}
        self.load: Load | None = None

    # -- processes -----------------------------------------------------------------------------------------------

    async def start(
        self,
        name: str,
        *,
        client: str = "loadtrim",
        fault: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        **options: Any,
    ) -> Member:
        """Start a member; ``options`` are its consumer's arguments. Returns at once."""
        (port,) = free_ports(1)
        script = SCRIPT if client == "loadtrim" else PLAIN_SCRIPT
        paths = [str(PROJECT / path) for path in IMPORT_PATHS]
        options = {"session_timeout_ms": self.session_ms, "heartbeat_interval_ms": self.session_ms // 3, **options}
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("LOADTRIM_")},
            "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), *paths]),
            "PYTHONUNBUFFERED": "1",
            "LOADTRIM_INSTANCE": name,
            "LOADTRIM_HTTP": f"127.0.0.1:{port}",
            "LOADTRIM_SLA_SECONDS": "2",
            "PAYMENTS_BOOTSTRAP": self.kafka.bootstrap,
            "PAYMENTS_TOPIC": self.topic,
            "PAYMENTS_GROUP": self.group,
            "PAYMENTS_CLIENT": client,
            "PAYMENTS_BUSY_SECONDS": str(self.busy_seconds),
            "PAYMENTS_JOURNAL": str(self.directory),
            "PAYMENTS_OPTIONS": json.dumps(options),
            "PAYMENTS_LOG": "DEBUG" if client == "loadtrim" else "INFO",
            "MEMBER_FAULT": json.dumps(fault or {}),
            **(env or {}),
        }
        log_path = self.logs / f"{name}-{uuid.uuid4().hex[:4]}.log"
        with log_path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(script),
                env=environment,
                stdout=log,
                stderr=log,
                preexec_fn=end_with_parent(signal.SIGKILL),
            )
        member = Member(name, process, port, log_path)
        self.members[name] = member
        return member

    async def start_all(self, *names: str, **options: Any) -> list[Member]:
        """Start members and wait until each of them got a record done."""
        members = [await self.start(name, **options) for name in names]
        await self.until_working(*names)
        return members

    async def send_signal(self, name: str, number: int) -> None:
        self.members[name].process.send_signal(number)

    async def end(self, name: str, number: int = signal.SIGTERM) -> int:
        """Signal a member and wait for its end. Returns the exit code."""
        member = self.members[name]
        with contextlib.suppress(ProcessLookupError):
            member.process.send_signal(number)
        return await self.exited(name)

    async def exited(self, name: str) -> int:
        """Wait until a member has ended."""
        member = self.members[name]
        async with asyncio.timeout(WAIT_SECONDS):
            code = await member.process.wait()
        self.supervisor.exited(member.pid)
        del self.members[name]
        return code

    # -- states --------------------------------------------------------------------------------------------------

    def seen(self) -> Follower:
        self.follower.poll()
        return self.follower

    async def until(self, holds: Callable[[Follower], Any], what: str, timeout_seconds: float = WAIT_SECONDS) -> Any:
        """Wait for what the journals say."""
        return await eventually(lambda: holds(self.seen()), what, timeout_seconds)

    def journal_of(self, member: Member) -> list[list[str]]:
        """The lines of one member's journal, split."""
        paths = list(self.directory.glob(f"*-{member.pid}.journal"))
        return [line.split(",") for path in paths for line in path.read_text().splitlines()]

    def handed_out(self, member: Member, since_ns: int = 0) -> dict[int, int]:
        """Partition -> records that a member was handed since then."""
        counts: dict[int, int] = {}
        for line in self.journal_of(member):
            if line[0] == "H" and int(line[5]) >= since_ns:
                counts[int(line[2])] = counts.get(int(line[2]), 0) + 1
        return counts

    async def until_working(self, *names: str) -> None:
        """Wait until each of these has done a record."""
        for name in names:
            member = self.members[name]

            def works(member: Member = member) -> bool:
                assert member.process.returncode is None, f"{member.name} ended:\n{member.log[-3000:]}"
                return any(line[0] == "D" for line in self.journal_of(member))

            await eventually(works, f"{name} works; its log ends\n{member.log[-2000:]}")

    async def until_stable(
        self, *names: str, state: str = "stable", members: int | None = None
    ) -> list[dict[str, Any]]:
        """Wait until these members are in one generation, all in ``state``; returns their status."""
        statuses: list[dict[str, Any]] = []

        async def agree() -> bool:
            statuses[:] = [await self.members[name].status() for name in names]
            if not all(s.get("state") == state for s in statuses):
                return False
            together = len({s["generation"] for s in statuses}) == 1
            return together and (members is None or all(len(s["members"]) == members for s in statuses))

        await eventually(agree, f"{names} {state} in one generation, {members} members")
        return statuses

    async def until_consuming(self, timeout_seconds: float = WAIT_SECONDS, *, besides: Iterable[int] = ()) -> float:
        """Wait until every partition has had a record done that was sent from now on. Returns the seconds it took."""
        began, began_ns = time.monotonic(), clock_ns()
        wanted = set(range(self.partitions)) - set(besides)

        def fresh() -> bool:
            done = {
                int(line[2])
                for member in self.members.values()
                for line in self.journal_of(member)
                if line[0] == "D" and int(line[4]) >= began_ns
            }
            return wanted <= done

        await eventually(fresh, f"all of {sorted(wanted)} consumed", timeout_seconds)
        return time.monotonic() - began

    async def until_owned(self, *names: str, everybody: bool = False) -> dict[str, list[int]]:
        """Wait until each partition has one owner among these (``everybody``: and each has some); who has what."""
        owned: dict[str, list[int]] = {}

        async def each_once() -> bool:
            for name in names:
                owned[name] = [p["partition"] for p in (await self.members[name].status()).get("partitions", ())]
            once = sorted(p for partitions in owned.values() for p in partitions) == list(range(self.partitions))
            return once and (not everybody or all(owned.values()))

        await eventually(each_once, f"each partition has one owner among {names}: {owned}")
        return owned

    async def until_no_lease(self, *names: str) -> None:
        """Wait until none of these may hand anything out any more."""

        async def over() -> bool:
            return all([(await self.members[name].status()).get("lease_seconds") == 0 for name in names])

        await eventually(over, f"the lease of {names} has run out")
        for name in names:
            self.supervisor.lease_lost(self.members[name].process.pid)  # the checker could not know

    async def leader(self) -> tuple[str, dict[str, Any]]:
        """Name and status of the member that leads."""

        async def look() -> tuple[str, dict[str, Any]] | None:
            for name, member in sorted(self.members.items()):
                status = await member.status()
                if status.get("leads"):
                    return name, status
            return None

        found: tuple[str, dict[str, Any]] = await eventually(look, "somebody leads")
        return found

    # -- the load and its end ------------------------------------------------------------------------------------

    async def play(self, rate: float) -> Load:
        """Send records from now on."""
        self.load = Load(self.kafka.bootstrap, self.topic, self.partitions, self.directory, rate)
        await self.load.start()
        return self.load

    async def finish(self, *, manual_commits: bool = False) -> CheckerVerdict:
        """Stop the load, wait until all is done, stop everybody, and judge."""
        await self.stop_load()
        await self.until(
            lambda seen: len(seen.done) >= seen.acknowledged > 0,
            f"everything acknowledged is done: {len(self.follower.done)} of {self.follower.acknowledged}",
        )
        for name in list(self.members):
            assert await self.end(name) == 0, name
        for (topic, partition), offset in sorted((await committed_offsets(self.kafka.bootstrap, self.group)).items()):
            self.supervisor.committed(topic, partition, offset)
        return check(read_run(self.directory), manual_commits=manual_commits)

    async def stop_load(self) -> None:
        if self.load is not None:
            load, self.load = self.load, None
            await load.stop()

    async def close(self) -> None:
        """End whatever still runs, at once."""
        if self.load is not None:
            with contextlib.suppress(KafkaError, TimeoutError):
                await self.load.stop()
        for name in list(self.members):
            with contextlib.suppress(ProcessLookupError):
                self.members[name].process.send_signal(signal.SIGKILL)
                self.members[name].process.send_signal(signal.SIGCONT)
            await self.exited(name)


@contextlib.asynccontextmanager
async def group_of_processes(
    kafka: Cluster,
    directory: Path,
    *,
    partitions: int = 6,
    session_ms: int = 3_000,
    busy_seconds: float = 0.002,
    rate: float = 60.0,
) -> AsyncIterator[Group]:
    """A group with a load that runs until :meth:`Group.finish`; its processes are gone afterwards."""
    group = Group(kafka, directory, partitions=partitions, session_ms=session_ms, busy_seconds=busy_seconds)
    try:
        await group.play(rate)
        yield group
    finally:
        await group.close()
