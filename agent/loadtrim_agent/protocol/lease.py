"""Until when a record may be handed out (rule 12).

A member that the coordinator has evicted must stop before anybody else can be given its partitions, without hearing of
it: it may be frozen or cut off. The coordinator evicts it (a) a session timeout after the last request that renewed
its session, or (b) a rebalance timeout after a barrier began that it does not join. So it hands out only while

    now < min(S + session_timeout, E + rebalance_timeout) - margin

with S the *send* time of the last request that renewed the session and E the send time of the last one that proves
that no barrier was waiting for it. Send times, because the broker's clock for it started later than that.
"""

from __future__ import annotations

__all__ = ["Lease"]

MARGIN_SECONDS_MIN = 0.5
MARGIN_SHARE = 0.05


class Lease:
    """S, E and the time they allow. Times by the shell's boot-time clock, seconds."""

    def __init__(self, session_timeout: float, rebalance_timeout: float) -> None:
        self._session_timeout = session_timeout
        self._rebalance_timeout = rebalance_timeout
        self._margin = max(MARGIN_SECONDS_MIN, MARGIN_SHARE * session_timeout)
        self._session_from: float | None = None
        self._entered_from: float | None = None
        self._told = 0.0

    def renew_session(self, sent_at: float) -> None:
        """A heartbeat was answered REBALANCE_IN_PROGRESS: the session is renewed, the barrier still waits for us."""
        self._session_from = max(sent_at, self._session_from or sent_at)

    def renew_entry(self, sent_at: float) -> None:
        """A SyncGroup was answered: no barrier waits for us. Since Kafka 4.0 it renews no session in a stable group."""
        self._entered_from = max(sent_at, self._entered_from or sent_at)

    def renew(self, sent_at: float) -> None:
        """A JoinGroup was answered, or a heartbeat was answered OK in a generation that we entered."""
        self.renew_session(sent_at)
        self.renew_entry(sent_at)

    @property
    def session_from(self) -> float | None:
        """Return S; None: the coordinator does not know us."""
        return self._session_from

    def revoke(self) -> None:
        """The coordinator does not know us any more: nothing may be handed out."""
        self._session_from = self._entered_from = None

    @property
    def until(self) -> float:
        """Nothing is handed out at or after this time; 0.0 without a lease."""
        if self._session_from is None or self._entered_from is None:
            return 0.0
        ends = min(self._session_from + self._session_timeout, self._entered_from + self._rebalance_timeout)
        return ends - self._margin

    def news(self) -> float | None:
        """Return the end of the lease if it was not told yet, and take it as told; else None."""
        until = self.until
        if until == self._told:
            return None
        self._told = until
        return until
