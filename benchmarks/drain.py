"""One consumer that reads so many records as fast as it can: ``python -m benchmarks.drain OPTIONS``.

Asked as :mod:`.child` says. Options: ``client bootstrap topic group way records``. Request ``drain``: answers with
records, wall and CPU seconds from the first record to the last.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from .child import serve


def _consumer(options: dict[str, Any]) -> Any:
    keywords = {
        "bootstrap_servers": options["bootstrap"],
        "group_id": options["group"],
        "auto_offset_reset": "earliest",
    }
    if options["client"] == "loadtrim":
        from loadtrim import Consumer

        return Consumer(options["topic"], **keywords)
    from aiokafka import AIOKafkaConsumer

    return AIOKafkaConsumer(options["topic"], **keywords)


async def drain(options: dict[str, Any]) -> dict[str, Any]:
    """Read; every value is looked at, as any service would."""
    wanted = options["records"]
    consumer = _consumer(options)
    async with consumer:
        if options["way"] == "getmany":
            count, size, begun, cpu = await _many(consumer, wanted)
        else:
            count, size, begun, cpu = await _one_by_one(consumer, wanted)
        seconds = time.perf_counter() - begun
        cpu_seconds = time.process_time() - cpu
    return {"records": count, "bytes": size, "seconds": seconds, "cpu_seconds": cpu_seconds}


async def _one_by_one(consumer: Any, wanted: int) -> tuple[int, int, float, float]:
    first = await consumer.getone()
    begun, cpu = time.perf_counter(), time.process_time()
    count, size = 1, len(first.value)
    async for message in consumer:
        size += len(message.value)
        count += 1
        if count >= wanted:
            break
    return count, size, begun, cpu


async def _many(consumer: Any, wanted: int) -> tuple[int, int, float, float]:
    count = size = 0
    begun = cpu = 0.0
    while count < wanted:
        taken = await consumer.getmany(timeout_ms=500)
        if taken and not begun:
            begun, cpu = time.perf_counter(), time.process_time()
        for messages in taken.values():
            for message in messages:
                size += len(message.value)
            count += len(messages)
    return count, size, begun, cpu


async def main() -> None:
    options = json.loads(sys.argv[1])

    async def handle(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] != "drain":
            raise ValueError(request["do"])
        return await drain(options)

    await serve(handle)


if __name__ == "__main__":
    asyncio.run(main())
