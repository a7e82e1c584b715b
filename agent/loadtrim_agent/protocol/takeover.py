"""A coordinator that took the group over: of each member it knows the protocol in use alone, until the member joins.

Until then it refuses every plain consumer. So the leader has all join again, a session timeout later. By then members
that ended with the broker are evicted, which is a rebalance already. One begun at once would wait for them, and while a
rebalance waits nothing moves.
"""

from __future__ import annotations

from .membership_state import MembershipState

__all__ = ["Takeover"]

NEVER = float("inf")


class Takeover:
    """The takeover that was learnt of last, and the time at which the leader has all join again for it.

    Args:
        state: the member's place in its group.
        wait_seconds: from when it was learnt of until that time.
    """

    def __init__(self, state: MembershipState, wait_seconds: float) -> None:
        self._state = state
        self._wait_seconds = wait_seconds
        self._learnt_at = NEVER

    @property
    def due(self) -> float:
        """Return the time at which this member begins the rebalance; inf: none is wanted, or another member leads."""
        state = self._state
        leads = state.is_leader and state.speaks_loadtrim and state.coordinator_known
        return self._learnt_at + self._wait_seconds if leads else NEVER

    def learnt(self, now: float) -> None:
        """The coordinator was found at another broker, or says that it still loads the group."""
        self._learnt_at = now

    def joined(self, sent_at: float) -> None:
        """The JoinGroup sent at this time was answered: where it was sent later, all have joined since."""
        if sent_at >= self._learnt_at:
            self._learnt_at = NEVER

    def leave(self) -> None:
        """This member leaves, for which there is a rebalance anyway."""
        self._wait_seconds = NEVER
