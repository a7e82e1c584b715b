"""One assigned partition: its states, what may happen in each, and one table.

Theory of operation
===================

A member holds a partition by an *acquisition*: from the moment an assignment or a release gives it the partition until
the partition is dropped. An acquisition is in exactly one state. The table says for each state what may happen in it
and which state follows; :meth:`AssignedPartition.advance` is the only place that changes the state. What is sent to the
shell then, :class:`~.partitions.PartitionTable` decides.

An answer about an acquisition counts only if that acquisition is still the one held and waits for the answer. Every
other answer is late and is dropped before the table is asked. A pair that is not in the table is a contradiction: it
raises :class:`~loadtrim_agent.common.errors.InvariantError`, which tells the partition's history.

Rules that hold in the table (numbers as in ``docs/protocol.md``):

* Rule 4: the way to RUNNING leads over a committed offset. Where there is none, INITIAL_COMMIT makes one.
* Rule 2: the way out leads over DRAINING and COMMITTING, in this order: what was done is committed before the release.
* Rule 2: until the release is sent the intention may be dropped (RESUMED); in TRANSFERRED nothing is cancelled.
* Rule 3: TRANSFERRED ends only by DROPPED: the log shows a higher version, or the next generation begins.
* DROPPED may come in every state: by the next assignment, by being forgotten, by leaving.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping

import msgspec

from loadtrim_agent.common.errors import InvariantError
from loadtrim_agent.common.partition import Partition

__all__ = ["TRANSITIONS", "AssignedEvent", "AssignedPartition", "AssignedState", "diagram"]

HISTORY_ENTRIES_MAX = 20
"""Chosen: two moves that were given up, and what followed."""


class AssignedState(enum.Enum):
    """The life of one acquisition. Everything but TRANSFERRED is claimed in JoinGroup (rule 5)."""

    FETCHING = "fetching"
    """Ours by the map; asking for the committed offset."""
    OPENING = "opening"
    """The shell seeks and calls ``on_partitions_assigned``."""
    INITIAL_COMMIT = "initial commit"
    """There was no commit: the position it will start at is being committed (rule 4)."""
    RUNNING = "running"
    """Records are delivered while the lease lasts."""
    PRE_COMMIT = "pre-commit"
    """The partition is to be given away. It is still delivered while the work done so far is being committed, until an
    idle point comes."""
    DRAINING = "draining"
    """The partition is to be given away. Nothing new is delivered; user code finishes the records in hand."""
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
        """Records are delivered while the lease lasts."""
        return self in (AssignedState.RUNNING, AssignedState.PRE_COMMIT)


class AssignedEvent(enum.Enum):
    """An event that may change the state of an acquisition.

    The value is the text in the diagram, where Mermaid allows no colon or semicolon.
    """

    OFFSET_KNOWN = "the offset to start at is known"
    OPENED = "positioned, listener returned"
    OPENED_WITHOUT_COMMIT = "likewise, and there was no commit yet"
    START_COMMITTED = "its start is committed"
    GIVING = "to be given away, what is done is committed first"
    STOPPED = "stopped (an idle point, no time left, manual commits, leaving)"
    DRAINED = "nothing in hand, listener returned"
    RESUMED = "the move is off (timed out, refused, a rebalance, the log failed)"
    RELEASE_SENT = "committed, release appended"
    DROPPED = "lost, or given away"


GONE = None
"""The acquisition is over."""

TRANSITIONS: Mapping[AssignedState, Mapping[AssignedEvent, AssignedState | None]] = {
    AssignedState.FETCHING: {
        AssignedEvent.OFFSET_KNOWN: AssignedState.OPENING,
        AssignedEvent.DROPPED: GONE,
    },
    AssignedState.OPENING: {
        AssignedEvent.OPENED: AssignedState.RUNNING,
        AssignedEvent.OPENED_WITHOUT_COMMIT: AssignedState.INITIAL_COMMIT,
        AssignedEvent.DROPPED: GONE,
    },
    AssignedState.INITIAL_COMMIT: {
        AssignedEvent.START_COMMITTED: AssignedState.RUNNING,
        AssignedEvent.DROPPED: GONE,
    },
    AssignedState.RUNNING: {
        AssignedEvent.GIVING: AssignedState.PRE_COMMIT,
        AssignedEvent.STOPPED: AssignedState.DRAINING,
        AssignedEvent.DROPPED: GONE,
    },
    AssignedState.PRE_COMMIT: {
        AssignedEvent.STOPPED: AssignedState.DRAINING,
        AssignedEvent.RESUMED: AssignedState.RUNNING,
        AssignedEvent.DROPPED: GONE,
    },
    AssignedState.DRAINING: {
        AssignedEvent.DRAINED: AssignedState.COMMITTING,
        AssignedEvent.RESUMED: AssignedState.RUNNING,
        AssignedEvent.DROPPED: GONE,
    },
    AssignedState.COMMITTING: {
        AssignedEvent.RELEASE_SENT: AssignedState.TRANSFERRED,
        AssignedEvent.RESUMED: AssignedState.RUNNING,
        AssignedEvent.DROPPED: GONE,
    },
    AssignedState.TRANSFERRED: {AssignedEvent.DROPPED: GONE},
}


class IdlePoint(msgspec.Struct):
    """The questions to the shell for an idle point of one partition, within one move."""

    asked: int = 0
    awaited: bool = False
    """The shell was asked, and has not answered yet."""


class AssignedPartition(msgspec.Struct):
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
    held_up: bool = False
    """FETCHING, INITIAL_COMMIT: how long it lasts is not ours. A transaction with its offset is open, or the broker
    refuses the request."""
    fetch: int = 0
    """The OffsetFetch whose answer counts: a later commit makes the answers to earlier ones stale."""
    idle_point: IdlePoint = msgspec.field(default_factory=IdlePoint)
    """PRE_COMMIT: the question to the shell for a moment at which nothing is left to commit."""
    decided: bool = False
    """COMMITTING: it is known at which offset the next owner is to start, once that is committed."""
    target: str = ""
    """Member that is to get the partition while it is given away; empty: nobody (a final commit before leaving)."""
    patient: bool = False
    """User code may take as long as it wants to finish; the caller limits it."""
    deadline: float = 0.0
    """PRE_COMMIT: when it is stopped in any case. DRAINING, COMMITTING: when the intention is dropped. TRANSFERRED:
    when the release is in doubt."""
    appended_at_offset: int | None = None
    """TRANSFERRED: where in the log the release was acknowledged."""
    since: float = 0.0
    """When it was stopped, for the handoff's duration."""
    history: deque[tuple[AssignedState, AssignedEvent]] = msgspec.field(
        default_factory=lambda: deque(maxlen=HISTORY_ENTRIES_MAX)
    )
    """Events that led to the state of now, each with the state before. Invariant: at most HISTORY_ENTRIES_MAX."""

    @property
    def opened(self) -> bool:
        """Something of it may have been delivered: ``on_partitions_assigned`` has returned, the start is committed."""
        return self.state.opened

    @property
    def delivered(self) -> bool:
        """Records are delivered while the lease lasts."""
        return self.state.delivered

    def advance(self, event: AssignedEvent) -> None:
        """Move to the state that the table names. When the acquisition is over the state stays what it was.

        Raises:
            InvariantError: the event cannot come in this state.
        """
        row = TRANSITIONS[self.state]
        if event not in row:
            raise InvariantError(
                f"{self.partition} (acquisition {self.acquisition_id}): {event.name} in {self.state.name}",
                item=self.partition,
                history=tuple(f"{state.name}: {earlier.name}" for state, earlier in self.history),
            )
        self.history.append((self.state, event))
        self.state = row[event] or self.state


def diagram() -> str:
    """Return the table as a Mermaid state diagram.

    DROPPED, which may come in every state, is drawn for RUNNING and TRANSFERRED only.
    """
    arrows: dict[tuple[AssignedState, AssignedState | None], list[str]] = {}
    for state, row in TRANSITIONS.items():
        for event, follower in row.items():
            if follower is not GONE or state in (AssignedState.RUNNING, AssignedState.TRANSFERRED):
                arrows.setdefault((state, follower), []).append(event.value)
    lines = [
        f"    {begin.name} --> {end.name if end is not GONE else '[*]'}: {' / '.join(texts)}"
        for (begin, end), texts in arrows.items()
    ]
    given = ["    [*] --> FETCHING: given by an assignment, or by a release to us (which names the offset)"]
    return "\n".join(["stateDiagram-v2", *given, *lines])
