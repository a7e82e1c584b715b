"""A rebalance listener is told that partitions go: they are gone for user code, and come again as new.

Kafka's clients make every assignment anew: without auto-commit it goes on at its last commit. Programs count on that.
One that forgets in ``on_partitions_revoked`` what it has not committed is handed it again. Here a partition may stay
after that call: all the others do with a listener that was written for aiokafka, and one whose handoff is given up. So
no commit without offsets has it from then on, and before ``on_partitions_assigned`` it is set back. Nor is it paused
any more, as in aiokafka: a program may forget what it has paused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial

from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.listener import IncrementalRebalanceListener
from loadtrim_agent.delivery.listener_calls import call_listener
from loadtrim_agent.delivery.partition_stream import Stream

from .agent_link import AgentLink
from .coming_again import ComingAgain
from .positions import Positions

__all__ = ["AssignedAnew", "ComesAnew", "NobodyListens", "ToldListener"]

UNKNOWN = -1
"""The acquisition of what no listener was told of. Acquisitions are numbered from 1."""
IN_HAND_SECONDS_MAX = 2.0
"""A record in hand when a rebalance is told is done and committed within this time, or comes again. Chosen."""


class ToldListener(ConsumerRebalanceListener):  # type: ignore[misc]
    """A listener of user code is called, and what follows for commits and positions of what it is told is done.

    Args:
        listener: of user code.
        link: to the agent.
        positions: of the assigned partitions.
    """

    def __init__(self, listener: ConsumerRebalanceListener, link: AgentLink, positions: Positions) -> None:
        self.listener = listener
        self._link = link
        self._positions = positions
        self._again = ComingAgain(link, positions)
        self._turn = positions.aside.next_turn()
        self._told: dict[Partition, int | None] = {}
        """Of what the listener was told to come, the acquisition; None: it had gone again by then."""

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._positions.lost = self._lost(revoked)
        try:
            await call_listener(self.listener.on_partitions_revoked, revoked)
        finally:
            self._positions.lost = frozenset()
            for partition in revoked:
                self._told.pop(Partition(*partition), None)
            self._go(self._going(revoked))

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        come = self._streams_of(assigned)
        back = [stream for stream in come if stream in self._positions.told_to_go]
        await self._again.come(come, partial(self._come_back, back))
        self._told.update(dict.fromkeys(Partition(*partition) for partition in assigned))
        self._told.update({stream.partition: stream.acquisition_id for stream in come})
        await call_listener(self.listener.on_partitions_assigned, assigned)

    def keep(self, streams: Collection[Stream]) -> None:
        """Hand out none of these before the listener has heard that they come; they have gone for user code."""
        self._go(streams)
        self._positions.aside.put(streams, self._turn)

    def look(self, streams: Mapping[Partition, Stream]) -> None:
        """Other streams are present, or the listener was subscribed; before records of them are handed out."""

    def _come_back(self, streams: list[Stream]) -> None:
        self._positions.run_again(streams)
        self._positions.aside.take_back(streams, self._turn)
        # What waits for a later listener is told to come by that one, or by the one that stands for it.
        self._positions.told_to_go.difference_update(s for s in streams if s not in self._positions.aside)

    def _lost(self, revoked: set[TopicPartition]) -> frozenset[Partition]:
        """Return what is not held any more of these, or was acquired again since the listener was told to have it.

        Nothing is lost of what had gone before it was told: user code had nothing of it.
        """
        held = {stream.partition: stream.acquisition_id for stream in self._streams_of(revoked)}
        told = {p: self._told.get(p, held.get(p, UNKNOWN)) for p in map(Partition._make, revoked)}
        return frozenset(p for p, acquisition in told.items() if acquisition not in (None, held.get(p)))

    def _go(self, streams: Collection[Stream]) -> None:
        self._again.go(streams)
        self._positions.told_to_go.update(streams)

    def _going(self, revoked: set[TopicPartition]) -> Collection[Stream]:
        """Return what user code takes to go after the call."""
        return self._streams_of(revoked)

    def _streams_of(self, partitions: Iterable[TopicPartition]) -> list[Stream]:
        found = (self._link.streams.get(Partition(*partition)) for partition in sorted(partitions))
        return [stream for stream in found if stream is not None]


class ComesAnew(ToldListener, IncrementalRebalanceListener):
    """An incremental listener hears of what comes and goes. What goes is in nobody's hand when it is called."""


class AssignedAnew(ToldListener):
    """A plain listener hears at each rebalance that all goes, and then of all that is held.

    That holds for its first calls as well, where it is subscribed when records were handed out already. What is in
    hand is waited for first. So a program that commits what it has done before it asks again is handed nothing twice.
    """

    def __init__(self, listener: ConsumerRebalanceListener, link: AgentLink, positions: Positions) -> None:
        super().__init__(listener, link, positions)
        self._called = False

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._called = True
        buffer = self._link.buffer
        if not self._positions.auto_commit and buffer is not None and not buffer.closing:
            await buffer.hand.until_empty(IN_HAND_SECONDS_MAX)
        await super().on_partitions_revoked(revoked)

    def look(self, streams: Mapping[Partition, Stream]) -> None:
        """Take it that user code begins anew when it subscribes this listener, as with aiokafka.

        What it may have forgotten is handed out again when the listener has heard of it. With manual commits nothing
        else is handed out before that: it would be set back too, and the first call names nothing that goes.
        """
        if self._called:
            return
        if self._positions.auto_commit:
            self._go(streams.values())
        else:
            self.keep(streams.values())

    def _going(self, revoked: set[TopicPartition]) -> Collection[Stream]:
        return self._link.streams.values()


class NobodyListens(IncrementalRebalanceListener):
    """A listener of no user code: something may come again that the one before was told to go."""

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None: ...

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None: ...
