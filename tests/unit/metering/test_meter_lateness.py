"""Why records were late: runs, marks, the partition's server of its own. Expected values are worked out by hand."""

from __future__ import annotations

from loadtrim_agent.metering.lateness import RUNS_MAX, Judge, LateCause, Mark, NotLate, RecordQueue, runs_of
from loadtrim_agent.metering.windows import BucketGrid

T = 1_700_000_000.0
GRID = BucketGrid.of(0.1, (0.1, 0.25))
W = 0.5


def queue_of(*runs: tuple[int, float, Mark]) -> RecordQueue:
    queue = RecordQueue(T)
    for count, timestamp, mark in runs:
        queue.add(count, timestamp, mark)
    return queue


def finish(queue: RecordQueue, judge: Judge, latencies: list[float], busies: list[float], now: float) -> None:
    queue.finish(latencies, busies, sum(busies), judge, now)


class TestRuns:
    def test_one_slot_is_one_run(self) -> None:
        assert runs_of([T + 0.01, T + 0.02, T + 0.049], GRID, T + 1) == [(T + 0.01, 3)]

    def test_runs_keep_the_order_of_the_log(self) -> None:
        stamps = [T + 0.01, T + 0.06, T + 0.02, -1.0, -5.0, T + 0.2]
        assert runs_of(stamps, GRID, T + 1) == [
            (T + 0.01, 1),
            (T + 0.06, 1),
            (T + 0.02, 1),
            (-1.0, 2),
            (T + 0.2, 1),
        ]

    def test_nothing_and_nothing_timed(self) -> None:
        assert runs_of([], GRID, T) == []
        assert runs_of([-1.0, -1.0], GRID, T) == [(-1.0, 2)]

    def test_an_old_backlog_is_cut_by_seconds(self) -> None:
        stamps = [T + 0.1 * number for number in range(20)]
        assert runs_of(stamps, GRID, T + 100) == [(T, 10), (T + 1.0, 10)]
        assert len(runs_of(stamps, GRID, T + 2)) == 20


