"""How often a broker is tried that takes no connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError, NodeNotReadyError
from aiokafka.structs import BrokerMetadata

from loadtrim.testing.ports import free_ports
from loadtrim_agent.kafka import connections as module
from loadtrim_agent.kafka.connections import Backoff, Channel, Connections, Coordinator, TokensOfUser

NODE = 1


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def tries(caplog: pytest.LogCaptureFixture) -> int:
    return sum("Unable connect to node" in record.getMessage() for record in caplog.records)


async def test_a_node_that_refuses_is_left_alone_by_every_lane(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.ERROR, logger="aiokafka")
    clock = Clock()
    monkeypatch.setattr(module, "boot_time", clock)
    (port,) = free_ports(1)
    connections = Connections({"bootstrap_servers": f"127.0.0.1:{port}", "retry_backoff_ms": 100})
    connections.client.cluster._brokers[NODE] = BrokerMetadata(NODE, "127.0.0.1", port, None)
    waits = []
    for _ in range(6):
        begun, before = clock.now, tries(caplog)
        while tries(caplog) == before:
            for channel in Channel:
                with pytest.raises(NodeNotReadyError):
                    await connections.send(NODE, channel, None, timeout=5.0)
            clock.now += 0.01
        assert tries(caplog) == before + 1, "one channel tried, the others failed at once"
        waits.append(clock.now - begun)
    await connections.close()

    assert waits[1:] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0], abs=0.02)


async def test_a_node_that_answers_again_is_tried_at_once_the_next_time() -> None:
    backoff = Backoff(0.1)
    assert [backoff.failed() for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.succeeded()
    assert backoff.failed() == 0.1


async def test_no_answer_in_time_closes_the_connection() -> None:
    """What hangs in it would be taken for the answer to the next request."""
    closed = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        closed.set()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connections = Connections({"bootstrap_servers": f"127.0.0.1:{port}"})
    connections.client.cluster._brokers[NODE] = BrokerMetadata(NODE, "127.0.0.1", port, None)
    async with server:
        with pytest.raises(TimeoutError):
            await connections.send(NODE, Channel.TAIL, None, timeout=0.05)
        await asyncio.wait_for(closed.wait(), 5.0)
    await connections.close()


class Reached:
    """A connection that stands."""

    def connected(self) -> bool:
        return True

    def close(self) -> None: ...


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Connections]:
    """Makes connections to two nodes, of which the first takes connections and never answers."""

    async def create_conn(host: str, port: int, **_: object) -> Reached:
        if port == NODE:
            await asyncio.Event().wait()
        return Reached()

    def made(connect_timeout: float) -> Connections:
        monkeypatch.setattr("aiokafka.client.create_conn", create_conn)
        connections = Connections({"bootstrap_servers": "127.0.0.1:9"}, connect_timeout=connect_timeout)
        for node in (NODE, NODE + 1):
            connections.client.cluster._brokers[node] = BrokerMetadata(node, "127.0.0.1", node, None)
        monkeypatch.setattr(connections.client, "force_metadata_update", lambda: None)
        return connections

    return made


@pytest.mark.looptime
async def test_a_node_that_takes_connections_and_never_answers_is_given_up(
    hanging: Callable[[float], Connections],
) -> None:
    """The lookup of the coordinator hung in it for ``request_timeout_ms``, and another had long been elected."""
    connections = hanging(2.0)
    begun = asyncio.get_running_loop().time()
    with pytest.raises(NodeNotReadyError):
        async with asyncio.timeout(60.0):
            await connections.connect(NODE, Channel.HEARTBEAT)
    assert asyncio.get_running_loop().time() - begun == pytest.approx(2.0)


@pytest.mark.looptime
async def test_a_node_that_is_slow_to_take_connections_is_given_longer_each_time(
    hanging: Callable[[float], Connections],
) -> None:
    """On a machine without a core to spare no try would ever come to its end."""
    client, loop = hanging(2.0).client, asyncio.get_running_loop()
    limits = []
    for _ in range(5):
        begun = loop.time()
        assert not await client.ready(NODE)
        limits.append(loop.time() - begun)
    assert limits == pytest.approx([2.0, 4.0, 8.0, 10.0, 10.0])
    assert await client.ready(NODE + 1)


@pytest.mark.looptime
async def test_a_node_that_never_answers_holds_up_no_connection_to_another(
    hanging: Callable[[float], Connections],
) -> None:
    """aiokafka makes one connection at a time: heartbeats to the new coordinator waited for the old one."""
    connections = hanging(10.0)
    begun = asyncio.get_running_loop().time()
    hangs = asyncio.create_task(connections.connect(NODE, Channel.JOIN))
    await asyncio.sleep(0)
    async with asyncio.timeout(60.0):
        await connections.connect(NODE + 1, Channel.HEARTBEAT)
    assert asyncio.get_running_loop().time() == begun
    hangs.cancel()
    await asyncio.gather(hangs, return_exceptions=True)


@pytest.mark.looptime
async def test_metadata_that_a_node_does_not_answer_is_asked_of_another(
    hanging: Callable[[float], Connections], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen broker was asked who leads, for ``request_timeout_ms``: its partitions had long been led by another."""
    client = hanging(2.0).client

    class Connection(Reached):
        def __init__(self, node: int) -> None:
            self.node = node

        async def send(self, request: object) -> SimpleNamespace:
            if self.node == NODE:
                await asyncio.Event().wait()
            return SimpleNamespace(brokers=["some"])

    async def connection(node: int, **_: object) -> Connection:
        return Connection(node)

    monkeypatch.setattr(client, "_get_conn", connection)
    draws = iter(([NODE, NODE + 1], [NODE + 1, NODE]))
    monkeypatch.setattr("aiokafka.client.random.shuffle", lambda nodes: nodes.__setitem__(slice(None), next(draws)))
    monkeypatch.setattr(client.cluster, "update_metadata", lambda metadata: None)
    begun = asyncio.get_running_loop().time()
    async with asyncio.timeout(60.0):
        assert await client._metadata_update(client.cluster, ["topic"])
    assert asyncio.get_running_loop().time() - begun == pytest.approx(2.0)


async def test_the_coordinator_that_is_silent_is_not_asked_for_the_next_one(
    hanging: Callable[[float], Connections], monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = hanging(2.0)
    coordinator = Coordinator(connections, "group")
    draws = iter((NODE, NODE, NODE + 1))
    asked = []

    async def send(node: int, channel: Channel, request: object, *, timeout: float) -> SimpleNamespace:
        asked.append(node)
        return SimpleNamespace(error_code=0, coordinator_id=NODE)

    async def connect(node: int, channel: Channel) -> None: ...

    monkeypatch.setattr(connections.client, "get_random_node", lambda: next(draws))
    monkeypatch.setattr(connections, "send", send)
    monkeypatch.setattr(connections, "connect", connect)
    await coordinator.find()
    await coordinator.find()
    assert asked == [NODE, NODE + 1]


class CancelledProvider(AbstractTokenProvider):  # type: ignore[misc]
    """The user's own task for tokens was cancelled."""

    async def token(self) -> str:
        raise asyncio.CancelledError


async def test_a_token_that_is_cancelled_in_user_code_is_a_connection_that_failed() -> None:
    """It ended the agent's task, a heartbeat say, without a word."""
    tokens = TokensOfUser(CancelledProvider(), asyncio.get_running_loop(), timeout=5.0)
    with pytest.raises(KafkaError, match="gave no token"):
        await tokens.token()
