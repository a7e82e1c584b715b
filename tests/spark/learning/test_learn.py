"""Known loads, and what is learnt of them: each is a group of its own, and all are learnt at once."""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from loadtrim_agent.wire.baseline_records import decode_baseline
from loadtrim_spark.learning.days import DAY_COLUMNS, WHOLE_TOPIC
from loadtrim_spark.learning.learn import Calendar, learn, rates, slot
from loadtrim_spark.pipeline.baselines import baselines
from spark.harness import as_json

HOUR = 3600
DAY = 24 * HOUR
WEEK = 7 * DAY
END = 1_795_392_000  # Monday, 2026-11-23 00:00 UTC
RISE = 1000.0
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
Records = dict[tuple[str, str | None, int | None], dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """A load: records/s of a partition at a time; None where nobody watches."""

    load: Callable[[int, int], float | None]
    partitions: tuple[int, ...] = (0, 1)
    weeks: int = 6
    busy_minutes: int = 60
    """Of each hour; all records come in these."""
    new: dict[int, int] = field(default_factory=dict)
    """Partition -> since when it is there, seconds since the epoch; the others are from the beginning on."""

    def since(self, partition: int) -> int:
        """Return when the partition was made."""
        return self.new.get(partition, 0)


COLUMNS = "`group` string, partition int, start int, rate double, busy int"


def hour_of_week(start: int) -> int:
    return (start - END) // HOUR % 168


def busy_by_day(start: int) -> float:
    """Ten times as much from 8 to 18 on working days as else."""
    hour = hour_of_week(start)
    return 10.0 if hour // 24 < 5 and 8 <= hour % 24 < 18 else 1.0


def growing(partition: int, start: int) -> float:
    return float(RISE * 1.1 ** ((start - END) / WEEK) * busy_by_day(start))


def event_and_blind_day(partition: int, start: int) -> float | None:
    """Twenty times the load for a day, and a day on which nobody watched, which is not zero."""
    days_ago = (END - start) / DAY
    return None if 12 < days_ago <= 13 else busy_by_day(start) * (20.0 if 3 < days_ago <= 4 else 1.0)


def dead_week(partition: int, start: int) -> float:
    return 0.0 if start >= END - WEEK else busy_by_day(start)


def stepped(factor: float, days_ago: int) -> Callable[[int, int], float]:
    """So many times the load since then, for good."""
    return lambda partition, start: busy_by_day(start) * (factor if start >= END - days_ago * DAY else 1.0)


STEPS = {f"step-{factor:g}-{days}": (factor, days) for factor in (0.25, 4.0) for days in (5, 11, 15, 22)}


def by_berlins_day(partition: int, start: int) -> float:
    return 10.0 if 8 <= datetime.datetime.fromtimestamp(start, BERLIN).hour < 18 else 1.0


CASES = {
    "week": Case(lambda partition, start: busy_by_day(start) * (partition + 1)),
    "opposite": Case(lambda partition, start: busy_by_day(start + partition * 12 * HOUR)),
    "outage-2": Case(dead_week, weeks=2),
    "outage-6": Case(dead_week),
    "event": Case(event_and_blind_day),
    "growth": Case(growing),
    "gone": Case(lambda partition, start: 0.0 if start >= END - 3 * WEEK else 5.0),
    "sparse": Case(lambda partition, start: 10.0 if partition == 0 else (1.0 if start // HOUR % 5 == 0 else 0.0)),
    "new": Case(lambda partition, start: busy_by_day(start), (0, 1, 2), new={2: END - 2 * DAY}),
    "rare": Case(lambda partition, start: 10.0, (0,), busy_minutes=20),
    **{group: Case(stepped(*step), (0,)) for group, step in STEPS.items()},
    "newborn": Case(lambda partition, start: busy_by_day(start), new={0: END - DAY, 1: END - DAY}),
}


def days_of(spark: SparkSession, cases: dict[str, Case]) -> DataFrame:
    """Rows as ``day_rows`` makes them, of one topic, each minute of an hour the same."""
    rows = [
        (group, partition, start, value, case.busy_minutes)
        for group, case in cases.items()
        for start in range(END - case.weeks * WEEK, END, HOUR)
        for partition, value in _values(case, start)
    ]
    given = spark.createDataFrame(rows, COLUMNS, verifySchema=False)
    start = F.col("start").cast("bigint")
    hour = (F.col("rate") * 60).cast("bigint") * 60
    minutes = F.array_repeat((hour / F.col("busy")).cast("bigint"), F.col("busy"))
    buckets = given.select(
        F.to_date(F.timestamp_seconds("start")).alias("date"), "group", start.alias("start"),
        F.lit("bucket").alias("part"), F.lit("t").alias("topic"), "partition", F.lit(60).alias("covered"),
        hour.alias("arrived"), F.filter(minutes, lambda records: records > 0).alias("minutes"),
    )  # fmt: skip
    return spark.createDataFrame([], DAY_COLUMNS).unionByName(buckets, allowMissingColumns=True)


def _values(case: Case, start: int) -> Iterable[tuple[int, float]]:
    loads = {partition: case.load(partition, start) for partition in case.partitions if start >= case.since(partition)}
    known = {partition: value for partition, value in loads.items() if value is not None}
    return {**known, WHOLE_TOPIC: sum(known.values())}.items() if known else ()


def learnt(days: DataFrame, calendar: Calendar) -> Records:
    records = [as_json(row["value"]) for row in baselines(days, calendar).collect()]
    return {(record["group"], record.get("topic"), record.get("partition")): record for record in records}


@pytest.fixture(scope="module")
def records(spark: SparkSession) -> Records:
    return learnt(days_of(spark, CASES), Calendar(END, "UTC", HOUR, 6))


def expected(record: dict[str, Any], start: int, shape: list[int] | None = None) -> float:
    """As docs/spark.md says that a record is to be read."""
    weeks = (start - record["at"]) / WEEK
    shares = shape or record["shape"]
    return float(record["rate"] * (1 + record["growth"]) ** weeks * shares[hour_of_week(start)] / 1000)


NEXT_WEEK = range(END, END + WEEK, HOUR)


def test_known_week_comes_out_whole(records: Records) -> None:
    """A load that repeats, twice as much on one partition: rate, shape, error are exact, the shape is borrowed."""
    assert sorted(str(key) for key in records if key[0] == "week") == [
        "('week', 't', 0)", "('week', 't', 1)", "('week', 't', None)", "('week', None, None)"
    ]  # fmt: skip
    topic = records["week", "t", None]
    mean = (50 * 10 + 118) / 168
    assert topic["rate"] == pytest.approx(3 * mean, rel=1e-4)
    assert (topic["growth"], topic["error"], topic["outliers"], topic["weeks"]) == (0.0, 0.0, 0.0, 6)
    assert (topic["from"], topic["to"], topic["at"]) == (END - 6 * WEEK, END, END)
    assert topic["quantiles"] == [1.0, 1.0, 1.0]
    group = records["week", None, None]
    assert (group["from"], group["to"]) == (END - 6 * WEEK, END)
    for start in NEXT_WEEK:
        assert expected(topic, start) == pytest.approx(3 * busy_by_day(start), rel=2e-3)
    for partition in (0, 1):
        record = records["week", "t", partition]
        assert "shape" not in record
        assert record["rate"] == pytest.approx((partition + 1) * mean, rel=1e-3)


def test_a_partition_that_differs_has_its_own_shape(records: Records) -> None:
    """One by day, one by night: the topic's shape would be wrong for both, and the back-test says so."""
    for partition in (0, 1):
        record = records["opposite", "t", partition]
        assert len(record["shape"]) == 168
        assert record["error"] == 0.0


@pytest.mark.parametrize("group", ["outage-2", "outage-6"])
def test_outage_of_a_week_is_not_expected(records: Records, group: str) -> None:
    topic = records[group, "t", None]
    for start in NEXT_WEEK:
        assert expected(topic, start) == pytest.approx(2 * busy_by_day(start), rel=5e-3)


def test_one_event_and_a_blind_day_move_nothing(records: Records) -> None:
    topic = records["event", "t", None]
    assert topic["quantiles"][2] == pytest.approx(1.0, abs=0.01)
    assert topic["outliers"] == pytest.approx(24 / (41 * 24), abs=1e-3)
    for start in NEXT_WEEK:
        assert expected(topic, start) == pytest.approx(2 * busy_by_day(start), rel=5e-3)


@pytest.mark.parametrize("group", STEPS)
def test_a_step_that_lasts_is_the_level_and_no_spread(records: Records, group: str) -> None:
    """Two weeks after four times the load the level was half of it, and p90 was 2.7 times p50: both were the step."""
    topic = records[group, "t", None]
    p50, p90, _ = topic["quantiles"]
    assert p90 / p50 < 1.2
    for start in NEXT_WEEK:
        assert expected(topic, start) == pytest.approx(STEPS[group][0] * busy_by_day(start), rel=0.11)


def test_growth_goes_on(records: Records) -> None:
    """Ten percent a week, over two partitions; the week ahead is told to the percent, and so was the last one."""
    topic = records["growth", "t", None]
    assert topic["growth"] == pytest.approx(0.1, abs=2e-3)
    assert topic["error"] < 0.06
    for start in NEXT_WEEK:
        assert expected(topic, start) == pytest.approx(2 * growing(0, start), rel=0.06)


def test_load_that_is_gone_is_not_expected(records: Records) -> None:
    assert records["gone", "t", None]["rate"] == 0.0


def test_a_partition_that_is_mostly_silent_keeps_its_rate(records: Records) -> None:
    """Load in every fifth hour: most buckets are empty, and so is the median of every time of the week."""
    assert records["sparse", "t", 1]["rate"] == pytest.approx(1 / 5, rel=0.05)
    assert records["sparse", "t", 0]["rate"] == pytest.approx(10.0, rel=0.01)


def test_new_partition_borrows_the_topics_shape(records: Records) -> None:
    """A third partition since two days: its own level, the topic's shape, no error of its own yet."""
    new, topic = records["new", "t", 2], records["new", "t", None]
    assert "shape" not in new
    assert "error" not in new
    assert new["weeks"] == 1
    for start in NEXT_WEEK:
        assert expected(new, start, topic["shape"]) == pytest.approx(busy_by_day(start), rel=0.02)


def test_a_topic_of_one_day_is_told_by_the_time_of_day(records: Records) -> None:
    """Seen on a Sunday only, so no more can be known; and it cannot say how good that is."""
    topic = records["newborn", "t", None]
    assert "error" not in topic
    assert (topic["weeks"], topic["from"]) == (1, END - DAY)
    for start in NEXT_WEEK:
        assert expected(topic, start) == pytest.approx(2 * busy_by_day(END - DAY + start % DAY), rel=2e-3)


@pytest.mark.parametrize(
    ("zone", "when", "minutes"),
    [
        ("UTC", "2026-11-23T00:00+00:00", 0),
        ("Europe/Berlin", "2026-03-29T01:30+01:00", 6 * 1440 + 90),  # before the clocks go forward
        ("Europe/Berlin", "2026-03-29T03:30+02:00", 6 * 1440 + 210),  # an hour later: 2 o'clock never was
        ("Europe/Berlin", "2026-10-25T02:30+02:00", 6 * 1440 + 150),  # seen twice:
        ("Europe/Berlin", "2026-10-25T02:30+01:00", 6 * 1440 + 150),
        ("Asia/Kolkata", "2024-02-29T09:15+05:30", 3 * 1440 + 555),  # leap day, a Thursday; half an hour off
        ("UTC", "2024-12-30T23:45+00:00", 1425),
    ],
)
def test_slots_are_of_local_time(spark: SparkSession, zone: str, when: str, minutes: int) -> None:
    moment = datetime.datetime.fromisoformat(when)
    local = moment.astimezone(zoneinfo.ZoneInfo(zone))
    assert (local.weekday() * 1440 + local.hour * 60 + local.minute) == minutes
    calendar = Calendar(END, zone, 900, 6)
    row = spark.range(1).select(slot(F.lit(int(moment.timestamp())), calendar)).first()
    assert row is not None
    assert row[0] == minutes // 15


def test_leaders_can_read_every_topics_record(records: Records) -> None:
    """Even where the median minute is empty: there the mean is what a day is compared with."""
    for (_, topic, partition), record in records.items():
        if topic is not None and partition is None:
            assert decode_baseline(msgspec.json.encode(record)) is not None
    assert records["rare", "t", None]["quantiles"] == pytest.approx([1.0, 3.0, 3.0])


def test_clocks_that_change_keep_the_local_hour(spark: SparkSession) -> None:
    """Load by Berlin's day, learnt over the change of 25 October: the morning is at eight o'clock before and after."""
    days = days_of(spark, {"berlin": Case(by_berlins_day, (0,))})
    calendar = Calendar(END, "Europe/Berlin", HOUR, 6)
    row = learn(rates(days, calendar), calendar).first()
    assert row is not None
    by_day = [row["shape"][day * 24 + hour] > 1 for day in range(7) for hour in range(24)]
    assert by_day == [8 <= hour < 18 for day in range(7) for hour in range(24)]
    assert row["quantiles"] == [1.0, 1.0, 1.0]
