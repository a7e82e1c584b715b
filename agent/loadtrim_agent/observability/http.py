"""``/metrics``, ``/healthz``, ``/readyz`` and ``/status`` of all consumers in this process.

Theory of operation: one small server of the standard library per address, in threads of its own, so that it
answers whatever the user's loop and the agents' loops are doing: a stuck agent is exactly what ``/healthz``
is there to tell. An agent registers a :class:`Provider`; the first registration opens the port, the last one
to leave closes it. A server that cannot start or breaks is told about and never stops a consumer.

Everything is bounded: requests at a time, size of a request, seconds to read one and to write its answer. One
request per connection, GET and HEAD only.
"""

from __future__ import annotations

import io
import logging
import os
import selectors
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar, Final, NamedTuple, Protocol
from urllib.parse import SplitResult, urlsplit

import msgspec
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

__all__ = ["OFF", "Address", "HttpServer", "Provider", "Registration", "parse_address"]

_log = logging.getLogger("loadtrim.http")

OFF: Final = "off"
"""The address of no server."""
REQUESTS_MAX: Final = 8
"""Requests answered at a time; more are answered 503 at once."""
HEAD_BYTES_MAX: Final = 16 * 1024
"""Most bytes of request line and headers; more are answered 431."""
READ_SECONDS: Final = 5.0
"""A request must have arrived whole within this time."""
WRITE_SECONDS: Final = 10.0
"""An answer must have been taken within this time."""
CLOSE_SECONDS: Final = 2.0
"""How long a close waits for the port to be free; it takes milliseconds unless the machine stalls."""
ACCEPT_PAUSE_SECONDS: Final = 0.5
"""Pause after the system refused a connection (no file descriptors left), instead of asking again at once."""

_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"


class Provider(Protocol):
    """One agent, as the server sees it.

    Called on the server's threads at any time, so each answers from a snapshot, at once, and calls nothing of
    the agent's loop. What it raises is counted and contained.
    """

    @property
    def registry(self) -> CollectorRegistry:
        """Where the agent's metrics are."""
        ...

    def health(self) -> tuple[bool, str]:
        """False only when records wait and nothing advances for a reason that is the agent's; and why."""
        ...

    def ready(self) -> tuple[bool, str]:
        """Whether the member has its generation, whether or not it owns anything; and what it waits for."""
        ...

    def status(self) -> object:
        """What msgspec can write as JSON, normally a :class:`loadtrim_agent.observability.status.Status`."""
        ...


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int
    """0: any free port."""


