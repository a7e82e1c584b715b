"""What holds for every history a meter is fed: nothing lost, nothing twice, nothing negative, however it is cut."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.metering.arrivals import Arrivals, spread
from loadtrim_agent.metering.cost import CostEstimate
from loadtrim_agent.metering.lateness import Judge, LateCause, Mark, RecordQueue, runs_of
from loadtrim_agent.metering.meter import Meter, MeterConfig, split_report
from loadtrim_agent.metering.windows import BucketGrid, SlidingWindows
from loadtrim_agent.wire.codec import decode, encode
from loadtrim_agent.wire.telemetry_records import PartitionReport, ReportRecord

T = 1_700_000_000.0
W = 0.5
COST = 0.01
PARTITIONS = tuple(Partition("t", number) for number in range(3))
CONFIG = MeterConfig(group="g", sla_seconds=W)


@dataclass
class World:
    """Three logs and one member, driven by random steps; it knows the truth about everything."""

    meter: Meter
    ahead: float = 0.0
    now: float = T
    logs: dict[Partition, list[float]] = field(default_factory=lambda: {p: [] for p in PARTITIONS})
    owned: dict[Partition, list[int]] = field(default_factory=dict)
    """Position and fetched offset."""
    start: dict[Partition, int] = field(default_factory=dict)
    """End of the log at the acquisition."""
    reports: list[ReportRecord] = field(default_factory=list)
    arrived: int = 0
    """Records that arrived in owned partitions and were observed."""
    finished: int = 0

    def acquire(self, partition: Partition) -> None:
        if partition in self.owned:
            return
        end = len(self.logs[partition])
        self.owned[partition] = [end, end]
        self.start[partition] = end
        self.meter.acquired(partition, self.now + self.ahead, end, end)

    def append(self, partition: Partition, count: int, skew: float) -> None:
        self.logs[partition].extend([self.now + skew] * count if skew < 1e6 else [-1.0] * count)

    def fetch(self, partition: Partition, most: int) -> None:
        if partition not in self.owned:
            return
        offsets, log = self.owned[partition], self.logs[partition]
        batch = log[offsets[1] : offsets[1] + most]
        offsets[1] += len(batch)
        now = self.now + self.ahead
        self.meter.fetched(
            partition, now, batch, next_offset=offsets[1], end_offset=len(log), size_bytes=10 * len(batch)
        )

    def receive(self, partition: Partition, count: int) -> None:
        self.append(partition, count, 0.0)
        self.fetch(partition, count)

    def finish(self, partition: Partition, most: int) -> None:
        if partition not in self.owned:
            return
        offsets, log = self.owned[partition], self.logs[partition]
        count = min(most, offsets[1] - offsets[0])
        latencies = [self.now + self.ahead - stamp for stamp in log[offsets[0] : offsets[0] + count]]
        offsets[0] += count
        self.finished += count
        self.meter.done(partition, self.now + self.ahead, latencies, [COST] * count, offsets[0])

    def lose(self, partition: Partition) -> None:
        if partition in self.owned:
            self.fetch(partition, 0)  # what arrived until now is known
            self.arrived += len(self.logs[partition]) - self.start[partition]
            del self.owned[partition]
            self.meter.lost(partition, self.now + self.ahead)

    def report(self) -> None:
        report = self.meter.report(self.now + self.ahead, "m", 1, len(self.reports))
        assert decode(encode(report)) == report, "whatever was measured, others can read it"
        self.reports.append(report)

    def settle(self) -> None:
        """Everything is observed and all slots are closed."""
        for _ in range(4):
            self.now += 2.0
            for partition in self.owned:
                self.meter.observed(partition, self.now + self.ahead, len(self.logs[partition]))
            self.report()
        self.arrived += sum(len(self.logs[partition]) - self.start[partition] for partition in self.owned)


one_step = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([0.01, 0.3]) | st.floats(0.001, 1.5)),
    st.tuples(st.just("acquire"), st.sampled_from(PARTITIONS)),
    st.tuples(st.just("lose"), st.sampled_from(PARTITIONS)),
    st.tuples(
        st.just("append"),
        st.sampled_from(PARTITIONS),
        st.integers(1, 300),
        st.sampled_from([0.0, -0.03, -0.4, -7.0, 7.0, 1e9]),
    ),
    st.tuples(st.just("receive"), st.sampled_from(PARTITIONS), st.integers(1, 300)),
    st.tuples(st.just("fetch"), st.sampled_from(PARTITIONS), st.integers(0, 200)),
    st.tuples(st.just("finish"), st.sampled_from(PARTITIONS), st.integers(0, 100)),
    st.tuples(st.just("report")),
)
# Long ones by themselves: of lists up to a length most that are drawn are short, and in them little meets.
steps = st.lists(one_step, max_size=60) | st.lists(one_step, min_size=30, max_size=60)


def play(history: list[tuple[object, ...]], ahead: float = 0.0, cost_known: bool = True) -> World:
    world = World(Meter(CONFIG), ahead)
    if ahead:
        world.meter.clock_offset(ahead, 0.001)
    world.acquire(PARTITIONS[0])
    if cost_known:
        # One record before the story, so that work is exactly records x COST from the start.
        world.append(PARTITIONS[0], 1, 0.0)
        world.fetch(PARTITIONS[0], 1)
        world.finish(PARTITIONS[0], 1)
    for step in history:
        if step[0] == "wait":
            world.now += step[1]  # type: ignore[operator]
        elif step[0] == "report":
            world.report()
        else:
            getattr(world, str(step[0]))(*step[1:])
    return world


def entries(world: World, partition: Partition) -> list[PartitionReport]:
    return [
        entry for report in world.reports for entry in report.partitions if (entry.topic, entry.partition) == partition
    ]


@settings(max_examples=250, deadline=None)
@given(steps, st.sampled_from([0.0, 5.0, -5.0]), st.booleans())
def test_nothing_is_lost_counted_twice_or_negative(
    history: list[tuple[object, ...]], ahead: float, cost_known: bool
) -> None:
    world = play(history, ahead, cost_known)
    world.settle()
    told = [entry for partition in PARTITIONS for entry in entries(world, partition)]
    assert sum(entry.arrived for entry in told) == world.arrived
    assert sum(entry.done for entry in told) == world.finished
    assert sum(report.busy_seconds for report in world.reports) == pytest.approx(world.finished * COST)
    snapshot = world.meter.snapshot(world.now + ahead)
    judged = sum(report.in_time + sum(report.late.values()) for report in world.reports)
    assert judged + snapshot.untimed == world.finished
    for report in world.reports:
        assert decode(encode(report)) == report
        assert min(report.slots, default=0.0) >= 0.0
        assert report.slots_start >= 0.0
        for entry in report.partitions:
            numbers = (entry.arrived, entry.bytes, entry.done, entry.lag, entry.lag_seconds, entry.lag_min or 0)
            assert min(numbers) >= 0
            assert entry.lag_min is None or entry.lag_min <= entry.lag
            assert all(w.variance >= 0 and 0 <= w.mean <= w.largest * 1.001 for w in entry.work_windows)
            assert all(math.isfinite(number) for w in entry.work_windows for number in (w.mean, w.variance, w.largest))


@settings(max_examples=150, deadline=None)
@given(steps)
def test_the_slots_hold_the_work_of_what_arrived(history: list[tuple[object, ...]]) -> None:
    """Less what is kept out (nobody pauses here, but who waits long is blocked) and what later slots are to put right.

    Nothing is lost here: what was only assumed of a partition when it is lost stays in the slots.
    """
    world = play([step for step in history if step[0] != "lose"])
    world.settle()
    parts = world.meter._parts.values()
    kept_out = sum(part.arrivals.kept_out for part in parts)
    owed = sum(part.arrivals.correction - part.arrivals.assumed for part in parts)
    slots = sum(sum(report.slots) for report in world.reports)
    assert slots == pytest.approx((world.arrived - kept_out - owed) * COST, abs=1e-5)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_the_books_balance_at_every_moment(history: list[tuple[object, ...]]) -> None:
    """arrived = closed + open + ahead + correction - assumed + kept_out, per partition, after every step."""
    world = World(Meter(CONFIG))
    closed: dict[Partition, float] = {}
    world.acquire(PARTITIONS[0])
    for step in history:
        if step[0] == "wait":
            world.now += step[1]  # type: ignore[operator]
        elif step[0] == "report":
            before = {p: part.arrivals for p, part in world.meter._parts.items()}
            states = {p: (a.arrived, _balance(a)) for p, a in before.items()}
            world.report()
            for partition, arrivals in before.items():
                arrived, balance = states[partition]
                assert arrivals.arrived == arrived
                closed[partition] = closed.get(partition, 0.0) + balance - _balance(arrivals)
        elif step[0] == "acquire":
            if step[1] not in world.owned:
                closed.pop(step[1], None)  # type: ignore[call-overload]
            world.acquire(step[1])  # type: ignore[arg-type]
        else:
            getattr(world, str(step[0]))(*step[1:])
        for partition, part in world.meter._parts.items():
            assert part.arrivals.arrived == pytest.approx(
                closed.get(partition, 0.0) + _balance(part.arrivals), abs=1e-6
            )
            assert closed.get(partition, 0.0) >= -1e-6


def _balance(arrivals: Arrivals) -> float:
    return (
        sum(arrivals.open.values())
        + arrivals.ahead.records
        + arrivals.correction
        - arrivals.assumed
        + arrivals.kept_out
    )


@settings(max_examples=100, deadline=None)
@given(steps)
def test_arrived_less_done_is_the_change_of_the_lag(history: list[tuple[object, ...]]) -> None:
    world = play([step for step in history if step[0] != "lose"])
    world.settle()
    for partition in world.owned:
        found = entries(world, partition)
        arrived, done = sum(entry.arrived for entry in found), sum(entry.done for entry in found)
        assert found[-1].lag == arrived - done  # the lag was 0 when it was acquired
        lag = 0
        for entry in found:
            lag += entry.arrived - entry.done
            assert entry.lag == lag


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.0, 0.9), st.floats(0.0, 0.3)), min_size=1, max_size=60),
    st.lists(st.integers(1, 60), max_size=20),
    st.lists(st.integers(1, 60), max_size=20),
)
def test_totals_do_not_depend_on_how_batches_are_cut(
    records: list[tuple[float, float]], fetches: list[int], finishes: list[int]
) -> None:
    stamps = sorted(T + stamp for stamp, _ in records)
    busies = [busy for _, busy in records]
    latencies = [1.0 + sum(busies[: number + 1]) for number in range(len(busies))]

    def run(fetch_cuts: list[int], finish_cuts: list[int]) -> ReportRecord:
        meter = Meter(CONFIG)
        meter.acquired(PARTITIONS[0], T, 0, 0)
        for begin, end in _cuts(len(stamps), fetch_cuts):
            meter.fetched(
                PARTITIONS[0], T + 1.0, stamps[begin:end], next_offset=end, end_offset=len(stamps), size_bytes=1
            )
        for begin, end in _cuts(len(stamps), finish_cuts):
            meter.done(PARTITIONS[0], T + 2.0, latencies[begin:end], busies[begin:end], end)
        meter.observed(PARTITIONS[0], T + 3.0, len(stamps))
        return meter.report(T + 3.0, "m", 1, 0)

    whole, cut = run([], []), run(fetches, finishes)
    one, other = whole.partitions[0], cut.partitions[0]
    assert (one.arrived, one.done, one.lag, one.lag_min) == (other.arrived, other.done, other.lag, other.lag_min)
    assert whole.busy_seconds == pytest.approx(cut.busy_seconds)
    assert (whole.in_time, sum(whole.late.values())) == (cut.in_time, sum(cut.late.values()))
    assert whole.slots == pytest.approx(cut.slots, abs=2e-6)
    assert one.cost_mean == pytest.approx(other.cost_mean, rel=1e-3)
    assert one.cost_variance == pytest.approx(other.cost_variance, rel=1e-3, abs=1e-9)
    for mine, theirs in zip(one.work_windows, other.work_windows, strict=True):
        assert (mine.mean, mine.variance, mine.largest) == pytest.approx(
            (theirs.mean, theirs.variance, theirs.largest), rel=2e-3, abs=1e-9
        )


def _cuts(size: int, lengths: list[int]) -> list[tuple[int, int]]:
    cuts, at = [], 0
    for length in lengths:
        if at < size:
            cuts.append((at, min(size, at + length)))
            at += length
    return cuts if at >= size else [*cuts, (at, size)]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=200))
def test_cost_agrees_with_the_textbook(busies: list[float]) -> None:
    estimate = CostEstimate()
    for busy in busies:
        estimate.add(T, 1, busy, busy * busy)
    mean = sum(busies) / len(busies)
    value = estimate.value()
    assert value is not None
    assert value.mean == pytest.approx(mean, abs=1e-9)
    assert value.variance == pytest.approx(sum((busy - mean) ** 2 for busy in busies) / len(busies), abs=1e-6)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.5, 40.0]), max_size=150), st.lists(st.integers(1, 30), max_size=30))
def test_windows_agree_with_counting_every_record(counts: list[float], cuts: list[int]) -> None:
    grid = BucketGrid.of(0.1, (0.1, 0.3, 1.0))
    windows = SlidingWindows(grid, 2.0)
    for begin, end in _cuts(len(counts), cuts) if counts else []:
        windows.extend(counts[begin:end])
    for length, moments in zip(grid.lengths, windows.moments(), strict=True):
        seen = [(counts[end], sum(counts[end - length + 1 : end + 1])) for end in range(length - 1, len(counts))]
        weight = sum(count for count, _ in seen)
        if not weight:
            assert moments is None
            continue
        assert moments is not None
        mean = sum(count * content for count, content in seen) / weight
        variance = sum(count * (content - mean) ** 2 for count, content in seen) / weight
        assert moments.mean == pytest.approx(mean)
        assert moments.variance == pytest.approx(variance, abs=1e-6)
        assert moments.largest == max(content for count, content in seen if count)


latency = st.one_of(st.just(0.1), st.just(0.1), st.floats(0.0, 2.0))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.0, 9.0), st.floats(0.0, 0.4), latency, st.booleans()), max_size=80),
    st.sampled_from([1.0, 2.0]),
)
def test_lateness_agrees_with_judging_record_by_record(
    records: list[tuple[float, float, float, bool]], concurrency: float
) -> None:
    grid = BucketGrid.of(0.1, (0.1,))
    judge, queue = Judge(W, concurrency), RecordQueue(T)
    stamps = sorted(T + record[0] for record in records)
    runs = runs_of(stamps, grid, T + 4.0)
    late_runs = [records[number][3] for number in range(len(runs))]
    expected: dict[LateCause, int] = {}
    in_time, free_at = 0, T
    for (stamp, count), late in zip(runs, late_runs, strict=True):
        queue.add(count, stamp, Mark.LATE if late else Mark.FRESH)
    order = [(run.timestamp, run.mark) for run in queue.runs for _ in range(run.count)]
    for (_, busy, latency, _), (stamp, mark) in zip(records, order, strict=True):
        free_at = max(free_at, min(stamp, T + 4.0)) + busy / concurrency
        if latency <= W:
            in_time += 1
        else:
            serial = free_at - stamp > W - 0.015
            cause = LateCause.ALREADY_LATE if mark is Mark.LATE else LateCause.SERIAL if serial else LateCause.QUEUED
            expected[cause] = expected.get(cause, 0) + 1
    for begin, end in _cuts(len(records), [7] * 20) if records else []:
        busies = [record[1] for record in records[begin:end]]
        queue.finish([record[2] for record in records[begin:end]], busies, sum(busies), judge, T + 4.0)
    assert judge.in_time == in_time
    assert judge.late == expected
    assert queue.free_at - T == pytest.approx(free_at - T, abs=1e-5)
    assert queue.records == 0


@given(st.lists(st.floats(0.0, 100.0), max_size=20), st.floats(-500.0, 500.0))
def test_spreading_keeps_the_sum(values: list[float], amount: float) -> None:
    before = sum(values)
    rest = spread(values, amount)
    assert sum(values) + rest == pytest.approx(before + amount, abs=1e-6)
    assert min(values, default=0.0) >= -1e-9


@settings(max_examples=30, deadline=None)
@given(steps, st.integers(1, 3))
def test_a_split_report_says_the_same(history: list[tuple[object, ...]], most: int) -> None:
    world = play(history)
    world.settle()
    for report in world.reports:
        parts = split_report(report, most)
        assert tuple(entry for part in parts for entry in part.partitions) == report.partitions
        assert sum(part.in_time for part in parts) == report.in_time
        assert sum(sum(part.slots) for part in parts) == sum(report.slots)
        assert [part.sequence for part in parts] == list(range(report.sequence, report.sequence + len(parts)))
