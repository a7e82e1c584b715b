"""Questions to a broker without a client.

A broker's socket accepts before the broker serves; only an answer shows that it is up. The brokers that an answer
lists are those which the controller lets serve, so a restarted broker is back when all list it.

Source: https://kafka.apache.org/protocol
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

__all__ = ["BrokerAnswer", "ask_coordinator", "ask_metadata"]

_METADATA = 3
_FIND_COORDINATOR = 10
_CORRELATION_ID = 1
_CLIENT_ID_NULL = -1
ANSWER_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """The knowledge of one broker.

    Attributes:
        broker_ids: the brokers that may serve clients now.
        leaders_known: how many partitions of the topic asked for have a leader; 0 without a topic.
    """

    broker_ids: frozenset[int]
    leaders_known: int


def ask_metadata(host: str, port: int, timeout_seconds: float, topic: str | None = None) -> BrokerAnswer:
    """Ask one broker what it knows (Metadata v1).

    Raises:
        OSError: nobody answers there within the time, or what answers is not Kafka.
    """
    body = struct.pack(">i", 0) if topic is None else struct.pack(">i", 1) + _string(topic)
    reader = _ask((host, port), _METADATA, 1, body, timeout_seconds)
    try:
        return _read_metadata(reader)
    except struct.error as error:
        raise _not_kafka(host, port) from error


def ask_coordinator(host: str, port: int, timeout_seconds: float) -> bool:
    """Ask one broker whether groups have a coordinator (FindCoordinator v0); the first to ask makes its topic.

    Raises:
        OSError: as of :func:`ask_metadata`.
    """
    reader = _ask((host, port), _FIND_COORDINATOR, 0, _string("loadtrim"), timeout_seconds)
    try:
        return reader.number(">h") == 0
    except struct.error as error:
        raise _not_kafka(host, port) from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def skip(self, size_bytes: int) -> None:
        self._at += size_bytes

    def skip_string(self) -> None:
        # A string that is null has the length -1.
        self.skip(max(0, self.number(">h")))


def _read_metadata(reader: _Reader) -> BrokerAnswer:
    broker_ids = []
    for _ in range(reader.number(">i")):
        broker_ids.append(reader.number(">i"))
        reader.skip_string()
        reader.skip(4)
        reader.skip_string()
    reader.skip(4)
    leaders_known = sum(_read_topic(reader) for _ in range(reader.number(">i")))
    return BrokerAnswer(frozenset(broker_ids), leaders_known)


def _read_topic(reader: _Reader) -> int:
    reader.skip(2)
    reader.skip_string()
    reader.skip(1)
    leaders_known = 0
    for _ in range(reader.number(">i")):
        reader.skip(2 + 4)
        leaders_known += reader.number(">i") >= 0
        for _ in ("replicas", "in sync"):
            reader.skip(4 * reader.number(">i"))
    return leaders_known


def _ask(address: tuple[str, int], api: int, version: int, body: bytes, timeout_seconds: float) -> _Reader:
    """Send one request (header v1, no client id) on a connection of its own."""
    request = struct.pack(">hhih", api, version, _CORRELATION_ID, _CLIENT_ID_NULL) + body
    with socket.create_connection(address, timeout_seconds) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size_bytes,) = struct.unpack(">i", _receive(connection, 4))
        if not 4 <= size_bytes <= ANSWER_BYTES_MAX:
            raise _not_kafka(*address)
        reader = _Reader(_receive(connection, size_bytes))
    if reader.number(">i") != _CORRELATION_ID:
        raise _not_kafka(*address)
    return reader


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _receive(connection: socket.socket, size_bytes: int) -> bytes:
    parts = bytearray()
    while len(parts) < size_bytes:
        part = connection.recv(size_bytes - len(parts))
        if not part:
            raise ConnectionError("the broker closed the connection")
        parts += part
    return bytes(parts)


def _not_kafka(host: str, port: int) -> ConnectionError:
    return ConnectionError(f"what answers at {host}:{port} does not speak Kafka's protocol")
