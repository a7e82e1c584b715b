"""The four walks, played by real consumers against a broker in this process."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import msgspec
from aiokafka.structs import TopicPartition

from loadtrim import Consumer, Settings
from loadtrim.managed import ManagedConsumer
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol.snapshot import MachineSnapshot
from loadtrim_agent.runtime.thread import AgentThread
from loadtrim_agent.wire.codec import encode
from loadtrim_agent.wire.ownership_records import MovePlan, PlanRecord

from .broker import MemoryBroker, memory_broker
from .recorder import Recorder, way_to

METERING = (
    "loadtrim_agent/delivery/metering_task.py",
    "loadtrim_agent/delivery/samples.py",
    "loadtrim_agent/delivery/slicing_task.py",
    "loadtrim_agent/runtime/services.py",
)
"""They see a record for the report's sake: that is a walk of its own."""
GROUP, TOPIC = "walk", "orders"
USER, KAFKA = "user code", "Kafka"
MEASURED_SECONDS = 4.0
"""Long enough for the leader to know what a record costs: it holds for 3 s."""
PLANS = 3
"""A plan that comes while the log does not answer in time, on a busy machine, is not heeded."""
SHARE_TEXT, SHARE = "0.98765", 0.98765
USES, SIZING = ("sla_share", "objective_share"), "loadtrim_agent/planning/sizing/"
"""Names of the setting, and where it is used first."""
_OUTSIDE = {"walks/scenes.py": USER, "aiokafka/client.py": KAFKA}


def forms(*names: str) -> Callable[[Any], str | None]:
    """Tell an item's form by the name of its class; of an event of the log by the record in it.

    A commit of user code is carried as offsets by partition, and as work for the agent's thread.
    """
    wanted = frozenset(names)

    def label(value: Any) -> str | None:
        if "commit" in wanted and (_offsets(value) or getattr(value, "__qualname__", "") == "UserCommits.commit"):
            return "commit"
        if type(value).__name__ == "LogReadEvent":
            value = value.record
        name = type(value).__name__
        if name == "ConsumerRecord" and value.topic != TOPIC:
            return None  # of the control topic
        if name.startswith("FetchResponse") and "FetchResponse" in wanted:
            told = [p[-1] for topic, partitions in value.topics for p in partitions if topic == TOPIC]
            return "FetchResponse" if any(told) else None
        return name if name in wanted else None

    return label


def _offsets(value: Any) -> bool:
    """Offset and metadata by partition, as user code names them."""
    if type(value) is not dict or not value:
        return False
    partition, offset = next(iter(value.items()))
    return isinstance(partition, Partition) and type(offset) is tuple


@contextlib.contextmanager
def one_thread() -> Any:
    """Run agents in the loop of user code, so that one thread sees the item's whole way in its order."""
    names = ("start", "stop")
    before = {name: getattr(AgentThread, name) for name in names}
    alive = AgentThread.alive

    def start(self: AgentThread) -> None:
        self._loop = asyncio.get_running_loop()

    async def stop(self: AgentThread) -> None: ...

    for name, method in zip(names, (start, stop), strict=True):
        setattr(AgentThread, name, method)
    AgentThread.alive = property(lambda self: True)  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(AgentThread, name, method)
        AgentThread.alive = alive  # type: ignore[method-assign]


@contextlib.asynccontextmanager
async def stage(partitions: int = 1) -> AsyncIterator[MemoryBroker]:
    """A broker with one topic and a control topic, and agents in this thread."""
    with one_thread():
        async with memory_broker({TOPIC: partitions, f"__loadtrim.{GROUP}": 2}) as broker:
            yield broker


def made(broker: MemoryBroker, settings: Settings, **options: Any) -> Consumer:
    """A consumer of the group, not started; ``options`` are further arguments of its constructor."""
    return Consumer(
        TOPIC,
        bootstrap_servers=f"127.0.0.1:{broker.port}",
        group_id=GROUP,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=60_000,
        handle_signals=False,
        settings=settings,
        **options,
    )


