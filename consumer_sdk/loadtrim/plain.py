"""The consumer without an agent (``LOADTRIM_ENABLED=false``): ``AIOKafkaConsumer`` that a signal can end."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord, TopicPartition

from .signals import EndableWait
from .start_errors import ClientTrouble, explained
from .work import Untold, Work

__all__ = ["PlainConsumer"]


class PlainConsumer(AIOKafkaConsumer):  # type: ignore[misc]
    """The same port as :class:`~loadtrim.managed.ManagedConsumer`; what is not here is aiokafka's own method.

    Args:
        topics: subscribed at the start.
        kwargs: those of ``AIOKafkaConsumer``.
    """

    buffer = None
    """Each record is asked for by a call: there is nothing to take without one."""
    closed = False
    """Set by :meth:`stop`: no iteration begins any more."""
    unclosed = False
    """Never set: aiokafka warns by itself."""

    def __init__(self, *topics: str, **kwargs: Any) -> None:
        super().__init__(*topics, **kwargs)
        self._arguments = kwargs
        self._group = kwargs.get("group_id") or ""
        self._wait = EndableWait(self._loop)

    @property
    def positions(self) -> PlainConsumer:
        return self

    @property
    def queries(self) -> PlainConsumer:
        return self

    @property
    def cluster(self) -> ClusterMetadata:
        """Return what is known of brokers and topics; to be read only."""
        return self._client.cluster

    async def force_metadata_update(self) -> bool:
        """Ask a broker for it now. Returns whether one answered."""
        return bool(await self._client.force_metadata_update())

    @property
    def member_id(self) -> str:
        """The id that the group's coordinator gave; empty before the start."""
        return str(self._coordinator.member_id) if self._coordinator is not None else ""

    async def start(self) -> None:
        trouble = ClientTrouble()
        try:
            with trouble.of_thread(threading.get_ident()):
                await self._wait.until_ended(super().start())
        except KafkaError as error:
            raise explained(error, self._arguments, trouble) from None

    def work(self, message: ConsumerRecord[Any, Any]) -> Work:
        return Work(Untold(), message)

    def done(self, message: ConsumerRecord[Any, Any]) -> bool:
        return Untold().done(message)

    async def stop(self, *, at_once: bool = False) -> None:
        self.closed = True
        await super().stop()

    def end_iteration(self, at_once: bool, drain_seconds: float | None = None) -> None:
        """End the wait for a record, and each later one. The program then calls :meth:`stop`, which leaves."""
        self._wait.end()

    @property
    def left(self) -> bool:
        """The member cannot leave its group any more. One that has left is told nothing: :meth:`stop` has returned."""
        return bool(self._loop.is_closed())

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[Any, Any]:
        return await self._wait.until_ended(super().getone(*partitions))

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        batches = super().getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records)
        return dict(await self._wait.until_ended(batches))

    async def send_offsets_to_transaction(self, producer: AIOKafkaProducer, offsets: Mapping[Any, Any]) -> None:
        await producer.send_offsets_to_transaction(offsets, self._group)
