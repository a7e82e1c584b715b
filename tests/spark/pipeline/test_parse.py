"""Records become rows of the history, or of the quarantine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from loadtrim_agent.wire.codec import decode, encode
from loadtrim_agent.wire.envelope import UnreadableRecord
from loadtrim_agent.wire.ownership_records import ManualOverrideRecord
from loadtrim_agent.wire.telemetry_records import BaselineUse
from loadtrim_agent.wire.topic_names import control_topic
from loadtrim_spark.pipeline.columns import HISTORY_COLUMNS
from loadtrim_spark.pipeline.history import Tables, open_tables, take_in
from loadtrim_spark.pipeline.parse import first_of_each, is_topic_of, parsed
from spark.harness import MONDAY, decision, report

KAFKA_COLUMNS = "key binary, value binary, topic string, `partition` int, offset bigint, appended double"


def kafka_rows(
    spark: SparkSession,
    values: list[bytes | None],
    appended: float = MONDAY + 10.0,
    topic: str = "__loadtrim.g",
) -> DataFrame:
    """As Spark's source gives them."""
    rows = [(b"k", None if v is None else bytearray(v), topic, 1, n, appended) for n, v in enumerate(values)]
    raw = spark.createDataFrame(rows, KAFKA_COLUMNS)
    return raw.select("*", F.timestamp_seconds("appended").alias("timestamp")).drop("appended")


def of_topic(topic: bytes) -> bytes:
    start = b'{"kind":"report","group":"g","member":"m","at":1,"sequence":1,"partitions":[{"topic":"'
    return start + topic + b'","partition":0}]}'


def of_partition(field: bytes) -> bytes:
    start = b'{"kind":"report","group":"g","member":"m","at":1,"sequence":1,"partitions":[{"topic":"t","partition":0,'
    return start + field + b"}]}"


SPOILT = [
    (None, "empty"),
    (b"{", "malformed"),
    (b"[1]", "malformed"),
    (b"\xff\xfe", "malformed"),
    (b'{"kind":"report","group":"g","member":"m","at":"noon","sequence":1}', "malformed"),
    (b"{}", "unknown_kind"),
    (b'{"kind":"novel","group":"g","member":"m","at":1,"sequence":1}', "unknown_kind"),
    (b'{"kind":"report","member":"m","at":1,"sequence":1}', "missing_field"),
    (b'{"kind":"report","group":"g","member":"m","at":1e10,"sequence":1}', "ahead"),
    (b'{"kind":"report","group":"g","member":"m","at":1e300,"sequence":1}', "out_of_range"),
    (b'{"kind":"report","group":"g","member":"m","at":-1,"sequence":1}', "out_of_range"),
    (b'{"kind":"report","group":"g","member":"m","at":1,"sequence":1,"interval":0}', "out_of_range"),
    (b'{"kind":"report","group":"victim","member":"m","at":1,"sequence":1}', "foreign_group"),
    (b'{"kind":"report","group":"g","member":"m","at":1,"sequence":-1}', "out_of_range"),
    (b'{"kind":"report","group":"g","member":"m","at":1,"sequence":1,"startup_seconds":1e9}', "out_of_range"),
    (b'{"kind":"report","group":"g","member":"m","at":1,"sequence":1,"startup_seconds":-5}', "out_of_range"),
    (b'{"kind":"report","group":"g","member":"m","at":1,"sequence":1,"handoffs":[0.1,-1]}', "out_of_range"),
    (b'{"kind":"report","group":"g","member":"m","at":1,"sequence":1,"handoffs":[1e300]}', "out_of_range"),
    (b'{"kind":"report","group":"g","member":"m","at":1,"sequence":1,"interval":1e999}', "out_of_range"),
    (b'{"kind":"report","group":"' + b"x" * 239 + b'","member":"m","at":1,"sequence":1}', "long_group"),
    (of_partition(b'"arrived":9000000000000000000'), "out_of_range"),
    (of_partition(b'"arrived":-1'), "out_of_range"),
    (of_partition(b'"done":1000000000001'), "out_of_range"),
    (of_partition(b'"bytes":9e18'), "malformed"),
    (of_partition(b'"cost_mean":1e300'), "out_of_range"),
    (of_partition(b'"arrived":' + b"9" * 400), "malformed"),
    (of_partition(b'"cost_mean":' + b"9" * 400), "out_of_range"),
    (b'{"kind":"report","group":"g","member":"m","at":1,"sequence":1,"partitions":[null]}', "out_of_range"),
    (of_topic(b""), "out_of_range"),
    (of_topic(b"t" * 250), "out_of_range"),
    (of_topic(b"t" * 249), "late"),
    (
        b'{"kind":"report","group":"g","member":"m","at":1,"sequence":1,"instance_type":"' + b"x" * 201 + b'"}',
        "out_of_range",
    ),
    (
        b'{"kind":"report","group":"g","member":"m","at":1,"sequence":1,"x":' + b"[" * 1100 + b"]" * 1100 + b"}",
        "malformed",
    ),
    (b'{"kind":"report","group":"g","member":"m","at":1,"sequence":1}', "late"),
]


