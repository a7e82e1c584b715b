"""Reading and writing of the pipeline's tables: Delta, below one directory.

Theory of operation. Spark plays a batch again, with the same records, when the driver died before its end. Each
step of a batch is therefore one that finds what an earlier attempt did: a MERGE that inserts what is not there. That
makes the history exact by the records' identity, whatever the batch, the checkpoint or the command they came by, and
needs no state in the stream. Copies have the same time, so a MERGE reads only the files of the batch's span of time.

The order of writes matters: history and quarantine, then the ledger. The ledger tells the baselines which days to
read again; an entry that is missing for a moment only means that the day is read again once more. Entries of copies
alone count too: where a driver died between the two writes and its checkpoint was lost, all that came is copies.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from loadtrim_agent.wire.topic_names import control_topic
from loadtrim_spark.errors import JAVA_ERRORS, PipelineError, is_conflict
from loadtrim_spark.pipeline.columns import HISTORY_COLUMNS, QUARANTINE_COLUMNS
from loadtrim_spark.pipeline.parse import IDENTITY, first_of_each, parsed, quarantined, telemetry

__all__ = [
    "HistoryBatch",
    "Tables",
    "compact",
    "delete_group",
    "forget",
    "is_table",
    "known_topics",
    "literal",
    "note_topics",
    "open_tables",
    "take_in",
]

LEDGER_COLUMNS = "ingest string, date date, `group` string, accepted bigint, copies bigint"
"""Per batch, day and group: rows that are new, and copies of what was there."""
TOPIC_COLUMNS = "topic string, id string"
"""Control topics that the stream has met, and Kafka's id of each: several where a topic was made again."""
CONFLICTS_MAX = 3


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
    def topics(self) -> str:
        """Which control topics the stream has met."""
        return f"{self.root}/topics"

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
class HistoryBatch:
    """What one batch, or several, brought: counts of records.

    Attributes:
        accepted: new in the history.
        copies: of what was there.
        quarantined: in the quarantine, those that an earlier attempt wrote there included.
        reasons: why, (reason, records), sorted.
        lost: deleted by Kafka before they were read.
    """

    accepted: int = 0
    copies: int = 0
    quarantined: int = 0
    reasons: tuple[tuple[str, int], ...] = ()
    lost: int = 0

    def __add__(self, other: HistoryBatch) -> HistoryBatch:
        reasons = Counter(dict(self.reasons)) + Counter(dict(other.reasons))
        return HistoryBatch(
            self.accepted + other.accepted, self.copies + other.copies, self.quarantined + other.quarantined,
            tuple(sorted(reasons.items())), self.lost + other.lost,
        )  # fmt: skip

    def __str__(self) -> str:
        why = ", ".join(f"{reason} {count}" for reason, count in self.reasons)
        lost = f", {self.lost} lost" if self.lost else ""
        quarantined = f"{self.quarantined} quarantined" + (f" ({why})" if why else "")
        return f"{self.accepted} new, {self.copies} copies, {quarantined}{lost}"


