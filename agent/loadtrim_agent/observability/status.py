"""What ``/status`` shows of one consumer: frozen snapshots that the agent makes and any thread may read.

JSON by msgspec; names and units as in the control topic's records. New fields get defaults; a name never
changes its meaning.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from loadtrim_agent.common.settings import shown
from loadtrim_agent.wire.ownership_records import ManualOverrideRecord
from loadtrim_agent.wire.telemetry_records import DecisionRecord

__all__ = [
    "AgentState",
    "GroupMember",
    "OwnedPartition",
    "ScalerStatus",
    "Status",
    "shown_settings",
]


class AgentState(enum.StrEnum):
    """How far the agent is with its group."""

    STARTING = "starting"
    """Connecting; no JoinGroup was answered yet."""
    JOINING = "joining"
    """A rebalance is on: the member waits for its generation and delivers records of what it owns."""
    STABLE = "stable"
    """Has its generation."""
    MIXED = "mixed"
    """Has its generation, by a standard protocol: a member without the agent is in the group, nothing
    moves.
    """
    STOPPED = "stopped"
    FAILED = "failed"
    """Membership or fetching broke; the user's loop was told."""


class OwnedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """One partition that the member owns."""

    topic: str
    partition: int
    state: str = "running"
    """``running``, ``paused``, ``blocked``, ``idle`` or ``releasing``."""
    lag_records: int | None = None
    """Records not done; None: not known yet."""
    lag_seconds: float | None = None
    """Age of the oldest of them."""
    arrival_rate: float | None = None
    """Records/s."""
    cost_seconds: float | None = None
    """Busy seconds per record; None: none was done yet."""
    load: float | None = None
    """Busy seconds per second that its arrivals take: rate x cost."""
    position: int | None = None
    committed: int | None = None


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """One member of the group, as far as this member knows."""

    member: str
    instance: str = ""
    """Empty: this member has not heard yet."""
    partitions: int = 0
    """How many it owns."""
    utilization: float | None = None
    """0 .. 1 and above; None: not known."""
    leaving: bool = False
    victim: bool = False


class ScalerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a leader is at with its scaler."""

    scaler: str = "none"
    replicas: int | None = None
    """Last asked for; None: nothing yet."""
    victims: tuple[str, ...] = ()
    delivered: bool = False
    """The other side accepted it."""
    answer: str | None = None
    detail: str = ""
    failures: int = 0
    """In a row."""


class MemberWorkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one member, as far as it is measured."""

    capacity: float = 1.0
    """Busy seconds per second that it can give, x its speed, as far as it has learnt it."""
    capacity_error: float = 0.0
    """The member may well give so much less: the standard error, and of a guess the distance to the most it gave."""
    capacity_known: bool = True
    """False: the capacity is a guess, because the member was never saturated."""
    utilization: float | None = None
    """Busy seconds per second over the capacity; None: not known."""
    untold: str = ""
    """Reason why nobody knows when this member's records are done, and what to do; empty: it is known."""
    slicing_off: str = ""
    """Reason why the member gives nothing away by its own decision; empty: it may. A value of
    :class:`~loadtrim_agent.planning.slicing.SlicingOff`."""


class Status(MemberWorkStatus, frozen=True, kw_only=True):
    """One consumer, now."""

    group: str
    client_id: str
    at: float
    """When this was true, seconds since the epoch."""
    version: str = ""
    """Of loadtrim."""
    member: str = ""
    """Member id; empty before the first JoinGroup was answered."""
    instance: str = ""
    state: AgentState = AgentState.STARTING
    state_since: float = 0.0
    protocol: str = ""
    """Assignment protocol of the generation."""
    mode: str = "active"
    leader: str = ""
    """Member id of the group's leader."""
    leads: bool = False
    """This member is it."""
    generation: int = -1
    heartbeat_age_seconds: float | None = None
    lease_seconds: float | None = None
    """How long records may still be handed out if no heartbeat is answered any more."""
    log: str = "ok"
    """Coordination log: ``ok``, or what is wrong with it (then nothing moves)."""
    victim: bool = False
    """Is to go: drained, given nothing."""
    partitions: tuple[OwnedPartition, ...] = ()
    """Owned, sorted by topic and partition."""
    members: tuple[GroupMember, ...] = ()
    """Everybody, sorted by member id."""
    replicas_actual: int | None = None
    replicas_wanted: int | None = None
    """Both as the leader sees them; None: this member does not lead and has read no decision yet."""
    scaler: ScalerStatus | None = None
    """A leader's."""
    manual_override: ManualOverrideRecord | None = msgspec.field(name="brake", default=None)
    last_decision: DecisionRecord | None = None
    """The group's last one that this member read or made."""
    last_decision_words: str = ""
    """The same as a sentence (:func:`.text.decision_line`)."""
    errors: dict[str, int] = {}
    """What was contained, by place, since the start."""
    settings: dict[str, str] = {}
    """In force, secrets hidden (:func:`shown_settings`)."""


def shown_settings(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings as text, sorted by name, with secrets hidden.

    What a setting is called tells whether it is one; one without a value is shown as empty.
    """
    return {name: shown(name, settings[name]) for name in sorted(settings)}
