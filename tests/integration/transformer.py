"""A process that consumes, transforms and produces, exactly once: one transaction per batch.

Environment: ``BOOTSTRAP``, ``GROUP``, ``SOURCE``, ``SINK`` (topics with as many partitions), ``NAME`` (its
transactional id), ``SECONDS_PER_RECORD``; settings of the consumer as ever (``LOADTRIM_*``). It prints ``fenced`` when
a commit was refused, so that a test can tell whether one was.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import CommitFailedError, ConsumerStoppedError, IllegalStateError

from loadtrim import Consumer

SESSION_MS = 2_000
TRANSACTION_MS = 4_000
BATCH_RECORDS = 10

Batch = dict[TopicPartition, list[Any]]


class Transformer:
    def __init__(self, environment: dict[str, str]) -> None:
        self.source, self.sink = environment["SOURCE"], environment["SINK"]
        self.seconds_per_record = float(environment["SECONDS_PER_RECORD"])
        self.producer = AIOKafkaProducer(
            bootstrap_servers=environment["BOOTSTRAP"],
            transactional_id=environment["NAME"],
            transaction_timeout_ms=TRANSACTION_MS,
        )
        self.consumer = Consumer(
            self.source,
            bootstrap_servers=environment["BOOTSTRAP"],
            group_id=environment["GROUP"],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=300,
        )

    async def run(self) -> None:
        async with self.producer, self.consumer:
            while True:
                try:
                    batch = await self.consumer.getmany(timeout_ms=200, max_records=BATCH_RECORDS)
                except ConsumerStoppedError:
                    return
                try:
                    if batch:
                        await self.transform(batch)
                except (CommitFailedError, IllegalStateError) as error:
                    print("fenced", type(error).__name__, flush=True)
                    await self.rewind(batch)

    async def transform(self, batch: Batch) -> None:
        async with self.producer.transaction():
            for at, records in batch.items():
                for record in records:
                    await asyncio.sleep(self.seconds_per_record)
                    await self.producer.send(self.sink, record.value, partition=at.partition)
            offsets = {at: records[-1].offset + 1 for at, records in batch.items()}
            await self.consumer.send_offsets_to_transaction(self.producer, offsets)

    async def rewind(self, batch: Batch) -> None:
        """The transaction was aborted: what is still held, or held again, goes on behind the last one committed."""
        for at in sorted(batch.keys() & self.consumer.assignment()):
            with contextlib.suppress(IllegalStateError):  # it has gone meanwhile
                await self.consumer.seek_to_committed(at)


def main() -> int:
    logging.basicConfig(level="INFO", format="%(asctime)s %(name)s %(levelname)s %(message)s")

    async def run() -> None:
        await Transformer(dict(os.environ)).run()

    asyncio.run(run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
