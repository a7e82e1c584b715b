"""Calls of ``commit()`` are noted where they say something new, so that nothing grows."""

from __future__ import annotations

from loadtrim_agent.delivery.commit_calls import CommitCalls


def test_calls_that_go_further_are_taken_once() -> None:
    calls = CommitCalls(by_hand=True)
    for offset, now in ((2, 1.0), (2, 2.0), (1, 3.0), (5, 4.0)):
        calls.called(offset, 10, now)
    assert calls.take() == [(2, 1.0), (5, 4.0)]
    assert calls.take() == []
    calls.called(5, 10, 5.0)
    assert calls.take() == []


def test_an_offset_beyond_what_was_handed_out_says_nothing_of_what_comes() -> None:
    calls = CommitCalls(by_hand=True)
    calls.called(1_000, 10, 1.0)
    calls.called(1_000, 10, 2.0)
    calls.called(1_000, 12, 3.0)
    assert calls.take() == [(10, 1.0), (12, 3.0)]


def test_after_a_seek_lower_offsets_say_something_new() -> None:
    calls = CommitCalls(by_hand=True)
    calls.called(10, 10, 1.0)
    calls.moved(0)
    calls.called(3, 5, 2.0)
    assert calls.take() == [(10, 1.0), (3, 2.0)]
