"""The local orchestrator: runs a command several times and does what the group's leader asks for.

:class:`LocalOrchestrator` is what ``loadtrim up`` is made of; tests, demo and benchmarks use it directly. It decides
nothing: :mod:`loadtrim.orchestrator.supervisor` does, this starts, signals and reaps processes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from loadtrim.settings import Settings
from loadtrim_agent.common.host import REQUESTED_AT, start_mark
from loadtrim_agent.observability.text import wish_line

from .events import Changes, EventLog
from .instances import CommandNotFoundError, EventKind, InstanceInfo, OrchestratorEvent, OrchestratorOptions
from .processes import InstanceProcesses
from .supervisor import (
    INSTANCES_MAX,
    Command,
    DropCommand,
    Event,
    ExitedEvent,
    KillAllEvent,
    KillCommand,
    PlanEvent,
    PlanOutcome,
    ScaleEvent,
    StartCommand,
    StopEvent,
    Supervisor,
    SupervisorConfig,
    TerminateCommand,
    TickEvent,
    WaitCommand,
    WantedState,
)
from .usage import InstanceUsage, ReplicaCount
from .webhook import Reply, Webhook

__all__ = [
    "CommandNotFoundError",
    "EventKind",
    "InstanceInfo",
    "LocalOrchestrator",
    "OrchestratorEvent",
    "OrchestratorOptions",
]

STOP_MARGIN_SECONDS = 5.0
"""Added to the drain and the exit time: a program ends by itself within 4 s more (``loadtrim.signals``)."""

_log = logging.getLogger("loadtrim.up")


class LocalOrchestrator:
    """A command that runs as several instances, with the scaling webhook for them.

    Every instance gets the environment of this process and ``LOADTRIM_INSTANCE``, ``LOADTRIM_SCALER=webhook``,
    ``LOADTRIM_SCALER_URL``, ``LOADTRIM_SCALER_TOKEN`` and ``LOADTRIM_HTTP=127.0.0.1:0``. Instances run in process
    groups of their own, so Ctrl-C in the terminal reaches only this process; none of them outlives it, not even
    when it is killed. Linux and macOS.

    ::

        async with LocalOrchestrator(["python", "service.py"], OrchestratorOptions(replicas=3)) as up:
            await up.wait_until(lambda up: up.replicas == 3)

    Leaving the block ends all instances in order (SIGTERM, then SIGKILL after ``stop_seconds``).

    Args:
        command: the command and its arguments, not interpreted by any shell.
        options: see there.
        on_event: called on the event loop for every event; what it raises is logged.
    """

    def __init__(
        self,
        command: Sequence[str],
        options: OrchestratorOptions | None = None,
        on_event: Callable[[OrchestratorEvent], None] | None = None,
    ) -> None:
        self.command = tuple(command)
        self.options = options or OrchestratorOptions()
        self.token = secrets.token_urlsafe(24)
        self.killed = 0
        """Instances that had to be killed so far."""
        self._events = EventLog(on_event)
        self._env = dict(self.options.env if self.options.env is not None else os.environ)
        config = _supervisor_config(self.options, self._env)
        self._supervisor = Supervisor(config)
        self._usage = InstanceUsage()
        self._webhook = Webhook(self.token, self)
        self._processes = InstanceProcesses(self.command, self.options, config.stop_seconds)
        self._changes = Changes()
        self._main: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The address that plans are sent to."""
        return self._webhook.url

    @property
    def replicas(self) -> int:
        """Instances that have a process now, those that are ending included."""
        return self._usage.running

    @property
    def wanted(self) -> int:
        """The number of instances that there are to be; 0 once it stops."""
        return self._supervisor.wanted

    @property
    def instances(self) -> tuple[InstanceInfo, ...]:
        """The instances that have not ended, oldest first."""
        return tuple(self._processes.describe(each, epoch=self._events.epoch) for each in self._supervisor.instances)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that have sent a plan, in order of appearance."""
        return tuple(self._supervisor.plans)

    @property
    def history(self) -> list[ReplicaCount]:
        """(time in seconds since the epoch, instances that had a process from then on), oldest first."""
        return [ReplicaCount(at + self._events.epoch, running) for at, running in self._usage.history]

    @property
    def log_directory(self) -> Path | None:
        """The directory of the instances' output; None: it is not kept (lines go to ``on_line``)."""
        return self._processes.log_directory

    def replica_seconds(self, since: float | None = None, until: float | None = None) -> float:
        """Sum over all instances of the time from being asked for until the end of the process.

        Args:
            since: beginning of the window, seconds since the epoch; None: from the first one on.
            until: its end; None: now.
        """
        return self._usage.replica_seconds(
            self._events.now() if until is None else until - self._events.epoch,
            None if since is None else since - self._events.epoch,
        )

    def failing(self, failures: int) -> bool:
        """Return whether nothing runs because every instance ended by itself so many times right after its start."""
        return self._supervisor.failing(failures)

    @property
    def over(self) -> bool:
        """Return whether all instances have ended and none is started any more."""
        return self._main is None or self._main.done()

    def describe(self) -> dict[str, Any]:
        """The state as JSON-able values: what ``GET`` on the webhook answers."""
        return {
            "wanted": self.wanted,
            "replicas": self.replicas,
            "replica_seconds": round(self.replica_seconds(), 3),
            "groups": list(self.groups),
            "instances": [
                {
                    "instance": each.name,
                    "state": each.phase.value,
                    "process_id": each.process_id,
                    "log": str(each.log) if each.log else None,
                    "failures": each.failures,
                }
                for each in self.instances
            ],
        }

    def scale(self, replicas: int) -> None:
        """Want this many until the next plan comes; those that are too many end in order, the newest first."""
        self._feed(ScaleEvent(self._events.now(), replicas))

    def signal(self, instance: str, number: int) -> bool:
        """Send a signal to one instance's process, behind the supervisor's back (faults in tests).

        Returns:
            False when it has no process.
        """
        return self._processes.signal(instance, number)

    async def wait_until(
        self, condition: Callable[[LocalOrchestrator], bool], timeout_seconds: float | None = 30.0
    ) -> None:
        """Return as soon as a condition on this object holds; looked at after every change.

        Args:
            condition: what is waited for.
            timeout_seconds: for how long; None: until everything has ended.

        Raises:
            TimeoutError: it did not hold in time.
        """
        assert self._main is not None
        async with asyncio.timeout(timeout_seconds):
            while not condition(self):
                if self._main.done():
                    self._main.result()
                    raise TimeoutError("everything has ended, so what is waited for cannot come any more")
                await self._changes.next()

    async def stop(self) -> None:
        """End all instances in order and return when they are gone. May be called again.

        Cancelled: kills what is left, reaps it, and is cancelled then.
        """
        if self._main is None:
            return
        if not self._main.done():
            self._feed(StopEvent(self._events.now()))
        try:
            await asyncio.shield(self._main)
        except asyncio.CancelledError:
            self.kill()
            await asyncio.wait({self._main})
            raise

    def kill(self) -> None:
        """Kill all instances at once; :meth:`stop` waits for their end."""
        if self._main is not None and not self._main.done():
            self._feed(KillAllEvent(self._events.now()))

    async def __aenter__(self) -> Self:
        """Start the webhook and the first instances.

        Raises:
            CommandNotFoundError: the command is not there.
            LogDirectoryError: the log directory cannot be made.
            OSError: no free port.
        """
        self._processes.check_command(self._env)
        self._events.start()
        self._processes.make_log_directory()
        try:
            await self._webhook.start()
            await self._processes.start_guard()
        except BaseException:
            await self._webhook.close()
            self._processes.unlock()
            raise
        self._main = asyncio.create_task(self._supervise(), name="loadtrim up")
        self._main.add_done_callback(lambda _: self._changes.tell())
        # The first instances are asked for before the block is entered.
        await asyncio.sleep(0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.stop()
        finally:
            await self._webhook.close()
            await self._processes.end_guard()

    async def _supervise(self) -> None:
        """The owner of all tasks: one per process, and one that waits for what falls due."""
        async with asyncio.TaskGroup() as self._tasks:
            due = self._tasks.create_task(self._tick_when_due(), name="due")
            self._feed(TickEvent(self._events.now()))
            while not self._supervisor.finished or self._processes.running:
                await self._changes.next()
            due.cancel()

    async def _tick_when_due(self) -> None:
        while True:
            try:
                async with asyncio.timeout_at(self._supervisor.next_due):
                    await self._changes.next()
            except TimeoutError:
                self._feed(TickEvent(self._events.now()))

    def _feed(self, event: Event) -> None:
        for command in self._supervisor.handle(event):
            self._execute(command, event.now)
        self._changes.tell()

    def _execute(self, command: Command, now: float) -> None:
        match command:
            case StartCommand(name):
                self._usage.asked(name, now)
                self._tasks.create_task(self._run(name), name=name)
            case WaitCommand(name, seconds, reason):
                self._usage.asked(name, now)
                self._events.emit(EventKind.WAITING, f"starts in {seconds:.1f} s ({reason})", name)
            case DropCommand(name, reason):
                self._usage.ended(name, now)
                self._events.emit(EventKind.DROPPED, f"is not started ({reason})", name)
            case TerminateCommand(name, reason):
                self._events.emit(EventKind.STOPPING, f"asked to end ({reason})", name, self._processes.id_of(name))
                self._processes.ask(name, signal.SIGTERM)
            case KillCommand(name, reason):
                self.killed += 1
                self._events.emit(EventKind.KILLED, f"killed ({reason})", name, self._processes.id_of(name))
                self._processes.ask(name, signal.SIGKILL)

    async def _run(self, name: str) -> None:
        """Run one process, from its start until it is reaped."""
        asked_at = next(each.asked_at for each in self.instances if each.name == name)
        try:
            self._processes.open_output(name)
            env = _instance_env(self._env, self.options, name, asked_at, self)
            process = await self._processes.start(name, env)
        except OSError as error:
            self._usage.ended(name, self._events.now())
            self._events.emit(EventKind.EXITED, f"could not be started: {error}", name)
            self._feed(ExitedEvent(self._events.now(), name))
            return
        started_at = self._events.now()
        self._usage.started(name, started_at)
        self._events.emit(EventKind.STARTED, f"started, process {process.pid}", name, process.pid)
        self._changes.tell()
        code = await self._processes.wait(name)
        ended_at = self._events.now()
        self._usage.ended(name, ended_at)
        last_line = await self._processes.close_output(name)
        start, words = start_mark(env[REQUESTED_AT]), _ending(code, ended_at - started_at, last_line)
        self._events.emit(EventKind.EXITED, words, name, process.pid, code, start)
        self._feed(ExitedEvent(self._events.now(), name))

    def take_plan(self, request: WantedState) -> Reply:
        """Do what a group's leader asks for; the webhook calls this."""
        now = self._events.now()
        outcome = self._supervisor.judge(request, now)
        before = self._supervisor.plans.get(request.group)
        if outcome is PlanOutcome.STALE:
            self._events.emit(EventKind.STALE, f"refused a plan of {request.group} that is older than the newest one")
            return Reply(HTTPStatus.CONFLICT, {"outcome": outcome.value, "error": "a newer plan was accepted"})
        if before is None or (before.replicas, before.victims) != (request.replicas, request.victims):
            self._events.emit(EventKind.PLAN, _plan_in_words(request))
        if self.over:
            return Reply(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "this orchestrator has ended its instances"})
        self._feed(PlanEvent(now, request))
        return Reply(HTTPStatus.OK, {"outcome": outcome.value, **self.describe()})


