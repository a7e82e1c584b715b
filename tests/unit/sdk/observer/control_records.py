"""Builders of control-topic records for the tests of the command line."""

from __future__ import annotations

from typing import Any

from loadtrim.observer.group import GroupObserver
from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.ownership_records import AssignmentRecord, ManualOverrideRecord, MemberEntry, ReleaseRecord
from loadtrim_agent.wire.telemetry_records import DecisionRecord, PartitionReport, ReportRecord

GROUP = "payments-service"


def base(
    generation: int,
    owns: dict[str, tuple[int, ...]],
    at: float = 0.0,
    manual_override: ManualOverrideRecord | None = None,
) -> AssignmentRecord:
    """A map; the first member is the leader that writes it."""
    members = {
        member: MemberEntry(attempt=1, topics=("payments",), owns=(("payments", partitions),) if partitions else ())
        for member, partitions in owns.items()
    }
    return AssignmentRecord(
        group=GROUP,
        member=next(iter(owns)),
        at=at,
        generation=generation,
        members=members,
        manual_override=manual_override,
    )


def release(generation: int, partition: int, version: int, source: str, target: str, at: float = 0.0) -> ReleaseRecord:
    return ReleaseRecord(
        group=GROUP, member=source, at=at, generation=generation, topic="payments", partition=partition,
        version=version, source=source, target=target, offset=0,
    )  # fmt: skip


def report(member: str, *partitions: PartitionReport, at: float = 0.0, **fields: Any) -> ReportRecord:
    told: dict[str, Any] = {"sequence": 1, "generation": 1} | fields
    return ReportRecord(group=GROUP, member=member, at=at, partitions=partitions, **told)


def decision(member: str = "a", at: float = 0.0, **fields: Any) -> DecisionRecord:
    told: dict[str, Any] = {
        "generation": 1,
        "sequence": 1,
        "outcome": "none",
        "reason": "it fits",
        "startup_seconds": 2.0,
    }
    told |= fields
    return DecisionRecord(group=GROUP, member=member, at=at, **told)


def manual_override(action: str, at: float = 0.0, replicas: int | None = None) -> ManualOverrideRecord:
    return ManualOverrideRecord(group=GROUP, member="cli", at=at, action=action, replicas=replicas)


def view(*records: Record) -> GroupObserver:
    folded = GroupObserver(GROUP)
    for record in records:
        folded.apply(record)
    return folded
