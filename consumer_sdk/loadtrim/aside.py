"""Streams that are kept from user code for a while, what it wishes of them meanwhile, and which of them it forgets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from weakref import WeakKeyDictionary

from loadtrim_agent.delivery.partition_stream import Stream

from .agent_link import AgentLink

__all__ = ["UNSUBSCRIBED", "Aside", "Gone"]

UNSUBSCRIBED = 0
"""The turn of what is not subscribed. Listeners that are to be told first have turns from 1 on, in their order."""


class Gone:
    """Streams that have gone for user code, which may have forgotten what it has not committed of them.

    Each time that streams go has a number: one that has gone anew is still gone when it comes for the time before.
    """

    def __init__(self) -> None:
        self._times: WeakKeyDictionary[Stream, int] = WeakKeyDictionary()
        self._last_time = 0

    def __contains__(self, stream: Stream) -> bool:
        return stream in self._times

    def add(self, streams: Iterable[Stream]) -> None:
        """These go."""
        self._last_time += 1
        self._times.update(dict.fromkeys(streams, self._last_time))

    def discard(self, stream: Stream) -> None:
        """One comes, whenever it went."""
        self._times.pop(stream, None)

    def times(self, streams: Iterable[Stream]) -> dict[Stream, int]:
        """Return when those of these that have gone did so."""
        return {stream: self._times[stream] for stream in streams if stream in self._times}

    def come(self, times: Mapping[Stream, int]) -> None:
        """These come, but for those that have gone anew."""
        for stream in [stream for stream, time in times.items() if self._times.get(stream) == time]:
            del self._times[stream]


class Aside:
    """Streams that are not subscribed any more, or about to be handed out again. Methods run in the user's thread.

    Args:
        link: to the agent.
        gone: which of them come again at their last commit.
    """

    def __init__(self, link: AgentLink, gone: Gone) -> None:
        self._link = link
        self._gone = gone
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

        What was put aside for a later listener stays here: that one has not been told yet. So does what has gone.
        """
        here = [stream for stream in streams if stream in self._paused and stream not in self._gone]
        back = [stream for stream in here if self._turns[stream] <= turn]
        subscribed = self._link.subscription.matches({stream.partition.topic for stream in back})
        for stream in back:
            if stream.partition.topic in subscribed:
                stream.paused = self._paused.pop(stream)
        if self._link.buffer is not None:
            self._link.buffer.wake()

    def unsubscribed(self, streams: Iterable[Stream]) -> list[Stream]:
        """Return those of these that are here for their topics were not subscribed."""
        return [stream for stream in streams if stream in self._paused and self._turns[stream] == UNSUBSCRIBED]

    def is_paused(self, stream: Stream) -> bool | None:
        """Return whether user code has paused a stream; None: it is not here."""
        return self._paused.get(stream)

    def pause(self, stream: Stream, *, paused: bool) -> None:
        """Note what user code wishes of a stream that is here."""
        self._paused[stream] = paused
