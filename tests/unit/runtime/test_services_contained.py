"""Whatever breaks in planning, telemetry, scaling or observing, user code is handed records and commits them (I8)."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from loadtrim import Settings
from loadtrim_agent.delivery.loads_task import LoadsTask
from loadtrim_agent.delivery.metering_task import MeteringTask
from loadtrim_agent.kafka.control_log import ControlLog
from loadtrim_agent.leader.broker_rates import BrokerRates
from loadtrim_agent.leader.loop import LeaderLoop
from loadtrim_agent.leader.scaling.port import ScaleRequest
from loadtrim_agent.leader.scaling.reconciler import ScaleReconciler
from loadtrim_agent.leader.scaling.webhook import WebhookScaler
from loadtrim_agent.observability.metrics import Metrics
from loadtrim_agent.planning.planner import Planner
from loadtrim_agent.runtime.condition import AgentCondition
from loadtrim_agent.runtime.services import Services
from walks.scenes import GROUP, TOPIC, made, stage, until

RECORDS = 5
WANTED = ScaleRequest(group=GROUP, replicas=2, reason="two are asked for", generation=1, sequence=1)

BREAKING: list[tuple[str, type[Any], str, str]] = [
    ("planning", Planner, "decide", "planning"),
    ("planning", LeaderLoop, "_act", "planning"),
    ("planning", BrokerRates, "look", "planning"),
    ("planning", ControlLog, "telemetry", "planning"),
    ("telemetry", MeteringTask, "gather", "gathering"),
    ("telemetry", MeteringTask, "report", "reports"),
    ("telemetry", LoadsTask, "run", "loads"),
    ("telemetry", MeteringTask, "fetched", "fetched"),
    ("telemetry", MeteringTask, "acquired", "acquired"),
    ("scaling", WebhookScaler, "request", "scaler"),
    ("scaling", ScaleReconciler, "_tell", "scaler"),
    ("observing", Metrics, "plan", "planning"),
    ("observing", Services, "entered", "entered"),
    ("observing", Services, "heartbeat", "heartbeat"),
    ("observing", Services, "read", "read"),
    ("observing", AgentCondition, "watch_loop", "watch"),
]
"""A room, what breaks in it, and where the break is counted."""


@pytest.mark.parametrize("breaking", BREAKING, ids=lambda each: f"{each[0]}: {each[1].__name__}.{each[2]}")
async def test_what_breaks_beside_it_never_stops_the_consumer(
    breaking: tuple[str, type[Any], str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, part, method, where = breaking

    def breaks(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError(f"{method} broke")

    async def breaks_later(*_: Any, **__: Any) -> Any:
        breaks()

    is_async = asyncio.iscoroutinefunction(getattr(part, method))
    monkeypatch.setattr(part, method, breaks_later if is_async else breaks)
    settings = Settings(
        http="off", decision_seconds=0.2, min_replicas=2, scaler="webhook", scaler_url="http://127.0.0.1:9/scale"
    )
    async with stage() as broker:
        one = made(broker, settings, heartbeat_interval_ms=200)
        await one.start()
        try:
            errors: Counter[str] = agent_of(one).observer._errors
            handed = await take_one(one, broker.send)
            if where == "scaler":  # before anything was measured the leader asks for nobody
                agent_of(one).observer._reconciler.want(WANTED)
            await until(lambda: errors[where] > 0)
            generation = agent_of(one).snapshot().generation
            while handed < RECORDS:
                handed = await take_one(one, broker.send)
            await one.commit()
            assert broker.committed(GROUP, TOPIC, 0) == RECORDS
            assert agent_of(one).snapshot().generation == generation, "no rebalance came of it"
            # A report gathers first, and one may be due before the consumer has done its records.
            with_it = {"reports"} if where == "gathering" else set()
            assert errors.keys() - with_it == {where}, "nothing else broke"
            assert [line for line in caplog.records if says(line, f"{method} broke")], caplog.text
        finally:
            await one.stop()
    assert not broker.groups[GROUP].members, "and it leaves as ever"


def says(line: logging.LogRecord, error: str) -> bool:
    """Return whether an operator reads of this error: in the text of a line, or in its traceback."""
    return line.levelno >= logging.WARNING and error in logging.Formatter().format(line)


def agent_of(one: Any) -> Any:
    return one._client.link.need_agent()


async def take_one(one: Any, send: Callable[..., Any]) -> int:
    """Return how many records were handed out with this one."""
    await send(TOPIC, 0, b"record")
    async with asyncio.timeout(10.0):
        record = await one.getone()
    return int(record.offset) + 1
