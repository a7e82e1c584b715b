"""Balance counts and move as little as possible: what shadow mode does, and a packer of its own."""

from __future__ import annotations

from collections.abc import Mapping

from loadtrim_agent.common.assignors.spread import spread
from loadtrim_agent.common.partition import Partition

from ..parameters import Parameters
from ..values import Placement
from .problem import Problem
from .result import placement
from .victims import going

__all__ = ["Sticky"]


class Sticky:
    """The packer ``sticky``: looks at counts only, never at load, so it moves nothing until members come or go."""

    name = "sticky"
    kind = Parameters

    def pack(self, problem: Problem) -> Placement:
        """See :class:`.problem.Packer`. Cost: ``O(p n)`` at worst."""
        victims = going(problem)
        topics = {item.partition.topic for item in problem.items}
        members = {
            entry.member: frozenset(topics if entry.topics is None else entry.topics)
            for entry in problem.bins
            if not entry.leaving and entry.member not in victims
        }
        owners = {
            item.partition: item.owner
            for item in problem.items
            if item.owner in members and item.partition.topic in members[item.owner]
        }
        unclaimed = [item.partition for item in problem.items if item.partition not in owners]
        silent = {entry.member for entry in problem.bins if entry.silent}
        members = {member: topics for member, topics in members.items() if member not in silent}
        owners |= spread(unclaimed, members, owners)
        if problem.may_move:
            fixed = {item.partition for item in problem.items if not item.movable}
            _level(owners, members, fixed)
        return placement(problem, owners, victims, "counts are uneven")


def _level(owners: dict[Partition, str], members: Mapping[str, frozenset[str]], fixed: set[Partition]) -> None:
    """Move one partition at a time to a member with at least two fewer."""
    owned: dict[str, list[Partition]] = {member: [] for member in sorted(members)}
    for partition in sorted(owners):
        if owners[partition] in owned:
            owned[owners[partition]].append(partition)
    moved = True
    while moved:
        moved = False
        for giver in sorted(owned, key=lambda member: (-len(owned[member]), member)):
            for partition in reversed(owned[giver]):
                takers = [m for m in owned if partition.topic in members[m] and len(owned[m]) + 2 <= len(owned[giver])]
                if partition in fixed or not takers:
                    continue
                taker = min(takers, key=lambda member: (len(owned[member]), member))
                owned[giver].remove(partition)
                owned[taker].append(partition)
                owners[partition] = taker
                moved = True
                break
            if moved:
                break
