"""Questions of user code about topics and logs, answered by the agent's client, without the group."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka.errors import ConsumerStoppedError
from aiokafka.structs import OffsetAndTimestamp, TopicPartition

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.offsets import OffsetQueries

from .agent_link import AgentLink

__all__ = ["ClusterQueries"]

T = TypeVar("T")


class ClusterQueries:
    """The methods of ``AIOKafkaConsumer`` with the same names, for a managed consumer."""

    def __init__(self, link: AgentLink) -> None:
        self._link = link

    async def topics(self) -> set[str]:
        return await self._run(OffsetQueries.topics)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        queries = self._queries()
        return queries.partitions_for_topic(topic) if queries is not None else None

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        return await self._run(lambda queries: queries.offsets_for_times(timestamps))

    async def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return await self._run(lambda queries: queries.beginning_offsets(partitions))

    async def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return await self._run(lambda queries: queries.end_offsets(partitions))

    def highwater(self, partition: TopicPartition) -> int | None:
        self._link.stream(Partition(*partition))
        return self._link.need_agent().fetcher.high_watermark(Partition(*partition))

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        self._link.stream(Partition(*partition))
        return self._link.need_agent().fetcher.last_stable_offset(Partition(*partition))

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        updated_at = self._link.need_agent().fetcher.end_offset_at(self._link.stream(Partition(*partition)).partition)
        return int(updated_at * 1000) if updated_at is not None else None

    def _queries(self) -> OffsetQueries | None:
        return self._link.agent.fetcher.queries if self._link.agent is not None else None

    async def _run(self, call: Callable[[OffsetQueries], Coroutine[Any, Any, T]]) -> T:
        queries = self._queries()
        if queries is None:
            raise ConsumerStoppedError()

        async def in_agent() -> T:
            return await call(queries)

        return await self._link.run(in_agent())
