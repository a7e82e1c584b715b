"""The coordination log: what moves ownership of partitions, and what members and the command line ask for.

The log is partition 0 of the control topic, which every member tails.
"""

from __future__ import annotations

import msgspec

from loadtrim_agent.common.partition import Partition

from .envelope import Envelope
from .ranges import Amount, Figure, Generation, HandoffSeconds, Index, Offset, Order, RecordCost, Replicas, Sum

__all__ = [
    "AssignmentRecord",
    "HelloRecord",
    "LeavingRecord",
    "LeftRecord",
    "LoadRecord",
    "ManualOverrideRecord",
    "MemberEntry",
    "MovePlan",
    "PartitionLoad",
    "PlanRecord",
    "PromiseRecord",
    "RejoinRecord",
    "ReleaseRecord",
]


class ManualOverrideRecord(Envelope, frozen=True, kw_only=True, tag="brake"):
    """The command line's hand on the wheel. The latest in the log wins, whatever the generation."""

    action: str
    """``hold`` (no plan is made), ``scale`` (a fixed number of replicas) or ``resume``."""
    replicas: Replicas | None = None
    """With ``scale``: the number wanted, >= 1."""
    forced: bool = False
    """With ``scale``: also outside the bounds that the settings give."""

    def __post_init__(self) -> None:
        if self.action not in ("hold", "resume", "scale"):
            raise ValueError(f"brake: action is {self.action!r}, not hold, resume or scale")
        if self.action == "scale" and (self.replicas is None or self.replicas < 1):
            raise ValueError("brake: scale needs replicas >= 1")


class HelloRecord(Envelope, frozen=True, kw_only=True, tag="hello"):
    """A newcomer sent its JoinGroup: everybody joins now, so that the barrier lasts milliseconds."""

    instance: str = ""
    process: str = ""
    """The process id, and what tells processes with the same one apart."""


class RejoinRecord(Envelope, frozen=True, kw_only=True, tag="rejoin"):
    """The writer was told of a rebalance: everybody joins now."""

    generation: Generation = -1


class LeavingRecord(Envelope, frozen=True, kw_only=True, tag="leaving"):
    """Please drain me; give me nothing. Said again in every generation until gone."""

    generation: Generation
    instance: str = ""


class LeftRecord(Envelope, frozen=True, kw_only=True, tag="left"):
    """The writer sends its LeaveGroup: everybody joins now. For a process that has ended others do both."""

    generation: Generation = -1


class MemberEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One member in a generation's map."""

    attempt: Order
    """Number of the JoinGroup that the map was made from (rule 6)."""
    topics: tuple[str, ...] = ()
    """What it subscribes, sorted: who may own what."""
    owns: tuple[tuple[str, tuple[Index, ...]], ...] = ()
    """(topic, partitions) that the map gives it, both sorted."""


class AssignmentRecord(Envelope, frozen=True, kw_only=True, tag="base"):
    """The whole map at the start of a generation: version 0 of every partition's owner.

    The same object travels inline in the SyncGroup answers where it fits the broker's record limit.
    """

    generation: Generation
    members: dict[str, MemberEntry]
    manual_override: ManualOverrideRecord | None = msgspec.field(name="brake", default=None)
    override_known: bool = msgspec.field(name="brake_known", default=True)
    """False: its leader could not read the log, so that ``brake`` may be missing."""

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
    partition: Index
    source: str
    target: str
    reason: str = ""


class PlanRecord(Envelope, frozen=True, kw_only=True, tag="plan"):
    """The leader's advice. Void outside its generation; a later sequence replaces an earlier one."""

    generation: Generation
    sequence: Order
    moves: tuple[MovePlan, ...] = ()
    victims: tuple[str, ...] = ()
    """Member ids that are to go: drained first, given nothing."""


class _Giving(Envelope, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    """A partition that its owner gives to another member."""

    generation: Generation
    topic: str
    partition: Index
    version: Order
    source: str
    target: str

    @property
    def key(self) -> Partition:
        """The partition."""
        return Partition(self.topic, self.partition)


class ReleaseRecord(_Giving, frozen=True, kw_only=True, tag="release"):
    """The only record that moves ownership (rule 1). ``offset`` is committed before it is written (rule 2)."""

    offset: Offset
    seconds: HandoffSeconds = 0.0
    """From the moment the owner stopped handing out until it wrote this."""


class PromiseRecord(_Giving, frozen=True, kw_only=True, tag="promise"):
    """An owner is about to give a partition away by its own decision. It moves nothing: only a release does.

    It counts if and only if its generation is the reader's and (from, version) equal what the log says so far. So must
    ``turn``: the number of promises of other members to the same receiver that counted before. Of two members that
    promise work to one receiver without knowing of each other, the log's order decides.
    """

    turn: Order = 0
    until: Offset = -1
    """The owner works on the partition up to here, and gives it away then."""
    work: Amount = 0.0
    """Work that goes with it as far as is known, in busy seconds."""
    rate: Amount = 0.0
    """Work that arrives there, busy seconds per second; 0: not known."""
    seconds: HandoffSeconds = 0.0
    """Time until the owner expects to be there."""
    soft: bool = False
    """Flag of work that would be in time without, and much sooner with it: such slices are few in a group."""
    taken_back: bool = False
    """The partition is not given away after all; all else as in the promise that is taken back."""


class PartitionLoad(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One partition in a ``load`` record, as an array to keep it short."""

    topic: str
    partition: Index
    queue_seconds: Sum
    """Work waiting: records not done x cost."""


class LoadRecord(Envelope, frozen=True, kw_only=True, tag="load"):
    """A member's slack and queues, every 0.5 s when they changed, at least every second: also its sign of life."""

    generation: Generation
    pod: str = ""
    """Pod of its process, as NAME/UID, by which others may see that it has ended. Empty: it does not say."""
    slack: Figure = 1.0
    """Busy seconds per second that it could still give, 0 .. concurrency x speed."""
    queues: tuple[PartitionLoad, ...] = ()
    work: Sum | None = None
    """Work waiting in all its partitions, in its busy seconds; None: an older member, which tells queues only."""
    rate: Sum = 0.0
    """Work that arrives in them, busy seconds per second."""
    capacity: RecordCost | None = None
    """Busy seconds per second that it can give; None: an older member."""
