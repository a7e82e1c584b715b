"""What is paid for, and the count of replicas over time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtrim.orchestrator import usage as usage
from loadtrim.orchestrator.usage import InstanceUsage, ReplicaCount


def test_an_instance_costs_from_being_asked_for_until_its_end() -> None:
    book = InstanceUsage()
    book.asked("a", 0.0)
    book.started("a", 5.0)
    book.asked("b", 10.0)
    book.ended("a", 20.0)
    assert book.replica_seconds(until=30.0) == 20.0 + 20.0
    assert book.replica_seconds(until=30.0, since=15.0) == 5.0 + 15.0
    assert book.replica_seconds(until=2.0) == 2.0
    assert book.history == [ReplicaCount(5.0, 1), ReplicaCount(20.0, 0)]


def test_one_that_never_started_is_paid_but_not_counted() -> None:
    book = InstanceUsage()
    book.asked("a", 0.0)
    book.ended("a", 3.0)
    assert book.replica_seconds(until=9.0) == 3.0
    assert book.history == []
    assert book.running == 0


def test_asking_twice_counts_once() -> None:
    book = InstanceUsage()
    book.asked("a", 0.0)
    book.asked("a", 1.0)
    assert book.replica_seconds(until=2.0) == 2.0


def test_the_book_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "ENTRIES_MAX", 10)
    book = InstanceUsage()
    for second in range(100):
        book.asked("a", second)
        book.started("a", second)
        book.ended("a", second + 0.5)
    assert len(book.history) < 10
    assert len(book.spans) < 10
    assert book.history[-1] == ReplicaCount(99.5, 0)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), max_size=12), st.floats(0, 100), st.floats(0, 100))
def test_windows_add_up(lives: list[tuple[float, float]], one: float, other: float) -> None:
    book = InstanceUsage()
    for number, (begin, length) in enumerate(sorted(lives)):
        book.asked(str(number), begin)
        book.ended(str(number), begin + length)
    first, second = sorted((one, other))
    parts = book.replica_seconds(until=second, since=first) + book.replica_seconds(until=first)
    assert parts == pytest.approx(book.replica_seconds(until=second))
