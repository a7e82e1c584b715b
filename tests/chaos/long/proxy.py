"""A TCP proxy before each broker: its connections are cut, slowed, or silent, all of them or those of one client.

It runs in a thread and loop of its own, so that nothing that the test waits for holds up a member's bytes.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

__all__ = ["Proxies", "client_of"]

HOST = "127.0.0.1"
CHUNK_BYTES = 65_536
FIRST_REQUEST_BYTES = 14
"""Of a request's header up to the client id: size, key, version, correlation id, length."""

T = TypeVar("T")


def client_of(head: bytes) -> str:
    """Return the client id that a connection's first request names; empty where it names none."""
    if len(head) < FIRST_REQUEST_BYTES:
        return ""
    (length,) = struct.unpack_from(">h", head, FIRST_REQUEST_BYTES - 2)
    return head[FIRST_REQUEST_BYTES : FIRST_REQUEST_BYTES + max(0, length)].decode(errors="replace")


@dataclass(eq=False, slots=True)
class _Link:
    """One connection through a proxy."""

    broker: int
    client: str = ""
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    def cut(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


@dataclass(frozen=True, slots=True)
class Hole:
    """What a network swallows until it heals.

    Attributes:
        broker: of this broker's connections only; None: of any.
        client: of this client's only; None: of any.
    """

    broker: int | None = None
    client: str | None = None

    def swallows(self, link: _Link) -> bool:
        return self.broker in (None, link.broker) and self.client in (None, link.client)


class Proxies:
    """A proxy for each broker. All methods may be called from any thread.

    Args:
        ports: broker id -> the port that members connect to.
        targets: broker id -> the broker's own port; may be filled in after the proxies have started.
    """

    def __init__(self, ports: Mapping[int, int], targets: Mapping[int, int]) -> None:
        self._ports = dict(ports)
        self._targets = targets
        self._links: set[_Link] = set()
        self._handlers: set[asyncio.Task[Any]] = set()
        self._holes: list[Hole] = []
        self._healed = asyncio.Event()
        self._delay_seconds = 0.0
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)

    @property
    def bootstrap(self) -> str:
        """The proxies as ``bootstrap_servers`` takes them."""
        return ",".join(f"{HOST}:{port}" for port in self._ports.values())

    def __enter__(self) -> Proxies:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- faults --------------------------------------------------------------------------------------------------

    def cut(self, hole: Hole) -> int:
        """Break connections; new ones may be made. Returns how many there were."""
        return self._call(lambda: self._cut(hole))

    def swallow(self, hole: Hole) -> None:
        """Let nothing through any more: what is sent waits, as on a network that drops all packets."""
        self._call(lambda: self._holes.append(hole))

    def slow(self, seconds: float) -> None:
        """Let each piece of data wait so long, in either direction."""
        self._call(lambda: setattr(self, "_delay_seconds", seconds))

    def heal(self) -> None:
        """Let through everything at full speed, also what waited."""
        self._call(self._heal)

    def _call(self, do: Callable[[], T]) -> T:
        done: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._loop.call_soon_threadsafe(lambda: done.set_result(do()))
        return done.result()

    def _cut(self, hole: Hole) -> int:
        links = [link for link in self._links if hole.swallows(link)]
        for link in links:
            link.cut()
        return len(links)

    def _heal(self) -> None:
        self._holes.clear()
        self._delay_seconds = 0.0
        self._healed.set()
        self._healed = asyncio.Event()

    # -- bytes ---------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        for broker, port in self._ports.items():

            async def connected(reader: Any, writer: Any, broker: int = broker) -> None:
                await self._connected(_Link(broker), reader, writer)

            self._servers.append(await asyncio.start_server(connected, HOST, port))

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        self._heal()
        for link in list(self._links):
            link.cut()
        if self._handlers:
            await asyncio.wait(self._handlers)

    async def _connected(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link.writers.append(writer)
        self._links.add(link)
        handler = asyncio.current_task()
        assert handler is not None
        self._handlers.add(handler)
        try:
            head = await reader.read(CHUNK_BYTES)
            link.client = client_of(head)
            far_reader, far_writer = await asyncio.open_connection(HOST, self._targets[link.broker])
            link.writers.append(far_writer)
            await self._pass_on(link, head, far_writer)
            await asyncio.gather(self._pump(link, reader, far_writer), self._pump(link, far_reader, writer))
        except OSError:
            pass
        finally:
            link.cut()
            self._links.discard(link)
            self._handlers.discard(handler)

    async def _pump(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._pass_on(link, data, writer)
        link.cut()

    async def _pass_on(self, link: _Link, data: bytes, writer: asyncio.StreamWriter) -> None:
        if self._delay_seconds:
            await asyncio.sleep(self._delay_seconds)
        while any(hole.swallows(link) for hole in self._holes):
            await self._healed.wait()
        writer.write(data)
        await writer.drain()
