"""The agent: one per consumer, on an event loop of its own in a thread of its own.

This is wiring. It feeds the protocol machine with what happens, carries its commands out, and keeps the streams that
the user's thread takes records from. What to do is decided in :mod:`loadtrim_agent.core`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    for_code,
)

from loadtrim_agent.common.clock import boot_time, wall_time, warn_about_clock
from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.errors import InvariantError
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.listener import Listener, RebalanceListener
from loadtrim_agent.delivery.partitions import Partitions
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.delivery.transactions import Transactions
from loadtrim_agent.kafka.connections import UNREACHABLE, Backoff, Connections, Coordinator
from loadtrim_agent.kafka.control_log import ControlLog, ControlTopicUnusable
from loadtrim_agent.kafka.fetch.offsets import OffsetQueries
from loadtrim_agent.kafka.fetch.port import Fetcher
from loadtrim_agent.kafka.group_requests import GroupRequests
from loadtrim_agent.kafka.subscription import Subscription, TopicWatch
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.group_config import LOADTRIM, STANDARD_PROTOCOLS, Code, GroupConfig
from loadtrim_agent.protocol.machine import Machine
from loadtrim_agent.protocol.ownership import AssignedState
from loadtrim_agent.protocol.snapshot import MachineSnapshot

from .observer import AgentObserver

__all__ = ["Agent", "AgentOptions"]

log = logging.getLogger("loadtrim")

LAST_REPORT_SECONDS = 0.5
"""How long a member that has left waits at most for its last report to be written."""
LOG_RETRY_SECONDS = 2.0
LOG_RETRY_SECONDS_MAX = 60.0
"""A control topic that could not be used is tried again after this time, doubled up to a bound."""


@dataclass(slots=True)
class AgentOptions:
    """What the consumer gives its agent."""

    config: GroupConfig
    subscription: Subscription
    settings: Mapping[str, Any]
    """The user's constructor arguments."""
    control_topic: str
    fetcher: Callable[[], Fetcher]
    """Makes the fetcher, in the agent's loop."""
    user_loop: asyncio.AbstractEventLoop
    observer: AgentObserver = field(default_factory=AgentObserver)
    auto_commit_seconds: float = 5.0
    max_poll_seconds: float = 300.0
    """User code that asks for no record for longer: the member leaves."""


