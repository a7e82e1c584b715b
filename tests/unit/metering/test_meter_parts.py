"""The parts of the meter by themselves: cost, clock, windows, arrivals. Expected values are worked out by hand."""

from __future__ import annotations

import math
import random

import pytest

from loadtrim_agent.metering.arrivals import OPEN_BUCKETS_MAX, TRUNCATED_SECONDS, Arrivals, spread
from loadtrim_agent.metering.broker_clock import ClockOffset
from loadtrim_agent.metering.cost import (
    BUSY_SECONDS,
    HALF_LIFE_SECONDS,
    MEMORY_RECORDS,
    TOPICS_MAX,
    BusyRing,
    Cost,
    CostEstimate,
    Together,
    TopicCosts,
)
from loadtrim_agent.metering.windows import BLOCK_SECONDS, BLOCKS_KEPT, BucketGrid, Moments, SlidingWindows

T = 1_700_000_000.0
WINDOWS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
GRID = BucketGrid.of(0.1, WINDOWS)


def add(estimate: CostEstimate, now: float, *busies: float) -> None:
    estimate.add(now, len(busies), sum(busies), sum(busy * busy for busy in busies))


def add_batch(estimate: CostEstimate, now: float, count: int, seconds: float) -> None:
    """Take in a batch whose records are worked on at once."""
    busy, pairs = seconds / count, count * (count - 1)
    together = Together(pairs, pairs * busy, pairs * busy * busy)
    estimate.add(now, count, seconds, count * busy * busy, together)


