"""What is summed up of a few reports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from loadtrim_agent.wire.codec import encode
from loadtrim_agent.wire.telemetry_records import PartitionReport, ReportRecord
from loadtrim_agent.wire.topic_names import control_topic
from loadtrim_spark.learning.days import day_rows
from loadtrim_spark.learning.records import costs, speeds, times
from loadtrim_spark.pipeline.parse import first_of_each, parsed
from spark.harness import MONDAY, report


def history(spark: SparkSession, records: list[ReportRecord]) -> DataFrame:
    """Through the very parser: what is read is what members write."""
    rows = [
        (b"k", bytearray(encode(one)), control_topic(one.group), 1, n, float(one.at)) for n, one in enumerate(records)
    ]
    raw = spark.createDataFrame(
        rows, "key binary, value binary, topic string, `partition` int, offset bigint, at double"
    )
    rows = first_of_each(parsed(raw.withColumn("timestamp", F.timestamp_seconds("at")), 1e6, "b/0"))
    return rows.localCheckpoint()  # as a table is: read, and not worked out anew by everybody who reads it


def rows_of(days: DataFrame, part: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in days.where(F.col("part") == part).orderBy("topic", "partition", "start").collect()]


def part(partition: int, arrived: int = 0, **fields: Any) -> PartitionReport:
    return PartitionReport(topic="t", partition=partition, arrived=arrived, **fields)


def told(seconds: range, listed: Callable[[int], tuple[PartitionReport, ...]], member: str = "m") -> list[ReportRecord]:
    """A member's reports, one per step of the range, each of the time since the last."""
    return [
        report(second, MONDAY + second + seconds.step - 1e-3, member=member, interval=seconds.step,
               partitions=listed(second))
        for second in seconds
    ]  # fmt: skip


def known_of(days: DataFrame) -> dict[int, tuple[int, list[int], int]]:
    """Of each partition of a single bucket what came, minute by minute where anything did, and the known minutes."""
    return {row["partition"]: (row["arrived"], row["minutes"], row["covered"]) for row in rows_of(days, "bucket")}


def test_nothing_came_to_what_is_not_named_for_a_minute(spark: SparkSession) -> None:
    """Two records a second in the first minute, none in the second, and none in the third, which is only begun."""
    records = told(range(140), lambda second: (part(0, 2),) if second < 60 else (part(0),) if second == 125 else ())
    assert known_of(day_rows(history(spark, [*records, records[5]]), 300)) == {0: (120, [120], 2), -1: (120, [120], 2)}


def test_what_came_while_a_member_lagged_is_spread_over_that_time(spark: SparkSession) -> None:
    """Its buffer is full for three minutes, so it asks for nothing; then it hears at once of all that came."""

    def lagging(second: int) -> tuple[PartitionReport, ...]:
        if 60 <= second < 239:
            return (part(0, 0, observed=0.0, lag=100),)
        return (part(0, 1800, observed=180.0),) if second == 239 else (part(0, 5),)

    days = day_rows(history(spark, told(range(300), lagging)), 300)
    assert known_of(days)[0] == (300 + 1800 + 300, [300, 300, 600, 600, 600], 5)


def test_what_came_over_hours_is_unknown_and_so_is_the_day_before(spark: SparkSession) -> None:
    """Spread over so long a time it would tell nothing of its parts; and of the day before nobody may tell here."""
    begun = told(range(60), lambda second: (part(0, 900, observed=90.0) if second == 59 else part(0, 0, observed=0.0),))
    assert known_of(day_rows(history(spark, begun), 300))[0] == (600, [600], 1)
    later = told(range(60), lambda second: (part(0, 900, observed=7200.0),))
    assert known_of(day_rows(history(spark, later), 300)) == {}


