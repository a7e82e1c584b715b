"""Fetch requests with a session, for every version that aiokafka has structs for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiokafka.protocol.api import Request
from aiokafka.protocol.fetch import (
    FetchRequest_v4,
    FetchRequest_v5,
    FetchRequest_v6,
    FetchRequest_v7,
    FetchRequest_v8,
    FetchRequest_v9,
    FetchRequest_v10,
    FetchRequest_v11,
)

from loadtrim_agent.common.partition import Partition

__all__ = ["NO_SESSION", "SessionFetchRequest"]

NO_SESSION = (0, -1)
"""Session id and epoch of a request that stands alone."""
LEADERS_ONLY_VERSION = 10
"""The last version whose requests only a leader answers."""
_CONSUMER = -1
_NOT_KNOWN = -1
_Struct = (
    FetchRequest_v4
    | FetchRequest_v5
    | FetchRequest_v6
    | FetchRequest_v7
    | FetchRequest_v8
    | FetchRequest_v9
    | FetchRequest_v10
    | FetchRequest_v11
)


class SessionFetchRequest(Request[_Struct]):  # type: ignore[misc]
    """aiokafka's own builder has no sessions.

    Before version 7 there are none: requests must be full ones then, and their answers carry no id.

    Without a rack only leaders are to answer. From version 11 on a follower does too, which a leader becomes when
    another is elected: it would be read on, behind the new one by a round of replication, until the metadata are
    renewed (minutes). Kafka's own consumer is told by the leader's epoch, which aiokafka's metadata does not have.
    """

    API_KEY = 1

    def __init__(
        self,
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        partition_max_bytes: Mapping[Partition, int],
        isolation_level: int,
        session: tuple[int, int],
        fetch: Sequence[tuple[Partition, int]],
        forget: Iterable[Partition] = (),
        rack: str = "",
    ) -> None:
        self._limits = (max_wait_ms, min_bytes, max_bytes, isolation_level)
        self._partition_max_bytes = partition_max_bytes
        self._session = session
        self._fetch = fetch
        self._forget = forget
        self._rack = rack

    def prepare(self, versions: dict[int, tuple[int, int]]) -> Any:
        """The struct to send to a broker that knows these versions."""
        least, most = versions[self.API_KEY]
        if not self._rack:
            most = max(least, min(most, LEADERS_ONLY_VERSION))
        return super().prepare({self.API_KEY: (least, most)})

    def build(self, request_struct_class: type[Any]) -> Any:
        """The struct of the version that the broker and we share."""
        version = request_struct_class.API_VERSION
        topics: dict[str, list[tuple[int, ...]]] = {}
        for at, offset in self._fetch:
            (topic, partition), limit = at, self._partition_max_bytes[at]
            if version >= 9:
                entry: tuple[int, ...] = (partition, _NOT_KNOWN, offset, _NOT_KNOWN, limit)
            elif version >= 5:
                entry = (partition, offset, _NOT_KNOWN, limit)
            else:
                entry = (partition, offset, limit)
            topics.setdefault(topic, []).append(entry)
        fields: list[Any] = [_CONSUMER, *self._limits]
        if version >= 7:
            fields += self._session
        fields.append(list(topics.items()))
        if version >= 7:
            forgotten: dict[str, list[int]] = {}
            for topic, partition in self._forget:
                forgotten.setdefault(topic, []).append(partition)
            fields.append(list(forgotten.items()))
        if version >= 11:
            fields.append(self._rack)
        return request_struct_class(*fields)
