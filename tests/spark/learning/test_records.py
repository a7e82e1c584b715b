"""What is written to the baseline topic, and how much it is."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from loadtrim_spark.learning.days import WHOLE_TOPIC
from loadtrim_spark.learning.learn import Calendar
from loadtrim_spark.learning.records import messages
from spark.harness import as_json

PARTITIONS = 1000
CALENDAR = Calendar(as_of=1_795_392_000, zone="Europe/Berlin", bucket_seconds=900)
OWN, BORROWED = "shapes-of-their-own", "the-shape-of-topics"
OWN_BYTES_MAX = 3_800_000
BORROWED_BYTES_MAX = 450_000
"""A tenth more than what docs/spark.md tells."""
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
    nobody = "`group` string, speeds map<string, double>, first bigint, last bigint"
    times = "startup_quantiles array<double>, handoff_quantiles array<double>"
    series = both.drop("cost_mean", "cost_variance")
    rows = messages(series, cost, spark.createDataFrame([], f"{nobody}, {times}"), CALENDAR).collect()
    sizes, shapes = dict.fromkeys((OWN, BORROWED), 0), dict.fromkeys((OWN, BORROWED), 0)
    for row in rows:
        value = as_json(row["value"])
        sizes[value["topic"]] += len(row["key"].encode()) + len(row["value"].encode())
        shapes[value["topic"]] += "shape" in value
    assert len(rows) == 2 * (PARTITIONS + 1)
    assert shapes == {OWN: PARTITIONS + 1, BORROWED: 1}
    assert sizes[OWN] < OWN_BYTES_MAX, sizes
    assert sizes[BORROWED] < BORROWED_BYTES_MAX, sizes
