"""The time of the next heartbeat: at the interval, and at once where the log says that a generation ends (rule 11)."""

from __future__ import annotations

from .retry_backoff import RetryBackoff

__all__ = ["Heartbeats"]

NEVER = float("inf")
BURST_GAPS_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
"""After a hint from the log: the record may overtake the JoinGroup it speaks of."""


class Heartbeats:
    """One is on its way at a time. Whether the member may send any is :class:`~.session.Session`'s to know."""

    def __init__(self, interval_seconds: float, backoff: RetryBackoff) -> None:
        self._interval_seconds = interval_seconds
        self._backoff = backoff
        self._due_at = NEVER
        self._held_until = 0.0
        """Time before which none is sent, however much one is wanted: brokers refused it."""
        self._in_flight = False
        self._burst: list[float] = []
        self.stopped = False
        """Rule 12: heartbeats would keep alive a member whose JoinGroup was lost, and the barrier waits for it."""

    @property
    def wakeup(self) -> float:
        """Return the time at which the next one is due; inf: one is on its way, or none is to be sent."""
        return NEVER if self._in_flight or self.stopped else max(self._due_at, self._held_until)

    def joined(self, sent_at: float) -> None:
        """The JoinGroup sent at this time was answered."""
        self.stopped = False
        self.by(sent_at + self._interval_seconds)

    def entered(self, renewed_at: float) -> None:
        """A generation began; the session was renewed last by what was sent at this time."""
        self._due_at = renewed_at + self._interval_seconds
        self._burst = []

    def by(self, time: float) -> None:
        """The next one at ``time`` at the latest."""
        self._due_at = min(self._due_at, time)

    def burst(self, now: float) -> None:
        """One now and a few more, soon."""
        self._burst = list(BURST_GAPS_SECONDS)
        self._due_at = now

    def sent(self) -> None:
        self._in_flight = True

    def answered(self) -> None:
        self._in_flight = False

    def accepted(self) -> None:
        """The coordinator answered."""
        self._backoff.succeeded()
        self._held_until = 0.0

    def refused(self, now: float, member: str) -> None:
        """A broker that is not the coordinator answered, or none: the next one waits, for longer each time in a row."""
        self._held_until = now + self._backoff.failed(member)

    def next(self, now: float) -> None:
        """The one after the one that was answered now."""
        self._due_at = now + (self._burst.pop(0) if self._burst else self._interval_seconds)

    def forget(self) -> None:
        """Out of the group: whatever is on its way is another member's."""
        self.stopped = self._in_flight = False
        self._held_until = 0.0
