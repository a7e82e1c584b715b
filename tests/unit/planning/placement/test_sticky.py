"""Counts are levelled with as few moves as possible; load is not looked at."""

from __future__ import annotations

from collections import Counter

from msgspec import structs

from loadtrim_agent.planning.placement.problem import Bin
from loadtrim_agent.planning.registry import make_packer
from unit.planning.virtual_group import bins, item, partition, problem


def test_level_counts_stay_whatever_the_load() -> None:
    items = [item(0, "a", 5.0), item(1, "a", 5.0), item(2, "b", 0.0), item(3, "b", 0.0)]
    placed = make_packer("sticky").pack(problem(items, bins("a", "b")))
    assert placed.moves == ()
    assert placed.misfits == ("a",)
    assert placed.pressures["a"] > 9.0


def test_a_newcomer_gets_its_share_with_as_few_moves_as_needed() -> None:
    items = [item(number, "ab"[number % 2]) for number in range(9)]
    placed = make_packer("sticky").pack(problem(items, bins("a", "b", "c")))
    assert Counter(placed.owners.values()) == {"a": 3, "b": 3, "c": 3}
    assert len(placed.moves) == 3
    assert {move.target for move in placed.moves} == {"c"}


def test_a_leaver_is_emptied_and_what_is_on_its_way_stays() -> None:
    items = [item(number, "a") for number in range(4)]
    held = [structs.replace(entry, movable=False) for entry in items]
    packer = make_packer("sticky")
    assert packer.pack(problem(held, bins("a", "b"))).moves == ()
    gone = packer.pack(problem(held, bins("a", "b", leaving=["a"])))
    assert set(gone.owners.values()) == {"b"}


def test_nothing_moves_when_nothing_may() -> None:
    items = [item(number, "a") for number in range(4)]
    assert make_packer("sticky").pack(problem(items, bins("a", "b"), may_move=False)).moves == ()


def test_only_to_who_subscribes_and_victims_are_emptied() -> None:
    narrow = Bin(member="c", unit="c", capacity=1.0, topics=frozenset({"another"}))
    items = [item(number, "a") for number in range(4)] + [item(9, "c", topic="another")]
    placed = make_packer("sticky").pack(problem(items, (*bins("a", "b"), narrow)))
    assert placed.owners[partition(9, "another")] == "c"
    assert Counter(placed.owners.values()) == {"a": 2, "b": 2, "c": 1}
    fewer = make_packer("sticky").pack(problem(items, (*bins("a", "b"), narrow), replicas=2))
    assert fewer.victims == ("b",)
    assert Counter(fewer.owners.values()) == {"a": 4, "c": 1}
