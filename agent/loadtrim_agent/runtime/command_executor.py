"""Carries out the machine's commands: each type of command has one handler, in one table."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.tasks import AgentTasks, FailureSink
from loadtrim_agent.delivery.partitions import Partitions
from loadtrim_agent.delivery.transactions import Transactions
from loadtrim_agent.kafka.group_requests import GroupRequests
from loadtrim_agent.kafka.subscription import TopicWatch
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.group_config import Code
from loadtrim_agent.protocol.machine import Machine

from .condition import AgentCondition
from .control_access import ControlAccess
from .group_errors import group_error
from .membership_driver import MembershipDriver
from .observer import AgentObserver
from .user_commits import UserCommits

__all__ = ["CommandExecutor", "CommandTargets"]

log = logging.getLogger("loadtrim")


class CommandTargets(FailureSink, Protocol):
    """The agent's parts that commands act on."""

    boundary: ErrorBoundary
    tasks: AgentTasks
    driver: MembershipDriver
    condition: AgentCondition
    requests: GroupRequests
    partitions: Partitions
    transactions: Transactions
    control: ControlAccess
    topics: TopicWatch
    commits: UserCommits

    @property
    def observer(self) -> AgentObserver:
        """Return what runs beside membership."""


class CommandExecutor:
    """Implements :class:`~.membership_driver.CommandSink`.

    Args:
        agent: what commands act on.
    """

    def __init__(self, agent: CommandTargets) -> None:
        self._agent = agent
        self._opening: list[c.OpenCommand] = []
        """Opened together when all commands of the event were carried out, to share a listener call."""
        requests, partitions, commits = agent.requests, agent.partitions, agent.commits
        self._handlers: dict[type[c.Command], Callable[[Any], None]] = {
            c.FindCoordinatorCommand: requests.find_coordinator,
            c.SendJoinCommand: requests.join,
            c.SendSyncCommand: requests.sync,
            c.SendHeartbeatCommand: requests.heartbeat,
            c.SendLeaveCommand: self._send_leave,
            c.SendCommitCommand: requests.commit,
            c.FetchCommittedCommand: requests.fetch_committed,
            c.CommitResultCommand: commits.result,
            c.GatherCommitsCommand: lambda _: commits.commit_done(),
            c.FetchTopicsCommand: lambda command: agent.tasks.spawn(self._fetch_topics(command), "fetch-topics"),
            c.AppendCommand: agent.control.append,
            c.ReadAssignmentCommand: agent.control.read_assignment,
            c.OpenCommand: self._opening.append,
            c.RunCommand: partitions.run,
            c.PrefetchCommand: partitions.prefetch,
            c.DropPrefetchCommand: partitions.drop_prefetch,
            c.AwaitIdlePointCommand: partitions.await_idle_point,
            c.StopCommand: partitions.stop,
            c.ResumeCommand: partitions.resume,
            c.DropCommand: partitions.drop,
            c.LeaseCommand: self._lease,
            c.EnteredCommand: self._entered,
            c.LeftCommand: lambda _: agent.condition.left.set(),
            c.FailCommand: self._fail,
            c.CountCommand: self._count,
        }

    def carry_out(self, command: c.Command) -> None:
        """See :class:`~.membership_driver.CommandSink`."""
        self._handlers[type(command)](command)

    def finish(self, machine: Machine) -> None:
        """See :class:`~.membership_driver.CommandSink`."""
        if self._opening:
            opening = self._opening[:]
            self._opening.clear()
            self._agent.partitions.open(opening)
        if not self._agent.condition.settled.is_set() and machine.settled:
            self._agent.condition.settled.set()

    # -- the group -----------------------------------------------------------------------------------------------

    async def _fetch_topics(self, command: c.FetchTopicsCommand) -> None:
        partitions = await self._agent.topics.counts(command.topics)
        self._agent.driver.feed(e.TopicsEvent(now=boot_time(), partitions=partitions))

    def _entered(self, command: c.EnteredCommand) -> None:
        agent, group = self._agent, self._agent.driver.snapshot()
        agent.condition.enter(command.generation)
        agent.transactions.generation_changed()
        log.info(
            "Group %s: generation %d as %s (%s%s)",
            agent.driver.config.group,
            command.generation,
            command.member,
            "leader" if command.leader == command.member else "member",
            "" if group.speaks_loadtrim else f", mixed group, protocol {command.protocol}",
        )
        agent.boundary.call("entered", agent.observer.entered, command)

    def _send_leave(self, command: c.SendLeaveCommand) -> None:
        """The last report goes out beside the LeaveGroup, so that it delays nothing."""
        self._agent.condition.reported.clear()
        self._agent.tasks.spawn(self._report(command.member), "last-report")
        self._agent.requests.leave(command)

    async def _report(self, member: str) -> None:
        agent = self._agent
        try:
            await agent.boundary.wait("last_report", agent.observer.leaving(member, agent.condition.generation))
        finally:
            agent.condition.reported.set()

    def _lease(self, command: c.LeaseCommand) -> None:
        buffer = self._agent.partitions.buffer
        ran_out = boot_time() >= buffer.lease_until
        buffer.lease_until = command.until
        if ran_out:
            buffer.wake()

    # -- what is told --------------------------------------------------------------------------------------------

    def _count(self, command: c.CountCommand) -> None:
        log.debug("%s %s", command.what.label, command.partition or "")
        self._agent.boundary.call("count", self._agent.observer.count, command.what, command.partition)

    def _fail(self, command: c.FailCommand) -> None:
        if command.code == Code.INCONSISTENT_GROUP_PROTOCOL:
            self._agent.tasks.spawn(self._fail_for_protocols(), "describe")
        else:
            self._agent.raise_to_user(group_error(command.code, self._agent.driver.config))

    async def _fail_for_protocols(self) -> None:
        """No protocol that all share: say ours and the group's."""
        _, protocol = await self._agent.requests.describe()
        config = self._agent.driver.config
        self._agent.raise_to_user(group_error(Code.INCONSISTENT_GROUP_PROTOCOL, config, spoken=protocol))
