"""Ports of the agent around delivery."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.tasks import FailureSink
from loadtrim_agent.kafka.ports import EventFeed
from loadtrim_agent.protocol.snapshot import MachineSnapshot
from loadtrim_agent.wire.codec import Record

from .partition_stream import Stream

__all__ = ["BufferOwner", "CommittedOffsets", "DeliveryAgent", "Member", "ReportTarget"]


class CommittedOffsets(Protocol):
    """The group's committed offsets."""

    async def committed_or_none(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Committed offset per partition as far as it can be told now; negative where there is none."""


class Member(EventFeed, Protocol):
    """The membership in force."""

    def snapshot(self) -> MachineSnapshot:
        """The membership and the assigned partitions of now."""


class DeliveryAgent(EventFeed, FailureSink, Protocol):
    """The agent, as the owned partitions know it."""

    def waits_for_user(self) -> None:
        """A partition goes on only when user code seeks in it, so the start of the consumer need not wait for it."""


class BufferOwner(Protocol):
    """The agent's side of a record buffer. All methods are called in the agent's loop."""

    def refill(self, stream: Stream) -> None:
        """A chunk that asks for it, or any while the buffers are full, was unpacked."""

    def refetch(self, stream: Stream, offset: int) -> None:
        """Fetch the stream anew from ``offset``, because its chunks are corrupt."""

    def drained(self, stream: Stream) -> None:
        """A stream that is stopped or watched may have nothing in hand any more."""


class ReportTarget(Protocol):
    """Where a member's reports go, and what they say about the member."""

    def member(self) -> tuple[str, int]:
        """Member id and generation now; an empty id: not in the group yet."""

    def unready(self) -> bool:
        """Return whether an orchestrator knows by the readiness probe that this process is to go."""

    def slicing_off(self) -> str:
        """Return why the member passes nothing on by its own decision; empty: it does."""

    @property
    def pod(self) -> str:
        """Pod of this process, as NAME/UID; empty: it is in none, or does not say."""

    def load_seconds(self) -> float:
        """Longest time between two ``load`` records in a group of this size."""

    def committed(self) -> Mapping[Partition, int]:
        """Offset acknowledged last, per owned partition."""

    async def publish(self, record: Record, sequence: int) -> bool:
        """Write to the telemetry. False: it did not get through."""

    async def write(self, record: Record) -> bool:
        """Write to the coordination log. False: it did not get through."""
