"""One client that reads so many records as fast as it can: ``python -m benchmarks.suite.drain OPTIONS``.

Asked as :mod:`.child` says. Options: ``client bootstrap``. Request ``drain`` with ``topic group way records batch``
(``batch`` is for ``consume`` alone): answers with records, bytes, wall and CPU seconds from the first record to the
last. The first is asked for alone by all: what ``getmany`` unpacks before its first answer would not be counted else,
and its records would.

No client waits for records that are not there: each asks for no more than is left. ``consume`` gives back less than it
was asked for only when its timeout is over, which would be counted as reading.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from .child import serve

__all__ = ["CONSUME_RECORDS", "WAYS", "Stretch", "consume"]

WAYS = {
    "aiokafka": ("async for", "getmany"),
    "loadtrim": ("async for", "getmany"),
    "confluent-kafka": ("poll", "consume"),
}
"""How each client hands records out: one by one, and many at once."""
CONSUME_RECORDS = (500, 10_000)
"""Chosen: how many records ``consume`` asks for at once. The benchmark tries each in a round that does not count."""
WAIT_SECONDS = 0.5


class Stretch:
    """What is counted, behind the first record. Every value is looked at, as any service would."""

    def __init__(self) -> None:
        self.records = 0
        self.size_bytes = 0
        self._begun = self._cpu = 0.0

    def begin(self) -> None:
        """The first record is there."""
        self._begun, self._cpu = time.perf_counter(), time.process_time()

    def end(self) -> dict[str, Any]:
        """The last ones were."""
        return {
            "records": self.records,
            "bytes": self.size_bytes,
            "seconds": time.perf_counter() - self._begun,
            "cpu_seconds": time.process_time() - self._cpu,
        }


def _class_of(client: str) -> Any:
    if client == "loadtrim":
        from loadtrim import Consumer

        return Consumer
    from aiokafka import AIOKafkaConsumer

    return AIOKafkaConsumer


async def with_asyncio(client: str, bootstrap: str, request: dict[str, Any]) -> dict[str, Any]:
    """aiokafka or loadtrim, each with its defaults but for what the environment sets."""
    consumer = _class_of(client)(
        request["topic"], bootstrap_servers=bootstrap, group_id=request["group"], auto_offset_reset="earliest"
    )
    stretch, wanted = Stretch(), request["records"] - 1
    async with consumer:
        await consumer.getone()
        stretch.begin()
        await (_many if request["way"] == "getmany" else _one_by_one)(consumer, stretch, wanted)
        return stretch.end()


async def _one_by_one(consumer: Any, stretch: Stretch, wanted: int) -> None:
    count = size = 0
    async for message in consumer:
        size += len(message.value)
        count += 1
        if count >= wanted:
            break
    stretch.records, stretch.size_bytes = count, size


async def _many(consumer: Any, stretch: Stretch, wanted: int) -> None:
    count = size = 0
    while count < wanted:
        taken = await consumer.getmany(timeout_ms=int(WAIT_SECONDS * 1e3))
        for messages in taken.values():
            for message in messages:
                size += len(message.value)
            count += len(messages)
    stretch.records, stretch.size_bytes = count, size


def with_librdkafka(bootstrap: str, request: dict[str, Any]) -> dict[str, Any]:
    """confluent-kafka with its defaults. It has no asyncio: the calls block, as they are meant to."""
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": bootstrap, "group.id": request["group"], "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([request["topic"]])
    stretch = Stretch()
    try:
        _poll(consumer, stretch, 1)
        stretch.begin()
        wanted = request["records"] - 1
        if request["way"] == "consume":
            consume(consumer, stretch, wanted, request["batch"])
        else:
            _poll(consumer, stretch, wanted)
        return stretch.end()
    finally:
        consumer.close()


def _poll(consumer: Any, stretch: Stretch, wanted: int) -> None:
    count = size = 0
    while count < wanted:
        message = consumer.poll(WAIT_SECONDS)
        if message is None:
            continue
        if message.error() is not None:
            raise RuntimeError(message.error())
        size += len(message.value())
        count += 1
    stretch.records, stretch.size_bytes = count, size


def consume(consumer: Any, stretch: Stretch, wanted: int, batch: int) -> None:
    """Read ``wanted`` records, at most ``batch`` at once."""
    count = size = 0
    while count < wanted:
        messages = consumer.consume(min(batch, wanted - count), WAIT_SECONDS)
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(message.error())
            size += len(message.value())
        count += len(messages)
    stretch.records, stretch.size_bytes = count, size


async def main() -> None:
    options = json.loads(sys.argv[1])

    async def handle(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] != "drain":
            raise ValueError(request["do"])
        if options["client"] == "confluent-kafka":
            return with_librdkafka(options["bootstrap"], request)
        return await with_asyncio(options["client"], options["bootstrap"], request)

    await serve(handle)


if __name__ == "__main__":
    asyncio.run(main())
