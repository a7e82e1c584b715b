"""The server over real sockets."""

from __future__ import annotations

import http.client
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.parser import text_string_to_metric_families

from loadtrim_agent.observability import http as ours
from loadtrim_agent.observability import probes
from loadtrim_agent.observability.address import parse_address
from loadtrim_agent.observability.http import HttpServer, Registration
from loadtrim_agent.observability.metrics import Metrics
from loadtrim_agent.observability.status import AgentState, OwnedPartition, Status

WAIT_SECONDS = 10.0


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Agent:
    """A provider that answers as told; a callable is called."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    healthy: tuple[bool, str] | Callable[[], tuple[bool, str]] = (True, "")
    readiness: tuple[bool, str] | Callable[[], tuple[bool, str]] = (True, "")
    shown: object = None
    goes: bool | Callable[[], bool] | None = False
    wanted: tuple[str, int] | Callable[[], tuple[str, int]] | None = None

    def health(self) -> tuple[bool, str]:
        return self.healthy() if callable(self.healthy) else self.healthy

    def ready(self) -> tuple[bool, str]:
        return self.readiness() if callable(self.readiness) else self.readiness

    def drained(self) -> bool | None:
        return self.goes() if callable(self.goes) else self.goes

    def published(self) -> tuple[str, int] | None:
        return self.wanted() if callable(self.wanted) else self.wanted

    def status(self) -> object:
        return self.shown() if callable(self.shown) else self.shown


def broken() -> Any:
    raise ZeroDivisionError("oops")


class Bench:
    """A server of its own, and everybody who registered."""

    def __init__(self, address: str = "127.0.0.1:0") -> None:
        self.server = HttpServer(address)
        self.registrations: list[Registration] = []
        self.errors: list[str] = []

    def add(self, name: str = "payments/pod-a", agent: Agent | None = None) -> Agent:
        agent = agent or Agent()
        self.registrations.append(self.server.register(name, agent, self.errors.append))
        return agent

    @property
    def port(self) -> int:
        assert self.server.url is not None
        return int(self.server.url.rpartition(":")[2])

    def ask(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def raw(self, sent: bytes) -> bytes:
        """What comes back for bytes that no client library would send."""
        with socket.create_connection(("127.0.0.1", self.port), WAIT_SECONDS) as connection:
            connection.sendall(sent)
            got = b""
            while more := connection.recv(65536):
                got += more
            return got


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    for registration in made.registrations:
        registration.close()


def http_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "loadtrim-http"]


# Pages


def test_metrics_are_those_of_the_registry(bench: Bench) -> None:
    agent = bench.add()
    metrics = Metrics(agent.registry, "payments", "pod-a", 0.5)
    metrics.records_done("orders", 3, 2, [0.1, 0.9], [])
    answer = bench.ask("/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain")
    samples = {
        (sample.name, sample.labels.get("le")): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert samples[("loadtrim_records_done_total", None)] == 2
    assert samples[("loadtrim_record_latency_seconds_bucket", "0.5")] == 1


def test_content_is_negotiated_as_by_the_client_library(bench: Bench) -> None:
    agent = bench.add()
    Counter("orders", "x", registry=agent.registry).inc()
    Gauge("stock", "x", registry=agent.registry).set(3)
    answer = bench.ask("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    assert bench.ask("/metrics", Accept_Encoding="gzip").headers["Content-Encoding"] == "gzip"
    some = bench.ask("/metrics?name[]=stock").text
    assert "stock 3.0" in some
    assert "orders" not in some


def test_registries_are_joined_and_nothing_is_there_twice(bench: Bench) -> None:
    """Two consumers share a registry, a third has its own; both registries have a metric of the same name."""
    shared, own = CollectorRegistry(), CollectorRegistry()
    for registry in (shared, own):
        Gauge("process_like", "x", registry=registry).set(1)
    for name, registry in (("a", shared), ("b", shared), ("c", own)):
        bench.add(name, Agent(registry))
        Metrics(registry, "payments", name, 0.5).entered(7, "loadtrim")
    text = bench.ask("/metrics").text
    assert text.count("# TYPE loadtrim_generation ") == 1
    lines = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines))
    assert [f'client_id="{name}"' in text for name in "abc"] == [True] * 3
    assert "process_like" not in bench.ask("/metrics?name[]=loadtrim_generation").text


def test_health_and_readiness_are_those_of_all(bench: Bench) -> None:
    first, second = bench.add("a"), bench.add("b")
    assert bench.ask("/healthz").status == 200
    second.healthy = (False, "12 records wait, nothing done for 30 s: the agent's loop stands still")
    answer = bench.ask("/healthz")
    assert answer.status == 503
    assert answer.text == f"not ok\na: ok\nb: not ok: {second.healthy[1]}\n"
    assert bench.ask("/readyz").status == 200
    first.readiness = (False, "waits for its generation")
    assert bench.ask("/readyz").status == 503


def test_a_process_is_not_ready_once_all_its_consumers_are_drained_victims(bench: Bench) -> None:
    first, second = bench.add("a", Agent(goes=True)), bench.add("b")
    assert bench.ask("/readyz").status == 200, "one of the two works on"
    second.goes = True
    answer = bench.ask("/readyz")
    assert (answer.status, answer.text) == (503, "victim, drained\n")
    assert bench.ask("/healthz").status == 200
    first.goes = broken
    assert bench.ask("/readyz").status == 200, "what cannot be told keeps nobody from its work"


def test_a_consumer_whose_group_asks_for_no_replicas_has_no_say_in_it(bench: Bench) -> None:
    """With ``LOADTRIM_SCALER=none`` for one of two groups no pod was ever drained, and the other one never shrank."""
    other = bench.add("other", Agent(goes=None))
    assert bench.ask("/readyz").status == 200, "where nobody asks for replicas, nobody goes"
    scaled = bench.add("scaled", Agent(goes=True))
    assert bench.ask("/readyz").status == 503
    scaled.goes = False
    assert bench.ask("/readyz").status == 200
    scaled.goes, other.goes = True, False
    assert bench.ask("/readyz").status == 200


def test_an_orchestrator_knows_of_an_unready_process_after_three_probes_and_a_second(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe that sets no ``failureThreshold`` fails at the third; one answer of 200 makes the pod ready again."""
    clock = 100.0
    monkeypatch.setattr(probes, "boot_time", lambda: clock)
    agent = bench.add("a", Agent(goes=True))

    def known(times: int, seconds: float) -> bool:
        nonlocal clock
        for _ in range(times):
            bench.ask("/readyz")
        clock += seconds
        return bench.server.probes.known_unready

    assert not known(times=2, seconds=60.0)
    assert not known(times=1, seconds=0.99)
    assert known(times=1, seconds=0.01)
    agent.goes = False
    assert known(times=0, seconds=1.0), "nobody has been told yet that it is ready again"
    assert not known(times=1, seconds=1.0)
    agent.goes = True
    assert not known(times=2, seconds=1.0)
    assert not known(times=1, seconds=0.0)
    assert known(times=0, seconds=1.0)


