"""A member of a group for the tests: the payments service's loop, with faults that can be asked for.

Environment as of ``payments.service``, and ``MEMBER_FAULT``, a JSON object: ``kind`` (below), ``at`` (after how many
records), ``seconds``.

``raise``      user code raises with the record in hand
``break``      user code leaves the loop with the record in hand, and stops the consumer
``block``      user code blocks its loop for ``seconds``
``many``       takes batches with ``getmany``
``many-manual`` the same, and commits by itself after each batch (give ``enable_auto_commit=False``)
``manual``     commits by itself after each record (give ``enable_auto_commit=False``)
``silent``     asks for no record for ``seconds``, while its loop runs on

``MEMBER_ORDERS`` names a file: whenever one is there, it is such a fault for the record in hand, and is taken away.
Exit codes: 0 ended in order, 2 settings, 3 user code raised, 4 Kafka's error was raised in user code.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError, ConsumerStoppedError, IllegalStateError, KafkaError

from loadtrim import Consumer, SettingsError
from payments.service import Journal, Pace, Payment, ServiceOptions


class Fault(msgspec.Struct, frozen=True):
    kind: str = ""
    at: int = 0
    seconds: float = 0.0


class UserCodeError(Exception):
    """What user code raises here."""


class Member:
    def __init__(self, options: ServiceOptions, fault: Fault, orders: Path | None = None) -> None:
        self.options = options
        self.fault = fault
        self.orders = orders
        assert options.journal is not None
        self.journal = Journal(options.journal, options.instance)
        self.pace = Pace(options.busy_seconds)
        self.handled = 0
        self.consumer = Consumer(
            *options.topics,
            bootstrap_servers=options.bootstrap,
            group_id=options.group,
            **{"auto_offset_reset": "earliest", **options.extra},
        )

    async def run(self) -> None:
        try:
            await self.consumer.start()
        except ConsumerStoppedError:
            return  # It was told to end meanwhile.
        try:
            await (self._batches() if self.fault.kind.startswith("many") else self._records())
        finally:
            # Outside the loop nothing is in hand any more, done or given up; stopping takes its time.
            self.journal.close()
            await self.consumer.stop()

    async def _records(self) -> None:
        async for message in self.consumer:
            self.journal.handed_out(message, _id_of(message))
            if await self._work(message) == "break":
                break

    async def _work(self, message: Any) -> str:
        """Work on a record in hand. Returns the kind of fault that it met."""
        self.handled += 1
        fault = self.fault if self.handled == self.fault.at else self._ordered()
        match fault.kind:
            case "raise":
                raise UserCodeError(f"record {message.offset} of {message.partition}")
            case "break":
                return fault.kind
            case "block":
                time.sleep(fault.seconds)  # noqa: ASYNC251 - that is what is tested
            case "silent":
                await asyncio.sleep(fault.seconds)
        await self.pace.take()
        self.journal.done(message)
        if self.fault.kind == "manual":
            # Refused where the partition is another member's now, and so is the record.
            with contextlib.suppress(CommitFailedError, IllegalStateError):
                await self.consumer.commit({TopicPartition(message.topic, message.partition): message.offset + 1})
        return fault.kind

    def _ordered(self) -> Fault:
        if self.orders is None or not self.orders.exists():
            return Fault()
        fault = msgspec.json.decode(self.orders.read_bytes(), type=Fault)
        self.orders.unlink()
        return fault

    async def _batches(self) -> None:
        while True:
            try:
                taken = await self.consumer.getmany(timeout_ms=200, max_records=20)
            except ConsumerStoppedError:
                return
            batch = [message for messages in taken.values() for message in messages]
            for message in batch:
                self.journal.handed_out(message, _id_of(message))
            for message in batch:
                if await self._work(message) == "break":
                    return
            if self.fault.kind == "many-manual" and batch:
                with contextlib.suppress(CommitFailedError, IllegalStateError):
                    await self.consumer.commit()


def _id_of(message: Any) -> str:
    return msgspec.json.decode(message.value, type=Payment).id


def main() -> int:
    form = "%(asctime)s.%(msecs)03d %(name)s %(levelname)s %(message)s"
    logging.basicConfig(level=os.environ.get("PAYMENTS_LOG", "INFO"), format=form, datefmt="%H:%M:%S")
    fault = msgspec.json.decode(os.environ.get("MEMBER_FAULT", "{}"), type=Fault)

    async def run() -> None:
        orders = os.environ.get("MEMBER_ORDERS")
        await Member(ServiceOptions.from_env(os.environ), fault, Path(orders) if orders else None).run()

    try:
        asyncio.run(run())
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    except UserCodeError as error:
        print(f"user code raised: {error}", file=sys.stderr)
        return 3
    except KafkaError as error:
        print(f"Kafka's error in user code: {error!r}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
