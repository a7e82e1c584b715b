"""The system's side of SIGTERM: it ends the process, and wakes a loop that sleeps."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Protocol

__all__ = ["LoopWaker", "OperatingSystem", "System"]

READ_BYTES = 4096
"""Chosen: a byte is written for each signal."""


class System(Protocol):
    """A port to the operating system, which ends a process."""

    def raise_again(self) -> None:
        """Send SIGTERM to this process."""

    def give_up(self) -> None:
        """End it without any more of its code."""


class OperatingSystem:
    """Ends this process for real."""

    def raise_again(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def give_up(self) -> None:
        os._exit(128 + signal.SIGTERM)


class LoopWaker:
    """Wakes the main thread's event loop when a signal comes. All methods run on the main thread.

    Python's handler runs between two instructions of the main thread. A signal ends the system call that it interrupts,
    so a loop that sleeps usually wakes by itself. Two signals do not wake it: one that came just before the call, and
    one that another thread received. Python writes a byte for each signal to one file descriptor of the process
    (``signal.set_wakeup_fd``), and a loop that reads there wakes.

    ``loop.add_signal_handler`` would do that too. But a loop that closes resets all signals in its table of handlers,
    also those that user code has set a handler for meanwhile.
    """

    def __init__(self) -> None:
        self._pipe: tuple[int, int] | None = None
        """The ends to read and to write; None: not needed yet. Never closed: a loop may still look at them."""

    def wake(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake this loop from now on, unless Python's descriptor is taken: what took it wakes a loop too."""
        if self._pipe is None:
            self._pipe = os.pipe()
            for end in self._pipe:
                os.set_blocking(end, False)
        written = self._pipe[1]
        before = signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        if before in (-1, written):
            loop.add_reader(self._pipe[0], self._read)
        else:
            signal.set_wakeup_fd(before)

    def stop(self) -> None:
        """Wake no loop any more."""
        if self._pipe is not None:
            before = signal.set_wakeup_fd(-1)
            if before != self._pipe[1]:
                signal.set_wakeup_fd(before)

    def _read(self) -> None:
        if self._pipe is not None:
            with contextlib.suppress(BlockingIOError):  # A forked child shares the pipe, and may have read it.
                os.read(self._pipe[0], READ_BYTES)
