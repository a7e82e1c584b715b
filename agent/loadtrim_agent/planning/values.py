"""The one value type between each two stages of planning, and what goes in and comes out.

``observe -> estimate -> forecast -> decide -> place -> act``::

    ReportRecord, GroupState -> Observation -> Estimate -> Forecast -> Sizing -> Placement -> DecisionRecord

"Not ready", "no change" and "refused" are values with a :class:`Reason`, never exceptions. Work is in *busy seconds of
the reference type of instance* (records x cost x speed): unlike messages and machines compare. Capacity is work/s.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from loadtrim_agent.common.checks import within
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.settings import AgentSettings, out_of_range
from loadtrim_agent.wire.baseline_records import TopicCurve
from loadtrim_agent.wire.ownership_records import ManualOverrideRecord
from loadtrim_agent.wire.telemetry_records import RejectedPlan

from .history import Second
from .policy_state import PolicyState
from .queueing import z_of

__all__ = [
    "DECISION_PHASE",
    "TAUS_SECONDS",
    "ArrivalCurve",
    "Estimate",
    "Forecast",
    "GroupState",
    "LagMoment",
    "MemberEstimate",
    "MemberState",
    "Moving",
    "NotReady",
    "Outcome",
    "PartitionEstimate",
    "Placement",
    "PlanConfig",
    "PlannedMove",
    "RateUnit",
    "Rates",
    "Reason",
    "ReplicaTarget",
    "Sizing",
    "Unit",
    "units_of",
]

TAUS_SECONDS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
"""Window lengths of every work curve. The first is the limit of a window of no length: what arrives at one instant."""

DECISION_PHASE = 0.3
"""Intervals after a multiple of the interval at which it is decided: the members' reports are there by then."""


class Outcome(enum.StrEnum):
    """What a decision does."""

    NONE = "none"
    """Everything fits: nothing to do."""
    MOVE = "move"  # of partitions, with as many replicas as before
    UP = "up"
    DOWN = "down"
    HOLD = "hold"
    """No plan was made; :class:`Reason` says why."""


class Reason(enum.StrEnum):
    """Why a stage has no answer, or why the answer is not what the load alone would ask for."""

    NOT_READY = "not_ready"
    """Too little has been measured yet."""
    BLIND = "blind"
    """Reports are missing or stale."""
    MANUAL_OVERRIDE = "brake"
    """The command line said hold."""
    NOBODY = "nobody"
    """No member, or every member is leaving: nobody could be given anything."""
    FITS = "fits"
    STABILIZING = "patience"
    """A smaller group would do, but not for long enough yet."""
    SETTLING = "settling"
    """Partitions that moved are still being restored, or worked off, so what is measured says little."""
    RETURNING = "returning"
    """A smaller group would do, but the load is expected back before a replica let go would have paid."""
    NEEDS_MORE = "needs_more"
    POSTPONED = "postponed"
    """More would keep up, and come in time if they are asked for later."""
    NEEDS_LESS = "needs_less"
    AT_MAX = "at_max"
    UNSPLITTABLE = "unsplittable"
    """It fits but for a partition that is too large for one member; replicas cannot help."""
    INEFFECTIVE = "futile"
    """The last replicas brought no throughput: something else is the bottleneck."""
    PLACEMENT = "placement"
    """Whole partitions do not divide well over the group that the work alone asks for."""
    ROLLOUT = "rollout"
    """A smaller group would do, but pods of two templates are there, and the controllers choose which go."""
    KEPT_OUT = "kept_out"
    """A smaller group would do, but records come for partitions that are paused or blocked."""
    UNTOLD = "untold"
    """A smaller group would do as far as is measured, but nobody knows when records are done."""
    FIXED = "fixed"
    """Somebody gave the number: the brake, or the policy ``fixed``."""


