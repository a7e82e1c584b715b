"""A process that sends records smoothly: ``python -m benchmarks.suite.feed OPTIONS``, asked as :mod:`.child` says.

Options: ``bootstrap topic partitions payload_bytes linger_ms directory``. Requests: ``rate`` (records/s over all
partitions, from now on; answers with the clock's nanoseconds of its first record), ``stop`` (waits for every
acknowledgement and writes down who was sent when: ``feed.stamps``).
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

from payments.service import clock_ns

from .child import serve
from .stamps import Stamps

PRECISION_SECONDS = 0.0003
LINGER_MS = 2


class Feed:
    def __init__(self, options: dict[str, Any]) -> None:
        self._topic = options["topic"]
        self._partitions = options["partitions"]
        self._directory = Path(options["directory"])
        self._value = b"x" * options.get("payload_bytes", 100)
        # A request for every record would cost the broker, which shares two cores with the members, more than they do.
        self._producer = AIOKafkaProducer(
            bootstrap_servers=options["bootstrap"],
            enable_idempotence=True,
            linger_ms=options.get("linger_ms", LINGER_MS),
        )
        self._stamps = Stamps()
        self._rate = 0.0
        self._changed = asyncio.Event()
        self._deliveries: set[asyncio.Future[Any]] = set()
        self._sent = 0
        self._behind_seconds = 0.0
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        async with self._producer:
            await self._producer.partitions_for(self._topic)
            self._task = asyncio.create_task(self._play())
            try:
                await serve(self._handle)
            finally:
                self._task.cancel()

    async def _handle(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "rate":
            self._rate = float(request["rate"])
            self._changed.set()
            return {"at_ns": clock_ns(), "sent": self._sent}
        if request["do"] == "stop":
            self._rate = 0.0
            self._changed.set()
            while self._deliveries:
                await asyncio.wait(self._deliveries)
            self._stamps.save(self._directory / "feed.stamps")
            return {"sent": self._sent, "acknowledged": len(self._stamps), "behind_seconds": self._behind_seconds}
        raise ValueError(request["do"])

    async def _play(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            if self._rate <= 0:
                self._changed.clear()
                await self._changed.wait()
                due = loop.time()
                continue
            wait = due - loop.time()
            if wait > PRECISION_SECONDS:
                self._changed.clear()
                try:
                    async with asyncio.timeout(wait):
                        await self._changed.wait()
                    due = loop.time()  # another rate: from now on
                except TimeoutError:
                    pass
                continue
            self._behind_seconds = max(self._behind_seconds, -wait)
            await self._send()
            due += 1.0 / self._rate

    async def _send(self) -> None:
        partition = self._sent % self._partitions
        self._sent += 1
        sent_ns = clock_ns()
        delivery = await self._producer.send(self._topic, self._value, partition=partition)
        self._deliveries.add(delivery)
        delivery.add_done_callback(lambda done: self._delivered(partition, sent_ns, done))

    def _delivered(self, partition: int, sent_ns: int, delivery: asyncio.Future[Any]) -> None:
        self._deliveries.discard(delivery)
        if not delivery.cancelled() and delivery.exception() is None:
            self._stamps.add(partition, delivery.result().offset, sent_ns)


async def main() -> None:
    await Feed(json.loads(sys.argv[1])).run()


if __name__ == "__main__":
    asyncio.run(main())
