"""The system's side of SIGTERM: it ends the process, and wakes a loop that sleeps."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import socket
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
        self._ends: tuple[socket.socket, socket.socket] | None = None
        """The ends to read and to write; None: not needed yet."""

    def wake(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake this loop from now on, unless Python's descriptor is taken: what took it wakes a loop too."""
        if self._ends is None:
            # Not a pipe: on Windows a loop reads sockets alone.
            self._ends = socket.socketpair()
            _KEPT.append(self._ends)
            atexit.register(self._close)
            for end in self._ends:
                end.setblocking(False)
        read, written = self._ends
        before = signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)
        if before in (-1, written.fileno()):
            loop.add_reader(read, self._read)
        else:
            signal.set_wakeup_fd(before)

    def stop(self) -> None:
        """Wake no loop any more."""
        if self._ends is not None:
            before = signal.set_wakeup_fd(-1)
            if before != self._ends[1].fileno():
                signal.set_wakeup_fd(before)

    def _close(self) -> None:
        self.stop()
        for end in self._ends or ():
            end.close()

    def _read(self) -> None:
        if self._ends is not None:
            with contextlib.suppress(BlockingIOError):  # A forked child shares the sockets, and may have read it.
                self._ends[0].recv(READ_BYTES)


_KEPT: list[tuple[socket.socket, socket.socket]] = []
"""Closed at the end of the process: a loop may still look at them when their waker is gone, in a forked child."""
