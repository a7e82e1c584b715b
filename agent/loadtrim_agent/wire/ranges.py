"""Ranges of the numbers in records. The decoder refuses a record with a number outside: it counts and is skipped.

A range is as wide as anything that a member can measure, and so narrow that sums and products of a group's numbers stay
finite. What is written is not checked again: the writer keeps to the ranges by what it measures.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

__all__ = [
    "HANDOFF_SECONDS_MAX",
    "INT64_MAX",
    "REPLICAS_MAX",
    "STARTUP_SECONDS_MAX",
    "Amount",
    "Count",
    "Figure",
    "Generation",
    "HandoffSeconds",
    "Index",
    "Moment",
    "Offset",
    "Order",
    "RecordCost",
    "Replicas",
    "Seconds",
    "Speed",
    "StartupSeconds",
    "Sum",
    "Version",
]

INT64_MAX = 2**63 - 1
REPLICAS_MAX = 1_000_000
HANDOFF_SECONDS_MAX = 86_400.0
"""Chosen: longer than any drain that a user sets."""
STARTUP_SECONDS_MAX = 3600.0
"""Chosen: what takes longer from process start to the first partition was a spare member, and tells of no start-up."""

Moment = Annotated[float, Meta(ge=0, le=253_370_764_800)]
"""Seconds since the epoch, until the year 9999: the last that calendars know in every zone."""
Version = Annotated[int, Meta(ge=0, le=2**31 - 1)]
"""Format of a record."""
Generation = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
"""As Kafka numbers generations; -1: none."""
Index = Annotated[int, Meta(ge=0, le=2**31 - 1)]
"""Number of a partition, as Kafka has it."""
Offset = Annotated[int, Meta(ge=-1, le=INT64_MAX)]
"""Offset in a partition; -1: none."""
Order = Annotated[int, Meta(ge=0, le=INT64_MAX)]
"""Number in a sequence: of a report, a decision, a JoinGroup, a release."""
Count = Annotated[int, Meta(ge=0, le=10**12)]
"""Records or bytes in an interval, or records that wait."""
Replicas = Annotated[int, Meta(ge=0, le=REPLICAS_MAX)]
"""Replicas or members of a group."""
Seconds = Annotated[float, Meta(ge=0, le=1e12)]
"""Length of time, also the age of a record whose time stamp is 0."""
HandoffSeconds = Annotated[float, Meta(ge=0, le=HANDOFF_SECONDS_MAX)]
"""Length of a handoff."""
StartupSeconds = Annotated[float, Meta(ge=0, le=STARTUP_SECONDS_MAX)]
"""Start-up time."""
RecordCost = Annotated[float, Meta(ge=0, le=1e6)]
"""Busy seconds of one record, or concurrency."""
Speed = Annotated[float, Meta(ge=1e-3, le=1e3)]
"""Work that a machine does in a busy second. Chosen: a thousand times as fast, or as slow, as another; it divides."""
Amount = Annotated[float, Meta(ge=0, le=1e9)]
"""Busy seconds in an interval."""
Sum = Annotated[float, Meta(ge=0, le=1e24)]
"""Sum, square or product of measured numbers."""
Figure = Annotated[float, Meta(ge=-1e30, le=1e30)]
"""Number that a policy remembers, or a figure of the group that the leader worked out."""
