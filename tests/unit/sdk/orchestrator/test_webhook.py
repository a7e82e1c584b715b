"""The webhook of the local orchestrator, without the orchestrator."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import pytest

from loadtrim.orchestrator.webhook import Reply, WantedState, Webhook
from walks.scenes import until


class Nobody:
    def take_plan(self, request: WantedState) -> Reply:
        raise AssertionError(f"{request} was never sent")

    def describe(self) -> dict[str, Any]:
        return {}


async def test_a_connection_that_says_nothing_does_not_hold_up_the_end() -> None:
    """From Python 3.12 on a server's end waits for its connections, and a silent one has ten seconds."""
    webhook = Webhook("token", Nobody())
    await webhook.start()
    assert webhook._server is not None
    port = webhook._server.sockets[0].getsockname()[1]
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    await until(lambda: webhook._connections == 1)
    async with asyncio.timeout(2.0):
        await webhook.close()
    writer.close()


@pytest.mark.parametrize("head", [b"GET //[ HTTP/1.1", b"GET", b"GET /scale HTTP/1.1\r\nContent-Length: many"])
async def test_what_is_no_request_is_answered(head: bytes) -> None:
    """A target with half an IPv6 address got an empty reply, and a traceback stood in the terminal."""
    webhook = Webhook("token", Nobody())
    await webhook.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(webhook.url).port)
    writer.write(head + b"\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
    writer.close()
    await webhook.close()
