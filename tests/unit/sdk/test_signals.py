"""Who handles SIGTERM, from when until when, and what becomes of a program that does not end."""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka.errors import ConsumerStoppedError

from loadtrim import Settings
from loadtrim import signals as module
from loadtrim.signals import EndableWait, ProcessSignals, StopSignals
from loadtrim.sigterm import LoopWaker

WAIT_SECONDS = 10.0
Process = tuple[ProcessSignals, list[str]]


class Member:
    """A consumer as its signals see it: takes note of each request to leave."""

    def __init__(self) -> None:
        self.asked: list[bool] = []
        self.left = False

    def end_iteration(self, at_once: bool) -> None:
        self.asked.append(at_once)


class Told(list[str]):
    """A system that takes note of how it is to end the process."""

    def raise_again(self) -> None:
        self.append("raised")

    def give_up(self) -> None:
        self.append("given up")


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    """The handler of a process that is told instead of ended."""
    monkeypatch.setattr(module, "LAST_SECONDS", 0.0)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    done = Told()
    process = ProcessSignals(done)
    yield process, done
    process.forget()
    signal.signal(signal.SIGTERM, before)


def signals_of(member: Member, process: Process, **options: Any) -> StopSignals:
    settings: dict[str, Any] = {"enabled": True, "drain_seconds": 60.0, "exit_seconds": 0.01, **options}
    return StopSignals(member, process=process[0], **settings)


async def terminate() -> None:
    """SIGTERM, and a turn of the loop."""
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.01)


async def until_done(done: list[str], what: list[str]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while done != what:  # noqa: ASYNC110 - another thread does it
            await asyncio.sleep(0.01)


async def test_the_first_one_hands_over_and_the_second_leaves_at_once(process: Process) -> None:
    member = Member()
    signals = signals_of(member, process)
    signals.install()
    for _ in range(2):
        await terminate()
    assert member.asked == [False, True]
    assert signals.at_once
    assert process[1] == []


async def test_all_consumers_of_a_process_hear_it(process: Process) -> None:
    members = [Member(), Member()]
    signals = [signals_of(member, process) for member in members]
    for each in signals:
        each.install()
    await terminate()
    assert [member.asked for member in members] == [[False], [False]]


async def test_a_consumer_in_another_thread_hears_it_while_its_loop_is_blocked(process: Process) -> None:
    main, other = Member(), Member()
    signals = [signals_of(main, process), signals_of(other, process)]
    signals[0].install()
    blocked, heard = threading.Event(), threading.Event()

    async def consume() -> None:
        signals[1].install()
        blocked.set()
        heard.wait(WAIT_SECONDS)

    thread = threading.Thread(target=lambda: asyncio.run(consume()))
    thread.start()
    assert await asyncio.to_thread(blocked.wait, WAIT_SECONDS)
    await terminate()
    assert main.asked == other.asked == [False]
    heard.set()
    thread.join()


async def test_a_consumer_hears_it_before_its_loop_turns(process: Process) -> None:
    """User code may block the loop for as long as it likes."""
    member = Member()
    signals = signals_of(member, process)
    signals.install()
    os.kill(os.getpid(), signal.SIGTERM)
    assert member.asked == [False]


async def test_a_consumer_in_a_thread_that_started_before_the_main_threads_first_one_hears_it(process: Process) -> None:
    main, other = Member(), Member()
    thread_is_up, end = threading.Event(), threading.Event()

    async def consume() -> None:
        signals = signals_of(other, process)
        signals.install()
        thread_is_up.set()
        await asyncio.to_thread(end.wait, WAIT_SECONDS)
        signals.remove()  # The last one, and not on the main thread.

    thread = threading.Thread(target=lambda: asyncio.run(consume()))
    thread.start()
    assert await asyncio.to_thread(thread_is_up.wait, WAIT_SECONDS)
    signals = signals_of(main, process)
    signals.install()
    await terminate()
    async with asyncio.timeout(WAIT_SECONDS):
        while not other.asked:  # noqa: ASYNC110 - another thread does it
            await asyncio.sleep(0.005)
    signals.remove()
    end.set()
    await asyncio.to_thread(thread.join)
    assert main.asked == other.asked == [False]


async def test_the_signal_is_the_systems_again_with_the_last_consumer(process: Process) -> None:
    first, second = Member(), Member()
    signals = [signals_of(first, process), signals_of(second, process)]
    for each in signals:
        each.install()
    signals[0].remove()
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    signals[1].remove()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_signals_are_left_alone_where_that_is_asked_for(process: Process) -> None:
    signals_of(Member(), process, enabled=False).install()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_a_handler_of_the_program_is_left_in_its_place(process: Process) -> None:
    taken: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: taken.append(number))
    member = Member()
    signals_of(member, process).install()
    await terminate()
    assert (taken, member.asked) == ([signal.SIGTERM], [])


