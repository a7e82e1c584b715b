"""Programs of many shapes are told to end: none outlives SIGTERM, and the group never waits for a session to end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from integration.harness import WAIT_SECONDS
from integration.harness_consumers import new_group, send
from loadtrim.testing import Cluster

pytestmark = pytest.mark.kafka

PROGRAM = Path(__file__).with_name("endings.py")
SETTINGS = {"LOADTRIM_HTTP": "off", "LOADTRIM_DRAIN_SECONDS": "1", "LOADTRIM_EXIT_SECONDS": "1"}
LONGEST_SECONDS = 1.0 + 1.0 + 8.0
"""Drain, grace, and a busy machine; sessions last 10 s."""


class Ended:
    """A process that was sent SIGTERM once."""

    def __init__(self, code: int, seconds: float, output: str) -> None:
        self.code, self.seconds, self.output = code, seconds, output

    def __repr__(self) -> str:
        return f"exit code {self.code} after {self.seconds:.1f} s:\n{self.output}"


TWO_CONSUMERS = ("two_consumers", "side_by_side")


@asynccontextmanager
async def running(
    kafka: Cluster, program: str, group: str, **settings: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The program, once it has been handed a record by each of its consumers."""
    topic = kafka.create_topic(partitions=1)
    await send(kafka, topic, ["1"])
    arguments = (PROGRAM, program, kafka.bootstrap, topic, group)
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(PROGRAM.parents[1])])  # it reads the pages
    process = await asyncio.create_subprocess_exec(
        sys.executable, *map(str, arguments), env={**os.environ, **SETTINGS, **settings, "PYTHONPATH": path},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            for _ in range(2 if program in TWO_CONSUMERS else 1):
                while b"got" not in (line := await process.stdout.readline()):
                    assert line, f"{program} ended by itself"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def ended(kafka: Cluster, program: str, group: str, *, members: int = 1, **settings: str) -> Ended:
    async with running(kafka, program, group, **settings) as process:
        assert await members_of(kafka, group) == members
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        output, _ = await asyncio.wait_for(process.communicate(), WAIT_SECONDS)
        assert process.returncode is not None
        return Ended(process.returncode, time.monotonic() - began, output.decode())


async def members_of(kafka: Cluster, group: str) -> int:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    try:
        (answer,) = await admin.describe_consumer_groups([group])
        return len(answer.groups[0][-2 if len(answer.groups[0]) > 6 else -1])
    finally:
        await admin.close()


async def committed_of(kafka: Cluster, group: str) -> list[int]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    try:
        return [entry.offset for entry in (await admin.list_consumer_group_offsets(group)).values()]
    finally:
        await admin.close()


@pytest.mark.parametrize(
    ("program", "code", "told"),
    [
        ("plain", 0, ""),
        ("two_consumers", 0, ""),
        ("told_by_the_error", 0, "stopped"),
        ("exactly_once", 0, ""),
        ("stopped_in_a_task", 0, ""),
        ("iterated_again_and_again", 1, "Leave the loop around async for"),
        ("started_again_and_again", 1, "no consumer is started"),
        ("whatever_is_raised", -signal.SIGTERM, "it is ended now"),
        ("handler_that_never_returns", -signal.SIGTERM, "it is ended now"),
        ("handler_that_blocks_the_loop", -signal.SIGTERM, "it is ended now"),
        ("beside_another_task", -signal.SIGTERM, "it is ended now"),
    ],
)
async def test_it_ends(quick_kafka: Cluster, program: str, code: int, told: str) -> None:
    group = new_group()
    found = await ended(quick_kafka, program, group)
    assert (found.code, told in found.output) == (code, True), found
    assert found.seconds < LONGEST_SECONDS, found
    for name in (group, group + "-2"):
        assert await members_of(quick_kafka, name) == 0, found


async def test_the_consumers_of_a_process_drain_side_by_side(quick_kafka: Cluster) -> None:
    """One after the other they would wait for each other until the drain is over, and one record is repeated."""
    group = new_group()
    found = await ended(quick_kafka, "side_by_side", group, LOADTRIM_DRAIN_SECONDS="10")
    assert found.code == 0, found
    assert found.seconds < LONGEST_SECONDS, found
    for name in (group, group + "-2"):
        assert await committed_of(quick_kafka, name) == [1], found
        assert await members_of(quick_kafka, name) == 0, found


async def test_a_handler_that_the_program_sets_is_the_programs_after_its_consumers_too(quick_kafka: Cluster) -> None:
    found = await ended(quick_kafka, "own_handler_later", new_group(), members=0)
    assert (found.code, "theirs" in found.output) == (0, True), found


@pytest.mark.parametrize("program", ["starting", "starting_another"])
async def test_a_start_that_is_under_way_fails_when_the_member_has_left(quick_kafka: Cluster, program: str) -> None:
    group = new_group()
    async with running(quick_kafka, program, group) as process:
        output, _ = await asyncio.wait_for(process.communicate(), WAIT_SECONDS)
    assert (process.returncode, b"not started" in output) == (0, True), output.decode()
    for name in (group, group + "-2"):
        assert await members_of(quick_kafka, name) == 0, name
