"""The loops around a consumer that people write, each as short as it is in a service.

A shape is given a consumer that has started, and work that takes a record's time. It returns when the consumer stops.
What each has to say about records that are done is in docs/how-to.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiokafka.errors import CommitFailedError, ConsumerStoppedError, IllegalStateError

__all__ = ["SHAPES", "Shape", "Work"]

AT_ONCE = 10
"""Tasks or workers of one process. Chosen."""
THREADS = 4
"""Chosen."""
BATCH = 20
"""Records of a batch that is worked on at once. Chosen."""
BATCH_IN_TURN = 5
"""Records of a batch that is worked on one by one. Chosen: it is done within half an objective of ten records' time."""
POLL_MS = 200


class Work(Protocol):
    """The work that a record makes."""

    async def __call__(self, record: Any) -> None:
        """Take the record's time by waiting, as for a call over the network."""

    def blocking(self, record: Any) -> Any:
        """Take the record's time in the thread that calls."""


Run = Callable[[Any, Work], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One way to write the loop."""

    run: Run
    words: str
    at_once: int = 1
    """Records that one process works on at a time."""
    in_step: bool = False
    """True: these begin together, and the next ones when the slowest has ended."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments that its consumer needs."""
    tells: bool = True
    """False: it gives the consumer no way to know when a record is done."""


async def one_by_one(consumer: Any, work: Work) -> None:
    async for record in consumer:
        await work(record)


async def semaphore(consumer: Any, work: Work) -> None:
    free = asyncio.Semaphore(AT_ONCE - 1)  # the record that waits for it is worked on as well

    async def handle(record: Any) -> None:
        async with consumer.work(record):
            await work(record)
        free.release()

    async with asyncio.TaskGroup() as tasks:
        async for record in consumer:
            tasks.create_task(handle(record))
            await free.acquire()


async def gather(consumer: Any, work: Work) -> None:
    while True:
        try:
            batches = await consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH)
        except ConsumerStoppedError:
            return
        await asyncio.gather(*(work(record) for batch in batches.values() for record in batch))


async def workers(consumer: Any, work: Work) -> None:
    async def serve() -> None:
        while True:
            try:
                record = await consumer.getone()
            except ConsumerStoppedError:
                return
            async with consumer.work(record):
                await work(record)

    await asyncio.gather(*(serve() for _ in range(AT_ONCE)))


async def threads(consumer: Any, work: Work) -> None:
    loop, free = asyncio.get_running_loop(), asyncio.Semaphore(THREADS)

    async def handle(record: Any) -> None:
        async with consumer.work(record):
            await loop.run_in_executor(pool, work.blocking, record)
        free.release()

    with ThreadPoolExecutor(THREADS) as pool:
        async with asyncio.TaskGroup() as tasks:
            async for record in consumer:
                await free.acquire()
                tasks.create_task(handle(record))


async def commits(consumer: Any, work: Work) -> None:
    while True:
        try:
            batches = await consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH_IN_TURN)
            for batch in batches.values():
                for record in batch:
                    await work(record)
            if batches:
                await consumer.commit()
        except (CommitFailedError, IllegalStateError):
            continue  # a partition went to another member, which does this batch's records of it again
        except ConsumerStoppedError:
            return


async def unbounded(consumer: Any, work: Work) -> None:
    free, tasks = asyncio.Semaphore(THREADS), set()  # a pool of connections, which the consumer knows nothing of

    async def handle(record: Any) -> None:
        async with free:
            await work(record)

    async for record in consumer:
        task = asyncio.create_task(handle(record))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)


SHAPES: dict[str, Shape] = {
    "one-by-one": Shape(run=one_by_one, words="`async for`"),
    "semaphore": Shape(
        run=semaphore, words=f"a task for each record, {AT_ONCE} at once, with `work()`", at_once=AT_ONCE
    ),
    "gather": Shape(run=gather, words=f"`getmany(max_records={BATCH})` and `gather`", at_once=BATCH, in_step=True),
    "workers": Shape(run=workers, words=f"{AT_ONCE} tasks on one `getone`, with `work()`", at_once=AT_ONCE),
    "threads": Shape(run=threads, words=f"a pool of {THREADS} threads, with `done()`", at_once=THREADS),
    "commits": Shape(
        run=commits,
        words=f"`getmany(max_records={BATCH_IN_TURN})` one by one, then `commit()`",
        options={"enable_auto_commit": False},
    ),
    "unbounded": Shape(
        run=unbounded, words="a task for each record, without a bound and without a word", at_once=THREADS, tells=False
    ),
}
"""By name."""
