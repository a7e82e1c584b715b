"""When records were done, as commits of user code tell it. Expected values are worked out by hand."""

from __future__ import annotations

import pytest

from loadtrim_agent.metering import commit_bounds
from loadtrim_agent.metering.commit_bounds import RUNS_MAX, CommitBounds

W = 10.0


def handed_on(*taken: tuple[int, float, float]) -> CommitBounds:
    """Records that were handed on: offset, time of the hand-out, age then."""
    bounds = CommitBounds(W)
    for each in taken:
        bounds.handed_on(*each)
    return bounds


def test_a_commit_within_the_objective_tells_that_what_is_below_it_was_in_time() -> None:
    bounds = handed_on((0, 100.0, 1.0), (1, 101.0, 1.0), (2, 102.0, 1.0))
    bounds.committed(2, 109.0)
    assert bounds.take() == ([10.0, 9.0], 0)
    assert bounds
    bounds.expire(111.0)
    assert bounds.take() == ([], 0)
    bounds.expire(111.5)
    assert bounds.take() == ([], 1)
    assert not bounds


def test_a_commit_that_comes_later_tells_nothing() -> None:
    """A program that commits once a minute has done its records long before."""
    bounds = handed_on((0, 100.0, 1.0))
    bounds.committed(1, 109.5)
    assert bounds.take() == ([], 1)


def test_a_commit_that_leaves_a_record_out_does_not_make_it_late() -> None:
    """One that is done waits for those before it, and for the rest of its batch."""
    bounds = handed_on((0, 100.0, 9.0), (1, 100.0, 5.0))
    bounds.committed(0, 102.0)
    assert bounds.take() == ([], 0)
    bounds.committed(2, 103.0)
    assert bounds.take() == ([8.0], 1)


def test_a_commit_before_the_next_call_counts() -> None:
    bounds = CommitBounds(W)
    bounds.committed(1, 105.0)
    bounds.handed_on(0, 100.0, 2.0)
    assert bounds.take() == ([7.0], 0)


def test_the_first_commit_above_a_record_counts() -> None:
    bounds = CommitBounds(W)
    bounds.committed(1, 101.0)
    bounds.committed(2, 125.0)
    bounds.handed_on(0, 100.0, 2.0)
    bounds.handed_on(1, 100.0, 2.0)
    assert bounds.take() == ([3.0], 1)


def test_a_commit_before_the_hand_out_tells_nothing() -> None:
    """User code committed, and sought back to have the record again."""
    bounds = CommitBounds(W)
    bounds.committed(5, 100.0)
    bounds.handed_on(3, 101.0, 2.0)
    assert bounds
    bounds.expire(110.0)
    assert bounds.take() == ([], 1)


def test_what_is_handed_out_late_is_not_counted_here() -> None:
    bounds = handed_on((0, 100.0, 10.5))
    bounds.committed(1, 100.0)
    assert not bounds
    assert bounds.take() == ([], 0)


def test_records_that_are_due_together_are_one_run() -> None:
    bounds = handed_on(*((offset, 100.0 + offset / 1000, 0.0) for offset in range(100)))
    bounds.committed(60, 110.0)
    latencies, unknown = bounds.take()
    assert (len(latencies), unknown) == (60, 0)
    assert max(latencies) == 10.0
    bounds.committed(100, 110.05)
    assert bounds.take() == ([], 40), "as the first of the run"


def test_a_producer_whose_clock_is_ahead_does_not_keep_records_for_longer() -> None:
    bounds = handed_on((0, 100.0, -1e6))
    bounds.expire(110.5)
    assert bounds.take() == ([], 1)


def test_an_objective_that_turns_out_to_be_measured_with_another_offset_counts_from_then_on() -> None:
    bounds = CommitBounds(W)
    bounds.latency_max_seconds = W + 5.0
    bounds.handed_on(0, 100.0, 12.0)
    bounds.committed(1, 102.0)
    assert bounds.take() == ([14.0], 0)


@pytest.mark.parametrize("apart_seconds", [0.0, 0.3], ids=["due together", "two producers"])
@pytest.mark.parametrize("gap", [1, 2, 7])
def test_many_records_with_gaps_between_them_are_in_time(gap: int, apart_seconds: float) -> None:
    """A log that was compacted, one record a transaction, or producers of unlike lag: no two are of one run."""
    bounds = handed_on(*((n * gap, 100.0, n % 2 * apart_seconds) for n in range(5000)))
    for number in range(5000):
        bounds.committed(number * gap + 1, 101.0 + number / 1000)
    latencies, unknown = bounds.take()
    assert (len(latencies), unknown) == (5000, 0)
    assert max(latencies) <= 6.3


@pytest.mark.parametrize("step", [1, 2, -1])
def test_memory_is_bounded(step: int) -> None:
    """User code never commits, each record of a batch that it never ends, or while it goes back in the log."""
    bounds = CommitBounds(W)
    for number in range(3 * RUNS_MAX):
        bounds.handed_on(9 * RUNS_MAX + number * step, 100.0 + number / RUNS_MAX, number % 2 * 0.3)
        assert len(bounds._runs) <= RUNS_MAX
    for number in range(3 * RUNS_MAX):
        bounds.committed(9 * RUNS_MAX + number * 2 + 1, 104.0)
    latencies, unknown = bounds.take()
    assert len(latencies) + unknown == 3 * RUNS_MAX
    assert unknown == 0 or step < 0
    for number in range(3 * RUNS_MAX):
        bounds.committed(number, 105.0)
    assert len(bounds._commits) == RUNS_MAX


def test_what_was_joined_is_said_to_be_in_time_only_where_all_of_it_is_for_certain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commit_bounds, "RUNS_MAX", 4)
    bounds = handed_on(*((offset, 100.0, 0.0) for offset in (0, 10, 20, 30, 40)))
    bounds.committed(25, 101.0)
    assert bounds.take() == ([], 0), "of those below 31 it is not known which are below 25"
    bounds.committed(29, 102.0)
    assert bounds.take() == ([2.0, 2.0], 0), "two offsets are left, so that two are below for certain"
    bounds.committed(41, 103.0)
    assert bounds.take() == ([3.0, 3.0, 3.0], 0)
    bounds = handed_on((0, 100.0, 9.0), (10, 100.0, 0.0), (20, 100.0, 9.0), (30, 100.0, 0.0), (40, 100.0, 0.0))
    bounds.committed(41, 105.0)
    assert bounds.take() == ([5.0], 4)


def test_what_waits_when_the_partition_goes_is_unknown() -> None:
    bounds = handed_on((0, 100.0, 1.0), (7, 101.0, 1.0))
    bounds.close()
    assert bounds.take() == ([], 2)