def test_what_nobody_who_is_heard_owns_is_unknown_and_so_is_its_topic(spark: SparkSession) -> None:
    """For five minutes a plain consumer has partition 1, and for all of the time partition 0 of the other topic."""

    def mixed(second: int) -> tuple[PartitionReport, ...]:
        other = PartitionReport(topic="u", partition=1, arrived=3)
        return (part(0, 1), other) if 300 <= second < 600 else (part(0, 1), part(1, 1), other)

    known: dict[tuple[str, int], set[int]] = {}
    for row in rows_of(day_rows(history(spark, told(range(900), mixed)), 300), "bucket"):
        known.setdefault((row["topic"], row["partition"]), set()).add((row["start"] - MONDAY) // 300)
    assert known == {("t", 0): {0, 1, 2}, ("t", 1): {0, 2}, ("t", -1): {0, 2}, ("u", 1): {0, 1, 2}}


def test_between_two_owners_nothing_is_known(spark: SparkSession) -> None:
    """One dies in the second minute, another takes over in the third; a partition that is handed over is known."""
    dies = told(range(70), lambda second: (part(0, 1), part(1, 1)))
    heir = told(range(160, 240), lambda second: (part(0, 1), part(1, 1)), "n")
    assert known_of(day_rows(history(spark, dies + heir), 300))[-1] == (2 * 120, [120, 120], 2)
    gives = told(range(70), lambda second: (part(0, 1, state="gone" if second == 69 else "running"),))
    takes = told(range(70, 120), lambda second: (part(0, 1),), "n")
    assert known_of(day_rows(history(spark, gives + takes), 300))[0] == (120, [60, 60], 2)


@pytest.mark.parametrize("interval", [20, 45, 60, 100])
def test_reports_far_apart_tell_of_every_minute(spark: SparkSession, interval: int) -> None:
    """None was known where a report came every 20 s or less often, at the wrong seconds of the minute."""
    records = told(range(7, 607, interval), lambda second: (part(0, 2 * interval), part(1)))
    days = day_rows(history(spark, records), 300)
    starts = {row["start"]: row for row in rows_of(days, "bucket") if row["partition"] == -1}
    whole = starts[MONDAY]
    assert whole["covered"] == 5
    assert sum(whole["minutes"]) == pytest.approx(2 * 293, abs=1)
    assert whole["minutes"][1:] == [120] * 4


def test_costs_speeds_and_times(spark: SparkSession) -> None:
    def worked(done: int, cost: float, variance: float = 0.0) -> tuple[PartitionReport, ...]:
        return (PartitionReport(topic="t", partition=0, done=done, cost_mean=cost, cost_variance=variance),)

    records = [
        report(1, MONDAY + 1, instance_type="slow", partitions=worked(30, 0.02, 1e-4), startup_seconds=4.0),
        report(2, MONDAY + 2, instance_type="fast", partitions=worked(10, 0.01), handoffs=(0.01, 0.03)),
        report(3, MONDAY + 3, instance_type="slow", partitions=(), handoffs=(0.02,)),
    ]
    days = day_rows(history(spark, records), 300).persist()
    cost = {row["partition"]: row for row in costs(days).collect()}
    mean = (30 * 0.02 + 10 * 0.01) / 40
    square = (30 * (1e-4 + 0.02**2) + 10 * 0.01**2) / 40
    for partition in (0, -1):
        assert cost[partition]["cost_mean"] == pytest.approx(mean)
        assert cost[partition]["cost_variance"] == pytest.approx(square - mean**2)
    assert speeds(days).collect()[0]["speeds"] == {"fast": 2.0, "slow": 1.0}
    measured = times(days).collect()[0]
    assert measured["startup_quantiles"] == [4.0, 4.0, 4.0]
    assert measured["handoff_quantiles"] == [0.02, 0.028, 0.0298]


def test_what_only_looks_small_is_not_sent_to_everybody(spark: SparkSession, tmp_path: Path) -> None:
    """By way of the driver, which twenty million rows of ten megabytes of files kept from ever coming to an end."""
    listed = (PartitionReport(topic="t", partition=0, arrived=2),)
    records = [report(second, MONDAY + second + 1.0 - 1e-3, partitions=listed) for second in range(100)]
    history(spark, records).write.format("delta").save(str(tmp_path))
    days = day_rows(spark.read.format("delta").load(str(tmp_path)), 300)
    planned: Any = days._jdf.queryExecution()
    assert "Broadcast" not in planned.executedPlan().toString()


def test_sums_of_counts_that_nobody_measured_do_not_overflow(spark: SparkSession) -> None:
    """From a history that was taken in before there were ranges: two of one minute ended the command for all groups."""
    records = [report(second, MONDAY + second + 1.0 - 1e-3) for second in range(60)]
    huge = F.lit(9 * 10**18)
    spoilt = history(spark, records).withColumn(
        "partitions",
        F.transform("partitions", lambda part: part.withField("arrived", huge).withField("done", huge)),
    )
    days = day_rows(spoilt, 300)
    assert {row["arrived"] for row in rows_of(days, "bucket")} == {10**18}
    assert {row["done"] for row in rows_of(days, "cost")} == {10**18}


def test_a_partition_of_which_nothing_was_done_has_no_cost(spark: SparkSession) -> None:
    """What there is no sum of is no sum that was cut."""
    waits = (PartitionReport(topic="t", partition=0, arrived=5, lag=5),)
    records = [report(second, MONDAY + second + 1.0 - 1e-3, partitions=waits) for second in range(60)]
    days = day_rows(history(spark, records), 300)
    assert rows_of(days, "cost") == []
    assert {row["arrived"] for row in rows_of(days, "bucket")} == {300}
