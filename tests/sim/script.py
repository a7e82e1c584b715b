"""Schedules by hand: everything takes its usual time, except what the script says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.codec import Record

from .controllog import AppendFate
from .member import SimMember
from .network import Fate
from .options import GroupOptions, LoadOptions, SimOptions
from .world import World

__all__ = ["Script"]


class Script(World):
    """A world without chance.

    Args:
        topics: name and number of partitions at the start.
        group: the group's settings; auto-commit is so rare by default that only what the protocol commits is committed.
    """

    def __init__(
        self, *, topics: tuple[tuple[str, int], ...] = (("orders", 1),), group: GroupOptions | None = None
    ) -> None:
        options = SimOptions(group=group or GroupOptions(auto_commit_seconds=600.0), load=LoadOptions(topics=topics))
        super().__init__(0, options, trace=True)
        self.sent: list[tuple[str, Any]] = []
        """Every request to the coordinator, with who sent it."""
        self._fates: list[tuple[SimMember, type, Fate]] = []
        self._append_fates: list[tuple[SimMember, type, AppendFate]] = []
        self.network.fate_of = self._fate_of
        self.log.fate_of = self._append_fate_of

    def next_request(self, member: SimMember, kind: type, *fates: Fate) -> None:
        """What happens to this member's next requests of that kind, one fate each."""
        self._fates += [(member, kind, fate) for fate in fates]

    def next_append(self, member: SimMember, kind: type, *fates: AppendFate) -> None:
        """What happens to this member's next appends of that kind, one fate each."""
        self._append_fates += [(member, kind, fate) for fate in fates]

    def forget_fates(self) -> None:
        """Whatever is sent from now on takes its usual time."""
        self._fates.clear()
        self._append_fates.clear()

    def all_in(self) -> bool:
        """Whether every member is in the same generation, with everything it owns running."""
        return all(
            m.machine.snapshot().stable
            and m.machine.snapshot().generation == self.coordinator.generation
            and m.machine.snapshot().settled
            for m in self.alive
        )

    def settle(self, seconds: float = 30.0) -> None:
        """Let time pass until :meth:`all_in`."""
        self.run_until(self.all_in, seconds=seconds)

    def members_in(self, count: int) -> list[SimMember]:
        """Start ``count`` members one after the other; the first leads and owns what there is."""
        members = []
        for _ in range(count):
            members.append(self.join())
            self.settle()
        return members

    def moved(self, partition: Partition, source: SimMember, target: SimMember) -> None:
        """Hand one partition over and wait until it runs there."""
        source.move(partition, target.member)
        self.run_until(lambda: self.owner(partition) is target)

    def repeat(self, member: SimMember, wanted: Callable[[Any], bool]) -> None:
        """A copy of this member's last request like that arrives now; nobody waits for the answer."""
        request = next(r for source, r in reversed(self.sent) if source == member.name and wanted(r))
        self.coordinator.serve(request, lambda reply: None)

    def _fate_of(self, source: str, request: Any) -> Fate:
        self.sent.append((source, request))
        for index, (member, kind, fate) in enumerate(self._fates):
            if member.name == source and isinstance(request, kind):
                del self._fates[index]
                return fate
        return Fate()

    def _append_fate_of(self, source: str, record: Record) -> AppendFate:
        for index, (member, kind, fate) in enumerate(self._append_fates):
            if member.name == source and isinstance(record, kind):
                del self._append_fates[index]
                return fate
        return AppendFate()
