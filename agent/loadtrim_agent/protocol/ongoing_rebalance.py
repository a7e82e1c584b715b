"""The rebalance that goes on: its JoinGroup, its SyncGroup, and the generation that it leads to."""

from __future__ import annotations

from .events import GroupAnswer
from .group_config import LOADTRIM

__all__ = ["OngoingRebalance", "join_sequences_of"]

NEVER = float("inf")


class OngoingRebalance:
    """One rebalance after the other, each from the first JoinGroup to the generation entered.

    The effects of the table change it, and the answers of the coordinator as far as they tell of the generation.
    """

    def __init__(self) -> None:
        self.attempt = 0
        """Number of the JoinGroup sent last; an answer to any other is late."""
        self.outstanding = False
        """A JoinGroup or SyncGroup is on its connection: whatever follows there would wait behind it."""
        self.generation = -1
        """Generation that the JoinGroup answer told; it is entered with the assignment."""
        self.protocol = ""
        self.answer = GroupAnswer()
        """Answer to the last SyncGroup, as far as it is used. Invariant: it has an offset in READING."""
        self.again = False
        """Another rebalance is wanted after this one."""
        self.deadline = NEVER
        """Time at which the phase has lasted too long."""
        self.retry_at = NEVER
        """Time of the next JoinGroup, after one that was refused for now."""
        self.held_until = NEVER
        """Time until which no JoinGroup is sent, as the rebalance was begun again; NEVER: none is held back."""
        self.entered_at = -NEVER
        """Time at which a generation was entered last."""
        self.join_at = NEVER
        """Time at which the rebalance that was told of is joined; NEVER: none was. Only STABLE looks at it."""

    def wakeup(self, *, coordinator_known: bool) -> float:
        """Return the time at which something is due; a retry needs a coordinator."""
        return min(self.retry_at if coordinator_known else NEVER, self.deadline, self.held_until)

    def held_back(self, now: float) -> bool:
        """Return whether the JoinGroup must wait; once it need not, it never must again."""
        if now < self.held_until < NEVER:
            return True
        self.held_until = NEVER
        return False

    def stop_waiting(self) -> None:
        """Nothing is due any more."""
        self.deadline = self.retry_at = self.held_until = NEVER

    def is_stale(self, member: str, answer: GroupAnswer) -> bool:
        """Return whether the assignment was made from an earlier JoinGroup of this member (rule 6).

        Such an assignment knows less than what the member owns now.
        """
        return self.protocol == LOADTRIM and join_sequences_of(answer).get(member, -1) != self.attempt


def join_sequences_of(answer: GroupAnswer) -> dict[str, int]:
    """Return the attempt of each member that the assignment was made from (rule 6)."""
    if answer.assignment is not None:
        return {member: entry.attempt for member, entry in answer.assignment.members.items()}
    return answer.attempts or {}
