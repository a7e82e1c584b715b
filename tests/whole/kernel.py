"""Virtual time for whole processes: their event loops, their clocks, and the one thread that turns all of them.

Each simulated process has event loops of its own, as the product has: one of user code, one of the agent. A loop is
asyncio's own with another clock and without sockets, so that tasks, futures, time-outs and calls between loops are the
real ones. The kernel turns one loop at a time, a round of its ready callbacks at a time; which of several ready loops
comes next is drawn. What two threads could do to each other in the midst of a callback is therefore not simulated.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NamedTuple

from aiokafka.cluster import ClusterMetadata

from sim.scheduler import Scheduler

__all__ = ["Kernel", "Process", "SimLoop", "StuckError", "Takes"]

EPOCH_SECONDS = 1_700_000_000.0
"""Wall clock at virtual time zero. Chosen."""
RESOLUTION_SECONDS = 1e-6
"""Timers this near are due: clocks with a rate of their own round."""
ROUND_SECONDS = 2e-6
"""A round takes so long: code that waits for a moment that is nearer than the resolution would wait for ever."""
ROUNDS_PER_SECOND_MAX = 100_000
"""Rounds of loops in a virtual second above which something spins. Chosen: some 100 times what a busy group needs."""


class StuckError(AssertionError):
    """Virtual time does not get on: some loop always has something to do."""


class Clock:
    """The clocks of one process.

    Args:
        rate: seconds of this clock per virtual second, about 1.
        skew_seconds: of the wall clock.
    """

    def __init__(self, rate: float = 1.0, skew_seconds: float = 0.0) -> None:
        self.rate = rate
        self.skew_seconds = skew_seconds
        self.suspended_seconds = 0.0
        """What ``time.monotonic`` has missed."""

    def boot(self, now: float) -> float:
        return now * self.rate

    def monotonic(self, now: float) -> float:
        return now * self.rate - self.suspended_seconds

    def wall(self, now: float) -> float:
        return EPOCH_SECONDS + now + self.skew_seconds

    def when(self, monotonic: float) -> float:
        """Return the virtual time at which the monotonic clock shows this."""
        return (monotonic + self.suspended_seconds) / self.rate


class Takes(NamedTuple):
    """Result of a function that would keep its worker thread busy: the thread is free after so many seconds."""

    seconds: float
    then: Callable[[], Any]
    """Called at the end; the thread's result is what it returns."""


class _NoSelector:
    def select(self, timeout: float | None) -> list[Any]:
        return []

    def close(self) -> None:
        pass


class SimLoop(asyncio.BaseEventLoop):
    """One event loop of a simulated process."""

    def __init__(self, kernel: Kernel, process: Process) -> None:
        super().__init__()
        self._kernel = kernel
        self.process = process
        self._selector = _NoSelector()
        self._clock_resolution = RESOLUTION_SECONDS
        self._thread_id = threading.get_ident()
        self.set_exception_handler(process.unhandled)
        self.stopped = False
        self.blocked_until = 0.0
        """Virtual time until which a callback of this loop holds it up."""

    # -- what asyncio asks ---------------------------------------------------------------------------------------

    def time(self) -> float:
        return self.process.clock.monotonic(self._kernel.scheduler.now)

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _call_soon(self, callback: Any, args: Any, context: Any) -> Any:
        self._kernel.awake(self)
        return super()._call_soon(callback, args, context)  # type: ignore[misc]

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        timer = super().call_at(when, callback, *args, context=context)
        self._watch(timer)
        return timer

    def _watch(self, timer: Any) -> None:
        self._kernel.scheduler.at(self.process.clock.when(timer._when), self._timer_due, timer)

    def _timer_due(self, timer: Any) -> None:
        if not timer._cancelled:
            self._kernel.awake(self)

    def watch_again(self) -> None:
        """Look at every timer anew: the clock has changed."""
        for timer in self._scheduled:  # type: ignore[attr-defined]
            self._watch(timer)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """Call it in this loop: what takes time in a worker thread takes none here, but where it says so."""
        done = self.create_future()
        self.call_soon(self._call_into, done, func, args)
        return done

    def _call_into(self, done: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if done.cancelled():
            return
        try:
            result = func(*args)
        except Exception as error:
            done.set_exception(error)
            return
        if isinstance(result, Takes):
            self.call_later(result.seconds, self._call_into, done, result.then, ())
        else:
            done.set_result(result)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **kw: Any) -> Any:
        return await self._kernel.connect(self, protocol_factory, host, port)

    # -- the kernel's --------------------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Return whether a round would do something now."""
        if self._ready:  # type: ignore[attr-defined]
            return True
        timers = self._scheduled  # type: ignore[attr-defined]
        return bool(timers) and timers[0]._when <= self.time() + RESOLUTION_SECONDS

    def round(self) -> None:
        """Run what is ready, as ``_run_once`` of asyncio does, which also asks a selector and takes longer."""
        ready, timers = self._ready, self._scheduled  # type: ignore[attr-defined]
        due = self.time() + RESOLUTION_SECONDS
        while timers and (timers[0]._cancelled or timers[0]._when < due):
            timer = heapq.heappop(timers)
            timer._scheduled = False
            if timer._cancelled:
                self._timer_cancelled_count -= 1
            else:
                ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def forget(self) -> None:
        """Drop everything, as the end of a process does: nothing of it runs any more."""
        self.stopped = True
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]


