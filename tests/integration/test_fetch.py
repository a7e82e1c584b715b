"""The fetch loop against a real broker: what can go wrong, and what is to be read in spite of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from typing import Any

import aiokafka.codec
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.errors import CorruptRecordException, KafkaError, OffsetOutOfRangeError

from integration.harness import eventually
from integration.harness_consumers import started
from integration.harness_fetch import administering, produce, producing, reading, some
from loadtrim.testing import Cluster, LocalKafka
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch import fetcher as fetcher
from loadtrim_agent.kafka.fetch.channels import FETCH_GROUP_PARTITIONS
from loadtrim_agent.kafka.fetch.chunk import Chunk, frame
from loadtrim_agent.kafka.fetch.state import FetchPosition

pytestmark = pytest.mark.kafka

LONG_POLL_SECONDS = 5.0
"""Chosen: fifty times what the steps take that go on while it is out, and waited for in full once."""


# -- takes and seeks ---------------------------------------------------------------------------------------------


async def test_takes_seeks_and_drops_give_each_record_once(kafka: Cluster) -> None:
    """While a long poll is out: every take starts where it says, and nothing of an earlier one comes after it."""
    topic = kafka.create_topic(partitions=2)
    for partition in range(2):
        await produce(kafka, topic, some(20), partition)
    one, two = Partition(topic, 0), Partition(topic, 1)
    async with reading(kafka, topic, 2, fetch_max_wait_ms=int(LONG_POLL_SECONDS * 1000)) as reads:
        reads.fetcher.take(one, 20)
        await eventually(lambda: reads.fetcher.end_offset(one) == 20, "the poll was answered once")
        began = time.monotonic()
        reads.fetcher.take(two, 15)
        await eventually(lambda: reads.offsets(1) == [15, 16, 17, 18, 19], "taken while the poll is out")
        for offset in (3, 7, 11, 18):
            reads.records.clear()
            reads.fetcher.take(two, offset)  # the answers to the first three are late
        await eventually(lambda: len(reads.offsets(1)) >= 2, "sought")
        assert reads.offsets(1) == [18, 19]
        reads.records.clear()
        reads.fetcher.take(two, 0)
        reads.fetcher.drop(two)
        reads.fetcher.take(one, 19)
        await eventually(lambda: reads.offsets(0) == [19], "the other goes on")
        await produce(kafka, topic, some(1), 0)
        await eventually(lambda: reads.offsets(0) == [19, 20], "and gets what is new")
        assert time.monotonic() - began < LONG_POLL_SECONDS, "nothing of it has waited for the poll"
        assert reads.offsets(1) == []
        assert reads.errors == []


async def test_partitions_in_several_bundles_give_each_record_once(kafka: Cluster) -> None:
    """With takes, seeks and drops among them while all of their polls are out or pause."""
    count = 2 * FETCH_GROUP_PARTITIONS + 10
    topic = kafka.create_topic(partitions=count)
    partitions = [Partition(topic, index) for index in range(count)]
    async with producing(kafka) as producer, reading(kafka, topic, count, fetch_max_wait_ms=20_000) as reads:
        for partition in partitions:
            reads.fetcher.take(partition, 0)
        await eventually(lambda: all(reads.fetcher.end_offset(p) == 0 for p in partitions), "told of all")
        sessions = {fetch_group.channels.session.session for fetch_group in reads.fetcher._fetch_groups.values()}
        assert len(sessions - {0}) == 3

        async def send(records: int) -> None:
            sent = [
                await producer.send(topic, b"%d" % number, partition=partition.partition)
                for number in range(records)
                for partition in partitions
            ]
            await asyncio.gather(*sent)

        await send(3)
        await eventually(lambda: len(reads.records) >= 3 * count, "all came")
        assert all(reads.offsets(p.partition) == [0, 1, 2] for p in partitions)
        reads.records.clear()
        for partition in partitions[::7]:
            reads.fetcher.take(partition, 1)
        for partition in partitions[1::7]:
            reads.fetcher.drop(partition)
        await send(2)
        taken, dropped = set(partitions[::7]), set(partitions[1::7])
        wanted = {p: [1, 2, 3, 4] if p in taken else [] if p in dropped else [3, 4] for p in partitions}
        await eventually(lambda: len(reads.records) >= sum(map(len, wanted.values())), "what is wanted came")
        assert {p: reads.offsets(p.partition) for p in partitions} == wanted
        for partition in sorted(dropped):
            reads.fetcher.take(partition, 4)
        await eventually(lambda: all(reads.offsets(p.partition) == [4] for p in dropped), "taken again")
        assert reads.errors == []


async def test_a_full_buffer_stops_one_partition_and_not_the_other(kafka: Cluster) -> None:
    topic = kafka.create_topic(partitions=2)
    await produce(kafka, topic, [b"x" * 100_000] * 60, 0, max_request_size=1 << 21)
    await produce(kafka, topic, some(3), 1)
    one, two = Partition(topic, 0), Partition(topic, 1)
    async with reading(kafka, topic, 2) as reads:
        reads.read = False
        reads.fetcher.take(one, 0)
        await eventually(lambda: reads.kept, "something came")
        reads.read = True
        first, reads.kept = reads.kept, []
        reads.read = False
        await eventually(lambda: sum(chunk.size_bytes for chunk in [*first, *reads.kept]) > 500_000, "it is full")
        full = len(reads.kept)
        reads.fetcher.take(two, 0)
        await eventually(lambda: any(chunk.partition == two for chunk in reads.kept), "the other is fetched")
        assert sum(chunk.partition == one for chunk in reads.kept) <= full + 1
        reads.read = True
        for chunk in [*first, *reads.kept]:
            reads.chunk(chunk)
        await eventually(lambda: len(reads.offsets(0)) == 60, "the rest comes")
        assert reads.offsets(0) == list(range(60))


# -- limits, codecs, transactions --------------------------------------------------------------------------------


async def test_records_larger_than_every_limit_come_through(kafka: Cluster) -> None:
    topic = kafka.create_topic(partitions=1)
    big = b"b" * 300_000
    await produce(kafka, topic, [b"a", big, b"c"], max_request_size=1 << 20)
    async with reading(kafka, topic, max_partition_fetch_bytes=1_000, fetch_max_bytes=1_000) as reads:
        reads.fetcher.take(Partition(topic, 0), 0)
        await eventually(lambda: len(reads.records) == 3, "all came")
        assert reads.values() == [b"a", big, b"c"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_codecs(kafka: Cluster, codec: str) -> None:
    if not getattr(aiokafka.codec, f"has_{codec}")():
        pytest.skip(f"no library for {codec} is installed")
    topic = kafka.create_topic(partitions=1)
    await produce(kafka, topic, some(50, "v" * 50), compression_type=codec)
    async with reading(kafka, topic) as reads:
        reads.fetcher.take(Partition(topic, 0), 0)
        await eventually(lambda: len(reads.records) == 50, "all came")
        assert reads.values() == some(50, "v" * 50)


async def test_committed_records_only(kafka: Cluster) -> None:
    """Aborted ones and markers are passed over, the position with them; an open transaction is the log's end."""
    topic = kafka.create_topic(partitions=1)
    at = Partition(topic, 0)
    async with (
        reading(kafka, topic, isolation_level="read_committed") as committed,
        reading(kafka, topic) as everything,
        producing(kafka, transactional_id=uuid.uuid4().hex) as producer,
    ):
        committed.fetcher.take(at, 0)
        everything.fetcher.take(at, 0)
        async with producer.transaction():
            await producer.send_and_wait(topic, b"kept", partition=0)
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted", partition=0)
        await producer.abort_transaction()
        await eventually(lambda: committed.fetcher.position(at) == FetchPosition(4), "behind the second marker")
        assert committed.values() == [b"kept"]
        assert committed.fetcher.end_offset(at) == 4
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"open", partition=0)
        await eventually(lambda: everything.values() == [b"kept", b"aborted", b"open"], "all are read")
        assert (committed.fetcher.end_offset(at), everything.fetcher.end_offset(at)) == (4, 5)
        assert committed.values() == [b"kept"]
        await producer.commit_transaction()
        await eventually(lambda: committed.values() == [b"kept", b"open"], "the end of the transaction")


