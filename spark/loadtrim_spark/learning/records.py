"""What was learnt becomes the records of the baseline topic. Pure; docs/spark.md shows each of them."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from loadtrim_agent.wire.baseline_records import QUANTILE_MAX, RATE_MAX
from loadtrim_agent.wire.ranges import HANDOFF_SECONDS_MAX, STARTUP_SECONDS_MAX
from loadtrim_spark.learning.days import WHOLE_TOPIC, total
from loadtrim_spark.learning.learn import QUANTILES, Calendar

__all__ = ["BETTER", "chosen", "costs", "messages", "speeds", "times"]

BETTER = 0.9
"""A partition's own shape is published when its back-test error is below this share of the topic's shape's error."""
BETTER_BY_MIN = 0.01
"""And it must be lower by this: of two that are next to nothing neither is better."""
SHAPE_UNIT = 1000
"""Shapes are whole numbers, thousandths of the mean."""
QUANTILE_MIN = 1e-6
"""A median below this tells of minutes that are empty as good as always. Chosen: it is above 0, as leaders ask."""
TYPES_MAX = 100
"""Types of instances whose speed is told: those that did the most. Chosen: all of a group go into one record."""


def chosen(learnt: DataFrame, errors: DataFrame) -> DataFrame:
    """Of each partition's two forms the one with its own shape where that tells the last week clearly better."""
    series = Window.partitionBy("group", "topic", "partition")
    tested = learnt.join(errors, on=["group", "topic", "partition", "borrowed"], how="left")
    own = F.max(F.when(~F.col("borrowed"), F.col("error"))).over(series)
    borrowed = F.max(F.when(F.col("borrowed"), F.col("error"))).over(series)
    better = F.coalesce((own < BETTER * borrowed) & (own < borrowed - BETTER_BY_MIN), F.lit(False)) | (
        F.col("partition") == WHOLE_TOPIC
    )
    return tested.withColumn("better", better).where(F.col("better") != F.col("borrowed")).drop("better")


def costs(days: DataFrame) -> DataFrame:
    """Mean and variance of a record's cost per topic and partition, the topic as partition -1."""
    spent = days.where(F.col("part") == "cost")
    both = spent.withColumn("partition", F.explode(F.array(F.col("partition"), F.lit(WHOLE_TOPIC))))
    mean = F.sum("cost") / total(F.col("done"))
    variance = F.greatest(F.lit(0.0), F.sum("cost_square") / total(F.col("done")) - mean * mean)
    return both.groupBy("group", "topic", "partition").agg(mean.alias("cost_mean"), variance.alias("cost_variance"))


def speeds(days: DataFrame) -> DataFrame:
    """Relative speed per group and type of instance: cost on the reference type / cost on this one.

    The reference is the type that did most of the group's records. Only topics that both types worked on compare; each
    counts by the records that the type did of it.
    """
    per_topic = (
        days.where((F.col("part") == "cost") & (F.col("instance_type") != ""))
        .groupBy("group", "topic", "instance_type")
        .agg((F.sum("cost") / total(F.col("done"))).alias("cost"), total(F.col("done")).alias("done"))
    )
    most = Window.partitionBy("group").orderBy(F.desc("all_done"), "instance_type")
    reference = (
        per_topic.groupBy("group", "instance_type").agg(total(F.col("done")).alias("all_done"))
        .withColumn("place", F.row_number().over(most)).where(F.col("place") == 1)
        .select("group", F.col("instance_type").alias("reference"))
    )  # fmt: skip
    standard = (
        per_topic.join(reference, on="group", how="inner").where(F.col("instance_type") == F.col("reference"))
        .select("group", "topic", F.col("cost").alias("standard"))
    )  # fmt: skip
    quotient = F.sum(F.col("done") * F.col("standard") / F.col("cost")) / total(F.col("done"))
    return (
        per_topic.join(standard, on=["group", "topic"], how="inner")
        .where((F.col("cost") > 0) & (F.col("standard") > 0))
        .groupBy("group", "instance_type").agg(quotient.alias("speed"), total(F.col("done")).alias("all_done"))
        .withColumn("place", F.row_number().over(most)).where(F.col("place") <= TYPES_MAX)
        .groupBy("group").agg(F.map_from_entries(F.sort_array(F.collect_list(
            F.struct("instance_type", F.round("speed", 4))))).alias("speeds"))
    )  # fmt: skip


