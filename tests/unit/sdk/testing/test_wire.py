"""Asking a broker without a client: what is not Kafka is an OSError like nobody there."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from loadtrim.testing.ports import free_ports
from loadtrim.testing.wire import ask_coordinator, ask_metadata


def frame(body: bytes, correlation_id: int = 1) -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


METADATA = (
    struct.pack(">i", 2)
    + struct.pack(">i", 1) + string("host") + struct.pack(">i", 9092) + struct.pack(">h", -1)
    + struct.pack(">i", 3) + string("other") + struct.pack(">i", 9093) + string("rack")
    + struct.pack(">i", 3)
    + struct.pack(">i", 1)
    + struct.pack(">h", 0) + string("topic") + b"\0" + struct.pack(">i", 2)
    + struct.pack(">hii", 0, 0, 3) + struct.pack(">iii", 2, 1, 3) + struct.pack(">ii", 1, 3)
    + struct.pack(">hii", 5, 1, -1) + struct.pack(">iii", 2, 1, 3) + struct.pack(">i", 0)
)  # fmt: skip


@contextmanager
def server(answer: bytes, chunk_bytes: int = 1 << 16) -> Iterator[int]:
    """Answers one connection with some bytes, in pieces, and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                for at in range(0, len(answer), chunk_bytes):
                    connection.sendall(answer[at : at + chunk_bytes])

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


@pytest.mark.parametrize("chunk_bytes", [1, 7, 1 << 16])
def test_brokers_and_leaders_are_read_however_the_bytes_arrive(chunk_bytes: int) -> None:
    with server(frame(METADATA), chunk_bytes) as port:
        answer = ask_metadata("127.0.0.1", port, 5.0, "topic")

    assert answer.broker_ids == {1, 3}
    assert answer.leaders_known == 1


@pytest.mark.parametrize(("error_code", "found"), [(0, True), (15, False)])
def test_a_coordinator_is_there_when_the_answer_has_no_error(error_code: int, found: bool) -> None:
    with server(frame(struct.pack(">h", error_code))) as port:
        assert ask_coordinator("127.0.0.1", port, 5.0) is found


@pytest.mark.parametrize("ask", [ask_metadata, ask_coordinator])
@pytest.mark.parametrize(
    "answer",
    [b"", b"\0", b"HTTP/1.1 400 Bad Request\r\n\r\n", frame(b""), frame(METADATA, correlation_id=2), frame(b"\x7f")],
    ids=["nothing", "a piece", "HTTP", "empty", "another's answer", "cut off"],
)
def test_what_does_not_speak_kafka_is_a_connection_error(ask: Callable[..., object], answer: bytes) -> None:
    with server(answer) as port, pytest.raises(ConnectionError):
        ask("127.0.0.1", port, 5.0)


def test_nobody_there_is_an_os_error() -> None:
    (port,) = free_ports(1)
    with pytest.raises(OSError):
        ask_metadata("127.0.0.1", port, 1.0)


def test_who_accepts_and_says_nothing_is_not_waited_for_longer_than_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(TimeoutError):
        ask_metadata("127.0.0.1", listener.getsockname()[1], 0.05)
