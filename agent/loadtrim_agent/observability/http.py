"""``/metrics``, ``/healthz``, ``/readyz``, ``/replicas`` and ``/status`` of all consumers in this process.

Theory of operation: one server of :mod:`wsgiref` per address, in threads of its own, so that it answers whatever the
user's loop and the agents' loops are doing: a stuck agent is exactly what ``/healthz`` is there to tell. An agent
registers a :class:`Provider`; the first registration opens the port, the last one to leave closes it. A server that
cannot start or breaks is told about and never stops a consumer.

Everything is bounded: connections, requests answered at a time, size of a request (by the standard library), seconds to
read one and to write its answer. One request per connection, GET and HEAD only. Probes must not fail because somebody
keeps connections open. So the one that has been silent for longest makes room for a new one. A probe is not among the
requests that are counted: its answer fits any socket's buffer.
"""

from __future__ import annotations

import io
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import msgspec
from prometheus_client import CollectorRegistry, make_wsgi_app

from loadtrim_agent.common.host import KUBERNETES

from .address import OFF, Address, parse_address
from .joined_registries import JoinedRegistries
from .probes import Probes

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

__all__ = ["HttpServer", "Provider", "Registration"]

_log = logging.getLogger("loadtrim.http")

CONNECTIONS_MAX: Final = 64
"""Connections at a time. A new one cuts the oldest that has sent no request; with none it is turned away. Chosen:
one thread each."""
REQUESTS_MAX: Final = 8
"""Requests answered at a time, probes apart; more are answered 503 at once."""
PROBES: Final = frozenset({"/healthz", "/readyz"})
READ_SECONDS: Final = 5.0
"""A request must have arrived whole within this time."""
WRITE_SECONDS: Final = 10.0
"""An answer must have been taken within this time."""
AGAIN_SECONDS: Final = 5.0
"""A port that was taken is tried again so often: a process that still drains has it, say."""
CLOSE_SECONDS: Final = 2.0
"""How long a close waits for the port to be free; it takes milliseconds unless the machine stalls."""
ACCEPT_PAUSE_SECONDS: Final = 0.5
"""Pause after the system refused a connection (no file descriptors left), instead of asking again at once."""

