"""A fetcher alone against a real Kafka, and what it gave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from loadtrim.testing import Cluster
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.chunk import Chunk, Reader
from loadtrim_agent.kafka.fetch.fetcher import KafkaFetcher

__all__ = ["Reads", "administering", "produce", "producing", "reading", "some"]


class Reads:
    """A fetcher, and what it gave: read at once, or kept in its buffers."""

    def __init__(self, fetcher: KafkaFetcher) -> None:
        self.fetcher = fetcher
        self.read = True
        self.records: list[Any] = []
        self.kept: list[Chunk] = []
        self.errors: list[Exception] = []

    def chunk(self, chunk: Chunk) -> None:
        if not self.read:
            self.kept.append(chunk)
            return
        reader = Reader(chunk)
        while not reader.finished:
            self.records += reader.read(100)
        chunk.done = True
        if chunk.refill:
            self.fetcher.refill(chunk.partition)

    def failed(self, error: Exception, partition: Partition | None) -> None:
        self.errors.append(error)

    def offsets(self, partition: int = 0) -> list[int]:
        return [record.offset for record in self.records if record.partition == partition]

    def values(self) -> list[bytes]:
        return [record.value for record in self.records]


@contextlib.asynccontextmanager
async def reading(kafka: Cluster, topic: str, partitions: int = 1, **settings: Any) -> AsyncIterator[Reads]:
    """A fetcher that covers a topic."""
    fetcher = KafkaFetcher({"bootstrap_servers": kafka.bootstrap, "auto_offset_reset": "earliest", **settings})
    await fetcher.start()
    fetcher.cover([Partition(topic, index) for index in range(partitions)])
    reads = Reads(fetcher)
    running = asyncio.create_task(fetcher.run(reads))
    try:
        yield reads
    finally:
        running.cancel()
        await fetcher.close()


@contextlib.asynccontextmanager
async def producing(kafka: Cluster, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, **settings) as producer:
        yield producer


async def produce(kafka: Cluster, topic: str, values: list[bytes], partition: int = 0, **settings: Any) -> None:
    async with producing(kafka, **settings) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, partition=partition)


@contextlib.asynccontextmanager
async def administering(kafka: Cluster) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


def some(count: int, prefix: str = "") -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]
