"""Consume, transform, produce, with members killed and frozen in the middle of transactions: each record once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from integration.harness import IMPORT_PATHS, PROJECT, eventually
from integration.transformer import SESSION_MS
from loadtrim.testing import LocalKafka

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]

SCRIPT = Path(__file__).parents[1] / "integration" / "transformer.py"
PARTITIONS = 4
RECORDS = 2_400
SECONDS_PER_RECORD = 0.004


@pytest.fixture(scope="module")
def transactional_kafka() -> Iterator[LocalKafka]:
    """Short sessions, and a dead producer's transaction is aborted soon after its time (by default within 10 s)."""
    properties = {
        "group.min.session.timeout.ms": "500",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    }
    with LocalKafka(properties=properties, short_run=True) as kafka:
        yield kafka


class Run:
    """The processes, and what they have put out so far, as a reader of committed records sees it."""

    def __init__(self, kafka: LocalKafka, directory: Path) -> None:
        self.kafka = kafka
        self.directory = directory
        self.group = f"once-{uuid.uuid4().hex[:8]}"
        self.source = kafka.create_topic(partitions=PARTITIONS)
        self.sink = kafka.create_topic(partitions=PARTITIONS)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.output: list[list[int]] = [[] for _ in range(PARTITIONS)]

    def start(self, name: str) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(PROJECT / path) for path in IMPORT_PATHS),
            "BOOTSTRAP": self.kafka.bootstrap,
            "GROUP": self.group,
            "SOURCE": self.source,
            "SINK": self.sink,
            "NAME": f"{self.group}-{name}",
            "SECONDS_PER_RECORD": str(SECONDS_PER_RECORD),
            "LOADTRIM_MODE": "shadow",  # partitions are spread by their number as members come and go
            "LOADTRIM_HTTP": "off",
        }
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, str(SCRIPT)], env=environment, stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def close(self) -> None:
        for name, process in list(self.processes.items()):
            process.send_signal(signal.SIGCONT)
            self.kill(name)

    async def produce(self) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self.kafka.bootstrap) as producer:
            for number in range(RECORDS):
                await producer.send(self.source, str(number).encode(), partition=number % PARTITIONS)

    async def follow(self) -> None:
        partitions = [TopicPartition(self.sink, index) for index in range(PARTITIONS)]
        async with AIOKafkaConsumer(
            bootstrap_servers=self.kafka.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as reader:
            reader.assign(partitions)
            async for record in reader:
                self.output[record.partition].append(int(record.value))

    @property
    def done(self) -> int:
        return sum(map(len, self.output))

    async def until(self, records: int) -> None:
        await eventually(lambda: self.done >= records, f"{records} records are through", 90.0)

    async def until_told(self, name: str, text: str, times: int = 1) -> None:
        await eventually(lambda: self.log(name).count(text) >= times, f"{name} says {text!r}", 60.0)

    async def until_nothing_is_open(self) -> None:
        """No transaction that could still bring records: what is committed is all there is."""
        async with AIOKafkaConsumer(bootstrap_servers=self.kafka.bootstrap) as reader:
            ends = await reader.end_offsets([TopicPartition(self.sink, index) for index in range(PARTITIONS)])
        async with AIOKafkaConsumer(bootstrap_servers=self.kafka.bootstrap, isolation_level="read_committed") as reader:

            async def stable() -> bool:
                return await reader.end_offsets(list(ends)) == ends

            await eventually(stable, "every transaction has ended")

    def check(self) -> None:
        for index, output in enumerate(self.output):
            assert output == list(range(index, RECORDS, PARTITIONS)), f"partition {index}: lost, repeated or disordered"


@asynccontextmanager
async def running(kafka: LocalKafka, directory: Path) -> AsyncIterator[Run]:
    run = Run(kafka, directory)
    following = asyncio.create_task(run.follow())
    try:
        await run.produce()
        yield run
    finally:
        run.close()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_members_killed_in_the_middle_of_transactions(transactional_kafka: LocalKafka, tmp_path: Path) -> None:
    """Consumer and producer die together: one comes back under its transactional id, one does not, one joins anew."""
    async with running(transactional_kafka, tmp_path) as run:
        run.start("one")
        await run.until(40)
        run.start("two")
        await run.until_told("two", "Group ")
        await run.until(300)
        run.kill("one")
        run.start("one")
        await run.until(700)
        run.start("three")
        await run.until_told("three", "Group ")
        await run.until(1_000)
        run.kill("two")
        await run.until(1_400)
        run.kill("one")
        run.start("one")
        await run.until(RECORDS)
        await run.until_nothing_is_open()
        run.check()


async def test_a_member_frozen_in_the_middle_of_a_transaction(transactional_kafka: LocalKafka, tmp_path: Path) -> None:
    """It was shut out meanwhile; its transaction is still open when it wakes: what it commits then is refused."""
    async with running(transactional_kafka, tmp_path) as run:
        run.start("one")
        await run.until(40)
        run.start("two")
        await run.until_told("two", "Group ")
        await run.until(300)
        for frozen in range(3):
            process = run.processes["one"]
            process.send_signal(signal.SIGSTOP)
            through = run.done
            await asyncio.sleep(1.25 * SESSION_MS / 1_000)  # the fault itself: longer than its session
            process.send_signal(signal.SIGCONT)
            await run.until(min(RECORDS, max(through, run.done) + 200))
            assert process.poll() is None, frozen
        await run.until(RECORDS)
        await run.until_nothing_is_open()
        run.check()
        assert "fenced" in run.log("one")
