"""A producer of transactions, some of which it aborts: what it wrote in those nobody may ever be handed.

It is a process of its own, so that it can be killed within a transaction. ``FEEDER`` is a JSON object, see
:class:`FeederOptions`. SIGTERM ends it when the transaction that is open has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
import uuid
from pathlib import Path

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from chaos.long.hold import Hold
from demo.journal import Journal, clock_ns

__all__ = ["ABORTED", "JOURNAL", "RECORDS", "WRITTEN", "FeederOptions", "TransactionalLoad"]

ABORTED = "aborted"
"""Reason of the producer's journal for a record whose transaction was never asked to be committed."""
JOURNAL = "producer-of-transactions"
WRITTEN = "written"
"""Place where it may be held: all records of a transaction are written, and nothing is asked for yet."""
RECORDS = 8
PAUSE_SECONDS = 0.3
ABORTED_SHARE = 0.2
TRANSACTION_MS = 10_000
END_SECONDS = 30.0
CLOSE_SECONDS = 5.0


class FeederOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment says.

    Attributes:
        bootstrap: of the cluster.
        topic: written to, all ``partitions`` of it.
        transactional_id: the same for each successor.
        directory: of its journal.
        hold: see :class:`chaos.long.hold.Hold`.
        seed: of what it aborts.
    """

    bootstrap: str
    topic: str
    partitions: int
    transactional_id: str
    directory: str
    hold: str
    seed: str


class TransactionalLoad:
    """Writes short transactions to all partitions of a topic until it is stopped.

    The journal has a record as acknowledged when its transaction is committed, not before.
    """

    def __init__(self, options: FeederOptions) -> None:
        self._options = options
        self._rng = random.Random(options.seed)
        self._hold = Hold(Path(options.hold))
        self._journal = Journal(Path(options.directory), JOURNAL, role="producer")
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
                bootstrap_servers=self._options.bootstrap,
                transactional_id=self._options.transactional_id,
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
            await self._hold.here(WRITTEN)
            commits = self._rng.random() >= ABORTED_SHARE
            await (producer.commit_transaction() if commits else producer.abort_transaction())
        finally:
            # Once a commit was asked for and not answered, nobody knows: such records may be delivered or not.
            if not commits:
                for record_id in ids:
                    self._journal.write("F", record_id, ABORTED)
        if commits:
            for record_id, at in zip(ids, written, strict=True):
                self._journal.write("A", record_id, at.topic, at.partition, at.offset, clock_ns())

    async def _send(self, producer: AIOKafkaProducer, ids: list[str]) -> asyncio.Future[object]:
        record_id = f"{self._prefix}-{self._sent}"
        partition = self._sent % self._options.partitions
        self._sent += 1
        stamp_ms = time.time_ns() // 1_000_000
        self._journal.write("P", record_id, self._options.topic, partition, clock_ns(), stamp_ms)
        ids.append(record_id)
        value = msgspec.json.encode({"id": record_id, "amount_cents": 1})
        found: asyncio.Future[object] = await producer.send(
            self._options.topic, value, partition=partition, timestamp_ms=stamp_ms
        )
        return found


async def _feed(options: FeederOptions) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    load = TransactionalLoad(options)
    load.start()
    await stop.wait()
    await load.stop()


if __name__ == "__main__":
    asyncio.run(_feed(msgspec.json.decode(os.environ["FEEDER"], type=FeederOptions)))
