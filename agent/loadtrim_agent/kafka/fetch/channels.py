"""Who of a broker's partitions is fetched by which of its two connections, and when.

Theory of operation. The broker answers one request per connection at a time, and a request that finds nothing waits
there (``fetch_max_wait_ms``). So there are two channels:

- *poll*: one fetch session over everything that may be fetched, one long poll after the other. What changes while a
  poll is out (a partition taken or sought, room in its buffer, new offsets) is *due*, and goes into the next one.
- *express*: while a poll is out, what is due is fetched by requests that stand alone. They do not wait at the broker
  where something may be there at once (*hot*: just taken, or the last answer had records), and otherwise only a
  moment, so that what is taken next does not wait for them either. What is fetched ahead of being ours is asked for
  once, and then left to the poll.

A broker looks at every partition of a session when one of them has something to say. That is some microseconds each,
so a poll of a thousand takes it milliseconds, in which whatever comes waits for the next poll. So many partitions of
one broker are fetched in several *fetch groups*, each with a session and a poll of its own. Then nearly every record
would have a poll of its own, and hundreds of polls a second cost the client's processor much. So a fetch group pauses
for some milliseconds before its next poll, unless there is more to be had at once.

The next poll takes over what is due, even while an express request for it is out that is not likely to bring anything;
if both bring the same, what comes second is thrown away, as is everything whose take or offset is not the present one.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from loadtrim_agent.common.partition import Partition

from .session import FetchSession
from .state import Taken

__all__ = [
    "EXPRESS_WAIT_MS",
    "FETCH_GROUPS_MAX",
    "FETCH_GROUP_PARTITIONS",
    "PAUSE_BYTES_MAX",
    "PAUSE_SECONDS",
    "BrokerChannels",
    "ChannelRequest",
    "FetchChannel",
    "FetchConnection",
    "fetch_group_for",
]

EXPRESS_WAIT_MS = 10
"""How long an express request waits at the broker for records of partitions that had none a moment ago."""
FETCH_GROUP_PARTITIONS = 128
"""So many partitions of one broker are fetched together before another fetch group is begun."""
FETCH_GROUPS_MAX = 8
PAUSE_SECONDS = 0.004
"""Between an answer with little in it and the fetch group's next poll, where a broker has several."""
PAUSE_BYTES_MAX = 16 << 10
"""With more in an answer there is more to be had at once."""


class FetchChannel(enum.Enum):
    """A connection to one broker."""

    POLL = "fetch"
    EXPRESS = "fetch-express"


class FetchConnection(NamedTuple):
    """One of the connections to a broker that are there for fetching, as the client tells them apart."""

    channel: FetchChannel
    fetch_group: int


class ChannelRequest(msgspec.Struct, frozen=True):
    """What to ask."""

    channel: FetchChannel
    session: tuple[int, int]
    fetch: list[tuple[Partition, int]]
    forget: list[Partition]
    wait_ms: int


def fetch_group_for(filled: Sequence[int]) -> int:
    """Return the fetch group for one partition more: the first with room, else a new one, else the emptiest.

    Args:
        filled: how many partitions each fetch group of the broker has.
    """
    with_room = (number for number, count in enumerate(filled) if count < FETCH_GROUP_PARTITIONS)
    if (first := next(with_room, None)) is not None:
        return first
    return len(filled) if len(filled) < FETCH_GROUPS_MAX else min(range(len(filled)), key=lambda number: filled[number])


