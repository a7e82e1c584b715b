"""Known loads, and what is learnt of them."""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from loadtrim_spark.baselines import baselines
from loadtrim_spark.days import DAY_COLUMNS, WHOLE_TOPIC
from loadtrim_spark.learn import Calendar, slot
from spark.harness import as_json

HOUR = 3600
WEEK = 168 * HOUR
END = 1_795_392_000  # Monday, 2026-11-23 00:00 UTC
CALENDAR = Calendar(END, "UTC", HOUR, 6)
Load = Callable[[int, int], float | None]
"""Records/s of a partition at a time; None where nobody watches."""


def hour_of_week(start: int) -> int:
    return (start - END) // HOUR % 168


def busy_by_day(start: int) -> float:
    """Ten times as much from 8 to 18 on working days as else."""
    hour = hour_of_week(start)
    return 10.0 if hour // 24 < 5 and 8 <= hour % 24 < 18 else 1.0


def days_of(spark: SparkSession, load: Load, partitions: Iterable[int] = (0, 1), weeks: int = 6) -> DataFrame:
    """Rows as ``day_rows`` makes them, of one topic, each minute of an hour the same."""
    rows: list[dict[str, Any]] = []
    for start in range(END - weeks * WEEK, END, HOUR):
        day = {"date": datetime.datetime.fromtimestamp(start, datetime.UTC).date(), "group": "g", "start": start}
        each = {partition: load(partition, start) for partition in partitions}
        loads = [value for value in each.values() if value is not None]
        if not loads:
            continue
        rows.append({**day, "part": "covered", "covered": 60})
        for partition, value in {**each, WHOLE_TOPIC: sum(loads)}.items():
            if value:
                arrived = int(value * 60)
                rows.append({**day, "part": "bucket", "topic": "t", "partition": partition, "covered": 0,
                             "arrived": arrived * 60, "minutes": [arrived] * 60})  # fmt: skip
    columns = spark.createDataFrame([], DAY_COLUMNS).schema
    return spark.createDataFrame([tuple(row.get(name) for name in columns.names) for row in rows], columns)


def learnt(days: DataFrame, calendar: Calendar = CALENDAR) -> dict[str, Any]:
    return {row["key"]: as_json(row["value"]) for row in baselines(days, calendar).collect()}


def expected(record: dict[str, Any], shape: list[int], start: int) -> float:
    """As docs/spark.md says that a record is to be read."""
    weeks = (start - record["at"]) / WEEK
    return float(record["rate"] * (1 + record["growth"]) ** weeks * shape[hour_of_week(start)] / 1000)


def test_known_week_comes_out_whole(spark: SparkSession) -> None:
    """A load that repeats, twice as much on one partition: rate, shape, error are exact, the shape is borrowed."""
    records = learnt(days_of(spark, lambda partition, start: busy_by_day(start) * (partition + 1)))
    assert sorted(records) == ['["g","t",0]', '["g","t",1]', '["g","t",null]', '["g",null,null]']
    topic = records['["g","t",null]']
    mean = (50 * 10 + 118) / 168
    assert topic["rate"] == pytest.approx(3 * mean, rel=1e-4)
    assert (topic["growth"], topic["error"], topic["outliers"], topic["weeks"]) == (0.0, 0.0, 0.0, 6)
    assert (topic["from"], topic["to"], topic["at"]) == (END - 6 * WEEK, END, END)
    assert topic["quantiles"] == [1.0, 1.0, 1.0]
    for start in range(END, END + WEEK, HOUR):
        assert expected(topic, topic["shape"], start) == pytest.approx(3 * busy_by_day(start), rel=2e-3)
    for partition in (0, 1):
        record = records[f'["g","t",{partition}]']
        assert "shape" not in record
        assert record["rate"] == pytest.approx((partition + 1) * mean, rel=1e-3)


def test_a_partition_that_differs_has_its_own_shape(spark: SparkSession) -> None:
    """One by day, one by night: the topic's shape would be wrong for both, and the back-test says so."""
    records = learnt(days_of(spark, lambda partition, start: busy_by_day(start + partition * 12 * HOUR)))
    for partition in (0, 1):
        record = records[f'["g","t",{partition}]']
        assert len(record["shape"]) == 168
        assert record["error"] == 0.0