class Process:
    """One process: a clock, loops, a fate.

    Args:
        kernel: turns its loops.
        name: for traces.
    """

    def __init__(self, kernel: Kernel, name: str, clock: Clock | None = None) -> None:
        self._kernel = kernel
        self.name = name
        self.clock = clock or Clock()
        self.loops: list[SimLoop] = []
        self.frozen_until = 0.0
        self.gone = False
        self.errors: list[dict[str, Any]] = []
        """What no task of the process has handled."""
        kernel.processes.append(self)

    def loop(self) -> SimLoop:
        """Return one more event loop."""
        loop = SimLoop(self._kernel, self)
        self.loops.append(loop)
        return loop

    @property
    def boot_time(self) -> float:
        return self.clock.boot(self._kernel.now)

    @property
    def frozen(self) -> bool:
        return self._kernel.now < self.frozen_until

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task in the first loop, which is the user's."""
        loop = self.loops[0] if self.loops else self.loop()
        return loop.create_task(work)

    def freeze(self, seconds: float, *, suspend: bool = False) -> None:
        """Stop everything for a while, as SIGSTOP does; ``suspend``: the monotonic clock stands still as well."""
        until = self._kernel.now + seconds
        self.frozen_until = max(self.frozen_until, until)
        if suspend:
            self._kernel.scheduler.at(until, self._slept, seconds)
        self._kernel.scheduler.at(self.frozen_until, self._thaw)

    def _slept(self, seconds: float) -> None:
        self.clock.suspended_seconds += seconds * self.clock.rate
        for loop in self.loops:
            loop.watch_again()

    def _thaw(self) -> None:
        if not self.frozen and not self.gone:
            for loop in self.loops:
                self._kernel.awake(loop)

    def block(self, loop: SimLoop, seconds: float) -> None:
        """Let one loop do nothing for a while, as code does that computes."""
        loop.blocked_until = self._kernel.now + seconds
        self._kernel.scheduler.at(loop.blocked_until, self._kernel.awake, loop)

    def kill(self) -> None:
        """End it at once."""
        self.gone = True
        self._kernel.ended(self)
        for loop in self.loops:
            loop.forget()

    def unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Note what nobody handled; see :attr:`errors`."""
        if not self.gone:
            self.errors.append(context)


class Kernel:
    """Virtual time and everything that moves in it.

    Args:
        seed: of every draw.
    """

    def __init__(self, seed: int) -> None:
        self.scheduler = Scheduler(seed)
        self.rng: random.Random = self.scheduler.rng
        self.processes: list[Process] = []
        self.rounds = 0
        self.violation: BaseException | None = None
        """Raised by the kernel after the round in which it was found: a task would swallow it."""
        self.connect: Callable[..., Coroutine[Any, Any, Any]] = _no_network
        self.on_end: Callable[[Process], None] = lambda process: None
        self._awake: dict[SimLoop, None] = {}
        self._current: Process | None = None
        self._running: SimLoop | None = None
        """The loop that asyncio takes for the running one."""

    @property
    def now(self) -> float:
        return self.scheduler.now

    def awake(self, loop: SimLoop) -> None:
        """A loop has something to do."""
        self._awake[loop] = None

    def ended(self, process: Process) -> None:
        self.on_end(process)

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        until = self.now + seconds
        most = self.rounds + ROUNDS_PER_SECOND_MAX * max(1.0, seconds)
        try:
            while self._step(until):
                if self.violation is not None:
                    raise self.violation
                if self.rounds > most:
                    raise StuckError(f"virtual time stands still at {self.now:.4f}: something spins")
        finally:
            self._enter(None)

    def run_until(self, condition: Callable[[], bool], *, seconds: float) -> bool:
        """Let time pass until the condition holds. False: it did not within ``seconds``."""
        end = self.now + seconds
        while not condition():
            if self.now >= end:
                return False
            self.run(0.05)
        return True

    def _step(self, until: float) -> bool:
        if self.scheduler.due:
            return self.scheduler.step(until)
        awake = self._awake
        while awake:
            loop = next(iter(awake)) if len(awake) == 1 else self.rng.choice(list(awake))
            del awake[loop]
            process = loop.process
            if loop.stopped or process.frozen or self.scheduler.now < loop.blocked_until:
                continue  # it is woken when that is over
            if loop.pending:
                self._round(loop, process)
                return True
        return self.scheduler.step(until)

    def _round(self, loop: SimLoop, process: Process) -> None:
        self.rounds += 1
        self.scheduler.pass_time(ROUND_SECONDS)
        self._current = process
        self._enter(loop)
        try:
            loop.round()
        finally:
            self._current = None
        if not loop.stopped and loop.pending:
            self.awake(loop)

    def _enter(self, loop: SimLoop | None) -> None:
        """Have asyncio take it for the running loop; each time asks the system for the process's id (Python 3.11)."""
        if loop is not self._running:
            self._running = loop
            asyncio.events._set_running_loop(loop)

    # -- clocks --------------------------------------------------------------------------------------------------

    def _boot_time(self) -> float:
        return self._current.clock.boot(self.now) if self._current else self.now

    def _monotonic(self) -> float:
        return self._current.clock.monotonic(self.now) if self._current else self.now

    def _wall_time(self) -> float:
        return self._current.clock.wall(self.now) if self._current else EPOCH_SECONDS + self.now

    @contextlib.contextmanager
    def in_charge(self) -> Iterator[None]:
        """Within this block all clocks of the product and of its libraries are the kernel's, and draws are seeded."""
        from loadtrim_agent.common import clock

        ours = {clock.boot_time: self._boot_time, clock.wall_time: self._wall_time}
        before: list[tuple[Any, str, Any]] = []
        for name, module in list(sys.modules.items()):
            if not name.startswith(("loadtrim", "loadtrim_agent")) or module is None:
                continue
            for attribute in ("boot_time", "wall_time"):
                original = vars(module).get(attribute)
                if original in ours:
                    before.append((module, attribute, original))
                    setattr(module, attribute, ours[original])
        for attribute, replacement in (("monotonic", self._monotonic), ("time", self._wall_time)):
            before.append((time, attribute, getattr(time, attribute)))
            setattr(time, attribute, replacement)
        # The hash of None, which a broker without a rack has, is an address, and so is that of a listener: sets of them
        # have no order to repeat.
        before.append((ClusterMetadata, "brokers", ClusterMetadata.brokers))
        ClusterMetadata.brokers = _sorted_brokers
        before.append((ClusterMetadata, "__init__", ClusterMetadata.__init__))
        ClusterMetadata.__init__ = _with_listeners_in_order(ClusterMetadata.__init__)
        state = random.getstate()
        random.seed(self.rng.random())
        try:
            yield
        finally:
            random.setstate(state)
            for module, attribute, original in before:
                setattr(module, attribute, original)
            for process in self.processes:
                for loop in process.loops:
                    loop.forget()


def _sorted_brokers(cluster: ClusterMetadata) -> list[Any]:
    known = cluster._brokers or cluster._bootstrap_brokers
    return sorted(known.values(), key=str)


class _InOrder(dict[Any, None]):
    """As much of a set as aiokafka needs for its listeners, in the order in which they came."""

    def add(self, listener: Any) -> None:
        self[listener] = None

    def remove(self, listener: Any) -> None:
        del self[listener]


def _with_listeners_in_order(begin: Callable[..., None]) -> Callable[..., None]:
    def begin_in_order(cluster: Any, *arguments: Any, **named: Any) -> None:
        begin(cluster, *arguments, **named)
        cluster._listeners = _InOrder()

    return begin_in_order


async def _no_network(*_: Any) -> Any:
    raise ConnectionRefusedError("there is no network")
