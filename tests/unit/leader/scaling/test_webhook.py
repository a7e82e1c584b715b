"""The webhook's client against real servers on loopback, well-behaved and not."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contract.webhook_receiver import (
    WAIT_SECONDS,
    Behaviour,
    Receiver,
    accept,
    answer,
    drip,
    endless,
    garbage,
    hang,
    hang_up,
)
from loadtrim_agent.leader.scaling import webhook
from loadtrim_agent.leader.scaling.port import DETAIL_MAX, Answer, ScaleRequest
from loadtrim_agent.leader.scaling.webhook import WebhookScaler

TOKEN = "tok-123.ABC_~+/="
WANTED = ScaleRequest(
    group="payments",
    replicas=4,
    victims=("pod-b", "pod-é"),
    staying=("pod-a",),
    generation=7,
    sequence=12,
    reason="Load rises.",
)


@pytest.fixture
def server() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# What goes over the wire


async def test_a_member_whose_lease_has_run_out_asks_for_nothing(server: Receiver) -> None:
    """One that was frozen, or is cut off from Kafka, repeated its last wish beside the next leader's."""
    fence = SimpleNamespace(holds=lambda: False)
    scaler = WebhookScaler(server.url, fence=fence)
    outcome = await scaler.request(WANTED)
    assert not outcome.accepted
    assert "lease" in outcome.detail
    assert server.requests == []
    fence.holds = lambda: True
    assert (await scaler.request(WANTED)).accepted


async def test_the_request_is_what_the_contract_says(server: Receiver) -> None:
    outcome = await WebhookScaler(server.url, TOKEN).request(WANTED)
    assert outcome.accepted
    (request,) = server.requests
    assert (request.method, request.path) == ("PUT", "/scale")
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert request.headers["content-type"] == "application/json"
    assert request.json == {
        "group": "payments",
        "replicas": 4,
        "victims": ["pod-b", "pod-é"],
        "staying": ["pod-a"],
        "plan": {"generation": 7, "sequence": 12},
        "reason": "Load rises.",
    }


async def test_no_victims_are_an_empty_list_and_no_token_is_no_header(server: Receiver) -> None:
    await WebhookScaler(server.url, "").request(ScaleRequest(group="g", replicas=1, generation=0, sequence=0))
    (request,) = server.requests
    assert request.json["victims"] == []
    assert "authorization" not in request.headers


async def test_path_and_query_are_kept_and_the_query_is_never_shown(server: Receiver) -> None:
    scaler = WebhookScaler(f"{server.url}/a%20b?key=hush&x=1#part")
    server.behaviours.append(answer(500))
    outcome = await scaler.request(WANTED)
    assert server.requests[0].path == "/scale/a%20b?key=hush&x=1"
    assert "hush" not in outcome.detail + scaler.url


async def test_an_address_without_a_path(server: Receiver) -> None:
    assert (await WebhookScaler(server.url.removesuffix("/scale")).request(WANTED)).accepted
    assert server.requests[0].path == "/"


