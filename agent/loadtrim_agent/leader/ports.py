"""Ports of the agent that the leader's loop runs in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.control_log import ControlLog
from loadtrim_agent.kafka.fetch.offsets import OffsetQueries
from loadtrim_agent.kafka.group_requests import FetchedOffsets
from loadtrim_agent.protocol.events import Event
from loadtrim_agent.protocol.snapshot import MachineSnapshot

__all__ = ["GroupOffsets", "LedGroup"]


class GroupOffsets(Protocol):
    """The group's committed offsets."""

    async def committed(self, partitions: Iterable[Partition], *, stable: bool) -> FetchedOffsets:
        """See :meth:`loadtrim_agent.kafka.group_requests.GroupRequests.committed`."""


class LedGroup(Protocol):
    """The group as its leader's agent knows it, and the ways to ask the broker about it."""

    def snapshot(self) -> MachineSnapshot:
        """The membership and the assignment of now."""

    @property
    def log(self) -> ControlLog | None:
        """The control topic; None: it cannot be used."""

    @property
    def requests(self) -> GroupOffsets:
        """The group's coordinator."""

    @property
    def queries(self) -> OffsetQueries:
        """Offsets and log sizes of any partition."""

    def feed(self, event: Event) -> None:
        """Give the machine an event."""