class PlanConfig(AgentSettings, frozen=True, kw_only=True):
    """What planning is set to: the user's settings, and beside them what is known of the group. Times in seconds.

    Raises:
        ValueError: one is out of its range. Names (policy, packer, monitor) are looked up where they are used.
    """

    group: str = ""
    can_scale: bool = True
    """False with scaler ``none``: the wanted number is only told, nobody becomes a victim for it."""
    numbered: str = ""
    """StatefulSet whose pods the instances are: the highest numbers go. Empty: whoever is named goes."""
    templated: str = ""
    """Deployment whose pods the instances are: a rollout names nobody (see :mod:`.pods`). Empty: they are none."""
    startup_seconds: float = 10.0
    """Start-up time until one was measured."""
    handoff_seconds: float = 0.015
    """The p99 of a handoff until one was measured, and the least overhead that sizing keeps free."""
    parameters: Mapping[str, float] = {}
    """Parameters of the policy by name, which come before those in ``policy``; its ``mu`` is the packer's, too."""

    def __post_init__(self) -> None:
        for name, value, allowed in out_of_range(self):
            raise ValueError(f"{name} is {value!r}, so nothing can be planned; allowed is {allowed}")
        for name in ("startup_seconds", "handoff_seconds"):
            if not within(value := getattr(self, name), 0.0):
                raise ValueError(f"{name} is {value!r}, which no time is; give a finite number of 0 or more")

    @classmethod
    def of(
        cls, settings: AgentSettings, group: str, *, can_scale: bool, numbered: str = "", templated: str = ""
    ) -> PlanConfig:
        """Return what the user's settings say to the planner of ``group``."""
        given = {name: getattr(settings, name) for name in AgentSettings.__struct_fields__}
        return cls(**given, group=group, can_scale=can_scale, numbered=numbered, templated=templated)

    @property
    def asks(self) -> bool:
        """Whether decisions are asked for at all: active mode, and a scaler."""
        return self.can_scale and self.mode == "active"

    @property
    def z(self) -> float:
        """Standard deviations kept free: 1 at a share of 0.999, in proportion to the normal quantile for others."""
        return z_of(self.sla_share)


class RateUnit(enum.StrEnum):
    """What a monitor counts."""

    RECORDS = "records"
    BYTES = "bytes"


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """What arrives, measured at the broker."""

    at: float
    """Seconds since the epoch."""
    unit: RateUnit
    per_second: Mapping[Partition, float]


class MemberState(msgspec.Struct, frozen=True, kw_only=True):
    """One member as the group protocol knows it."""

    instance: str | None = ""
    """What the orchestrator names. Empty: the member id stands for it. None: not known yet, so it may be any."""
    topics: frozenset[str] = frozenset()
    leaving: bool = False
    joined_at: float = 0.0
    """When the leader first saw it in the group, seconds since the epoch by the leader's clock."""


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """The group as its leader sees it at the moment of a decision."""

    generation: int
    leader: str
    """Member id of the leader, who writes the decision."""
    members: Mapping[str, MemberState]
    owners: Mapping[Partition, str | None]
    """Every partition of every subscribed topic; None: nobody owns it."""
    unowned_lag: Mapping[Partition, int] = msgspec.field(default_factory=dict)
    """Records that wait in partitions that nobody owns."""
    in_flight: Mapping[Partition, str] = msgspec.field(default_factory=dict)
    """Partitions on their way -> the member they go to. Planned as if they were there; not moved again."""
    manual_override: ManualOverrideRecord | None = None
    replicas_requested: int | None = None
    """What the orchestrator was last asked for."""
    replicas_standing: int | None = None
    """As many as somebody else has set, and the scaler leaves: fewer are there by no plan. None: it leaves none."""
    rates: Rates | None = None
    """What the monitor says arrives; None: it has not said, or the reports do."""
    expected: Mapping[str, TopicCurve] = msgspec.field(default_factory=dict)
    """What the history expects of each topic in the next hours; not there: nothing is known of it."""
    startup_expected_seconds: float | None = None
    """p90 of the start-up times that the history tells of; None: of none."""

    @property
    def instances(self) -> dict[str, str | None]:
        """Member id -> instance."""
        return {member: state.instance for member, state in self.members.items()}

    @property
    def unknown(self) -> tuple[str, ...]:
        """Members whose instance is not known yet, sorted."""
        return tuple(member for member, state in sorted(self.members.items()) if state.instance is None)


class Unit(msgspec.Struct, frozen=True):
    """One instance and its members in this group: what replicas are counted in."""

    instance: str
    members: tuple[str, ...]
    leaving: bool
    """All its members are leaving."""


def units_of(group: GroupState) -> tuple[Unit, ...]:
    """The known instances of a group, sorted by name. A member whose instance is empty is one of its own."""
    by_instance: dict[str, list[str]] = {}
    for member in sorted(group.members):
        instance = group.members[member].instance
        if instance is not None:
            by_instance.setdefault(instance or member, []).append(member)
    return tuple(
        Unit(instance, tuple(members), all(group.members[member].leaving for member in members))
        for instance, members in sorted(by_instance.items())
    )


