"""All that the other rooms may know of the machine: one frozen value, made on demand by ``Machine.snapshot()``."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.ownership_records import AssignmentRecord, ManualOverrideRecord, PlanRecord

from .assigned_partition import AssignedPartition, AssignedState
from .group_config import LOADTRIM, GroupConfig
from .membership_table import Phase
from .pace import read_seconds
from .slices import SlicesView

__all__ = ["AssignedView", "MachineSnapshot", "TopicsView", "views"]

_GOING = (AssignedState.PRE_COMMIT, AssignedState.DRAINING, AssignedState.COMMITTING, AssignedState.TRANSFERRED)


class AssignedView(msgspec.Struct, frozen=True, kw_only=True):
    """One assigned partition, as it was when the snapshot was made."""

    acquisition_id: int
    state: AssignedState
    committed: int | None
    """Last offset that the broker acknowledged for this acquisition, or that it started at by a release."""
    held_up: bool
    """See :attr:`.assigned_partition.AssignedPartition.held_up`."""
    committing: int | None = None
    """Offset of the latest commit that has no answer yet."""

    @property
    def opened(self) -> bool:
        """Records of this acquisition may have been delivered."""
        return self.state.opened

    @property
    def delivered(self) -> bool:
        """Records are delivered while the lease lasts."""
        return self.state.delivered


class TopicsView(msgspec.Struct, frozen=True, kw_only=True):
    """The topics of a member."""

    told: tuple[str, ...]
    """Topics that the group was told of, sorted."""
    subscribed: tuple[str, ...]
    """Topics that the user subscribes. The group is told of a topic's end once nothing of it is held."""
    partition_counts: Mapping[str, int]
    """Topic -> number of partitions, as far as metadata is known."""


class MachineSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The member, its group and its partitions between two events. Safe to read from any thread."""

    config: GroupConfig
    phase: Phase
    member: str
    """Id that the coordinator gave; empty before the first answer and after the member was forgotten."""
    generation: int
    """Generation entered last; -1 before the first and after the member was forgotten."""
    leader: str
    protocol: str
    """Assignment protocol of the generation; empty before the first."""
    of_topics: TopicsView
    assignment: AssignmentRecord | None
    """The leader's assignment of this generation; None in a mixed generation."""
    owners: Mapping[Partition, str] | None
    """Partition -> owner by the log so far, sorted; None while nothing may move (mixed group, no assignment)."""
    assigned: Mapping[Partition, AssignedView]
    """The partitions that this member holds."""
    plan: PlanRecord | None
    """The leader's latest advice in this generation."""
    manual_override: ManualOverrideRecord | None
    leaving: frozenset[str]
    """Members that announced that they leave, this one included."""
    slices: SlicesView
    log_works: bool
    """The coordination log can be read and written, as far as is known."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that the group was told of, sorted."""
        return self.of_topics.told

    @property
    def subscribed(self) -> tuple[str, ...]:
        """Topics that the user subscribes."""
        return self.of_topics.subscribed

    @property
    def partition_counts(self) -> Mapping[str, int]:
        """Topic -> number of partitions, as far as metadata is known."""
        return self.of_topics.partition_counts

    @property
    def stable(self) -> bool:
        """The member is in a generation, and it knows of no rebalance."""
        return self.phase is Phase.STABLE

    @property
    def settled(self) -> bool:
        """In a generation, with everything held being delivered or given away, as far as it depends on this member."""
        return self.stable and all(view.opened or view.held_up for view in self.assigned.values())

    @property
    def is_leader(self) -> bool:
        return self.stable and self.leader == self.member

    @property
    def awaits_log(self) -> bool:
        """A record of the log is waited for, or one may come that the group waits for this member to act on.

        That is so in a rebalance, while a partition comes or goes, and while any member leaves.
        """
        if not self.stable or self.leaving or any(view.state in _GOING for view in self.assigned.values()):
            return True
        if self.slices.own or any(promise.target == self.member for promise in self.slices.promises.values()):
            return True
        moves, owners = (self.plan.moves if self.plan is not None else ()), self.owners or {}
        return any(m.target == self.member and owners.get(Partition(m.topic, m.partition)) == m.source for m in moves)

    @property
    def log_read_seconds(self) -> float:
        """Least mean time between two reads of the log, by the members of the group; 0 while a record is awaited."""
        members = len(self.assignment.members) if self.assignment is not None else 0
        return 0.0 if self.awaits_log else read_seconds(members)

    @property
    def speaks_loadtrim(self) -> bool:
        """The generation entered last is one of ours: owned partitions count, the log moves ownership."""
        return self.protocol == LOADTRIM


def views(
    assigned: Mapping[Partition, AssignedPartition], committing: Mapping[Partition, int]
) -> dict[Partition, AssignedView]:
    """Return what a snapshot shows of the assigned partitions, and of commits that have no answer yet."""
    return {
        p: AssignedView(
            acquisition_id=entry.acquisition_id,
            state=entry.state,
            committed=entry.committed,
            held_up=entry.held_up,
            committing=committing.get(p),
        )
        for p, entry in list(assigned.items())  # a copy in one step: other threads may ask
    }
