"""Landau'24's consumer cycle: gather a batch, process it, send it out, commit; then look who wants partitions.

In the paper (section V-B) a consumer fetches until it has ``batch_size`` bytes or ``wait_time_secs`` are over,
processes each record, keeps those of one topic together because each topic has its own table in a data lake, sends each
topic's records to its table, and only then reads whether its controller wants partitions back: a move waits for two
cycles, some 5 s. What is different here:

* The tables are topics: ``<topic>-rows``, and ``<topic>-rejected`` for what cannot be read. :func:`processed` is the
  place for work of your own.
* Who owns what is the group's to say, by calling :class:`Cycle` as the consumer's listener. What is gathered of a
  partition that goes is sent out and committed at once; the others go on being gathered.
* Offsets are committed by hand, behind what was acknowledged: a later ``getmany`` would make what earlier ones
  returned count as done, which it is only at the end of the cycle.

Without a crash each record is sent out once, however many partitions move meanwhile; after one, what was sent and not
committed is sent again by the next owner. (Exactly once: docs/compatibility.md.) The group's own measure of latency
ends at the ``getmany`` behind a record, so it lacks the time in the batch: for results within W seconds of a record,
set ``LOADTRIM_SLA_SECONDS`` to W less the seconds to wait.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import CommitFailedError, ConsumerStoppedError, IllegalStateError

from batches.gathering import Batch, BatchLimits, Gathering, size_bytes
from loadtrim import Consumer, IncrementalRebalanceListener
from payments.service import Payment

__all__ = ["Cycle", "WrittenRow", "processed", "rejected_of", "rows_of"]

log = logging.getLogger("batches")

STEP_RECORDS = 200
"""Per call of ``getmany``: by fewer than so many records is a batch larger than asked for."""


def rows_of(topic: str) -> str:
    """Where the results of a topic go."""
    return f"{topic}-rows"


def rejected_of(topic: str) -> str:
    """Where what cannot be read goes, as it came: one broken record must not hold up all behind it."""
    return f"{topic}-rejected"


class WrittenRow(msgspec.Struct, frozen=True):
    """What becomes of a payment."""

    id: str
    amount: str
    currency: str


def processed(message: Any) -> tuple[str, bytes | None]:
    """(topic, value) to send for a record."""
    try:
        payment = msgspec.json.decode(message.value or b"", type=Payment)
        row = WrittenRow(payment.id, f"{payment.amount_cents / 100:.2f}", payment.currency)
    except (ValueError, ArithmeticError):  # all that decoding raises, and amounts beyond reason
        return rejected_of(message.topic), message.value
    return rows_of(message.topic), msgspec.json.encode(row)


class Cycle(IncrementalRebalanceListener):
    """The cycle of one consumer, and the listener that the consumer must be subscribed with.

    Args:
        consumer: with ``enable_auto_commit=False``; started, as the producer, when :meth:`run` is called.
        producer: where results go.
        limits: when a batch is complete.
    """

    def __init__(self, consumer: Consumer, producer: AIOKafkaProducer, limits: BatchLimits) -> None:
        self._consumer = consumer
        self._producer = producer
        self.gathering = Gathering(limits)
        self._sending: Batch = {}
        """What of the batch on its way out is still this member's to commit."""
        self._turn = asyncio.Lock()
        self._failed: BaseException | None = None
        """Why a batch was not sent out. Invariant: no record behind it is sent or committed from then on."""

    async def run(self) -> None:
        """Until the consumer is stopped; what was gathered by then is sent out.

        Raises:
            KafkaError: a result could not be sent. Its batch is not committed: who owns the partitions next does it.
        """
        with suppress(ConsumerStoppedError):
            while True:
                why = await self._gather()
                await self._send_out(self.gathering.take(), why)
        await self._send_out(self.gathering.take(), "the consumer stops")

    async def _gather(self) -> str:
        """Returns why the batch is complete, in words."""
        now, gathering = asyncio.get_running_loop().time, self.gathering
        gathering.begin(now())
        while (why := gathering.complete(now())) is None:
            left_ms = math.ceil(1000 * gathering.left_seconds(now()))
            gathering.add(await self._consumer.getmany(timeout_ms=left_ms, max_records=STEP_RECORDS))
        return why.value

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Nothing to prepare."""

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Send out and commit what is gathered of these: their next owner begins where that ends.

        What was lost already is not ours any more: its owner has it from the last commit on.
        """
        held = self._consumer.assignment()
        for partition in set(revoked) - held:
            self.gathering.take([partition])
            self._sending.pop(partition, None)
        if self._failed is None:  # else run() tells, and nothing is to be sent
            await self._send_out(self.gathering.take(held.intersection(revoked)), "its partition is given away")

    async def _send_out(self, batch: Batch, why: str) -> None:
        """Returns when the batch, and what was on its way out before, is acknowledged and committed."""
        async with self._turn:
            if self._failed is not None:
                raise self._failed
            try:
                if batch:
                    await self._deliver(batch, why)
            except BaseException as error:
                self._failed = error
                raise

    async def _deliver(self, batch: Batch, why: str) -> None:
        size = size_bytes(message for messages in batch.values() for message in messages)
        self._sending = batch
        sent = []
        for _, messages in sorted(batch.items()):  # a topic's records together, as its table would want them
            for message in messages:
                topic, value = processed(message)
                sent.append(await self._producer.send(topic, value, key=message.key))
        await asyncio.gather(*sent)
        await self._commit()
        log.info("sent %d records out, %d bytes: %s", len(sent), size, why)

    async def _commit(self) -> None:
        held = self._consumer.assignment()
        ends = {at: messages[-1].offset + 1 for at, messages in self._sending.items() if at in held}
        self._sending = {}
        if not ends:
            return
        try:
            await self._consumer.commit(ends)
        except (CommitFailedError, IllegalStateError) as error:
            log.warning(
                "A partition was lost before its batch was committed (%s). Its next owner sends the records of that "
                "batch out again; whoever reads the results may see them twice.",
                error,
            )
