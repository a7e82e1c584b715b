"""Offsets of a managed consumer: commits, positions, seeks and pauses of its assigned partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from aiokafka import AIOKafkaProducer
from aiokafka.errors import CommitFailedError, KafkaTimeoutError
from aiokafka.structs import TopicPartition
from aiokafka.util import commit_structure_validate

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.partition_stream import Stream
from loadtrim_agent.delivery.transactions import Transactions

from .agent_link import AgentLink
from .aside import Aside, Gone
from .cluster_queries import ClusterQueries
from .transactions import FencedGroup, send_offsets

__all__ = ["Positions"]

LOST = (
    "The commit was not made: partitions that on_partitions_revoked names are lost, not given away. This member was "
    "out of its group (max_poll_interval_ms or session_timeout_ms have passed, say), or their topic is gone; the log "
    "says which. What was not committed is handed out again, by whoever has them now."
)

PUT_OUT = (
    "The commit was not made: this member has left its group, for it asked for no record within max_poll_interval_ms. "
    "What was not committed is handed out again, to another member or to this one when it asks for records. Ask more "
    "often, for fewer records (max_poll_records), or raise max_poll_interval_ms."
)


class Positions:
    """The methods of :class:`loadtrim.Consumer` with the same names.

    Args:
        link: to the agent.
        cluster: for the offsets at the ends of a log.
        group: the group's id, which a transaction names.
        auto_commit: whether what is done is committed without a call.
    """

    def __init__(self, link: AgentLink, cluster: ClusterQueries, *, group: str, auto_commit: bool) -> None:
        self._link = link
        self._cluster = cluster
        self._group = group
        self.auto_commit = auto_commit
        """Read only."""
        self.transactional = False
        """Read only: offsets were sent to a transaction, so that what is committed is a producer's to say."""
        self.gone = Gone()
        """Empty with auto-commit."""
        self.told_to_go: WeakSet[Stream] = WeakSet()
        """A listener was told that they go, and none yet that they come again."""
        self.lost: frozenset[Partition] = frozenset()
        """The listener is being told that they go, and what it was told to come is not held any more."""
        self.aside = Aside(link, self.gone)
        self._handed_out: WeakKeyDictionary[Stream, int] = WeakKeyDictionary()
        """The offset behind what was handed out of a stream before it was set back."""
        self._sought: WeakKeyDictionary[Stream, int] = WeakKeyDictionary()
        """Times that user code has said where a stream goes on."""

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        if offsets is None:
            self._link.must_subscribe()
            wanted = {p: (s.handed_out, "") for p, s in self._link.streams.items() if self._is_committed(s)}
            if not wanted:
                self._raise_why_nothing()
        else:
            checked = commit_structure_validate(offsets)
            wanted = {Partition(*p): (o.offset, o.metadata) for p, o in checked.items()}
            self._raise_if_lost(wanted)
            self._link.must_own(wanted)
        commits = self._link.need_agent().commits
        self._note(wanted)
        await self._link.run(commits.commit(wanted, named=offsets is not None))

    def _raise_why_nothing(self) -> None:
        """Raise where a commit of everything has nothing, though user code may have done something of it.

        Raises:
            CommitFailedError: what user code had is lost, or has gone for it.
        """
        self._raise_if_lost(self.lost)
        buffer = self._link.buffer
        gone = any(stream in self.gone for stream in self._link.streams.values())
        if buffer is not None and gone and not buffer.closing:
            raise CommitFailedError(
                "The commit was not made: all partitions have gone, by a subscription or by what the rebalance "
                "listener was told, and none has come again yet. What was not committed is handed out again. "
                "Commit before you subscribe anew, and in on_partitions_revoked."
            )

    def _raise_if_lost(self, wanted: Collection[Partition]) -> None:
        """Raise where user code had some of these, and the group gave it to others.

        Raises:
            CommitFailedError: that is so.
        """
        buffer = self._link.buffer
        if buffer is not None and buffer.expired and not self._link.streams:
            raise CommitFailedError(PUT_OUT)
        if self.lost.intersection(wanted):
            raise CommitFailedError(LOST)

    def _is_committed(self, stream: Stream) -> bool:
        """Return whether a commit without offsets has a stream.

        With auto-commit a partition that is being handed over is committed by the handoff, once it is drained.
        """
        under_way = stream.running or stream.in_hand is not None or not self.auto_commit
        return under_way and stream.placed and stream not in self.gone and stream.partition not in self.lost

    def _note(self, wanted: Mapping[Partition, tuple[int, str]]) -> None:
        """Note what user code says to be done. Offsets in a transaction say it when that ends, which is not seen."""
        now, streams = boot_time(), self._link.streams
        for partition, (offset, _) in wanted.items():
            stream = streams.get(partition)
            if stream is not None:
                stream.commits.called(offset, stream.position, now)

    async def send_offsets_to_transaction(self, producer: AIOKafkaProducer, offsets: Mapping[Any, Any]) -> None:
        checked = {Partition(*p): o.offset for p, o in commit_structure_validate(offsets).items()}
        wanted = list(checked)
        buffer = self._link.buffer
        went = buffer.hand.take_unsent(wanted) if buffer is not None else []
        self._link.must_own(wanted)
        self.transactional = True
        self._refuse_set_back(checked)
        if went:
            raise CommitFailedError(
                f"The offsets were not added to the transaction: {went[0].topic}-{went[0].partition} was another "
                "member's meanwhile, which was handed out what this one had not sent yet. Abort the transaction, and "
                "call seek_to_committed() for what is still assigned: what was not committed is handed out again then."
            )
        link, of_agent = self._link, self._link.need_agent().transactions
        beginning = asyncio.ensure_future(link.run(of_agent.begin(wanted)))
        try:
            acquisitions = await asyncio.shield(beginning)
        except asyncio.CancelledError:
            # The agent may have begun and not been heard yet. What is begun and not ended holds up every handoff.
            beginning.add_done_callback(lambda begun: _end(link, of_agent, begun))
            raise
        for partition, offset in checked.items():
            stream = self._link.streams.get(partition)
            if stream is not None and stream.acquisition_id == acquisitions[partition]:
                stream.commits.sent = offset
        group = FencedGroup(self._group, lambda refused: link.run(of_agent.fence(acquisitions, refused)))
        await send_offsets(producer, offsets, group, lambda: link.post(of_agent.end, acquisitions))

    def _refuse_set_back(self, offsets: Mapping[Partition, int]) -> None:
        """Refuse what was handed out before its partition was set back, for it is handed out again.

        Raises:
            CommitFailedError: an offset is of that.
        """
        for partition, offset in offsets.items():
            stream = self._link.streams.get(partition)
            if stream is not None and stream.position < offset <= self._handed_out.get(stream, -1):
                raise CommitFailedError(
                    f"The offsets were not added to the transaction: {partition.topic}-{partition.partition} was set "
                    "back to its last commit by a rebalance, as the listener counts on. Abort the transaction: what "
                    "it covers is handed out again."
                )

    async def committed(self, partition: TopicPartition) -> int | None:
        wanted = Partition(*partition)
        return (await self._link.run(self._link.need_agent().commits.committed([wanted])))[wanted]

    async def position(self, partition: TopicPartition) -> int:
        self._link.stream(Partition(*partition))
        return await self._link.run(self._link.need_agent().partitions.positions.position_of(Partition(*partition)))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        if not isinstance(offset, int) or offset < 0:
            raise ValueError("Offset must be a positive integer")
        stream = self._link.stream(Partition(*partition))
        self._sought[stream] = self._sought.get(stream, 0) + 1
        self._seek(stream, offset)

    def _seek(self, stream: Stream, offset: int) -> None:
        self.gone.discard(stream)  # Nothing sets it back any more: user code has said where it goes on.
        agent = self._link.need_agent()
        agent.buffer.seek(stream, offset)
        self._link.post(agent.partitions.seek, stream, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        return await self._seek_to(self._cluster.beginning_offsets, partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        return await self._seek_to(self._cluster.end_offsets, partitions)

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        committed: dict[TopicPartition, int | None] = {}
        for partition, stream in self._chosen(partitions).items():
            committed[partition] = offset = await self.committed(partition)
            if offset is not None and self._link.is_assigned(stream):
                self.seek(partition, offset)
        return committed

    def set_back(self, stream: Stream, offset: int) -> None:
        """Hand out from an offset on what was handed out before: offsets of that are in no transaction any more."""
        self._handed_out[stream] = stream.position
        self._seek(stream, offset)

    def pause(self, *partitions: TopicPartition) -> None:
        self._set_paused(partitions, paused=True)

    def resume(self, *partitions: TopicPartition) -> None:
        self._set_paused(partitions, paused=False)

    def run_again(self, streams: Iterable[Stream]) -> None:
        """Resume what is paused of these."""
        for stream in streams:
            if self._is_paused(stream):
                self._pause(stream, paused=False)

    def paused(self) -> set[TopicPartition]:
        held = self._link.held
        paused = [p for p, stream in self._link.streams.items() if p in held and self._is_paused(stream)]
        subscribed = self._link.subscription.matches({partition.topic for partition in paused})
        return {TopicPartition(*partition) for partition in paused if partition.topic in subscribed}

    def _is_paused(self, stream: Stream) -> bool:
        """Return whether user code has paused a stream: what is put aside is kept from it as if it were paused."""
        wished = self.aside.is_paused(stream)
        return wished if wished is not None else stream.paused and stream not in self.gone

    def _set_paused(self, partitions: tuple[TopicPartition, ...], *, paused: bool) -> None:
        if not all(isinstance(p, TopicPartition) for p in partitions):
            raise TypeError("partitions must be TopicPartition namedtuples")
        subscribed = self._link.subscription.matches({partition.topic for partition in partitions})
        for partition in partitions:
            stream = self._link.stream_unless_gone(Partition(*partition))
            # What is not subscribed is put aside, until the agent gives it up.
            if stream is not None and partition.topic in subscribed:
                self._pause(stream, paused=paused)

    def _pause(self, stream: Stream, *, paused: bool) -> None:
        """Do what user code wishes, or note it of what is put aside, which runs when that ends. Tell the agent."""
        if stream in self.aside:
            self.aside.pause(stream, paused=paused)
        else:
            stream.paused = paused
        agent = self._link.need_agent()
        self._link.post(agent.partitions.paused, stream, paused)
        agent.buffer.wake()

    async def _seek_to(
        self,
        ends: Callable[[list[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]],
        partitions: tuple[TopicPartition, ...],
    ) -> bool:
        """Seek where the brokers say, but for what was sought or lost while they were asked.

        Return whether all is that was asked for: nothing is where nothing is held yet.
        """
        before = {p: (stream, self._sought.get(stream, 0)) for p, stream in self._chosen(partitions).items()}
        if not before:
            return False
        try:
            offsets = await ends(list(before))
        except KafkaTimeoutError:
            return False
        all_sought = True
        for partition, (stream, sought) in before.items():
            present = self._link.is_assigned(stream)
            if present and self._sought.get(stream, 0) != sought:
                continue  # by user code, which has said later where it goes on
            if present and partition in offsets:
                self.seek(partition, offsets[partition])
            else:
                all_sought = False
        return all_sought

    def _chosen(self, partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, Stream]:
        """Return the streams of the partitions given, or of all that are assigned; sorted.

        Raises:
            TypeError, IllegalStateError: one of them is no partition, or not assigned.
            AssertionError: none is given, and the consumer is not started, or nothing that it holds is subscribed any
                more; as in aiokafka. A member that holds nothing yet is not told so: its start() does not wait for
                partitions, as aiokafka's does.
        """
        if not all(isinstance(p, TopicPartition) for p in partitions):
            raise TypeError("partitions must be TopicPartition instances")
        if partitions:
            return {partition: self._link.stream(Partition(*partition)) for partition in sorted(partitions)}
        streams = {TopicPartition(*partition): stream for partition, stream in sorted(self._link.streams.items())}
        assigned = {partition: stream for partition, stream in streams.items() if self._link.is_assigned(stream)}
        if not assigned and (streams or self._link.agent is None or not self._link.subscribed):
            raise AssertionError(
                "No partitions are currently assigned, so nothing was sought. Seek when assignment() has some, or in "
                "on_partitions_assigned."
            )
        return assigned


def _end(link: AgentLink, transactions: Transactions, begun: asyncio.Future[dict[Partition, int]]) -> None:
    """End what was begun for a caller that does not send any more."""
    if not begun.cancelled() and begun.exception() is None:
        link.post(transactions.end, begun.result())
