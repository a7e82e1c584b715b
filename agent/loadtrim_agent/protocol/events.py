"""Events that can happen to a member. ``now`` is the shell's boot-time clock, seconds; nothing here reads a clock."""

from __future__ import annotations

import msgspec

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.ownership_records import AssignmentRecord, ManualOverrideRecord

__all__ = [
    "AppendedEvent",
    "AssignmentFoundEvent",
    "BoundReachedEvent",
    "CommitAnsweredEvent",
    "CommitWantedEvent",
    "CommittedFetchedEvent",
    "CoordinatorFoundEvent",
    "DrainedEvent",
    "Event",
    "GroupAnswer",
    "HeartbeatAnsweredEvent",
    "IdlePointEvent",
    "JoinAnsweredEvent",
    "JoinedMember",
    "LeaveAnsweredEvent",
    "LeaveWantedEvent",
    "LogFailedEvent",
    "LogGapEvent",
    "LogPositionEvent",
    "LogReadEvent",
    "LogUsableEvent",
    "MoveWantedEvent",
    "OffsetCommit",
    "OpenedEvent",
    "SliceDroppedEvent",
    "SliceWantedEvent",
    "StartEvent",
    "SubscriptionEvent",
    "SyncAnsweredEvent",
    "TickEvent",
    "TopicsEvent",
    "TransactionSendsEvent",
    "TransactionSentEvent",
    "WeightsEvent",
]


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base of all events."""

    now: float


class StartEvent(Event, frozen=True, kw_only=True):
    """The shell is connected and tails the log: join."""


class TickEvent(Event, frozen=True, kw_only=True):
    """Time has passed; sent at the latest at :attr:`Machine.wakeup`."""


class SubscriptionEvent(Event, frozen=True, kw_only=True):
    """The user subscribed other topics, or a pattern matches others now."""

    topics: tuple[str, ...]


class TopicsEvent(Event, frozen=True, kw_only=True):
    """Numbers of partitions by the cluster's metadata. A topic that is asked for and not there has 0 partitions."""

    partitions: dict[str, int]


class WeightsEvent(Event, frozen=True, kw_only=True):
    """The planner's latest estimate of each partition's work: used when the leader must place what nobody claims."""

    weights: dict[Partition, float]


class CoordinatorFoundEvent(Event, frozen=True, kw_only=True):
    """The group's coordinator was looked up; requests go there from now on."""

    taken_over: bool = False
    """Another broker coordinates the group than before, or one that was away: see :mod:`.takeover`."""


class JoinedMember(msgspec.Struct, frozen=True, kw_only=True):
    """One member in a JoinGroup answer, as its own metadata says."""

    member: str
    topics: tuple[str, ...]
    owned: tuple[Partition, ...] = ()
    attempt: int | None = None
    """None: a member without the agent."""


class JoinAnsweredEvent(Event, frozen=True, kw_only=True):
    """A JoinGroup was answered (or not: ``code`` DISCONNECTED)."""

    sent_at: float
    attempt: int
    code: int
    member: str = ""
    """The id that the broker gave or confirmed."""
    generation: int = -1
    protocol: str = ""
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    """Only the leader is told."""


class GroupAnswer(
    msgspec.Struct, frozen=True, kw_only=True, rename={"assignment": "base", "assignment_offset": "base_offset"}
):
    """Content of one member's SyncGroup answer."""

    partitions: tuple[Partition, ...] = ()
    """The standard assignment: what Kafka's own tools show."""
    assignment: AssignmentRecord | None = None
    """The whole map, inline."""
    assignment_offset: int | None = None
    """Offset of the assignment in the log, where it is not inline."""
    attempts: dict[str, int] | None = None
    """The member's own attempt number, where the assignment is not inline: with it the member can enter the generation
    without the assignment. Older members tell everybody's, and none beside an offset."""


class SyncAnsweredEvent(Event, frozen=True, kw_only=True):
    """A SyncGroup was answered."""

    sent_at: float
    attempt: int
    generation: int
    code: int
    answer: GroupAnswer | None = None


class HeartbeatAnsweredEvent(Event, frozen=True, kw_only=True):
    """A heartbeat was answered; ``member`` and ``generation`` as the request carried them."""

    sent_at: float
    member: str
    generation: int
    code: int


class LeaveAnsweredEvent(Event, frozen=True, kw_only=True):
    """The LeaveGroup was answered, or will not be."""


class OffsetCommit(msgspec.Struct, frozen=True, kw_only=True):
    """One offset to commit for one acquisition."""

    acquisition_id: int
    offset: int
    metadata: str = ""


class CommitWantedEvent(Event, frozen=True, kw_only=True):
    """Commit these. ``request`` is 0 where nobody waits for the outcome (auto-commit)."""

    request: int = 0
    offsets: dict[Partition, OffsetCommit]


