"""Errors in answers, sessions that the broker does not know, and logs that are spoilt, on a real broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.errors import CorruptRecordException, TopicAuthorizationFailedError
from aiokafka.protocol.fetch import FetchRequest
from msgspec import structs

from integration.harness import committed_offsets, eventually
from integration.harness_consumers import drain, new_group, send, started, take
from integration.harness_fetch import Reads, administering, produce, reading, some
from loadtrim.testing import Cluster, LocalKafka
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.session import SessionRequest

pytestmark = pytest.mark.kafka


class Spoilt:
    """Puts an error in the place of what the broker says about one partition, for some answers."""

    def __init__(self, reads: Reads, code: int, times: int) -> None:
        self.code = code
        self.left = times
        self._send = reads.fetcher._client.send
        reads.fetcher._client.send = self._spoil

    async def _spoil(self, node: int, request: Any, **channel: Any) -> Any:
        answer = await self._send(node, request, **channel)
        if request.API_KEY == FetchRequest.API_KEY and self.left and answer.topics:
            self.left -= 1
            answer.topics = [
                (topic, [(index, self.code, -1, -1, *rest[:-1], b"") for index, _, _, _, *rest in entries])
                for topic, entries in answer.topics
            ]
        return answer


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (3, "UnknownTopicOrPartitionError"),
        (5, "LeaderNotAvailableError"),
        (6, "NotLeaderForPartitionError"),
        (9, "ReplicaNotAvailableError"),
        (56, "KafkaStorageError"),
        (74, "FencedLeaderEpochError"),
        (75, "UnknownLeaderEpochError"),
        (78, "OffsetNotAvailableError"),
        (-1, "UnknownError"),
    ],
)
async def test_what_will_be_had_elsewhere_or_later(
    kafka: Cluster, caplog: pytest.LogCaptureFixture, code: int, name: str
) -> None:
    """Said once, tried again with new metadata, and nothing is lost, repeated or told to user code."""
    caplog.set_level("INFO", "loadtrim")
    topic = kafka.create_topic(partitions=1)
    await produce(kafka, topic, some(3))
    async with reading(kafka, topic, retry_backoff_ms=20) as reads:
        spoilt = Spoilt(reads, code, 3)
        reads.fetcher.take(Partition(topic, 0), 0)
        await eventually(lambda: len(reads.records) == 3, "it came")
        assert spoilt.left == 0
        await produce(kafka, topic, some(3, "later "))
        await eventually(lambda: len(reads.records) == 6, "and goes on")
        assert reads.offsets() == list(range(6))
        assert reads.errors == []
    said = [record.getMessage() for record in caplog.records if record.name == "loadtrim"]
    assert sum(name in line for line in said) == 1, said
    assert sum("gives" in line for line in said) == 1, said


async def test_what_may_not_be_read_is_told_to_user_code(kafka: Cluster) -> None:
    topic = kafka.create_topic(partitions=1)
    await produce(kafka, topic, some(1))
    async with reading(kafka, topic, retry_backoff_ms=20) as reads:
        Spoilt(reads, 29, 2)
        reads.fetcher.take(Partition(topic, 0), 0)
        await eventually(lambda: len(reads.records) == 1, "it is allowed at last")
        assert [type(error) for error in reads.errors] == [TopicAuthorizationFailedError] * 2
        assert reads.errors[0].args == (topic,)


@pytest.mark.parametrize("wrong", [{"session": 12_345}, {"epoch": 77}])
async def test_a_session_that_the_broker_does_not_know(kafka: Cluster, wrong: dict[str, int]) -> None:
    """Its real answers to a wrong id (70) and a wrong epoch (71): begun anew with everything."""
    topic = kafka.create_topic(partitions=3)
    async with reading(kafka, topic, 3, fetch_max_wait_ms=50) as reads:
        for partition in range(3):
            reads.fetcher.take(Partition(topic, partition), 0)
        await eventually(lambda: reads.fetcher._fetch_groups, "the leader is known")
        (broker,) = reads.fetcher._fetch_groups.values()
        session = broker.channels.session
        ask, spoilt = session.request, 0

        def request() -> SessionRequest | None:
            nonlocal spoilt
            asked = ask()
            if asked is None or asked.epoch <= 1 or spoilt == wanted_spoilt:
                return asked
            spoilt += 1
            return structs.replace(asked, **wrong)

        session.request = request  # type: ignore[method-assign]
        for wanted_spoilt in (1, 2, 3):
            before = session.session
            for partition in range(3):
                await produce(kafka, topic, some(2), partition)
            wanted = 6 * wanted_spoilt
            await eventually(lambda wanted=wanted: len(reads.records) >= wanted, "everything comes")
            await eventually(lambda before=before: session.session not in (0, before), "a new session")
            assert spoilt == wanted_spoilt
        assert all(reads.offsets(partition) == list(range(6)) for partition in range(3))
        assert reads.errors == []


# -- what lies spoilt in the log ---------------------------------------------------------------------------------


def flip(directory: Path, topic: str) -> None:
    (segment,) = directory.glob(f"broker-*/data/{topic}-0/*.log")
    data = segment.read_bytes()
    assert data.count(b"value 3") == 1
    segment.write_bytes(data.replace(b"value 3", b"walue 3"))


@contextlib.asynccontextmanager
async def with_a_flipped_byte(tmp_path: Path) -> AsyncIterator[tuple[LocalKafka, str]]:
    """A broker whose log has a byte changed in the fourth of six batches."""
    with LocalKafka(properties={"group.min.session.timeout.ms": "500"}, data_dir=tmp_path, short_run=True) as kafka:
        topic = kafka.create_topic(partitions=1)
        await produce(kafka, topic, some(6, "value "))
        (broker,) = kafka.brokers
        await asyncio.to_thread(broker.stop)  # in order, so that the log is not looked through at the start
        flip(tmp_path, topic)
        await asyncio.to_thread(broker.start)
        yield kafka, topic


async def test_a_batch_that_is_spoilt_in_the_log(tmp_path: Path) -> None:
    """As aiokafka: raised at each call until user code seeks past it; without ``check_crcs`` it is handed out."""
    async with with_a_flipped_byte(tmp_path) as (kafka, topic):
        at = TopicPartition(topic, 0)
        bare = AIOKafkaConsumer(topic, bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest")
        async with bare, started(kafka, topic, group=new_group()) as ours:
            for consumer in (bare, ours):
                assert [(await consumer.getone()).value for _ in range(3)] == some(3, "value ")
                for _ in range(2):
                    with pytest.raises(CorruptRecordException):
                        await consumer.getone()
                assert await consumer.position(at) == 3
                consumer.seek(at, 4)
                assert [(await consumer.getone()).offset for _ in range(2)] == [4, 5]
        async with started(kafka, topic, group=new_group(), check_crcs=False) as careless:
            assert [record.value for record in await take(careless, 4)][3] == b"walue 3"


# -- topics that are made again ----------------------------------------------------------------------------------


async def make_again(kafka: Cluster, topic: str) -> None:
    async with administering(kafka) as admin:
        await admin.delete_topics([topic])

        async def made() -> bool:
            answer = await admin.create_topics([NewTopic(topic, 1, 1)])
            return all(error[1] == 0 for error in answer.topic_errors)

        await eventually(made, "the broker has done with the old one")


async def test_commits_follow_a_topic_that_is_made_again(quick_kafka: Cluster) -> None:
    """Its offsets begin anew, below what was committed: what is done there is committed all the same, and counts."""
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, [f"old {n}" for n in range(10)])
    async with started(quick_kafka, topic, group=group, auto_commit_interval_ms=100) as consumer:
        async with drain(consumer) as counts:
            await eventually(lambda: len(counts) == 10, "the first life")
            await make_again(quick_kafka, topic)
            await send(quick_kafka, topic, [f"new {n}" for n in range(3)])
            await eventually(lambda: len(counts) == 13, "the second life")
            await send(quick_kafka, topic, ["new 3"])
            await eventually(lambda: len(counts) == 14, "goes on")

        async def committed() -> bool:
            found = await committed_offsets(quick_kafka.bootstrap, group)
            return found.get((topic, 0)) == 4

        await eventually(committed, "the offset of the second life is committed")
    async with started(quick_kafka, topic, group=group) as successor:
        await send(quick_kafka, topic, ["new 4"])
        assert [record.value for record in await take(successor, 1)] == [b"new 4"]
    assert set(counts.values()) == {1}


async def test_a_topic_that_is_gone_costs_little(quick_kafka: Cluster) -> None:
    """Asked for with a back-off that grows, whether or not it ever comes back."""
    topic = quick_kafka.create_topic(partitions=1)
    await produce(quick_kafka, topic, some(3))
    async with reading(quick_kafka, topic) as reads:
        reads.fetcher.take(Partition(topic, 0), 0)
        await eventually(lambda: len(reads.records) == 3, "the first life")
        asked = 0
        update = reads.fetcher._client.force_metadata_update

        def counted() -> Any:
            nonlocal asked
            asked += 1
            return update()

        reads.fetcher._client.force_metadata_update = counted
        async with administering(quick_kafka) as admin:
            await admin.delete_topics([topic])
        loop = asyncio.get_running_loop()
        await eventually(lambda: reads.fetcher._leaderless, "nobody leads it")
        asked, until = 0, loop.time() + 3.0
        await eventually(lambda: loop.time() > until, "3 s pass")
        assert 1 <= asked <= 8
        assert reads.errors == []