def times(days: DataFrame) -> DataFrame:
    """Quantiles of start-up and handoff times per group, seconds."""
    measured = days.where(F.col("part").isin("startup", "handoff")).select(
        "group", "part", F.explode("seconds").alias("value")
    )
    most = F.when(F.col("part") == "startup", STARTUP_SECONDS_MAX).otherwise(HANDOFF_SECONDS_MAX)
    # A history from before there were ranges may hold anything.
    return measured.where(F.col("value").between(0.0, most)).groupBy("group").agg(
        *(
            _rounded(F.percentile(F.when(F.col("part") == part, F.col("value")), list(QUANTILES))).alias(name)
            for part, name in (("startup", "startup_quantiles"), ("handoff", "handoff_quantiles"))
        )
    )  # fmt: skip


def messages(series: DataFrame, cost: DataFrame, groups: DataFrame, calendar: Calendar) -> DataFrame:
    """Key and value, as text, of each record of the baseline topic.

    Args:
        series: of :func:`chosen`, topics and partitions.
        cost: of :func:`costs`.
        groups: group, speeds, startup_quantiles, handoff_quantiles; first, last: start of the first and last bucket
            that the group was watched in.
        calendar: what all this was learnt by.
    """
    joined = series.join(cost, on=["group", "topic", "partition"], how="left")
    partition = F.when(F.col("partition") != WHOLE_TOPIC, F.col("partition"))
    shape = F.transform("shape", lambda share: F.round(share * SHAPE_UNIT).cast("int"))
    head = [F.lit("baseline").alias("kind"), F.lit(1).alias("v"), F.lit(calendar.as_of).alias("at"), F.col("group")]
    of_series = F.struct(
        *head, F.col("topic"), partition.alias("partition"),
        F.least(_digits(F.col("level"), 6), F.lit(RATE_MAX)).alias("rate"),
        F.round("growth", 4).alias("growth"), F.transform("quantiles", _factor).alias("quantiles"),
        F.when(~F.col("borrowed"), shape).alias("shape"), _digits(F.col("cost_mean"), 6).alias("cost_mean"),
        _digits(F.col("cost_variance"), 6).alias("cost_variance"), F.lit(calendar.zone).alias("time_zone"),
        F.lit(calendar.bucket_seconds).alias("bucket_seconds"), *_period(calendar), F.col("weeks"),
        F.round("error", 4).alias("error"), F.round("outliers", 4).alias("outliers"),
    )  # fmt: skip
    of_group = F.struct(
        *head, F.col("speeds"), F.col("startup_quantiles"), F.col("handoff_quantiles"), *_period(calendar)
    )
    return joined.select("group", _key(F.col("topic"), partition), F.to_json(of_series).alias("value")).unionByName(
        groups.select("group", _key(F.lit(None), F.lit(None)), F.to_json(of_group).alias("value"))
    )


def _period(calendar: Calendar) -> tuple[Column, Column]:
    """What it was learnt from, seconds since the epoch."""
    return F.col("first").alias("from"), (F.col("last") + calendar.bucket_seconds).alias("to")


_VALUE = r'(?s)^\{"x":(.*)\}$'
"""Of an object with one field. A dot stands for line separators too, which JSON leaves as they are."""


def _key(topic: Column, partition: Column) -> Column:
    """A JSON array of group, topic and partition, with null for what the record is not about."""
    quoted = [
        F.coalesce(F.regexp_extract(F.to_json(F.struct(text.cast("string").alias("x"))), _VALUE, 1), F.lit(""))
        for text in (F.col("group"), topic)
    ]
    parts = [F.when(text == "", "null").otherwise(text) for text in quoted]
    return F.concat(
        F.lit("["), parts[0], F.lit(","), parts[1], F.lit(","), F.coalesce(partition.cast("string"), F.lit("null")),
        F.lit("]"),
    ).alias("key")  # fmt: skip


def _factor(value: Column) -> Column:
    """Return a quantile as a leader can read it.

    To five digits, however small: of bursts over a trickle the median is a small part of the mean, and must not
    become 0.
    """
    return F.least(_digits(F.greatest(value, F.lit(QUANTILE_MIN)), 5), F.lit(QUANTILE_MAX))


def _digits(value: Column, digits: int) -> Column:
    """Return a number, 0 or more, with so many significant digits."""
    places = F.pow(F.lit(10.0), F.lit(digits - 1) - F.floor(F.log10(F.abs(value))))
    return F.when(value == 0, F.lit(0.0)).otherwise(F.round(value * places) / places)


def _rounded(values: Column) -> Column:
    return F.transform(values, lambda value: F.round(value, 4))
