"""All that a rebalance listener written for aiokafka is assigned is new, as it counts on.

aiokafka makes every assignment anew: nothing of it is paused, and without auto-commit it goes on at its last commit.
Programs count on both. One that forgets in ``on_partitions_revoked`` what it has not committed is handed it again. One
that forgets what it has paused does not wait for ever. Here partitions stay while others come and go. So what stays
is made to look new between the two calls of such a listener.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping

from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import ConsumerStoppedError, KafkaError
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.listener_calls import call_listener
from loadtrim_agent.delivery.partition_stream import Stream

from .agent_link import AgentLink
from .positions import Positions

__all__ = ["AssignedAnew"]

IN_HAND_SECONDS_MAX = 2.0
"""A record in hand when a rebalance is told is done and committed within this time, or comes again. Chosen."""
COMMITS_SECONDS_MAX = 2.0
"""Commits that are under way are waited for so long before it is asked what is committed. Chosen."""
RETRY_SECONDS = 0.1
"""After a broker that could not say what is committed, it is asked again after this time. Chosen."""

log = logging.getLogger("loadtrim")


class AssignedAnew(ConsumerRebalanceListener):  # type: ignore[misc]
    """A listener is called with what stays made anew: running and, by hand, at its last commit.

    What was in hand is waited for first. So a program that commits what it has done before it asks again is handed
    nothing twice. With offsets in transactions nothing is set back: records of an open one would be in it twice.

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
        self._link = link
        self._positions = positions
        self._by_hand = by_hand

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        buffer = self._link.buffer
        if self._by_hand and buffer is not None and not buffer.closing:
            await buffer.hand.until_empty(IN_HAND_SECONDS_MAX)
        try:
            await call_listener(self.listener.on_partitions_revoked, revoked)
        finally:
            if self._by_hand and not self._link.need_agent().listener.leaving:  # else no other call follows
                self._positions.setting_back = asyncio.Event()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        try:
            if self._by_hand:
                await self._set_back({Partition(*partition) for partition in assigned})
        finally:
            setting_back, self._positions.setting_back = self._positions.setting_back, None
            if setting_back is not None:
                setting_back.set()
        self._positions.run_again(assigned)
        await call_listener(self.listener.on_partitions_assigned, assigned)

    async def _set_back(self, partitions: Collection[Partition]) -> None:
        """Hand out these from their last commits on, unless user code sends offsets to transactions.

        Ends when that is done, or they are held no more; until then no record is handed out. What has no commit stays
        where it is: where a partition begins is committed before its first record. What has just come is there already.
        """
        left = set(partitions)
        while not self._positions.transactional and (streams := self._held(left)):
            called = {p: s.commits.highest for p, s in streams.items() if s.commits is not None}
            committed = await self._committed(streams)
            if committed is None:
                return
            for partition, offset in committed.items():
                stream = streams[partition]
                # User code may commit at any time: what it has committed meanwhile must not be handed out again.
                if stream.commits is not None and stream.commits.highest != called[partition]:
                    continue
                left.discard(partition)
                held = self._link.streams.get(partition) is stream
                if held and offset is not None and offset != stream.position:
                    self._positions.set_back(stream, offset)

    def _held(self, partitions: Collection[Partition]) -> dict[Partition, Stream]:
        """Return the streams of these, as far as user code was handed something of them or has sought in them."""
        moved = {p: s for p, s in self._link.streams.items() if s.done is not None or s.in_hand is not None}
        return {partition: stream for partition, stream in moved.items() if partition in partitions}

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
