"""Streams of topics that are not subscribed any more are kept from user code until the agent has given them up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.partition_stream import Stream
from loadtrim_agent.kafka.subscription import Subscription

from .agent_link import AgentLink
from .coming_again import ComingAgain
from .positions import Positions

__all__ = ["PutAside"]


class PutAside:
    """The streams that are put aside. Methods run in the user's thread.

    With manual commits they are gone for user code. One that is subscribed again before the agent has given it up comes
    again at its last commit, as in aiokafka: a program may forget what it has not committed when it subscribes anew.

    Args:
        link: to the agent.
        positions: of the assigned partitions.
    """

    def __init__(self, link: AgentLink, positions: Positions) -> None:
        self._link = link
        self._positions = positions
        self._again = ComingAgain(link, positions)
        self._streams: dict[Partition, Stream] = {}
        self._paused_by_user: set[Stream] = set()
        """Invariant: of those that are put aside."""
        self._turn = asyncio.Lock()
        self._coming: set[asyncio.Task[None]] = set()

    def subscribed(self, subscription: Subscription) -> None:
        """Hand out no record of what is not subscribed any more, before the agent has read the subscription."""
        streams, before = self._link.streams, self._streams
        ended = {p: s for p, s in streams.items() if p.topic not in subscription.matches([p.topic])}
        back = {p: s for p, s in before.items() if p not in ended and streams.get(p) is s}
        new = [stream for partition, stream in ended.items() if before.get(partition) is not stream]
        self._paused_by_user = self._paused_by_user.intersection(before.values()) | {s for s in new if s.paused}
        for stream in new:
            stream.paused = True
        self._again.go(new)
        gone = {p: s for p, s in back.items() if s in self._positions.gone}
        self._streams = ended | gone  # until they are set back
        self._run(stream for partition, stream in back.items() if partition not in gone)
        if gone:
            task = asyncio.ensure_future(self._come_again(list(gone.values())))
            self._coming.add(task)
            task.add_done_callback(self._coming.discard)

    async def _come_again(self, streams: list[Stream]) -> None:
        async with self._turn:
            await self._again.come(streams)
            subscribed = self._link.subscription.matches({stream.partition.topic for stream in streams})
            here = [s for s in streams if s.partition.topic in subscribed and self._streams.get(s.partition) is s]
            for stream in here:
                del self._streams[stream.partition]
            self._run(here)

    def _run(self, streams: Iterable[Stream]) -> None:
        for stream in streams:
            stream.paused = stream in self._paused_by_user
            self._paused_by_user.discard(stream)
        if self._link.buffer is not None:
            self._link.buffer.wake()
