"""The observer runs beside membership and may break without harm."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.observer import DeliveryObserver
from loadtrim_agent.protocol.commands import EnteredCommand
from loadtrim_agent.protocol.counters import ProtocolCount

if TYPE_CHECKING:
    from .agent import Agent

__all__ = ["AgentObserver"]


class AgentObserver(DeliveryObserver):
    """The observer (metering, metrics, planning) is told of everything and asked for nothing.

    Every call goes through an :class:`~loadtrim_agent.common.error_boundary.ErrorBoundary`: what it raises is logged
    once, counted and goes no further (I8). This base class does nothing, so that membership and fetching can be run
    alone.
    """

    async def start(self, agent: Agent) -> None:
        """The agent is connected; it joins next."""

    async def leaving(self, member: str, generation: int) -> None:
        """Everything is relinquished, and the group is being told that this member leaves. Waited for only briefly."""

    async def stop(self) -> None:
        """The agent has left the group."""

    def entered(self, command: EnteredCommand) -> None:
        """A generation began."""

    def heartbeat(self, sent_at: float) -> None:
        """A heartbeat was answered; when it was sent (boot clock)."""

    def commit_answered(self, codes: Collection[int]) -> None:
        """A commit request was answered, or will not be: the code of each partition."""

    def read(self, record: Any) -> None:
        """A record of the coordination log was read."""

    def clock(self, seconds: float, round_trip_seconds: float) -> None:
        """A sample of own wall clock minus the broker's, and how long the request took that it comes from."""

    def count(self, what: ProtocolCount, partition: Partition | None) -> None:
        """Something worth counting happened."""

    def error(self, where: str) -> None:
        """Something broke and was contained."""
