"""The baseline topic, read by the leader alone: from its beginning once, and then what is new every now and then.

Nothing rests on it. A topic that is not there or cannot be read means that nothing is expected, which is said once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from aiokafka.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError, for_code

from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.wire.baseline_records import TOPICS_MAX, Baselines
from loadtrim_agent.wire.envelope import UnreadableRecord

from .connections import UNREACHABLE, Channel, Connections, connecting
from .partition_log import REQUEST_SECONDS, PartitionLog
from .pool import ConnectionPool

__all__ = ["BaselineReader"]

log = logging.getLogger("loadtrim")

LOOK_SECONDS = 30.0
"""How often it is looked whether something is new: it is published every hour or day."""


class BaselineReader:
    """Keeps what is known of one group up to date while its member leads.

    Args:
        settings: the user's connection settings.
        topic: name of the baseline topic.
        baselines: of the group; kept up to date.
        boundary: counts what went wrong, as ``baseline_record`` or ``baselines``.
        pool: where the connections come from; None: a pool of its own.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        baselines: Baselines,
        boundary: ErrorBoundary,
        pool: ConnectionPool | None = None,
    ) -> None:
        self._topic = topic
        self._baselines = baselines
        self._boundary = boundary
        self._connections = Connections(settings, pool, creates_topics=False)
        self._connected = False
        self._positions: dict[int, int] = {}
        """Partition -> offset read next."""
        self._told = ""

    async def run(self, caught_up: asyncio.Event) -> None:
        """Read for ever. Connections are closed when it is cancelled.

        Args:
            caught_up: set when the topic was read to its end, or cannot be.
        """
        try:
            while True:
                await self._look()
                caught_up.set()
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await self._connections.close()

    async def _look(self) -> None:
        """Read what is new."""
        try:
            if not self._connected:
                with connecting():
                    await self._connections.start()
                self._connected = True
            partitions = await self._partitions()
            if set(self._positions) - set(partitions):
                self._forget()
            for partition in partitions:
                await self._read(partition)
        except UnknownTopicOrPartitionError:
            self._forget()
            self._say(
                logging.DEBUG, f"There is no baseline topic {self._topic}, so nothing is expected of the history."
            )
        except UNREACHABLE as error:
            self._boundary.broke("baselines")
            self._say(
                logging.WARNING,
                f"The baseline topic {self._topic} cannot be read ({str(error) or type(error).__name__}): the group is "
                "planned by what was read before, if anything. If it is not allowed, allow READ and DESCRIBE on it; it "
                f"is tried again every {LOOK_SECONDS:.0f} s.",
            )
        else:
            self._say(logging.INFO, f"Baselines of {len(self._baselines)} topics are read from {self._topic}.")

    async def _partitions(self) -> list[int]:
        code, partitions = await self._connections.partitions_of(self._topic, Channel.LOOK, timeout=REQUEST_SECONDS)
        if code:
            raise for_code(code)(self._topic)
        await self._connections.client.set_topics([self._topic])
        return partitions

    async def _read(self, partition: int) -> None:
        """One partition to its end."""
        reader = PartitionLog(self._connections, self._topic, partition, read=Channel.TAIL, append=Channel.LOOK)
        if partition not in self._positions:
            self._positions[partition] = await reader.first()
        end, unreadable = await reader.end(), list[str]()
        if end < self._positions[partition]:
            # Made anew: a log that goes on never ends before what was read of it. One that has grown beyond this place
            # meanwhile is not noticed: aiokafka's metadata holds no id of a topic. It is published whole all the same,
            # so what was learnt since then comes with the next publication.
            self._forget()
            self._positions[partition] = await reader.first()
        while (position := self._positions[partition]) < end:
            try:
                fetched = await reader.read(position, wait_seconds=0.0, timeout=REQUEST_SECONDS)
            except OffsetOutOfRangeError:
                self._forget()  # made anew, or what is compacted away: from the beginning, next time
                return
            for offsets in fetched.unreadable:
                unreadable.append(f"{offsets}: it cannot be unpacked")
                self._boundary.broke("baseline_record")
            for message in fetched.records:
                try:
                    self._baselines.apply(message.key, message.value)
                except UnreadableRecord as error:
                    unreadable.append(f"{str(message.key)[:80]}: {error}")
                    self._boundary.broke("baseline_record")
            if fetched.following <= position:
                break
            self._positions[partition] = fetched.following
        self._complain(unreadable)

    def _forget(self) -> None:
        self._positions.clear()
        self._baselines.clear()

    def _complain(self, unreadable: list[str]) -> None:
        if unreadable:
            log.warning(
                "%d baselines of %s cannot be read, so nothing is expected of their topics; publish them again. The "
                "first: %s",
                len(unreadable),
                self._topic,
                unreadable[0],
            )
        if self._baselines.left_out:
            log.warning(
                "The group reads more than %d topics with baselines; %d records of others are left out.",
                TOPICS_MAX,
                self._baselines.left_out,
            )
            self._baselines.left_out = 0

    def _say(self, level: int, text: str) -> None:
        """What was said last is not said again."""
        log.log(level if text != self._told else logging.DEBUG, "%s", text)
        self._told = text
