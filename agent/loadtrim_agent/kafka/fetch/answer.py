"""What a broker answers to a fetch, read where it lies in the connection's buffer.

aiokafka's own structs read field by field from a stream and copy the records once more than is needed. This reads the
fixed fields of a partition at once; what it gives is the same, type and all.

Source: https://kafka.apache.org/protocol#The_Messages_Fetch, versions 4 to 11.
"""

from __future__ import annotations

import struct
from typing import Any

from aiokafka.protocol import fetch

__all__ = ["read_answer"]

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


def read_answer(version: int, frame: memoryview, at: int) -> Any:
    """The answer that begins at ``at``; its records are copied, so that ``frame`` can be used again.

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
    except struct.error as error:
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
