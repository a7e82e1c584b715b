"""The history summed up per day and group: all that baselines are learnt from. Pure, but that Spark keeps the minutes.

One flat table, so that a day is replaced in one write. ``part`` says what a row is:

=========  ===================================================================================================
bucket     arrivals of a partition in those minutes of a bucket that are known; partition -1 is the whole topic
cost       a topic's records and their cost, per partition and type of instance
startup    start-up times; ``handoff``: handoff times
summed     that the day was read, when the ledger had so many entries of it, whatever was found
=========  ===================================================================================================

A minute of a partition is known where reports tell of it, and unknown is never zero:

- An entry tells of the seconds that it observed. While a member's buffer is full it observes nothing, and a later
  entry tells of all that time: its records are spread evenly over it, as far as it lies within the day.
- A member does not name a partition that nothing happens to, but for once in ``REFRESH_SECONDS``. So nothing came
  between two entries of one member that are not too far apart.
- Everything else is unknown: no member that is heard owns the partition. In a mixed group a plain consumer may.

A minute of a topic is known where that of each of its partitions is.

Buckets are of absolute time; days and weeks of a time zone come in when baselines are learnt.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from loadtrim_agent.metering.partition_meter import REFRESH_SECONDS
from loadtrim_agent.metering.readings import PartitionState

__all__ = ["DAY_COLUMNS", "READ", "WHOLE_TOPIC", "day_rows", "total"]

READ = "summed"
"""Another name than in earlier versions, which took unknown minutes for zero: their days are summed up again."""
WHOLE_TOPIC = -1
MINUTE_SECONDS = 60
DAY_SECONDS = 86_400
COVERED_SECONDS_MIN = 45.0
"""A minute is known when reports tell of this much of it."""
QUIET_SECONDS_MAX = 2.0 * REFRESH_SECONDS
"""Longest time without an entry in which nothing came: reports are up to ``REFRESH_SECONDS`` apart as well. Chosen."""
TOTAL_MAX = 10**18
"""Sums of records are cut here: far above what a cluster takes in a day, and far below what overflows. Chosen."""
OBSERVED_SECONDS_MAX = 3600.0
"""Arrivals over a longer time say nothing about its parts, so that is unknown. Chosen: no bucket is longer."""

DAY_COLUMNS = (
    "date date, `group` string, part string, topic string, partition int, start bigint, covered int, arrived bigint, "
    "minutes array<bigint>, instance_type string, done bigint, cost double, cost_square double, seconds array<double>, "
    "bucket_seconds int, entries bigint"
)
"""Schema as DDL. ``start``: seconds since the epoch; ``covered``: how many minutes of the bucket are known;
``minutes``: arrivals of those that had any;
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
        "date", "group", "member", "at", F.coalesce("interval", F.lit(1.0)).alias("interval"), "instance_type",
        "startup_seconds", "handoffs", F.coalesce("partitions", F.array()).alias("partitions"),
    )  # fmt: skip
    # Kept, for two read it: a row per minute of a partition, where the history has one per report. A fifth of the time.
    minutes = _minutes(reports).localCheckpoint(eager=False)
    parts = [_buckets(_known(minutes), bucket_seconds), _costs(minutes)]
    parts += [_times(reports, "startup", F.array("startup_seconds")), _times(reports, "handoff", F.col("handoffs"))]
    if read is not None:
        parts.append(read.select("date", "group", F.lit(READ).alias("part"), "entries"))
    rows = history.sparkSession.createDataFrame([], DAY_COLUMNS).drop("bucket_seconds")
    for part in parts:
        rows = rows.unionByName(part, allowMissingColumns=True)
    return rows.withColumn("bucket_seconds", F.lit(bucket_seconds))


def _entries(reports: DataFrame) -> DataFrame:
    """Return what reports tell of partitions, a row for each minute that an entry reaches into.

    Besides what the entry tells: ``minute``, and whether it was written in that one (``own``). Of this minute
    ``seconds`` were observed, and ``records`` came in these.
    """
    part = F.col("p")
    told = reports.select(
        "group", "member", F.coalesce("instance_type", F.lit("")).alias("instance_type"), "at", "interval",
        F.explode("partitions").alias("p"),
    ).select(
        "*", part["topic"].alias("topic"), part["partition"].alias("partition"),
        F.coalesce(part["arrived"], F.lit(0)).alias("arrived"),
        F.coalesce(part["observed"], F.col("interval")).alias("observed"), _minute(F.col("at")).alias("written"),
    )  # fmt: skip
    told = told.withColumn("known", (F.col("observed") > 0) & (F.col("observed") <= OBSERVED_SECONDS_MAX))
    # The day before is summed up without this report: what it tells of that is left out.
    midnight = F.floor(F.col("at") / DAY_SECONDS) * DAY_SECONDS
    begin = F.when(F.col("known"), F.greatest(F.col("at") - F.col("observed"), midnight)).otherwise(F.col("at"))
    each = told.withColumn("begin", begin).withColumn(
        "minute", F.explode(F.sequence(_minute(F.col("begin")), F.col("written")))
    )

    def until(minute: Column) -> Column:
        """Return the records that came before a minute, in whole numbers that add up."""
        seconds = minute * MINUTE_SECONDS - (F.col("at") - F.col("observed"))
        share = F.greatest(F.lit(0.0), F.least(F.lit(1.0), seconds / F.col("observed")))
        return F.floor(F.col("arrived") * share)

    records = until(F.col("minute") + 1) - until(F.col("minute"))
    return each.withColumns({
        "own": F.col("minute") == F.col("written"),
        "seconds": F.when(F.col("known"), _seconds_within(F.col("begin"), F.col("at"))).otherwise(F.lit(0.0)),
        "records": F.when(F.col("known"), records).otherwise(F.lit(0)),
    })  # fmt: skip


