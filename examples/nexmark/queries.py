"""The queries, as functions of an event and of what is kept of those before it. Pure: no Kafka, no clock.

* ``q1``: bids in euros (a map).
* ``q3``: who sells in Oregon, Idaho or California, and what (an incremental join of people and auctions by seller).
* ``q11``: how many bids somebody made in each session (a session ends when there was no bid for 10 s of event time).

Each works on one partition, in which everything with one key lies; results come in the partition's order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from nexmark.events import Auction, Bid, Person
from nexmark.state import State

__all__ = ["GAP_SECONDS", "OPERATORS", "BidInEuros", "Operator", "Sale", "Session", "SessionCount"]

EUROS_PER_DOLLAR = 0.908
"""Nexmark's own rate."""
STATES = frozenset({"OR", "ID", "CA"})
GAP_SECONDS = 10.0


class BidInEuros(msgspec.Struct, frozen=True, kw_only=True):
    """Result of ``q1``."""

    auction: int
    bidder: int
    price_cents: int
    at: float


class Sale(msgspec.Struct, frozen=True, kw_only=True):
    """Result of ``q3``."""

    name: str
    city: str
    state: str
    auction: int


class SessionCount(msgspec.Struct, frozen=True, kw_only=True):
    """Result of ``q11``: bids from ``begin`` to ``end`` (event time of the first and the last one)."""

    bidder: int
    bids: int
    begin: float
    end: float


class Operator(Protocol):
    """A query on one partition."""

    def handle(self, event: Any, offset: int) -> Iterable[msgspec.Struct]:
        """Take one event; results that it brings about. An event whose effect is kept already has none."""
        ...


@dataclass(slots=True)
class ToEuros:
    """``q1``."""

    state: State

    def handle(self, event: Bid, offset: int) -> Iterable[BidInEuros]:
        """One result per bid."""
        cents = round(event.price_cents * EUROS_PER_DOLLAR)
        yield BidInEuros(auction=event.auction, bidder=event.bidder, price_cents=cents, at=event.at)


class Seller(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What ``q3`` keeps of a person: who it is, and what is sold before that is known."""

    offset: int
    known: bool = False
    name: str = ""
    city: str = ""
    state: str = ""
    auctions: tuple[int, ...] = ()


@dataclass(slots=True)
class Join:
    """``q3``. Keeps a line for every person, and the auctions of sellers who did not introduce themselves yet."""

    state: State

    def handle(self, event: Person | Auction, offset: int) -> Iterable[Sale]:
        """Whichever side comes second joins."""
        key = str(event.person if isinstance(event, Person) else event.seller)
        seller = self.state.get(key, Seller) or Seller(offset=-1)
        if seller.offset >= offset:
            return
        if isinstance(event, Auction):
            if seller.known:
                yield from _sales(seller, (event.auction,))
                return
            seller = msgspec.structs.replace(seller, offset=offset, auctions=(*seller.auctions, event.auction))
        else:
            waiting = seller.auctions
            seller = Seller(offset=offset, known=True, name=event.name, city=event.city, state=event.state)
            yield from _sales(seller, waiting)
        self.state.put(key, seller)


def _sales(seller: Seller, auctions: Iterable[int]) -> Iterable[Sale]:
    if seller.state in STATES:
        for auction in auctions:
            yield Sale(name=seller.name, city=seller.city, state=seller.state, auction=auction)


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """What ``q11`` keeps of a bidder whose session is not over."""

    offset: int
    bids: int
    begin: float
    end: float


@dataclass(slots=True)
class Sessions:
    """``q11``. A session is over when the partition's newest event is more than the gap behind its last bid."""

    state: State
    _ends: list[tuple[float, str]] = field(default_factory=list)
    """A heap of (last bid, bidder); entries that were overtaken by a later bid are skipped."""

    def __post_init__(self) -> None:
        self._ends = [(session.end, key) for key, session in self.state.all(Session)]
        heapq.heapify(self._ends)

    def handle(self, event: Bid, offset: int) -> Iterable[SessionCount]:
        """Sessions that end by this bid's time, its bidder's own included."""
        yield from self._over(event.at - GAP_SECONDS)
        key = str(event.bidder)
        before = self.state.get(key, Session)
        if before is not None and before.offset >= offset:
            return
        if before is None:
            now = Session(offset=offset, bids=1, begin=event.at, end=event.at)
        else:
            end = max(before.end, event.at)
            now = msgspec.structs.replace(before, offset=offset, bids=before.bids + 1, end=end)
        self.state.put(key, now)
        heapq.heappush(self._ends, (now.end, key))

    def _over(self, before: float) -> Iterable[SessionCount]:
        while self._ends and self._ends[0][0] < before:
            end, key = heapq.heappop(self._ends)
            session = self.state.get(key, Session)
            if session is not None and session.end == end:
                self.state.drop(key)
                yield SessionCount(bidder=int(key), bids=session.bids, begin=session.begin, end=session.end)


OPERATORS: dict[str, Callable[[State], Operator]] = {"q1": ToEuros, "q3": Join, "q11": Sessions}
