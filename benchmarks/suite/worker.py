"""A consumer in a process of its own: ``python -m benchmarks.suite.worker OPTIONS``, asked as :mod:`.child` says.

Options: ``client`` (``loadtrim``, ``aiokafka`` in a group, ``assigned``: aiokafka without a group, ``fetcher``: the
agent's fetcher alone), ``bootstrap topic group directory busy_seconds assigned`` and ``consumer``, further arguments
of the consumer; ``one_of``: a partition that is paused when one record of it was handed out; ``work``: how
``busy_seconds`` are spent (see ``_WORK``); ``stamped``: false keeps no stamps. Requests: ``start``, ``stop`` (as
SIGTERM does), ``state``, ``story`` (the protocol's steps with their times), ``count``, ``vitals`` (asyncio's tasks),
``save`` (writes the records' stamps down), ``take`` (``assigned`` only: resumes that partition at ``offset`` and waits
``seconds`` at most for a record of it).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiokafka.structs import TopicPartition

from payments.service import Pace, clock_ns

from .child import serve
from .stamps import Count, Stamps

if TYPE_CHECKING:  # a worker of another client is measured without the agent in its memory
    from loadtrim.agent_link import AgentLink
    from loadtrim_agent.runtime.agent import Agent

logging.basicConfig(
    level=os.environ.get("BENCH_LOG", "WARNING"),
    format="%(asctime)s.%(msecs)03d %(name)s %(levelname)s %(message)s",
    datefmt="%H:%M:%S",
)


ASKED_RECORDS = 20
"""Work that lets nothing else run in its loop: a request is heard after so many records, or after each long one."""
LONG_SECONDS = 0.1


Work = Callable[[], Awaitable[None]]
StoryStep = tuple[str, float, int | None]
"""Kind of an event or a command, boot-time seconds, and its generation or partition."""


async def _block(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251 - that is what it is to show


async def _hold(seconds: float) -> None:
    # PyDLL keeps the interpreter's lock meanwhile, as an extension module that does not give it away.
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


_WORK: dict[str, Callable[[float], Work]] = {
    "waits": lambda seconds: partial(asyncio.sleep, seconds),
    "computes": lambda seconds: Pace(seconds, burn=True).take,
    "blocks": lambda seconds: partial(_block, seconds),
    "holds": lambda seconds: partial(_hold, seconds),
}
"""What user code can do with its time; without any of these it keeps a pace (``payments.service.Pace``)."""


class BenchmarkWorker:
    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._client = options.get("client", "loadtrim")
        self._busy = float(options.get("busy_seconds", 0.0))
        self._consumer: Any = None
        self._task: asyncio.Task[None] | None = None
        self._stamps = Stamps() if options.get("stamped", True) else Count()
        self._first_ns: int | None = None
        self._one_of = options.get("one_of", -1)
        self._ones = 0
        """Records of it handed out."""
        self._one: asyncio.Future[int] | None = None
        self._make = self._maker()

    def _maker(self) -> Any:
        # Imported before anybody asks to start: a start is measured without the interpreter's.
        options = self._options
        keywords = {
            "bootstrap_servers": options["bootstrap"],
            "auto_offset_reset": "earliest",
            **options.get("consumer", {}),
        }
        if self._client == "loadtrim":
            from prometheus_client import CollectorRegistry

            from loadtrim import Consumer

            return lambda: Consumer(
                options["topic"], group_id=options["group"], registry=CollectorRegistry(), **keywords
            )
        if self._client == "fetcher":
            from .fetcher import FetcherConsumer

            return lambda: FetcherConsumer(options["topic"], options["assigned"], **keywords)
        from aiokafka import AIOKafkaConsumer, TopicPartition

        if self._client == "aiokafka":
            return lambda: AIOKafkaConsumer(options["topic"], group_id=options["group"], **keywords)

        def assigned() -> Any:
            consumer = AIOKafkaConsumer(group_id=None, enable_auto_commit=False, **keywords)
            consumer.assign([TopicPartition(options["topic"], index) for index in options["assigned"]])
            return consumer

        return assigned

    async def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = await getattr(self, f"do_{request['do']}")(request)
        return answer

    async def do_start(self, request: dict[str, Any]) -> dict[str, Any]:
        called_ns = clock_ns()
        self._first_ns = None
        self._consumer = self._make()
        await self._consumer.start()
        started_ns = clock_ns()
        self._task = asyncio.create_task(self._consume())
        return {"called_ns": called_ns, "started_ns": started_ns}

    async def _consume(self) -> None:
        add, work = self._stamps.add, self._work()
        asked_records = 1 if self._busy >= LONG_SECONDS else ASKED_RECORDS
        async for message in self._consumer:
            now = clock_ns()
            if self._first_ns is None:
                self._first_ns = now
            add(message.partition, message.offset, now)
            if message.partition == self._one_of:
                self._consumer.pause(self._one_at)
                self._ones += 1
                if self._one is not None and not self._one.done():
                    self._one.set_result(now)
            if work is not None:
                await work()
                if len(self._stamps) % asked_records == 0:
                    await asyncio.sleep(0)

    def _work(self) -> Work | None:
        if "work" in self._options:
            return _WORK[self._options["work"]](self._busy)
        return Pace(self._busy).take if self._busy else None

    async def do_stop(self, request: dict[str, Any]) -> dict[str, Any]:
        called_ns = clock_ns()
        if self._consumer is None:
            return {"called_ns": called_ns, "stopped_ns": called_ns, "story": []}
        if self._client == "loadtrim":
            # As SIGTERM does: the record in hand is finished. The process itself goes on.
            self._consumer._client.end_iteration(False)
        elif self._task is not None:
            self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            if self._task is not None:
                await self._task
        agent = self._link.agent if self._client == "loadtrim" else None
        await self._consumer.stop()
        stopped_ns = clock_ns()
        self._consumer = None
        return {"called_ns": called_ns, "stopped_ns": stopped_ns, "story": _story(agent) if agent else []}

    async def do_state(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._consumer is None:
            return {"member": "", "generation": -1, "owned": [], "leader": ""}
        return await self._link.run(_state(self._link.need_agent()))

    async def do_story(self, request: dict[str, Any]) -> dict[str, Any]:
        async def look() -> list[StoryStep]:
            return _story(self._link.need_agent())

        return {"story": await self._link.run(look())}

    @property
    def _link(self) -> AgentLink:
        """Return the link to a started consumer's agent. Its thread alone may look into it."""
        link: AgentLink = self._consumer._client.link
        return link

    async def do_count(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"count": len(self._stamps), "first_ns": self._first_ns, "ones": self._ones}

    async def do_vitals(self, request: dict[str, Any]) -> dict[str, Any]:
        async def count() -> int:
            return len(asyncio.all_tasks())

        of_agent = 0 if self._consumer is None else await self._link.run(count()) - 1  # the one that counts
        return {"tasks": await count() + of_agent}

    async def do_take(self, request: dict[str, Any]) -> dict[str, Any]:
        self._one = asyncio.get_running_loop().create_future()
        called_ns = clock_ns()
        self._consumer.seek(self._one_at, request["offset"])
        self._consumer.resume(self._one_at)
        first_ns = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(request["seconds"]):
                first_ns = await self._one
        return {"called_ns": called_ns, "first_ns": first_ns}

    @property
    def _one_at(self) -> TopicPartition:
        return TopicPartition(self._options["topic"], self._one_of)

    async def do_save(self, request: dict[str, Any]) -> dict[str, Any]:
        path = Path(self._options["directory"]) / f"{os.environ['LOADTRIM_INSTANCE']}.stamps"
        self._stamps.save(path)
        return {"path": str(path), "count": len(self._stamps)}