async def test_ipv6() -> None:
    try:
        receiver = Receiver(host="::1")
    except OSError:
        pytest.skip("no IPv6 on this machine")
    with receiver:
        assert (await WebhookScaler(receiver.url).request(WANTED)).accepted


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://[::1]/scale", ("::1", 80)),
        ("https://[fd00::7:8080]/scale", ("fd00::7:8080", 443)),
        ("http://[fd00::7]:8099/scale", ("fd00::7", 8099)),
        ("https://scaler.internal/scale", ("scaler.internal", 443)),
    ],
)
async def test_the_request_goes_to_the_host_that_the_address_names(
    url: str, asked: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last group of an IPv6 address without a port was taken for one: the token went to another host."""
    connected: list[tuple[str, int]] = []

    def connect(address: tuple[str, int], *_: Any, **__: Any) -> Any:
        connected.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr("socket.create_connection", connect)
    await WebhookScaler(url, TOKEN).request(WANTED)
    assert connected == [asked]


async def test_proxies_of_the_environment_are_not_used(server: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    assert (await WebhookScaler(server.url).request(WANTED)).accepted


# Answers


@pytest.mark.parametrize("status", [200, 201, 202, 204])
async def test_2xx_is_accepted(server: Receiver, status: int) -> None:
    server.behaviours.append(answer(status, "" if status == 204 else "fine"))
    outcome = await WebhookScaler(server.url).request(WANTED)
    assert outcome.answer is Answer.ACCEPTED
    assert str(status) in outcome.detail


@pytest.mark.parametrize(
    ("status", "expected"),
    [(400, Answer.REFUSED), (401, Answer.REFUSED), (409, Answer.REFUSED), (500, Answer.FAILED), (503, Answer.FAILED)],
)
async def test_other_answers_are_told_with_their_text(server: Receiver, status: int, expected: Answer) -> None:
    server.behaviours.append(answer(status, "quota of 3 pods\r\nreached \x07"))
    outcome = await WebhookScaler(server.url, TOKEN).request(WANTED)
    assert outcome.answer is expected
    assert str(status) in outcome.detail
    assert "quota of 3 pods reached ?" in outcome.detail
    assert server.url in outcome.detail


@pytest.mark.parametrize("status", [429, 503])
async def test_what_it_asks_to_wait_is_heeded_for_a_minute_at_most(server: Receiver, status: int) -> None:
    """An answer that asked for a day would have left the group as it was for a day."""
    server.behaviours += [answer(status, Retry_After=text) for text in ("7", "86400", "Wed, 21 Oct 2026 07:28:00 GMT")]
    scaler = WebhookScaler(server.url)
    assert [(await scaler.request(WANTED)).retry_after_seconds for _ in range(3)] == [7.0, 60.0, None]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(server: Receiver, status: int) -> None:
    with Receiver() as elsewhere:
        server.behaviours.append(answer(status, Location=elsewhere.url))
        outcome = await WebhookScaler(server.url, TOKEN).request(WANTED)
        assert outcome.answer is Answer.FAILED
        assert elsewhere.url in outcome.detail
        assert "LOADTRIM_SCALER_URL" in outcome.detail
        assert elsewhere.requests == []


async def test_a_redirect_is_told_without_what_it_may_hold(server: Receiver) -> None:
    """Servers repeat the query there, which may be a key."""
    server.behaviours.append(answer(302, Location="https://user:hush@elsewhere/scale?key=hush"))
    outcome = await WebhookScaler(server.url, TOKEN).request(WANTED)
    assert "https://(hidden)@elsewhere/scale?(hidden)" in outcome.detail
    assert "hush" not in outcome.detail


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://hooks.example/", True),
        ("http://10.0.0.7:8080/", True),
        ("https://hooks.example/", False),
        ("http://localhost:1/", False),
        ("http://127.0.0.9/", False),
        ("http://[::1]/", False),
    ],
)
def test_a_token_that_goes_unencrypted_is_warned_about(
    url: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    WebhookScaler(url)
    assert not caplog.records
    WebhookScaler(url, TOKEN)
    assert [TOKEN in message for message in caplog.messages] == ([False] if warned else [])


async def test_a_long_answer_is_cut(server: Receiver) -> None:
    server.behaviours.append(answer(500, "x" * 5_000_000))
    outcome = await WebhookScaler(server.url).request(WANTED)
    assert outcome.answer is Answer.FAILED
    assert len(outcome.detail) == DETAIL_MAX


async def test_an_endless_answer_is_not_read_to_its_end(server: Receiver) -> None:
    server.behaviours.extend([endless(503, b"full " * 1000, 0.0), endless(200, b"y", 0.01)])
    scaler = WebhookScaler(server.url, timeout=WAIT_SECONDS)
    outcome = await scaler.request(WANTED)
    assert outcome.answer is Answer.FAILED
    assert "503 Service Unavailable: full full" in outcome.detail
    assert (await scaler.request(WANTED)).accepted


@pytest.mark.parametrize("behaviour", [hang_up, garbage])
async def test_what_is_no_answer_has_failed(server: Receiver, behaviour: Behaviour) -> None:
    server.behaviours.append(behaviour)
    outcome = await WebhookScaler(server.url).request(WANTED)
    assert outcome.answer is Answer.FAILED
    assert (await WebhookScaler(server.url).request(WANTED)).accepted


async def test_nobody_listens() -> None:
    outcome = await WebhookScaler(f"http://127.0.0.1:{free_port()}/").request(WANTED)
    assert outcome.answer is Answer.FAILED
    assert "refused" in outcome.detail.lower()


async def test_what_only_the_server_may_know_is_not_quoted_from_its_answer(server: Receiver) -> None:
    """It went into the log and into /status of every member."""
    server.behaviours.append(answer(403, f"bad token {TOKEN} for /scale?key=SECRET"))
    outcome = await WebhookScaler(f"{server.url}?key=SECRET", TOKEN).request(WANTED)
    assert TOKEN not in outcome.detail
    assert "SECRET" not in outcome.detail
    assert "bad token (hidden) for /scale?(hidden)" in outcome.detail


async def test_a_host_that_cannot_be_a_name() -> None:
    outcome = await WebhookScaler(f"http://{'a' * 64}.invalid/").request(WANTED)
    assert outcome.answer is Answer.FAILED


# Time


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", [hang, drip])
async def test_a_slow_server_fails_in_time_and_its_connection_is_closed(server: Receiver, behaviour: Behaviour) -> None:
    server.behaviours.append(behaviour)
    started = time.monotonic()
    async with asyncio.timeout(WAIT_SECONDS):
        outcome = await WebhookScaler(server.url, timeout=0.3).request(WANTED)
    assert time.monotonic() - started >= 0.25
    assert outcome.answer is Answer.FAILED
    assert "0.3 s" in outcome.detail
    assert await asyncio.to_thread(server.gone.wait, WAIT_SECONDS), "the thread still holds the connection"


async def test_the_loop_runs_on_while_a_server_hangs(server: Receiver) -> None:
    server.behaviours.append(hang)
    scaler = WebhookScaler(server.url, timeout=10 * WAIT_SECONDS)
    request = asyncio.create_task(scaler.request(WANTED))
    assert await asyncio.to_thread(server.arrived.wait, WAIT_SECONDS)
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert not request.done(), "the loop was held until its end"
    await scaler.close()
    assert (await request).answer is Answer.FAILED


async def test_requests_may_overlap(server: Receiver) -> None:
    server.behaviours.extend([hang, accept])
    scaler = WebhookScaler(server.url, timeout=0.5)
    slow = asyncio.create_task(scaler.request(WANTED))
    assert await asyncio.to_thread(server.arrived.wait, WAIT_SECONDS)
    assert (await scaler.request(WANTED)).accepted
    assert (await slow).answer is Answer.FAILED


async def test_threads_that_nothing_can_break_off_are_bounded(
    server: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name look-up that hangs holds its thread, whatever is done to the connection."""
    release = threading.Event()
    real = socket.getaddrinfo

    def hanging(*args: object, **options: object) -> object:
        if threading.current_thread().name == "loadtrim-webhook":
            release.wait(WAIT_SECONDS)
        return real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    scaler = WebhookScaler(server.url, timeout=0.02)
    outcomes = [await scaler.request(WANTED) for _ in range(webhook.ABANDONED_MAX + 2)]
    hung = [thread for thread in threading.enumerate() if thread.name == "loadtrim-webhook"]
    assert len(hung) == webhook.ABANDONED_MAX
    assert "still hang" in outcomes[-1].detail
    release.set()
    for thread in hung:
        await asyncio.to_thread(thread.join, WAIT_SECONDS)
    assert server.requests == [], "a request that was given up is never sent"
    scaler = WebhookScaler(server.url)
    assert (await scaler.request(WANTED)).accepted


def test_a_request_that_nothing_can_break_off_does_not_hold_up_the_exit_of_the_process() -> None:
    program = """
import asyncio, socket, threading, time
from loadtrim_agent.leader.scaling.port import ScaleRequest
from loadtrim_agent.leader.scaling.webhook import WebhookScaler
hung = threading.Event()
def hanging(*args, **options):
    hung.set()
    time.sleep(300)
wanted = ScaleRequest(group="g", replicas=1, generation=0, sequence=0)
async def main():
    socket.getaddrinfo = hanging
    task = asyncio.create_task(WebhookScaler("http://localhost:1/", timeout=300).request(wanted))
    await asyncio.to_thread(hung.wait)
asyncio.run(main())
print("done")
"""
    ended = subprocess.run([sys.executable, "-c", program], check=True, timeout=WAIT_SECONDS, capture_output=True)
    assert ended.stdout == b"done\n"


# TLS


def tls_server(certificate: tuple[Path, Path]) -> Receiver:
    key, chain = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    return Receiver(context)


async def test_https_with_a_known_certificate(certificate: tuple[Path, Path]) -> None:
    with tls_server(certificate) as server:
        trusting = ssl.create_default_context(cafile=str(certificate[1]))
        assert (await WebhookScaler(server.url, TOKEN, tls=trusting).request(WANTED)).accepted


async def test_https_with_an_unknown_certificate_is_never_told_the_token(certificate: tuple[Path, Path]) -> None:
    with tls_server(certificate) as server:
        outcome = await WebhookScaler(server.url, TOKEN).request(WANTED)
        assert outcome.answer is Answer.FAILED
        assert "certificate" in outcome.detail.lower()
        assert server.requests == []


async def test_https_close_while_the_answer_is_awaited(certificate: tuple[Path, Path]) -> None:
    with tls_server(certificate) as server:
        server.behaviours.append(hang)
        trusting = ssl.create_default_context(cafile=str(certificate[1]))
        scaler = WebhookScaler(server.url, tls=trusting, timeout=60)
        request = asyncio.create_task(scaler.request(WANTED))
        assert await asyncio.to_thread(server.arrived.wait, WAIT_SECONDS)
        await scaler.close()
        async with asyncio.timeout(5):
            assert (await request).answer is Answer.FAILED
        assert await asyncio.to_thread(server.gone.wait, WAIT_SECONDS)


# What it is given


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:80",
        "ftp://host/",
        "http://",
        "http:///path",
        "http://h:0/",
        "http://h:99999/",
        "http://h:x/",
        "http://host/a b",
        "http://host/\n",
        "http://host/é",
        "http://[::1/",
        "//host/",
        "http://host/\x00",
    ],
)
def test_unusable_addresses_say_what_is_allowed(url: str) -> None:
    with pytest.raises(ValueError, match="Allowed: http://"):
        WebhookScaler(url)


@pytest.mark.parametrize("url", ["http://h:hush/", "ftp://h/?key=hush", "ftp://user:hush@h/", "http://h/ ?key=hush"])
def test_unusable_addresses_are_told_without_their_secrets(url: str) -> None:
    with pytest.raises(ValueError, match="webhook's address") as raised:
        WebhookScaler(url)
    assert "hush" not in str(raised.value)


def test_a_password_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="LOADTRIM_SCALER_TOKEN") as raised:
        WebhookScaler("http://user:hush@host/")
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize("token", ["a\nb", "a b", "tokén", "t\x00", "abc\n"])
def test_a_token_that_no_header_can_hold_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII") as raised:
        WebhookScaler("http://host/", token)
    assert token not in str(raised.value)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_an_unusable_time_out(timeout: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        WebhookScaler("http://host/", timeout=timeout)
