"""The data plane: fetches the records of what this member holds.

:class:`DataPlane` is the port; :class:`AiokafkaPlane` the first implementation, on ``AIOKafkaConsumer(group_id=None)``
with every partition of the subscribed topics assigned once, and paused where it is not ours.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import NoOffsetForPartitionError, RecordTooLargeError
from aiokafka.structs import TopicPartition

from loadtrim_agent.core.model import Partition

__all__ = ["AiokafkaPlane", "DataPlane", "OnBatch"]

log = logging.getLogger("loadtrim")

OnBatch = Callable[[Partition, list[Any], int, "int | None"], None]
"""(partition, records, offset to fetch next, end of the log or None): called in the agent's loop per fetched batch."""

FETCH_WAIT_MS_MAX = 100
"""A partition that is taken joins the next fetch, so a long poll in flight delays its first record by up to this."""


class DataPlane(Protocol):
    """What the agent needs of any data plane. All methods are called in the agent's loop."""

    @property
    def consumer(self) -> AIOKafkaConsumer:
        """For the queries that need no group: offsets by time, end offsets, topics."""

    async def start(self) -> None:
        """Connect. Raises what ``AIOKafkaConsumer.start`` raises."""

    async def close(self) -> None: ...

    def cover(self, partitions: Iterable[Partition]) -> None:
        """All partitions that might ever be taken, now. What is fetched goes on being fetched."""

    async def reset_offset(self, partition: Partition) -> int:
        """Where ``auto_offset_reset`` starts. Raises NoOffsetForPartitionError where that is ``none``."""

    def take(self, partition: Partition, offset: int) -> None:
        """Fetch from ``offset`` on, at once."""

    def drop(self, partition: Partition) -> None:
        """Fetch no more; what comes late is thrown away."""

    def hold(self, partition: Partition) -> None:
        """The buffer is full: fetch no more until :meth:`release`."""

    def release(self, partition: Partition) -> None:
        """There is room again."""

    def position(self, partition: Partition) -> int | None:
        """The offset fetched next: behind the last record given, and behind what holds no records for users."""

    def end_offset(self, partition: Partition) -> int | None:
        """End of the log as the last fetch told it."""

    def end_offset_at(self, partition: Partition) -> float | None:
        """When it did, own wall clock."""

    async def run(self, on_batch: OnBatch) -> None:
        """Fetch for ever. Raises what ``AIOKafkaConsumer.getmany`` would raise in user code."""


class AiokafkaPlane:
    """See :class:`DataPlane`. Known limits (a fetch loop of our own will lift them): one fetch in flight per broker,
    so a taken partition waits for the long poll in flight (at most 0.1 s, sooner when other partitions have records).

    Args:
        settings: the user's constructor arguments for ``AIOKafkaConsumer``, without those of the group.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        wait_ms = min(int(settings.get("fetch_max_wait_ms", 500)), FETCH_WAIT_MS_MAX)
        self._consumer = AIOKafkaConsumer(
            **{**settings, "fetch_max_wait_ms": wait_ms, "group_id": None, "enable_auto_commit": False}
        )
        self._reset = str(settings.get("auto_offset_reset", "latest"))
        self._committed_only = settings.get("isolation_level") == "read_committed"
        self._covered: frozenset[TopicPartition] = frozenset()
        self._taken: set[TopicPartition] = set()
        self._held: set[TopicPartition] = set()
        self._following: dict[TopicPartition, int] = {}
        """Partition taken -> offset behind the last record given."""
        self._something_taken = asyncio.Event()

    @property
    def consumer(self) -> AIOKafkaConsumer:
        """For the queries that need no group: offsets by time, end offsets, topics."""
        return self._consumer

    async def start(self) -> None:
        await self._consumer.start()

    async def close(self) -> None:
        await self._consumer.stop()

    def cover(self, partitions: Iterable[Partition]) -> None:
        covered = frozenset(TopicPartition(*p) for p in partitions) | self._taken
        if covered == self._covered:
            return
        positions = {p: position for p in self._taken if (position := self.position(p)) is not None}
        self._covered = covered
        self._consumer.assign(sorted(covered))
        for at in sorted(covered):
            # A position for every partition, owned or not, keeps aiokafka from looking offsets up for all of them.
            self._consumer.seek(at, positions.get(at, 0))
            if at not in self._taken or at in self._held:
                self._consumer.pause(at)

    async def reset_offset(self, partition: Partition) -> int:
        at = TopicPartition(*partition)
        if self._reset == "earliest":
            return int((await self._consumer.beginning_offsets([at]))[at])
        if self._reset == "latest":
            return int((await self._consumer.end_offsets([at]))[at])

        raise NoOffsetForPartitionError(at)

    def take(self, partition: Partition, offset: int) -> None:
        at = TopicPartition(*partition)
        self._taken.add(at)
        self._held.discard(at)
        self._following[at] = offset
        self._something_taken.set()
        if at not in self._covered:
            self.cover(self._covered)
        self._consumer.seek(at, offset)
        self._consumer.resume(at)

    def drop(self, partition: Partition) -> None:
        at = TopicPartition(*partition)
        if at in self._taken:
            self._taken.discard(at)
            self._held.discard(at)
            del self._following[at]
            self._consumer.pause(at)
            if not self._taken:
                self._something_taken.clear()

    def hold(self, partition: Partition) -> None:
        at = TopicPartition(*partition)
        if at in self._taken and at not in self._held:
            self._held.add(at)
            self._consumer.pause(at)

    def release(self, partition: Partition) -> None:
        at = TopicPartition(*partition)
        if at in self._held:
            self._held.discard(at)
            if at in self._taken:
                self._consumer.resume(at)

    def position(self, partition: Partition) -> int | None:
        state = self._state(partition)
        return int(state.position) if state is not None and state.has_valid_position else None

    def end_offset(self, partition: Partition) -> int | None:
        state = self._state(partition)
        if state is None or state.highwater is None:
            return None
        # Records of an open transaction are not there yet for those who read committed ones only.
        return int(state.lso if self._committed_only and state.lso is not None else state.highwater)

    def end_offset_at(self, partition: Partition) -> float | None:
        state = self._state(partition)
        return state.timestamp / 1000 if state is not None and state.timestamp is not None else None

    def _state(self, partition: Partition) -> Any:
        subscription = self._consumer._subscription.subscription
        if subscription is None or subscription.assignment is None:
            return None
        return subscription.assignment.state_value(TopicPartition(*partition))

    async def run(self, on_batch: OnBatch) -> None:
        while True:
            await self._something_taken.wait()
            try:
                batches = await self._consumer.getmany(timeout_ms=200)
            except Exception as error:
                self._rewind(error)
                raise
            for at, records in batches.items():
                if at in self._taken and records:
                    partition = Partition(at.topic, at.partition)
                    following = self.position(partition) or records[-1].offset + 1
                    self._following[at] = following
                    on_batch(partition, records, following, self.end_offset(partition))

    def _rewind(self, error: Exception) -> None:
        """aiokafka throws away what it had read before the error: fetch it again. A record that is too large for the
        fetch is passed over, as aiokafka does."""
        if isinstance(error, RecordTooLargeError):
            return
        for at in sorted(self._taken):
            self._consumer.seek(at, self._following[at])