def _minutes(reports: DataFrame) -> DataFrame:
    """Return what each member tells of each partition and minute.

    Of entries that were written in the minute, if any, there is the time that they are about: from ``since`` to ``at``,
    with the sum of their ``intervals``. The partition may be ``gone`` by then.
    """
    part, own = F.col("p"), F.col("own")
    mean, variance = part["cost_mean"], F.coalesce(part["cost_variance"], F.lit(0.0))
    done = F.when(own & (part["done"] > 0) & mean.isNotNull(), part["done"])
    gone = F.max(F.when(own & (part["state"] == PartitionState.GONE.value), F.col("at")))
    return (
        _entries(reports)
        .groupBy("group", "topic", "partition", "minute", "member", "instance_type")
        .agg(
            total(F.col("records")).alias("arrived"), F.sum("seconds").alias("seconds"),
            F.min(F.when(own, F.col("at") - F.col("interval"))).alias("since"),
            F.max(F.when(own, F.col("at"))).alias("at"), F.sum(F.when(own, F.col("interval"))).alias("intervals"),
            gone.alias("gone_at"), total(done).alias("done"), F.sum(done * mean).alias("cost"),
            F.sum(done * (variance + mean * mean)).alias("cost_square"),
        )
        .withColumn("gone", F.coalesce(F.col("gone_at") == F.col("at"), F.lit(False))).drop("gone_at")
        # Not among what is grouped by, since the minute tells it: every row is looked up by all of that.
        .withColumn("date", F.to_date(F.timestamp_seconds(F.col("minute") * MINUTE_SECONDS)))
    )  # fmt: skip


def _quiet(minutes: DataFrame) -> DataFrame:
    """Return the seconds of each minute in which a member that owns a partition had nothing to tell of it."""
    in_turn = Window.partitionBy("date", "group", "topic", "partition").orderBy("at")
    stays = (F.lag("member").over(in_turn) == F.col("member")) & ~F.lag("gone").over(in_turn)
    named = minutes.where(F.col("at").isNotNull()).withColumn("begin", F.when(stays, F.lag("at").over(in_turn)))
    within = F.greatest(F.lit(0.0), F.col("at") - F.col("since") - F.col("intervals"))
    between = (
        named.where((F.col("since") - F.col("begin")).between(0.0, QUIET_SECONDS_MAX))
        .withColumn("minute", F.explode(F.sequence(_minute(F.col("begin")), _minute(F.col("since")))))
        .withColumn("seconds", _seconds_within(F.col("begin"), F.col("since")))
    )
    columns = ("date", "group", "topic", "partition", "minute", F.lit(0).alias("arrived"), "seconds")
    return named.withColumn("seconds", within).select(*columns).unionByName(between.select(*columns))


def _known(minutes: DataFrame) -> DataFrame:
    """Return the arrivals in the minutes that are known, of partitions and of whole topics."""
    columns = ("date", "group", "topic", "partition", "minute", "arrived", "seconds")
    parts = (
        minutes.select(*columns).unionByName(_quiet(minutes))
        .groupBy("date", "group", "topic", "partition", "minute")
        .agg(total(F.col("arrived")).alias("arrived"), F.sum("seconds").alias("seconds"))
        .where(F.col("seconds") >= COVERED_SECONDS_MIN).drop("seconds")
    )  # fmt: skip
    # Partitions are numbered from 0: those that nobody names are there all the same.
    counts = minutes.groupBy("date", "group", "topic").agg((F.max("partition") + 1).alias("partitions"))
    topics = (
        parts.groupBy("date", "group", "topic", "minute")
        .agg(total(F.col("arrived")).alias("arrived"), F.count(F.lit(1)).alias("told"))
        .join(counts, on=["date", "group", "topic"], how="inner").where(F.col("told") == F.col("partitions"))
        .select("date", "group", "topic", F.lit(WHOLE_TOPIC).alias("partition"), "minute", "arrived")
    )  # fmt: skip
    return parts.unionByName(topics)


def _buckets(known: DataFrame, bucket_seconds: int) -> DataFrame:
    return (
        known.groupBy("date", "group", "topic", "partition", _start(bucket_seconds).alias("start"))
        .agg(
            total(F.col("arrived")).alias("arrived"),
            F.sort_array(F.collect_list(F.when(F.col("arrived") > 0, F.col("arrived")))).alias("minutes"),
            F.count(F.lit(1)).cast("int").alias("covered"),
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


def _minute(at: Column) -> Column:
    return F.floor(at / MINUTE_SECONDS)


def _seconds_within(begin: Column, end: Column) -> Column:
    """Return how much of ``minute`` lies between two moments."""
    first = F.col("minute") * MINUTE_SECONDS
    return F.greatest(F.lit(0.0), F.least(end, first + MINUTE_SECONDS) - F.greatest(begin, first))
