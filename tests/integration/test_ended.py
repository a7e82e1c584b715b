"""The membership of a process that is gone is ended by another, and all members hear of it at once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from integration.harness import eventually
from loadtrim.observer.connection import Connection
from loadtrim.observer.ended import end_memberships
from loadtrim.observer.follow import GroupFollower, following
from loadtrim.testing import Cluster
from loadtrim_agent.wire.codec import decode
from loadtrim_agent.wire.envelope import COORDINATION
from loadtrim_agent.wire.ownership_records import LeftRecord
from loadtrim_agent.wire.topic_names import control_topic

pytestmark = pytest.mark.kafka
PARTITIONS = 6
HEARTBEAT_SECONDS = 3.0
"""Of the members: without the log each would hear of a rebalance after half of it, as a rule."""
SERVICE = """
import asyncio, sys
from loadtrim import Consumer

async def main(bootstrap, group, topic):
    async with Consumer(
        topic, bootstrap_servers=bootstrap, group_id=group, heartbeat_interval_ms=3000, session_timeout_ms=10000
    ) as consumer:
        async for message in consumer:
            pass

asyncio.run(main(*sys.argv[1:]))
"""


@contextlib.asynccontextmanager
async def members(kafka: Cluster, group: str, count: int) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    topic = await asyncio.to_thread(kafka.create_topic, partitions=PARTITIONS)
    command = [sys.executable, "-c", SERVICE, kafka.bootstrap, group, topic]
    processes = [await asyncio.create_subprocess_exec(*command) for _ in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def owners(follower: GroupFollower) -> set[str | None]:
    return {each.member for each in follower.state().partitions}


async def test_what_it_owned_is_owned_again_within_a_heartbeat(kafka: Cluster) -> None:
    group = f"ended-{uuid.uuid4().hex[:8]}"
    connection = Connection(bootstrap=kafka.bootstrap, given_by="the test")
    async with members(kafka, group, 3) as processes, following(connection, group) as follower:
        await eventually(lambda: len(owners(follower) - {None}) == 3, "three owners")
        (victim,) = (
            each.member for each in follower.state().members if each.process.split("-")[0] == str(processes[0].pid)
        )
        processes[0].send_signal(signal.SIGKILL)
        await processes[0].wait()
        began = time.monotonic()
        assert await end_memberships(connection, group, [victim]) == 1
        await eventually(lambda: victim not in owners(follower) and None not in owners(follower), "two owners")
        assert time.monotonic() - began < HEARTBEAT_SECONDS / 3
        assert await end_memberships(connection, group, [victim]) == 0, "it is none any more"
    assert await left(kafka, group) == [victim], "told once"


async def left(kafka: Cluster, group: str) -> list[str]:
    """Return the members of which the log tells that they have left."""
    at = TopicPartition(control_topic(group), COORDINATION)
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([at])
        end, found = (await consumer.end_offsets([at]))[at], []
        while await consumer.position(at) < end:
            for batch in (await consumer.getmany(timeout_ms=500)).values():
                found += [decode(message.value) for message in batch]
    finally:
        await consumer.stop()
    return [record.member for record in found if isinstance(record, LeftRecord)]
