"""Three brokers in three racks: who is fetched from, and what happens when that one goes or leads no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from integration.harness import eventually
from integration.harness_brokers import lead
from integration.harness_fetch import Reads, produce, producing, reading, some
from loadtrim.testing import LocalKafka
from loadtrim_agent.common.partition import Partition

pytestmark = pytest.mark.kafka

NEAR = 2
"""The broker in the reader's rack."""


def in_racks(broker: int) -> dict[str, str]:
    return {
        "broker.rack": f"rack-{broker}",
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    }


@pytest.fixture(scope="module")
def racks() -> Iterator[LocalKafka]:
    with LocalKafka(brokers=3, properties=in_racks, short_run=True, heap_mb=256) as kafka:
        yield kafka


def nodes(reads: Reads) -> set[int | None]:
    return {state.route.node for state in reads.fetcher._states.values()}


async def test_the_replica_in_the_same_rack_is_read_and_left_when_it_goes(racks: LocalKafka) -> None:
    topic = racks.create_topic(partitions=3)
    expected: list[bytes] = []

    async def more(prefix: str, reads: Reads) -> None:
        for partition in range(3):
            expected.extend(some(5, f"{prefix}-{partition}-"))
            await produce(racks, topic, some(5, f"{prefix}-{partition}-"), partition, acks="all")
        await eventually(lambda: len(reads.records) >= len(expected), f"{prefix}: all came")
        assert sorted(reads.values()) == sorted(expected)
        assert all(reads.offsets(partition) == sorted(reads.offsets(partition)) for partition in range(3))

    async with reading(racks, topic, 3, client_rack=f"rack-{NEAR}", metadata_max_age_ms=60_000) as reads:
        for partition in range(3):
            reads.fetcher.take(Partition(topic, partition), 0)
        await more("first", reads)
        await eventually(lambda: nodes(reads) == {NEAR}, "all are read from the replica that is near")
        await more("near", reads)
        assert nodes(reads) == {NEAR}
        near = racks.brokers[NEAR - 1]
        await asyncio.to_thread(near.kill)
        await eventually(lambda: NEAR not in nodes(reads) and None not in nodes(reads), "the leaders are asked instead")
        await more("without", reads)
        await asyncio.to_thread(near.start)
        await eventually(lambda: nodes(reads) == {NEAR}, "it is near again")
        await more("again", reads)
        assert reads.errors == []


async def test_without_a_rack_the_leaders_are_read(racks: LocalKafka) -> None:
    topic = racks.create_topic(partitions=3)
    async with reading(racks, topic, 3) as reads:
        for partition in range(3):
            reads.fetcher.take(Partition(topic, partition), 0)
            await produce(racks, topic, some(5), partition)
        await eventually(lambda: len(reads.records) == 15, "all came")
        assert nodes(reads) == {1, 2, 3}


async def test_leaders_that_are_moved_under_load(racks: LocalKafka, caplog: pytest.LogCaptureFixture) -> None:
    """Each partition's leader goes round the brokers while records come: each of them once, in order."""
    topic = racks.create_topic(partitions=4)
    sent: dict[int, list[bytes]] = {index: [] for index in range(4)}
    running = True
    caplog.set_level("INFO", "loadtrim")

    def all_read(reads: Reads) -> Callable[[], bool]:
        return lambda: all(
            [record.value for record in reads.records if record.partition == index] == values
            for index, values in sent.items()
        )

    async with reading(racks, topic, 4) as reads, producing(racks, enable_idempotence=True) as producer:

        async def play() -> None:
            while running:
                for index, values in sent.items():
                    values.append(f"{index}-{len(values)}".encode())
                    await producer.send_and_wait(topic, values[-1], partition=index)
                await asyncio.sleep(0.01)

        for index in range(4):
            reads.fetcher.take(Partition(topic, index), 0)
        playing = asyncio.create_task(play())
        for first in (1, 2, 3, 1):
            others = [broker for broker in (1, 2, 3) if broker != first]
            await lead(racks, topic, range(4), [first, *others])
            await eventually(lambda first=first: nodes(reads) == {first}, f"all are read from {first}")
            fewest = min(map(len, sent.values())) + 3
            await eventually(lambda fewest=fewest: min(map(len, sent.values())) >= fewest, "and goes on being written")
        running = False
        await playing
        await eventually(all_read(reads), "all came, once and in order")
        assert reads.errors == []
    said = [record for record in caplog.records if record.name == "loadtrim" and record.levelname != "DEBUG"]
    assert not [record for record in said if record.levelname != "INFO"], "a leader that moves is everyday"
