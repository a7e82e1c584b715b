"""A group of workers and its load, as most benchmarks need it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from loadtrim.testing import Cluster
from loadtrim_agent.common.clock import boot_time, wall_time
from loadtrim_agent.wire.codec import Record, decode, encode
from loadtrim_agent.wire.envelope import COORDINATION, UnreadableRecord
from loadtrim_agent.wire.ownership_records import ManualOverrideRecord, MovePlan, PlanRecord, ReleaseRecord
from loadtrim_agent.wire.topic_names import control_topic

from .child import Child
from .stamps import Stamp, Stamps

__all__ = ["SESSION_OPTIONS", "Control", "Group", "Mover", "moving", "running_group", "until"]

SESSION_OPTIONS = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 3_000}
LOOK_SECONDS = 0.05
MOVE_SECONDS_MAX = 20.0
UNDERWAY_SECONDS = 3.0
"""What the leader had planned before it was told to hold is done by then."""


async def until(holds: Any, what: str, timeout_seconds: float = 60.0) -> None:
    """Wait until the coroutine function ``holds`` returns true.

    Raises:
        TimeoutError: naming ``what``.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            while not await holds():  # noqa: ASYNC110 - the state of other processes has no event
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise TimeoutError(f"not within {timeout_seconds:g} s: {what}") from None


@dataclass(slots=True)
class Control:
    """Reads and writes a group's coordination log from outside."""

    bootstrap: str
    group: str
    owners: dict[int, str] = field(default_factory=dict)
    """Partition -> member, by the releases read."""
    released_at: dict[int, float] = field(default_factory=dict)
    """Partition -> when its last release was read, boot-time seconds."""
    releases: int = 0
    sequence: int = 1_000_000
    """Far above the leader's, so that members heed these plans and not its own."""
    _reader: Any = field(init=False, default=None)
    _producer: Any = field(init=False, default=None)
    _task: asyncio.Task[None] | None = None

    @property
    def topic(self) -> str:
        return control_topic(self.group)

    async def __aenter__(self) -> Self:
        self._reader = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=None, auto_offset_reset="latest", fetch_max_wait_ms=100
        )
        self._producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all")
        await self._reader.start()
        await self._producer.start()
        at = TopicPartition(self.topic, COORDINATION)
        self._reader.assign([at])
        await self._reader.seek_to_end(at)
        await self._reader.position(at)
        self._task = asyncio.create_task(self._tail())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
        await self._reader.stop()
        await self._producer.stop()

    async def _tail(self) -> None:
        async for message in self._reader:
            with contextlib.suppress(UnreadableRecord):
                record = decode(message.value)
                if isinstance(record, ReleaseRecord) and self.owners.get(record.partition) == record.source:
                    self.owners[record.partition] = record.target
                    self.released_at[record.partition] = boot_time()
                    self.releases += 1

    async def write(self, record: Record) -> None:
        await self._producer.send_and_wait(self.topic, encode(record), partition=COORDINATION)

    async def hold(self) -> None:
        """Brake: no plans of the leader's own."""
        await self.write(ManualOverrideRecord(group=self.group, member="cli", at=wall_time(), action="hold"))

    async def plan(self, leader: str, generation: int, moves: tuple[MovePlan, ...]) -> None:
        """Advise as the leader does."""
        self.sequence += 1
        record = PlanRecord(
            group=self.group,
            member=leader,
            at=wall_time(),
            generation=generation,
            sequence=self.sequence,
            moves=moves,
        )
        await self.write(record)