async def test_a_handler_that_the_program_sets_later_is_left_in_its_place(process: Process) -> None:
    signals = signals_of(Member(), process)
    signals.install()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signals.remove()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


@pytest.mark.parametrize("when", ["while the consumer runs", "after its stop"])
def test_a_handler_that_the_program_sets_outlives_the_loop(process: Process, when: str) -> None:
    def theirs(number: int, frame: object) -> None: ...

    async def consume() -> None:
        signals = signals_of(Member(), process)
        signals.install()
        if when == "while the consumer runs":
            signal.signal(signal.SIGTERM, theirs)
        signals.remove()
        if when == "after its stop":
            signal.signal(signal.SIGTERM, theirs)

    asyncio.run(consume())
    assert signal.getsignal(signal.SIGTERM) is theirs


def chain() -> list[int]:
    """Set a handler of the program's own that calls the one before it, and return what it is called with."""
    taken: list[int] = []
    before = signal.getsignal(signal.SIGTERM)
    assert callable(before)

    def theirs(number: int, frame: Any) -> None:
        taken.append(number)
        before(number, frame)

    signal.signal(signal.SIGTERM, theirs)
    return taken


async def test_a_handler_that_calls_ours_is_never_called_by_it(process: Process) -> None:
    """Ours would raise the signal again, which comes to theirs, which calls ours."""
    member = Member()
    signals = signals_of(member, process)
    signals.install()
    taken = chain()
    for _ in range(3):
        await terminate()
    assert member.asked == [False, True]
    member.left = True
    await terminate()
    signals.remove()
    await terminate()
    assert (len(taken), process[1]) == (5, [])


async def test_a_handler_that_calls_ours_with_no_consumer_left_ends_the_start_of_others(process: Process) -> None:
    signals = signals_of(Member(), process)
    signals.install()
    taken = chain()
    signals.remove()
    await terminate()
    assert (len(taken), process[1]) == (1, [])
    with pytest.raises(ConsumerStoppedError, match="SIGTERM"):
        signals.check()


async def test_a_consumer_that_starts_under_a_handler_that_calls_ours_is_told(process: Process) -> None:
    first, second = Member(), Member()
    signals = [signals_of(first, process), signals_of(second, process)]
    signals[0].install()
    chain()
    signals[1].install()
    await terminate()
    assert first.asked == second.asked == [False]


async def test_a_loop_that_sleeps_wakes_for_a_signal_that_another_thread_received(process: Process) -> None:
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    member = Member()
    member.end_iteration = lambda at_once: loop.call_soon(heard.set)  # type: ignore[assignment, method-assign]
    signals = signals_of(member, process)
    signals.install()
    asleep = threading.Event()

    def receive() -> None:
        asleep.wait()
        time.sleep(0.05)  # A signal that comes before the loop sleeps is heard anyway, and shows nothing.
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    thread = threading.Thread(target=receive)
    thread.start()
    loop.call_soon(asleep.set)
    loop.call_later(WAIT_SECONDS, heard.set)  # It wakes then by itself.
    began = loop.time()
    await heard.wait()
    assert loop.time() < began + WAIT_SECONDS
    thread.join()


async def test_what_wakes_the_loop_is_given_back_with_the_signal(process: Process) -> None:
    signals = signals_of(Member(), process)
    signals.install()
    signals.remove()
    assert signal.set_wakeup_fd(-1) == -1


async def test_what_wakes_a_loop_for_somebody_else_stays(process: Process) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, lambda: None)
    theirs = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(theirs)
    signals = signals_of(Member(), process)
    try:
        signals.install()
        assert signal.set_wakeup_fd(theirs) == theirs
        signals.remove()
        assert signal.set_wakeup_fd(theirs) == theirs
    finally:
        loop.remove_signal_handler(signal.SIGUSR1)


async def test_it_is_raised_again_when_the_consumers_have_left_and_the_grace_is_over(process: Process) -> None:
    member = Member()
    signals = signals_of(member, process)
    signals.install()
    await terminate()
    await asyncio.sleep(3 * module.LOOK_SECONDS)
    assert process[1] == [], "it hands over"
    member.left = True
    await until_done(process[1], ["raised", "given up"])


def test_with_the_defaults_a_process_ends_within_what_kubernetes_waits_for() -> None:
    settings = Settings()
    seconds = settings.drain_seconds + module.LEAVE_SECONDS + settings.exit_seconds + module.LAST_SECONDS
    assert seconds < 30.0


