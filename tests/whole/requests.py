"""Kafka's requests as bytes, from the broker's side: aiokafka's own schemas, read where it writes and the reverse."""

from __future__ import annotations

import struct
from typing import Any

from aiokafka.protocol.api import RequestStruct

import loadtrim_agent.kafka.log_dirs
import loadtrim_agent.kafka.transactional  # noqa: F401  (its structs are found below)

from .codec import decode, encode

__all__ = ["API", "STRUCTS", "VERSIONS", "Incoming", "encode_answer", "read_request"]

_HEAD = struct.Struct(">hhi")
_TEXT_LENGTH = struct.Struct(">h")


class API:
    """Keys of the requests that the model answers."""

    PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
    OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
    JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14
    DESCRIBE_GROUPS, API_VERSIONS, CREATE_TOPICS = 15, 18, 19
    INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 22, 24, 25, 26, 28


VERSIONS: dict[int, tuple[int, int]] = {
    API.PRODUCE: (3, 5),
    API.FETCH: (4, 10),
    API.LIST_OFFSETS: (1, 3),
    API.METADATA: (0, 5),
    API.OFFSET_COMMIT: (2, 3),
    API.OFFSET_FETCH: (1, 7),
    API.FIND_COORDINATOR: (0, 1),
    API.JOIN_GROUP: (0, 5),
    API.HEARTBEAT: (0, 1),
    API.LEAVE_GROUP: (0, 1),
    API.SYNC_GROUP: (0, 3),
    API.DESCRIBE_GROUPS: (0, 0),
    API.API_VERSIONS: (0, 0),
    API.CREATE_TOPICS: (0, 3),
    API.INIT_PRODUCER_ID: (0, 0),
    API.ADD_PARTITIONS_TO_TXN: (0, 0),
    API.ADD_OFFSETS_TO_TXN: (0, 0),
    API.END_TXN: (0, 0),
    API.TXN_OFFSET_COMMIT: (3, 3),
}


def _structs() -> dict[tuple[int, int], type[RequestStruct]]:
    found: dict[tuple[int, int], type[RequestStruct]] = {}
    waiting = list(RequestStruct.__subclasses__())
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        found[kind.API_KEY, kind.API_VERSION] = kind
    return found


STRUCTS = _structs()
"""(API key, version) -> aiokafka's struct, where it has one."""


class Incoming:
    """One request: its struct, and what the answer's head needs."""

    __slots__ = ("body", "correlation", "key", "kind", "version")

    def __init__(self, kind: type[RequestStruct], correlation: int, body: Any) -> None:
        self.kind = kind
        self.key: int = kind.API_KEY
        self.version: int = kind.API_VERSION
        self.correlation = correlation
        self.body = body


def read_request(frame: bytes) -> Incoming:
    """Decode one request."""
    key, version, correlation = _HEAD.unpack_from(frame)
    (length,) = _TEXT_LENGTH.unpack_from(frame, _HEAD.size)
    at = _HEAD.size + _TEXT_LENGTH.size + max(0, length)
    kind = STRUCTS[key, version]
    if kind.FLEXIBLE_VERSION:
        at += 1  # no tagged fields
    return Incoming(kind, correlation, kind(*decode(kind.SCHEMA, frame, at)))


def encode_answer(request: Incoming, *fields: Any) -> bytes:
    """Encode the answer to a request."""
    head = struct.pack(">i", request.correlation)
    if request.kind.FLEXIBLE_VERSION:
        head += b"\x00"
    return head + encode(request.kind.RESPONSE_TYPE.SCHEMA, fields)
