"""Questions to a broker without a client.

A broker's socket accepts before the broker serves; only an answer shows that it is up. The brokers that an answer
lists are those which the controller lets serve, so a restarted broker is back when all list it.

Source: https://kafka.apache.org/protocol
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Any

from aiokafka.protocol.coordination import FindCoordinatorRequest_v0
from aiokafka.protocol.metadata import MetadataRequest_v1, MetadataResponse_v1

__all__ = ["BrokerAnswer", "ask_coordinator", "ask_metadata"]

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
    answer = _ask((host, port), MetadataRequest_v1([] if topic is None else [topic]), timeout_seconds)
    try:
        found = MetadataResponse_v1.decode(answer)
    except (ValueError, struct.error) as error:
        raise _not_kafka(host, port) from error
    leaders = [leader for *_, partitions in found.topics for _, _, leader, *_ in partitions]
    return BrokerAnswer(frozenset(node for node, *_ in found.brokers), sum(leader >= 0 for leader in leaders))


def ask_coordinator(host: str, port: int, timeout_seconds: float) -> bool:
    """Ask one broker whether groups have a coordinator (FindCoordinator v0); the first to ask makes its topic.

    Raises:
        OSError: as of :func:`ask_metadata`.
    """
    answer = _ask((host, port), FindCoordinatorRequest_v0("loadtrim"), timeout_seconds)
    if len(answer) < 2:
        raise _not_kafka(host, port)
    return int.from_bytes(answer[:2]) == 0


def _ask(address: tuple[str, int], request: Any, timeout_seconds: float) -> bytes:
    """Send one request (header v1, no client id) on a connection of its own; return the answer's body."""
    head = struct.pack(">hhih", request.API_KEY, request.API_VERSION, _CORRELATION_ID, _CLIENT_ID_NULL)
    body = request.encode()
    with socket.create_connection(address, timeout_seconds) as connection:
        connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (size_bytes,) = struct.unpack(">i", _receive(connection, 4))
        if not 4 <= size_bytes <= ANSWER_BYTES_MAX:
            raise _not_kafka(*address)
        answer = _receive(connection, size_bytes)
    if int.from_bytes(answer[:4]) != _CORRELATION_ID:
        raise _not_kafka(*address)
    return answer[4:]


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