def test_where_a_kubelet_asks_the_answers_to_others_count_for_nothing() -> None:
    """A balancer that asks each second would have the pod known not ready before the kubelet has asked three times."""
    asked = probes.Probes()
    for kubelet in (True, True, False, False):
        asked.answered(drained=True, kubelet=kubelet)
    assert asked._since is None
    asked.answered(drained=False, kubelet=False)
    asked.answered(drained=True, kubelet=True)
    assert asked._since is not None


def test_in_a_pod_nobody_but_its_kubelet_counts() -> None:
    """A pod without a probe was known not ready by what a balancer or a person asked."""
    asked = probes.Probes(in_pod=True)
    for _ in range(probes.UNREADY_PROBES):
        asked.answered(drained=True, kubelet=False)
    assert asked._since is None
    for _ in range(probes.UNREADY_PROBES):
        asked.answered(drained=True, kubelet=True)
    assert asked._since is not None


def test_replicas_are_told_where_a_consumer_of_the_process_has_some_to_tell(bench: Bench) -> None:
    bench.add("a")
    answer = bench.ask("/replicas")
    assert answer.status == 503, "an autoscaler that reads nothing changes nothing"
    assert "LOADTRIM_SCALER=metric" in answer.text
    bench.add("b", Agent(wanted=("payments-service", 4)))
    bench.add("c", Agent(wanted=("orders", 2)))
    bench.add("d", Agent(wanted=broken))
    answer = bench.ask("/replicas")
    assert answer.status == 200
    assert json.loads(answer.body) == {"v": 1, "replicas": {"payments-service": 4, "orders": 2}}
    assert bench.errors == ["http"], "one that breaks costs no other one"


