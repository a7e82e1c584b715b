"""Each shape works on as many records at once as it says, on each once, and ends when its consumer does."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka.errors import ConsumerStoppedError

from programs.shapes import SHAPES, Shape


class Consumer:
    """Records 0 to n-1 of one partition, then the end."""

    def __init__(self, records: int) -> None:
        self._left = list(range(records))
        self.told: Counter[int] = Counter()
        self.commits = 0

    async def getone(self) -> int:
        await asyncio.sleep(0)
        if not self._left:
            raise ConsumerStoppedError
        return self._left.pop(0)

    async def getmany(self, *, timeout_ms: int, max_records: int) -> dict[str, list[int]]:
        batch = [await self.getone()]
        while self._left and len(batch) < max_records:
            batch.append(self._left.pop(0))
        return {"partition": batch}

    async def __aiter__(self) -> AsyncIterator[int]:
        with contextlib.suppress(ConsumerStoppedError):
            while True:
                yield await self.getone()

    @contextlib.asynccontextmanager
    async def work(self, record: int) -> AsyncIterator[None]:
        yield
        self.told[record] += 1

    def done(self, record: int) -> None:
        self.told[record] += 1

    async def commit(self) -> None:
        self.commits += 1


class Work:
    """Ten milliseconds a record."""

    SECONDS = 0.01

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at_once = 0
        self.at_once_max = 0
        self.done: Counter[int] = Counter()

    async def __call__(self, record: Any) -> None:
        with self._counted(record):
            await asyncio.sleep(self.SECONDS)

    def blocking(self, record: Any) -> None:
        with self._counted(record):
            time.sleep(self.SECONDS)

    @contextlib.contextmanager
    def _counted(self, record: int) -> Any:
        with self._lock:
            self._at_once += 1
            self.at_once_max = max(self.at_once_max, self._at_once)
        yield
        with self._lock:
            self._at_once -= 1
            self.done[record] += 1


RECORDS = 60


@pytest.mark.parametrize("name", SHAPES)
async def test_all_is_done_once_and_so_much_at_once(name: str) -> None:
    shape: Shape = SHAPES[name]
    consumer, work = Consumer(RECORDS), Work()
    await asyncio.wait_for(shape.run(consumer, work), 10.0)
    assert work.done == Counter(range(RECORDS))
    assert work.at_once_max == shape.at_once
    if name in ("semaphore", "workers", "threads"):
        assert consumer.told == Counter(range(RECORDS))


async def test_batches_are_committed_behind_their_last_record() -> None:
    consumer = Consumer(12)
    await SHAPES["commits"].run(consumer, Work())
    assert consumer.commits == 3
