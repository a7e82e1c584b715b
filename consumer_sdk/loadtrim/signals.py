"""SIGTERM: one handler for all consumers of a process. They hand over and leave, then the signal is the system's again.

A program that was told to end and does not is ended: the signal is raised again when its consumers have left and a
grace is over. Without this package the first SIGTERM ends it. So a loop that never looks at what it is told must not
outlive the signal here.
"""

from __future__ import annotations

import _thread
import asyncio
import logging
import os
import signal
import threading
import time
import weakref
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from aiokafka.errors import ConsumerStoppedError

__all__ = ["EndableWait", "ProcessSignals", "StopSignals"]

log = logging.getLogger("loadtrim")

T = TypeVar("T")

LOOK_SECONDS = 0.05
LEAVE_SECONDS = 10.0
"""Chosen: after the drain a member commits and leaves; a broker that does not answer holds the end up no longer."""
LAST_SECONDS = 1.0
"""Chosen: a main thread that runs no Python any more does not hear the signal, and is ended without it."""


class Leaver(Protocol):
    """A consumer as SIGTERM sees it."""

    def end_iteration(self, at_once: bool) -> None:
        """End the iteration after the record in hand, and leave the group. Called in the user's loop."""

    @property
    def left(self) -> bool:
        """Return whether the member is out of its group. Called in any thread."""


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


class StopSignals:
    """The share of one consumer in the handling of SIGTERM.

    Args:
        leaver: the consumer; it is not kept alive.
        enabled: False: leaves signals alone.
        drain_seconds: longest drain of the record in hand.
        exit_seconds: how long the program may go on after its consumers have left.
        hurries: a second signal makes it leave faster.
        process: the handler of this process; None: the one that all share.
    """

    def __init__(
        self,
        leaver: Leaver,
        *,
        enabled: bool,
        drain_seconds: float,
        exit_seconds: float,
        hurries: bool = True,
        process: ProcessSignals | None = None,
    ) -> None:
        self._leaver = weakref.ref(leaver)
        self._enabled = enabled
        self._process = PROCESS if process is None else process
        self._loop: asyncio.AbstractEventLoop | None = None
        self.drain_seconds = drain_seconds
        self.exit_seconds = exit_seconds
        self.hurries = hurries
        self.at_once = False
        """A second SIGTERM came."""

    def check(self) -> None:
        """Refuse the start of a consumer in a process that is to end.

        Raises:
            ConsumerStoppedError: SIGTERM has come.
        """
        if self._enabled and self._process.ending:
            raise ConsumerStoppedError(
                "SIGTERM has told this process to end, so no consumer is started in it any more. Leave the loop that "
                "starts consumers when this error is raised."
            )

    def install(self) -> None:
        """Hear the signal from now on: called in the user's loop."""
        if self._enabled:
            self._loop = asyncio.get_running_loop()
            self._process.add(self)

    def remove(self) -> None:
        """The consumer has stopped."""
        self._loop = None
        self._process.remove(self)

    def tell(self, at_once: bool) -> None:
        """SIGTERM has come. Called in any thread."""
        self.at_once = at_once
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._tell, at_once)
            except RuntimeError:  # Its loop is closed: nobody is left to stop it.
                self.remove()

    def _tell(self, at_once: bool) -> None:
        leaver = self._leaver()
        if leaver is not None:
            log.info("SIGTERM: %s", "leaving at once" if at_once else "handing over and leaving")
            leaver.end_iteration(at_once)

    @property
    def gone(self) -> bool:
        """The consumer has stopped, has left its group, or nobody has it any more."""
        leaver = self._leaver()
        return self._loop is None or leaver is None or leaver.left


