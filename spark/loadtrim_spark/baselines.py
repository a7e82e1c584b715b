"""From the history to the baseline topic: changed days are summed up, all is learnt again, records are published."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from loadtrim_agent.core.names import BASELINE_TOPIC
from loadtrim_spark.days import DAY_COLUMNS, WHOLE_TOPIC, day_rows
from loadtrim_spark.errors import PipelineError
from loadtrim_spark.history import Tables, is_table
from loadtrim_spark.ingest import Source
from loadtrim_spark.learn import Calendar, backtest, learn, rates, without_outages
from loadtrim_spark.records import chosen, costs, messages, speeds, times

__all__ = ["Published", "baselines", "publish", "update_days"]

DAY_SECONDS = 86_400
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Published:
    """What a publication wrote: counts of records, and bytes of keys and values."""

    records: int
    withdrawn: int
    size_bytes: int


def baselines(days: DataFrame, calendar: Calendar) -> DataFrame:
    """All baselines (group, key, value) from the days' rows. Pure."""
    within = days.where(F.col("date") >= F.to_date(F.timestamp_seconds(
        F.lit(calendar.as_of - calendar.weeks * 7 * DAY_SECONDS))))  # fmt: skip
    every = without_outages(rates(within, calendar), calendar).persist()
    topics, parts = every.where(F.col("partition") == WHOLE_TOPIC), every.where(F.col("partition") != WHOLE_TOPIC)
    learnt_topics = learn(topics, calendar)
    learnt = learnt_topics.unionByName(learn(parts, calendar, learnt_topics))
    # A week ago: the same, from what was known then. Outages of the last week are told by it, but not scored.
    then = calendar.earlier(1)
    before = without_outages(rates(within, then), then)
    old_topics = learn(before.where(F.col("partition") == WHOLE_TOPIC), then)
    old = old_topics.unionByName(learn(before.where(F.col("partition") != WHOLE_TOPIC), then, old_topics))
    series = chosen(learnt, backtest(old, every, calendar))
    groups = within.select("group").distinct().join(speeds(within), on="group", how="left")
    return messages(series, costs(within), groups.join(times(within), on="group", how="left"), calendar)


def update_days(spark: SparkSession, tables: Tables, bucket_seconds: int) -> int:
    """Sum up the days of groups that the ledger says have new rows, or that had another length of buckets.

    Returns:
        How many were read.
    """
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS delta.`{tables.days}` ({DAY_COLUMNS}) USING delta PARTITIONED BY (date, `group`)"
    )
    ledger = spark.read.format("delta").load(tables.ledger).where(F.col("accepted") > 0)
    now = ledger.groupBy("date", "group").agg(F.count(F.lit(1)).alias("entries"))
    done = spark.read.format("delta").load(tables.days).where(F.col("bucket_seconds") == bucket_seconds)
    known = done.groupBy("date", "group").agg(F.max("entries").alias("known"))
    changed = now.join(known, on=["date", "group"], how="left").where(F.coalesce("known", F.lit(0)) != F.col("entries"))
    stale = changed.select("date", "group", "entries").collect()
    dates = sorted({row["date"] for row in stale})
    for date in dates:
        groups = [row["group"] for row in stale if row["date"] == date]
        entries = spark.createDataFrame([tuple(row) for row in stale if row["date"] == date],
                                        "date date, `group` string, entries bigint")  # fmt: skip
        history = spark.read.format("delta").load(tables.history)
        history = history.where((F.col("date") == date) & F.col("group").isin(groups))
        rows = day_rows(history, bucket_seconds).join(F.broadcast(entries), on=["date", "group"], how="inner")
        rows.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic").save(tables.days)
    return len(stale)


