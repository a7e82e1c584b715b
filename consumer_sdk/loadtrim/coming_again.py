"""Streams that have gone for user code come again at their last commit, as all that Kafka's clients assign."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from aiokafka.errors import ConsumerStoppedError, KafkaError

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.partition_stream import Stream

from .agent_link import AgentLink
from .positions import Positions

__all__ = ["ComingAgain"]

COMMITS_SECONDS_MAX = 2.0
"""Commits that are under way are waited for so long, and then taken for made. Chosen."""
AGAIN_SECONDS = 0.05
"""Begin again after this time what somebody has cancelled with all other tasks. Chosen: a loop that ends has ended by
then."""
RETRY_SECONDS = 0.1
"""After a broker that could not say what is committed, it is asked again after this time. Chosen."""

log = logging.getLogger("loadtrim")


class ComingAgain:
    """Streams go for user code and come again. With auto-commit none goes: what is done is committed anyway.

    All that is known of them is in :attr:`.positions.Positions.gone`, so there may be several of this. With offsets in
    transactions nothing is set back: records of an open one would be in it twice.

    Args:
        link: to the agent.
        positions: of the assigned partitions.
    """

    def __init__(self, link: AgentLink, positions: Positions) -> None:
        self._link = link
        self._positions = positions
        self._turn = asyncio.Lock()
        self._coming: set[asyncio.Task[None]] = set()

    def go(self, streams: Iterable[Stream]) -> None:
        """Take it that user code may have forgotten what it has not committed of these."""
        if not self._positions.auto_commit:
            self._positions.gone.add(stream for stream in streams if _has_moved(stream))

    async def come(self, streams: Collection[Stream], then: Callable[[], object]) -> None:
        """Set back those of these that had gone. Until ``then`` is called none of their records may be handed out.

        What user code seeks meanwhile stays where it says. A program that cancels all tasks ends the wait, and not
        what is waited for: else their records would never be handed out again.

        Args:
            streams: that come.
            then: called when they have come.
        """
        await self.begin(streams, then)

    def begin(self, streams: Collection[Stream], then: Callable[[], object]) -> asyncio.Future[None]:
        """Begin with the same, and return its end."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if gone := self._positions.gone.times(streams):
            self._begin(gone, then, ended)
        else:  # in the same turn of the loop: nothing is handed out meanwhile
            then()
            ended.set_result(None)
        return ended

    def _begin(self, gone: Mapping[Stream, int], then: Callable[[], object], ended: asyncio.Future[None]) -> None:
        task = asyncio.ensure_future(self._in_turn(gone))
        self._coming.add(task)
        task.add_done_callback(lambda _: self._come(task, gone, then, ended))

    async def _in_turn(self, gone: Iterable[Stream]) -> None:
        async with self._turn:
            await self._set_back(list(gone))

    def _come(
        self,
        task: asyncio.Task[None],
        gone: Mapping[Stream, int],
        then: Callable[[], object],
        ended: asyncio.Future[None],
    ) -> None:
        self._coming.discard(task)
        buffer = self._link.buffer
        if task.cancelled() and buffer is not None and not buffer.closing:
            asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._begin, gone, then, ended)
            return
        self._positions.gone.come(gone)
        then()
        if not ended.done():
            ended.set_result(None)

    async def _set_back(self, left: list[Stream]) -> None:
        """Hand out these from their last commits on, as far as they are held and not sought in.

        Where a partition begins is committed before its first record, so one without a commit has lost it: the one
        that was acknowledged last counts then, and where the commit cannot be read.
        """
        while left := [stream for stream in left if self._is_to_come(stream)]:
            called = {stream: stream.commits.highest for stream in left}
            committed = await self._committed([stream.partition for stream in left])
            if committed is None:
                return
            for stream in list(left):
                # User code may commit at any time: what it has committed meanwhile must not be handed out again.
                if stream.partition in committed and stream.commits.highest == called[stream]:
                    left.remove(stream)
                    self._set_back_to(stream, committed[stream.partition])

    def _set_back_to(self, stream: Stream, committed: int | None) -> None:
        offset = committed if committed is not None else self._acknowledged(stream)
        if self._is_to_come(stream) and offset is not None and offset != stream.position:
            self._positions.set_back(stream, offset)

    def _acknowledged(self, stream: Stream) -> int | None:
        view = self._link.need_agent().snapshot().assigned.get(stream.partition)
        return None if view is None else view.committed

    def _is_to_come(self, stream: Stream) -> bool:
        here = self._link.streams.get(stream.partition) is stream
        return here and stream in self._positions.gone and not self._positions.transactional

    async def _committed(self, partitions: Collection[Partition]) -> Mapping[Partition, int | None] | None:
        """Return what is committed, nothing when it is to be asked again, None when the consumer has stopped.

        Of what may not be read nothing is known, as of what the group has lost.
        """
        commits = self._link.need_agent().commits
        try:
            return await self._link.run(commits.committed_last(partitions, COMMITS_SECONDS_MAX))
        except ConsumerStoppedError:
            return None
        except KafkaError as error:
            if not error.retriable:
                log.warning(
                    "What stays at a rebalance cannot be set back to the group's last commit, which is not told: %r. "
                    "It is set back to the last one that this member has made. Where it has made none, it goes on "
                    "where it was, and a listener that forgets what is not committed loses it.",
                    error,
                )
                return dict.fromkeys(partitions)
        await asyncio.sleep(RETRY_SECONDS)
        return {}


def _has_moved(stream: Stream) -> bool:
    """Return whether user code was handed something of it, or has sought in it."""
    return stream.done is not None or stream.in_hand is not None