# -- offsets that are not there ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("reset", "expected"), [("earliest", [3, 4, 5]), ("latest", [5]), ("none", [])])
async def test_offset_out_of_range(kafka: Cluster, reset: str, expected: list[int]) -> None:
    topic = kafka.create_topic(partitions=1)
    at = Partition(topic, 0)
    await produce(kafka, topic, some(5))
    async with administering(kafka) as admin:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=3)})
    async with reading(kafka, topic, auto_offset_reset=reset) as reads:
        reads.fetcher.take(at, 1)
        if reset == "none":
            await eventually(lambda: reads.errors, "the error")
            assert isinstance(reads.errors[0], OffsetOutOfRangeError)
            assert reads.errors[0].args == ({TopicPartition(topic, 0): 1},)
            return
        await eventually(lambda: (reads.fetcher.position(at) or FetchPosition(0)).offset >= 5, "where the policy says")
        await produce(kafka, topic, some(1))
        await eventually(lambda: reads.offsets() == expected, "from there on")
        assert reads.errors == []


async def test_a_topic_deleted_and_made_again_is_read_from_its_start(kafka: Cluster) -> None:
    topic = kafka.create_topic(partitions=1)
    at = Partition(topic, 0)
    await produce(kafka, topic, some(10))
    async with reading(kafka, topic) as reads, administering(kafka) as admin:
        reads.fetcher.take(at, 0)
        await eventually(lambda: len(reads.records) == 10, "the first life")
        await admin.delete_topics([topic])

        async def made() -> bool:
            answer = await admin.create_topics([NewTopic(topic, 1, 1)])
            return all(error[1] == 0 for error in answer.topic_errors)

        await eventually(made, "the broker has done with the old one")
        with contextlib.suppress(KafkaError):
            await produce(kafka, topic, some(3, "new "))
        await eventually(lambda: reads.values()[10:] == some(3, "new "), "the second life")
        assert reads.errors == []


