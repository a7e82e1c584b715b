"""How often a broker is tried that takes no connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError, KafkaError, NodeNotReadyError
from aiokafka.structs import BrokerMetadata

from loadtrim_agent.kafka import pool as module
from loadtrim_agent.kafka.connections import (
    RECONNECT_SECONDS_MAX,
    Backoff,
    Channel,
    Connections,
    Coordinator,
    TokensOfUser,
)
from loadtrim_agent.kafka.pool import ConnectionPool
from walks.broker import memory_broker

NODE = 1


def tries(caplog: pytest.LogCaptureFixture) -> int:
    return sum("Unable connect to node" in record.getMessage() for record in caplog.records)


@pytest.mark.looptime
async def test_a_node_that_refuses_is_left_alone_by_every_channel(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise ConnectionRefusedError("no")

    caplog.set_level(logging.ERROR, logger="aiokafka")
    monkeypatch.setattr(module, "create_conn", refuse)
    loop = asyncio.get_running_loop()
    connections = Connections({"bootstrap_servers": "127.0.0.1:9", "retry_backoff_ms": 100})
    connections.client.cluster._brokers[NODE] = BrokerMetadata(NODE, "127.0.0.1", 9, None)
    waits = []
    for _ in range(6):
        begun, before = loop.time(), tries(caplog)
        while tries(caplog) == before:
            for channel in Channel:
                with pytest.raises(NodeNotReadyError):
                    await connections.send(NODE, channel, None, timeout=5.0)
            await asyncio.sleep(0.01)
        assert tries(caplog) == before + 1, "one channel tried, the others failed at once"
        waits.append(loop.time() - begun)
    await connections.close()

    assert waits[1:] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0], abs=0.02)


async def test_a_node_that_answers_again_is_tried_at_once_the_next_time() -> None:
    backoff = Backoff(0.1)
    assert [backoff.failed() for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.succeeded()
    assert backoff.failed() == 0.1


class Reached:
    """A connection that stands; of its two nodes the first answers no request."""

    def __init__(self, node: int) -> None:
        self._node = node
        self._requests: list[object] = []
        self._open = True

    def connected(self) -> bool:
        return self._open

    def close(self, reason: object = None) -> None:
        self._open = False

    async def send(self, request: object) -> SimpleNamespace:
        if self._node == NODE:
            self._requests.append(request)
            await asyncio.Event().wait()
        return SimpleNamespace(brokers=["some"])


@pytest.fixture
def reached() -> list[Reached]:
    """All connections that were made."""
    return []


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch, reached: list[Reached]) -> Callable[..., Connections]:
    """Makes connections to two nodes, of which the first takes connections and never answers."""

    def made(connect_timeout: float, *, hangs_at: str = "connect") -> Connections:
        async def create_conn(host: str, port: int, **_: object) -> Reached:
            if port == NODE and hangs_at == "connect":
                await asyncio.Event().wait()
            reached.append(Reached(port))
            return reached[-1]

        monkeypatch.setattr(module, "create_conn", create_conn)
        monkeypatch.setattr(module.AnswersProtocol, "take_over", lambda connection: None)
        settings = {"bootstrap_servers": "127.0.0.1:9"}
        connections = Connections(settings, ConnectionPool(settings, connect_timeout=connect_timeout))
        for node in (NODE, NODE + 1):
            connections.client.cluster._brokers[node] = BrokerMetadata(node, "127.0.0.1", node, None)
        monkeypatch.setattr(connections.client, "force_metadata_update", lambda: None)
        return connections

    return made


@pytest.mark.looptime
async def test_no_answer_in_time_closes_the_connection(
    hanging: Callable[..., Connections], reached: list[Reached]
) -> None:
    """What hangs in it would be taken for the answer to the next request."""
    connections = hanging(2.0, hangs_at="request")
    with pytest.raises(TimeoutError):
        await connections.send(NODE, Channel.TAIL, None, timeout=0.05)
    assert [each.connected() for each in reached] == [False]


@pytest.mark.looptime
async def test_a_node_that_takes_connections_and_never_answers_is_given_up(
    hanging: Callable[..., Connections],
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
    hanging: Callable[..., Connections],
) -> None:
    """On a machine without a core to spare no try would ever come to its end."""
    client, loop = hanging(2.0).client, asyncio.get_running_loop()
    limits = []
    for _ in range(5):
        begun = loop.time()
        assert not await client.ready(NODE)
        limits.append(loop.time() - begun)
        await asyncio.sleep(RECONNECT_SECONDS_MAX)
    assert limits == pytest.approx([2.0, 4.0, 8.0, 10.0, 10.0])
    assert await client.ready(NODE + 1)


@pytest.mark.looptime
async def test_a_node_that_never_answers_holds_up_no_connection_to_another(
    hanging: Callable[..., Connections],
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
    hanging: Callable[..., Connections], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen broker was asked who leads, for ``request_timeout_ms``: its partitions had long been led by another."""
    client = hanging(2.0, hangs_at="request").client
    draws = iter(([NODE, NODE + 1], [NODE + 1, NODE]))
    monkeypatch.setattr(
        "loadtrim_agent.kafka.connections.random.shuffle", lambda nodes: nodes.__setitem__(slice(None), next(draws))
    )
    monkeypatch.setattr(client.cluster, "update_metadata", lambda metadata: None)
    begun = asyncio.get_running_loop().time()
    async with asyncio.timeout(60.0):
        assert await client._metadata_update(client.cluster, ["topic"])
    assert asyncio.get_running_loop().time() - begun == pytest.approx(2.0)