def test_a_provider_that_raises_is_healthy_but_not_ready(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """An orchestrator must not kill a consumer because observing it broke."""
    bench.add("a", Agent(healthy=broken, readiness=broken, shown=broken))
    bench.add("b", Agent(shown={"fine": True}))
    for _ in range(3):
        assert bench.ask("/healthz").status == 200
    assert bench.ask("/readyz").status == 503
    agents = json.loads(bench.ask("/status").body)["agents"]
    assert agents == [{"name": "a", "error": "ZeroDivisionError: oops"}, {"fine": True}]
    assert bench.errors == ["http"] * 5
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 3, "once per page"


def test_a_collector_that_raises_is_a_500_and_counted(bench: Bench) -> None:
    agent = bench.add()

    class Broken:
        def collect(self) -> Any:
            raise ZeroDivisionError("their collector")

    agent.registry.register(Broken())
    answer = bench.ask("/metrics")
    assert (answer.status, answer.text) == (500, "ZeroDivisionError: their collector\n")
    assert bench.errors == ["http"]
    assert bench.ask("/healthz").status == 200


def test_status_is_json(bench: Bench) -> None:
    owned = OwnedPartition(topic="orders", partition=3, lag_records=12, lag_seconds=0.1, load=0.5)
    bench.add(agent=Agent(shown=Status(group="payments", client_id="a", at=1.5, partitions=(owned,))))
    answer = bench.ask("/status")
    assert answer.headers["Content-Type"] == "application/json"
    page = json.loads(answer.body)
    assert page["v"] == 1
    (agent,) = page["agents"]
    assert agent["state"] == AgentState.STARTING
    assert agent["partitions"][0]["lag_records"] == 12
    assert agent["partitions"][0]["load"] == 0.5


def test_other_pages(bench: Bench) -> None:
    bench.add()
    assert bench.ask("/").status == 200
    assert bench.ask("/nothing").status == 404
    assert "/metrics" in bench.ask("/nothing").text


# Requests


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/status", "/nothing"])
def test_head_is_get_without_the_body(bench: Bench, path: str) -> None:
    bench.add()
    get, head = bench.ask(path), bench.ask(path, "HEAD")
    assert (head.status, head.body) == (get.status, b"")
    assert head.headers["Content-Length"] == get.headers["Content-Length"]
    assert bench.raw(f"HEAD {path} HTTP/1.0\r\n\r\n".encode()).endswith(b"\r\n\r\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_refused(bench: Bench, method: str) -> None:
    bench.add()
    answer = bench.ask("/healthz", method, b"x" * 1000)
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET, HEAD"
    assert bench.ask("/healthz", method, b"").status == 405


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"BREW /healthz HTTP/1.0\r\n\r\n", b" 405 "),
        (b"GET /healthz HTTP/9.9\r\n\r\n", b" 505 "),
        (b"GET\r\n\r\n", b" 400 "),
        (b"nonsense with many words\r\n\r\n", b" 400 "),
        (b"GET /healthz HTTP/1.1\n\n", b" 200 "),
        (b"GET /healthz HTTP/1.0\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", b" 431 "),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.0\r\n\r\n", b" 414 "),
    ],
)
def test_malformed_and_oversized_requests(bench: Bench, sent: bytes, status: bytes) -> None:
    bench.add()
    assert status in bench.raw(sent).partition(b"\n")[0]
    assert bench.ask("/healthz").status == 200


def test_a_client_that_drips_is_cut_off(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "READ_SECONDS", 0.3)
    bench.add()
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", bench.port), WAIT_SECONDS) as connection:
        connection.settimeout(0.05)
        while time.monotonic() - started < WAIT_SECONDS:
            try:
                connection.sendall(b"X")
                if not connection.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
    assert 0.25 < time.monotonic() - started < WAIT_SECONDS


