"""The consumer embedded protocol: the bytes inside JoinGroup and SyncGroup.

Kafka's broker never looks into them, but members of other clients do: the subscription is version 1 of
``ConsumerProtocolSubscription`` (KIP-429: version 0 plus ``owned_partitions``), the assignment version 0 of
``ConsumerProtocolAssignment``, so that a mixed group and Kafka's own tools can read both.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable
from io import BytesIO
from typing import TypeVar

import msgspec
from aiokafka.protocol.struct import Struct
from aiokafka.protocol.types import Array, Bytes, Int16, Int32, Schema, String
from msgspec import structs

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol.events import GroupAnswer, JoinedMember
from loadtrim_agent.protocol.group_config import LOADTRIM
from loadtrim_agent.wire.envelope import MALFORMED

__all__ = ["by_topic", "decode_answer", "decode_member", "encode_answer", "encode_subscription"]

log = logging.getLogger("loadtrim")

T = TypeVar("T")

_ATTEMPT = struct.Struct(">2sq")
_ATTEMPT_MAGIC = b"lt"
_PARTITIONS = Array(("topic", String("utf-8")), ("partitions", Array(Int32)))


class _Subscription(Struct):  # type: ignore[misc]
    SCHEMA = Schema(
        ("version", Int16),
        ("topics", Array(String("utf-8"))),
        ("user_data", Bytes),
        ("owned", _PARTITIONS),
    )


class _SubscriptionV0(Struct):  # type: ignore[misc]
    SCHEMA = Schema(("version", Int16), ("topics", Array(String("utf-8"))), ("user_data", Bytes))


class _Assignment(Struct):  # type: ignore[misc]
    SCHEMA = Schema(("version", Int16), ("partitions", _PARTITIONS), ("user_data", Bytes))


class _Extra(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What our answers carry beside the standard assignment."""

    answer: GroupAnswer


def encode_subscription(topics: Iterable[str], owned: Iterable[Partition], attempt: int) -> bytes:
    """Metadata of one protocol in a JoinGroup. The attempt makes the bytes differ each time (rule 6)."""
    user_data = _ATTEMPT.pack(_ATTEMPT_MAGIC, attempt)
    return bytes(_Subscription(1, sorted(topics), user_data, by_topic(owned, _index)).encode())


def decode_member(member: str, metadata: bytes) -> JoinedMember:
    """Read one member's metadata as the leader gets it; of any client, version 0 and above.

    A member whose metadata cannot be read subscribes nothing, so it is given nothing and the others go on.
    """
    try:
        return _joined(member, metadata)
    except MALFORMED as error:
        log.warning(
            "What member %s joined with cannot be read (%s), so it is given no partition. Look at which client it is, "
            "and stop it or update it.",
            member,
            error,
        )
        return JoinedMember(member=member, topics=(), owned=(), attempt=None)


def _joined(member: str, metadata: bytes) -> JoinedMember:
    version = struct.unpack_from(">h", metadata)[0] if len(metadata) >= 2 else 0
    read = (_Subscription if version >= 1 else _SubscriptionV0).decode(BytesIO(metadata))
    user_data = read.user_data or b""
    attempt = None
    if len(user_data) == _ATTEMPT.size and user_data.startswith(_ATTEMPT_MAGIC):
        attempt = _ATTEMPT.unpack(user_data)[1]
    owned = tuple(
        Partition(topic, index) for topic, indexes in (getattr(read, "owned", None) or ()) for index in indexes
    )
    return JoinedMember(member=member, topics=tuple(sorted(read.topics)), owned=owned, attempt=attempt)


def encode_answer(answer: GroupAnswer, protocol: str) -> bytes:
    """One member's assignment: the standard one, and beside it the map in a group that speaks ``loadtrim``."""
    extra = b""
    if protocol == LOADTRIM:
        extra = msgspec.json.encode(_Extra(answer=structs.replace(answer, partitions=())))
    return bytes(_Assignment(0, by_topic(answer.partitions, _index), extra).encode())


def decode_answer(data: bytes, protocol: str) -> GroupAnswer:
    """Read a SyncGroup answer. Empty bytes (no assignment at all) are an empty answer.

    Raises:
        One of ``MALFORMED``: the leader's map cannot be read.
    """
    if not data:
        return GroupAnswer()
    read = _Assignment.decode(BytesIO(data))
    partitions = tuple(Partition(topic, index) for topic, indexes in read.partitions or () for index in indexes)
    if protocol != LOADTRIM or not read.user_data:
        return GroupAnswer(partitions=partitions)
    extra = msgspec.json.decode(read.user_data, type=_Extra)
    return structs.replace(extra.answer, partitions=partitions)


def by_topic(partitions: Iterable[Partition], entry: Callable[[Partition], T]) -> list[tuple[str, list[T]]]:
    """Entries grouped by topic, as Kafka's requests have them; sorted by (topic, partition)."""
    topics: dict[str, list[T]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(entry(partition))
    return list(topics.items())


def _index(partition: Partition) -> int:
    return partition.partition
