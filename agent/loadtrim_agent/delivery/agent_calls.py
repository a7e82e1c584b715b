"""Calls from the user's thread into the agent's loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from loadtrim_agent.kafka.fetch.chunk import Chunk
from loadtrim_agent.kafka.fetch.state import Budget

from .partition_stream import Stream
from .ports import BufferOwner

__all__ = ["AgentCalls"]

log = logging.getLogger("loadtrim")


class AgentCalls:
    """The user's thread tells the agent what matters to it. Methods run in the user's thread, and never wait.

    Args:
        loop: the loop that :attr:`owner` is called in.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.owner: BufferOwner | None = None
        """Agent: it is told. Invariant: set before anything is put."""
        self.budget: Budget | None = None
        """Agent: of all buffers."""

    def drained(self, stream: Stream) -> None:
        """A stream may have nothing in hand any more."""
        if stream.listening and self.owner is not None:
            self._call(self.owner.drained, stream)

    def refetch(self, stream: Stream) -> None:
        """A stream's chunks are corrupt."""
        if self.owner is not None:
            self._call(self.owner.refetch, stream, stream.position)

    def unpacked(self, stream: Stream, chunk: Chunk) -> None:
        """A chunk was unpacked to its end."""
        chunk.done = True  # first this, then look whether that is waited for: see fetch/state.py
        wanted = chunk.refill or (self.budget is not None and self.budget.exhausted)
        if wanted and self.owner is not None:
            self._call(self.owner.refill, stream)

    def _call(self, call: Callable[..., object], *args: object) -> None:
        """Call something in the agent's loop. Nothing happens when the agent has ended."""
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            log.debug("the agent has ended")
