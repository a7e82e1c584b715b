"""Streams that are kept from user code for a while, and what it wishes of them meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from loadtrim_agent.delivery.partition_stream import Stream

from .agent_link import AgentLink

__all__ = ["UNSUBSCRIBED", "Aside"]

UNSUBSCRIBED = 0
"""The turn of what is not subscribed. Listeners that are to be told first have turns from 1 on, in their order."""


class Aside:
    """Streams that are not subscribed any more, or about to be handed out again. Methods run in the user's thread.

    Args:
        link: to the agent.
    """

    def __init__(self, link: AgentLink) -> None:
        self._link = link
        self._paused: WeakKeyDictionary[Stream, bool] = WeakKeyDictionary()
        """Stream -> whether user code has paused it."""
        self._turns: WeakKeyDictionary[Stream, int] = WeakKeyDictionary()
        """Stream -> what it was put aside for last: no earlier one takes it back."""
        self._last_turn = UNSUBSCRIBED

    def __contains__(self, stream: Stream) -> bool:
        return stream in self._paused

    def next_turn(self) -> int:
        """Return the turn of another listener."""
        self._last_turn += 1
        return self._last_turn

    def put(self, streams: Iterable[Stream], turn: int = UNSUBSCRIBED) -> None:
        """Keep these from user code, as if they were paused."""
        for stream in streams:
            self._turns[stream] = turn
            if stream not in self._paused:
                self._paused[stream] = stream.paused
                stream.paused = True

    def take_back(self, streams: Iterable[Stream], turn: int = UNSUBSCRIBED) -> None:
        """Hand out those of these that are here and subscribed, unless user code has paused them.

        What was put aside for a later listener stays here: that one has not been told yet.
        """
        back = [stream for stream in streams if stream in self._paused and self._turns[stream] <= turn]
        subscribed = self._link.subscription.matches({stream.partition.topic for stream in back})
        for stream in back:
            if stream.partition.topic in subscribed:
                stream.paused = self._paused.pop(stream)
        if self._link.buffer is not None:
            self._link.buffer.wake()

    def is_paused(self, stream: Stream) -> bool | None:
        """Return whether user code has paused a stream; None: it is not here."""
        return self._paused.get(stream)

    def pause(self, stream: Stream, *, paused: bool) -> None:
        """Note what user code wishes of a stream that is here."""
        self._paused[stream] = paused
