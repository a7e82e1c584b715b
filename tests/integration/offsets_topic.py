"""What a group coordinator wrote down of a group in ``__consumer_offsets``: every commit, and who was in it when.

Evidence of the broker's own, which no member has a hand in. Sources: Kafka's ``OffsetCommitKey``,
``OffsetCommitValue``, ``GroupMetadataKey`` and ``GroupMetadataValue``; what is used of them is the same in all versions
up to 3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

__all__ = ["OFFSETS_TOPIC", "Commit", "Generation", "GroupLog", "accepted_commits", "read_group"]

OFFSETS_TOPIC = "__consumer_offsets"
COMMIT_KEYS = (0, 1)
GROUP_KEY = 2
GROUP_VERSION_MAX = 3


class Commit(NamedTuple):
    """One commit that the coordinator accepted."""

    partition: int
    offset: int
    at: float
    """Seconds since the epoch, by the broker's clock."""
    topic: str = ""


class Generation(NamedTuple):
    """The members of a group from some time on."""

    at: float
    """Seconds since the epoch, by the broker's clock: after the leader's SyncGroup."""
    number: int
    members: dict[str, str] | None
    """Member id -> client id. None: not known, as while the broker keeps the group in the form of KIP-848."""


@dataclass(slots=True)
class GroupLog:
    """All that was written down of one group, in the coordinator's order."""

    commits: list[Commit] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)


async def accepted_commits(bootstrap: str, group: str, topic: str) -> list[Commit]:
    """Every commit of one topic that the broker accepted, in its order."""
    return [commit for commit in (await read_group(bootstrap, group)).commits if commit.topic == topic]


async def read_group(bootstrap: str, group: str) -> GroupLog:
    """Read everything that the offsets topic still has of a group."""
    found: list[tuple[int, Commit | Generation]] = []
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as reader:
        count = reader.partitions_for_topic(OFFSETS_TOPIC) or await _partitions_of(reader)
        partitions = [TopicPartition(OFFSETS_TOPIC, index) for index in sorted(count)]
        reader.assign(partitions)
        begins, ends = await reader.beginning_offsets(partitions), await reader.end_offsets(partitions)
        wanted = [at for at in partitions if begins[at] < ends[at]]
        reader.assign(wanted)
        for at in wanted:
            reader.seek(at, begins[at])
        while any([await reader.position(at) < ends[at] for at in wanted]):
            for messages in (await reader.getmany(timeout_ms=200)).values():
                for message in messages:
                    entry = read_entry(message.key, message.value, message.timestamp / 1000, group)
                    if entry is not None:
                        found.append((message.offset, entry))
    log = GroupLog()
    # All of a group is in one partition.
    for _, entry in sorted(found, key=lambda pair: pair[0]):
        if isinstance(entry, Commit):
            log.commits.append(entry)
        else:
            log.generations.append(entry)
    return log


async def _partitions_of(reader: AIOKafkaConsumer) -> set[int]:
    await reader._client.add_topic(OFFSETS_TOPIC)
    return set(reader.partitions_for_topic(OFFSETS_TOPIC) or ())


def read_entry(key: bytes | None, value: bytes | None, at: float, group: str) -> Commit | Generation | None:
    """Read one record of the offsets topic; None: it is of another group, or of no interest."""
    if key is None:
        return None
    fields = _Fields(key)
    version = fields.int16()
    if version in COMMIT_KEYS and value is not None and fields.text() == group:
        topic, partition = fields.text() or "", fields.int32()
        return Commit(partition, struct.unpack_from(">q", value, 2)[0], at, topic)
    if version == GROUP_KEY and fields.text() == group:
        return _generation(value, at)
    return None


def _generation(value: bytes | None, at: float) -> Generation:
    fields = _Fields(value or b"\xff\xff")
    version = fields.int16()
    if not 0 <= version <= GROUP_VERSION_MAX:
        return Generation(at, -1, None)
    fields.text()  # type of protocol
    number = fields.int32()
    fields.text()  # protocol
    fields.text()  # leader
    if version >= 2:
        fields.int64()  # when the state was entered
    members = {}
    for _ in range(fields.int32()):
        member = fields.text() or ""
        if version >= 3:
            fields.text()  # instance id
        members[member] = fields.text() or ""
        fields.text()  # host
        if version >= 1:
            fields.int32()  # rebalance timeout
        fields.int32()  # session timeout
        fields.skip_bytes()  # subscription
        fields.skip_bytes()  # assignment
    return Generation(at, number, members)


class _Fields:
    """The fields of a record, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _number(self, form: str, size: int) -> int:
        (number,) = struct.unpack_from(form, self._data, self._at)
        self._at += size
        return int(number)

    def int16(self) -> int:
        return self._number(">h", 2)

    def int32(self) -> int:
        return self._number(">i", 4)

    def int64(self) -> int:
        return self._number(">q", 8)

    def text(self) -> str | None:
        length = self.int16()
        if length < 0:
            return None
        self._at += length
        return self._data[self._at - length : self._at].decode()

    def skip_bytes(self) -> None:
        length = self.int32()
        self._at += max(0, length)