async def test_what_breaks_an_update_of_the_metadata_does_not_end_the_updates(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task that makes them ended, and in silence: every later wait for metadata lasted for ever."""
    async with memory_broker({"topic": 1}) as broker, asyncio.timeout(30.0):
        connections = Connections({"bootstrap_servers": f"127.0.0.1:{broker.port}"})
        await connections.start()
        client = connections.client
        broken = [LookupError("no such thing"), LookupError("no such thing"), None, LookupError("no such thing")]
        ask = client._ask_for_metadata

        async def break_at_times(*given: Any) -> bool:
            error = broken.pop(0)
            if error is not None:
                raise error
            return await ask(*given)

        monkeypatch.setattr(client, "_ask_for_metadata", break_at_times)
        assert [await client.force_metadata_update() for _ in range(4)] == [False, False, True, False]
        await connections.close()
    assert sum("metadata broke" in line for line in caplog.messages) == 2, "once, until one succeeds"


async def test_where_all_brokers_were_replaced_the_bootstrap_servers_are_asked() -> None:
    """A member that was cut off meanwhile asked the old ones, for the rest of its life."""
    async with memory_broker({"topic": 1}) as broker, asyncio.timeout(30.0):
        connections = Connections({"bootstrap_servers": f"127.0.0.1:{broker.port}"})
        await connections.start()
        cluster = connections.client.cluster
        there = cluster.brokers()
        cluster._brokers = {9: BrokerMetadata(9, "127.0.0.1", 1, None)}
        assert await connections.client.force_metadata_update()
        assert cluster.brokers() == there
        await connections.close()


async def test_the_coordinator_that_is_silent_is_not_asked_for_the_next_one(
    hanging: Callable[..., Connections], monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, asked = looked_up(hanging(2.0), monkeypatch, draws=(NODE, NODE, NODE + 1), coordinators=(NODE, NODE))
    await coordinator.find()
    await coordinator.find()
    assert asked == [NODE, NODE + 1]


async def test_a_lookup_tells_whether_another_broker_took_over(
    hanging: Callable[..., Connections], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = (NODE, NODE, NODE + 1, NODE + 1)
    coordinator, _ = looked_up(hanging(2.0), monkeypatch, draws=(NODE + 2,) * 4, coordinators=found)
    assert [await coordinator.find() for _ in found] == [False, False, True, False]


@pytest.mark.parametrize(
    ("draws", "away"), [((NODE + 2, NODE, NODE, NODE + 2, NODE + 2), True), ((NODE + 2,) * 4, False)]
)
async def test_a_coordinator_that_was_away_may_have_started_again_and_another_broker_that_is_says_nothing(
    hanging: Callable[..., Connections], monkeypatch: pytest.MonkeyPatch, draws: tuple[int, ...], *, away: bool
) -> None:
    connections = hanging(2.0)
    coordinator, _ = looked_up(connections, monkeypatch, draws=draws, coordinators=(NODE,) * 3)
    await coordinator.find()
    send = connections.send

    async def fail(*args: object, **options: object) -> None:
        raise KafkaConnectionError

    monkeypatch.setattr(connections, "send", fail)
    with pytest.raises(KafkaConnectionError):
        await coordinator.find()
    monkeypatch.setattr(connections, "send", send)
    assert await coordinator.find() == away
    assert not await coordinator.find(), "it is told once"


async def test_a_coordinator_that_cannot_be_connected_to_was_away(
    hanging: Callable[..., Connections], monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = hanging(2.0)
    coordinator, _ = looked_up(connections, monkeypatch, draws=(NODE + 2,) * 3, coordinators=(NODE,) * 3)
    await coordinator.find()
    connect = connections.connect

    async def fail(node: int, channel: Channel) -> None:
        raise KafkaConnectionError

    monkeypatch.setattr(connections, "connect", fail)
    with pytest.raises(KafkaConnectionError):
        await coordinator.find()
    monkeypatch.setattr(connections, "connect", connect)
    assert await coordinator.find()


def looked_up(
    connections: Connections, monkeypatch: pytest.MonkeyPatch, *, draws: tuple[int, ...], coordinators: tuple[int, ...]
) -> tuple[Coordinator, list[int]]:
    """A coordinator that is looked up at these nodes, is said to be these, and the nodes that were asked."""
    drawn, said, asked = iter(draws), iter(coordinators), list[int]()

    async def send(node: int, channel: Channel, request: object, *, timeout: float) -> SimpleNamespace:
        asked.append(node)
        return SimpleNamespace(error_code=0, coordinator_id=next(said))

    async def connect(node: int, channel: Channel) -> None: ...

    monkeypatch.setattr(connections.client, "get_random_node", lambda: next(drawn))
    monkeypatch.setattr(connections, "send", send)
    monkeypatch.setattr(connections, "connect", connect)
    return Coordinator(connections, "group"), asked


class CancelledProvider(AbstractTokenProvider):  # type: ignore[misc]
    """The user's own task for tokens was cancelled."""

    async def token(self) -> str:
        raise asyncio.CancelledError


async def test_a_token_that_is_cancelled_in_user_code_is_a_connection_that_failed() -> None:
    """It ended the agent's task, a heartbeat say, without a word."""
    tokens = TokensOfUser(CancelledProvider(), asyncio.get_running_loop(), timeout=5.0, again_after=2.0)
    with pytest.raises(KafkaError, match="gave no token"):
        await tokens.token()


class SlowProvider(AbstractTokenProvider):  # type: ignore[misc]
    """The user's identity provider takes its time."""

    def __init__(self) -> None:
        self.asked = 0
        self.cancelled = 0

    async def token(self) -> str:
        self.asked += 1
        number = self.asked
        try:
            await asyncio.sleep(12.0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return f"token {number}"


@pytest.mark.looptime
async def test_connections_that_are_made_together_share_one_token() -> None:
    """A group's start asked the identity provider as often as connections were made."""
    provider = SlowProvider()
    tokens = TokensOfUser(provider, asyncio.get_running_loop(), timeout=40.0, again_after=20.0)
    first = asyncio.create_task(tokens.token())
    await asyncio.sleep(5.0)
    assert await asyncio.gather(first, tokens.token()) == ["token 1", "token 1"]
    assert await tokens.token() == "token 2", "what is asked for later is asked anew: the first may be out of date"


@pytest.mark.looptime
async def test_a_call_for_a_token_ends_with_the_last_that_waits_for_it() -> None:
    provider = SlowProvider()
    tokens = TokensOfUser(provider, asyncio.get_running_loop(), timeout=40.0, again_after=20.0)
    first, second = (asyncio.create_task(tokens.token()) for _ in range(2))
    await asyncio.sleep(1.0)
    first.cancel()
    assert await second == "token 1"
    third = asyncio.create_task(tokens.token())
    await asyncio.sleep(1.0)
    third.cancel()
    await asyncio.sleep(1.0)
    assert (provider.asked, provider.cancelled) == (2, 1)
    assert await tokens.token() == "token 3"


@pytest.mark.looptime
async def test_a_token_that_does_not_come_in_time_is_asked_for_anew() -> None:
    provider = SlowProvider()
    tokens = TokensOfUser(provider, asyncio.get_running_loop(), timeout=10.0, again_after=20.0)
    first = asyncio.create_task(tokens.token())
    await asyncio.sleep(5.0)
    for each in await asyncio.gather(first, tokens.token(), return_exceptions=True):
        assert isinstance(each, TimeoutError)
        assert "sasl_oauth_token_provider has not returned a token for 10 s" in str(each)
    assert asyncio.get_running_loop().time() == pytest.approx(10.0)
    assert (provider.asked, provider.cancelled) == (1, 1)


class CalledProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Each call of the user's identity provider takes its time, and returns a token or raises."""

    def __init__(self, *calls: tuple[float, Exception | None]) -> None:
        self._calls = calls
        self.asked = 0
        self.ended = 0

    async def token(self) -> str:
        seconds, error = self._calls[self.asked]
        self.asked += 1
        number = self.asked
        try:
            await asyncio.sleep(seconds)
        finally:
            self.ended += 1
        if error is not None:
            raise error
        return f"token {number}"


HANGS = 3600.0
DOWN = KafkaError("down")


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("calls", "token", "seconds"),
    [
        ([(HANGS, None), (0.5, None)], "token 2", 2.5),
        ([(3.0, None), (HANGS, None)], "token 1", 3.0),
        ([(3.0, None), (0.5, DOWN)], "token 1", 3.0),
        ([(2.2, DOWN), (0.5, None)], "token 2", 2.5),
        ([(1.0, None)], "token 1", 1.0),
    ],
)
async def test_a_call_for_a_token_that_hangs_is_made_once_more(
    calls: list[tuple[float, Exception | None]], token: str, seconds: float
) -> None:
    """All connections shared the call that hung, for longer than a session lasts."""
    provider = CalledProvider(*calls)
    tokens = TokensOfUser(provider, asyncio.get_running_loop(), timeout=40.0, again_after=2.0)
    assert await asyncio.gather(tokens.token(), tokens.token()) == [token, token]
    assert asyncio.get_running_loop().time() == pytest.approx(seconds)
    await asyncio.sleep(0.1)
    assert provider.ended == provider.asked == len(calls), "the call that lost is cancelled"


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("calls", "seconds"), [([(1.0, DOWN)], 1.0), ([(5.0, TimeoutError("first")), (1.0, DOWN)], 5.0)]
)
async def test_what_the_last_call_for_a_token_raises_is_raised(
    calls: list[tuple[float, Exception | None]], seconds: float
) -> None:
    provider = CalledProvider(*calls)
    tokens = TokensOfUser(provider, asyncio.get_running_loop(), timeout=40.0, again_after=2.0)
    with pytest.raises((KafkaError, TimeoutError), match="first|down") as raised:
        await tokens.token()
    assert repr(raised.value) == repr(calls[0][1])
    assert asyncio.get_running_loop().time() == pytest.approx(seconds)
