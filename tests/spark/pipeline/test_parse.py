"""Records become rows of the history, or of the quarantine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from loadtrim_agent.wire.codec import encode
from loadtrim_agent.wire.ownership_records import ManualOverrideRecord, MovePlan
from loadtrim_agent.wire.telemetry_records import BaselineUse, DecisionRecord, PartitionReport, ReportRecord
from loadtrim_spark.pipeline.history import Tables, open_tables, take_in
from loadtrim_spark.pipeline.parse import HISTORY_COLUMNS, first_of_each, parsed
from spark.harness import MONDAY, decision, report

KAFKA_COLUMNS = "key binary, value binary, topic string, `partition` int, offset bigint, appended double"


def kafka_rows(spark: SparkSession, values: list[bytes | None], appended: float = MONDAY + 10.0) -> DataFrame:
    """As Spark's source gives them."""
    rows = [(b"k", None if v is None else bytearray(v), "c", 1, n, appended) for n, v in enumerate(values)]
    raw = spark.createDataFrame(rows, KAFKA_COLUMNS)
    return raw.select("*", F.timestamp_seconds("appended").alias("timestamp")).drop("appended")


def fields(of: T.DataType, name: str) -> set[str]:
    """Names of the structure that a column holds, itself or in an array."""
    assert isinstance(of, T.StructType)
    held = of[name].dataType
    held = held.elementType if isinstance(held, T.ArrayType) else held
    assert isinstance(held, T.StructType)
    return set(held.fieldNames())


def test_history_has_a_column_for_every_field_but_those_for_the_moment(spark: SparkSession) -> None:
    schema = spark.createDataFrame([], HISTORY_COLUMNS).schema

    def written(kind: type[msgspec.Struct]) -> set[str]:
        return {field.encode_name for field in msgspec.structs.fields(kind)}

    assert (written(ReportRecord) - {"slots_open"}) | written(DecisionRecord) <= set(schema.fieldNames())
    assert fields(schema, "partitions") == written(PartitionReport) - {"work_windows"}
    assert fields(schema, "moves") == written(MovePlan)
    assert written(ManualOverrideRecord) - {"v"} == fields(schema, "brake")
    assert fields(schema, "baseline") == written(BaselineUse)


SPOILT = [
    (None, "empty"),
    (b"{", "malformed"),
    (b"[1]", "malformed"),
    (b"\xff\xfe", "malformed"),
    (b'{"kind":"report","group":"g","member":"m","at":"noon","sequence":1}', "malformed"),
    (b"{}", "unknown_kind"),
    (b'{"kind":"novel","group":"g","member":"m","at":1,"sequence":1}', "unknown_kind"),
    (b'{"kind":"report","member":"m","at":1,"sequence":1}', "missing_field"),
    (b'{"kind":"report","group":"g","member":"m","at":1e300,"sequence":1}', "ahead"),
    (b'{"kind":"report","group":"g","member":"m","at":-1,"sequence":1}', "out_of_range"),
    (b'{"kind":"report","group":"g","member":"m","at":1,"sequence":1,"interval":0}', "out_of_range"),
    (b'{"kind":"report","group":"g","member":"m","at":1,"sequence":1}', "late"),
]


def test_reasons(spark: SparkSession) -> None:
    """Each as it was, in the order of writing; none has a day, which a time out of all bounds could not have."""
    rows = parsed(kafka_rows(spark, [value for value, _ in SPOILT]), 60.0, "b/0").orderBy("offset").collect()
    assert [(row["value"], row["quarantined_for"], row["date"]) for row in rows] == [
        (value, reason, None) for value, reason in SPOILT
    ]


def test_copies_and_disorder_come_out_the_same(spark: SparkSession) -> None:
    """The same row as small rows written by hand, whatever the order of what was written and how often."""
    records = [encode(report(n, MONDAY + n)) for n in (1, 2)]
    expected = spark.createDataFrame(
        [("report", "g", "m", float(MONDAY + 1), 1, 5), ("report", "g", "m", float(MONDAY + 2), 2, 5)],
        "kind string, `group` string, member string, at double, sequence bigint, arrived bigint",
    )
    for order in ([0, 1], [1, 0, 1, 0, 0]):
        rows = first_of_each(parsed(kafka_rows(spark, [records[n] for n in order]), 60.0, "b/0"))
        found = rows.select(
            "kind", "group", "member", "at", "sequence", F.col("partitions")[0]["arrived"].alias("arrived")
        )
        assert_df_equality(found, expected, ignore_row_order=True)


def test_why_each_topics_baseline_is_ignored_is_kept(spark: SparkSession) -> None:
    use = BaselineUse(reason_code="stale", reason="for t it is old", ignored={"t": "stale", "u": "missing"})
    mixed = msgspec.structs.replace(decision(1, MONDAY + 1.0), baseline=use)
    (row,) = first_of_each(parsed(kafka_rows(spark, [encode(mixed)]), 60.0, "b/0")).collect()
    assert (row["baseline"]["reason_code"], row["baseline"]["ignored"]) == ("stale", {"t": "stale", "u": "missing"})


def test_the_same_sequence_at_another_time_is_another_record(spark: SparkSession) -> None:
    """A member that starts again counts from the beginning."""
    values = [encode(report(1, MONDAY + 1)), encode(report(1, MONDAY + 5)), encode(decision(1, MONDAY + 1))]
    assert first_of_each(parsed(kafka_rows(spark, values), 60.0, "b/0")).count() == 3


def test_a_field_of_a_later_version_is_passed_over(spark: SparkSession) -> None:
    later = {**json.loads(encode(report(1, MONDAY + 1))), "v": 2, "colour": {"deep": [1]}}
    rows = first_of_each(parsed(kafka_rows(spark, [json.dumps(later).encode()]), 60.0, "b/0")).collect()
    assert [(row["v"], row["sequence"], row["partitions"][0]["arrived"]) for row in rows] == [(2, 1, 5)]


def test_tables_of_an_earlier_and_of_a_later_version(spark: SparkSession, tmp_path: Path) -> None:
    """A column or a field within one that the table lacks is added; one that only the table has is null."""
    tables = Tables(str(tmp_path))
    earlier = [
        column.replace("ignored:map<string,string>,", "")
        for column in _columns(spark)
        if not column.startswith("`brake`")
    ]
    assert len([column for column in _columns(spark) if "ignored:" in column]) == 1
    spark.sql(
        f"CREATE TABLE delta.`{tables.history}` ({', '.join(earlier)}, colour string) USING delta "
        "PARTITIONED BY (date, `group`)"
    )
    open_tables(spark, tables)
    braked = msgspec.structs.replace(
        decision(1, MONDAY + 1.0),
        manual_override=ManualOverrideRecord(group="g", member="cli", at=1.0, action="hold"),
        baseline=BaselineUse(used=True, scale=1.5, ignored={"t": "stale"}),
    )
    take_in(kafka_rows(spark, [encode(braked)]), tables, 60.0, "b/0")
    row = spark.read.format("delta").load(tables.history).first()
    assert row is not None
    assert (row["colour"], row["brake"]["action"], row["reason"]) == (None, "hold", "All fits.")
    assert (row["baseline"]["ignored"], row["baseline"]["scale"]) == ({"t": "stale"}, 1.5)


def _columns(spark: SparkSession) -> list[str]:
    schema: Any = spark.createDataFrame([], HISTORY_COLUMNS).schema
    return [f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields]
