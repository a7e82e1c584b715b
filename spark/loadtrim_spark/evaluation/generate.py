"""Telemetry of a group whose truth is known: as rows of the history, or as records of its control topic.

A row is what a member would have reported: the records of its partitions over the report's interval, all done, at the
cost that the truth says. Decisions are not made up: they come from a leader, real or simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from loadtrim_agent.wire.envelope import TELEMETRY
from loadtrim_spark.evaluation.truth import MINUTE_SECONDS, Truth

__all__ = ["arrivals", "as_records", "as_source", "reports"]

TOPIC = "load"
KEY_SEPARATOR = "\x00"
EARLY_SECONDS = 1e-3


def arrivals(spark: SparkSession, truth: Truth) -> DataFrame:
    """What arrived in each minute that was watched: minute (since the epoch), arrived (records)."""
    first = truth.begin // MINUTE_SECONDS
    rows = [(first + index, count) for index, count in enumerate(truth.counts()) if truth.watched(index)]
    return spark.createDataFrame(rows, "minute bigint, arrived bigint")


def reports(
    minutes: DataFrame, truth: Truth, group: str, *, members: int = 3, report_seconds: int = 60, topic: str = TOPIC
) -> DataFrame:
    """Reports of the members of a group, each of whom always owns the same partitions.

    Args:
        minutes: of :func:`arrivals`.
        truth: whose shares and cost count.
        group: its id.
        members: how many.
        report_seconds: interval of a report, a divisor of 60.
        topic: whose partitions these are.

    Returns:
        The fields of a ``report`` record as columns; what is the default is left out.
    """
    parts = MINUTE_SECONDS // report_seconds
    member = F.explode(F.sequence(F.lit(0), F.lit(members - 1)))
    part = F.explode(F.sequence(F.lit(0), F.lit(parts - 1)))
    each = minutes.select("minute", "arrived", member.alias("number")).select("*", part.alias("part"))
    own = F.sequence(F.col("number"), F.lit(len(truth.shares) - 1), F.lit(members))
    # What nothing happens to is named once a minute, as members do.
    named = F.filter(
        F.transform(own, _partition(topic, truth, parts)),
        lambda one: (one["arrived"] > 0) | (F.col("part") == parts - 1),
    )
    done = F.aggregate("partitions", F.lit(0).cast("bigint"), lambda total, one: total + one["arrived"])
    return each.withColumn("partitions", named).select(
        F.lit("report").alias("kind"),
        F.lit(group).alias("group"),
        F.format_string("m%d", "number").alias("member"),
        # A report tells of the time before it, and belongs to the minute that it tells of.
        (F.col("minute") * MINUTE_SECONDS + (F.col("part") + 1) * report_seconds - EARLY_SECONDS).alias("at"),
        (F.col("minute") * parts + F.col("part")).alias("sequence"),
        F.lit(1).cast("bigint").alias("generation"),
        F.format_string("i%d", "number").alias("instance"),
        F.lit(float(report_seconds)).alias("interval"),
        (done * truth.cost_seconds).alias("busy_seconds"),
        done.alias("in_time"),
        "partitions",
    )


def as_source(rows: DataFrame, topic: str) -> DataFrame:
    """The columns that Spark's Kafka source reads, as if each record had been written at its own time.

    Args:
        rows: of :func:`reports`.
        topic: the group's control topic.
    """
    return rows.select(
        F.concat_ws(KEY_SEPARATOR, "group", "member", "sequence").cast("binary").alias("key"),
        F.to_json(F.struct(*rows.columns)).cast("binary").alias("value"),
        F.lit(topic).alias("topic"),
        F.lit(TELEMETRY).alias("partition"),
        F.monotonically_increasing_id().alias("offset"),
        F.timestamp_seconds("at").alias("timestamp"),
    )


def as_records(rows: DataFrame, topic: str) -> DataFrame:
    """The columns that Spark's Kafka sink writes. The broker stamps them with its own time, so that they are late by
    as much as they tell of the past: take them in with a lateness that allows it.

    Args:
        rows: of :func:`reports`.
        topic: the group's control topic.
    """
    return as_source(rows, topic).select("key", "value", "topic", "partition")


def _partition(topic: str, truth: Truth, parts: int) -> Callable[[Column], Column]:
    """What a partition got of a minute's records in one of the parts of the minute. All of them add up to the whole."""
    bounds = F.array(*map(F.lit, [*accumulate(truth.shares, initial=0.0)][:-1]), F.lit(1.0))

    def until(index: Column) -> Column:
        """Records of the partitions before this one."""
        return F.floor(F.col("arrived") * F.get(bounds, index))

    def report(index: Column) -> Column:
        records = until(index + 1) - until(index)
        arrived = F.floor(records * (F.col("part") + 1) / parts) - F.floor(records * F.col("part") / parts)
        return F.struct(
            F.lit(topic).alias("topic"), index.alias("partition"), arrived.alias("arrived"), arrived.alias("done"),
            F.lit(truth.cost_seconds).alias("cost_mean"),
        )  # fmt: skip

    return report
