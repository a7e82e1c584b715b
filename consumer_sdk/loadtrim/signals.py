"""SIGTERM: one handler for all consumers of a process. They hand over and leave, then the signal is the system's again.

A program that was told to end and does not is ended: the signal is raised again when its consumers have left and a
grace is over. Without this package the first SIGTERM ends it. So a loop that never looks at what it is told must not
outlive the signal here.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import enum
import logging
import os
import signal
import threading
import time
import weakref
from collections.abc import Coroutine, Iterator
from typing import Any, Protocol, TypeVar

from aiokafka.errors import ConsumerStoppedError

from .sigterm import LoopWaker, OperatingSystem, System

__all__ = ["EndableWait", "ProcessSignals", "StopSignals"]

log = logging.getLogger("loadtrim")

T = TypeVar("T")

LOOK_SECONDS = 0.05
LEAVE_SECONDS = 3.0
"""Chosen: after the drain a member commits, for at most 1 s, and leaves. A broker that does not answer holds the end up
no longer. With the defaults of drain and grace the sum stays below the 30 s of Kubernetes."""
LAST_SECONDS = 1.0
"""Chosen: a main thread that runs no Python any more does not hear the signal, and is ended without it."""


class Leaver(Protocol):
    """A consumer as SIGTERM sees it."""

    def end_iteration(self, at_once: bool) -> None:
        """End the iteration after the record in hand, and leave the group.

        Called in any thread, and in a signal handler: it takes no lock, and waits for nothing that user code does.
        """

    @property
    def left(self) -> bool:
        """Return whether the member is out of its group. Called in any thread."""


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

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Hear the signal while the consumer starts, and from then on; no more where the start fails."""
        known = self._loop is not None
        self.install()
        try:
            yield
        except BaseException:
            if not known:  # The start of a consumer that is started already fails too.
                self.remove()
            raise

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
        """SIGTERM has come. Called in any thread, and in the signal's handler."""
        self.at_once = at_once
        leaver, loop = self._leaver(), self._loop
        if leaver is not None and loop is not None:
            # Where the loop is closed nobody goes on with the record in hand.
            leaver.end_iteration(at_once or loop.is_closed())

    @property
    def gone(self) -> bool:
        """The consumer has stopped, has left its group, or nobody has it any more."""
        leaver = self._leaver()
        return self._loop is None or leaver is None or leaver.left


class EndPhase(enum.Enum):
    """The phase of a process on its way to its end. Each leads to a later one, when SIGTERM comes.

    * ``CONSUMING``, with a consumer: ``HANDING_OVER``. All hand over, and a thread sees the end through.
    * ``HANDING_OVER``, while a consumer could leave faster: ``HURRYING``. All leave at once.
    * Otherwise: ``OVER``. The signal is the system's.
    """

    CONSUMING = enum.auto()
    HANDING_OVER = enum.auto()
    HURRYING = enum.auto()
    OVER = enum.auto()