async def test_it_is_raised_again_where_a_consumer_never_leaves(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAVE_SECONDS", 0.0)
    signals = signals_of(Member(), process, drain_seconds=0.1)
    signals.install()
    await terminate()
    await until_done(process[1], ["raised", "given up"])


async def test_a_second_one_is_the_systems_when_the_consumers_have_left(process: Process) -> None:
    member = Member()
    signals = signals_of(member, process, exit_seconds=60.0)
    signals.install()
    await terminate()
    member.left = True
    await terminate()
    assert process[1] == ["raised"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert member.asked == [False]


async def test_a_second_one_is_the_systems_where_nothing_can_be_made_faster(process: Process) -> None:
    member = Member()
    signals_of_plain = signals_of(member, process, hurries=False)
    signals_of_plain.install()
    for _ in range(2):
        await terminate()
    assert (member.asked, process[1]) == ([False], ["raised"])


async def test_a_third_one_is_the_systems(process: Process) -> None:
    member = Member()
    signals = signals_of(member, process)
    signals.install()
    for _ in range(3):
        await terminate()
    assert (member.asked, process[1]) == ([False, True], ["raised"])


async def test_no_consumer_starts_in_a_process_that_is_to_end(process: Process) -> None:
    member, late = Member(), Member()
    signals = [signals_of(member, process), signals_of(late, process)]
    signals[0].install()
    signals[1].check()
    await terminate()
    with pytest.raises(ConsumerStoppedError, match="SIGTERM"):
        signals[1].check()
    signals[1].install()  # It was about to start when the signal came.
    assert late.asked == [False]


async def test_a_consumer_that_nobody_has_any_more_is_not_waited_for(process: Process) -> None:
    member, forgotten = Member(), Member()
    signals = [signals_of(member, process), signals_of(forgotten, process)]
    for each in signals:
        each.install()
    del forgotten
    await terminate()
    member.left = True
    await until_done(process[1], ["raised", "given up"])


async def test_a_start_that_fails_is_told_nothing_any_more(process: Process) -> None:
    member = Member()
    signals = signals_of(member, process)
    with pytest.raises(OSError, match="no broker"), signals.starting():
        raise OSError("no broker")
    assert signals.gone
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_a_consumer_that_is_started_twice_is_told_all_the_same(process: Process) -> None:
    member = Member()
    signals = signals_of(member, process)
    with signals.starting():
        pass
    with pytest.raises(ValueError, match="twice"), signals.starting():
        raise ValueError("twice")
    await terminate()
    assert member.asked == [False]


class Clock:
    """Time that passes only where the test sleeps; at given times something happens.

    A thread that an earlier test's signal has begun still looks at the same module's time: it has its own.
    """

    def __init__(self, **happens: Any) -> None:
        self.now = 0.0
        self._thread = threading.get_ident()
        self._happens = sorted((float(at.removeprefix("at_")), call) for at, call in happens.items())

    def monotonic(self) -> float:
        return self.now if threading.get_ident() == self._thread else time.monotonic()

    def sleep(self, seconds: float) -> None:
        if threading.get_ident() != self._thread:
            time.sleep(seconds)
            return
        self.now += seconds
        while self._happens and self._happens[0][0] <= self.now:
            self._happens.pop(0)[1]()


async def test_a_consumer_that_comes_in_the_grace_is_waited_for(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had begun to start when SIGTERM came."""
    first, late = Member(), Member()
    first.left = True
    signals = [signals_of(first, process), signals_of(late, process)]
    signals[0].install()
    clock = Clock(at_3=signals[1].install, at_10=lambda: setattr(late, "left", True))
    monkeypatch.setattr(module, "time", clock)
    process[0]._see_it_through(60.0, 5.0)
    assert process[1] == ["raised", "given up"]
    assert clock.now == pytest.approx(10.0 + 5.0, abs=3 * module.LOOK_SECONDS)


async def test_the_sum_of_drain_leave_and_grace_is_not_exceeded(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = Member()
    signals = signals_of(member, process)
    signals.install()
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    process[0]._see_it_through(60.0, 5.0)
    assert process[1] == ["raised", "given up"]
    assert clock.now == pytest.approx(60.0 + module.LEAVE_SECONDS + 5.0, abs=3 * module.LOOK_SECONDS)


def test_nobody_goes_on_with_a_record_where_the_loop_is_closed(process: Process) -> None:
    member = Member()
    signals = signals_of(member, process)

    async def consume() -> None:
        signals.install()

    asyncio.run(consume())
    signals.tell(False)
    assert member.asked == [True]


SPIN = """
import asyncio, os, signal, time
from loadtrim.signals import StopSignals

class Member:
    left = True
    def end_iteration(self, at_once): print("asked", at_once, flush=True)

async def spin():
    member = Member()
    signals = StopSignals(member, enabled=True, drain_seconds=1.0, exit_seconds=0.2)
    signals.install()
    {before}
    os.kill(os.getpid(), signal.SIGTERM)
    while True: {loop}

asyncio.run(spin())
"""


def ended(loop: str, before: str = "") -> subprocess.CompletedProcess[str]:
    program = SPIN.format(loop=loop, before=before)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60.0)


def test_a_loop_that_never_turns_again_is_ended() -> None:
    done = ended("pass")
    assert done.returncode == -signal.SIGTERM
    assert "has not ended 0.2 s later" in done.stderr


def test_a_program_that_waits_for_ever_is_ended() -> None:
    done = ended("await asyncio.sleep(3600)")
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "asked False\n")


@pytest.mark.slow
def test_a_main_thread_that_runs_no_python_any_more_is_ended() -> None:
    """Its handler would never run."""
    done = ended(
        "lock.acquire()" if sys.platform == "win32" else "signal.pthread_sigmask(0, [15]); import time; time.sleep(9)"
    )
    assert done.returncode == 128 + signal.SIGTERM


@pytest.mark.slow
def test_a_handler_that_calls_ours_in_a_child_that_was_forked_is_called_once() -> None:
    fork = """
    before, taken = signal.getsignal(signal.SIGTERM), []
    def theirs(number, frame):
        taken.append(number)
        before(number, frame)
    signal.signal(signal.SIGTERM, theirs)
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(40 + len(taken))
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    """
    done = ended("break", before=fork.strip())
    assert "child 41\n" in done.stdout, done.stderr


@pytest.mark.slow
def test_a_child_that_was_forked_ends_as_without_us() -> None:
    fork = """
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(told, b"x")
        time.sleep(60)
        os._exit(1)
    os.read(ready, 1)
    os.kill(child, signal.SIGTERM)
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    """
    done = ended("await asyncio.sleep(3600)", before=fork.strip())
    assert "child -15\n" in done.stdout, done.stderr


async def test_every_task_that_waits_for_a_record_is_ended() -> None:
    wait, begun = EndableWait(asyncio.get_running_loop()), asyncio.Semaphore(0)

    async def a_record() -> None:
        begun.release()
        await asyncio.Event().wait()

    async def work() -> None:
        with pytest.raises(ConsumerStoppedError):
            await wait.until_ended(a_record())

    tasks = [asyncio.create_task(work()) for _ in range(2)]
    for _ in tasks:
        await begun.acquire()
    wait.end()
    await asyncio.wait_for(asyncio.gather(*tasks), WAIT_SECONDS)


async def test_a_wait_that_is_over_is_not_ended() -> None:
    wait = EndableWait(asyncio.get_running_loop())
    assert await wait.until_ended(asyncio.sleep(0, "record")) == "record"
    wait.end()
    await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_no_wait_begins_before_the_loop_turns() -> None:
    """A loop over records that are there does not let it turn."""
    wait = EndableWait(asyncio.get_running_loop())
    wait.end()
    with pytest.raises(ConsumerStoppedError):
        await wait.until_ended(asyncio.sleep(0))


async def test_a_task_that_user_code_cancels_at_the_same_time_is_cancelled() -> None:
    wait = EndableWait(asyncio.get_running_loop())
    task = asyncio.create_task(wait.until_ended(asyncio.Event().wait()))
    await asyncio.sleep(0)
    task.cancel()
    wait.end()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_loop_is_woken_where_no_pipe_can_be_read(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has no ``os.set_blocking`` before Python 3.12, and its loops read sockets alone: each start raised."""
    monkeypatch.delattr(os, "set_blocking")
    member = Member()
    signals = signals_of(member, process)
    signals.install()
    with socket.socket(fileno=os.dup(signal.set_wakeup_fd(-1))) as written:
        assert written.send(b"1") == 1


async def test_what_wakes_the_loop_is_closed_at_the_end_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """With warnings as errors each program told two ``ResourceWarning`` of sockets that were not its own."""
    at_exit: list[Callable[[], object]] = []
    monkeypatch.setattr(atexit, "register", at_exit.append)
    LoopWaker().wake(asyncio.get_running_loop())
    written = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(written)
    (close,) = at_exit
    close()
    assert signal.set_wakeup_fd(-1) == -1, "nothing is written to what is closed"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(written)