def test_a_client_that_does_not_read_its_answer_is_cut_off(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else eight of them would hold the places of all requests for ever."""
    monkeypatch.setattr(ours, "WRITE_SECONDS", 0.05)
    bench.add(agent=Agent(shown="x" * (16 << 20)))
    listener: Any = bench.server._listener
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(WAIT_SECONDS)
        connection.connect(("127.0.0.1", bench.port))
        connection.sendall(b"GET /status HTTP/1.0\r\n\r\n")
        assert connection.recv(1) == b"H", "it is being answered"
        deadline = time.monotonic() + WAIT_SECONDS
        while listener.connections._open and time.monotonic() < deadline:
            time.sleep(0.005)
        assert listener.connections._open == 0
    assert bench.ask("/healthz").status == 200


def test_more_requests_than_places_are_turned_away_and_do_not_stop_the_server(bench: Bench) -> None:
    inside, release = threading.Semaphore(0), threading.Event()

    def wait() -> object:
        inside.release()
        release.wait(WAIT_SECONDS)
        return {}

    bench.add("slow", Agent(shown=wait))
    answers: list[int] = []
    clients = [
        threading.Thread(target=lambda: answers.append(bench.ask("/status").status)) for _ in range(ours.REQUESTS_MAX)
    ]
    for client in clients:
        client.start()
    for _ in clients:
        assert inside.acquire(timeout=WAIT_SECONDS)
    try:
        assert bench.ask("/metrics").status == 503
        assert bench.ask("/healthz").status == 200, "a probe is no such request"
    finally:
        release.set()
    for client in clients:
        client.join(WAIT_SECONDS)
    assert answers == [200] * ours.REQUESTS_MAX
    assert bench.ask("/metrics").status == 200


@pytest.mark.slow
def test_connections_that_are_kept_open_and_silent_fail_no_probe(bench: Bench) -> None:
    """Eight of them made 117 of 119 probes fail, and the orchestrator restarted the consumer."""
    bench.add()
    kept = [socket.create_connection(("127.0.0.1", bench.port), WAIT_SECONDS) for _ in range(ours.CONNECTIONS_MAX + 20)]
    try:
        for connection in kept[::2]:
            with suppress(OSError):
                connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        for path in ("/healthz", "/readyz", "/metrics") * 5:
            assert bench.ask(path).status == 200
        assert kept[0].recv(1) == b"", "the oldest made room"
    finally:
        for connection in kept:
            connection.close()


def test_connections_that_all_have_sent_a_request_leave_no_room(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "CONNECTIONS_MAX", 2)
    inside, release = threading.Semaphore(0), threading.Event()

    def wait() -> object:
        inside.release()
        release.wait(WAIT_SECONDS)
        return {}

    bench.add("slow", Agent(shown=wait))
    clients = [threading.Thread(target=bench.ask, args=("/status",)) for _ in range(2)]
    for client in clients:
        client.start()
    for _ in clients:
        assert inside.acquire(timeout=WAIT_SECONDS)
    try:
        assert bench.ask("/healthz").status == 503
    except (ConnectionError, http.client.HTTPException):
        pass  # closed with our request unread: as good an answer
    finally:
        release.set()
    for client in clients:
        client.join(WAIT_SECONDS)
    assert bench.ask("/healthz").status == 200


def test_it_answers_while_the_users_code_holds_its_loop(bench: Bench) -> None:
    """No loop is involved: the test's thread sleeps, as a loop that is blocked does."""
    bench.add()
    got: list[int] = []
    client = threading.Thread(target=lambda: got.append(bench.ask("/healthz").status))
    client.start()
    client.join(WAIT_SECONDS)
    assert got == [200]


# Life


def test_the_last_one_closes_it_and_the_next_one_opens_it_again() -> None:
    before = len(http_threads())
    bench = Bench()
    bench.add("a")
    bench.add("b")
    first, second = bench.registrations
    port = bench.port
    first.close()
    assert bench.ask("/status").status == 200
    assert first.url == bench.server.url
    second.close()
    second.close()
    assert bench.server.url is None
    assert len(http_threads()) == before
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), WAIT_SECONDS):
        pass
    bench.add("c")
    assert bench.ask("/healthz").text == "ok\nc: ok\n"
    bench.registrations[-1].close()


def test_a_port_can_be_had_again_at_once() -> None:
    first = Bench()
    first.add()
    address = f"127.0.0.1:{first.port}"
    first.ask("/healthz")
    first.registrations[0].close()
    for _ in range(5):
        again = Bench(address)
        again.add()
        assert again.ask("/healthz").status == 200
        again.registrations[0].close()


