"""What a back-test is about: a group's history, a recorded or a generated load; as days' rows, and to be played."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from loadtrim.simulate import Load
from loadtrim_agent.common.partition import Partition
from loadtrim_spark.errors import PipelineError
from loadtrim_spark.evaluation.backtest import counted_days
from loadtrim_spark.evaluation.generate import TOPIC, arrivals
from loadtrim_spark.evaluation.replay import between
from loadtrim_spark.evaluation.truth import SCENARIOS
from loadtrim_spark.learning.days import MINUTE_SECONDS, WHOLE_TOPIC, total
from loadtrim_spark.learning.records import costs
from loadtrim_spark.pipeline.baselines import current_days
from loadtrim_spark.pipeline.history import Tables

__all__ = ["Study", "generated", "recorded", "remembered"]

PARTITIONS = 12
"""Of a recorded load, which tells of none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A load to learn from and to judge by.

    Attributes:
        days: rows of :data:`loadtrim_spark.learning.days.DAY_COLUMNS`.
        bucket_seconds: length of their buckets.
        zone: whose weeks it follows.
        load: what arrived from a moment (seconds since the epoch) on for so many seconds.
    """

    days: DataFrame
    bucket_seconds: int
    zone: str
    load: Callable[[int, int], Load]


def generated(spark: SparkSession, name: str, bucket_seconds: int) -> Study:
    """One of :data:`loadtrim_spark.evaluation.truth.SCENARIOS`."""
    truth = SCENARIOS[name]
    minutes = arrivals(spark, truth).select((F.col("minute") * MINUTE_SECONDS).alias("start"), "arrived")
    days = counted_days(minutes, MINUTE_SECONDS, bucket_seconds, name, TOPIC)
    return Study(days=days, bucket_seconds=bucket_seconds, zone=truth.zone, load=truth.load)


def recorded(spark: SparkSession, path: str, bucket_seconds: int, zone: str) -> Study:
    """A CSV with a header, time (seconds, or a date; without a zone it is UTC) and count.

    Raises:
        PipelineError: it cannot be read, or is no such file.
    """
    counts, step = _counts(spark, path)
    bucket = max(bucket_seconds, step)

    def load(begin: int, seconds: int) -> Load:
        near = counts.where((F.col("start") > begin - 2 * step) & (F.col("start") < begin + seconds + 2 * step))
        rows = [(int(row["start"]), float(row["arrived"])) for row in near.orderBy("start").collect()]
        return between(rows, step, begin, seconds, {Partition(TOPIC, index): 1.0 for index in range(PARTITIONS)})

    return Study(
        days=counted_days(counts, step, bucket, Path(path).name, TOPIC), bucket_seconds=bucket, zone=zone, load=load
    )


def remembered(spark: SparkSession, tables: Tables, group: str | None, bucket_seconds: int | None, zone: str) -> Study:
    """A group's history, or that of all groups, which cannot be played.

    Args:
        spark: the session.
        tables: with a history in them.
        group: None: all of them.
        bucket_seconds: None: as `baselines` summed them up last.
        zone: whose weeks it follows.
    """
    days, bucket = current_days(spark, tables, bucket_seconds, group)

    def load(begin: int, seconds: int) -> Load:
        if group is None:
            raise PipelineError("Only one group can be played at a time.", "Nothing was played.", "Name it by --group.")
        return _played(spark.read.format("delta").load(tables.history), days, group, begin, seconds)

    return Study(days=days, bucket_seconds=bucket, zone=zone, load=load)


def _played(history: DataFrame, days: DataFrame, group: str, begin: int, seconds: int) -> Load:
    """By minutes and each partition's share of the whole time: two small tables, however many reports there were."""
    end = begin + seconds + 2 * MINUTE_SECONDS
    reports = history.where((F.col("kind") == "report") & (F.col("group") == group))
    reports = reports.where((F.col("at") > begin - 2 * MINUTE_SECONDS) & (F.col("at") <= end))
    arrived = reports.select(F.floor(F.col("at") / MINUTE_SECONDS).alias("minute"), F.explode("partitions").alias("p"))
    arrived = arrived.select("minute", "p.topic", "p.partition", F.coalesce("p.arrived", F.lit(0)).alias("arrived"))
    minutes = arrived.groupBy("minute").agg(total(F.col("arrived")).alias("arrived")).orderBy("minute").collect()
    parts = arrived.groupBy("topic", "partition").agg(total(F.col("arrived")).alias("arrived")).collect()
    weights = {Partition(row["topic"], row["partition"]): float(row["arrived"]) for row in parts}
    if not any(weights.values()):
        raise PipelineError(
            f"The history of {group} tells of no record in the time that was to be played.",
            "Nothing was played.",
            "Give other dates by --to, or leave --play out.",
        )
    counts = [(row["minute"] * MINUTE_SECONDS, row["arrived"]) for row in minutes]
    load = between(counts, MINUTE_SECONDS, begin, seconds, weights)
    spent = costs(days).where(F.col("partition") == WHOLE_TOPIC).agg(F.avg("cost_mean")).first()
    cost = None if spent is None else spent[0]
    return load if cost is None else replace(load, cost_seconds=float(cost))


def _counts(spark: SparkSession, path: str) -> tuple[DataFrame, int]:
    """start (seconds since the epoch), arrived; and the seconds from one count to the next."""
    try:
        raw = spark.read.option("header", True).csv(path)
        if len(raw.columns) < 2:
            raise _no_load(path, f"it has {len(raw.columns)} columns")
        time, count = (F.col(f"`{name}`") for name in raw.columns[:2])
        seconds = F.coalesce(time.try_cast("double"), F.unix_seconds(time.try_cast("timestamp")).cast("double"))
        counts = raw.select(F.floor(seconds).alias("start"), count.try_cast("double").alias("arrived"))
        counts = counts.where("start is not null and arrived >= 0").select(
            "start", F.round("arrived").cast("bigint").alias("arrived")
        )  # fmt: skip
        rows = counts.select("start").distinct()
        before = F.lag("start").over(Window.orderBy("start"))
        step = rows.select((F.col("start") - before).alias("apart")).agg(F.min("apart")).collect()[0][0]
        first = rows.agg(F.min("start")).collect()[0][0]
        off = rows.where((F.col("start") - first) % step != 0).count() if step else 0
    except PySparkException as error:
        raise _no_load(path, str(error).splitlines()[0][:200]) from error
    if not step:
        raise _no_load(path, "it has fewer than two counts")
    if step % MINUTE_SECONDS:
        raise _no_load(path, f"the nearest of its counts are {step} s apart, which is no whole number of minutes")
    if off:
        raise _no_load(path, f"the nearest of its counts are {step} s apart, and {off} are at no multiple of that")
    return counts, int(step)


def _no_load(path: str, why: str) -> PipelineError:
    return PipelineError(
        f"{path} is no recorded load: {why}.",
        "Nothing was judged.",
        "Give a CSV with a header and two columns, time and count, a count a minute or less often; names without a "
        "directory are looked up in $LOADTRIM_DATA.",
    )
