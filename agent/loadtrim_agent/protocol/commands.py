"""Commands to the shell. Order matters: the shell carries them out (at least: begins them) as they come.

Each type says what had to be durable before it is given out, so that a shell that obeys cannot break an invariant.
"""

from __future__ import annotations

import msgspec

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.codec import Record

from .counters import ProtocolCount
from .events import GroupAnswer

__all__ = [
    "AppendCommand",
    "AwaitIdlePointCommand",
    "BoundCommand",
    "Command",
    "CommitResultCommand",
    "CountCommand",
    "DropCommand",
    "DropPrefetchCommand",
    "EnteredCommand",
    "FailCommand",
    "FetchCommittedCommand",
    "FetchTopicsCommand",
    "FindCoordinatorCommand",
    "GatherCommitsCommand",
    "LeaseCommand",
    "LeftCommand",
    "OpenCommand",
    "PrefetchCommand",
    "ReadAssignmentCommand",
    "ResumeCommand",
    "RunCommand",
    "SendCommitCommand",
    "SendHeartbeatCommand",
    "SendJoinCommand",
    "SendLeaveCommand",
    "SendSyncCommand",
    "StopCommand",
    "UnboundCommand",
]


class Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base of all commands."""


class FindCoordinatorCommand(Command, frozen=True, kw_only=True):
    """Look the coordinator up (again); answer with CoordinatorFoundEvent, retrying until it works."""


class SendJoinCommand(Command, frozen=True, kw_only=True):
    """Send a JoinGroup on its own connection. ``fresh``: close that connection first, an answer may hang in it."""

    attempt: int
    member: str
    protocols: tuple[str, ...]
    topics: tuple[str, ...]
    owned: tuple[Partition, ...]
    fresh: bool = False


class SendSyncCommand(Command, frozen=True, kw_only=True):
    """Send a SyncGroup. ``answers`` is filled by the leader only."""

    attempt: int
    member: str
    generation: int
    answers: dict[str, GroupAnswer] = {}


class SendHeartbeatCommand(Command, frozen=True, kw_only=True):
    member: str
    generation: int


class SendLeaveCommand(Command, frozen=True, kw_only=True):
    """Durable before: what was done is committed (or the drain time is over)."""

    member: str


class SendCommitCommand(Command, frozen=True, kw_only=True):
    commit: int
    member: str
    generation: int
    offsets: dict[Partition, tuple[int, str]]


class CommitResultCommand(Command, frozen=True, kw_only=True):
    """Tell whoever asked (``request``) how its commit ended: 0, or the first code that was not."""

    request: int
    code: int


class GatherCommitsCommand(Command, frozen=True, kw_only=True):
    """Answer at once with a CommitWantedEvent of everything done (auto-commit only)."""


class AwaitIdlePointCommand(Command, frozen=True, kw_only=True):
    """The partition is to move and is delivered until then. Answer with an IdlePointEvent.

    Answer at once if nothing is in hand, no fetched record waits and nothing was done beyond ``committed``. Else answer
    as soon as user code is done with a record and no fetched record waits. If records wait all the time, answer after a
    few milliseconds that there is no idle point.
    """

    partition: Partition
    acquisition_id: int
    committed: int | None
    begun: bool = False
    """An idle point that has begun already counts too, whatever was done before it."""


class FetchCommittedCommand(Command, frozen=True, kw_only=True):
    fetch: int
    partitions: tuple[Partition, ...]


class FetchTopicsCommand(Command, frozen=True, kw_only=True):
    """Answer with a TopicsEvent that has every one of them."""

    topics: tuple[str, ...]


class AppendCommand(Command, frozen=True, kw_only=True):
    """Append to the coordination log, once; answer with AppendedEvent.

    Durable before a release: the commit of its offset was acknowledged (rule 2).
    """

    append: int
    record: Record


class ReadAssignmentCommand(Command, frozen=True, kw_only=True):
    """Find the group's newest ``base`` in the log within ``timeout`` seconds; answer with AssignmentFoundEvent.

    ``override_only``: what the command line wanted last is enough.
    """

    group: str
    timeout: float
    override_only: bool = False


class OpenCommand(Command, frozen=True, kw_only=True):
    """Position a partition at ``offset`` (None: as ``auto_offset_reset`` says) and call ``on_partitions_assigned``;
    answer with OpenedEvent. Hand nothing out yet. A record of an earlier acquisition that user code still has in
    hand delays the answer (rule 13)."""

    partition: Partition
    acquisition_id: int
    offset: int | None
    handoff_seconds: float | None = None
    """By a release: how long nobody had handed it out when the release was written."""


class PrefetchCommand(Command, frozen=True, kw_only=True):
    """The leader has advised to give these to this member: begin to fetch them where their logs end now. Nothing of it
    is handed out, unless an OpenCommand follows: from its offset on, if that is not below what was fetched."""

    partitions: tuple[Partition, ...]
    starts: dict[Partition, int] = {}
    """Where to begin with those whose owner has promised them, which is not to be asked for then."""


class DropPrefetchCommand(Command, frozen=True, kw_only=True):
    """These partitions do not come after all: fetch them no more. None of them has had an OpenCommand."""

    partitions: tuple[Partition, ...]


class RunCommand(Command, frozen=True, kw_only=True):
    """Hand its records out. Durable before: a committed offset exists (rule 4)."""

    partition: Partition
    acquisition_id: int


class BoundCommand(Command, frozen=True, kw_only=True):
    """Deliver the partition before all others, and nothing of it from ``until`` on.

    Answer with a BoundReachedEvent when all below is done and nothing of it is in hand, at once if that is so. A
    StopCommand ends the bound.
    """

    partition: Partition
    acquisition_id: int
    until: int


class UnboundCommand(Command, frozen=True, kw_only=True):
    """The partition stays: deliver it in its turn, without a bound."""

    partition: Partition
    acquisition_id: int


class StopCommand(Command, frozen=True, kw_only=True):
    """Hand nothing more out; when nothing is in hand, call ``on_partitions_revoked`` and answer with DrainedEvent."""

    partition: Partition
    acquisition_id: int


class ResumeCommand(Command, frozen=True, kw_only=True):
    """The move is off: hand out again from where it stopped."""

    partition: Partition
    acquisition_id: int


class DropCommand(Command, frozen=True, kw_only=True):
    """The partition is not ours any more: ``released`` (it was given away, all done) or lost."""

    partition: Partition
    acquisition_id: int
    released: bool = False


class LeaseCommand(Command, frozen=True, kw_only=True):
    """Hand nothing out at or after ``until`` (boot-time clock)."""

    until: float


class EnteredCommand(Command, frozen=True, kw_only=True):
    """A generation began for this member."""

    generation: int
    member: str
    leader: str
    protocol: str


class LeftCommand(Command, frozen=True, kw_only=True):
    """The member is out of the group; nothing follows."""


class FailCommand(Command, frozen=True, kw_only=True):
    """Raise in the user's loop what aiokafka would raise for this code."""

    code: int


class CountCommand(Command, frozen=True, kw_only=True):
    """Something worth counting happened."""

    what: ProtocolCount
    partition: Partition | None = None
    code: int = 0
    """Kafka's error code, of a refusal."""