class TestCost:
    def test_nothing_is_known_before_the_first_record(self) -> None:
        assert CostEstimate().value() is None

    def test_the_first_record_is_the_mean(self) -> None:
        estimate = CostEstimate()
        add(estimate, T, 0.25)
        assert estimate.value() == Cost(0.25, 0.0)

    def test_mean_and_variance_of_one_second(self) -> None:
        estimate = CostEstimate()
        add(estimate, T, 0.1, 0.3)
        add(estimate, T + 0.5, 0.2)
        assert estimate.value() == pytest.approx((0.2, 0.02 / 3))

    def test_what_is_a_half_life_old_counts_half(self) -> None:
        estimate = CostEstimate()
        add(estimate, T, *[0.1] * 1000)
        add(estimate, T + HALF_LIFE_SECONDS, *[0.4] * 500)
        value = estimate.value()
        assert value == pytest.approx((0.25, 0.0225))  # 500 at 0.1 against 500 at 0.4
        assert estimate.weight == pytest.approx(1000)

    def test_old_variance_fades_with_its_records(self) -> None:
        estimate = CostEstimate()
        add(estimate, T, *[0.1, 0.3] * 500)  # variance 0.01
        add(estimate, T + HALF_LIFE_SECONDS, *[0.2] * 500)
        assert estimate.value() == pytest.approx((0.2, 0.005))

    def test_a_rare_record_does_not_make_forget_the_last_hundred(self) -> None:
        estimate = CostEstimate()
        add(estimate, T, *[0.1] * 200)
        add(estimate, T + 86_400, 0.1 + 1.01)
        assert estimate.value() is not None
        assert estimate.value()[0] == pytest.approx(0.1 + 1.01 / (MEMORY_RECORDS + 1))  # type: ignore[index]

    def test_dear_records_that_are_rare_are_remembered_from_one_to_the_next(self) -> None:
        """One record of 1,000 costs 5 s and comes every 80 s: the load went up and down by three replicas."""
        estimate, means = CostEstimate(), []
        for second in range(2400):
            add(estimate, T + second, *[0.001] * 12, 5.0 if second % 80 == 40 else 0.001)
            if second >= 600:
                means.append(estimate.value()[0])  # type: ignore[index]
        mean = 5.0 / (80 * 13) + 0.001
        assert 0.8 * mean < min(means)
        assert max(means) < 1.2 * mean

    @pytest.mark.parametrize("factor", [0.01, 2.0, 20.0])
    def test_another_cost_of_all_records_is_known_as_soon_as_ever(self, factor: float) -> None:
        estimate = CostEstimate()
        for second in range(300):
            add(estimate, T + second, *[0.4, 1.6] * 7)
        for second in range(300, 300 + int(HALF_LIFE_SECONDS)):
            add(estimate, T + second, *[0.4 * factor, 1.6 * factor] * 7)
        assert estimate.value()[0] == pytest.approx((1.0 + factor) / 2.0, rel=0.03)  # type: ignore[index]

    def test_a_partition_with_few_records_leans_on_its_topic(self) -> None:
        estimate = CostEstimate()
        topic = Cost(0.01, 0.0004)
        assert estimate.blended(topic) == topic
        assert estimate.blended(None) is None
        add(estimate, T, 0.12)
        assert estimate.blended(None) == Cost(0.12, 0.0)
        blended = estimate.blended(topic)
        assert blended is not None
        assert blended.mean == pytest.approx((0.12 + 10 * 0.01) / 11)
        assert blended.variance == pytest.approx(10 * 0.0004 / 11)

    @pytest.mark.parametrize("later", [0.5, 5.0])
    def test_what_was_charged_too_dear_is_charged_anew(self, later: float) -> None:
        """What was folded already, and what is of this second."""
        estimate, costs = CostEstimate(), TopicCosts()
        for now in (T - 1.0, T):
            add(estimate, now, 0.1, 0.3)
            costs.add("a", now, 2, 0.4, 0.1)
        assert estimate.blended(None) == costs.of("a") == pytest.approx((0.2, 0.01))
        costs.revise(0.5, [estimate])
        assert estimate.blended(None) == costs.of("a") == pytest.approx((0.1, 0.0025))
        add(estimate, T + later, 0.1, 0.1)
        assert estimate.value() == pytest.approx((0.1, 0.01 / 6), rel=0.1)

    def test_records_that_are_worked_on_at_once_vary_together(self) -> None:
        """A slow one holds up all of its batch: to a queue it was a twentieth of what it is."""
        rng = random.Random(3)
        estimate, batches = CostEstimate(), [(20, rng.uniform(0.2, 1.0)) for _ in range(40)]
        for number, (count, seconds) in enumerate(batches):
            add_batch(estimate, T + number / 50, count, seconds)
        mean = sum(seconds for _, seconds in batches) / 800
        value = estimate.value()
        assert value == pytest.approx((mean, sum((seconds - 20 * mean) ** 2 for _, seconds in batches) / 800))

    def test_what_batches_vary_by_fades_and_is_charged_anew_as_what_records_do(self) -> None:
        estimate = CostEstimate()
        for _ in range(25):
            add_batch(estimate, T, 20, 2.0)
            add_batch(estimate, T, 20, 6.0)
        assert estimate.value() == pytest.approx((0.2, 0.2))
        estimate.revise(0.5)
        assert estimate.value() == pytest.approx((0.1, 0.05))
        add(estimate, T + HALF_LIFE_SECONDS, *[0.1] * 500)
        assert estimate.value() == pytest.approx((0.1, 0.025))
        estimate.revise(2.0)
        assert estimate.value() == pytest.approx((0.2, 0.1))

    def test_a_new_topic_borrows_the_mean_of_all(self) -> None:
        costs = TopicCosts()
        assert costs.roughly("new") is None
        assert costs.dearest_seconds() == 0.0
        costs.add("a", T, 3, 0.3, 0.03)
        costs.add("b", T, 1, 0.5, 0.25)
        assert costs.of("new") is None
        assert costs.roughly("new") == pytest.approx((0.2, 0.0))
        assert costs.roughly("b") == costs.of("b") == pytest.approx((0.5, 0.0))
        assert costs.dearest_seconds() == 0.5

    def test_topics_are_bounded(self) -> None:
        costs = TopicCosts()
        for number in range(TOPICS_MAX + 1):
            costs.add(f"topic-{number}", T, 1, 0.1, 0.01)
        costs.forget({"topic-7"})
        assert costs.of("topic-7") is not None
        assert costs.of("topic-8") is None


