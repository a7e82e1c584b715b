"""The state of a member in its group, as the other parts of the machine read it."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from loadtrim_agent.wire.ownership_records import AssignmentRecord

from .blind_generation import BlindGeneration
from .events import GroupAnswer
from .group_config import BROKER_ASSIGNS, LOADTRIM
from .membership_table import Phase, Trigger

__all__ = ["MembershipState", "Occurrence"]

HISTORY_ENTRIES_MAX = 50
"""Chosen: three rebalances with everything that may go wrong in them."""


class Occurrence(NamedTuple):
    """A trigger that is to be fired next, with what its effects need."""

    trigger: Trigger
    answer: GroupAnswer | None = None
    """ASSIGNMENT_HERE, ASSIGNMENT_IN_LOG: the answer to the SyncGroup."""
    answers: dict[str, GroupAnswer] | None = None
    """JOINED, ASSIGNED: everybody's answers, which the SyncGroup takes along; those of a follower are empty."""
    code: int = 0
    """REFUSED_FOR_GOOD: the coordinator's error."""


class MembershipState:
    """The place of one member in its group.

    :class:`~.membership.Membership` changes the phase; its effects and its session change the rest.
    """

    def __init__(self, topics: tuple[str, ...]) -> None:
        self.phase = Phase.IDLE
        self.member = ""
        self.generation = -1
        """Generation entered last; -1 before the first and after being forgotten."""
        self.protocol = ""
        self.leader = ""
        self.topics = topics
        self.partitions: dict[str, int] = {}
        """Topic -> partitions, as far as metadata is known."""
        self.assignment: AssignmentRecord | None = None
        """The assignment of :attr:`generation`; None in a mixed generation, and where it could not be had."""
        self.blind = BlindGeneration()
        self.coordinator_known = False
        self.history: deque[tuple[float, Phase, Trigger]] = deque(maxlen=HISTORY_ENTRIES_MAX)
        """Triggers that led to the phase of now, each with its time and the phase before."""

    @property
    def stable(self) -> bool:
        """The member is in a generation and knows of no rebalance."""
        return self.phase is Phase.STABLE

    @property
    def is_leader(self) -> bool:
        """The member leads the generation that it is in."""
        return self.stable and self.leader == self.member

    @property
    def speaks_loadtrim(self) -> bool:
        """The generation entered last is one of ours: claims count, the log moves ownership."""
        return self.protocol == LOADTRIM

    @property
    def broker_assigns(self) -> bool:
        """The broker made the assignment of the generation entered last; each member has a generation of its own."""
        return self.protocol == BROKER_ASSIGNS

    @property
    def may_commit(self) -> bool:
        """The broker takes commits and heartbeats of the generation entered.

        It refuses them between the answers of JoinGroup and SyncGroup.
        """
        in_generation = self.phase in (Phase.STABLE, Phase.REVOKING, Phase.JOINING)
        return in_generation and self.generation >= 0 and bool(self.member) and self.coordinator_known

    def history_lines(self) -> tuple[str, ...]:
        """Return how the phase of now came about, a line for each trigger."""
        return tuple(f"{at:.3f} {phase.name}: {trigger.name}" for at, phase, trigger in self.history)
