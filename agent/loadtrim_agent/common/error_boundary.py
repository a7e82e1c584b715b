"""Errors of parts that may break without harm are contained, logged once and counted (I8)."""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from .clock import boot_time

__all__ = ["ErrorBoundary", "ErrorCounter", "FirstOfKind"]

log = logging.getLogger("loadtrim")

QUIET_SECONDS = 60.0
"""A state that did not show for so long has ended: it is told anew when it comes again. Chosen."""


class ErrorCounter(Protocol):
    """The counter of contained errors."""

    def error(self, where: str) -> None:
        """Count one break of the part named ``where``."""


class FirstOfKind:
    """The level at which an error is logged: the first of its kind is told, and those that come again are details.

    A kind is a class of errors that are raised at one place.
    """

    def __init__(self) -> None:
        self._seen: set[tuple[type[BaseException], str, int]] = set()
        """Class, file and line. Invariant: grows by places in the code only, so it is bounded."""

    def level(self, error: BaseException) -> int:
        """Return ``ERROR`` for the first of its kind, else ``DEBUG``."""
        while isinstance(error, BaseExceptionGroup):  # of a task group: the first error ends it
            error = error.exceptions[0]
        places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
        kind = (type(error), *places[-1]) if places else (type(error), "", 0)
        if kind in self._seen:
            return logging.DEBUG
        self._seen.add(kind)
        return logging.ERROR


class ErrorBoundary:
    """The boundary calls parts that may break, and contains what they raise.

    Args:
        counter: told of each break.
    """

    def __init__(self, counter: ErrorCounter) -> None:
        self._counter = counter
        self._logged: set[str] = set()
        """Parts whose first break was logged. Invariant: grows by names in the code only, so it is bounded."""
        self._errors = FirstOfKind()
        self._warned_at: dict[str, float] = {}
        """Part -> when it was last complained about. Invariant: as above."""

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

    def contain(self, where: str, error: BaseException, text: str, *args: Any) -> None:
        """Log and count what a part that goes on has raised: the first of its kind with its trace."""
        log.log(self._errors.level(error), text, *args, exc_info=error)
        self.broke(where)

    def complain(self, where: str, text: str, *args: Any) -> None:
        """Log and count a state that may last: once, until it has not been complained about for a minute."""
        now = boot_time()
        ended = now - self._warned_at.get(where, -math.inf) > QUIET_SECONDS
        self._warned_at[where] = now
        log.log(logging.WARNING if ended else logging.DEBUG, text, *args)
        self.broke(where)

    def broke(self, where: str) -> None:
        """Count something that broke and was contained. Never raises."""
        try:
            self._counter.error(where)
        except Exception:
            log.debug("counting an error failed", exc_info=True)