_BUSY = "loadtrim.busy"
"""Key of the WSGI environment: too many requests are being answered."""
NOT_PUBLISHED: Final = (
    "no replicas to tell: no consumer of this process leads its group with LOADTRIM_SCALER=metric, holds its lease and "
    "has decided yet\n"
)
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

    def drained(self) -> bool | None:
        """Return whether the member is to go and owns nothing any more; None: its group asks for no replicas.

        Where all do that have a say, the process is not ready.
        """
        ...

    def published(self) -> tuple[str, int] | None:
        """Return a group and the replicas that an autoscaler is to bring it to; None: it has none to tell."""
        ...

    def status(self) -> object:
        """What msgspec can write as JSON, normally a :class:`loadtrim_agent.observability.status.Status`."""
        ...


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
        self._trying: threading.Event | None = None
        """Ends the thread that tries a port again; None: there is none."""
        self.probes = Probes(in_pod=KUBERNETES in os.environ)

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

    @classmethod
    def forked(cls) -> None:
        """Forget the parent's servers, in a child: their threads are not there, and their ports are the parent's."""
        servers, cls._shared, cls._shared_lock = cls._shared, {}, threading.Lock()
        for server in servers.values():
            if server._listener is not None:
                server._listener.socket.close()

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
        """Listen, or try again later. The lock is held."""
        self._listening(self._made(address), address)

    def _made(self, address: Address) -> _Listener | None:
        """Return one that listens; None: it cannot, and :attr:`problem` says why."""
        try:
            return _Listener(address, _Pages(self))
        except (OSError, ValueError) as error:  # ValueError: a host that cannot be a name
            problem = (
                f"LOADTRIM_HTTP={self._text}: cannot listen there ({error}). /metrics, /healthz, /readyz and "
                "/status of this process are not served; the consumer runs on. Free the port, which is tried again "
                f"every {AGAIN_SECONDS:g} s, or give another address: port 0 takes any free one, {OFF} none."
            )
            if problem != self._problem:
                _log.error("%s", problem)
            self._problem = problem
            return None

    def _listening(self, listener: _Listener | None, address: Address) -> None:
        if listener is not None:
            self._listener, self._problem = listener, None
            listener.start()
            _log.info("%s serves /metrics, /healthz, /readyz and /status", listener.url)
        elif self._trying is None:
            self._trying = threading.Event()
            threading.Thread(
                target=self._try_again, args=(address, self._trying), name="loadtrim-http-again", daemon=True
            ).start()

    def _try_again(self, address: Address, ended: threading.Event) -> None:
        while not ended.wait(AGAIN_SECONDS):
            # Without the lock: a name may take seconds to be looked up.
            listener = self._made(address) if self._listener is None else None
            with self._lock:
                if ended.is_set() or self._listener is not None:
                    if listener is not None:
                        listener.server_close()
                    return
                if listener is not None:
                    self._trying = None
                    self._listening(listener, address)
                    return

    @property
    def registrations(self) -> tuple[Registration, ...]:
        """The agents that are registered now."""
        with self._lock:
            return tuple(self._registrations)

    def _leave(self, registration: Registration) -> None:
        with self._lock:
            if registration not in self._registrations:
                return
            self._registrations.remove(registration)
            if self._registrations:
                return
            if self._trying is not None:
                self._trying.set()
                self._trying = None
            listener, self._listener = self._listener, None
            if listener is not None:
                # Under the lock: whoever registers now finds the port free.
                listener.stop()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=HttpServer.forked)


