"""The agent's way to the control topic: opens it, tries again where it cannot be used, hands on what is read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.tasks import Spawner
from loadtrim_agent.kafka.connections import Backoff
from loadtrim_agent.kafka.control_log import ControlLog
from loadtrim_agent.kafka.control_topic import ControlTopicUnusable
from loadtrim_agent.kafka.pool import ConnectionPool
from loadtrim_agent.kafka.ports import EventFeed
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.group_config import GroupConfig

from .observer import AgentObserver

__all__ = ["ControlAccess", "ControlledMember"]

log = logging.getLogger("loadtrim")

RETRY_SECONDS = 2.0
RETRY_SECONDS_MAX = 60.0
"""A control topic that could not be used is tried again after this time, doubled up to a bound. Chosen."""


class ControlledMember(EventFeed, Protocol):
    """The member, as its control topic knows it."""

    @property
    def config(self) -> GroupConfig:
        """The protocol's settings in force."""

    @property
    def log_read_seconds(self) -> float:
        """Least mean time between two reads of the log; 0: a record is waited for."""

    def use_log(self, usable: bool) -> None:
        """Offer our protocol from the next JoinGroup on, or the standard ones only."""


class ControlAccess:
    """One member's control topic. All methods run in the agent's loop.

    Implements :class:`loadtrim_agent.kafka.ports.ControlLogReader`.

    Args:
        settings: the user's constructor arguments.
        topic: name of the control topic.
        member: takes what is read.
        observer: told of records and of the broker's clock.
        boundary: contains what the observer raises.
        tasks: owns what reads and appends.
        pool: where the connections come from; None: a pool of its own.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        member: ControlledMember,
        observer: AgentObserver,
        boundary: ErrorBoundary,
        tasks: Spawner,
        pool: ConnectionPool | None = None,
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._member = member
        self._group = member.config.group
        self._observer = observer
        self._boundary = boundary
        self._tasks = tasks
        self._pool = pool
        self.log: ControlLog | None = None
        """None: it cannot be used now."""

    async def start(self) -> None:
        """Open the topic; where that is not possible, say so and go on trying."""
        try:
            await self._open()
        except ControlTopicUnusable as error:
            log.error("%s", error)
            self._boundary.broke("control_topic")
            self._member.use_log(False)
            self._tasks.spawn(self._await_usable(), "await-log")

    async def _open(self) -> None:
        """Open the topic; raises ControlTopicUnusable."""
        opened = ControlLog(self._settings, self._topic, self, self._tasks, self._pool)
        await opened.start()
        self.log = opened
        self._tasks.spawn(opened.run(), "log")

    async def _await_usable(self) -> None:
        """Try again until the control topic can be used: a slow broker at one start must not cost a group its plans."""
        backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)
        while self.log is None:
            await asyncio.sleep(backoff.failed())
            try:
                await self._open()
            except ControlTopicUnusable:
                log.debug("The control topic %s cannot be used yet; trying again.", self._topic)
        log.warning(
            "The control topic %s can be used now: this member joins again, and speaks loadtrim where all others do.",
            self._topic,
        )
        self._member.feed(e.LogUsableEvent(now=boot_time()))

    async def close(self) -> None:
        """Close the connections."""
        if self.log is not None:
            await self.log.close()

    # -- what is read --------------------------------------------------------------------------------------------

    def feed(self, event: e.Event) -> None:
        """Hand on an event of this group's."""
        if isinstance(event, e.LogReadEvent) and event.record.group != self._group:
            return  # the probe of a member that starts, or another group that was given the same topic
        self._member.feed(event)
        if isinstance(event, e.LogReadEvent):
            self._boundary.call("read", self._observer.read, event.record)

    @property
    def log_read_seconds(self) -> float:
        """Least mean time between two reads of the log; 0: a record is waited for."""
        return self._member.log_read_seconds

    def unreadable(self) -> None:
        """Count a record that cannot be decoded."""
        self._boundary.broke("control_record")

    def clock(self, seconds: float, round_trip_seconds: float) -> None:
        """Tell the observer of the broker's clock."""
        self._boundary.call("clock", self._observer.clock, seconds, round_trip_seconds)

    # -- commands ------------------------------------------------------------------------------------------------

    def append(self, command: c.AppendCommand) -> None:
        """Append a record of the machine's."""
        if self.log is None:
            self._member.feed(e.AppendedEvent(now=boot_time(), append=command.append, offset=None))
        else:
            self.log.append(command)

    def read_assignment(self, command: c.ReadAssignmentCommand) -> None:
        """Look for the newest assignment in the log."""
        if self.log is None:
            self._member.feed(e.AssignmentFoundEvent(now=boot_time(), assignment=None, complete=False))
        else:
            self.log.read_assignment(command)
