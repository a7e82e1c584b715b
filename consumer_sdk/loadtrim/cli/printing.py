"""Lines are printed in a thread of their own, so that nothing waits for whoever reads them.

``loadtrim up | less`` reads a screen, and no more until a key is pressed. For as long a line on the event loop would
keep the orchestrator from its signals and plans. Instances would fill their pipes, and stand still.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sys
import threading
from collections.abc import Callable

__all__ = ["LinePrinter"]

LINES_MAX = 10_000
CLOSE_SECONDS = 2.0
"""A reader that has stopped is not waited for any longer at the end."""


class LinePrinter:
    """The printer of lines to standard output, in the order of the calls.

    Args:
        loop: the loop of ``on_gone``.
        on_gone: called once when nobody reads any more: the pipe is closed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_gone: Callable[[], None]) -> None:
        self._loop = loop
        self._on_gone = on_gone
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="loadtrim-printer", daemon=True)
        self._thread.start()
        self.lost = 0
        """Lines that the caller has left out for want of room since it said so last."""

    @property
    def has_room(self) -> bool:
        """Return whether a line that matters less may be printed."""
        return self._lines.qsize() < LINES_MAX

    def print(self, line: str) -> None:
        self._lines.put(line)

    def close(self) -> None:
        """Wait until all is printed, for at most ``CLOSE_SECONDS``."""
        self._lines.put(None)
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            # At its exit Python would wait for the buffer that the thread is writing.
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                print(line, flush=True)
            except BrokenPipeError:
                sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - or Python complains at its exit
                with contextlib.suppress(RuntimeError):  # The loop has ended.
                    self._loop.call_soon_threadsafe(self._on_gone)
                return
            except (OSError, ValueError):
                continue  # A disk that is full, or a terminal that has gone, ends no instance.