def parse_address(text: str) -> Address | None:
    """Read a ``LOADTRIM_HTTP`` value: ``host:port``, ``[ipv6]:port`` or ``off`` (None).

    Raises:
        ValueError: it is none of these; the text says what is allowed.
    """
    if text.strip().lower() == OFF:
        return None
    host, colon, port = text.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    plain = host and (bracketed or ":" not in host)
    if not (colon and plain and port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError(
            f"{text!r} is no address to listen on. Allowed: host:port, for example 127.0.0.1:0 (port 0: any "
            f"free one), 0.0.0.0:9095 or [::1]:9095, and {OFF}."
        )
    return Address(host, int(port))


class Registration:
    """One agent's place at the server. :meth:`close` gives it back; closing twice is fine."""

    def __init__(self, server: HttpServer, name: str, provider: Provider, on_error: Callable[[str], None]) -> None:
        self.name = name
        self.provider = provider
        self._server = server
        self._on_error = on_error
        self._told: set[str] = set()

    @property
    def url(self) -> str | None:
        """Where the server listens, as ``http://host:port``; None: it does not."""
        return self._server.url

    @property
    def problem(self) -> str | None:
        """Why the server does not listen although it should; None: it does, or is off."""
        return self._server.problem

    def failed(self, where: str, error: BaseException) -> None:
        """Count that something of the provider's raised, and say it once per place."""
        if where not in self._told:
            self._told.add(where)
            _log.error(
                "The %s of %s cannot be shown, the consumer runs on. Said once; please report it with this trace.",
                where,
                self.name,
                exc_info=error,
            )
        self._on_error("http")

    def close(self) -> None:
        """Leave the server, which stops when it was the last one."""
        self._server._leave(self)


class HttpServer:
    """The server at one address. Get it from :meth:`shared`."""

    _shared: ClassVar[dict[str, HttpServer]] = {}
    _shared_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, address: str) -> None:
        self._address = parse_address(address)
        self._text = address
        self._lock = threading.Lock()
        self._registrations: list[Registration] = []
        self._listener: _Listener | None = None
        self._problem: str | None = None

    @classmethod
    def shared(cls, address: str) -> HttpServer:
        """The process's server for an address; agents with the same ``LOADTRIM_HTTP`` get the same one.

        Raises:
            ValueError: as :func:`parse_address`.
        """
        with cls._shared_lock:
            if address not in cls._shared:
                cls._shared[address] = cls(address)
            return cls._shared[address]

    @property
    def url(self) -> str | None:
        """Where it listens, as ``http://host:port``; None: it does not."""
        listener = self._listener
        return listener.url if listener is not None else None

    @property
    def problem(self) -> str | None:
        """Why it could not listen when it last tried; None: it could, or is off."""
        return self._problem

    def register(
        self, name: str, provider: Provider, on_error: Callable[[str], None] = lambda where: None
    ) -> Registration:
        """Show one more agent; opens the port with the first one.

        Never raises: what is wrong is in ``problem`` of the answer, is logged once and counted.

        Args:
            name: What the agent is called in the answers, as ``group/client id``.
            provider: The agent.
            on_error: Told ``"http"`` when the server cannot start and for each answer that the provider broke
                (normally ``Metrics.agent_error``).
        """
        registration = Registration(self, name, provider, on_error)
        with self._lock:
            self._registrations.append(registration)
            if self._listener is None and self._address is not None:
                self._start(self._address)
            failed = self._problem is not None
        if failed:
            on_error("http")
        return registration

    def _start(self, address: Address) -> None:
        try:
            self._listener = _Listener(address, self._pages)
        except OSError as error:
            problem = (
                f"LOADTRIM_HTTP={self._text}: cannot listen there ({error}). /metrics, /healthz, /readyz and "
                "/status of this process are not served; the consumer runs on. Free the port, or give another "
                f"address: port 0 takes any free one, {OFF} none."
            )
            if problem != self._problem:
                _log.error("%s", problem)
            self._problem = problem
            return
        self._problem = None
        self._listener.start()
        _log.info("%s serves /metrics, /healthz, /readyz and /status", self._listener.url)

    def _pages(self) -> _Pages:
        with self._lock:
            return _Pages(tuple(self._registrations))

    def _leave(self, registration: Registration) -> None:
        with self._lock:
            if registration not in self._registrations:
                return
            self._registrations.remove(registration)
            if self._registrations:
                return
            listener, self._listener = self._listener, None
            if listener is not None:
                # Under the lock: whoever registers now finds the port free.
                listener.stop()


