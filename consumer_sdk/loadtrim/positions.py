"""Offsets of a managed consumer: commits, positions, seeks and pauses of its assigned partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.structs import TopicPartition
from aiokafka.util import commit_structure_validate

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.transactions import Transactions

from .agent_link import AgentLink
from .cluster_queries import ClusterQueries
from .transactions import FencedGroup, send_offsets

__all__ = ["Positions"]


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
        self._auto_commit = auto_commit

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        if offsets is None:
            # With auto-commit a partition that is being handed over is committed by the handoff, once it is drained.
            manual, owned = not self._auto_commit, self._link.streams.items()
            unknown = self._link.need_agent().partitions.without_offset if owned else ()
            wanted = {
                p: (s.handed_out, "")
                for p, s in owned
                if p not in unknown and (s.running or s.in_hand is not None or manual)
            }
        else:
            checked = commit_structure_validate(offsets)
            wanted = {Partition(*p): (o.offset, o.metadata) for p, o in checked.items()}
            self._link.must_own(wanted)
        self._note(wanted)
        if self._link.agent is not None:
            await self._link.run(self._link.agent.commits.commit(wanted, named=offsets is not None))

    def _note(self, wanted: Mapping[Partition, tuple[int, str]]) -> None:
        """Note what user code says to be done. Offsets in a transaction say it when that ends, which is not seen."""
        now, streams = boot_time(), self._link.streams
        for partition, (offset, _) in wanted.items():
            stream = streams.get(partition)
            if stream is not None and stream.commits is not None:
                stream.commits.called(offset, stream.position, now)

    async def send_offsets_to_transaction(self, producer: AIOKafkaProducer, offsets: Mapping[Any, Any]) -> None:
        wanted = [Partition(*p) for p in commit_structure_validate(offsets)]
        self._link.must_own(wanted)
        link, of_agent = self._link, self._link.need_agent().transactions
        beginning = asyncio.ensure_future(link.run(of_agent.begin(wanted)))
        try:
            acquisitions = await asyncio.shield(beginning)
        except asyncio.CancelledError:
            # The agent may have begun and not been heard yet. What is begun and not ended holds up every handoff.
            beginning.add_done_callback(lambda begun: _end(link, of_agent, begun))
            raise
        group = FencedGroup(self._group, lambda refused: link.run(of_agent.fence(acquisitions, refused)))
        await send_offsets(producer, offsets, group, lambda: link.post(of_agent.end, acquisitions))

    async def committed(self, partition: TopicPartition) -> int | None:
        return await self._link.run(self._link.need_agent().commits.committed(Partition(*partition)))

    async def position(self, partition: TopicPartition) -> int:
        self._link.stream(Partition(*partition))
        return await self._link.run(self._link.need_agent().partitions.positions.position_of(Partition(*partition)))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        if not isinstance(offset, int) or offset < 0:
            raise ValueError("Offset must be a positive integer")
        stream = self._link.stream(Partition(*partition))
        agent = self._link.need_agent()
        agent.buffer.seek(stream, offset)
        self._link.post(agent.partitions.seek, stream, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        self._seek_all(await self._cluster.beginning_offsets(self._chosen(partitions)))
        return True

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        self._seek_all(await self._cluster.end_offsets(self._chosen(partitions)))
        return True

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        committed: dict[TopicPartition, int | None] = {}
        for partition in self._chosen(partitions):
            committed[partition] = offset = await self.committed(partition)
            if offset is not None:
                self.seek(partition, offset)
        return committed

    def pause(self, *partitions: TopicPartition) -> None:
        self._set_paused(partitions, paused=True)

    def resume(self, *partitions: TopicPartition) -> None:
        self._set_paused(partitions, paused=False)

    def paused(self) -> set[TopicPartition]:
        return {TopicPartition(*p) for p, stream in self._link.streams.items() if stream.paused}

    def _set_paused(self, partitions: tuple[TopicPartition, ...], *, paused: bool) -> None:
        if not all(isinstance(p, TopicPartition) for p in partitions):
            raise TypeError("partitions must be TopicPartition namedtuples")
        for partition in partitions:
            stream = self._link.stream(Partition(*partition))
            stream.paused = paused
            self._link.post(self._link.need_agent().partitions.paused, stream, paused)
        self._link.need_agent().buffer.wake()

    def _seek_all(self, offsets: Mapping[TopicPartition, int]) -> None:
        for partition, offset in offsets.items():
            self.seek(partition, offset)

    def _chosen(self, partitions: tuple[TopicPartition, ...]) -> list[TopicPartition]:
        """Return the partitions given, or all that are assigned; sorted."""
        if not all(isinstance(p, TopicPartition) for p in partitions):
            raise TypeError("partitions must be TopicPartition instances")
        for partition in partitions:
            self._link.stream(Partition(*partition))
        return sorted(partitions or {TopicPartition(*p) for p in self._link.streams})


def _end(link: AgentLink, transactions: Transactions, begun: asyncio.Future[dict[Partition, int]]) -> None:
    """End what was begun for a caller that does not send any more."""
    if not begun.cancelled() and begun.exception() is None:
        link.post(transactions.end, begun.result())
