"""Pods are read and watched at the API server with the standard library alone.

Any member may have to look, and in a hurry: the library of the scaler takes 38 MB and seconds of a busy machine to
import, which is fine for a leader's first request.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from loadtrim_agent.common.daemon_call import DaemonCall

from ..breakable import BreakableConnection
from . import client
from .api import ApiError
from .client import Account, pod_namespace
from .pod import Pod

__all__ = ["PodReader"]

T = TypeVar("T")
REQUEST_SECONDS: Final = 2.0
"""Each wait for the API server is given up after this time. Chosen: it answers in milliseconds, and is asked again."""
ANSWER_BYTES_MAX: Final = 4_000_000
"""Longest answer, or event of a watch, that is read. Chosen: more than the API server stores of one object."""
WATCH_SECONDS: Final = 300
"""The API server ends a watch after this time, and the next one begins with all pods as they are: no event is missed
for longer, and the token is read anew. Chosen: one request in five minutes."""
IDLE_SECONDS: Final = WATCH_SECONDS + 30.0
"""A watch that brings nothing for so long is given up. Derived: the API server has ended it by then."""
KEEPALIVE: Final = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Seconds, and probes: a connection whose other end has vanished is noticed after half a minute. Chosen."""


class _Refusal(msgspec.Struct, frozen=True):
    message: str = ""
    code: int = 0


class _Event(msgspec.Struct, frozen=True):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class PodReader:
    """The pods of this pod's namespace.

    Args:
        account: directory of the ServiceAccount's files; None: where Kubernetes puts them.
        selector: labels of the group's pods, as ``app=payments``; empty: they cannot be watched.
    """

    def __init__(self, account: Path | None = None, selector: str = "") -> None:
        self._account = account or client.ACCOUNT
        self._namespace = pod_namespace(self._account)
        self._selector = selector

    @property
    def watches(self) -> bool:
        """Return whether :meth:`watch` may be called."""
        return bool(self._selector)

    async def pod(self, name: str) -> Pod:
        """Read a pod, in a thread: token and authorities are files.

        Raises:
            ApiError: it was refused, there is none, or there was no answer.
        """

        def read(connection: BreakableConnection) -> Pod:
            with self._answer(connection, f"/{quote(name, safe='')}") as answer:
                body = answer.read(ANSWER_BYTES_MAX)
            try:
                return msgspec.json.decode(body, type=Pod)
            except msgspec.MsgspecError as error:
                raise ApiError(0, f"pods/{name} cannot be read: {error}") from None

        return await self._call(read, "pod")

    async def watch(self, take: Callable[[str, Pod], None]) -> None:
        """Hand over the selected pods as they are and as they change, until the API server ends the watch.

        Args:
            take: called in this loop with the kind of the event (``ADDED``, ``MODIFIED``, ``DELETED``) and the pod.

        Raises:
            ApiError: it was refused, or has broken.
        """
        loop = asyncio.get_running_loop()
        wanted = {
            "watch": "1",
            "labelSelector": self._selector,
            # The watch begins with the pods of the API server's cache. `list` is no right that it takes. No bookmarks:
            # with them it would be a streaming list, which takes etcd 3.5 and a read of it.
            "resourceVersion": "0",
            "timeoutSeconds": str(WATCH_SECONDS),
        }

        def read(connection: BreakableConnection) -> None:
            with self._answer(connection, f"?{urlencode(wanted)}", IDLE_SECONDS) as answer:
                while line := answer.readline(ANSWER_BYTES_MAX):
                    if (event := _event_of(line)) is not None:
                        loop.call_soon_threadsafe(take, *event)

        await self._call(read, "pods")

    async def _call(self, function: Callable[[BreakableConnection], T], name: str) -> T:
        """Call in a daemon thread; cancelled, the wait ends at once, and the thread soon."""
        connection = BreakableConnection(self._connection)
        call = DaemonCall(lambda: function(connection), name)
        call.start()
        try:
            return await call.outcome
        finally:
            connection.break_off()

    @contextlib.contextmanager
    def _answer(
        self, broken: BreakableConnection, path: str, idle_seconds: float = REQUEST_SECONDS
    ) -> Iterator[http.client.HTTPResponse]:
        """Ask for pods, in a thread.

        Args:
            broken: the connection, which another thread may break off.
            path: below the namespace's pods.
            idle_seconds: longest wait for a part of the body.
        """
        try:
            token = Account.read(self._account).token
            with broken.opened() as connection:
                headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
                connection.request(
                    "GET", f"/api/v1/namespaces/{quote(self._namespace, safe='')}/pods{path}", None, headers
                )
                sock = connection.sock
                with connection.getresponse() as answer:
                    if answer.status != HTTPStatus.OK:
                        raise ApiError(answer.status, _refusal(answer.read(ANSWER_BYTES_MAX)).message or answer.reason)
                    _keep_alive(sock, idle_seconds)
                    yield answer
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ApiError(0, f"the API server cannot be talked to: {type(error).__name__}: {error}") from None

    def _connection(self) -> http.client.HTTPSConnection:
        account = Account.read(self._account)
        parts = urlsplit(account.host)
        context = ssl.create_default_context(cafile=str(account.certificates))
        return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=REQUEST_SECONDS, context=context)


def _keep_alive(sock: socket.socket | None, idle_seconds: float) -> None:
    if sock is None:
        return
    sock.settimeout(idle_seconds)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _event_of(line: bytes) -> tuple[str, Pod] | None:
    """Decode a line of a watch; None: it tells of no pod.

    Raises:
        ApiError: it is an error of the watch, or cannot be read.
    """
    try:
        event = msgspec.json.decode(line, type=_Event)
        if event.type == "ERROR":
            refusal = _refusal(bytes(event.object))
            raise ApiError(refusal.code, refusal.message or "the watch was ended without a reason")
        if event.type == "BOOKMARK":
            return None  # Not asked for, and no pod.
        return event.type, msgspec.json.decode(event.object, type=Pod)
    except msgspec.MsgspecError as error:
        raise ApiError(0, f"an event of the watch of pods cannot be read: {error}") from None


def _refusal(body: bytes) -> _Refusal:
    """Return what the API server says, which names no secret; empty: nothing that can be read."""
    try:
        return msgspec.json.decode(body, type=_Refusal)
    except msgspec.MsgspecError:
        return _Refusal()
