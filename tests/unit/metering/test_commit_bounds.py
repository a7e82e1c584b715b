"""When records were done, as commits of user code tell it. Expected values are worked out by hand."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize("gap", [1, 2])
def test_memory_is_bounded(gap: int) -> None:
    """User code never commits, or each record of a batch that it never ends."""
    bounds = CommitBounds(W)
    for number in range(3 * RUNS_MAX):
        bounds.handed_on(number * gap, 100.0 + number, 0.0)
    latencies, unknown = bounds.take()
    assert (latencies, unknown) == ([], 2 * RUNS_MAX)
    for number in range(3 * RUNS_MAX, 6 * RUNS_MAX):
        bounds.committed(number * gap, 100.0 + number)
    latencies, unknown = bounds.take()
    assert len(latencies) + unknown == RUNS_MAX
    assert len(bounds._commits) == RUNS_MAX


def test_what_waits_when_the_partition_goes_is_unknown() -> None:
    bounds = handed_on((0, 100.0, 1.0), (7, 101.0, 1.0))
    bounds.close()
    assert bounds.take() == ([], 2)
