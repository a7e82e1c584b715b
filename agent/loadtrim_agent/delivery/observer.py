"""What runs beside membership and may break without harm."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.chunk import Chunk
from loadtrim_agent.protocol.commands import EnteredCommand

from .partition_stream import Stream

if TYPE_CHECKING:
    from loadtrim_agent.runtime.agent import Agent

__all__ = ["AgentObserver", "ErrorBoundary"]

log = logging.getLogger("loadtrim")


class AgentObserver:
    """What runs beside membership (metering, metrics, planning) is told of everything and asked for nothing.

    Every call goes through an :class:`ErrorBoundary`: what it raises is logged once, counted and goes no further (I8).
    This base class does nothing, so that membership and fetching can be run alone.
    """

    async def start(self, agent: Agent) -> None:
        """The agent is connected; it joins next."""

    async def leaving(self, member: str, generation: int) -> None:
        """Everything is put down, and the group is being told that this member leaves. Not waited for for long."""

    async def stop(self) -> None:
        """The agent has left the group."""

    def entered(self, command: EnteredCommand) -> None:
        """A generation began."""

    def fetched(self, stream: Stream, chunk: Chunk, end_offset: int | None) -> None:
        """Records were fetched."""

    def acquired(self, stream: Stream, seconds: float | None) -> None:
        """Its records are handed out from now on; ``seconds`` since its last owner stopped, if it came by a release."""

    def released(self, partition: Partition, seconds: float) -> None:
        """A partition was given away; ``seconds`` from the stop until its new owner was in the log."""

    def lost(self, stream: Stream) -> None:
        """A partition is not ours any more (given away ones included)."""

    def sought(self, stream: Stream, offset: int) -> None:
        """User code moved its position."""

    def paused(self, stream: Stream, paused: bool) -> None:
        """User code paused or resumed a partition."""

    def heartbeat(self, sent_at: float) -> None:
        """A heartbeat was answered; when it was sent (boot clock)."""

    def read(self, record: Any) -> None:
        """A record of the coordination log was read."""

    def clock(self, seconds: float, round_trip_seconds: float) -> None:
        """A sample of own wall clock minus the broker's, and how long the request took that it comes from."""

    def count(self, what: str, partition: Partition | None) -> None:
        """Something worth counting happened."""

    def error(self, where: str) -> None:
        """Something broke and was contained."""


class ErrorBoundary:
    """Calls what may break, and contains what it raises.

    Args:
        observer: told of each break by :meth:`AgentObserver.error`.
    """

    def __init__(self, observer: AgentObserver) -> None:
        self._observer = observer
        self._complained: set[str] = set()

    def call(self, where: str, call: Callable[..., None], *args: Any) -> None:
        """Call it; what it raises is logged once per ``where`` and counted each time."""
        try:
            call(*args)
        except Exception:
            if where not in self._complained:
                self._complained.add(where)
                log.exception("The agent's %s broke; the consumer goes on. Said once, counted from now on.", where)
            self.broke(where)

    async def wait(self, where: str, work: Coroutine[Any, Any, None]) -> None:
        """The same for a coroutine."""
        try:
            await work
        except Exception:
            log.exception("The agent's %s broke; the consumer goes on.", where)
            self.broke(where)

    def broke(self, where: str) -> None:
        """Count something that broke and was contained. Never raises."""
        try:
            self._observer.error(where)
        except Exception:
            log.debug("counting an error failed", exc_info=True)
