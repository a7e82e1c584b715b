"""The group under test: its processes, its load, what an outsider sees of it, and the faults so far."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka.errors import KafkaError

from contract.webhook_receiver import Receiver
from demo.journal import Tp, clock_ns, read_run
from integration.harness import Group, Member, eventually
from loadtrim_agent.wire.topic_names import control_topic

from .cluster import ChaosCluster
from .endings import Endings, heeds_sigterm
from .evidence import Ending, Window
from .outputs import Outputs
from .processes import Feeder, Transformers

__all__ = ["SESSION_SECONDS", "Limits", "World", "world"]

SESSION_SECONDS = 6.0
"""Above what a broker's death costs: its session of 3 s, then others lead."""
POLL_INTERVAL_SECONDS = 8.0
DRAIN_SECONDS = 3.0
ORDERS_PARTITIONS = 8
LEDGER_PARTITIONS = 4
ORDERS_PER_SECOND = 40.0
BUSY_SECONDS = 0.002
RESTART_SECONDS = 0.5
LOOK_SECONDS = 0.1
PROGRAMS = ("", "", "many", "many-manual")
"""User code of members in turn: iterates, gathers batches, commits each batch by hand."""
WANTED_MEMBERS = 5
TRANSFORMER_FENCED = 4
"""Exit code of a transactional member whose producer is of no use any more."""
RECOVERY_SECONDS = 45.0
LAST_SECONDS = 90.0
STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a run is."""

    members: int = WANTED_MEMBERS
    debug: bool = False


class World:
    """One group and all that happens to it. Everything runs in one loop; what blocks runs aside.

    Attributes:
        windows: the faults so far.
        endings: how processes ended.
        feeder: the producer of transactions; the other one runs in this process.
        transformers: a group of its own, of transactional members.
        outputs: what the transformers have put out, once all is finished.
    """

    def __init__(self, cluster: ChaosCluster, directory: Path, receiver: Receiver, seed: int, limits: Limits) -> None:
        self.cluster = cluster
        self.receiver = receiver
        self.limits = limits
        self.windows: list[Window] = []
        self.endings = Endings()
        self.late_seconds = 0.0
        """Longest time by which this loop was late."""
        self.tended = True
        """Whether a member that ends by itself is replaced."""
        self.group = Group(
            cluster.kafka,
            directory,
            partitions=ORDERS_PARTITIONS,
            session_ms=round(SESSION_SECONDS * 1000),
            busy_seconds=BUSY_SECONDS,
        )
        self.ledger = cluster.kafka.create_topic(partitions=LEDGER_PARTITIONS)
        self.topics = (self.group.topic, self.ledger)
        self.control = control_topic(self.group.group)
        self.rights = cluster.rights(self.group.group, self.topics)
        self.feeder = Feeder(cluster.kafka.bootstrap, self.ledger, LEDGER_PARTITIONS, directory, seed)
        self.transformers = Transformers(cluster, self.ledger, LEDGER_PARTITIONS, directory)
        self.outputs = Outputs(source=self.ledger)
        self._names = (f"m{number}" for number in itertools.count(1))
        self._programs = itertools.cycle(PROGRAMS)

    @property
    def partitions(self) -> list[Tp]:
        return [
            *(Tp(self.group.topic, index) for index in range(ORDERS_PARTITIONS)),
            *(Tp(self.ledger, index) for index in range(LEDGER_PARTITIONS)),
        ]

    # -- processes -----------------------------------------------------------------------------------------------

    def members(self) -> list[str]:
        """Names of the members with the agent that run now, the oldest first."""
        return [name for name in self.group.members if name.startswith("m")]

    async def start_member(self) -> str:
        """Start one more member; returns its name at once."""
        name, program = next(self._names), next(self._programs)
        options = {"enable_auto_commit": False} if program.endswith("manual") else {"auto_commit_interval_ms": 500}
        await self.group.start(
            name,
            fault={"kind": program},
            env=self._environment(name),
            client_id=name,
            isolation_level="read_committed",
            max_poll_interval_ms=round(POLL_INTERVAL_SECONDS * 1000),
            metadata_max_age_ms=5_000,
            **options,
            **self.cluster.member_options,
        )
        return name

    async def start_foreign(self, name: str, client: str) -> Member:
        """Start a member without the agent, on a direct connection."""
        return await self.group.start(
            name,
            client=client,
            env={"PAYMENTS_TOPIC": ",".join(self.topics)},
            client_id=name,
            isolation_level="read_committed",
            metadata_max_age_ms=2_000,
        )

    def _environment(self, name: str) -> dict[str, str]:
        members = str(self.limits.members)
        return {
            "PAYMENTS_TOPIC": ",".join(self.topics),
            "PAYMENTS_BOOTSTRAP": self.cluster.proxies.bootstrap,
            "PAYMENTS_LOG": "DEBUG" if self.limits.debug else "INFO",
            "MEMBER_ORDERS": str(self.orders(name)),
            "LOADTRIM_SCALER": "webhook",
            "LOADTRIM_SCALER_URL": self.receiver.url,
            "LOADTRIM_MIN_REPLICAS": members,
            "LOADTRIM_MAX_REPLICAS": members,
            "LOADTRIM_DRAIN_SECONDS": str(DRAIN_SECONDS),
            # What user code does after the drain is to be seen: nothing ends a process but its end, or a fault.
            "LOADTRIM_EXIT_SECONDS": "600",
        }

    def orders(self, name: str) -> Path:
        return self.group.logs / f"{name}.order"

    async def order(self, name: str, kind: str, seconds: float = 0.0) -> bool:
        """Tell a member's user code to do something with its next record; returns whether it has begun to."""
        path = self.orders(name)
        path.with_suffix(".new").write_text(json.dumps({"kind": kind, "seconds": seconds}))
        path.with_suffix(".new").rename(path)
        with contextlib.suppress(AssertionError):
            await eventually(lambda: not path.exists() or name not in self.group.members, f"{name} obeys", 15.0)
        taken = not path.exists()
        path.unlink(missing_ok=True)
        return taken

    async def end(self, name: str, number: int = signal.SIGTERM) -> None:
        """Signal a process and wait for its end; one that does not heed SIGTERM is killed."""
        if name not in self.group.members:
            return
        member = self.group.members[name]
        killed = number == signal.SIGKILL
        if killed:
            codes = [-number]
        elif heeds_sigterm(self.group.journal_of(member)):
            codes = [0]
        else:
            # It has not come to its consumer yet, or is through with it.
            codes = [0, -number]
        with self.endings.expecting([name], *codes, crash=killed, stop=not killed):
            with contextlib.suppress(ProcessLookupError):
                member.process.send_signal(number)
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await member.process.wait()
            except TimeoutError:
                self.endings.wrong(f"{name} did not end after SIGTERM")
                await self.end(name, signal.SIGKILL)
            self._note_end(name)

    async def end_foreign(self) -> None:
        """End all members without the agent."""
        for name in sorted(self.group.members.keys() - set(self.members())):
            await self.end(name)

    def _note_end(self, name: str) -> None:
        member = self.group.members.pop(name, None)
        if member is None:
            return
        code = member.process.returncode
        assert code is not None
        self.group.supervisor.exited(member.pid)
        # A member without the agent is not what is tested: aiokafka ends where a group changes its protocol.
        self.endings.ended(name, code, expected=not name.startswith("m"))

    async def note_ends(self) -> None:
        """Note the end of processes that end by themselves."""
        while True:
            for name, member in list(self.group.members.items()):
                if member.process.returncode is not None:
                    self._note_end(name)
            if self.feeder.ended is not None:
                self.endings.wrong(f"feeder ended with {self.feeder.ended}")
                await self.feeder.start()
            await asyncio.sleep(LOOK_SECONDS)

    async def tend(self) -> None:
        """Replace members that have ended, as an orchestrator would."""
        while True:
            await asyncio.sleep(RESTART_SECONDS)
            if self.tended and len(self.members()) < self.limits.members:
                await self.start_member()
            # Another service: nobody deploys it, or waits with it for a right.
            await self.transformers.tend()
            self._note_transformers()

    def _note_transformers(self) -> None:
        """Note which transactional members have ended by themselves: a fault may end their producer, nothing else."""
        ended, self.transformers.ended = self.transformers.ended, []
        for name, code in ended:
            fenced = code == TRANSFORMER_FENCED
            self.endings.found[name] = Ending(at_ns=clock_ns(), code=code, crash=True, expected=False, fenced=fenced)

    @contextlib.contextmanager
    def untended(self) -> Any:
        """Within this block nobody is replaced."""
        before, self.tended = self.tended, False
        try:
            yield
        finally:
            self.tended = before

    async def leader(self) -> str | None:
        """Name of the member that leads, if one says so."""
        for name in self.members():
            with contextlib.suppress(ValueError):
                if (await self.group.members[name].status()).get("leads"):
                    return name
        return None

    # -- states --------------------------------------------------------------------------------------------------

    def consumed_since(self, at_ns: int) -> bool:
        """Whether each partition has had a record handed out since then."""
        self.group.follower.poll()
        handed = self.group.follower.handed_last_ns
        return all(handed.get((tp.topic, str(tp.partition)), 0) > at_ns for tp in self.partitions)

    async def until_consumed(self, at_ns: int, timeout_seconds: float = RECOVERY_SECONDS) -> bool:
        """Wait until each partition has had a record handed out since then; whether that came true in time."""
        return await self._holds(lambda: self.consumed_since(at_ns), timeout_seconds)

    async def until_transformed(self, at_ns: int, timeout_seconds: float = RECOVERY_SECONDS) -> bool:
        """Wait until the transactional members have gone on with each partition since then."""
        return await self._holds(lambda: self.transformers.transformed_since(at_ns), timeout_seconds)

    async def until_started(self, timeout_seconds: float = RECOVERY_SECONDS) -> bool:
        """Wait until there are all members, and the program of each runs: from here on the time is the product's."""

        def started() -> bool:
            members = [self.group.members[name] for name in self.members()]
            return len(members) >= self.limits.members and all(self.group.journal_of(member) for member in members)

        return await self._holds(started, timeout_seconds)

    async def until_working(self, name: str, timeout_seconds: float = RECOVERY_SECONDS) -> bool:
        """Wait until a process has been handed a record, has ended, or the time is over."""

        def works() -> bool:
            member = self.group.members.get(name)
            return member is None or bool(self.group.handed_out(member))

        return await self._holds(works, timeout_seconds)

    async def until_ended_or_working(self, names: list[str], since_ns: int, timeout_seconds: float) -> bool:
        """Wait until each of these has ended, or has been handed a record since then."""

        def settled() -> bool:
            left = [self.group.members[name] for name in names if name in self.group.members]
            return all(self.group.handed_out(member, since_ns) for member in left)

        return await self._holds(settled, timeout_seconds)

    async def until_stable(self, *names: str, timeout_seconds: float = RECOVERY_SECONDS) -> bool:
        """Wait until these members, by default all with the agent, are in one generation of ours."""

        async def stable() -> bool:
            members = [self.group.members[name] for name in names or self.members() if name in self.group.members]
            statuses = [await member.status() for member in members]
            together = len({status.get("generation") for status in statuses}) == 1
            return bool(statuses) and together and all(status.get("state") == "stable" for status in statuses)

        return await self._holds(stable, timeout_seconds)

    async def generation(self) -> int:
        """Return the newest generation that a member says it is in; -1: none says one."""
        statuses = [await self.group.members[name].status() for name in self.members()]
        return max((status.get("generation", -1) for status in statuses), default=-1)

    async def until_generation_after(self, generation: int, timeout_seconds: float) -> bool:
        """Wait until a member is in a newer generation."""

        async def newer() -> bool:
            return await self.generation() > generation

        return await self._holds(newer, timeout_seconds)

    async def _holds(self, holds: Callable[[], bool | Awaitable[bool]], timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return True
            await asyncio.sleep(LOOK_SECONDS)
        return False

    async def watch_machine(self) -> None:
        """Note by how much this loop is late: a machine without a core to spare makes everything late."""
        while True:
            due = time.monotonic() + LOOK_SECONDS
            await asyncio.sleep(LOOK_SECONDS)
            self.late_seconds = max(self.late_seconds, time.monotonic() - due)

    # -- begin and end -------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Grant the rights, start the load and the members, and wait until all is consumed."""
        for rights in self.rights.values():
            await asyncio.to_thread(self.cluster.grant, rights)
        await asyncio.to_thread(self.cluster.grant, self.transformers.rights)
        for _ in range(self.limits.members):
            await self.start_member()
        assert await self.until_stable(timeout_seconds=LAST_SECONDS), "the members are not in one generation"
        await self.group.play(ORDERS_PER_SECOND)
        await self.feeder.start()
        assert await self.until_consumed(clock_ns(), LAST_SECONDS), "the group does not begin to consume"
        await self.transformers.tend()
        assert await self.until_transformed(clock_ns(), LAST_SECONDS), "the transactional members do not begin"

    async def finish(self) -> bool:
        """Stop the load, wait until all that was acknowledged is done, and stop everybody; whether all was done."""
        await self.group.stop_load()
        await self.feeder.stop()

        def finished() -> bool:
            return not self.group.seen().unfinished

        finished_all = await self._holds(finished, LAST_SECONDS)
        self.tended = False
        for name in list(self.group.members):
            await self.end(name)
        sent = read_run(self.group.directory).sent.values()
        wanted = {each.record_id for each in sent if each.offset is not None and each.tp.topic == self.ledger}
        self.outputs = await self.transformers.finish(wanted, LAST_SECONDS)
        self._note_transformers()
        return finished_all

    async def close(self) -> None:
        """End whatever still runs, at once."""
        self.tended = False
        self.cluster.proxies.heal()
        for member in self.group.members.values():
            if member.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    member.process.kill()
        for member in self.group.members.values():
            await member.process.wait()
        self.group.members.clear()
        await self.transformers.close()
        with contextlib.suppress(KafkaError, TimeoutError, OSError):
            async with asyncio.timeout(STOP_SECONDS):
                await self.group.stop_load()
                await self.feeder.stop()


@asynccontextmanager
async def world(cluster: ChaosCluster, directory: Path, seed: int, limits: Limits) -> AsyncIterator[World]:
    """A group that consumes; nothing of it runs afterwards."""
    with Receiver() as receiver:
        made = World(cluster, directory, receiver, seed, limits)
        tasks: list[asyncio.Task[None]] = []
        try:
            await made.begin()
            tasks += [asyncio.create_task(each) for each in (made.note_ends(), made.tend(), made.watch_machine())]
            yield made
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await made.close()
