"""One member's membership: the machine driven by events, its commands carried out, commits for user code.

:class:`MembershipDriver` feeds the machine and wakes it when it is due. :class:`CommandExecutor` has one handler per
type of command, in one table. :class:`UserCommits` makes commits events of the machine, and waits for their answers.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaTimeoutError,
    for_code,
)

from loadtrim_agent.common.clock import boot_time, wall_time
from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.errors import InvariantError
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.tasks import AgentTasks, FailureSink
from loadtrim_agent.delivery.partitions import Partitions
from loadtrim_agent.delivery.transactions import Transactions
from loadtrim_agent.kafka.group_requests import GroupRequests
from loadtrim_agent.kafka.subscription import TopicWatch
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.assigned_partition import AssignedState
from loadtrim_agent.protocol.group_config import (
    BROKER_ASSIGNS,
    COORDINATOR_MOVED,
    LOADTRIM,
    RETRIABLE,
    Code,
    GroupConfig,
)
from loadtrim_agent.protocol.machine import Machine
from loadtrim_agent.protocol.snapshot import MachineSnapshot

from .condition import AgentCondition
from .control_access import ControlAccess
from .group_errors import broker_assigns_text, group_error
from .observer import AgentObserver
from .refusals import Refusals

__all__ = ["CommandExecutor", "CommandSink", "CommandTargets", "MembershipDriver", "UserCommits"]

log = logging.getLogger("loadtrim")

TIMER_SLACK_SECONDS = 0.0005
"""A tick comes so much after it is due, so that the machine never finds it early. Chosen."""
REFUSED_SECONDS = 2.0
"""A group that refused this member for want of a control topic is asked again after this time. Chosen."""
PROTOCOL_UNTOLD = frozenset({"PreparingRebalance", "CompletingRebalance", ""})
"""States in which a group that has a protocol is described without one; empty: it could not be described."""
AUTO_COMMIT_SECONDS_MIN = 0.05
"""Least time between two auto-commits, also where the program asks for none between them. Chosen: 20 requests a second
cost little, and a crash repeats no more than that."""
COMMIT_AGAIN_SECONDS = 60.0
"""All that is done is committed again after this time. The broker forgets the offsets of a topic that is deleted, and
of one that is made anew some partitions have nothing new to commit. Chosen: a request a minute; aiokafka commits all at
each interval."""
LATE_COMMIT_SECONDS = 1.0
"""A commit whose connection broke has reached the broker after this time, if it does at all. Chosen."""


class CommandSink(Protocol):
    """The sink carries out commands of the machine."""

    def carry_out(self, command: c.Command) -> None:
        """One command, in the order of the machine's list."""

    def finish(self, machine: Machine) -> None:
        """All commands of one event were carried out."""

    def leave_group(self, member: str) -> None:
        """Tell the coordinator that ``member`` leaves: the machine is broken and cannot."""