def test_reasons(spark: SparkSession) -> None:
    """Each as it was, in the order of writing; none has a day, which a time out of all bounds could not have."""
    rows = parsed(kafka_rows(spark, [value for value, _ in SPOILT]), 60.0, "b/0").orderBy("offset").collect()
    assert [(row["value"], row["quarantined_for"], row["date"]) for row in rows] == [
        (value, reason, None) for value, reason in SPOILT
    ]


LEFT_OUT = {"work_windows", "slots_open", "slots_second"}
"""What the history does not keep, so that nobody looks at it."""
GOLDEN = Path(__file__).parents[2] / "golden" / "records-v1.jsonl"


def telemetry_in_gold() -> list[dict[str, Any]]:
    """A report and a decision with all their fields, of one group and one moment."""
    records = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
    found = [max((one for one in records if one["kind"] == kind), key=len) for kind in ("report", "decision")]
    return [one | {"group": "g", "at": MONDAY + 1.0} for one in found]


def numbers_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the history's numbers are in a record."""
    match value:
        case bool() | str() | None:
            return
        case dict() | list():
            places = value.items() if isinstance(value, dict) else enumerate(value)
            for key, each in places:
                if key not in LEFT_OUT:
                    yield from numbers_in(each, (*path, key))
        case _:
            yield path


def with_number(record: dict[str, Any], path: tuple[Any, ...], number: float) -> bytes:
    changed = json.loads(json.dumps(record))
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = number
    return json.dumps(changed).encode()


def test_what_the_members_decoder_refuses_for_a_number_is_quarantined(spark: SparkSession) -> None:
    gold = telemetry_in_gold()
    odd = (-2, 4_000, 90_000, 2 * 10**6, 2 * 10**9, 2 * 10**12, 10**19, 10**31, 1e31, -1e31)
    values = [with_number(one, path, number) for one in gold for path in numbers_in(one) for number in odd]
    refused = [is_refused(value) for value in values]
    assert not any(map(is_refused, map(json.dumps, gold)))
    assert len(set(refused)) == 2
    rows = parsed(kafka_rows(spark, [*values, *(json.dumps(one).encode() for one in gold)]), 9e9, "b/0")
    found = [row["quarantined_for"] for row in rows.orderBy("offset").select("quarantined_for").collect()]
    assert found[-2:] == [None, None]
    missed = [value for value, no, why in zip(values, refused, found, strict=False) if no and why is None]
    assert missed == []


def is_refused(value: str | bytes) -> bool:
    try:
        decode(value.encode() if isinstance(value, str) else value)
    except UnreadableRecord:
        return True
    return False


def test_a_groups_control_topic_as_the_members_name_it(spark: SparkSession) -> None:
    groups = ["payments", "a-1", "a.b_c", "ä€ß/ 1", "_", "_2e", "x" * 238, "é" * 39, "é" * 40, "x" * 239, "g\n"]
    pairs = [(control_topic(topic), group) for topic in groups for group in groups] + [("__loadtrim.a_2e", "a_2e")]
    short = [group for group in groups if group not in ("é" * 40, "x" * 239)]
    rows = spark.createDataFrame(pairs, "topic string, g string")
    told = rows.select("topic", "g", is_topic_of(F.col("topic"), F.col("g")).alias("its")).collect()
    assert [row["its"] for row in told] == [topic == control_topic(group) and group in short for topic, group in pairs]


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


def test_a_group_with_a_long_id_leaves_the_others(spark: SparkSession, tmp_path: Path) -> None:
    """No file system has a directory of its name, so its first report ended the stream for all groups."""
    tables = Tables(str(tmp_path))
    open_tables(spark, tables)
    names = ["x" * 238, "é" * 39, ("/" * 79) + "x", "x" * 250, "é" * 130]
    rows = [kafka_rows(spark, [encode(report(1, MONDAY + 1, group=name))], topic=control_topic(name)) for name in names]
    every = reduce(DataFrame.unionByName, rows)
    batch = take_in(every, tables, 60.0, "b/0")
    assert (batch.accepted, batch.reasons) == (3, (("long_group", 2),))


def test_why_latency_is_unknown_is_kept_of_members_and_of_decisions(spark: SparkSession, tmp_path: Path) -> None:
    """Reports name a reason, decisions one per member: a column with both types would quarantine all of one kind."""
    tables = Tables(str(tmp_path))
    open_tables(spark, tables)
    told = report(1, MONDAY + 1.0, untold="tasks", unknown=3, slicing_off="paused", arrival_delay=0.02)
    decided = msgspec.structs.replace(decision(2, MONDAY + 2.0), untold={"m": "tasks"}, slicing=True, replicas_max=4)
    batch = take_in(kafka_rows(spark, [encode(told), encode(decided)]), tables, 60.0, "b/0")
    assert (batch.accepted, batch.quarantined) == (2, 0)
    first, second = spark.read.format("delta").load(tables.history).orderBy("at").collect()
    assert (first["untold"], first["unknown"], first["slicing_off"], first["arrival_delay"]) == (
        "tasks", 3, "paused", 0.02,
    )  # fmt: skip
    assert (second["untold_members"], second["slicing"], second["replicas_max"]) == ({"m": "tasks"}, True, 4)
