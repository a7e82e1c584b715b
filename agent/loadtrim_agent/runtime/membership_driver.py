"""The shell around the protocol machine: feeds it events, has its commands carried out, wakes it when it is due."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Protocol

from loadtrim_agent.common.clock import boot_time, wall_time
from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.errors import InvariantError
from loadtrim_agent.common.tasks import FailureSink
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.group_config import Code, GroupConfig
from loadtrim_agent.protocol.machine import Machine
from loadtrim_agent.protocol.snapshot import MachineSnapshot

from .observer import AgentObserver

__all__ = ["CommandSink", "MembershipDriver"]

log = logging.getLogger("loadtrim")

TIMER_SLACK_SECONDS = 0.0005
"""A tick comes so much after it is due, so that the machine never finds it early. Chosen."""


class CommandSink(Protocol):
    """The sink carries out commands of the machine."""

    def carry_out(self, command: c.Command) -> None:
        """One command, in the order of the machine's list."""

    def finish(self, machine: Machine) -> None:
        """All commands of one event were carried out."""


class MembershipDriver:
    """One member's machine, driven. All methods run in the agent's loop.

    Args:
        config: of the protocol.
        failures: takes what ends membership.
        observer: told of heartbeats.
        boundary: contains what the observer raises.
    """

    def __init__(
        self, config: GroupConfig, failures: FailureSink, observer: AgentObserver, boundary: ErrorBoundary
    ) -> None:
        self.machine = Machine(config, wall_offset=wall_time() - boot_time())
        self.sink: CommandSink | None = None
        """Set before the first event."""
        self._failures = failures
        self._observer = observer
        self._boundary = boundary
        self._events: deque[e.Event] = deque()
        self._handling = False
        self._broken = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")

    def feed(self, event: e.Event) -> None:
        """Give the machine an event and carry out what it commands; events that come meanwhile wait their turn."""
        if isinstance(event, e.HeartbeatAnsweredEvent) and event.code in (Code.NONE, Code.REBALANCE_IN_PROGRESS):
            self._boundary.call("heartbeat", self._observer.heartbeat, event.sent_at)
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._events:
                self._step(self._events.popleft())
        except Exception as error:
            # Never a silent end: without this an error in a timer's tick would just stop the ticking.
            log.exception("The agent's membership broke; the next call of user code raises this.")
            self._failures.raise_to_user(error)
        finally:
            self._handling = False
        self._set_timer()

    def _step(self, event: e.Event) -> None:
        assert self.sink is not None, "the agent sets it when it is made"
        try:
            commands = self.machine.handle(event)
        except InvariantError as error:
            self._broken_invariant(error)
            return
        for command in commands:
            self.sink.carry_out(command)
        self.sink.finish(self.machine)

    def _broken_invariant(self, error: InvariantError) -> None:
        """Style 13: stop deciding, release nothing, go on consuming what is owned."""
        if not self._broken:
            self._broken = True
            log.error("The agent contradicts itself and moves nothing any more; consuming goes on. %s", error)
        self._boundary.broke("invariant")

    def _set_timer(self) -> None:
        due = self.machine.wakeup()
        if due == self._timer_at:
            return
        self.stop_timer()
        self._timer_at = due
        if due != float("inf"):
            seconds = max(0.0, due - boot_time()) + TIMER_SLACK_SECONDS
            self._timer = asyncio.get_running_loop().call_later(seconds, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._timer_at = float("inf")
        self.feed(e.TickEvent(now=boot_time()))

    @property
    def config(self) -> GroupConfig:
        """The protocol's settings in force."""
        return self.machine.config

    def snapshot(self) -> MachineSnapshot:
        """Return the membership and the assigned partitions of now."""
        return self.machine.snapshot()

    def stop_timer(self) -> None:
        """Tick no more, until the next event."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def join_again(self) -> None:
        """Join as a newcomer, with a new id, after having left."""
        self.machine = self.machine.successor()
        self.feed(e.StartEvent(now=boot_time()))
