"""The port through which membership asks the rest of the machine."""

from __future__ import annotations

from typing import Protocol

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.ownership_records import AssignmentRecord, HelloRecord, RejoinRecord

from .events import GroupAnswer
from .known_override import KnownOverride

__all__ = ["MembershipHooks"]


class MembershipHooks(Protocol):
    """Implemented by :class:`~.machine.Machine`."""

    override: KnownOverride
    """The last order of the command line; every assignment repeats it."""

    def ready_to_join(self, now: float) -> bool:
        """True when a JoinGroup may be sent; begins whatever must come first (rule 5, mixed groups)."""

    def owned_partitions(self) -> tuple[Partition, ...]:
        """Return the owned partitions that JoinGroup tells, sorted."""

    def enter(self, now: float, answer: GroupAnswer) -> None:
        """A generation begins; its assignment is there unless nothing moves in it or the group is mixed."""

    def enter_assignment(self, now: float, assignment: AssignmentRecord, *, in_log: bool) -> None:
        """Ownership moves from this assignment on; ``in_log``: it was read from the log."""

    def forget(self, now: float) -> None:
        """The coordinator does not know this member: own nothing."""

    def stop_foreign(self, now: float) -> None:
        """A member without the agent is back: stop handing out."""

    def leaving_members(self) -> frozenset[str]:
        """Members that said they leave, this one included."""

    def weights(self) -> dict[Partition, float]:
        """Work per partition, as last estimated."""

    def append(self, record: HelloRecord | RejoinRecord | AssignmentRecord) -> int:
        """Append to the log; the number of the append."""

    def wall(self, now: float) -> float:
        """Wall-clock time for records."""
