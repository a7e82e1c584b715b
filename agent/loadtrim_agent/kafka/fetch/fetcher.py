"""The fetcher's shell: connections, metadata, timers and errors around the parts that do no I/O."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka import errors
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.clock import wall_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.tasks import OwnedTasks

from ..connections import UNREACHABLE, Backoff, Connections
from ..pool import ConnectionPool
from .channels import PAUSE_BYTES_MAX, BrokerChannels, ChannelRequest, FetchChannel, fetch_group_for
from .chunk import frame
from .fetch_errors import FetchErrors
from .fetch_group import FetchGroup
from .fetch_settings import FetchSettings
from .offsets import EARLIEST, LATEST, OffsetQueries
from .port import FetchSink
from .request import SessionFetchRequest
from .state import Budget, FetchPosition, Reset, Route, Taken

__all__ = ["KafkaFetcher"]

log = logging.getLogger("loadtrim")

ANSWERS_BYTES_MAX = 16 << 20
"""All answers that may be on their way at once, over both channels of all brokers. They come beside what is buffered,
in buffers of their own."""
BUFFERS_BYTES_MIN = 16 << 20
"""All buffers together may hold ``fetch_max_bytes``, but never less than this."""
PARTITION_BYTES_MIN = 16 << 10
"""However many partitions there are, so much is asked of each."""
SESSION_UNKNOWN, SESSION_EPOCH = 70, 71
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, OFFSET_NOT_AVAILABLE = 74, 75, 78
_NAMES = {
    FENCED_LEADER_EPOCH: "FencedLeaderEpochError",
    UNKNOWN_LEADER_EPOCH: "UnknownLeaderEpochError",
    OFFSET_NOT_AVAILABLE: "OffsetNotAvailableError",
}
"""Errors that aiokafka has no types for, as they are called by Kafka."""
NAMED_MAX = 5
"""Partitions named in one line of the log."""
_RESETS = {"earliest": EARLIEST, "latest": LATEST}
_ELSEWHERE = frozenset(
    {
        errors.UnknownTopicOrPartitionError.errno,
        errors.LeaderNotAvailableError.errno,
        errors.NotLeaderForPartitionError.errno,
        errors.ReplicaNotAvailableError.errno,
        errors.KafkaStorageError.errno,
        FENCED_LEADER_EPOCH,
        UNKNOWN_LEADER_EPOCH,
        OFFSET_NOT_AVAILABLE,
    }
)
"""The partition is to be had from another broker, or later: ask where."""


class KafkaFetcher:
    """Fetches on aiokafka's client, with sessions, two channels per broker and bounded buffers.

    Implements :class:`~loadtrim_agent.kafka.fetch.port.Fetcher`, whose methods say what they mean.

    Args:
        settings: the user's constructor arguments for ``AIOKafkaConsumer``, without those of the group.
        pool: where the connections come from; None: a pool of its own.

    Raises:
        ValueError: ``isolation_level`` is none that Kafka has.
    """

    def __init__(self, settings: Mapping[str, Any], pool: ConnectionPool | None = None) -> None:
        self._settings = chosen = FetchSettings.of(settings)
        self._connections = Connections(settings, pool)
        self._client = self._connections.client
        self._queries = OffsetQueries(
            self._client,
            isolation_level=chosen.isolation_level,
            timeout_ms=chosen.request_timeout_ms,
            retry_backoff=self._connections.retry_backoff,
        )
        self._budget = Budget(max(chosen.fetch_max_bytes, BUFFERS_BYTES_MIN))
        self._states: dict[Partition, Taken] = {}
        self._fetch_groups: dict[Route, FetchGroup] = {}
        self._silent: set[int] = set()
        """Brokers that did not answer the last fetch."""
        self._leaderless: dict[Partition, None] = {}
        self._finding: asyncio.Task[None] | None = None
        self._refused: dict[Partition, None] = {}
        """Not fetched because the buffers of all are full."""
        self._numbers = 0
        self._topics: frozenset[str] = frozenset()
        self._errors = FetchErrors()
        self._tasks = OwnedTasks(self._errors)

    # -- life cycle ----------------------------------------------------------------------------------------------

    @property
    def queries(self) -> OffsetQueries:
        return self._queries

    @property
    def budget(self) -> Budget:
        return self._budget

    async def start(self) -> None:
        await self._tasks.open()
        await self._client.bootstrap()
        self._client.cluster.add_listener(self._metadata_changed)

    async def close(self) -> None:
        await self._tasks.close()
        await self._connections.close()

    async def run(self, sink: FetchSink) -> None:
        self._errors.serve(sink)
        for fetch_group in self._fetch_groups.values():
            self._start_channels(fetch_group)
        await asyncio.get_running_loop().create_future()

    def _start_channels(self, fetch_group: FetchGroup) -> None:
        if self._errors.sink is not None and not fetch_group.started:
            fetch_group.started = True
            for channel in FetchChannel:
                self._tasks.spawn(self._run_channel(fetch_group, channel), channel.value)

    # -- what is fetched -----------------------------------------------------------------------------------------

    def cover(self, partitions: Iterable[Partition]) -> None:
        topics = frozenset(topic for topic, _ in partitions) | {topic for topic, _ in self._states}
        if topics and topics != self._topics:
            self._topics = topics
            self._client.set_topics(sorted(topics))

    def take(self, partition: Partition, offset: int) -> None:
        self._take(partition, offset, ahead=False)

    def take_ahead(self, partition: Partition, offset: int) -> None:
        self._take(partition, offset, ahead=True)

    def keep(self, partition: Partition) -> None:
        state = self._states.get(partition)
        if state is not None:
            state.ahead, state.hot = False, True
            self._mark_dirty(partition)
            if state.route is not None:
                self._fetch_groups[state.route].resume_now()

    def _take(self, partition: Partition, offset: int, *, ahead: bool) -> None:
        old = self._states.get(partition)
        self._numbers += 1
        state = self._states[partition] = Taken(partition, self._numbers, offset)
        state.ahead = ahead
        if old is not None:
            state.end_offset, state.last_stable_offset = old.end_offset, old.last_stable_offset
            state.told_at, state.trouble = self._told_at(old), old.trouble
            self._unroute(old)
        self._route(state)

    def drop(self, partition: Partition) -> None:
        state = self._states.pop(partition, None)
        self._leaderless.pop(partition, None)
        self._refused.pop(partition, None)
        if state is not None:
            self._unroute(state)

    def refill(self, partition: Partition) -> None:
        self._mark_dirty(partition)
        self._mark_refused_dirty()

    def _mark_refused_dirty(self) -> None:
        refused, self._refused = self._refused, {}
        for partition in refused:
            self._mark_dirty(partition)

    def _mark_dirty(self, partition: Partition) -> None:
        state = self._states.get(partition)
        if state is not None and state.route is not None:
            fetch_group = self._fetch_groups[state.route]
            fetch_group.channels.mark_dirty(partition)
            fetch_group.wake()

    def _unroute(self, state: Taken) -> None:
        if state.route is not None:
            fetch_group = self._fetch_groups[state.route]
            fetch_group.channels.remove(state.partition)
            fetch_group.wake()
            state.route = None

    def _route(self, state: Taken) -> None:
        """Have it fetched from its leader, or from a follower that the leader named."""
        node = self._node_of(state)
        if state.route is not None and state.route.node == node:
            return
        self._unroute(state)
        if node is None:
            self._leaderless[state.partition] = None
            if self._finding is None or self._finding.done():
                self._finding = self._tasks.spawn(self._find_leaders(), "find-leaders")
            return
        self._leaderless.pop(state.partition, None)
        fetch_group = self._fetch_group_of(node)
        state.route = Route(node, fetch_group.number)
        fetch_group.channels.add(state)
        fetch_group.wake()
        fetch_group.resume_now()

    def _fetch_group_of(self, node: int) -> FetchGroup:
        """With whom one partition more of a broker is fetched."""
        filled: list[int] = []
        while (fetch_group := self._fetch_groups.get(Route(node, len(filled)))) is not None:
            filled.append(len(fetch_group.channels.states))
        route = Route(node, fetch_group_for(filled) if self._settings.fetch_min_bytes <= 1 else 0)
        fetch_group = self._fetch_groups.get(route)
        if fetch_group is None:
            channels = BrokerChannels(node, wait_ms=self._settings.fetch_max_wait_ms, has_room=self._has_room)
            fetch_group = self._fetch_groups[route] = FetchGroup(
                channels, route.fetch_group, Backoff(self._connections.retry_backoff)
            )
            self._start_channels(fetch_group)
        return fetch_group

    def _node_of(self, state: Taken) -> int | None:
        cluster = self._client.cluster
        if state.replica is not None:
            if time.monotonic() < state.replica_until and cluster.broker_metadata(state.replica) is not None:
                return state.replica
            state.replica = None
        node = cluster.leader_for_partition(TopicPartition(*state.partition))
        return node if node is not None and node != -1 else None

    def _metadata_changed(self, cluster: Any) -> None:
        for state in list(self._states.values()):
            self._route(state)

    async def _find_leaders(self) -> None:
        """Ask for metadata until every partition has a leader."""
        backoff, known = Backoff(self._connections.retry_backoff), frozenset[Partition]()
        while self._leaderless and not self._tasks.closed:
            missing = frozenset(self._leaderless)
            if missing != known:
                backoff.succeeded()
            known = missing
            self._client._topics.update(topic for topic, _ in missing)
            await self._client.force_metadata_update()
            await asyncio.sleep(backoff.failed())

    def _has_room(self, state: Taken) -> bool:
        if not state.has_room(min(self._settings.low_bytes, self._share_bytes)):
            return False
        # With the buffers of all full, only who has nothing gets something.
        if self._budget.exhausted and state.count() > 0:
            self._refused[state.partition] = None
            return False
        return True

    @property
    def _share_bytes(self) -> int:
        """Half of a partition's share in all buffers: what may be left when more is fetched, and how much more."""
        return max(PARTITION_BYTES_MIN, self._budget.limit_bytes // (2 * max(1, len(self._states))))

    @property
    def _request_bytes(self) -> int:
        """What one request asks for. Fetch groups of brokers that are gone, or lead nothing any more, ask for none."""
        in_use = sum(fetch_group.in_use for fetch_group in self._fetch_groups.values())
        return min(self._settings.fetch_max_bytes, ANSWERS_BYTES_MAX // (len(FetchChannel) * max(1, in_use)))

    # -- one channel ------------------------------------------------------------------------------------------------

    async def _run_channel(self, fetch_group: FetchGroup, channel: FetchChannel) -> None:
        wake = fetch_group.wakes[channel]
        # Connected before it is needed: the first partition taken over while a poll is out waits for no handshake.
        await self._client.ready(fetch_group.channels.node, group=fetch_group.connection(channel))
        while not self._tasks.closed:
            if fetch_group.wait_seconds:
                await asyncio.sleep(fetch_group.wait_seconds)
            wake.clear()
            room = self._budget.room(self._request_bytes, self._states.values())
            if room and self._refused:
                self._mark_refused_dirty()
            asked = fetch_group.channels.next(channel)
            if asked is None:
                await wake.wait()
                continue
            if channel is FetchChannel.POLL:
                fetch_group.wakes[FetchChannel.EXPRESS].set()
            await self._ask(fetch_group, asked, room or self._settings.max_partition_fetch_bytes)

    async def _ask(self, fetch_group: FetchGroup, asked: ChannelRequest, max_bytes: int) -> None:
        channel, channels = asked.channel, fetch_group.channels
        request = SessionFetchRequest(
            max_wait_ms=asked.wait_ms,
            min_bytes=self._settings.fetch_min_bytes,
            max_bytes=max_bytes,
            partition_max_bytes=self._limits(asked),
            isolation_level=self._settings.isolation_level,
            session=asked.session,
            fetch=asked.fetch,
            forget=asked.forget,
            rack=self._settings.client_rack,
        )
        try:
            answer = await self._client.send(channels.node, request, group=fetch_group.connection(channel))
        except UNREACHABLE as error:
            channels.failed(channel)
            fetch_group.wake()  # the other channel may have left it all to this one, and sleep
            self._unreachable(fetch_group, error)
            return
        self._reachable(fetch_group)
        code = getattr(answer, "error_code", 0)
        if code:
            channels.failed(channel, session_known=code != SESSION_UNKNOWN)
            fetch_group.wake()
            if code not in (SESSION_UNKNOWN, SESSION_EPOCH):
                self._unreachable(fetch_group, errors.for_code(code)())
            return
        size_bytes = self._answered(fetch_group, channel, answer)
        if answer.throttle_time_ms > 0:
            await asyncio.sleep(answer.throttle_time_ms / 1000)
        elif (
            channel is FetchChannel.POLL
            and 0 < size_bytes <= PAUSE_BYTES_MAX
            and (second := self._fetch_groups.get(Route(channels.node, 1))) is not None
            and second.in_use
        ):
            await fetch_group.pause()

    def _limits(self, asked: ChannelRequest) -> dict[Partition, int]:
        """How much to ask for of each: its share, or a batch as large as its last ones.

        Of a batch above its limit the broker gives nothing, but for the first partition of an answer.
        """
        share = self._share_bytes
        return {
            partition: min(self._settings.max_partition_fetch_bytes, max(share, self._states[partition].batch_bytes))
            for partition, _ in asked.fetch
        }

    def _unreachable(self, fetch_group: FetchGroup, error: BaseException) -> None:
        if fetch_group.channels.node not in self._silent:
            self._silent.add(fetch_group.channels.node)
            log.warning("Fetching from broker %s failed, trying again: %r", fetch_group.channels.node, error)
        fetch_group.wait_seconds = fetch_group.backoff.failed()
        for state in list(fetch_group.channels.states.values()):
            if state.replica == fetch_group.channels.node:
                state.replica = None
                self._route(state)

    def _reachable(self, fetch_group: FetchGroup) -> None:
        if fetch_group.wait_seconds:
            fetch_group.wait_seconds = 0.0
            fetch_group.backoff.succeeded()
        if fetch_group.channels.node in self._silent:
            self._silent.discard(fetch_group.channels.node)
            log.info("Broker %s answers fetches again", fetch_group.channels.node)

    # -- answers -------------------------------------------------------------------------------------------------

    def _answered(self, fetch_group: FetchGroup, channel: FetchChannel, answer: Any) -> int:
        """Take in what was told; bytes of records in it."""
        now, size_bytes = wall_time(), 0
        channels = fetch_group.channels
        version = answer.API_VERSION
        due: list[Partition] = []
        news: dict[str, list[Partition]] = {}
        for topic, entries in answer.topics or ():
            for index, code, end_offset, stable, *rest in entries:
                partition = Partition(topic, index)
                due.append(partition)
                state = channels.asked(channel, partition)
                # Both channels may have asked: what the other one was told already leads elsewhere.
                if state is None or state.resets.under_way:
                    continue
                trouble = _name(code)
                if state.trouble != trouble:
                    state.trouble = trouble
                    news.setdefault(trouble, []).append(partition)
                if code:
                    self._refused_by_broker(state, code)
                    continue
                state.end_offset, state.last_stable_offset, state.told_at = end_offset, stable, now
                data = rest[-1]
                if data:
                    size_bytes += len(data)
                    self._take_apart(state, data, rest[-3] if version >= 11 else rest[-2])
                if version >= 11 and rest[-2] >= 0:
                    self._go_nearer(state, rest[-2])
        told = bool(due) or not answer.throttle_time_ms
        channels.answered(channel, getattr(answer, "session_id", 0), now, told=told)
        for partition in due:
            channels.mark_dirty(partition)
        if due or channel is FetchChannel.EXPRESS:
            fetch_group.wake()
        _tell(channels.node, news)
        return size_bytes

    def _take_apart(self, state: Taken, data: bytes, aborted: Any) -> None:
        try:
            chunk = frame(
                state.partition,
                state.offset,
                data,
                aborted,
                committed_only=self._settings.committed_only,
                check_crcs=self._settings.check_crcs,
            )
        except errors.CorruptRecordException as error:
            if not state.ahead:
                self._errors.tell(error, state.partition)
            self._rest(state)
            return
        if chunk is None and state.ahead:
            self._rest(state)
            return
        if chunk is None:
            skipped = (
                f"The record at {state.partition}, offset {state.offset}, is larger than the fetch size "
                f"{self._settings.max_partition_fetch_bytes} and the broker cannot send it. It is skipped. Raise "
                "max_partition_fetch_bytes, or lower the broker's message.max.bytes."
            )
            log.error(skipped)
            self._errors.tell(errors.RecordTooLargeError(skipped), state.partition)
            state.offset += 1
            return
        state.offset = chunk.end
        state.hot = True
        state.batch_bytes = max((stop - at for at, stop, *_ in chunk.batches), default=0)
        if chunk.batches:
            state.resets.given, state.resets.last = True, None
            state.buffer(chunk)
            self._budget.grew(chunk.size_bytes)
            assert self._errors.sink is not None
            self._errors.sink.chunk(chunk)

    def _go_nearer(self, state: Taken, replica: int) -> None:
        if self._client.cluster.broker_metadata(replica) is None:
            # It has just come back. The leader gives no records as long as it names another.
            self._client.force_metadata_update()
            self._rest(state)
            return
        state.replica = replica
        state.replica_until = time.monotonic() + self._settings.metadata_max_age_seconds
        self._route(state)

    def _refused_by_broker(self, state: Taken, code: int) -> None:
        if state.replica is not None:
            state.replica = None  # ask the leader before anything is made of it
            self._rest(state)
            self._route(state)
        elif code in _ELSEWHERE:
            self._client.force_metadata_update()
            self._rest(state)
        elif state.ahead:
            # When it is ours the user is told, or it is moved; moved now, it would begin there, past what is not done.
            self._rest(state)
        elif code == errors.OffsetOutOfRangeError.errno:
            if self._settings.auto_offset_reset == "none":
                at = TopicPartition(*state.partition)
                self._errors.tell(errors.OffsetOutOfRangeError({at: state.offset}), state.partition)
                self._rest(state)
            else:
                state.resets.under_way = True
                self._tasks.spawn(self._reset_offset(state), "reset-offset")
        elif code == errors.TopicAuthorizationFailedError.errno:
            self._errors.tell(errors.TopicAuthorizationFailedError(state.partition.topic), state.partition)
            self._rest(state)
        else:
            self._rest(state)

    def _rest(self, state: Taken) -> None:
        """Ask for it again in a moment."""
        state.resting = True
        asyncio.get_running_loop().call_later(self._connections.retry_backoff, self._rested, state)

    def _rested(self, state: Taken) -> None:
        state.resting = False
        if self._states.get(state.partition) is state:
            self._mark_dirty(state.partition)

    # -- offsets -------------------------------------------------------------------------------------------------

    async def _reset_offset(self, state: Taken) -> None:
        """Where ``auto_offset_reset`` says, once the leader has told it."""
        at = TopicPartition(*state.partition)
        while self._states.get(state.partition) is state and not self._tasks.closed:
            try:
                offset = await self._queries.offset_once(at, _RESETS[self._settings.auto_offset_reset])
            except errors.KafkaError as error:
                if error.invalid_metadata:
                    self._client.force_metadata_update()
                elif not error.retriable and self._states.get(state.partition) is state:  # else it has gone meanwhile
                    self._errors.tell(error, state.partition)
                await asyncio.sleep(self._connections.retry_backoff)
                continue
            if self._states.get(state.partition) is state:
                log.info("%s: offset %d is out of range, going on at %d", state.partition, state.offset, offset)
                state.resets.last = Reset(first=not state.resets.given)
                state.offset, state.resets.under_way, state.hot = offset, False, True
                self._mark_dirty(state.partition)
            return

    async def reset_offset(self, partition: Partition) -> int:
        at = TopicPartition(*partition)
        if self._settings.auto_offset_reset in _RESETS:
            return await self._queries.offset_of(at, _RESETS[self._settings.auto_offset_reset])
        raise errors.NoOffsetForPartitionError(at)

    def position(self, partition: Partition) -> FetchPosition | None:
        state = self._states.get(partition)
        return FetchPosition(state.offset, state.resets.last) if state is not None else None

    def end_offset(self, partition: Partition) -> int | None:
        state = self._states.get(partition)
        if state is None:
            return None
        # Records of an open transaction are not there yet for those who read committed ones only.
        stable = state.last_stable_offset
        return stable if self._settings.committed_only and stable is not None and stable >= 0 else state.end_offset

    def end_offset_at(self, partition: Partition) -> float | None:
        state = self._states.get(partition)
        return self._told_at(state) if state is not None else None

    def _told_at(self, state: Taken) -> float | None:
        polled_at = (
            self._fetch_groups[state.route].channels.polled_at if state.followed and state.route is not None else None
        )
        return max(state.told_at, polled_at) if polled_at is not None and state.told_at is not None else state.told_at

    def high_watermark(self, partition: Partition) -> int | None:
        state = self._states.get(partition)
        return state.end_offset if state is not None else None

    def last_stable_offset(self, partition: Partition) -> int | None:
        state = self._states.get(partition)
        return state.last_stable_offset if state is not None else None


def _name(code: int) -> str:
    """Of an error, as Kafka calls it; empty: there is none."""
    if not code:
        return ""
    return _NAMES.get(code) or errors.for_code(code).__name__


def _tell(node: int, news: Mapping[str, list[Partition]]) -> None:
    """Say once for all partitions of an answer what has begun or ended with them."""
    for trouble, partitions in news.items():
        named = ", ".join(map(str, sorted(partitions)[:NAMED_MAX])) + (", ..." if len(partitions) > NAMED_MAX else "")
        if not trouble:
            log.info("Broker %s gives %d partitions again: %s", node, len(partitions), named)
        else:
            # A leader that moved is everyday, and looked up at once.
            level = logging.INFO if trouble == errors.NotLeaderForPartitionError.__name__ else logging.WARNING
            log.log(
                level, "Broker %s refuses %d partitions, trying again: %s: %s", node, len(partitions), trouble, named
            )
