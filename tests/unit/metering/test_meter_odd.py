"""The meter where the world is odd: clocks, gaps, seeks, stuck partitions. Expected values are worked out by hand."""

from __future__ import annotations

import math

import pytest

from loadtrim_agent.metering.meter import Meter
from loadtrim_agent.metering.readings import Working
from unit.metering.meter_feed import CONFIG, OTHER, Feed, P, Q, T, bursts, entry_of, snapshot_of, time_of


class TestClocks:
    @pytest.mark.parametrize("ahead", [-5.0, 5.0])
    def test_a_clock_that_is_off_changes_nothing(self, ahead: float) -> None:
        straight, off = Feed(Meter(CONFIG)), Feed(Meter(CONFIG), own_clock_ahead=ahead)
        off.meter.clock_offset(ahead, 0.002)
        for feed in (straight, off):
            feed.acquire(T)
        expected, found = bursts(straight, 8, 40, 0.01), bursts(off, 8, 40, 0.01)
        for one, other in zip(expected, found, strict=True):
            assert other.at == time_of(one.at + ahead)
            assert other.slots_start == time_of(one.slots_start)
            assert other.slots == pytest.approx(one.slots)
            assert (other.in_time, other.late) == (one.in_time, one.late)
            assert entry_of(other) == entry_of(one)

    @pytest.mark.parametrize("ahead", [-5.0, 5.0])
    def test_even_unmeasured_it_counts_arrivals_right(self, ahead: float) -> None:
        feed = Feed(Meter(CONFIG), own_clock_ahead=ahead)
        feed.acquire(T)
        reports = bursts(feed, 8, 40, 0.01)
        assert [entry_of(report).arrived for report in reports] == [40] * 8
        slots = [work for report in reports for work in report.slots]
        assert sum(slots) == pytest.approx(8 * 0.4)

    @pytest.mark.parametrize("ahead", [-5.0, 5.0])
    def test_an_offset_learnt_late_loses_no_work(self, ahead: float) -> None:
        feed = Feed(Meter(CONFIG), own_clock_ahead=ahead)
        feed.acquire(T)
        reports = bursts(feed, 4, 40, 0.01)
        feed.meter.clock_offset(ahead, 0.002)
        reports += bursts(feed, 4, 40, 0.01, start=T + 4)
        slots = [work for report in reports for work in report.slots]
        assert sum(slots) == pytest.approx(8 * 0.4)
        assert reports[-1].slots_start == time_of(T + 6.7)
        assert feed.meter.snapshot(T).clock_offset_seconds == ahead

    def test_time_stamps_from_the_future(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(T + 3600, T + 3600)
        feed.fetch(T + 0.51)
        feed.finish(T + 0.6, 1, 0.1)
        feed.observe(T + 0.95)
        report = feed.report(T + 1.0)
        entry = entry_of(report)
        assert (entry.arrived, entry.lag, entry.lag_seconds, report.in_time) == (2, 1, 0.0, 1)

    def test_records_without_time_stamps(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(-1.0, -1.0)
        feed.fetch(T + 0.51)
        feed.finish(T + 0.6, 1, 0.1)
        report = feed.report(T + 1.0)
        entry = entry_of(report)
        assert (entry.arrived, entry.lag) == (2, 1)
        assert entry.lag_seconds == pytest.approx(0.49)  # as old as it is known to be
        assert (report.in_time, report.late, feed.meter.snapshot(T + 1).untimed) == (0, {}, 1)
        feed.finish(T + 1.05, 1, 0.1)
        slots = report.slots + feed.report(T + 2.0).slots
        assert sum(slots) == pytest.approx(0.2)
        assert slots[5] == pytest.approx(0.2)

    def test_a_wall_clock_that_is_set_back_breaks_nothing(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        bursts(feed, 3, 10, 0.01)
        feed.ahead = -30.0
        reports = bursts(feed, 3, 10, 0.01, start=T + 3)
        assert [entry_of(report).arrived for report in reports] == [10] * 3
        assert all(report.interval > 0 and min(report.slots, default=0.0) >= 0 for report in reports)


class TestSeeksAndGaps:
    def test_a_seek_back_is_no_arrival(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(*[T + 0.1] * 10)
        feed.fetch(T + 0.11)
        feed.finish(T + 0.2, 10, 0.001)
        feed.meter.sought(P, T + 0.3, 4)
        feed.fetched = feed.done = 4
        feed.fetch(T + 0.31)
        entry = entry_of(feed.report(T + 1.0))
        assert (entry.arrived, entry.done, entry.lag, entry.position) == (10, 10, 6, 4)
        feed.finish(T + 1.1, 6, 0.001)
        entry = entry_of(feed.report(T + 2.0))
        assert (entry.arrived, entry.done, entry.lag) == (0, 6, 0)

    def test_a_seek_forward_skips_lag_and_arrivals(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.append(*[T - 9] * 1000)
        feed.acquire(T)
        feed.fetch(T + 0.1, 10)
        feed.append(*[T + 0.2] * 50)  # nobody has seen these
        feed.meter.sought(P, T + 0.3, 1050)
        feed.fetched = feed.done = 1050
        feed.append(T + 0.4)
        feed.fetch(T + 0.41)
        entry = entry_of(feed.report(T + 1.0))
        assert (entry.arrived, entry.lag, entry.lag_min) == (1, 1, 0)

    def test_a_position_that_jumps_is_a_seek_too(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(*[T + 0.1] * 10)
        feed.fetch(T + 0.11)
        feed.finish(T + 0.2, 5, 0.001)
        feed.meter.done(P, T + 0.3, [], [], 2)
        assert snapshot_of(feed.meter, T + 0.3).lag_records == 8
        feed.meter.done(P, T + 0.3, [], [], 10)
        assert snapshot_of(feed.meter, T + 0.3).lag_records == 0

    def test_transaction_markers_and_compaction(self) -> None:
        meter = Meter(CONFIG)
        meter.acquired(P, T, 0, 0)
        # Every third offset is a record, the last of each ten is a transaction's marker.
        for number in range(30):
            base, now = number * 10, T + number * 0.1 + 0.01
            meter.fetched(P, now, [now - 0.005] * 3, next_offset=base + 10, end_offset=base + 10, size_bytes=9)
            meter.done(P, now + 0.01, [0.015] * 3, [0.002] * 3, base + 9)
        report = meter.report(T + 3.0, "m1", 7, 0)
        entry = entry_of(report)
        assert (entry.arrived, entry.done, entry.lag, entry.position) == (90, 90, 0, 299)
        meter.observed(P, T + 3.0, 400)
        entry = entry_of(meter.report(T + 3.1, "m1", 7, 1))
        assert entry.lag == 69, "of 100 offsets three in ten are records, as it learns slowly"
        assert 25 <= entry.arrived <= 75  # records, estimated: 0.3 to be learnt, 1.0 to start with
        assert meter.load(T + 3.1, "m1", 7).queues[0].queue_seconds < 0.2


class TestCosts:
    def test_none_before_the_first_record_then_its_own(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(T + 0.1, T + 0.1)
        feed.fetch(T + 0.11)
        entry = entry_of(feed.report(T + 0.5))
        assert (entry.cost_mean, entry.cost_variance, entry.work_windows) == (None, None, ())
        assert feed.meter.load(T + 0.5, "m1", 7).queues == ()
        feed.finish(T + 0.6, 1, 0.25)
        entry = entry_of(feed.report(T + 1.0))
        assert (entry.cost_mean, entry.cost_variance) == (0.25, 0.0)
        assert feed.meter.load(T + 1.0, "m1", 7).queues[0].queue_seconds == 0.25

    def test_a_partition_without_records_done_borrows_its_topic_and_slots_borrow_any(self) -> None:
        meter = Meter(CONFIG)
        feeds = [Feed(meter, partition) for partition in (P, Q, OTHER)]
        for feed in feeds:
            feed.acquire(T)
            feed.append(T + 0.1, T + 0.1)
            feed.fetch(T + 0.11)
        feeds[0].finish(T + 0.15, 2, 0.02)
        report = feeds[0].report(T + 1.0)
        assert [entry_of(report, feed.partition).cost_mean for feed in feeds] == [0.02, 0.02, None]
        load = meter.load(T + 1.0, "m1", 7)
        assert [(queue.topic, queue.partition, queue.queue_seconds) for queue in load.queues] == [
            ("orders", 1, 0.04),
            ("payments", 0, 0.04),
        ]

    def test_work_whose_cost_is_not_known_yet_waits_for_it(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(*[T + 0.1] * 4)
        feed.fetch(T + 0.11)
        feed.observe(T + 1.9)
        first = feed.report(T + 2.0)
        assert sum(first.slots) == 0.0
        feed.finish(T + 2.5, 4, 0.5)
        feed.observe(T + 2.9)
        second = feed.report(T + 3.0)
        assert sum(second.slots) == pytest.approx(2.0)

    def test_lengths_must_agree_and_nonsense_does_no_harm(self) -> None:
        meter = Meter(CONFIG)
        meter.acquired(P, T, 0, 0)
        with pytest.raises(ValueError, match="latencies"):
            meter.done(P, T, [0.1], [], 1)
        meter.fetched(P, T, [T, T], next_offset=2, end_offset=2)
        meter.done(P, T + 0.1, [0.1, 0.1], [math.nan, 0.02], 2)
        assert snapshot_of(meter, T + 0.1).cost == pytest.approx((0.01, 0.0001))


class TestStates:
    def test_paused_is_kept_out_and_its_backlog_is_no_burst(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        reports = bursts(feed, 3, 10, 0.01)
        feed.meter.paused(P, T + 3.0, True)
        feed.meter.paused(P, T + 3.0, True)
        feed.append(*[T + 3.5 + 0.1 * number for number in range(60)])
        for second in range(3, 10):
            reports.append(feed.report(T + second + 0.9))
            assert snapshot_of(feed.meter, T + second + 0.9).state == "paused"
        assert [len(report.partitions) for report in reports[3:]] == [1] + [0] * 6
        assert entry_of(reports[3]).state == "paused"
        feed.meter.paused(P, T + 10.0, False)
        feed.fetch(T + 10.01)
        report = feed.report(T + 10.9)
        assert (entry_of(report).arrived, entry_of(report).lag, entry_of(report).state) == (60, 60, "running")
        feed.finish(T + 11.6, 60, 0.01)
        report2 = feed.report(T + 12.9)
        assert report.late | report2.late == {"blocked": 60}
        slots = [work for each in (*reports, report, report2) for work in each.slots]
        assert sum(slots) == pytest.approx(0.3, abs=0.101)  # the last burst was in no slot yet when the pause began
        reports = bursts(feed, 3, 10, 0.01, start=T + 13)
        assert sum(sum(each.slots) for each in reports) == pytest.approx(0.3)  # in sizing again

    @pytest.mark.parametrize(
        ("paused_seconds", "all_paused", "busy", "sized"),
        [(0.3, False, 0.0, True), (0.7, False, 0.9, False), (0.7, True, 0.0, True), (0.7, True, 0.9, True)],
    )
    def test_back_pressure_is_load(self, paused_seconds: float, all_paused: bool, busy: float, sized: bool) -> None:
        """User code that pauses all it has about once a second, until less is in hand, hid all of its load."""
        feed = Feed(Meter(CONFIG))
        others = Feed(feed.meter, Q)
        feed.acquire(T)
        others.acquire(T)
        slots = [work for report in bursts(feed, 3, 10, 0.01) for work in report.slots]
        before, done = sum(slots), round(busy * paused_seconds / 0.03)
        paused = (P, Q) if all_paused else (P,)
        for second in range(3, 13):
            begin = T + second
            feed.append(*[begin + 0.05 + 0.01 * number for number in range(10)])
            others.append(*[begin] * done)
            others.fetch(begin)
            for partition in paused:
                feed.meter.paused(partition, begin, True)
            others.finish(begin + paused_seconds - 0.001, done, 0.03)
            for partition in paused:
                feed.meter.paused(partition, begin + paused_seconds, False)
            feed.fetch(begin + paused_seconds + 0.01)
            feed.finish(begin + paused_seconds + 0.2, 10, 0.01)
            for each in (feed, others):
                each.observe(begin + 0.98)
            report = feed.report(begin + 0.99)
            assert entry_of(report).state == ("running" if sized else "paused")
            slots += report.slots
        others_work = 10 * done * 0.03
        # The first of the others' records are taken to cost as much as those of the topic.
        assert sum(slots) - before == pytest.approx(others_work + (1.0 if sized else 0.0), abs=0.3)

    def test_a_long_record_in_hand_while_all_is_paused_is_back_pressure(self) -> None:
        """Nothing is done for a while, since what is in hand takes long."""
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        bursts(feed, 3, 10, 0.01)
        feed.append(T + 3.0, T + 3.1)
        feed.fetch(T + 3.12)
        feed.meter.paused(P, T + 3.12, True)
        states = []
        for second in range(3, 7):
            hand = Working(records=1, open_seconds=second + 0.95 - 3.12)
            feed.meter.working(T + second + 0.95, hand)
            states.append(entry_of(feed.report(T + second + 0.95)).state)
        assert states == ["running"] * 4

    def test_short_pauses_after_a_long_one_are_load(self) -> None:
        """They fell on the moment of each report, which was all that counted."""
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        bursts(feed, 3, 10, 0.01)
        feed.meter.paused(P, T + 3.0, True)
        states = []
        for second in range(3, 10):
            begin = T + second
            states.append(entry_of(feed.report(begin + 0.95)).state)
            feed.meter.paused(P, begin + 1.0, False)
            feed.append(begin + 1.1)
            feed.fetch(begin + 1.11)
            feed.finish(begin + 1.2, 1, 0.01)
            feed.meter.paused(P, begin + 1.9, True)
        assert states == ["paused", *["running"] * 6]

    def test_a_partition_that_is_lost_and_comes_back_was_not_paused(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        bursts(feed, 3, 10, 0.01)
        feed.meter.paused(P, T + 3.0, True)
        feed.meter.lost(P, T + 3.7)
        feed.acquire(T + 3.8)
        feed.append(T + 3.81)
        feed.fetch(T + 3.82)
        assert "paused" not in {entry.state for entry in feed.report(T + 3.9).partitions}

    def test_a_pause_before_the_first_report(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(T + 0.5)
        feed.meter.paused(P, T, True)
        assert entry_of(feed.report(T + 1.0)).state == "paused"

    def test_a_clock_that_is_set_right_makes_no_pause(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        bursts(feed, 3, 10, 0.01)
        feed.meter.paused(P, T + 3.0, True)
        feed.meter.clock_offset(5.0, 0.001)
        feed.meter.paused(P, T + 3.1, False)
        feed.meter.fetched(P, T + 3.2, [T + 3.2 - 5.0], next_offset=31, end_offset=31)
        assert entry_of(feed.meter.report(T + 3.9, "m1", 7, 0)).state == "running"

    def test_blocked_is_kept_out_until_it_moves(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        bursts(feed, 3, 10, 0.01)
        states = []
        slots: list[float] = []
        for second in range(3, 15):  # user code is stuck in the first of these
            feed.append(*[T + second + 0.1] * 10)
            feed.fetch(T + second + 0.11)
            report = feed.report(T + second + 0.99)
            states.append(entry_of(report).state)
            slots += report.slots
            assert entry_of(report).arrived == 10
        assert states == ["running"] * 5 + ["blocked"] * 7
        assert sum(slots[60:]) == 0.0
        feed.finish(T + 15.0, 120, 0.01)
        report = feed.report(T + 15.99)
        assert report.late == {"blocked": 120}
        assert sum(report.slots) == 0.0

    def test_a_member_that_was_busy_before_can_be_blocked(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        bursts(feed, 30, 90, 0.01)
        feed.append(T + 30.1)
        feed.fetch(T + 30.11)
        assert snapshot_of(feed.meter, T + 35.0).state == "running"
        assert snapshot_of(feed.meter, T + 35.2).state == "blocked"

    def test_waiting_behind_others_is_load_not_blocked(self) -> None:
        meter = Meter(CONFIG)
        feed, other = Feed(meter), Feed(meter, OTHER)
        for each in (feed, other):
            each.acquire(T)
        feed.append(T + 0.1)
        feed.fetch(T + 0.11)
        for second in range(12):
            other.append(*[T + second + 0.1] * 10)
            other.fetch(T + second + 0.11)
            other.finish(T + second + 0.99, 9, 0.1)
            report = feed.report(T + second + 1.0)
            assert entry_of(report, P).state == "running"
        feed.finish(T + 12.5, 1, 0.1)
        assert feed.report(T + 13.0).late == {"queued": 1}

    def test_a_batch_that_takes_long_is_not_stuck_when_the_last_one_did_too(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(*[T + 0.1] * 2000)
        feed.fetch(T + 0.11)
        feed.finish(T + 4.2, 1000, 0.004)
        assert entry_of(feed.report(T + 10.0)).state == "running"
        assert entry_of(feed.report(T + 18.0)).state == "blocked"

    def test_a_first_batch_may_take_a_minute_before_it_counts_as_stuck(self) -> None:
        """Nothing is known of a member's records before the first is done: a healthy newcomer was told as blocked."""
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(*[T + 0.1] * 2000)
        feed.fetch(T + 0.11)
        states = {}
        for second in (1.0, 5.2, 60.0, 60.2):
            feed.meter.working(T + second, Working(records=2000, open_seconds=second - 0.11))
            states[second] = entry_of(feed.report(T + second)).state
        assert states == {1.0: "running", 5.2: "running", 60.0: "running", 60.2: "blocked"}

    def test_what_is_late_after_a_long_first_batch_is_late_because_of_load(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(*[T + 0.1] * 100)
        feed.fetch(T + 0.11)
        feed.meter.working(T + 10.0, Working(records=100, open_seconds=9.89))
        feed.finish(T + 10.1, 100, 0.0999)
        assert feed.report(T + 11.0).late == {"serial": 96}

    def test_who_takes_nothing_of_what_came_first_is_blocked_as_soon_as_any(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(T + 0.1)
        feed.fetch(T + 0.11)
        feed.meter.working(T + 5.2, Working())
        assert entry_of(feed.report(T + 5.2)).state == "blocked"

    @pytest.mark.parametrize(("records", "blocked_after"), [(1000, 12.0), (10, 5.0)])
    def test_a_batch_that_is_larger_than_those_before_may_take_longer(self, records: int, blocked_after: float) -> None:
        """Three times what its records cost, and no less than any batch may."""
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(T)
        feed.fetch(T + 0.01)
        feed.finish(T + 0.02, 1, 0.004)
        feed.append(*[T + 0.03] * records)
        feed.fetch(T + 0.04)
        states = []
        for second in (blocked_after, blocked_after + 0.2):
            feed.meter.working(T + second, Working(records=records, open_seconds=second))
            states.append(entry_of(feed.report(T + second)).state)
        assert states == ["running", "blocked"]

    def test_a_member_that_stands_still_without_lag_is_idle(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        bursts(feed, 1, 10, 0.01)
        assert snapshot_of(feed.meter, T + 9.0).state == "running"
        assert snapshot_of(feed.meter, T + 11.0).state == "idle"


class TestLate:
    def test_waiting_in_a_full_buffer_is_not_late_when_first_seen(self) -> None:
        meter = Meter(CONFIG)
        feed = Feed(meter)
        feed.acquire(T)
        feed.append(T + 0.01, T + 0.01)
        feed.fetch(T + 0.02)
        feed.append(T + 0.1)
        feed.finish(T + 2.02, 2, 1.0)
        feed.fetch(T + 2.03)  # only now, because two records were in hand
        feed.finish(T + 2.1, 1, 0.05)
        report = feed.report(T + 3.0)
        assert report.late == {"serial": 3}

    def test_records_that_the_broker_gave_late_are_not_ours(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(T + 0.1)
        feed.fetch(T + 3.0)
        feed.finish(T + 3.1, 1, 0.05)
        assert feed.report(T + 4.0).late == {"already_late": 1}

    def test_two_partitions_in_the_way_of_each_other(self) -> None:
        meter = Meter(CONFIG)
        feeds = [Feed(meter, partition) for partition in (P, Q)]
        for feed in feeds:
            feed.acquire(T)
            feed.append(*[T + 0.01] * 4)
            feed.fetch(T + 0.02)
        feeds[0].finish(T + 0.42, 4, 0.1)
        feeds[1].finish(T + 0.82, 4, 0.1)  # done at 0.52, 0.62, 0.72, 0.82
        report = feeds[0].report(T + 1.0)
        assert (report.in_time, report.late) == (4, {"queued": 4})


class TestObserved:
    def test_a_report_says_when_nothing_is_known(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        bursts(feed, 6, 10, 0.01)
        feed.append(T + 6.0)
        feed.fetch(T + 6.01)
        assert entry_of(feed.report(T + 6.999)).observed == pytest.approx(0.011)
        assert entry_of(feed.report(T + 7.999)).observed == 0.0
        feed.append(*[T + 7.0] * 19)
        feed.fetch(T + 8.5)
        entry = entry_of(feed.report(T + 8.999))
        assert entry.arrived == 19
        assert entry.observed == pytest.approx(2.49)

    def test_records_that_waited_in_a_buffer_were_seen_when_the_broker_answered(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.meter.fetched(P, T + 0.8, [T + 0.1], next_offset=1, end_offset=1, answered_at=T + 0.11)
        feed.meter.done(P, T + 0.85, [0.75], [0.01], 1)
        feed.meter.fetched(P, T + 0.9, [T + 0.3], next_offset=2, end_offset=2)
        feed.meter.done(P, T + 0.95, [0.65], [0.01], 2)
        slots = feed.report(T + 1.5).slots
        assert [number for number, work in enumerate(slots) if work] == [1, 3]

    def test_a_broker_that_does_not_answer_is_not_a_load_of_zero(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        bursts(feed, 12, 10, 0.01)
        reports = [feed.report(T + second + 0.999) for second in range(12, 22)]
        slots = [work for report in reports for work in report.slots]
        assert sum(slots[10:]) == pytest.approx(0.01 * len(slots[10:]), rel=0.05)  # 10 records/s x 10 ms, as before
        feed.append(*[T + 12 + 0.1 * number for number in range(100)])
        feed.fetch(T + 22.1)
        feed.finish(T + 23.1, 100, 0.01)
        feed.observe(T + 24.9)
        slots += feed.report(T + 25.0).slots
        assert sum(slots) == pytest.approx(1.0, abs=1e-6)  # the 100 records that came, each once


def test_what_is_not_known_to_cost_so_much_is_told_when_it_is_in_the_slots_in_which_it_came() -> None:
    """One record of a first batch was taken for what all cost that had come: 16 busy seconds in one second."""
    feed = Feed(Meter(CONFIG))
    feed.acquire(T)
    feed.append(*(T + 0.05 + 0.1 * number for number in range(10)))
    feed.fetch(T + 1.0)
    feed.meter.working(T + 1.5, Working(costs_provisional=True))
    feed.finish(T + 1.5, 1, 0.9)
    first = feed.report(T + 2.0, 1)
    assert sum(first.slots) == 0.0
    assert entry_of(first).cost_mean is None
    assert feed.meter.work_of(P) is None
    feed.finish(T + 2.5, 9, 0.1)
    feed.meter.working(T + 2.5, Working())
    feed.observe(T + 2.9)
    second = feed.report(T + 3.0, 2)
    cost = entry_of(second).cost_mean
    assert cost == pytest.approx((0.9 + 9 * 0.1) / 10)
    assert second.slots_start == time_of(T)
    assert sum(second.slots[:10]) == pytest.approx(10 * cost)


def test_the_time_of_a_batch_is_told_while_there_are_batches() -> None:
    feed = Feed(Meter(CONFIG))
    feed.acquire(T)
    assert feed.report(T + 0.5, 1).batch_seconds is None
    feed.meter.working(T + 0.6, Working(batch_seconds=0.8))
    assert feed.report(T + 0.9, 2).batch_seconds == 0.8
    feed.meter.working(T + 1.0, Working())
    assert feed.report(T + 1.5, 3).batch_seconds is None


class TestLag:
    def test_what_is_done_behind_a_record_that_is_not_is_no_lag(self) -> None:
        """One record that hung made a backlog of all that had come since."""
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        for second in range(60):
            feed.append(*[T + second] * 10)
            feed.fetch(T + second + 0.01)
            told = 9 if second == 0 else 10
            feed.meter.done(P, T + second + 0.1, [0.1] * told, [0.01] * told, 0)
            entry = entry_of(feed.report(T + second + 1.0))
            assert (entry.lag, entry.lag_min) == (1, 0 if second == 0 else 1)

    def test_what_is_not_fetched_counts_by_the_records_that_the_log_holds(self) -> None:
        """A compacted topic, read from its beginning: fifty times the work that there is was told."""
        meter = Meter(CONFIG)
        meter.acquired(P, T, 0, 1_000_000)
        for number in range(20):
            end = (number + 1) * 5_000
            now = T + 0.01 * number
            meter.fetched(P, now, [T - 900.0] * 100, next_offset=end, end_offset=1_000_000, size_bytes=9)
            meter.done(P, now + 0.005, [900.0] * 100, [0.00005] * 100, end)
        entry = entry_of(meter.report(T + 1.0, "m1", 7, 0))
        assert entry.lag == pytest.approx(18_000, rel=0.1)

    def test_a_record_of_the_future_is_the_reason_of_nothing(self) -> None:
        """All that was late after it was told to wait for one record, for which more replicas are no help."""
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(T + 3600.0)
        feed.fetch(T + 0.01)
        feed.finish(T + 0.02, 1, 0.01)
        feed.append(*[T + 9.0] * 5)
        feed.fetch(T + 9.01)
        feed.finish(T + 12.0, 5, 0.01)
        assert feed.report(T + 13.0).late == {"queued": 5}
