"""Reading and writing of the pipeline's tables: Delta, below one directory.

Theory of operation. Spark plays a batch again, with the same records, when the driver died before its end. Each
step of a batch is therefore one that finds what an earlier attempt did: a MERGE that inserts what is not there. That
makes the history exact by the records' identity, whatever the batch, the checkpoint or the command they came by, and
needs no state in the stream. Copies have the same time, so a MERGE reads only the files of the batch's span of time.

The order of writes matters: history and quarantine, then the ledger. The ledger tells the baselines which days to
read again; an entry that is missing for a moment only means that the day is read again once more.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from loadtrim_spark.parse import (
    HISTORY_COLUMNS,
    IDENTITY,
    QUARANTINE_COLUMNS,
    first_of_each,
    parsed,
    quarantined,
    telemetry,
)

__all__ = ["Batch", "Tables", "compact", "delete_group", "open_tables", "take_in"]

LEDGER_COLUMNS = "ingest string, date date, `group` string, accepted bigint, copies bigint"
"""Per batch, day and group: rows that are new, and copies of what was there."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Where everything is.

    Attributes:
        root: a directory or a URL of a file system that Spark knows, without a slash at its end.
    """

    root: str

    @property
    def history(self) -> str:
        """Reports and decisions, partitioned by date and group."""
        return f"{self.root}/history"

    @property
    def quarantine(self) -> str:
        """Records that are no rows of the history, with the reason."""
        return f"{self.root}/quarantine"

    @property
    def ledger(self) -> str:
        """What each batch brought."""
        return f"{self.root}/ledger"

    @property
    def days(self) -> str:
        """What was summed up from the history per day and group."""
        return f"{self.root}/days"

    @property
    def published(self) -> str:
        """Keys of the baselines that are on the topic."""
        return f"{self.root}/published"

    @property
    def checkpoint(self) -> str:
        """The stream's checkpoint."""
        return f"{self.root}/checkpoint"


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch brought: counts of records."""

    accepted: int
    copies: int
    quarantined: int


def open_tables(spark: SparkSession, tables: Tables) -> None:
    """Make the tables that are not there."""
    for path, columns, by in (
        (tables.history, HISTORY_COLUMNS, "PARTITIONED BY (date, `group`)"),
        (tables.quarantine, QUARANTINE_COLUMNS, ""),
        (tables.ledger, LEDGER_COLUMNS, ""),
    ):
        spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{path}` ({columns}) USING delta {by}")


def take_in(raw: DataFrame, tables: Tables, late_seconds: float, ingest: str) -> Batch:
    """Write one batch of Kafka's rows. Doing it again changes nothing.

    Args:
        raw: columns of Spark's Kafka source.
        tables: made by :func:`open_tables`.
        late_seconds: see :func:`loadtrim_spark.parse.parsed`.
        ingest: name of the batch, the same when it is played again, no other batch's.
    """
    spark = raw.sparkSession
    rows = parsed(telemetry(raw), late_seconds, ingest).persist()
    try:
        good = rows.where(F.col("quarantined_for").isNull())
        touched = good.groupBy("date", "group").agg(
            F.count(F.lit(1)).alias("read"), F.min("at").alias("first"), F.max("at").alias("last")
        ).collect()  # fmt: skip
        bad = rows.where(F.col("quarantined_for").isNotNull()).count()
        if bad:
            _insert_new(quarantined(rows), tables.quarantine, ("topic", "partition", "offset", "appended"), "true")
        if not touched:
            return Batch(0, 0, bad)
        where = _pruning(touched)
        _insert_new(first_of_each(rows), tables.history, IDENTITY, where)
        entries = _ledger_entries(spark, tables, touched, where, ingest)
        _insert_new(entries, tables.ledger, ("ingest", "date", "group"), "true")
        accepted = sum(row["accepted"] for row in entries.collect())
        return Batch(accepted, sum(row["read"] for row in touched) - accepted, bad)
    finally:
        rows.unpersist()


def compact(spark: SparkSession, tables: Tables, before: str) -> int:
    """Put the small files of closed days together. Days that batches still write to are left alone.

    Args:
        spark: the session.
        tables: made by :func:`open_tables`.
        before: an ISO date; days earlier than this.

    Returns:
        Files that were replaced.
    """
    spark.sql(f"OPTIMIZE delta.`{tables.ledger}`")
    row = spark.sql(f"OPTIMIZE delta.`{tables.history}` WHERE date < '{before}'").first()
    return 0 if row is None else int(row["metrics"]["numFilesRemoved"])


def delete_group(spark: SparkSession, tables: Tables, group: str) -> int:
    """Remove a group from the history and from what was summed up of it. Its baselines go with the next publication.

    Returns:
        Rows of the history that were removed.
    """
    literal = _literal(group)
    removed = 0
    for path in (tables.days, tables.ledger, tables.history):
        if is_table(spark, path):
            row = spark.sql(f"DELETE FROM delta.`{path}` WHERE `group` = {literal}").first()
            removed = 0 if row is None else int(row[0])
    return removed


def is_table(spark: SparkSession, path: str) -> bool:
    """Whether there is a Delta table."""
    jvm = spark._jvm
    assert jvm is not None
    found: bool = jvm.io.delta.tables.DeltaTable.isDeltaTable(spark._jsparkSession, path)
    return found


def _insert_new(rows: DataFrame, path: str, key: tuple[str, ...], where: str) -> None:
    """Insert the rows whose key is not in the table. ``where``: what of the table can hold them."""
    view = f"loadtrim_new_{path.rsplit('/', 1)[-1]}"
    rows.createOrReplaceTempView(view)
    same = " AND ".join(f"old.`{name}` = new.`{name}`" for name in key)
    rows.sparkSession.sql(
        f"MERGE INTO delta.`{path}` old USING {view} new ON ({where}) AND {same} WHEN NOT MATCHED THEN INSERT *"
    ).collect()


def _pruning(touched: list[T.Row]) -> str:
    """The part of the history that a batch's rows can be in: literals, so that Delta skips files by them."""
    dates = ", ".join(sorted({f"'{row['date']}'" for row in touched}))
    groups = ", ".join(sorted({_literal(row["group"]) for row in touched}))
    first, last = min(row["first"] for row in touched), max(row["last"] for row in touched)
    return f"old.date IN ({dates}) AND old.`group` IN ({groups}) AND old.at BETWEEN {first!r}D AND {last!r}D"


def _ledger_entries(spark: SparkSession, tables: Tables, touched: list[T.Row], where: str, ingest: str) -> DataFrame:
    """Counted from the history, so that an attempt that died after its MERGE is counted all the same."""
    table = spark.sql(f"SELECT date, `group` FROM delta.`{tables.history}` old WHERE {where} AND ingest = '{ingest}'")
    accepted = {(row["date"], row["group"]): row["count"] for row in table.groupBy("date", "group").count().collect()}
    rows = []
    for row in touched:
        new = accepted.get((row["date"], row["group"]), 0)
        rows.append((ingest, row["date"], row["group"], new, row["read"] - new))
    return spark.createDataFrame(rows, LEDGER_COLUMNS)


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
