"""From the history to the baseline topic: changed days are summed up, all is learnt again, records are published."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from loadtrim_agent.common.settings import DEFAULTS
from loadtrim_agent.wire.topic_names import BASELINE_TOPIC
from loadtrim_spark.errors import JAVA_ERRORS, PipelineError, explained, is_of_data, reason_of
from loadtrim_spark.learning.days import DAY_COLUMNS, READ, WHOLE_TOPIC, day_rows
from loadtrim_spark.learning.learn import Calendar, backtest, learn, rates, with_week_before, without_outages
from loadtrim_spark.learning.records import chosen, costs, messages, speeds, times
from loadtrim_spark.pipeline.history import Tables, is_table, literal
from loadtrim_spark.pipeline.source import Source
from loadtrim_spark.session import check_zone

__all__ = ["BUCKET_SECONDS", "Published", "baselines", "current_days", "publish", "update_days", "withdraw"]

DAY_SECONDS = 86_400
BUCKET_SECONDS = 900
"""Where nobody says how finely a week is to be told."""
RECORD_COLUMNS = "`group` string, key string, value string"
RECORD_BYTES_MAX = 900_000
"""Key and value. A broker takes 1 MB unless told otherwise, with what it writes around them."""
FAILED_TOLD = 5
"""Groups of which the reason is told where their history cannot be reckoned with. Chosen."""
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Published:
    """What a publication wrote: counts of records, and bytes of keys and values."""

    records: int
    withdrawn: int
    size_bytes: int


def baselines(days: DataFrame, calendar: Calendar) -> DataFrame:
    """All baselines (group, key, value) from the days' rows.

    What is worked out on the way is kept (``localCheckpoint``), as each of it is used several times: one plan of all
    would take Spark longer to think about than to carry out. Where an executor dies meanwhile, the command fails and is
    started again.
    """
    within = days.where(F.col("date") >= F.to_date(F.timestamp_seconds(
        F.lit(calendar.as_of - calendar.weeks * 7 * DAY_SECONDS))))  # fmt: skip
    # A week ago: the same, from what was known then. Outages of the last week are told by it, but not scored.
    both = with_week_before(rates(within, calendar))
    buckets = without_outages(both, calendar).localCheckpoint(eager=False)
    learnt = _learnt(buckets, calendar)
    now = learnt.where(F.col("as_of") == calendar.as_of).drop("as_of")
    series = chosen(now, backtest(learnt, buckets, calendar))
    watched = within.groupBy("group").agg(F.min("start").alias("first"), F.max("start").alias("last"))
    groups = watched.join(speeds(within), on="group", how="left").join(times(within), on="group", how="left")
    return messages(series, costs(within), groups, calendar)


def _learnt(buckets: DataFrame, calendar: Calendar) -> DataFrame:
    """Topics with their own shapes, partitions with their own and with their topic's."""
    topics = learn(buckets.where(F.col("partition") == WHOLE_TOPIC), calendar).localCheckpoint(eager=False)
    parts = learn(buckets.where(F.col("partition") != WHOLE_TOPIC), calendar, topics)
    return topics.unionByName(parts).localCheckpoint(eager=False)


def _of_each(days: DataFrame, calendar: Calendar) -> tuple[DataFrame, dict[str, str]]:
    """Learn of all groups at once, and where the history of one cannot be reckoned with, of all others.

    Returns:
        The records, and group -> reason of what failed.
    """
    try:
        return baselines(days, calendar).localCheckpoint(), {}
    except JAVA_ERRORS as error:
        if not is_of_data(error):
            raise
        groups = sorted(row["group"] for row in days.select("group").distinct().collect())
        if len(groups) == 1:
            return days.sparkSession.createDataFrame([], RECORD_COLUMNS), {groups[0]: reason_of(error)}
        # By halves: one among a thousand is found in ten runs more.
        halves = groups[: len(groups) // 2], groups[len(groups) // 2 :]
        (one, failed), (other, more) = (_of_each(days.where(F.col("group").isin(half)), calendar) for half in halves)
        return one.unionByName(other), failed | more


def _that_fit(records: DataFrame) -> tuple[DataFrame, dict[str, str]]:
    """Leave out the groups of which a record is larger than a broker takes: its refusal would end the command for all.

    Returns:
        The records of the others, and group -> reason of what was left out.
    """
    size = F.octet_length("key") + F.octet_length("value")
    largest = records.groupBy("group").agg(F.max(size).alias("bytes")).where(F.col("bytes") > RECORD_BYTES_MAX)
    failed = {
        row["group"]: f"one record would have {row['bytes']:,} bytes, and a broker takes {RECORD_BYTES_MAX:,}"
        for row in largest.collect()
    }
    return (records.where(~F.col("group").isin(*failed)) if failed else records), failed


def update_days(spark: SparkSession, tables: Tables, bucket_seconds: int) -> int:
    """Sum up the days of groups that the ledger says have new rows, or that had another length of buckets.

    Only those are read. A day of which nothing can be summed up is noted too, so that it is not read at every run.

    Returns:
        How many (days of groups) were read.
    """
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS delta.`{tables.days}` ({DAY_COLUMNS}) USING delta PARTITIONED BY (date, `group`)"
    )
    changed = _changed(spark, tables, _days(spark, tables), bucket_seconds).persist()
    try:
        read = int(changed.count())
        if read:
            rows = _summed_up(spark, tables, changed, bucket_seconds)
            # A group's day is some kilobytes: one file each, but for what is so large that Spark divides it.
            rows.hint("rebalance", "date", "group").write.format("delta").mode("overwrite").option(
                "partitionOverwriteMode", "dynamic"
            ).save(tables.days)
        return read
    finally:
        changed.unpersist()