class ProcessSignals:
    """Handles SIGTERM of the process while a consumer wants it, if nobody else does.

    The handler is Python's, which the main thread runs between two instructions, also where its event loop never turns
    again. It takes no lock: the main thread may hold any. Consumers are noted whatever the handler is: ours may be set
    later, and one that user code sets may call ours.

    Args:
        system: ends the process; None: the operating system.
    """

    def __init__(self, system: System | None = None) -> None:
        self._system = OperatingSystem() if system is None else system
        self._waker = LoopWaker()
        self._consumers: dict[int, weakref.ref[StopSignals]] = {}
        self._pid = os.getpid()
        self._phase = EndPhase.CONSUMING

    @property
    def ending(self) -> bool:
        """SIGTERM has come."""
        return self._phase is not EndPhase.CONSUMING and not self._forked

    def add(self, consumer: StopSignals) -> None:
        """Tell this consumer of the signal; at once where it has come already. Called in any thread."""
        if self._forked:
            self.forget()
        self._take()
        self._consumers[id(consumer)] = weakref.ref(consumer)
        if self.ending:
            consumer.tell(False)

    def remove(self, consumer: StopSignals) -> None:
        """The signal is the system's again with the last consumer, if that one stops on the main thread."""
        self._consumers.pop(id(consumer), None)
        if not self._told() and not self.ending:
            self._give_back()

    def forget(self) -> None:
        """Begin anew."""
        self._give_back()
        self._waker = LoopWaker()
        self._consumers.clear()
        self._phase, self._pid = EndPhase.CONSUMING, os.getpid()

    @property
    def _forked(self) -> bool:
        """Consumers and their threads stayed in another process. It may not be reset there: a signal would be lost."""
        return self._pid != os.getpid()

    def _take(self) -> None:
        """Handle the signal if nobody else does. Only the main thread may: others wait for its first consumer."""
        if not _on_main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._signalled)
        if self._is_ours():
            with contextlib.suppress(NotImplementedError):  # A loop that reads no sockets wakes by itself only.
                self._waker.wake(asyncio.get_running_loop())

    def _is_ours(self) -> bool:
        return signal.getsignal(signal.SIGTERM) == self._signalled

    def _give_back(self) -> bool:
        """Let the system have the signal. Return whether it was ours to give."""
        if not _on_main_thread():
            return False
        self._waker.stop()
        if not self._is_ours():
            return False
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return True

    def _told(self) -> list[StopSignals]:
        consumers = [held() for held in list(self._consumers.values())]
        return [consumer for consumer in consumers if consumer is not None]

    def _signalled(self, number: int, frame: object) -> None:
        told = self._told()
        if self._phase is EndPhase.CONSUMING and told and not self._forked:
            self._phase = EndPhase.HANDING_OVER
            self._tell(told)
            drain_seconds = max(consumer.drain_seconds for consumer in told)
            exit_seconds = max(consumer.exit_seconds for consumer in told)
            # Not `threading.Thread`: its start takes a lock that the main thread may hold right now.
            _thread.start_new_thread(self._see_it_through, (drain_seconds, exit_seconds))
        elif self._can_hurry(told):
            self._phase = EndPhase.HURRYING
            self._tell(told)
        else:
            if not self._forked:
                self._phase = EndPhase.OVER
            # A handler of the program's own that calls this one decides for itself: it would be called for ever.
            if self._give_back():
                self._system.raise_again()

    def _can_hurry(self, told: list[StopSignals]) -> bool:
        """Return whether a consumer is handing over that could leave at once instead."""
        hurries = any(consumer.hurries and not consumer.gone for consumer in told)
        return self._phase is EndPhase.HANDING_OVER and hurries and not self._forked

    def _tell(self, told: list[StopSignals]) -> None:
        hurry = self._phase is EndPhase.HURRYING
        for consumer in told:
            consumer.tell(hurry)
        # In a thread, for logging takes locks.
        _thread.start_new_thread(log.info, ("SIGTERM: %s", "leaving at once" if hurry else "handing over and leaving"))

    def _see_it_through(self, drain_seconds: float, exit_seconds: float) -> None:
        """Wait until all have left and the grace is over. If the process is there after that, it will not end."""
        until = time.monotonic() + drain_seconds + LEAVE_SECONDS
        ends: float | None = None
        while ends is None or time.monotonic() < ends:
            time.sleep(LOOK_SECONDS)
            now = time.monotonic()
            if now < until and not all(consumer.gone for consumer in self._told()):
                ends = None  # Also where a consumer has come since the others left.
            elif ends is None:
                ends = now + exit_seconds
        self._phase = EndPhase.OVER
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
    """Lets a plain ``AIOKafkaConsumer`` be told to end between two records, which it has no call for.

    Args:
        loop: the loop that user code runs in.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ended = False
        self._waiting: set[asyncio.Task[Any]] = set()
        """Tasks that wait for a record: several may ask one consumer. Invariant: none of them was cancelled here."""

    def end(self) -> None:
        """From now on no wait begins, and those that go on end. Called in any thread."""
        self._ended = True  # At once: a loop over records that are there may not let the event loop turn.
        with contextlib.suppress(RuntimeError):  # The loop is closed: nothing waits in it.
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        waiting = list(self._waiting)
        self._waiting.clear()
        for task in waiting:
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
            if task not in self._waiting and task.uncancel() == 0:
                raise ConsumerStoppedError() from None
            raise
        finally:
            self._waiting.discard(task)
