"""What a meter is set to, what it tells beside the records of the control topic, and how a report is cut."""

from __future__ import annotations

import enum
import math
from typing import NamedTuple

import msgspec
from msgspec import structs

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.settings import AgentSettings, out_of_range
from loadtrim_agent.wire.telemetry_records import Capacity, ReportRecord, Untold

from .cost import Cost
from .windows import BucketGrid

__all__ = [
    "GATHER_SECONDS",
    "OUT_OF_SIZING",
    "PARTITIONS_PER_PART",
    "REPORTS_SPREAD",
    "Flows",
    "MeterConfig",
    "MeterSnapshot",
    "PartitionSnapshot",
    "PartitionState",
    "Working",
    "split_report",
]

GATHER_SECONDS = 0.2
"""Time after which a member's meter is told what was done. Chosen."""
REPORTS_SPREAD = 0.15
"""Share of the report interval over which members spread their reports; the leader decides behind it."""
PARTITIONS_PER_PART = 400
"""Partitions in one record of a split report: about 160 kB before compression, well below a broker's 1 MB."""


class PartitionState(enum.StrEnum):
    """The values of :attr:`PartitionReport.state`."""

    RUNNING = "running"
    PAUSED = "paused"
    """By the user, for half of the time between two reports or more, but for back pressure: kept out of sizing."""
    BLOCKED = "blocked"
    """Records wait, none is done, and the member is not busy with others: kept out of sizing."""
    IDLE = "idle"
    """Nothing waits and nothing has come for a while."""
    GONE = "gone"
    """Lost in the interval: the entry holds what happened until then, its lag is its new owner's to tell."""


OUT_OF_SIZING = (PartitionState.PAUSED, PartitionState.BLOCKED)
"""States in which a partition does not advance for reasons other than load."""


class Flows(msgspec.Struct):
    """What happened since the last report."""

    arrived: int = 0
    bytes: int = 0
    done: int = 0

    def add(self, other: Flows) -> None:
        self.arrived += other.arrived
        self.bytes += other.bytes
        self.done += other.done

    def __bool__(self) -> bool:
        return bool(self.arrived or self.bytes or self.done)


class Working(msgspec.Struct, frozen=True, kw_only=True):
    """User code has this in hand at one moment."""

    records: int = 0
    open_seconds: float = 0.0
    """The sum of how long they have been in hand; a batch counts once."""
    asleep_seconds: float = 0.0
    """Since the start, for want of records."""
    batches_filled: bool = True
    """Batches that were taken lately were as large as they could be."""
    costs_provisional: bool = False
    """No cost of a record is known yet, though some are done: see :meth:`.batch_cost.BatchCost.is_provisional`."""
    batch_seconds: float = 0.0
    """A batch takes so long however few its records are."""
    tells: bool = False
    """User code says itself what is done, so it may work on many records at once."""
    untold: Untold = Untold.NOTHING
    """User code works on records beyond the next call, and does not say when it has done them."""


class MeterConfig(AgentSettings, frozen=True, kw_only=True):
    """What a meter is set to: the user's settings, and beside them what they are measured with. Times in seconds."""

    group: str
    process: str = ""
    """As :func:`~loadtrim_agent.common.host.process_name` has it."""
    speed: float = 1.0
    started_at: float | None = None
    """When the process was started or asked for, own clock; None: no start-up time is told."""
    slot_seconds: float = 0.1
    windows_seconds: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
    settle_seconds: float = 0.2
    """Least age at which a slot is closed: what producers and a fetch need until a record is seen."""
    settle_seconds_max: float = 1.0
    """Age at which it is closed though a partition was not observed past it."""
    blocked_seconds: float = 5.0
    """Least time without progress after which a partition counts as blocked."""

    def __post_init__(self) -> None:
        for name, value, allowed in out_of_range(self):
            raise ValueError(f"{name} is {value!r}, so nothing can be measured; allowed is {allowed}")
        for name in ("speed", "blocked_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}, not above 0")
        if not 0 <= self.settle_seconds <= self.settle_seconds_max:
            raise ValueError(
                f"settle_seconds is {self.settle_seconds}, not 0 .. settle_seconds_max ({self.settle_seconds_max})"
            )
        _ = self.grid

    @property
    def grid(self) -> BucketGrid:
        """The slots and windows that work is counted in."""
        return BucketGrid.of(self.slot_seconds, self.windows_seconds)


class PartitionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One owned partition at one moment."""

    partition: Partition
    state: PartitionState
    position: int
    committed: int | None
    end_offset: int | None
    """None: not known yet."""
    lag_records: int
    lag_seconds: float
    arrival_rate: float
    """Records/s over the last 10 s, up to the slots that are closed (a second ago at most)."""
    cost: Cost | None
    queue_seconds: float
    """Work waiting; 0 while no cost is known."""


class PartitionWork(NamedTuple):
    """The work that one partition makes."""

    cost_seconds: float
    """Of a record, busy seconds."""
    rate: float
    """Busy seconds/s that arrive."""
    queue_seconds: float
    """Work waiting, as far as it was gathered."""


class MeterSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What metrics and ``/status`` tell. Totals are since the start and never fall."""

    utilization: float
    """Busy share of the concurrency over the last 10 s, 0 .. 1."""
    slack: float
    """Busy seconds per second that could still be given, x speed."""
    capacity: Capacity
    """Busy seconds of this machine, whatever its speed."""
    speed: float = 1.0
    """Work that a busy second of this machine does."""
    work_rate: float
    """Work that arrives in partitions that are not kept out, busy seconds per second."""
    clock_offset_seconds: float
    busy_seconds: float
    in_time: int
    untimed: int
    """Records done that have no timestamp."""
    unknown: int
    """Records of which nobody knows whether they were done in time."""
    untold: Untold
    """Reason for that, as of now."""
    late: dict[str, int]
    ignored: int
    """Records told of for partitions that were not owned (any more)."""
    partitions: tuple[PartitionSnapshot, ...]
    """Sorted."""


def split_report(report: ReportRecord, partitions_max: int = PARTITIONS_PER_PART) -> tuple[ReportRecord, ...]:
    """Cut a report into parts of at most ``partitions_max`` partitions, so that each fits a record.

    Totals and slots are in the first part only. Parts are numbered on from the report's sequence: the next report's
    sequence is that of the last part + 1.
    """
    if len(report.partitions) <= partitions_max:
        return (report,)
    parts = [structs.replace(report, partitions=report.partitions[:partitions_max])]
    for number, start in enumerate(range(partitions_max, len(report.partitions), partitions_max), 1):
        parts.append(
            ReportRecord(
                group=report.group,
                member=report.member,
                at=report.at,
                sequence=report.sequence + number,
                generation=report.generation,
                instance=report.instance,
                process=report.process,
                instance_type=report.instance_type,
                interval=report.interval,
                concurrency=report.concurrency,
                speed=report.speed,
                untold=report.untold,
                slicing_off=report.slicing_off,
                capacity_known=report.capacity_known,
                capacity_error=report.capacity_error,
                batch_seconds=report.batch_seconds,
                partitions=report.partitions[start : start + partitions_max],
            )
        )
    return tuple(parts)