def current_days(
    spark: SparkSession, tables: Tables, bucket_seconds: int | None = None, group: str | None = None
) -> tuple[DataFrame, int]:
    """What :func:`update_days` would leave in the table, for those who only read: nothing is written.

    Args:
        spark: the session.
        tables: the history.
        bucket_seconds: length of a bucket; None: that of the table's, which needs the least summing up.
        group: only this one.

    Returns:
        Rows of :data:`loadtrim_spark.learning.days.DAY_COLUMNS`, and the length of their buckets.
    """
    days = _days(spark, tables)
    if bucket_seconds is None:
        first = days.select("bucket_seconds").first()
        bucket_seconds = BUCKET_SECONDS if first is None else int(first[0])
    wanted = F.lit(True) if group is None else F.col("group") == group
    changed = _changed(spark, tables, days, bucket_seconds).where(wanted).localCheckpoint()
    known = days.where(wanted & (F.col("bucket_seconds") == bucket_seconds))
    if changed.isEmpty():
        return known, bucket_seconds
    same = known.join(F.broadcast(changed), on=["date", "group"], how="left_anti")
    # Kept, for a back-test looks at it several times.
    fresh = _summed_up(spark, tables, changed, bucket_seconds).localCheckpoint(eager=False)
    return same.unionByName(fresh), bucket_seconds


