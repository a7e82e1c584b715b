"""The processes of transactions: the one that feeds the ledger, and the members that transform it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import time
import uuid
from pathlib import Path

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka.admin import AclOperation, ResourceType

from integration.harness import IMPORT_PATHS, PROJECT, eventually
from loadtrim.process_guard import end_with_parent

from .cluster import ChaosCluster, Right
from .hold import Hold
from .load import ABORTED, JOURNAL, RECORDS, WRITTEN, FeederOptions
from .outputs import AskedCommits, Made, Output, Outputs
from .transformer import AFTER_OFFSETS, BEFORE_OFFSETS, TransformerOptions

__all__ = ["PLACES", "Feeder", "Transformers"]

HERE = Path(__file__).parent
MEMBERS = 2
PLACES = (BEFORE_OFFSETS, AFTER_OFFSETS)
STOP_SECONDS = 45.0
READ_MS = 200


async def _start(script: str, log_path: Path, **environment: str) -> asyncio.subprocess.Process:
    paths = [os.environ.get("PYTHONPATH", ""), *(str(PROJECT / path) for path in IMPORT_PATHS)]
    with log_path.open("ab") as log:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            str(HERE / script),
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith("LOADTRIM_")},
                "PYTHONPATH": os.pathsep.join(paths),
                **environment,
            },
            stdout=log,
            stderr=log,
            preexec_fn=end_with_parent(signal.SIGKILL),
        )


async def _stop(process: asyncio.subprocess.Process) -> int:
    """End a process in order, or kill it when it does not heed; returns its exit code."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            return await process.wait()
    except TimeoutError:
        return await _kill(process)


async def _kill(process: asyncio.subprocess.Process) -> int:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGKILL)
    return await process.wait()


