"""How often a broker is tried that takes no connections."""

from __future__ import annotations

import asyncio
import logging

import pytest
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError, NodeNotReadyError
from aiokafka.structs import BrokerMetadata

from loadtrim.testing.ports import free_ports
from loadtrim_agent.kafka import connections as module
from loadtrim_agent.kafka.connections import Backoff, Channel, Connections, TokensOfUser

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


class CancelledProvider(AbstractTokenProvider):  # type: ignore[misc]
    """The user's own task for tokens was cancelled."""

    async def token(self) -> str:
        raise asyncio.CancelledError


async def test_a_token_that_is_cancelled_in_user_code_is_a_connection_that_failed() -> None:
    """It ended the agent's task, a heartbeat say, without a word."""
    tokens = TokensOfUser(CancelledProvider(), asyncio.get_running_loop(), timeout=5.0)
    with pytest.raises(KafkaError, match="gave no token"):
        await tokens.token()
