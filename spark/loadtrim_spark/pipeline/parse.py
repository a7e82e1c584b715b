"""Kafka records of the telemetry partition become rows of the history, or of the quarantine with a reason. Pure.

Fields are those of ``report`` and ``decision`` in ``loadtrim_agent.wire.telemetry_records``. One flat row serves
both: what one does not have is null, and so is what the writer left out because it is the default. Fields that this
version does not know are passed over; a later version adds their columns. ``work_windows`` are passed over too: 24
numbers per partition for the leader's next decisions, from which nothing is learnt later; and ``slots_open``, which
the next report tells for good.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from loadtrim_agent.wire.envelope import TELEMETRY

__all__ = ["HISTORY_COLUMNS", "IDENTITY", "QUARANTINE_COLUMNS", "first_of_each", "parsed", "quarantined", "telemetry"]

AHEAD_SECONDS_MAX = 600.0
"""A record whose time is further ahead of the broker's than this is from a clock that is wrong."""
KINDS = ("report", "decision")

IDENTITY = ("kind", "group", "member", "sequence", "at")
"""What tells one record from another: a copy of it has all of these in common."""

_MOVE = "struct<topic: string, partition: int, `from`: string, `to`: string, reason: string>"
_PARTITION = (
    "struct<topic: string, partition: int, arrived: bigint, bytes: bigint, done: bigint, lag: bigint, lag_min: bigint, "
    "lag_seconds: double, cost_mean: double, cost_variance: double, "
    "position: bigint, committed: bigint, state: string, observed: double>"
)
_FIELDS = (
    "kind string, `group` string, member string, at double, v int, sequence bigint, generation bigint, "
    # report
    "instance string, instance_type string, `interval` double, concurrency double, speed double, busy_seconds double, "
    "startup_seconds double, handoffs array<double>, late map<string, bigint>, in_time bigint, "
    "latency_seconds double, latency_counts array<array<double>>, "
    f"slot_seconds double, slots_start double, slots array<double>, partitions array<{_PARTITION}>, "
    # decision
    "outcome string, reason string, reason_code string, objective_seconds double, objective_share double, "
    "policy string, packer string, monitor string, mode string, replicas_actual int, replicas_wanted int, "
    "members map<string, double>, rate double, work double, forecast double, backlog double, "
    f"moves array<{_MOVE}>, victims array<string>, rejected array<struct<replicas: int, reason: string>>, "
    "handoff_seconds double, brake struct<`group`: string, member: string, at: double, action: string, replicas: int>, "
    "state map<string, double>, "
    "baseline struct<used: boolean, reason: string, reason_code: string, ignored: map<string, string>, "
    "scale: double, quantile: double, forecast: double, returning: double, topics: array<string>, seconds: double, "
    "seen: double, expected: double, off: double>, members_opened int, members_bound int"
)
_JSON = f"{_FIELDS}, _corrupt string"
HISTORY_COLUMNS = f"date date, {_FIELDS}, topic string, offset bigint, appended double, ingest string"
"""Schema of the history as DDL. ``date`` is the UTC day of ``at``; ``appended`` the broker's time, seconds."""
QUARANTINE_COLUMNS = (
    "topic string, partition int, offset bigint, appended double, quarantined_for string, key binary, value binary, "
    "ingest string"
)
"""Schema of the quarantine as DDL: the record as it was, and why it is no row of the history."""


def telemetry(raw: DataFrame) -> DataFrame:
    """Those of Kafka's rows that are in the telemetry partition."""
    return raw.where(F.col("partition") == TELEMETRY)


