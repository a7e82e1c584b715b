"""Receiving answers, from a broker that sends them in pieces of the test's choice."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.conn import CloseReason, create_conn
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.admin import ApiVersionResponse_v0
from aiokafka.protocol.fetch import FetchResponse_v10

from loadtrim_agent.kafka.connections import Backoff
from loadtrim_agent.kafka.fetch.channels import BrokerChannels, FetchChannel
from loadtrim_agent.kafka.fetch.fetch_group import FetchGroup
from loadtrim_agent.kafka.fetch.receiving import BUFFER_BYTES_MIN, AnswersProtocol, ReceivingClient

from .batches import request

WAIT_SECONDS = 20.0
FETCH, FETCH_VERSION, API_VERSIONS = 1, 10, 18


class Broker:
    """Takes one connection. Says which versions it knows; what else it sends is the test's."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[int] = asyncio.Queue()
        """Correlation ids of fetches."""
        self.writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                kind, _, correlation = struct.unpack_from(">hhi", await reader.readexactly(size))
                if kind == API_VERSIONS:
                    known = [(FETCH, 4, FETCH_VERSION), (API_VERSIONS, 0, 0)]
                    self.send(correlation, ApiVersionResponse_v0(0, known).encode())
                else:
                    self.asked.put_nowait(correlation)

    def send(self, correlation: int, body: bytes) -> None:
        self.write(framed(correlation, body))

    def write(self, data: bytes) -> None:
        assert self.writer is not None
        self.writer.write(data)

    async def next(self) -> int:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.asked.get()


def framed(correlation: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation) + body


def told(size_bytes: int, value: bytes = b"x") -> Any:
    return FetchResponse_v10(0, 0, 0, [("topic", [(0, 0, 1, 1, 0, None, value * size_bytes)])])


class Closed:
    def __init__(self) -> None:
        self.reasons: list[CloseReason] = []

    def __call__(self, connection: Any, reason: CloseReason) -> None:
        self.reasons.append(reason)


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[tuple[Any, Broker, Closed]]:
    broker, closed = Broker(), Closed()
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    connection = await create_conn("127.0.0.1", server.sockets[0].getsockname()[1], on_close=closed)
    AnswersProtocol.take_over(connection)
    try:
        yield connection, broker, closed
    finally:
        gone = connection.close(reason=CloseReason.SHUTDOWN)
        async with asyncio.timeout(WAIT_SECONDS):
            await gone
        server.close()
        if broker.writer is not None:
            broker.writer.close()


async def answer_of(asked: Any) -> Any:
    async with asyncio.timeout(WAIT_SECONDS):
        return await asked


async def ask(connection: Any, broker: Broker) -> tuple[asyncio.Task[Any], int]:
    asked = asyncio.ensure_future(connection.send(request()))
    return asked, await broker.next()


@pytest.mark.parametrize("size_bytes", [0, 1, 1_000, BUFFER_BYTES_MIN, 3_000_000])
async def test_answers_of_any_size_come_whole(size_bytes: int) -> None:
    """One after the other over the same connection, small ones behind large ones."""
    async with connected() as (connection, broker, closed):
        for number, size in enumerate([size_bytes, 10, size_bytes]):
            asked, correlation = await ask(connection, broker)
            answer = told(size, b"%d" % number)
            broker.send(correlation, answer.encode())
            assert vars(await answer_of(asked)) == vars(answer)
        assert closed.reasons == []


async def test_an_answer_comes_in_pieces() -> None:
    """Each byte of the head on its own, and the rest in two."""
    async with connected() as (connection, broker, _):
        asked, correlation = await ask(connection, broker)
        answer = told(200_000)
        data = framed(correlation, answer.encode())
        for at in range(12):
            broker.write(data[at : at + 1])
            await asyncio.sleep(0)
        for piece in (data[12:100_000], data[100_000:]):
            broker.write(piece)
            assert broker.writer is not None
            await broker.writer.drain()
        assert vars(await answer_of(asked)) == vars(answer)


async def test_answers_that_come_together_are_told_apart() -> None:
    async with connected() as (connection, broker, _):
        first, one = await ask(connection, broker)
        second, two = await ask(connection, broker)
        answers = [told(100, b"a"), told(300, b"b")]
        broker.write(framed(one, answers[0].encode()) + framed(two, answers[1].encode()))
        assert [vars(await answer_of(each)) for each in (first, second)] == [vars(each) for each in answers]


