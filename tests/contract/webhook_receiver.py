"""A real HTTP server on loopback that takes the scaling webhook and can be told to misbehave."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

WAIT_SECONDS = 10.0


class Received(NamedTuple):
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_PUT(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = Received(self.command, self.path, headers, self.rfile.read(length))
        self.server.requests.append(received)
        behave = self.server.behaviours.popleft() if self.server.behaviours else accept
        self.server.arrived.set()
        behave(self)

    do_GET = do_POST = do_PATCH = do_PUT

    def log_message(self, format: str, *args: object) -> None:
        pass


Behaviour = Callable[[_Handler], None]


def accept(handler: _Handler) -> None:
    """204; the state is taken over."""
    handler.server.state = handler.server.requests[-1].json
    handler.send_response(204)
    handler.end_headers()


def answer(status: int, text: str = "", **headers: str) -> Behaviour:
    """Answers so; the state is not taken over."""

    def behave(handler: _Handler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(text.encode())))
        handler.end_headers()
        handler.wfile.write(text.encode())

    return behave


def hang(handler: _Handler) -> None:
    """No answer until the receiver closes or the client goes."""
    handler.connection.settimeout(0.05)
    while not handler.server.released.is_set():
        try:
            if not handler.connection.recv(1):
                handler.server.gone.set()
                return
        except TimeoutError:
            continue
        except OSError:
            handler.server.gone.set()
            return


def endless(status: int, piece: bytes, pause_seconds: float) -> Behaviour:
    """A head, then pieces without end: no call of a socket ever times out."""

    def behave(handler: _Handler) -> None:
        handler.send_response(status)
        handler.end_headers()
        try:
            while not handler.server.released.wait(pause_seconds):
                handler.wfile.write(piece)
        except OSError:
            handler.server.gone.set()

    return behave


drip = endless(500, b"x", 0.05)


def hang_up(handler: _Handler) -> None:
    """Closes without an answer."""
    handler.connection.shutdown(socket.SHUT_RDWR)


def garbage(handler: _Handler) -> None:
    """Something that is no HTTP."""
    handler.wfile.write(b"\x16\x03\x01 what?\r\n\r\n")


class Receiver(ThreadingHTTPServer):
    """Takes requests until closed. ``behaviours`` are used up first one first; then everything is
    accepted.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, 0), _Handler)
        self.scheme = "https" if tls else "http"
        self.host = f"[{host}]" if ":" in host else host
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.requests: list[Received] = []
        self.behaviours: deque[Behaviour] = deque()
        self.state: Any = None
        self.arrived = threading.Event()
        self.gone = threading.Event()
        self.released = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.server_address[1]}/scale"

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass
