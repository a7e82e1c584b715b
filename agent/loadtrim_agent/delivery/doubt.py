"""The agent knows when user code has done a record, or doubts it."""

from __future__ import annotations

import logging

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.observability.text import untold_line
from loadtrim_agent.wire.telemetry_records import Untold

from .hand import Hand

__all__ = ["Doubt"]

log = logging.getLogger("loadtrim")

COMMITS_TELL_SECONDS = 60.0
"""Time without a record that no commit told of in time, after which the commits are taken to tell. Chosen."""


class Doubt:
    """The doubt whether a record is done when the next one is asked for. Agent's thread."""

    def __init__(self) -> None:
        self.untold = Untold.NOTHING
        """Reason why nobody knows, as of the last look."""
        self.by_hand = False
        """User code commits itself, so that its commits may tell."""
        self._uncommitted_at: float | None = None
        """Boot clock: the time of a record ran out without a commit above it."""
        self._warned: set[Untold] = set()

    def uncommitted(self, records: int) -> None:
        """Take in how many records had no commit above them when their time ran out."""
        if records:
            self._uncommitted_at = boot_time()

    def look(self, hand: Hand) -> None:
        """Look at what user code has shown, and warn of each reason once."""
        self.untold = _why(hand)
        if self.untold.latency_known:
            return
        at = self._uncommitted_at
        if self.by_hand and (at is None or boot_time() - at >= COMMITS_TELL_SECONDS):
            self.untold = Untold.COMMITTED
        elif self.untold not in self._warned:
            self._warned.add(self.untold)
            which = " that are not committed in time" if self.by_hand else ""
            log.warning("The latency of records%s is unknown: %s", which, untold_line(self.untold))


def _why(hand: Hand) -> Untold:
    if hand.telling.begun:
        return Untold.NOTHING
    if hand.samples.several_tasks:
        return Untold.TASKS
    if hand.samples.kept:
        return Untold.KEPT
    return Untold.BRIEFLY if hand.samples.beyond else Untold.NOTHING