class MembershipDriver:
    """One member's machine, driven. All methods run in the agent's loop.

    Args:
        config: of the protocol.
        failures: takes what ends membership.
        observer: told of answered heartbeats and commits.
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
        """The machine contradicted itself."""
        self._breaks = 0
        """Errors of the machine: after the first it is to leave, after the second it is left alone."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")

    def feed(self, event: e.Event) -> None:
        """Give the machine an event and carry out what it commands; events that come meanwhile wait their turn."""
        if self._breaks == 2:
            return
        if isinstance(event, e.HeartbeatAnsweredEvent) and event.code in (Code.NONE, Code.REBALANCE_IN_PROGRESS):
            self._boundary.call("heartbeat", self._observer.heartbeat, event.sent_at)
        elif isinstance(event, e.CommitAnsweredEvent):
            self._boundary.call("commit", self._observer.commit_answered, event.codes.values())
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._events:
                self._step(self._events.popleft())
        finally:
            self._handling = False
        if self._breaks < 2:
            self._set_timer()

    def _step(self, event: e.Event) -> None:
        try:
            self._carry_out(event)
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Raise an error of the machine in user code, and leave the group: by the machine if it still can.

        Never a silent end: without this an error in a timer's tick would just stop the ticking.
        """
        if self._breaks == 0:
            log.exception("The agent's membership broke; the next call of user code raises this.")
            self._breaks = 1
            # It feeds the wish to leave, which comes after what waits already.
            self._failures.raise_to_user(error)
        elif self._breaks == 1:
            self._breaks = 2
            assert self.sink is not None
            self.sink.leave_group(self.machine.snapshot().member)

    def _carry_out(self, event: e.Event) -> None:
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
        return self.machine.snapshot().config

    @property
    def log_read_seconds(self) -> float:
        """Least mean time between two reads of the log; 0: a record is waited for."""
        return self.machine.snapshot().log_read_seconds

    def snapshot(self) -> MachineSnapshot:
        """Return the membership and the assigned partitions of now."""
        return self.machine.snapshot()

    def use_log(self, usable: bool) -> None:
        """Offer our protocol from the next JoinGroup on, or the standard ones only."""
        self.machine.use_log(usable)

    def stop_timer(self) -> None:
        """Tick no more, until the next event."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def join_again(self) -> None:
        """Join as a newcomer, with a new id, after having left."""
        self.machine = self.machine.successor()
        self.feed(e.StartEvent(now=boot_time()))