class ArrivalCurve(msgspec.Struct, frozen=True, gc=False):
    """Work that arrives in windows of :data:`TAUS_SECONDS` that end at a record, counted by records."""

    mean: tuple[float, ...]
    stddev: tuple[float, ...]

    def scaled(self, factor: float) -> ArrivalCurve:
        """The curve of ``factor`` times the load."""
        return ArrivalCurve(tuple(m * factor for m in self.mean), tuple(s * factor for s in self.stddev))


class NotReady(msgspec.Struct, frozen=True):
    """A stage that cannot answer."""

    reason: Reason
    text: str
    """Half a sentence for people: "no report from m3 for 4.2 s"."""


class MemberEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a member can give and gives."""

    capacity: float
    """Work per second: concurrency x speed."""
    utilization: float = 0.0
    """Busy share of its concurrency in the last interval."""
    speed: float = 1.0
    age_seconds: float | None = None
    """Since its last report; None: none yet."""
    silent: bool = False
    """Its reports are overdue: what it is doing is not known, so it is given nothing."""
    batch_seconds: float = 0.0
    """A batch takes so long however few its records are: as in its last report, half the objective at most."""
    told: float | None = None
    """Capacity that it was taken to have, where less was seen while it fell behind; None: nothing contradicts it."""
    did: float = 0.0
    """Records/s that it did then."""
    has_begun: bool = False
    """True: a record was done by it since it came."""


class PartitionEstimate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Load of one partition. Work is 0 where ``sized`` is False."""

    partition: Partition
    owner: str | None
    rate: float = 0.0
    """Records/s, smoothed."""
    rate_last: float = 0.0
    """Records/s of the last report alone."""
    cost: float = 0.0
    """Work per record."""
    dispersion: float = 0.0
    """Variance of a record's work over its mean."""
    work: float = 0.0
    """The product of rate and cost."""
    lag: int = 0
    lag_seconds: float = 0.0
    """Age of the oldest record not done; 0 without lag."""
    lag_low: int = 0
    """Fewest records that waited at any moment of the last interval."""
    lag_high: int = 0
    """Most records that wait when a usual burst has just come."""
    persistent_backlog: float = 0.0
    """Work that waits and is not a burst in progress, without what is already late."""
    late: float = 0.0
    """Work that waits and is already late."""
    curve: ArrivalCurve
    sized: bool = True
    """False: paused, blocked or unknown, so kept out of sizing."""
    state: str = "running"


class Unknowns(msgspec.Struct, frozen=True, kw_only=True):
    """Unknown facts of a group."""

    stale: tuple[str, ...] = ()
    left_out: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Owners whose reports are missing or too old; and why reports of some of them count for nothing."""
    untold: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Members of which nobody knows when their records are done, and why: what is in time, or late, is not known."""
    capacity_known: bool = True
    """False: that is so, and no member was ever seen to do all that it can: nobody knows how many are needed."""
    capacity_error: float = 0.0
    """By what they have learnt, all members together may well give so much less, work per second."""
    kept_out: Mapping[Partition, float] = msgspec.field(default_factory=dict)
    """Work per second that comes for partitions while they are paused or blocked."""


class Moving(Unknowns, frozen=True, kw_only=True):
    """Records in hand and moves take this time, and members make moves by themselves or not."""

    in_hand_seconds: float
    """A record takes this of the objective, beside what it waits for its turn."""
    restoring_seconds: float = 0.0
    """Time in which a partition's new owner restores what it keeps about it (:mod:`.settling`)."""
    settling_seconds: float = 0.0
    """Time in which what is measured still says little for that."""
    slicing: bool = False
    """All pass partitions on inside the objective. Then the work alone is sized for, and a handoff is kept free."""
    unsliced: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Members that do not though others do, and why."""


class Variation(Moving, frozen=True, kw_only=True):
    """The variation of what arrives."""

    curve: ArrivalCurve
    """Of the measured total of the group, per unit of work per second (at a level of 1.0)."""
    correlation: float
    """How much partitions vary together, 0 .. 1."""
    dispersion: float = 0.0
    """Variance of a record's cost over its mean, busy seconds: a window with work w varies by w x this on top."""
    grain: float = 0.0
    """The mean cost of a record by work, so that dear partitions count more: what comes at once with a record."""
    chance_share: float = 1.0
    """Variance of what comes in single partitions over that of chance, 0 .. 1: less where dealt out in turn."""


