"""Answers come in straight into one buffer per connection, and are copied out of it once.

Theory of operation. aiokafka reads through asyncio's stream reader, which takes 256 kB at a time, copies them into a
buffer that grows, stops reading at each 128 kB and begins again, and copies the whole answer twice before it is taken
apart. Here the buffer is as large as the answer, the system writes into it, and the records are copied out once. The
buffer stays for the next answer, and becomes small again when answers do.

Whatever has come is read at once. To wait for more of an answer (``SO_RCVLOWAT``) saves turns at the interpreter's lock
and can stop the broker: it holds as much as its send buffer of 100 kB (``socket.send.buffer.bytes``) until that is
acknowledged, and what is not read is acknowledged late.

Connecting, TLS and SASL are aiokafka's: its connection is taken over when it is ready, and its life goes on as before.
Answers to other requests than fetches are small, and aiokafka takes them apart. Those to fetches are read where they
lie in the buffer: aiokafka's structs read field by field from a stream, and copy the records once more than is needed.
Source: https://kafka.apache.org/protocol#The_Messages_Fetch, versions 4 to 11.
"""

from __future__ import annotations

import asyncio
import struct
import time
from typing import Any

from aiokafka.conn import CloseReason
from aiokafka.errors import CorrelationIdError, KafkaConnectionError
from aiokafka.protocol import fetch
from aiokafka.protocol.fetch import FetchRequest

__all__ = ["AnswersProtocol", "read_answer"]

_HEAD = struct.Struct(">ii")
"""Bytes behind the first field, correlation id."""
_LENGTH_BYTES = 4
BUFFER_BYTES_MIN = 1 << 16
ANSWER_BYTES_MAX = 1 << 30
"""An answer that claims to be larger is none."""
_KINDS: dict[int, Any] = {version: getattr(fetch, f"FetchResponse_v{version}") for version in range(4, 12)}
_SESSIONS_FROM, _LOG_START_FROM, _REPLICA_FROM = 7, 5, 11
_THROTTLE = struct.Struct(">i")
_TOP = struct.Struct(">ihi")
"""Throttle time, error, session."""
_COUNT = struct.Struct(">i")
_TEXT = struct.Struct(">h")
_PARTITION_V4 = struct.Struct(">ihqqi")
_PARTITION = struct.Struct(">ihqqqi")
"""Index, error, end, last stable offset, (start of the log), number of aborted transactions."""
_ABORTED = struct.Struct(">qq")