class _Answer(NamedTuple):
    status: HTTPStatus
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class _Pages:
    """The WSGI application: a function of the request and of the agents that are registered now."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        """Answer one request."""
        answer = self._answer(environ)
        headers = [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            ("Cache-Control", "no-store"),
            ("Server", "loadtrim"),
            *answer.headers,
        ]
        start_response(f"{answer.status.value} {answer.status.phrase}", headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [answer.body]

    def _answer(self, environ: WSGIEnvironment) -> _Answer:
        registrations = self._server.registrations
        try:
            return self._page(environ, registrations)
        except Exception as error:
            for registration in registrations[:1]:
                registration.failed("page", error)
            text = f"{type(error).__name__}: {error}\n"
            return _Answer(HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT, text.encode())

    def _page(self, environ: WSGIEnvironment, registrations: Sequence[Registration]) -> _Answer:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            allowed = (("Allow", "GET, HEAD"),)
            return _Answer(HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"GET and HEAD only\n", allowed)
        path = environ["PATH_INFO"]
        if environ.get(_BUSY):
            return _Answer(HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, b"busy\n", (("Retry-After", "1"),))
        if path == "/metrics":
            return _metrics(environ, registrations)
        if path == "/healthz":
            return _verdict(registrations, "health", lambda provider: provider.health(), unknown=True)
        if path == "/readyz":
            drained = _drained(registrations)
            kubelet = environ.get("HTTP_USER_AGENT", "").startswith("kube-probe/")
            self._server.probes.answered(drained=drained, kubelet=kubelet)
            if drained:
                return _Answer(HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, b"victim, drained\n")
            return _verdict(registrations, "readiness", lambda provider: provider.ready(), unknown=False)
        if path == "/replicas":
            return _replicas(registrations)
        if path == "/status":
            return _status(registrations)
        known = b"/metrics\n/healthz\n/readyz\n/replicas\n/status\n"
        return _Answer(HTTPStatus.OK if path == "/" else HTTPStatus.NOT_FOUND, _TEXT, known)


def _metrics(environ: WSGIEnvironment, registrations: Sequence[Registration]) -> _Answer:
    registries: list[CollectorRegistry] = []
    for registration in registrations:
        registry = registration.provider.registry
        if all(registry is not known for known in registries):
            registries.append(registry)
    started: list[tuple[str, list[tuple[str, str]]]] = []
    # The client library's own application does content negotiation, compression and name[].
    application: Any = make_wsgi_app(JoinedRegistries(registries))
    body = b"".join(application(environ | {"REQUEST_METHOD": "GET"}, lambda *begun: started.append(begun)))
    status, sent = started[0]
    content_type = next((value for name, value in sent if name.lower() == "content-type"), _TEXT)
    others = tuple((name, value) for name, value in sent if name.lower() != "content-type")
    return _Answer(HTTPStatus(int(status.split()[0])), content_type, body, others)


def _verdict(
    registrations: Sequence[Registration], what: str, ask: Callable[[Provider], tuple[bool, str]], *, unknown: bool
) -> _Answer:
    """Return whether all are well.

    A provider that raises counts as ``unknown``: an orchestrator must not kill a consumer for a fault of ours.
    """
    well = True
    lines = []
    for registration in registrations:
        try:
            good, reason = ask(registration.provider)
        except Exception as error:
            registration.failed(what, error)
            good, reason = unknown, f"{what} unknown: {type(error).__name__}"
        well = well and good
        lines.append(f"{registration.name}: {'ok' if good else 'not ok'}{': ' if reason else ''}{reason}")
    text = "\n".join(["ok" if well else "not ok", *lines, ""])
    return _Answer(HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, text.encode())


def _drained(registrations: Sequence[Registration]) -> bool:
    """Return whether the process may go: each consumer that is scaled is a victim that owns nothing."""
    try:
        answers = [registration.provider.drained() for registration in registrations]
        return True in answers and False not in answers
    except Exception as error:
        registrations[0].failed("readiness", error)
        return False


def _replicas(registrations: Sequence[Registration]) -> _Answer:
    """Return what an autoscaler is to make so: nothing where nothing is known, so that it leaves all as it is."""
    found: dict[str, int] = {}
    for registration in registrations:
        try:
            published = registration.provider.published()
        except Exception as error:
            registration.failed("replicas", error)
            continue
        if published is not None:
            group, replicas = published
            found[group] = max(replicas, found.get(group, 0))
    if not found:
        return _Answer(HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, NOT_PUBLISHED.encode())
    return _Answer(HTTPStatus.OK, _JSON, msgspec.json.encode({"v": 1, "replicas": found}) + b"\n")


def _status(registrations: Sequence[Registration]) -> _Answer:
    agents = []
    for registration in registrations:
        try:
            shown = msgspec.json.encode(registration.provider.status(), enc_hook=repr)
        except Exception as error:
            registration.failed("status", error)
            shown = msgspec.json.encode({"name": registration.name, "error": f"{type(error).__name__}: {error}"})
        agents.append(msgspec.Raw(shown))
    page = msgspec.json.encode({"v": 1, "pid": os.getpid(), "agents": agents})
    return _Answer(HTTPStatus.OK, _JSON, msgspec.json.format(page, indent=2) + b"\n")


class _Connections:
    """The open connections, and which of them are still silent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unread: dict[socket.socket, None] = {}
        """Connections that have sent no request yet, oldest first."""
        self._open = 0

    def enter(self, connection: socket.socket) -> bool:
        """Take one in. False: there are too many, and all of them have sent a request."""
        with self._lock:
            if self._open >= CONNECTIONS_MAX:
                oldest = next(iter(self._unread), None)
                if oldest is None:
                    return False
                del self._unread[oldest]
                _cut(oldest)  # its thread reads the end, and leaves
            self._open += 1
            self._unread[connection] = None
            return True

    def was_read(self, connection: socket.socket) -> None:
        """The request of the connection is here."""
        with self._lock:
            self._unread.pop(connection, None)

    def leave(self, connection: socket.socket) -> None:
        """The connection was closed."""
        with self._lock:
            self._unread.pop(connection, None)
            self._open -= 1


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Listener(ThreadingMixIn, WSGIServer):
    """Accepts in one daemon thread, answers each request in another.

    Raises:
        OSError: the address cannot be had.
    """

    daemon_threads = True
    block_on_close = False
    # On Windows this flag would let two processes have the same port.
    allow_reuse_address = os.name == "posix"
    request_queue_size = CONNECTIONS_MAX

    def __init__(self, address: Address, pages: _Pages) -> None:
        family, _, _, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self.address_family = family
        self.slots = threading.BoundedSemaphore(REQUESTS_MAX)
        self.connections = _Connections()
        self._stopping = False
        super().__init__((str(where[0]), address.port), _Handler)
        self.set_app(pages)
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.url = f"http://{host}:{self.server_port}"
        self._thread = threading.Thread(target=self._serve, name="loadtrim-http", daemon=True)

    def server_bind(self) -> None:
        """Bind, without the look-up of the machine's name that the base class makes."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def start(self) -> None:
        """Accept from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Accept no more and free the port. Requests under way are answered."""
        self._stopping = True
        with suppress(OSError), socket.socket(self.address_family, socket.SOCK_STREAM) as wake:
            wake.settimeout(CLOSE_SECONDS)
            wake.connect(self.server_address)
        self._thread.join(CLOSE_SECONDS)

    def _serve(self) -> None:
        # Not serve_forever, which wakes up twice a second to look whether it is to end.
        try:
            with self.socket:
                while not self._stopping:
                    self.handle_request()
        except Exception:
            _log.exception(
                "%s has broken down: /metrics, /healthz, /readyz and /status are not served any more. The "
                "consumer runs on. Please report it with this trace.",
                self.url,
            )

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept one connection."""
        try:
            return super().get_request()
        except OSError:
            # No file descriptors are left: without the pause the system would refuse the same one again at once.
            time.sleep(ACCEPT_PAUSE_SECONDS)
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Refuse the connection that only wakes the server for its end."""
        return not self._stopping

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, or turn away."""
        if not self.connections.enter(request):
            with request:
                request.setblocking(False)
                request.send(b"HTTP/1.0 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n\r\n")
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self.connections.leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one request, in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a client that went away, as a rule; the default would print to stderr."""
        _log.debug("request of %s not answered", client_address, exc_info=True)


class _Handler(WSGIRequestHandler):
    """One request, as :mod:`wsgiref` reads it, within a bound on time."""

    # Of a request that does not say: the base class would answer without a status line, as in HTTP/0.9.
    default_request_version = "HTTP/1.0"
    sys_version = ""
    server: _Listener
    _slot = False
    """Is this request one of those that are counted?"""

    def handle(self) -> None:
        """Read the request and answer it."""
        # A time-out of the socket bounds each read, and not all of them together.
        self._too_slow = threading.Timer(READ_SECONDS, _cut, (self.connection,))
        self._too_slow.daemon = True
        self._too_slow.start()
        try:
            super().handle()
        finally:
            self._too_slow.cancel()
            if self._slot:
                self.server.slots.release()

    def get_environ(self) -> dict[str, Any]:
        """Return what the application is given: the request is read."""
        self._too_slow.cancel()
        self.server.connections.was_read(self.connection)
        self.connection.settimeout(WRITE_SECONDS)
        environ = super().get_environ()
        if environ["PATH_INFO"] not in PROBES:
            self._slot = self.server.slots.acquire(blocking=False)
            environ[_BUSY] = not self._slot
        return environ

    def get_stderr(self) -> Any:
        """Return where wsgiref prints a trace when the client has gone: nowhere."""
        return io.StringIO()

    def log_message(self, format: str, *args: object) -> None:
        """Log at the level of debugging instead of printing."""
        _log.debug(format, *args)