def publish(
    spark: SparkSession, source: Source, tables: Tables, calendar: Calendar | None = None, *,
    zone: str = "UTC", bucket_seconds: int = 900, weeks: int = 6, topic: str = BASELINE_TOPIC, tell: Tell | None = None,
) -> Published:  # fmt: skip
    """Learn, and write what was learnt to the compacted baseline topic.

    Args:
        spark: the session.
        source: the cluster.
        tables: the history.
        calendar: None: as of the newest report.
        zone: whose weeks the load follows.
        bucket_seconds: length of a bucket.
        weeks: how far back to look.
        topic: made, compacted, where it is not there.
        tell: is given a line of progress.

    Raises:
        PipelineError: no broker answers, or the topic cannot be made.
    """
    say = tell or _tell
    if not is_table(spark, tables.ledger):
        say(f"there is no history in {tables.root} yet: nothing was learnt and nothing published; run ingest first")
        return Published(0, 0, 0)
    source.check(spark)
    say(f"{update_days(spark, tables, bucket_seconds)} days of groups are new or changed")
    days = spark.read.format("delta").load(tables.days).where(F.col("bucket_seconds") == bucket_seconds)
    newest = days.agg(F.max("start")).first()
    if newest is None or newest[0] is None:
        say(f"the history in {tables.root} has no reports that cover a minute yet: nothing was learnt or published")
        return (
            Published(0, 0, 0) if not is_table(spark, tables.published) else _write(spark, source, tables, topic, None)
        )
    calendar = calendar or Calendar(int(newest[0]) + bucket_seconds, zone, bucket_seconds, weeks)
    done = _write(spark, source, tables, topic, baselines(days, calendar))
    say(f"{done.records} baselines published to {topic}, {done.size_bytes} bytes, {done.withdrawn} withdrawn")
    spark.catalog.clearCache()
    return done


def _write(spark: SparkSession, source: Source, tables: Tables, topic: str, records: DataFrame | None) -> Published:
    """Publish, withdraw what is not there any more by an empty value, then note what is on the topic."""
    if records is None:
        records = spark.createDataFrame([], "`group` string, key string, value string")
    _make_topic(spark, source, topic)
    records = records.persist()
    columns = "topic string, key string"
    spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{tables.published}` ({columns}) USING delta")
    before = spark.read.format("delta").load(tables.published).where(F.col("topic") == topic).select("key")
    gone = before.join(records, on="key", how="left_anti").persist()
    size = F.sum(F.octet_length("key") + F.octet_length("value"))
    counted = records.agg(F.count(F.lit(1)).alias("records"), F.coalesce(size, F.lit(0)).alias("size")).first()
    assert counted is not None
    withdrawn = gone.count()
    everything = records.select("key", "value").unionByName(gone.withColumn("value", F.lit(None).cast("string")))
    everything.write.format("kafka").options(**source.spark()).option("topic", topic).save()
    kept = records.select(F.lit(topic).alias("topic"), "key")
    kept.write.format("delta").mode("overwrite").option("replaceWhere", f"topic = '{topic}'").save(tables.published)
    return Published(int(counted["records"]), withdrawn, int(counted["size"]))


def _make_topic(spark: SparkSession, source: Source, topic: str) -> None:
    jvm = spark._jvm
    assert jvm is not None
    settings = jvm.java.util.HashMap()
    for name, value in source.client().items():
        settings.put(name, value)
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
    try:
        if admin.listTopics().names().get().contains(topic):
            return
        default = jvm.java.util.Optional.empty()
        new = jvm.org.apache.kafka.clients.admin.NewTopic(topic, jvm.java.util.Optional.of(1), default)
        compacted = jvm.java.util.HashMap()
        compacted.put("cleanup.policy", "compact")
        new.configs(compacted)
        admin.createTopics(jvm.java.util.List.of(new)).all().get()
    except Exception as error:  # py4j's, whatever Java threw
        raise PipelineError(
            f"The topic {topic} is not there and could not be made: {str(error).splitlines()[-1][:300]}",
            "Nothing was published.",
            f"Make it: kafka-topics.sh --create --topic {topic} --partitions 1 --config cleanup.policy=compact",
        ) from error
    finally:
        admin.close()


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
