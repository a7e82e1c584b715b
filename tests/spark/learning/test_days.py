"""What is summed up of a few reports."""

from __future__ import annotations

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


def test_minutes_zeros_and_what_is_not_known(spark: SparkSession) -> None:
    """Three watched minutes: load in the first; none in the second, where nothing is listed; a backlog in the third."""
    listed = {
        0: (PartitionReport(topic="t", partition=0, arrived=2), PartitionReport(topic="t", partition=1, arrived=1)),
        2: (PartitionReport(topic="t", partition=0, arrived=900, observed=600.0),),
    }
    records = [
        report(second, MONDAY + second + 1.0 - 1e-3, partitions=listed.get(second // 60, ())) for second in range(200)
    ]
    days = day_rows(history(spark, [*records, records[5]]), 300).persist()
    assert [row["covered"] for row in rows_of(days, "covered")] == [3]  # the fourth minute only in part
    buckets = {row["partition"]: (row["arrived"], row["minutes"], row["covered"]) for row in rows_of(days, "bucket")}
    assert buckets == {0: (120, [120], -1), 1: (60, [60], 0), -1: (180, [180], -1)}


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
    waits = (PartitionReport(topic="t", partition=0, arrived=5, lag=5, observed=600.0),)
    records = [report(second, MONDAY + second + 1.0 - 1e-3, partitions=waits) for second in range(60)]
    days = day_rows(history(spark, records), 300)
    assert rows_of(days, "cost") == []
    assert {row["arrived"] for row in rows_of(days, "bucket")} == {0}