@contextlib.asynccontextmanager
async def consumer(broker: MemoryBroker) -> AsyncIterator[Consumer]:
    """A consumer that has its generation."""
    one = made(broker, Settings(http="off"))
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


async def until(holds: Callable[[], bool], seconds: float = 10.0, *, what: str = "what is waited for holds") -> None:
    """Wait until something holds; ``what`` is told when it never does."""
    try:
        async with asyncio.timeout(seconds):
            while not holds():  # noqa: ASYNC110 - what is waited for happens in the code under test
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise TimeoutError(f"within {seconds:g} s it did not come to pass that {what}") from None


async def user_code(one: Consumer) -> None:
    """Take one record; asking for the next one ends it."""
    record = await one.getone()
    assert record.value == b"walk"
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.02):
            await one.getone()


async def walk_record() -> Recorder:
    """Broker, user code, done, commit."""
    recorder = Recorder(
        forms(
            "FetchResponse",
            "Chunk",
            "ConsumerRecord",
            "commit",
            "OffsetCommit",
            "CommitWantedEvent",
            "SendCommitCommand",
            "OffsetCommitRequest",
            "CommitAnsweredEvent",
        ),
        KAFKA,
        _OUTSIDE,
        calls={"Stream.end": "done", "Consumer.commit": "commit", "Positions.commit": "commit"},
        onlookers=METERING,
    )
    async with stage() as broker, consumer(broker) as one:
        await until(lambda: broker.committed(GROUP, TOPIC, 0) == 0, what="the position is committed")
        await asyncio.sleep(0.05)
        with recorder.recording():
            await broker.send(TOPIC, 0, b"walk")
            await user_code(one)
            await one.commit()
    return recorder


async def walk_release() -> Recorder:
    """Plan, idle point, commit, release, new owner."""
    recorder = Recorder(
        forms(
            "PlanRecord",
            "MovePlan",
            "MoveWantedEvent",
            "AwaitIdlePointCommand",
            "IdlePointEvent",
            "StopCommand",
            "DrainedEvent",
            "AppendCommand",
            "ReleaseRecord",
            "OpenCommand",
            "OpenedEvent",
            "RunCommand",
            "OffsetCommit",
            "SendCommitCommand",
            "CommitAnsweredEvent",
        ),
        KAFKA,
    )
    async with stage(partitions=2) as broker, consumer(broker) as one:
        moving = TopicPartition(TOPIC, 1)
        await until(lambda: broker.committed(GROUP, TOPIC, 1) == 0, what="the position is committed")
        async with consumer(broker) as other:
            # The leader's own plan comes first: a partition each. Its next ones are older than the one that is played.
            await until(lambda: all(_owns(each, partitions=1) for each in (one, other)), what="each owns one partition")
            giver, receiver = (one, other) if moving in one.assignment() else (other, one)
            await broker.send(TOPIC, 1, b"walk")
            await user_code(giver)
            names = {each: _snapshot(each).member for each in (one, other)}
            move = MovePlan(topic=TOPIC, partition=1, source=names[giver], target=names[receiver])
            for number in range(PLANS):
                now = _snapshot(one)
                plan = PlanRecord(
                    group=GROUP,
                    member=now.leader,
                    at=time.time(),
                    generation=now.generation,
                    sequence=10_000 + number,
                    moves=(move,),
                )
                data = encode(plan)
                with recorder.recording(), contextlib.suppress(TimeoutError):
                    await broker.send(f"__loadtrim.{GROUP}", 0, data)
                    await until(
                        lambda: moving in receiver.assignment() and moving not in giver.assignment(),
                        3.0,
                        what="the partition is the receiver's",
                    )
                    await asyncio.sleep(0.02)
                    break
    return recorder


def _snapshot(one: Consumer) -> MachineSnapshot:
    assert isinstance(one._client, ManagedConsumer)
    return one._client.link.need_agent().snapshot()