class AnswersProtocol(asyncio.BufferedProtocol):
    """Receives the answers of one connection.

    Args:
        connection: aiokafka's, with nothing asked and nothing received that was not handed on.
        before: the protocol it had; it still hears of the connection's life.
    """

    def __init__(self, connection: Any, before: asyncio.Protocol) -> None:
        self._connection = connection
        self._before = before
        self._buffer = memoryview(bytearray(BUFFER_BYTES_MIN))
        self._filled = 0
        self._wanted = 0
        """Bytes of the answer that is coming, its first field included; 0: not known yet."""

    @classmethod
    def take_over(cls, connection: Any) -> None:
        """Let a connection receive so from now on; one that does already is left alone.

        Raises:
            KafkaConnectionError: it was closed meanwhile.
        """
        if connection._writer is None:
            # The broker took it, and it was lost before anybody could use it.
            raise KafkaConnectionError("the connection was lost while it was made")
        transport = connection._writer.transport
        before = transport.get_protocol()
        if not isinstance(before, cls):
            connection._read_task.cancel()
            transport.set_protocol(cls(connection, before))

    # -- what the transport asks ---------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        # Not past the answer's end: behind it there is nothing to come, and one that is whole is looked at at once.
        return self._buffer[self._filled : self._wanted or len(self._buffer)]

    def buffer_updated(self, nbytes: int) -> None:
        """Take in as many bytes as have come."""
        self._filled += nbytes
        try:
            while self._filled >= _HEAD.size:
                if not self._wanted:
                    self._expect(_HEAD.unpack_from(self._buffer)[0])
                if self._filled < self._wanted:
                    return
                self._answered()
        except (ValueError, CorrelationIdError) as error:
            self._connection.close(reason=CloseReason.OUT_OF_SYNC, exc=error)

    def eof_received(self) -> bool:
        """The broker has closed the connection."""
        self._before.eof_received()
        self._broken(KafkaConnectionError("the broker has closed the connection"))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by either side."""
        self._before.connection_lost(exc)
        self._broken(exc)

    def pause_writing(self) -> None:
        self._before.pause_writing()

    def resume_writing(self) -> None:
        self._before.resume_writing()

    # -- answers -------------------------------------------------------------------------------------------------

    def _expect(self, size_bytes: int) -> None:
        if not _HEAD.size - _LENGTH_BYTES <= size_bytes <= ANSWER_BYTES_MAX:
            raise ValueError(f"an answer of {size_bytes} bytes")
        self._wanted = _LENGTH_BYTES + size_bytes
        if self._wanted > len(self._buffer):
            self._resize(self._wanted)

    def _resize(self, size_bytes: int) -> None:
        begun, self._buffer = self._buffer[: self._filled], memoryview(bytearray(size_bytes))
        self._buffer[: self._filled] = begun

    def _answered(self) -> None:
        """All of an answer is here; what follows it, if anything, is moved to the front."""
        wanted, connection = self._wanted, self._connection
        requests = connection._requests
        if not requests:
            raise ValueError("an answer to nothing")
        correlation, request, future = requests[0]
        _, told = _HEAD.unpack_from(self._buffer)
        if told != correlation:
            raise CorrelationIdError(f"Correlation ids do not match: sent {correlation}, recv {told}")
        if request.API_KEY == FetchRequest.API_KEY:
            if not future.done():
                future.set_result(read_answer(request.API_VERSION, self._buffer[:wanted], _HEAD.size))
            connection._last_action = time.monotonic()
            requests.popleft()
        else:
            self._hand_on(wanted)
        left = self._filled - wanted
        self._buffer[:left] = self._buffer[wanted : self._filled]
        self._filled, self._wanted = left, 0
        if len(self._buffer) > max(BUFFER_BYTES_MIN, 4 * wanted):
            self._resize(max(BUFFER_BYTES_MIN, left))

    def _hand_on(self, wanted_bytes: int) -> None:
        try:
            self._connection._handle_frame(bytes(self._buffer[_LENGTH_BYTES:wanted_bytes]))
        except Exception as error:
            raise ValueError(f"an answer of {wanted_bytes} bytes that cannot be read: {error!r}") from error

    def _broken(self, error: BaseException | None) -> None:
        # Does nothing where it is closed already, by us that is.
        self._connection.close(reason=CloseReason.CONNECTION_BROKEN, exc=error)


def read_answer(version: int, frame: memoryview, at: int) -> Any:
    """Return the answer to a fetch that begins at ``at``. Its records are copied, so that ``frame`` can be used again.

    Returns:
        aiokafka's ``FetchResponse`` of this version.

    Raises:
        ValueError: this is no such answer.

    Cost: 1.5 us per partition, and the copy.
    """
    try:
        fields, at = _top(version, frame, at)
        (count,) = _COUNT.unpack_from(frame, at)
        at += _COUNT.size
        topics: list[tuple[str, list[Any]]] | None = [] if count >= 0 else None
        for _ in range(count):
            (length,) = _TEXT.unpack_from(frame, at)
            at += _TEXT.size
            topic = str(frame[at : at + length], "utf-8")
            partitions, at = _partitions(version, frame, at + length)
            assert topics is not None
            topics.append((topic, partitions))
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"a fetch's answer of {len(frame)} bytes ends too early: {error}") from error
    return _KINDS[version](*fields, topics)


def _top(version: int, frame: memoryview, at: int) -> tuple[tuple[int, ...], int]:
    kind = _TOP if version >= _SESSIONS_FROM else _THROTTLE
    return kind.unpack_from(frame, at), at + kind.size


def _partitions(version: int, frame: memoryview, at: int) -> tuple[list[Any], int]:
    (count,) = _COUNT.unpack_from(frame, at)
    at += _COUNT.size
    kind = _PARTITION if version >= _LOG_START_FROM else _PARTITION_V4
    found: list[Any] = []
    for _ in range(count):
        *fields, aborted = kind.unpack_from(frame, at)
        at += kind.size
        fields.append(None if aborted < 0 else [_ABORTED.unpack_from(frame, at + n * 16) for n in range(aborted)])
        at += max(0, aborted) * _ABORTED.size
        if version >= _REPLICA_FROM:
            fields += _COUNT.unpack_from(frame, at)
            at += _COUNT.size
        (length,) = _COUNT.unpack_from(frame, at)
        at += _COUNT.size
        if at + length > len(frame):
            raise ValueError(f"{length} bytes of records at {at} of an answer of {len(frame)}")
        fields.append(None if length < 0 else bytes(frame[at : at + length]))
        at += max(0, length)
        found.append(tuple(fields))
    return found, at
