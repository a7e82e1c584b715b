"""Requests of exactly-once (KIP-447) that aiokafka has no structs for, in the broker's flexible encoding.

An OffsetFetch that waits for open transactions, and a TxnOffsetCommit that carries the group's generation. Both need
Kafka 2.5; an older broker gets what it knows: the last committed offsets as they are, offsets fenced by the producer's
epoch alone.

Source: Kafka's message definitions ``OffsetFetchRequest.json`` (version 7) and ``TxnOffsetCommitRequest.json``
(version 3).
"""

from __future__ import annotations

from typing import Any

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import OffsetFetchRequest_v3
from aiokafka.protocol.transaction import TxnOffsetCommitRequest_v0
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

__all__ = ["FencedOffsetsRequest", "StableOffsetsRequest"]

NO_LEADER_EPOCH = -1
_TEXT = CompactString("utf-8")


class _OffsetFetchResponse_v7(Response):  # type: ignore[misc]
    API_KEY = 9
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("topic", _TEXT),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", _TEXT),
                        ("error_code", Int16),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("error_code", Int16),
        ("tags", TaggedFields),
    )


class _OffsetFetchRequest_v7(RequestStruct):  # type: ignore[misc]
    API_KEY = 9
    API_VERSION = 7
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _OffsetFetchResponse_v7
    SCHEMA = Schema(
        ("consumer_group", _TEXT),
        (
            "topics",
            CompactArray(("topic", _TEXT), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)),
        ),
        ("require_stable", Boolean),
        ("tags", TaggedFields),
    )


class StableOffsetsRequest(Request[OffsetFetchRequest_v3 | _OffsetFetchRequest_v7]):  # type: ignore[misc]
    """The group's committed offsets; UNSTABLE_OFFSET_COMMIT (88) for a partition whose offset is still part of an open
    transaction.

    Args:
        group: its id.
        topics: (topic, partition numbers), sorted.
    """

    API_KEY = 9

    def __init__(self, group: str, topics: list[tuple[str, list[int]]]) -> None:
        self._group = group
        self._topics = topics

    def build(self, request_struct_class: Any) -> Any:
        if request_struct_class is _OffsetFetchRequest_v7:
            topics: list[Any] = [(topic, indexes, {}) for topic, indexes in self._topics]
            return request_struct_class(self._group, topics, True, {})
        return request_struct_class(self._group, self._topics)


class _TxnOffsetCommitResponse_v3(Response):  # type: ignore[misc]
    API_KEY = 28
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "errors",
            CompactArray(
                ("topic", _TEXT),
                (
                    "partition_errors",
                    CompactArray(("partition", Int32), ("error_code", Int16), ("tags", TaggedFields)),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _TxnOffsetCommitRequest_v3(RequestStruct):  # type: ignore[misc]
    API_KEY = 28
    API_VERSION = 3
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _TxnOffsetCommitResponse_v3
    SCHEMA = Schema(
        ("transactional_id", _TEXT),
        ("group_id", _TEXT),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("generation_id", Int32),
        ("member_id", _TEXT),
        ("group_instance_id", _TEXT),
        (
            "topics",
            CompactArray(
                ("topic", _TEXT),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", _TEXT),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class FencedOffsetsRequest(Request[TxnOffsetCommitRequest_v0 | _TxnOffsetCommitRequest_v3]):  # type: ignore[misc]
    """A transaction's offsets, refused by the broker where the generation is not the group's any more.

    Args:
        transactional_id, producer_id, producer_epoch: the producer's.
        group, member, generation: who commits.
        topics: (topic, [(partition number, offset, metadata)]), sorted.
    """

    API_KEY = 28

    def __init__(
        self,
        *,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group: str,
        member: str,
        generation: int,
        topics: list[tuple[str, list[tuple[int, int, str]]]],
    ) -> None:
        self._transactional_id = transactional_id
        self._producer = (producer_id, producer_epoch)
        self._group = group
        self._member = member
        self._generation = generation
        self._topics = topics

    def build(self, request_struct_class: Any) -> Any:
        if request_struct_class is not _TxnOffsetCommitRequest_v3:
            return request_struct_class(self._transactional_id, self._group, *self._producer, self._topics)
        topics: list[Any] = [
            (topic, [(index, offset, NO_LEADER_EPOCH, text, {}) for index, offset, text in entries], {})
            for topic, entries in self._topics
        ]
        fence = (self._generation, self._member, None)
        return request_struct_class(self._transactional_id, self._group, *self._producer, *fence, topics, {})