class TestBusyRing:
    def test_share_of_the_last_seconds(self) -> None:
        ring = BusyRing(concurrency=2.0)
        for second in range(20):
            ring.add(T + second + 0.5, 1.0)
        assert ring.total == 20.0
        assert ring.share(T + 20.0) == pytest.approx(9 / (9 * 2.0))
        assert ring.share(T + 19 + BUSY_SECONDS) == 0.0

    def test_a_long_record_was_worked_on_before_it_was_done(self) -> None:
        ring = BusyRing(concurrency=1.0)
        ring.add(T, 0.0)
        ring.add(T + 8.0, 4.0)
        assert ring.share(T + 8.0) == pytest.approx(4 / 8)
        ring.add(T + 8.5, 1000.0)
        assert ring.share(T + 8.5) == 1.0

    def test_a_clock_that_steps_back_breaks_nothing(self) -> None:
        ring = BusyRing(concurrency=1.0)
        ring.add(T, 0.5)
        ring.add(T - 100.0, 0.25)
        assert ring.total == 0.75
        assert 0.0 <= ring.share(T - 50.0) <= 1.0

    def test_the_longest_stretch_is_told_as_done_at_once_and_fades(self) -> None:
        ring = BusyRing(concurrency=1.0)
        ring.add(T, 3.0)
        ring.add(T, 5.0)  # another partition of the same batch
        assert ring.longest_seconds == 8.0
        ring.add(T + HALF_LIFE_SECONDS, 0.1)
        assert ring.longest_seconds == 4.0


class TestClock:
    def test_no_sample_is_no_offset(self) -> None:
        assert ClockOffset().seconds == 0.0

    def test_one_odd_sample_counts_for_nothing(self) -> None:
        clock = ClockOffset()
        for offset in (5.001, 5.003, 60.0, 5.002):
            clock.add(offset)
        assert clock.seconds == pytest.approx(5.0025)

    def test_short_round_trips_are_trusted_more(self) -> None:
        clock = ClockOffset()
        clock.add(-5.9, 2.0)
        clock.add(-5.0, 0.01)
        clock.add(-5.6, 1.0)
        assert clock.seconds == -5.0

    def test_it_follows_a_clock_that_was_set(self) -> None:
        clock = ClockOffset()
        for _ in range(8):
            clock.add(0.0, 0.01)
        for _ in range(5):
            clock.add(3.0, 0.01)
        assert clock.seconds == 3.0

    def test_what_is_no_number_is_ignored(self) -> None:
        clock = ClockOffset()
        clock.add(1.5)
        assert clock.add(math.nan) == 1.5
        assert clock.add(2.0, math.inf) == 1.5


class TestGrid:
    def test_the_grid_fits_slot_and_windows(self) -> None:
        assert (GRID.parts, GRID.inverse) == (2, 20.0)
        assert GRID.lengths == (2, 5, 10, 20, 40, 100)
        assert BucketGrid.of(0.1, (0.1, 0.5)).parts == 1

    @pytest.mark.parametrize("thousandth", range(0, 1000, 50))
    def test_a_time_stamp_on_an_edge_is_in_the_slot_that_begins(self, thousandth: int) -> None:
        timestamp = (1_700_000_000_000 + thousandth) / 1000
        assert GRID.index(timestamp) == 1_700_000_000 * 20 + thousandth // 50
        assert GRID.start(GRID.index(timestamp)) == pytest.approx(timestamp, abs=1e-6)

    @pytest.mark.parametrize(("slot", "windows"), [(0.0, (0.1,)), (0.1, (0.0,)), (0.1, (0.10001,))])
    def test_what_does_not_fit_is_refused(self, slot: float, windows: tuple[float, ...]) -> None:
        with pytest.raises(ValueError, match="slot"):
            BucketGrid.of(slot, windows)


