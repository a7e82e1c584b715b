"""Run many consumers of one group in a process: ``python -m benchmarks.suite.crowd OPTIONS``.

It is asked as :mod:`.child` says. Options: ``bootstrap topic group`` and ``consumer``, further arguments of each
consumer. Requests:

* ``start``: ``count`` consumers at once
* ``stop``: the ``count`` oldest ones together
* ``barrier``: of the rebalance before
* ``traffic``: requests and bytes so far, of all connections
* ``state``
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from typing import Any

from aiokafka.conn import AIOKafkaConnection
from prometheus_client import CollectorRegistry

from loadtrim import Consumer
from loadtrim_agent.protocol.commands import EnteredCommand, SendJoinCommand
from loadtrim_agent.runtime.agent import Agent

from .child import serve

__all__ = ["Crowd"]

FETCH = 1


class _Traffic:
    """Count what goes over each connection of this process."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        original_send, original_receive = AIOKafkaConnection.send, AIOKafkaConnection._handle_frame
        counts = self.counts

        def send(connection: Any, request: Any, *arguments: Any, **keywords: Any) -> Any:
            counts["requests"] += 1
            counts["fetches"] += request.API_KEY == FETCH
            return original_send(connection, request, *arguments, **keywords)

        def received(connection: Any, frame: bytes) -> Any:
            counts["bytes"] += len(frame)
            return original_receive(connection, frame)

        AIOKafkaConnection.send = send
        AIOKafkaConnection._handle_frame = received


class Crowd:
    """Hold consumers of one group in one process, each with an agent of its own."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._traffic = _Traffic()
        self._consumers: list[tuple[Any, asyncio.Task[None]]] = []

    async def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = await getattr(self, f"do_{request['do']}")(request)
        return answer

    async def do_start(self, request: dict[str, Any]) -> dict[str, Any]:
        await asyncio.gather(*(self._start() for _ in range(request["count"])))
        return {}

    async def _start(self) -> None:
        options = self._options
        consumer = Consumer(
            options["topic"],
            group_id=options["group"],
            bootstrap_servers=options["bootstrap"],
            auto_offset_reset="earliest",
            registry=CollectorRegistry(),
            **options["consumer"],
        )
        await consumer.start()
        self._consumers.append((consumer, asyncio.create_task(_consume(consumer))))

    async def do_stop(self, request: dict[str, Any]) -> dict[str, Any]:
        some, self._consumers = self._consumers[: request["count"]], self._consumers[request["count"] :]
        await asyncio.gather(*(_stop(consumer, task) for consumer, task in some))
        return {}

    @property
    def _agents(self) -> list[Agent]:
        return [consumer._client.link.need_agent() for consumer, _ in self._consumers]

    async def do_state(self, request: dict[str, Any]) -> dict[str, Any]:
        snapshots = [agent.snapshot() for agent in self._agents]
        return {
            "generations": sorted({snapshot.generation for snapshot in snapshots}),
            "stable": all(snapshot.stable for snapshot in snapshots),
            "owned": sum(_owned(agent) for agent in self._agents),
            "leads": any(snapshot.is_leader for snapshot in snapshots),
        }

    async def do_barrier(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return when the newest consumer asked to join, and when the last one entered the generation of now."""
        traces = [list(agent.trace()) for agent in self._agents]
        entered = [at for trace in traces for at, step in trace[-400:] if isinstance(step, EnteredCommand)]
        asked = [at for at, step in traces[-1] if isinstance(step, SendJoinCommand)]
        return {"asked": min(asked, default=None), "entered": max(entered, default=None)}

    async def do_traffic(self, request: dict[str, Any]) -> dict[str, Any]:
        return dict(self._traffic.counts)


async def _consume(consumer: Any) -> None:
    async for _ in consumer:
        pass


async def _stop(consumer: Any, task: asyncio.Task[None]) -> None:
    await consumer.stop()
    await task


def _owned(agent: Agent) -> int:
    """Return how many partitions it delivers. Looked at from another thread, which a list of them stands."""
    return sum(stream.running for stream in list(agent.buffer.streams.values()))


async def main() -> None:
    crowd = Crowd(json.loads(sys.argv[1]))
    await serve(crowd.handle)
    await crowd.do_stop({"count": len(crowd._consumers)})


if __name__ == "__main__":
    asyncio.run(main())
