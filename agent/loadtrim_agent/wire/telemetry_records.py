"""Telemetry: what the members measured and what the leader decided, in partition 1 of the control topic."""

from __future__ import annotations

import enum
from typing import Annotated, ClassVar, NamedTuple

import msgspec
from msgspec import Meta

from .envelope import TELEMETRY, Envelope
from .ownership_records import ManualOverrideRecord, MovePlan
from .ranges import (
    Amount,
    Count,
    Figure,
    Generation,
    HandoffSeconds,
    Index,
    Moment,
    Offset,
    Order,
    RecordCost,
    Replicas,
    Seconds,
    Speed,
    StartupSeconds,
    Sum,
)

__all__ = [
    "BaselineUse",
    "Capacity",
    "DecisionRecord",
    "PartitionReport",
    "RejectedPlan",
    "ReportRecord",
    "Untold",
    "WorkWindow",
]


WINDOWS_MAX = 64
"""Window lengths of one partition; members measure seven. Chosen."""
SLOTS_MAX = 1_000
"""Slots of one report; members tell 300 at most. Chosen."""
CAUSES_MAX = 64
"""Causes of late records; there are fewer than ten. Chosen."""


class WorkWindow(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """Work that arrived in windows of one length that end at a record (counted by records): busy seconds."""

    seconds: Seconds
    mean: Sum
    variance: Sum
    largest: Sum


class PartitionReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One partition in a member's report, over the report's interval. Only partitions that changed are listed."""

    topic: str
    partition: Index
    arrived: Count = 0
    """Records that arrived (log end moved on)."""
    bytes: Count = 0
    """Bytes of the records that were fetched."""
    done: Count = 0
    lag: Count = 0
    """Records not done at the end of the interval."""
    lag_min: Count | None = None
    """Fewest records not done at any moment of the interval: what is left of the lag when a burst in progress is taken
    away. None: not measured."""
    lag_seconds: Seconds = 0.0
    """Age of the oldest record not done; 0 without lag."""
    cost_mean: RecordCost | None = None
    """Busy seconds per record; None until one was done."""
    cost_variance: Sum | None = None
    """Variance of the busy seconds of many records, per record: those that are worked on at once vary together."""
    work_windows: Annotated[tuple[WorkWindow, ...], Meta(max_length=WINDOWS_MAX)] = ()
    position: Offset | None = None
    committed: Offset | None = None
    state: str = "running"
    """``running``, ``paused`` (by the user), ``blocked`` (does not advance though records wait), ``idle``, or ``gone``:
    lost in the interval; then only ``arrived``, ``bytes``, ``done`` and ``observed`` count, the rest is for the new
    owner to tell."""
    observed: Seconds | None = None
    """Seconds that ``arrived`` covers where it is not the interval: less while the broker was not asked (a full buffer,
    a broker that does not answer), more when it was asked again. 0: nothing is known of the interval."""


class Untold(enum.StrEnum):
    """Reason why nobody knows when a record is done: the values of ``untold`` of a report."""

    NOTHING = ""
    """Everything is known."""
    KEPT = "kept"
    """Records are worked on when the next one was asked for."""
    TASKS = "tasks"
    """A task asks for records while another one has one in hand."""
    BRIEFLY = "briefly"
    """Records are kept, but for so short a time that their latency is known well enough."""
    COMMITTED = "committed"
    """Records are kept, and the program's own commits tell that they were done in time."""

    @property
    def at_next_call(self) -> bool:
        """Return whether a record is done when the next one is asked for, if user code says nothing else."""
        return self in (Untold.NOTHING, Untold.BRIEFLY)

    @property
    def latency_known(self) -> bool:
        """Return whether records may be said to be in time."""
        return self.at_next_call or self is Untold.COMMITTED


class Capacity(NamedTuple):
    """The busy seconds per second that a member can give, as far as it has learnt it."""

    value: float
    error: float = 0.0
    """The member may well give so much less, 0 .. ``value``: the standard error of what was learnt. Before anything
    was, the distance to the most that it gave."""
    known: bool = True
    """False: it is a guess, because the member was never saturated. It may give more, or less."""

    def at(self, speed: float) -> Capacity:
        """Return it as work per second, of a machine of that speed."""
        return Capacity(self.value * speed, self.error * speed, self.known)


class Reporter(Envelope, frozen=True, kw_only=True):
    """The member that reports can give this, and gave that in the interval."""

    sequence: Order
    generation: Generation
    instance: str = ""
    process: str = ""
    """As in ``hello``. Members of one process are those of one instance that have it in common."""
    instance_type: str = ""
    interval: Seconds = 1.0
    concurrency: RecordCost = 1.0
    """Busy seconds per second that the member can give, as far as it has learnt it."""
    capacity_known: bool = True
    """False: it was never saturated, so that ``concurrency`` is what it may well give."""
    capacity_error: RecordCost = 0.0
    """``concurrency`` may well be so much less (see :class:`Capacity`)."""
    batch_seconds: Seconds | None = None
    """Time that a batch takes however few its records are, which are all done when the last one is. None: user code
    takes no batches, or does their records one after the other, or too few are known."""
    untold: str = ""
    """Reason why nobody knows when its records are done (see :class:`Untold`). Empty: it is known."""
    speed: Speed = 1.0
    slicing_off: str | None = None
    """Reason why it passes nothing on by its own decision. Empty: it does. None: an older member, which cannot."""
    busy_seconds: Amount = 0.0

    @property
    def capacity(self) -> Capacity:
        """Return what it says of its capacity."""
        return Capacity(self.concurrency, min(self.capacity_error, self.concurrency), self.capacity_known)


class ReportRecord(Reporter, frozen=True, kw_only=True, tag="report"):
    """What one member measured in one interval."""

    lands_on: ClassVar[int] = TELEMETRY

    startup_seconds: StartupSeconds | None = None
    """From process start (or the request for it) until the first partition was owned; said once it is known."""
    handoffs: tuple[HandoffSeconds, ...] = ()
    """Duration of the handoffs that this member took over in the interval, seconds."""
    late: Annotated[dict[str, Count], Meta(max_length=CAUSES_MAX)] = msgspec.field(default_factory=dict)
    """Records done later than the objective, by cause."""
    in_time: Count = 0
    """Records done within the objective."""
    unknown: Count = 0
    """Records that are neither in ``in_time`` nor in ``late``, for nobody knows when they were done."""
    unready: bool = False
    """Flag of a process whose readiness probe was answered 503 until any orchestrator knows. Each of its members is a
    drained victim."""
    latency_seconds: Sum | None = None
    """Seconds from time stamp to done, summed over the records of ``in_time`` and ``late``. None: not measured."""
    arrival_delay: Seconds | None = None
    """Mean seconds from time stamp to fetch, of the records that were fetched as they came, and in time. None: none."""
    latency_counts: tuple[tuple[Seconds, Count], ...] = ()
    """(upper bound in seconds, records done no later than that and later than the bound before), empty ones left out:
    counts of several members and intervals add up bound by bound. A record above all bounds is in none."""
    slot_seconds: Seconds = 0.1
    slots_start: Moment = 0.0
    """Time (epoch, log clock) at which the first of ``slots`` begins: a whole multiple of ``slot_seconds``."""
    slots: Annotated[tuple[Amount, ...], Meta(max_length=SLOTS_MAX)] = ()
    """Work (busy seconds) that arrived per slot of wall-clock time. Slots of all members are aligned, so the leader
    can add them up and take the variance of the group's total."""
    slots_second: Annotated[tuple[Amount, ...], Meta(max_length=SLOTS_MAX)] = ()
    """The part of each slot that came in its second half: of a burst that the edge of a slot cuts, both parts are told.
    Empty: not told."""
    slots_open: Annotated[tuple[Amount, ...], Meta(max_length=SLOTS_MAX)] = ()
    """The least that the slots after these will hold, as far as it is known: a burst is seen up to a second before its
    slot is told."""
    partitions: tuple[PartitionReport, ...] = ()


class RejectedPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An alternative that the leader looked at and why it was not taken."""

    replicas: Replicas
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
    scale: Figure | None = None
    """Today's level over the history's."""
    quantile: Figure | None = None
    """Share of a minute's rates that are not above what is expected."""
    forecast: Figure | None = None
    """The most that is expected over the start-up time."""
    returning: Figure | None = None
    """The most that is expected until a replica that is let go now would have paid."""
    topics: tuple[str, ...] = ()
    """What it is about, where that is not all that the group reads."""
    seconds: Sum = 0.0
    """Sums that forget, for the next leader: time that was compared,"""
    seen: Sum = 0.0
    """busy seconds that came,"""
    expected: Sum = 0.0
    """that were expected,"""
    off: Sum = 0.0
    """and by how much they were apart."""
    most: Sum = 0.0
    """Highest work per second that came, forgotten over weeks, for the next leader."""
    most_since: Moment = 0.0
    """Time since which that was looked at (epoch)."""


class DecidedBy(Envelope, frozen=True, kw_only=True):
    """A decision is made by these settings of its leader, told for those who read along."""

    objective_seconds: Seconds | None = None
    """The objective W."""
    objective_share: Figure | None = None
    policy: str = ""
    packer: str = ""
    monitor: str = "reports"
    """Where the arrival rates came from."""
    mode: str = "active"
    scales: bool = True
    """False: in shadow mode or without a scaler ``replicas_wanted`` is advice, and nobody was asked for it."""
    replicas_max: Replicas | None = None
    """The most that the settings allow. None: as many as there are partitions."""
    partition_count: Count = 0
    """Partitions of all topics that the group subscribes."""
    slicing: bool = False
    """All members pass partitions on by their own decision, so that the work alone was sized for."""
    unsliced: dict[str, str] = msgspec.field(default_factory=dict)
    """Member id -> why it does not, though others do."""


class Timeliness(DecidedBy, frozen=True, kw_only=True):
    """A decision tells what was late, and where nobody knows."""

    late: dict[str, Order] = msgspec.field(default_factory=dict)
    untold: dict[str, str] = msgspec.field(name="untold_members", default_factory=dict)
    """Member id -> why nobody knows when its records are done, as in its reports. Their latency is unknown. A column of
    the history has one type, and ``untold`` is that of reports."""


class DecisionRecord(Timeliness, frozen=True, kw_only=True, tag="decision"):
    """One decision of the leader, with what it saw: enough to explain it later, and for Spark to learn from."""

    lands_on: ClassVar[int] = TELEMETRY

    generation: Generation
    sequence: Order
    outcome: str
    """``hold`` | ``up`` | ``down`` | ``move`` | ``none`` (see :class:`loadtrim_agent.planning.values.Outcome`)."""
    reason: str
    """One English sentence."""
    reason_code: str = ""
    """The same for programs (see :class:`loadtrim_agent.planning.values.Reason`)."""
    replicas_actual: Replicas = 0
    replicas_wanted: Replicas = 0
    members: dict[str, Figure] = msgspec.field(default_factory=dict)
    """Member id -> utilization, 0 .. 1 and above."""
    rate: Figure = 0.0
    """Arrival rate of the group, records/s."""
    work: Figure = 0.0
    """Arriving work of the group, busy seconds per second."""
    forecast: Figure = 0.0
    """Forecast of ``work`` over the start-up time: of the trend, or of the baseline where that is more."""
    baseline: BaselineUse | None = None
    """None: nothing was measured yet, so nobody looked."""
    backlog: Figure = 0.0
    """Standing backlog, busy seconds."""
    moves: tuple[MovePlan, ...] = ()
    victims: tuple[str, ...] = ()
    members_opened: Replicas | None = None
    """Members that own something in this plan. None: no load is known yet, or nothing was planned."""
    members_bound: Replicas | None = None
    """No placement of whole partitions that fits has fewer, as far as a quick lower bound can tell; more than there are
    where nothing fits."""
    rejected: tuple[RejectedPlan, ...] = ()
    startup_seconds: Seconds | None = None
    handoff_seconds: Seconds | None = None
    manual_override: ManualOverrideRecord | None = msgspec.field(name="brake", default=None)
    state: dict[str, Figure] = msgspec.field(default_factory=dict)
    """What the policy must not forget over a change of leader (patience, cool-down), by name."""