async def test_the_buffer_is_small_again_when_answers_are() -> None:
    async with connected() as (connection, broker, _):
        protocol = connection._writer.transport.get_protocol()
        for size, least, most in ((5_000_000, 5_000_000, 5_100_000), (10, BUFFER_BYTES_MIN, BUFFER_BYTES_MIN)):
            asked, correlation = await ask(connection, broker)
            broker.send(correlation, told(size).encode())
            await answer_of(asked)
            if size > BUFFER_BYTES_MIN:
                assert least <= len(protocol._buffer) <= most
        assert len(protocol._buffer) == BUFFER_BYTES_MIN


async def test_who_gave_up_waiting_does_not_disturb_the_next() -> None:
    async with connected() as (connection, broker, closed):
        given_up, one = await ask(connection, broker)
        given_up.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await given_up
        broker.send(one, told(5).encode())
        asked, two = await ask(connection, broker)
        broker.send(two, told(7).encode())
        assert vars(await answer_of(asked)) == vars(told(7))
        assert closed.reasons == []


@pytest.mark.parametrize("sent_bytes", [0, 3, 500, 500_000])
async def test_a_broker_that_goes_away_is_noticed_at_once(sent_bytes: int) -> None:
    """Also in the middle of an answer that is waited for as a whole."""
    async with connected() as (connection, broker, closed):
        asked, correlation = await ask(connection, broker)
        broker.write(framed(correlation, told(1_000_000).encode())[:sent_bytes])
        assert broker.writer is not None
        broker.writer.close()
        with pytest.raises(KafkaConnectionError):
            await answer_of(asked)
        assert closed.reasons == [CloseReason.CONNECTION_BROKEN]
        assert not connection.connected()


@pytest.mark.parametrize(
    "nonsense",
    [
        pytest.param(lambda one: framed(one + 1, told(5).encode()), id="another correlation id"),
        pytest.param(lambda one: framed(one, told(5).encode()[:-3]), id="cut off"),
        pytest.param(lambda one: struct.pack(">ii", -5, one), id="a negative length"),
        pytest.param(lambda one: struct.pack(">ii", (1 << 31) - 1, one), id="a length above every limit"),
    ],
)
async def test_what_is_no_answer_closes_the_connection(nonsense: Any) -> None:
    async with connected() as (connection, broker, closed):
        asked, correlation = await ask(connection, broker)
        broker.write(nonsense(correlation))
        with pytest.raises(KafkaConnectionError):
            await answer_of(asked)
        assert closed.reasons == [CloseReason.OUT_OF_SYNC]


async def test_an_answer_to_nothing_closes_the_connection() -> None:
    async with connected() as (connection, broker, closed):
        asked, correlation = await ask(connection, broker)
        answer = framed(correlation, told(5).encode())
        broker.write(answer + answer)
        await answer_of(asked)
        async with asyncio.timeout(WAIT_SECONDS):
            await connection._closed_fut
        assert closed.reasons == [CloseReason.OUT_OF_SYNC]


async def taken_over(group: Any, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Does a client's connection of this kind receive as told here?"""
    taken: list[Any] = []
    made = SimpleNamespace(connected=lambda: True)

    async def get(self: AIOKafkaClient, node: int, **options: Any) -> Any:
        return made

    monkeypatch.setattr(AIOKafkaClient, "_get_conn", get)
    monkeypatch.setattr(AnswersProtocol, "take_over", taken.append)
    assert await ReceivingClient()._get_conn(1, group=group) is made
    return taken == [made]


@pytest.mark.parametrize("number", [0, 1, 7])
@pytest.mark.parametrize("channel", FetchChannel)
async def test_every_bundle_receives_so(number: int, channel: FetchChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    channels = BrokerChannels(1, wait_ms=500, has_room=lambda state: True)
    assert await taken_over(FetchGroup(channels, number, Backoff(0.1)).connection(channel), monkeypatch)


@pytest.mark.parametrize("group", [None, ConnectionGroup.DEFAULT, "coordinator"])
async def test_nothing_else_does(group: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not await taken_over(group, monkeypatch)