class TestWindows:
    def test_windows_end_at_records(self) -> None:
        windows = SlidingWindows(BucketGrid.of(0.1, (0.2,)), 1.0)  # a window of two slots
        windows.extend([0.0, 3.0, 1.0, 0.0, 0.0, 2.0])
        # Three records see 3, one sees 3 + 1, two see 2.
        mean = (3 * 3 + 1 * 4 + 2 * 2) / 6
        square = (3 * 9 + 1 * 16 + 2 * 4) / 6
        assert windows.moments()[0] == pytest.approx(Moments(mean, square - mean**2, 4.0))

    @pytest.mark.parametrize("cut", [0, 1])
    def test_the_largest_is_of_windows_that_end_at_a_record_however_counts_come(self, cut: int) -> None:
        """In one piece it was that of a window that ends behind the first record, where none ends at it yet."""
        counts = [2.5, 0.0, 0.0, 0.0, 1.0]
        windows = SlidingWindows(BucketGrid.of(0.1, (0.3,)), 1.0)
        windows.extend(counts[:cut])
        windows.extend(counts[cut:])
        assert windows.moments() == (Moments(1.0, 0.0, 1.0),)

    def test_a_window_longer_than_what_was_seen_is_not_told(self) -> None:
        windows = SlidingWindows(BucketGrid.of(0.1, (0.1, 0.5)), 1.0)
        windows.extend([1.0] * 4)
        assert windows.moments() == (Moments(1.0, 0.0, 1.0), None)
        windows.extend([1.0])
        assert windows.moments()[1] == Moments(5.0, 0.0, 5.0)

    def test_windows_do_not_reach_over_a_restart(self) -> None:
        windows = SlidingWindows(BucketGrid.of(0.1, (0.2,)), 1.0)
        windows.extend([5.0, 5.0])
        windows.restart()
        windows.extend([1.0, 1.0])
        assert windows.moments()[0] == pytest.approx(Moments((5 * 10 + 2) / 6, (500 + 4) / 6 - (52 / 6) ** 2, 10.0))

    def test_what_is_old_is_forgotten_and_no_sooner(self) -> None:
        windows = SlidingWindows(GRID, 10.0)
        slots = round(BLOCK_SECONDS * 20)
        windows.extend([100.0] * 2)
        windows.extend([0.0] * (slots * BLOCKS_KEPT - 3))
        windows.extend([1.0] * 2)
        assert windows.moments()[0] is not None
        assert windows.moments()[0][2] == 200.0  # type: ignore[index]
        windows.extend(([0.0] * 9 + [1.0]) * (slots // 5))
        assert windows.moments()[0][2] == 2.0  # type: ignore[index]

    def test_what_is_told_does_not_depend_on_when_it_was_asked(self) -> None:
        asked, unasked = (SlidingWindows(BucketGrid.of(0.1, (0.1, 0.5)), 1.0) for _ in range(2))
        counts = [float(number % 7 == 0) + 3.0 * (number % 50 == 1) for number in range(round(BLOCK_SECONDS * 10) * 6)]
        for begin in range(0, len(counts), 10):
            asked.extend(counts[begin : begin + 10])
            asked.moments()
            unasked.extend(counts[begin : begin + 10])
        assert asked.moments() == unasked.moments()
        assert asked.moments()[0] is not None

    def test_recent_counts(self) -> None:
        windows = SlidingWindows(GRID, 1.0)
        assert windows.recent(20) == (0.0, 0)
        windows.extend([1.0, 2.0, 3.0])
        assert windows.recent(20) == (6.0, 3)
        assert windows.recent(2) == (5.0, 2)
        windows.extend([0.0] * 5000)
        assert windows.recent(100) == (0.0, 100)

    def test_a_rate_of_before_does_not_come_back(self) -> None:
        """After each pause the promise of hours before stood again for ten seconds."""
        windows = SlidingWindows(GRID, 10.0, rate_before=100.0)
        slots = round(10.0 * GRID.inverse)
        assert windows.recent(slots) == (pytest.approx(1_000.0), slots)
        windows.extend([0.0] * 6 * slots)
        windows.restart()
        assert windows.recent(slots) == (0.0, 0)

    def test_prefix_sums_start_again_before_they_lose_records(self) -> None:
        windows = SlidingWindows(BucketGrid.of(0.1, (0.2,)), 0.5)
        for _ in range(40):
            windows.extend([1e8 + 1.0] * 5)
        assert windows.recent(1) == (1e8 + 1.0, 1)
        moments = windows.moments()[0]
        assert moments is not None
        assert moments.mean == pytest.approx(2e8 + 2, rel=1e-12)
        assert moments.largest == 2e8 + 2


class TestSpread:
    def test_more_is_spread_evenly(self) -> None:
        values = [1.0, 0.0]
        assert spread(values, 3.0) == 0.0
        assert values == [2.5, 1.5]

    def test_less_is_taken_but_not_below_nothing(self) -> None:
        values = [3.0, 1.0]
        assert spread(values, -2.0) == 0.0
        assert values == [1.5, 0.5]
        assert spread(values, -5.0) == -3.0
        assert values == [0.0, 0.0]

    def test_without_slots_it_waits(self) -> None:
        assert spread([], 3.0) == 3.0


def arrivals(end_offset: int | None = 0, at: float = T) -> Arrivals:
    return Arrivals(GRID, at, end_offset, GRID.index(at))


class TestArrivals:
    def test_a_time_stamp_is_believed_between_two_answers(self) -> None:
        log = arrivals()
        log.fetched(T + 0.5, [(T + 0.12, 3)], 0, 3, 3)
        assert log.open == {GRID.index(T + 0.1): 3.0}

    @pytest.mark.parametrize("timestamp", [T - 86_400, T + 86_400])
    def test_a_time_stamp_from_elsewhere_is_clamped(self, timestamp: float) -> None:
        log = arrivals()
        log.observed(T + 0.4, 0)
        log.fetched(T + 0.5, [(timestamp, 3)], 0, 3, 3)
        assert log.open == {GRID.index(T + (0.4 if timestamp < T else 0.5)): 3.0}

    def test_records_without_time_stamps_came_now(self) -> None:
        log = arrivals()
        log.fetched(T + 0.5, [(-1.0, 3)], 0, 3, 3)
        assert log.open == {GRID.index(T + 0.5): 3.0}

    def test_records_known_and_not_fetched_arrived_and_are_not_counted_again(self) -> None:
        log = arrivals()
        log.fetched(T + 0.34, [(T + 0.01, 10)], 0, 10, 40)
        assert (log.arrived, log.ahead.records, log.open) == (40, 30, {GRID.index(T): 10.0})
        assert log.fetched(T + 0.4, [(T + 0.01, 5), (T + 0.31, 15)], 10, 30, 40) == 0
        assert (log.arrived, log.ahead.records) == (40, 10)
        assert log.open == {GRID.index(T): 15.0, GRID.index(T + 0.3): 15.0}  # their own time stamps

    def test_what_is_not_fetched_when_its_slot_is_closed_is_spread_over_the_time_it_came_in(self) -> None:
        log = arrivals()
        log.fetched(T + 0.19, [(T + 0.01, 10)], 0, 10, 40)  # 30 more came from 0.01 to 0.19: four slots
        assert log.close(GRID.index(T + 0.1), 600, 0.0, T + 0.2) == [17.5, 7.5]
        assert log.ahead.records == 15
        assert log.fetched(T + 0.3, [(T + 0.16, 30)], 10, 40, 40) == 0
        assert log.close(GRID.index(T + 0.2), 600, 0.0, T + 0.3) == [0.0, 15.0]

    def test_what_is_ahead_and_skipped_did_arrive(self) -> None:
        log = arrivals()
        log.observed(T + 0.04, 30)
        log.skipped(25)
        log.fetched(T + 0.2, [(T + 0.03, 5)], 25, 30, 30)
        assert log.ahead.records == 0
        assert log.open == {GRID.index(T): 30.0}

    def test_gaps_among_what_is_ahead(self) -> None:
        log = arrivals()
        log.observed(T + 0.04, 30)  # 30 offsets, counted as 30 records
        log.fetched(T + 0.2, [(T + 0.03, 4)], 0, 20, 30)  # only 4 records in 20 of them
        assert (log.arrived, log.ahead.records, log.open) == (30, 10, {GRID.index(T): 20.0})
        log.fetched(T + 0.3, [], 20, 30, 30)  # nothing but markers
        assert (log.arrived, log.ahead.records, log.open) == (30, 0, {GRID.index(T): 30.0})

    def test_of_a_batch_over_the_known_end_only_the_rest_is_new(self) -> None:
        log = arrivals(end_offset=0)
        log.observed(T + 0.1, 4)
        assert log.fetched(T + 0.3, [(T, 4), (T + 0.22, 6)], 0, 10, 10) == 6
        assert log.arrived == 10
        assert log.open[GRID.index(T + 0.2)] == 6.0

    def test_what_was_there_before_is_no_arrival(self) -> None:
        log = arrivals(end_offset=500)
        assert log.fetched(T + 0.1, [(T - 60.0, 500)], 0, 500, 500) == 0
        assert log.arrived == 0

    def test_with_the_end_unknown_time_stamps_tell_backlog_from_arrivals(self) -> None:
        log = arrivals(end_offset=None)
        assert log.fetched(T + 1.0, [(T - 9.0, 100), (T + 0.5, 7)], 0, 107, 120) == 7
        assert log.arrived == 20
        backlog = arrivals(end_offset=None)
        assert backlog.fetched(T + 1.0, [(T - 9.0, 100)], 0, 100, 120) == 0
        assert backlog.arrived == 0

    def test_an_older_answer_changes_nothing(self) -> None:
        log = arrivals(end_offset=100)
        log.observed(T + 1.0, 90)
        assert (log.end_offset, log.arrived) == (100, 0)

    def test_a_log_that_stays_shorter_was_truncated(self) -> None:
        log = arrivals(end_offset=100)
        for second in range(int(TRUNCATED_SECONDS) + 2):
            log.observed(T + second, 90)
        assert (log.end_offset, log.arrived) == (90, 0)
        log.observed(T + 10.0, 95)
        assert log.arrived == 5

    def test_gaps_are_learnt(self) -> None:
        log = arrivals()
        for number in range(100):
            log.fetched(T + number, [(T + number, 50)], number * 100, (number + 1) * 100, (number + 1) * 100)
        assert log.arrived == 5000
        assert log.density == pytest.approx(0.5, abs=1e-3)
        log.observed(T + 100.0, 10_200)
        assert log.arrived == pytest.approx(5100, abs=1)

    def test_closing_tells_each_record_once(self) -> None:
        log = arrivals()
        log.fetched(T + 0.5, [(T + 0.01, 2), (T + 0.2, 3)], 0, 5, 5)
        assert log.close(GRID.index(T + 0.1), 600, 0.0, T + 0.5) == [2.0, 0.0]
        assert log.close(GRID.index(T + 0.1), 600, 0.0, T + 0.5) == []
        assert log.close(GRID.index(T + 0.3), 600, 0.0, T + 0.5) == [0.0, 0.0, 3.0, 0.0]

    def test_what_comes_late_is_spread_over_the_next_slots(self) -> None:
        log = arrivals()
        log.close(GRID.index(T + 1.0), 600, 0.0, T + 1.0)
        log.fetched(T + 1.1, [(T + 0.3, 8)], 0, 8, 8)
        assert log.close(GRID.index(T + 1.2), 600, 0.0, T + 1.2) == [2.0] * 4

    def test_a_partition_that_is_not_observed_is_assumed_to_go_on(self) -> None:
        log = arrivals()
        assert log.close(GRID.index(T + 0.2), 600, 100.0, T + 0.1) == [0.0, 0.0, 5.0, 5.0]
        assert log.assumed == 10.0
        log.fetched(T + 0.3, [(T + 0.16, 12)], 0, 12, 12)  # 12 came where 10 were assumed
        assert (log.assumed, log.correction) == (0.0, 2.0)
        assert log.close(GRID.index(T + 0.3), 600, 100.0, T + 0.3) == [1.0, 1.0]

    def test_when_less_came_than_assumed_the_next_slots_pay(self) -> None:
        log = arrivals()
        log.close(GRID.index(T + 0.2), 600, 100.0, T)
        log.fetched(T + 0.4, [(T + 0.21, 4), (T + 0.31, 4)], 0, 8, 8)
        assert log.close(GRID.index(T + 0.3), 600, 0.0, T + 0.4) == [0.0, 0.0]
        assert log.correction == -16.0
        log.set_aside(T + 0.4)
        assert log.kept_out + 20.0 == 8.0  # closed slots held 20 where only 8 came

    def test_silence_is_bounded(self) -> None:
        log = arrivals()
        for second in range(3600):
            log.fetched(T + second, [(T + second, 2)], 2 * second, 2 * second + 2, 2 * second + 2)
        assert len(log.open) <= OPEN_BUCKETS_MAX + 1
        counts = log.close(GRID.index(T + 3600), 600, 0.0, T + 3600)
        assert len(counts) == 600
        assert sum(counts) == pytest.approx(7200)


def test_a_busy_ring_goes_on_where_its_clock_was_set_back() -> None:
    """It told the same for as long as the clock had been set back by."""
    ring = BusyRing(concurrency=1.0)
    for second in range(20):
        ring.add(T + second + 0.5, 1.0)
    back = T - 600.0
    for second in range(20):
        ring.add(back + second + 0.5, 0.0)
    assert ring.share(back + 20.0) == 0.0


def test_the_longest_stretch_begins_anew_where_the_clock_was_set_back() -> None:
    """All work of an hour counted as one stretch, so that a partition that hung was never seen as stuck."""
    ring = BusyRing(concurrency=1.0)
    ring.add(T, 0.1)
    for number in range(100):
        ring.add(T - 3600.0 + number, 0.1)
    assert ring.longest_seconds < 1.0