class _Answer(NamedTuple):
    status: HTTPStatus
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class _Pages:
    """What the server answers: a function of the path and of who is registered now."""

    def __init__(self, registrations: Sequence[Registration]) -> None:
        self._registrations = registrations

    def answer(self, target: str, accept: str = "", accept_encoding: str = "") -> _Answer:
        """The answer to a GET.

        Args:
            target: Path and query, as in the request line.
            accept: The request's header of that name.
            accept_encoding: The request's header of that name.
        """
        try:
            return self._page(urlsplit(target), accept, accept_encoding)
        except Exception as error:
            for registration in self._registrations[:1]:
                registration.failed("page", error)
            text = f"{type(error).__name__}: {error}\n"
            return _Answer(HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT, text.encode())

    def _page(self, url: SplitResult, accept: str, accept_encoding: str) -> _Answer:
        if url.path == "/metrics":
            return self._metrics(url.query, accept, accept_encoding)
        if url.path == "/healthz":
            return self._verdict("health", lambda provider: provider.health(), unknown=True)
        if url.path == "/readyz":
            return self._verdict("readiness", lambda provider: provider.ready(), unknown=False)
        if url.path == "/status":
            return self._status()
        known = b"/metrics\n/healthz\n/readyz\n/status\n"
        return _Answer(HTTPStatus.OK if url.path == "/" else HTTPStatus.NOT_FOUND, _TEXT, known)

    def _metrics(self, query: str, accept: str, accept_encoding: str) -> _Answer:
        registries: list[CollectorRegistry] = []
        for registration in self._registrations:
            registry = registration.provider.registry
            if all(registry is not known for known in registries):
                registries.append(registry)
        environment = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": "/metrics",
            "QUERY_STRING": query,
            "HTTP_ACCEPT": accept,
            "HTTP_ACCEPT_ENCODING": accept_encoding,
        }
        started: list[tuple[str, list[tuple[str, str]]]] = []
        # The client library's own application does content negotiation, compression and name[].
        body = b"".join(make_wsgi_app(_Joined(registries))(environment, lambda *said: started.append(said)))
        status, sent = started[0]
        content_type = next((value for name, value in sent if name.lower() == "content-type"), _TEXT)
        others = tuple((name, value) for name, value in sent if name.lower() != "content-type")
        return _Answer(HTTPStatus(int(status.split()[0])), content_type, body, others)

    def _verdict(self, what: str, ask: Callable[[Provider], tuple[bool, str]], *, unknown: bool) -> _Answer:
        """All must be well.

        A provider that raises counts as ``unknown``: an orchestrator must not kill a consumer for a fault of
        ours.
        """
        well = True
        lines = []
        for registration in self._registrations:
            try:
                good, reason = ask(registration.provider)
            except Exception as error:
                registration.failed(what, error)
                good, reason = unknown, f"{what} unknown: {type(error).__name__}"
            well = well and good
            lines.append(f"{registration.name}: {'ok' if good else 'not ok'}{': ' if reason else ''}{reason}")
        text = "\n".join(["ok" if well else "not ok", *lines, ""])
        return _Answer(HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, text.encode())

    def _status(self) -> _Answer:
        agents = []
        for registration in self._registrations:
            try:
                shown = msgspec.json.encode(registration.provider.status(), enc_hook=repr)
            except Exception as error:
                registration.failed("status", error)
                shown = msgspec.json.encode({"name": registration.name, "error": f"{type(error).__name__}: {error}"})
            agents.append(msgspec.Raw(shown))
        page = msgspec.json.encode({"v": 1, "pid": os.getpid(), "agents": agents})
        return _Answer(HTTPStatus.OK, _JSON, msgspec.json.format(page, indent=2) + b"\n")


class _Joined(Collector):
    """Several registries read as one: a family that is in more than one of them is there once."""

    def __init__(self, registries: Sequence[Any]) -> None:
        self._registries = registries

    def restricted_registry(self, names: Iterable[str]) -> _Joined:
        """The same for some names only, as ``CollectorRegistry`` has it."""
        wanted = list(names)
        return _Joined([registry.restricted_registry(wanted) for registry in self._registries])

    def collect(self) -> Iterable[Metric]:
        """The families of all, in the order in which they were met."""
        if len(self._registries) == 1:
            return list(self._registries[0].collect())
        families: dict[str, Metric] = {}
        seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
        for registry in self._registries:
            for metric in registry.collect():
                joined = families.get(metric.name)
                if joined is None:
                    joined = Metric(metric.name, metric.documentation, metric.type)
                    families[metric.name] = joined
                for sample in metric.samples:
                    key = (sample.name, tuple(sorted(sample.labels.items())))
                    if key not in seen:  # both registries may hold, say, a collector for the process
                        seen.add(key)
                        joined.samples.append(sample)
        return list(families.values())