class ProcessSignals:
    """Handles SIGTERM of the process while a consumer wants it, if nobody else does.

    The handler is Python's, which the main thread runs between two instructions, also where its event loop never turns
    again. It takes no lock: the main thread may hold any.

    Args:
        system: ends the process; None: the operating system.
    """

    def __init__(self, system: System | None = None) -> None:
        self._system = OperatingSystem() if system is None else system
        self._consumers: dict[int, weakref.ref[StopSignals]] = {}
        self._pid = os.getpid()
        self._times = 0
        self._over = False
        """The consumers have left: the signal is the system's."""

    @property
    def ending(self) -> bool:
        """SIGTERM has come."""
        return self._times > 0 and not self._forked

    def add(self, consumer: StopSignals) -> None:
        """Tell this consumer of the signal, if the signal is ours or nobody's; at once where it has come already."""
        if not self._handle():
            return
        self._consumers[id(consumer)] = weakref.ref(consumer)
        if self.ending:
            consumer.tell(False)

    def remove(self, consumer: StopSignals) -> None:
        """The signal is the system's again with the last consumer."""
        self._consumers.pop(id(consumer), None)
        if not self._consumers and not self.ending and _on_main_thread():
            self._give_back()

    @property
    def _forked(self) -> bool:
        """Consumers and their threads stayed in another process. It may not be reset there: a signal would be lost."""
        return self._pid != os.getpid()

    def _handle(self) -> bool:
        if self._forked:
            self.forget()
        if self._is_ours():
            return True
        if not _on_main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return False
        try:
            # Through it the signal wakes the loop; it would otherwise be handled when the loop turns by itself.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: None)
        except (NotImplementedError, RuntimeError):  # pragma: no cover - no signals on this loop
            return False
        signal.signal(signal.SIGTERM, self._signalled)
        return True

    def _is_ours(self) -> bool:
        return signal.getsignal(signal.SIGTERM) == self._signalled

    def _give_back(self) -> None:
        if self._is_ours():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def forget(self) -> None:
        """Begin anew."""
        self._give_back()
        self._consumers.clear()
        self._times, self._over, self._pid = 0, False, os.getpid()

    def _told(self) -> list[StopSignals]:
        consumers = [held() for held in list(self._consumers.values())]
        return [consumer for consumer in consumers if consumer is not None]

    def _signalled(self, number: int, frame: object) -> None:
        self._times += 1
        told = self._told()
        hurry = self._times == 2 and any(consumer.hurries and not consumer.gone for consumer in told)
        if self._forked or self._over or not told or (self._times > 1 and not hurry):
            self._give_back()
            self._system.raise_again()
            return
        for consumer in told:
            consumer.tell(hurry)
        if self._times == 1:
            drain_seconds = max(consumer.drain_seconds for consumer in told)
            exit_seconds = max(consumer.exit_seconds for consumer in told)
            # Not `threading.Thread`: its start takes a lock that the main thread may hold right now.
            _thread.start_new_thread(self._see_it_through, (drain_seconds, exit_seconds))

    def _see_it_through(self, drain_seconds: float, exit_seconds: float) -> None:
        """Wait until all have left and the grace is over. If the process is there after that, it will not end."""
        until = time.monotonic() + drain_seconds + LEAVE_SECONDS
        while time.monotonic() < until and not all(consumer.gone for consumer in self._told()):
            time.sleep(LOOK_SECONDS)
        self._over = True
        time.sleep(exit_seconds)
        if not self._is_ours() and signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return  # The program handles it by itself since.
        log.warning(
            "SIGTERM came and the consumers of this process have left, but the program has not ended %g s later "
            "(LOADTRIM_EXIT_SECONDS): it is ended now. End it by itself: leave the loop around the consumer when "
            "ConsumerStoppedError is raised.",
            exit_seconds,
        )
        self._system.raise_again()
        time.sleep(LAST_SECONDS)
        self._system.give_up()


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


PROCESS = ProcessSignals()


class EndableWait:
    """Lets a plain ``AIOKafkaConsumer`` be told to end between two records, which it has no call for."""

    def __init__(self) -> None:
        self._ended = False
        self._waiting: set[asyncio.Task[Any]] = set()
        """Tasks that wait for a record: several may ask one consumer."""

    def end(self) -> None:
        """From now on no wait begins, and those that go on end. Called in the user's loop."""
        self._ended = True
        for task in self._waiting:
            task.cancel()

    async def until_ended(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a record; nothing is taken by a wait that is ended.

        Raises:
            ConsumerStoppedError: :meth:`end` was called.
        """
        if self._ended:
            work.close()
            raise ConsumerStoppedError()
        task = asyncio.current_task()
        assert task is not None  # It awaits this.
        self._waiting.add(task)
        try:
            return await work
        except asyncio.CancelledError:
            # Somebody else may have cancelled the task too: theirs is passed on.
            if self._ended and task.uncancel() == 0:
                raise ConsumerStoppedError() from None
            raise
        finally:
            self._waiting.discard(task)