class UserCommits:
    """All methods run in the agent's loop.

    Args:
        driver: the membership in force.
        partitions: whose streams tell what is done.
        requests: asks the coordinator.
        committed_timeout: longest wait for the end of a transaction, seconds; None: offsets of open transactions are
            not waited for, because user code reads them as well.
    """

    def __init__(
        self,
        driver: MembershipDriver,
        partitions: Partitions,
        requests: GroupRequests,
        committed_timeout: float | None,
    ) -> None:
        self._driver = driver
        self._partitions = partitions
        self._requests = requests
        self._committed_timeout = committed_timeout
        self._pending: dict[int, asyncio.Future[int]] = {}
        """Request number -> the broker's code. Invariant: only requests that user code waits for."""
        self._numbers = 0
        self._all_at = boot_time()
        """All that is done was committed last."""
        self._closed = False

    async def run_auto_commit(self, every_seconds: float) -> None:
        """Commit for ever what is done."""
        while True:
            await asyncio.sleep(max(every_seconds, AUTO_COMMIT_SECONDS_MIN))
            self.commit_done()

    def commit_done(self) -> None:
        """Commit what is done and was not committed, without waiting (auto-commit)."""
        offsets: dict[Partition, e.OffsetCommit] = {}
        if self._driver.config.auto_commit:
            assigned, late, again = self._driver.snapshot().assigned, self._late(), self._is_again()
            for partition, stream in self._partitions.buffer.streams.items():
                done = self._partitions.positions.done_offset(stream)
                view = assigned.get(partition)
                if done is not None and view is not None and (again or view.committed != done or partition in late):
                    offsets[partition] = e.OffsetCommit(acquisition_id=stream.acquisition_id, offset=done)
        self._driver.feed(e.CommitWantedEvent(now=boot_time(), offsets=offsets))

    def _is_again(self) -> bool:
        """Return whether it is time to commit all that is done, once each time."""
        now = boot_time()
        if again := now - self._all_at >= COMMIT_AGAIN_SECONDS:
            self._all_at = now
        return again

    def _late(self) -> set[Partition]:
        """Return the partitions of which a commit had no answer some time ago, once each.

        Such a commit may have arrived after a later one, and have set the offset back: it is made once more.
        """
        unanswered, due = self._requests.unanswered_commits, boot_time() - LATE_COMMIT_SECONDS
        late = {partition for partition, at in unanswered.items() if at <= due}
        for partition in late:
            del unanswered[partition]
        return late

    async def commit(self, offsets: Mapping[Partition, tuple[int, str]], *, named: bool = True) -> None:
        """Commit for user code and wait for the broker's answer, over a rebalance if one is going on.

        Args:
            offsets: (offset, metadata) per partition.
            named: user code named the partitions. Otherwise one that was just given away is passed over, and what
                holds no records for user code behind an offset is committed too.

        Raises:
            CommitFailedError: a partition is not this member's any more. KafkaError: the broker refused.
        """
        wanted: dict[Partition, e.OffsetCommit] = {}
        assigned = self._driver.snapshot().assigned
        for partition, (offset, metadata) in offsets.items():
            stream = self._partitions.buffer.streams.get(partition)
            view = assigned.get(partition)
            gone = stream is None or view is None or view.state is AssignedState.TRANSFERRED
            if not named and gone:
                continue
            if stream is None:
                raise IllegalStateError(f"Partition {partition} is not assigned")
            if not named:
                offset = self._partitions.positions.behind(stream, offset)
            wanted[partition] = e.OffsetCommit(acquisition_id=stream.acquisition_id, offset=offset, metadata=metadata)
        if not wanted:
            return
        code = await self._request(wanted)
        if code in (Code.ILLEGAL_GENERATION, Code.UNKNOWN_MEMBER_ID, Code.REBALANCE_IN_PROGRESS):
            raise CommitFailedError(
                "The commit was not made: a partition in it was given to another member meanwhile. What was not "
                "committed is handed out again there."
            )
        if code != Code.NONE:
            raise for_code(code)()

    async def _request(self, wanted: dict[Partition, e.OffsetCommit]) -> int:
        self._numbers += 1
        number = self._numbers
        waiting: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._pending[number] = waiting
        try:
            self._driver.feed(e.CommitWantedEvent(now=boot_time(), request=number, offsets=wanted))
            return await waiting
        finally:
            self._pending.pop(number, None)

    def result(self, command: c.CommitResultCommand) -> None:
        """A commit of user code was answered."""
        waiting = self._pending.get(command.request)
        if waiting is not None and not waiting.done():
            waiting.set_result(command.code)

    def close(self) -> None:
        """Nothing is committed any more: who waits is told so."""
        self._closed = True
        for waiting in self._pending.values():
            if not waiting.done():
                waiting.set_result(int(Code.UNKNOWN_MEMBER_ID))

    async def answered(self, timeout_seconds: float) -> None:
        """Wait until the commits of user code that are under way have their answers, no longer than this."""
        if self._pending:
            await asyncio.wait(self._pending.values(), timeout=timeout_seconds)

    async def committed_last(
        self, partitions: Collection[Partition], timeout_seconds: float
    ) -> dict[Partition, int | None]:
        """The offsets that user code has committed: those of commits that are still under way, else the group's.

        What lies below an offset user code has done, whatever becomes of its commit. The broker may know it later.

        Args:
            partitions: that are assigned; others have the group's offset.
            timeout_seconds: longest wait for the answers of commits that are under way.

        Raises:
            KafkaError: as :meth:`committed`.
        """
        await self.answered(timeout_seconds)
        assigned = self._driver.snapshot().assigned
        asked = {p: assigned[p].committing for p in partitions if p in assigned}
        committing = {p: offset for p, offset in asked.items() if offset is not None}
        left = [partition for partition in partitions if partition not in committing]
        return committing | (await self.committed(left) if left else {})

    async def committed(self, partitions: Collection[Partition]) -> dict[Partition, int | None]:
        """The group's committed offsets, None where there is none; waits for a coordinator that moves.

        A user who reads committed records only is told of no offset that an open transaction may still change: as the
        Java client does, this waits for the transaction's end, for at most ``request_timeout_ms``.

        Raises:
            KafkaError: the broker refused, or the agent ends meanwhile. KafkaTimeoutError: a transaction stays open.
        """
        loop, config = asyncio.get_running_loop(), self._driver.config
        stable, deadline = self._committed_timeout is not None, math.inf
        fetched = await self._requests.committed(partitions, stable=stable)
        while fetched.unstable or (fetched.code in RETRIABLE and not self._closed):
            if fetched.unstable:
                deadline = min(deadline, loop.time() + (self._committed_timeout or 0.0))
            elif fetched.code in COORDINATOR_MOVED:
                await self._requests.connect()  # a member that is out of its group asks for it nowhere else
            if fetched.unstable and loop.time() >= deadline:
                names = ", ".join(f"{topic}-{index}" for topic, index in sorted(fetched.unstable))
                raise KafkaTimeoutError(
                    f"A committed offset of {names} is part of a transaction that is still open. Commit or abort it "
                    "first, if it is one of this process."
                )
            await asyncio.sleep(config.retry_backoff)
            fetched = await self._requests.committed(partitions, stable=stable)
        for partition in partitions:
            if partition in fetched.refused:
                raise for_code(fetched.refused[partition])(partition.topic)
        if fetched.code:
            raise group_error(fetched.code, config) if fetched.code > 0 else KafkaConnectionError("No answer")
        offsets = {partition: fetched.offsets.get(partition, -1) for partition in partitions}
        return {partition: offset if offset >= 0 else None for partition, offset in offsets.items()}


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
    """Implements :class:`CommandSink`.

    Args:
        agent: what commands act on.
    """

    def __init__(self, agent: CommandTargets) -> None:
        self._agent = agent
        self._refusals = Refusals(agent.partitions.buffer)
        self._opening: list[c.OpenCommand] = []
        """Opened together when all commands of the event were carried out, to share a listener call."""
        self._waits_for_log = False
        """The group refuses this member for want of a control topic; said once each time it begins."""
        self._broker_assigns = False
        """In the generation entered last the broker assigns; said once each time it begins."""
        requests, partitions, commits = agent.requests, agent.partitions, agent.commits
        self._handlers: dict[type[c.Command], Callable[[Any], object]] = {
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
            c.BoundCommand: partitions.bind,
            c.UnboundCommand: partitions.unbind,
            c.StopCommand: partitions.stop,
            c.ResumeCommand: partitions.resume,
            c.DropCommand: self._drop,
            c.LeaseCommand: self._lease,
            c.EnteredCommand: self._entered,
            c.LeftCommand: lambda _: agent.condition.left.set(),
            c.FailCommand: self._fail,
            c.CountCommand: self._count,
        }

    def carry_out(self, command: c.Command) -> None:
        """See :class:`CommandSink`."""
        self._handlers[type(command)](command)

    def finish(self, machine: Machine) -> None:
        """See :class:`CommandSink`."""
        if self._opening:
            opening = self._opening[:]
            self._opening.clear()
            self._agent.partitions.open(opening)
        if not self._agent.condition.settled.is_set() and machine.snapshot().settled:
            self._agent.condition.settled.set()

    def _drop(self, command: c.DropCommand) -> None:
        """Drop a partition. One that the same event opened is not opened: its stream would never be dropped."""
        lost = (command.partition, command.acquisition_id)
        kept = [each for each in self._opening if (each.partition, each.acquisition_id) != lost]
        if len(kept) < len(self._opening):
            self._opening[:] = kept
            self._agent.partitions.prefetching.drop((command.partition,))
        self._agent.partitions.drop(command)

    # -- the group -----------------------------------------------------------------------------------------------

    async def _fetch_topics(self, command: c.FetchTopicsCommand) -> None:
        partitions = await self._agent.topics.counts(command.topics)
        self._agent.driver.feed(e.TopicsEvent(now=boot_time(), partitions=partitions))

    def _entered(self, command: c.EnteredCommand) -> None:
        agent, group = self._agent, self._agent.driver.snapshot()
        agent.condition.enter(command.generation)
        agent.transactions.generation_changed()
        self._waits_for_log = False
        log.info(
            "Group %s: generation %d as %s (%s%s)",
            agent.driver.config.group,
            command.generation,
            command.member,
            "leader" if command.leader == command.member else "member",
            "" if group.speaks_loadtrim else f", mixed group, protocol {command.protocol}",
        )
        broker_assigns = command.protocol == BROKER_ASSIGNS
        if broker_assigns and not self._broker_assigns:
            log.warning("%s", broker_assigns_text(agent.driver.config.group))
        self._broker_assigns = broker_assigns
        agent.boundary.call("entered", agent.observer.entered, command)

    def _send_leave(self, command: c.SendLeaveCommand) -> None:
        """The last report goes out beside the LeaveGroup, so that it delays nothing."""
        self._agent.condition.reported.clear()
        self._name_lost_in_hand()
        self._agent.tasks.spawn(self._report(command.member), "last-report")
        self._agent.requests.leave(command)

    def leave_group(self, member: str) -> None:
        """See :class:`CommandSink`."""
        self._agent.tasks.spawn(self._leave_group(member), "leave-group")

    async def _leave_group(self, member: str) -> None:
        if member:
            await self._agent.requests.leave_group(member)
        self._agent.condition.left.set()

    def _name_lost_in_hand(self) -> None:
        lost = self._agent.partitions.lost_in_hand()
        if lost:
            log.warning(
                "This member leaves its group while user code still has in hand: %s. Another member is handed the same "
                "records again. A stop waits for them for LOADTRIM_DRAIN_SECONDS.",
                ", ".join(f"{s.partition.topic}-{s.partition.partition} at offset {s.in_hand}" for s in lost),
            )
            self._agent.boundary.broke("left_in_hand")

    async def _report(self, member: str) -> None:
        agent = self._agent
        try:
            await agent.boundary.wait("last_report", agent.observer.leaving(member, agent.condition.generation))
        finally:
            agent.condition.reported.set()

    def _lease(self, command: c.LeaseCommand) -> None:
        if self._agent.condition.failure is not None:
            return  # it leaves, and delivers nothing any more
        buffer = self._agent.partitions.buffer
        ran_out = boot_time() >= buffer.lease_until
        self._agent.partitions.gate.lease_until = command.until
        if ran_out:
            buffer.wake()

    # -- what is told --------------------------------------------------------------------------------------------

    def _count(self, command: c.CountCommand) -> None:
        log.debug("%s %s", command.what.label, command.partition or "")
        self._refusals.counted(command.what, command.code, command.partition)
        self._agent.boundary.call("count", self._agent.observer.count, command.what, command.partition)

    def _fail(self, command: c.FailCommand) -> None:
        if command.code == Code.INCONSISTENT_GROUP_PROTOCOL:
            self._agent.tasks.spawn(self._fail_for_protocols(), "describe")
        else:
            self._agent.raise_to_user(group_error(command.code, self._agent.driver.config))

    async def _fail_for_protocols(self) -> None:
        """No protocol that all share: say ours and the group's, or wait where it may be only ours that is missing.

        A coordinator that took over knows of each member the protocol in use alone, until the group's next rebalance.
        While a rebalance goes on it tells none.
        """
        agent = self._agent
        state, protocol = await agent.requests.describe()
        config = agent.driver.config
        if config.log_usable or (protocol != LOADTRIM and state not in PROTOCOL_UNTOLD):
            agent.raise_to_user(group_error(Code.INCONSISTENT_GROUP_PROTOCOL, config, spoken=protocol))
            return
        if protocol == LOADTRIM and not self._waits_for_log:
            self._waits_for_log = True
            log.warning(
                "Group %s takes no member that cannot use the control topic: its members speak loadtrim, and its "
                "coordinator has just changed. This member consumes nothing yet. It asks again every %g s, and gets "
                "in when the control topic can be used or the group has another rebalance.",
                config.group,
                REFUSED_SECONDS,
            )
        await asyncio.sleep(REFUSED_SECONDS)
        if not agent.condition.over:
            agent.driver.join_again()
