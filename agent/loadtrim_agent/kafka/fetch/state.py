"""What is known of one taken partition, and how much of it is buffered."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from loadtrim_agent.common.partition import Partition

from .chunk import Chunk

__all__ = ["Budget", "Route", "Taken"]


class Route(NamedTuple):
    """The broker that a partition is fetched from, and with which of the others there."""

    node: int
    fetch_group: int


class Reset(NamedTuple):
    """A partition's offset was out of range, and it goes on where ``auto_offset_reset`` says."""

    first: bool
    """No record was given since the take."""


class FetchPosition(NamedTuple):
    """The place in a partition that is fetched next."""

    offset: int
    reset: Reset | None = None
    """The reset that led there; None: there was none, or records have come since."""


class Resets(msgspec.Struct):
    """The fate of an offset that is out of range."""

    under_way: bool = False
    """Where to go on is being looked up."""
    given: bool = False
    """Records were given to the user's thread."""
    last: Reset | None = None
    """None: there was none, or records have come since."""


class Taken:
    """One take of one partition: from :meth:`~.fetcher.KafkaFetcher.take` until the next, or the drop."""

    __slots__ = (
        "ahead",
        "batch_bytes",
        "buffered_bytes",
        "chunks",
        "end_offset",
        "followed",
        "hot",
        "last_stable_offset",
        "number",
        "offset",
        "partition",
        "replica",
        "replica_until",
        "resets",
        "resting",
        "route",
        "told_at",
        "trouble",
    )

    def __init__(self, partition: Partition, number: int, offset: int) -> None:
        self.partition = partition
        self.number = number
        """Of this take; an answer to a request for another one is thrown away."""
        self.offset = offset
        """Fetched next."""
        self.route: Route | None = None
        """How it is fetched; None: no leader is known."""
        self.replica: int | None = None
        """A follower that the leader named as nearer (KIP-392), until :attr:`replica_until`."""
        self.replica_until = 0.0
        self.hot = True
        """There may be records to be had at once: nobody has said yet that there are none at this offset."""
        self.ahead = False
        """Perhaps about to be ours: nothing that is ours is to wait for it. It is never moved past anything,
        and user code hears nothing of it."""
        self.resting = False
        """Something went wrong; it is tried again in a moment."""
        self.resets = Resets()
        self.trouble = ""
        """What went wrong, so that it is said once and not at each try."""
        self.end_offset: int | None = None
        """The high watermark."""
        self.last_stable_offset: int | None = None
        self.told_at: float | None = None
        """When an answer told them, own wall clock."""
        self.followed = False
        """In a session: what its broker does not mention has not changed."""
        self.chunks: deque[Chunk] = deque()
        """Given to the user's thread and, as far as the agent has looked, not unpacked yet."""
        self.buffered_bytes = 0
        self.batch_bytes = 0
        """The largest batch of what was fetched last, as its producer made it."""

    @property
    def waits(self) -> bool:
        """Not to be fetched for now."""
        return self.resting or self.resets.under_way

    def buffer(self, chunk: Chunk) -> None:
        """Count a chunk as buffered until the user's thread is done with it."""
        self.chunks.append(chunk)
        self.buffered_bytes += chunk.size_bytes

    def count(self) -> int:
        """Bytes buffered now. O(chunks done since)."""
        chunks = self.chunks
        while chunks and chunks[0].done:
            self.buffered_bytes -= chunks.popleft().size_bytes
        return self.buffered_bytes

    def has_room(self, below_bytes: int) -> bool:
        """Is less buffered than that? If not, the chunk whose end changes it is told to say so."""
        if self.count() <= below_bytes:
            return True
        left = self.buffered_bytes
        for chunk in self.chunks:
            left -= chunk.size_bytes
            if left <= below_bytes:
                chunk.refill = True
                # First this, then look: the user's thread first finishes, then looks whether to tell.
                return chunk.done and self.count() <= below_bytes
        return False


class Budget:
    """How much is buffered of all partitions together, and how much may be.

    The sum is kept as an upper bound that grows with each chunk; only when it reaches the limit is it counted.

    Args:
        limit_bytes: of all buffers.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.exhausted = False
        """Read by the user's thread at the end of each chunk: then the agent wants to hear of it."""
        self._at_most = 0

    def grew(self, size_bytes: int) -> None:
        """A chunk was buffered."""
        self._at_most += size_bytes

    def room(self, wanted_bytes: int, states: Iterable[Taken]) -> int:
        """How many bytes may be fetched now: 0 where it would be less than a quarter of what is wanted.

        Args:
            wanted_bytes: as much as would be fetched at once.
            states: all taken partitions.
        """
        if self.limit_bytes - self._at_most < wanted_bytes:
            self.exhausted = True  # first this, then count: see Taken.has_room
            self._at_most = sum(state.count() for state in states)
        room = min(wanted_bytes, self.limit_bytes - self._at_most)
        if room * 4 >= wanted_bytes:
            self.exhausted = False
            return room
        return 0
