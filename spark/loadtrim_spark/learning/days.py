"""The history summed up per day and group: all that baselines are learnt from. Pure, but that Spark keeps the minutes.

One flat table, so that a day is replaced in one write. ``part`` says what a row is:

=========  ===================================================================================================
bucket     arrivals of a partition in one bucket of time; partition -1 is the whole topic
covered    minutes of a bucket in which the group was watched: what did not arrive then was zero, not unknown
cost       a topic's records and their cost, per partition and type of instance
startup    start-up times; ``handoff``: handoff times
read       that the day was read, when the ledger had so many entries of it, whatever was found
=========  ===================================================================================================

Buckets are of absolute time; days and weeks of a time zone come in when baselines are learnt.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

__all__ = ["DAY_COLUMNS", "READ", "WHOLE_TOPIC", "day_rows", "total"]

READ = "read"
WHOLE_TOPIC = -1
MINUTE_SECONDS = 60
COVERED_SECONDS_MIN = 45.0
"""A minute counts as watched when reports cover this much of it."""
TOTAL_MAX = 10**18
"""Sums of records are cut here: far above what a cluster takes in a day, and far below what overflows. Chosen."""
OBSERVED_SECONDS_MAX = 60.0
"""Arrivals over a longer time cannot be told to a minute: a backlog found at a start is no burst."""

DAY_COLUMNS = (
    "date date, `group` string, part string, topic string, partition int, start bigint, covered int, arrived bigint, "
    "minutes array<bigint>, instance_type string, done bigint, cost double, cost_square double, seconds array<double>, "
    "bucket_seconds int, entries bigint"
)
"""Schema as DDL. ``start``: seconds since the epoch; ``minutes``: arrivals of the watched minutes that had any;
``cost``, ``cost_square``: sums over records; ``entries``: of the ledger, in ``read``."""


def day_rows(history: DataFrame, bucket_seconds: int, read: DataFrame | None = None) -> DataFrame:
    """Sum up rows of the history.

    Args:
        history: whole days of groups.
        bucket_seconds: length of a bucket, a divisor of 3600 from 300.
        read: (date, group, entries): what is read, also where there is nothing. None: not to be noted.

    Returns:
        Rows of :data:`DAY_COLUMNS`.
    """
    reports = history.where(F.col("kind") == "report").select(
        "date", "group", "at", F.coalesce("interval", F.lit(1.0)).alias("interval"), "instance_type",
        "startup_seconds", "handoffs", F.coalesce("partitions", F.array()).alias("partitions"),
        F.floor(F.col("at") / MINUTE_SECONDS).alias("minute"),
    )  # fmt: skip
    watched = _watched_minutes(reports)
    # Kept, for two read it: a row per minute of a partition, where the history has one per report. A fifth of the time.
    minutes = _minutes(reports).localCheckpoint(eager=False)
    parts = [_buckets(minutes, watched, bucket_seconds), _covered(watched, bucket_seconds), _costs(minutes)]
    parts += [_times(reports, "startup", F.array("startup_seconds")), _times(reports, "handoff", F.col("handoffs"))]
    if read is not None:
        parts.append(read.select("date", "group", F.lit(READ).alias("part"), "entries"))
    rows = history.sparkSession.createDataFrame([], DAY_COLUMNS).drop("bucket_seconds")
    for part in parts:
        rows = rows.unionByName(part, allowMissingColumns=True)
    return rows.withColumn("bucket_seconds", F.lit(bucket_seconds))


def _watched_minutes(reports: DataFrame) -> DataFrame:
    """Minutes that reports of the group cover, whoever's they are."""
    begin = F.greatest(F.col("at") - F.col("interval"), F.col("minute") * MINUTE_SECONDS)
    return (
        reports.groupBy("date", "group", "minute")
        .agg((F.max("at") - F.min(begin)).alias("seconds"))
        .where(F.col("seconds") >= COVERED_SECONDS_MIN)
        .select("date", "group", "minute")
    )


