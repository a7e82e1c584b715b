"""The orchestrator's clock, and the events that it tells whoever listens."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from loadtrim_agent.common.error_boundary import FirstOfKind

from .instances import EventKind, OrchestratorEvent

__all__ = ["Changes", "EventLog"]

_log = logging.getLogger("loadtrim.up")


class EventLog:
    """Passes events to a callback, with their time.

    Args:
        on_event: called on the event loop for every event; what it raises is logged.
    """

    def __init__(self, on_event: Callable[[OrchestratorEvent], None] | None) -> None:
        self._on_event = on_event
        self._errors = FirstOfKind()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Take the running loop's clock."""
        self._loop = asyncio.get_running_loop()

    @property
    def epoch(self) -> float:
        """Seconds from the loop's clock to the wall's, as of now: the one may be set, the other stands in a suspend."""
        return time.time() - self.now()

    def now(self) -> float:
        """Return the loop's time, seconds."""
        assert self._loop is not None
        return self._loop.time()

    def emit(
        self,
        kind: EventKind,
        text: str,
        instance: str = "",
        process_id: int | None = None,
        exit_code: int | None = None,
        start: str = "",
    ) -> None:
        """Tell the listener, if there is one."""
        if self._on_event is None:
            return
        event = OrchestratorEvent(
            at=self.now() + self.epoch,
            kind=kind,
            text=text,
            instance=instance,
            process_id=process_id,
            exit_code=exit_code,
            start=start,
        )
        try:
            self._on_event(event)
        except Exception as error:
            text = "what on_event does with %s failed; the orchestrator goes on. Said once"
            _log.log(self._errors.level(error), text, event, exc_info=error)


class Changes:
    """Wake all that wait for the next change."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def tell(self) -> None:
        """Something has changed."""
        told, self._next = self._next, asyncio.Event()
        told.set()

    async def next(self) -> None:
        """Wait until something changes."""
        await self._next.wait()
