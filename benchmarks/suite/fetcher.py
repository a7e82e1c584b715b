"""The agent's fetcher alone, with the face of a consumer."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.chunk import Chunk, Reader
from loadtrim_agent.kafka.fetch.fetcher import KafkaFetcher

__all__ = ["FetcherConsumer"]

SLICE_RECORDS = 64


class FetcherConsumer:
    """Takes partitions from their beginning, and hands their records out in one loop.

    Args:
        topic: which one.
        partitions: to be taken.
        settings: further arguments of the fetcher.
    """

    def __init__(self, topic: str, partitions: Sequence[int], **settings: Any) -> None:
        self._partitions = [Partition(topic, index) for index in partitions]
        self._settings = settings
        self._chunks: deque[Chunk] = deque()
        self._came = asyncio.Event()
        self._error: Exception | None = None

    async def start(self) -> None:
        self._fetcher = KafkaFetcher(self._settings)
        await self._fetcher.start()
        self._fetcher.cover(self._partitions)
        self._running = asyncio.get_running_loop().create_task(self._fetcher.run(self))
        for partition in self._partitions:
            self._fetcher.take(partition, 0)

    async def stop(self) -> None:
        self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running
        await self._fetcher.close()

    def chunk(self, chunk: Chunk) -> None:
        self._chunks.append(chunk)
        self._came.set()

    def failed(self, error: Exception, partition: Partition | None) -> None:
        self._error = error
        self._came.set()

    async def __aiter__(self) -> AsyncIterator[Any]:
        while True:
            if self._error is not None:
                raise self._error
            if not self._chunks:
                self._came.clear()
                await self._came.wait()
                continue
            chunk = self._chunks.popleft()
            reader = Reader(chunk)
            while not reader.finished:
                for record in reader.read(SLICE_RECORDS):
                    yield record
            chunk.done = True
            if chunk.refill:
                self._fetcher.refill(chunk.partition)