def _covered(watched: DataFrame, bucket_seconds: int) -> DataFrame:
    return (
        watched.groupBy("date", "group", _start(bucket_seconds).alias("start"))
        .agg(F.count(F.lit(1)).cast("int").alias("covered"))
        .withColumn("part", F.lit("covered"))
    )


def _minutes(reports: DataFrame) -> DataFrame:
    """What the reports tell of each partition and minute. ``unknown``: arrivals of which the minute cannot be told."""
    part = F.col("p")
    arrived, observed = F.coalesce(part["arrived"], F.lit(0)), F.coalesce(part["observed"], F.col("interval"))
    known = (observed > 0) & (observed <= OBSERVED_SECONDS_MAX)
    mean, variance = part["cost_mean"], F.coalesce(part["cost_variance"], F.lit(0.0))
    done = F.when((part["done"] > 0) & mean.isNotNull(), part["done"])
    return (
        reports.select("*", F.explode("partitions").alias("p"))
        .groupBy(
            "group", part["topic"].alias("topic"), part["partition"].alias("partition"), "minute",
            F.coalesce("instance_type", F.lit("")).alias("instance_type"),
        )
        .agg(
            total(arrived).alias("arrived"),
            F.max(~known & (arrived > 0)).alias("unknown"),
            total(done).alias("done"),
            F.sum(done * mean).alias("cost"),
            F.sum(done * (variance + mean * mean)).alias("cost_square"),
        )
        # Not among what is grouped by, since the minute tells it: every row is looked up by all of that.
        .withColumn("date", F.to_date(F.timestamp_seconds(F.col("minute") * MINUTE_SECONDS)))
    )  # fmt: skip


def _buckets(minutes: DataFrame, watched: DataFrame, bucket_seconds: int) -> DataFrame:
    """Of partitions and of whole topics."""
    counted = F.when(~F.col("unknown"), F.col("arrived"))
    return (
        minutes.withColumn("partition", F.explode(F.array("partition", F.lit(WHOLE_TOPIC))))
        .groupBy("date", "group", "topic", "partition", "minute")
        .agg(total(F.col("arrived")).alias("arrived"), F.max("unknown").alias("unknown"))
        .join(watched, on=["date", "group", "minute"], how="inner")
        .groupBy("date", "group", "topic", "partition", _start(bucket_seconds).alias("start"))
        .agg(
            F.coalesce(total(counted), F.lit(0)).alias("arrived"),
            F.sort_array(F.collect_list(F.when(counted > 0, counted))).alias("minutes"),
            # Negative: minutes to take off the group's.
            (-F.sum(F.col("unknown").cast("int"))).cast("int").alias("covered"),
        )
        .withColumn("part", F.lit("bucket"))
    )


def _costs(minutes: DataFrame) -> DataFrame:
    return (
        minutes.where(F.col("done") > 0)
        .groupBy("date", "group", "topic", "partition", "instance_type")
        .agg(total(F.col("done")).alias("done"), *(F.sum(name).alias(name) for name in ("cost", "cost_square")))
        .withColumn("part", F.lit("cost"))
    )


def _times(reports: DataFrame, part: str, seconds: Column) -> DataFrame:
    """Durations, as a sorted list per day: there are few of them."""
    return (
        reports.select("date", "group", F.explode(seconds).alias("value"))
        .where(F.col("value").isNotNull())
        .groupBy("date", "group")
        .agg(F.sort_array(F.collect_list("value")).alias("seconds"))
        .withColumn("part", F.lit(part))
    )


def total(counts: Column) -> Column:
    """Return the sum of whole numbers, null where there are none.

    It is cut where nobody can have measured it: an overflow would end the command, for all groups.
    """
    # As floating point whole numbers are exact up to 9 * 10^15, and decimals would take several times as long.
    sums = F.sum(counts.cast("double"))
    return F.when(sums > TOTAL_MAX, F.lit(TOTAL_MAX)).otherwise(sums.cast("bigint"))


def _start(bucket_seconds: int) -> Column:
    return (F.floor(F.col("minute") * MINUTE_SECONDS / bucket_seconds) * bucket_seconds).cast("bigint")
