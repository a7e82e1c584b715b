"""Pods of an API server on loopback: what is asked, what is taken in, and one that is silent holds up nobody."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from contract.webhook_receiver import WAIT_SECONDS, Behaviour, Receiver, answer, hang
from loadtrim_agent.leader.scaling.kubernetes import pod_reader
from loadtrim_agent.leader.scaling.kubernetes.api import ApiError
from loadtrim_agent.leader.scaling.kubernetes.pod_reader import PodReader
from loadtrim_agent.runtime.thread import AgentThread

from .test_pod import running, status, terminated


def lines(*events: dict[str, Any], cut: bytes = b"") -> Behaviour:
    """A watch's answer: a chunk for each event, and its end, or what is ``cut`` in its place."""

    def behave(handler: Any) -> None:
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for event in events:
            line = json.dumps(event).encode() + b"\n"
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            handler.wfile.flush()
        handler.wfile.write(cut or b"0\r\n\r\n")
        handler.close_connection = True

    return behave


async def watched(account: Path) -> list[tuple[str, str]]:
    seen: list[tuple[str, str]] = []
    await PodReader(account, "app=payments").watch(lambda kind, pod: seen.append((kind, pod.metadata.name)))
    return seen


async def test_a_pod_is_asked_for_by_name_and_with_the_token(server: Receiver, account: Path) -> None:
    server.behaviours.append(answer(200, json.dumps(status(terminated()))))
    pod = await PodReader(account).pod("payments-0")
    assert pod.metadata.uid == "6f1c"
    (request,) = server.requests
    assert request.path == "/api/v1/namespaces/shop/pods/payments-0"
    assert request.headers["authorization"] == "Bearer t0ken"


async def test_a_refusal_is_told_in_the_api_server_s_words(server: Receiver, account: Path) -> None:
    server.behaviours.append(answer(403, json.dumps({"message": "no pods for you", "code": 403})))
    with pytest.raises(ApiError, match="no pods for you") as raised:
        await PodReader(account).pod("payments-0")
    assert raised.value.status == 403


async def test_events_of_a_watch_are_taken_in_as_they_come(server: Receiver, account: Path) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "12"}}}
    server.behaviours.append(
        lines(
            {"type": "ADDED", "object": status(running(100))},
            bookmark,
            {"type": "MODIFIED", "object": status(terminated())},
            {"type": "DELETED", "object": status(terminated())},
        )
    )
    assert await watched(account) == [("ADDED", "payments-0"), ("MODIFIED", "payments-0"), ("DELETED", "payments-0")]
    (request,) = server.requests
    asked = parse_qs(urlsplit(request.path).query)
    assert asked["labelSelector"] == ["app=payments"]
    assert asked["watch"] == ["1"]
    assert int(asked["timeoutSeconds"][0]) >= 60, "one request in minutes"


@pytest.mark.parametrize(
    ("behaviour", "text"),
    [
        (answer(403, json.dumps({"message": "no watch for you"})), "no watch for you"),
        (lines({"type": "ERROR", "object": {"code": 410, "message": "too old"}}), "too old"),
        (lines({"type": "ERROR", "object": {}}), "without a reason"),
        (lines({"type": "ADDED", "object": {"metadata": 7}}), "cannot be read"),
        (lines({"type": "ADDED", "object": status(running(1))}, cut=b"ff\r\n{"), "cannot be talked to|cannot be read"),
    ],
)
async def test_a_watch_that_breaks_says_why(server: Receiver, account: Path, behaviour: Behaviour, text: str) -> None:
    server.behaviours.append(behaviour)
    with pytest.raises(ApiError, match=text):
        await watched(account)


@pytest.fixture
def silent(account: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """An API server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(listening.getsockname()[1]))
        yield listening


@pytest.mark.slow
async def test_a_silent_api_server_is_given_up(silent: socket.socket, account: Path) -> None:
    with pytest.raises(ApiError, match="cannot be talked to"):
        await PodReader(account).pod("payments-0")


@pytest.mark.parametrize("what", ["pod", "watch"])
async def test_the_agent_s_thread_ends_at_once_beside_a_silent_api_server(
    silent: socket.socket, account: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """An executor's thread would be joined, for as long as the request may take."""
    monkeypatch.setattr(pod_reader, "REQUEST_SECONDS", 10 * WAIT_SECONDS)
    reader, thread = PodReader(account, "app=payments"), AgentThread("test")
    thread.start()

    async def ask() -> None:
        if what == "pod":
            await reader.pod("payments-0")
        else:
            await reader.watch(lambda kind, pod: None)

    asking = asyncio.create_task(thread.run(ask()))
    connection, _ = await asyncio.to_thread(silent.accept)
    with connection:
        asking.cancel()
        async with asyncio.timeout(WAIT_SECONDS):
            await thread.stop()
        assert not thread.alive


async def test_a_watch_that_is_cancelled_closes_its_connection(server: Receiver, account: Path) -> None:
    def go_on(handler: Any) -> None:
        lines({"type": "ADDED", "object": status(running(1))}, cut=b"1\r\n")(handler)
        handler.wfile.flush()
        hang(handler)

    server.behaviours.append(go_on)
    seen = asyncio.Event()
    watching = asyncio.create_task(PodReader(account, "a=b").watch(lambda kind, pod: seen.set()))
    await asyncio.wait_for(seen.wait(), 5.0)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert await asyncio.to_thread(server.gone.wait, 5.0), "the thread still holds the connection"