def _supervisor_config(options: OrchestratorOptions, env: Mapping[str, str]) -> SupervisorConfig:
    stop_seconds = options.stop_seconds
    if stop_seconds is None:
        # The instances read the same variable and refuse the same values; no end of theirs is to be cut short.
        own = {name: text for name, text in env.items() if name in ("LOADTRIM_DRAIN_SECONDS", "LOADTRIM_EXIT_SECONDS")}
        settings = Settings.from_env(own)
        stop_seconds = settings.drain_seconds + settings.exit_seconds + STOP_MARGIN_SECONDS
    return SupervisorConfig(
        name=options.name,
        replicas=options.replicas,
        replicas_min=1 if options.replicas_min is None else options.replicas_min,
        replicas_max=INSTANCES_MAX if options.replicas_max is None else options.replicas_max,
        startup_delay_seconds=options.startup_delay_seconds,
        stop_seconds=stop_seconds,
        surplus_seconds=options.surplus_seconds,
        backoff_seconds=options.backoff_seconds,
    )


def _instance_env(
    base: Mapping[str, str], options: OrchestratorOptions, name: str, asked_at: float, up: LocalOrchestrator
) -> dict[str, str]:
    env = {
        # What Python instances print is to be in the log when it happens.
        "PYTHONUNBUFFERED": "1",
        **base,
        "LOADTRIM_INSTANCE": name,
        "LOADTRIM_SCALER": "webhook",
        "LOADTRIM_SCALER_URL": up.url,
        "LOADTRIM_SCALER_TOKEN": up.token,
        "LOADTRIM_HTTP": "127.0.0.1:0",
        # Milliseconds, and digits that are drawn: no two starts of any orchestrator are told the same.
        REQUESTED_AT: f"{asked_at:.3f}{secrets.randbelow(10**9):09}",
    }
    if options.replicas_min is not None:
        env["LOADTRIM_MIN_REPLICAS"] = str(options.replicas_min)
    if options.replicas_max is not None:
        env["LOADTRIM_MAX_REPLICAS"] = str(options.replicas_max)
    return env


def _plan_in_words(request: WantedState) -> str:
    return f"{request.group} wants {wish_line(request.replicas, request.victims, request.reason)}"


def _signal_name(number: int) -> str:
    """Return SIGTERM for 15. Those for real time have numbers only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _ending(code: int, ran_seconds: float, last_line: str) -> str:
    if code < 0:
        how = f"ended by {_signal_name(-code)}"
    else:
        how = f"ended with code {code}"
    said = f"; it said last: {last_line}" if code > 0 and last_line else ""
    return f"{how} after {ran_seconds:.1f} s{said}"
