"""Receiving answers, from a broker that sends them in pieces of the test's choice."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka.conn import CloseReason, create_conn
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.admin import ApiVersionRequest, ApiVersionResponse_v0
from aiokafka.protocol.fetch import FetchResponse_v10

from loadtrim_agent.kafka.receiving import BUFFER_BYTES_MIN, AnswersProtocol

from .fetch.batches import request

WAIT_SECONDS = 20.0
FETCH, FETCH_VERSION, API_VERSIONS = 1, 10, 18


class Broker:
    """Takes one connection. Says which versions it knows; what else it sends is the test's."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[int] = asyncio.Queue()
        """Correlation ids of fetches."""
        self.writer: asyncio.StreamWriter | None = None
        self.spoils_versions = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                kind, _, correlation = struct.unpack_from(">hhi", await reader.readexactly(size))
                if kind == API_VERSIONS:
                    known = [(FETCH, 4, FETCH_VERSION), (API_VERSIONS, 0, 0)]
                    answer = ApiVersionResponse_v0(0, known).encode()
                    self.send(correlation, answer[:-3] if self.spoils_versions else answer)
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


async def test_what_has_come_of_an_answer_is_read_before_the_rest_comes() -> None:
    """A broker sends the rest only when what it sent is acknowledged, and what lies unread may be late in that."""
    async with connected() as (connection, broker, _):
        asked, correlation = await ask(connection, broker)
        answer = told(1_000_000)
        data = framed(correlation, answer.encode())
        protocol = connection._writer.transport.get_protocol()
        for sent_bytes in (300_000, 600_000):
            broker.write(data[protocol._filled : sent_bytes])
            async with asyncio.timeout(WAIT_SECONDS):
                while protocol._filled < sent_bytes:  # noqa: ASYNC110 - what is waited for happens in the code under test
                    await asyncio.sleep(0.001)
        broker.write(data[sent_bytes:])
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


async def test_the_answer_to_another_request_is_taken_apart_by_aiokafka() -> None:
    """Any request may follow a fetch on its connection, and a fetch may follow any."""
    async with connected() as (connection, broker, closed):
        for _ in range(2):
            answer = await answer_of(connection.send(ApiVersionRequest()))
            assert list(answer.api_versions) == [(FETCH, 4, FETCH_VERSION), (API_VERSIONS, 0, 0)]
            asked, correlation = await ask(connection, broker)
            broker.send(correlation, told(200_000).encode())
            assert vars(await answer_of(asked)) == vars(told(200_000))
        assert closed.reasons == []


async def test_an_answer_to_another_request_that_cannot_be_read_closes_the_connection() -> None:
    async with connected() as (connection, broker, closed):
        broker.spoils_versions = True
        with pytest.raises(KafkaConnectionError):
            await answer_of(connection.send(ApiVersionRequest()))
        assert closed.reasons == [CloseReason.OUT_OF_SYNC]


async def test_a_connection_that_is_lost_while_it_is_made_is_one_that_failed() -> None:
    """Found by three minutes of faults: the consumer ended with an AttributeError."""
    server = await asyncio.start_server(Broker().serve, "127.0.0.1", 0)
    async with server:
        connection = await create_conn("127.0.0.1", server.sockets[0].getsockname()[1])
        connection.close(reason=CloseReason.CONNECTION_BROKEN)
        with pytest.raises(KafkaConnectionError, match="lost while it was made"):
            AnswersProtocol.take_over(connection)