@pytest.mark.parametrize("weeks", [2, 6])
def test_outage_of_a_week_is_not_expected(spark: SparkSession, weeks: int) -> None:
    def load(partition: int, start: int) -> float | None:
        return 0.0 if start >= END - WEEK else busy_by_day(start)

    topic = learnt(days_of(spark, load, weeks=weeks))['["g","t",null]']
    for start in range(END, END + WEEK, HOUR):
        assert expected(topic, topic["shape"], start) == pytest.approx(2 * busy_by_day(start), rel=5e-3)


def test_one_event_and_a_blind_day_move_nothing(spark: SparkSession) -> None:
    """Twenty times the load for a day, and a day on which nobody watched, which is not zero."""

    def load(partition: int, start: int) -> float | None:
        days_ago = (END - start) / (24 * HOUR)
        return None if 12 < days_ago <= 13 else busy_by_day(start) * (20.0 if 3 < days_ago <= 4 else 1.0)

    topic = learnt(days_of(spark, load))['["g","t",null]']
    assert topic["quantiles"][2] == pytest.approx(1.0, abs=0.01)
    assert topic["outliers"] == pytest.approx(24 / (41 * 24), abs=1e-3)
    for start in range(END, END + WEEK, HOUR):
        assert expected(topic, topic["shape"], start) == pytest.approx(2 * busy_by_day(start), rel=5e-3)


def test_growth_goes_on(spark: SparkSession) -> None:
    """Ten percent a week, over two partitions; the week ahead is told to the percent, and so was the last one."""
    rate = 1000.0

    def load(partition: int, start: int) -> float:
        return rate * 1.1 ** ((start - END) / WEEK) * busy_by_day(start)

    topic = learnt(days_of(spark, load))['["g","t",null]']
    assert topic["growth"] == pytest.approx(0.1, abs=1e-3)
    assert topic["error"] < 0.06
    for start in range(END, END + WEEK, 8 * HOUR):
        assert expected(topic, topic["shape"], start) == pytest.approx(2 * load(0, start), rel=0.06)


def test_load_that_is_gone_is_not_expected(spark: SparkSession) -> None:
    topic = learnt(days_of(spark, lambda p, start: 0.0 if start >= END - 3 * WEEK else 5.0))['["g","t",null]']
    assert topic["rate"] == 0.0


def test_a_partition_that_is_mostly_silent_keeps_its_rate(spark: SparkSession) -> None:
    """Load in every fifth hour: most buckets are empty, and so is the median of every time of the week."""

    def load(partition: int, start: int) -> float:
        return 10.0 if partition == 0 else (1.0 if start // HOUR % 5 == 0 else 0.0)

    records = learnt(days_of(spark, load))
    assert records['["g","t",1]']["rate"] == pytest.approx(1 / 5, rel=0.05)
    assert records['["g","t",0]']["rate"] == pytest.approx(10.0, rel=0.01)


def test_new_partition_borrows_the_topics_shape(spark: SparkSession) -> None:
    """A third partition since two days: its own level, the topic's shape, no error of its own yet."""

    def load(partition: int, start: int) -> float:
        return 0.0 if partition == 2 and start < END - 48 * HOUR else busy_by_day(start)

    records = learnt(days_of(spark, load, partitions=(0, 1, 2)))
    new, topic = records['["g","t",2]'], records['["g","t",null]']
    assert "shape" not in new
    assert "error" not in new
    assert new["weeks"] == 1
    for start in range(END, END + WEEK, HOUR):
        assert expected(new, topic["shape"], start) == pytest.approx(busy_by_day(start), rel=0.02)


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


def test_clocks_that_change_keep_the_local_hour(spark: SparkSession) -> None:
    """Load by Berlin's day, learnt over the change of 25 October: the morning is at eight o'clock before and after."""
    berlin = zoneinfo.ZoneInfo("Europe/Berlin")

    def load(partition: int, start: int) -> float:
        return 10.0 if 8 <= datetime.datetime.fromtimestamp(start, berlin).hour < 18 else 1.0

    topic = learnt(days_of(spark, load), Calendar(END, "Europe/Berlin", HOUR, 6))['["g","t",null]']
    assert topic["error"] == 0.0
    by_day = [topic["shape"][day * 24 + hour] > 1000 for day in range(7) for hour in range(24)]
    assert by_day == [8 <= hour < 18 for day in range(7) for hour in range(24)]
