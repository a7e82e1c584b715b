"""Queries that need no group and no fetch, on the fetcher's own client: topics, offsets by time, sizes on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NoError,
    StaleMetadata,
    UnsupportedForMessageFormatError,
    for_code,
)
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.structs import OffsetAndTimestamp, TopicPartition

from ..log_dirs import LogDirsRequest, sizes_of

__all__ = ["EARLIEST", "LATEST", "OffsetQueries"]

LATEST = -1
EARLIEST = -2
"""Instead of a timestamp."""
_CONSUMER = -1
_NONE = -1
_Answer = TypeVar("_Answer")
_Found: TypeAlias = tuple[int, int | None] | KafkaError
"""(offset, timestamp) of one partition, or why there is none."""


class OffsetQueries:
    """With the meaning of ``AIOKafkaConsumer``'s methods of the same names. The agent's loop.

    Args:
        client: connected.
        isolation_level: 1 for ``read_committed``: the end is the last stable offset.
        timeout_ms: of one query, tries included.
        retry_backoff: seconds between tries.
    """

    def __init__(self, client: AIOKafkaClient, *, isolation_level: int, timeout_ms: int, retry_backoff: float) -> None:
        self._client = client
        self._isolation_level = isolation_level
        self._timeout_ms = timeout_ms
        self._retry_backoff = retry_backoff
        self._together: dict[tuple[int, int], dict[TopicPartition, asyncio.Future[_Found]]] = {}
        """(leader, timestamp) -> what the next request there looks up."""

    async def topics(self) -> set[str]:
        """All topics that this user may see."""
        cluster = await self._client.fetch_all_metadata()
        return set(cluster.topics())

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Partition numbers of a topic; None where its metadata is not known. Any thread."""
        found = self._client.cluster.partitions_for_topic(topic)
        return None if found is None else set(found)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset written at or after each timestamp (ms); None where there is none.

        Raises:
            ValueError: a negative timestamp. KafkaTimeoutError: no answer in time. KafkaError: refused.
        """
        for at, stamp in timestamps.items():
            if stamp < 0:
                raise ValueError(f"The target time for partition {at} is {stamp}. The target time cannot be negative.")
        found = await self._look_up({at: int(stamp) for at, stamp in timestamps.items()})
        return {
            at: OffsetAndTimestamp(*found[at]) if at in found and found[at][0] != _NONE else None for at in timestamps
        }

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each. Raises as :meth:`offsets_for_times` does."""
        found = await self._look_up(dict.fromkeys(partitions, EARLIEST))
        return {at: offset for at, (offset, _) in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each. Raises as :meth:`offsets_for_times` does."""
        found = await self._look_up(dict.fromkeys(partitions, LATEST))
        return {at: offset for at, (offset, _) in found.items()}

    async def offset_of(self, partition: TopicPartition, timestamp: int) -> int:
        """The first offset at :data:`EARLIEST`, :data:`LATEST` or a time (ms), of one partition.

        Raises:
            KafkaTimeoutError: no answer in time. KafkaError: refused.
        """
        return await self._tried(lambda: self.offset_once(partition, timestamp))

    async def offset_once(self, partition: TopicPartition, timestamp: int) -> int:
        """The same, asked once.

        Those that are asked for in the same turn of the loop share one request per leader: one by one a thousand of
        them take seconds. Each waits, fails and is tried again for itself only.

        Raises:
            KafkaError: the leader could not be asked, or refused; ``retriable`` says whether to try again.
        """
        (leader,) = await self._by_leader((partition,))
        together = self._together.setdefault((leader, timestamp), {})
        first = not together
        answer = together.setdefault(partition, asyncio.get_running_loop().create_future())
        if first:
            await self._ask_together(leader, timestamp)
        found = await asyncio.shield(answer)
        if isinstance(found, KafkaError):
            raise found
        return found[0]

    async def _ask_together(self, leader: int, timestamp: int) -> None:
        """Who asks first sends the request for all who ask in this turn."""
        together = self._together[leader, timestamp]
        found: dict[TopicPartition, _Found] = {}
        why: KafkaError = KafkaConnectionError("who asked for all was told to stop")
        try:
            try:
                await asyncio.sleep(0)
            finally:
                del self._together[leader, timestamp]
            topics: dict[str, list[tuple[int, int]]] = {}
            for at in together:
                topics.setdefault(at.topic, []).append((at.partition, timestamp))
            found = await self._ask(leader, topics)
        except KafkaError as error:
            why = error
        finally:
            for at, answer in together.items():
                answer.set_result(found.get(at, why))

    async def _look_up(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int | None]]:
        return await self._tried(lambda: self.look_up_once(timestamps)) if timestamps else {}

    async def _tried(self, ask: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Again until there is an answer, one that cannot be mended by trying, or the time is over."""
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                while True:
                    try:
                        return await ask()
                    except KafkaError as error:
                        if not error.retriable:
                            raise
                        if error.invalid_metadata:
                            self._client.force_metadata_update()
                        await asyncio.sleep(self._retry_backoff)
        except TimeoutError as error:
            raise KafkaTimeoutError(f"Failed to get offsets by times in {self._timeout_ms} ms") from error

    async def look_up_once(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int | None]]:
        """(offset, timestamp) per partition, asked once of each leader.

        Raises:
            KafkaError: one of them could not be asked, or refused; ``retriable`` says whether to try again.
        """
        by_leader: dict[int, dict[str, list[tuple[int, int]]]] = {}
        for leader, partitions in (await self._by_leader(timestamps)).items():
            for at in partitions:
                by_leader.setdefault(leader, {}).setdefault(at.topic, []).append((at.partition, timestamps[at]))
        answers = await asyncio.gather(*(self._ask(leader, topics) for leader, topics in by_leader.items()))
        found: dict[TopicPartition, tuple[int, int | None]] = {}
        for at, entry in ((at, entry) for answer in answers for at, entry in answer.items()):
            if not isinstance(entry, KafkaError):
                found[at] = entry
            elif not isinstance(entry, UnsupportedForMessageFormatError):
                raise entry
        return found

    async def log_sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Bytes of each partition on its leader's disk. It takes the ACL Describe on the cluster.

        Raises:
            KafkaTimeoutError: no answer in time. KafkaError: refused.
        """
        asked = list(partitions)
        return await self._tried(lambda: self._log_sizes_once(asked))

    async def _log_sizes_once(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        sizes: dict[TopicPartition, int] = {}
        for leader, owned in sorted((await self._by_leader(partitions)).items()):
            topics: dict[str, list[int]] = {}
            for at in owned:
                topics.setdefault(at.topic, []).append(at.partition)
            found = sizes_of(await self._client.send(leader, LogDirsRequest(topics)))
            sizes |= {at: found[at] for at in owned if at in found}
        return sizes

    async def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Leader -> the partitions that it leads.

        Raises:
            KafkaError: that of one is not known; worth another try.
        """
        await self._client._maybe_wait_metadata()
        by_leader: dict[int, list[TopicPartition]] = {}
        for at in partitions:
            leader = self._client.cluster.leader_for_partition(at)
            if leader is None:
                self._client.add_topic(at.topic)
                raise StaleMetadata(at)
            if leader == _NONE:
                raise LeaderNotAvailableError(at)
            by_leader.setdefault(leader, []).append(at)
        return by_leader

    async def _ask(self, leader: int, topics: Mapping[str, list[tuple[int, int]]]) -> dict[TopicPartition, _Found]:
        request = OffsetRequest(_CONSUMER, self._isolation_level, list(topics.items()))
        answer = await self._client.send(leader, request)
        found: dict[TopicPartition, _Found] = {}
        for topic, entries in answer.topics:
            for partition, code, *rest in entries:
                at = TopicPartition(topic, partition)
                kind = for_code(code)
                if kind is NoError:
                    stamp, offset = rest
                    found[at] = (offset, stamp)
                else:
                    found[at] = kind(at)
        return found
