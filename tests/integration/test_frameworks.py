"""The programs of docs/frameworks.md as they stand there: two processes, moves under load, SIGTERM; each once."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from taskiq_aio_kafka import AioKafkaBroker

from integration.harness import WAIT_SECONDS, committed_offsets, eventually
from integration.harness_consumers import new_group
from loadtrim.testing import Cluster
from pages import blocks as pages

pytestmark = pytest.mark.kafka

PARTITIONS = 4
SETTINGS = {
    "LOADTRIM_HTTP": "off",
    "LOADTRIM_DRAIN_SECONDS": "5",
    "PYTHONUNBUFFERED": "",  # Unbuffered, print() writes word by word, and a log line may come in between.
    "LOADTRIM_MODE": "shadow",  # Partitions are shared by number, so that they move in every run.
}

COMMANDS = {
    "FastStream": ["service.py"],
    "taskiq": ["-m", "taskiq", "worker", "service:broker", "--workers", "1", "--no-configure-logging"],
    "FastAPI and Starlette": ["-m", "uvicorn", "service:app", "--port", "0"],
    "aiohttp": ["service.py"],
}
ENDS_BY_THE_SIGNAL = {"FastAPI and Starlette"}
"""Uvicorn raises the signal again when it has shut down."""


def program(section: str, topic: str, group: str, bootstrap: str) -> str:
    """Return the first program of a section, with a topic, a group and a broker of the test's own."""
    text = pages.program("docs/frameworks.md", section).replace("port=8080", "port=0")
    for word, own in (("payments-service", group), ("payments", topic), ("localhost:9092", bootstrap)):
        assert text.count(f'"{word}"') == 1, word
        text = text.replace(f'"{word}"', f'"{own}"')
    return text


class Running:
    """A process of the program, and what it has charged."""

    def __init__(self, process: asyncio.subprocess.Process, charged: Counter[int]) -> None:
        self.process = process
        self.own = 0
        self.output: list[str] = []
        self._charged = charged
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.output.append(line.decode())
            if found := re.match(r"charged (\d+)", self.output[-1]):
                self.own += 1
                self._charged[int(found[1])] += 1

    async def end(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = await self.process.wait()
        await self._reading
        return code


@asynccontextmanager
async def running(section: str, directory: Path, charged: Counter[int]) -> AsyncIterator[Running]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *COMMANDS[section], cwd=directory, env={**os.environ, **SETTINGS},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    program = Running(process, charged)
    try:
        yield program
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)  # Taskiq's workers are processes of its own.
            await process.wait()
        print("".join(program.output))  # Shown where the test fails.


Send = Callable[[int], Awaitable[None]]


@asynccontextmanager
async def sending(kafka: Cluster, topic: str) -> AsyncIterator[Send]:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap) as producer:

        async def send(number: int) -> None:
            await producer.send_and_wait(topic, str(number).encode(), partition=number % PARTITIONS)

        yield send


@asynccontextmanager
async def kicking(kafka: Cluster, topic: str) -> AsyncIterator[Send]:
    broker = AioKafkaBroker(kafka.bootstrap, kafka_topic=topic)
    turn = itertools.count()
    broker.configure_producer(partitioner=lambda key, every, available: every[next(turn) % len(every)])
    charge = broker.task(task_name="service:charge")(lambda payment: None)
    await broker.startup()

    async def send(number: int) -> None:
        await charge.kiq(number)

    yield send
    await broker.shutdown()


async def fill(send: Send, enough: asyncio.Event) -> int:
    """Send numbers until it is enough; return how many."""
    for number in itertools.count():
        if enough.is_set():
            return number
        await send(number)
        await asyncio.sleep(0.005)
    raise AssertionError("unreachable")


@pytest.mark.parametrize("section", COMMANDS)
async def test_two_processes_handle_each_record_once(quick_kafka: Cluster, tmp_path: Path, section: str) -> None:
    topic, group = quick_kafka.create_topic(partitions=PARTITIONS), new_group()
    (tmp_path / "service.py").write_text(program(section, topic, group, quick_kafka.bootstrap))
    charged: Counter[int] = Counter()
    sends, enough = kicking if section == "taskiq" else sending, asyncio.Event()
    async with (
        asyncio.timeout(2 * WAIT_SECONDS),
        sends(quick_kafka, topic) as send,
        running(section, tmp_path, charged) as first,
        running(section, tmp_path, charged) as second,
    ):
        filling = asyncio.create_task(fill(send, enough))
        await eventually(lambda: first.own and second.own, "both are at work")
        code = await second.end()
        enough.set()
        sent = await filling
        await eventually(lambda: charged.total() >= sent, "all is handled")
        codes = [code, await first.end()]
    expected = -signal.SIGTERM if section in ENDS_BY_THE_SIGNAL else 0
    assert codes == [expected, expected], "".join(first.output + second.output)
    assert charged == Counter(range(sent))
    assert sum((await committed_offsets(quick_kafka.bootstrap, group)).values()) == sent
