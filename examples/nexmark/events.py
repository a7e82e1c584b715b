"""Nexmark's events: people, auctions and bids, by number: the same number makes the same event.

After the generator of the Nexmark suite (Tucker et al., *NEXMark*, and Apache Beam's): ids count up from 1000, bids go
to one of the last 100 auctions, sellers and bidders are among the last 1000 people. Changed: three bidders of four and
three sellers of four are one and the same "hot" person there. Flink deals such a stream out anew before it keys it; a
consumer group reads a key in one partition, with one member. So nobody is hot here unless ``hot_share`` says so. And
the join is fed one person and one auction by turns, where Nexmark has 1 person, 3 auctions and 46 bids in every 50
events: both of its sides then come at half the rate of the load, and a person sells one auction on average, not three.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from random import Random

import msgspec

__all__ = ["QUERIES", "Auction", "Bid", "Generator", "NexmarkEvent", "Person", "decode", "partition_of"]

QUERIES = ("q1", "q3", "q11")
FIRST_ID = 1000
PEOPLE_ACTIVE, AUCTIONS_OPEN, CATEGORIES = 1000, 100, 5
BIDS_PER_PERSON, AUCTIONS_PER_PERSON = 46, 3
HOT_EVERY = 100
PLACES = (
    ("AZ", "Phoenix"),
    ("CA", "Los Angeles"),
    ("CA", "San Francisco"),
    ("ID", "Boise"),
    ("OR", "Portland"),
    ("OR", "Bend"),
    ("WA", "Redmond"),
    ("WA", "Seattle"),
    ("WY", "Cheyenne"),
    ("WY", "Kent"),
)
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")


class NexmarkEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What all have."""

    id: str
    """Of the record, unique in a run."""
    at: float
    """Event time: seconds since the load began."""


class Person(NexmarkEvent, frozen=True, kw_only=True, tag="person"):
    """Somebody who sells or bids."""

    person: int
    name: str
    city: str
    state: str


class Auction(NexmarkEvent, frozen=True, kw_only=True, tag="auction"):
    """Something that is sold."""

    auction: int
    seller: int
    category: int
    initial_cents: int


class Bid(NexmarkEvent, frozen=True, kw_only=True, tag="bid"):
    """An offer, in US cents."""

    auction: int
    bidder: int
    price_cents: int


_decoder = msgspec.json.Decoder(Person | Auction | Bid)


def decode(value: bytes) -> Person | Auction | Bid:
    """Read one.

    Raises:
        msgspec.MsgspecError: it is none.
    """
    event: Person | Auction | Bid = _decoder.decode(value)
    return event


def partition_of(key: int, partitions: int) -> int:
    """Where everything about a person goes: both sides of a join, and all bids of a session."""
    return zlib.crc32(b"%d" % key) % partitions


@dataclass(frozen=True, slots=True)
class Generator:
    """Events of a query: bids for ``q1`` and ``q11``, people and auctions by turns for ``q3``.

    Called with a record's id (its number, as text) and its time, it gives the partition and the value: what
    ``RunOptions.events`` of the demo's runs takes.
    """

    query: str
    partitions: int
    seed: int = 1
    hot_share: float = 0.0
    """Share of the sellers and bidders that are the one hot person of the moment."""

    def __call__(self, record_id: str, at_seconds: float) -> tuple[int, bytes]:
        event = self.event(int(record_id), at_seconds)
        match event:
            case Person():
                partition = partition_of(event.person, self.partitions)
            case Auction():
                partition = partition_of(event.seller, self.partitions)
            case Bid() if self.query == "q11":
                partition = partition_of(event.bidder, self.partitions)
            case _:
                # A map needs no key: evenly.
                partition = int(record_id) % self.partitions
        return partition, msgspec.json.encode(event)

    def event(self, number: int, at_seconds: float) -> Person | Auction | Bid:
        """The event with this number, from 0."""
        rng = Random(f"nexmark/{self.seed}/{number}")
        if self.query != "q3":
            return self._bid(number, at_seconds, rng)
        turn, is_auction = divmod(number, 2)
        if not is_auction:
            return self._person(number, turn, at_seconds, rng)
        return Auction(
            id=str(number),
            at=at_seconds,
            auction=FIRST_ID + turn,
            seller=self._somebody(turn, rng),
            category=10 + rng.randrange(CATEGORIES),
            initial_cents=100 + rng.randrange(10_000),
        )

    def _person(self, number: int, turn: int, at_seconds: float, rng: Random) -> Person:
        state, city = rng.choice(PLACES)
        name = f"{rng.choice(FIRST_NAMES)} {rng.choice(LAST_NAMES)}"
        return Person(id=str(number), at=at_seconds, person=FIRST_ID + turn, name=name, city=city, state=state)

    def _bid(self, number: int, at_seconds: float, rng: Random) -> Bid:
        # As if it had run before: in the beginning a handful of people would make all the bids.
        people = PEOPLE_ACTIVE + number // BIDS_PER_PERSON
        last = people * AUCTIONS_PER_PERSON
        return Bid(
            id=str(number),
            at=at_seconds,
            auction=FIRST_ID + last - rng.randrange(AUCTIONS_OPEN),
            bidder=self._somebody(people, rng),
            price_cents=round(10 ** (rng.random() * 6.0) * 100),
        )

    def _somebody(self, last: int, rng: Random) -> int:
        """One of the people there are, ``last`` being the newest."""
        if rng.random() < self.hot_share:
            return FIRST_ID + last // HOT_EVERY * HOT_EVERY
        return FIRST_ID + last - rng.randrange(min(last + 1, PEOPLE_ACTIVE))
