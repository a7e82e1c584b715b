"""Telemetry: what the members measured and what the leader decided, in partition 1 of the control topic."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from .envelope import TELEMETRY, Envelope
from .ownership_records import ManualOverrideRecord, MovePlan

__all__ = [
    "BaselineUse",
    "DecisionRecord",
    "PartitionReport",
    "RejectedPlan",
    "ReportRecord",
    "WorkWindow",
]


class WorkWindow(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Work that arrived in windows of one length that end at a record (counted by records): busy seconds."""

    seconds: float
    mean: float
    variance: float
    largest: float


class PartitionReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One partition in a member's report, over the report's interval. Only partitions that changed are listed."""

    topic: str
    partition: int
    arrived: int = 0
    """Records that arrived (log end moved on)."""
    bytes: int = 0
    """Bytes of the records that were fetched."""
    done: int = 0
    lag: int = 0
    """Records not done at the end of the interval."""
    lag_min: int | None = None
    """Fewest records not done at any moment of the interval: what is left of the lag when a burst in progress is taken
    away. None: not measured."""
    lag_seconds: float = 0.0
    """Age of the oldest record not done; 0 without lag."""
    cost_mean: float | None = None
    """Busy seconds per record; None until one was done."""
    cost_variance: float | None = None
    work_windows: tuple[WorkWindow, ...] = ()
    position: int | None = None
    committed: int | None = None
    state: str = "running"
    """``running``, ``paused`` (by the user), ``blocked`` (does not advance though records wait), ``idle``, or ``gone``:
    lost in the interval; then only ``arrived``, ``bytes``, ``done`` and ``observed`` count, the rest is for the new
    owner to tell."""
    observed: float | None = None
    """Seconds that ``arrived`` covers where it is not the interval: less while the broker was not asked (a full buffer,
    a broker that does not answer), more when it was asked again. 0: nothing is known of the interval."""


class ReportRecord(Envelope, frozen=True, kw_only=True, tag="report"):
    """What one member measured in one interval."""

    lands_on: ClassVar[int] = TELEMETRY

    sequence: int
    generation: int
    instance: str = ""
    instance_type: str = ""
    interval: float = 1.0
    concurrency: float = 1.0
    speed: float = 1.0
    busy_seconds: float = 0.0
    startup_seconds: float | None = None
    """From process start (or the request for it) until the first partition was owned; said once it is known."""
    handoffs: tuple[float, ...] = ()
    """Duration of the handoffs that this member took over in the interval, seconds."""
    late: dict[str, int] = msgspec.field(default_factory=dict)
    """Records done later than the objective, by cause."""
    in_time: int = 0
    """Records done within the objective."""
    latency_seconds: float | None = None
    """Seconds from time stamp to done, summed over the records of ``in_time`` and ``late``. None: not measured."""
    latency_counts: tuple[tuple[float, int], ...] = ()
    """(upper bound in seconds, records done no later than that and later than the bound before), empty ones left out:
    counts of several members and intervals add up bound by bound. A record above all bounds is in none."""
    slot_seconds: float = 0.1
    slots_start: float = 0.0
    """Time (epoch, log clock) at which the first of ``slots`` begins: a whole multiple of ``slot_seconds``."""
    slots: tuple[float, ...] = ()
    """Work (busy seconds) that arrived per slot of wall-clock time. Slots of all members are aligned, so the leader
    can add them up and take the variance of the group's total."""
    slots_open: tuple[float, ...] = ()
    """The least that the slots after these will hold, as far as it is known: a burst is seen up to a second before its
    slot is told."""
    partitions: tuple[PartitionReport, ...] = ()


class RejectedPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An alternative that the leader looked at and why it was not taken."""

    replicas: int
    reason: str


class BaselineUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a decision made of what the history expects. Work in busy seconds per second of the group."""

    used: bool = False
    """Was it counted in?"""
    reason: str = ""
    """Why not, or why that of some topics was not, half a sentence; of what is ``missing`` nothing is said."""
    reason_code: str = ""
    """Why not, for programs (see :class:`loadtrim_agent.planning.baseline.Ignored`); where each topic's is ignored for
    its own reason, that of the first which has one."""
    ignored: dict[str, str] = {}
    """Topic -> why its own was not counted in, whatever became of the others; empty where all are ``missing``."""
    scale: float | None = None
    """Today's level over the history's."""
    quantile: float | None = None
    """Share of a minute's rates that are not above what is expected."""
    forecast: float | None = None
    """The most that is expected over the start-up time."""
    returning: float | None = None
    """The most that is expected until a replica that is let go now would have paid."""
    topics: tuple[str, ...] = ()
    """What it is about, where that is not all that the group reads."""
    seconds: float = 0.0
    """Sums that forget, for the next leader: time that was compared,"""
    seen: float = 0.0
    """busy seconds that came,"""
    expected: float = 0.0
    """that were expected,"""
    off: float = 0.0
    """and by how much they were apart."""


class DecisionRecord(Envelope, frozen=True, kw_only=True, tag="decision"):
    """One decision of the leader, with what it saw: enough to explain it later, and for Spark to learn from."""

    lands_on: ClassVar[int] = TELEMETRY

    generation: int
    sequence: int
    outcome: str
    """``hold`` | ``up`` | ``down`` | ``move`` | ``none`` (see :class:`loadtrim_agent.planning.values.Outcome`)."""
    reason: str
    """One English sentence."""
    reason_code: str = ""
    """The same for programs (see :class:`loadtrim_agent.planning.values.Reason`)."""
    objective_seconds: float | None = None
    """W, as the leader is set: for those who read along."""
    objective_share: float | None = None
    policy: str = ""
    packer: str = ""
    monitor: str = "reports"
    """Where the arrival rates came from."""
    mode: str = "active"
    replicas_actual: int = 0
    replicas_wanted: int = 0
    members: dict[str, float] = msgspec.field(default_factory=dict)
    """Member id -> utilization, 0 .. 1 and above."""
    rate: float = 0.0
    """Arrival rate of the group, records/s."""
    work: float = 0.0
    """Arriving work of the group, busy seconds per second."""
    forecast: float = 0.0
    """Forecast of ``work`` over the start-up time: of the trend, or of the baseline where that is more."""
    baseline: BaselineUse | None = None
    """None: nothing was measured yet, so nobody looked."""
    backlog: float = 0.0
    """Standing backlog, busy seconds."""
    moves: tuple[MovePlan, ...] = ()
    victims: tuple[str, ...] = ()
    members_opened: int | None = None
    """Members that own something in this plan. None: no load is known yet, or nothing was planned."""
    members_bound: int | None = None
    """No placement of whole partitions that fits has fewer, as far as a quick lower bound can tell; more than there are
    where nothing fits."""
    rejected: tuple[RejectedPlan, ...] = ()
    late: dict[str, int] = msgspec.field(default_factory=dict)
    startup_seconds: float | None = None
    handoff_seconds: float | None = None
    manual_override: ManualOverrideRecord | None = msgspec.field(name="brake", default=None)
    state: dict[str, float] = msgspec.field(default_factory=dict)
    """What the policy must not forget over a change of leader (patience, cool-down), by name."""