class Agent:
    """See the module's text. All methods run in the agent's loop unless they say otherwise."""

    def __init__(self, options: AgentOptions) -> None:
        self.options = options
        self.loop = asyncio.get_running_loop()
        self.boundary = ErrorBoundary(options.observer)
        self.machine = Machine(options.config, wall_offset=wall_time() - boot_time())
        self.buffer = RecordBuffer(
            options.user_loop,
            self._tell_from_user,
            refill=lambda stream: self.partitions.refill(stream),
            refetch=lambda stream, offset: self.partitions.refetch(stream, offset),
            drained=lambda stream: self.partitions.drained(stream),
            key_deserializer=options.settings.get("key_deserializer"),
            value_deserializer=options.settings.get("value_deserializer"),
        )
        self.listener = Listener(options.user_loop, lambda: self.boundary.broke("listener"))
        session = options.config.session_timeout
        self._connections = Connections(options.settings, request_timeout=options.config.rebalance_timeout + session)
        self._coordinator = Coordinator(self._connections, options.config.group)
        self.requests = GroupRequests(options.config, self._coordinator, self.feed, self.spawn)
        self.fetcher = options.fetcher()
        self.buffer.budget = self.fetcher.budget
        self.partitions = Partitions(
            buffer=self.buffer,
            fetcher=self.fetcher,
            listener=self.listener,
            observer=options.observer,
            boundary=self.boundary,
            feed=self.feed,
            spawn=self.spawn,
            fail=self.raise_to_user,
            waits_for_user=lambda: self.settled.set(),
            committed=self.requests.committed_or_none,
            retry_backoff=options.config.retry_backoff,
        )
        self.transactions = Transactions(self.snapshot, self.feed, options.config.rebalance_timeout)
        self.log: ControlLog | None = None
        self.topics = TopicWatch(self._connections.client, options.subscription, self._topics_changed)
        self.entered = asyncio.Event()
        """Set while the member is in a generation."""
        self.settled = asyncio.Event()
        """Set once everything held in the first generation is handed out."""
        self.generation: c.EnteredCommand | None = None
        self.left = asyncio.Event()
        self._reported = asyncio.Event()
        """Unset while the last report is on its way."""
        self._reported.set()
        self.failure: BaseException | None = None
        self._commit_requests: dict[int, asyncio.Future[int]] = {}
        self._commit_numbers = 0
        self._opening: list[c.OpenCommand] = []
        self._events: deque[e.Event] = deque()
        self._handling = False
        self._broken = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._tasks: set[asyncio.Task[None]] = set()
        self._commands: dict[type[c.Command], Callable[[Any], None]] = {
            c.FindCoordinatorCommand: self.requests.find_coordinator,
            c.SendJoinCommand: self.requests.join,
            c.SendSyncCommand: self.requests.sync,
            c.SendHeartbeatCommand: self.requests.heartbeat,
            c.SendLeaveCommand: self._send_leave,
            c.SendCommitCommand: self.requests.commit,
            c.FetchCommittedCommand: self.requests.fetch_committed,
            c.CommitResultCommand: self._commit_result,
            c.GatherCommitsCommand: lambda _: self.commit_done(),
            c.FetchTopicsCommand: lambda command: self.spawn(self._fetch_topics(command), "fetch-topics"),
            c.AppendCommand: self._append,
            c.ReadAssignmentCommand: self._read_assignment,
            c.OpenCommand: lambda command: self._opening.append(command),
            c.RunCommand: self.partitions.run,
            c.PrefetchCommand: self.partitions.prefetch,
            c.DropPrefetchCommand: self.partitions.drop_prefetch,
            c.AwaitIdlePointCommand: self.partitions.await_idle_point,
            c.StopCommand: self.partitions.stop,
            c.ResumeCommand: self.partitions.resume,
            c.DropCommand: self.partitions.drop,
            c.LeaseCommand: self._lease,
            c.EnteredCommand: self._entered,
            c.LeftCommand: lambda _: self.left.set(),
            c.FailCommand: self._fail,
            c.CountCommand: self._count,
        }

    @property
    def queries(self) -> OffsetQueries:
        """Offsets and log sizes of any partition."""
        return self.fetcher.queries

    # -- life cycle ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, prove the control topic, join. Returns when the member has its generation.

        Raises:
            KafkaError: as ``AIOKafkaConsumer.start`` does.
        """
        warn_about_clock()
        await self._connections.start()
        self.spawn(self._connect_coordinator(), "connect")
        told = await self._together(self.topics.start(), self.fetcher.start(), self._start_log())
        topics, partitions = told[0]
        self.feed(e.SubscriptionEvent(now=boot_time(), topics=topics))
        self.feed(e.TopicsEvent(now=boot_time(), partitions=partitions))
        self.fetcher.cover(self._coverable())
        self.spawn(self.partitions.fetch(), "fetch")
        self.spawn(self._watch_user(), "watch-user")
        if self.options.config.auto_commit:
            self.spawn(self._auto_commit(), "auto-commit")
        await self.boundary.wait("start", self.options.observer.start(self))
        self.feed(e.StartEvent(now=boot_time()))
        await self._first_generation()

    async def _together(self, *works: Coroutine[Any, Any, Any]) -> list[Any]:
        """Wait for all of them, then raise what the first in order raised, if any did."""
        outcomes = await asyncio.gather(*works, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return outcomes

    async def _connect_coordinator(self) -> None:
        """While the rest starts: connections cost more than anything else of a start. Who needs them looks again."""
        with contextlib.suppress(*UNREACHABLE):
            await self._coordinator.find()

    async def _start_log(self) -> None:
        try:
            await self._open_log()
        except ControlTopicUnusable as error:
            log.error("%s", error)
            self.boundary.broke("control_topic")
            self.machine.use_log(False)
            self.spawn(self._await_log(), "await-log")

    async def _open_log(self) -> None:
        """Raises: ControlTopicUnusable."""
        opened = ControlLog(
            self.options.settings,
            self.options.control_topic,
            feed=self._read_log,
            spawn=self.spawn,
            on_unreadable=lambda: self.boundary.broke("control_record"),
            on_clock=lambda *sample: self.boundary.call("clock", self.options.observer.clock, *sample),
        )
        await opened.start()
        self.log = opened
        self.spawn(opened.run(), "log")

    async def _await_log(self) -> None:
        """Try again until the control topic can be used: a slow broker at one start must not cost a group its plans."""
        backoff = Backoff(LOG_RETRY_SECONDS, LOG_RETRY_SECONDS_MAX)
        while self.log is None:
            await asyncio.sleep(backoff.failed())
            try:
                await self._open_log()
            except ControlTopicUnusable:
                log.debug("The control topic %s cannot be used yet; trying again.", self.options.control_topic)
        log.warning(
            "The control topic %s can be used now: this member joins again, and speaks loadtrim where all others do.",
            self.options.control_topic,
        )
        self.feed(e.LogUsableEvent(now=boot_time()))

    async def _first_generation(self) -> None:
        """Wait for the first generation, and until what its map gives is positioned."""
        waits = {asyncio.ensure_future(self.settled.wait()), asyncio.ensure_future(self.left.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self.failure is not None:
            raise self.failure

    def leave(self, drain_seconds: float, release: bool = True) -> None:
        """Begin to leave the group: hand over what is held within ``drain_seconds``, or at once without releasing."""
        now = boot_time()
        self.feed(e.LeaveWantedEvent(now=now, deadline=now + drain_seconds, release=release))

    async def _watch_user(self) -> None:
        """Leave when user code asks for no record for too long (``max_poll_interval_ms``, KIP-62)."""
        limit = self.options.max_poll_seconds
        while True:
            self.buffer.agent_seen_at = boot_time()
            await asyncio.sleep(min(1.0, limit / 4))
            idle = boot_time() - self.buffer.last_call
            if idle < limit or self.buffer.waiting or self.buffer.expired or self.buffer.closing:
                continue
            log.error(
                "User code has asked for no record for %.0f s, longer than max_poll_interval_ms allows: this member "
                "leaves the group, and what it has in hand will be handed out again elsewhere. It joins again at the "
                "next call. Ask for records more often, or raise max_poll_interval_ms.",
                idle,
            )
            self.boundary.broke("max_poll_interval")
            self.buffer.expired = True
            self.leave(0.0, release=False)

    def come_back(self) -> None:
        """Join again after having left for want of calls: as a newcomer, with a new id."""
        if not self.left.is_set() or self.failure is not None:
            return
        self.machine = self.machine.successor()
        self.left.clear()
        self.feed(e.StartEvent(now=boot_time()))

    async def stop(self, drain_seconds: float, *, release: bool = True) -> None:
        """Leave the group within ``drain_seconds``, then close everything. Never raises for the network's sake."""
        if self.failure is None and not self.left.is_set():
            self.leave(drain_seconds, release)
            try:
                async with asyncio.timeout(drain_seconds + 5.0):
                    await self.left.wait()
            except TimeoutError:
                log.warning("The group could not be left in time; it notices by the session timeout.")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_REPORT_SECONDS):
                await self._reported.wait()
        await self.close()

    async def close(self) -> None:
        """End every task and connection."""
        await self.boundary.wait("stop", self.options.observer.stop())
        if self._timer is not None:
            self._timer.cancel()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for closing in (self.log.close() if self.log else None, self.fetcher.close(), self._connections.close()):
            if closing is not None:
                await self.boundary.wait("close", closing)
        for waiting in self._commit_requests.values():
            if not waiting.done():
                waiting.set_result(int(Code.UNKNOWN_MEMBER_ID))

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Start a task that the agent owns: it is cancelled at the end, and what it raises is the agent's failure."""
        task = self.loop.create_task(work, name=f"loadtrim-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("The agent's task %s failed", task.get_name(), exc_info=error)
            self.raise_to_user(error)

    def snapshot(self) -> MachineSnapshot:
        """Return the membership and the assigned partitions of now."""
        return self.machine.snapshot()

    # -- feeding the machine -------------------------------------------------------------------------------------

    def feed(self, event: e.Event) -> None:
        """Give the machine an event and carry out what it commands; events that come meanwhile wait their turn."""
        if isinstance(event, e.HeartbeatAnsweredEvent) and event.code in (Code.NONE, Code.REBALANCE_IN_PROGRESS):
            self.boundary.call("heartbeat", self.options.observer.heartbeat, event.sent_at)
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
            self.raise_to_user(error)
        finally:
            self._handling = False
        self._set_timer()

    def _step(self, event: e.Event) -> None:
        try:
            commands = self.machine.handle(event)
        except InvariantError as error:
            self._broken_invariant(error)
            return
        for command in commands:
            self._commands[type(command)](command)
        if self._opening:
            opening, self._opening = self._opening, []
            self.partitions.open(opening)
        if not self.settled.is_set() and self.machine.settled:
            self.settled.set()

    def _broken_invariant(self, error: InvariantError) -> None:
        """Style 13: stop deciding, release nothing, go on consuming what is owned."""
        if not self._broken:
            self._broken = True
            log.error("The agent contradicts itself and moves nothing any more; consuming goes on. %s", error)
        self.boundary.broke("invariant")

    def _set_timer(self) -> None:
        due = self.machine.wakeup()
        if due == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = due
        if due != float("inf"):
            self._timer = self.loop.call_later(max(0.0, due - boot_time()) + 0.0005, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._timer_at = float("inf")
        self.feed(e.TickEvent(now=boot_time()))

    def _read_log(self, event: e.Event) -> None:
        if isinstance(event, e.LogReadEvent) and event.record.group != self.options.config.group:
            return  # the probe of a member that starts, or another group that was given the same topic
        self.feed(event)
        if isinstance(event, e.LogReadEvent):
            self.boundary.call("read", self.options.observer.read, event.record)

    # -- commands: the group -------------------------------------------------------------------------------------

    def _append(self, command: c.AppendCommand) -> None:
        if self.log is None:
            self.feed(e.AppendedEvent(now=boot_time(), append=command.append, offset=None))
        else:
            self.log.append(command)

    def _read_assignment(self, command: c.ReadAssignmentCommand) -> None:
        if self.log is None:
            self.feed(e.AssignmentFoundEvent(now=boot_time(), assignment=None))
        else:
            self.log.read_assignment(command)

    async def _fetch_topics(self, command: c.FetchTopicsCommand) -> None:
        partitions = await self.topics.counts(command.topics)
        self.feed(e.TopicsEvent(now=boot_time(), partitions=partitions))

    def _topics_changed(self, topics: tuple[str, ...], partitions: dict[str, int]) -> None:
        now = boot_time()
        self.feed(e.TopicsEvent(now=now, partitions=partitions))
        self.feed(e.SubscriptionEvent(now=now, topics=topics))
        self.fetcher.cover(self._coverable())

    def _coverable(self) -> list[Partition]:
        now = self.snapshot()
        counts = now.partition_counts
        return [Partition(topic, index) for topic in now.topics for index in range(counts.get(topic, 0))]

    def _entered(self, command: c.EnteredCommand) -> None:
        self.generation = command
        self.entered.set()
        self.transactions.generation_changed()
        log.info(
            "Group %s: generation %d as %s (%s%s)",
            self.options.config.group,
            command.generation,
            command.member,
            "leader" if command.leader == command.member else "member",
            "" if self.snapshot().speaks_loadtrim else f", mixed group, protocol {command.protocol}",
        )
        self.boundary.call("entered", self.options.observer.entered, command)

    def _send_leave(self, command: c.SendLeaveCommand) -> None:
        """The last report goes out beside the LeaveGroup, so that it delays nothing."""
        self._reported.clear()
        self.spawn(self._report(command.member), "last-report")
        self.requests.leave(command)

    async def _report(self, member: str) -> None:
        generation = self.generation.generation if self.generation is not None else -1
        try:
            await self.boundary.wait("last_report", self.options.observer.leaving(member, generation))
        finally:
            self._reported.set()

    def _lease(self, command: c.LeaseCommand) -> None:
        ran_out = boot_time() >= self.buffer.lease_until
        self.buffer.lease_until = command.until
        if ran_out:
            self.buffer.wake()

    def _count(self, command: c.CountCommand) -> None:
        log.debug("%s %s", command.what.label, command.partition or "")
        self.boundary.call("count", self.options.observer.count, command.what, command.partition)

    def _fail(self, command: c.FailCommand) -> None:
        if command.code == Code.INCONSISTENT_GROUP_PROTOCOL:
            self.spawn(self._fail_for_protocols(), "describe")
        else:
            self.raise_to_user(group_error(command.code, self.options.config))

    async def _fail_for_protocols(self) -> None:
        """No protocol that all share: say ours and the group's."""
        _, protocol = await self.requests.describe()
        config = msgspec.structs.replace(self.options.config, log_usable=self.snapshot().config.log_usable)
        self.raise_to_user(group_error(Code.INCONSISTENT_GROUP_PROTOCOL, config, spoken=protocol))

    def raise_to_user(self, error: BaseException) -> None:
        """Membership or fetching broke: the user's next call raises it, and nothing more is handed out."""
        if self.failure is None:
            self.failure = error
        self.left.set()
        self.transactions.generation_changed()
        self.buffer.lease_until = 0.0
        self.buffer.fail(self.failure, for_good=True)

    # -- what user code asks for ---------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, listener: RebalanceListener | None) -> None:
        """Other topics from now on. A listener that is new is told at once what is held."""
        known, self.listener.target = self.listener.target, listener
        assigned = self.snapshot().assigned
        # What is being opened, and what was told to go and comes back, it hears of then.
        opened = [
            p
            for p, stream in self.buffer.streams.items()
            if p in assigned and assigned[p].state is not AssignedState.OPENING and not stream.revoked
        ]
        if listener is not None and listener is not known and opened:
            self.spawn(self.listener.assigned(sorted(opened)), "introduce-listener")
        self.spawn(self.topics.subscribe(subscription), "subscribe")

    async def position(self, partition: Partition) -> int:
        """The offset handed out next: behind what the log holds no records for users of, once that is known.

        Raises:
            IllegalStateError: the partition is not held.
        """
        stream = self.buffer.streams.get(partition)
        if stream is None:
            raise IllegalStateError(f"Partition {partition} is not assigned")
        return self.partitions.position(stream)

    async def committed(self, partition: Partition) -> int | None:
        """The group's committed offset, None where there is none.

        Who reads committed records only is told of no offset that an open transaction may still change: as the Java
        client does, this waits for the transaction's end, for at most ``request_timeout_ms``.

        Raises:
            KafkaError: the broker refused, or cannot be reached. KafkaTimeoutError: a transaction stays open.
        """
        stable = self.options.settings.get("isolation_level") == "read_committed"
        deadline = self.loop.time() + self.options.settings.get("request_timeout_ms", 40_000) / 1000
        code, offsets, unstable = await self.requests.committed([partition], stable=stable)
        while unstable:
            if self.loop.time() >= deadline:
                raise KafkaTimeoutError(
                    f"The committed offset of {partition.topic}-{partition.partition} is part of a transaction that "
                    "is still open. Commit or abort it first, if it is one of this process."
                )
            await asyncio.sleep(self.options.config.retry_backoff)
            code, offsets, unstable = await self.requests.committed([partition], stable=stable)
        if code:
            raise group_error(code, self.options.config) if code > 0 else KafkaConnectionError("No answer")
        offset = offsets.get(partition, -1)
        return offset if offset >= 0 else None

    # -- commits -------------------------------------------------------------------------------------------------

    async def _auto_commit(self) -> None:
        while True:
            await asyncio.sleep(self.options.auto_commit_seconds)
            self.commit_done()

    def commit_done(self) -> None:
        """Commit what is done and was not committed, without waiting (auto-commit)."""
        offsets: dict[Partition, e.OffsetCommit] = {}
        if self.options.config.auto_commit:
            assigned = self.snapshot().assigned
            for partition, stream in self.buffer.streams.items():
                done = self.partitions.done_offset(stream)
                held = assigned.get(partition)
                if done is not None and held is not None and held.committed != done:
                    offsets[partition] = e.OffsetCommit(acquisition_id=stream.acquisition_id, offset=done)
        self.feed(e.CommitWantedEvent(now=boot_time(), offsets=offsets))

    async def commit(self, offsets: Mapping[Partition, tuple[int, str]], *, named: bool = True) -> None:
        """Commit for user code and wait for the broker's answer, over a barrier if one is going on.

        Args:
            offsets: (offset, metadata) per partition.
            named: user code named the partitions; otherwise one that was just given away is passed over.

        Raises:
            CommitFailedError: a partition is not this member's any more. KafkaError: the broker refused.
        """
        wanted: dict[Partition, e.OffsetCommit] = {}
        assigned = self.snapshot().assigned
        for partition, (offset, metadata) in offsets.items():
            stream = self.buffer.streams.get(partition)
            held = assigned.get(partition)
            if not named and (stream is None or held is None or held.state is AssignedState.TRANSFERRED):
                continue
            if stream is None:
                raise IllegalStateError(f"Partition {partition} is not assigned")
            wanted[partition] = e.OffsetCommit(acquisition_id=stream.acquisition_id, offset=offset, metadata=metadata)
        if not wanted:
            return
        self._commit_numbers += 1
        waiting: asyncio.Future[int] = self.loop.create_future()
        self._commit_requests[self._commit_numbers] = waiting
        number = self._commit_numbers
        try:
            self.feed(e.CommitWantedEvent(now=boot_time(), request=number, offsets=wanted))
            code = await waiting
        finally:
            self._commit_requests.pop(number, None)
        if code in (Code.ILLEGAL_GENERATION, Code.UNKNOWN_MEMBER_ID, Code.REBALANCE_IN_PROGRESS):
            raise CommitFailedError(
                "The commit was not made: a partition in it was given to another member meanwhile. What was not "
                "committed is handed out again there."
            )
        if code != Code.NONE:
            raise for_code(code)()

    def _commit_result(self, command: c.CommitResultCommand) -> None:
        waiting = self._commit_requests.get(command.request)
        if waiting is not None and not waiting.done():
            waiting.set_result(command.code)

    def _tell_from_user(self, call: Callable[..., object], *args: object) -> None:
        """From the user's thread: call something in the agent's loop. Harmless when the agent has ended."""
        try:
            self.loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            log.debug("the agent has ended")


def group_error(code: int, config: GroupConfig, *, spoken: str = "") -> KafkaError:
    """What aiokafka would raise for a JoinGroup refused with ``code``, in words that say what to do.

    Args:
        code: the broker's.
        config: what this member asked for.
        spoken: the assignment protocol that the group's members use, where it is known.
    """
    kind = for_code(code)
    if code == Code.INCONSISTENT_GROUP_PROTOCOL:
        offered = (LOADTRIM, *STANDARD_PROTOCOLS) if config.log_usable else STANDARD_PROTOCOLS
        return kind(
            f"Group {config.group} refused this member: it offers the assignment protocols {', '.join(offered)}, "
            f"and the group's members share none of them: they use {spoken or 'another one, or the KIP-848 protocol'}. "
            "Run the other members with range or roundrobin among their strategies, or give this consumer another "
            "group_id."
        )
    if code == Code.INVALID_SESSION_TIMEOUT:
        return kind(
            f"Group {config.group} refused this member: session_timeout_ms={config.session_timeout * 1000:.0f} is "
            "outside the broker's group.min.session.timeout.ms .. group.max.session.timeout.ms. Choose one inside."
        )
    return kind(f"Group {config.group} refused this member (error {code}).")