def parsed(raw: DataFrame, late_seconds: float, ingest: str) -> DataFrame:
    """Read each record and say what is wrong with it.

    Args:
        raw: columns of Spark's Kafka source: key, value, topic, partition, offset, timestamp.
        late_seconds: a record that came to the broker later after its own time than this is quarantined.
        ingest: the batch, for the row's column of that name.

    Returns:
        The columns of the history and of the quarantine together; ``quarantined_for`` is null where all is well.
    """
    options = {"columnNameOfCorruptRecord": "_corrupt", "allowNonNumericNumbers": "false"}
    read = raw.select(
        "key",
        "value",
        F.col("topic"),
        F.col("partition"),
        F.col("offset"),
        F.unix_micros("timestamp").cast("double").__truediv__(1e6).alias("appended"),
        F.lit(ingest).alias("ingest"),
        F.from_json(F.col("value").cast("string"), _JSON, options).alias("json"),
    ).withColumn("quarantined_for", _fault(late_seconds))
    fields = [F.col(f"json.`{name}`").alias(name) for name in _names(_FIELDS)]
    # Only the quarantine keeps them, and a batch's rows are kept in memory.
    spoilt = F.col("quarantined_for").isNotNull()
    return read.select(
        F.when(spoilt, F.col("key")).alias("key"), F.when(spoilt, F.col("value")).alias("value"),
        "topic", "partition", "offset", "appended", "ingest", "quarantined_for",
        F.when(F.col("quarantined_for").isNull(), F.to_date(F.timestamp_seconds("json.at"))).alias("date"), *fields,
    )  # fmt: skip


def first_of_each(rows: DataFrame) -> DataFrame:
    """Rows of the history, of copies of one record the one that came first.

    Only what tells records apart is sorted; copies are few, and rows are large.
    """
    good = rows.where(F.col("quarantined_for").isNull())
    order = Window.partitionBy(*IDENTITY).orderBy("appended", "topic", "offset")
    place = ("topic", "partition", "offset")
    copies = (
        good.select(*IDENTITY, *place, "appended")
        .withColumn("copy", F.row_number().over(order)).where(F.col("copy") > 1).select(*place)
    )  # fmt: skip
    firsts = good.join(F.broadcast(copies), on=list(place), how="left_anti")
    return firsts.select(*_names(HISTORY_COLUMNS))


def quarantined(rows: DataFrame) -> DataFrame:
    """Rows of the quarantine."""
    return rows.where(F.col("quarantined_for").isNotNull()).select(*_names(QUARANTINE_COLUMNS))


def _fault(late_seconds: float) -> Column:
    """The first reason that applies, or null."""
    at, appended = F.col("json.at"), F.col("appended")
    absent = [F.col(f"json.`{name}`").isNull() for name in ("group", "member", "at", "sequence")]
    any_absent = absent[0] | absent[1] | absent[2] | absent[3] | (F.col("json.group") == "")
    parts = F.coalesce(F.col("json.partitions"), F.array())
    negative = F.exists(
        parts,
        lambda part: (
            part["topic"].isNull()
            | part["partition"].isNull()
            | (F.coalesce(part["arrived"], F.lit(0)) < 0)
            | (F.coalesce(part["done"], F.lit(0)) < 0)
            | (F.coalesce(part["cost_mean"], F.lit(0.0)) < 0)
            | (F.coalesce(part["observed"], F.lit(0.0)) < 0)
        ),
    )
    interval = F.coalesce(F.col("json.interval"), F.lit(1.0))
    return (
        F.when(F.col("value").isNull(), "empty")
        .when(F.col("json._corrupt").isNotNull() | F.col("json").isNull(), "malformed")
        .when(F.col("json.kind").isNull() | ~F.col("json.kind").isin(*KINDS), "unknown_kind")
        .when(any_absent, "missing_field")
        .when((at <= 0) | (interval <= 0) | negative, "out_of_range")
        .when(at > appended + AHEAD_SECONDS_MAX, "ahead")
        .when(at < appended - late_seconds, "late")
    )


def _names(columns: str) -> list[str]:
    schema = T.StructType.fromDDL(columns)
    assert isinstance(schema, T.StructType)
    return list(schema.fieldNames())
