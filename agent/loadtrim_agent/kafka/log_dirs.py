"""DescribeLogDirs, which aiokafka has no structs for: how many bytes of each partition are on a broker's disks.

Source: Kafka's message definition ``DescribeLogDirsRequest.json`` (version 1, which every broker since 2.0 speaks).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka.errors import ClusterAuthorizationFailedError
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Int16, Int32, Int64, Schema, String
from aiokafka.structs import TopicPartition

__all__ = ["LogDirsRequest", "sizes_of"]

_TEXT = String("utf-8")


class _LogDirsResponse_v1(Response):  # type: ignore[misc]
    API_KEY = 35
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "log_dirs",
            Array(
                ("error_code", Int16),
                ("log_dir", _TEXT),
                (
                    "topics",
                    Array(
                        ("topic", _TEXT),
                        (
                            "partitions",
                            Array(
                                ("partition", Int32),
                                ("size", Int64),
                                ("offset_lag", Int64),
                                ("is_future", Boolean),
                            ),
                        ),
                    ),
                ),
            ),
        ),
    )


class _LogDirsRequest_v1(RequestStruct):  # type: ignore[misc]
    API_KEY = 35
    API_VERSION = 1
    RESPONSE_TYPE = _LogDirsResponse_v1
    SCHEMA = Schema(("topics", Array(("topic", _TEXT), ("partitions", Array(Int32)))))


class LogDirsRequest(Request[_LogDirsRequest_v1]):  # type: ignore[misc]
    """Sizes of these partitions on the broker that is asked.

    Args:
        topics: topic -> partition numbers.
    """

    API_KEY = 35

    def __init__(self, topics: Mapping[str, Sequence[int]]) -> None:
        self._topics = [(topic, list(indexes)) for topic, indexes in topics.items()]

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class(self._topics)


def sizes_of(answer: Any) -> dict[TopicPartition, int]:
    """Bytes per partition that the broker has; a copy that is on its way to another disk does not count.

    Raises:
        ClusterAuthorizationFailedError: nothing may be asked; in this version the broker says so by an empty answer.
    """
    if not answer.log_dirs:
        raise ClusterAuthorizationFailedError(
            "the broker tells nothing of its log directories; LOADTRIM_MONITOR=landau24 needs the ACL Describe on the "
            "cluster, or choose another monitor"
        )
    return {
        TopicPartition(topic, partition): size
        for code, _, topics in answer.log_dirs
        if not code
        for topic, partitions in topics
        for partition, size, _, is_future in partitions
        if not is_future
    }
