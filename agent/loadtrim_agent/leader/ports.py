"""Ports of the agent that the leader's loop runs in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.control_log import ControlLog
from loadtrim_agent.kafka.fetch.offsets import OffsetQueries
from loadtrim_agent.kafka.group_requests import FetchedOffsets
from loadtrim_agent.planning.values import PlanConfig
from loadtrim_agent.protocol.events import Event
from loadtrim_agent.protocol.snapshot import MachineSnapshot

__all__ = ["GroupOffsets", "LeaderOptions", "LedGroup"]


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


class LeaderOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The leader's loop works by these options."""

    plan: PlanConfig
    instance: str = ""
    """The orchestrator's name of this member's process."""
    connection: Mapping[str, Any] = {}
    """The user's connection settings, for the baseline topic."""
    scales: bool = False
    """Decisions are asked for at all: active mode, and a scaler."""
    baseline_topic: str = ""
    """Topic of what the history expects; empty: none."""
    time_zone: str = "UTC"
    """Of baselines that do not name theirs."""