class Group:
    """Workers of one group, and the process that feeds their topic."""

    def __init__(
        self, kafka: Cluster, directory: Path, *, partitions: int, env: Mapping[str, str] | None = None
    ) -> None:
        self.kafka = kafka
        self.partitions = partitions
        self.directory = directory / f"group-{uuid.uuid4().hex[:8]}"
        self.directory.mkdir(parents=True)
        self.group = f"bench-{uuid.uuid4().hex[:8]}"
        self.topic = kafka.create_topic(partitions=partitions)
        self.env = {"LOADTRIM_HTTP": "off", **(env or {})}
        self.workers: dict[str, Child] = {}
        self.feed: Child | None = None
        self.random = random.Random(7)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        everybody = [*self.workers.values(), *([self.feed] if self.feed else [])]
        await asyncio.gather(*(child.close() for child in everybody), return_exceptions=True)

    async def spawn(
        self,
        *names: str,
        env: Mapping[str, str] | None = None,
        module: str = "benchmarks.suite.worker",
        **options: Any,
    ) -> list[Child]:
        """Processes that have imported everything and have not started their consumer."""
        given = {
            "bootstrap": self.kafka.bootstrap,
            "topic": self.topic,
            "group": self.group,
            "directory": str(self.directory),
            "consumer": SESSION_OPTIONS,
            **options,
        }
        spawning = (Child.spawn(module, name, given, self.directory, {**self.env, **(env or {})}) for name in names)
        children = await asyncio.gather(*spawning)
        self.workers.update(zip(names, children, strict=True))
        return list(children)

    async def start_feed(self, rate: float, payload_bytes: int = 100, **further: Any) -> Child:
        options = {
            "bootstrap": self.kafka.bootstrap,
            "topic": self.topic,
            "partitions": self.partitions,
            "payload_bytes": payload_bytes,
            "directory": str(self.directory),
            **further,
        }
        self.feed = await Child.spawn("benchmarks.suite.feed", "feed", options, self.directory)
        await self.feed.ask("rate", rate=rate)
        return self.feed

    async def preload(self, partitions: Iterable[int], records: int, payload_bytes: int = 100) -> None:
        """Records that wait: so many in each partition."""
        payload = b"x" * payload_bytes
        bootstrap = self.kafka.bootstrap
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=20, max_batch_size=1 << 16) as producer:
            for partition in partitions:
                for _ in range(records):
                    await producer.send(self.topic, payload, partition=partition)

    async def states(self, *names: str) -> dict[str, dict[str, Any]]:
        chosen = names or tuple(self.workers)
        answers = await asyncio.gather(*(self.workers[name].ask("state") for name in chosen))
        return dict(zip(chosen, answers, strict=True))

    async def until_settled(self, *names: str, timeout_seconds: float = 60.0) -> dict[str, dict[str, Any]]:
        """Wait until these are one generation and own every partition once."""
        found: dict[str, dict[str, Any]] = {}

        async def settled() -> bool:
            found.clear()
            found.update(await self.states(*names))
            owned = sorted(p for state in found.values() for p in state["owned"])
            together = len({state["generation"] for state in found.values()}) == 1
            return together and owned == list(range(self.partitions)) and all(s["stable"] for s in found.values())

        await until(settled, f"{names} own everything in one generation", timeout_seconds)
        return found

    async def counted(self) -> int:
        answers = await asyncio.gather(*(child.ask("count") for child in self.workers.values()))
        return sum(answer["count"] for answer in answers)

    async def drain(self) -> int:
        """Stop the feed and wait until as many records were handed out. Returns how many were acknowledged."""
        assert self.feed is not None
        acknowledged = int((await self.feed.ask("stop"))["acknowledged"])

        async def done() -> bool:
            return await self.counted() >= acknowledged

        # What is lost is told by the stamps, not by a wait.
        with contextlib.suppress(TimeoutError):
            await until(done, "everything handed out", 20.0)
        return acknowledged

    async def stamps(self) -> list[Stamp]:
        """Of all workers that live."""
        alive = {name: child for name, child in self.workers.items() if child.process.returncode is None}
        saved = await asyncio.gather(*(child.ask("save") for child in alive.values()))
        return [
            stamp
            for name, answer in zip(alive, saved, strict=True)
            for stamp in Stamps.load(Path(answer["path"]), name)
        ]

    def sent(self) -> list[Stamp]:
        return list(Stamps.load(self.directory / "feed.stamps", "feed"))


@dataclass(frozen=True, slots=True)
class Mover:
    """Moves partitions of a group between its workers by plan records, as the leader would ask."""

    group: Group
    control: Control
    members: Mapping[str, str]
    """Worker -> member."""
    leader: str
    generation: int

    def owner(self, partition: int) -> str:
        """The worker that owns it, by the releases read."""
        return next(name for name, member in self.members.items() if member == self.control.owners[partition])

    async def move(self, partition: int, to: str) -> float:
        """Ask for a move and wait until the release was read.

        Returns:
            Seconds from the broker's answer to the plan until then.

        Raises:
            ValueError: it is there already.
            TimeoutError: not released within 20 s.
        """
        source, target = self.owner(partition), self.members[to]
        if source == to:
            raise ValueError(f"{to} owns partition {partition} already: there is nothing to measure")
        move = MovePlan(topic=self.group.topic, partition=partition, source=self.members[source], target=target)
        await self.control.plan(self.leader, self.generation, (move,))
        planned_at = boot_time()

        async def moved() -> bool:
            return self.control.owners[partition] == target

        await until(moved, f"partition {partition} goes from {source} to {to}", MOVE_SECONDS_MAX)
        return self.control.released_at[partition] - planned_at

    async def bring(self, partition: int, to: str) -> None:
        """Move it, where it is not there already."""
        if self.owner(partition) != to:
            await self.move(partition, to)


@contextlib.asynccontextmanager
async def moving(group: Group, *names: str) -> AsyncIterator[Mover]:
    """A settled group of these workers whose leader moves nothing of its own accord."""
    async with Control(group.kafka.bootstrap, group.group) as control:
        await control.hold()
        await asyncio.sleep(UNDERWAY_SECONDS)
        states = await group.until_settled(*names)
        control.owners = {p: state["member"] for state in states.values() for p in state["owned"]}
        one = next(iter(states.values()))
        members = {name: state["member"] for name, state in states.items()}
        yield Mover(group, control, members, one["leader"], one["generation"])


@contextlib.asynccontextmanager
async def running_group(
    kafka: Cluster,
    directory: Path,
    names: tuple[str, ...],
    *,
    partitions: int,
    rate: float,
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> AsyncIterator[Group]:
    """A group in which everything is owned and consumed."""
    async with Group(kafka, directory, partitions=partitions, env=env) as group:
        await group.spawn(*names, **options)
        for name in names:
            await group.workers[name].ask("start")
        await group.until_settled(*names)
        await group.start_feed(rate)  # now, so that nobody begins with a backlog
        yield group