class CommitAnsweredEvent(Event, frozen=True, kw_only=True):
    """An OffsetCommit was answered: a code per partition."""

    commit: int
    member: str
    generation: int
    codes: dict[Partition, int]


class CommittedFetchedEvent(Event, frozen=True, kw_only=True):
    """An OffsetFetch was answered: the committed offset per partition, -1 where there is none."""

    fetch: int
    code: int
    offsets: dict[Partition, int]
    unstable: frozenset[Partition] = frozenset()
    """Partitions whose offset is part of a transaction that is still open: not among the offsets, to be asked again."""
    refused: dict[Partition, int] = {}
    """Partitions whose offset the broker refuses to tell, with its code: not among the offsets, to be asked again."""


class TransactionSendsEvent(Event, frozen=True, kw_only=True):
    """Offsets of these acquisitions are about to be sent through a transaction: no handoff starts before them."""

    acquisitions: dict[Partition, int]


class TransactionSentEvent(Event, frozen=True, kw_only=True):
    """The request that :class:`TransactionSendsEvent` announced was answered, or will not be sent."""

    acquisitions: dict[Partition, int]


class OpenedEvent(Event, frozen=True, kw_only=True):
    """A partition is positioned and its listener has returned."""

    partition: Partition
    acquisition_id: int
    position: int


class DrainedEvent(Event, frozen=True, kw_only=True):
    """A stopped partition has nothing in hand any more; the listener has returned. Must be true when it is handled: the
    partition may have been resumed, and stopped again, while the listener took its time.

    ``done`` is the offset after the last record done, None where nothing was done since it was taken.
    """

    partition: Partition
    acquisition_id: int
    done: int | None


class IdlePointEvent(Event, frozen=True, kw_only=True):
    """The answer to an AwaitIdlePointCommand. The partition is still delivered.

    ``done`` is the offset after the last record done, None where nothing was done in this acquisition.
    """

    partition: Partition
    acquisition_id: int
    done: int | None
    busy: bool
    """Fetched records wait all the time: there is no idle point."""


class MoveWantedEvent(Event, frozen=True, kw_only=True):
    """Give this partition to that member, as a plan would ask."""

    partition: Partition
    target: str


class SliceWantedEvent(Event, frozen=True, kw_only=True):
    """Deliver this partition before all others, up to an offset, and give it to that member then (rule 14)."""

    partition: Partition
    target: str
    until: int
    """The offset from which on the target is to deliver; at or below the position: now."""
    work: float = 0.0
    """Work that goes with it, busy seconds."""
    rate: float = 0.0
    """Work that arrives there, busy seconds per second."""
    seconds: float = 0.0
    """Time until the offset is expected to be reached. Invariant: finite and not negative."""
    soft: bool = False
    """Flag of a slice of what would be in time without it."""


class SliceDroppedEvent(Event, frozen=True, kw_only=True):
    """User code paused the partition, or moved its position: it is not given away at its bound."""

    partition: Partition
    acquisition_id: int


class BoundReachedEvent(Event, frozen=True, kw_only=True):
    """Everything below a partition's bound is done, and nothing of it is in hand.

    ``done`` is the offset after the last record done, None where nothing was done in this acquisition. ``until`` is the
    bound: another may have been set meanwhile.
    """

    partition: Partition
    acquisition_id: int
    done: int | None
    until: int


class LogReadEvent(Event, frozen=True, kw_only=True):
    """One record of the coordination log, in order."""

    offset: int
    record: Record


class LogPositionEvent(Event, frozen=True, kw_only=True):
    """Everything before ``position`` has been read and given."""

    position: int


class LogGapEvent(Event, frozen=True, kw_only=True):
    """Records are missing between what was read and what is there (truncated, re-created, out of range)."""


class LogFailedEvent(Event, frozen=True, kw_only=True):
    """The log cannot be read (``failed``) or can again."""

    failed: bool


class LogUsableEvent(Event, frozen=True, kw_only=True):
    """The control topic, of no use at the start, can be read and written now; its end is known."""


class AppendedEvent(Event, frozen=True, kw_only=True):
    """An append to the log was acknowledged at ``offset``, or failed with an unknown outcome (None)."""

    append: int
    offset: int | None


class AssignmentFoundEvent(Event, frozen=True, kw_only=True):
    """The newest ``base`` of the log, or None where there is none or it took too long.

    ``manual_override``: what the command line wanted last, by its own record or by one that repeats it.
    ``complete``: it was looked for to the end, so None says that nothing was.
    """

    assignment: AssignmentRecord | None
    manual_override: ManualOverrideRecord | None = None
    complete: bool = True


class LeaveWantedEvent(Event, frozen=True, kw_only=True):
    """Drain and leave until ``deadline``. ``release`` False: give nothing away, only commit what is done and leave."""

    deadline: float
    release: bool = True
