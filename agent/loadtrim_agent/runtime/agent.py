"""The agent: one per consumer, on an event loop of its own in a thread of its own.

This is wiring and the life cycle. :mod:`.membership` feeds the protocol machine with
what happens and carries its commands out. What to do is decided in :mod:`loadtrim_agent.protocol`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

import msgspec

from loadtrim_agent.common.clock import boot_time, warn_about_clock
from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.tasks import AgentTasks
from loadtrim_agent.delivery.deserializer import RecordDeserializer
from loadtrim_agent.delivery.gate import DeliveryGate
from loadtrim_agent.delivery.listener import Listener, RebalanceListener
from loadtrim_agent.delivery.partitions import DeliveryParts, Partitions
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.delivery.transactions import Transactions
from loadtrim_agent.kafka.connections import Connections, Coordinator, connect_seconds
from loadtrim_agent.kafka.control_log import ControlLog
from loadtrim_agent.kafka.fetch.offsets import OffsetQueries
from loadtrim_agent.kafka.fetch.port import Fetcher
from loadtrim_agent.kafka.group_requests import GroupRequests
from loadtrim_agent.kafka.pool import ConnectionPool
from loadtrim_agent.kafka.subscription import Subscription, TopicWatch
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.assigned_partition import AssignedState
from loadtrim_agent.protocol.commands import Command
from loadtrim_agent.protocol.group_config import GroupConfig
from loadtrim_agent.protocol.snapshot import MachineSnapshot

from .condition import AgentCondition
from .control_access import ControlAccess
from .membership import CommandExecutor, MembershipDriver, UserCommits
from .observer import AgentObserver

__all__ = ["Agent", "AgentOptions"]

log = logging.getLogger("loadtrim")

LAST_REPORT_SECONDS = 0.5
"""How long a member that has left waits at most for its last report to be written. Chosen."""
FIRST_CALL_SECONDS = 1.0
"""The start waits for a call of the listener that has begun for so long: nearly all have ended by then. Chosen."""
ASLEEP_SECONDS_MAX = 3.0
"""A call that waits for records looks again each second. Chosen: a loop that is that late is blocked, or has ended."""
LOOK_SECONDS_MIN = 0.01
"""User code is not watched more often, however short ``max_poll_interval_ms`` is. Chosen."""
LEAVE_SECONDS = 5.0
"""How long after the drain's deadline the answer to the LeaveGroup is waited for. Chosen."""


class AgentOptions(msgspec.Struct):
    """The consumer gives its agent these options."""

    config: GroupConfig
    subscription: Subscription
    connection: Mapping[str, Any]
    """The user's constructor arguments."""
    control_topic: str
    fetcher: Callable[[ConnectionPool], Fetcher]
    """Makes the fetcher, in the agent's loop."""
    user_loop: asyncio.AbstractEventLoop
    observer: AgentObserver
    auto_commit_seconds: float
    max_poll_seconds: float
    """User code that asks for no record for longer: the member leaves."""

    @property
    def committed_timeout(self) -> float | None:
        """Seconds that a reader of committed offsets waits for an open transaction; None: it does not wait."""
        if self.connection.get("isolation_level") != "read_committed":
            return None
        return float(self.connection.get("request_timeout_ms", 40_000)) / 1000


