"""The meter as the agent uses it: reports, bursts, acquisitions. Expected values are worked out by hand."""

from __future__ import annotations

import math

import pytest
from msgspec import structs

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.metering.meter import HANDOFFS_MAX, QUEUES_MAX, Meter, MeterConfig, MeterSnapshot, split_report
from loadtrim_agent.wire.codec import decode, encode
from loadtrim_agent.wire.telemetry_records import WorkWindow
from unit.metering.meter_feed import CONFIG, OTHER, Feed, P, Q, T, bursts, entry_of, snapshot_of, time_of


class TestConfig:
    @pytest.mark.parametrize(
        "wrong",
        [
            {"sla_seconds": 0.0},
            {"concurrency": 0.0},
            {"speed": math.inf},
            {"settle_seconds": 2.0},
            {"settle_seconds": -0.1},
            {"windows_seconds": (0.1, 0.333)},
        ],
    )
    def test_what_makes_no_sense_is_refused(self, wrong: dict[str, float]) -> None:
        with pytest.raises(ValueError, match=r"windows|settle|sla|concurrency|speed"):
            MeterConfig(**{"group": "g", "sla_seconds": 1.0, **wrong})  # type: ignore[arg-type]


class TestReport:
    def test_before_anything_is_owned(self) -> None:
        report = Meter(CONFIG).report(T, "m1", 7, 3)
        assert (report.partitions, report.slots, report.slots_start) == ((), (), 0.0)
        assert (report.group, report.member, report.sequence, report.generation) == ("g", "m1", 3, 7)
        assert (report.instance, report.instance_type, report.concurrency) == ("pod-1", "small", 1.0)

    def test_one_second_of_one_partition(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(T + 0.12, T + 0.13, T + 0.31)
        feed.fetch(T + 0.32)
        feed.finish(T + 0.36, 2, 0.02)
        feed.meter.committed(P, 2)
        report = feed.report(T + 1.0)
        entry = entry_of(report)
        assert report.interval == 1.0
        assert (entry.arrived, entry.bytes, entry.done, entry.lag) == (3, 300, 2, 1)
        assert (entry.position, entry.committed, entry.state) == (2, 2, "running")
        assert entry.lag_seconds == pytest.approx(0.69)
        assert (entry.cost_mean, entry.cost_variance) == (0.02, 0.0)
        assert report.busy_seconds == pytest.approx(0.04)
        assert (report.in_time, report.late) == (2, {})
        # One record is still in hand, so the last answer (0.32) is all that is known; a slot waits 1 s for more.
        assert report.slots_start == time_of(T)
        assert report.slots == pytest.approx((0.0, 0.04, 0.0))
        assert decode(encode(report)) == report

    def test_what_came_before_a_cost_was_known_is_told_when_it_came(self) -> None:
        """Three records of 4 s in 4 s are 3 busy seconds/s. Told in one second they looked like 12."""
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        for second in (0.5, 1.5, 2.5):
            feed.append(T + second)
            feed.fetch(T + second)
        for second in (3.0, 4.0):
            feed.observe(T + second)
            assert not any(feed.report(T + second).slots)
        feed.finish(T + 4.5, 1, 4.0)
        feed.observe(T + 4.9)
        report = feed.report(T + 5.0)
        at = {round(report.slots_start - T + 0.1 * index, 1): work for index, work in enumerate(report.slots) if work}
        assert at == {0.5: pytest.approx(4.0), 1.5: pytest.approx(4.0), 2.5: pytest.approx(4.0)}
        feed.observe(T + 5.9)
        assert not any(feed.report(T + 6.0).slots), "and told once"

    def test_a_record_in_hand_holds_slots_back_for_a_second_only(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(T + 0.11)
        feed.fetch(T + 0.12)
        feed.report(T + 1.0)
        report = feed.report(T + 2.05)
        assert report.slots_start + 0.1 * len(report.slots) == time_of(T + 1.0)

    def test_it_is_told_what_of_a_slot_came_in_its_second_half(self) -> None:
        """A burst of 20 ms that begins just before the edge of a slot: both of its parts are next to the edge."""
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        for second in range(3):
            feed.append(*[T + second + 0.49 + 0.002 * number for number in range(10)])
            feed.fetch(T + second + 0.52)
            feed.finish(T + second + 0.8, 10, 0.02)
            feed.observe(T + second + 0.98)
            report = feed.report(T + second + 0.99)
        at = round((T + 2.4 - report.slots_start) / 0.1)
        assert report.slots[at : at + 2] == pytest.approx((0.1, 0.1))
        assert report.slots_second[at : at + 2] == pytest.approx((0.1, 0.0))
        assert len(report.slots_second) == len(report.slots)

    def test_a_burst_is_told_before_its_slot_is_closed(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(T + 0.12)
        feed.fetch(T + 0.13)
        feed.finish(T + 0.15, 1, 0.02)
        feed.append(T + 0.92, T + 0.93, T + 0.94)
        feed.fetch(T + 0.95)
        report = feed.report(T + 1.0)
        assert report.slots_start == time_of(T)
        closed = len(report.slots)
        assert closed < 9, "the slot is open, or this shows nothing"
        assert report.slots_open == pytest.approx((*[0.0] * (9 - closed), 0.06))
        feed.finish(T + 1.1, 3, 0.02)
        later = feed.report(T + 2.0)
        assert later.slots[9 - closed] == pytest.approx(0.06, abs=0.002), "told again when it is closed"
        assert later.slots_open == ()

    def test_lag_is_told_at_its_least_too(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(T + 0.1, T + 0.1, T + 0.1)
        feed.fetch(T + 0.11)
        feed.finish(T + 0.3, 2, 0.05)
        feed.append(T + 0.4)
        feed.fetch(T + 0.41)
        assert (entry_of(feed.report(T + 1.0)).lag, feed.meter.snapshot(T + 1).partitions[0].lag_records) == (2, 2)
        feed.finish(T + 1.1, 1, 0.05)
        feed.append(T + 1.2)
        feed.fetch(T + 1.3)
        entry = entry_of(feed.report(T + 2.0))
        assert (entry.lag, entry.lag_min) == (2, 1)
        feed.append(T + 2.1)
        feed.fetch(T + 2.2)
        entry = entry_of(feed.report(T + 3.0))
        assert (entry.lag, entry.lag_min) == (3, 2)

    def test_what_rounding_takes_from_one_report_a_later_one_gives(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        slots: list[float] = []
        for second in range(100):
            feed.append(T + second)
            feed.fetch(T + second + 0.001)
            feed.finish(T + second + 0.002, 1, 3e-7)
            feed.observe(T + second + 0.9)
            slots += feed.report(T + second + 0.95, second).slots
        assert sum(slots) == pytest.approx(3e-5, abs=1e-6)
        assert set(slots) == {0.0, 1e-6}

    def test_only_what_changed_is_told(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        assert entry_of(feed.report(T + 1.0)).position == 0
        told = []
        for second in range(2, 140):
            feed.observe(T + second - 0.2)
            report = feed.report(T + second)
            assert sum(report.slots) == 0.0
            if report.partitions:
                told.append((second, entry_of(report).state))
        assert told == [(11, "idle"), (71, "idle"), (131, "idle")]
        feed.meter.committed(P, 0)
        feed.observe(T + 140 - 0.2)
        assert entry_of(feed.report(T + 140)).committed == 0

    def test_order_does_not_depend_on_who_came_first(self) -> None:
        reports = []
        for order in ((P, Q, OTHER), (OTHER, Q, P)):
            meter = Meter(CONFIG)
            for partition in order:
                meter.acquired(partition, T, 0, 0)
            for partition in order:
                meter.fetched(partition, T + 0.2, [T + 0.1], next_offset=1, end_offset=1)
                meter.done(partition, T + 0.3, [0.2], [0.01], 1)
            reports.append(encode(meter.report(T + 1.0, "m1", 7, 0)))
        assert reports[0] == reports[1]

    def test_startup_is_told_once_and_handoffs_with_the_interval(self) -> None:
        meter = Meter(structs.replace(CONFIG, started_at=T - 2.5))
        meter.report(T - 1.0, "m1", 7, 0)
        meter.acquired(P, T, 0, 0, 0.007)
        meter.acquired(Q, T, 0, 0)
        report = meter.report(T + 1.0, "m1", 7, 1)
        assert (report.startup_seconds, report.handoffs) == (2.5, (0.007,))
        report = meter.report(T + 2.0, "m1", 7, 2)
        assert (report.startup_seconds, report.handoffs) == (None, ())

    def test_handoffs_are_bounded(self) -> None:
        meter = Meter(CONFIG)
        for number in range(HANDOFFS_MAX + 10):
            meter.acquired(P, T + number, 0, 0, 0.001)
        assert len(meter.report(T + 5000, "m1", 7, 0).handoffs) == HANDOFFS_MAX


class TestArrivalDelay:
    def test_it_is_that_of_records_that_are_fetched_as_they_come(self) -> None:
        feed = Feed(Meter(CONFIG), own_clock_ahead=3.0)
        feed.meter.clock_offset(3.0, 0.001)
        feed.acquire(T)
        feed.append(T + 0.10)
        feed.fetch(T + 0.15)
        feed.append(T + 0.16, T + 0.17)
        feed.fetch(T + 0.30)  # behind a record in hand: that was the member's own doing
        feed.finish(T + 0.4, 3, 0.01)
        feed.append(T + 0.50)
        feed.fetch(T + 0.53)
        assert feed.report(T + 1.0, 1).arrival_delay == pytest.approx(0.04, abs=1e-4)
        assert feed.report(T + 2.0, 2).arrival_delay is None, "nothing came"

    def test_a_producer_whose_clock_is_off_says_nothing(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(T - 3_600.0)
        feed.fetch(T + 0.1)
        feed.finish(T + 0.2, 1, 0.01)
        assert feed.report(T + 1.0, 1).arrival_delay is None
        feed.append(T + 5.0)
        feed.fetch(T + 1.1)
        assert feed.report(T + 2.0, 2).arrival_delay == 0.0, "none comes before it was sent"


class TestRates:
    def test_the_last_owners_rate_stands_for_the_time_before(self) -> None:
        """A partition that came a second ago had no rate, so its owner looked idle just before the next burst."""
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        bursts(feed, 15, 200, 0.004)
        assert feed.meter.work_of(Q) is None
        feed.meter.acquired(Q, T + 15, 0, 0, 0.007, work_rate=0.3)
        assert feed.meter.work_of(Q) == (pytest.approx(0.004), pytest.approx(0.3), 0.0)
        assert feed.meter.snapshot(T + 15).work_rate == pytest.approx(0.8 + 0.3)
        for second in range(16, 28):
            feed.meter.observed(Q, T + second, 0)
            feed.report(T + second + 0.05, second)
        assert feed.meter.work_of(Q) == (pytest.approx(0.004), 0.0, 0.0), "it has been seen for as long as rates reach"

    def test_without_a_cost_nothing_is_made_of_what_was_told(self) -> None:
        meter = Meter(CONFIG)
        meter.acquired(Q, T, 0, 0, 0.007, work_rate=0.3)
        assert meter.work_of(Q) is None
        assert meter.snapshot(T).work_rate == 0.0


class TestBursts:
    def test_one_second_bursts(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        reports = bursts(feed, 15, 200, 0.004)
        assert [entry_of(report).arrived for report in reports] == [200] * 15
        slots = [work for report in reports for work in report.slots]
        expected = [0.8 if number % 10 == 0 else 0.0 for number in range(len(slots))]
        assert slots == pytest.approx(expected)
        assert len(slots) >= 147
        windows = {window.seconds: window for window in entry_of(reports[-1]).work_windows}
        assert windows == {
            0.1: WorkWindow(seconds=0.1, mean=0.8, variance=0.0, largest=0.8),
            0.25: WorkWindow(seconds=0.25, mean=0.8, variance=0.0, largest=0.8),
            0.5: WorkWindow(seconds=0.5, mean=0.8, variance=0.0, largest=0.8),
            1.0: WorkWindow(seconds=1.0, mean=0.8, variance=0.0, largest=0.8),
            2.0: WorkWindow(seconds=2.0, mean=1.6, variance=0.0, largest=1.6),
            5.0: WorkWindow(seconds=5.0, mean=4.0, variance=0.0, largest=4.0),
        }
        # 10 s hold ten bursts, wherever they begin.
        assert snapshot_of(feed.meter, T + 15).arrival_rate == pytest.approx(200.0)

    def test_a_member_that_is_never_saturated_knows_its_cost(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        report = bursts(feed, 5, 4, 0.005)[-1]
        assert entry_of(report).cost_mean == 0.005
        assert feed.meter.snapshot(T + 5).utilization == pytest.approx(0.02, rel=0.05)

    def test_a_burst_that_is_fetched_late_because_the_buffer_was_full(self) -> None:
        """200 records at the start of each second; the first 20 are fetched, the rest when those are done."""
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        slots: list[float] = []
        for second in range(20):
            begin = T + second
            feed.append(*[begin + 0.00001 * number for number in range(20)])
            feed.fetch(begin + 0.001)
            feed.append(*[begin + 0.002 + 0.00001 * number for number in range(180)])
            feed.finish(begin + 0.081, 20, 0.004)
            feed.fetch(begin + 0.082)
            feed.finish(begin + 0.802, 180, 0.004)
            feed.observe(begin + 0.95)
            report = feed.report(begin + 0.96, second)
            assert entry_of(report).arrived == 200
            slots += report.slots
        assert slots == pytest.approx([0.8 if number % 10 == 0 else 0.0 for number in range(len(slots))])

    def test_steady_overload_with_full_buffers_makes_neither_holes_nor_bursts(self) -> None:
        """100 records/s of 12.5 ms each; the broker is asked only when the buffer is empty, at last every 5 s."""
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        slots: list[float] = []
        observed = arrived = 0.0
        feed.fetched = 0
        for tick in range(1, 4000):
            now = T + tick * 0.0125
            if tick % 4 == 0 or tick % 4 == 2 or tick % 4 == 1:  # 3 of 4 ticks x 80/s = 60, and 40 more below
                feed.append(now)
            if tick % 2 == 0:
                feed.append(now)
            if feed.done == feed.fetched:
                feed.fetch(now)
            if feed.done < feed.fetched:
                feed.finish(now + 0.01249, 1, 0.0125)
            if tick % 80 == 0:
                report = feed.report(now, tick)
                slots += report.slots
                entry = entry_of(report)
                arrived += entry.arrived
                observed += report.interval if entry.observed is None else entry.observed
                assert entry.state == "running"
        assert observed == pytest.approx(50, abs=20)
        assert arrived / observed == pytest.approx(100, rel=0.03)
        steady = slots[100:]
        assert sum(steady) / len(steady) == pytest.approx(0.125, rel=0.05)
        by_second = [sum(steady[at : at + 10]) for at in range(0, len(steady) - 10, 10)]
        assert min(by_second) > 0.8 * 1.25
        assert max(by_second) < 1.2 * 1.25

    def test_an_hour_without_a_report_is_told_within_bounds(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.report(T + 0.5)
        for second in range(3600):
            feed.append(T + 1 + second)
            feed.fetch(T + 1 + second + 0.001)
            feed.finish(T + 1 + second + 0.002, 1, 0.001)
        feed.observe(T + 3602)
        report = feed.report(T + 3602.0)
        assert len(report.slots) == 300
        assert sum(report.slots) == pytest.approx(3.6)
        assert report.slots_start == time_of(T + 3571.8)


class TestAcquisition:
    def test_a_big_old_backlog_is_lag(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.append(*[T - 3600 + number for number in range(3600)])
        feed.acquire(T)
        feed.fetch(T + 0.01, 500)
        feed.finish(T + 0.5, 100, 0.004)
        feed.observe(T + 0.9)
        report = feed.report(T + 1.0)
        entry = entry_of(report)
        assert (entry.arrived, entry.done, entry.lag) == (0, 100, 3500)
        assert entry.lag_seconds == pytest.approx(3501.0)
        assert sum(report.slots) == 0.0
        assert report.late == {"already_late": 100}

    @pytest.mark.parametrize("backlog", [0, 50])
    def test_with_the_end_unknown(self, backlog: int) -> None:
        feed = Feed(Meter(CONFIG))
        feed.append(*[T - 60.0] * backlog)
        feed.acquire(T, known=False)
        assert entry_of(feed.report(T + 0.01)).lag == 0
        feed.append(*[T + 0.2] * 30)
        feed.fetch(T + 0.21)
        entry = entry_of(feed.report(T + 1.0))
        assert (entry.arrived, entry.lag, entry.lag_min) == (30, backlog + 30, backlog + 30)

    @pytest.mark.parametrize("stale_end", [500, 1200])
    def test_an_end_from_an_earlier_ownership_is_not_believed(self, stale_end: int) -> None:
        feed = Feed(Meter(CONFIG))
        feed.append(*[T - 60.0] * 2000)
        feed.done = 1000
        feed.meter.acquired(P, T, 1000, stale_end if stale_end < 1000 else None)
        feed.fetched = 1000
        feed.meter.observed(P, T - 30.0, stale_end)  # the last answer that the client remembers
        feed.fetch(T + 0.01, 100)
        entry = entry_of(feed.report(T + 1.0))
        assert (entry.arrived, entry.lag) == (0, 1000)

    def test_what_came_during_the_handoff_counts_here(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.append(T - 0.9, T - 0.02, T - 0.01)
        feed.acquire(T, known=False, handoff_seconds=0.05)
        feed.fetch(T + 0.001)
        entry = entry_of(feed.report(T + 1.0))
        assert (entry.arrived, entry.lag) == (2, 3)

    def test_what_a_lost_partition_did_is_told_once_and_its_slots_are_kept(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(T + 0.11, T + 0.91)
        feed.fetch(T + 0.92)
        feed.finish(T + 0.95, 1, 0.03)
        feed.meter.lost(P, T + 0.96)
        report = feed.report(T + 1.0)
        entry = entry_of(report)
        assert (entry.state, entry.arrived, entry.done, entry.bytes, entry.lag) == ("gone", 2, 1, 200, 0)
        assert entry.work_windows == ()
        later = feed.report(T + 2.0)
        assert later.partitions == ()
        slots = report.slots + later.slots
        assert slots == pytest.approx([0.03 if number in (1, 9) else 0.0 for number in range(len(slots))])

    def test_a_lost_partition_says_for_how_long_it_was_observed(self) -> None:
        """Else nothing would seem to have come for the rest of the second, in which its new owner counts."""
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(T + 0.11)
        feed.fetch(T + 0.12)
        feed.finish(T + 0.15, 1, 0.03)
        feed.observe(T + 0.99)
        assert entry_of(feed.report(T + 1.0)).observed is None
        feed.observe(T + 1.39)
        feed.meter.lost(P, T + 1.4)
        entry = entry_of(feed.report(T + 2.0))
        assert (entry.state, entry.arrived, entry.observed) == ("gone", 0, pytest.approx(0.4, abs=0.01))

    def test_a_partition_that_comes_back_was_observed_both_times(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.observe(T + 0.99)
        feed.report(T + 1.0)
        for second, back in ((1.2, 1.5), (1.6, 1.8)):
            feed.meter.lost(P, T + second)
            feed.acquire(T + back)
        feed.append(T + 1.9)
        feed.fetch(T + 1.91)
        feed.finish(T + 1.95, 1, 0.03)
        entry = entry_of(feed.report(T + 2.0))
        assert (entry.state, entry.arrived, entry.observed) == ("running", 1, pytest.approx(0.5, abs=0.01))

    def test_the_last_word_of_a_member_that_owns_nothing_leaves_no_slot_to_be_guessed(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(T + 0.81)
        feed.fetch(T + 0.82)
        feed.finish(T + 0.85, 1, 0.03)
        feed.meter.lost(P, T + 0.86)
        report = feed.report(T + 0.95)
        assert report.slots_start + 0.1 * len(report.slots) == pytest.approx(T + 0.9)
        assert sum(report.slots) == pytest.approx(0.03)

    def test_lost_and_taken_again_in_one_interval_is_one_entry(self) -> None:
        feed = Feed(Meter(CONFIG))
        for second in (0.0, 0.3):
            feed.acquire(T + second)
            feed.append(T + second + 0.1)
            feed.fetch(T + second + 0.11)
            feed.finish(T + second + 0.15, 1, 0.01)
            feed.meter.lost(P, T + second + 0.2)
        feed.acquire(T + 0.6)
        entry = entry_of(feed.report(T + 1.0))
        assert (entry.arrived, entry.done, entry.state, entry.position) == (2, 2, "running", 2)

    def test_what_comes_after_a_loss_is_ignored_and_counted(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(T + 0.1)
        feed.fetch(T + 0.2)
        feed.meter.lost(P, T + 0.3)
        feed.finish(T + 5.0, 1, 4.8)
        feed.fetch(T + 5.0)
        feed.observe(T + 5.0)
        feed.meter.committed(P, 1)
        feed.meter.paused(P, T + 5.0, True)
        feed.meter.sought(P, T + 5.0, 0)
        feed.meter.lost(P, T + 5.0)
        report = feed.report(T + 5.1)
        assert (report.in_time, report.late, feed.meter.snapshot(T + 5.2).ignored) == (0, {}, 1)
        assert report.busy_seconds == pytest.approx(4.8)  # it did keep the member busy


class TestLoadAndSnapshot:
    def test_slack_is_what_is_neither_worked_nor_arriving(self) -> None:
        feed = Feed(Meter(structs.replace(CONFIG, concurrency=2.0, speed=0.5)))
        feed.acquire(T)
        assert feed.meter.load(T, "m1", 7).slack == 1.0
        bursts(feed, 11, 50, 0.01)
        load = feed.meter.load(T + 11.0, "m1", 7)
        assert load.slack == pytest.approx(0.75, abs=0.02)
        assert (load.group, load.member, load.at, load.generation, load.queues) == ("g", "m1", T + 11.0, 7, ())

    def test_queues_are_bounded_and_sorted(self) -> None:
        meter = Meter(CONFIG)
        for number in range(QUEUES_MAX + 20):
            partition = Partition("orders", number)
            meter.acquired(partition, T, 0, 1 + number)
        meter.fetched(P, T, [T], next_offset=1, end_offset=1)
        meter.done(P, T + 0.1, [0.1], [0.1], 1)
        queues = meter.load(T + 0.2, "m1", 7).queues
        assert [queue.partition for queue in queues] == list(range(20, QUEUES_MAX + 20))
        assert queues[0].queue_seconds == pytest.approx(2.1)

    def test_a_snapshot_changes_nothing(self) -> None:
        texts = []
        for ask in (False, True):
            feed = Feed(Meter(CONFIG))
            feed.acquire(T)
            reports = []
            for second in range(5):
                reports += bursts(feed, 1, 20, 0.013, start=T + second)
                if ask:
                    feed.meter.snapshot(T + second + 0.9995)
                    feed.meter.load(T + second + 0.9995, "m1", 7)
            texts.append([encode(report) for report in reports])
        assert texts[0] == texts[1]

    def test_snapshot(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        bursts(feed, 10, 30, 0.01)
        feed.meter.committed(P, 290)
        snapshot: MeterSnapshot = feed.meter.snapshot(T + 10.0)
        assert snapshot.busy_seconds == pytest.approx(3.0)
        assert (snapshot.in_time, snapshot.late, snapshot.untimed, snapshot.ignored) == (300, {}, 0, 0)
        assert snapshot.utilization == pytest.approx(0.3, rel=0.1)
        assert snapshot.work_rate == pytest.approx(0.3, rel=0.05)
        (entry,) = snapshot.partitions
        assert (entry.partition, entry.position, entry.committed, entry.end_offset) == (P, 300, 290, 300)
        assert (entry.lag_records, entry.lag_seconds, entry.queue_seconds) == (0, 0.0, 0.0)
        assert entry.cost == pytest.approx((0.01, 0.0), abs=1e-9)


class TestSplit:
    def test_parts_hold_everything_once(self) -> None:
        meter = Meter(CONFIG)
        for number in range(25):
            meter.acquired(Partition("orders", number), T, 0, 5, 0.01)
        report = meter.report(T + 2.0, "m1", 7, 40)
        assert split_report(report) == (report,)
        report = structs.replace(report, batch_seconds=0.3, capacity_error=0.1, capacity_known=False, slicing_off="")
        parts = split_report(report, 10)
        assert [part.sequence for part in parts] == [40, 41, 42]
        said = ("batch_seconds", "concurrency", "capacity_error", "capacity_known", "slicing_off", "untold", "speed")
        assert {tuple(getattr(part, name) for name in said) for part in parts} == {
            tuple(getattr(report, name) for name in said)
        }
        assert [entry for part in parts for entry in part.partitions] == list(report.partitions)
        assert parts[0].slots == report.slots
        assert parts[0].handoffs == report.handoffs
        for part in parts[1:]:
            assert (part.slots, part.slots_start, part.handoffs, part.late, part.in_time) == ((), 0.0, (), {}, 0)
            assert (part.busy_seconds, part.startup_seconds) == (0.0, None)
            assert (part.member, part.interval, part.at) == (report.member, report.interval, report.at)


class TestEdges:
    def test_a_partition_lost_before_any_cost_is_known_leaves_its_work(self) -> None:
        meter = Meter(CONFIG)
        feed, other = Feed(meter), Feed(meter, Q)
        for each in (feed, other):
            each.acquire(T)
        feed.append(T + 0.1, T + 0.1)
        feed.fetch(T + 0.11)
        meter.lost(P, T + 0.2)
        other.append(T + 0.3)
        other.fetch(T + 0.31)
        other.finish(T + 0.4, 1, 0.05)
        other.observe(T + 1.9)
        assert sum(feed.report(T + 2.0).slots) == pytest.approx(3 * 0.05)

    def test_a_partition_lost_before_any_cost_is_known_is_told_when_its_slot_is_closed(self) -> None:
        meter = Meter(CONFIG)
        feed, other = Feed(meter), Feed(meter, Q)
        for each in (feed, other):
            each.acquire(T)
        feed.append(T + 0.1, T + 0.95)
        feed.fetch(T + 0.96)
        meter.lost(P, T + 0.97)
        other.append(T + 0.3)
        other.fetch(T + 0.31)
        other.finish(T + 0.4, 1, 0.05)
        other.observe(T + 0.99)
        first = feed.report(T + 1.0)
        assert sum(first.slots) == pytest.approx(2 * 0.05)
        assert first.slots_open == pytest.approx((0.0, 0.05))
        other.observe(T + 1.99)
        assert feed.report(T + 2.0).slots[1] == pytest.approx(0.05)

    @pytest.mark.parametrize("silence", [2.0, 3600.0])
    def test_what_was_known_of_a_lost_partition_and_not_fetched_keeps_its_work(self, silence: float) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        bursts(feed, 1, 10, 0.01)
        feed.append(*[T + 1.1] * 20)
        feed.fetch(T + 1.2, 5)
        feed.meter.lost(P, T + 1.3)
        assert sum(feed.report(T + 1.3 + silence).slots) == pytest.approx(0.2)

    def test_a_partition_taken_twice_is_lost_in_between(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(T + 0.1)
        feed.fetch(T + 0.11)
        feed.acquire(T + 0.2)
        entry = entry_of(feed.report(T + 1.0))
        assert (entry.arrived, entry.lag, entry.state) == (1, 1, "running")

    def test_an_answer_that_is_older_than_a_fetch_tells_nothing(self) -> None:
        feed = Feed(Meter(CONFIG))
        feed.acquire(T)
        feed.append(*[T + 0.1] * 5)
        feed.fetch(T + 0.11)
        feed.meter.observed(P, T + 0.9, 3)
        assert snapshot_of(feed.meter, T + 1.0).end_offset == 5

    def test_any_pair_names_a_partition(self) -> None:
        meter = Meter(CONFIG)
        meter.acquired(("orders", 0), T, 0, 0)  # type: ignore[arg-type]
        assert str(snapshot_of(meter, T).partition) == "orders-0"
