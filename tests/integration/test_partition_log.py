"""One partition, read and appended to with single requests, on a real broker."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, OffsetOutOfRangeError
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import TopicPartition

from loadtrim.testing import Cluster
from loadtrim_agent.kafka.batches import GZIP, UNPACKED_BYTES_MAX
from loadtrim_agent.kafka.connections import Channel, Connections
from loadtrim_agent.kafka.partition_log import Fetched, PartitionLog

pytestmark = pytest.mark.kafka


@contextlib.asynccontextmanager
async def opened(kafka: Cluster, topic: str, *, compressed: bool = False) -> AsyncIterator[PartitionLog]:
    connections = Connections({"bootstrap_servers": kafka.bootstrap})
    await connections.start()
    try:
        await connections.client.set_topics([topic])
        yield PartitionLog(connections, topic, 0, read=Channel.TAIL, append=Channel.APPEND, compressed=compressed)
    finally:
        await connections.close()


async def read(log: PartitionLog, position: int = 0) -> list[bytes]:
    values: list[bytes] = []
    end = await log.end()
    while position < end:
        fetched = await log.read(position, wait_seconds=0.2, timeout=5.0)
        values += [record.value for record in fetched.records]
        position = fetched.following
    return values


@pytest.mark.parametrize("compressed", [False, True])
async def test_appends_keep_their_order_and_share_batches(quick_kafka: Cluster, compressed: bool) -> None:
    topic = quick_kafka.create_topic(partitions=1)
    async with opened(quick_kafka, topic, compressed=compressed) as log:
        wanted = [f"{number}".encode() * 400 for number in range(500)]
        written = await asyncio.gather(*(log.append(value, b"key") for value in wanted))
        assert [each.offset for each in written] == list(range(500))
        assert await read(log) == wanted
        assert await read(log, 497) == wanted[497:], "also from the middle of a batch"
        assert (await log.first(), await log.end()) == (0, 500)


async def test_a_read_waits_for_a_record(quick_kafka: Cluster) -> None:
    topic = quick_kafka.create_topic(partitions=1)
    async with opened(quick_kafka, topic) as log:
        reading = asyncio.create_task(log.read(0, wait_seconds=30.0, timeout=35.0))
        await log.append(b"first")
        fetched = await asyncio.wait_for(reading, 5.0)
        assert fetched.epochs == (0, 0), "the leader has never changed"
        assert [record.value for record in fetched.records] == [b"first"]
        assert (fetched.following, fetched.end) == (1, 1)
        assert await log.read(1, wait_seconds=0.0, timeout=5.0) == Fetched([], 1, 1)


async def test_a_position_that_is_gone(quick_kafka: Cluster) -> None:
    topic = quick_kafka.create_topic(partitions=1)
    async with opened(quick_kafka, topic) as log:
        for number in range(5):
            await log.append(f"{number}".encode())
        async with contextlib.AsyncExitStack() as stack:
            admin = AIOKafkaAdminClient(bootstrap_servers=quick_kafka.bootstrap)
            await admin.start()
            stack.push_async_callback(admin.close)
            await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=3)})
        assert await log.first() == 3
        for position in (2, 6):
            with pytest.raises(OffsetOutOfRangeError):
                await log.read(position, wait_seconds=0.0, timeout=5.0)
        assert await read(log, 3) == [b"3", b"4"]


async def test_a_record_that_is_too_large_fails_alone(quick_kafka: Cluster) -> None:
    topic = quick_kafka.create_topic(partitions=1)
    async with opened(quick_kafka, topic) as log:
        outcomes = await asyncio.gather(
            log.append(b"before"), log.append(bytes(2 << 20)), log.append(b"after"), return_exceptions=True
        )
        assert isinstance(outcomes[1], MessageSizeTooLargeError)
        assert await read(log) == [b"before", b"after"]


async def test_what_cannot_be_unpacked_is_passed_over(quick_kafka: Cluster) -> None:
    """The broker takes a batch of a few kilobytes that would fill a member's memory, and hands it to all who read."""
    topic = quick_kafka.create_topic(partitions=1)
    async with opened(quick_kafka, topic) as log:
        await log.append(b"before")
        bomb = DefaultRecordBatchBuilder(2, GZIP, 0, -1, -1, 0, UNPACKED_BYTES_MAX * 2)
        for number in range(3):
            assert bomb.append(number, None, None, bytes(UNPACKED_BYTES_MAX // 2), []) is not None
        await log._produce(bytes(bomb.build()))
        await log.append(b"after")
        assert await log.end() == 5
        assert await read(log) == [b"before", b"after"]
        fetched = await log.read(2, wait_seconds=0.0, timeout=5.0)
        assert (fetched.following, fetched.unreadable) == (5, (range(1, 4),))


async def test_a_header_whose_name_is_no_text_is_passed_over(quick_kafka: Cluster) -> None:
    """The broker takes it, and aiokafka raises UnicodeDecodeError: that ended every consumer of the group."""
    topic = quick_kafka.create_topic(partitions=1)
    async with opened(quick_kafka, topic) as log:
        await log.append(b"before")
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1 << 16)
        assert builder.append(0, None, None, b"value", [("name", b"")]) is not None
        made = bytearray(builder.build())
        made[made.index(b"name")] = 0xFF
        made[17:21] = struct.pack(">I", calc_crc32c(bytes(made[21:])))
        await log._produce(bytes(made))
        await log.append(b"after")
        assert await log.end() == 3
        fetched = await log.read(0, wait_seconds=0.0, timeout=5.0)
        assert [record.value for record in fetched.records] == [b"before", b"after"]
        assert (fetched.following, fetched.unreadable) == (3, (range(1, 2),))


async def test_a_cancelled_append_takes_only_itself_along(quick_kafka: Cluster) -> None:
    topic = quick_kafka.create_topic(partitions=1)
    async with opened(quick_kafka, topic) as log:
        tasks = [asyncio.create_task(log.append(f"{number}".encode())) for number in range(3)]
        await asyncio.sleep(0)  # all of them wait for their turn, or for the answer
        tasks[1].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(outcomes[1], asyncio.CancelledError)
        assert not isinstance(outcomes[0], (BaseException, KafkaError))
        assert not isinstance(outcomes[2], BaseException)
        assert [value for value in await read(log) if value != b"1"] == [b"0", b"2"]
