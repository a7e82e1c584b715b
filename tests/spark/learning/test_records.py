"""What is written to the baseline topic, and how much it is."""

from __future__ import annotations

import random
from itertools import pairwise

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from loadtrim_agent.wire.baseline_records import Baselines, decode_baseline
from loadtrim_spark.learning.days import DAY_COLUMNS, WHOLE_TOPIC
from loadtrim_spark.learning.learn import Calendar
from loadtrim_spark.learning.records import TYPES_MAX, messages, speeds
from spark.harness import as_json

PARTITIONS = 1000
CALENDAR = Calendar(as_of=1_795_392_000, zone="Europe/Berlin", bucket_seconds=900)
OWN, BORROWED = "shapes-of-their-own", "the-shape-of-topics"
OWN_BYTES_MAX = 3_800_000
BORROWED_BYTES_MAX = 450_000
"""A tenth more than what docs/spark.md tells."""
GROUP_COLUMNS = (
    "`group` string, speeds map<string, double>, first bigint, last bigint, startup_quantiles array<double>, "
    "handoff_quantiles array<double>"
)
DAY_AND_NOISE = """
    transform(sequence(0, 671), slot ->
        (1 + 0.9 * sin(slot * 0.0654498)) * (0.9 + 0.2 * pmod(7919 * slot + 9973 * partition, 1000) / 1000))
"""
"""Twenty times as much by day as by night, and a tenth up or down: half of the slots have four digits."""


def chosen_series(spark: SparkSession, topic: str) -> DataFrame:
    """A topic and its partitions, as they come from learning: no two alike, and no number short."""
    whole = F.col("partition") == WHOLE_TOPIC
    some = F.pmod(F.hash("partition"), F.lit(9973)) / 9973
    return spark.range(WHOLE_TOPIC, PARTITIONS).select(F.col("id").cast("int").alias("partition")).select(
        F.lit("payments-service").alias("group"), F.lit(topic).alias("topic"), "partition",
        ((F.lit(topic) == BORROWED) & ~whole).alias("borrowed"), (100.0 + some).alias("level"),
        (some / 10).alias("growth"), F.array(1 - some / 10, 1 + some / 3, 1.5 + some / 3).alias("quantiles"),
        F.expr(DAY_AND_NOISE).alias("shape"), F.lit(CALENDAR.as_of - 42 * 86_400).alias("first"),
        F.lit(CALENDAR.as_of - CALENDAR.bucket_seconds).alias("last"), F.lit(6).alias("weeks"),
        (0.1 + some / 10).alias("error"), (0.01 + some / 100).alias("outliers"),
        (0.005 + some / 1000).alias("cost_mean"), (some / 1e6).alias("cost_variance"),
    )  # fmt: skip


def test_a_topic_of_a_thousand_partitions_is_some_megabytes_at_most(spark: SparkSession) -> None:
    """Keys and values: 15-minute buckets, every partition with a shape of its own, and all with their topic's."""
    both = chosen_series(spark, OWN).unionByName(chosen_series(spark, BORROWED))
    cost = both.select("group", "topic", "partition", "cost_mean", "cost_variance")
    series = both.drop("cost_mean", "cost_variance")
    rows = messages(series, cost, spark.createDataFrame([], GROUP_COLUMNS), CALENDAR).collect()
    sizes, shapes = dict.fromkeys((OWN, BORROWED), 0), dict.fromkeys((OWN, BORROWED), 0)
    for row in rows:
        value = as_json(row["value"])
        sizes[value["topic"]] += len(row["key"].encode()) + len(row["value"].encode())
        shapes[value["topic"]] += "shape" in value
    assert len(rows) == 2 * (PARTITIONS + 1)
    assert shapes == {OWN: PARTITIONS + 1, BORROWED: 1}
    assert sizes[OWN] < OWN_BYTES_MAX, sizes
    assert sizes[BORROWED] < BORROWED_BYTES_MAX, sizes


