"""A process that reads, transforms and writes exactly once: a transaction per batch, as docs/compatibility.md has it.

``TRANSFORMER`` is a JSON object, see :class:`TransformerOptions`. One transaction in twenty it gives up in the middle,
as user code may.

Its journal has a line ``C,transaction,clock_ns,partition,...`` before it asks for a commit. A transaction without one
is open or aborted, whatever became of the process. Exit codes: 0 ended in order, 4 Kafka's error, of the producer
most often.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import sys
from pathlib import Path
from typing import Any

import msgspec
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import CommitFailedError, ConsumerStoppedError, IllegalStateError, KafkaError

from chaos.long.hold import Hold
from chaos.long.outputs import Made
from loadtrim import Consumer
from payments.service import Journal, Payment, clock_ns

SESSION_MS = 6_000
TRANSACTION_MS = 8_000
"""Frozen past its session, a process may find its transaction open still, or aborted."""
REQUEST_MS = 10_000
BATCH_RECORDS = 20
WAIT_MS = 200
GIVEN_UP_SHARE = 0.05
BEFORE_OFFSETS, AFTER_OFFSETS = "before its offsets", "after its offsets"
"""Places in a transaction where it may be held: its output is written, its offsets are not sent yet, or are."""

Batch = dict[TopicPartition, list[Any]]


class TransformerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment says.

    Attributes:
        bootstrap: of the cluster.
        group: its consumer group.
        source: topic of the input.
        sink: topic of the output, with as many partitions.
        name: of the process.
        transactional_id: of its producer.
        directory: of its journal.
        hold: see :class:`chaos.long.hold.Hold`.
        security: further arguments of both clients.
    """

    bootstrap: str
    group: str
    source: str
    sink: str
    name: str
    transactional_id: str
    directory: str
    hold: str
    security: dict[str, Any]


class GivenUpError(Exception):
    """User code does not want this transaction."""


class Transformer:
    def __init__(self, options: TransformerOptions) -> None:
        self.options = options
        self.hold = Hold(Path(options.hold))
        self.journal = Journal(Path(options.directory), options.name, role="transformer")
        self.rng = random.Random(options.name)
        self.number = 0
        self.producer = AIOKafkaProducer(
            bootstrap_servers=options.bootstrap,
            client_id=options.name,
            transactional_id=options.transactional_id,
            transaction_timeout_ms=TRANSACTION_MS,
            request_timeout_ms=REQUEST_MS,
            **options.security,
        )
        self.consumer = Consumer(
            options.source,
            bootstrap_servers=options.bootstrap,
            group_id=options.group,
            client_id=options.name,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=SESSION_MS // 3,
            metadata_max_age_ms=5_000,
            **options.security,
        )

    async def run(self) -> None:
        async with self.producer, self.consumer:
            while True:
                try:
                    batch = await self.consumer.getmany(timeout_ms=WAIT_MS, max_records=BATCH_RECORDS)
                except ConsumerStoppedError:
                    return
                if not batch:
                    continue
                try:
                    await self.transform(batch)
                except (CommitFailedError, IllegalStateError, GivenUpError) as error:
                    logging.info("transaction %s was aborted: %r", self.number, error)
                    await self.rewind(batch)

    async def transform(self, batch: Batch) -> None:
        self.number += 1
        transaction = f"{self.options.name}:{self.number}"
        async with self.producer.transaction():
            await asyncio.gather(*[await self.put_out(transaction, at, each) for at in batch for each in batch[at]])
            await self.hold.here(BEFORE_OFFSETS)
            if self.rng.random() < GIVEN_UP_SHARE:
                raise GivenUpError(transaction)
            ends = {at: records[-1].offset + 1 for at, records in batch.items()}
            await self.consumer.send_offsets_to_transaction(self.producer, ends)
            await self.hold.here(AFTER_OFFSETS)
            self.journal.write("C", transaction, clock_ns(), *(at.partition for at in batch))

    async def put_out(self, transaction: str, at: TopicPartition, record: Any) -> Any:
        record_id = msgspec.json.decode(record.value, type=Payment).id
        made = Made(record_id=record_id, offset=record.offset, transaction=transaction)
        return await self.producer.send(self.options.sink, msgspec.json.encode(made), partition=at.partition)

    async def rewind(self, batch: Batch) -> None:
        """What is still owned, or owned again, goes on behind the last transaction that was committed."""
        for at in sorted(batch.keys() & self.consumer.assignment()):
            with contextlib.suppress(IllegalStateError):  # it has gone meanwhile
                await self.consumer.seek_to_committed(at)


def main() -> int:
    form = "%(asctime)s.%(msecs)03d %(name)s %(levelname)s %(message)s"
    logging.basicConfig(level="INFO", format=form, datefmt="%H:%M:%S")
    options = msgspec.json.decode(os.environ["TRANSFORMER"], type=TransformerOptions)

    async def run() -> None:
        await Transformer(options).run()

    try:
        asyncio.run(run())
    except (KafkaError, OSError, TimeoutError) as error:
        # After an error of its own the producer cannot be trusted with another transaction: a new one aborts this.
        logging.error("Kafka's error in user code: %r", error)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