class _Listener(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Accepts in one daemon thread, answers each request in another.

    Raises:
        OSError: the address cannot be had.
    """

    daemon_threads = True
    block_on_close = False
    # On Windows this flag would let two processes have the same port.
    allow_reuse_address = os.name == "posix"
    request_queue_size = 2 * REQUESTS_MAX
    timeout = 0

    def __init__(self, address: Address, pages: Callable[[], _Pages]) -> None:
        family, _, _, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self.address_family = family
        self.pages = pages
        self._slots = threading.BoundedSemaphore(REQUESTS_MAX)
        self._stopping = False
        self._starved = False
        self._wake, self._woken = socket.socketpair()
        try:
            super().__init__((str(where[0]), address.port), _Handler)
        except BaseException:
            self._wake.close()
            self._woken.close()
            raise
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.url = f"http://{host}:{self.server_address[1]}"
        self._thread = threading.Thread(target=self._serve, name="loadtrim-http", daemon=True)

    def start(self) -> None:
        """Accept from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Accept no more and free the port. Requests under way are answered."""
        self._stopping = True
        with suppress(OSError):
            self._wake.send(b"\0")
        self._thread.join(CLOSE_SECONDS)

    def _serve(self) -> None:
        try:
            self._accept()
        except Exception:
            _log.exception(
                "%s has broken down: /metrics, /healthz, /readyz and /status are not served any more. The "
                "consumer runs on. Please report it with this trace.",
                self.url,
            )

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector, self._wake, self._woken, self.socket:
            selector.register(self.socket, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while not self._stopping:
                ready = [key.fileobj for key, _ in selector.select()]
                if self.socket in ready:
                    self.handle_request()
                if self._starved:
                    self._starved = False
                    self._woken.settimeout(ACCEPT_PAUSE_SECONDS)
                    try:
                        self._woken.recv(1)
                    except TimeoutError:
                        continue

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept one connection."""
        try:
            return super().get_request()
        except OSError:
            self._starved = True
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, or turn away."""
        if not self._slots.acquire(blocking=False):
            with request:
                request.setblocking(False)
                request.send(b"HTTP/1.0 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n\r\n")
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One request, in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, as a rule; the default would print to stderr."""
        _log.debug("request of %s not answered", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: _Listener
    server_version = "loadtrim"
    sys_version = ""
    # Of a request that does not say: the base class would answer without a status line, as in HTTP/0.9.
    default_request_version = "HTTP/1.0"
    _too_large = False

    def setup(self) -> None:
        super().setup()
        head = self._read_head()
        self.rfile.close()
        # Parsed from memory: the base class's own reading has no limit on time and a large one on size.
        self.rfile = io.BufferedReader(io.BytesIO(head))

    def _read_head(self) -> bytes:
        """Request line and headers; nothing when they do not arrive in time."""
        deadline = time.monotonic() + READ_SECONDS
        head = b""
        while b"\r\n\r\n" not in head and b"\n\n" not in head:
            left = deadline - time.monotonic()
            if len(head) >= HEAD_BYTES_MAX:
                self._too_large = True
                return b""
            if left <= 0:
                return b""
            self.connection.settimeout(left)
            try:
                more = self.connection.recv(HEAD_BYTES_MAX)
            except TimeoutError:
                return b""
            if not more:
                return b""
            head += more
        self.connection.settimeout(WRITE_SECONDS)
        return head

    def handle(self) -> None:
        if self._too_large:
            self.connection.settimeout(WRITE_SECONDS)
            self.wfile.write(b"HTTP/1.0 431 Request Header Fields Too Large\r\nConnection: close\r\n\r\n")
            return
        super().handle()

    def do_GET(self) -> None:
        self._send(self._answer())

    def do_HEAD(self) -> None:
        self._send(self._answer())

    def _answer(self) -> _Answer:
        accept = self.headers.get("Accept", ""), self.headers.get("Accept-Encoding", "")
        return self.server.pages().answer(self.path, *accept)

    def _refuse(self) -> None:
        allowed = (("Allow", "GET, HEAD"),)
        self._send(_Answer(HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"GET and HEAD only\n", allowed))

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse

    def _send(self, answer: _Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        for name, value in answer.headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:
        _log.debug(format, *args)
