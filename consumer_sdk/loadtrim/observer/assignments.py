"""The owners by the log, folded from base assignments and releases, and what lies beyond the newest of them."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from loadtrim_agent.protocol.ownership import Ownership
from loadtrim_agent.wire.ownership_records import AssignmentRecord, ReleaseRecord

__all__ = ["FORGOTTEN_SECONDS", "Assignments", "UnplannedGeneration"]

FORGOTTEN_SECONDS = 30.0
"""Silence of a generation after which an older one is believed."""
UNPLANNED_SECONDS = 2.0
"""Members report in a generation for longer than this, and no leader has written for it: it is a mixed group's. Chosen:
a leader writes its assignment as the generation begins, and a decision every second."""
KEPT_RELEASES_MAX = 10_000


@dataclass(slots=True)
class Assignments:
    """The owners by the log: the newest assignment record, and the releases of its generation that count."""

    newest: AssignmentRecord | None = None
    ownership: Ownership | None = None
    """Invariant: not None exactly when ``newest`` is not None; of the same generation."""
    begun_at: float = -math.inf
    """The beginning of the current generation."""
    heard_at: float = -math.inf
    """The newest sign of life of that generation."""
    early: deque[ReleaseRecord] = field(default_factory=lambda: deque(maxlen=KEPT_RELEASES_MAX))
    """Releases of generations whose assignment has not been read yet."""
    older: AssignmentRecord | None = None
    """The newest of an older generation: of a group that was deleted and begins anew, or that was late."""

    @property
    def generation(self) -> int:
        """The current generation; -1: none was read."""
        return self.ownership.generation if self.ownership else -1

    def note_alive(self, generation: int | None, at: float) -> bool:
        """Note a sign of life of a generation; return whether that goes over to an assignment passed over before."""
        if self.ownership is not None and generation == self.ownership.generation:
            self.heard_at = max(at, self.heard_at)
        elif self.older is not None and generation == self.older.generation:
            return self.begin(self.older, at)
        return False

    def begin(self, assignment: AssignmentRecord, at: float) -> bool:
        """Go over to the assignment's generation; return False where that is the current one, or an older one."""
        if assignment.generation == self.generation:
            return False
        if assignment.generation < self.generation and at - self.heard_at <= FORGOTTEN_SECONDS:
            self.older = assignment
            return False
        self.newest, self.older = assignment, None
        self.ownership = Ownership(assignment.generation, assignment.owners())
        self.begun_at = self.heard_at = at
        early, self.early = self.early, deque(maxlen=KEPT_RELEASES_MAX)
        for release in early:
            if release.generation == assignment.generation:
                self.ownership.apply(release)
            elif release.generation > assignment.generation:
                self.early.append(release)
        return True

    def release(self, release: ReleaseRecord) -> bool:
        """Apply a release, or keep it for its generation; return whether it counts now."""
        if self.ownership is None or release.generation != self.ownership.generation:
            self.early.append(release)
            return False
        return self.ownership.apply(release)


@dataclass(slots=True)
class UnplannedGeneration:
    """A generation that members report in and no leader of loadtrim has written for: that of a mixed group.

    A member that does not offer ``loadtrim`` makes the whole group an eager one. Its leader writes no assignment, so
    that the newest one in the log tells of a group that is no more.
    """

    planned: int = -1
    """The newest generation that an assignment or a decision is of."""
    written_at: float = -math.inf
    """The last time that one was written."""
    generation: int = -1
    """The generation of the last report beyond it; -1: none was beyond it."""
    since: float = math.inf
    """The first such report, whatever its generation; infinite: there is none."""
    until: float = -math.inf
    """The last one."""

    def note_written(self, generation: int, at: float) -> None:
        """Note that a leader wrote in a generation. What it wrote late, in an older one, counts for nothing."""
        if generation < self.planned and at - self.written_at <= FORGOTTEN_SECONDS:
            return
        if generation >= self.generation or at - self.until > FORGOTTEN_SECONDS:
            self.generation, self.since, self.until = -1, math.inf, -math.inf
        self.planned, self.written_at = generation, max(at, self.written_at)

    def note_report(self, generation: int, at: float) -> None:
        """Note that a member reported in a generation."""
        # A group that was deleted counts from 1 again.
        forgotten = generation != self.planned and at - self.written_at > FORGOTTEN_SECONDS
        if generation > self.planned or forgotten:
            self.generation, self.since, self.until = generation, min(self.since, at), max(self.until, at)

    @property
    def mixed(self) -> bool:
        """Return whether the last that is known of the group is that it was mixed."""
        return self.until - self.since >= UNPLANNED_SECONDS