class Agent:
    """See the module's text. All methods run in the agent's loop."""

    def __init__(self, options: AgentOptions) -> None:
        config, observer = options.config, options.observer
        self.options = options
        self.condition = AgentCondition()
        self.boundary = ErrorBoundary(observer)
        self.tasks = AgentTasks(self, self.boundary)
        self.driver = MembershipDriver(config, self, observer, self.boundary)
        deserializer = RecordDeserializer(options.connection)
        self.buffer = RecordBuffer(options.user_loop, asyncio.get_running_loop(), deserializer)
        gate = DeliveryGate(self.buffer)
        self.listener = Listener(options.user_loop, self.boundary, gate)
        request_timeout = config.rebalance_timeout + config.session_timeout
        pool = ConnectionPool(
            options.connection,
            request_timeout=request_timeout,
            connect_timeout=connect_seconds(config.session_timeout),
        )
        self.connections = Connections(options.connection, pool, request_timeout=request_timeout)
        coordinator = Coordinator(self.connections, config.group)
        self.requests = GroupRequests(config, coordinator, self.driver, self.tasks)
        self.fetcher = options.fetcher(pool)
        self.buffer.agent.budget = self.fetcher.budget
        self.partitions = Partitions(
            DeliveryParts(
                buffer=self.buffer,
                gate=gate,
                fetcher=self.fetcher,
                listener=self.listener,
                observer=observer,
                boundary=self.boundary,
                agent=self,
                tasks=self.tasks,
                offsets=self.requests,
                retry_backoff=config.retry_backoff,
                drain_seconds=config.drain_seconds,
                by_hand=not config.auto_commit,
            )
        )
        self.transactions = Transactions(self.driver, config.rebalance_timeout)
        self.control = ControlAccess(
            options.connection, options.control_topic, self.driver, observer, self.boundary, self.tasks, pool
        )
        self.topics = TopicWatch(self.connections.client, options.subscription, self)
        self.commits = UserCommits(self.driver, self.partitions, self.requests, options.committed_timeout)
        self.driver.sink = CommandExecutor(self)

    # -- what its parts and the consumer look at -----------------------------------------------------------------

    @property
    def observer(self) -> AgentObserver:
        """Return what runs beside membership."""
        return self.options.observer

    def snapshot(self) -> MachineSnapshot:
        """Return the membership and the assigned partitions of now."""
        return self.driver.machine.snapshot()

    def trace(self) -> list[tuple[float, e.Event | Command]]:
        """Return the last events and commands with their times, oldest first."""
        return self.driver.machine.trace()

    @property
    def cluster_id(self) -> str:
        """The Kafka cluster's own name; empty: it is not known yet, or the brokers do not tell."""
        return self.connections.client.cluster_id

    @property
    def log(self) -> ControlLog | None:
        """The control topic; None: it cannot be used."""
        return self.control.log

    @property
    def log_works(self) -> bool:
        """Return whether the control topic can be read and written, as far as is known."""
        return self.control.log is not None and self.driver.snapshot().log_works

    @property
    def queries(self) -> OffsetQueries:
        """Offsets and log sizes of any partition."""
        return self.fetcher.queries

    def feed(self, event: e.Event) -> None:
        """See :meth:`MembershipDriver.feed`."""
        self.driver.feed(event)

    # -- life cycle ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, prove the control topic, join. Returns when the member has its generation, or has left meanwhile.

        Raises:
            KafkaError: as ``AIOKafkaConsumer.start`` does.
        """
        warn_about_clock()
        await self.tasks.open()
        await self.connections.start()
        self.tasks.spawn(self.requests.connect(), "connect")
        opening = _together(self.topics.start(), self.fetcher.start(), self.control.start())
        if not await _unless(self.condition.left, opening):
            return
        topics, partitions = self.topics.seen
        self.feed(e.SubscriptionEvent(now=boot_time(), topics=topics))
        self.feed(e.TopicsEvent(now=boot_time(), partitions=partitions))
        self.fetcher.cover(self._coverable())
        self.tasks.spawn(self.partitions.fetch(), "fetch")
        self.tasks.spawn(self._watch_user(), "watch-user")
        if self.options.config.auto_commit:
            self.tasks.spawn(self.commits.run_auto_commit(self.options.auto_commit_seconds), "auto-commit")
        await self.boundary.wait("start", self.observer.start(self))
        self.feed(e.StartEvent(now=boot_time()))
        await self._first_generation()

    async def _first_generation(self) -> None:
        """Wait for the first generation, and until what its assignment gives is positioned.

        A listener's call is not waited for much longer: it may wait itself for something that user code does next.
        """
        condition = self.condition
        ends = (condition.settled, condition.left, condition.failed)
        await _first_of(*ends, self.listener.calls.begun)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_CALL_SECONDS):
                await _first_of(*ends)
        if condition.failure is not None:
            raise condition.failure

    def leave(self, drain_seconds: float, release: bool = True) -> None:
        """Begin to leave the group: give away what is owned within ``drain_seconds``, or at once without releasing.

        A leave that is under way keeps its deadline where that is the earlier one.
        """
        now, condition = boot_time(), self.condition
        condition.leave_by = min(condition.leave_by, now + drain_seconds)
        self.listener.leaving = True
        self.feed(e.LeaveWantedEvent(now=now, deadline=condition.leave_by, release=release))

    async def _watch_user(self) -> None:
        """Leave when user code asks for no record for too long (``max_poll_interval_ms``, KIP-62)."""
        limit, buffer = self.options.max_poll_seconds, self.buffer
        while self.condition.failure is None:
            buffer.agent_seen_at = boot_time()
            await asyncio.sleep(min(1.0, max(limit / 4, LOOK_SECONDS_MIN)))
            idle = boot_time() - buffer.last_call
            # A call that waits asks again each second, unless its loop is blocked, or does not run any more.
            most = max(limit, ASLEEP_SECONDS_MAX) if buffer.sleep.asleep else limit
            if idle < most or buffer.expired or buffer.closing:
                continue
            log.error(
                "User code has asked for no record for %.0f s, longer than max_poll_interval_ms allows: this member "
                "leaves the group, and what it has in hand will be handed out again elsewhere. It joins again at the "
                "next call. Ask for records more often, or raise max_poll_interval_ms.",
                idle,
            )
            self.boundary.broke("max_poll_interval")
            buffer.expired = True
            self.leave(0.0, release=False)

    def come_back(self) -> None:
        """Join again after having left for want of calls: as a newcomer, with a new id."""
        self.tasks.spawn(self._come_back(), "come-back")

    async def _come_back(self) -> None:
        # User code may ask for records while the leave is under way.
        await self.condition.left.wait()
        if self.condition.failure is None and not self.buffer.closing:
            self.condition.left.clear()
            self.condition.leave_by = float("inf")
            self.listener.leaving = False
            self.driver.join_again()

    async def stop(self, drain_seconds: float, *, release: bool = True) -> None:
        """Leave the group within ``drain_seconds``, then close everything. Never raises for the network's sake.

        A member that has failed is leaving already, or has left.
        """
        condition = self.condition
        if condition.failure is None and not condition.left.is_set():
            self.leave(drain_seconds, release)
        seconds = LEAVE_SECONDS + (drain_seconds if condition.failure is None else 0.0)
        try:
            async with asyncio.timeout(seconds):
                await condition.left.wait()
        except TimeoutError:
            log.warning("The group could not be left in time; it notices by the session timeout.")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_REPORT_SECONDS):
                await condition.reported.wait()
        await self.close()

    async def close(self) -> None:
        """End every task, those of the observer included, and then every connection."""
        self.driver.stop_timer()
        await self.tasks.close()
        await self.boundary.wait("stop", self.observer.stop())
        for closing in (
            self.control.close(),
            self.fetcher.close(),
            self.connections.close(),
            self.connections.pool.close(),
        ):
            await self.boundary.wait("close", closing)
        self.commits.close()

    def raise_to_user(self, error: BaseException) -> None:
        """Membership or fetching broke: the user's next call raises it, nothing more is delivered, the member leaves.

        A member that only stopped delivering would hold partitions that no member consumes.
        """
        if self.condition.failure is not None:
            return
        self.condition.fail(error)
        self.transactions.generation_changed()
        self.partitions.gate.lease_until = 0.0
        self.buffer.fail(error, for_good=True)
        self.leave(0.0, release=False)

    def waits_for_user(self) -> None:
        """See :class:`loadtrim_agent.delivery.ports.DeliveryAgent`."""
        self.condition.settled.set()

    # -- topics --------------------------------------------------------------------------------------------------

    def subscribe(
        self, subscription: Subscription, listener: RebalanceListener | None, back: Collection[Partition] = ()
    ) -> None:
        """Other topics from now on. A listener that is new is told at once what is owned.

        Args:
            subscription: the topics.
            listener: of user code.
            back: user code had left their topics, and these were not given up yet. They are as new for the listener.
        """
        known, told = self.listener.target, self.listener.held | self.partitions.waiting_for_a_seek
        self.listener.target = listener
        assigned = self.snapshot().assigned
        # What is being opened, and what was told to go and comes back, it hears of then. But it hears now of what is
        # being opened where the one before was told. So it does of what waits for a seek.
        opened = [
            p
            for p, stream in self.buffer.streams.items()
            if p in assigned and (assigned[p].state is not AssignedState.OPENING or p in told) and not stream.revoked
        ]
        again = sorted(p for p in opened if p in back)
        if listener is not None and listener is not known and opened:
            self.tasks.spawn(self.listener.introduce(sorted(opened)), "introduce-listener")
        elif listener is not None and again:
            self.tasks.spawn(self.listener.assigned_anew(again), "tell-listener-anew")
        self.topics.subscription = subscription  # at the start nothing can be spawned yet
        self.tasks.spawn(self.topics.subscribe(subscription), "subscribe")

    def topics_changed(self, topics: tuple[str, ...], partitions: dict[str, int]) -> None:
        """See :class:`loadtrim_agent.kafka.ports.TopicObserver`."""
        now = boot_time()
        self.feed(e.TopicsEvent(now=now, partitions=partitions))
        self.feed(e.SubscriptionEvent(now=now, topics=topics))
        self.fetcher.cover(self._coverable())

    def _coverable(self) -> list[Partition]:
        group = self.snapshot()
        return [
            Partition(topic, index) for topic in group.topics for index in range(group.partition_counts.get(topic, 0))
        ]


async def _first_of(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    waits = {asyncio.ensure_future(event.wait()) for event in events}
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _unless(event: asyncio.Event, work: Coroutine[Any, Any, Any]) -> bool:
    """Wait for the work, and give it up where the event is set first; return whether it was done."""
    working, waiting = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
        return working.done()
    finally:
        working.cancel()
        waiting.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)


async def _together(*works: Coroutine[Any, Any, Any]) -> list[Any]:
    """Wait for all of them, then raise what the first in order raised, if any did."""
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes
