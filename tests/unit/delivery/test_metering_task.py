"""What was done, as the streams tell it and as the meter wants it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from loadtrim_agent.common.clock import boot_time, wall_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery import metering_task, record_buffer
from loadtrim_agent.delivery.metering_task import MeteringTask, unpack
from loadtrim_agent.delivery.partition_stream import Stream
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.delivery.stretches import Finished
from loadtrim_agent.kafka.fetch.chunk import frame
from loadtrim_agent.metering.cost import ALONE
from loadtrim_agent.metering.meter import MeterConfig
from loadtrim_agent.observability.metrics import Metrics
from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.telemetry_records import ReportRecord, Untold
from unit.kafka.fetch.batches import batch
from unit.metering.meter_feed import Feed, P, T

from .test_record_buffer import ONE, TWO, handout_of


class QuietFetcher:
    """A fetcher that knows of no ends."""

    def end_offset(self, partition: Partition) -> None:
        return None

    def end_offset_at(self, partition: Partition) -> None:
        return None


def test_one_by_one_each_record_has_its_own_time() -> None:
    latencies, busies, timed, _ = unpack([Finished([1_000, 1_500, 1_500], [2.0, 2.25, 2.5, 4.5], at_once=False)], 10.0)
    assert latencies == pytest.approx([11.25, 11.0, 13.0])
    assert busies == pytest.approx([0.25, 0.25, 2.0])
    assert timed == latencies


def test_a_batch_is_done_at_once_and_shares_its_time() -> None:
    latencies, busies, timed, _ = unpack([Finished([1_000, 2_000], [2.0, 4.0], at_once=True)], 10.0)
    assert latencies == pytest.approx([13.0, 12.0])
    assert busies == pytest.approx([1.0, 1.0])
    assert timed == latencies


def test_records_of_a_batch_are_told_to_vary_together_whatever_their_partition() -> None:
    parts = [
        Finished([1] * 3, [2.0, 4.0], at_once=True, records=5),
        Finished([1] * 2, [2.0, 4.0], at_once=True, records=5),
    ]
    assert [unpack([part], 0.0).together for part in parts] == [(12, 12 * 0.4, 12 * 0.4**2), (8, 8 * 0.4, 8 * 0.4**2)]
    assert unpack(parts, 0.0).together == pytest.approx((20, 20 * 0.4, 20 * 0.4**2))
    in_turn = Finished([1] * 3, [2.0, 4.0, 5.0, 5.5], at_once=False)
    assert unpack([in_turn, Finished([1], [2.0, 4.0], at_once=True)], 0.0).together is ALONE


def test_records_without_a_timestamp_have_no_latency() -> None:
    finished = [
        Finished([-1, 1_000], [2.0, 3.0, 4.0], at_once=False),
        Finished([-1, -1, 3_000], [4.0, 5.5], at_once=True),
    ]
    latencies, busies, timed, _ = unpack(finished, 10.0)
    assert latencies == pytest.approx([0.0, 13.0, 0.0, 0.0, 12.5])
    assert busies == pytest.approx([1.0, 1.0, 0.5, 0.5, 0.5])
    assert timed == pytest.approx([13.0, 12.5])


@pytest.mark.parametrize("step", [-2.0, 30.0])
async def test_a_wall_clock_that_is_set_changes_no_interval(step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was worked, by the one clock, over the time by the other: a capacity a thousand times as large, or none."""
    clock = SimpleNamespace(boot=1_000.0, wall=1_700_000_000.0)
    monkeypatch.setattr(metering_task, "boot_time", lambda: clock.boot)
    monkeypatch.setattr(metering_task, "wall_time", lambda: clock.wall)
    told: list[Any] = []

    async def publish(record: Record, sequence: int) -> None:
        told.append(record)

    target: Any = SimpleNamespace(publish=publish, unready=lambda: False, slicing_off=lambda: "")
    metrics = Metrics(CollectorRegistry(), "group", "client", 1.0)
    metering = MeteringTask(MeterConfig(group="group", sla_seconds=1.0), metrics)
    for moved in (0.0, 0.0, step, 0.0):
        clock.boot += 1.0
        clock.wall += 1.0 + moved
        await metering.report("m", 1, target)
    assert [record.interval for record in told[1:]] == pytest.approx([1.0, 1.0, 1.0])


async def test_a_report_tells_latencies_by_the_bounds_of_its_own_objective() -> None:
    """Also where another consumer with the same labels has added its objective to the histogram."""
    registry = CollectorRegistry()
    metrics = Metrics(registry, "group", "client", 1.0)
    Metrics(registry, "group", "client", 0.7)
    metering = MeteringTask(MeterConfig(group="group", sla_seconds=1.0), metrics)
    buffer = RecordBuffer(
        asyncio.get_running_loop(),
        asyncio.get_running_loop(),
    )
    stream = Stream(Partition("topic", 0), 1, 0)
    buffer.put(stream)
    metering.attach(buffer, QuietFetcher())  # type: ignore[arg-type]
    metering.acquired(stream, None)
    now, wall = boot_time(), wall_time()
    stamps = [int((wall - age) * 1000) for age in (0.6, 0.8, 0.9, 7.0)]
    stream.begin_batch(now, stamps, [SimpleNamespace(offset=offset) for offset in range(4)])
    stream.times.append(now)
    stream.done = stream.position = 4
    told: list[Record] = []

    async def publish(record: Record, sequence: int) -> bool:
        told.append(record)
        return True

    target: Any = SimpleNamespace(publish=publish, unready=lambda: False, slicing_off=lambda: "listener")
    await metering.report("member", 1, target)
    await metering.report("member", 1, target)
    counts = [dict(report.latency_counts) for report in told if isinstance(report, ReportRecord)]
    assert counts == [{1.0: 3, 10.0: 1}, {}]
    assert {report.slicing_off for report in told if isinstance(report, ReportRecord)} == {"listener"}
    metering.show()
    late = [
        registry.get_sample_value("loadtrim_records_late_total", {"group": "group", "client_id": "client", "cause": of})
        for of in ("already_late", "blocked", "queued", "serial")
    ]
    assert sorted(late) == [0, 0, 0, 1], "the one of 7 s; an alert reads it"


async def test_a_batch_of_several_partitions_shares_its_time_among_all_its_records() -> None:
    """Each partition was charged all of it: four of them made a member four times as busy as it was."""
    buffer = handout_of(ONE, TWO)
    batch = buffer.take_many((), None)
    assert {len(records) for records in batch.values()} == {3}
    began = buffer.streams[ONE].times[-1]
    work = [stream.open_work(began + 1.0) for stream in buffer.streams.values()]
    assert sum(records for records, _ in work) == 6
    assert sum(seconds for _, seconds in work) == pytest.approx(1.0, abs=0.01)
    buffer.take_many((), None)
    finished = [entry for stream in buffer.streams.values() for entry in stream.take_finished()]
    seconds = finished[0].times[1] - finished[0].times[0]
    _, busies, _, _ = unpack(finished, 0.0)
    assert len(busies) == 6
    assert sum(busies) == pytest.approx(seconds)


async def test_batches_that_turn_out_to_be_worked_on_at_once_are_charged_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a minute a member that gathers looked three times as busy as it was, and got others beside it."""
    buffer = handout_of(ONE)
    metering = MeteringTask(MeterConfig(group="group"), Metrics(CollectorRegistry(), "group", "client", 1.0))
    metering.attach(buffer, QuietFetcher())  # type: ignore[arg-type]
    stream = buffer.streams[ONE]
    metering.acquired(stream, None)
    began, costs = boot_time() - 1000.0, []
    for turn in range(60):
        records = 1 + turn % 5
        batch = Finished([int(wall_time() * 1000)] * records, [began, began + 0.5], at_once=True, limit=20)
        monkeypatch.setattr(Stream, "take_finished", lambda _, batch=batch: [batch])
        stream.done = (stream.done or 0) + records
        metering._gather(stream, wall_time(), wall_time() - boot_time())
        if (known := metering.meter._costs.of(ONE.topic)) is not None:
            costs.append(known.mean)
    assert costs[0] == 0.5
    assert costs[-1] == pytest.approx(0.5 / 15, rel=0.1), "as in a batch of three times the largest"


@pytest.mark.parametrize("untold", [Untold.NOTHING, Untold.KEPT])
async def test_a_report_tells_what_batches_vary_by(untold: Untold, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second batch of twenty takes three times as long: nothing of it was to be seen in a record's share."""
    buffer = handout_of(ONE)
    metering = MeteringTask(MeterConfig(group="group"), Metrics(CollectorRegistry(), "group", "client", 1.0))
    metering.attach(buffer, QuietFetcher())  # type: ignore[arg-type]
    stream = buffer.streams[ONE]
    metering.acquired(stream, None)
    metering._doubt.untold = untold
    began = boot_time() - 1000.0
    for turn in range(100):
        seconds = 0.5 if turn % 2 else 1.5
        batch = Finished([int(wall_time() * 1000)] * 20, [began, began + seconds], at_once=True, limit=20)
        monkeypatch.setattr(Stream, "take_finished", lambda _, batch=batch: [batch])
        stream.done = (stream.done or 0) + 20
        metering._gather(stream, wall_time(), wall_time() - boot_time())
    cost = metering.meter._costs.of(ONE.topic)
    assert cost is not None
    assert cost == pytest.approx((0.05, 20 * 0.025**2), rel=0.05)


@pytest.mark.parametrize("at_next_call", [True, False])
async def test_a_report_tells_the_time_of_a_batch_where_it_is_known_when_it_is_done(
    at_next_call: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where records are kept beyond the next call, what lies between two calls is no batch."""
    buffer = handout_of(ONE)
    metering = MeteringTask(MeterConfig(group="group"), Metrics(CollectorRegistry(), "group", "client", 1.0))
    metering.attach(buffer, QuietFetcher())  # type: ignore[arg-type]
    stream = buffer.streams[ONE]
    metering.acquired(stream, None)
    metering._doubt.untold = Untold.NOTHING if at_next_call else Untold.KEPT
    monkeypatch.setattr(metering._doubt, "look", lambda *_: None)
    for turn in range(100):
        ended = boot_time() - 10.0 + turn / 10
        records = 1 + turn % 20
        batch = Finished([int(wall_time() * 1000)] * records, [ended - 0.5, ended], at_once=True, limit=20)
        monkeypatch.setattr(Stream, "take_finished", lambda _, batch=batch: [batch])
        stream.done = (stream.done or 0) + records
        metering._gather(stream, wall_time(), wall_time() - boot_time())
    told: list[Record] = []

    async def publish(record: Record, sequence: int) -> bool:
        told.append(record)
        return True

    target: Any = SimpleNamespace(publish=publish, unready=lambda: False, slicing_off=lambda: "listener")
    monkeypatch.setattr(Stream, "take_finished", lambda _: ())
    await metering.report("member", 1, target)
    (report,) = told
    assert isinstance(report, ReportRecord)
    assert report.batch_seconds == (pytest.approx(0.5, rel=0.1) if at_next_call else None)


async def test_what_was_worked_until_a_pause_is_known_at_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else work of up to 0.2 s before it counts as work in it."""
    buffer = handout_of(ONE, TWO)
    metering = MeteringTask(MeterConfig(group="group"), Metrics(CollectorRegistry(), "group", "client", 1.0))
    metering.attach(buffer, QuietFetcher())  # type: ignore[arg-type]
    for stream in buffer.streams.values():
        metering.acquired(stream, None)
    buffer.take_one(())
    buffer.take_one(())
    told = []
    monkeypatch.setattr(metering.meter, "paused", lambda *_: told.append(metering.meter._work.busy.accrued))
    for stream in buffer.streams.values():
        metering.paused(stream, True)
    assert told[0] > 0.0
    assert told[1] == told[0], "both are paused at one time, so it is asked for once"


@pytest.mark.looptime
async def test_what_is_shown_goes_on_while_a_report_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lag, and whatever alerts read, was up to 40 s old where the leader of the telemetry's partition was away."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(metering_task, "wall_time", lambda: T + loop.time())
    monkeypatch.setattr(metering_task, "boot_time", loop.time)
    registry = CollectorRegistry()
    metering = MeteringTask(MeterConfig(group="group"), Metrics(registry, "group", "client", 1.0))
    feed = Feed(metering.meter)
    told: list[ReportRecord] = []
    under_way = 0

    async def publish(record: ReportRecord, sequence: int) -> bool:
        nonlocal under_way
        told.append(record)
        under_way += 1
        assert under_way == 1, "one at a time"
        await asyncio.sleep(39.5 if len(told) == 2 else 0.0)
        under_way -= 1
        return True

    target: Any = SimpleNamespace(
        publish=publish, unready=lambda: False, slicing_off=lambda: "", member=lambda: ("m", 1),
        committed=lambda: {P: feed.done},
    )  # fmt: skip
    begin = T + loop.time()
    feed.acquire(begin)
    running = asyncio.create_task(metering.run_reports(target))
    for second in range(50):  # two come in each, and one is done
        feed.append(begin + second, begin + second)
        feed.fetch(begin + second + 0.01)
        feed.finish(begin + second + 0.02, 1, 0.01)
        await asyncio.sleep(1.0)
        labels = {"group": "group", "client_id": "client", "topic": P.topic, "partition": str(P.partition)}
        lag = registry.get_sample_value("loadtrim_partition_lag_records", labels)
        assert lag in ((second, second + 1) if second else (None, 0.0, 1.0)), f"after {second} s"
    running.cancel()
    await asyncio.wait({running})
    assert len(told) in (10, 11), "what could not be told in its time is told with the next"
    assert sum(report.partitions[0].done for report in told) == feed.done, "nothing twice, and nothing is lost"


@pytest.mark.looptime
async def test_a_report_that_breaks_ends_the_reports() -> None:
    """So that it is logged and counted by who started them."""
    metering = MeteringTask(MeterConfig(group="group"), Metrics(CollectorRegistry(), "group", "client", 1.0))
    target: Any = SimpleNamespace(unready=lambda: 1 / 0, member=lambda: ("m", 1), committed=dict)
    with pytest.raises(ExceptionGroup) as broke:
        await metering.run_reports(target)
    assert broke.value.subgroup(ZeroDivisionError) is not None


async def test_the_record_in_hand_for_longest_is_shown_with_its_age() -> None:
    registry, buffer = CollectorRegistry(), handout_of(ONE, TWO)
    metering = MeteringTask(MeterConfig(group="group"), Metrics(registry, "group", "client", 1.0, clock=lambda: 1e9))
    metering.attach(buffer, QuietFetcher())  # type: ignore[arg-type]
    for stream in buffer.streams.values():
        metering.acquired(stream, None)

    def taken_at() -> float:
        metering.gather()
        labels = {"group": "group", "client_id": "client"}
        age = registry.get_sample_value("loadtrim_record_in_hand_age_seconds", labels)
        assert age is not None
        return 1e9 - age if age else 0.0

    assert taken_at() == 0.0
    first = buffer.take_one(())
    began = taken_at()
    assert began == pytest.approx(boot_time(), abs=1.0)
    buffer.hand.telling.work_on(first)
    second = buffer.take_one(())
    assert taken_at() == pytest.approx(began, abs=1e-6), "user code tells: the first one is worked on still"
    buffer.hand.telling.done(first)
    assert taken_at() > began
    buffer.hand.telling.give_up(second)
    assert taken_at() == 0.0, "nobody works on it any more"


SLA_SECONDS = 100.0
"""So long that it does not matter how long the machine takes."""


class KeepingProgram:
    """User code that keeps records of partition ONE beyond the next call, commits by hand, and is measured.

    Args:
        by_hand: False: auto-commit.
        age_seconds: of each record when it is fetched.
    """

    def __init__(self, *, by_hand: bool = True, age_seconds: float = 20.0) -> None:
        self.buffer = buffer = handout_of(by_hand=by_hand)
        self.stream = stream = Stream(ONE, 1, 0, by_hand=by_hand)
        stream.running = True
        buffer.put(stream)
        data = batch(0, [(n, int((wall_time() - age_seconds) * 1000), b"") for n in (0, 1, 3, 4, 5, 6)])
        framed = frame(ONE, 0, data, (), committed_only=False, check_crcs=True)
        assert framed is not None
        buffer.feed(stream, framed)
        registry = CollectorRegistry()
        self.registry = registry
        self.metering = MeteringTask(
            MeterConfig(group="group", sla_seconds=SLA_SECONDS), Metrics(registry, "group", "client", SLA_SECONDS)
        )
        self.metering.attach(buffer, QuietFetcher())  # type: ignore[arg-type]
        self.metering.acquired(stream, None)
        self.metering.fetched(stream, framed, None)
        buffer.hand.samples.kept = True

    def commit(self, offset: int) -> None:
        self.stream.commits.called(offset, self.stream.position, boot_time())

    def counts(self) -> tuple[int, int, int]:
        """Records in time, of which nothing is known, and late."""
        self.metering.gather()
        self.metering.show()
        seen = self.metering.snapshot
        return seen.in_time, seen.unknown, sum(seen.late.values())

    @property
    def watched(self) -> bool:
        return self.stream.partition in self.metering._watched

    def latencies(self) -> float:
        name = "loadtrim_record_latency_seconds_count"
        return sum(s.value for family in self.registry.collect() for s in family.samples if s.name == name)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the agent's clock is ahead; the first entry counts."""
    ahead = [0.0]
    monkeypatch.setattr(metering_task, "wall_time", lambda: wall_time() + ahead[0])
    monkeypatch.setattr(metering_task, "boot_time", lambda: boot_time() + ahead[0])
    return ahead


async def test_commits_by_hand_tell_what_was_in_time(later: list[float]) -> None:
    """Such a program was told that its latency was unknown, though it said itself what was done."""
    program = KeepingProgram()
    for _ in range(4):
        program.buffer.take_one()
    assert program.counts() == (0, 0, 0), "nothing is known yet"
    program.commit(3)
    assert program.counts() == (2, 0, 0)
    assert program.latencies() == 2
    program.commit(5)
    program.buffer.take_many((), None)
    assert program.counts() == (4, 0, 0), "also of what was in hand at the commit"
    later[0] = 70.0
    assert program.counts() == (4, 0, 0)
    assert program.watched
    program.buffer.take_many((), None)
    later[0] = 90.0
    assert program.counts() == (4, 2, 0)
    assert program.latencies() == 4


@pytest.mark.parametrize(("age_seconds", "expected"), [(150.0, (0, 0, 3)), (20.0, (0, 3, 0))])
async def test_what_was_handed_out_late_is_late_and_what_was_asked_for_late_is_not(
    age_seconds: float, expected: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task may have done it while the program waited for another one before it asked for the next."""
    program = KeepingProgram(by_hand=False, age_seconds=age_seconds)
    program.buffer.take_many((), 3)
    monkeypatch.setattr(record_buffer, "boot_time", lambda: boot_time() + SLA_SECONDS)
    program.buffer.take_one()
    assert program.counts() == expected


async def test_a_program_that_never_commits_is_watched_no_longer_than_for_the_objective(later: list[float]) -> None:
    program = KeepingProgram()
    program.buffer.take_many((), None)
    program.buffer.take_many((), None)
    assert program.counts() == (0, 0, 0)
    assert program.watched
    later[0] = 100.0
    assert program.counts() == (0, 6, 0)
    assert not program.watched


async def test_what_waits_for_a_commit_when_the_partition_goes_is_unknown() -> None:
    program = KeepingProgram()
    assert program.counts() == (0, 0, 0)
    program.buffer.take_many((), 4)
    program.buffer.take_many((), None)
    program.commit(1)
    program.metering.lost(program.stream)
    assert program.counts() == (1, 3, 0)


async def test_where_the_next_call_tells_commits_are_not_kept() -> None:
    program = KeepingProgram()
    program.buffer.hand.samples.kept = False
    for offset in (1, 2, 4):
        program.buffer.take_one()
        program.commit(offset)
    program.buffer.take_many((), None)
    assert program.counts() == (3, 0, 0)
    assert not program.stream.commits.take()
    assert program.stream.reported.bounds is None


async def test_what_is_told_is_certain_also_where_the_rest_is_not() -> None:
    program = KeepingProgram()
    first = program.buffer.take_one()
    assert program.counts() == (0, 0, 0)
    program.buffer.hand.telling.done(first)
    second = program.buffer.take_one()
    program.buffer.hand.telling.done(second)
    assert program.counts() == (2, 0, 0)
