"""Errors of parts that may break without harm are contained, logged once and counted (I8)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

__all__ = ["ErrorBoundary", "ErrorCounter"]

log = logging.getLogger("loadtrim")


class ErrorCounter(Protocol):
    """The counter of contained errors."""

    def error(self, where: str) -> None:
        """Count one break of the part named ``where``."""


class ErrorBoundary:
    """The boundary calls parts that may break, and contains what they raise.

    Args:
        counter: told of each break.
    """

    def __init__(self, counter: ErrorCounter) -> None:
        self._counter = counter
        self._logged: set[str] = set()
        """Parts whose first break was logged. Invariant: grows by names in the code only, so it is bounded."""

    def call(self, where: str, call: Callable[..., None], *args: Any) -> None:
        """Call it; what it raises is logged once per ``where`` and counted each time."""
        try:
            call(*args)
        except Exception:
            if where not in self._logged:
                self._logged.add(where)
                log.exception("The agent's %s broke; the consumer goes on. Said once, counted from now on.", where)
            self.broke(where)

    async def wait(self, where: str, work: Coroutine[Any, Any, None]) -> None:
        """Await it; what it raises is logged and counted. Cancellation is raised."""
        try:
            await work
        except Exception:
            log.exception("The agent's %s broke; the consumer goes on.", where)
            self.broke(where)

    def broke(self, where: str) -> None:
        """Count something that broke and was contained. Never raises."""
        try:
            self._counter.error(where)
        except Exception:
            log.debug("counting an error failed", exc_info=True)
