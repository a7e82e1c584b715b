"""The consumer whose group manages itself: records come from the record buffer that the agent's thread fills."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any, TypeAlias

import msgspec
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import ConsumerStoppedError, IllegalStateError, KafkaError
from aiokafka.structs import ConsumerRecord, TopicPartition

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.host import instance_name
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.listener import IncrementalRebalanceListener
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.kafka.connections import check_settings
from loadtrim_agent.kafka.fetch.fetcher import KafkaFetcher
from loadtrim_agent.kafka.subscription import Subscription
from loadtrim_agent.runtime.agent import Agent, AgentOptions
from loadtrim_agent.runtime.services import Services
from loadtrim_agent.runtime.thread import AgentThread

from .agent_link import AgentLink
from .arguments import Arguments, check_subscription, compiled
from .assigned_anew import AssignedAnew, ComesAnew, NobodyListens, ToldListener
from .cluster_queries import ClusterQueries
from .last_record import abandon_unless_worked_on, coroutine_function
from .positions import Positions
from .put_aside import PutAside
from .settings import Settings, control_topic_beside
from .start_errors import ClientTrouble, explained
from .watch import AgentWatch
from .work import Work, Worked

__all__ = ["ManagedConsumer"]

log = logging.getLogger("loadtrim")

NO_RECORDS_WAIT_SECONDS = 1.0
"""The longest sleep of user code before it looks again: for a lease that came back without a record."""
Batches: TypeAlias = dict[TopicPartition, list[ConsumerRecord[Any, Any]]]
_ALL: frozenset[Partition] = frozenset()
"""No partition named: records of any."""


class ManagedConsumer:
    """The side of :class:`loadtrim.Consumer` with ``LOADTRIM_ENABLED=true``. Methods run in the user's loop.

    Args:
        arguments: of the constructor.
        settings: of the environment.
        topics: subscribed at the start.
        user_loop: the loop that user code runs in.
        registry: Prometheus registry; None: the default one.

    Raises:
        ValueError, TypeError, SettingsError: see :class:`loadtrim.Consumer`.
    """

    def __init__(
        self,
        arguments: Arguments,
        settings: Settings,
        topics: tuple[str, ...],
        *,
        user_loop: asyncio.AbstractEventLoop,
        registry: Any,
    ) -> None:
        self._arguments = arguments
        self._settings = settings = msgspec.structs.replace(settings, instance=instance_name(settings))
        self._user_loop = user_loop
        control_topic_beside(topics, settings, arguments.group_id)
        self.link = AgentLink(
            Subscription(topics=tuple(sorted(topics)), exclude_internal=arguments.exclude_internal_topics)
        )
        self.queries = ClusterQueries(self.link)
        self._worked = Worked(self.link, user_loop)
        self.positions = Positions(
            self.link, self.queries, group=arguments.group_id, auto_commit=arguments.enable_auto_commit
        )
        check_settings(arguments.kafka, user_loop)
        self._make_services = partial(
            Services, settings, group=arguments.group_id, client_id=arguments.client_id, registry=registry
        )
        self.services = self._make_services()
        self._unstarted = weakref.finalize(self, _forget_unstarted, self.link, self.services)
        self._unstarted.atexit = False
        self._watch: AgentWatch | None = None
        self._put_aside = PutAside(self.link, self.positions)
        self.closed = False
        self._ending = False
        """The iteration is to end: no agent starts any more."""
        self._stopping: asyncio.Task[None] | None = None

    @property
    def buffer(self) -> RecordBuffer | None:
        """Records that can be taken without a wait; None before the start."""
        return self.link.buffer

    @property
    def unclosed(self) -> bool:
        """Return whether the agent runs and nobody has asked it to stop."""
        return self.link.agent is not None and not self.closed

    @property
    def member_id(self) -> str:
        """The id that the group's coordinator gave; empty before the first answer."""
        return "" if self.link.agent is None else self.link.agent.snapshot().member

    # Names of aiokafka's client, which programs read as ``consumer._client.cluster``.

    @property
    def cluster(self) -> ClusterMetadata:
        """Return what is known of brokers and topics; to be read only."""
        return self.link.need_agent().topics.cluster

    async def force_metadata_update(self) -> bool:
        """Ask a broker for it now. Returns whether one answered."""
        return await self.link.run(self.link.need_agent().topics.refresh())

    # -- life cycle ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        link = self.link
        if asyncio.get_running_loop() is not self._user_loop:
            raise IllegalStateError(
                "start() is called in another event loop than the consumer was made for, in which its records and "
                "listener's calls would wait for ever. Make the consumer in the coroutine that starts it."
            )
        await link.until_given_up()
        if link.thread is not None or self._stopping is not None:
            raise IllegalStateError("start() was called twice, or after stop(); make a new consumer")
        if link.agent is not None:  # of a start that failed
            link.agent = link.buffer = None
            self.services = self._make_services()
        self.closed = False
        link.thread = AgentThread(self._arguments.client_id)
        link.thread.start()
        trouble = ClientTrouble()
        try:
            with trouble.of_thread(link.thread.ident):
                link.agent = await link.run(self._make_agent())
                link.buffer = link.agent.buffer
                link.buffer.turns.on_change = self._put_aside.look
                link.buffer.sleep.turn_due = 0.0
                self._watch = AgentWatch(link.agent, link.thread)
                # User code may have subscribed while the agent was made.
                link.agent.listener.target = self._put_aside.listener
                link.agent.topics.subscription = link.subscription
                if self._ending:  # From here on the agent itself is told to leave.
                    raise ConsumerStoppedError()
                await link.run(link.agent.start())
        except BaseException as error:
            self.closed = True
            await link.give_up()
            if not isinstance(error, KafkaError):
                raise
            log.debug("The start failed", exc_info=True)
            raise explained(error, self._arguments.kafka, trouble) from None

    async def _make_agent(self) -> Agent:
        """Make the agent, in the agent's loop."""
        arguments, settings = self._arguments, self._settings
        subscription = self.link.subscription
        return Agent(
            AgentOptions(
                config=arguments.group_config(subscription.topics, settings),
                subscription=subscription,
                connection=arguments.kafka,
                control_topic=control_topic_beside((), settings, arguments.group_id),
                fetcher=lambda pool: KafkaFetcher(arguments.fetcher, pool),
                user_loop=self._user_loop,
                observer=self.services,
                auto_commit_seconds=arguments.auto_commit_interval_ms / 1000,
                max_poll_seconds=arguments.max_poll_interval_ms / 1000,
            )
        )

    async def stop(self, *, at_once: bool) -> None:
        """Leave the group; a second call waits for the first.

        What another task has in hand is waited for, as after SIGTERM. What this task has in hand is not done.

        Args:
            at_once: without handing partitions over.

        Raises:
            IllegalStateError: it is called within a rebalance listener's call.
        """
        caller = asyncio.current_task()
        self.link.refuse_in_listener(
            caller, "stop() waits until the listener has heard of it", "create a task that stops"
        )
        self.closed = True
        buffer = self.link.buffer
        if buffer is not None:
            buffer.closing = True
            buffer.wake()
            # Also in a second call: a task that comes to its end meanwhile is not waited for any more.
            abandon_unless_worked_on(buffer, caller)
        if self._stopping is None or self._stopping.cancelled():
            self._stopping = asyncio.ensure_future(self.link.end(self._settings.drain_seconds, release=not at_once))
        stopping = self._stopping
        await asyncio.wait([stopping])  # Whoever cancels all tasks cancels that one too, and not always its callers.
        if self.link.agent is None:
            self.services.metrics.close()
        self._unstarted.detach()  # It holds all that the link knows, and the listener may know the consumer.
        if not stopping.cancelled():
            stopping.result()

    def end_iteration(self, at_once: bool, drain_seconds: float | None = None) -> None:
        """End the iteration after the record in hand and begin to leave the group; a second call makes it faster.

        It may be called in any thread, and in a signal handler. The agent's loop leaves, which user code cannot block.

        Args:
            at_once: without handing partitions over.
            drain_seconds: user code has so long to finish what it has in hand, unless a later call says less. None: the
                setting.
        """
        self._ending = True  # First this: a start that goes on makes the agent, and looks here then.
        link = self.link
        if link.agent is not None and (at_once or not self.closed):
            link.agent.buffer.closing = True
            seconds = self._settings.drain_seconds if drain_seconds is None else drain_seconds
            link.post(link.agent.leave, seconds, not at_once)
            with contextlib.suppress(RuntimeError):  # The user's loop is closed: nothing waits in it.
                link.agent.buffer.wake()

    @property
    def left(self) -> bool:
        """The member is out of its group, or cannot leave it any more. May be asked in any thread."""
        agent = self.link.agent
        return agent is None or not self.link.thread_alive or agent.condition.over

    # -- records -------------------------------------------------------------------------------------------------

    @coroutine_function
    def getone(self, *partitions: TopicPartition) -> Coroutine[Any, Any, ConsumerRecord[Any, Any]]:
        return self._getone(partitions, _caller(self._user_loop))

    async def _getone(
        self, partitions: tuple[TopicPartition, ...], caller: asyncio.Task[Any] | None
    ) -> ConsumerRecord[Any, Any]:
        wanted = _wanted(partitions) if partitions else _ALL
        buffer, watch = self._open(wanted, caller)
        await buffer.hand.telling.let_begin(wanted)
        while True:
            try:
                watch.raise_error(wanted)
                if not wanted:
                    buffer.hand.asked(caller)
                record = buffer.take_one(wanted)
            except Exception:
                await asyncio.sleep(0)  # A loop that takes errors for passing ones lets others run.
                raise
            if record is not None:
                buffer.hand.taken(caller)
                return record
            if buffer.closing:
                raise ConsumerStoppedError()
            await buffer.wait(NO_RECORDS_WAIT_SECONDS, wanted)
            watch.raise_if_died()

    @coroutine_function
    def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> Coroutine[Any, Any, Batches]:
        return self._getmany(partitions, timeout_ms, max_records, _caller(self._user_loop))

    async def _getmany(
        self,
        partitions: tuple[TopicPartition, ...],
        timeout_ms: int,
        max_records: int | None,
        caller: asyncio.Task[Any] | None,
    ) -> Batches:
        if max_records is not None and (not isinstance(max_records, int) or max_records < 1):
            raise ValueError("`max_records` must be a positive Integer")
        wanted = _wanted(partitions) if partitions else _ALL
        buffer, watch = self._open(wanted, caller)
        await buffer.hand.telling.let_begin(wanted)
        if (now := boot_time()) >= buffer.sleep.turn_due:
            buffer.asked(now, wanted)  # first: the call was made, also where it is cancelled in between
            await buffer.sleep.let_turn()
        limit = max_records or self._arguments.max_poll_records
        deadline = self._user_loop.time() + timeout_ms / 1000 if timeout_ms > 0 else 0.0
        ending = buffer.closing
        while True:
            try:
                watch.raise_error(wanted)
                if not wanted:
                    buffer.hand.asked(caller)
                taken = buffer.take_many(wanted, limit)
            except Exception:
                await asyncio.sleep(0)
                raise
            buffer.hand.taken(caller)
            if ending:
                raise ConsumerStoppedError()
            # The clock is read only where there is time left to wait: that costs as much as looking for records.
            left = 0.0 if taken or timeout_ms <= 0 else deadline - self._user_loop.time()
            if left <= 0 or buffer.closing:
                return {TopicPartition(*p): records for p, records in taken.items()}
            await buffer.wait(min(left, NO_RECORDS_WAIT_SECONDS), wanted)
            watch.raise_if_died()

    def work(self, message: ConsumerRecord[Any, Any]) -> Work:
        return Work(self._worked, message)

    def done(self, message: ConsumerRecord[Any, Any]) -> bool:
        return self._worked.done(message)

    def _open(self, wanted: frozenset[Partition], caller: asyncio.Task[Any] | None) -> tuple[RecordBuffer, AgentWatch]:
        """Return what a call that asks for records works with.

        Raises:
            ConsumerStoppedError: the consumer is not started, or it is stopping.
            IllegalStateError: it is called within a rebalance listener's call.
        """
        buffer, watch = self.link.buffer, self._watch
        if buffer is None or watch is None:
            if self.closed:
                raise ConsumerStoppedError()
            raise IllegalStateError("The consumer is not started: await start() first")
        self.link.refuse_in_listener(caller, "records come when the call has returned", "ask for them in another task")
        if self.closed:
            buffer.take_one(wanted)  # gives none any more; what the caller had in hand is done by this call
            raise ConsumerStoppedError()
        buffer.hand.samples.asked(boot_time(), wanted)
        return buffer, watch

    # -- subscriptions -------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        check_subscription(topics, pattern, listener)
        subscription = Subscription(
            topics=tuple(sorted(set(topics))),
            pattern=compiled(pattern),
            exclude_internal=self._arguments.exclude_internal_topics,
            own=(self._settings.control_topic, self._settings.baseline_topic),
        )
        control_topic_beside(subscription.topics, self._settings, self._arguments.group_id)
        self._put_aside.listener = self._as_called(listener)
        self._set_subscription(subscription)
        self._put_aside.look(self.link.streams)  # last: nothing but the listener's call takes back what it puts aside

    def _as_called(self, listener: ConsumerRebalanceListener | None) -> ToldListener | None:
        """Return what the agent calls for a listener of user code; the same one for the same listener."""
        before = self._put_aside.listener
        if listener is None and before is not None:
            # What the one before was told to go may come again, and a later one is told what it is being told.
            listener = before.listener if isinstance(before.listener, NobodyListens) else NobodyListens()
        if listener is None:
            return None
        if before is not None and before.listener is listener:
            return before
        kind = ComesAnew if isinstance(listener, IncrementalRebalanceListener) else AssignedAnew
        return kind(listener, self.link, self.positions)

    def unsubscribe(self) -> None:
        self._set_subscription(Subscription())

    def _set_subscription(self, subscription: Subscription) -> None:
        self.link.subscription = subscription
        back = self._put_aside.subscribed(subscription)
        if self.link.agent is not None:
            self.link.post(self.link.agent.subscribe, subscription, self._put_aside.listener, back)

    def subscription(self) -> Iterable[str]:
        agent, subscription = self.link.agent, self.link.subscription
        if agent is None or subscription.pattern is None:
            return subscription.topics
        return agent.snapshot().subscribed

    def assign(self, partitions: list[TopicPartition]) -> None:
        raise IllegalStateError(
            "assign() is refused: in a loadtrim group the members decide who owns what. Use subscribe(), or "
            "AIOKafkaConsumer without group_id for partitions of your own choice."
        )

    def assignment(self) -> set[TopicPartition]:
        subscribed = self.link.subscription.matches({partition.topic for partition in self.link.held})
        return {TopicPartition(*partition) for partition in self.link.held if partition.topic in subscribed}


def _forget_unstarted(link: AgentLink, services: Services) -> None:
    """Have the metrics of a consumer without an agent taken out of their registry. An agent does so when it stops."""
    if link.agent is None:
        services.metrics.close(at_once=False)


def _wanted(partitions: tuple[TopicPartition, ...]) -> frozenset[Partition]:
    """Return the partitions that records are asked for of.

    Raises:
        TypeError: one of them is none.
    """
    for partition in partitions:
        if not isinstance(partition, TopicPartition):
            raise TypeError(
                f"{partition!r} is no partition, so no record of it ever comes: give TopicPartition(topic, number)."
            )
    return frozenset(Partition(*partition) for partition in partitions)


def _caller(loop: asyncio.AbstractEventLoop) -> asyncio.Task[Any] | None:
    """Return the task of a loop that calls; None: another thread does, or no task."""
    return asyncio.current_task(loop) if asyncio._get_running_loop() is loop else None
