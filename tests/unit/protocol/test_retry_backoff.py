"""Pauses between tries in a row: none first, then growing, bounded, and not the same for all."""

from __future__ import annotations

from loadtrim_agent.protocol.retry_backoff import FIRST_SECONDS, RetryBackoff


def test_the_first_try_waits_for_nothing_and_the_others_longer_and_longer_up_to_a_bound() -> None:
    backoff = RetryBackoff(2.0)
    pauses = [backoff.failed("m1") for _ in range(60)]
    assert pauses[0] == 0.0
    for number, pause in enumerate(pauses[1:]):
        whole = min(FIRST_SECONDS * 2**number, 2.0)
        assert whole / 2 <= pause <= whole


def test_a_success_begins_anew() -> None:
    backoff = RetryBackoff(2.0)
    first = [backoff.failed("m1") for _ in range(4)]
    backoff.succeeded()
    assert [backoff.failed("m1") for _ in range(4)] == first, "and the same events give the same times"


def test_members_do_not_all_come_back_at_once() -> None:
    second = set()
    for number in range(20):
        backoff = RetryBackoff(2.0)
        backoff.failed(f"m{number}")
        second.add(backoff.failed(f"m{number}"))
    assert len(second) > 15
