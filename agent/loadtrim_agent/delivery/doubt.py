"""The agent knows when user code has done a record, or doubts it."""

from __future__ import annotations

import logging

from loadtrim_agent.observability.text import untold_line
from loadtrim_agent.wire.telemetry_records import Untold

from .hand import Hand

__all__ = ["Doubt"]

log = logging.getLogger("loadtrim")


class Doubt:
    """The doubt whether a record is done when the next one is asked for. Agent's thread."""

    def __init__(self) -> None:
        self.untold = Untold.NOTHING
        """Reason why nobody knows, as of the last look."""
        self._warned: set[Untold] = set()

    def look(self, hand: Hand) -> None:
        """Look at what user code has shown, and warn of each reason once."""
        self.untold = _why(hand)
        if not self.untold.latency_known and self.untold not in self._warned:
            self._warned.add(self.untold)
            log.warning("The latency of records is unknown: %s", untold_line(self.untold))


def _why(hand: Hand) -> Untold:
    if hand.telling.begun:
        return Untold.NOTHING
    if hand.samples.several_tasks:
        return Untold.TASKS
    if hand.samples.kept:
        return Untold.KEPT
    return Untold.BRIEFLY if hand.samples.beyond else Untold.NOTHING
