"""A group with a member that does not offer ``loadtrim``: everything is put down before each JoinGroup.

Any eager consumer does the same. When such a member comes back to a group of ours, the JoinGroup answer tells, and
delivering stops at once. It goes on if the member is gone again by the next generation.
"""

from __future__ import annotations

from collections.abc import Callable

from .assigned_partition import AssignedState
from .commands import Command, ResumeCommand, StopCommand
from .group_config import GroupConfig
from .partitions import PartitionTable

__all__ = ["MixedGroup"]

NEVER = float("inf")


class MixedGroup:
    """The demands of a mixed group on the assigned partitions; changed by ``Machine`` only."""

    def __init__(self, config: GroupConfig, partitions: PartitionTable, emit: Callable[[Command], None]) -> None:
        self._wait_seconds = min(config.drain_seconds, config.rebalance_timeout / 2)
        """Time for which user code may hold up a JoinGroup: the other members wait for it."""
        self._partitions = partitions
        self._emit = emit
        self._deadline = NEVER
        """Time until which user code may finish what is being put down; NEVER: nothing is."""
        self._stopped = False
        """Delivering was stopped because a member without the agent came back."""

    @property
    def wakeup(self) -> float:
        return self._deadline

    def revoked(self, now: float, member: str, generation: int) -> bool:
        """Begin to put everything down, or go on with it. True: nothing is held any more.

        A commit is not waited for where the broker takes none of this member in this generation any more.
        """
        if self._deadline == NEVER:
            self._deadline = now + self._wait_seconds
            for partition in sorted(self._partitions.assigned):
                self._partitions.intend(now, partition, "")
        fenced = self._partitions.commits.fenced(member, generation)
        awaited = (AssignedState.DRAINING,) if fenced else (AssignedState.DRAINING, AssignedState.COMMITTING)
        done = {id(h) for h in self._partitions.settled()}
        waits = any(h.state in awaited and id(h) not in done for h in self._partitions.assigned.values())
        if waits and now < self._deadline:
            return False
        self.end_revoking()
        self._partitions.drop_all()
        return True

    def end_revoking(self) -> None:
        """A generation began, or the member is out of the group."""
        self._deadline = NEVER

    def stop(self) -> None:
        """A member without the agent is back: deliver nothing until the next generation."""
        self._partitions.drop_unopened()
        for partition, entry in sorted(self._partitions.assigned.items()):
            if entry.delivered:
                self._stopped = True
                self._emit(StopCommand(partition=partition, acquisition_id=entry.acquisition_id))

    def resume(self) -> None:
        """A generation of ours began: deliver again what :meth:`stop` stopped."""
        if self._stopped:
            self._stopped = False
            for partition, entry in sorted(self._partitions.assigned.items()):
                if entry.delivered:
                    self._emit(ResumeCommand(partition=partition, acquisition_id=entry.acquisition_id))

    def forget(self) -> None:
        """The member was forgotten: nothing is held."""
        self.end_revoking()
        self._stopped = False
