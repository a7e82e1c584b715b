"""A service with two consumers of one group in one process, or in two that it forks: ``MEMBER_FORKS=2``.

Arguments: bootstrap servers, group, topic, journal. Each record that is done is a line "process id, offset, partition"
of the journal, which all share. ``MEMBER_HOST=bare``: no sign of a container is found.
``MEMBER_SESSION_MS``: the session timeout.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from aiokafka.errors import ConsumerStoppedError

from loadtrim import Consumer
from loadtrim_agent.common import host

BUSY_SECONDS = 0.005


async def consume(consumer: Consumer, journal: int) -> None:
    async with consumer:
        try:
            async for message in consumer:
                await asyncio.sleep(BUSY_SECONDS)
                # One write of a short line is not mixed with another's.
                os.write(journal, f"{os.getpid()} {message.offset} {message.partition}\n".encode())
        except ConsumerStoppedError:
            pass


async def serve(bootstrap: str, group: str, topic: str, path: str, clients: tuple[str, ...]) -> None:
    journal = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    consumers = [
        Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=client,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=500,
            session_timeout_ms=int(os.environ.get("MEMBER_SESSION_MS", "10000")),
        )
        for client in clients
    ]
    async with asyncio.TaskGroup() as tasks:
        for consumer in consumers:
            tasks.create_task(consume(consumer, journal))


def main(bootstrap: str, group: str, topic: str, journal: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if os.environ.get("MEMBER_HOST") == "bare":
        host.CONTAINER_FILES = ()  # type: ignore[assignment]
    forks = int(os.environ.get("MEMBER_FORKS", "0"))
    for _ in range(forks):
        if os.fork() == 0:
            asyncio.run(serve(bootstrap, group, topic, journal, ("worker",)))
            os._exit(0)
    if not forks:
        asyncio.run(serve(bootstrap, group, topic, journal, ("orders", "refunds")))
    for _ in range(forks):
        os.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