# -- brokers that go away ----------------------------------------------------------------------------------------


async def test_a_broker_restarts(caplog: pytest.LogCaptureFixture) -> None:
    """Fetching goes on by itself, with one line in the log for the end and one for the return."""
    with LocalKafka(short_run=True) as kafka:
        topic = kafka.create_topic(partitions=1)
        at = Partition(topic, 0)
        await produce(kafka, topic, some(3))
        async with reading(kafka, topic) as reads:
            reads.fetcher.take(at, 0)
            await eventually(lambda: len(reads.records) == 3, "before")
            (broker,) = kafka.brokers
            await asyncio.to_thread(broker.kill)
            await eventually(lambda: "trying again" in caplog.text, "it was noticed")
            await asyncio.to_thread(broker.start)
            await produce(kafka, topic, some(3, "after "))
            await eventually(lambda: reads.values() == some(3) + some(3, "after "), "after")
            assert reads.offsets() == list(range(6))
            assert reads.errors == []
        ours = [record for record in caplog.records if record.name == "loadtrim" and "roker" in record.getMessage()]
        assert 1 <= len(ours) <= 4


async def test_leaders_move_to_other_brokers() -> None:
    """Three brokers, each killed and started again in turn under load: every record once, in order, per partition."""
    with LocalKafka(brokers=3, short_run=True, heap_mb=256) as kafka:
        topic = kafka.create_topic(partitions=6, replication_factor=3)
        sent: dict[int, list[bytes]] = {index: [] for index in range(6)}
        async with (
            reading(kafka, topic, 6) as reads,
            producing(kafka, enable_idempotence=True, acks="all") as producer,
        ):
            for index in range(6):
                reads.fetcher.take(Partition(topic, index), 0)

            async def send(count: int) -> None:
                for _ in range(count):
                    for index, values in sent.items():
                        values.append(f"{index}-{len(values)}".encode())
                        await producer.send_and_wait(topic, values[-1], partition=index)

            def all_read() -> bool:
                return all(
                    [record.value for record in reads.records if record.partition == index] == values
                    for index, values in sent.items()
                )

            for broker in kafka.brokers:
                await send(5)
                await asyncio.to_thread(broker.kill)
                await send(5)
                await eventually(all_read, f"without {broker}")
                await asyncio.to_thread(broker.start)
            await send(5)
            await eventually(all_read, "with all of them")
            assert reads.errors == []


# -- what cannot be read -----------------------------------------------------------------------------------------


async def test_what_is_spoilt_on_its_way_is_raised_and_fetched_anew(
    quick_kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of one answer are changed: what lies before is handed out, the error is raised once, then the rest."""
    topic = quick_kafka.create_topic(partitions=1)
    await produce(quick_kafka, topic, some(6))
    spoilt: list[int] = []

    def spoil(partition: Partition, start: int, data: bytes, *args: Any, **settings: Any) -> Chunk | None:
        chunk = frame(partition, start, data, *args, **settings)
        if not spoilt and chunk is not None and partition.topic == topic and len(chunk.batches) == 6:
            spoilt.append(start)
            begin = chunk.batches[3][1] - 1
            chunk.data = data[:begin] + bytes([data[begin] ^ 1]) + data[begin + 1 :]
        return chunk

    monkeypatch.setattr(fetcher, "frame", spoil)
    async with started(quick_kafka, topic, group=uuid.uuid4().hex) as consumer:
        values = [(await consumer.getone()).value for _ in range(3)]
        with pytest.raises(CorruptRecordException):
            await consumer.getone()
        values += [(await consumer.getone()).value for _ in range(3)]
    assert spoilt == [0]
    assert values == some(6)