def publish(
    spark: SparkSession, source: Source, tables: Tables, calendar: Calendar | None = None, *,
    zone: str = DEFAULTS.time_zone, bucket_seconds: int = BUCKET_SECONDS, weeks: int = 6, topic: str = BASELINE_TOPIC,
    tell: Tell | None = None,
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
        tell: is given lines of progress.

    Raises:
        PipelineError: no broker answers, rights are missing, the topic cannot be made, or Java does not know the zone.
            Or nothing can be learnt of a group's history: then the others' baselines are published before.
    """
    say = tell or _tell
    failed: dict[str, str] = {}
    if not is_table(spark, tables.ledger):
        say(f"there is no history in {tables.root} yet: nothing was learnt and nothing published; run ingest first")
        return Published(0, 0, 0)
    source.check(spark)
    check_zone(spark, calendar.zone if calendar else zone)
    try:
        say(f"{update_days(spark, tables, bucket_seconds)} days of groups are new or changed and were summed up")
        days = spark.read.format("delta").load(tables.days).where(F.col("bucket_seconds") == bucket_seconds)
        newest = days.agg(F.max("start")).first()
        if newest is not None and newest[0] is not None:
            source.make_compacted(spark, topic)  # who may not is told before anything is learnt
            calendar = calendar or Calendar(int(newest[0]) + bucket_seconds, zone, bucket_seconds, weeks)
            learnt, unreckoned = _of_each(days, calendar)
            records, too_large = _that_fit(learnt)
            failed = unreckoned | too_large
        elif _is_published(spark, tables, topic):
            records = spark.createDataFrame([], RECORD_COLUMNS)
        else:
            say(f"the history in {tables.root} has no reports that cover a minute yet: nothing was learnt or published")
            return Published(0, 0, 0)
        done = _write(spark, source, tables, topic, records, tuple(failed))
    except JAVA_ERRORS as error:
        raise explained(error, tables.root, source.bootstrap) from error
    finally:
        spark.catalog.clearCache()
    say(f"{done.records} baselines published to {topic}, {done.size_bytes} bytes, {done.withdrawn} withdrawn")
    if failed:
        raise _told_of(failed, done)
    return done


def withdraw(spark: SparkSession, source: Source, tables: Tables, group: str) -> int:
    """Withdraw the baselines of one group from every topic where they were published.

    Returns:
        How many.

    Raises:
        PipelineError: no broker answers, or rights are missing.
    """
    if not is_table(spark, tables.published):
        return 0
    mine = spark.read.format("delta").load(tables.published).where(F.col("group") == group)
    withdrawn = 0
    try:
        for topic in sorted(row["topic"] for row in mine.select("topic").distinct().collect()):
            gone = mine.where(F.col("topic") == topic).select("key", F.lit(None).cast("string").alias("value"))
            withdrawn += gone.count()
            source.check(spark)
            _send(gone, source, topic)
        spark.sql(f"DELETE FROM delta.`{tables.published}` WHERE `group` = {literal(group)}")
    except JAVA_ERRORS as error:
        raise explained(error, tables.root, source.bootstrap) from error
    return withdrawn


def _days(spark: SparkSession, tables: Tables) -> DataFrame:
    """What is summed up already; no rows where nothing is."""
    if not is_table(spark, tables.days):
        return spark.createDataFrame([], DAY_COLUMNS)
    return spark.read.format("delta").load(tables.days)


def _changed(spark: SparkSession, tables: Tables, days: DataFrame, bucket_seconds: int) -> DataFrame:
    """What is not summed up as the ledger has it: date, group, entries (of the ledger)."""
    ledger = spark.read.format("delta").load(tables.ledger)
    now = ledger.groupBy("date", "group").agg(F.count(F.lit(1)).alias("entries"))
    done = days.where((F.col("part") == READ) & (F.col("bucket_seconds") == bucket_seconds)).select(
        "date", "group", F.col("entries").alias("known")
    )
    both = now.join(done, on=["date", "group"], how="left")
    return both.where(F.coalesce("known", F.lit(0)) != F.col("entries")).select("date", "group", "entries")


def _summed_up(spark: SparkSession, tables: Tables, changed: DataFrame, bucket_seconds: int) -> DataFrame:
    """Days' rows of what changed, which are at least one day."""
    span = changed.agg(F.min("date").alias("first"), F.max("date").alias("last")).first()
    assert span is not None
    history = spark.read.format("delta").load(tables.history)
    within = history.where(F.col("date").between(span["first"], span["last"]))
    fresh = within.join(F.broadcast(changed.select("date", "group")), on=["date", "group"], how="left_semi")
    return day_rows(fresh, bucket_seconds, changed)


def _is_published(spark: SparkSession, tables: Tables, topic: str) -> bool:
    if not is_table(spark, tables.published):
        return False
    return not spark.read.format("delta").load(tables.published).where(F.col("topic") == topic).isEmpty()


def _told_of(failed: Mapping[str, str], done: Published) -> PipelineError:
    """Return what the user is told of groups of which nothing could be learnt.

    Args:
        failed: group -> reason.
        done: what was published of all others.
    """
    groups = sorted(failed)
    told = "; ".join(f"{group}: {failed[group]}" for group in groups[:FAILED_TOLD])
    more = f"; and {', '.join(groups[FAILED_TOLD:])}" if len(groups) > FAILED_TOLD else ""
    happened = f"Of {len(groups)} {'group' if len(groups) == 1 else 'groups'} nothing could be learnt ({told}{more})."
    if not done.records:
        return PipelineError(
            happened,
            "There was no other group, so nothing new was published; what these had before stays on the topic.",
            "Where all have one reason, look at that first; else at what their members reported (docs/spark.md).",
        )
    return PipelineError(
        happened,
        "The baselines of all others were published; those that these had before stay on the topic.",
        "Look at what their members reported. If it is nonsense, remove it from the history (docs/spark.md).",
    )


def _write(
    spark: SparkSession, source: Source, tables: Tables, topic: str, records: DataFrame, kept_groups: Sequence[str] = ()
) -> Published:
    """Publish, and withdraw what is not there any more by an empty value.

    What is about to be on the topic is noted before, and what is not any more is struck out after: whoever dies in
    between leaves nothing on the topic that a later run would not know of. What was published of ``kept_groups``
    stays, though there is nothing new of them.
    """
    records = records.persist()
    columns = "topic string, `group` string, key string"
    spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{tables.published}` ({columns}) USING delta")
    known = spark.read.format("delta").load(tables.published).where(F.col("topic") == topic).select("group", "key")
    stays = F.col("group").isin(*kept_groups) if kept_groups else F.lit(False)
    gone = known.where(~stays).join(records, on="key", how="left_anti").persist()
    size = F.sum(F.octet_length("key") + F.octet_length("value"))
    counted = records.agg(F.count(F.lit(1)).alias("records"), F.coalesce(size, F.lit(0)).alias("size")).first()
    assert counted is not None
    withdrawn = gone.count()

    kept = records.select(F.lit(topic).alias("topic"), "group", "key")
    new = kept.join(known.select("key"), on="key", how="left_anti").select(*kept.columns)
    new.write.format("delta").mode("append").save(tables.published)
    empty = gone.select("key", F.lit(None).cast("string").alias("value"))
    _send(records.select("key", "value").unionByName(empty), source, topic)
    if withdrawn:
        still = known.where(stays).select(F.lit(topic).alias("topic"), "group", "key").localCheckpoint()
        kept = kept.unionByName(still)
        struck = kept.write.format("delta").mode("overwrite").option("replaceWhere", f"topic = {literal(topic)}")
        struck.save(tables.published)
    return Published(int(counted["records"]), withdrawn, int(counted["size"]))


def _send(messages: DataFrame, source: Source, topic: str) -> None:
    # Shapes are digits. As members write telemetry, so that every leader can read it.
    options = {"kafka.compression.type": "gzip", **source.spark()}
    messages.write.format("kafka").options(**options).option("topic", topic).save()


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
