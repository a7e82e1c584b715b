"""What the agents said on the control topic, read back after a run: decisions, moves, handoffs.

For the report and the picture only. The checker does not look here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol.ownership import Ownership
from loadtrim_agent.wire.codec import Record, decode
from loadtrim_agent.wire.envelope import COORDINATION, TELEMETRY, UnreadableRecord
from loadtrim_agent.wire.ownership_records import AssignmentRecord, HelloRecord, ReleaseRecord
from loadtrim_agent.wire.telemetry_records import DecisionRecord, ReportRecord

__all__ = [
    "ControlEntry",
    "OwnerChange",
    "Telemetry",
    "control_topic_ends",
    "fold",
    "load_entries",
    "read_control_topic",
    "save_entries",
]

_READ_SECONDS = 20.0
"""Longest wait for the control topic's records."""


class ControlEntry(msgspec.Struct, frozen=True, array_like=True):
    """One record of the control topic, as it lay there."""

    partition: int
    offset: int
    at: float
    """Log append time, seconds since the epoch."""
    value: str


class OwnerChange(msgspec.Struct, frozen=True, kw_only=True):
    """From ``at`` (seconds since the epoch) on, ``instance`` owns the partition; None: nobody."""

    at: float
    partition: Partition
    instance: str | None
    moved: bool
    """A release moved it; False: a new generation's map gave it."""


class Telemetry(msgspec.Struct, kw_only=True):
    """What a run's control topic tells."""

    decisions: list[DecisionRecord] = []
    owner_changes: list[OwnerChange] = []
    """In the order of time."""
    releases_void: int = 0
    """Releases that did not count: overtaken, or of an older generation."""
    generations: int = 0
    handoffs: list[tuple[float, float]] = []
    """(when it was reported, duration in seconds) as the members that took over measured them."""
    arrival_delays: list[float] = []
    """From records' time stamps until they were fetched, as they came: the mean of each report, seconds."""
    late: dict[str, int] = {}
    """Records done late, by cause, as the members judged."""
    startup_seconds: list[float] = []
    reported_at: list[float] = []
    """When members reported, seconds since the epoch."""
    unreadable: int = 0

    @property
    def moves(self) -> list[OwnerChange]:
        return [change for change in self.owner_changes if change.moved]


async def control_topic_ends(bootstrap: str, topic: str) -> dict[int, int]:
    """Where the partitions of a control topic end now; empty where there is none."""
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None) as consumer:
        if topic not in await consumer.topics():
            return {}
        ends = await consumer.end_offsets([TopicPartition(topic, index) for index in (COORDINATION, TELEMETRY)])
        return {tp.partition: end for tp, end in ends.items()}


async def read_control_topic(
    bootstrap: str, topic: str, begin: Mapping[int, int] = MappingProxyType({})
) -> list[ControlEntry]:
    """Everything in a control topic, in the order of time. Empty where there is none.

    Args:
        bootstrap: the cluster.
        topic: its name.
        begin: partition -> offset to begin at; one that is not named is read from its beginning.

    Raises:
        TimeoutError: it cannot be read to its end within 20 s.
    """
    entries: list[ControlEntry] = []
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest") as consumer:
        if topic not in await consumer.topics():
            return entries
        partitions = [TopicPartition(topic, COORDINATION), TopicPartition(topic, TELEMETRY)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        missing = {tp: end for tp, end in ends.items() if end > begin.get(tp.partition, 0)}
        for tp in missing:
            if tp.partition in begin:
                consumer.seek(tp, begin[tp.partition])
        async with asyncio.timeout(_READ_SECONDS):
            while missing:
                for tp, messages in (await consumer.getmany(*missing, timeout_ms=500)).items():
                    entries += [
                        ControlEntry(tp.partition, message.offset, message.timestamp / 1e3, message.value.decode())
                        for message in messages
                    ]
                for tp in [tp for tp, end in missing.items() if end <= await _position(consumer, tp)]:
                    del missing[tp]
    return sorted(entries, key=lambda entry: (entry.at, entry.partition, entry.offset))


async def _position(consumer: AIOKafkaConsumer, tp: TopicPartition) -> int:
    return int(await consumer.position(tp))


def save_entries(path: Path, entries: Iterable[ControlEntry]) -> None:
    """Write them as JSON lines."""
    path.write_bytes(b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries))


def load_entries(path: Path) -> list[ControlEntry]:
    """Read what :func:`save_entries` wrote; empty where there is no such file."""
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=ControlEntry) for line in path.read_bytes().splitlines()]


def fold(entries: Sequence[ControlEntry]) -> Telemetry:
    """Add up the control topic's records. O(n)."""
    telemetry = Telemetry()
    records: list[tuple[float, Record]] = []
    for entry in entries:
        try:
            records.append((entry.at, decode(entry.value.encode())))
        except UnreadableRecord:
            telemetry.unreadable += 1
    instances = {
        record.member: record.instance
        for _, record in records
        if isinstance(record, HelloRecord | ReportRecord) and record.instance
    }
    for _, record in records:
        if isinstance(record, DecisionRecord):
            telemetry.decisions.append(record)
        elif isinstance(record, ReportRecord):
            telemetry.reported_at.append(record.at)
            telemetry.handoffs += [(record.at, seconds) for seconds in record.handoffs]
            if record.arrival_delay is not None:
                telemetry.arrival_delays.append(record.arrival_delay)
            for cause, count in sorted(record.late.items()):
                telemetry.late[cause] = telemetry.late.get(cause, 0) + count
            if record.startup_seconds is not None:
                telemetry.startup_seconds.append(record.startup_seconds)
    _fold_ownership(records, instances, telemetry)
    return telemetry


def _fold_ownership(records: Sequence[tuple[float, Record]], instances: dict[str, str], telemetry: Telemetry) -> None:
    # The first release of a generation may stand before the leader's base of it: look for all bases first.
    folds = {
        record.generation: Ownership(record.generation, record.owners())
        for _, record in records
        if isinstance(record, AssignmentRecord)
    }
    telemetry.generations = len(folds)
    owner_now: dict[Partition, str] = {}
    generation = -1
    for at, record in records:
        if not isinstance(record, AssignmentRecord | ReleaseRecord) or record.generation not in folds:
            continue
        if record.generation > generation:
            generation = record.generation
            _note_map(at, owner_now, folds[generation].owners(), instances, telemetry)
        if isinstance(record, ReleaseRecord):
            if record.generation == generation and folds[generation].apply(record):
                owner_now[record.key] = record.target
                _note(at, record.key, instances.get(record.target, record.target), True, telemetry)
            else:
                telemetry.releases_void += 1


def _note_map(
    at: float,
    owner_now: dict[Partition, str],
    owners: Mapping[Partition, str],
    instances: dict[str, str],
    telemetry: Telemetry,
) -> None:
    for partition in sorted({*owner_now, *owners}):
        owner = owners.get(partition)
        if owner == owner_now.get(partition):
            continue
        _note(at, partition, None if owner is None else instances.get(owner, owner), False, telemetry)
        if owner is None:
            del owner_now[partition]
        else:
            owner_now[partition] = owner


def _note(at: float, partition: Partition, instance: str | None, moved: bool, telemetry: Telemetry) -> None:
    telemetry.owner_changes.append(OwnerChange(at=at, partition=partition, instance=instance, moved=moved))
