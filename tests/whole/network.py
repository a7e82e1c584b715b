"""Connections between processes and brokers: bytes, in order, late, cut or lost."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from .kernel import Kernel, Process, SimLoop

__all__ = ["HOST", "Connection", "Network", "Serves"]

HOST = "broker"
FIRST_PORT = 9092
USUAL_SECONDS_MAX = 0.003
"""Longest that a message usually takes, one way. Chosen."""
_LENGTH = struct.Struct(">i")


class Serves(Protocol):
    """A broker, as its connections see it."""

    def serve(self, node: int, frame: bytes, reply: Callable[[bytes], None], client: Connection) -> None:
        """Answer one request; ``reply`` is called once, now or later, or never."""


class Connection(asyncio.Transport):
    """One connection: the transport of the client, and the place of the broker's answers.

    The broker answers one request of a connection at a time, in order, as Kafka does.
    """

    def __init__(self, network: Network, loop: SimLoop, protocol: Any, node: int) -> None:
        super().__init__()
        self._network = network
        self.loop = loop
        self.process: Process = loop.process
        self.node = node
        self._protocol = protocol
        self._received = bytearray()
        self._waiting: deque[bytes] = deque()
        self._busy = False
        self._there_at = 0.0
        self._back_at = 0.0
        self.open = True
        self.silent = False
        """A black hole: what is sent arrives nowhere, and nobody is told."""
        self.late_seconds: float | None = None
        """What was on its way when the connection broke reaches the broker so much later; None: it does not."""

    # -- the client's side ---------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return not self.open

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def write(self, data: Any) -> None:
        if not self.open:
            return
        self._received += data
        while len(self._received) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._received)
            if len(self._received) < _LENGTH.size + size:
                return
            frame = bytes(self._received[_LENGTH.size : _LENGTH.size + size])
            del self._received[: _LENGTH.size + size]
            self._there_at = max(self._there_at, self._network.now + self._network.seconds(self))
            self._network.at(self._there_at, self._arrived, frame)

    def close(self) -> None:
        if self.open:
            self.open = False
            self._network.closed(self)
            self.loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    # -- the broker's side ---------------------------------------------------------------------------------------

    def _arrived(self, frame: bytes) -> None:
        if not self.open and self.late_seconds is not None and not self.silent:
            self._network.at(self._network.now + self.late_seconds, self._arrived_late, frame)
        if not self.open or self.silent:
            return
        self._waiting.append(frame)
        self._serve_next()

    def _arrived_late(self, frame: bytes) -> None:
        self._network.broker.serve(self.node, frame, lambda answer: None, self)

    def _serve_next(self) -> None:
        if self._busy or not self._waiting or not self.open:
            return
        self._busy = True
        self._network.broker.serve(self.node, self._waiting.popleft(), self._answer, self)

    def _answer(self, frame: bytes) -> None:
        if not self.open:
            return
        self._busy = False
        self._network.answered_bytes += len(frame)
        self._back_at = max(self._back_at, self._network.now + self._network.seconds(self))
        self._network.at(self._back_at, self._deliver, _LENGTH.pack(len(frame)) + frame)
        self._serve_next()

    def _deliver(self, data: bytes) -> None:
        if self.open and not self.silent:
            self.loop.call_soon_threadsafe(self._receive, data)

    def _receive(self, data: bytes) -> None:
        if not self.open:
            return
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            asyncio.protocols._feed_data_to_buffered_proto(protocol, data)  # type: ignore[attr-defined]
        else:
            protocol.data_received(data)

    def cut(self) -> None:
        """The connection breaks; the client is told."""
        if self.open:
            self.open = False
            self._network.closed(self)
            if not self.process.gone:
                self.loop.call_soon_threadsafe(self._lost)

    def _lost(self) -> None:
        self._protocol.connection_lost(ConnectionResetError("the connection was cut"))


class Network:
    """All connections.

    Args:
        kernel: virtual time.
        broker: answers.
    """

    def __init__(self, kernel: Kernel, broker: Serves) -> None:
        self._kernel = kernel
        self.broker = broker
        self.connections: dict[Connection, None] = {}
        self.refusing: set[int] = set()
        """Nodes that take no connection."""
        self.answered_bytes = 0
        """By all brokers so far."""
        self.slow: dict[Process, float] = {}
        """Processes whose messages take up to so many seconds."""
        kernel.connect = self.connect
        kernel.on_end = self._process_ended

    @property
    def now(self) -> float:
        return self._kernel.now

    def seconds(self, connection: Connection) -> float:
        """Return how long one message takes, one way."""
        return self._kernel.rng.uniform(0.0002, self.slow.get(connection.process, USUAL_SECONDS_MAX))

    def at(self, time: float, action: Callable[..., None], *args: Any) -> None:
        self._kernel.scheduler.at(time, action, *args)

    async def connect(self, loop: SimLoop, protocol_factory: Any, host: str, port: int) -> tuple[Any, Any]:
        """See ``loop.create_connection``."""
        await asyncio.sleep(self._kernel.rng.uniform(0.0002, USUAL_SECONDS_MAX))
        node = port - FIRST_PORT
        if node in self.refusing:
            raise ConnectionRefusedError(f"node {node} is away")
        protocol = protocol_factory()
        connection = Connection(self, loop, protocol, node)
        self.connections[connection] = None
        protocol.connection_made(connection)
        return connection, protocol

    def closed(self, connection: Connection) -> None:
        self.connections.pop(connection, None)

    def of(self, process: Process) -> list[Connection]:
        """Return the connections of one process."""
        return [connection for connection in self.connections if connection.process is process]

    def down(self, node: int) -> None:
        """A node is gone: its connections break and none is taken."""
        self.refusing.add(node)
        for connection in [c for c in self.connections if c.node == node]:
            connection.cut()

    def up(self, node: int) -> None:
        self.refusing.discard(node)

    def _process_ended(self, process: Process) -> None:
        for connection in self.of(process):
            connection.cut()