class Feeder:
    """The producer of transactions, and its successors under the same transactional id."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, directory: Path, seed: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._journals = directory / "run"
        self._directory = directory
        self._seed = seed
        self._id = f"chaos-{uuid.uuid4().hex[:6]}"
        self._numbers = itertools.count(1)
        self._hold = Hold(directory / "feeder.hold")
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        options = FeederOptions(
            bootstrap=self._bootstrap,
            topic=self._topic,
            partitions=self._partitions,
            transactional_id=self._id,
            directory=str(self._journals),
            hold=str(self._directory / "feeder.hold"),
            seed=f"{self._seed} {next(self._numbers)}",
        )
        text = msgspec.json.encode(options).decode()
        self._process = await _start("load.py", self._directory / "feeder.log", FEEDER=text)

    async def kill_in_transaction(self) -> int:
        """Kill it with all of a transaction written, and start its successor; returns the records that were open."""
        await self._hold.ask(WRITTEN)
        process, self._process = self._process, None  # nobody else is to start a successor
        assert process is not None
        await _kill(process)
        self._hold.release()
        opened = self._write_aborted(process.pid)
        await self.start()
        return opened

    def _write_aborted(self, pid: int) -> int:
        """Write for the dead what it could not: no commit was asked for, and its successor aborts."""
        path = self._journals / f"{JOURNAL}-{pid}.journal"
        lines = [line.split(",") for line in path.read_text().splitlines()]
        opened = [fields[1] for fields in lines if fields[0] == "P"][-RECORDS:]
        ended = {fields[1] for fields in lines if fields[0] in "AF"}
        assert len(opened) == RECORDS, f"{path} has no transaction"
        assert not ended.intersection(opened), f"the transaction of {opened} had ended"
        with path.open("a") as journal:
            journal.writelines(f"F,{record_id},{ABORTED}\n" for record_id in opened)
        return len(opened)

    @property
    def ended(self) -> int | None:
        """Exit code of one that ended by itself."""
        return None if self._process is None else self._process.returncode

    async def stop(self) -> None:
        """Let it finish the transaction that is open."""
        process, self._process = self._process, None
        if process is not None:
            await _stop(process)


class Transformers:
    """A group of members that read the ledger and write an output topic, exactly once.

    A member that is killed has a successor, in turn under its transactional id and under a new one.

    Attributes:
        processes: by name.
        ended: name and exit code of those that ended by themselves and were not asked for yet.
    """

    def __init__(self, cluster: ChaosCluster, source: str, partitions: int, directory: Path) -> None:
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.ended: list[tuple[str, int]] = []
        self._cluster = cluster
        self._source = source
        self._partitions = partitions
        self._directory = directory
        self._journals = directory / "transformers"
        self._asked = AskedCommits(self._journals)
        self._group = f"transform-{uuid.uuid4().hex[:8]}"
        self._sink = cluster.kafka.create_topic(partitions=partitions)
        self._names = (f"t{number}" for number in itertools.count(1))
        self._ids: dict[str, str] = {}
        """Name -> transactional id."""
        self._free_ids: list[str] = []
        self._reuse = itertools.cycle((True, False))
        self._closing = False

    @property
    def rights(self) -> list[Right]:
        """What its members need besides the right to read the ledger."""
        own = self._cluster.rights(self._group, (self._source,))
        write, describe = AclOperation.WRITE, AclOperation.DESCRIBE
        return [
            *own["group"],
            *own["control"],
            *own["create"],
            *(Right(ResourceType.TRANSACTIONAL_ID, "*", each) for each in (write, describe)),
            *(Right(ResourceType.TOPIC, self._sink, each) for each in (write, describe)),
        ]

    # -- processes -------------------------------------------------------------------------------------------------

    async def tend(self) -> None:
        """Note who has ended, and start who is missing; called by one task alone."""
        if self._closing:
            return
        for name, process in list(self.processes.items()):
            if process.returncode is not None:
                del self.processes[name]
                self.ended.append((name, process.returncode))
                self._free_ids.append(self._ids.pop(name))
        while len(self.processes) < MEMBERS:
            await self._start_one()

    async def _start_one(self) -> None:
        name = next(self._names)
        reused = self._free_ids.pop(0) if self._free_ids and next(self._reuse) else None
        self._ids[name] = reused or f"{self._group}-{name}"
        options = TransformerOptions(
            bootstrap=self._cluster.proxies.bootstrap,
            group=self._group,
            source=self._source,
            sink=self._sink,
            name=name,
            transactional_id=self._ids[name],
            directory=str(self._journals),
            hold=str(self._hold_path(name)),
            security=self._cluster.member_options,
        )
        self.processes[name] = await _start(
            "transformer.py",
            self._directory / f"{name}.log",
            TRANSFORMER=msgspec.json.encode(options).decode(),
            LOADTRIM_HTTP="off",
            LOADTRIM_INSTANCE=name,
        )

    def _hold_path(self, name: str) -> Path:
        return self._directory / f"{name}.hold"

    async def kill_in_transaction(self, name: str, place: str) -> None:
        """Kill a member that has a transaction open."""
        hold = Hold(self._hold_path(name))
        await hold.ask(place)
        await self._kill(name)
        hold.release()

    async def freeze_in_transaction(self, name: str, place: str, seconds: float) -> None:
        """Freeze a member that has a transaction open; it goes on where it was."""
        process, hold = self.processes[name], Hold(self._hold_path(name))
        await hold.ask(place)
        process.send_signal(signal.SIGSTOP)
        try:
            hold.release()
            await asyncio.sleep(seconds)  # the fault itself
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)

    async def _kill(self, name: str) -> None:
        process = self.processes.pop(name)
        self._free_ids.append(self._ids.pop(name))
        await _kill(process)

    def transformed_since(self, at_ns: int) -> bool:
        """Whether a commit of each partition was asked for since then."""
        last_ns = self._asked.look().last_ns
        return all(last_ns.get(partition, 0) > at_ns for partition in range(self._partitions))

    async def close(self) -> None:
        """End whatever still runs, at once."""
        self._closing = True
        for name in list(self.processes):
            await self._kill(name)

    # -- the output ------------------------------------------------------------------------------------------------

    async def finish(self, wanted: set[str], timeout_seconds: float) -> Outputs:
        """Wait until something was put out of all these records, end all members, and return all of the output."""
        outputs = Outputs(source=self._source)
        partitions = [TopicPartition(self._sink, index) for index in range(self._partitions)]
        async with AIOKafkaConsumer(
            bootstrap_servers=self._cluster.kafka.bootstrap, isolation_level="read_committed"
        ) as reader:
            reader.assign(partitions)
            await reader.seek_to_beginning(*partitions)
            deadline = time.monotonic() + timeout_seconds
            seen: set[str] = set()
            while not wanted <= seen and time.monotonic() < deadline:
                seen.update(await _read_on(reader, outputs))
            self._closing = True
            stopped = list(self.processes.items())
            self.processes.clear()
            for name, process in stopped:
                self.ended += [(name, code)] if (code := await _stop(process)) != 0 else []
            ends = await self._ends(partitions)
            while any([await reader.position(at) < ends[at] for at in partitions]):
                await _read_on(reader, outputs)
        outputs.asked = self._asked.look().transactions
        return outputs

    async def _ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of the log when no transaction is open any more."""
        bootstrap = self._cluster.kafka.bootstrap
        async with (
            AIOKafkaConsumer(bootstrap_servers=bootstrap) as every,
            AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as committed,
        ):
            ends: dict[TopicPartition, int] = {}

            async def closed() -> bool:
                nonlocal ends
                ends = await every.end_offsets(partitions)
                return await committed.end_offsets(partitions) == ends

            await eventually(closed, "every transaction of the output has ended")
            return ends


async def _read_on(reader: AIOKafkaConsumer, outputs: Outputs) -> list[str]:
    found = [message for messages in (await reader.getmany(timeout_ms=READ_MS)).values() for message in messages]
    for each in found:
        made = msgspec.json.decode(each.value, type=Made)
        outputs.entries.append(Output(each.partition, each.timestamp, made))
    return [entry.made.record_id for entry in outputs.entries[len(outputs.entries) - len(found) :]]
