"""The leader of a group whose members pass partitions on by themselves: whether all do, and what is left to its plan.

The group is sized as one pool only while every member does. One that does not keeps what it owns until a plan moves it,
so whole partitions have to fit then. A member that has not told yet is taken to do as the others.

One party balances: a plan empties members that are to go and fills those that own nothing. Two that balance at the same
time move everything twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.ownership_records import MovePlan

from .observed import Observation
from .values import GroupState, PartitionEstimate

__all__ = ["left_to_plan", "slicing_of"]

OLDER = "version"
"""Reason of a member that knows nothing of slices."""


def slicing_of(observation: Observation, group: GroupState) -> tuple[bool, dict[str, str]]:
    """Return whether all members pass partitions on, and those that do not though others do, with the reason.

    A member that leaves, or has told nothing lately, does not count. Where nobody has, all of them stand by what they
    told last. Members of unlike topics cannot pass everything on to each other.

    Cost: O(m).
    """
    told = {
        member: known.slicing_off
        for member, known in sorted(observation.members.items())
        if not group.members[member].leaving
    }
    told = {member: why for member, why in told.items() if member not in observation.silent} or told
    if "" not in told.values():
        return False, {}
    unsliced = {member: OLDER if why is None else why for member, why in told.items() if why != ""}
    alike = len({state.topics for state in group.members.values() if not state.leaving}) == 1
    return alike and not unsliced, unsliced


def left_to_plan(
    moves: Sequence[MovePlan],
    victims: Collection[str],
    group: GroupState,
    partitions: Mapping[Partition, PartitionEstimate],
) -> tuple[MovePlan, ...]:
    """Return the moves that members which slice do not make by themselves.

    A member that owns nothing is given what was worked off in the last interval: what waits is worked on already.

    Args:
        moves: that the packer wants.
        victims: members that are to go.
        group: as it is.
        partitions: as they were measured.

    Cost: O(p).
    """
    owning = {owner for owner in group.owners.values() if owner is not None} | set(group.in_flight.values())

    def waits(move: MovePlan) -> bool:
        entry = partitions.get(Partition(move.topic, move.partition))
        return entry is not None and entry.lag_low > 0

    return tuple(move for move in moves if move.source in victims or (move.target not in owning and not waits(move)))
