"""Kafka records of the telemetry partition become rows of the history, or of the quarantine with a reason. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import inspect
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from loadtrim_agent.wire.envelope import TELEMETRY
from loadtrim_agent.wire.topic_names import CONTROL_PREFIX, TOPIC_NAME_MAX
from loadtrim_spark.pipeline.columns import FIELDS, HISTORY_COLUMNS, QUARANTINE_COLUMNS, RECORDS

__all__ = [
    "IDENTITY",
    "first_of_each",
    "is_topic_of",
    "parsed",
    "quarantined",
    "telemetry",
]

INSTANCE_TYPE_MAX = 200
"""Characters of the name of a type of instances. Chosen: several times what clouds call theirs."""
AHEAD_SECONDS_MAX = 600.0
"""A record whose time is further ahead of the broker's than this is from a clock that is wrong."""
_PLAIN_GROUP = r"^[a-zA-Z0-9-]+\z"
"""Group ids whose letters stand for themselves in the topic's name."""
_PLAIN_BYTE = "^(2D|3[0-9]|4[1-9A-F]|5[0-9A]|6[1-9A-F]|7[0-9A])$"
"""The same letters as hexadecimal bytes."""
IDENTITY = ("kind", "group", "member", "sequence", "at")
"""What tells one record from another: a copy of it has all of these in common."""
_JSON = f"{FIELDS}, _corrupt string"


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
    fields = [F.col(f"json.`{name}`").alias(name) for name in _names(FIELDS)]
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
    # Within a lambda, which the optimizer does not look into. Of a condition on a dozen fields that are columns, too,
    # it would try all combinations of both, for minutes.
    record = F.array("json")
    odd, long = F.exists(record, _is_odd), F.exists(record, lambda json: _is_long(json["group"]))
    foreign = F.exists(record, lambda json: ~is_topic_of(F.col("topic"), json["group"]))
    interval = F.coalesce(F.col("json.interval"), F.lit(1.0))
    return (
        F.when(F.col("value").isNull(), "empty")
        .when(F.col("json._corrupt").isNotNull() | F.col("json").isNull(), "malformed")
        .when(F.col("json.kind").isNull() | ~F.col("json.kind").isin(*RECORDS), "unknown_kind")
        .when(any_absent, "missing_field")
        .when(long, "long_group")
        # Before all that is about numbers: they are none of this group's.
        .when(foreign, "foreign_group")
        .when((at <= 0) | (interval <= 0) | odd, "out_of_range")
        .when(at > appended + AHEAD_SECONDS_MAX, "ahead")
        .when(at < appended - late_seconds, "late")
    )


def _is_odd(json: Column) -> Column:
    """Return whether a record has a number that nobody measures, an entry about no partition, or too long a name.

    Each name comes to be in what is published of the group, and a record there must not be larger than Kafka takes.
    """
    placeless = F.exists(
        F.coalesce(json["partitions"], F.array()),
        lambda part: (
            ~F.coalesce(F.length(part["topic"]).between(1, TOPIC_NAME_MAX), F.lit(False)) | part["partition"].isNull()
        ),
    )
    long = F.coalesce(F.length(json["instance_type"]) > INSTANCE_TYPE_MAX, F.lit(False))
    kept = T.StructType.fromDDL(FIELDS)
    odd = {kind: _is_beyond(json, inspect.type_info(record), kept) for kind, record in RECORDS.items()}
    return F.greatest(placeless, long, F.when(json["kind"] == "report", odd["report"]).otherwise(odd["decision"]))


def _is_beyond(value: Column, written: inspect.Type, stored: T.DataType) -> Column:
    """Return whether a number in a value is out of the range that the agent's decoder holds it to.

    Args:
        value: what was read.
        written: its type as members write it, with the ranges.
        stored: its type as the history has it. What the history leaves out is not looked at.
    """
    match written, stored:
        case inspect.UnionType(types=types), _:
            (told,) = (one for one in types if not isinstance(one, inspect.NoneType))
            return _is_beyond(value, told, stored)
        case (inspect.IntType() | inspect.FloatType()) as number, _ if number.ge is not None and number.le is not None:
            return F.coalesce(~value.between(number.ge, number.le), F.lit(False))
        case inspect.VarTupleType(item_type=item), T.ArrayType(elementType=element):
            return F.coalesce(F.exists(value, lambda one: _is_beyond(one, item, element)), F.lit(False))
        case inspect.TupleType(item_types=items), T.ArrayType(elementType=element):
            return _any(_is_beyond(F.get(value, F.lit(n)), item, element) for n, item in enumerate(items))
        case inspect.DictType(value_type=item), T.MapType(valueType=element):
            return _is_beyond(F.map_values(value), inspect.VarTupleType(item), T.ArrayType(element))
        case inspect.StructType(fields=fields), T.StructType():
            kept = [field for field in fields if field.encode_name in stored.fieldNames()]
            names = [field.encode_name for field in kept]
            return _any(_is_beyond(value[n], f.type, stored[n].dataType) for n, f in zip(names, kept, strict=True))
    return F.lit(False)


def _any(conditions: Iterable[Column]) -> Column:
    return F.greatest(F.lit(False), *conditions)


def is_topic_of(topic: Column, group: Column) -> Column:
    """Return whether a topic is a group's control topic; of a group with a long id none is.

    Whoever may write to one control topic would otherwise have a say in what is learnt of every group.
    """
    return topic == F.concat(F.lit(CONTROL_PREFIX), F.when(~_is_long(group), _escaped(group)).otherwise(F.lit("")))


def _is_long(group: Column) -> Column:
    """Return whether a group's id does not fit into a topic's name, which holds a digest of it then.

    What fits there fits into the name of a directory too: no character takes more room in that.
    """
    return F.length(_escaped(group)) > TOPIC_NAME_MAX - len(CONTROL_PREFIX)


def _escaped(group: Column) -> Column:
    """Return a group's id as :func:`loadtrim_agent.wire.topic_names.control_topic` writes it."""
    pieces = F.transform(
        F.regexp_extract_all(F.hex(F.encode(group, "UTF-8")), F.lit("(..)"), F.lit(1)),
        lambda byte: F.when(byte.rlike(_PLAIN_BYTE), F.char(F.conv(byte, 16, 10).cast("bigint"))).otherwise(
            F.concat(F.lit("_"), F.lower(byte))
        ),
    )
    # The first is so of nearly all groups, and costs next to nothing.
    return F.when(group.rlike(_PLAIN_GROUP), group).otherwise(F.array_join(pieces, ""))


def _names(columns: str) -> list[str]:
    schema = T.StructType.fromDDL(columns)
    assert isinstance(schema, T.StructType)
    return list(schema.fieldNames())
