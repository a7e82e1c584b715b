"""Partitions that a plan is about to bring: fetched before they are ours, handed out by nobody here until they are.

Where a release will let us start is not known yet. The guess is just before where the log ends now: an owner that keeps
up comes past it before it stops, and hardly anything is fetched that it does. A guess that turns out to be too late
(the owner has a backlog) costs one fetch; the partition is then fetched anew from where the release says, as if there
had been none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from .core.model import Partition
from .kafka.data import DataPlane
from .kafka.fetch.chunk import Chunk
from .kafka.fetch.offsets import EARLIEST, LATEST
from .kafka.fetch.trim import trim

__all__ = ["Prefetching"]

log = logging.getLogger("loadtrim")

BEHIND_OFFSETS = 32
"""How far before the log's end: what may be on its way to the owner's user code when it stops."""


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
        plane: fetches, within the limits of all its buffers.
        spawn: starts a task that the agent owns.
    """

    def __init__(self, plane: DataPlane, spawn: Callable[[Coroutine[Any, Any, None], str], None]) -> None:
        self._plane = plane
        self._spawn = spawn
        self._early: dict[Partition, _Early] = {}

    def begin(self, partitions: Iterable[Partition]) -> None:
        """Find out where their logs end, and fetch from shortly before."""
        fresh = {partition: _Early() for partition in partitions}
        self._early.update(fresh)
        self._spawn(self._begin(fresh), "prefetch")

    async def _begin(self, fresh: dict[Partition, _Early]) -> None:
        starts = await self._starts(fresh)
        for partition, early in fresh.items():
            if self._early.get(partition) is not early:
                continue  # it has come, or will not come, meanwhile
            early.start = starts.get(partition)
            if early.start is None:
                del self._early[partition]
            else:
                self._plane.take_ahead(partition, early.start)

    async def _starts(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Where to begin; none of them where that cannot be told at once."""
        look_up = self._plane.queries.look_up_once
        at = {partition: TopicPartition(*partition) for partition in partitions}
        try:
            ends, begins = await asyncio.gather(
                look_up(dict.fromkeys(at.values(), LATEST)), look_up(dict.fromkeys(at.values(), EARLIEST))
            )
        except (KafkaError, OSError, TimeoutError) as error:
            log.debug("Where %s end cannot be told now (%r): not prefetched", sorted(at), error)
            return {}
        return {
            partition: max(begins[key][0], ends[key][0] - BEHIND_OFFSETS)
            for partition, key in at.items()
            if key in ends and key in begins
        }

    def drop(self, partitions: Iterable[Partition]) -> None:
        """They do not come: fetch them no more. Those that are not prefetched are passed over."""
        for partition in partitions:
            early = self._early.pop(partition, None)
            if early is not None and early.start is not None:
                self._plane.drop(partition)

    def keep(self, chunk: Chunk) -> None:
        """Something was fetched of a partition that is not ours."""
        early = self._early.get(chunk.partition)
        if early is not None:
            early.chunks.append(chunk)

    def adopt(self, partition: Partition, offset: int) -> list[Chunk] | None:
        """The partition is ours from ``offset`` on.

        Returns:
            What of it was fetched already; the plane goes on behind it. None: nothing that can be used, it is to be
            fetched from ``offset``.
        """
        early = self._early.pop(partition, None)
        if early is None or early.start is None:
            return None
        following = self._plane.position(partition)
        if following is None or not early.start <= offset <= following:
            return None
        for chunk in early.chunks:
            trim(chunk, offset)
        self._plane.keep(partition)
        return [chunk for chunk in early.chunks if not chunk.done]
