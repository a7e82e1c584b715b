"""Partitions that a plan is about to bring: fetched before they are ours, handed out by nobody here until they are.

Where a release will let us start is not known yet. Of an owner with a backlog it is just behind what it has committed.
Of one that keeps up it is just before where the log ends now: it comes past that before it stops, and hardly anything
is fetched that it does. Which of them it is, the committed offset tells: one far from the log's end is begun at, and
asked for again a moment later, because an owner that reads a plan commits at once. If it is near the end then, that is
where the guess goes, unless it was reached by then. A guess that turns out to be wrong costs one fetch; the partition
is then fetched anew from where the release says, as if there had been none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.tasks import Spawner
from loadtrim_agent.kafka.fetch.chunk import Chunk
from loadtrim_agent.kafka.fetch.drop_before import drop_before
from loadtrim_agent.kafka.fetch.offsets import EARLIEST, LATEST
from loadtrim_agent.kafka.fetch.port import Fetcher

from .ports import CommittedOffsets

__all__ = ["Prefetching"]

log = logging.getLogger("loadtrim")

BEHIND_OFFSETS = 32
"""How far before the log's end: what may be on its way to the owner's user code when it stops."""
COMMIT_SECONDS = 0.012
"""What an owner commits when it reads the plan is there after this time: 7 to 9 ms, 5 of them the broker's linger."""


class _Early:
    """One partition being prefetched."""

    __slots__ = ("chunks", "start")

    def __init__(self) -> None:
        self.start: int | None = None
        """Fetched from here on; None: that is being asked."""
        self.chunks: list[Chunk] = []


class Prefetching:
    """All methods run in the agent's loop.

    Args:
        fetcher: fetches, within the limits of all its buffers.
        tasks: owns what looks up where to begin.
        offsets: the group's committed offsets.
    """

    def __init__(self, fetcher: Fetcher, tasks: Spawner, offsets: CommittedOffsets) -> None:
        self._fetcher = fetcher
        self._tasks = tasks
        self._offsets = offsets
        self._early: dict[Partition, _Early] = {}

    def begin(self, partitions: Iterable[Partition]) -> None:
        """Find out where their owners may stop, and fetch from shortly before."""
        fresh = {partition: _Early() for partition in partitions}
        if fresh:
            self._early.update(fresh)
            self._tasks.spawn(self._begin(fresh), "prefetch")

    def begin_at(self, starts: Mapping[Partition, int]) -> None:
        """Fetch from where their owners have promised to stop."""
        fresh = {partition: _Early() for partition in starts}
        self._early.update(fresh)
        self._fetch(fresh, starts)

    async def _begin(self, fresh: dict[Partition, _Early]) -> None:
        near, far = await self._starts(fresh)
        self._fetch(fresh, near | far)
        for partition, early in fresh.items():
            if self._early.get(partition) is early and early.start is None:
                del self._early[partition]  # nothing could be told
        late = {partition: fresh[partition] for partition in far}
        if late:
            await asyncio.sleep(COMMIT_SECONDS)
            near, _ = await self._starts(late)
            self._fetch(late, {p: start for p, start in near.items() if (self._following(p) or 0) < start})

    def _following(self, partition: Partition) -> int | None:
        """Return the offset that is fetched next; None: it is not fetched."""
        fetched = self._fetcher.position(partition)
        return None if fetched is None else fetched.offset

    def _fetch(self, fresh: Mapping[Partition, _Early], starts: Mapping[Partition, int]) -> None:
        for partition, start in starts.items():
            early = fresh[partition]
            if self._early.get(partition) is early:  # else it has come, or will not come, meanwhile
                early.start, early.chunks = start, []
                self._fetcher.take_ahead(partition, start)

    async def _starts(self, partitions: Iterable[Partition]) -> tuple[dict[Partition, int], dict[Partition, int]]:
        """Where to begin with those whose committed offset is near the log's end, or not there; and with the others.

        None of them where that cannot be told at once.
        """
        look_up = self._fetcher.queries.look_up_once
        at = {partition: TopicPartition(*partition) for partition in partitions}
        try:
            ends, begins, committed = await asyncio.gather(
                look_up(dict.fromkeys(at.values(), LATEST)),
                look_up(dict.fromkeys(at.values(), EARLIEST)),
                self._offsets.committed_or_none(at),
            )
        except (KafkaError, OSError, TimeoutError) as error:
            log.debug("Where %s end cannot be told now (%r): not prefetched", sorted(at), error)
            return {}, {}
        near: dict[Partition, int] = {}
        far: dict[Partition, int] = {}
        for partition, key in at.items():
            if key in ends and key in begins:
                done, before_end = committed.get(partition, -1), ends[key][0] - BEHIND_OFFSETS
                lags = 0 <= done < before_end
                (far if lags else near)[partition] = max(begins[key][0], done if lags else before_end)
        return near, far

    def drop(self, partitions: Iterable[Partition]) -> None:
        """They do not come: fetch them no more. Those that are not prefetched are passed over."""
        for partition in partitions:
            early = self._early.pop(partition, None)
            if early is not None and early.start is not None:
                self._fetcher.drop(partition)

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._early

    def keep(self, chunk: Chunk) -> None:
        """Something was fetched of a partition that is being prefetched; of others it is not kept."""
        early = self._early.get(chunk.partition)
        if early is not None:
            early.chunks.append(chunk)

    def adopt(self, partition: Partition, offset: int) -> list[Chunk] | None:
        """The partition is ours from ``offset`` on.

        Returns:
            What of it was fetched already; the fetcher goes on behind it. None: nothing that can be used, it is to be
            fetched from ``offset``.
        """
        early = self._early.pop(partition, None)
        if early is None or early.start is None:
            return None
        following = self._following(partition)
        if following is None or not early.start <= offset <= following:
            return None
        for chunk in early.chunks:
            drop_before(chunk, offset)
        self._fetcher.keep(partition)
        return [chunk for chunk in early.chunks if not chunk.done]