class Estimate(Variation, frozen=True, kw_only=True):
    """What was measured, as one picture of the group."""

    at: float
    series: tuple[float, ...]
    """Arriving work of the group per second, oldest first; the last element is the newest second."""
    partitions: Mapping[Partition, PartitionEstimate]
    members: Mapping[str, MemberEstimate]
    rate: float
    """Records/s of the group."""
    backlog: float
    """B: standing backlog, work."""
    late: float
    """L: work that is already late."""
    throughput: float
    """Records done per second in the last interval."""
    cost: float
    """Mean work per record."""
    overhead_seconds: float
    """o: what a handoff and the record in hand may take off the objective."""
    handoff_seconds: float
    startup_seconds: float
    startups: int = 0
    """How many were measured for it."""
    capacity_typical: float
    """Work per second of a replica that would be added."""
    late_records: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Records done late since the last decision, by cause."""
    past: tuple[Second, ...] = ()
    """What the group did in each of the last seconds, oldest first."""
    opening: float = 0.0
    """The least that the next element of ``series`` will be, as far as it is known."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The group's work per second now and ahead."""

    level: float
    """Now, as far as it counts."""
    ahead: float
    """At the horizon."""
    error: float
    """Standard error of the level."""
    slope: float
    """Per second; 0 where it is not significant."""
    horizon_seconds: float
    """Of what is ``ahead``: a baseline may look further than the trend."""
    window_seconds: int
    """How much of the past it rests on."""
    trend: float
    """At the horizon, by the trend alone."""
    source: str = "trend"
    """``trend`` or ``baseline``, whichever is larger."""
    returning: float = 0.0
    """The most that the baseline expects until a replica that is let go now would have paid; 0 without one."""
    counted_share: float = 1.0
    """Of what arrives now, above 0: what comes out of nothing counts in part until it has lasted."""

    @property
    def arriving(self) -> float:
        """The work per second that arrives now."""
        return self.level / self.counted_share

    @property
    def peak(self) -> float:
        """The most that is expected between now and the horizon."""
        return max(self.level, self.ahead)

    @property
    def trend_peak(self) -> float:
        """The same by the trend alone."""
        return max(self.level, self.trend)


class LagMoment(enum.Enum):
    """The moment whose lag of a partition a packer takes. The value is the name of that lag in an item."""

    REPORTED = "lag"
    """When the member reported, wherever in a burst that was."""
    AFTER_BURST = "lag_high"
    """Just after a usual burst."""
    BEFORE_BURST = "lag_low"
    """The fewest records of the last interval."""


class Sizing(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's answer: how many, and why."""

    replicas: int
    reason: Reason
    text: str
    """Reads on from "4 replicas: "."""
    place: bool = True
    """May partitions that could stay be moved?"""
    load_factor: float = 1.0
    """Placement is made for this many times the present load."""
    fill: float = 1.0
    """Share of a member's capacity that the packer may fill."""
    extra_lag_seconds: float = 0.0
    """The packer plans for the lag that this much time without consumption would add."""
    lag: LagMoment = LagMoment.AFTER_BURST
    """The lag that the papers' packers go by."""
    rejected: tuple[RejectedPlan, ...] = ()
    state: PolicyState = msgspec.field(default_factory=PolicyState)
    """What the policy must not forget; handed to it again with the next decision, over changes of leader too."""


class PlannedMove(msgspec.Struct, frozen=True, order=True):
    """One partition that changes owner."""

    partition: Partition
    source: str | None
    target: str
    reason: str


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """A packer's answer: who is to own what, and who is to go."""

    owners: Mapping[Partition, str]
    """Wanted owner of every partition that somebody may own, sorted."""
    moves: tuple[PlannedMove, ...]
    """Differences from the present owners, sorted by partition."""
    victims: tuple[str, ...] = ()
    """Member ids that are to go, sorted."""
    misfits: tuple[str, ...] = ()
    """Members whose own curve does not fit even so, sorted."""
    pressures: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Member -> needed capacity over capacity, in this placement."""
    opened: int = 0
    """Bins that hold something."""
    bound: int = 0
    """No placement that fits can do with fewer bins, as far as a quick lower bound can tell."""

    @property
    def gap(self) -> int:
        """At most so many bins above the fewest that would do."""
        return max(0, self.opened - self.bound)


class ReplicaTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask the orchestrator for, now."""

    replicas: int
    settled: int = 0
    """Wanted once all that are to go are drained; 0: as many as ``replicas``."""
    victims: tuple[str, ...]
    """Instances that own nothing any more and are to go, sorted."""
    reason: str
    ask: bool = True
    """False: nothing is known yet, so leave the orchestrator alone (it may still be starting the group)."""
    withdrawn: bool = False
    """The number that was asked for before counts no more either."""
    rollout: bool = False
    """The instances are more than are wanted by a rollout, whose controllers choose which go."""
