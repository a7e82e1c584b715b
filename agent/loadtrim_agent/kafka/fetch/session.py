"""An incremental fetch session: the broker remembers what is fetched, requests carry only what changed.

Theory of operation. The first request of a session (epoch 0) names every partition; the answer carries the session's
id. From then on a request carries the id, the next epoch, the partitions that are new or whose offset moved, and those
to be forgotten; the broker fetches all it remembers and answers with those that have something to say. A broker that
has no slot for another session answers with id 0: then every request names everything, as if each were the first. A
session that the broker does not know (70), or whose epoch is another (71), is begun anew; so is one whose request got
no answer, because nobody knows whether the broker took it.

Each answer has a limit in bytes, and one partition of it may be above its own limit: the first. Who is first next must
therefore change. In a session the broker puts those that it gave records of behind the others; full requests do the
same here.

Source: KIP-227, KIP-74.
"""

from __future__ import annotations

import msgspec

from loadtrim_agent.common.partition import Partition

__all__ = ["FetchSession", "SessionRequest", "Wanted"]

Wanted = tuple[int, int]
"""Offset to fetch, and the number of the take it is for."""
EPOCH_MAX = (1 << 31) - 1


class SessionRequest(msgspec.Struct, frozen=True):
    """What one request says."""

    session: int
    epoch: int
    fetch: list[tuple[Partition, int]]
    """(partition, offset): all of them in a full request, else what is new or moved."""
    forget: list[Partition]


class FetchSession:
    """One session with one broker. One request at a time: :meth:`request`, then :meth:`answered` or :meth:`lost`."""

    def __init__(self) -> None:
        self.wanted: dict[Partition, Wanted] = {}
        """What the next request is to fetch."""
        self.sent: dict[Partition, Wanted] = {}
        """What the broker was told to fetch."""
        self.session = 0
        self.epoch = 0
        self._changed: dict[Partition, None] = {}
        self._fresh: list[Partition] = []

    def want(self, partition: Partition, wanted: Wanted) -> None:
        """Fetch it, from this offset on."""
        if self.wanted.get(partition) != wanted:
            self.wanted.pop(partition, None)  # behind the others
            self.wanted[partition] = wanted
            self._changed[partition] = None

    def unwant(self, partition: Partition) -> None:
        """Fetch it no more."""
        if self.wanted.pop(partition, None) is not None:
            self._changed[partition] = None

    def request(self) -> SessionRequest | None:
        """What to send next; None where nothing is to be fetched. O(changed), or O(wanted) for a full request."""
        if not self.wanted:
            return None
        if self.epoch == 0:
            self.sent = dict(self.wanted)
            self._changed.clear()
            self._fresh = list(self.sent)
            return SessionRequest(self.session, 0, [(p, offset) for p, (offset, _) in self.sent.items()], [])
        fetch: list[tuple[Partition, int]] = []
        forget: list[Partition] = []
        for partition in self._changed:
            wanted = self.wanted.get(partition)
            if wanted is None:
                if self.sent.pop(partition, None) is not None:
                    forget.append(partition)
            elif wanted != self.sent.get(partition):
                fetch.append((partition, wanted[0]))
                self.sent[partition] = wanted
        self._changed.clear()
        self._fresh += [partition for partition, _ in fetch]
        return SessionRequest(self.session, self.epoch, fetch, forget)

    def answered(self, session: int, *, told: bool = True) -> list[Partition]:
        """The broker answered without an error at the top.

        Args:
            session: the id in the answer, 0: there is none.
            told: it looked at the partitions; it does not where it throttles.

        Returns:
            The partitions whose state the broker has told for the first time since they were named in a request.
        """
        if session == 0:
            self.session = self.epoch = 0
        else:
            self.session = session
            self.epoch = self.epoch + 1 if self.epoch < EPOCH_MAX else 1
        if not told:
            return []
        fresh, self._fresh = self._fresh, []
        return fresh

    def lost(self, *, known: bool) -> None:
        """Begin anew with everything. ``known``: the broker may still have the old session, and is told to close it."""
        self.epoch = 0
        if not known:
            self.session = 0
        self.sent = {}
        self._fresh = []