def any_series(spark: SparkSession, group: str, count: int) -> DataFrame:
    """Topics as learning may leave them: quantiles rise from above 0, everything else is 0 or more."""
    draw = random.Random(5)
    rows = []
    for number in range(count):
        quantiles = sorted(10 ** draw.uniform(*draw.choice([(-12, 2), (-320, 300), (-1, 0.5)])) for _ in range(3))
        shape = [10 ** draw.uniform(-9, 3) if draw.random() < 0.8 else 0.0 for _ in range(168)]
        mean = sum(shape) / len(shape) or 1.0
        rows.append((
            group, f"t{number}", WHOLE_TOPIC, False, 10 ** draw.uniform(-9, 14), draw.uniform(-0.5, 0.5), quantiles,
            [share / mean for share in shape], 0, 3600, 6, draw.choice([None, 10 ** draw.uniform(-9, 12)]), 0.01,
        ))  # fmt: skip
    return spark.createDataFrame(
        rows,
        "`group` string, topic string, partition int, borrowed boolean, level double, growth double, quantiles "
        "array<double>, shape array<double>, first bigint, last bigint, weeks int, error double, outliers double",
    )


def test_whatever_is_published_can_be_read(spark: SparkSession) -> None:
    """Of bursts over a trickle the median was rounded to 0, and no leader could read the record."""
    series = any_series(spark, "g", 300)
    cost = series.select(
        "group", "topic", "partition", F.lit(0.01).alias("cost_mean"), F.lit(0.0).alias("cost_variance")
    )
    calendar = Calendar(as_of=CALENDAR.as_of, zone="UTC", bucket_seconds=3600)
    rows = messages(series, cost, spark.createDataFrame([], GROUP_COLUMNS), calendar).collect()
    learnt = {row["topic"]: row["quantiles"] for row in series.collect()}
    assert len(rows) == 300
    for row in rows:
        record = decode_baseline(row["value"].encode())
        assert record is not None
        assert all(low <= high for low, high in pairwise(record.quantiles))
        for told, known in zip(record.quantiles, learnt[record.topic], strict=True):
            assert abs(told - min(max(known, 1e-6), 1e9)) <= 1e-4 * told


def test_the_key_names_a_group_with_a_line_separator(spark: SparkSession) -> None:
    """Its key had null in place of the group, so its leader found nothing."""
    group = "a\u2028b\u0085\n"
    series = any_series(spark, group, 1)
    cost = series.select(
        "group", "topic", "partition", F.lit(0.01).alias("cost_mean"), F.lit(0.0).alias("cost_variance")
    )
    calendar = Calendar(as_of=CALENDAR.as_of, zone="UTC", bucket_seconds=3600)
    (row,) = messages(series, cost, spark.createDataFrame([], GROUP_COLUMNS), calendar).collect()
    assert as_json(row["key"]) == [group, "t0", None]
    known = Baselines(group, lambda *_: None)
    assert known.apply(row["key"].encode(), row["value"].encode())


def test_speeds_are_told_of_the_types_that_did_most(spark: SparkSession) -> None:
    """All types of a group are in one record: made-up ones without end made it larger than Kafka takes."""
    days = spark.createDataFrame([], DAY_COLUMNS).unionByName(
        spark.range(TYPES_MAX + 20).select(
            F.lit("g").alias("group"), F.lit("cost").alias("part"), F.lit("t").alias("topic"),
            F.concat(F.lit("type-"), F.col("id").cast("string")).alias("instance_type"),
            (F.col("id") + 1).alias("done"), (0.01 * (F.col("id") + 1)).cast("double").alias("cost"),
        ), allowMissingColumns=True,
    )  # fmt: skip
    (row,) = speeds(days).collect()
    assert set(row["speeds"]) == {f"type-{number}" for number in range(20, TYPES_MAX + 20)}
    assert set(row["speeds"].values()) == {1.0}
