"""The benchmarks' worker over a broker in this process: what it answers is what benchmarks of moves are made from."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from benchmarks.suite.worker import BenchmarkWorker

from walks.broker import MemoryBroker, memory_broker

GROUP, TOPIC = "bench", "orders"


def worker_of(broker: MemoryBroker, **options: Any) -> BenchmarkWorker:
    place = {"bootstrap": f"127.0.0.1:{broker.port}", "topic": TOPIC, "group": GROUP, "directory": "."}
    return BenchmarkWorker({**place, **options})


async def until_counted(worker: BenchmarkWorker, records: int) -> None:
    async with asyncio.timeout(10.0):
        while (await worker.do_count({}))["count"] < records:  # noqa: ASYNC110 - records come over a socket
            await asyncio.sleep(0.002)


async def test_a_worker_starts_tells_its_state_and_story_and_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADTRIM_HTTP", "off")
    async with memory_broker({TOPIC: 2, f"__loadtrim.{GROUP}": 2}) as broker:
        worker = worker_of(broker)
        assert (await worker.do_state({}))["generation"] == -1

        started = await worker.handle({"do": "start"})
        assert started["started_ns"] > started["called_ns"]
        await broker.send(TOPIC, 0, b"one", b"two")
        await until_counted(worker, 2)

        state = await worker.handle({"do": "state"})
        assert (state["member"], state["leader"], state["generation"]) == ("member-1", "member-1", 1)
        assert (state["stable"], state["members"], state["owned"]) == (True, 1, [0, 1])

        story = (await worker.handle({"do": "story"}))["story"]
        steps = [(kind, of) for kind, _, of in story]
        assert steps[0] == ("SendJoinCommand", None)
        assert ("EnteredCommand", 1) in steps
        for partition in (0, 1):
            way = [kind for kind, of in steps if of == partition and kind in ("OpenCommand", "RunCommand")]
            assert way[:2] == ["OpenCommand", "RunCommand"]
            assert ("SendCommitCommand", partition) in steps, "there was no commit, so the start is committed"
        assert [at for _, at, _ in story] == sorted(at for _, at, _ in story)

        stopped = await worker.handle({"do": "stop"})
        assert stopped["stopped_ns"] > stopped["called_ns"]
        assert stopped["story"][: len(story)] == story
        assert "SendLeaveCommand" in [kind for kind, _, _ in stopped["story"]]
        assert broker.committed(GROUP, TOPIC, 0) == 2, "the record in hand was finished"
        assert (await worker.do_state({}))["generation"] == -1
