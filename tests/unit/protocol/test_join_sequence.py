"""What is known of the JoinGroups that members have sent (rules 6 and 8)."""

from __future__ import annotations

import pytest

from loadtrim_agent.protocol.events import JoinedMember
from loadtrim_agent.protocol.join_sequence import JoinSequence


def joined(**attempts: int | None) -> list[JoinedMember]:
    return [JoinedMember(member=member, topics=("orders",), attempt=attempt) for member, attempt in attempts.items()]


@pytest.fixture
def attempts() -> JoinSequence:
    attempts = JoinSequence()
    attempts.entered(4, {"a": 3, "b": 7})
    return attempts


@pytest.mark.parametrize("attempt", [6, 7])
def test_a_join_that_was_answered_before_is_overtaken(attempts: JoinSequence, attempt: int) -> None:
    assert attempts.is_stale(joined(a=4, b=attempt))


def test_new_joins_newcomers_and_foreign_members_are_not(attempts: JoinSequence) -> None:
    assert not attempts.is_stale(joined(a=4, b=8, newcomer=2, foreign=None))


def test_what_a_leader_was_told_counts_even_if_nobody_entered(attempts: JoinSequence) -> None:
    attempts.answered(joined(a=4, b=8, foreign=None))
    assert attempts.is_stale(joined(a=5, b=8))
    assert not attempts.covers(6), "another may lead a generation of the same number"


def test_the_highest_counts(attempts: JoinSequence) -> None:
    attempts.answered(joined(b=2))
    assert attempts.is_stale(joined(b=7))
    attempts.entered(6, {"b": 5})
    assert attempts.is_stale(joined(b=7))


def test_whoever_is_gone_is_forgotten(attempts: JoinSequence) -> None:
    attempts.entered(5, {"a": 4})
    assert not attempts.is_stale(joined(b=1))


@pytest.mark.parametrize(("generation", "covered"), [(4, True), (5, True), (6, False)])
def test_complete_up_to_the_generation_entered_last(attempts: JoinSequence, generation: int, covered: bool) -> None:
    assert attempts.covers(generation) is covered


def test_nothing_is_known_at_first_and_after_being_forgotten(attempts: JoinSequence) -> None:
    assert not JoinSequence().covers(1)
    attempts.forget()
    assert not attempts.covers(5)
    assert not attempts.is_stale(joined(b=1))
