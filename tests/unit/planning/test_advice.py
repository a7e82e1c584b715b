"""Moves that fail rest before they are advised again, for longer each time."""

from __future__ import annotations

from loadtrim_agent.planning.advice import Advice
from loadtrim_agent.planning.values import GroupState
from loadtrim_agent.wire.ownership_records import MovePlan
from unit.planning.virtual_group import TOPIC, partition

MOVE = MovePlan(topic=TOPIC, partition=0, source="a", target="b", reason="x")


def group(owner: str | None, *, flying: bool = False, generation: int = 1) -> GroupState:
    return GroupState(
        generation=generation,
        leader="a",
        members={},
        owners={partition(0): owner},
        in_flight={partition(0): "b"} if flying else {},
    )


def failed_at(advice: Advice, now: float) -> frozenset[object]:
    """One failure: advised, under way for some time, and then not moved."""
    advice.advised((MOVE,), 1)
    assert advice.resting(now - 1.0, group("a", flying=True)) == frozenset()
    return frozenset(advice.resting(now, group("a")))


def test_a_move_that_failed_rests() -> None:
    advice = Advice()
    assert failed_at(advice, 100.0) == {partition(0)}
    assert advice.resting(109.0, group("a")) == {partition(0)}
    assert advice.resting(110.0, group("a")) == frozenset()


def test_it_rests_longer_every_time_up_to_five_minutes() -> None:
    advice, now = Advice(), 100.0
    rests = []
    for _ in range(8):
        assert failed_at(advice, now) == {partition(0)}
        rest = 1.0
        while advice.resting(now + rest, group("a")):
            rest += 1.0
        rests.append(rest)
        now += rest + 2.0
    assert rests == [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0]


def test_a_long_time_after_it_the_rest_is_short_again() -> None:
    advice = Advice()
    failed_at(advice, 100.0)
    assert failed_at(advice, 200.0)
    assert advice.resting(210.0, group("a")) == frozenset()


def test_a_move_that_happened_and_one_of_an_earlier_generation_do_not_rest() -> None:
    advice = Advice()
    advice.advised((MOVE,), 1)
    assert advice.resting(100.0, group("b")) == frozenset()
    advice.advised((MOVE,), 1)
    assert advice.resting(101.0, group("a", generation=2)) == frozenset()


def test_another_owner_begins_anew() -> None:
    advice = Advice()
    failed_at(advice, 100.0)
    assert advice.resting(101.0, group("c")) == frozenset()
    assert advice.resting(102.0, group("a")) == frozenset()
