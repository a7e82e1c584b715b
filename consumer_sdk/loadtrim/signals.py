"""SIGTERM: hand over and leave; a second one: at once."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable

__all__ = ["StopSignals"]


class StopSignals:
    """Handles SIGTERM while installed, if on the main thread and nobody else handles it.

    Args:
        asked: called in the user's loop with whether to leave at once.
        enabled: False: leaves signals alone.
    """

    def __init__(self, asked: Callable[[bool], None], *, enabled: bool) -> None:
        self._asked = asked
        self._enabled = enabled
        self._loop: asyncio.AbstractEventLoop | None = None
        self.at_once = False
        """A second SIGTERM came."""
        self._times = 0

    def install(self) -> None:
        on_main = threading.current_thread() is threading.main_thread()
        if not self._enabled or not on_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        loop = asyncio.get_running_loop()
        try:
            loop.add_signal_handler(signal.SIGTERM, self._signalled)
        except (NotImplementedError, RuntimeError):  # pragma: no cover - no signals on this loop
            return
        self._loop = loop

    def remove(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_signal_handler(signal.SIGTERM)
        self._loop = None

    def _signalled(self) -> None:
        self._times += 1
        self.at_once = self._times > 1
        self._asked(self.at_once)
