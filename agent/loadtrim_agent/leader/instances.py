"""Members say of which instance and of which process they are."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from loadtrim_agent.common.member_names import shared_instances
from loadtrim_agent.observability.text import shared_line, workloads_line
from loadtrim_agent.planning.pods import workload_beside

__all__ = ["Instances"]

REMEMBERED_MAX = 10_000
"""Members that are remembered: a hello is said before its member is in the group. Chosen: more than any group has."""


class _Identity(msgspec.Struct, frozen=True):
    instance: str
    process: str


class Instances:
    """Member id -> instance: from the ``hello`` with which a member joins, and from its reports.

    Args:
        own: the instance of this member's process.
    """

    def __init__(self, own: str) -> None:
        self.own = own
        self._said: dict[str, _Identity] = {}
        """Invariant: the member that spoke last is last."""
        self._unready: set[str] = set()
        """Instances whose last report said so. Invariant: each is one that a member of :attr:`_said` has."""
        self._told: dict[str, tuple[str, ...]] = {}
        """Instance -> its processes, as they were last complained about."""
        self._beside: frozenset[str] = frozenset()
        """Workloads beside the one that is scaled, as they were last complained about."""

    def hear(self, member: str, instance: str, process: str) -> None:
        """Take in what a member says of itself."""
        if self._said.pop(member, None) is None:
            self._unready.discard(instance)  # Its container may have been started again since it said so.
        self._said[member] = _Identity(instance, process)
        if len(self._said) > REMEMBERED_MAX:
            del self._said[next(iter(self._said))]

    def hear_readiness(self, instance: str, *, unready: bool) -> None:
        """Take in what an instance says of its readiness probe (:attr:`ReportRecord.unready`)."""
        if unready:
            self._unready.add(instance)
        else:
            self._unready.discard(instance)

    def is_unready(self, instance: str) -> bool:
        """Return whether its readiness probe is answered 503, so that the orchestrator knows that it is to go."""
        return instance in self._unready

    def stay(self, instances: Collection[str]) -> None:
        """Forget that these were not ready: they are victims no more, and would have to say it anew."""
        self._unready.difference_update(instances)

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
        self._unready.intersection_update(said.instance for said in self._said.values())

    def new_complaints(self, members: Collection[str], templated: str = "") -> list[str]:
        """Return a sentence for each instance of these members that has other processes than when it was last asked.

        And one where they are pods of more workloads than the Deployment ``templated``, and of others than before.
        """
        processes = {member: self._said[member].process for member in members if member in self._said}
        shared = shared_instances({member: self.of(member) or "" for member in processes}, processes)
        told, self._told = self._told, shared
        lines = [shared_line(name, each) for name, each in shared.items() if told.get(name) != each]
        named, self._beside = self._beside, self._workloads_beside(members, templated)
        return [*lines, workloads_line(templated, self._beside)] if self._beside - named else lines

    def _workloads_beside(self, members: Collection[str], templated: str) -> frozenset[str]:
        return frozenset(workload_beside(self.of(member) or "", templated) for member in members) - {""}