class BrokerChannels:
    """The partitions of one broker that are fetched together.

    Args:
        node: the broker's id.
        wait_ms: how long a poll waits at the broker for records.
        has_room: may more of this partition be buffered?
    """

    def __init__(self, node: int, *, wait_ms: int, has_room: Callable[[Taken], bool]) -> None:
        self.node = node
        self.states: dict[Partition, Taken] = {}
        self.session = FetchSession()
        self.polled_at: float | None = None
        """When the last poll was answered, own wall clock."""
        self._wait_ms = wait_ms
        self._has_room = has_room
        self._due: dict[Partition, None] = {}
        self._poll_out = False
        self._express_out: dict[Partition, tuple[int, int]] = {}

    def add(self, state: Taken) -> None:
        """Fetch this partition here."""
        self.states[state.partition] = state
        state.followed = False
        self.mark_dirty(state.partition)

    def remove(self, partition: Partition) -> None:
        """Fetch it here no more."""
        if self.states.pop(partition, None) is not None:
            self.mark_dirty(partition)

    def mark_dirty(self, partition: Partition) -> None:
        """Something about it has changed."""
        self._due[partition] = None

    # -- asking --------------------------------------------------------------------------------------------------

    def next(self, channel: FetchChannel) -> ChannelRequest | None:
        """What this channel, which is idle, is to ask now; None: nothing, until something is marked dirty."""
        return self._next_poll() if channel is FetchChannel.POLL else self._next_express()

    def _next_poll(self) -> ChannelRequest | None:
        for partition in self._due:
            state = self.states.get(partition)
            if state is None or not self._fetchable(state):
                self._unfollow(partition)
            elif state.hot and partition in self._express_out:
                self._unfollow(partition)  # it is on its way already
            else:
                self.session.want(partition, (state.offset, state.number))
        self._due.clear()
        request = self.session.request()
        if request is None:
            return None
        self._poll_out = True
        session = (request.session, request.epoch)
        return ChannelRequest(FetchChannel.POLL, session, request.fetch, request.forget, self._wait_ms)

    def _unfollow(self, partition: Partition) -> None:
        self.session.unwant(partition)
        state = self.states.get(partition)
        if state is not None:
            state.followed = False

    def _next_express(self) -> ChannelRequest | None:
        if not self._poll_out:
            return None
        chosen = [
            state
            for p in self._due
            if (state := self.states.get(p)) is not None
            and (state.hot or not state.ahead)
            and not self._polled(state)
            and self._fetchable(state)
        ]
        if not chosen:
            return None
        self._express_out = {state.partition: (state.offset, state.number) for state in chosen}
        wait_ms = 0 if any(state.hot for state in chosen) else min(EXPRESS_WAIT_MS, self._wait_ms)
        return ChannelRequest(
            FetchChannel.EXPRESS, (0, -1), [(state.partition, state.offset) for state in chosen], [], wait_ms
        )

    def _polled(self, state: Taken) -> bool:
        """Is the poll that is out about it? One that asks from an earlier offset of this take has records to bring at
        once."""
        offset, number = self.session.sent.get(state.partition, (-1, -1))
        return number == state.number and offset <= state.offset

    def _fetchable(self, state: Taken) -> bool:
        return not state.waits and self._has_room(state)

    # -- answers -------------------------------------------------------------------------------------------------

    def asked(self, channel: FetchChannel, partition: Partition) -> Taken | None:
        """The state that an answer is for; None: it has moved on since it was asked."""
        sent = self._express_out if channel is FetchChannel.EXPRESS else self.session.sent
        state = self.states.get(partition)
        if state is None or sent.get(partition) != (state.offset, state.number):
            return None
        return state

    def answered(self, channel: FetchChannel, session: int, now: float, *, told: bool = True) -> None:
        """An answer without an error at its top has come, and its partitions have been looked at.

        Args:
            channel: whose.
            session: its id, 0: there is none.
            now: own wall clock.
            told: False: the broker throttles, and says nothing about any partition.
        """
        if channel is FetchChannel.POLL:
            self._poll_out = False
            if told:
                self.polled_at = now
            for partition in self.session.answered(session, told=told):
                state = self.states.get(partition)
                if state is not None:
                    state.followed = True
            return
        express, self._express_out = self._express_out, {}
        for partition, (offset, number) in express.items():
            state = self.states.get(partition)
            if told and state is not None and (state.offset, state.number) == (offset, number):
                state.hot = False
            self.mark_dirty(partition)

    def failed(self, channel: FetchChannel, *, session_known: bool = True) -> None:
        """No answer, or one with an error at its top: everything that it was about is due again."""
        if channel is FetchChannel.EXPRESS:
            self._due.update(dict.fromkeys(self._express_out))
            self._express_out = {}
            return
        self._poll_out = False
        self.session.lost(known=session_known)
        for state in self.states.values():
            state.followed = False
