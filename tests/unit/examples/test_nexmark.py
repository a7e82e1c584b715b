"""Nexmark: the same number makes the same event, queries give what SQL would, and state survives a cut anywhere."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest

from nexmark.events import Auction, Bid, Generator, Person, decode, partition_of
from nexmark.queries import OPERATORS, BidInEuros, Sale, SessionCount
from nexmark.state import APPLIED, Change, State


def bid(bidder: int, at: float) -> Bid:
    return Bid(id="x", at=at, auction=1, bidder=bidder, price_cents=100)


def person(number: int, state: str) -> Person:
    return Person(id="x", at=0.0, person=number, name=f"n{number}", city="c", state=state)


def auction(number: int, seller: int) -> Auction:
    return Auction(id="x", at=0.0, auction=number, seller=seller, category=10, initial_cents=1)


def results(query: str, events: Sequence[Any], state: State | None = None) -> list[Any]:
    operator = OPERATORS[query](state or State())
    return [result for offset, event in enumerate(events) for result in operator.handle(event, offset)]


# -- events


@pytest.mark.parametrize("query", ["q1", "q3", "q11"])
def test_a_number_makes_one_event_and_comes_back_from_the_wire(query: str) -> None:
    generator = Generator(query, 24)
    for number in range(200):
        partition, value = generator(str(number), 1.5)
        assert (partition, value) == generator(str(number), 1.5)
        assert 0 <= partition < 24
        assert decode(value) == generator.event(number, 1.5)
        assert decode(value).id == str(number)


def test_both_sides_of_the_join_lie_in_one_partition() -> None:
    generator = Generator("q3", 24)
    places: dict[int, set[int]] = {}
    for number in range(2000):
        partition, value = generator(str(number), 0.0)
        event = decode(value)
        assert isinstance(event, Person if number % 2 == 0 else Auction)
        key = event.person if isinstance(event, Person) else event.seller  # type: ignore[union-attr]
        places.setdefault(key, set()).add(partition)
    assert all(len(found) == 1 for found in places.values())


def test_nobody_is_hot_unless_asked_for() -> None:
    def share_of_two(hot_share: float) -> float:
        generator = Generator("q11", 24, hot_share=hot_share)
        bidders = Counter(generator.event(number, 0.0).bidder for number in range(40_000, 42_000))  # type: ignore[union-attr]
        return sum(count for _, count in bidders.most_common(2)) / 2000  # who is hot changes with every 100th person

    assert share_of_two(0.0) < 0.02
    assert share_of_two(0.75) == pytest.approx(0.75, abs=0.05)


def test_keys_spread_over_partitions() -> None:
    counts = Counter(partition_of(key, 24) for key in range(1000, 13_000))
    assert set(counts) == set(range(24))
    assert max(counts.values()) < 1.2 * 500


# -- queries


def test_query_1_changes_the_currency() -> None:
    assert results("q1", [bid(7, 2.0)]) == [BidInEuros(auction=1, bidder=7, price_cents=91, at=2.0)]


def test_query_3_joins_whichever_side_comes_first() -> None:
    events = [auction(1, 5), auction(2, 5), person(5, "OR"), auction(3, 5), person(6, "WA"), auction(4, 6)]
    sold = [Sale(name="n5", city="c", state="OR", auction=number) for number in (1, 2, 3)]
    assert results("q3", events) == sold


def test_query_11_counts_bids_until_there_is_none_for_ten_seconds() -> None:
    events = [bid(7, 0.0), bid(7, 10.0), bid(8, 10.5), bid(7, 20.0), bid(8, 30.5), bid(9, 50.0)]
    assert results("q11", events) == [
        SessionCount(bidder=8, bids=1, begin=10.5, end=10.5),
        SessionCount(bidder=7, bids=3, begin=0.0, end=20.0),
        SessionCount(bidder=8, bids=1, begin=30.5, end=30.5),
    ]


# -- state


def played(query: str, events: Sequence[Any], log: list[Change], sent: list[Any], batch: int, cut: int | None) -> None:
    """A member's life: restore, work off from the last commit on, write; ``cut``: dies after so many log records."""
    state = State()
    for key, value in log:
        state.restore(key, value)
    operator = OPERATORS[query](state)
    # What is committed lies a batch behind what is in the changelog, at worst.
    begin = max(0, (state.applied + 1) // batch * batch - batch)
    for first in range(begin, len(events), batch):
        part = list(enumerate(events))[first : first + batch]
        found = [r for offset, event in part if offset > state.applied for r in operator.handle(event, offset)]
        sent.extend(found)
        if part[-1][0] <= state.applied:
            continue
        for change in state.changes(part[-1][0]):
            if cut is not None and len(log) >= cut:
                return
            log.append(change)


def history(query: str) -> list[Any]:
    if query == "q3":
        return [*(auction(n, n % 7) for n in range(20)), *(person(n, "ID") for n in range(7)), auction(99, 3)]
    times: Iterable[float] = itertools.accumulate([0.0, *[3.0, 1.0, 6.0, 14.0] * 8])
    return [bid(number % 3, at) for number, at in enumerate(times)] + [bid(9, 1000.0)]


@pytest.mark.parametrize("query", ["q3", "q11"])
@pytest.mark.parametrize("batch", [1, 4, 7])
def test_counts_are_exact_wherever_a_member_dies(query: str, batch: int) -> None:
    """Killed after each possible number of changelog records, another one goes on: nothing is missing or miscounted."""
    events = history(query)
    expected = {msgspec.json.encode(result) for result in results(query, events)}
    whole: list[Change] = []
    played(query, events, whole, [], batch, None)
    for cut in range(len(whole)):
        log: list[Change] = []
        sent: list[Any] = []
        played(query, events, log, sent, batch, cut)
        played(query, events, log, sent, batch, None)
        assert {msgspec.json.encode(result) for result in sent} == expected, cut


def test_the_marker_stands_between_what_is_put_and_what_is_dropped() -> None:
    state = State()
    state.put("1", bid(1, 1.0))
    state.put("2", bid(2, 1.0))
    state.drop("2")
    assert [key for key, _ in state.changes(5)] == ["1", "2", APPLIED, "2"]
    state.drop("1")
    assert state.changes(6) == [(APPLIED, b"6"), ("1", None)]
    assert state.applied == 6
