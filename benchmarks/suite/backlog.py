"""A consumer before a backlog: ``python -m benchmarks.suite.backlog OPTIONS``, asked as :mod:`.child` says.

Options: ``client bootstrap topic group``. Requests: ``start`` (at the end of the log: nothing is fetched), ``read``
(from the beginning: ``seconds``, and ``pause_seconds`` after each ``pause_records``; answers with records and bytes).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from typing import Any

from .child import serve


def _consumer(options: dict[str, Any]) -> Any:
    keywords = {
        "bootstrap_servers": options["bootstrap"],
        "group_id": options["group"],
        "auto_offset_reset": "latest",
    }
    if options["client"] == "loadtrim":
        from prometheus_client import CollectorRegistry

        from loadtrim import Consumer

        return Consumer(options["topic"], registry=CollectorRegistry(), **keywords)
    from aiokafka import AIOKafkaConsumer

    return AIOKafkaConsumer(options["topic"], **keywords)


class Backlog:
    def __init__(self, options: dict[str, Any]) -> None:
        self._consumer = _consumer(options)

    async def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = await getattr(self, f"do_{request['do']}")(request)
        return answer

    async def do_start(self, request: dict[str, Any]) -> dict[str, Any]:
        await self._consumer.start()
        while not self._consumer.assignment():  # noqa: ASYNC110 - aiokafka has no event for it
            await asyncio.sleep(0.05)
        return {"assigned": len(self._consumer.assignment())}

    async def do_read(self, request: dict[str, Any]) -> dict[str, Any]:
        seconds, every, pause = request["seconds"], request["pause_records"], request["pause_seconds"]
        await self._consumer.seek_to_beginning()
        records = size = 0
        until = time.monotonic() + seconds
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds + 5.0):
                async for message in self._consumer:
                    records += 1
                    size += len(message.value)
                    if pause and records % every == 0:
                        await asyncio.sleep(pause)
                    if records % 64 == 0 and time.monotonic() > until:
                        break
        return {"records": records, "bytes": size}


async def main() -> None:
    await serve(Backlog(json.loads(sys.argv[1])).handle)


if __name__ == "__main__":
    asyncio.run(main())
