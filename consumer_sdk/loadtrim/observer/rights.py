"""The brokers are asked what they let this principal do, without doing it (KIP-430).

aiokafka has no struct for the versions of these requests that tell it. Brokers of 2.3 and newer know them.

Source: Kafka's message definitions ``MetadataRequest.json`` (version 8) and ``DescribeGroupsRequest.json`` (version 3).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError
from aiokafka.protocol.admin import DescribeGroupsResponse_v3
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Int16, Int32, Schema, String

__all__ = ["ClusterRights", "Operation", "Rights", "ask_rights"]

_TEXT = String("utf-8")
_UNKNOWN = -(2**31)
"""The answer of a broker that does not tell operations."""


class Operation(enum.IntEnum):
    """An operation is what a principal may do. Source: ``AclOperation``; the number is that of its bit."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DESCRIBE = 8


class Rights(msgspec.Struct, frozen=True, kw_only=True):
    """The rights are those on one topic, on the group, or on the cluster."""

    code: int = 0
    """Kafka's error; 0: it is there and may be described."""
    operations: frozenset[Operation] | None = None
    """Operations that are allowed; None: the broker does not tell."""
    partitions: int = 0
    """Number of a topic's partitions."""

    def lacks(self, *operations: Operation) -> tuple[Operation, ...]:
        """Return which of these may not be done, as far as is known."""
        return () if self.operations is None else tuple(each for each in operations if each not in self.operations)


class ClusterRights(msgspec.Struct, frozen=True, kw_only=True):
    """The rights are what the brokers answered."""

    brokers: int
    cluster: Rights
    topics: Mapping[str, Rights]
    group: Rights


class _MetadataResponse_v8(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", Array(("node_id", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT))),
        ("cluster_id", _TEXT),
        ("controller_id", Int32),
        (
            "topics",
            Array(
                ("error_code", Int16),
                ("topic", _TEXT),
                ("is_internal", Boolean),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", Array(Int32)),
                        ("isr", Array(Int32)),
                        ("offline_replicas", Array(Int32)),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
        ("authorized_operations", Int32),
    )


class _MetadataRequest_v8(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 8
    RESPONSE_TYPE = _MetadataResponse_v8
    SCHEMA = Schema(
        ("topics", Array(_TEXT)),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
    )


class _MetadataRequest(Request[_MetadataRequest_v8]):  # type: ignore[misc]
    API_KEY = 3

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = list(topics)

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class(self._topics, False, True, True)


class _DescribeGroupsRequest_v3(RequestStruct):  # type: ignore[misc]
    API_KEY = 15
    API_VERSION = 3
    RESPONSE_TYPE = DescribeGroupsResponse_v3
    SCHEMA = Schema(("groups", Array(_TEXT)), ("include_authorized_operations", Boolean))


class _DescribeGroupsRequest(Request[_DescribeGroupsRequest_v3]):  # type: ignore[misc]
    API_KEY = 15

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class([self._group], True)


async def ask_rights(options: Mapping[str, Any], group: str, topics: Sequence[str]) -> ClusterRights:
    """Ask any broker about topics and the cluster, and the group's coordinator about the group. Makes nothing.

    Raises:
        KafkaError: no broker answers, or it is older than 2.3.
    """
    client = AIOKafkaClient(**options)
    try:
        await client.bootstrap()
        answer = await client.send(client.get_random_node(), _MetadataRequest(topics))
        return ClusterRights(
            brokers=len(answer.brokers),
            cluster=Rights(operations=_operations(answer.authorized_operations)),
            topics={
                topic: Rights(code=code, operations=_operations(bits), partitions=len(partitions))
                for code, topic, _, partitions, bits in answer.topics
            },
            group=await _ask_group(client, group),
        )
    finally:
        await client.close()


async def _ask_group(client: AIOKafkaClient, group: str) -> Rights:
    try:
        node = await client.coordinator_lookup(CoordinationType.GROUP, group)
        if not await client.ready(node):
            raise KafkaError(f"the group's coordinator (node {node}) does not take connections")
        ((code, *_, bits),) = (await client.send(node, _DescribeGroupsRequest(group))).groups
    except GroupAuthorizationFailedError as error:
        return Rights(code=error.errno)
    return Rights(code=code, operations=_operations(bits))


def _operations(bits: int) -> frozenset[Operation] | None:
    if bits == _UNKNOWN:
        return None
    return frozenset(operation for operation in Operation if bits >> operation & 1)
