"""The leader's map: who owns what at the start of a generation (rule 7), as a pure function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from loadtrim_agent.common.assignors.spread import spread
from loadtrim_agent.common.assignors.standard import range_assign, roundrobin_assign
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.ownership_records import AssignmentRecord, MemberEntry

from .events import GroupAnswer, JoinedMember

__all__ = ["GenerationAssignment", "answers_of", "assign_standard", "make_assignment"]


class GenerationAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """The owners, and the oddities among what members said that they own."""

    owners: dict[Partition, str]
    entries: dict[str, MemberEntry]
    contested: tuple[Partition, ...] = ()
    """Claimed by two members: given to neither, both drop it, the next generation gives it away."""
    void: tuple[tuple[str, Partition], ...] = ()
    """Claims of a topic that the claimant does not subscribe or that is gone."""


def make_assignment(
    members: Sequence[JoinedMember],
    partitions: Mapping[str, int],
    *,
    leaving: frozenset[str] = frozenset(),
    weights: Mapping[Partition, float] | None = None,
) -> GenerationAssignment:
    """Claimed: the claimant. Claimed twice: nobody. Unclaimed: the least loaded who is subscribed and not leaving.

    Args:
        members: as their JoinGroups say; any order.
        partitions: topic -> number of partitions; 0 or missing: the topic is gone.
        leaving: members that said so; they keep what they claim (they release it themselves) and get nothing.
        weights: work per partition, for spreading what is unclaimed; missing ones count 1.

    Cost: O(p log p + p m).
    """
    members = sorted(members, key=lambda m: m.member)
    owners_named, void = _owners_named(members, partitions)
    contested = tuple(p for p, named_by in sorted(owners_named.items()) if len(named_by) > 1)
    owners = {p: named_by[0] for p, named_by in sorted(owners_named.items()) if len(named_by) == 1}
    unclaimed = [p for p in _all_partitions(members, partitions) if p not in owners_named]
    takers = {m.member: frozenset(m.topics) for m in members if m.member not in leaving}
    owners |= spread(unclaimed, takers, owners, weights or {})
    return GenerationAssignment(
        owners=dict(sorted(owners.items())),
        entries={m.member: _entry(m, owners) for m in members},
        contested=contested,
        void=void,
    )


def assign_standard(
    protocol: str, members: Sequence[JoinedMember], partitions: Mapping[str, int]
) -> dict[str, GroupAnswer]:
    """A mixed group's assignment by the standard protocol that all share.

    While members still claim (the group just stopped being all ours) their claims come first, so that nothing that is
    in somebody's hands moves before it was put down.
    """
    if any(m.owned for m in members):
        owners = make_assignment(members, partitions).owners
        given = {m.member: [p for p, owner in owners.items() if owner == m.member] for m in members}
    else:
        assign = range_assign if protocol == "range" else roundrobin_assign
        given = assign({m.member: m.topics for m in members}, partitions)
    return {m.member: GroupAnswer(partitions=tuple(sorted(given.get(m.member, ())))) for m in members}


def answers_of(assignment: AssignmentRecord, *, inline: bool) -> dict[str, GroupAnswer]:
    """Every member's SyncGroup answer for one map, sorted by member.

    Args:
        assignment: of the generation.
        inline: the whole assignment travels in each answer. False: each member's own partitions and attempt only, so
            that all answers together stay small in the largest group.
    """
    return {
        member: GroupAnswer(
            partitions=tuple(Partition(topic, index) for topic, indexes in entry.owns for index in indexes),
            assignment=assignment if inline else None,
            attempts=None if inline else {member: entry.attempt},
        )
        for member, entry in sorted(assignment.members.items())
    }


def _owners_named(
    members: Sequence[JoinedMember], partitions: Mapping[str, int]
) -> tuple[dict[Partition, list[str]], tuple[tuple[str, Partition], ...]]:
    owners_named: dict[Partition, list[str]] = {}
    void: list[tuple[str, Partition]] = []
    for member in members:
        for partition in sorted(member.owned):
            if partition.topic in member.topics and partition.partition < partitions.get(partition.topic, 0):
                owners_named.setdefault(partition, []).append(member.member)
            else:
                void.append((member.member, partition))
    return owners_named, tuple(void)


def _all_partitions(members: Sequence[JoinedMember], partitions: Mapping[str, int]) -> list[Partition]:
    topics = sorted({topic for member in members for topic in member.topics})
    return [Partition(topic, index) for topic in topics for index in range(partitions.get(topic, 0))]


def _entry(member: JoinedMember, owners: Mapping[Partition, str]) -> MemberEntry:
    owned: dict[str, list[int]] = {}
    for partition, owner in sorted(owners.items()):
        if owner == member.member:
            owned.setdefault(partition.topic, []).append(partition.partition)
    return MemberEntry(
        attempt=member.attempt or 0,
        topics=tuple(sorted(member.topics)),
        owns=tuple((topic, tuple(indexes)) for topic, indexes in owned.items()),
    )