async def _state(agent: Agent) -> dict[str, Any]:
    membership = agent.snapshot()
    return {
        "member": membership.member,
        "generation": membership.generation,
        "leader": membership.leader,
        "stable": membership.stable,
        "members": len(membership.assignment.members) if membership.assignment is not None else 0,
        "owned": sorted(p.partition for p, stream in agent.buffer.streams.items() if stream.running),
    }


def _story(agent: Agent) -> list[StoryStep]:
    """Return the steps that benchmarks look at."""
    from loadtrim_agent.protocol import commands as c
    from loadtrim_agent.protocol import events as e
    from loadtrim_agent.wire.ownership_records import ReleaseRecord

    steps: list[StoryStep] = []
    for at, entry in agent.trace():
        kind = type(entry).__name__
        match entry:
            case c.SendJoinCommand() | c.SendLeaveCommand():
                steps.append((kind, at, None))
            case c.EnteredCommand():
                steps.append((kind, at, entry.generation))
            case c.StopCommand() | c.OpenCommand() | c.RunCommand():
                steps.append((kind, at, entry.partition.partition))
            case c.SendCommitCommand():
                steps += [(kind, at, p.partition) for p in entry.offsets]
            case e.CommitAnsweredEvent():
                steps += [(kind, at, p.partition) for p in entry.codes]
            case c.AppendCommand() if isinstance(entry.record, ReleaseRecord):
                steps.append((kind, at, entry.record.partition))
            case e.LogReadEvent() if isinstance(entry.record, ReleaseRecord):
                steps.append((kind, at, entry.record.partition))
            case _:
                pass
    return steps


async def main() -> None:
    worker = BenchmarkWorker(json.loads(sys.argv[1]))
    await serve(worker.handle)
    await worker.do_stop({})


if __name__ == "__main__":
    asyncio.run(main())
