"""A rebalance listener is told that partitions go: they are gone for user code, and come again as new.

Kafka's clients make every assignment anew: without auto-commit it goes on at its last commit. Programs count on that.
One that forgets in ``on_partitions_revoked`` what it has not committed is handed it again. Here a partition may stay
after that call: all the others do with a listener that was written for aiokafka, and one whose handoff is given up. So
no commit without offsets has it from then on, and before ``on_partitions_assigned`` it is set back. For a plain
listener what stays is not paused any more either, as in aiokafka: a program may forget what it has paused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from weakref import WeakSet

from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import ConsumerStoppedError, KafkaError
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.listener import IncrementalRebalanceListener
from loadtrim_agent.delivery.listener_calls import call_listener
from loadtrim_agent.delivery.partition_stream import Stream

from .agent_link import AgentLink
from .positions import Positions

__all__ = ["AssignedAnew", "ComesAnew", "ToldListener"]

IN_HAND_SECONDS_MAX = 2.0
"""A record in hand when a rebalance is told is done and committed within this time, or comes again. Chosen."""
COMMITS_SECONDS_MAX = 2.0
"""Commits that are under way are waited for so long before it is asked what is committed. Chosen."""
RETRY_SECONDS = 0.1
"""After a broker that could not say what is committed, it is asked again after this time. Chosen."""

log = logging.getLogger("loadtrim")


class ToldListener(ConsumerRebalanceListener):  # type: ignore[misc]
    """A listener of user code is called, and what follows for commits and positions of what it is told is done.

    With offsets in transactions nothing is set back: records of an open one would be in it twice.

    Args:
        listener: of user code.
        link: to the agent.
        positions: of the assigned partitions.
        by_hand: user code commits itself.
    """

    def __init__(
        self, listener: ConsumerRebalanceListener, link: AgentLink, positions: Positions, *, by_hand: bool
    ) -> None:
        self.listener = listener
        self.told_gone: WeakSet[Stream] = WeakSet()
        """Told to go, and not to come since; nothing with auto-commit, where what is done is committed anyway."""
        self._link = link
        self._positions = positions
        self._by_hand = by_hand

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        try:
            await call_listener(self.listener.on_partitions_revoked, revoked)
        finally:
            if self._by_hand:
                self.told_gone.update(self._going(revoked))

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        try:
            await self._set_back(assigned)
        finally:
            self.told_gone.difference_update(self._streams_of(assigned))
        await call_listener(self.listener.on_partitions_assigned, assigned)

    def _going(self, revoked: set[TopicPartition]) -> Collection[Stream]:
        """Return what user code takes to go after the call."""
        return self._streams_of(revoked)

    def _streams_of(self, partitions: Iterable[TopicPartition]) -> list[Stream]:
        found = (self._link.streams.get(Partition(*partition)) for partition in partitions)
        return [stream for stream in found if stream is not None]

    async def _set_back(self, assigned: Iterable[TopicPartition]) -> None:
        """Hand out from its last commit on what was told to go, unless user code sends offsets to transactions.

        Ends when that is done, or nothing of it is held; until then no record of it is handed out. Where a partition
        begins is committed before its first record, so one without a commit has lost it: the one that was acknowledged
        last counts then.
        """
        left = [stream for stream in self._streams_of(assigned) if stream in self.told_gone and _has_moved(stream)]
        while not self._positions.transactional and (left := [stream for stream in left if self._is_held(stream)]):
            called = {stream: _highest(stream) for stream in left}
            committed = await self._committed([stream.partition for stream in left])
            if committed is None:
                return
            for stream in list(left):
                # User code may commit at any time: what it has committed meanwhile must not be handed out again.
                if stream.partition in committed and _highest(stream) == called[stream]:
                    left.remove(stream)
                    self._set_back_to(stream, committed[stream.partition])

    def _set_back_to(self, stream: Stream, committed: int | None) -> None:
        offset = committed if committed is not None else self._acknowledged(stream)
        if self._is_held(stream) and offset is not None and offset != stream.position:
            self._positions.set_back(stream, offset)

    def _acknowledged(self, stream: Stream) -> int | None:
        view = self._link.need_agent().snapshot().assigned.get(stream.partition)
        return None if view is None else view.committed

    def _is_held(self, stream: Stream) -> bool:
        return self._link.streams.get(stream.partition) is stream

    async def _committed(self, partitions: Collection[Partition]) -> Mapping[Partition, int | None] | None:
        """Return what is committed, nothing when it is to be asked again, None when nobody will ever say it."""
        commits = self._link.need_agent().commits
        try:
            await self._link.run(commits.answered(COMMITS_SECONDS_MAX))
            return await self._link.run(commits.committed(partitions))
        except ConsumerStoppedError:
            return None
        except KafkaError as error:
            if not error.retriable:
                log.warning(
                    "What stays at a rebalance cannot be set back to its last commit, so it goes on where it was: %r. "
                    "A listener that forgets what is not committed loses it.",
                    error,
                )
                return None
        await asyncio.sleep(RETRY_SECONDS)
        return {}


class ComesAnew(ToldListener, IncrementalRebalanceListener):
    """An incremental listener hears of what comes and goes. What goes is in nobody's hand when it is called."""


class AssignedAnew(ToldListener):
    """A plain listener hears at each rebalance that all goes, and then of all that is held.

    That holds for its first calls as well, where it is subscribed when records were handed out already. What is in
    hand is waited for first. So a program that commits what it has done before it asks again is handed nothing twice.
    """

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        buffer = self._link.buffer
        if self._by_hand and buffer is not None and not buffer.closing:
            await buffer.hand.until_empty(IN_HAND_SECONDS_MAX)
        await super().on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._positions.run_again(assigned)
        await super().on_partitions_assigned(assigned)

    def _going(self, revoked: set[TopicPartition]) -> Collection[Stream]:
        return self._link.streams.values()


def _highest(stream: Stream) -> int:
    """Return the highest offset that user code has committed, or is about to."""
    return stream.commits.highest if stream.commits is not None else 0


def _has_moved(stream: Stream) -> bool:
    """Return whether user code was handed something of it, or has sought in it."""
    return stream.done is not None or stream.in_hand is not None
