"""A process with the product in it: ``loadtrim.Consumer``, its agent, and a program of user code."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from prometheus_client import CollectorRegistry

import loadtrim.managed
import loadtrim_agent.common.daemon_call
import loadtrim_agent.runtime.agent
from loadtrim import Consumer
from loadtrim.settings import Settings
from loadtrim_agent.delivery.gate import DeliveryGate
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.runtime.agent import Agent
from loadtrim_agent.runtime.thread import AgentThread

from .kernel import EPOCH_SECONDS, Kernel, Process, SimLoop
from .network import FIRST_PORT, HOST

__all__ = ["GROUP", "SimConsumer", "WatchedGate", "foreign_consumer", "threads_in_charge", "transactional_producer"]

GROUP = "orders"
TRANSACTION_MS = 4_000


class _LoopThread(AgentThread):
    """The agent's thread, as one more loop of the simulated process."""

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self._sim = loop.process.loop()
        self._loop = self._sim

    @property
    def alive(self) -> bool:
        return not self._sim.stopped

    def where(self) -> str:
        return ""

    async def stop(self) -> None:
        self._sim.forget()


class _InlineThread:
    """A thread that has done all its work when it is started."""

    def __init__(self, target: Any, **_: Any) -> None:
        self._target = target

    def start(self) -> None:
        self._target()


class WatchedGate(DeliveryGate):
    """The product's gate of records, which tells of each change of the lease."""

    def __init__(self, buffer: RecordBuffer) -> None:
        self.on_lease: Callable[[float, float], None] = lambda before, until: None
        super().__init__(buffer)

    @property
    def lease_until(self) -> float:
        return super().lease_until

    @lease_until.setter
    def lease_until(self, until: float) -> None:
        before = self.lease_until
        DeliveryGate.lease_until.__set__(self, until)
        if until != before:  # not where records are held up, or no longer
            self.on_lease(before, until)


@contextlib.contextmanager
def threads_in_charge() -> Iterator[None]:
    """Within this block the product's threads are loops of simulated processes, or calls, and leases are watched."""
    managed, calls, agent = loadtrim.managed, loadtrim_agent.common.daemon_call, loadtrim_agent.runtime.agent
    before = managed.AgentThread, calls.threading, agent.DeliveryGate
    managed.AgentThread = _LoopThread  # type: ignore[misc]
    calls.threading = SimpleNamespace(Thread=_InlineThread)  # type: ignore[assignment]
    agent.DeliveryGate = WatchedGate  # type: ignore[misc]
    try:
        yield
    finally:
        managed.AgentThread, calls.threading, agent.DeliveryGate = before  # type: ignore[misc]


def _connection(kernel: Kernel) -> dict[str, Any]:
    return {
        "bootstrap_servers": [f"{HOST}:{FIRST_PORT + node}" for node in range(3)],
        "metadata_max_age_ms": int(kernel.rng.uniform(1_000, 5_000)),
        "retry_backoff_ms": 100,
    }


class SimConsumer(Consumer):
    """The product's consumer, with its agent in reach of the simulation.

    When its process was asked for is a setting: else it would ask this machine, which has a clock of its own.
    """

    def __init__(self, kernel: Kernel, name: str, *topics: str, settings: dict[str, Any], **kwargs: Any) -> None:
        given = {"requested_at": EPOCH_SECONDS + kernel.now} | settings
        super().__init__(
            *topics,
            settings=Settings(http="off", instance=name, **given),
            handle_signals=False,
            registry=CollectorRegistry(),
            group_id=GROUP,
            client_id=name,
            **(_connection(kernel) | kwargs),
        )

    @property
    def agent(self) -> Agent | None:
        """The agent, once there is one."""
        return self._client.link.agent  # type: ignore[union-attr]


def foreign_consumer(kernel: Kernel, name: str, *topics: str, **kwargs: Any) -> AIOKafkaConsumer:
    """Return a plain aiokafka consumer of the same group."""
    return AIOKafkaConsumer(*topics, group_id=GROUP, client_id=name, **(_connection(kernel) | kwargs))


def transactional_producer(kernel: Kernel, transactional_id: str) -> AIOKafkaProducer:
    """Return aiokafka's producer, of which an open transaction is aborted soon after its process has died."""
    return AIOKafkaProducer(
        transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_MS, **_connection(kernel)
    )


def process_of(consumer: Consumer) -> Process:  # pragma: no cover - for use in a debugger
    """Return the process that runs a consumer."""
    loop = asyncio.get_event_loop()
    assert isinstance(loop, SimLoop)
    return loop.process