def open_tables(spark: SparkSession, tables: Tables) -> None:
    """Make the tables that are not there.

    Raises:
        PipelineError: not every group's directory could be made in them.
    """
    _check_names(spark, tables.root)
    for path, columns, by in (
        (tables.history, HISTORY_COLUMNS, "PARTITIONED BY (date, `group`)"),
        (tables.quarantine, QUARANTINE_COLUMNS, ""),
        (tables.ledger, LEDGER_COLUMNS, ""),
        (tables.topics, TOPIC_COLUMNS, ""),
    ):
        spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{path}` ({columns}) USING delta {by}")


def _check_names(spark: SparkSession, root: str) -> None:
    """Refuse tables on this machine where Java writes names of files in another encoding than UTF-8.

    Else all goes well until the first group comes with an id that the encoding does not have, and ingest ends for all.
    """
    jvm: Any = spark._jvm
    place = jvm.org.apache.hadoop.fs.Path(root).getFileSystem(spark._jsc.hadoopConfiguration()).getUri()
    encoding = jvm.java.lang.System.getProperty("sun.jnu.encoding")
    if place.getScheme() == "file" and encoding.upper() != "UTF-8":
        raise PipelineError(
            f"Java writes names of files in {encoding}, as the locale says, and not in UTF-8.",
            "The tables have a directory of each group: that of a group whose id is not ASCII could not be made, and "
            "nothing of any group would be taken in. Nothing was written.",
            "Set LC_ALL=C.UTF-8 where the command or spark-submit is called, and for executors "
            "--conf spark.executorEnv.LC_ALL=C.UTF-8.",
        )


def take_in(raw: DataFrame, tables: Tables, late_seconds: float, ingest: str) -> HistoryBatch:
    """Write one batch of Kafka's rows. Doing it again changes nothing.

    Args:
        raw: columns of Spark's Kafka source.
        tables: made by :func:`open_tables`.
        late_seconds: see :func:`loadtrim_spark.pipeline.parse.parsed`.
        ingest: name of the batch, the same when it is played again, no other batch's.
    """
    spark = raw.sparkSession
    rows = parsed(telemetry(raw), late_seconds, ingest).persist()
    try:
        found = _counted(rows).collect()
        touched = [row for row in found if row["quarantined_for"] is None]
        counts = {str(row["quarantined_for"]): int(row["read"]) for row in found if row["quarantined_for"] is not None}
        reasons, bad = tuple(sorted(counts.items())), sum(counts.values())
        if bad:
            _insert_new(quarantined(rows), tables.quarantine, ("topic", "partition", "offset", "appended"), "true")
        if not touched:
            return HistoryBatch(0, 0, bad, reasons)
        where = _pruning(touched)
        _insert_new(first_of_each(rows), tables.history, IDENTITY, where)
        accepted = _note(spark, tables, touched, where, ingest)
        return HistoryBatch(accepted, sum(row["read"] for row in touched) - accepted, bad, reasons)
    finally:
        rows.unpersist()


def known_topics(spark: SparkSession, tables: Tables) -> set[tuple[str, str]]:
    """Control topics that the stream has met: name and id."""
    rows = spark.read.format("delta").load(tables.topics).collect()
    return {(row["topic"], row["id"]) for row in rows}


def note_topics(spark: SparkSession, tables: Tables, topics: set[tuple[str, str]]) -> None:
    """Add to the control topics that the stream has met."""
    _insert_new(spark.createDataFrame(sorted(topics), TOPIC_COLUMNS), tables.topics, ("topic", "id"), "true")


def compact(spark: SparkSession, tables: Tables, before: str) -> int:
    """Put the small files of closed days together, and remove files that no table has named for a week.

    Days that batches still write to are left alone.

    Args:
        spark: the session.
        tables: made by :func:`open_tables`.
        before: an ISO date; days earlier than this.

    Returns:
        Files of the history that were replaced.
    """
    replaced = 0
    for path in (tables.quarantine, tables.ledger, tables.days, tables.history):
        if is_table(spark, path):
            closed = f" WHERE date < '{before}'" if path == tables.history else ""
            row = spark.sql(f"OPTIMIZE delta.`{path}`{closed}").first()
            replaced = 0 if row is None else int(row["metrics"]["numFilesRemoved"])
            spark.sql(f"VACUUM delta.`{path}`")
    return replaced


def forget(spark: SparkSession, tables: Tables, before: str) -> int:
    """Remove days from the history, the quarantine, and what was summed up of them, of all groups.

    Args:
        spark: the session.
        tables: made by :func:`open_tables`.
        before: an ISO date; days earlier than this.

    Returns:
        Rows of the history that were removed.
    """
    of_days, of_records = f"date < '{before}'", f"appended < unix_timestamp(DATE'{before}')"
    # A day whose ledger goes before the history is not summed up again from what is left of it.
    for path, where in ((tables.quarantine, of_records), (tables.ledger, of_days), (tables.days, of_days)):
        _delete(spark, path, where)
    return _delete(spark, tables.history, of_days)


def delete_group(spark: SparkSession, tables: Tables, group: str) -> int:
    """Remove a group from the history, the quarantine, and what was summed up of it.

    Its baselines are withdrawn by :func:`loadtrim_spark.pipeline.baselines.withdraw`. The files themselves go with a
    :func:`compact` a week later at the earliest (Delta keeps them for readers that run meanwhile).

    Returns:
        Rows of the history that were removed.
    """
    of_group, of_topic = f"`group` = {literal(group)}", f"topic = {literal(control_topic(group))}"
    for path, where in (
        (tables.days, of_group), (tables.quarantine, of_topic), (tables.ledger, of_group), (tables.topics, of_topic)
    ):  # fmt: skip
        _delete(spark, path, where)
    return _delete(spark, tables.history, of_group)


def is_table(spark: SparkSession, path: str) -> bool:
    """Whether there is a Delta table."""
    jvm: Any = spark._jvm
    found: bool = jvm.io.delta.tables.DeltaTable.isDeltaTable(spark._jsparkSession, path)
    return found


def _delete(spark: SparkSession, path: str, where: str) -> int:
    """Delete rows of a table, if it is one; return how many."""
    if not is_table(spark, path):
        return 0
    row = spark.sql(f"DELETE FROM delta.`{path}` WHERE {where}").first()
    return 0 if row is None else int(row[0])


def _insert_new(rows: DataFrame, path: str, key: tuple[str, ...], where: str) -> None:
    """Insert the rows whose key is not in the table. ``where``: what of the table can hold them."""
    view = f"loadtrim_new_{path.rsplit('/', 1)[-1]}"
    rows.createOrReplaceTempView(view)
    same = " AND ".join(f"old.`{name}` = new.`{name}`" for name in key)
    merge = f"MERGE INTO delta.`{path}` old USING {view} new ON ({where}) AND {same} WHEN NOT MATCHED THEN INSERT *"
    for attempt in range(CONFLICTS_MAX + 1):
        try:
            rows.sparkSession.sql(merge).collect()
            return
        except JAVA_ERRORS as error:
            # Another command changed what this one had read: it is done again, on what is there now.
            if attempt == CONFLICTS_MAX or not is_conflict(error):
                raise


def _counted(rows: DataFrame) -> DataFrame:
    """Records per day and group, and per reason to be in the quarantine, where both are null."""
    spoilt = F.col("quarantined_for").isNotNull()
    return rows.groupBy("quarantined_for", "date", F.when(~spoilt, F.col("group")).alias("group")).agg(
        F.count(F.lit(1)).alias("read"), F.min("at").alias("first"), F.max("at").alias("last")
    )  # fmt: skip


def _pruning(touched: list[T.Row]) -> str:
    """The part of the history that a batch's rows can be in: literals, so that Delta skips files by them."""
    dates = ", ".join(sorted({f"'{row['date']}'" for row in touched}))
    groups = ", ".join(sorted({literal(row["group"]) for row in touched}))
    first, last = min(row["first"] for row in touched), max(row["last"] for row in touched)
    return f"old.date IN ({dates}) AND old.`group` IN ({groups}) AND old.at BETWEEN {first!r}D AND {last!r}D"


def _note(spark: SparkSession, tables: Tables, touched: list[T.Row], where: str, ingest: str) -> int:
    """Write a batch into the ledger, unless an earlier attempt did: all its entries come in one commit.

    Returns:
        The batch's rows in the history. Counted there, so that an attempt that died after its MERGE is counted all the
        same.
    """
    table = spark.sql(
        f"SELECT date, `group` FROM delta.`{tables.history}` old WHERE {where} AND ingest = {literal(ingest)}"
    )
    accepted = {(row["date"], row["group"]): row["count"] for row in table.groupBy("date", "group").count().collect()}
    ledger = spark.read.format("delta").load(tables.ledger)
    if ledger.where(F.col("ingest") == ingest).isEmpty():
        rows = []
        for row in touched:
            new = accepted.get((row["date"], row["group"]), 0)
            rows.append((ingest, row["date"], row["group"], new, row["read"] - new))
        spark.createDataFrame(rows, LEDGER_COLUMNS).write.format("delta").mode("append").save(tables.ledger)
    return sum(accepted.values())


def literal(text: str) -> str:
    """The text as SQL writes it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
