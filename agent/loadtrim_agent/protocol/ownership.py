"""The fold of the coordination log: who owns what in one generation."""

from __future__ import annotations

from collections.abc import Mapping

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.ownership_records import ReleaseRecord

from .assigned_partition import AssignedPartition, AssignedState

__all__ = ["Ownership", "is_foreign"]


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
        """Number of times that a partition changed hands in this generation; missing: never."""

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

    def release(self, entry: AssignedPartition, group: str, member: str, now: float, at: float) -> ReleaseRecord:
        """Return the release with which this member gives a partition away.

        Args:
            entry: the partition, with its target and what is committed.
            group: name of the group.
            member: the owner.
            now: by the boot-time clock.
            at: the same, by the wall clock.
        """
        return ReleaseRecord(
            group=group,
            member=member,
            at=at,
            generation=self.generation,
            topic=entry.partition.topic,
            partition=entry.partition.partition,
            version=self.version(entry.partition),
            source=member,
            target=entry.target,
            offset=entry.committed if entry.committed is not None else 0,
            seconds=max(0.0, now - entry.since),
        )

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


def is_foreign(release: ReleaseRecord, member: str, assigned: Mapping[Partition, AssignedPartition]) -> bool:
    """Return whether ``member`` holds the partition that the release gives away in its name, and never sent it."""
    entry = assigned.get(release.key)
    return release.source == member and entry is not None and entry.state is not AssignedState.TRANSFERRED
