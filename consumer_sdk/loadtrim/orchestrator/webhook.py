"""The receiving end of the scaling webhook: a small HTTP server on the loopback interface."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from loadtrim_agent.wire.envelope import MALFORMED

from .supervisor import WantedState

__all__ = ["PlanTaker", "Reply", "Webhook"]

HEAD_BYTES_MAX = 16_384
BODY_BYTES_MAX = 65_536
CONNECTIONS_MAX = 64
REQUEST_SECONDS = 10.0
PATH = "/scale"

_scale_request = msgspec.json.Decoder(WantedState)


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request; the body becomes JSON."""

    status: HTTPStatus
    body: dict[str, Any]


class PlanTaker(Protocol):
    """The part of the orchestrator that the webhook needs."""

    def take_plan(self, request: WantedState) -> Reply:
        """Do what a leader asks for and return what it is answered."""

    def describe(self) -> dict[str, Any]:
        """Return what there is, as values that JSON has."""


class Webhook:
    """Serves ``PUT /scale`` (the wanted state) and ``GET /scale`` (what there is) on a free port of 127.0.0.1.

    One request per connection. Everybody without the token is turned away.

    Args:
        token: what ``Authorization: Bearer`` must carry.
        orchestrator: takes each well-formed plan, and describes itself for ``GET``.
    """

    def __init__(self, token: str, orchestrator: PlanTaker) -> None:
        self._token = token
        self._orchestrator = orchestrator
        self._server: asyncio.Server | None = None
        self._connections = 0

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT/scale``, once started."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{PATH}"

    async def start(self) -> None:
        """Bind a free port and serve until :meth:`close`."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=HEAD_BYTES_MAX)

    async def close(self) -> None:
        """Stop listening; a request that is being answered ends by itself."""
        if self._server is not None:
            # Not waited for: from Python 3.12 on that takes until the last connection ends, a silent one included.
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                if self._connections > CONNECTIONS_MAX:
                    reply = _refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at once; try again")
                else:
                    reply = await self._answer(reader)
                writer.write(_encode(reply))
                await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass  # The caller went away or never finished; it tries again.
        finally:
            self._connections -= 1
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader) -> Reply:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, target, _ = head.split("\r\n", 1)[0].split(" ")
            path = urlsplit(target).path
            headers = dict(_headers(head))
            length = int(headers.get("content-length", "0"))
        except (ValueError, asyncio.LimitOverrunError):
            return _refusal(HTTPStatus.BAD_REQUEST, "this is no HTTP request, or its head is too long")
        if path != PATH:
            return _refusal(HTTPStatus.NOT_FOUND, f"there is only {PATH} here")
        if not hmac.compare_digest(headers.get("authorization", "").encode(), f"Bearer {self._token}".encode()):
            return _refusal(HTTPStatus.UNAUTHORIZED, "the bearer token is missing or wrong (LOADTRIM_SCALER_TOKEN)")
        if method == "GET":
            return Reply(HTTPStatus.OK, self._orchestrator.describe())
        if method != "PUT":
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, "PUT sets the wanted state, GET shows what there is")
        if "transfer-encoding" in headers or not 0 < length <= BODY_BYTES_MAX:
            return _refusal(
                HTTPStatus.LENGTH_REQUIRED, f"a body with a Content-Length of at most {BODY_BYTES_MAX} is needed"
            )
        try:
            request = _scale_request.decode(await reader.readexactly(length))
        except MALFORMED as error:
            return _refusal(HTTPStatus.BAD_REQUEST, f"the body is no wanted state: {error}")
        return self._orchestrator.take_plan(request)


def _headers(head: str) -> list[tuple[str, str]]:
    lines = head.split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return [(name.strip().lower(), value.strip()) for name, _, value in pairs]


def _refusal(status: HTTPStatus, why: str) -> Reply:
    return Reply(status, {"error": why})


def _encode(reply: Reply) -> bytes:
    body = msgspec.json.encode(reply.body)
    head = (
        f"HTTP/1.1 {reply.status.value} {reply.status.phrase}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