class TestQueue:
    def test_in_time(self) -> None:
        queue, judge = queue_of((3, T, Mark.FRESH)), Judge(W, 1.0)
        finish(queue, judge, [0.1, 0.5], [0.1, 0.1], T + 0.5)
        assert (judge.in_time, judge.late, queue.records) == (2, {}, 1)
        assert queue.oldest() == T
        finish(queue, judge, [0.2], [0.1], T + 0.6)
        assert (queue.oldest(), queue.drained_at) == (None, T + 0.6)
        assert abs(queue.free_at - (T + 0.3)) < 1e-6

    def test_its_own_server_does_not_work_before_a_record_has_come(self) -> None:
        queue, judge = queue_of((1, T, Mark.FRESH), (1, T + 7, Mark.FRESH)), Judge(W, 1.0)
        finish(queue, judge, [0.1, 0.1], [0.1, 0.1], T + 7.1)
        assert abs(queue.free_at - (T + 7.1)) < 1e-6

    def test_the_clock_offset_is_taken_off(self) -> None:
        queue, judge = queue_of((2, T, Mark.FRESH)), Judge(W, 1.0, offset_seconds=5.0)
        finish(queue, judge, [5.4, 5.6], [0.0, 0.0], T + 0.6)
        assert (judge.in_time, judge.late) == (1, {LateCause.QUEUED: 1})

    def test_a_clock_behind_makes_negative_latencies_that_are_in_time(self) -> None:
        queue, judge = queue_of((1, T, Mark.FRESH)), Judge(W, 1.0, offset_seconds=0.0)
        finish(queue, judge, [-4.9], [0.1], T + 0.1)
        assert judge.in_time == 1

    def test_late_when_first_seen(self) -> None:
        queue, judge = queue_of((2, T - 9, Mark.LATE)), Judge(W, 1.0)
        finish(queue, judge, [9.1, 9.2], [0.1, 0.1], T + 0.2)
        assert judge.late == {LateCause.ALREADY_LATE: 2}

    def test_late_because_it_was_stuck(self) -> None:
        queue, judge = queue_of((1, T, Mark.FRESH)), Judge(W, 1.0)
        queue.stalled_until = T + 10
        finish(queue, judge, [10.1], [0.1], T + 10.1)
        assert judge.late == {LateCause.BLOCKED: 1}

    def test_a_burst_too_large_for_one_member_is_serial_from_where_it_is_too_much(self) -> None:
        # 10 records at once, 0.1 s each: with nothing else to do number 5 is done at 0.5 s, which is less than W only
        # without the margin of 15 ms.
        queue, judge = queue_of((10, T, Mark.FRESH)), Judge(W, 1.0)
        latencies = [0.1 * number + 0.04 for number in range(1, 11)]
        finish(queue, judge, latencies, [0.1] * 10, T + 1.04)
        assert judge.in_time == 4
        assert judge.late == {LateCause.SERIAL: 6}

    def test_late_because_of_others(self) -> None:
        queue, judge = queue_of((2, T, Mark.FRESH)), Judge(W, 1.0)
        finish(queue, judge, [0.9, 1.0], [0.1, 0.1], T + 1.0)
        assert judge.late == {LateCause.QUEUED: 2}

    def test_a_mixed_run_is_told_apart_record_by_record(self) -> None:
        queue, judge = queue_of((8, T, Mark.FRESH)), Judge(W, 1.0)
        finish(queue, judge, [0.6 + 0.1 * number for number in range(8)], [0.1] * 8, T + 1.4)
        assert judge.late == {LateCause.QUEUED: 4, LateCause.SERIAL: 4}

    def test_two_at_a_time_are_done_in_half_the_time(self) -> None:
        queue, judge = queue_of((8, T, Mark.FRESH)), Judge(W, 2.0)
        finish(queue, judge, [0.6] * 8, [0.1] * 8, T + 0.6)
        assert judge.late == {LateCause.QUEUED: 8}
        assert abs(queue.free_at - (T + 0.4)) < 1e-6

    def test_records_without_time_stamps_are_not_judged(self) -> None:
        queue, judge = queue_of((1, T, Mark.FRESH), (2, T, Mark.UNTIMED)), Judge(W, 1.0)
        finish(queue, judge, [0.1, float("nan"), 1e9], [0.1] * 3, T + 0.3)
        assert (judge.in_time, judge.untimed, judge.late) == (1, 2, {})
        queue.add(1, T + 0.4, Mark.FRESH)
        finish(queue, judge, [0.1], [0.1], T + 0.5)
        assert judge.in_time == 2

    def test_records_it_was_not_told_of_are_judged_by_their_latency(self) -> None:
        queue, judge = queue_of(), Judge(W, 1.0)
        finish(queue, judge, [0.2, 0.8], [0.1, 0.6], T + 1.0)
        assert (judge.in_time, judge.late) == (1, {LateCause.SERIAL: 1})

    def test_runs_are_bounded_and_lose_no_record(self) -> None:
        queue = RecordQueue(T)
        for number in range(RUNS_MAX + 50):
            queue.add(1, T + number, Mark.UNTIMED if number % 2 else Mark.FRESH)
        assert len(queue.runs) == RUNS_MAX
        assert queue.records == RUNS_MAX + 50
        judge, size = Judge(W, 1.0), RUNS_MAX + 50
        finish(queue, judge, [0.0] * size, [0.0] * size, T)
        assert judge.in_time + judge.untimed == size
        queue.add(1, T, Mark.FRESH)
        finish(queue, judge, [0.0], [0.0], T)  # nothing untimed is left behind
        assert judge.in_time + judge.untimed == size + 1

    def test_a_late_backlog_waits_in_long_runs(self) -> None:
        queue = queue_of(*[(1, T + 0.05 * number, Mark.LATE) for number in range(40)])
        assert [run.count for run in queue.runs] == [20, 20]
        assert queue.records == 40


class TestUncertain:
    """User code asked for the next record and may work on this one still: what it took is the least that it took."""

    def test_what_was_late_by_then_is_late_and_the_rest_is_unknown(self) -> None:
        queue, judge = queue_of((3, T, Mark.FRESH)), Judge(W, 1.0, not_late=NotLate.UNKNOWN)
        finish(queue, judge, [0.1, 0.2, 0.6], [0.1, 0.1, 0.4], T + 0.6)
        assert (judge.in_time, judge.unknown, sum(judge.late.values())) == (0, 2, 1)
        assert judge.latency_seconds == 0.6, "of those that are judged"

    def test_all_in_time_is_all_unknown(self) -> None:
        queue, judge = queue_of((2, T, Mark.FRESH)), Judge(W, 1.0, not_late=NotLate.UNKNOWN)
        finish(queue, judge, [0.1, 0.2], [0.1, 0.1], T + 0.2)
        assert (judge.in_time, judge.unknown, judge.late, judge.latency_seconds) == (0, 2, {}, 0.0)
        judge.not_late = NotLate.IN_TIME
        queue.add(1, T + 0.3, Mark.FRESH)
        finish(queue, judge, [0.1], [0.1], T + 0.4)
        assert (judge.in_time, judge.unknown) == (1, 2)

    def test_what_a_commit_may_tell_counts_when_it_is_decided(self) -> None:
        queue, judge = queue_of((4, T, Mark.FRESH)), Judge(W, 1.0, not_late=NotLate.UNDECIDED)
        finish(queue, judge, [0.1, 0.2, 0.2, 0.6], [0.1] * 4, T + 0.6)
        assert (judge.in_time, judge.unknown, sum(judge.late.values())) == (0, 0, 1)
        judge.decided([0.3, 0.4], unknown=1)
        assert (judge.in_time, judge.unknown, sum(judge.late.values())) == (2, 1, 1)
        assert judge.latency_seconds == 0.6 + 0.7