def _owns(one: Consumer, partitions: int) -> bool:
    return _snapshot(one).stable and len(one.assignment()) == partitions


async def walk_report() -> Recorder:
    """Meter, telemetry, leader, decision."""
    tell = forms(
        "PartitionReport",
        "ReportRecord",
        "TelemetryEntry",
        "Observation",
        "Estimate",
        "Forecast",
        "View",
        "Problem",
        "Sizing",
        "Placement",
        "DecisionRecord",
    )
    began = float("inf")

    def label(value: Any) -> str | None:
        name = tell(value)
        return None if name == "DecisionRecord" and value.at < began else name  # the last decision is read, too

    # Gathering, the report and the load each take what user code has done since the last of the three. Each has a timer
    # of its own. Which one is first is chance, that each fetches from user code is not.
    done = "records done"
    recorder = Recorder(label, USER, calls={"MeteringTask.gather": done, "Meter.done": done}, anew=[done])

    def passed(form: str, file: str) -> bool:
        return any(step.form == form and step.to.endswith(file) for step in recorder.steps)

    async with stage() as broker, consumer(broker) as one, loaded(broker, one):
        await asyncio.sleep(MEASURED_SECONDS)
        await until(lambda: 0.4 < time.time() % 1.0 < 0.5, what="the middle of a second is near")
        began = time.time()
        with recorder.recording():
            # Each has its own timer, and on a busy machine a decision may still be one without the report.
            ends = ((done, "loads_task.py"), ("ReportRecord", "observation.py"), ("DecisionRecord", "codec.py"))
            await until(lambda: all(passed(form, file) for form, file in ends), what=f"all of {ends} have passed")
            await asyncio.sleep(0.05)
    return recorder


@contextlib.asynccontextmanager
async def loaded(broker: MemoryBroker, one: Consumer) -> AsyncIterator[None]:
    """Records come, and are done, while the block runs."""

    async def work() -> None:
        while True:
            await broker.send(TOPIC, 0, b"walk")
            await one.getone()
            await asyncio.sleep(0.05)

    working = asyncio.create_task(work())
    try:
        yield
    finally:
        working.cancel()


def carries(value: Any, wanted: float, depth: int = 2) -> bool:
    """Return whether a value of this project (a structure of fields) has a number in it."""
    if type(value) is float:
        return value == wanted
    if not type(value).__module__.startswith("loadtrim") or depth < 0:
        return False
    if isinstance(value, msgspec.Struct):
        names: Iterable[str] = type(value).__struct_fields__
    elif dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    else:
        return False
    return any(carries(getattr(value, name, None), wanted, depth - 1) for name in names)


async def walk_setting() -> Recorder:
    """LOADTRIM_SLA_SHARE from the environment to its first use: the number, and what carries it."""

    def label(value: Any) -> str | None:
        if value == SHARE_TEXT:
            return "text"
        if not carries(value, SHARE):
            return None
        return "number" if type(value) is float else type(value).__name__

    recorder = Recorder(label, "environment", {"walks/scenes.py": USER}, uses=USES)
    async with stage() as broker:
        with recorder.recording():
            settings = Settings.from_env({"LOADTRIM_SLA_SHARE": SHARE_TEXT, "LOADTRIM_HTTP": "off"})
            one = made(broker, settings)
            await one.start()
        async with loaded(broker, one):
            await asyncio.sleep(MEASURED_SECONDS)
            await until(lambda: 0.0 < time.time() % 1.0 < 0.2, what="a second begins")
            with recorder.recording():
                await asyncio.sleep(1.0)
        await one.stop()
    uses = [number for number, step in enumerate(recorder.steps) if step.form in USES and step.to.startswith(SIZING)]
    # A busy machine may decide nothing in that second. Then all steps are left: another walk, which is walked again.
    if uses:
        recorder.steps[:] = way_to(recorder.steps, uses[0])
    return recorder


WALKS = {"record": walk_record, "report": walk_report, "release": walk_release, "setting": walk_setting}