def test_agents_with_the_same_address_share_the_server_and_others_do_not() -> None:
    assert HttpServer.shared("127.0.0.1:0") is HttpServer.shared("127.0.0.1:0")
    assert HttpServer.shared("127.0.0.1:0") is not HttpServer.shared("localhost:0")


def test_a_port_in_use_is_told_once_and_counted_and_nothing_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        bench = Bench(f"127.0.0.1:{taken.getsockname()[1]}")
        bench.add("a")
        bench.add("b")
    first, second = bench.registrations
    assert first.url is None
    assert first.problem is not None
    assert "the consumer runs on" in first.problem
    assert second.problem == first.problem
    assert bench.errors == ["http", "http"]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    bench.add("c")  # the port is free now
    assert bench.ask("/healthz").text == "ok\na: ok\nb: ok\nc: ok\n"
    assert first.problem is None
    for registration in bench.registrations:
        registration.close()


@pytest.mark.parametrize("address", ["no-such-host.invalid:0", "203.0.113.1:0"])
def test_an_address_that_is_not_this_machines(address: str, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(address)
    bench.add()
    assert bench.registrations[0].url is None
    assert address in caplog.text
    bench.registrations[0].close()


def test_off() -> None:
    before = len(http_threads())
    bench = Bench("off")
    bench.add()
    assert (bench.server.url, bench.server.problem, bench.errors) == (None, None, [])
    assert len(http_threads()) == before
    bench.registrations[0].close()


def test_ipv6() -> None:
    bench = Bench("[::1]:0")
    bench.add()
    if bench.server.url is None:
        pytest.skip("no IPv6 on this machine")
    assert bench.server.url.startswith("http://[::1]:")
    with socket.create_connection(("::1", bench.port), WAIT_SECONDS) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert b" 200 " in connection.recv(1000)
    bench.registrations[0].close()


def test_registering_and_leaving_from_many_threads() -> None:
    server = HttpServer("127.0.0.1:0")
    problems: list[str | None] = []

    def come_and_go() -> None:
        for _ in range(20):
            registration = server.register("x", Agent())
            problems.append(registration.problem)
            registration.close()

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(problems) == {None}
    assert server.url is None


# Addresses


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        (" 0.0.0.0:9095 ", ("0.0.0.0", 9095)),
        ("localhost:80", ("localhost", 80)),
        ("[::1]:9095", ("::1", 9095)),
        ("off", None),
        ("OFF", None),
    ],
)
def test_addresses(text: str, expected: tuple[str, int] | None) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    "text", ["", ":0", "9095", "localhost", "localhost:", "localhost:x", "a:65536", "::1:80", "a:-1", "[]:1", "a:1²"]
)
def test_unusable_addresses_say_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="Allowed: host:port"):
        parse_address(text)


def test_a_port_that_becomes_free_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process before still drained: the new one had no probes for the rest of its life."""
    monkeypatch.setattr(ours, "AGAIN_SECONDS", 0.01)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        bench = Bench(f"127.0.0.1:{taken.getsockname()[1]}")
        bench.add()
        assert bench.server.problem is not None
    wait_until(lambda: bench.server.url is not None)
    assert bench.server.problem is None
    assert bench.ask("/healthz").status == 200
    bench.registrations[0].close()


def test_whoever_leaves_ends_the_wait_for_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "AGAIN_SECONDS", 0.01)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        bench = Bench(f"127.0.0.1:{taken.getsockname()[1]}")
        bench.add()
        bench.registrations[0].close()
        wait_until(lambda: all(each.name != "loadtrim-http-again" for each in threading.enumerate()))
    assert bench.server.url is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_has_a_server_of_its_own() -> None:
    """It took the parent's for its own, and served nothing."""
    program = """
import os, urllib.request
from loadtrim_agent.observability.http import HttpServer
class Agent:
    def health(self):
        return True, ""
place = HttpServer.shared("127.0.0.1:0").register("payments/parent", Agent())
def named(url):
    return urllib.request.urlopen(url + "/healthz", timeout=10).read().decode()
if (child := os.fork()) == 0:
    own = HttpServer.shared("127.0.0.1:0").register("payments/child", Agent())
    os._exit(0 if own.url != place.url and "payments/child" in named(own.url) else 1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert "payments/parent" in named(place.url)
place.close()
raise SystemExit(code)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.005)
