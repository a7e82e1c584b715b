"""Members say of which instance and of which process they are."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from loadtrim_agent.common.member_names import shared_instances
from loadtrim_agent.observability.text import shared_line

__all__ = ["Instances"]

REMEMBERED_MAX = 10_000
"""Members that are remembered: a hello is said before its member is in the group. Chosen: more than any group has."""


@dataclass(frozen=True, slots=True)
class _Said:
    instance: str
    process: str


class Instances:
    """Member id -> instance: from the ``hello`` with which a member joins, and from its reports.

    Args:
        own: the instance of this member's process.
    """

    def __init__(self, own: str) -> None:
        self.own = own
        self._said: dict[str, _Said] = {}
        """Invariant: the member that spoke last is last."""
        self._told: dict[str, tuple[str, ...]] = {}
        """Instance -> its processes, as they were last complained about."""

    def hear(self, member: str, instance: str, process: str) -> None:
        """Take in what a member says of itself."""
        self._said.pop(member, None)
        self._said[member] = _Said(instance, process)
        if len(self._said) > REMEMBERED_MAX:
            del self._said[next(iter(self._said))]

    def of(self, member: str) -> str | None:
        """Return the member's instance; None: it has not said yet."""
        said = self._said.get(member)
        return None if said is None else said.instance

    def forget_others(self, members: Collection[str]) -> None:
        """Keep these members, and as many more as a group that changes needs."""
        for member in list(self._said):
            if len(self._said) <= 2 * len(members) + 16:
                break
            if member not in members:
                del self._said[member]

    def new_complaints(self, members: Collection[str]) -> list[str]:
        """Return a sentence for each instance of these members that has other processes than when it was last asked."""
        processes = {member: self._said[member].process for member in members if member in self._said}
        shared = shared_instances({member: self.of(member) or "" for member in processes}, processes)
        told, self._told = self._told, shared
        return [shared_line(name, each) for name, each in shared.items() if told.get(name) != each]
