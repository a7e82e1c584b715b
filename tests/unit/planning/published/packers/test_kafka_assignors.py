"""Kafka's assignors as packers: the examples of their own documentation, and Landau'24's ``kd_n``."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec import structs
from msgspec.structs import replace

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.placement.problem import Bin, Item, Problem
from loadtrim_agent.planning.registry import make_packer
from unit.planning.placement.packing import LIMITS, owned, packing


def two_topics(owner: str | None = None) -> Problem:
    """Kafka's own example: consumers C0 and C1, topics t0 and t1 of three partitions."""
    return Problem(
        items=tuple(Item(partition=Partition(topic, n), owner=owner) for topic in ("t0", "t1") for n in range(3)),
        bins=tuple(Bin(member=name, unit=name, capacity=1.0) for name in ("C0", "C1")),
        limits=LIMITS,
    )


@pytest.mark.parametrize(
    ("name", "first"),
    [("range", ["t0-0", "t0-1", "t1-0", "t1-1"]), ("roundrobin", ["t0-0", "t0-2", "t1-1"])],
)
def test_kafka_s_own_examples(name: str, first: list[str]) -> None:
    placed = make_packer(name).pack(two_topics())
    assert [str(partition) for partition, owner in placed.owners.items() if owner == "C0"] == first
    assert len(placed.owners) == 6
    assert make_packer(name).pack(owned(two_topics(), placed)).moves == ()


def test_partitions_with_gaps_in_their_numbers() -> None:
    given = two_topics()
    given = replace(given, items=tuple(item for item in given.items if item.partition.partition != 1))
    assert len(make_packer("range").pack(given).owners) == 4


def test_what_may_not_move_stays() -> None:
    given = replace(two_topics("C1"), may_move=False)
    for name in ("range", "roundrobin", "kd_n"):
        assert make_packer(name).pack(given).moves == ()


@pytest.mark.parametrize(
    ("name", "owners"),
    [
        ("range", ["c1", "c0", "c2", "c2"]),
        ("roundrobin", ["c1", "c2", "c0", "c2"]),
        ("kd_n", ["c1", "c2", "c0", "c2"]),
        ("kd_n:n=1", ["c1", "c0", "c0", "c0"]),
    ],
)
def test_a_silent_member_is_dealt_nothing_and_keeps_what_it_has(name: str, owners: list[str]) -> None:
    given = packing([1.0] * 4, ["c1"], bins=3)
    silent = structs.replace(given.bins[1], silent=True)
    placed = make_packer(name).pack(replace(given, bins=(given.bins[0], silent, given.bins[2])))
    assert list(placed.owners.values()) == owners


def test_round_robin_over_n_members_once() -> None:
    """Landau'24, section VI-C: 32 partitions on 20 consumers: twelve have 2, eight have 1."""
    given = packing([1.0] * 32)
    placed = make_packer("kd_n:n=20").pack(given)
    assert placed.opened == 20
    assert Counter(Counter(placed.owners.values()).values()) == {2: 12, 1: 8}
    heavier = replace(given, items=tuple(structs.replace(item, work=9.0) for item in given.items))
    assert make_packer("kd_n:n=20").pack(owned(heavier, placed)).moves == ()


def test_what_the_first_n_may_not_own_goes_to_others() -> None:
    first = Bin(member="a", unit="a", capacity=1.0, topics=frozenset({"t0"}))
    other = Bin(member="b", unit="b", capacity=1.0, topics=frozenset({"t0", "t1"}))
    placed = make_packer("kd_n:n=1").pack(replace(two_topics(), bins=(first, other)))
    assert Counter(placed.owners.values()) == {"a": 3, "b": 3}
