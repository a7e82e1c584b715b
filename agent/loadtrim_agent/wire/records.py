"""What goes over the control topic: JSON objects, one tagged union on ``"kind"``, each with ``"v": 1``.

Partition 0 of the topic is the *coordination log*, which every member tails; partition 1 is *telemetry*, which the
leader and Spark read. Units are seconds (float), records and bytes; times are seconds since the epoch.

Rules for changing them: a new field has a default; a kind, a name or a type never changes its meaning; readers ignore
unknown kinds and fields, count malformed records and skip them. Bytes written by older versions are kept in
``tests/golden`` and must stay readable.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from loadtrim_agent.common.partition import Partition

__all__ = [
    "COORDINATION",
    "TELEMETRY",
    "AssignmentRecord",
    "BaselineUse",
    "DecisionRecord",
    "HelloRecord",
    "LeavingRecord",
    "LeftRecord",
    "LoadRecord",
    "ManualOverrideRecord",
    "MemberEntry",
    "MovePlan",
    "PartitionLoad",
    "PartitionReport",
    "PlanRecord",
    "Record",
    "RejectedPlan",
    "RejoinRecord",
    "ReleaseRecord",
    "ReportRecord",
    "UnreadableRecord",
    "WorkWindow",
    "decode",
    "encode",
]

COORDINATION = 0
"""Partition of the control topic that holds the coordination log."""
TELEMETRY = 1
"""Partition of the control topic that holds reports and decisions."""


class _Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """Fields that every record has."""

    lands_on: ClassVar[int] = COORDINATION

    group: str
    member: str
    """Who wrote it: the member id, or ``"cli"`` for the command line."""
    at: float
    """When it was written, by the writer's clock, seconds since the epoch."""
    v: int = 1


class ManualOverrideRecord(_Record, frozen=True, kw_only=True, tag="brake"):
    """The command line's hand on the wheel. The latest in the log wins, whatever the generation."""

    action: str
    """``hold`` (no plan is made), ``scale`` (a fixed number of replicas) or ``resume``."""
    replicas: int | None = None
    """With ``scale``: the number wanted, >= 1."""

    def __post_init__(self) -> None:
        if self.action not in ("hold", "resume", "scale"):
            raise ValueError(f"brake: action is {self.action!r}, not hold, resume or scale")
        if self.action == "scale" and (self.replicas is None or self.replicas < 1):
            raise ValueError("brake: scale needs replicas >= 1")


class HelloRecord(_Record, frozen=True, kw_only=True, tag="hello"):
    """A newcomer sent its JoinGroup: everybody joins now, so that the barrier lasts milliseconds."""

    instance: str = ""


class RejoinRecord(_Record, frozen=True, kw_only=True, tag="rejoin"):
    """The writer was told of a rebalance: everybody joins now."""

    generation: int = -1


class LeavingRecord(_Record, frozen=True, kw_only=True, tag="leaving"):
    """Please drain me; give me nothing. Said again in every generation until gone."""

    generation: int
    instance: str = ""


class LeftRecord(_Record, frozen=True, kw_only=True, tag="left"):
    """The writer sends its LeaveGroup: everybody joins now."""

    generation: int = -1


class MemberEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One member in a generation's map."""

    attempt: int
    """Number of the JoinGroup that the map was made from (rule 6)."""
    topics: tuple[str, ...] = ()
    """What it subscribes, sorted: who may own what."""
    owns: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """(topic, partitions) that the map gives it, both sorted."""


class AssignmentRecord(_Record, frozen=True, kw_only=True, tag="base"):
    """The whole map at the start of a generation: version 0 of every partition's owner.

    The same object travels inline in the SyncGroup answers where it fits the broker's record limit.
    """

    generation: int
    members: dict[str, MemberEntry]
    manual_override: ManualOverrideRecord | None = msgspec.field(name="brake", default=None)

    def owners(self) -> dict[Partition, str]:
        """Partition -> member that owns it at version 0. A partition that is not a key belongs to nobody."""
        return {
            Partition(topic, index): member
            for member, entry in self.members.items()
            for topic, partitions in entry.owns
            for index in partitions
        }


class MovePlan(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"source": "from", "target": "to"}
):
    """Advice to one owner: please hand this partition to that member."""

    topic: str
    partition: int
    source: str
    target: str
    reason: str = ""


class PlanRecord(_Record, frozen=True, kw_only=True, tag="plan"):
    """The leader's advice. Void outside its generation; a later sequence replaces an earlier one."""

    generation: int
    sequence: int
    moves: tuple[MovePlan, ...] = ()
    victims: tuple[str, ...] = ()
    """Member ids that are to go: drained first, given nothing."""


class ReleaseRecord(_Record, frozen=True, kw_only=True, tag="release", rename={"source": "from", "target": "to"}):
    """The only record that moves ownership (rule 1). ``offset`` is committed before it is written (rule 2)."""

    generation: int
    topic: str
    partition: int
    version: int
    source: str
    target: str
    offset: int
    seconds: float = 0.0
    """From the moment the owner stopped handing out until it wrote this."""

    @property
    def key(self) -> Partition:
        return Partition(self.topic, self.partition)


class PartitionLoad(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One partition in a ``load`` record, as an array to keep it short."""

    topic: str
    partition: int
    queue_seconds: float
    """Work waiting: records not done x cost."""


class LoadRecord(_Record, frozen=True, kw_only=True, tag="load"):
    """A member's slack and queues, every 0.5 s when they changed, at least every second: also its sign of life."""

    generation: int
    slack: float = 1.0
    """Busy seconds per second that it could still give, 0 .. concurrency x speed."""
    queues: tuple[PartitionLoad, ...] = ()


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


class ReportRecord(_Record, frozen=True, kw_only=True, tag="report"):
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
    late: dict[str, int] = {}
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


class DecisionRecord(_Record, frozen=True, kw_only=True, tag="decision"):
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
    members: dict[str, float] = {}
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
    late: dict[str, int] = {}
    startup_seconds: float | None = None
    handoff_seconds: float | None = None
    manual_override: ManualOverrideRecord | None = msgspec.field(name="brake", default=None)
    state: dict[str, float] = {}
    """What the policy must not forget over a change of leader (patience, cool-down), by name."""


Record = (
    HelloRecord
    | RejoinRecord
    | AssignmentRecord
    | PlanRecord
    | ReleaseRecord
    | LoadRecord
    | LeavingRecord
    | LeftRecord
    | ManualOverrideRecord
    | ReportRecord
    | DecisionRecord
)


class UnreadableRecord(ValueError):
    """Bytes on the control topic that are no record of this version. The reader counts and skips them."""


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def encode(record: Record) -> bytes:
    """The JSON bytes of one record. About 2 us for a release."""
    return _encoder.encode(record)


def decode(data: bytes) -> Record:
    """Read one record; unknown fields are ignored.

    Raises:
        UnreadableRecord: malformed bytes, an unknown kind, or a field out of its range.
    """
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, ValueError) as error:
        raise UnreadableRecord(str(error)) from error
