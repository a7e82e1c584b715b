"""A producer of transactions, some of which it aborts: what it wrote in those nobody may ever be handed."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from pathlib import Path

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from demo.journal import Journal, clock_ns

__all__ = ["ABORTED", "TransactionalLoad"]

ABORTED = "aborted"
"""Reason of the producer's journal for a record whose transaction was never asked to be committed."""
RECORDS = 8
PAUSE_SECONDS = 0.3
ABORTED_SHARE = 0.2
TRANSACTION_MS = 10_000
END_SECONDS = 30.0
CLOSE_SECONDS = 5.0


class TransactionalLoad:
    """Writes short transactions to all partitions of a topic until it is stopped.

    The journal has a record as acknowledged when its transaction is committed, not before.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, directory: Path, rng: random.Random) -> None:
        self.committed = 0
        self.aborted = 0
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._rng = rng
        self._journal = Journal(directory, "producer-of-transactions", role="producer")
        self._prefix = uuid.uuid4().hex[:6]
        self._sent = 0
        self._producer: AIOKafkaProducer | None = None
        self._running = True
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._play())

    async def stop(self) -> None:
        """Finish the transaction that is open."""
        self._running = False
        if self._task is not None:
            await self._task
        await self._close()
        self._journal.close()

    async def _play(self) -> None:
        while self._running:
            try:
                async with asyncio.timeout(END_SECONDS):
                    await self._transaction(await self._open())
            except (KafkaError, OSError, TimeoutError):
                # The next producer of this transactional id ends what this one left open.
                await self._close()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _open(self) -> AIOKafkaProducer:
        if self._producer is None:
            self._producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                transactional_id=f"chaos-{self._prefix}",
                transaction_timeout_ms=TRANSACTION_MS,
                linger_ms=1,
                retry_backoff_ms=50,
            )
            await self._producer.start()
        return self._producer

    async def _close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(KafkaError, OSError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await producer.stop()

    async def _transaction(self, producer: AIOKafkaProducer) -> None:
        await producer.begin_transaction()
        ids: list[str] = []
        commits = False
        try:
            deliveries = [await self._send(producer, ids) for _ in range(RECORDS)]
            written = await asyncio.gather(*deliveries)
            commits = self._rng.random() >= ABORTED_SHARE
            await (producer.commit_transaction() if commits else producer.abort_transaction())
        finally:
            # Once a commit was asked for and not answered, nobody knows: such records may be delivered or not.
            if not commits:
                self.aborted += 1
                for record_id in ids:
                    self._journal.write("F", record_id, ABORTED)
        if commits:
            self.committed += 1
            for record_id, at in zip(ids, written, strict=True):
                self._journal.write("A", record_id, at.topic, at.partition, at.offset, clock_ns())

    async def _send(self, producer: AIOKafkaProducer, ids: list[str]) -> asyncio.Future[object]:
        record_id = f"{self._prefix}-{self._sent}"
        partition = self._sent % self._partitions
        self._sent += 1
        stamp_ms = time.time_ns() // 1_000_000
        self._journal.write("P", record_id, self._topic, partition, clock_ns(), stamp_ms)
        ids.append(record_id)
        value = msgspec.json.encode({"id": record_id, "amount_cents": 1})
        found: asyncio.Future[object] = await producer.send(
            self._topic, value, partition=partition, timestamp_ms=stamp_ms
        )
        return found
