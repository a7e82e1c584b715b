"""The fold of the coordination log, and the life of one partition that this member holds."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from loadtrim_agent.common.errors import InvariantError
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.ownership_records import ReleaseRecord

__all__ = ["AssignedPartition", "AssignedState", "Ownership"]


class Ownership:
    """(owner, version) of every partition in one generation, as the log says so far (rule 1).

    Seeded by the leader's map at version 0 and changed by counting releases only. Every member that reads the same
    records holds the same value.
    """

    def __init__(self, generation: int, owners: Mapping[Partition, str]) -> None:
        self.generation = generation
        self._owners = dict(sorted(owners.items()))
        """Invariant: sorted by partition, and never changed once it was given out."""
        self._given_out = False
        self._versions: dict[Partition, int] = {}
        """How often a partition changed hands in this generation; missing: never."""

    def owner(self, partition: Partition) -> str | None:
        return self._owners.get(partition)

    def version(self, partition: Partition) -> int:
        return self._versions.get(partition, 0)

    def owners(self) -> Mapping[Partition, str]:
        """Return partition -> owner, sorted by partition. The mapping never changes.

        Cost: O(1); the next release that counts copies it.
        """
        self._given_out = True
        return self._owners

    def apply(self, release: ReleaseRecord) -> bool:
        """Fold one release in. True if it counts; anything that does not match is void and changes nothing."""
        partition = release.key
        current = (self.owner(partition), self.version(partition))
        if release.generation != self.generation or current != (release.source, release.version):
            return False
        if self._given_out:
            self._owners, self._given_out = dict(self._owners), False
        self._owners[partition] = release.target
        self._versions[partition] = release.version + 1
        return True


class AssignedState(enum.Enum):
    """The life of one acquisition. Everything but TRANSFERRED is claimed in JoinGroup (rule 5)."""

    FETCHING = "fetching"
    """Ours by the map; asking for the committed offset."""
    OPENING = "opening"
    """The shell seeks and calls ``on_partitions_assigned``."""
    INITIAL_COMMIT = "initial commit"
    """There was no commit: the position it will start at is being committed (rule 4)."""
    RUNNING = "running"
    """Its records are handed out while the lease lasts."""
    PRE_COMMIT = "pre-commit"
    """To be given away: it goes on being handed out while what is done so far is being committed, until a moment comes
    at which nothing is left to commit."""
    DRAINING = "draining"
    """To be given away: nothing new is handed out, user code finishes what it has in hand."""
    COMMITTING = "committing"
    """Drained; what was done is being committed."""
    TRANSFERRED = "transferred"
    """The release was sent: stopped until the log or the next generation decides (rule 3)."""

    @property
    def opened(self) -> bool:
        """Something of it may have been delivered: ``on_partitions_assigned`` has returned, the start is committed."""
        return self not in (AssignedState.FETCHING, AssignedState.OPENING, AssignedState.INITIAL_COMMIT)

    @property
    def delivered(self) -> bool:
        """Its records are delivered while the lease lasts."""
        return self in (AssignedState.RUNNING, AssignedState.PRE_COMMIT)


# Who may follow whom. An intention may be dropped (back to RUNNING) until the release is sent; after it nothing is.
TRANSITIONS: dict[AssignedState, frozenset[AssignedState]] = {
    AssignedState.FETCHING: frozenset({AssignedState.OPENING}),
    AssignedState.OPENING: frozenset({AssignedState.INITIAL_COMMIT, AssignedState.RUNNING}),
    AssignedState.INITIAL_COMMIT: frozenset({AssignedState.RUNNING}),
    AssignedState.RUNNING: frozenset({AssignedState.PRE_COMMIT, AssignedState.DRAINING}),
    AssignedState.PRE_COMMIT: frozenset({AssignedState.RUNNING, AssignedState.DRAINING}),
    AssignedState.DRAINING: frozenset({AssignedState.RUNNING, AssignedState.COMMITTING}),
    AssignedState.COMMITTING: frozenset({AssignedState.RUNNING, AssignedState.TRANSFERRED}),
    AssignedState.TRANSFERRED: frozenset(),
}


@dataclass(slots=True)
class AssignedPartition:
    """One acquisition of one partition by this member."""

    partition: Partition
    acquisition_id: int
    """Number of the acquisition, unique in this process: makes late answers about an earlier one harmless."""
    state: AssignedState
    committed: int | None = None
    """Last offset that the broker acknowledged for this acquisition, or that it started at by a release. Invariant:
    never decreases through an answer of ours that is older."""
    start: int | None = None
    """INITIAL_COMMIT: the position to be committed before anything is handed out."""
    done: int | None = None
    """Set when drained: the offset after the last record done."""
    unstable: bool = False
    """FETCHING: the committed offset is part of a transaction that is still open; how long that lasts is not ours."""
    fetch: int = 0
    """The OffsetFetch whose answer counts: a later commit makes the answers to earlier ones stale."""
    idle_points: int = 0
    """PRE_COMMIT: asked for so far."""
    idle_point_awaited: bool = False
    """PRE_COMMIT: the shell was asked, and has not answered yet."""
    decided: bool = False
    """COMMITTING: it is known at which offset the next owner is to start, once that is committed."""
    target: str = ""
    """While it is given away: who is to get it; empty: nobody (a final commit before leaving)."""
    patient: bool = False
    """User code may take as long as it wants to finish; the caller limits it."""
    deadline: float = 0.0
    """PRE_COMMIT: when it is stopped in any case. DRAINING, COMMITTING: when the intention is dropped. TRANSFERRED:
    when the release is in doubt."""
    appended_at_offset: int | None = None
    """TRANSFERRED: where in the log the release was acknowledged."""
    since: float = 0.0
    """When it was stopped, for the handoff's duration."""

    @property
    def opened(self) -> bool:
        """Something of it may have been handed out: ``on_partitions_assigned`` has returned, the start is committed."""
        return self.state.opened

    @property
    def delivered(self) -> bool:
        """Its records are delivered while the lease lasts."""
        return self.state.delivered

    def become(self, state: AssignedState) -> None:
        """Move to the next state.

        Raises:
            InvariantError: the table does not allow it.
        """
        if state not in TRANSITIONS[self.state]:
            raise InvariantError(
                f"{self.partition} (acquisition {self.acquisition_id}): {self.state.name} -> {state.name}"
            )
        self.state = state
